"""How an author's function is called: its arguments bound, its outcome encoded."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from functools import partial
from types import FunctionType
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias, TypeGuard, TypeVar

import msgspec
from msgspec import Raw

from linkspan.core.call import Call, Postponed, Readiness
from linkspan.errors import INTERNAL_ERROR, INVALID_PARAMS, RegistrationError, RemoteProtocolError
from linkspan.keywords import refusing
from linkspan.revisions.neutral import InputRequired, Outcome, Request
from linkspan.schema.annotations import (
    EMPTY,
    KEYWORD_ONLY,
    POSITIONAL_ONLY,
    POSITIONAL_OR_KEYWORD,
    VAR_KEYWORD,
    Dependency,
    Parameter,
    dependency_of,
    is_async_generator_function,
    is_context_hint,
    is_coroutine_function,
    is_generator_function,
    parameters_of,
    peel,
    resolve,
    takes_provided,
)
from linkspan.schema.parameters import CONTEXT_NAMES, Parameters, compile_parameters
from linkspan.schema.problems import ArgumentsInvalid
from linkspan.server.asking import InputNeeded, Round, Rounds, cannot_ask
from linkspan.server.configuration import Settings
from linkspan.server.context import Context
from linkspan.server.observation import Around, Failures, Observation, Report
from linkspan.server.steps import Offloads, await_steps, run_steps
from linkspan.types.base import JSON, JSONObject
from linkspan.types.messages import (
    Params,
)

if TYPE_CHECKING:
    from linkspan.schema.validate import Checked, RawParameters
    from linkspan.server.dependencies import Needs, Overrides
    from linkspan.server.limits import Limited
    from linkspan.server.ports import Sharing

Function: TypeAlias = Callable[..., object]
F = TypeVar("F", bound=Function)

_WHOLE_NAMES = ("args", "arguments", "params")
LISTENING: Final = ("subscriptions/listen", "resources/subscribe")
"""The requests for changes, which connections answer."""
_MAPPINGS = ("dict", "Dict", "Mapping", "MutableMapping", "Any", "object")


def decorator(add: Callable[[Any], object]) -> Callable[[F], F]:
    """Return a decorator that registers a function and gives it back unchanged."""

    @refusing
    def register(function: F) -> F:
        add(function)
        return function

    return register


def named(given: tuple[Any, ...]) -> tuple[dict[str, Any], tuple[Any, ...]]:
    """Return the keyword for a name that a decorator got in place of a function, and what it got otherwise."""
    return ({"name": given[0]}, given[1:]) if given and isinstance(given[0], str) else ({}, given)


def is_defined_again(before: object, function: object) -> bool:
    """Return whether an interactive session has defined a function anew, as a cell of a notebook does when it runs again."""
    if not hasattr(sys, "ps1"):
        return False
    old, new = ((getattr(each, "__module__", ""), getattr(each, "__qualname__", "")) for each in (before, function))
    return old == new and new[0] == "__main__"


class Handler(msgspec.Struct, frozen=True):
    """A function and how to call it with the arguments of a request."""

    function: Function
    parameters: Parameters | RawParameters
    is_async: bool
    """A run begins on an event loop."""
    inline: bool
    context_parameter: str | None = None
    context_positional: bool = False
    whole: str | None = None
    """The parameter that takes all arguments as one mapping."""
    keywords: frozenset[str] | None = None
    """The names it takes of a hand-written schema; None for all."""
    needs: Needs | None = None
    """The dependencies among its parameters."""
    provided: Mapping[str, type] = {}
    """The parameters that take what a lifespan yields, and its class."""
    limited: Limited | None = None
    holds: bool = False
    """It waits at its questions."""

    def bind(self, arguments: dict[str, Any], context: Context | None) -> Callable[[], object]:
        """Return the function with its arguments: call it to run it. `context` is there where it takes one."""
        if self.whole is None:
            if self.keywords is not None:
                arguments = {name: value for name, value in arguments.items() if name in self.keywords}
            if context is not None and self.context_parameter is not None:
                arguments[self.context_parameter] = context
            return partial(self.function, **arguments)
        if context is None or self.context_parameter is None:
            return partial(self.function, arguments)
        if self.context_positional:
            return partial(self.function, arguments, context)
        return partial(self.function, arguments, **{self.context_parameter: context})

    def bind_with(
        self,
        needs: Needs,
        bound: Callable[..., object],
        request: Request,
        context: Context | None,
        overrides: Overrides,
        system: Offloads,
        report: Report,
    ) -> Callable[[], object]:
        """Do the same for a `bound` function with dependencies, which are made before it runs and cleaned up after it.

        `context` is there where one of them takes it.
        """
        steps = needs.provide(bound, request, context, overrides, report)
        return partial(await_steps if needs.is_async else run_steps, steps, system)


def is_function(value: object) -> TypeGuard[Function]:
    """Return whether a value can be called."""
    return callable(value)


def is_async_function(function: Function) -> bool:
    """Return whether calling `function` gives a coroutine (looking through partials and callable objects)."""
    while isinstance(function, partial):
        function = function.func
    return is_coroutine_function(function) or is_coroutine_function(getattr(function, "__call__", None))  # noqa: B004


def converting(function: Function, convert: Callable[[Any], object]) -> Function:
    """Return a function with the parameters of another one, whose value is converted."""
    from functools import wraps

    if is_async_function(function):

        @wraps(function)
        async def later(*arguments: Any, **named: Any) -> object:
            return convert(await function(*arguments, **named))  # type: ignore[misc]

        return later

    @wraps(function)
    def now(*arguments: Any, **named: Any) -> object:
        return convert(function(*arguments, **named))

    return now


def describe(function: Function) -> str:
    """Return how to name a function in a message to its author."""
    return getattr(function, "__qualname__", None) or repr(function)


def bound_method(source: Any, base: Any, name: str) -> Function | None:
    """Return what a subclass of `base` wrote under `name`: static, of the class, or an ordinary method.

    Authors do not instantiate such a class, so an ordinary method gets an instance here; the constructor of `base` describes
    values, and is not run for it.
    """
    lines: Sequence[type] = source.__mro__
    written: object = next((vars(each)[name] for each in lines if name in vars(each)), None)
    if isinstance(written, FunctionType) and [each.name for each in parameters_of(written)][:1] == ["self"]:
        instance: object = source() if source.__init__ is not base.__init__ else source.__new__(source)
        return getattr(instance, name, None)
    found: object = getattr(source, name, None)
    return found if is_function(found) else None


def compile_handler(
    function: Function,
    *,
    schema: Mapping[str, JSON] | str | None = None,
    loose: bool = False,
    checked: Checked = "now",
    portable: bool = True,
    coerce: bool = False,
    inline: bool = False,
    name: str | None = None,
    members: Collection[str] | None = None,
    provided: Sequence[type] = (),
    yields: bool = False,
) -> Handler:
    """Look at a function once and remember all that its calls need.

    With `schema` (a JSON Schema written by hand) the function may take its arguments as keywords, as one mapping, or both
    `(args, server_context)`. Without one they follow from its hints; `loose` functions without hints, such as
    `lambda **args`, take anything. With `members` (what is known to be in the arguments) a lone parameter takes them all,
    whatever its name, unless it is one of them or its hint excludes a mapping. `provided` are the classes of what lifespans
    yield. `yields`: a generator function will do, all of whose values are taken. Raises: RegistrationError.
    """
    _refuse_self(function)
    _refuse_generator(function, yields=yields)
    if schema is None and not (loose and _takes_anything(function, members, provided)):
        parameters = compile_parameters(
            function,
            context_types=(Context,),
            context_names=CONTEXT_NAMES,
            portable=portable,
            coerce=coerce,
            name=name,
            provided=provided,
        )
        handler = Handler(
            function,
            parameters,
            is_async_function(function),
            inline,
            context_parameter=parameters.context_parameter,
            provided=parameters.provided,
        )
        return _with_needs(handler, parameters.dependencies, provided)
    from linkspan.schema.validate import compile_raw_parameters

    checked = checked if schema is not None else "never"
    raw = compile_raw_parameters(schema or {"type": "object"}, checked=checked, coerce=coerce)
    found = {each.name: dependency_of(each, function) for each in _signature(function)}
    dependencies = {name: each for name, each in found.items() if each is not None}
    kinds = {each.name: takes_provided(each, function, provided) for each in _signature(function)}
    takers = {name: kind for name, kind in kinds.items() if kind is not None}
    handler = _raw_handler(function, raw, inline, members, {*dependencies, *takers})
    return _with_needs(msgspec.structs.replace(handler, provided=takers), dependencies, provided)


def compile_method(
    function: Function,
    method: str,
    members: Collection[str] = (),
    *,
    provided: Sequence[type] = (),
    yields: bool = False,
) -> Handler:
    """Compile the handler of a method in which the user cannot be asked. Raises: RegistrationError."""
    handler = compile_handler(function, loose=True, name=method, members=members, provided=provided, yields=yields)
    if handler.parameters.asks:
        raise RegistrationError(cannot_ask(method))
    return handler


def compile_completer(function: Function, ref: str, *, provided: Sequence[type] = ()) -> Handler:
    """Compile a function that completes an argument of `ref`. Raises: RegistrationError."""
    schema: dict[str, JSON] = {"type": "object", "properties": {"value": {}, "arguments": {}}}
    name = f"completion of {ref}"
    return compile_handler(function, schema=schema, checked="never", name=name, provided=provided, yields=True)


def _with_needs(handler: Handler, dependencies: Mapping[str, Dependency], provided: Sequence[type]) -> Handler:
    if not dependencies:
        return handler
    from linkspan.server.dependencies import compile_needs

    blocking = not (handler.is_async or handler.inline)
    needs = compile_needs(dependencies, is_context, is_async=handler.is_async, blocking=blocking, provided=provided)
    return msgspec.structs.replace(handler, needs=needs, is_async=needs.is_async)


def _refuse_self(function: Function) -> None:
    """Refuse a method that was decorated in its class: nothing would fill in its first parameter. Raises: RegistrationError."""
    if not isinstance(function, FunctionType):
        return  # bound methods, partials and callable objects have no such parameter left
    first = next(iter(_signature(function)), None)
    if first is None or first.name not in ("self", "cls") or first.annotation is not EMPTY:
        return
    name = function.__name__
    raise RegistrationError(
        f"{describe(function)} takes {first.name!r}, but a decorator in a class sees a function without an instance: "
        f"register the bound method, as in server.tool(instance.{name}), or write @staticmethod below the decorator and "
        f"leave {first.name!r} out [LS-706]"
    )


def _refuse_generator(function: Function, *, yields: bool) -> None:
    """Refuse a function whose values come one by one, unless all are taken. Raises: RegistrationError."""
    body = function
    while isinstance(body, partial):
        body = body.func
    bodies = (body, getattr(body, "__call__", None))  # noqa: B004
    if any(map(is_async_generator_function, bodies)) or (not yields and any(map(is_generator_function, bodies))):
        raise RegistrationError(
            f"{describe(function)} yields, but a client gets one answer: return a list, and call ctx.progress or ctx.log for "
            "what comes before it"
        )


def _raw_handler(
    function: Function,
    parameters: RawParameters,
    inline: bool,
    members: Collection[str] | None,
    dependencies: Collection[str],
) -> Handler:
    signature = [each for each in _signature(function) if each.name not in dependencies]
    context = next((each.name for each in signature if is_context(each, function)), None)
    rest = [each for each in signature if each.name != context]
    properties: Mapping[str, JSON] = parameters.json_schema.get("properties") or {}
    is_async = is_async_function(function)
    if len(rest) == 1 and _is_whole(rest[0], properties, members):
        positional = context is not None and _positional(signature, context)
        return Handler(function, parameters, is_async, inline, context, positional, whole=rest[0].name)
    if any(each.kind is VAR_KEYWORD for each in rest):
        return Handler(function, parameters, is_async, inline, context)
    names = frozenset(each.name for each in rest)
    missing = [each.name for each in rest if each.default is EMPTY and each.name not in properties]
    if missing and properties:
        raise RegistrationError(
            f"{describe(function)} takes {', '.join(missing)}, which the input schema does not name: "
            "add it to the schema, or give the parameter a default"
        )
    return Handler(function, parameters, is_async, inline, context, keywords=names)


def from_text(text: str, schema: JSON) -> JSON:
    """Read a text that is something else in the function: prompts and URIs carry texts only (PR-1)."""
    from linkspan.schema.summary import types_of

    if "string" in types_of(schema, schema):
        return text
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return text


def _signature(function: Function) -> Sequence[Parameter]:
    try:
        return parameters_of(function)
    except (TypeError, ValueError):
        raise RegistrationError(f"{describe(function)} has no signature: wrap it in a function that has one") from None


def _takes_anything(function: Function, members: Collection[str] | None, provided: Sequence[type]) -> bool:
    """Return whether a function without hints takes all arguments at once."""
    rest = [
        each
        for each in _signature(function)
        if not is_context(each, function) and dependency_of(each, function) is None
    ]
    rest = [each for each in rest if not takes_provided(each, function, provided)]
    return len(rest) == 1 and (rest[0].kind is VAR_KEYWORD or _is_whole(rest[0], (), members))


def is_context(parameter: Parameter, function: Function) -> bool:
    """Return whether a parameter of `function` takes the `Context`: by its hint, or by its name.

    Raises: RegistrationError for a subclass of `Context`.
    """
    hint = parameter.annotation
    if isinstance(hint, str) and hint.partition("[")[0].rpartition(".")[2] == "Context":
        return True  # it may be imported for type checkers only
    with suppress(NameError, TypeError, SyntaxError, AttributeError):
        hint = peel(resolve(hint, function))[0]
    if is_context_hint(hint, (Context,), f"{describe(function)}: parameter {parameter.name}"):
        return True
    return parameter.name in CONTEXT_NAMES and parameter.kind in (
        POSITIONAL_OR_KEYWORD,
        KEYWORD_ONLY,
    )


def _is_whole(parameter: Parameter, properties: Collection[str], members: Collection[str] | None) -> bool:
    """`args` takes the whole mapping, unless the schema has a property of that very name."""
    if parameter.kind not in (POSITIONAL_ONLY, POSITIONAL_OR_KEYWORD) or parameter.name in properties:
        return False
    if parameter.name in _WHOLE_NAMES:
        return True
    return members is not None and parameter.name not in members and _may_be_mapping(parameter)


def _may_be_mapping(parameter: Parameter) -> bool:
    """Return whether a parameter may be a mapping, by its hint and its default."""
    hint = parameter.annotation
    if parameter.default is not EMPTY:
        return False
    said = hint if isinstance(hint, str) else getattr(hint, "__name__", str(hint))
    return hint is EMPTY or said.partition("[")[0].rpartition(".")[2] in _MAPPINGS


def _positional(signature: Sequence[Parameter], name: str) -> bool:
    """Return whether the context comes second by position, as in `(args, server_context)` of a positional-only callable."""
    return any(each.name == name and each.kind is POSITIONAL_ONLY for each in signature)


def custom_arguments(handler: Handler, params: Raw) -> JSONObject:
    """Decode the params of a custom method. Raises: RemoteProtocolError."""
    try:
        values: JSONObject = msgspec.json.decode(bytes(params) or b"{}", type=dict[str, Any] | None) or {}
    except (msgspec.DecodeError, RecursionError):
        raise RemoteProtocolError(INVALID_PARAMS, "Invalid params: params must be an object") from None
    if handler.whole is None:
        values.pop("_meta", None)
    try:
        return handler.parameters.decode_values(values).arguments
    except ArgumentsInvalid as problem:
        raise RemoteProtocolError(INVALID_PARAMS, f"Invalid params: {problem}") from None


def target_of(params: object) -> str | None:
    """Return what params name: a tool, a prompt or a URI, if they name anything."""
    return params.target if isinstance(params, Params) else None


class Preparation(msgspec.Struct, eq=False):
    """How a request is begun: where functions run, for its preparation is the author's code too."""

    begin: Callable[[], Outcome | Call]
    """Does not raise."""
    _step: Outcome | Call | None = None

    def step(self) -> Outcome | Call:
        """Return what the request has come to so far: a driver may have a value without running anything."""
        if self._step is None:
            self._step = self.begin()
        return self._step

    def run(self) -> object:
        """Begin the request, and run what it asks for."""
        step = self.step()
        return step.run() if isinstance(step, Call) else None


