"""Runs the calls that connections hand out: where they are, in worker threads, or as tasks of an event loop.

Law: one lock per connection, held around each of its methods and never while code of the author runs: functions, validators,
the server context, hooks. All of it runs as a call does, ends one, or is a hook.
"""

from __future__ import annotations

import contextvars
import operator
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable, Hashable, Iterable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol, cast

from linkspan.core.call import (
    LATER,
    Background,
    Call,
    CallCancelled,
    CallReady,
    Event,
    Lifespan,
    Ports,
    Postponed,
    RunsCalls,
    run_call,
)
from linkspan.revisions.neutral import log_facts
from linkspan.runtime.deferred import Deferred
from linkspan.runtime.forks import renew
from linkspan.runtime.workers import MAX_WORKERS, Shares, Workers

if TYPE_CHECKING:
    import logging
    from asyncio import AbstractEventLoop, Task


class Connection(RunsCalls, Protocol):
    """The server's end of a byte stream, as a driver sees it."""

    @property
    def running(self) -> int: ...
    @property
    def accepting(self) -> bool: ...
    @property
    def lifespan(self) -> Lifespan | None: ...
    @property
    def background(self) -> Background | None: ...
    def receive_data(self, data: bytes) -> list[Event]: ...
    def receive_eof(self) -> list[Event]: ...
    def data_to_send(self) -> bytes: ...
    def next_timeout(self) -> float | None: ...
    def handle_timeout(self, now: float) -> list[Event]: ...
    def close(self) -> list[Event]: ...


class Connectable(Protocol):
    """A server, as a transport sees it."""

    def connect(self, *, ports: Ports) -> Connection:
        """Open a connection."""
        ...


class Connect(Protocol):
    """Opens a connection, as `Connectable.connect` does."""

    def __call__(self, *, ports: Ports) -> Connection: ...


CLEANUP: Final = 0.25
"""Seconds that cancelled functions have, by default, to close what they opened, before the lifespan is left."""

_EAGER: Final = sys.version_info >= (3, 12)
"""Whether a task may begin where it is made: most calls end without a wait, and need no turn of the loop."""


def _ignore() -> None:
    """Stand in for a transport that needs no signal."""


