"""What authors write in `Annotated[...]`, and how the hints of a function or class are looked up.

Knows names and scopes; knows nothing of JSON Schema.
"""

from __future__ import annotations

import functools
import re
import sys
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from types import FrameType
from typing import Any

import msgspec

from linkspan.errors import RegistrationError
from linkspan.schema.signatures import is_class, is_routine

__all__ = [
    "Ask",
    "Format",
    "Header",
    "bound_names",
    "class_hints",
    "name_of",
    "peel",
    "resolve",
    "return_hint",
    "underlying",
]

_MOST_LOOKUPS = 50
_WRAPPERS = (typing.Required, typing.NotRequired, typing.Final)


class Ask(msgspec.Struct, frozen=True):
    """Have the user fill in a parameter, never the model: `seats: Annotated[int, Ask("How many seats?")]`."""

    message: str


class Header(msgspec.Struct, frozen=True):
    """Mirror a parameter into the HTTP header `Mcp-Param-<name>`: `region: Annotated[str, Header("Region")]` (XH-1)."""

    name: str


class Format(msgspec.Struct, frozen=True):
    """Say what a text is: `Annotated[str, Format("email")]`; forms know email, uri, date and date-time (ELI-4)."""

    name: str


def name_of(thing: object) -> str:
    """Return how to name a function or class in a message to its author."""
    while isinstance(thing, functools.partial):
        thing = thing.func
    name: str | None = getattr(thing, "__qualname__", None) or getattr(type(thing), "__qualname__", None)
    return (name or repr(thing)).rpartition("<locals>.")[2]


def underlying(function: Callable[..., object]) -> Any:
    """Return the function that bears the hints: below partials, wrappers, bound methods and callable objects."""
    found: Any = function
    while True:
        if isinstance(found, functools.partial):
            found = found.func
        elif hasattr(found, "__wrapped__") and not is_class(found):
            found = found.__wrapped__
        elif isinstance(found, types.MethodType):
            found = found.__func__
        elif is_class(found):
            return found.__init__
        elif not is_routine(found) and isinstance(getattr(found, "__call__", None), types.MethodType):  # noqa: B004
            found = found.__call__
        else:
            return found


def bound_names(function: Callable[..., object]) -> frozenset[str]:
    """Return the keywords that a partial has fixed: they are the author's, and may be secrets."""
    names: set[str] = set()
    found: Any = function
    while type(found) is functools.partial:
        names.update(found.keywords)
        found = found.func
    return frozenset(names)


class _Holder:
    """Something with `__annotations__`, so that `typing.get_type_hints` looks at one hint alone."""

    def __init__(self, hint: object) -> None:
        self.__annotations__ = {"hint": hint}


def resolve(hint: object, function: Callable[..., object]) -> Any:
    """Return a hint of `function` with its strings evaluated where the function was written.

    Raises: NameError for a name that is not there, TypeError or SyntaxError for a string that is no type.
    """
    bearer = underlying(function)
    scope: Mapping[str, Any] = getattr(bearer, "__globals__", {})
    return _looked_up(
        lambda names: typing.get_type_hints(_Holder(hint), dict(scope), names, True)["hint"], _closure(bearer)
    )


def class_hints(source: type) -> dict[str, Any]:
    """Return the hints of a class, inherited ones too. Raises: RegistrationError for a name that is not there."""
    try:
        found: dict[str, Any] = _looked_up(
            lambda names: typing.get_type_hints(source, None, names, include_extras=True), {source.__name__: source}
        )
        return found
    except NameError as problem:
        raise RegistrationError(_unresolved(f"{name_of(source)}: the name {problem.name!r} in its hints")) from None
    except (TypeError, SyntaxError) as problem:
        raise RegistrationError(f"{name_of(source)}: a hint cannot be evaluated ({problem})") from None


def return_hint(function: Callable[..., object]) -> Any:
    """Return what `function` says it returns; Any where it says nothing. Raises: RegistrationError."""
    if isinstance(function, type):
        return function
    annotation: Any = getattr(underlying(function), "__annotations__", {}).get("return", Any)
    try:
        return resolve(annotation, function)
    except NameError as problem:
        raise RegistrationError(
            _unresolved(f"{name_of(function)}: the name {problem.name!r} in its return type")
        ) from None
    except (TypeError, SyntaxError, AttributeError) as problem:
        raise RegistrationError(f"{name_of(function)}: its return type cannot be evaluated ({problem})") from None


def _unresolved(what: str) -> str:
    return f"{what} cannot be resolved; define or import it at module level (not only under TYPE_CHECKING)"


def peel(hint: Any) -> tuple[Any, tuple[Any, ...]]:
    """Return a hint without `Annotated`, `NewType`, `Required` and `Final`, and the metadata that it carried."""
    notes: tuple[Any, ...] = ()
    while True:
        origin = typing.get_origin(hint)
        if origin is typing.Annotated:
            notes = (*hint.__metadata__, *notes)
            hint = hint.__origin__
        elif origin in _WRAPPERS or getattr(origin, "_name", None) == "ReadOnly":
            hint = typing.get_args(hint)[0]
        elif isinstance(hint, typing.NewType):
            hint = hint.__supertype__
        else:
            return hint, notes


def _looked_up(look: Callable[[dict[str, Any]], Any], names: dict[str, Any]) -> Any:
    """Evaluate, and where a name is missing, look for it in the functions that are being run."""
    for _ in range(_MOST_LOOKUPS):
        try:
            return look(names)
        except NameError as problem:
            missing = problem.name or _missing(problem)
            found = [frame[missing] for frame in _frames() if missing in frame]
            if missing in names or not found:
                raise NameError(str(problem), name=missing) from None
            names[missing] = found[0]
    raise NameError("too many names", name="?")


def _missing(problem: NameError) -> str:
    found = re.search(r"'([^']+)'", str(problem))
    return found[1] if found else str(problem)


def _frames() -> Iterator[Mapping[str, Any]]:
    """Yield the local names of the functions that are being run, ours left out."""
    frame: FrameType | None = sys._getframe(1)  # pyright: ignore[reportPrivateUsage]
    while frame is not None:
        if not str(frame.f_globals.get("__name__", "")).startswith("linkspan."):
            yield frame.f_locals
        frame = frame.f_back


def _closure(function: Any) -> dict[str, Any]:
    names: dict[str, Any] = {}
    code = getattr(function, "__code__", None)
    cells = getattr(function, "__closure__", None) or ()
    for name, cell in zip(getattr(code, "co_freevars", ()), cells, strict=False):
        try:
            names[name] = cell.cell_contents
        except ValueError:
            continue
    for parameter in getattr(function, "__type_params__", ()):
        names[parameter.__name__] = parameter
    return names
