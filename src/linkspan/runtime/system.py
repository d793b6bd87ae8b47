"""What the operating system gives: clocks, randomness, and files that only their owner can read."""

from __future__ import annotations

import operator
import os
import stat
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager, suppress
from functools import cache, partial
from typing import TYPE_CHECKING, Final, Literal, TextIO, cast

import msgspec

from linkspan.runtime.forks import ForkedLock, depth

if TYPE_CHECKING:
    from concurrent.futures import Future

    from linkspan.core.call import Lifespan
    from linkspan.runtime.files import OneFile
    from linkspan.runtime.held import TaskOnLoop
    from linkspan.runtime.limits import Limiter
    from linkspan.runtime.workers import Workers
    from linkspan.server.lifespan import LifespanPlan
    from linkspan.server.limits import CallLimits, IsolatedCall, Isolation, Limited
    from linkspan.server.steps import Steps
    from linkspan.server.telemetry import Telemetry

_KEPT: Final = 8 * 1024 * 1024
"""Bytes: the parts of messages of a few MB are not larger, and the allocator keeps twice as much for the next."""


def keep_freed_memory() -> None:
    """Have the allocator of a process that serves keep what a large message has used, for the next one.

    glibc gives freed memory back at once, until a larger block is freed; this one is never touched. Otherwise each message of
    1 MB faults 2,000 pages in, which takes longer than all that is done with its bytes. Other allocators do not mind.
    """
    bytes(_KEPT)


