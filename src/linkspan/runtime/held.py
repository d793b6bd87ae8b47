"""A coroutine in a task of its own, which other calls wait for, on whatever event loop they run."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from contextlib import suppress
from typing import cast


class TaskOnLoop:
    """A function that runs on the running event loop, pauses, and goes on."""

    def __init__(self, run: Callable[[], object], on_lost: Callable[[BaseException], object]) -> None:
        """Begin `run`, which returns an awaitable; `on_lost` receives what it raises after its call has ended."""
        self._loop = asyncio.get_running_loop()
        self._on_lost = on_lost
        self._asked: Future[bool] | None = None  # what the call waits for that waits now, if one does
        self._pauses: list[asyncio.Future[None]] = []
        self._late: asyncio.TimerHandle | None = None
        self._given_up = False
        self._value: object = None
        self._error: BaseException | None = None
        self._ended = _uncancellable()
        self._task = self._loop.create_task(self._run(run))

    async def _run(self, run: Callable[[], object]) -> None:
        try:
            self._value = await cast("Awaitable[object]", run())
        except GeneratorExit:  # the loop is over
            raise
        except BaseException as error:  # also what would end the loop: it ends the call
            self._error = error
        self._ended.set_result(True)
        self._answer(False)
        if self._given_up:
            self._give_up_error()

    async def until_question(self, *, wake: bool) -> bool:
        """Wait until the coroutine asks, or has ended; return whether it asks. With `wake`, let it go on first.

        Cancelled, cancel the coroutine and wait for its end. Raises: RuntimeError if its event loop is gone.
        """
        if wake and not self._loop.is_running():
            raise RuntimeError("the event loop of the call is gone")
        self._asked = asked = _uncancellable()
        if wake:
            self._loop.call_soon_threadsafe(self._wake)
        if self._ended.done():
            self._answer(False)
        try:
            return await asyncio.wrap_future(asked)
        except asyncio.CancelledError:
            self._loop.call_soon_threadsafe(self._task.cancel)
            await asyncio.wait([asyncio.wrap_future(self._ended)])
            raise

    async def pause(self) -> None:
        """Wait, inside of the coroutine, until it may go on."""
        self._pauses.append(pause := self._loop.create_future())
        self._loop.call_soon(self._answer, True)  # later, so that questions that are asked at the same time go together
        await pause

    def result(self) -> object:
        """Return its value once it has ended. Raises: what it raised."""
        if self._error is not None:
            raise self._error
        return self._value

    def cancel_in(self, seconds: float, on_late: Callable[[], object]) -> None:
        """Cancel it after `seconds` in which it did not go on, and call `on_late`; at once if they are 0."""
        with suppress(RuntimeError):  # the loop is closed, and the task has ended with it
            self._loop.call_soon_threadsafe(self._set_deadline, seconds, on_late)

    def _set_deadline(self, seconds: float, on_late: Callable[[], object]) -> None:
        if self._late is not None:
            self._late.cancel()
        self._late = self._loop.call_later(seconds, self._give_up, on_late) if seconds else None
        if not seconds:
            self._give_up(on_late)

    def _give_up(self, on_late: Callable[[], object]) -> None:
        on_late()
        self._given_up = True
        self._task.cancel()
        if self._ended.done():
            self._give_up_error()

    def _give_up_error(self) -> None:
        error, self._error = self._error, None
        if error is not None and not isinstance(error, asyncio.CancelledError):
            self._on_lost(error)

    def _wake(self) -> None:
        if self._late is not None:
            self._late.cancel()
        pauses, self._pauses = self._pauses, []
        for each in pauses:
            if not each.done():
                each.set_result(None)

    def _answer(self, asks: bool) -> None:
        asked, self._asked = self._asked, None
        if asked is not None:
            asked.set_result(asks)


def _uncancellable() -> Future[bool]:
    """Return a future that those who wait for it cannot cancel."""
    future: Future[bool] = Future()
    future.set_running_or_notify_cancel()
    return future
