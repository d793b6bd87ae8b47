"""The lifespan of a server as its author writes it: looked at once, and what calls wait for until it is entered."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager, contextmanager
from functools import partial
from typing import Any, Protocol, TypeAlias, cast, get_args, get_origin

import msgspec

from linkspan.errors import RegistrationError
from linkspan.schema.annotations import (
    EMPTY,
    POSITIONAL_ONLY,
    POSITIONAL_OR_KEYWORD,
    VAR_KEYWORD,
    VAR_POSITIONAL,
    is_async_generator_function,
    is_class,
    is_coroutine_function,
    is_generator_function,
    name_of,
    parameters_of,
    peel,
    resolve,
    return_hint,
    takes_provided,
    underlying,
)

LifespanFunction: TypeAlias = (
    Callable[..., Iterator[object]]
    | Callable[..., AsyncIterator[object]]
    | Callable[..., AbstractContextManager[object]]
    | Callable[..., AbstractAsyncContextManager[object]]
)
"""Makes a generator or a context manager, plain or async, with the server or without arguments."""

_HOW = "write a generator function with one `yield`, or a function that returns a context manager"


class OpenedPart(Protocol):
    """A part of a lifespan: a function of the author, or the lifespan of a mounted server."""

    @property
    def name(self) -> str:
        """What messages call it."""
        ...

    @property
    def is_async(self) -> bool:
        """Whether it lives on an event loop."""
        ...

    @property
    def provides(self) -> type | None:
        """The class of what it yields, for which handlers can ask."""
        ...

    @property
    def is_own(self) -> bool:
        """Whether what it yields is for the handlers of this server."""
        ...

    def open(self) -> AbstractContextManager[object]:
        """Return what is entered and left in one thread. Raises: what the author's function raises, TypeError."""
        ...

    def open_async(self) -> AbstractAsyncContextManager[object]:
        """Return what is entered and left in one task. Raises: what the author's function raises, TypeError."""
        ...


class LifespanPart(msgspec.Struct, frozen=True, eq=False):
    """One function of the author, looked at once."""

    name: str
    make: Callable[[], object]
    """Returns a generator or a context manager."""
    is_async: bool
    provides: type | None
    """The class of what it yields, if its hints name one that is not a type of JSON."""
    is_own: bool = True

    def open(self) -> AbstractContextManager[object]:
        """Return what is entered and left in one thread. Raises: what the author's function raises, TypeError."""
        return cast("AbstractContextManager[object]", self._open("__enter__", contextmanager))

    def open_async(self) -> AbstractAsyncContextManager[object]:
        """Return what is entered and left in one task. Raises: what the author's function raises, TypeError."""
        return cast("AbstractAsyncContextManager[object]", self._open("__aenter__", asynccontextmanager))

    def _open(self, enter: str, wrapped: Callable[[Any], Callable[[], object]]) -> object:
        made = self.make()
        if hasattr(type(made), enter):
            return made
        if hasattr(type(made), "__next__" if enter == "__enter__" else "__anext__"):
            return wrapped(lambda: made)()
        raise TypeError(f"the lifespan {self.name} returned a {type(made).__name__}: {_HOW}")


class LifespanPlan(msgspec.Struct, frozen=True, eq=False):
    """The lifespan of a server: its parts are entered in their order, and left in reverse order."""

    parts: tuple[OpenedPart, ...]
    timeout: float
    """Seconds that each may take to close."""
    refuse: Callable[[BaseException], str]
    """Logs and reports an exception; returns the error of every caller if it could not be entered."""

    @property
    def name(self) -> str:
        """The names of its functions."""
        return " and ".join(each.name for each in self.parts)

    @property
    def is_async(self) -> bool:
        """Whether a part of it lives on an event loop."""
        return any(each.is_async for each in self.parts)

    @property
    def closes_within(self) -> float:
        """Seconds that all may take to close."""
        return self.timeout * len(self.parts)

    @property
    def provides(self) -> Sequence[type]:
        """The classes of what it yields, for which handlers can ask."""
        return [each.provides for each in self.parts if each.provides is not None]

    def followed_by(self, part: OpenedPart) -> LifespanPlan:
        """Return a plan with one more part. Raises: RegistrationError for a class that another part yields already."""
        for each in self.parts:
            if part.provides is not None and each.provides is part.provides:
                raise RegistrationError(
                    f"the lifespans {each.name} and {part.name} both yield a {part.provides.__name__}: let one of them yield a "
                    "class of its own, so that the hint of a parameter names the one that it takes"
                )
        return LifespanPlan((*self.parts, part), self.timeout, self.refuse)