class RealSystem(msgspec.Struct, frozen=True):
    """Time and chance, from the operating system."""

    clock: Callable[[], float] = time.monotonic
    wall_clock: Callable[[], float] = time.time
    random: Callable[[int], bytes] = os.urandom
    lock: Callable[[], AbstractContextManager[object]] = ForkedLock
    forks: Callable[[], int] = depth

    def file(self, path: str | os.PathLike[str]) -> OneFile:
        """Find a file that a resource is read from. Raises: OSError if there is none."""
        from linkspan.runtime.files import OneFile

        return OneFile(path)

    def off_the_loop(self, run: Callable[[], object]) -> None:
        """Run an author's hook that does not raise: here, or in a thread of its own where an event loop would wait for it."""
        loops = sys.modules.get("asyncio.events")
        if loops is None or loops._get_running_loop() is None:
            run()
        else:
            _threads("hooks").submit_or_run(run)

    def later(self, awaitable: Awaitable[object]) -> None:
        """Await something on the background loop, without holding up the caller."""
        from linkspan.runtime.background import background_loop

        background_loop().submit(lambda: awaitable)

    def drive(self, steps: Steps) -> object:
        """Take steps to their end and return the value of the last; where an event loop runs here, return an awaitable of it.

        Elsewhere, what must be awaited is awaited on the background loop.
        """
        from linkspan.server.steps import await_steps, run_steps

        loops = sys.modules.get("asyncio.events")
        if loops is not None and loops._get_running_loop() is not None:
            return await_steps(steps, self)
        value = run_steps(steps, self)
        if not hasattr(type(value), "__await__"):
            return value
        from linkspan.runtime.background import run_awaitable

        return run_awaitable(cast("Awaitable[object]", value))

    async def in_thread(
        self, function: Callable[[], object], purpose: Literal["calls", "sessions"] = "calls"
    ) -> object:
        """Run a function that may block in a thread for a purpose, in a copy of the context; give its outcome.

        A waiter that is cancelled waits for the end of the function all the same, and is cancelled then.
        """
        import asyncio
        from concurrent.futures import Future
        from contextvars import copy_context

        outcome: Future[object] = Future()
        _threads(purpose).submit(partial(_settle, outcome, partial(copy_context().run, function)))
        waiting = asyncio.wrap_future(outcome)
        cancelled: asyncio.CancelledError | None = None
        while not waiting.done():
            try:
                await asyncio.wait([waiting])
            except asyncio.CancelledError as error:
                cancelled = error
        if cancelled is not None:
            waiting.exception()  # retrieved, so that asyncio does not log it
            raise cancelled
        return waiting.result()

    def limited(self, limits: CallLimits) -> Limited:
        """Return what runs the calls of a tool within its limits."""

        limiter: Limiter | None = None

        async def run(function: Callable[[], object], on_late: Callable[[], object]) -> object:
            nonlocal limiter
            if limiter is None:  # not before there is an event loop, which its module needs
                from linkspan.runtime.limits import Limiter

                limiter = Limiter(limits, self.in_thread)
            return await limiter(function, on_late)

        return run

    def telemetry(self) -> Telemetry | None:
        """Return what traces and measures requests, if the application has set a provider of OpenTelemetry."""
        if "opentelemetry.trace" not in sys.modules:
            return None
        from linkspan.runtime.otel import ServerTelemetry, is_provided

        return ServerTelemetry() if is_provided() else None

    def lifespan(self, plan: LifespanPlan) -> Lifespan:
        """Return what enters and leaves a lifespan in this process."""
        from linkspan.runtime.lifespan import ProcessLifespan

        return ProcessLifespan(plan)

    def isolate(self, isolation: Isolation) -> IsolatedCall:
        """Return what runs the calls of a tool in processes of their own."""
        from linkspan.runtime.isolated import ProcessPool

        return ProcessPool(isolation)

    def hold(self, run: Callable[[], object], on_lost: Callable[[BaseException], object]) -> TaskOnLoop:
        """Run a coroutine function in a task of its own, which other calls wait for."""
        from linkspan.runtime.held import TaskOnLoop

        return TaskOnLoop(run, on_lost)

    def share(self, awaitable: Awaitable[object]) -> Callable[[], Awaitable[object]]:
        """Run something in a task of its own; each call of the result gives its outcome, on any event loop.

        Raises: RuntimeError where no event loop runs.
        """
        import asyncio
        from concurrent.futures import Future

        outcome: Future[object] = Future()
        outcome.set_running_or_notify_cancel()  # so that a waiter that is cancelled cannot cancel it

        async def run() -> None:
            try:
                value = await awaitable
            except BaseException as error:  # also what would end the loop: it ends the requests that wait
                outcome.set_exception(error)
            else:
                outcome.set_result(value)

        running = run()
        try:
            task = asyncio.get_running_loop().create_task(running)
        except RuntimeError:
            running.close()
            raise
        _shared.add(task)
        task.add_done_callback(_shared.discard)
        return lambda: asyncio.wrap_future(outcome)


def _settle(outcome: Future[object], function: Callable[[], object]) -> None:
    try:
        value = function()
    except BaseException as error:
        outcome.set_exception(error)
    else:
        outcome.set_result(value)


@cache
def _threads(_purpose: Literal["hooks", "calls", "sessions"]) -> Workers[Callable[[], object]]:
    """Return the threads for one purpose: hooks must not wait for functions that block, nor calls for the store of sessions."""
    from linkspan.runtime.workers import Workers

    return Workers(operator.call)


SYSTEM = RealSystem()
_shared: set[object] = set()
"""Tasks that run for `share`: a loop itself keeps them only weakly."""


_OWNER_ONLY: Final = 0o600


def open_private(path: str | os.PathLike[str], errors: str = "strict") -> TextIO:
    """Open a text file to be written anew, readable by its owner only, also if it was there before. Raises: OSError."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | getattr(os, "O_CLOEXEC", 0), _OWNER_ONLY)
    if sys.platform != "win32" and stat.S_ISREG(os.fstat(descriptor).st_mode):
        with suppress(OSError):  # owned by another user, yet writable
            os.fchmod(descriptor, _OWNER_ONLY)
    return os.fdopen(descriptor, "w", encoding="utf-8", errors=errors)
