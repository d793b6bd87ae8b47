"""The one writer of a connection's output: whoever has something to send drains for everybody.

Law: bytes leave in the order in which the connection produced them; the thread that reads never blocks here; other
threads block only while they write, or while more than `bound` bytes are unsent.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Protocol

from linkspan.io.descriptors import Outlet, write_all

__all__ = ["Source", "Writer"]


class Source(Protocol):
    """Where output comes from."""

    def data_to_send(self) -> bytes:
        """Return what must be sent now, and forget it."""
        ...


class Writer:
    """Sends a source's output to a descriptor."""

    def __init__(
        self, source: Source, lock: threading.RLock, fd: int, *, bound: int, on_change: Callable[[], object]
    ) -> None:
        """`lock` guards `source`. `on_change` hears, from any thread, that there is room again or that nobody reads."""
        self._source = source
        self._lock = lock
        self._room = threading.Condition(lock)
        self._fd = fd
        self._outlet = Outlet(fd)
        self._bound = bound
        self._on_change = on_change
        self._pending: list[bytes] = []
        self._writing = False
        self.unsent = 0
        self.broken = False

    @property
    def full(self) -> bool:
        """Whether producers have to wait."""
        return self.unsent > self._bound

    def flush(self) -> None:
        """Send what there is; wait while too much is unsent. For threads that may block."""
        with self._lock:
            if not self._take():
                if self.full:
                    self._room.wait_for(lambda: not self.full)
                return
        self._drain()

    def flush_now(self) -> None:
        """Send what goes out without blocking, and leave the rest to a thread. For the thread that reads."""
        with self._lock:
            if not self._take():
                return
        while data := self._next():
            rest = self._write_some(data)
            if rest:
                with self._lock:
                    self._pending.insert(0, rest)
                threading.Thread(target=self._drain, name="linkspan-output", daemon=True).start()
                return

    def wait_empty(self, timeout: float) -> None:
        """Wait until all is sent, or until `timeout` seconds have passed."""
        with self._lock:
            self._room.wait_for(lambda: not self.unsent, timeout)

    def _take(self) -> bool:
        """Take over the source's output; tell whether the caller has become the writer."""
        data = self._source.data_to_send()
        if self.broken:
            return False
        if data:
            self._pending.append(data)
            self.unsent += len(data)
        if self._writing or not self._pending:
            return False
        self._writing = True
        return True

    def _next(self) -> bytes:
        """Return the next bytes to write; with none left the caller is the writer no more."""
        with self._lock:
            pending = self._pending
            if not pending:
                self._writing = False
                return b""
            data = pending[0] if len(pending) == 1 else b"".join(pending)
            self._pending = []
            return data

    def _drain(self) -> None:
        while data := self._next():
            try:
                write_all(self._fd, data)
            except OSError:
                self._break()
            else:
                self._sent(len(data))

    def _write_some(self, data: bytes) -> bytes:
        try:
            rest = self._outlet.write_some(data)
        except OSError:
            self._break()
            return b""
        self._sent(len(data) - len(rest))
        return rest

    def _sent(self, count: int) -> None:
        with self._lock:
            was_full = self.full
            self.unsent -= count
            if self.unsent and not was_full:
                return
            self._room.notify_all()
        if was_full:
            self._on_change()

    def _break(self) -> None:
        with self._lock:
            self.broken = True
            self._pending = []
            self.unsent = 0
            self._room.notify_all()
        self._on_change()
