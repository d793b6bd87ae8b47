"""Schemas written by hand, compiled to shapes: the walk that reads what hints say reads them too, explains and repairs.

Knows the keywords that nearly every schema uses. The others are left out, and listed for the caller to judge.
Spec: https://json-schema.org/draft/2020-12 (JS-1 to JS-4).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime, time, timedelta
from math import isfinite
from types import NoneType
from typing import Any, Final, NamedTuple, TypeAlias
from uuid import UUID

from linkspan.errors import RegistrationError
from linkspan.schema.constraints import LENGTHS, NUMBERS, Bounded
from linkspan.schema.containers import ArrayShape, Field, ObjectShape, RecursiveShape, UnionShape
from linkspan.schema.document import Matcher, Targets, linear_matcher
from linkspan.schema.problems import TYPE_WORDS, describe_value, join_words
from linkspan.schema.shapes import (
    ANY,
    BOOLEAN,
    FORMATTED,
    INTEGER,
    INVALID,
    NEVER,
    NULL,
    NUMBER,
    TEXT,
    Choice,
    Formatted,
    Shape,
    Walk,
)
from linkspan.schema.summary import types_of
from linkspan.types.base import JSON, is_array, is_number
from linkspan.types.base import is_mapping as is_object

_KINDS: Final = tuple(TYPE_WORDS)
_TYPES: Final[Mapping[type, str]] = {
    str: "string", int: "integer", float: "number", bool: "boolean", NoneType: "null", list: "array", dict: "object",
}  # fmt: skip
_LONGEST_WORDS = 200


class Written(NamedTuple):
    """A compiled schema. `left_out` names the keywords that are not checked."""

    shape: Shape
    left_out: tuple[str, ...]


def compile_written(schema: Mapping[str, JSON], *, draft_7: bool = False) -> Written:
    """Compile a schema whose size, depth and references are within bounds (`check_document`).

    Without the keywords that are left out it takes more than it says, never less. Raises: RegistrationError for a schema
    that is not valid.
    """
    strict = WrittenCompiler(schema, draft_7)
    shape = strict.shape(schema, "#")
    if not strict.left_out:
        return Written(shape, ())
    wide = WrittenCompiler(schema, draft_7, wide=True)
    return Written(wide.shape(schema, "#"), tuple(wide.left_out))


# Shapes that hints have no need of.


class _ByKind(UnionShape):
    """A value of several JSON types, each of one shape: the type of the value chooses, also what is wrong with it."""

    __slots__ = ("_by_type",)

    def __init__(self, members: Sequence[Shape]) -> None:
        super().__init__(members)
        self._by_type = {python: each for python, kind in _TYPES.items() for each in members if kind in each.kinds}

    def convert(self, value: JSON, path: str, walk: Walk) -> Any:
        """Read the value by the shape of its type."""
        shape = self._by_type.get(value.__class__)
        return super().convert(value, path, walk) if shape is None else shape.convert(value, path, walk)


class _All(Shape):
    """A value that several shapes have to take, one after the other."""

    __slots__ = ("_parts",)

    def __init__(self, parts: Sequence[Shape]) -> None:
        narrowest = min(parts, key=lambda each: len(each.kinds))
        kinds = narrowest.kinds
        for each in parts:
            kinds &= each.kinds
        super().__init__(kinds, narrowest.words)
        self._parts = parts

    def convert(self, value: JSON, path: str, walk: Walk) -> Any:
        """Return the value with the repairs of all parts."""
        before = len(walk.problems)
        for each in self._parts:
            found = each.convert(value, path, walk)
            value = value if found is INVALID else found
        return INVALID if len(walk.problems) > before else value


class _OneOf(UnionShape):
    """Exactly one of several shapes."""

    __slots__ = ()

    def convert(self, value: JSON, path: str, walk: Walk) -> Any:
        """Return what the only fitting member makes of the value."""
        fitting: list[Shape] = []
        for member in self.members:
            inner = walk.inside(value)
            member.convert(value, path, inner)
            if not inner.problems:
                fitting.append(member)
        if not fitting:
            return super().convert(value, path, walk)  # explains the refusal, or repairs the value
        if len(fitting) == 1:
            return fitting[0].convert(value, path, walk)
        return walk.refuse(
            path, f"must fit exactly one of the kinds in the schema ({self.words}), got {describe_value(value)}"
        )


# From a document to shapes.

_Rule: TypeAlias = tuple[Callable[[JSON], bool], str]
_NO_RULE: _Rule = (lambda _: True, "")
_SIMPLE: Mapping[str, Shape] = {"integer": INTEGER, "number": NUMBER, "boolean": BOOLEAN, "null": NULL}


def _is_limit(value: JSON) -> bool:
    return is_number(value) and (isinstance(value, int) or isfinite(value))


def _are_types(value: JSON) -> bool:
    listed: list[JSON] = value if is_array(value) else [value]
    known = all(isinstance(each, str) and each in _KINDS for each in listed)
    return known and bool(listed) and len(set(listed)) == len(listed)


def _is_text(value: JSON) -> bool:
    return isinstance(value, str)


_COUNTS = [each for least, most, _ in LENGTHS.values() for each in (least, most)]
_RULES: Mapping[str, _Rule] = {
    "type": (_are_types, f"one or several of {', '.join(_KINDS)}"),
    "enum": (is_array, "a list of values"),
    "required": (
        lambda value: is_array(value) and all(map(_is_text, value)) and len(set(value)) == len(value),
        "a list of names, each once",
    ),
    **dict.fromkeys([each for each, *_ in NUMBERS.values()], (_is_limit, "a number")),
    **dict.fromkeys(
        _COUNTS, (lambda value: _is_limit(value) and 0 <= value == int(value), "a whole number, 0 or more")
    ),
    "multipleOf": (lambda value: _is_limit(value) and value > 0, "a number above 0"),
    "uniqueItems": (lambda value: isinstance(value, bool), "true or false"),
    "pattern": (_is_text, "a regular expression"),
    "format": (_is_text, "the name of a format"),
    "$ref": (_is_text, "a reference such as #/$defs/name"),
    **dict.fromkeys(
        ("anyOf", "oneOf", "allOf", "prefixItems"), (lambda value: is_array(value) and bool(value), "a list of schemas")
    ),
    **dict.fromkeys(("properties", "$defs", "definitions"), (is_object, "an object with a schema for each name")),
}
"""What the value of a keyword has to be."""

_LEFT_OUT = (
    "patternProperties", "additionalItems", "contains", "not", "if", "then", "else", "dependentRequired",
    "dependentSchemas", "dependencies", "propertyNames", "unevaluatedItems", "unevaluatedProperties", "$dynamicRef",
    "$recursiveRef",
)  # fmt: skip
_OF_NUMBERS = {keyword: name for name, (keyword, *_) in NUMBERS.items()}
_BOUNDS: Mapping[str, Mapping[str, str]] = {
    "number": _OF_NUMBERS,
    "integer": _OF_NUMBERS,
    "boolean": {},
    "null": {},
    **{kind: {least: "min_length", most: "max_length"} for kind, (least, most, _) in LENGTHS.items()},
}
_OF_KIND: Mapping[str, tuple[str, ...]] = {
    **{kind: tuple(bounds) for kind, bounds in _BOUNDS.items()},
    "string": (*_BOUNDS["string"], "format", "pattern"),
    "array": (*_BOUNDS["array"], "items", "prefixItems", "uniqueItems"),
    "object": (*_BOUNDS["object"], "properties", "required", "additionalProperties"),
}
"""The keywords that speak of values of one JSON type; values of other types pass them."""


class WrittenCompiler:
    """One document on its way to a shape. If `wide`, what stands beside keywords that are left out is not held too tight."""

    def __init__(self, root: Mapping[str, JSON], draft_7: bool, *, wide: bool = False) -> None:
        self._root = root
        self._draft_7 = draft_7
        self._wide = wide
        self._done: dict[int, Shape] = {}
        self._open: dict[int, RecursiveShape | None] = {}
        self._targets = Targets(root)
        self.left_out: dict[str, None] = {}

    def shape(self, schema: JSON, where: str) -> Shape:
        """Return the shape of a schema; one that is met again within itself is recursive."""
        if isinstance(schema, bool):
            return ANY if schema else NEVER
        if not is_object(schema):
            raise RegistrationError(
                f"the schema is not valid: {where[:80]} must be a schema, an object or true or false"
            )
        key = id(schema)
        if key in self._done:
            return self._done[key]
        if key in self._open:
            recursive = self._open[key]
            if recursive is None:
                kinds = types_of(schema, self._root)
                words = join_words([TYPE_WORDS[each] for each in _KINDS if each in kinds])
                recursive = RecursiveShape("", kinds, words if len(kinds) < 4 else ANY.words)
                self._open[key] = recursive
            return recursive
        self._open[key] = None
        found = self._node(schema, where)
        self._done[key] = found
        recursive = self._open.pop(key)
        if recursive is not None:
            recursive.target = found
        return found

    def _node(self, schema: Mapping[str, JSON], where: str) -> Shape:
        for keyword, value in schema.items():
            holds, words = _RULES.get(keyword, _NO_RULE)
            if not holds(value):
                place = f"{keyword} at {where[:80]}"
                raise RegistrationError(
                    f"the schema is not valid: {place} must be {words}, got {describe_value(value)}"
                )
        parts: list[Shape] = []
        if "$id" in schema and schema is not self._root:
            self.left_out["$id"] = None
            return ANY  # its references have another root
        if "$ref" in schema:
            target = self._targets.find(schema["$ref"])
            if target is None:
                self.left_out["$ref"] = None
            parts.append(ANY if target is None else self.shape(target, where))
            if self._draft_7:
                return parts[0]
        parts.append(self._by_type(schema, where))
        if "enum" in schema:
            parts.append(_choice(schema["enum"]))
        if "const" in schema:
            parts.append(_choice([schema["const"]]))
        parts += self._listed(schema, "allOf", where)
        for keyword in ("anyOf", "oneOf"):
            members = self._listed(schema, keyword, where)
            if members:
                union = UnionShape(members) if keyword == "anyOf" or self._wide else _OneOf(members)
                union.words = union.words if len(union.words) <= _LONGEST_WORDS else "one of the kinds in the schema"
                parts.append(union)
        for keyword in _LEFT_OUT:
            if keyword in schema:
                self.left_out[keyword] = None
        parts = [each for each in parts if each is not ANY]
        return _All(parts) if len(parts) > 1 else parts[0] if parts else ANY

    def _listed(self, schema: Mapping[str, JSON], keyword: str, where: str) -> list[Shape]:
        listed: Sequence[JSON] = schema.get(keyword, ())
        return [self.shape(each, f"{where}/{keyword}/{index}") for index, each in enumerate(listed)]

    def _by_type(self, schema: Mapping[str, JSON], where: str) -> Shape:
        declared: JSON = schema.get("type", list(_KINDS))
        kinds: list[str] = declared if is_array(declared) else [declared]
        spoken_of = [kind for kind in kinds if any(keyword in schema for keyword in _OF_KIND[kind])]
        if "type" not in schema and not spoken_of:
            return ANY
        if "number" in kinds:
            kinds = [kind for kind in kinds if kind != "integer"]
        if kinds in (["string"], ["integer"], ["number"]) and ("enum" in schema or "const" in schema) and not spoken_of:
            plain, walk = self._of_kind(kinds[0], {}, ""), Walk()
            for each in schema.get("enum", [schema.get("const")]):
                plain.convert(each, "", walk)
            if not walk.problems:
                return ANY  # the choice says it already
        made = [self._of_kind(kind, schema, where) for kind in kinds]
        if len(made) == 1:
            return made[0]
        found = _ByKind(made)
        found.words = found.words if "type" in schema else ANY.words
        return found

    def _of_kind(self, kind: str, schema: Mapping[str, JSON], where: str) -> Shape:
        match kind:
            case "string":
                found = _FORMATS.get(schema.get("format", ""), TEXT)
            case "array":
                items: JSON = schema.get("items", True)
                if is_array(items) and self._draft_7:
                    self.left_out["items"] = None
                    items = True
                rest, first = self.shape(items, f"{where}/items"), self._listed(schema, "prefixItems", where)
                found = ArrayShape(rest, first=first, unique=bool(schema.get("uniqueItems")))
            case "object":
                properties: Mapping[str, JSON] = schema.get("properties", {})
                shapes = {key: self.shape(each, f"{where}/properties/{key}") for key, each in properties.items()}
                others = self.shape(schema.get("additionalProperties", True), f"{where}/additionalProperties")
                if "patternProperties" in schema:
                    others = ANY  # those that match are not additional
                fields = [Field(key, key, each) for key, each in shapes.items()]
                found = ObjectShape("", fields, others=others, needed=schema.get("required", ()))
            case _:
                return _bounded(_SIMPLE[kind], schema, kind)
        found = _bounded(found, schema, kind)
        if kind != "string" or "pattern" not in schema:
            return found
        matches = linear_matcher(schema["pattern"])
        if matches is None:
            self.left_out["pattern"] = None
            return found
        return Bounded(found, {"pattern": schema["pattern"]}, matches=matches)


def _choice(values: Sequence[JSON]) -> Shape:
    return Choice([(each, each) for each in values]) if values else NEVER


def _bounded(shape: Shape, schema: Mapping[str, JSON], kind: str) -> Shape:
    limits = {ours: schema[keyword] for keyword, ours in _BOUNDS[kind].items() if keyword in schema}
    whole = {
        ours: int(each) if isinstance(each, float) and each.is_integer() else each for ours, each in limits.items()
    }
    return Bounded(shape, whole) if whole else shape


# Formats: those that hints have, as lenient as hints are (a time may lack its offset), and months in durations.

_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_TIME = re.compile(r"([01][0-9]|2[0-3]):[0-5][0-9](:([0-5][0-9]|60)([.,][0-9]+)?)?(Z|[+-][0-9]{2}:?[0-9]{2})?", re.I)
_DURATION = re.compile(
    r"[+-]?P(?=[0-9T])([0-9]+W|([0-9]+Y)?([0-9]+M)?([0-9]+D)?(T(?=[0-9])([0-9]+H)?([0-9]+M)?([0-9]+([.][0-9]+)?S)?)?)",
    re.I,
)
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.I)


def _is_date(text: str) -> bool:
    try:
        return _DATE.fullmatch(text) is not None and bool(date.fromisoformat(text))
    except ValueError:
        return False


def _is_time(text: str) -> bool:
    return _TIME.fullmatch(text) is not None


def _is_date_time(text: str) -> bool:
    return _is_date(text[:10]) and text[10:11] in ("T", "t", " ") and _is_time(text[11:])


def _written(known: type, fits: Matcher) -> Shape:
    """Return the shape of a text in the format of a type, which is left as it is."""

    def read(text: str) -> str:
        if fits(text):
            return text
        raise ValueError

    return Formatted(FORMATTED[known].words, (), read=read)


_FORMATS: Mapping[str, Shape] = {
    "date-time": _written(datetime, _is_date_time),
    "date": _written(date, _is_date),
    "time": _written(time, _is_time),
    "duration": _written(timedelta, lambda text: _DURATION.fullmatch(text) is not None),
    "uuid": _written(UUID, lambda text: _UUID.fullmatch(text) is not None),
}
