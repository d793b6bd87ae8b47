"""Worker threads for plain `def` functions: a backlog, as many daemon threads as it needs, and a share for each client."""

from __future__ import annotations

import sys
import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable
from contextlib import suppress
from typing import Final, Generic, TypeVar

from linkspan.runtime.forks import renew

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
        self._threads = self._starting = 0
        self._waking = self._closed = False

    def submit(self, item: ItemT) -> None:
        """Run `item` soon. Raises: RuntimeError if the system has no thread for it; it is not run then."""
        with self._lock:
            self._backlog.append(item)
            wake = None if self._waking and not self._none_is_here else self._choose()
        if wake is None:
            return
        try:
            wake()
        except RuntimeError:
            if self._withdraw(item):
                raise

    def submit_or_run(self, item: ItemT) -> None:
        """Run `item` soon, or here where the system has no thread for it: for what must not be lost."""
        try:
            self.submit(item)
        except RuntimeError:
            self._run(item)

    def _withdraw(self, item: ItemT) -> bool:
        """Take an item back; False if a thread has it already."""
        with self._lock:
            if item not in self._backlog:
                return False
            self._backlog.remove(item)
            return True

    def abandon(self, item: ItemT) -> None:
        """Stop counting the thread that runs `item`: no caller waits for it, and it cannot be stopped."""
        with self._lock:
            if item not in self._busy or len(self._abandoned) >= self._limit:
                return
            self._abandoned.add(item)
            wake = self._choose() if self._backlog and not self._waking else None
        if wake is not None:
            wake()

    def close(self) -> None:
        """Let the threads end that are idle, and the others once their item is done; nothing is submitted any more."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for gate in idle:
            gate.release()

    @property
    def _none_is_here(self) -> bool:
        """Under the lock: whether all threads are still being started, of which each may not come."""
        return self._threads == self._starting

    def _choose(self) -> Callable[[], object] | None:
        """Under the lock: return how to get one more thread to work, if there may be one; the last idle one is warmest."""
        if len(self._busy) - len(self._abandoned) >= self._limit:
            return None
        if self._idle:
            self._waking = True
            return self._idle.pop().release
        if self._threads - len(self._abandoned) < self._limit or self._none_is_here:
            self._waking = True
            self._threads += 1
            self._starting += 1
            return self._add_thread
        return None

    def _add_thread(self) -> None:
        try:
            threading.Thread(target=self._work, name="linkspan-worker", daemon=True).start()
        except RuntimeError:  # the system has no more threads: the ones that there are will do
            with self._lock:
                self._waking = False
                self._threads -= 1
                self._starting -= 1
                if self._none_is_here:
                    raise

    def _work(self) -> None:
        gate = threading.Lock()
        gate.acquire()
        lock, backlog, run = self._lock, self._backlog, self._run
        busy, abandoned = self._busy, self._abandoned
        item: ItemT | None = None
        with lock:
            self._starting -= 1
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
                if item is None and self._closed:
                    self._threads -= 1
                    return
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


class Shares(Generic[ItemT]):
    """Passes items on, and keeps back those of clients that have their share; first come, first served within a client."""

    def __init__(self, submit: Callable[[ItemT], object], bound: int) -> None:
        """Pass at most `bound` items of one client to `submit` before one of them is `done`."""
        self._submit = submit
        self._bound = bound
        self.start_afresh()
        renew(self)

    def start_afresh(self) -> None:
        """Begin with nothing passed on and nothing kept back; what is, is the parent's."""
        self._lock = threading.Lock()
        self._held: dict[Hashable, int] = {}
        self._waiting: dict[Hashable, OrderedDict[ItemT, None]] = {}

    def submit(self, item: ItemT, client: Hashable) -> None:
        """Pass `item` on now, or when the client has room. Raises: what passing it on raises."""
        with self._lock:
            held = self._held.get(client, 0)
            if held >= self._bound:
                self._waiting.setdefault(client, OrderedDict())[item] = None
                return
            self._held[client] = held + 1
        try:
            self._submit(item)
        except RuntimeError:
            self.done(client)
            raise

    def withdraw(self, item: ItemT, client: Hashable) -> bool:
        """Forget an item that was kept back; False if it was passed on already."""
        with self._lock:
            waiting = self._waiting.get(client)
            if waiting is None or item not in waiting:
                return False
            del waiting[item]
            if not waiting:
                del self._waiting[client]
            return True

    def done(self, client: Hashable) -> None:
        """Pass the client's next item on, if there is one: one of those passed on has ended."""
        with self._lock:
            waiting = self._waiting.get(client)
            if waiting is None:
                held = self._held.pop(client) - 1
                if held:
                    self._held[client] = held
                return
            item, _ = waiting.popitem(last=False)
            if not waiting:
                del self._waiting[client]
        self._submit(item)
