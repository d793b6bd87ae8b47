"""Middleware: functions of the author around requests, which may look, deny, change the arguments, and answer themselves.

A generator function serves plain and async handlers alike; a coroutine function is for what must be awaited.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, TypeAlias, cast, runtime_checkable

import msgspec
from msgspec import Raw

from linkspan.errors import RegistrationError, RemoteProtocolError
from linkspan.revisions.neutral import NOTHING, Encoded, EncodedToolResult, InputRequired, Outcome, Request
from linkspan.schema.annotations import (
    is_async_generator_function,
    is_coroutine_function,
    is_generator_function,
    name_of,
    underlying,
)
from linkspan.schema.results import encode_json
from linkspan.server.asking import InputNeeded, Round, Rounds
from linkspan.server.context import Context
from linkspan.server.handlers import Handler, Run, target_of
from linkspan.server.observation import Failures, Observation, Report, hides
from linkspan.server.steps import Offloads, Step, Steps, await_steps, run_steps
from linkspan.types.base import JSON, UNSET, TextContent, Wire, is_object
from linkspan.types.messages import (
    CallToolResult,
)

if TYPE_CHECKING:
    from linkspan.server.configuration import Profile
    from linkspan.server.tools import BoundTool
    from linkspan.types.messages import Tool

__all__ = [
    "Call",
    "Layer",
    "Middleware",
    "OutcomeRun",
    "SharesState",
    "Surrounded",
    "as_outcome",
    "compile_layer",
    "readable",
    "run_inside",
    "surrounded",
]


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
_INSIDE: Final = ("initialize", "ping", "server/discover", "logging/setLevel", "subscriptions/listen")
"""Requests that connections answer themselves."""


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
            f"middleware {name_of(function)}: only= takes a list, such as ['tools/call'], not {only!r}"
        )
    unreachable = next((method for method in only if method in _INSIDE), None)
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


Inside: TypeAlias = Callable[[Call], Steps]
"""Yields the steps of the handler, and returns its outcome."""


class _Surrounding(msgspec.Struct, frozen=True, eq=False):
    """What takes one request through its middleware."""

    inside: Inside
    system: Offloads
    report: Report

    def steps(self, layers: Sequence[Layer], call: Call) -> Steps:
        """Yield the steps of a request through `layers`, the outermost first; return the outcome.

        Raises: what a middleware raises, and what the handler raises if no middleware catches it. A middleware that fails
        because the handler has failed is reported, and the handler's exception goes on.
        """
        if not layers:
            return (yield from self.inside(call))
        layer, inner = layers[0], partial(self.steps, layers[1:])
        match layer.kind:
            case "generator":
                return (yield from self._through(layer, call, inner))
            case "async":
                return (yield from self._awaited(layer, call, inner))
            case "plain":
                if (yield Step(partial(layer.function, call), layer.blocking)) is not None:
                    raise TypeError(f"middleware {name_of(layer.function)} returned something but has no yield: {_HOW}")
                return (yield from inner(call))

    def _through(self, layer: Layer, call: Call, inner: Inside) -> Steps:
        """Run a generator up to its yield, then what is inside, then the rest of the generator.

        Only one that may block is a step: the others run where they are, without a hand-over.
        """
        steps = cast("Generator[Call | None, Outcome, Outcome | None]", layer.function(call))
        going: Callable[[], object] = steps.__next__
        try:
            ended, value = (yield Step(partial(_advance, going), True)) if layer.blocking else _advance(going)
            if ended:
                return _answer(layer, value, None)
            outcome: Any = None
            failed: BaseException | None = None
            try:
                outcome = yield from inner(call if value is None else _call(layer, value))
                going = partial(steps.send, outcome)
            except GeneratorExit:
                raise
            except BaseException as error:
                failed = error
                going = partial(steps.throw, error)
            try:
                ended, value = (yield Step(partial(_advance, going), True)) if layer.blocking else _advance(going)
                if not ended:
                    raise RuntimeError(f"middleware {name_of(layer.function)} yielded twice: yield once for each call")
                return _answer(layer, value, outcome)
            except Exception as later:
                if failed is None or not hides(later, failed):
                    raise
                self.report(later, f"middleware {name_of(layer.function)}")
            raise failed
        finally:
            steps.close()

    def _awaited(self, layer: Layer, call: Call, inner: Inside) -> Steps:
        """Run a coroutine function, which runs what is inside by awaiting `call_next`."""
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
            steps = inner(call if changed is None else _call(layer, changed))
            try:
                outcome = as_outcome(await await_steps(steps, self.system))
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
            self.report(later, f"middleware {name_of(layer.function)}")
        raise failed


_HOW = "write `result = yield`, and return what is to be answered"


def _advance(resume: Callable[[], object]) -> tuple[bool, object]:
    """Let a generator go on; return whether it has ended, and what it yielded or returned."""
    try:
        return False, resume()
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
    if isinstance(answer, Wire | Encoded | Raw | InputRequired | RemoteProtocolError):
        return answer
    said = f"a {type(answer).__name__}" if answer is not None else "nothing"
    raise TypeError(
        f"middleware {name_of(layer.function)} answered {said}: return a result such as CallToolResult, raise ToolError, "
        "or return what the yield gave"
    )


class Surrounded(Run, kw_only=True):
    """The call of a request that passes through middleware: its value is the outcome already."""

    params: object
    """As they came; middleware may have replaced them since."""

    def finish(self, value: object) -> Outcome:
        """Conclude from the outcome."""
        self.end()
        self._restore()
        return self._ended(self.conclude(value))

    def fail(self, error: BaseException) -> Outcome:
        """Conclude from what the middleware raised or let through."""
        self._restore()
        return super().fail(error)

    def _restore(self) -> None:
        """Leave the request as it came: the state of a question belongs to its own arguments."""
        self.request.params = self.params
        self.request.round = None


class OutcomeRun(Run, kw_only=True):
    """The call of a request that another server, or another tool, serves: its value is the outcome already."""

    def finish(self, value: object) -> Outcome:
        """Conclude from the outcome."""
        self.request.round = None  # it may be issued again
        return super().finish(value)

    def fail(self, error: BaseException) -> Outcome:
        """Conclude from what ended the call."""
        self.request.round = None
        return super().fail(error)


def surrounded(
    layers: Sequence[Layer],
    request: Request,
    begin: Callable[[], object],
    handler: Handler | None,
    tool: BoundTool | None,
    current: Round,
    make_context: Callable[[], Context],
    system: Offloads,
    *,
    target: str,
    rounds: Rounds,
    failures: Failures,
    observation: Observation | None,
) -> Surrounded:
    """Return the call of a request through `layers`. `begin` begins what is inside them; `handler` is what will run for it."""
    params = request.params

    def inside(call: Call) -> Steps:
        request.params = call.params
        step: Any = begin()
        if not isinstance(step, Run):
            return step
        step.observation = None  # it ends with the outermost middleware
        return (yield from run_inside(step))

    server = tool.mounted.server if tool is not None and tool.mounted is not None else None
    spec = tool.spec if tool is not None else None
    call = Call(request.method, params, spec, current.number, make_context, server)
    is_async = (handler is not None and handler.is_async) or any(each.kind == "async" for each in layers)
    steps = _Surrounding(inside, system, partial(failures.report, request)).steps(layers, call)
    run: Callable[[], object] = partial(await_steps if is_async else run_steps, steps, system)
    if Context.ambient is not None:
        run = partial(Context.ambient, lambda: call.context, run)
    return Surrounded(
        request,
        run,
        is_async,
        handler is not None and handler.inline,
        rounds=rounds,
        failures=failures,
        current=current,
        conclude=as_outcome,
        target=target,
        observation=observation,
        params=params,
    )


def as_outcome(value: object) -> Outcome:
    """Conclude from what middleware answered, which is an outcome."""
    return cast("Outcome", value)


def readable(outcome: Outcome) -> Outcome:
    """Return a result as values: what was encoded on the way is decoded for middleware to read."""
    if isinstance(outcome, EncodedToolResult):
        structured = UNSET if outcome.structured is None else msgspec.json.decode(outcome.structured)
        structured = {"result": structured} if outcome.wrapped else structured
        return CallToolResult(content=[TextContent(msgspec.json.decode(outcome.text))], structured_content=structured)
    if isinstance(outcome, CallToolResult) and isinstance(outcome.structured_content, Raw):
        return msgspec.structs.replace(outcome, structured_content=msgspec.json.decode(outcome.structured_content))
    return outcome


def run_inside(run: Run) -> Steps:
    """Yield the step of a handler, and return its outcome. Raises: what the function raises, other than its questions."""
    try:
        value = yield Step(run.run, blocking=not (run.is_async or run.inline))
        if run.around is not None:
            run.around.leave(None)
        outcome = readable(run.conclude(value))
    except GeneratorExit:
        raise
    except BaseException as error:
        if run.around is not None:
            error = run.around.left(error, run.report)
        if not run.current.questions and not isinstance(error, InputNeeded):
            raise error
        return InputRequired(run.current.questions)
    return InputRequired(run.current.questions) if run.current.questions else outcome
