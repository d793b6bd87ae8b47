"""Dependencies: values that functions of the author make for a handler, once for each of its runs, and clean up after it."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias

import msgspec

from linkspan.errors import RegistrationError
from linkspan.schema.annotations import (
    EMPTY,
    VAR_KEYWORD,
    VAR_POSITIONAL,
    Dependency,
    Parameter,
    dependency_of,
    is_async_generator_function,
    is_coroutine_function,
    is_generator_function,
    name_of,
    parameters_of,
    takes_provided,
    underlying,
)
from linkspan.schema.parameters import refuse_foreign_depends
from linkspan.server.context import Context, provided_to
from linkspan.server.observation import Report, hides
from linkspan.server.steps import Step, Steps

__all__ = ["Needs", "Overrides", "Provider", "compile_needs", "compile_provider"]

Function: TypeAlias = Callable[..., object]


class Provider(msgspec.Struct, frozen=True, eq=False):
    """A function that makes a value, looked at once."""

    function: Function
    is_generator: bool
    """It yields the value, and goes on when the run has ended."""
    is_async: bool
    context_parameter: str | None
    provided: Mapping[str, type]
    """The parameters that take what a lifespan yields, and its class."""
    needs: Mapping[str, Provider]
    """Its own dependencies, by parameter."""


Overrides: TypeAlias = Mapping[Function, Provider]
"""What stands in for a dependency, by the function that it replaces."""


def compile_provider(
    function: Function,
    is_context: Callable[[Parameter, Function], bool],
    provided: Sequence[type] = (),
    above: Sequence[Function] = (),
) -> Provider:
    """Look at a dependency and at those that it needs itself; `above` are those that need it.

    Raises: RegistrationError for a cycle, and for a parameter that nothing fills in.
    """
    if function in above:
        cycle = " -> ".join(name_of(each) for each in [*above[above.index(function) :], function])
        raise RegistrationError(
            f"dependencies form a cycle: {cycle}; remove one of them from the parameters of the other"
        )
    context: str | None = None
    takers: dict[str, type] = {}
    needs: dict[str, Provider] = {}
    for parameter in _parameters(function):
        refuse_foreign_depends(name_of(function), parameter)
        if (dependency := dependency_of(parameter, function)) is not None:
            needs[parameter.name] = compile_provider(dependency.function, is_context, provided, [*above, function])
        elif is_context(parameter, function):
            context = parameter.name
        elif (kind := takes_provided(parameter, function, provided)) is not None:
            takers[parameter.name] = kind
        elif parameter.default is EMPTY and parameter.kind not in (VAR_POSITIONAL, VAR_KEYWORD):
            raise RegistrationError(
                f"nothing fills in the parameter {parameter.name!r} of the dependency {name_of(function)}: give it a "
                "default, annotate it with Context, or write Annotated[..., Depends(function)]"
            )
    body = underlying(function)
    yields_later = is_async_generator_function(body)
    return Provider(
        function,
        is_generator=yields_later or is_generator_function(body),
        is_async=yields_later or is_coroutine_function(body),
        context_parameter=context,
        provided=takers,
        needs=needs,
    )


def _parameters(function: Function) -> Sequence[Parameter]:
    try:
        return parameters_of(function)
    except (TypeError, ValueError):  # something built in, which says nothing: it is called without arguments
        return ()


class Needs(msgspec.Struct, frozen=True, eq=False):
    """The dependencies of one handler, by parameter."""

    providers: Mapping[str, Provider]
    is_async: bool
    """The handler's own function is, or one of them at any depth, whatever runs the handler."""
    blocking: bool
    """The handler itself may block an event loop."""

    def provide(
        self, run: Callable[..., object], context: Context, held: list[str], overrides: Overrides, report: Report
    ) -> Steps:
        """Yield the steps of one run: make the values, call `run` with them, and clean up in reverse order.

        `held` names the generators that have begun and not ended, in their order.
        A generator that has yielded goes on exactly once, whatever happens. It sees the exception of the run, and cannot hide
        it. An exception of its own takes the place of that one if it is raised from it, or chooses the answer, and is
        reported otherwise.
        """
        making = _Making(context, held, overrides, report)
        try:
            values = yield from making.values(self.providers)
            result = yield Step(partial(run, **values), self.blocking)
        except GeneratorExit:
            making.abandon()
            raise
        except BaseException as error:
            problem = yield from making.clean_up(error)
            raise problem or error  # noqa: B904
        if (problem := (yield from making.clean_up(None))) is not None:
            raise problem
        return result


