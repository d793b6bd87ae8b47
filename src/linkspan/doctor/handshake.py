"""The request with which the doctor opens a session: that of an older client, which servers of both eras answer."""

from __future__ import annotations

from typing import Final

from linkspan.revisions import LATEST_LEGACY

INITIALIZE: Final = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": LATEST_LEGACY.date,
        "capabilities": {},
        "clientInfo": {"name": "linkspan-doctor", "version": "1"},
    },
}
