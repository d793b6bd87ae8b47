"""The lifespan of a server in this process: entered before the first call, left when nothing uses the server any more.

Law: it is entered, waits and is left in one thread, or in one task, of its own; it is left once for each time it was entered;
nothing of the author's runs under the lock.
"""

from __future__ import annotations

import atexit
import contextvars
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, suppress
from math import inf
from typing import TYPE_CHECKING, Any, Final, Protocol
from weakref import WeakSet

from linkspan.core.call import Postponed
from linkspan.runtime.deferred import value_of
from linkspan.runtime.forks import keep, renew
from linkspan.server.lifespan import LifespanPlan, OpenedPart

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop, Task
    from concurrent.futures import Future

_PAUSE: Final = 5.0
"""Seconds after a failure in which calls are refused at once; a later one tries again."""

_SLACK: Final = 0.25
"""Seconds that a thread waits longer for the end than the end may take."""

Loop = Callable[[], "AbstractEventLoop | None"]


class ProcessLifespan:
    """One lifespan: not entered, being entered, entered, being left, or failed. Any thread may use it."""

    def __init__(self, plan: LifespanPlan) -> None:
        """Enter nothing yet."""
        self._plan = plan
        self._context = contextvars.copy_context()
        self._stage: _Stage | None = None
        self._warned = False
        self.start_afresh()
        renew(self)

    def start_afresh(self) -> None:
        """Be as if never entered; what a parent has entered before it forked is the parent's to leave."""
        if self._stage is not None:
            keep(self._stage)
        self._lock = threading.Lock()
        self._users: WeakSet[object] = WeakSet()
        self._waiting: list[Callable[[], object]] = []
        self._stage = None
        self._next: tuple[object, Loop] | None = None
        """Who wants it entered again once it is left."""
        self._values: Sequence[object] = ()
        self._failed_at = -inf
        self.entered = False
        self.refusal: str | None = None
        _entered.discard(self)

    @property
    def value(self) -> object:
        """What it yielded, or of several functions what each did. Raises: RuntimeError while it is not entered."""
        parts = zip(self._plan.parts, self._entered_values(), strict=True)
        values = [value for part, value in parts if part.is_own]
        return values[0] if len(values) == 1 else tuple(values)

    def provided(self, kind: type) -> object:
        """Return what the function yielded whose hints name `kind`. Raises: RuntimeError while it is not entered."""
        parts = zip(self._plan.parts, self._entered_values(), strict=True)
        return next(value for part, value in parts if part.provides is kind)

    def _entered_values(self) -> Sequence[object]:
        if self._stage is None:
            raise RuntimeError(f"the lifespan {self._plan.name} is not entered")
        return self._values

    @property
    def closes_within(self) -> float:
        """Seconds that leaving it may take; 0 if it is not entered."""
        return 0.0 if self._stage is None else self._plan.closes_within + _SLACK

    def attach(self, user: object) -> None:
        """Keep it open, once it is, until `user` closes it or is collected."""
        with self._lock:
            self._users.add(user)

    def begin(self, user: object, loop: Loop) -> bool:
        """Enter it for `user`, unless that was done. False if it is async and `loop()` has no event loop yet."""
        self._drop_lost()
        with self._lock:
            self._users.add(user)
            stage = self._stage
            if stage is not None:
                if stage.leaving:
                    self._next = user, loop
                return True
            if self.refusal is not None and time.monotonic() - self._failed_at < _PAUSE:
                return True
        home = loop() if self._plan.is_async else None
        if home is None and self._plan.is_async:
            return False
        with self._lock:
            if self._stage is not None:
                return True
            self.refusal = None
            self._stage = stage = _ThreadStage(self, self._plan) if home is None else _TaskStage(self, self._plan, home)
            _entered.add(self)
        _leave_at_exit()
        try:
            stage.start(self._context.copy())
        except RuntimeError as error:  # the loop is closed, or there can be no more threads
            stage.end(error)
        return True

    def _drop_lost(self) -> None:
        """Be not entered any more if the event loop was closed over it."""
        with self._lock:
            stage = self._stage
            if stage is None or not stage.is_lost():
                return
            self._stage, self.entered = None, False
        keep(stage)  # collected, it would run a part of the author's code
        self._warn_lost()

    def begin_unasked(self, user: object, loop: Loop) -> None:
        """Enter it with the first request, where the framework should have done it; warn that it may not see the end."""
        if self._stage is None and not self._warned:
            self._warned = True
            self._warn(
                "begins with the first request; a server that ends by a signal does not run the code after its yield"
            )
        self.begin(user, loop)

    def _warn(self, problem: str) -> None:
        line = "FastAPI(lifespan=server.lifespan_of(app))"
        _log().warning(
            "the lifespan %s %s: let the framework begin and end it, as in %s", self._plan.name, problem, line
        )

    def then(self, go: Callable[[], object]) -> None:
        """Call `go` once it is entered or has failed: here and now, or in the thread that enters it."""
        with self._lock:
            if not self.entered and (self.refusal is None or self._stage is not None):
                self._waiting.append(go)
                return
        go()

    def wait(self) -> None:
        """Wait here until it is entered or has failed."""
        settled = threading.Event()
        self.then(settled.set)
        settled.wait()

    async def opened(self) -> None:
        """Wait for the same on an event loop."""
        import asyncio

        loop = asyncio.get_running_loop()
        settled = loop.create_future()
        self.then(lambda: _settle_on(loop, settled))
        await settled

    async def abegin(self, user: object) -> None:
        """Enter it for `user` on this event loop, and wait until it is entered or has failed."""
        import asyncio

        loop = asyncio.get_running_loop()
        self.begin(user, lambda: loop)
        await self.opened()

    async def value_of(self, postponed: Postponed) -> object:
        """Run a call that was postponed, and give its value."""
        import asyncio

        await self.abegin(asyncio.get_running_loop())
        return await value_of(self.then, postponed)

    # The end.

    def close(self, user: object) -> None:
        """Leave it if `user` was the last, and wait here until that is done, or has taken too long."""
        stage = self._leave_without(user)
        if stage is not None and not stage.is_here():
            stage.left_within(self._plan.closes_within + _SLACK)

    async def aclose(self, user: object) -> None:
        """Do the same on an event loop."""
        import asyncio

        stage = self._leave_without(user)
        if stage is not None:
            left, _ = await asyncio.wait([asyncio.wrap_future(stage.left)], timeout=self._plan.closes_within + _SLACK)
            if not left:
                stage.give_up()

    def _leave_without(self, user: object | None) -> _Stage | None:
        """Let go of a user, or of all, and ask the stage to end if that was the last one; return it if it was."""
        with self._lock:
            self._users.discard(user) if user is not None else self._users.clear()
            if self._users:
                return None
            stage = self._stage
            if stage is None:
                self.refusal = None  # the next user tries again
                return None
            self.entered = False
            stage.leaving = True
        stage.leave()
        return stage

    def leave_at_exit(self) -> None:
        """Leave it before the interpreter ends, if that is still possible."""
        stage = self._stage
        if stage is None:
            return
        if stage.is_stuck():
            self._warn_lost()
        elif (stage := self._leave_without(None)) is not None:
            stage.left_within(self._plan.closes_within + _SLACK)

    def _warn_lost(self) -> None:
        """Log that the closing half did not run, and the line that lets it run."""
        self._warn("did not run the code after its yield, because its event loop ended before")

    # What a stage reports.

    def enter(self, values: Sequence[object]) -> None:
        """Let the calls begin that wait, unless all users have gone meanwhile."""
        with self._lock:
            stage = self._stage
            self._values = values
            self.entered = bool(self._users) and stage is not None and not stage.leaving
            waiting: list[Callable[[], object]] = []
            if self.entered:
                waiting, self._waiting = self._waiting, waiting
        if not self.entered and stage is not None:
            stage.leave()
        for go in waiting:
            go()

    def end(self, error: BaseException | None = None) -> None:
        """Be not entered any more, or refuse the calls that wait; enter again if another user came meanwhile."""
        refusal = None if error is None else self._plan.refuse(error)
        with self._lock:
            again, self._next = self._next, None
            waiting: list[Callable[[], object]] = []
            if again is None:
                self.refusal, self._failed_at = refusal, time.monotonic()
                waiting, self._waiting = self._waiting, waiting
            self._stage, self._values, self.entered = None, (), False
            _entered.discard(self)
        for go in waiting:
            go()
        if again is not None:
            self.begin(*again)


