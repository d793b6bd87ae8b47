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
from linkspan.schema.annotations import HEADER_KEYWORD, Format, Header
from linkspan.schema.containers import UnionShape, is_nullable, without_null
from linkspan.schema.encode import is_items
from linkspan.schema.problems import describe_value, quote
from linkspan.schema.shapes import INVALID, NULL, Rendering, Shape, Walk, is_marker
from linkspan.types.base import JSON, JSONObject, is_array
from linkspan.types.base import is_mapping as is_object

__all__ = ["Bounded", "annotate"]

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
        return _bounded(shape, bounds, extra, where)
    return Bounded(shape, {}, extra) if extra else shape


def _read(note: Any, bounds: dict[str, Any], extra: JSONObject) -> None:
    match note:
        case str():
            extra["description"] = note
        case Header():
            extra[HEADER_KEYWORD] = note.name
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


def _bounded(shape: Shape, bounds: dict[str, Any], extra: JSONObject, where: str) -> Shape:
    if isinstance(shape, UnionShape) and is_nullable(shape):
        found = UnionShape([_bounded(without_null(shape), bounds, {}, where), NULL])
        return Bounded(found, {}, extra) if extra else found
    numeric = shape.kinds <= {"integer", "number"}
    for name in bounds:
        fits = numeric if name in _NUMBERS else len(shape.kinds) == 1 and bool(shape.kinds & set(_LENGTH_WORDS))
        if name == "pattern":
            fits = shape.kinds == frozenset({"string"})
        if not fits:
            raise RegistrationError(
                f"{where}: the bound {name} does not apply to {shape.words}; put it on the part of the type that it bounds"
            )
    matches = re.compile(_plain(bounds["pattern"])).search if "pattern" in bounds else None
    return Bounded(shape, bounds, extra, matches)


class _Check(msgspec.Struct, frozen=True):
    """One bound in the schema's words and in ours."""

    keyword: str
    limit: JSON
    words: str


class Bounded(Shape):
    """A shape with limits on its values, and with `extra` to say in its schema. `matches` finds a pattern in a text."""

    __slots__ = ("_checks", "_matches", "bounds", "extra", "inner")

    def __init__(
        self,
        inner: Shape,
        bounds: Mapping[str, Any],
        extra: JSONObject | None = None,
        matches: Callable[[str], object] | None = None,
    ) -> None:
        super().__init__(inner.kinds, inner.words)
        self.inner = inner
        self.extra = extra or {}
        self.bounds = {name: _plain(bound) for name, bound in bounds.items()}
        self._checks = [_check(name, bound, inner) for name, bound in self.bounds.items()]
        self._matches = matches

    def msgspec_type(self) -> Any:
        """Return the inner type with the limits, if that is more than a marker."""
        native = self.inner.native
        if not self.bounds:
            return native
        return super().msgspec_type() if is_marker(native) else Annotated[native, msgspec.Meta(**self.bounds)]

    def schema(self, out: Rendering) -> JSONObject:
        """Return the inner schema with the limits and the additions."""
        limits: JSONObject = {each.keyword: each.limit for each in self._checks}
        return {**self.inner.schema(out), **limits, **self.extra}

    def convert(self, value: JSON, path: str, walk: Walk) -> Any:
        """Return the inner value if it keeps within the limits."""
        found = self.inner.convert(value, path, walk)
        if found is INVALID:
            return INVALID
        broken = [each for each, name in zip(self._checks, self.bounds, strict=True) if not self._keeps(name, found)]
        for each in broken:
            counted = isinstance(found, Sized) and each.keyword != "pattern"
            got = len(found) if counted else describe_value(value).removeprefix("the number ")
            walk.refuse(path, f"{each.words}, got {got}")
        return INVALID if broken else found

    def _keeps(self, name: str, value: Any) -> bool:
        limit = self.bounds[name]
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
                return self._matches is None or bool(self._matches(value))


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
