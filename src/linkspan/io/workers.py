"""Worker threads for plain `def` functions: a queue, and as many daemon threads as are busy, up to a bound.

Law: a submitted item waits for a thread only when `limit` of them are at work. Threads are daemons, so a function that
never returns cannot keep the process alive; those that have had nothing to do for a while go away.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Final, Generic, TypeVar

__all__ = ["MAX_WORKERS", "Workers"]

MAX_WORKERS: Final = 64
"""Plain functions that run at the same time, by default."""

_IDLE_SECONDS: Final = 30.0

ItemT = TypeVar("ItemT")


class Workers(Generic[ItemT]):
    """Runs one function over submitted items, each in some thread."""

    def __init__(self, run: Callable[[ItemT], object], limit: int = MAX_WORKERS) -> None:
        """`run` must not raise."""
        self._run = run
        self._limit = limit
        self._queue: SimpleQueue[ItemT] = SimpleQueue()
        self._lock = threading.Lock()
        self._threads = 0
        self._unfinished = 0

    def submit(self, item: ItemT) -> None:
        """Run `item` soon, in a thread of its own if all are busy and the limit allows."""
        with self._lock:
            self._unfinished += 1
            grow = self._unfinished > self._threads < self._limit
            if grow:
                self._threads += 1
        self._queue.put(item)
        if grow:
            threading.Thread(target=self._work, name="linkspan-worker", daemon=True).start()

    def _work(self) -> None:
        get, run, lock = self._queue.get, self._run, self._lock
        while True:
            try:
                item = get(timeout=_IDLE_SECONDS)
            except Empty:
                with lock:
                    if self._unfinished >= self._threads:
                        continue
                    self._threads -= 1
                return
            run(item)
            del item
            with lock:
                self._unfinished -= 1
