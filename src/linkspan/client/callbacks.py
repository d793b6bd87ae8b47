"""Calls an application's callbacks, one after the other in the order of events, away from the thread that reads.

On the application's event loop if it has one, else in a thread that lives as long as there is something to tell. A loop
that ends in the middle of it hands over to a thread. What a callback raises is logged, and hurts nobody.
"""

from __future__ import annotations

import contextvars
import logging
import threading
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from linkspan.runtime.forks import renew

if TYPE_CHECKING:
    import asyncio

__all__ = ["CallbackQueue", "is_awaitable"]


def is_awaitable(value: object) -> bool:
    """Tell whether a value must be awaited."""
    return hasattr(type(value), "__await__")


class _Round:
    """One walk through what waits, on a loop or in a thread (None). `task` is only held."""

    __slots__ = ("loop", "task")

    def __init__(self, loop: asyncio.AbstractEventLoop | None) -> None:
        self.loop = loop
        self.task: asyncio.Task[None] | None = None

    @property
    def stranded(self) -> bool:
        """Whether its loop has ended under it."""
        return self.loop is not None and self.loop.is_closed()


class CallbackQueue:
    """One application's deliveries. `loop` is where its callbacks belong; None for a thread."""

    def __init__(self) -> None:
        self.start_afresh()
        renew(self)

    def start_afresh(self) -> None:
        """Begin with nothing to deliver; what waits in the parent is delivered there."""
        self.loop: asyncio.AbstractEventLoop | None = None
        self._lock = threading.Lock()
        self._idle = threading.Condition(self._lock)
        self._waiting: deque[tuple[Callable[..., Any], object]] = deque()
        self._round: _Round | None = None

    def post(self, callback: Callable[..., Any], value: object) -> None:
        """Call `callback` with `value`, after everything that was posted before."""
        with self._lock:
            self._waiting.append((callback, value))
            if self._round is not None and not self._round.stranded:
                return
            begun = self._round = _Round(self.loop)
        self._begin(begun)

    def settle(self, timeout: float) -> None:
        """Wait until everything is delivered, at most `timeout` seconds; not where that would be waiting for the caller."""
        if _delivering.get() is self:
            return
        with self._lock:
            current = self._round
            if current is not None and current.stranded:
                current = self._round = _Round(None)
                self._begin(current)
            if current is None or (current.loop is not None and not _runs_elsewhere(current.loop)):
                return
            self._idle.wait_for(lambda: self._round is None, timeout)

    def _begin(self, begun: _Round) -> None:
        if begun.loop is not None:
            try:
                begun.loop.call_soon_threadsafe(self._start, begun, begun.loop)
            except RuntimeError:
                begun.loop = None  # closed: the callbacks still come, in a thread
            else:
                return
        threading.Thread(target=self._deliver, args=(begun,), name="linkspan-callbacks", daemon=True).start()

    def _hand_over(self, ended: _Round) -> None:
        """Go on in a thread with what a round has left, because it cannot."""
        with self._lock:
            if self._round is not ended:
                return
            begun = self._round = _Round(None)
        self._begin(begun)

    def _next(self, current: _Round) -> tuple[Callable[..., Any], object] | None:
        with self._lock:
            if self._round is not current:
                return None
            if self._waiting:
                return self._waiting.popleft()
            self._round = None
            self._idle.notify_all()
            return None

    def _deliver(self, current: _Round) -> None:
        _delivering.set(self)
        try:
            while (next_one := self._next(current)) is not None:
                callback, value = next_one
                try:
                    found = callback(value)
                    if is_awaitable(found):
                        from linkspan.runtime.background import run_awaitable

                        run_awaitable(found)
                except Exception:
                    _complain(callback)
        except BaseException:
            self._hand_over(current)
            raise

    def _start(self, current: _Round, loop: asyncio.AbstractEventLoop) -> None:
        current.task = loop.create_task(self._deliver_on_loop(current))

    async def _deliver_on_loop(self, current: _Round) -> None:
        _delivering.set(self)
        try:
            while (next_one := self._next(current)) is not None:
                callback, value = next_one
                try:
                    found = callback(value)
                    if is_awaitable(found):
                        await found
                except Exception:
                    _complain(callback)
        except BaseException:  # cancelled, with its loop most likely
            self._hand_over(current)
            raise


_delivering: contextvars.ContextVar[CallbackQueue | None] = contextvars.ContextVar("linkspan_delivering", default=None)
"""Whose callback this is: what it calls must not wait for it."""


def _runs_elsewhere(loop: asyncio.AbstractEventLoop) -> bool:
    """Tell whether somebody else runs that loop now."""
    import asyncio

    try:
        return loop.is_running() and asyncio.get_running_loop() is not loop
    except RuntimeError:
        return True


def _complain(callback: Callable[..., Any]) -> None:
    logging.getLogger("linkspan").exception("a client's callback %r raised", callback)
