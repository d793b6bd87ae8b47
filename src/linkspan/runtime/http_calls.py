"""Run the calls of HTTP requests: plain functions in shared worker threads, async ones as tasks of a loop.

No client holds all worker threads, however many calls it makes or abandons."""

from __future__ import annotations

import contextvars
import threading
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable, Iterable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Generic, TypeVar, cast

from linkspan.core.call import Call, Conclusion
from linkspan.core.connection import ServerConnection
from linkspan.core.http_checks import HttpPolicy
from linkspan.events import CallCancelled, Event
from linkspan.runtime.forks import renew
from linkspan.runtime.workers import Workers

if TYPE_CHECKING:
    import asyncio

__all__ = ["HttpCalls", "Shares"]


class HttpCalls:
    """The calls of one endpoint."""

    def __init__(self, loop: Callable[[], asyncio.AbstractEventLoop], policy: HttpPolicy) -> None:
        """Run async functions on the loop that `loop()` returns at the time, plain ones in threads as `policy` says."""
        self._loop = loop
        self._workers: Workers[Call] = Workers(self._work, policy.max_workers)
        self._shares = Shares(self._workers.submit, policy.share)
        self._endings: Workers[Callable[[], object]] = Workers(lambda end: end(), policy.max_workers)
        self.start_afresh()
        renew(self)

    def start_afresh(self) -> None:
        """Begin without calls."""
        self._jobs: dict[Call, tuple[ServerConnection, contextvars.Context, Hashable]] = {}
        self._tasks: dict[Call, asyncio.Task[None]] = {}
        self._loops: dict[Call, asyncio.AbstractEventLoop] = {}

    @property
    def waiting(self) -> int:
        """Plain calls that wait for a thread or have one."""
        return len(self._jobs)

    def perform(self, connection: ServerConnection, events: Iterable[Event[Call]]) -> None:
        """Do what a connection asks for. Any thread."""
        for event in events:
            call = event.call
            if type(event) is CallCancelled:
                self._cancel(call)
            elif call.is_async:
                self._start_soon(connection, call, None)
            elif call.inline:
                self._run(connection, call)
            else:
                client = _client_of(connection, call)
                self._jobs[call] = (connection, contextvars.copy_context(), client)
                self._shares.submit(call, client)

    def perform_all(self, found: Iterable[tuple[ServerConnection, Iterable[Event[Call]]]]) -> None:
        """Do what several connections ask for."""
        for connection, events in found:
            self.perform(connection, events)

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

    def _work(self, call: Call) -> None:
        connection, context, client = self._jobs[call]
        try:
            if not call.cancelled:
                context.run(self._run, connection, call)
        finally:
            del self._jobs[call]
            self._shares.done(client)

    def _run(self, connection: ServerConnection, call: Call) -> None:
        try:
            value = call.run()
        except BaseException as error:
            self.fail(connection, call, error)
            return
        if hasattr(type(value), "__await__"):
            self._start_soon(connection, call, cast("Awaitable[object]", value))
        else:
            self.finish(connection, call, value)

    # On the loop.

    def _start_soon(self, connection: ServerConnection, call: Call, awaitable: Awaitable[object] | None) -> None:
        loop = self._loops[call] = self._loop()
        try:
            _call_on(loop, self._start, connection, call, awaitable)
        except RuntimeError as closed:  # the loop ended while a thread was at work: the call must end, too
            del self._loops[call]
            getattr(awaitable, "close", bool)()  # a coroutine
            self.fail(connection, call, closed)

    def _start(self, connection: ServerConnection, call: Call, awaitable: Awaitable[object] | None) -> None:
        if call.cancelled:
            del self._loops[call]
        elif not (task := self._loops[call].create_task(self._await(connection, call, awaitable))).done():
            self._tasks[call] = task  # an eager one may have ended already

    def _cancel(self, call: Call) -> None:
        if (job := self._jobs.get(call)) is not None:
            if self._shares.withdraw(call, job[2]):
                del self._jobs[call]
            else:
                self._workers.abandon(call)
        if (loop := self._loops.get(call)) is not None:
            with suppress(RuntimeError):  # it is closed
                _call_on(loop, self._cancel_task, call)

    def _cancel_task(self, call: Call) -> None:
        if (task := self._tasks.get(call)) is not None:
            task.cancel()

    async def _await(self, connection: ServerConnection, call: Call, awaitable: Awaitable[object] | None) -> None:
        from linkspan.runtime.tasks import is_closed

        try:
            value = await (cast("Awaitable[object]", call.run()) if awaitable is None else awaitable)
        except BaseException as error:
            if is_closed(error, self._tasks.get(call)):
                raise
            end = partial(self.fail, connection, call, error)
        else:
            end = partial(self.finish, connection, call, value)
        finally:
            self._tasks.pop(call, None)
            del self._loops[call]
        if call.hooked:
            self._endings.submit(end)
        else:
            end()


def _call_on(loop: asyncio.AbstractEventLoop, step: Callable[..., object], *arguments: object) -> None:
    """Take a step on a loop: now, where it runs in this thread. Raises: RuntimeError if it is closed."""
    from asyncio import _get_running_loop  # pyright: ignore[reportPrivateUsage]

    if _get_running_loop() is loop:
        step(*arguments)
    else:
        loop.call_soon_threadsafe(step, *arguments)


def _client_of(connection: ServerConnection, call: Call) -> Hashable:
    """Return whose share of the threads a call uses: a principal's, an address's, or at least a session's."""
    facts = call.request.facts
    if facts.principal is not None:
        return facts.principal
    return connection if facts.address is None else (facts.address,)


ItemT = TypeVar("ItemT", bound=Hashable)


class Shares(Generic[ItemT]):
    """Passes items on, and keeps back those of clients that have their share; first come, first served within a client."""

    def __init__(self, submit: Callable[[ItemT], object], bound: int) -> None:
        """Pass at most `bound` items of one client to `submit` before one of them is `done`."""
        self._submit = submit
        self._bound = bound
        self.start_afresh()
        renew(self)

    def start_afresh(self) -> None:
        """Begin with nothing passed on and nothing kept back; what is, is the parent's."""
        self._lock = threading.Lock()
        self._held: dict[Hashable, int] = {}
        self._waiting: dict[Hashable, OrderedDict[ItemT, None]] = {}

    def submit(self, item: ItemT, client: Hashable) -> None:
        """Pass `item` on now, or when the client has room."""
        with self._lock:
            held = self._held.get(client, 0)
            if held >= self._bound:
                self._waiting.setdefault(client, OrderedDict())[item] = None
                return
            self._held[client] = held + 1
        self._submit(item)

    def withdraw(self, item: ItemT, client: Hashable) -> bool:
        """Forget an item that was kept back; False if it was passed on already."""
        with self._lock:
            waiting = self._waiting.get(client)
            if waiting is None or item not in waiting:
                return False
            del waiting[item]
            if not waiting:
                del self._waiting[client]
            return True

    def done(self, client: Hashable) -> None:
        """Pass the client's next item on, if there is one: one of those passed on has ended."""
        with self._lock:
            waiting = self._waiting.get(client)
            if waiting is None:
                held = self._held.pop(client) - 1
                if held:
                    self._held[client] = held
                return
            item, _ = waiting.popitem(last=False)
            if not waiting:
                del self._waiting[client]
        self._submit(item)
