"""Dependencies: values that functions of the author make for a handler, once for each of its runs, and clean up after it."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias

import msgspec

from linkspan.errors import RegistrationError
from linkspan.revisions.neutral import Request
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
from linkspan.server.steps import Offloads, Step, Steps, await_steps

Function: TypeAlias = Callable[..., object]


class DependencyProvider(msgspec.Struct, frozen=True, eq=False):
    """A function that makes a value, looked at once."""

    function: Function
    name: str
    is_generator: bool
    """It yields the value, and goes on when the run has ended."""
    is_async: bool
    blocking: bool
    """It needs a thread beside an event loop."""
    context_parameter: str | None
    provided: Mapping[str, type]
    """The parameters that take what a lifespan yields, and its class."""
    needs: Mapping[str, DependencyProvider]
    """Its own dependencies, by parameter."""


Overrides: TypeAlias = Mapping[Function, DependencyProvider]
"""What stands in for a dependency, by the function that it replaces."""


def compile_provider(
    function: Function,
    is_context: Callable[[Parameter, Function], bool],
    provided: Sequence[type] = (),
    above: Sequence[Function] = (),
    *,
    inline: bool = False,
) -> DependencyProvider:
    """Look at a dependency and at those that it needs itself; `above` are those that need it, `inline` what `Depends` says.

    Raises: RegistrationError for a cycle, and for a parameter that nothing fills in.
    """
    if function in above:
        cycle = " -> ".join(name_of(each) for each in [*above[above.index(function) :], function])
        raise RegistrationError(
            f"dependencies form a cycle: {cycle}; remove one of them from the parameters of the other"
        )
    context: str | None = None
    takers: dict[str, type] = {}
    needs: dict[str, DependencyProvider] = {}
    for parameter in _parameters(function):
        refuse_foreign_depends(name_of(function), parameter)
        if (dependency := dependency_of(parameter, function)) is not None:
            needs[parameter.name] = compile_provider(
                dependency.function, is_context, provided, [*above, function], inline=dependency.inline
            )
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
    is_async = yields_later or is_coroutine_function(body)
    return DependencyProvider(
        function,
        name_of(function),
        is_generator=yields_later or is_generator_function(body),
        is_async=is_async,
        blocking=not (is_async or inline),
        context_parameter=context,
        provided=takers,
        needs=needs,
    )


def _parameters(function: Function) -> Sequence[Parameter]:
    try:
        return parameters_of(function)
    except (TypeError, ValueError):  # something built in, which says nothing: it is called without arguments
        return ()


_Order: TypeAlias = Sequence[tuple[Function, DependencyProvider]]
"""What makes the values of a run, the last one first, each with the function whose value it makes."""


class Needs(msgspec.Struct, frozen=True, eq=False):
    """The dependencies of one handler, by parameter."""

    providers: Mapping[str, DependencyProvider]
    is_async: bool
    """The handler's own function is, or one of them at any depth, whatever runs the handler."""
    blocking: bool
    """The handler itself may block an event loop."""
    order: _Order
    """What makes the values where nothing is overridden."""
    takes_context: bool
    """One of these has a parameter for the context, or for what a lifespan yields."""
    is_plain: bool
    """All of these, and the handler, are plain functions without a context: they follow one another where the handler runs."""

    def call(self, run: Callable[..., object], request: Request, system: Offloads) -> object:
        """Make the values and call `run` with them, where all of these are plain and none is overridden: nothing is cleaned up.

        Returns an awaitable if one of them returns one. Raises: what they raise.
        """
        made: dict[Function, object] = {}
        for function, provider in reversed(self.order):
            value = provider.function(**_values(provider.needs, made)) if provider.needs else provider.function()
            if hasattr(type(value), "__await__"):
                left = self.order[: -len(made) - 1]
                making = _Making(left, request, None, _nothing_to_report, made)
                return await_steps(self._steps(making, run, (function, value)), system)
            made[function] = value
        return run(**_values(self.providers, made))

    def provide(
        self,
        run: Callable[..., object],
        request: Request,
        context: Context | None,
        overrides: Overrides,
        report: Report,
    ) -> Steps:
        """Yield the steps of one run: make the values, call `run` with them, and clean up in reverse order.

        What follows one another and runs in the same place is one step. `context` is there where one of them takes it.
        A generator that has yielded goes on exactly once, whatever happens. It sees the exception of the run, and cannot hide
        it. An exception of its own takes the place of that one if it is raised from it, or chooses the answer, and is
        reported otherwise.
        """
        order = _order(self.providers, overrides) if overrides else self.order
        return self._steps(_Making(order, request, context, report, {}), run)

    def _steps(
        self, making: _Making, run: Callable[..., object], begun: tuple[Function, object] | None = None
    ) -> Steps:
        """Do the same with what is made already; `begun` is what makes a value, and an awaitable of that."""
        try:
            if begun is not None:
                function, pending = begun
                making.made[function] = yield Step(lambda: pending)
            while making.left:
                making.take((yield Step(making.make, making.left[-1][1].blocking)))
            result = yield Step(partial(run, **_values(self.providers, making.made)), self.blocking)
        except GeneratorExit:
            making.abandon()
            raise
        except BaseException as error:
            problem = yield from making.clean_up(error)
            raise problem or error  # noqa: B904
        if making.opened and (problem := (yield from making.clean_up(None))) is not None:
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
    providers = {
        name: compile_provider(each.function, is_context, provided, inline=each.inline)
        for name, each in dependencies.items()
    }
    order = _order(providers, {})
    is_async = is_async or any(each.is_async for _, each in order)
    takes_context = any(each.context_parameter is not None or each.provided for _, each in order)
    is_plain = not (is_async or takes_context or any(each.is_generator for _, each in order))
    return Needs(providers, is_async, blocking, order, takes_context, is_plain)


