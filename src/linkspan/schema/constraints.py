"""What stands beside a type in `Annotated[...]`: descriptions, bounds, formats, header names. By shape, not by library.

`msgspec.Meta`, pydantic's `Field`, the bounds of annotated_types, plain texts and objects with a `documentation` all work.
"""

from __future__ import annotations

import decimal
import operator
import re
from collections.abc import Callable, Iterable, Mapping, Sequence, Sized
from typing import Annotated, Any

import msgspec

from linkspan.errors import RegistrationError
from linkspan.schema.annotations import Format, Header
from linkspan.schema.containers import UnionShape, is_nullable, without_null
from linkspan.schema.encode import is_items
from linkspan.schema.problems import quote
from linkspan.schema.shapes import INVALID, NoneShape, Rendering, Shape, Walk, is_marker, marker, usable
from linkspan.types.base import JSON, JSONObject, is_array
from linkspan.types.base import is_mapping as is_object

__all__ = ["Bounded", "Noted", "annotate"]

_NUMBERS = ("ge", "gt", "le", "lt", "multiple_of")
_LENGTHS = ("min_length", "max_length")
_SAID = {
    "ge": ("minimum", "at least"),
    "gt": ("exclusiveMinimum", "more than"),
    "le": ("maximum", "at most"),
    "lt": ("exclusiveMaximum", "less than"),
    "multiple_of": ("multipleOf", "a multiple of"),
}
_COMPARE: Mapping[str, Callable[[Any, Any], Any]] = {
    "ge": operator.ge,
    "gt": operator.gt,
    "le": operator.le,
    "lt": operator.lt,
}
_LENGTH_WORDS = {
    "string": ("minLength", "maxLength", "characters"),
    "array": ("minItems", "maxItems", "items"),
    "object": ("minProperties", "maxProperties", "members"),
}


def annotate(shape: Shape, notes: Sequence[Any], where: str) -> Shape:
    """Return a shape with what its annotation says about it. Raises: RegistrationError for a bound that cannot apply."""
    bounds: dict[str, Any] = {}
    extra: JSONObject = {}
    for note in notes:
        _read(note, bounds, extra)
    if bounds:
        shape = _bounded(shape, bounds, where)
    return Noted(shape, extra) if extra else shape


def _read(note: Any, bounds: dict[str, Any], extra: JSONObject) -> None:
    match note:
        case str():
            extra["description"] = note
        case Header():
            extra["x-mcp-header"] = note.name
        case Format():
            extra["format"] = note.name
        case _:
            _read_members(note, bounds, extra)


def _read_members(note: Any, bounds: dict[str, Any], extra: JSONObject) -> None:
    """Read the bounds and texts of an object from another library."""
    for name in (*_NUMBERS, *_LENGTHS, "pattern"):
        bound = getattr(note, name, None)
        if bound is not None and not callable(bound):
            bounds[name] = bound
    for name in ("title", "description", "examples", "documentation"):
        text = getattr(note, name, None)
        if (isinstance(text, str) and text) or (name == "examples" and is_array(text)):
            extra["description" if name == "documentation" else name] = text
    for name in ("extra_json_schema", "json_schema_extra"):
        more = getattr(note, name, None)
        if is_object(more):
            members: Mapping[str, JSON] = more
            extra.update(members)
    inner = getattr(note, "metadata", None)
    if is_items(inner):
        parts: Iterable[Any] = inner
        for each in parts:
            _read(each, bounds, extra)


def _bounded(shape: Shape, bounds: dict[str, Any], where: str) -> Shape:
    if isinstance(shape, UnionShape) and is_nullable(shape):
        return UnionShape([_bounded(without_null(shape), bounds, where), NoneShape()])
    numeric = shape.kinds <= {"integer", "number"} or getattr(shape, "numeric", False)
    for name in bounds:
        fits = numeric if name in _NUMBERS else len(shape.kinds) == 1 and bool(shape.kinds & set(_LENGTH_WORDS))
        if name == "pattern":
            fits = shape.kinds == frozenset({"string"})
        if not fits:
            raise RegistrationError(
                f"{where}: the bound {name} does not apply to {shape.words}; put it on the part of the type that it bounds"
            )
    return Bounded(shape, bounds)


