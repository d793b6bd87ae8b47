"""One thread that waits for every client: for what servers send, for deadlines, for processes that end.

Law: nothing that runs here blocks or runs a user's code, and nothing that it raises ends the thread. Handlers and waiters
are woken from here and run elsewhere.
"""

from __future__ import annotations

import heapq
import itertools
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from typing import NoReturn, Protocol

from linkspan.loading import logger
from linkspan.runtime.descriptors import DescriptorWaiter, WakePipe
from linkspan.runtime.forks import keep, point_to_devnull, start_afresh_with
from linkspan.runtime.unexpected import Unexpected


class WatchedByReactor(Protocol):
    """Something that wants to be woken. All of it is called in the reactor's thread."""

    def next_timeout(self) -> float | None:
        """Return when `handle_timeout` is due, by the monotonic clock."""
        ...

    def handle_timeout(self, now: float) -> None:
        """Do what is due."""
        ...

    def handle_readable(self, fd: int) -> None:
        """Read from a descriptor that has something, or has ended."""
        ...


class Reactor:
    """The thread. It starts with the first thing to watch."""

    def __init__(self) -> None:
        """Prepare; nothing runs yet."""
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._wakes: WakePipe | None = None
        self._calls: deque[Callable[[], object]] = deque()
        self._timers: list[tuple[float, int, Callable[[], object]]] = []
        self._count = itertools.count()
        self._watched: list[WatchedByReactor] = []
        self._fds: dict[int, WatchedByReactor] = {}
        self._waiter: DescriptorWaiter | None = None
        self._sleeps_until = -math.inf
        self._expected = math.inf
        """When something may be due. It is kept if that is over sooner: each of many short calls would wake us otherwise."""

    def call(self, function: Callable[[], object]) -> None:
        """Run `function` in the thread, soon. Raises: RuntimeError if the thread cannot be started; the next call tries again."""
        with self._lock:
            if self._thread is None:
                self._wakes = self._wakes or WakePipe()
                thread = threading.Thread(target=self._serve, name="linkspan-clients", daemon=True)
                thread.start()
                self._thread = thread
        self._calls.append(function)
        if self._wakes is not None:
            self._wakes.wake()

    def expect(self, at: float) -> None:
        """Make sure that the thread is awake at that time. Cheap: deadlines are nearly always later than others."""
        if at < self._sleeps_until and self._wakes is not None:
            self._expected = at
            self._wakes.wake()

    def call_later(self, seconds: float, step: Callable[[], object]) -> None:
        """Run `step` in the thread after some seconds."""
        timer = (time.monotonic() + seconds, next(self._count), step)
        self.call(lambda: heapq.heappush(self._timers, timer))

    # In the thread.

    def watch(self, watched: WatchedByReactor, fds: Iterable[int] = ()) -> None:
        """Begin to watch something and its descriptors."""
        self._watched.append(watched)
        for fd in fds:
            self.add_fd(watched, fd)

    def add_fd(self, watched: WatchedByReactor, fd: int) -> None:
        """Watch another descriptor of something, or one that was dropped."""
        self._fds[fd] = watched
        self._waiter = None

    def drop_fd(self, fd: int) -> None:
        """Watch a descriptor no more; do this before it is closed."""
        self._fds.pop(fd, None)
        self._waiter = None

    def forget(self, watched: WatchedByReactor) -> None:
        """Watch something no more."""
        if watched in self._watched:
            self._watched.remove(watched)
        for fd in [fd for fd, owner in self._fds.items() if owner is watched]:
            self.drop_fd(fd)

    def leave_to_parent(self) -> None:
        """In a forked child: let go of everything, without notifying any peer."""
        wakes = self._wakes
        point_to_devnull([*self._fds, *((wakes.reader, wakes.writer) if wakes is not None else ())])
        keep(self)

    def _serve(self) -> None:
        wakes = self._wakes
        assert wakes is not None
        unexpected = Unexpected("linkspan", "connections of clients had to wait")
        while True:
            try:
                self._take_turns(wakes)
            except Exception as error:
                self._waiter = None  # it may be what failed
                time.sleep(unexpected.log(error))

    def _take_turns(self, wakes: WakePipe) -> NoReturn:
        while True:
            sleep = self._tick()
            if self._waiter is None:
                self._waiter = DescriptorWaiter(wakes.reader, *self._fds)
            for fd in self._waiter.wait(sleep):
                if fd == wakes.reader:
                    wakes.drain()
                elif (owner := self._fds.get(fd)) is not None:
                    try:
                        owner.handle_readable(fd)
                    except Exception as error:
                        _log_mistake(error)
            while self._calls:
                self._attempt(self._calls.popleft())

    def _tick(self) -> float | None:
        """Do what is due, and return for how many seconds nothing will be; None if nothing is to come."""
        self._sleeps_until = math.inf  # first, so that a deadline that is set from here on wakes us
        now = time.monotonic()
        while self._timers and self._timers[0][0] <= now:
            self._attempt(heapq.heappop(self._timers)[2])
        earliest = self._expected if self._expected > now else math.inf
        for watched in tuple(self._watched):
            try:
                due = watched.next_timeout()
                if due is not None and due <= now:
                    self._attempt(partial(watched.handle_timeout, now))
                    due = watched.next_timeout()
            except Exception as error:  # it would raise in each turn, before anything is read for the others
                _log_mistake(error, ", which is watched no more")
                self.forget(watched)
            else:
                if due is not None and due < earliest:
                    earliest = due
        if self._calls:
            return 0.0
        if self._timers and self._timers[0][0] < earliest:
            earliest = self._timers[0][0]
        self._sleeps_until = earliest
        return None if earliest == math.inf else max(0.0, earliest - time.monotonic())

    def _attempt(self, step: Callable[[], object]) -> None:
        try:
            step()
        except Exception as error:
            _log_mistake(error)


def _log_mistake(error: Exception, more: str = "") -> None:
    """Log a mistake of ours in one client, which must not stop the others."""
    logger("linkspan").error("an error in a client's connection%s", more, exc_info=error)


def reactor() -> Reactor:
    """Return the one of this process."""
    return _reactor


_reactor = Reactor()


def _start_afresh() -> None:
    global _reactor
    _reactor.leave_to_parent()
    _reactor = Reactor()


start_afresh_with(_start_afresh)