class _Stage:
    """One time that a lifespan is entered, waits and is left."""

    def __init__(self, lifespan: ProcessLifespan, plan: LifespanPlan) -> None:
        from concurrent.futures import Future

        self.lifespan = lifespan
        self.plan = plan
        self.leaving = False
        self.left: Future[None] = Future()

    def start(self, context: contextvars.Context) -> None:
        """Enter, in `context`."""
        raise NotImplementedError

    def leave(self) -> None:
        """Ask for the end; it comes once what is being entered is entered. Any thread, any number of times."""
        raise NotImplementedError

    def is_here(self) -> bool:
        """Return whether waiting for the end here would keep it from coming."""
        raise NotImplementedError

    def is_lost(self) -> bool:
        """Return whether the end cannot come any more."""
        return False

    def is_stuck(self) -> bool:
        """Return whether the end cannot come unless its event loop runs again."""
        return False

    def left_within(self, seconds: float) -> None:
        """Wait for the end, or log that it takes too long."""
        from concurrent.futures import TimeoutError

        try:
            self.left.result(seconds)
        except TimeoutError:
            self.give_up()

    def give_up(self) -> None:
        """Wait for the end no more, not even at the exit."""
        _entered.discard(self.lifespan)
        self.too_late(self.plan.name)

    def too_late(self, name: str) -> None:
        """Log that the end takes too long."""
        _log().warning("the lifespan %s did not end within %g s (lifespan_timeout)", name, self.plan.timeout)

    def end(self, error: BaseException | None = None) -> None:
        """Report the end, and with which exception it could not be entered."""
        self.lifespan.end(error)
        self.left.set_result(None)


