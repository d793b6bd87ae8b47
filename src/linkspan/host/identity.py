"""Which tool that is, for what is remembered of it: what a person allowed holds for this server, and for no other of its name."""

from __future__ import annotations

import hashlib
import json

from linkspan.client.errors import Origin

__all__ = ["tool_key"]

_DIGITS = 16


def tool_key(origin: Origin, directory: str | None, tool: str) -> str:
    """Return a key for a tool. Another command or URL under the same name is another server.

    So is the same command in another directory, where `python server.py` may be anything.
    """
    where = json.dumps([origin.command, origin.url, directory])
    mark = hashlib.sha256(where.encode()).hexdigest()[:_DIGITS]
    return f"{origin.server} {mark}/{tool}"
