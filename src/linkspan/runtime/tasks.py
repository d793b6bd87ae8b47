"""Async calls as tasks of one event loop. Knows no transport.

Law: each call is a task of its own, so that whatever the author does with the current task is right; it is held until
it ends, and nothing that it raises reaches the loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, cast

from linkspan.runtime.calls import Driver

if TYPE_CHECKING:
    from linkspan.core.call import Call

__all__ = ["Tasks", "is_closed"]


def is_closed(error: BaseException, task: asyncio.Task[object] | None) -> bool:
    """Return whether `error` closes the coroutine of `task`, whose loop is over, and was not raised by the function in it."""
    if task is None or not isinstance(error, GeneratorExit):
        return False
    try:
        return asyncio.current_task() is not task
    except RuntimeError:
        return True


class Tasks:
    """The calls of one driver that run on `loop`. Use it in the loop's thread."""

    def __init__(self, driver: Driver, loop: asyncio.AbstractEventLoop, on_done: Callable[[], object]) -> None:
        """`on_done` is called after each call, when its answer is ready to be sent."""
        self._driver = driver
        self._loop = loop
        self._on_done = on_done
        self._tasks: dict[Call, asyncio.Task[None]] = {}

    def __bool__(self) -> bool:
        """Whether any call is at work."""
        return bool(self._tasks)

    def start(self, call: Call, awaitable: Awaitable[object] | None) -> None:
        """Run `call`, or wait for the `awaitable` that its function has returned."""
        if not call.cancelled and not (task := self._loop.create_task(self._run(call, awaitable))).done():
            self._tasks[call] = task  # an eager one may have ended already

    def cancel(self, call: Call) -> None:
        """Cancel the task of `call`, if it has one."""
        task = self._tasks.get(call)
        if task is not None:
            task.cancel()

    async def _run(self, call: Call, awaitable: Awaitable[object] | None) -> None:
        try:
            value = await (cast("Awaitable[object]", call.run()) if awaitable is None else awaitable)
        except BaseException as error:
            if is_closed(error, self._tasks.get(call)):
                raise
            end = partial(self._driver.fail, call, error)
        else:
            end = partial(self._driver.finish, call, value)
        finally:
            self._tasks.pop(call, None)
        if call.hooked:
            self._driver.end_in_thread(end)
            return
        end()
        self._on_done()