class _ThreadStage(_Stage):
    """A plain lifespan, in a thread of its own."""

    def __init__(self, lifespan: ProcessLifespan, plan: LifespanPlan) -> None:
        super().__init__(lifespan, plan)
        self._asked = threading.Event()

    def start(self, context: contextvars.Context) -> None:
        """Start the thread. The interpreter does not wait for it, and asks for its end in time."""
        self._thread = threading.Thread(target=context.run, args=(self._live,), name="linkspan-lifespan", daemon=True)
        self._thread.start()

    def _live(self) -> None:
        opened: list[AbstractContextManager[object]] = []
        values: list[object] = []
        problem: BaseException | None = None
        try:
            for part in self.plan.parts:
                manager = part.open()
                values.append(manager.__enter__())
                opened.append(manager)
        except BaseException as error:
            problem = error
        else:
            self.lifespan.enter(values)
            self._asked.wait()
        for manager in reversed(opened):
            try:
                manager.__exit__(None, None, None)
            except BaseException as error:
                self.plan.refuse(error)
        self.end(problem)

    def leave(self) -> None:
        """Wake the thread."""
        self._asked.set()

    def is_here(self) -> bool:
        """Return whether this is the thread."""
        return threading.current_thread() is self._thread


class _InThread(AbstractAsyncContextManager[object]):
    """A plain lifespan among async ones: it is entered, waits and is left in a thread of its own."""

    def __init__(self, part: OpenedPart) -> None:
        from concurrent.futures import Future

        self._part = part
        self._asked = threading.Event()
        self._entered: Future[object] = Future()
        self._left: Future[None] = Future()

    async def __aenter__(self) -> object:
        for each in (self._entered, self._left):
            each.set_running_or_notify_cancel()  # so that who waits for it cannot cancel it
        run = contextvars.copy_context().run
        threading.Thread(target=run, args=(self._live,), name="linkspan-lifespan", daemon=True).start()
        try:
            return await sys.modules["asyncio"].wrap_future(self._entered)
        except BaseException:
            self._asked.set()
            raise

    async def __aexit__(self, *_: object) -> None:
        self._asked.set()
        await sys.modules["asyncio"].wrap_future(self._left)

    def _live(self) -> None:
        try:
            manager = self._part.open()
            self._entered.set_result(manager.__enter__())
        except BaseException as error:
            self._entered.set_exception(error)
            return
        self._asked.wait()
        try:
            manager.__exit__(None, None, None)
        except BaseException as error:
            self._left.set_exception(error)
        else:
            self._left.set_result(None)


