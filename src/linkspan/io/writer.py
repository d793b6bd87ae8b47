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
        self.bound = bound
        self._on_change = on_change
        self._pending: list[bytes] = []
        self._writing = False
        self._waiters = 0
        self._give_back: Callable[[], object] | None = None
        self.unsent = 0
        self.broken = False
        self.problem: OSError | None = None
        """Why nothing could be written any more."""

    @property
    def full(self) -> bool:
        """Whether producers have to wait."""
        return self.unsent > self.bound

    def flush(self) -> None:
        """Send what there is; wait while too much is unsent. For threads that may block."""
        with self._lock:
            data = self._take(self._source.data_to_send())
            if not data and self.unsent > self.bound:
                self._wait(lambda: not self.full, None)
        if data:
            self._write(data)

    def flush_now(self) -> None:
        """Send what goes out without blocking, and leave the rest to a thread. For the thread that reads."""
        with self._lock:
            data = self._source.data_to_send()
            if self._writing or self._pending or self.broken:
                data = self._take(data)
            elif data:
                self._writing = True
                self.unsent += len(data)
        while data:
            try:
                rest = self._outlet.write_some(data)
            except OSError as error:
                self._break(error)
                return
            if rest:
                with self._lock:
                    self.unsent -= len(data) - len(rest)
                threading.Thread(target=self._write, args=(rest,), name="linkspan-output", daemon=True).start()
                return
            data = self._next(len(data))

    def wait_empty(self, timeout: float) -> None:
        """Wait until all is sent, or until `timeout` seconds have passed."""
        with self._lock:
            self._wait(lambda: not self.unsent, timeout)

    def leave(self, give_back: Callable[[], object]) -> None:
        """Take on nothing more; call `give_back` as soon as nobody is writing, so that the descriptor may be closed."""
        with self._lock:
            self.broken = True
            self._pending = []
            self._give_back = give_back
            writing = self._writing
        if not writing:
            self._part()

    # With the lock held.

    def _take(self, data: bytes) -> bytes:
        """Queue output; return what the caller has to write, which is nothing while another thread writes."""
        if self.broken:
            return b""
        if data:
            self._pending.append(data)
            self.unsent += len(data)
        if self._writing or not self._pending:
            return b""
        self._writing = True
        return self._pop()

    def _pop(self) -> bytes:
        """Return all that is queued."""
        pending, self._pending = self._pending, []
        return pending[0] if len(pending) == 1 else b"".join(pending)

    def _wait(self, done: Callable[[], bool], timeout: float | None) -> None:
        self._waiters += 1
        self._room.wait_for(done, timeout)
        self._waiters -= 1

    # Without it.

    def _write(self, data: bytes) -> None:
        while data:
            try:
                write_all(self._fd, data)
            except OSError as error:
                self._break(error)
                return
            data = self._next(len(data))

    def _next(self, sent: int) -> bytes:
        """Note that the writer has sent so much, and return what it has to write next."""
        with self._lock:
            was_full = self.unsent > self.bound
            self.unsent -= sent
            if self._waiters:
                self._room.notify_all()
            data = self._pop() if self._pending else b""
            self._writing = bool(data)
        if not data and self._give_back is not None:
            self._part()
        if was_full:
            self._on_change()
        return data

    def _break(self, problem: OSError) -> None:
        with self._lock:
            self.broken = True
            self.problem = problem
            self._writing = False
            self._pending = []
            self.unsent = 0
            self._room.notify_all()
        self._part()
        self._on_change()

    def _part(self) -> None:
        """Nobody writes any more: give the descriptor back if somebody waits for that."""
        if self._give_back is None:
            return
        with self._lock:
            give_back, self._give_back = self._give_back, None
        if give_back is not None:
            give_back()
