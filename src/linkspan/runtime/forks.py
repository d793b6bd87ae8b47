"""The one place that knows of forks: in a forked child everything starts afresh, and nothing of the parent's is touched.

A child has the thread that forked, and copies of all that the parent had: locks that no thread will release, queues that no
thread reads, loops that do not run, descriptors that lead to the parent's servers. Law: whatever holds one of these from one
call to the next registers here when it is made. Its `start_afresh` runs in the child before anything else does, and makes it
as if it had never been used: new locks, no threads, no connection. It takes no old lock, and neither waits, closes, signals
nor sends. Our copies of the parent's descriptors point to /dev/null from then on, so that a server sees the end when the
parent hangs up, and nothing that is collected in the child can reach it. A fork waits for the modules of ours that other
threads are loading, and for what they do under `NO_FORK`.
"""

from __future__ import annotations

import importlib
import os
import sys
import time
import weakref
from _thread import RLock, allocate_lock, get_ident
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Final, Protocol

import msgspec


class Afresh(Protocol):
    """What must be made anew in a forked child."""

    def start_afresh(self) -> None:
        """Be as if never used, in a forked child."""
        ...


_steps: Final[list[Callable[[], object]]] = []
_renewed: Final[weakref.WeakSet[Afresh]] = weakref.WeakSet()
_depth = 0
_PATIENCE: Final = 5.0
"""Seconds that a fork waits at most for modules that other threads load."""


def depth() -> int:
    """Return how many forks led to this process: what was made at another depth is the parent's."""
    return _depth


def start_afresh_with(step: Callable[[], object]) -> None:
    """Take `step` in each child: for what a module holds."""
    _steps.append(step)


def renew(thing: Afresh) -> None:
    """Make `thing` start afresh in each child, for as long as it lives."""
    _renewed.add(thing)


class _KeptForEver(msgspec.Struct, gc=False):
    """Refers to itself, which no collector sees: it stays until the process has ended, and what it holds does."""

    things: tuple[object, ...]
    itself: _KeptForEver | None = None


def keep(*things: object) -> None:
    """In a child: hold what is the parent's, so that it is never collected, which closes connections and runs `finally`."""
    kept = _KeptForEver(things)
    kept.itself = kept


def point_to_devnull(fds: Iterable[int]) -> None:
    """Point descriptors to /dev/null: their numbers stay taken, and nothing that is done with them reaches the other end."""
    with suppress(OSError):
        sink = os.open(os.devnull, os.O_RDWR)
        for fd in fds:
            with suppress(OSError):
                os.dup2(sink, fd, inheritable=False)
        os.close(sink)


class ForkedLock:
    """A reentrant lock that no thread holds in a forked child, for what is shared by all and must not forget."""

    __slots__ = ("__weakref__", "_lock")

    def __init__(self) -> None:
        self.start_afresh()
        renew(self)

    def start_afresh(self) -> None:
        """Be free."""
        self._lock = RLock()

    def __enter__(self) -> object:
        return self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()


class _NoFork:
    """While a thread is inside, other threads do not fork: for work that a child must not find in halves.

    A fork waits 5 seconds for it at most; who comes during a fork waits for that. A thread may enter any number of times.
    """

    __slots__ = ("_forking", "_inside", "_one")

    def __init__(self) -> None:
        self.start_afresh()

    def start_afresh(self) -> None:
        """Have no thread inside."""
        self._inside: dict[int, int] = {}
        """How many times each thread is inside, by its identity."""
        self._forking: int | None = None
        """The thread that forks."""
        self._one = allocate_lock()

    def __enter__(self) -> None:
        me = get_ident()
        self._inside[me] = depth = self._inside.get(me, 0) + 1
        while depth == 1 and self._forking not in (None, me):
            self._inside.pop(me)
            time.sleep(0.001)
            self._inside[me] = 1

    def __exit__(self, *_: object) -> None:
        me = get_ident()
        depth = self._inside.get(me, 0) - 1
        if depth > 0:
            self._inside[me] = depth
        else:
            self._inside.pop(me, None)

    def begin_fork(self) -> None:
        """Let no other thread enter, and wait until no other thread is inside."""
        self._one.acquire()
        self._forking = me = get_ident()
        give_up = time.monotonic() + _PATIENCE
        while any(each != me for each in [*self._inside]) and time.monotonic() < give_up:
            time.sleep(0.001)

    def end_fork(self) -> None:
        """Let others enter again, in the parent."""
        self._forking = None
        self._one.release()


NO_FORK: Final = _NoFork()


def _start_afresh() -> None:
    global _depth
    _depth += 1
    for step in (*_steps, *(each.start_afresh for each in list(_renewed))):
        try:
            step()
        except Exception:  # the others must start afresh all the same
            import logging

            logging.getLogger("linkspan").exception("an error after a fork")


def _before() -> None:
    """Wait while another thread loads a module of ours: in the child it would stay half loaded, and its lock held."""
    NO_FORK.begin_fork()
    give_up = time.monotonic() + _PATIENCE
    while any(map(_is_being_loaded, [*_locks.items()])) and time.monotonic() < give_up:
        time.sleep(0.001)


_locks: Final[dict[str, weakref.ref[object]]] = getattr(getattr(importlib, "_bootstrap", None), "_module_locks", {})
"""Those of the modules that are being found or loaded, by name."""


def _is_being_loaded(lock: tuple[str, weakref.ref[object]]) -> bool:
    name, held = lock
    return name.startswith("linkspan.") and getattr(held(), "owner", None) not in (None, get_ident())


if sys.platform != "win32":
    start_afresh_with(NO_FORK.start_afresh)
    os.register_at_fork(before=_before, after_in_parent=NO_FORK.end_fork, after_in_child=_start_afresh)
