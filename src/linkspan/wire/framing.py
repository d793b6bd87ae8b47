"""Newline-delimited framing, one message a line (STDIO-1). Knows bytes and newlines; knows nothing of JSON."""

from __future__ import annotations

from typing import Final

__all__ = ["TOO_LONG", "LineReader", "TooLong"]


class TooLong:
    """Stands in the place of a line that was over the bound and has been thrown away."""

    __slots__ = ()


TOO_LONG: Final = TooLong()


class LineReader:
    """Cut a byte stream into lines, whatever the chunks; each byte is searched once."""

    __slots__ = ("_limit", "_parts", "_size", "_skipping")

    def __init__(self, limit: int) -> None:
        """Bound each line to `limit` bytes, newline excluded."""
        self._limit = limit
        self._parts: list[bytes] = []
        self._size = 0
        self._skipping = False

    def receive_data(self, data: bytes) -> list[bytes | TooLong]:
        """Return the lines that `data` completes, without their newlines; blank ones are left out."""
        first, *rest = data.split(b"\n")
        if not rest:
            return self._keep(first)
        lines: list[bytes | TooLong] = self._keep(first)
        if self._parts:
            lines.append(b"".join(self._parts))
        self._reset()
        tail = rest.pop()
        limit = self._limit
        lines += [line if len(line) <= limit else TOO_LONG for line in rest]
        lines += self._keep(tail)
        return [line for line in lines if isinstance(line, TooLong) or (line and not line.isspace())]

    def receive_eof(self) -> list[bytes]:
        """Return the last line if the stream ended without a newline."""
        last = b"".join(self._parts)
        self._reset()
        return [last] if last.strip() else []

    def _reset(self) -> None:
        self._parts = []
        self._size = 0
        self._skipping = False

    def _keep(self, part: bytes) -> list[bytes | TooLong]:
        if self._skipping or not part:
            return []
        self._size += len(part)
        if self._size <= self._limit:
            self._parts.append(part)
            return []
        self._parts = []
        self._skipping = True
        return [TOO_LONG]