class CallRunner:
    """Runs calls, each of some connection: inline, in a worker thread, or on the event loop that there is at the time."""

    def __init__(
        self,
        loop: Callable[[], AbstractEventLoop | None],
        *,
        max_workers: int = MAX_WORKERS,
        share: int | None = None,
        context: contextvars.Context | None = None,
        flush: Callable[[], object] = _ignore,
        on_task_end: Callable[[], object] = _ignore,
    ) -> None:
        """Run async functions on `loop()`, and plain ones in `max_workers` threads; with 0 threads, where they are.

        `share` bounds the threads of one client. Threads run functions in `context`, or in that of `perform`. `flush` sends
        what a thread has brought, `on_task_end` what a task has brought, on its loop.
        """
        self._loop = loop
        self._threadless = max_workers < 1
        self._workers: Workers[Call] = Workers(self._work, max_workers)
        self._endings: Workers[Callable[[], object]] = Workers(operator.call, max(1, max_workers))
        self._resuming: Workers[Callable[[], object]] = Workers(operator.call, 1)
        self._shares = None if share is None else Shares(self._workers.submit, share)
        self._context = context
        self._flush = flush
        self._on_task_end = on_task_end
        self.start_afresh()
        renew(self)

    def start_afresh(self) -> None:
        """Begin without calls."""
        self._jobs: dict[Call, tuple[RunsCalls, contextvars.Context, Hashable]] = {}
        self._resumed: dict[Call, None] = {}
        """Calls that waited for the lifespan, in the thread that resumes them; inline ones run there."""
        self._tasks: dict[Call, Task[list[Event]]] = {}
        self._loops: dict[Call, AbstractEventLoop] = {}
        self._idle: threading.Event | None = None
        """Set by the last call that ends in a thread, if the end waits for it."""
        self.waiting: deque[tuple[RunsCalls, Call, Awaitable[object] | None]] = deque()
        """Async calls that came before there was a loop: `start_waiting` starts them."""

    @property
    def in_threads(self) -> int:
        """Plain calls that wait for a thread or have one."""
        return len(self._jobs)

    @property
    def in_tasks(self) -> int:
        """Async calls that have a loop and have not ended."""
        return len(self._loops)

    def perform(self, connection: RunsCalls, events: Iterable[Event]) -> None:
        """Do what a connection asks for. Any thread, without the lock."""
        todo = list(events)
        for event in todo:  # it grows meanwhile: calls that end make room for others
            if type(event) is CallReady:
                call: Call = event.call
                if call.is_async:
                    todo += self._start(connection, call, None)
                elif call.inline or self._threadless:
                    todo += run_call(connection, call, self._start_awaiting)
                else:
                    todo += self._submit(connection, call)
            else:
                assert type(event) is CallCancelled
                self._cancel(event.call)

    def _cancel(self, call: Call) -> None:
        """Stop a call that has not begun, or its task; a thread that runs it cannot be stopped, and another takes its place."""
        job = self._jobs.get(call)
        if job is not None:
            if self._shares is not None and self._shares.withdraw(call, job[-1]):
                del self._jobs[call]
            else:
                self._workers.abandon(call)
        loop = self._loops.get(call)
        if loop is not None:
            with suppress(RuntimeError):  # it is closed
                if _runs_here(loop):
                    self._cancel_task(call)
                else:
                    loop.call_soon_threadsafe(self._cancel_task, call)

    def end_threads(self) -> None:
        """Let idle threads end now instead of later: nothing more is performed."""
        for workers in (self._workers, self._endings, self._resuming):
            workers.close()

    # The end of a lifespan.

    def leave(self, lifespan: Lifespan | None, cleanup: float = CLEANUP) -> None:
        """Wait for what was cancelled, and close the lifespan if this is its last user.

        Call it when nothing else runs. Tasks and threads have `cleanup` seconds to close what they opened; the log names those
        that have not ended then, and what they hold open.
        """
        until = time.monotonic() + cleanup
        groups: dict[AbstractEventLoop, list[Task[list[Event]]]] = {}
        for task, loop in self._running():
            groups.setdefault(loop, []).append(task)
        for loop, tasks in groups.items():
            if loop.is_running() and not _runs_here(loop):
                asyncio, left = sys.modules["asyncio"], max(0.0, until - time.monotonic())
                with suppress(RuntimeError, TimeoutError):
                    asyncio.run_coroutine_threadsafe(asyncio.wait(tasks, timeout=left), loop).result(left + CLEANUP)
        self._wait_for_threads(until)
        self._log_unended(cleanup)
        if lifespan is not None:
            lifespan.close(self)

    async def aleave(self, lifespan: Lifespan | None, cleanup: float = CLEANUP) -> None:
        """Do the same on the event loop that runs the tasks."""
        until = time.monotonic() + cleanup
        if tasks := list(self._tasks.values()):
            await sys.modules["asyncio"].wait(tasks, timeout=cleanup)
        if self._jobs or self._resumed:
            await sys.modules["asyncio"].to_thread(self._wait_for_threads, until)
        self._log_unended(cleanup)
        if lifespan is not None:
            await lifespan.aclose(self)

    def disown_tasks(self) -> None:
        """Let the event loop end without the tasks that run on: it would cancel them again, and wait for ever."""
        for task, loop in self._running():
            with suppress(RuntimeError):  # it is closed
                loop.call_soon_threadsafe(sys.modules["asyncio"]._unregister_task, task)

    def _running(self) -> list[tuple[Task[list[Event]], AbstractEventLoop]]:
        """Return the tasks, each with its loop. On other loops than this thread's they may end meanwhile."""
        found = ((task, self._loops.get(call)) for call, task in list(self._tasks.items()))
        return [(task, loop) for task, loop in found if loop is not None]

    def _wait_for_threads(self, until: float) -> None:
        """Wait for the calls in threads, until a time of the monotonic clock."""
        self._idle = idle = threading.Event()
        if self._jobs or self._resumed:
            idle.wait(max(0.0, until - time.monotonic()))

    def _log_unended(self, cleanup: float) -> None:
        """Log what runs on though it was cancelled, and what it holds open."""
        for call in {**self._jobs, **self._resumed, **self._tasks}:
            request = call.request
            held = f"; not closed: {', '.join(request.held)}" if request.held else ""
            _log().warning(
                "%s runs on %g s after it was cancelled%s", request.label, cleanup, held, extra=log_facts(request)
            )

    # In threads.

    def _submit(self, connection: RunsCalls, call: Call) -> list[Event]:
        """Run a call in a thread. Where the system has none, the call fails; return what its end asks for."""
        context = self._context or contextvars.copy_context()
        client = None if self._shares is None else _client_of(connection, call)
        self._jobs[call] = connection, context, client
        try:
            if self._shares is None:
                self._workers.submit(call)
            else:
                self._shares.submit(call, client)
        except RuntimeError as problem:
            del self._jobs[call]
            return connection.fail(call, problem)
        return []

    def _work(self, call: Call) -> None:
        """Run a call in a copy of its context: what its end brings does not see what it has set there."""
        connection, context, client = self._jobs[call]
        try:
            events = [] if call.cancelled else context.copy().run(run_call, connection, call, self._start_awaiting)
        finally:
            del self._jobs[call]
            self._end_thread()
            if self._shares is not None:
                self._shares.done(client)
        if events:
            context.copy().run(self.perform, connection, events)
        self._flush()

    def _end_thread(self) -> None:
        if self._idle is not None and not self._jobs and not self._resumed:
            self._idle.set()

    # On a loop. Each call is a task of its own, so that whatever the author does with the current task is right; nothing that it
    # raises reaches the loop.

    def start_waiting(self) -> None:
        """Start the calls that came before there was a loop."""
        while self.waiting:
            connection, call, awaitable = self.waiting.popleft()
            self.perform(connection, self._start(connection, call, awaitable))

    def _start(self, connection: RunsCalls, call: Call, awaitable: Awaitable[object] | None) -> list[Event]:
        """Run an async call, or only await what its function has returned. Any thread.

        Returns what the end of the call asks for, if it ends here.
        """
        loop = self._loop()
        if loop is None:
            self.waiting.append((connection, call, awaitable))
            return []
        self._loops[call] = loop
        if _runs_here(loop):
            return self._start_task(loop, connection, call, awaitable)
        try:
            loop.call_soon_threadsafe(
                lambda: self.perform(connection, self._start_task(loop, connection, call, awaitable))
            )
        except RuntimeError as closed:  # the loop ended while a thread was at work: the call must end, too
            del self._loops[call]
            _close(awaitable)
            return connection.fail(call, closed)
        return []

    def _start_awaiting(self, connection: RunsCalls, call: Call, awaitable: Awaitable[object]) -> object:
        if type(awaitable) is Deferred:
            awaitable.then(partial(self._finish_deferred, connection, call))
        elif type(awaitable) is Postponed:
            self._postpone(connection, awaitable)
        else:
            self.perform(connection, self._start(connection, call, awaitable))
        return LATER

    def _finish_deferred(self, connection: RunsCalls, call: Call, value: object) -> None:
        """End a call with a value that came later, in the thread that has brought it: hooks of the author's run elsewhere."""
        end = partial(connection.finish, call, value)
        if call.hooked:
            self._endings.submit_or_run(partial(self._end, connection, end))
            return
        if events := end():
            self.perform(connection, events)
        self._flush()

    def _postpone(self, connection: RunsCalls, postponed: Postponed) -> None:
        """Run a call again, in its context, once the lifespan is entered; one after the other where several wait."""
        context = contextvars.copy_context()
        postponed.lifespan.begin(self, self._loop)
        postponed.lifespan.then(
            lambda: self._resuming.submit_or_run(lambda: context.run(self._resume, connection, postponed))
        )

    def _resume(self, connection: RunsCalls, postponed: Postponed) -> None:
        postponed.resume()
        call = postponed.call
        if not call.cancelled:
            self._resumed[call] = None
            try:
                self.perform(connection, [CallReady(call)])
            finally:
                del self._resumed[call]
                self._end_thread()
        self._flush()

    def _start_task(
        self, loop: AbstractEventLoop, connection: RunsCalls, call: Call, awaitable: Awaitable[object] | None
    ) -> list[Event]:
        if call.cancelled:
            del self._loops[call]
            _close(awaitable)
            return []
        steps = self._await(connection, call, awaitable)
        if _EAGER and awaitable is None and _runs_here(loop) and loop.get_task_factory() is None:
            task: Task[list[Event]] = sys.modules["asyncio"].Task(steps, loop=loop, eager_start=True)
        else:
            task = loop.create_task(steps)
        if task.done():
            return task.result()
        self._tasks[call] = task
        return []

    def _cancel_task(self, call: Call) -> None:
        task = self._tasks.get(call)
        if task is not None:
            task.cancel()

    async def _await(self, connection: RunsCalls, call: Call, awaitable: Awaitable[object] | None) -> list[Event]:
        """Run a call to its end. What that asks for is returned before the first wait of an eager task, and done after it."""
        try:
            value = await (cast("Awaitable[object]", call.run()) if awaitable is None else awaitable)
        except BaseException as error:
            if isinstance(error, GeneratorExit) and not _is_current(self._tasks.get(call)):
                raise  # it closes this coroutine, whose loop is over; the function did not raise it
            end = partial(connection.fail, call, error)
        else:
            end = partial(connection.finish, call, value)
        finally:
            is_eager = self._tasks.pop(call, None) is None
            del self._loops[call]
        if call.hooked:
            self._endings.submit_or_run(partial(self._end, connection, end))
            return []
        events = end()
        if events and not is_eager:
            self.perform(connection, events)
            events = []
        self._on_task_end()
        return events

    def _end(self, connection: RunsCalls, end: Callable[[], list[Event]]) -> None:
        """End a call whose end runs hooks of the author's, which an event loop must not wait for."""
        self.perform(connection, end())
        self._flush()


