"""The responses that are complete in one turn of an event loop, written together at its end.

Each write between two reads finds the client asleep, and wakes it: that costs more than the rest of a small call. Written one
after the other they wake it once.
Law: no I/O, no clock and no loop of its own: these are arguments. What is written to a transport leaves in its order, as long as
all else is written, and it is closed, by the methods here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Protocol

LONG: Final = 0.001
"""Seconds after which a response is kept no longer, once the one that is being made is complete, too."""
WARY: Final = 100
"""Responses of which none is kept, after one that took `LONG`: so slow functions hold few responses of others, and once each."""
MOST: Final = 65536
"""Bytes that are kept of all transports together: a client may send hundreds of requests at once, and not read."""


class Writable(Protocol):
    """The part of a transport that is used here."""

    def write(self, data: bytes, /) -> object:
        """Send bytes, after those of earlier calls."""
        ...

    def writelines(self, list_of_data: Sequence[bytes], /) -> object:
        """Send bytes that are in parts."""
        ...

    def close(self) -> object:
        """Send what was written, and end."""
        ...


class WriteBatch:
    """What is kept for transports until the end of a turn."""

    def __init__(self, call_soon: Callable[[Callable[[], object]], object], clock: Callable[[], float]) -> None:
        """`call_soon` calls back at the end of the turn; `clock` gives seconds."""
        self._call_soon = call_soon
        self._clock = clock
        self._kept: dict[Writable, bytes] = {}
        self._size = 0
        self._wary = 0
        """How many responses more are written at once."""
        self._scheduled = False
        self._last: Writable | None = None
        """The one with the latest response."""
        self._began = self._latest = 0.0

    def write_soon(self, transport: Writable, data: bytes) -> None:
        """Write a response at the end of the turn; at once if the one before was of the same transport, which is alone then."""
        kept = self._kept
        if not kept:
            if self._last is None or self._last is transport or self._wary:
                self._wary = max(0, self._wary - 1)
                self._last = transport
                transport.write(data)
                return
            self._began = self._latest = self._clock()
            if not self._scheduled:
                self._scheduled = True
                self._call_soon(self._end_turn)
        self._last = transport
        kept[transport] = kept.get(transport, b"") + data
        self._size += len(data)
        if self._look_at_clock() or self._size > MOST:
            self._write_all()

    def write_now(self, transport: Writable, data: bytes) -> None:
        """Write what is kept for a transport, and this."""
        self.release(transport)
        transport.write(data)

    def write_parts(self, transport: Writable, parts: Sequence[bytes]) -> None:
        """Write what is kept for a transport, and parts that would be expensive to join."""
        self.release(transport)
        transport.writelines(parts)

    def close(self, transport: Writable) -> None:
        """Write what is kept for a transport, and close it."""
        self.release(transport)
        transport.close()

    def release(self, transport: Writable) -> None:
        """Write what is kept for a transport."""
        if (data := self._kept.pop(transport, None)) is not None:
            self._size -= len(data)
            transport.write(data)

    def forget(self, transport: Writable) -> None:
        """Drop what is kept for a transport: it has no other end any more."""
        self._size -= len(self._kept.pop(transport, b""))
        if self._last is transport:
            self._last = None

    def _end_turn(self) -> None:
        self._scheduled = False
        if self._kept:
            self._look_at_clock()
            self._write_all()

    def _look_at_clock(self) -> bool:
        """Return whether the first response was kept too long; be wary where one single step took so long."""
        now = self._clock()
        if now - self._latest > LONG:
            self._wary = WARY
        self._latest = now
        return now - self._began > LONG

    def _write_all(self) -> None:
        kept, self._kept, self._size = self._kept, {}, 0
        for transport, data in kept.items():
            transport.write(data)


class Turns:
    """Whether the responses of an application of ASGI wait for the end of a turn: they are written by the server below it."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """`clock` gives seconds."""
        self._clock = clock
        self._kept = self._wary = 0
        self._latest = 0.0

    def keep(self) -> bool:
        """Return whether a response that is complete now should wait for the others of this turn; then `let_go` follows."""
        if self._kept:
            self._look_at_clock()
        else:
            self._latest = self._clock()
        if self._wary:
            self._wary -= 1
            return False
        self._kept += 1
        return True

    def let_go(self) -> None:
        """Note that a response has waited."""
        self._kept -= 1
        self._look_at_clock()

    def _look_at_clock(self) -> None:
        now = self._clock()
        if now - self._latest > LONG:
            self._wary = WARY
        self._latest = now
