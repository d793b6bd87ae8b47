"""The one place that knows of forks: in a forked child everything starts afresh, and nothing of the parent's is touched.

A child has the thread that forked, and copies of all that the parent had: locks that no thread will release, queues that no
thread reads, loops that do not run, descriptors that lead to the parent's servers. Law: whatever holds one of these from one
call to the next registers here when it is made. Its `start_afresh` runs in the child before anything else does, and makes it as
if it had never been used: new locks, no threads, no connection. It takes no old lock, and neither waits, closes, signals nor
sends. Our copies of the parent's descriptors point to /dev/null from then on, so that a server sees the end when the
parent hangs up, and nothing that is collected in the child can reach it. A fork waits
for the modules of ours that other threads are loading.
"""

from __future__ import annotations

import os
import sys
import time
import weakref
from _thread import RLock
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Final, Protocol

import msgspec

__all__ = ["Afresh", "ForkedLock", "depth", "keep", "lead_nowhere", "renew", "start_afresh_with"]


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


class _Kept(msgspec.Struct, gc=False):
    """Refers to itself, which no collector sees: it stays until the process has ended, and what it holds does."""

    things: tuple[object, ...]
    itself: _Kept | None = None


def keep(*things: object) -> None:
    """In a child: hold what is the parent's, so that it is never collected, which closes connections and runs `finally`."""
    kept = _Kept(things)
    kept.itself = kept


def lead_nowhere(fds: Iterable[int]) -> None:
    """Point descriptors to /dev/null: their numbers stay taken, and nothing that is done with them reaches the other end."""
    with suppress(OSError):
        nowhere = os.open(os.devnull, os.O_RDWR)
        for fd in fds:
            with suppress(OSError):
                os.dup2(nowhere, fd, inheritable=False)
        os.close(nowhere)


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


def _start_afresh() -> None:
    global _depth
    _depth += 1
    for step in (*_steps, *(each.start_afresh for each in list(_renewed))):
        try:
            step()
        except Exception:  # the others must start afresh all the same
            import logging

            logging.getLogger("linkspan").exception("an error after a fork")


def _wait_until_loaded() -> None:
    """Wait while another thread loads a module of ours: in the child it would stay half loaded, and its lock held.

    The thread that forks loads none: no module of ours forks while it is loaded.
    """
    given_up = time.monotonic() + _PATIENCE
    while any(_is_being_loaded(*each) for each in list(sys.modules.items())) and time.monotonic() < given_up:
        time.sleep(0.001)


def _is_being_loaded(name: str, module: object) -> bool:
    return name.startswith("linkspan.") and getattr(getattr(module, "__spec__", None), "_initializing", False)


if sys.platform != "win32":
    os.register_at_fork(before=_wait_until_loaded, after_in_child=_start_afresh)
