"""Server-sent events, both directions. Knows lines and fields; independent of JSON-RPC and HTTP.

Spec: https://html.spec.whatwg.org/multipage/server-sent-events.html
"""

from __future__ import annotations

from typing import Final

import msgspec

__all__ = ["COMMENT", "EventReader", "ServerSentEvent", "encode_event"]

COMMENT: Final = b":\r\n\r\n"
"""Says nothing, and keeps what is between both ends from closing the connection."""


class ServerSentEvent(msgspec.Struct, frozen=True):
    """One event as it was dispatched. `retry` is in milliseconds."""

    data: str
    event: str = "message"
    id: str | None = None
    retry: int | None = None


def encode_event(
    data: bytes, *, event: str | None = None, event_id: str | None = None, retry: int | None = None
) -> bytes:
    """Encode one event; `data` is UTF-8 without line breaks, as encoded JSON is. `retry` is in milliseconds."""
    head = b""
    if event is not None:
        head += b"event: %b\r\n" % event.encode()
    if event_id is not None:
        head += b"id: %b\r\n" % event_id.encode()
    if retry is not None:
        head += b"retry: %d\r\n" % retry
    return b"%bdata: %b\r\n\r\n" % (head, data)


class TooLarge(ValueError):
    """An event is larger than the reader allows."""


class EventReader:
    """Cuts a byte stream into events, whatever the chunks and line endings. Comments and unknown fields are passed over.

    Each byte is looked at once, however long a line is, and comments without end take no room.
    """

    def __init__(self, limit: int) -> None:
        """Bound each event to `limit` bytes."""
        self._limit = limit
        self._rest: list[bytes] = []
        self._after_return = False
        self._first = True
        self._held = 0
        self._data: list[bytes] = []
        self._event = ""
        self._retry: int | None = None
        self.last_id: str | None = None

    def receive_data(self, data: bytes) -> list[ServerSentEvent]:
        """Return the events that `data` completes. Raises: TooLarge."""
        if self._after_return and data.startswith(b"\n"):
            data = data[1:]
            self._after_return = False
        if not data:
            return []
        self._after_return = data.endswith(b"\r")
        first, *lines = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        self._rest.append(first)
        self._held += len(first)
        events: list[ServerSentEvent] = []
        for following in lines:
            line = b"".join(self._rest)
            self._rest = [following]
            self._held += len(following) - len(line)
            if (event := self._take(line)) is not None:
                events.append(event)
        if self._held > self._limit:
            raise TooLarge(f"an event is larger than {self._limit} bytes")
        return events

    def _take(self, line: bytes) -> ServerSentEvent | None:
        if self._first:
            line, self._first = line.removeprefix(b"\xef\xbb\xbf"), False
        if not line:
            return self._dispatch()
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"data":
            self._data.append(value)
            self._held += len(value) + 1
        elif name == b"event":
            self._event = value.decode("utf-8", "replace")
        elif name == b"id" and b"\0" not in value:
            self.last_id = value.decode("utf-8", "replace")
        elif name == b"retry" and value.isdigit() and len(value) < 10:
            self._retry = int(value)
        return None

    def _dispatch(self) -> ServerSentEvent | None:
        data, event, retry = self._data, self._event, self._retry
        self._data, self._event, self._retry = [], "", None
        self._held = len(self._rest[0])  # no more than the beginning of the next line
        if not data and retry is None:
            return None
        return ServerSentEvent(b"\n".join(data).decode("utf-8", "replace"), event or "message", self.last_id, retry)
