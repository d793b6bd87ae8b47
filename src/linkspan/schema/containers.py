"""Shapes of arrays, dictionaries, unions, objects with named fields, and types that refer to themselves."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import reduce
from typing import Any, ClassVar, TypeAlias, Union

import msgspec

from linkspan.schema.encode import is_items
from linkspan.schema.problems import at, describe_value, join_words
from linkspan.schema.shapes import INVALID, Choice, Plain, Rendering, Shape, Walk, is_marker, marker, usable
from linkspan.types.base import JSON, UNSET, JSONObject, is_array
from linkspan.types.base import is_mapping as is_object

__all__ = [
    "ArrayShape",
    "Container",
    "DictShape",
    "Field",
    "ObjectShape",
    "RecursiveShape",
    "TupleShape",
    "UnionShape",
    "default_schema",
    "fresh",
    "is_nullable",
    "most_specific_first",
    "refuse_by_author",
    "without_null",
]


class Container:
    """How every array and object is read: its text repaired, its kind checked, then its parts, then what they make."""

    __slots__ = ()
    kinds: frozenset[str]
    words: str
    decoded: ClassVar[type] = list
    """What a text is decoded to."""
    accepted: ClassVar[tuple[type, ...]] = (list, tuple)
    """The Python types of the value; callers in this process may give others than JSON has."""

    def convert(self, value: JSON, path: str, walk: Walk) -> Any:
        """Return the value with its parts read, or INVALID after the problems of all parts."""
        if isinstance(value, str):
            value = walk.repaired(value, self.decoded, path)
        if not isinstance(value, self.accepted):
            return self.otherwise(value, path, walk)
        before = len(walk.problems)
        parts = self.parts(value, path, walk)
        return INVALID if len(walk.problems) > before else self.made(parts, path, walk)

    def otherwise(self, value: JSON, path: str, walk: Walk) -> Any:
        """Refuse a value of another kind."""
        return walk.refuse_value(path, self.words, value)

    def parts(self, value: Any, path: str, walk: Walk) -> Any:
        """Return the items or members as they are read."""
        raise NotImplementedError

    def made(self, parts: Any, path: str, walk: Walk) -> Any:
        """Return the Python value of parts that all fit."""
        return parts


class ArrayShape(Container):
    """An array of one kind of item: list, set, frozenset, variadic tuple, deque."""

    __slots__ = ("item", "kinds", "make", "native", "words")
    accepted = (list, tuple, set, frozenset)

    def __init__(self, item: Shape, make: Callable[[Iterable[Any]], Any], generic: Callable[[Any], Any] | None) -> None:
        self.item = item
        self.make = make
        self.kinds = frozenset({"array"})
        self.words = "an array"
        self.native: Any = None
        self.native = marker(self) if generic is None else usable(lambda: generic(item.native), self)

    def schema(self, out: Rendering) -> JSONObject:
        """Return an array schema; `items` is always there."""
        found: JSONObject = {"type": "array", "items": self.item.schema(out)}
        if not out.portable and self.make in (set, frozenset):
            found["uniqueItems"] = True
        return found

    def parts(self, value: Any, path: str, walk: Walk) -> Any:
        """Return the items."""
        return [self.item.convert(each, at(path, index), walk) for index, each in enumerate(value)]

    def made(self, parts: Any, path: str, walk: Walk) -> Any:
        """Return the collection."""
        try:
            return self.make(parts)
        except TypeError:
            return walk.refuse(path, "must have plain values as items")


class TupleShape(Container):
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
        if out.portable:
            return _of_length(self.items, out)
        found: JSONObject = {"type": "array"}
        if self.items:
            found |= {"prefixItems": [each.schema(out) for each in self.items], "items": False}
        return {**found, "minItems": len(self.items), "maxItems": len(self.items)}

    def parts(self, value: Any, path: str, walk: Walk) -> Any:
        """Return the items as a tuple."""
        if len(value) != len(self.items):
            return walk.refuse(path, f"must be {self.words}, got {len(value)}")
        pairs = enumerate(zip(self.items, value, strict=True))
        return tuple(shape.convert(each, at(path, index), walk) for index, (shape, each) in pairs)


def _of_length(items: Sequence[Shape], out: Rendering) -> JSONObject:
    """Return an array schema of as many items, of any of their kinds."""
    kinds: list[JSONObject] = []
    for each in items:
        found = each.schema(out)
        if found not in kinds:
            kinds.append(found)
    one: JSONObject = kinds[0] if len(kinds) == 1 else {"anyOf": kinds} if kinds else {}
    return {"type": "array", "items": one, "minItems": len(items), "maxItems": len(items)}


class DictShape(Container):
    """An object with any keys and one kind of value."""

    __slots__ = ("item", "key", "kinds", "make", "native", "words")
    decoded = dict
    accepted = (dict, Mapping)

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
        """Return an object schema with `additionalProperties`.

        `propertyNames` describes texts, so a key that is a number is described by its spelling.
        """
        item = self.item.schema(out)
        found: JSONObject = {"type": "object"}
        if item:
            found["additionalProperties"] = item
        if out.portable:
            return found
        if self.key.kinds == frozenset({"integer"}):
            found["propertyNames"] = {"pattern": "^-?(0|[1-9][0-9]*)$"}
        elif self.key.kinds == frozenset({"string"}) and (names := self.key.schema(out)) not in (
            {},
            {"type": "string"},
        ):
            found["propertyNames"] = names
        return found

    def parts(self, value: Any, path: str, walk: Walk) -> Any:
        """Return the members with their keys read."""
        found: dict[Any, Any] = {}
        for name, each in value.items():
            key = self._key(name, path, walk)
            item = self.item.convert(each, at(path, str(name)), walk)
            if key is not INVALID and item is not INVALID:
                found[key] = item
        return found

    def made(self, parts: Any, path: str, walk: Walk) -> Any:
        """Return the dictionary."""
        return parts if self.make is None else self.make(parts)

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
    """Return whether a refused value at least has the JSON type of a shape, or is the only thing beside null."""
    if isinstance(value, str):
        return "string" in shape.kinds
    if is_object(value):
        return "object" in shape.kinds
    if is_array(value):
        return "array" in shape.kinds
    return False


def is_nullable(shape: Shape) -> bool:
    """Return whether a shape is a union, or a choice, with null."""
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


_MUTABLE = (list, dict, set, bytearray, msgspec.Struct)

Make: TypeAlias = Callable[[dict[str, Any]], Any]


class Field(msgspec.Struct, frozen=True):
    """A member of an object: its name in Python, its key in JSON, its shape, and what happens when it is absent."""

    name: str
    key: str
    shape: Shape
    required: bool = True
    default: Any = UNSET
    description: str | None = None
    written: bool = True
    """Whether results carry it."""
    taken: bool = True
    """Whether arguments carry it; a tag is taken and dropped, an `init=False` field is only written."""


class ObjectShape(Container, msgspec.Struct, eq=False):
    """An object with named fields and no others; `make` builds the Python value from keywords."""

    name: str
    fields: Sequence[Field]
    make: Make
    description: str | None = None
    recursive: bool = False
    dropped: frozenset[str] = frozenset()
    kinds: frozenset[str] = frozenset({"object"})
    words: str = "an object"
    native: Any = None
    root: bool = False
    as_array: bool = False
    by_key: Mapping[str, Field] = msgspec.field(default_factory=dict[str, Field])
    decoded: ClassVar[type] = dict
    accepted: ClassVar[tuple[type, ...]] = (dict, Mapping)

    def __post_init__(self) -> None:
        self.native = marker(self)
        self.close()

    def close(self) -> None:
        """Index the fields, once they are known."""
        self.by_key = {each.key: each for each in self.fields if each.taken}
        if self.as_array:
            self.kinds = frozenset({"object", "array"})

    def schema(self, out: Rendering) -> JSONObject:
        """Return a closed object schema, or a `$ref` where the type is recursive or references are wanted."""
        if not self.recursive and (out.portable or self.root):
            return self._body(out)
        if id(self) not in out.names:
            name = _free(self.name, out.definitions)
            out.names[id(self)] = name
            out.definitions[name] = {}
            out.definitions[name] = self._body(out)
        return {"$ref": f"#/$defs/{out.names[id(self)]}"}

    def _body(self, out: Rendering) -> JSONObject:
        if out.output and self.as_array:
            return _of_length([each.shape for each in self.fields], out)  # named tuples are written as arrays
        shown = [each for each in self.fields if (each.written if out.output else each.taken)]
        found: JSONObject = {"type": "object"}
        if self.description is not None:
            found["description"] = self.description
        found["properties"] = {each.key: _property(each, out) for each in shown}
        may_be_left_out = out.portable and not out.output  # null cannot be said there
        required = [each.key for each in shown if each.required and not (may_be_left_out and is_nullable(each.shape))]
        if required:
            found["required"] = required
        if not out.output:
            found["additionalProperties"] = False
        return found

    def otherwise(self, value: JSON, path: str, walk: Walk) -> Any:
        """Name the items of an array where one will do; refuse every other kind."""
        if self.as_array and is_items(value):
            if len(value) > len(self.fields):
                return walk.refuse(path, f"must be an array of {len(self.fields)} items, got {len(value)}")
            return self.convert(dict(zip(self.by_key, value, strict=False)), path, walk)
        if self.root:
            return walk.refuse("", f"the arguments must be an object, got {describe_value(value)}")
        return walk.refuse_value(path, self.words, value)

    def parts(self, value: Any, path: str, walk: Walk) -> Any:
        """Return the fields under their names in Python."""
        found: dict[str, Any] = {}
        for key, each in self.by_key.items():
            if key in value:
                found[each.name] = each.shape.convert(value[key], at(path, key), walk)
            elif each.required and not is_nullable(each.shape):
                walk.refuse(at(path, key), "is missing")
            elif each.required:
                found[each.name] = None
        for key in () if walk.lenient else value:
            if key not in self.by_key:
                none = " (none are taken)" if self.root and not self.by_key else ""
                walk.refuse_member(path, str(key), self.by_key, root=self.root, more=none)
                if walk.is_full:
                    break  # each near miss takes time to find
        return found

    def made(self, parts: Any, path: str, walk: Walk) -> Any:
        """Return what `make` builds from the fields."""
        for name in self.dropped:
            parts.pop(name, None)
        try:
            return self.make(parts)
        except ValueError as problem:
            return refuse_by_author(problem, path, walk)
        except Exception:
            return walk.refuse(path, "is not accepted")


def refuse_by_author(problem: ValueError, path: str, walk: Walk) -> Any:
    """Write down what the author's own check, or pydantic's, finds wrong while building a value; returns INVALID."""
    errors: Any = getattr(problem, "errors", None)
    listed: Any = errors() if callable(errors) else [{"msg": str(problem), "loc": ()}]
    for each in listed:
        where = reduce(at, each["loc"], path)
        kind, message = each.get("type"), " ".join(str(each["msg"]).split())
        if kind in ("value_error", "assertion_error"):
            message = message.partition(", ")[2] or message
        message = message[:200]
        if kind not in (None, "value_error", "assertion_error"):
            message = f"{message[:1].lower()}{message[1:]} (got {describe_value(each.get('input'))})"
        walk.refuse(where, f"is not accepted: {message}" if message else "is not accepted")
    return INVALID if listed else walk.refuse(path, "is not accepted")


def _property(each: Field, out: Rendering) -> JSONObject:
    found = each.shape.schema(out)
    if each.description is not None and "description" not in getattr(each.shape, "extra", ()):
        found["description"] = each.description
    if each.default is not UNSET and not out.output:
        found |= default_schema(each.default, out)
    return found


def default_schema(default: Any, out: Rendering) -> JSONObject:
    """Return `{"default": ...}` for a default that JSON can carry, else nothing. Portable schemas leave out null."""
    from linkspan.schema.encode import to_json

    if default is None and out.portable:
        return {}
    try:
        return {"default": to_json(default)}
    except (TypeError, ValueError):
        return {}


def fresh(default: Any) -> Any:
    """Return a default for one call: a mutable one is copied, so that calls do not share it."""
    is_mutable = issubclass(type(default), _MUTABLE) or hasattr(default, "__dataclass_fields__")
    return copy.deepcopy(default) if is_mutable else default


def _free(name: str, taken: Mapping[str, JSON]) -> str:
    found = name
    count = 1
    while found in taken:
        count += 1
        found = f"{name}{count}"
    return found


class RecursiveShape(msgspec.Struct, eq=False):
    """A type met again while it is being looked at."""

    name: str
    target: Shape | None = None
    words: str = "an object"
    kinds: frozenset[str] = frozenset({"object"})
    native: Any = None

    def __post_init__(self) -> None:
        self.native = marker(self)

    def schema(self, out: Rendering) -> JSONObject:
        """Return a `$ref`."""
        target = self._known()
        if isinstance(target, ObjectShape):
            return target.schema(out)
        if id(target) not in out.names:
            name = _free(self.name, out.definitions)
            out.names[id(target)] = name
            out.definitions[name] = {}
            out.definitions[name] = target.schema(out)
        return {"$ref": f"#/$defs/{out.names[id(target)]}"}

    def convert(self, value: JSON, path: str, walk: Walk) -> Any:
        """Read the value as the type that this stands for."""
        return self._known().convert(value, path, walk)

    def _known(self) -> Shape:
        assert self.target is not None
        return self.target
