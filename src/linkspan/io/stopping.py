"""Whether the HTTP server around us was asked to stop.

No protocol says so in time: uvicorn sends its lifespan event, and gunicorn ends its threads, only after all connections have
ended, and a stream that is open for our messages never ends by itself. Both note the signal in the object whose method handles
it, so that is where to look.
"""

from __future__ import annotations

import signal

__all__ = ["is_stopping"]


def is_stopping() -> bool:
    """Return whether a server that handles SIGTERM was asked to stop; False where nothing shows that. Any thread."""
    try:
        owner: object = getattr(signal.getsignal(signal.SIGTERM), "__self__", None)
    except ValueError:
        return False
    if owner is None:
        return False
    if getattr(owner, "should_exit", False) is True:  # uvicorn, and what builds on its server
        return True
    return type(owner).__module__.startswith("gunicorn.") and getattr(owner, "alive", True) is False
