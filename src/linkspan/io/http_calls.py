"""Runs the calls of HTTP requests: plain functions in shared worker threads, async ones as tasks of a loop.

Law: a connection's lock is held around its methods, never while an author's function or a hook runs.
"""

from __future__ import annotations

import contextvars
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, cast

from linkspan.core.call import Call, Conclusion
from linkspan.core.connection import ServerConnection
from linkspan.events import CallCancelled, Event
from linkspan.io.workers import MAX_WORKERS, Workers

if TYPE_CHECKING:
    import asyncio

__all__ = ["HttpCalls"]


class HttpCalls:
    """The calls of one endpoint."""

    def __init__(self, loop: Callable[[], asyncio.AbstractEventLoop], *, max_workers: int = MAX_WORKERS) -> None:
        """Run async functions on the loop that `loop()` returns at the time."""
        self._loop = loop
        self._workers: Workers[tuple[ServerConnection, Call, contextvars.Context]] = Workers(self._work, max_workers)
        self._tasks: dict[Call, asyncio.Task[None]] = {}

    def perform(self, connection: ServerConnection, events: Iterable[Event[Call]]) -> None:
        """Do what a connection asks for. Any thread."""
        for event in events:
            call = event.call
            if type(event) is CallCancelled:
                self._on_loop(self._cancel, call)
            elif call.is_async:
                self._on_loop(self._start, connection, call, None)
            elif call.inline:
                self._run(connection, call)
            else:
                self._workers.submit((connection, call, contextvars.copy_context()))

    def finish(self, connection: ServerConnection, call: Call, value: object) -> None:
        """Hand in the value of a call."""
        self._settle(connection, call, connection.conclude(call, value))

    def fail(self, connection: ServerConnection, call: Call, error: BaseException) -> None:
        """Hand in the exception of a call."""
        self._settle(connection, call, connection.conclude_failure(call, error))

    def _settle(self, connection: ServerConnection, call: Call, conclusion: Conclusion) -> None:
        with connection.lock:
            events = connection.settle(call, conclusion)
        if events:
            self.perform(connection, events)

    def _work(self, item: tuple[ServerConnection, Call, contextvars.Context]) -> None:
        connection, call, context = item
        if not call.cancelled:
            context.run(self._run, connection, call)

    def _run(self, connection: ServerConnection, call: Call) -> None:
        try:
            value = call.run()
        except BaseException as error:
            self.fail(connection, call, error)
            return
        if hasattr(type(value), "__await__"):
            self._on_loop(self._start, connection, call, cast("Awaitable[object]", value))
        else:
            self.finish(connection, call, value)

    # On the loop.

    def _on_loop(self, step: Callable[..., object], *arguments: object) -> None:
        try:
            self._loop().call_soon_threadsafe(step, *arguments)
        except RuntimeError:
            return  # the loop is closed: nobody waits for this any more

    def _start(self, connection: ServerConnection, call: Call, awaitable: Awaitable[object] | None) -> None:
        if not call.cancelled:
            self._tasks[call] = self._loop().create_task(self._await(connection, call, awaitable))

    def _cancel(self, call: Call) -> None:
        task = self._tasks.get(call)
        if task is not None:
            task.cancel()

    async def _await(self, connection: ServerConnection, call: Call, awaitable: Awaitable[object] | None) -> None:
        try:
            value = await (cast("Awaitable[object]", call.run()) if awaitable is None else awaitable)
        except GeneratorExit:
            raise
        except BaseException as error:
            self.fail(connection, call, error)
        else:
            self.finish(connection, call, value)
        finally:
            del self._tasks[call]
