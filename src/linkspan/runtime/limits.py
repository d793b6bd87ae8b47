"""The limits of a tool: how long a call may take, and how many run at once."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from typing import Final, cast

from linkspan.errors import ToolError
from linkspan.runtime.forks import renew
from linkspan.server.limits import CallLimits

_CLEANUP: Final = 1.0
"""Seconds that a coroutine may take to end when its time is over."""


class Limiter:
    """Runs the calls of one tool within its limits, on any event loop."""

    def __init__(self, limits: CallLimits, in_thread: Callable[[Callable[[], object]], Awaitable[object]]) -> None:
        """`in_thread` runs a function that would block the loop."""
        self._limits = limits
        self._in_thread = in_thread
        self.start_afresh()
        renew(self)

    def start_afresh(self) -> None:
        """Begin without calls."""
        self._lock = threading.Lock()
        self._running = 0
        self._waiting: deque[Future[None]] = deque()

    async def __call__(self, run: Callable[[], object], on_late: Callable[[], object]) -> object:
        """Run a call and return its value. `on_late` is called when its time is over, while it may still run.

        What surrounds a call goes on when the call has ended: a coroutine that is cancelled ends first, for which it has
        `_CLEANUP` seconds if its time is over. Raises: ToolError if it takes too long, or if too many wait; what the call raises.
        """
        limits = self._limits
        await self._enter()
        work = asyncio.ensure_future(self._run(run))
        work.add_done_callback(self._leave)
        try:
            done, _ = await asyncio.wait([work], timeout=limits.timeout)
            if not done:
                on_late()
                work.cancel()
                if not limits.blocking:
                    await asyncio.wait([work], timeout=_CLEANUP)
        except asyncio.CancelledError:
            work.cancel()
            return await work
        if done:
            return work.result()
        raise ToolError(f"{limits.tool} was stopped after {limits.timeout:g} s")

    async def _run(self, run: Callable[[], object]) -> object:
        if self._limits.blocking:
            return await self._in_thread(run)
        return await cast("Awaitable[object]", run())

    async def _enter(self) -> None:
        limits = self._limits
        if limits.concurrency is None:
            return
        with self._lock:
            if self._running < limits.concurrency:
                self._running += 1
                return
            if len(self._waiting) >= limits.max_waiting:
                raise ToolError(
                    f"{limits.tool} is busy (running: {self._running}, waiting: {len(self._waiting)}); try again later"
                )
            turn: Future[None] = Future()
            self._waiting.append(turn)
        try:
            await asyncio.wrap_future(turn)
        except asyncio.CancelledError:
            with self._lock:
                is_ours = turn not in self._waiting
                if not is_ours:
                    self._waiting.remove(turn)
            if is_ours and not turn.cancelled():
                self._pass_on()
            raise

    def _leave(self, work: asyncio.Future[object]) -> None:
        if not work.cancelled():
            work.exception()  # retrieved, so that asyncio does not log that of a call that came too late
        if self._limits.concurrency is not None:
            self._pass_on()

    def _pass_on(self) -> None:
        with self._lock:
            while self._waiting:
                turn = self._waiting.popleft()
                if turn.set_running_or_notify_cancel():
                    turn.set_result(None)
                    return
            self._running -= 1
