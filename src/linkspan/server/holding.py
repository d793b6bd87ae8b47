"""Calls that wait at their questions (`hold=True`): the coroutine is suspended there, and goes on with the answer.

Such a coroutine has a task of its own, which outlives the call that began it. A question ends that call as any question does:
with an interim result whose state names the suspended coroutine, or with a request to a handshake client. The request that brings
the answers is a call, too: it lets the coroutine go on, and ends with its next question, or its value. Only the process that has
the coroutine can go on with it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar, cast
from weakref import WeakSet

from linkspan.errors import INTERNAL_ERROR, INVALID_PARAMS, RegistrationError, RemoteProtocolError, ToolError
from linkspan.revisions.neutral import InputRequired, Outcome, Request
from linkspan.server.asking import InputNeeded, Round, refuse_incapable
from linkspan.server.configuration import Profile
from linkspan.server.context import Context, hold_with, move_on
from linkspan.server.observation import Failures
from linkspan.types.messages import CallToolResult

if TYPE_CHECKING:
    from linkspan.server.handlers import Handler
    from linkspan.server.ports import System, TaskOfCall

T = TypeVar("T")

_GONE: Final = (
    "Invalid params: the call that asked this does not wait any more: it was answered, has waited too long, or is in another "
    "process. Begin again, without requestState [LS-508]"
)
_TOO_MANY: Final = (
    "Too many calls wait for answers; try again later (max_held_calls, max_held_calls_per_principal) [LS-505]"
)


class HeldCall:
    """One call of a function that waits at its questions."""

    def __init__(self, calls: HeldCalls, request: Request, round: Round) -> None:
        """Begin for `request`, in its `round`."""
        self._calls = calls
        self._counters: dict[str, int] = {}
        self.request = request
        self.round = round
        self.forks = calls.system.forks()
        self._task: TaskOfCall
        self._context: Context

    def bind(self, run: Callable[[], object], context: Context) -> Callable[[], Awaitable[object]]:
        """Return what begins the function `run`, which asks by `context`."""
        self._context = context
        hold_with(context, self)
        return partial(self._begin, run)

    async def _begin(self, run: Callable[[], object]) -> object:
        self._task = self._calls.system.hold(run, self._lost)
        return await self._next(wake=False)

    async def go_on(self, request: Request, round: Round) -> object:
        """Let the function go on with the answers that `request` has brought; return its value. Raises: as the function."""
        self.request, self.round = request, round
        request.waiting = None
        move_on(self._context, request, round)
        return await self._next(wake=True)

    async def _next(self, *, wake: bool) -> object:
        self.round.held = None
        try:
            while await self._task.until_question(wake=wake):
                if self.round.questions:
                    self._calls.keep(self)
                    raise InputNeeded(*self.round.questions)
                wake = False  # the question was withdrawn
        except RuntimeError:
            if wake:
                raise RemoteProtocolError(INVALID_PARAMS, _GONE) from None
            raise
        return self._task.result()

    def numbered(self, kind: str) -> str:
        """Return a key for a question without one."""
        self._counters[kind] = count = self._counters.get(kind, 0) + 1
        return f"{kind}-{count}"

    async def answer(self, key: str | None, ask: Callable[[], T | Awaitable[T]]) -> T:
        """Return what `ask` returns once the answers are there. The next question under `key` is another one.

        Raises: what `ask` raises; ToolError, or RemoteProtocolError, for a client that cannot be asked.
        """
        while True:
            round = self.round
            try:
                value = ask()
                if hasattr(type(value), "__await__"):
                    value = await cast("Awaitable[T]", value)
            except InputNeeded as needed:
                try:
                    self._admit(round)
                    await self._task.pause()
                except BaseException:  # the question is withdrawn
                    for each in needed.args:
                        round.questions.pop(each, None)
                    raise
            except BaseException:
                self.round.forget(key)
                raise
            else:
                self.round.forget(key)
                return cast("T", value)

    def _admit(self, round: Round) -> None:
        refusal = refuse_incapable(self.request, InputRequired(round.questions))
        if isinstance(refusal, RemoteProtocolError):
            raise refusal
        if isinstance(refusal, CallToolResult):
            raise ToolError(refusal.content[0].text)
        self._calls.admit(self)

    def cancel_in(self, seconds: float, on_late: Callable[[], object] = bool) -> None:
        """Cancel the function if the answers do not come within `seconds`, and call `on_late`."""
        self._task.cancel_in(seconds, on_late)

    def end(self, request: Request, outcome: Outcome) -> None:
        """Cancel the function: the request of a handshake client has ended while it waited for answers."""
        self._calls.forget(self)
        self.cancel_in(0)

    def _lost(self, error: BaseException) -> None:
        """Report what the function raised after its call had ended."""
        self._calls.failures.report(self.request, error, f"{self.request.label}, which did not get its answers,")


class HeldCalls:
    """The calls of one server that wait for answers. They are cancelled when the last driver leaves."""

    def __init__(self, profile: Profile, system: System, failures: Failures) -> None:
        """Keep as many, each for as long, as the limits of `profile` allow."""
        self._profile = profile
        self.system = system
        self.failures = failures
        self._waiting: dict[str, HeldCall] = {}
        self._users: WeakSet[object] = WeakSet()

    def __len__(self) -> int:
        return len(self._waiting)

    def begin(self, request: Request, round: Round) -> HeldCall:
        """Return a new call."""
        return HeldCall(self, request, round)

    def resume(self, request: Request, round: Round) -> Callable[[], Awaitable[object]]:
        """Return what lets the call go on that the state of a request names, once. Raises: RemoteProtocolError."""
        call = self._waiting.pop(round.held or "", None)
        if call is None or call.forks != self.system.forks():
            raise RemoteProtocolError(INVALID_PARAMS, _GONE)
        return partial(call.go_on, request, round)

    def admit(self, call: HeldCall) -> None:
        """Refuse to wait where too many do. Raises: RemoteProtocolError."""
        limits, principal = self._profile.limits, call.request.facts.principal
        waiting = list(self._waiting.values())
        of_principal = (
            sum(each.request.facts.principal == principal for each in waiting) if principal is not None else 0
        )
        if len(waiting) >= limits.max_held_calls or of_principal >= limits.max_held_calls_per_principal:
            raise RemoteProtocolError(INTERNAL_ERROR, _TOO_MANY)

    def keep(self, call: HeldCall) -> None:
        """Keep a call until its answers come, within `input_timeout`; a request in a session also ends with that."""
        call.round.held = name = self.system.random(16).hex()
        self._waiting[name] = call
        call.cancel_in(self._profile.limits.input_timeout, partial(self._waiting.pop, name, None))
        if not call.request.peer.revision.asks_in_results:
            call.request.waiting = call

    def forget(self, call: HeldCall) -> None:
        """Keep a call no longer."""
        self._waiting.pop(call.round.held or "", None)

    def end_session(self, session: str) -> None:
        """Cancel the calls of a session that has ended; only its client had their states."""
        for name, call in list(self._waiting.items()):
            if call.request.session == session and self._waiting.pop(name, None) is not None:
                call.cancel_in(0)

    # What drivers do with it (core.call.Background).

    def attach(self, user: object, loop: Callable[[], object]) -> None:
        """Keep calls as long as `user` is there."""
        self._users.add(user)

    def drain(self, user: object) -> None:
        """Go on: answers may still come."""

    def leave(self, user: object, within: float, cleanup: float) -> None:
        """Let `user` go. After the last one, no answers can come."""
        self._users.discard(user)
        while not self._users and self._waiting:
            self._waiting.popitem()[1].cancel_in(0)


def check_hold(handler: Handler, name: str, *, task: bool = False, isolated: bool = False) -> None:
    """Refuse `hold=True` where nothing can be suspended. Raises: RegistrationError."""
    problem: str | None = None
    if not handler.is_async:
        problem = "hold=True suspends a coroutine at its questions: write `async def`"
    elif task:
        problem = "a task may go on in another process, and hold=True cannot: leave one of them out"
    elif isolated:
        problem = "isolated=True has no user to ask: leave hold=True out"
    if problem is not None:
        raise RegistrationError(f"{name}: {problem}")
