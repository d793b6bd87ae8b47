"""Newline-delimited framing, one message a line (STDIO-1). Knows bytes and newlines; knows nothing of JSON."""

from __future__ import annotations

from typing import Final

import msgspec

__all__ = ["LineReader", "TooLong"]

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
        *lines, rest = data.split(b"\n")
        limit = self.limit
        if len(lines) == 1 and not rest and not self._size and 2 <= len(data) <= limit and not data.isspace():
            return [lines[0]]  # one whole line, as nearly always
        found: list[bytes | TooLong] = []
        if lines and self._size:
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
        return [line] if isinstance(line, TooLong) or line.strip() else []