def check_timeout(timeout: float) -> None:
    """Raise RegistrationError for a time of 0 or less."""
    if timeout <= 0:
        raise RegistrationError(
            f"lifespan_timeout={timeout!r} leaves no time to close: write the seconds that it may take"
        )


def compile_lifespan(
    function: LifespanFunction, server: object, handlers: Iterable[Callable[..., object]]
) -> LifespanPart:
    """Look at a lifespan once. `handlers` were registered before it. Raises: RegistrationError."""
    name = name_of(function)
    if not callable(function):
        raise RegistrationError(f"lifespan={function!r} cannot be called: {_HOW}")
    make = partial(function, server) if _takes_server(function, name) else function
    is_async, provides = _kind(function, name)
    if provides is not None:
        _check_order(provides, name, handlers)
    return LifespanPart(name, make, is_async, provides)


def _check_order(provided: type, name: str, handlers: Iterable[Callable[..., object]]) -> None:
    """Refuse a lifespan that comes after a handler of what it yields: the model would have to send that."""
    for handler in handlers:
        if any(takes_provided(each, handler, [provided]) for each in parameters_of(handler)):
            raise RegistrationError(
                f"{name_of(handler)} takes a {provided.__name__}, which the lifespan {name} yields: "
                "register the lifespan before it, or let it take that as ctx.lifespan"
            )


def _takes_server(function: LifespanFunction, name: str) -> bool:
    """Return whether a lifespan has a parameter that needs a value. Raises: RegistrationError if it has another one."""
    try:
        parameters = parameters_of(function)
    except (TypeError, ValueError):
        return False
    needed = [each for each in parameters if each.default is EMPTY and each.kind not in (VAR_POSITIONAL, VAR_KEYWORD)]
    if len(needed) > 1 or any(each.kind not in (POSITIONAL_ONLY, POSITIONAL_OR_KEYWORD) for each in needed):
        named = ", ".join(each.name for each in needed)
        raise RegistrationError(
            f"the lifespan {name} has the parameters {named}: it may have one, which is the server; give others a default"
        )
    return bool(needed)


def _kind(function: LifespanFunction, name: str) -> tuple[bool, type | None]:
    """Return whether a lifespan is async, and the class of what it yields. Raises: RegistrationError."""
    body = underlying(function)
    if is_class(function):
        made: Any = function
    elif is_async_generator_function(body):
        return True, _yielded(function)
    elif is_generator_function(body):
        return False, _yielded(function)
    elif is_coroutine_function(body):
        raise RegistrationError(f"the lifespan {name} is a coroutine function without a yield: {_HOW}")
    else:
        made = return_hint(function)
    kind = get_origin(made) or made
    for enter, is_async in (("__aenter__", True), ("__enter__", False)):
        if is_class(kind) and hasattr(kind, enter):
            return is_async, _yielded(function) if get_args(made) else _entered(kind, enter)
    raise RegistrationError(
        f"it is unknown what the lifespan {name} returns: {_HOW}, such as one with @contextmanager, and annotate what it returns"
    )


def _yielded(function: LifespanFunction) -> type | None:
    """Return the class in the return hint: Pool for `Iterator[Pool]`."""
    try:
        arguments = get_args(return_hint(function))
        hint = arguments[0] if arguments else None
    except RegistrationError:  # Iterator may be imported for type checkers only
        written = str(getattr(underlying(function), "__annotations__", {}).get("return"))
        found = re.match(r"[\w.]+\[\s*([\w.]+)", written)
        hint = _resolved(found[1], function) if found is not None else None
    return _provided(hint)


def _entered(kind: type, enter: str) -> type | None:
    """Return the class that entering an instance of `kind` gives, by its hint."""
    method: Any = getattr(kind, enter)
    written = getattr(method, "__annotations__", {}).get("return")
    return kind if str(written).rpartition(".")[2] == "Self" else _provided(_resolved(written, method))


def _resolved(hint: object, function: Callable[..., object]) -> Any:
    try:
        return resolve(hint, function)
    except (NameError, TypeError, SyntaxError, AttributeError):
        return None


def _provided(hint: Any) -> type | None:
    """Return the class that handlers can ask for; None for a type of JSON, which is a type of arguments."""
    bare = peel(hint)[0]
    kind = get_origin(bare) or bare
    return kind if is_class(kind) and kind.__module__ != "builtins" else None
