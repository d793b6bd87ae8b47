"""Shapes of objects with named fields, and of types that refer to themselves."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import msgspec

from linkspan.schema.containers import is_nullable
from linkspan.schema.kinds import is_items, is_object
from linkspan.schema.problems import at, describe_value, unknown_words
from linkspan.schema.shape import INVALID, Rendering, Shape, Walk, marker
from linkspan.types.base import JSON, UNSET, JSONObject

__all__ = ["Field", "Make", "ObjectShape", "RecursiveShape", "default_schema", "fresh"]

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


class ObjectShape(msgspec.Struct, eq=False):
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
            return self._array(out)
        shown = [each for each in self.fields if (each.written if out.output else each.taken)]
        found: JSONObject = {"type": "object"}
        if self.description is not None:
            found["description"] = self.description
        found["properties"] = {each.key: _property(each, out) for each in shown}
        required = [each.key for each in shown if each.required and not (out.portable and _fills_null(each, out))]
        if required:
            found["required"] = required
        if not out.output:
            found["additionalProperties"] = False
        return found

    def _array(self, out: Rendering) -> JSONObject:
        """Named tuples are written as arrays."""
        length = len(self.fields)
        kinds: list[JSONObject] = []
        for each in self.fields:
            found = each.shape.schema(out)
            if found not in kinds:
                kinds.append(found)
        items: JSONObject = kinds[0] if len(kinds) == 1 else {"anyOf": kinds} if kinds else {}
        return {"type": "array", "items": items, "minItems": length, "maxItems": length}

    def convert(self, value: JSON, path: str, walk: Walk) -> Any:
        """Return what `make` builds from the fields."""
        value = walk.repaired(value, dict, path)
        if self.as_array and is_items(value):
            value = self._named(value, path, walk)
            if value is INVALID:
                return INVALID
        if not is_object(value):
            if self.root:
                return walk.refuse("", f"the arguments must be an object, got {describe_value(value)}")
            return walk.refuse_value(path, self.words, value)
        before = len(walk.problems)
        members: Mapping[Any, JSON] = value
        taken: dict[str, Any] = {}
        for key, each in self.by_key.items():
            if key in members:
                taken[each.name] = each.shape.convert(members[key], at(path, key), walk)
            elif each.required and not is_nullable(each.shape):
                walk.refuse(at(path, key), "is missing")
            elif each.required:
                taken[each.name] = None
        for key in () if walk.lenient else members:
            if key not in self.by_key:
                none = " (none are taken)" if self.root and not self.by_key else ""
                walk.refuse(path, unknown_words(str(key), self.by_key, root=self.root) + none)
                if walk.is_full:
                    break  # each near miss takes time to find
        if len(walk.problems) > before:
            return INVALID
        return self._made(taken, path, walk)

    def _made(self, taken: dict[str, Any], path: str, walk: Walk) -> Any:
        for name in self.dropped:
            taken.pop(name, None)
        try:
            return self.make(taken)
        except ValueError as problem:
            return _own_words(problem, path, walk)
        except Exception:
            return walk.refuse(path, "is not accepted")

    def _named(self, value: Sequence[JSON], path: str, walk: Walk) -> JSON:
        if len(value) > len(self.fields):
            return walk.refuse(path, f"must be an array of {len(self.fields)} items, got {len(value)}")
        return dict(zip(self.by_key, value, strict=False))


def _own_words(problem: ValueError, path: str, walk: Walk) -> Any:
    """Tell what the author's own check says: a ValueError raised while building a value is meant for the sender."""
    errors = getattr(problem, "errors", None)
    if callable(errors):
        from linkspan.schema.foreign import told

        return told(problem, path, walk)
    text = " ".join(str(problem).split())[:200]
    return walk.refuse(path, f"is not accepted: {text}" if text else "is not accepted")


def _fills_null(each: Field, out: Rendering) -> bool:
    """A field that may be null and has no default need not be sent where null cannot be said."""
    return not out.output and is_nullable(each.shape)


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
    return copy.deepcopy(default) if _is_mutable(default) else default


def _is_mutable(default: object) -> bool:
    return isinstance(default, _MUTABLE) or hasattr(default, "__dataclass_fields__")


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