class Later(Call, kw_only=True):
    """A call that begins its request when it runs, and ends as what it has begun ends."""

    preparation: Preparation

    def finish(self, value: object) -> Outcome:
        """Conclude from the function's value, if a function ran."""
        self.end()
        step = self.preparation.step()
        return step.finish(value) if isinstance(step, Call) else step

    def fail(self, error: BaseException) -> Outcome:
        """Conclude from the function's exception."""
        self.end()
        step = self.preparation.step()
        return step.fail(error) if isinstance(step, Call) else step


class _PostponedCall(Later, kw_only=True):
    """A request that came before the lifespan was entered: it begins then."""

    def resume(self) -> None:
        """Begin the request: from now on this is a call like the one that the request becomes."""
        self.run = self.preparation.run
        if self.request.cancelled:
            return
        step = self.preparation.step()
        if isinstance(step, Call):
            self.is_async, self.inline, self.hooked = step.is_async, step.inline, step.hooked


def postpone(request: Request, lifespan: Readiness, begin: Callable[[], Outcome | Call]) -> Call:
    """Return a call that waits for a lifespan or for views, without a thread, and becomes what `begin` returns."""

    def begin_entered() -> Outcome | Call:
        if lifespan.entered:
            return begin()
        return RemoteProtocolError(INTERNAL_ERROR, lifespan.refusal or "The server is stopping")

    call = _PostponedCall(request, _not_yet, inline=True, preparation=Preparation(begin_entered))
    call.run = partial(Postponed, call, lifespan, call.resume)
    return call


