"""Which URLs turned out to be servers of the handshake era: the next client of the process does not ask them again (ERA-2).

Only that much is remembered, for a while, and only until a server contradicts: a wrong memory costs one question.
"""

from __future__ import annotations

import threading
import time
from typing import Final

from linkspan.io.forks import start_afresh_with

__all__ = ["forget", "is_legacy", "remember_legacy"]

_MOST: Final = 256
_SECONDS: Final = 600.0

_known: dict[str, float] = {}
_lock = threading.Lock()


def remember_legacy(endpoint: str) -> None:
    """Remember that the server at `endpoint` wants a handshake."""
    with _lock:
        _known.pop(endpoint, None)
        while len(_known) >= _MOST:
            del _known[next(iter(_known))]
        _known[endpoint] = time.monotonic() + _SECONDS


def is_legacy(endpoint: str) -> bool:
    """Tell whether a server is known to want a handshake."""
    with _lock:
        until = _known.get(endpoint)
        if until is not None and until < time.monotonic():
            del _known[endpoint]
            return False
        return until is not None


def forget(endpoint: str) -> None:
    """Take back what was remembered."""
    with _lock:
        _known.pop(endpoint, None)


def _start_afresh() -> None:
    global _lock
    _lock = threading.Lock()


start_afresh_with(_start_afresh)
