"""The responses of JSON-RPC batches, which wait for each other: sent together when the last is there (MSG-32).

Only one revision has batches: https://modelcontextprotocol.io/specification/2025-03-26/basic.
"""

from __future__ import annotations

from linkspan.wire.messages import RequestId, encode_batch

__all__ = ["Batches"]


class _Batch:
    __slots__ = ("responses", "waiting")

    def __init__(self) -> None:
        self.waiting: set[RequestId] = set()
        self.responses: list[bytes] = []

    def ready(self) -> bytes | None:
        return encode_batch(self.responses) if self.responses and not self.waiting else None


class Batches:
    """The batches of one connection that are being received, or wait for responses."""

    __slots__ = ("_of", "_open")

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

    def end(self) -> bytes | None:
        """Note that all of the batch has been received; return its responses if they are complete."""
        batch, self._open = self._open, None
        return batch.ready() if batch is not None else None

    def expect(self, request_id: RequestId) -> None:
        """Let the batch that is being received, if any, wait for the response to this request."""
        if self._open is not None:
            self._of[request_id] = self._open
            self._open.waiting.add(request_id)

    def collect(self, request_id: RequestId, response: bytes) -> bytes | None:
        """Take a response; return what can be sent now: the response itself if it is not part of a batch."""
        return self._leave(request_id, response) if request_id in self._of else response

    def collect_rejection(self, response: bytes) -> bytes | None:
        """Take an error about something that was no request; return it if no batch is being received."""
        if self._open is None:
            return response
        self._open.responses.append(response)
        return None

    def drop(self, request_id: RequestId) -> bytes | None:
        """Expect no response to this request any more; return those that have waited only for it."""
        return self._leave(request_id, None) if request_id in self._of else None

    def _leave(self, request_id: RequestId, response: bytes | None) -> bytes | None:
        batch = self._of.pop(request_id)
        batch.waiting.discard(request_id)
        if response is not None:
            batch.responses.append(response)
        return None if batch is self._open else batch.ready()
