"""The responses of JSON-RPC batches, which wait for each other: sent together when the last is there (MSG-32).

Only one revision has batches: https://modelcontextprotocol.io/specification/2025-03-26/basic.
"""

from __future__ import annotations

import msgspec

from linkspan.core.call import Delivery
from linkspan.wire.messages import RequestId, encode_batch

__all__ = ["Batches"]


class _Batch(msgspec.Struct, eq=False):
    waiting: set[RequestId] = msgspec.field(default_factory=set[RequestId])
    responses: list[bytes] = msgspec.field(default_factory=list[bytes])
    error: int | None = None
    dispatched: bool = False

    def add(self, response: Delivery) -> None:
        """Collect a response. What concerns the whole batch: its last error, and whether any request was dispatched."""
        if response.data is not None:
            self.responses.append(response.data)
            self.error = response.error or self.error
            self.dispatched = self.dispatched or response.dispatched

    def whole(self, about: RequestId | None) -> Delivery:
        """Return all responses, if none is waited for."""
        data = encode_batch(self.responses) if self.responses and not self.waiting else None
        return Delivery(data, about, True, self.error, self.dispatched)


class Batches:
    """The batches of one connection that are being received, or wait for responses."""

    def __init__(self) -> None:
        """Begin without any."""
        self._of: dict[RequestId, _Batch] = {}
        self._open: _Batch | None = None

    @property
    def receiving(self) -> bool:
        """Whether the message at hand is part of a batch."""
        return self._open is not None

    def begin(self) -> None:
        """Take what is received and answered from now on as one batch."""
        self._open = _Batch()

    def end(self) -> Delivery:
        """Note that all of the batch has been received; return its responses if they are complete."""
        batch, self._open = self._open or _Batch(), None
        return batch.whole(None)

    def expect(self, request_id: RequestId) -> None:
        """Let the batch that is being received, if any, wait for the response to this request."""
        if self._open is not None:
            self._of[request_id] = self._open
            self._open.waiting.add(request_id)

    def collect(self, response: Delivery) -> Delivery:
        """Take a response, or the end without one; return what can be sent now: itself if it is not part of a batch."""
        about = response.about
        if about is None:  # an error about something that was no request
            if self._open is None:
                return response
            self._open.add(response)
            return Delivery(None, final=True)
        batch = self._of.pop(about, None)
        if batch is None:
            return response
        batch.waiting.discard(about)
        batch.add(response)
        return Delivery(None, about, True) if batch is self._open else batch.whole(about)
