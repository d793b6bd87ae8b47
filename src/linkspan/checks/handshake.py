"""The request with which a session is opened in revisions that have a handshake; servers of both eras answer it."""

from __future__ import annotations

from linkspan.revisions import LATEST_LEGACY
from linkspan.types.base import JSON, JSONObject


def handshake(name: str, date: str = LATEST_LEGACY.date, *, id: JSON = 1) -> JSONObject:
    """Return the request of a client with a name, without capabilities, for the revision of a date."""
    params: JSONObject = {
        "protocolVersion": date,
        "capabilities": {},
        "clientInfo": {"name": name, "version": "1"},
    }
    return {"jsonrpc": "2.0", "id": id, "method": "initialize", "params": params}
