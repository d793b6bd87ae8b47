"""What stands beside a type in `Annotated[...]`: descriptions, bounds, formats, header names. By shape, not by library.

`msgspec.Meta`, pydantic's `Field`, the bounds of annotated_types, plain texts and objects with a `documentation` all work.
"""

from __future__ import annotations

import decimal
import operator
import re
from collections.abc import Callable, Iterable, Mapping, Sequence, Sized
from typing import Annotated, Any, TypeAlias

import msgspec

from linkspan.errors import RegistrationError
from linkspan.schema.annotations import HEADER_KEYWORD, Format, Header
from linkspan.schema.containers import UnionShape, is_nullable, without_null
from linkspan.schema.encode import is_items
from linkspan.schema.problems import describe_value, quote
from linkspan.schema.shapes import INVALID, NULL, Formatted, Rendering, Shape, Walk, is_marker
from linkspan.types.base import JSON, JSONObject, is_array
from linkspan.types.base import is_mapping as is_object

Compare: TypeAlias = Callable[[Any, Any], Any]
"""Returns whether a value keeps within a limit."""


def _divides(value: Any, limit: Any) -> bool:
    """Divide what is written: 0.3 is a multiple of 0.1, though no float is a tenth."""
    over, under = _ratio(value)
    limit_over, limit_under = _ratio(limit)
    return (over * limit_under) % (under * limit_over) == 0


def _ratio(value: Any) -> tuple[int, int]:
    found: tuple[int, int] = (decimal.Decimal(repr(value)) if isinstance(value, float) else value).as_integer_ratio()
    return found


NUMBERS: Mapping[str, tuple[str, str, Compare]] = {
    "ge": ("minimum", "at least", operator.ge),
    "gt": ("exclusiveMinimum", "more than", operator.gt),
    "le": ("maximum", "at most", operator.le),
    "lt": ("exclusiveMaximum", "less than", operator.lt),
    "multiple_of": ("multipleOf", "a multiple of", _divides),
}
"""The bounds of numbers: the keyword of each in a schema, what to call it, and the comparison."""
_DIGITS: Mapping[str, tuple[str, Callable[[str, str], int]]] = {
    "max_digits": ("digits", lambda whole, part: len(whole) + len(part)),
    "decimal_places": ("decimal places", lambda whole, part: len(part)),
}
"""The bounds that only decimal numbers have: what is counted of the digits before and after the point."""
LENGTHS = {
    "string": ("minLength", "maxLength", "characters"),
    "array": ("minItems", "maxItems", "items"),
    "object": ("minProperties", "maxProperties", "members"),
}
"""The keywords for `min_length` and `max_length` of each JSON type, and what is counted."""


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
    for name in (*NUMBERS, *_DIGITS, "min_length", "max_length", "pattern"):
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
    if shape.compared is not None:
        return Compared(shape, shape.compared, bounds, extra, where)
    numeric = shape.kinds <= {"integer", "number"}
    for name in bounds:
        fits = numeric if name in NUMBERS else len(shape.kinds) == 1 and bool(shape.kinds & LENGTHS.keys())
        if name == "pattern":
            fits = shape.kinds == frozenset({"string"})
        if isinstance(shape, Formatted):
            fits = fits and shape.is_sized and name != "pattern"
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
    fits: Compare


class Bounded(Shape):
    """A shape with limits on its values, and with `extra` to say in its schema. `matches` finds a pattern in a text."""

    __slots__ = ("_checks", "bounds", "extra", "inner")

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
        self._checks = [_check(name, bound, inner, matches) for name, bound in self.bounds.items()]

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
        broken = [each for each in self._checks if not each.fits(found, each.limit)]
        for each in broken:
            counted = isinstance(found, Sized) and each.keyword != "pattern"
            got = len(found) if counted else describe_value(value).removeprefix("the number ")
            walk.refuse(path, f"{each.words}, got {got}")
        return INVALID if broken else found


class Compared(Bounded):
    """A shape of values that JSON writes as texts, such as decimal numbers and dates, with limits that it states in words."""

    __slots__ = ()

    def __init__(self, inner: Shape, kind: type, bounds: Mapping[str, Any], extra: JSONObject, where: str) -> None:
        super().__init__(inner, {}, extra)
        self.bounds = dict(bounds)
        self._checks = [_comparison(name, bound, kind, f"{where}: the bound {name}") for name, bound in bounds.items()]

    def msgspec_type(self) -> Any:
        """Refuse: msgspec compares numbers and lengths only."""
        raise TypeError

    def schema(self, out: Rendering) -> JSONObject:
        """Return the inner schema with the limits in words, unless it is described otherwise."""
        words = "; ".join(each.words for each in self._checks)
        return {**self.inner.schema(out), "description": words, **self.extra}


def _comparison(name: str, bound: Any, kind: type, what: str) -> _Check:
    """Return the check of one limit of values of `kind`. Raises: RegistrationError for a limit that they cannot have."""
    is_decimal = kind is decimal.Decimal
    if is_decimal and name in _DIGITS:
        unit, count = _DIGITS[name]
        return _Check("", bound, f"must have at most {bound} {unit}", lambda value, most: count(*_parts(value)) <= most)
    limit: Any = decimal.Decimal(str(bound)) if is_decimal and isinstance(bound, int | float) else bound
    if name not in NUMBERS or (name == "multiple_of" and not is_decimal):
        raise RegistrationError(f"{what} does not apply to a {kind.__name__}: leave it out")
    if type(limit) is not kind:
        raise RegistrationError(f"{what} of a {kind.__name__} must be a {kind.__name__}, not {bound!r}")
    _, words, compare = NUMBERS[name]

    def fits(value: Any, limit: Any) -> bool:
        try:
            return bool(compare(value, limit))
        except TypeError:  # only one of them has a time zone
            return False

    return _Check("", limit, f"must be {words} {limit}", fits)


def _parts(number: decimal.Decimal) -> tuple[str, str]:
    """Return the digits on either side of the point, without zeros at the ends."""
    whole, _, part = format(abs(number), "f").partition(".")
    return whole.lstrip("0"), part.rstrip("0")


def _plain(bound: Any) -> Any:
    if isinstance(bound, str | int | float):
        return bound
    if hasattr(bound, "pattern"):
        return str(bound.pattern)
    number = float(bound)
    return int(number) if number.is_integer() else number


def _check(name: str, limit: JSON, inner: Shape, matches: Callable[[str], object] | None) -> _Check:
    if name in NUMBERS:
        keyword, words, compare = NUMBERS[name]
        return _Check(keyword, limit, f"must be {words} {limit}", compare)
    if name == "pattern":
        words = f"must match the pattern {quote(limit)}"
        return _Check(name, limit, words, lambda value, _: matches is None or matches(value))
    least, most, unit = LENGTHS[next(iter(inner.kinds))]
    keyword, words, compare = (least, "least", operator.ge) if name == "min_length" else (most, "most", operator.le)
    words = f"must have at {words} {limit} {unit.removesuffix('s') if limit == 1 else unit}"
    return _Check(keyword, limit, words, lambda value, limit: compare(len(value), limit))