class Noted:
    """A shape with more to say in its schema."""

    __slots__ = ("extra", "inner", "kinds", "native", "words")

    def __init__(self, inner: Shape, extra: JSONObject) -> None:
        self.inner = inner
        self.extra = extra
        self.kinds = inner.kinds
        self.words = inner.words
        self.native: Any = inner.native

    def schema(self, out: Rendering) -> JSONObject:
        """Return the inner schema with the additions."""
        return {**self.inner.schema(out), **self.extra}

    def convert(self, value: JSON, path: str, walk: Walk) -> Any:
        """Read the value as the inner shape does."""
        return self.inner.convert(value, path, walk)


class _Check(msgspec.Struct, frozen=True):
    """One bound in the schema's words and in ours."""

    keyword: str
    limit: JSON
    words: str


class Bounded:
    """A shape with limits on its values."""

    __slots__ = ("_bounds", "_checks", "_pattern", "inner", "kinds", "native", "words")

    def __init__(self, inner: Shape, bounds: Mapping[str, Any]) -> None:
        self.inner = inner
        self.kinds = inner.kinds
        self.words = inner.words
        self._bounds = {name: _plain(bound) for name, bound in bounds.items()}
        self._checks = [_check(name, bound, inner) for name, bound in self._bounds.items()]
        self._pattern = re.compile(self._bounds["pattern"]) if "pattern" in self._bounds else None
        self.native: Any = None
        native = inner.native
        if is_marker(native) or native is None:
            self.native = marker(self)
        else:
            self.native = usable(lambda: Annotated[native, msgspec.Meta(**self._bounds)], self)

    def schema(self, out: Rendering) -> JSONObject:
        """Return the inner schema with the limits."""
        return {**self.inner.schema(out), **{each.keyword: each.limit for each in self._checks}}

    def convert(self, value: JSON, path: str, walk: Walk) -> Any:
        """Return the inner value if it keeps within the limits."""
        found = self.inner.convert(value, path, walk)
        if found is INVALID:
            return INVALID
        broken = [each for each, name in zip(self._checks, self._bounds, strict=True) if not self._keeps(name, found)]
        for each in broken:
            shown = f", got {len(found)}" if isinstance(found, Sized) and each.keyword != "pattern" else ""
            walk.refuse(path, f"{each.words}{shown or _got(value)}")
        return INVALID if broken else found

    def _keeps(self, name: str, value: Any) -> bool:
        limit = self._bounds[name]
        if name in _COMPARE:
            return bool(_COMPARE[name](value, limit))
        match name:
            case "multiple_of":
                return _divides(value, limit)
            case "min_length":
                return bool(len(value) >= limit)
            case "max_length":
                return bool(len(value) <= limit)
            case _:
                return self._pattern is None or self._pattern.search(value) is not None


def _plain(bound: Any) -> Any:
    if isinstance(bound, str | int | float):
        return bound
    if hasattr(bound, "pattern"):
        return str(bound.pattern)
    number = float(bound)
    return int(number) if number.is_integer() else number


def _divides(value: Any, limit: Any) -> bool:
    """Divide what is written: 0.3 is a multiple of 0.1, though no float is a tenth."""
    over, under = _ratio(value)
    limit_over, limit_under = _ratio(limit)
    return (over * limit_under) % (under * limit_over) == 0


def _ratio(value: Any) -> tuple[int, int]:
    found: tuple[int, int] = (decimal.Decimal(repr(value)) if isinstance(value, float) else value).as_integer_ratio()
    return found


def _check(name: str, limit: JSON, inner: Shape) -> _Check:
    if name in _SAID:
        keyword, words = _SAID[name]
        return _Check(keyword, limit, f"must be {words} {limit}")
    if name == "pattern":
        return _Check("pattern", limit, f"must match the pattern {quote(limit)}")
    least, most, unit = _LENGTH_WORDS[next(iter(inner.kinds))]
    if limit == 1:
        unit = unit.removesuffix("s")
    if name == "min_length":
        return _Check(least, limit, f"must have at least {limit} {unit}")
    return _Check(most, limit, f"must have at most {limit} {unit}")


def _got(value: JSON) -> str:
    from linkspan.schema.problems import describe_value

    return f", got {describe_value(value).removeprefix('the number ')}"
