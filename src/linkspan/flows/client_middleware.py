"""Middleware of clients: functions of the application around operations, which may look, change, repeat, fail and answer.

A generator function serves `Client` and `SyncClient` alike; a coroutine function is for what only `Client` can await.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from functools import partial
from typing import Any, Final, Literal, TypeAlias, TypeVar, cast

import msgspec

from linkspan.core.flow import Await, Flow, Sleep
from linkspan.flows.state import CallOptions, ClientCall, Inside, Surround
from linkspan.schema.annotations import (
    is_async_generator_function,
    is_coroutine_function,
    is_generator_function,
    name_of,
    underlying,
)

ClientMiddleware: TypeAlias = Callable[..., object]
"""`(call)` as a generator function or a plain function, or `async (call, call_next)`.

A generator yields None or a `ClientCall` to run what is inside, and `Sleep(seconds)` to pause, as often as it likes.
"""

ResultT = TypeVar("ResultT")


class _ClientLayer(msgspec.Struct, frozen=True, eq=False):
    function: ClientMiddleware
    kind: Literal["generator", "plain", "async"]


def compile_middleware(functions: Sequence[ClientMiddleware], *, awaits: bool) -> Surround:
    """Look at the middleware of a client once, the outermost first; coroutine functions only for a client that `awaits`.

    Raises: TypeError for a function that cannot be middleware.
    """
    layers = [_layer(each, awaits=awaits) for each in functions]

    def surround(
        method: str, name: str | None, arguments: Mapping[str, Any], options: CallOptions, inside: Inside[ResultT]
    ) -> Flow[ResultT]:
        call = ClientCall(method, name, arguments, msgspec.structs.replace(options, surrounded=True))
        return _surround(layers, call, inside)

    return surround


def _layer(function: ClientMiddleware, *, awaits: bool) -> _ClientLayer:
    if not callable(function):
        raise TypeError(f"middleware is a list of functions, got {type(function).__name__}: write middleware=[...]")
    body = underlying(function)
    if is_async_generator_function(body):
        raise TypeError(
            f"middleware {name_of(function)} is an async generator: write `def` with a `yield`, or "
            "`async def(call, call_next)` if it awaits something"
        )
    if is_generator_function(body):
        return _ClientLayer(function, "generator")
    if not is_coroutine_function(body):
        return _ClientLayer(function, "plain")
    if not awaits:
        raise TypeError(f"middleware {name_of(function)} is async, which needs a Client: write `def` with a `yield`")
    return _ClientLayer(function, "async")


def _surround(layers: Sequence[_ClientLayer], call: ClientCall, inside: Inside[Any]) -> Flow[Any]:
    """Run an operation through its middleware. Raises: what that raises or lets through."""
    if not layers:
        return (yield from inside(call))
    layer, rest = layers[0], layers[1:]

    def run(now: ClientCall | None = None) -> Flow[Any]:
        return _surround(rest, call if now is None else now, inside)

    match layer.kind:
        case "generator":
            return (yield from _through(layer, call, run))
        case "async":
            return (yield Await(partial(_begin, layer, call, run)))
        case "plain":
            if layer.function(call) is not None:
                raise TypeError(f"middleware {name_of(layer.function)} returned something but has no yield: {_HOW}")
            return (yield from run())


_HOW: Final = "write `result = yield`, and return what the caller is to get"
_NOTHING: Final = object()


def _through(layer: _ClientLayer, call: ClientCall, run: Callable[[ClientCall | None], Flow[Any]]) -> Flow[Any]:
    """Run a generator: each of its yields runs what is inside, or sleeps; what it returns is the answer."""
    steps = cast("Generator[object, Any, Any]", layer.function(call))
    resume: Callable[[], Any] = partial(next, steps)
    answer: object = _NOTHING
    try:
        while True:
            try:
                wanted = resume()
            except StopIteration as end:
                if end.value is None and answer is _NOTHING:
                    raise TypeError(f"middleware {name_of(layer.function)} answered nothing: {_HOW}") from None
                return answer if end.value is None else end.value
            try:
                if isinstance(wanted, Sleep):
                    resume = partial(steps.send, (yield wanted))
                elif wanted is None or isinstance(wanted, ClientCall):
                    answer = yield from run(wanted)
                    resume = partial(steps.send, answer)
                else:
                    raise TypeError(
                        f"middleware {name_of(layer.function)} yielded a {type(wanted).__name__}: yield nothing, "
                        "call.replace(...), or Sleep(seconds)"
                    )
            except GeneratorExit:
                raise
            except BaseException as error:
                answer = _NOTHING
                resume = partial(steps.throw, error)
    finally:
        steps.close()


def _begin(
    layer: _ClientLayer,
    call: ClientCall,
    run: Callable[[ClientCall | None], Flow[Any]],
    drive: Callable[[Flow[Any]], Awaitable[Any]],
) -> Awaitable[Any]:
    """Call a coroutine function, which runs what is inside by awaiting `call_next`, as often as it likes."""

    def call_next(now: ClientCall | None = None) -> Awaitable[Any]:
        return drive(run(now))

    return cast("Awaitable[Any]", layer.function(call, call_next))