def _log() -> logging.Logger:
    import logging

    return logging.getLogger("linkspan.server")


def _close(awaitable: Awaitable[object] | None) -> None:
    """Close a coroutine that is never awaited, of which Python would warn."""
    getattr(awaitable, "close", bool)()


def _is_current(task: Task[list[Event]] | None) -> bool:
    from asyncio import current_task

    if task is None:  # an eager one, before its first wait
        return True
    try:
        return current_task() is task
    except RuntimeError:
        return False


def _runs_here(loop: AbstractEventLoop) -> bool:
    """Return whether a loop runs in this thread. Where there is one, asyncio is loaded."""
    return sys.modules["asyncio"]._get_running_loop() is loop


def _client_of(connection: RunsCalls, call: Call) -> Hashable:
    """Return whose share of the threads a job uses: a principal's, an address's, or at least a session's."""
    facts = call.request.facts
    if facts.principal is None and facts.address is None:
        return connection
    return facts.principal or (facts.address,)


class Driver(CallRunner):
    """Feeds one connection and runs its calls."""

    def __init__(
        self,
        connect: Connect,
        loop: Callable[[], AbstractEventLoop | None],
        flush: Callable[[], object],
        *,
        max_workers: int = MAX_WORKERS,
        congested: Callable[[], bool] = bool,
        sending: Callable[[], bool] = bool,
        on_task_end: Callable[[], object] | None = None,
    ) -> None:
        """Open a connection, and drive it.

        `flush` sends what the connection has to send, now or very soon; it may be called from any thread, without the lock.
        `congested` returns whether progress and logs are dropped, `sending` whether notifications of changes wait.
        """
        super().__init__(
            loop,
            max_workers=max_workers,
            context=contextvars.copy_context(),
            flush=flush,
            on_task_end=on_task_end or flush,
        )
        self.lock = threading.RLock()
        self.connection = connect(ports=Ports(self.lock, flush, congested, sending, session=os.urandom(8).hex()))
        if (lifespan := self.connection.lifespan) is not None:
            lifespan.attach(self)
        if (background := self.connection.background) is not None:
            background.attach(self, loop)

    def open(self) -> bool:
        """Begin to enter the lifespan of the server. False if that needs an event loop, and there is none yet."""
        lifespan = self.connection.lifespan
        return lifespan is None or lifespan.begin(self, self._loop)

    def receive_data(self, data: bytes) -> None:
        """Feed bytes and start what they ask for."""
        with self.lock:
            events = self.connection.receive_data(data)
        self.perform(self.connection, events)

    def receive_eof(self) -> None:
        """Feed the end of the stream."""
        with self.lock:
            events = self.connection.receive_eof()
        self.perform(self.connection, events)

    def next_timeout(self) -> float | None:
        """Return when `handle_timeout` is due, by the connection's clock."""
        with self.lock:
            return self.connection.next_timeout()

    def handle_timeout(self, now: float) -> None:
        """Let the connection end what has waited too long."""
        with self.lock:
            deadline = self.connection.next_timeout()
            events = self.connection.handle_timeout(now) if deadline is not None and deadline <= now else []
        self.perform(self.connection, events)

    def close(self) -> None:
        """Say goodbye and cancel what runs."""
        with self.lock:
            events = self.connection.close()
        self.perform(self.connection, events)