def once_listening(sharing: Sharing, request: Request, first: Outcome | Call) -> Call | None:
    """Return a call that waits, in a worker thread, until changes of other processes arrive, and then becomes `first`.

    None if they arrive, or if the request does not ask for changes.
    """
    if sharing.is_listening or request.method not in LISTENING:
        return None
    preparation = Preparation(lambda: first)

    def run() -> object:
        sharing.wait_until_listening()
        return preparation.run()

    return Later(request, run, preparation=preparation)


def _not_yet() -> object:
    raise NotImplementedError


class MountedItem(Protocol):
    """What serves an item in the place of its handler: a mounted server (`server.mounting`), or an edit (`server.editing`)."""

    @property
    def server(self) -> str | None:
        """The name of the mounted server; None for an edited tool of this server."""
        ...

    @property
    def is_on(self) -> bool:
        """Whether the mounted server has not switched it off."""
        ...

    def begin(
        self,
        request: Request,
        settings: Settings,
        observation: Observation | None,
        rounds: Rounds,
        failures: Failures,
        target: str,
    ) -> Outcome | Call:
        """Begin a request about it. Raises: RemoteProtocolError for a state of questions that is not good."""
        ...

    def plain(self, request: Request) -> tuple[Any, Settings, Failures] | None:
        """Return the tool, and what reports its failures, where nothing but its function runs for a call; else None."""
        ...

    def is_async(self, method: str) -> bool:
        """Return whether the call of a request begins on an event loop."""
        ...

    @property
    def completes(self) -> bool:
        """Whether the mounted server completes arguments."""
        ...