class _TaskStage(_Stage):
    """An async lifespan, in a task of its own."""

    def __init__(self, lifespan: ProcessLifespan, plan: LifespanPlan, loop: AbstractEventLoop) -> None:
        super().__init__(lifespan, plan)
        self._loop = loop
        self._task: Task[None] | None = None
        self._entered = False
        self._asked: Any = sys.modules["asyncio"].Event()

    def start(self, context: contextvars.Context) -> None:
        """Start the task, from any thread."""
        self._context = context
        if self.is_here():
            self._start()
        else:
            self._loop.call_soon_threadsafe(self._start)

    def _start(self) -> None:
        self._task = self._loop.create_task(self._live(), name="linkspan-lifespan", context=self._context)

    async def _live(self) -> None:
        from asyncio import CancelledError

        opened: list[tuple[str, AbstractAsyncContextManager[object]]] = []
        values: list[object] = []
        problem: BaseException | None = None
        try:
            for part in self.plan.parts:
                manager = part.open_async() if part.is_async else _InThread(part)
                values.append(await manager.__aenter__())
                opened.append((part.name, manager))
        except BaseException as error:
            problem = None if isinstance(error, CancelledError) else error
        else:
            self._entered = True
            self.lifespan.enter(values)
            try:
                await self._asked.wait()
            except CancelledError:  # the loop ends: this is the last moment to leave
                assert self._task is not None
                self._task.uncancel()
        for name, manager in reversed(opened):
            await self._leave(name, manager)
        self.end(problem)

    async def _leave(self, name: str, manager: AbstractAsyncContextManager[object]) -> None:
        from asyncio import timeout

        deadline = timeout(self.plan.timeout)
        try:
            async with deadline:
                await manager.__aexit__(None, None, None)
        except BaseException as error:
            if deadline.expired():
                self.too_late(name)
            else:
                self.plan.refuse(error)

    def leave(self) -> None:
        """Wake the task; cancel it if it is still entering."""
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._wake)

    def _wake(self) -> None:
        self._asked.set()
        if not self._entered and self._task is not None:
            self._task.cancel()

    def is_here(self) -> bool:
        """Return whether the loop runs in this thread."""
        return sys.modules["asyncio"]._get_running_loop() is self._loop

    def is_lost(self) -> bool:
        """Return whether the loop is closed."""
        return self._loop.is_closed()

    def is_stuck(self) -> bool:
        """Return whether the loop does not run."""
        return not self._loop.is_running()


def _settle_on(loop: AbstractEventLoop, future: Any) -> None:
    with suppress(RuntimeError):  # the loop is closed: nothing waits any more
        loop.call_soon_threadsafe(_settle, future)


def _settle(future: Any) -> None:
    if not future.done():
        future.set_result(None)


def _log() -> Any:
    from logging import getLogger

    return getLogger("linkspan.server")


_entered: Final[set[ProcessLifespan]] = set()
"""Those that must be left before the interpreter ends."""


class EndsAtExit(Protocol):
    """What must end before the interpreter does."""

    def end_at_exit(self) -> None:
        """End here and now."""
        ...


_ending: Final[WeakSet[EndsAtExit]] = WeakSet()


def end_at_exit(user: EndsAtExit) -> None:
    """Let `user`, if it is there then, end at the exit: before any lifespan is left, and while a loop of today still runs."""
    _ending.add(user)
    _leave_at_exit()


def _leave_at_exit() -> None:
    atexit.unregister(_leave_all)  # what is registered last runs first
    atexit.register(_leave_all)


def _leave_all() -> None:
    for user in list(_ending):
        user.end_at_exit()
    for lifespan in list(_entered):
        lifespan.leave_at_exit()