def compile_needs(
    dependencies: Mapping[str, Dependency],
    is_context: Callable[[Parameter, Function], bool],
    *,
    is_async: bool,
    blocking: bool,
    provided: Sequence[type] = (),
) -> Needs:
    """Look at the dependencies of a handler. Raises: RegistrationError."""
    providers = {name: compile_provider(each.function, is_context, provided) for name, each in dependencies.items()}
    return Needs(providers, is_async or _any_async(providers), blocking)


def _any_async(providers: Mapping[str, Provider]) -> bool:
    return any(each.is_async or _any_async(each.needs) for each in providers.values())


class _Making:
    """The values of one run, and the generators among what made them that have not gone on yet."""

    __slots__ = ("_context", "_held", "_made", "_open", "_overrides", "_report")

    def __init__(self, context: Context, held: list[str], overrides: Overrides, report: Report) -> None:
        self._context = context
        self._held = held
        self._report = report
        self._overrides = overrides
        self._made: dict[Function, object] = {}
        self._open: list[_Generator] = []

    def values(self, providers: Mapping[str, Provider]) -> Generator[Step, Any, dict[str, object]]:
        """Yield the steps that make the values, by parameter; what several parameters need is made once."""
        values: dict[str, object] = {}
        for name, provider in providers.items():
            if provider.function not in self._made:
                self._made[provider.function] = yield from self._value(self._overrides.get(provider.function, provider))
            values[name] = self._made[provider.function]
        return values

    def _value(self, provider: Provider) -> Generator[Step, Any, object]:
        arguments = yield from self.values(provider.needs)
        if provider.context_parameter is not None:
            arguments[provider.context_parameter] = self._context
        arguments |= {name: provided_to(self._context, kind) for name, kind in provider.provided.items()}
        make: Callable[[], Any] = partial(provider.function, **arguments)
        if provider.is_generator:
            opened = _Generator(f"dependency {name_of(provider.function)}", make(), is_async=provider.is_async)
            self._open.append(opened)
            self._held.append(name_of(provider.function))
            make = opened.enter
        return (yield Step(make, blocking=not provider.is_async))

    def clean_up(self, error: BaseException | None) -> Generator[Step, Any, BaseException | None]:
        """Yield the steps that let the generators go on, the last one first; return what was raised in the end."""
        while self._open:
            opened = self._open.pop()
            try:
                if opened.entered:
                    yield Step(partial(opened.leave, error), blocking=not opened.is_async)
            except BaseException as problem:
                if hides(problem, error):
                    self._report(problem, f"the cleanup of {opened.name}")
                else:
                    error = problem
            self._held.pop()
        return error

    def abandon(self) -> None:
        """Close plain generators where nothing can be awaited any more; event loops close async ones themselves."""
        while self._open:
            opened = self._open.pop()
            if not opened.is_async:
                opened.steps.close()


class _Generator:
    """A generator that makes a value, plain or async."""

    __slots__ = ("entered", "is_async", "name", "steps")

    def __init__(self, name: str, steps: Any, *, is_async: bool) -> None:
        self.name = name
        self.steps = steps
        self.is_async = is_async
        self.entered = False

    def enter(self) -> object:
        """Return the value, or an awaitable of it. Raises: what the generator raises before its yield."""
        if self.is_async:
            return self._enter_async()
        for value in self.steps:
            self.entered = True
            return value
        raise self._no_value()

    async def _enter_async(self) -> object:
        async for value in self.steps:
            self.entered = True
            return value
        raise self._no_value()

    def leave(self, error: BaseException | None) -> object:
        """Go on, with the exception of the run if there is one. Raises: what the generator raises, but not `error` again."""
        if self.is_async:
            return self._leave_async(error)
        try:
            next(self.steps) if error is None else self.steps.throw(error)
        except StopIteration:
            return None
        except BaseException as problem:
            if problem is not error:
                raise
            return None
        self.steps.close()
        raise self._second_value()

    async def _leave_async(self, error: BaseException | None) -> None:
        try:
            await (anext(self.steps) if error is None else self.steps.athrow(error))
        except StopAsyncIteration:
            return
        except BaseException as problem:
            if problem is not error:
                raise
            return
        await self.steps.aclose()
        raise self._second_value()

    def _no_value(self) -> RuntimeError:
        return RuntimeError(f"the {self.name} ended without a yield: yield its value once")

    def _second_value(self) -> RuntimeError:
        return RuntimeError(f"the {self.name} yielded twice: yield its value once")
