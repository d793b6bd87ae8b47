"""Shapes of arrays, of objects used as dictionaries, and of unions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Union

import msgspec

from linkspan.schema.kinds import is_array, is_collection, is_items, is_object
from linkspan.schema.problems import at, describe_value, join_words
from linkspan.schema.scalars import Choice, Plain
from linkspan.schema.shape import INVALID, Rendering, Shape, Walk, is_marker, marker, usable
from linkspan.types.base import JSON, JSONObject

__all__ = ["ArrayShape", "DictShape", "TupleShape", "UnionShape", "is_nullable", "most_specific_first", "without_null"]


class ArrayShape:
    """An array of one kind of item: list, set, frozenset, variadic tuple, deque."""

    __slots__ = ("item", "kinds", "make", "native", "words")

    def __init__(self, item: Shape, make: Callable[[Iterable[Any]], Any], generic: Callable[[Any], Any] | None) -> None:
        self.item = item
        self.make = make
        self.kinds = frozenset({"array"})
        self.words = "an array"
        self.native: Any = None
        self.native = marker(self) if generic is None else usable(lambda: generic(item.native), self)

    def schema(self, out: Rendering) -> JSONObject:
        """Return an array schema; it always says what the items are."""
        found: JSONObject = {"type": "array", "items": self.item.schema(out)}
        if not out.portable and self.make in (set, frozenset):
            found["uniqueItems"] = True
        return found

    def convert(self, value: JSON, path: str, walk: Walk) -> Any:
        """Return the collection."""
        value = walk.repaired(value, list, path)
        if not is_collection(value):
            return walk.refuse_value(path, self.words, value)
        before = len(walk.problems)
        items = [self.item.convert(each, at(path, index), walk) for index, each in enumerate(value)]
        if len(walk.problems) > before:
            return INVALID
        try:
            return self.make(items)
        except TypeError:
            return walk.refuse(path, "must have plain values as items")


class TupleShape:
    """An array of fixed length, each item of its own kind."""

    __slots__ = ("items", "kinds", "native", "words")

    def __init__(self, items: Sequence[Shape]) -> None:
        self.items = tuple(items)
        self.kinds = frozenset({"array"})
        self.words = f"an array of {len(self.items)} items"
        self.native: Any = None
        self.native = usable(lambda: _generic(tuple, tuple(each.native for each in self.items)), self)

    def schema(self, out: Rendering) -> JSONObject:
        """Return an array schema of that length; where `prefixItems` is not portable, any item may stand anywhere."""
        length = len(self.items)
        schemas = [each.schema(out) for each in self.items]
        if not out.portable:
            rest: JSONObject = {"minItems": length, "maxItems": length}
            return (
                {"type": "array", "prefixItems": schemas, "items": False, **rest}
                if schemas
                else {"type": "array", **rest}
            )
        kinds: list[JSONObject] = []
        kinds.extend(each for each in schemas if each not in kinds)
        items = kinds[0] if len(kinds) == 1 else {"anyOf": kinds} if kinds else {}
        return {"type": "array", "items": items, "minItems": length, "maxItems": length}

    def convert(self, value: JSON, path: str, walk: Walk) -> Any:
        """Return the tuple."""
        value = walk.repaired(value, list, path)
        if not is_items(value):
            return walk.refuse_value(path, self.words, value)
        values: Sequence[JSON] = value
        if len(values) != len(self.items):
            return walk.refuse(path, f"must be {self.words}, got {len(values)}")
        before = len(walk.problems)
        pairs = enumerate(zip(self.items, values, strict=True))
        items = tuple(shape.convert(each, at(path, index), walk) for index, (shape, each) in pairs)
        return INVALID if len(walk.problems) > before else items


class DictShape:
    """An object with any keys and one kind of value."""

    __slots__ = ("item", "key", "kinds", "make", "native", "words")

    def __init__(self, key: Shape, item: Shape, make: Callable[[dict[Any, Any]], Any] | None) -> None:
        self.key = key
        self.item = item
        self.make = make
        self.kinds = frozenset({"object"})
        self.words = "an object"
        self.native: Any = None
        plain = make is None and isinstance(key, Plain) and key.native is str
        self.native = usable(lambda: _generic(dict, (str, item.native)), self) if plain else marker(self)

    def schema(self, out: Rendering) -> JSONObject:
        """Return an object schema with `additionalProperties`."""
        item = self.item.schema(out)
        found: JSONObject = {"type": "object"}
        if item:
            found["additionalProperties"] = item
        names = {} if out.portable else _key_schema(self.key, out)
        if names and names != {"type": "string"}:
            found["propertyNames"] = names
        return found

    def convert(self, value: JSON, path: str, walk: Walk) -> Any:
        """Return the dictionary."""
        value = walk.repaired(value, dict, path)
        if not is_object(value):
            return walk.refuse_value(path, self.words, value)
        before = len(walk.problems)
        found: dict[Any, Any] = {}
        members: Mapping[Any, JSON] = value
        for name, each in members.items():
            key = self._key(name, path, walk)
            item = self.item.convert(each, at(path, str(name)), walk)
            if key is not INVALID and item is not INVALID:
                found[key] = item
        if len(walk.problems) > before:
            return INVALID
        return found if self.make is None else self.make(found)

    def _key(self, name: Any, path: str, walk: Walk) -> Any:
        """Read a key: JSON has texts only, so a number is read from its text."""
        inner = Walk()
        key = self.key.convert(name, at(path, str(name)), inner)
        if inner.problems and isinstance(name, str) and self.key.kinds & {"integer", "number"}:
            number = _number(name)
            inner = Walk()
            key = self.key.convert(name if number is None else number, "", inner)
        if inner.problems:
            return walk.refuse(path, f"must have keys that are {self.key.words}, got {describe_value(name)}")
        return key


def _generic(generic: Any, arguments: Any) -> Any:
    return generic[arguments]


def _number(text: str) -> int | float | None:
    try:
        found: JSON = msgspec.json.decode(text)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return None
    return found if isinstance(found, int | float) else None


def _key_schema(key: Shape, out: Rendering) -> JSONObject:
    """Return what `propertyNames` says: names are texts, so numbers are told by their spelling."""
    if key.kinds == frozenset({"integer"}):
        return {"pattern": "^-?(0|[1-9][0-9]*)$"}
    return key.schema(out) if key.kinds == frozenset({"string"}) else {}


class UnionShape:
    """One of several shapes. The first that takes a value exactly as it is wins; then one that takes it with a repair."""

    __slots__ = ("kinds", "members", "native", "words")

    def __init__(self, members: Sequence[Shape]) -> None:
        self.members = tuple(members)
        self.kinds = frozenset[str]().union(*(each.kinds for each in self.members))
        self.words = join_words(list(dict.fromkeys(each.words for each in self.members)))
        self.native: Any = None
        natives = [each.native for each in self.members]
        single = sum(is_marker(each) for each in natives) == 1 and len(natives) == 2 and None in natives
        native = usable(lambda: Union[tuple(natives)], self)  # noqa: UP007
        self.native = native if single or not any(map(is_marker, natives)) else marker(self)

    def schema(self, out: Rendering) -> JSONObject:
        """Return the members' schemas as `anyOf`; portable input leaves out null, and says number for int or float."""
        schemas: list[JSONObject] = []
        for member in self.members:
            found = member.schema(out)
            parts: list[JSONObject] = found["anyOf"] if set(found) == {"anyOf"} else [found]
            schemas.extend(each for each in parts if each not in schemas)
        if {} in schemas:
            return {}
        if {"type": "number"} in schemas:
            schemas = [each for each in schemas if each != {"type": "integer"}]
        if out.portable and not out.output and len(schemas) > 1:
            schemas = [each for each in schemas if each != {"type": "null"}]
        return schemas[0] if len(schemas) == 1 else {"anyOf": schemas}

    def convert(self, value: JSON, path: str, walk: Walk) -> Any:
        """Return what the first fitting member makes of the value, or write down why the nearest one refuses."""
        refusals: list[Walk] = []
        repair = walk.repair and not (isinstance(value, str) and "string" in self.kinds)
        for mode in _MODES[: 3 if repair else 2]:
            exact, mended = mode
            if walk.exact and not exact:
                break
            refusals = []
            for member in self.members:
                inner = walk.inside(value, repair=mended, exact=exact)
                found = member.convert(value, path, inner)
                if not inner.problems:
                    walk.absorb(inner)
                    return found
                refusals.append(inner)
        return self._refused(value, path, walk, refusals)

    def _refused(self, value: JSON, path: str, walk: Walk, refusals: Sequence[Walk]) -> Any:
        """Tell the problems of the one member that could have taken it, if it is clear which, else what there is."""
        deeper = [each for each in refusals if any(problem.path != path for problem in each.problems) or each.repairs]
        if not deeper:
            close = [each for each, shape in zip(refusals, self.members, strict=True) if _could_be(value, shape)]
            if len(close) == 1:
                walk.problems.extend(close[0].problems)
                return INVALID
            return walk.refuse_value(path, self.words, value)
        best = min(deeper, key=lambda each: len(each.problems))
        walk.problems.extend(best.problems)
        walk.repairs.extend(best.repairs)
        return INVALID


_MODES = ((True, False), (False, False), (False, True))


def _could_be(value: JSON, shape: Shape) -> bool:
    """Tell whether a refused value at least has the JSON type of a shape, or is the only thing beside null."""
    if isinstance(value, str):
        return "string" in shape.kinds
    if is_object(value):
        return "object" in shape.kinds
    if is_array(value):
        return "array" in shape.kinds
    return False


def is_nullable(shape: Shape) -> bool:
    """Tell whether a shape is a union, or a choice, with null."""
    while (inner := getattr(shape, "inner", None)) is not None:
        shape = inner
    return isinstance(shape, UnionShape | Choice) and "null" in shape.kinds


def without_null(shape: Shape) -> Shape:
    """Return a union without its null, or the shape itself."""
    if not isinstance(shape, UnionShape):
        return shape
    rest = [each for each in shape.members if each.kinds != frozenset({"null"})]
    return rest[0] if len(rest) == 1 else UnionShape(rest) if rest else shape


def most_specific_first(members: Sequence[Shape]) -> list[Shape]:
    """Return the members of a union with dates, UUIDs and choices first: a plain `str` would swallow them."""
    return sorted(members, key=lambda each: not isinstance(each, Choice) and getattr(each, "format", None) is None)
