"""Results as bytes, in the revision of the client that asked."""

from __future__ import annotations

from msgspec import Raw

from linkspan.errors import LocalProtocolError
from linkspan.revisions import legacy, modern
from linkspan.revisions.neutral import Encoded, InputRequired, Request
from linkspan.types.base import Wire

__all__ = ["encode_outcome"]


def encode_outcome(request: Request, outcome: Wire | Encoded | Raw | InputRequired, ending: bytes) -> bytes:
    """Encode what came of a request; `ending` are the members that end each complete result of the newest revision.

    Raises: LocalProtocolError for a question to a client that is asked in another way; whatever encoding raises.
    """
    if request.peer.revision.era == "modern":
        return modern.encode_result(request, outcome, ending)
    if isinstance(outcome, InputRequired):
        raise LocalProtocolError("an interim result cannot be sent to a handshake client")
    return legacy.encode_result(request, outcome)
