"""Shapes of arrays, dictionaries, unions, objects with named fields, and types that refer to themselves."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import reduce
from typing import Any, ClassVar, TypeAlias, Union, cast

import msgspec

from linkspan.schema.encode import canonical, is_items, to_json
from linkspan.schema.problems import at, describe_value, join_words
from linkspan.schema.shapes import ANY, INVALID, NEVER, NULL, TEXT, Choice, Rendering, Shape, Walk, is_marker
from linkspan.types.base import JSON, UNSET, JSONObject, is_array, json_type


class Container(Shape):
    """How every array and object is read: its text repaired, its kind checked, then its parts, then what they make."""

    __slots__ = ()
    decoded: ClassVar[type] = list
    """What a text is decoded to."""
    accepted: ClassVar[tuple[type, ...]] = (list, tuple, set, frozenset)
    """The Python types of the value; callers in this process may give others than JSON has."""

    def convert(self, value: JSON, path: str, walk: Walk) -> Any:
        """Return the value with its parts read, or INVALID after the problems of all parts."""
        if isinstance(value, str):
            value = walk.repaired(value, self.decoded, path)
        if not isinstance(value, self.accepted):
            return self.otherwise(value, path, walk)
        if walk.steps is not None:
            walk.steps.take(len(value))  # type: ignore[arg-type]
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
    """An array: the `first` items one by one, then any number of one kind, or none if there is no `item`.

    `make` is the collection, or None for the array as it is.
    """

    __slots__ = ("_is_unique", "first", "item", "make")

    def __init__(
        self,
        item: Shape | None,
        make: Callable[[Iterable[Any]], Any] | None = None,
        *,
        first: Sequence[Shape] = (),
        unique: bool = False,
    ) -> None:
        super().__init__({"array"}, "an array" if item is not None else f"an array of {len(first)} items")
        self.item = item
        self.make = make
        self.first = tuple(first)
        self._is_unique = unique

    def msgspec_type(self) -> Any:
        """Return the collection of the items' types."""
        if self.make not in (list, tuple, set, frozenset):
            return super().msgspec_type()
        if self.item is None:
            parts: Any = tuple(each.native for each in self.first)
        else:
            parts = (self.item.native, ...) if self.make is tuple else self.item.native
        return cast("Any", self.make)[parts]

    def schema(self, out: Rendering) -> JSONObject:
        """Return an array schema; where `prefixItems` is not portable, any item may stand anywhere."""
        if self.item is not None:
            unique = {"uniqueItems": True} if not out.portable and self.make in (set, frozenset) else {}
            return {"type": "array", "items": self.item.schema(out), **unique}
        if out.portable:
            return _of_length(self.first, out)
        count = len(self.first)
        each = {"prefixItems": [each.schema(out) for each in self.first], "items": False} if count else {}
        return {"type": "array", **each, "minItems": count, "maxItems": count}

    def parts(self, value: Any, path: str, walk: Walk) -> Any:
        """Return the items."""
        if self.item is None and len(value) != len(self.first):
            return walk.refuse(path, f"must be {self.words}, got {len(value)}")
        found: Any = value
        if self.first or self.item is not ANY:
            found = []
            first, rest = self.first, self.item or ANY
            for index, each in enumerate(value):
                shape = first[index] if index < len(first) else rest
                item = shape.convert(each, at(path, index), walk)
                if item is INVALID and walk.is_full:
                    return INVALID
                found.append(item)
        if self._is_unique and len(set(map(canonical, value))) < len(value):
            return walk.refuse(path, f"must have no item twice, got {describe_value(value)}")
        return found

    def made(self, parts: Any, path: str, walk: Walk) -> Any:
        """Return the collection."""
        try:
            return parts if self.make is None else self.make(parts)
        except TypeError:
            return walk.refuse(path, "must have plain values as items")


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

    __slots__ = ("_key", "_make", "item")
    decoded = dict
    accepted = (dict, Mapping)

    def __init__(self, key: Shape, item: Shape, make: Callable[[dict[Any, Any]], Any] | None) -> None:
        super().__init__({"object"}, "an object")
        self.item = item
        self._key = key
        self._make = make

    def msgspec_type(self) -> Any:
        """Return a dict type; msgspec knows neither other dictionaries nor our way to read keys."""
        generic: Any = dict
        return super().msgspec_type() if self._make or self._key is not TEXT else generic[str, self.item.native]

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
        if self._key.kinds == frozenset({"integer"}):
            found["propertyNames"] = {"pattern": "^-?(0|[1-9][0-9]*)$"}
        elif self._key.kinds == frozenset({"string"}) and (names := self._key.schema(out)) not in (
            {},
            {"type": "string"},
        ):
            found["propertyNames"] = names
        return found

    def parts(self, value: Any, path: str, walk: Walk) -> Any:
        """Return the members with their keys read."""
        found: dict[Any, Any] = {}
        for name, each in value.items():
            key = self._read_key(name, path, walk)
            item = self.item.convert(each, at(path, str(name)), walk)
            if key is not INVALID and item is not INVALID:
                found[key] = item
        return found

    def made(self, parts: Any, path: str, walk: Walk) -> Any:
        """Return the dictionary."""
        return parts if self._make is None else self._make(parts)

    def _read_key(self, name: Any, path: str, walk: Walk) -> Any:
        """Read a key: JSON has texts only, so a number is read from its text."""
        inner = Walk()
        key = self._key.convert(name, at(path, str(name)), inner)
        if inner.problems and isinstance(name, str) and self._key.kinds & {"integer", "number"}:
            with suppress(msgspec.DecodeError):
                number = msgspec.json.decode(name, type=int | float)
                inner = Walk()
                key = self._key.convert(number, "", inner)
        if inner.problems:
            return walk.refuse(path, f"must have keys that are {self._key.words}, got {describe_value(name)}")
        return key