def _values(providers: Mapping[str, DependencyProvider], made: Mapping[Function, object]) -> dict[str, object]:
    """Return what was made, by parameter."""
    return {name: made[each.function] for name, each in providers.items()}


def _nothing_to_report(error: BaseException, what: str) -> None:
    """Stand in where there are no cleanups."""


def _order(providers: Mapping[str, DependencyProvider], overrides: Overrides) -> _Order:
    """Return what makes the values of `providers`, what they need themselves included; what several need is made once."""
    found: dict[Function, DependencyProvider] = {}

    def add(needed: Mapping[str, DependencyProvider]) -> None:
        for each in needed.values():
            if each.function not in found:
                chosen = overrides.get(each.function, each)
                add(chosen.needs)
                found[each.function] = chosen

    add(providers)
    return tuple(found.items())[::-1]


class _Making:
    """The values of one run, and the generators among what made them that have not gone on yet."""

    __slots__ = ("_context", "_error", "_held", "_last", "_report", "_request", "left", "made", "opened")

    def __init__(
        self,
        left: _Order,
        request: Request,
        context: Context | None,
        report: Report,
        made: dict[Function, object],
    ) -> None:
        self.left = list(left)
        """What has not made its value yet, the next one last."""
        self._request = request
        self._context = context
        self._held: list[str] = []
        request.held = self._held
        self._report = report
        self.made = made
        self.opened: list[_Generator] = []
        """The generators that have begun and not ended."""
        self._error: BaseException | None = None

    def make(self) -> object:
        """Make the values that are due in this place, and return the last of them, or an awaitable of it: `take` that."""
        blocking = self.left[-1][1].blocking
        while True:
            self._last, provider = self.left.pop()
            value = self.made[self._last] = self._begin(provider)
            here = (
                self.left
                and self.left[-1][1].blocking is blocking
                and not (self._request.cancelled or self._request.stopped)
            )
            if not here or hasattr(type(value), "__await__"):
                return value

    def take(self, value: object) -> None:
        """Keep the value that was made last."""
        self.made[self._last] = value

    def _begin(self, provider: DependencyProvider) -> object:
        arguments = _values(provider.needs, self.made) if provider.needs else {}
        if provider.context_parameter is not None:
            arguments[provider.context_parameter] = self._context
        if provider.provided:
            assert self._context is not None
            arguments |= {name: provided_to(self._context, kind) for name, kind in provider.provided.items()}
        value: Any = provider.function(**arguments)
        if not provider.is_generator:
            return value
        opened = _Generator(provider, value)
        self.opened.append(opened)
        self._held.append(provider.name)
        return opened.enter()

    def clean_up(self, error: BaseException | None) -> Generator[Step, Any, BaseException | None]:
        """Yield the steps that let the generators go on, the last one first; return what was raised in the end."""
        self._error = error
        while self.opened:
            due = self._take_due()
            try:
                yield Step(partial(self._leave, due), due[0].provider.blocking)
            except BaseException as problem:
                self._note(problem, due[-1])
            del self._held[len(self.opened) :]
        return self._error

    def _take_due(self) -> list[_Generator]:
        """Take the generators that go on next in the same place, the last one first; only the last taken may be async."""
        due = [self.opened.pop()]
        blocking = due[0].provider.blocking
        while self.opened and self.opened[-1].provider.blocking is blocking and not due[-1].provider.is_async:
            due.append(self.opened.pop())
        return due

    def _leave(self, due: Sequence[_Generator]) -> object:
        """Let generators go on; return an awaitable of the end of the last one, if that is async."""
        for opened in due:
            if opened.entered and opened.provider.is_async:
                return opened.leave_async(self._error)
            try:
                if opened.entered:
                    opened.leave(self._error)
            except BaseException as problem:
                self._note(problem, opened)
            self._held.pop()
        return None

    def _note(self, problem: BaseException, opened: _Generator) -> None:
        """Keep what a cleanup raised, or report it if it would hide the error that there is."""
        if hides(problem, self._error):
            self._report(problem, f"the cleanup of dependency {opened.provider.name}")
        else:
            self._error = problem

    def abandon(self) -> None:
        """Close plain generators where nothing can be awaited any more; event loops close async ones themselves."""
        while self.opened:
            opened = self.opened.pop()
            if not opened.provider.is_async:
                opened.steps.close()


class _Generator:
    """A generator that makes a value, plain or async."""

    __slots__ = ("entered", "provider", "steps")

    def __init__(self, provider: DependencyProvider, steps: Any) -> None:
        self.provider = provider
        self.steps = steps
        self.entered = False

    def enter(self) -> object:
        """Return the value, or an awaitable of it. Raises: what the generator raises before its yield."""
        if self.provider.is_async:
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

    def leave(self, error: BaseException | None) -> None:
        """Go on, with the exception of the run if there is one. Raises: what the generator raises, but not `error` again."""
        try:
            next(self.steps) if error is None else self.steps.throw(error)
        except StopIteration:
            return
        except BaseException as problem:
            if problem is not error:
                raise
            return
        self.steps.close()
        raise self._second_value()

    async def leave_async(self, error: BaseException | None) -> None:
        """Do the same with an async one."""
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
        return RuntimeError(f"the dependency {self.provider.name} ended without a yield: yield its value once")

    def _second_value(self) -> RuntimeError:
        return RuntimeError(f"the dependency {self.provider.name} yielded twice: yield its value once")
