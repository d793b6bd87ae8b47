"""Middleware: functions of the author around requests, which may look, deny, change the arguments, and answer themselves.

A generator function serves plain and async handlers alike; a coroutine function is for what must be awaited.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING, Final, Literal, Protocol, TypeAlias, cast, runtime_checkable

import msgspec
from msgspec import Raw

from linkspan.errors import RegistrationError, RemoteProtocolError
from linkspan.revisions.neutral import ANSWERED_BY_CONNECTIONS, NOTHING, Encoded, InputRequired, Outcome, Request
from linkspan.schema.annotations import (
    is_async_generator_function,
    is_coroutine_function,
    is_generator_function,
    name_of,
    underlying,
)
from linkspan.schema.results import encode_json
from linkspan.server.asking import NO_QUESTIONS, Round
from linkspan.server.context import Context
from linkspan.server.features.method import MethodHost, Serve, Shortcut
from linkspan.server.handlers import Handler, target_of
from linkspan.server.observation import Observation, hides
from linkspan.server.serving_inside import Begun, OutcomeRun, call_around, outcome_inside
from linkspan.server.steps import Offloads, Step, Steps, await_steps, driven
from linkspan.types.base import ABSENT, JSON, Wire, is_object
from linkspan.types.messages import CallToolParams

if TYPE_CHECKING:
    from linkspan.server.configuration import Profile, Settings
    from linkspan.server.tools import BoundTool
    from linkspan.types.messages import Tool


class Call:
    """One request, as middleware sees it: `method`, `name`, `arguments`, `context`, `tool`, `server` and `round`.

    `tool` is the tool as it is listed, if the request calls one that exists, and `server` the name of the mounted server that it
    is of, None for one of this server; `round` is 1 in the first run, and counts the rounds of answers for which the handler
    runs again.
    """

    def __init__(
        self,
        method: str,
        params: object,
        tool: Tool | None,
        round: int,
        make_context: Callable[[], Context],
        server: str | None = None,
    ) -> None:
        """Made by the server for each run of a handler."""
        self.method = method
        self.params = params
        self.tool = tool
        self.server = server
        self.round = round
        self._make_context = make_context

    def __repr__(self) -> str:
        return f"<Call of {self.method}, round {self.round}>"

    @property
    def name(self) -> str | None:
        """The name of the tool or prompt, or the URI of the resource; None for lists and custom methods."""
        return target_of(self.params)

    @cached_property
    def arguments(self) -> Mapping[str, JSON]:
        """The arguments of a tool or prompt, or the params of a custom method, as JSON that has not been checked."""
        params = self.params
        written = getattr(params, "arguments", params)
        found: JSON = msgspec.json.decode(bytes(written) or b"{}") if isinstance(written, Raw) else written
        return found if is_object(found) else NOTHING

    @cached_property
    def context(self) -> Context:
        """The context that a handler gets."""
        return self._make_context()

    def replace(self, *, arguments: Mapping[str, JSON]) -> Call:
        """Return this call with other arguments, to be yielded: they are checked, and the handler runs with them.

        Raises: TypeError for a method without arguments, and for what JSON cannot express.
        """
        params = self.params
        written = params if isinstance(params, Raw) else getattr(params, "arguments", _NO_ARGUMENTS)
        if written is _NO_ARGUMENTS:
            raise TypeError(f"{self.method} has no arguments to replace")
        given: object = Raw(encode_json(dict(arguments))) if isinstance(written, Raw) else dict(arguments)
        if isinstance(params, msgspec.Struct):
            given = msgspec.structs.replace(params, arguments=given)
        return Call(self.method, given, self.tool, self.round, lambda: self.context, self.server)


Middleware: TypeAlias = Callable[..., object]
"""`(call)` as a generator function or a plain function, or `async (call, call_next)`."""

_NO_ARGUMENTS: Final = object()
_ANSWERS: Final = (Wire, Encoded, Raw, InputRequired, RemoteProtocolError)


@runtime_checkable
class SharesState(Protocol):
    """A middleware that keeps something for all processes of a server, where they have a store."""

    def share(self, profile: Profile) -> None:
        """Use the store of the server with this profile, if there is one when a call comes."""
        ...


class Layer(msgspec.Struct, frozen=True, eq=False):
    """A middleware, looked at once."""

    function: Middleware
    kind: Literal["generator", "plain", "async"]
    only: frozenset[str]
    """The methods that it surrounds; empty for all."""
    blocking: bool

    def surrounds(self, method: str) -> bool:
        """Return whether requests of `method` pass through it."""
        return not self.only or method in self.only


def compile_layer(function: Middleware, only: Collection[str], *, blocking: bool) -> Layer:
    """Look at a middleware once. Raises: RegistrationError."""
    if not callable(function):
        raise RegistrationError(f"middleware is a function, not {function!r}: write @server.middleware above one")
    if not isinstance(only, Collection):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise RegistrationError(
            f"middleware {name_of(function)}: only= takes a list, such as ['tools/list'], not {only!r}"
        )
    unreachable = next((method for method in only if method in ANSWERED_BY_CONNECTIONS), None)
    if isinstance(only, str) or unreachable is not None:
        problem = f'write only=("{only}",)' if isinstance(only, str) else f"{unreachable} has no handler to surround"
        raise RegistrationError(f"middleware {name_of(function)}: {problem}")
    body = underlying(function)
    if is_async_generator_function(body):
        raise RegistrationError(
            f"middleware {name_of(function)} is an async generator: write `def` with a `yield`, or "
            "`async def(call, call_next)` if it awaits something"
        )
    is_async = is_coroutine_function(body)
    if is_async and blocking:
        raise RegistrationError(
            f"middleware {name_of(function)} is async, so it must not block: leave out blocking=True"
        )
    kind: Literal["generator", "plain", "async"] = (
        "async" if is_async else "generator" if is_generator_function(body) else "plain"
    )
    return Layer(function, kind, frozenset(only), blocking)


class _Passage(msgspec.Struct, frozen=True, eq=False):
    """One request on its way through middleware, which may replace its params."""

    host: SurroundedHost
    request: Request
    settings: Settings
    observation: Observation | None
    target: str
    shortcut: Shortcut | None
    """Begins what is inside in one step, if that is possible."""

    @property
    def asks(self) -> bool:
        """Whether a middleware has asked the user something that is not answered."""
        return isinstance(self.request.round, Round) and bool(self.request.round.questions)

    def context(self) -> Context:
        """Return the context of the request, whose round is opened for the first who wants it."""
        request = self.request
        request.round = current = self.host.rounds.open(request, self.target)
        return self.host.make_context(request, current)

    def report(self, error: BaseException, what: str) -> None:
        """Log and report an exception that does not decide how the call ends."""
        self.host.failures.report(self.request, error, what)


_Generator: TypeAlias = Generator["Call | None", "Outcome | None", "Outcome | None"]

Inside: TypeAlias = Callable[[Call, _Passage], Steps]
"""Yields the steps of what is inside a middleware, for a request on its way, and returns its outcome."""


def _through(layer: Layer, inner: Inside, call: Call, passage: _Passage) -> Steps:
    """Run a generator up to its yield, then what is inside, then the rest of the generator.

    Only one that may block is a step: the others run where they are, without a hand-over. Raises: what the middleware raises, and
    what the handler raises if the middleware does not catch it. One that fails because the handler has failed is reported, and
    the handler's exception goes on.
    """
    steps = cast("_Generator", layer.function(call))
    try:
        ended, value = (yield Step(partial(_enter, steps), True)) if layer.blocking else _enter(steps)
        if ended:
            return _answer(layer, value, None)
        outcome: Outcome | None = None
        failed: BaseException | None = None
        try:
            given = call if value is None else _call(layer, value)
            outcome = cast("Outcome", (yield from inner(given, passage)))
        except GeneratorExit:
            raise
        except BaseException as error:
            failed = error
        leave = partial(_leave, layer, steps, outcome, failed, passage)
        return (yield Step(leave, True)) if layer.blocking else leave()
    finally:
        steps.close()


def _leave(
    layer: Layer, steps: _Generator, outcome: Outcome | None, failed: BaseException | None, passage: _Passage
) -> Outcome:
    """Let a generator go on after its yield, and return what it answers."""
    try:
        try:
            steps.send(outcome) if failed is None else steps.throw(failed)
        except StopIteration as end:
            return _answer(layer, end.value, outcome)
        steps.close()
        raise RuntimeError(f"middleware {name_of(layer.function)} yielded twice: yield once for each call")
    except Exception as later:
        if failed is None or not hides(later, failed):
            raise
        passage.report(later, f"middleware {name_of(layer.function)}")
    raise failed


def _before(layer: Layer, inner: Inside, call: Call, passage: _Passage) -> Steps:
    """Run a plain function, then what is inside."""
    if (yield Step(partial(layer.function, call), layer.blocking)) is not None:
        raise TypeError(f"middleware {name_of(layer.function)} returned something but has no yield: {_HOW}")
    return (yield from inner(call, passage))


def _awaited(layer: Layer, inner: Inside, call: Call, passage: _Passage) -> Steps:
    """Run a coroutine function, which runs what is inside by awaiting `call_next`. Raises: the same as `_through`."""
    outcomes: list[Outcome] = []
    failed: BaseException | None = None
    began = False

    async def call_next(changed: Call | None = None) -> Outcome:
        nonlocal began, failed
        if began:
            raise RuntimeError(
                f"middleware {name_of(layer.function)} awaited call_next twice: await it once for each call"
            )
        began = True
        steps = inner(call if changed is None else _call(layer, changed), passage)
        try:
            outcome = cast("Outcome", await await_steps(steps, passage.host.system))
        except BaseException as error:
            failed = error
            raise
        outcomes.append(outcome)
        return outcome

    try:
        value = yield Step(partial(layer.function, call, call_next))
        return _answer(layer, value, outcomes[0] if outcomes else None)
    except Exception as later:
        if failed is None or not hides(later, failed):
            raise
        passage.report(later, f"middleware {name_of(layer.function)}")
    raise failed


_PASSING: Final[Mapping[str, Callable[[Layer, Inside, Call, _Passage], Steps]]] = {
    "generator": _through,
    "plain": _before,
    "async": _awaited,
}


_HOW = "write `result = yield`, and return what is to be answered"


def _enter(steps: _Generator) -> tuple[bool, object]:
    """Let a generator begin; return whether it has ended, and what it yielded or returned."""
    try:
        return False, next(steps)
    except StopIteration as end:
        return True, end.value


def _call(layer: Layer, value: object) -> Call:
    if isinstance(value, Call):
        return value
    raise TypeError(
        f"middleware {name_of(layer.function)} yielded a {type(value).__name__}: yield nothing, or call.replace(arguments=...)"
    )


def _answer(layer: Layer, value: object, outcome: Outcome | None) -> Outcome:
    """Return what a middleware answers: the outcome that it received, if it returned None."""
    answer = outcome if value is None else value
    if isinstance(answer, _ANSWERS):
        return answer
    said = f"a {type(answer).__name__}" if answer is not None else "nothing"
    raise TypeError(
        f"middleware {name_of(layer.function)} answered {said}: return a result such as CallToolResult, raise ToolError, "
        "or return what the yield gave"
    )


class SurroundedHost(MethodHost, Protocol):
    """What middleware needs of the dispatcher."""

    @property
    def system(self) -> Offloads: ...
    def handler_of(self, request: Request) -> Handler | None:
        """Return the function that will serve a request, if there is one."""
        ...

    def make_context(self, request: Request, round: Round) -> Context:
        """Return what the author's code sees of a request. Raises: what the server context raises."""
        ...