class Run(Call, kw_only=True):
    """A call of a handler: concludes from its value, or from its exception, and reports the end to the observation."""

    rounds: Rounds
    failures: Failures
    current: Round
    conclude: Callable[[object], Outcome]
    """Turns a value into an outcome."""
    target: str
    """What was called: a name or a URI."""
    observation: Observation | None = None
    around: Around | None = None

    def finish(self, value: object) -> Outcome:
        """Conclude from the function's value."""
        if self.ended:
            self.end()
        self.ended = True
        try:
            if self.around is not None:
                self.around.leave(None)
            outcome = self.conclude(value)
        except BaseException as error:  # a generator may ask, or end the process, only now
            return self._failed(error)
        if self.current.questions:
            outcome = self.asked(outcome)
        if type(outcome) is InputRequired or self.observation is not None:
            return self._ended(outcome)
        return outcome

    def fail(self, error: BaseException) -> Outcome:
        """Conclude from the function's exception."""
        self.end()
        return self._failed(error)

    def asked(self, outcome: Outcome) -> Outcome:
        """Return the questions: one went unanswered, whatever the function made of that."""
        return InputRequired(self.current.questions)

    def report(self, error: BaseException, what: str) -> None:
        """Log and report an exception that does not decide how the call ends."""
        self.failures.report(self.request, error, what)

    def _failed(self, error: BaseException) -> Outcome:
        if self.around is not None:
            error = self.around.left(error, self.report)
        if self.current.questions or isinstance(error, InputNeeded):
            return self._ended(InputRequired(self.current.questions))
        return self._ended(self.failures.outcome(self.request, self.observation, error))

    def _ended(self, outcome: Outcome) -> Outcome:
        if type(outcome) is InputRequired:
            try:
                outcome = self.rounds.close(self.request, self.current, outcome, self.target)
            except Exception as error:
                outcome = self.failures.outcome(self.request, self.observation, error)
        if self.observation is not None:
            self.observation.end(self.request, outcome)
        return outcome
