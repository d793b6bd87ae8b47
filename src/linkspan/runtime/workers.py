"""Worker threads for plain `def` functions: a backlog, and as many daemon threads as it needs, up to a bound.

Law: while items wait, some thread is on its way to them unless `limit` are at work; so a function that blocks holds up
no other, and a burst of quick ones wakes few threads. Each woken thread wakes the next one if there is work left. A
thread whose item was abandoned is not counted, so another takes its place: there are at most twice as many threads as
`limit`.
Threads are daemons: a function that never returns cannot keep the process alive. Those with nothing to do go away.
"""

from __future__ import annotations

import sys
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Final, Generic, TypeVar

from linkspan.runtime.forks import renew

__all__ = ["MAX_WORKERS", "Workers"]

MAX_WORKERS: Final = 64
"""Plain functions that run at the same time, by default."""

_IDLE_SECONDS: Final = 30.0

ItemT = TypeVar("ItemT")


class Workers(Generic[ItemT]):
    """Runs one function over submitted items, each in some thread."""

    def __init__(self, run: Callable[[ItemT], object], limit: int = MAX_WORKERS) -> None:
        """What `run` raises is reported as an uncaught exception of a thread is; the thread goes on. Items are hashable."""
        self._run = run
        self._limit = limit
        self.start_afresh()
        renew(self)

    def start_afresh(self) -> None:
        """Begin without threads and without a backlog; what waits in the parent is run there."""
        self._lock = threading.Lock()
        self._backlog: deque[ItemT] = deque()
        self._busy: set[ItemT] = set()
        self._abandoned: set[ItemT] = set()
        self._idle: list[threading.Lock] = []
        self._threads = 0
        self._waking = False

    def submit(self, item: ItemT) -> None:
        """Run `item` soon."""
        with self._lock:
            self._backlog.append(item)
            wake = None if self._waking else self._choose()
        if wake is not None:
            wake()

    def abandon(self, item: ItemT) -> None:
        """Stop counting the thread that runs `item`: no caller waits for it, and it cannot be stopped."""
        with self._lock:
            if item not in self._busy or len(self._abandoned) >= self._limit:
                return
            self._abandoned.add(item)
            wake = self._choose() if self._backlog and not self._waking else None
        if wake is not None:
            wake()

    def _choose(self) -> Callable[[], object] | None:
        """Under the lock: return how to get one more thread to work, if there may be one; the last idle one is warmest."""
        if len(self._busy) - len(self._abandoned) >= self._limit:
            return None
        if self._idle:
            self._waking = True
            return self._idle.pop().release
        if self._threads - len(self._abandoned) < self._limit:
            self._waking = True
            self._threads += 1
            return self._add_thread
        return None

    def _add_thread(self) -> None:
        try:
            threading.Thread(target=self._work, name="linkspan-worker", daemon=True).start()
        except RuntimeError:  # the system has no more threads: the ones that there are will do
            with self._lock:
                self._waking = False
                self._threads -= 1
                if not self._threads:
                    raise

    def _work(self) -> None:
        gate = threading.Lock()
        gate.acquire()
        lock, backlog, run = self._lock, self._backlog, self._run
        busy, abandoned = self._busy, self._abandoned
        item: ItemT | None = None
        woken = True
        while True:
            wake = None
            with lock:
                if woken:
                    self._waking = woken = False
                if item is not None:
                    busy.discard(item)
                    abandoned.discard(item)
                item = backlog.popleft() if backlog and len(busy) - len(abandoned) < self._limit else None
                if item is None:
                    self._idle.append(gate)
                else:
                    busy.add(item)
                    if backlog and not self._waking:
                        wake = self._choose()
            if wake is not None:
                wake()
            if item is not None:
                try:
                    run(item)
                except BaseException:
                    _report()
            elif self._rest(gate):
                woken = True
            else:
                return

    def _rest(self, gate: threading.Lock) -> bool:
        """Wait for work; False if none came for so long that the thread shall end."""
        if gate.acquire(timeout=_IDLE_SECONDS):
            return True
        with self._lock:
            if gate in self._idle:
                self._idle.remove(gate)
                self._threads -= 1
                return False
        return gate.acquire()  # chosen at the last moment


def _report() -> None:
    with suppress(BaseException):
        threading.excepthook(threading.ExceptHookArgs((*sys.exc_info(), threading.current_thread())))