class Surroundings:
    """The middleware around a method, compiled when it is registered."""

    def __init__(
        self, host: SurroundedHost, layers: Sequence[Layer], serve: Serve, shortcut: Shortcut | None = None
    ) -> None:
        """Surround `serve` with `layers`, the outermost first. `shortcut` begins the calls that need no more than that."""
        self._host = host
        self._serve = serve
        self._inner_shortcut = shortcut
        self._awaits = any(each.kind == "async" for each in layers)
        self._steps: Inside = self._inside
        for layer in reversed(layers):
            self._steps = partial(_PASSING[layer.kind], layer, self._steps)

    def serve(self, request: Request, settings: Settings, observation: Observation | None) -> OutcomeRun:
        """Serve a request through the middleware, where its handler runs."""
        host, params = self._host, request.params
        target = target_of(params) or request.method
        request.round = current = host.rounds.open(request, target)
        tool = host.catalogue.tools.get(target, request.shown) if isinstance(params, CallToolParams) else None
        passage = _Passage(host, request, settings, observation, target, None)
        return self._run(passage, host.handler_of(request), tool, current)

    def shortcut(self, request: Request, settings: Settings) -> OutcomeRun | None:
        """Do the same, in one step, for the call of a tool that needs nothing but its arguments."""
        host, params = self._host, request.params
        assert isinstance(params, CallToolParams)
        tool = host.catalogue.tools.get(params.name)
        is_first = request.request_state is None and request.input_responses is ABSENT
        if tool is None or not tool.is_plain or not is_first or Context.ambient is not None:
            return None
        passage = _Passage(host, request, settings, None, params.name, self._inner_shortcut)
        return self._run(passage, tool.handler, tool, NO_QUESTIONS)

    def _run(self, passage: _Passage, handler: Handler | None, tool: BoundTool | None, current: Round) -> OutcomeRun:
        """Return the call of a request; `handler` is what will run for it, and `current` its round if that is open."""
        host, request = self._host, passage.request
        server = tool.mounted.server if tool is not None and tool.mounted is not None else None
        spec = tool.spec if tool is not None else None
        call = Call(request.method, request.params, spec, current.number, passage.context, server)
        is_async = self._awaits or (handler is not None and handler.is_async)
        run = driven(self._steps(call, passage), host.system, is_async=is_async)
        if Context.ambient is not None:
            run = partial(Context.ambient, lambda: call.context, run)
        return call_around(
            run,
            request,
            is_async=is_async,
            inline=handler is not None and handler.inline,
            rounds=host.rounds,
            failures=host.failures,
            current=current,
            target=passage.target,
            observation=passage.observation,
        )

    def _inside(self, call: Call, passage: _Passage) -> Steps:
        """Yield the steps of the handler, and return its outcome."""
        request = passage.request
        request.params = call.params
        step: Begun | None = None
        if passage.shortcut is not None and not passage.asks:
            step = passage.shortcut(request, passage.settings)
        if step is None:
            step = self._serve(request, passage.settings, passage.observation)
        return (yield from outcome_inside(step))
