"""Calls an application's callbacks, one after the other in the order of events, away from the thread that reads.

On the application's event loop if it has one, else in a thread that lives as long as there is something to tell. What a
callback raises is logged, and hurts nobody.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import asyncio

__all__ = ["Courier", "is_awaitable"]


def is_awaitable(value: object) -> bool:
    """Tell whether a value must be awaited."""
    return hasattr(type(value), "__await__")


class Courier:
    """One application's deliveries. `loop` is where its callbacks belong; None for a thread."""

    def __init__(self) -> None:
        self.loop: asyncio.AbstractEventLoop | None = None
        self._lock = threading.Lock()
        self._idle = threading.Condition(self._lock)
        self._waiting: deque[tuple[Callable[..., Any], object]] = deque()
        self._busy = False

    def post(self, callback: Callable[..., Any], value: object) -> None:
        """Call `callback` with `value`, after everything that was posted before."""
        with self._lock:
            self._waiting.append((callback, value))
            if self._busy:
                return
            self._busy = True
        loop = self.loop
        if loop is not None:
            try:
                loop.call_soon_threadsafe(self._start, loop)
            except RuntimeError:
                pass  # closed: the callbacks still come, in a thread
            else:
                return
        threading.Thread(target=self._deliver, name="linkspan-callbacks", daemon=True).start()

    def settle(self, timeout: float) -> None:
        """Wait until everything is delivered, at most `timeout` seconds. For threads."""
        with self._idle:
            self._idle.wait_for(lambda: not self._busy, timeout)

    def _next(self) -> tuple[Callable[..., Any], object] | None:
        with self._lock:
            if self._waiting:
                return self._waiting.popleft()
            self._busy = False
            self._idle.notify_all()
            return None

    def _deliver(self) -> None:
        while (next_one := self._next()) is not None:
            callback, value = next_one
            try:
                found = callback(value)
                if is_awaitable(found):
                    from linkspan.io.background import run_awaitable

                    run_awaitable(found)
            except Exception:
                _complain(callback)

    def _start(self, loop: asyncio.AbstractEventLoop) -> None:
        self._task = loop.create_task(self._deliver_on_loop())

    async def _deliver_on_loop(self) -> None:
        while (next_one := self._next()) is not None:
            callback, value = next_one
            try:
                found = callback(value)
                if is_awaitable(found):
                    await found
            except Exception:
                _complain(callback)


def _complain(callback: Callable[..., Any]) -> None:
    logging.getLogger("linkspan").exception("a client's callback %r raised", callback)