class UnionShape(Shape):
    """One of several shapes. The first that takes a value exactly as it is wins; then one that takes it with a repair."""

    __slots__ = ("members",)

    def __init__(self, members: Sequence[Shape]) -> None:
        self.members = tuple(members)
        kinds = frozenset[str]().union(*(each.kinds for each in self.members))
        super().__init__(kinds, join_words(list(dict.fromkeys(each.words for each in self.members))))

    def msgspec_type(self) -> Any:
        """Return a union of the members' types; msgspec reads one marker besides null, and no others."""
        natives = [each.native for each in self.members]
        if any(map(is_marker, natives)) and (len(natives) != 2 or NULL not in self.members):
            return super().msgspec_type()
        return Union[tuple(natives)]  # noqa: UP007

    def schema(self, out: Rendering) -> JSONObject:
        """Return the members' schemas as `anyOf`; number stands for int or float."""
        schemas: list[JSONObject] = []
        for member in self.members:
            found = member.schema(out)
            parts: list[JSONObject] = found["anyOf"] if set(found) == {"anyOf"} else [found]
            schemas.extend(each for each in parts if each not in schemas)
        if {} in schemas:
            return {}
        if {"type": "number"} in schemas:
            schemas = [each for each in schemas if each != {"type": "integer"}]
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
        if deeper:
            walk.absorb(min(deeper, key=lambda each: len(each.problems)))
            return INVALID
        kind = json_type(value)
        named = kind if kind in ("string", "object", "array") else ""
        close = [each for each, shape in zip(refusals, self.members, strict=True) if named in shape.kinds]
        if len(close) != 1:
            return walk.refuse_value(path, self.words, value)
        walk.absorb(close[0])
        return INVALID


_MODES = ((True, False), (False, False), (False, True))


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


def without_null_schema(schema: JSONObject) -> JSONObject:
    """Return the schema of a member that may be left out, where null need not be written."""
    arms: JSON = schema.get("anyOf")
    if not is_array(arms):
        return schema
    each: list[JSON] = arms
    rest = [one for one in each if one != {"type": "null"}]
    if len(rest) in (0, len(each)):
        return schema
    others = {key: value for key, value in schema.items() if key != "anyOf"}
    if others.get("default", 0) is None:
        del others["default"]
    return without_null_schema({**rest[0], **others}) if len(rest) == 1 else {**others, "anyOf": rest}


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


