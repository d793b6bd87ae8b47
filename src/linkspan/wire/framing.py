"""Cut bytes into messages: lines of a byte stream, events of an SSE stream. Each byte is searched once."""

from __future__ import annotations

from typing import Final

import msgspec

_HEAD: Final = 4096
_TAIL: Final = 1024


class TooLong(msgspec.Struct, frozen=True):
    """The two ends of a line that was over the bound; what was between them has been thrown away.

    They overlap if the line is short. `tail` is empty where the stream ended before the line did.
    """

    head: bytes
    tail: bytes

    @classmethod
    def of(cls, line: bytes) -> TooLong:
        """Return the ends of a whole line."""
        return cls(line[:_HEAD], line[-_TAIL:])


class LineReader(msgspec.Struct):
    """Cut a byte stream into lines of up to `limit` bytes, newline excluded, whatever the chunks; search each byte once."""

    limit: int
    _parts: list[bytes] = msgspec.field(default_factory=list[bytes])
    _size: int = 0
    _head: bytes = b""
    _tail: bytes = b""

    def receive_data(self, data: bytes) -> list[bytes | TooLong]:
        """Return the lines that `data` completes, without their newlines; blank ones are left out."""
        if b"\n" not in data:  # a part of a large message
            self._keep(data)
            return []
        *lines, rest = data.split(b"\n")
        limit = self.limit
        if len(lines) == 1 and not rest and not self._size and 2 <= len(data) <= limit and not data.isspace():
            return [lines[0]]  # one whole line, as nearly always
        found: list[bytes | TooLong] = []
        if self._size:
            self._keep(lines.pop(0))
            found = self._finish()
        if rest:
            self._keep(rest)
        for line in lines:
            if len(line) > limit:
                found.append(TooLong.of(line))
            elif line and not line.isspace():
                found.append(line)
        return found

    def receive_eof(self) -> list[bytes | TooLong]:
        """Return the last line if the stream ended without a newline."""
        self._tail = b""  # the line may have been cut anywhere
        return self._finish()

    def _keep(self, part: bytes) -> None:
        self._size += len(part)
        if self._size <= self.limit:
            self._parts.append(part)
            return
        if self._parts:
            part = b"".join([*self._parts, part])
            self._parts = []
        self._head += part[: _HEAD - len(self._head)]
        self._tail = (self._tail + part[-_TAIL:])[-_TAIL:]

    def _finish(self) -> list[bytes | TooLong]:
        """Return the line that was kept, unless it is blank, and begin with the next."""
        too_long = self._size > self.limit
        line: bytes | TooLong = TooLong(self._head, self._tail) if too_long else b"".join(self._parts)
        self._parts, self._size = [], 0
        self._head = self._tail = b""
        return [line] if isinstance(line, TooLong) or (line and not line.isspace()) else []


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
