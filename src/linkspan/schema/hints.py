"""Type hints, taken apart: what `Annotated` says besides the type.

`Ask` and `Header` are the two marks of our own; descriptions and bounds are understood in the spelling of msgspec, pydantic and
annotated-types.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, NewType, get_args, get_origin, get_type_hints

from linkspan.errors import RegistrationError

__all__ = ["Ask", "Header", "Hint", "function_hints", "return_hint", "take_apart"]


@dataclass(frozen=True, slots=True)
class Ask:
    """Marks a parameter that the user fills in, never the model: `Annotated[int, Ask("How many seats?")]`."""

    message: str


@dataclass(frozen=True, slots=True)
class Header:
    """Marks an argument that HTTP clients repeat in the header `Mcp-Param-{name}`: `Annotated[str, Header("Region")]`."""

    name: str


@dataclass(slots=True)
class Hint:
    """A type, and what was said about it."""

    type: Any
    description: str | None = None
    bounds: dict[str, Any] = field(default_factory=dict[str, Any])
    """ge, gt, le, lt, multiple_of, min_length, max_length, pattern."""
    format: str | None = None
    ask: Ask | None = None
    header: Header | None = None


_BOUNDS = ("ge", "gt", "le", "lt", "multiple_of", "min_length", "max_length", "pattern")


def take_apart(hint: Any) -> Hint:
    """Look through `Annotated`, `NewType` and type aliases down to a type."""
    found = Hint(hint)
    while True:
        if isinstance(found.type, NewType):
            found.type = found.type.__supertype__
        elif get_origin(found.type) is Annotated:
            inner, *marks = get_args(found.type)
            found.type = inner
            for mark in marks:
                _read_mark(found, mark)
        elif type(found.type).__name__ == "TypeAliasType":
            found.type = found.type.__value__
        else:
            return found


def _read_mark(found: Hint, mark: Any) -> None:
    if isinstance(mark, str):
        found.description = mark
    elif isinstance(mark, Ask):
        found.ask = mark
    elif isinstance(mark, Header):
        found.header = mark
    else:
        description = getattr(mark, "description", None) or getattr(mark, "documentation", None)
        found.description = description if isinstance(description, str) else found.description
        for name in _BOUNDS:
            value = getattr(mark, name, None)
            if value is not None and not callable(value):
                found.bounds[name] = value
        extra = getattr(mark, "extra_json_schema", None)
        if isinstance(extra, Mapping):
            found.format = extra.get("format", found.format)  # pyright: ignore[reportUnknownMemberType]
        for inner in getattr(mark, "metadata", None) or ():
            _read_mark(found, inner)


def function_hints(function: Callable[..., object]) -> dict[str, Any]:
    """Return the hints of a function, with names in quotes resolved. Raises: RegistrationError for one that cannot be."""
    target: Any = function
    while hasattr(target, "func"):
        target = target.func
    if not hasattr(target, "__annotations__") and hasattr(target, "__call__"):  # noqa: B004
        target = target.__call__
    try:
        return get_type_hints(target, include_extras=True)
    except NameError as error:
        name = getattr(function, "__qualname__", repr(function))
        raise RegistrationError(
            f"{name}: the hint {error.name!r} cannot be resolved: import it, or define it, at the top level of "
            f"{getattr(target, '__module__', 'its module')}"
        ) from None
    except TypeError:
        return {}


def return_hint(function: Callable[..., object]) -> Any:
    """Return what a function says it returns; `Any` where it says nothing."""
    return function_hints(function).get("return", Any)