class ObjectShape(Container):
    """An object: its named fields, and the shape of its `others`. `make` builds the Python value from keywords.

    `needed` are the keys that must be there: without it those that have no default.
    """

    __slots__ = (
        "_description", "_needed", "_others", "as_array", "by_key", "dropped", "fields", "make", "name",
        "recursive", "root",
    )  # fmt: skip
    decoded = dict
    accepted = (dict, Mapping)

    def __init__(
        self,
        name: str,
        fields: Sequence[Field],
        make: Make | None = None,
        *,
        description: str | None = None,
        others: Shape = NEVER,
        needed: Sequence[str] | None = None,
        dropped: Collection[str] = (),
        root: bool = False,
        as_array: bool = False,
    ) -> None:
        super().__init__({"object", "array"} if as_array else {"object"}, "an object")
        self.name = name
        self.fields = fields
        self.by_key = {each.key: each for each in fields if each.taken}
        self.recursive = False
        self.dropped = dropped
        self.root = root
        self.as_array = as_array
        self.make = make
        self._description = description
        self._others = others
        self._needed = [key for key, each in self.by_key.items() if each.required] if needed is None else needed

    def schema(self, out: Rendering) -> JSONObject:
        """Return a closed object schema, or a `$ref` where the type is recursive or references are wanted."""
        if not self.recursive and (out.portable or self.root):
            return self._body(out)
        return out.reference(self, self.name, self._body)

    def _body(self, out: Rendering) -> JSONObject:
        if out.output and self.as_array:
            return _of_length([each.shape for each in self.fields], out)  # named tuples are written as arrays
        shown = [each for each in self.fields if (each.written if out.output else each.taken)]
        found: JSONObject = {"type": "object"}
        if self._description is not None:
            found["description"] = self._description
        found["properties"] = {each.key: each.shape.schema(out) for each in shown}
        for each, member in zip(shown, found["properties"].values(), strict=True):
            if out.portable and not out.output and not each.required:
                found["properties"][each.key] = member = without_null_schema(member)
            if each.description is not None and "description" not in getattr(each.shape, "extra", ()):
                member["description"] = each.description
            if each.default is not UNSET and not out.output:
                member |= default_schema(each.default, out)
        required = [each.key for each in shown if each.required]
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
        """Return the members under their names in Python."""
        found: dict[str, Any] = {}
        by_key, others = self.by_key, self._others
        for key in self._needed:
            if key in value:
                continue
            if walk.lenient and key in by_key and is_nullable(by_key[key].shape):
                found[by_key[key].name] = None
            else:
                walk.refuse(at(path, key), "is missing")
        for key, each in value.items():
            field = by_key.get(key)
            member: Any = INVALID
            if field is not None:
                member = field.shape.convert(each, at(path, key), walk)
            elif others is not NEVER:
                member = others.convert(each, at(path, key), walk)
            elif not walk.lenient:
                none = " (none are taken)" if self.root and not self.by_key else ""
                walk.refuse_member(path, str(key), self.by_key, none)
            if member is not INVALID:
                found[key if field is None else field.name] = member
            elif walk.is_full:
                return INVALID  # each near miss takes time to find
        return found

    def made(self, parts: Any, path: str, walk: Walk) -> Any:
        """Return what `make` builds from the fields."""
        if self.make is None:
            return parts
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


def default_schema(default: Any, out: Rendering) -> JSONObject:
    """Return `{"default": ...}` for a default that JSON can carry, else nothing. Portable schemas leave out null."""
    if default is None and out.portable:
        return {}
    try:
        return {"default": to_json(default)}
    except (TypeError, ValueError):
        return {}


def fresh(default: Any) -> Any:
    """Return a default for one call: a mutable one is copied, so that calls do not share it."""
    if not issubclass(type(default), _MUTABLE) and not hasattr(default, "__dataclass_fields__"):
        return default
    from copy import deepcopy

    return deepcopy(default)


class RecursiveShape(Shape):
    """A type met again while it is being looked at; `target` is set when that has been done."""

    __slots__ = ("_name", "target")

    def __init__(self, name: str, kinds: Iterable[str] = ("object",), words: str = "an object") -> None:
        super().__init__(kinds, words)
        self._name = name
        self.target: Shape = ANY

    def schema(self, out: Rendering) -> JSONObject:
        """Return a `$ref`."""
        if isinstance(self.target, ObjectShape):
            return self.target.schema(out)
        return out.reference(self.target, self._name, self.target.schema)

    def convert(self, value: JSON, path: str, walk: Walk) -> Any:
        """Read the value as the type that this stands for."""
        return self.target.convert(value, path, walk)
