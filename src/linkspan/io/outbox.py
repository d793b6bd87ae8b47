"""What is on its way to a descriptor, written in order by a thread of its own, so that nobody waits with a lock in hand."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

from linkspan.io.descriptors import write_all

__all__ = ["Outbox"]

_ROOM: Final = 8 * 1024 * 1024


class Outbox:
    """Takes any amount at once; whoever produces more asks for room first."""

    def __init__(self, fd: int, *, room: int = _ROOM, on_broken: Callable[[], object] | None = None) -> None:
        """`on_broken` hears that nobody reads any more."""
        self._fd = fd
        self._room = room
        self._on_broken = on_broken
        self._changed = threading.Condition()
        self._pending: list[bytes] = []
        self._unsent = 0
        self._ended = False
        self.thread = threading.Thread(target=self._work, name="linkspan-outbox", daemon=True)
        self.thread.start()

    def put(self, data: bytes) -> None:
        """Send `data` after what was put before, without waiting. After the end it goes nowhere."""
        with self._changed:
            if not self._ended:
                self._pending.append(data)
                self._unsent += len(data)
                self._changed.notify_all()

    def wait_for_room(self) -> None:
        """Wait while too much is unsent, so that a fast side is read no faster than the slow one reads."""
        with self._changed:
            self._changed.wait_for(lambda: self._unsent < self._room or self._ended)

    def end(self) -> None:
        """Take no more; the thread ends when all is sent."""
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def _work(self) -> None:
        try:
            while data := self._next():
                write_all(self._fd, data)
                with self._changed:
                    self._unsent -= len(data)
                    self._changed.notify_all()
        except OSError:
            self.end()
            if self._on_broken is not None:
                self._on_broken()

    def _next(self) -> bytes:
        with self._changed:
            self._changed.wait_for(lambda: self._pending or self._ended)
            data = b"".join(self._pending)
            self._pending.clear()
            return data
