"""What the user is asked: a flat form, compiled once from a type, and the reader of its answers.

Spec: https://modelcontextprotocol.io/specification/2026-07-28/client/elicitation (ELI-3, ELI-4).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec import structs

from linkspan.errors import RegistrationError
from linkspan.schema.build import build
from linkspan.schema.constraints import Bounded
from linkspan.schema.containers import (
    ArrayShape,
    Field,
    ObjectShape,
    UnionShape,
    default_schema,
    fresh,
    is_nullable,
    without_null,
    without_null_schema,
)
from linkspan.schema.problems import ArgumentsInvalid
from linkspan.schema.pydantic_types import ForeignShape
from linkspan.schema.shapes import Choice, Number, PlainShape, Rendering, Shape, Walk
from linkspan.types.base import JSON, UNSET, JSONObject, is_array
from linkspan.types.base import is_mapping as is_object

_FORMATS = ("email", "uri", "date", "date-time")
_KEPT = {
    "string": ("title", "description", "minLength", "maxLength", "format", "enum", "default", "pattern"),
    "integer": ("title", "description", "minimum", "maximum", "default"),
    "number": ("title", "description", "minimum", "maximum", "default"),
    "boolean": ("title", "description", "default"),
    "array": ("title", "description", "items", "minItems", "maxItems", "default"),
}
_ADVICE = (
    "a form asks for plain values only: str, int, float, bool, date, datetime, a Literal or Enum, a list of those, "
    "or a dataclass with such fields"
)


class Form(msgspec.Struct, frozen=True):
    """A flat form: `json_schema` is the `requestedSchema`; a single value is its only property."""

    json_schema: JSONObject
    _shape: Shape
    _single: str | None = None
    """The property of a single value."""
    _default: Any = UNSET
    _texts: Mapping[str, Mapping[JSON, JSON]] = msgspec.field(default_factory=dict[str, Mapping[str, JSON]])

    def decode(self, content: Mapping[str, JSON]) -> Any:
        """Turn the user's answers into a value of the type. Members that are not in the form are ignored.

        Raises: ArgumentsInvalid, whose text can be shown to the user.
        """
        properties: Mapping[str, JSON] = self.json_schema["properties"]
        values = {key: self._meant(key, each) for key, each in content.items() if key in properties}
        walk = Walk(lenient=True)  # a form cannot say null
        single = self._single
        if single is None:
            found = self._shape.convert(values, "", walk)
        elif single in values:
            found = self._shape.convert(values[single], single, walk)
        elif self._default is not UNSET:
            found = fresh(self._default)
        else:
            found = None if is_nullable(self._shape) else walk.refuse(single, "is missing")
        if walk.problems:
            raise ArgumentsInvalid(walk.problems)
        return found

    def _meant(self, key: str, value: JSON) -> JSON:
        """Return the value that a text in the form stands for, where the choices are no texts themselves."""
        texts = self._texts.get(key)
        if not texts:
            return value
        if is_array(value):
            return [texts.get(each, each) if isinstance(each, str) else each for each in value]
        return texts.get(value, value) if isinstance(value, str) else value


def compile_form(
    hint: object,
    *,
    message: str | None = None,
    default: Any = UNSET,
    name: str | None = None,
    field: str = "value",
) -> Form:
    """Look at a type once, and make a form of it.

    `hint` is a primitive, a Literal or Enum, a list of one, or a flat class of those; `message` describes a single value,
    and `field` is what the user sees it called; `default` is pre-filled and taken when the answer leaves it out; `name` is what
    errors call the form. Raises: RegistrationError if it is not flat.
    """
    where = name or "the form"
    shape = build(hint, where)
    bare = _plain(shape)
    if isinstance(bare, ForeignShape):
        return _foreign(bare, where)
    if isinstance(bare, ObjectShape):
        return _record(bare, default, where)
    schema = _property(shape, default, where)
    if message is not None:
        schema.setdefault("description", message)
    optional = default is not UNSET or is_nullable(shape)
    root: JSONObject = {"type": "object", "properties": {field: schema}}
    if not optional:
        root["required"] = [field]
    return Form(root, shape, field, default, _texts({field: shape}))


def _record(shape: ObjectShape, default: Any, where: str) -> Form:
    fields = [each for each in shape.fields if each.taken]
    if default is not UNSET and default is not None:
        fields = [_filled(each, default) for each in fields]
    properties: JSONObject = {}
    for each in fields:
        schema = _property(each.shape, each.default, f"{where}: {shape.name}.{each.name}")
        if each.description is not None:
            schema.setdefault("description", each.description)
        properties[each.key] = schema
    root: JSONObject = {"type": "object", "properties": properties}
    required = [each.key for each in fields if each.required and not is_nullable(each.shape)]
    if required:
        root["required"] = required
    reader = ObjectShape(shape.name, fields, _with_defaults(shape, fields), dropped=shape.dropped)
    return Form(root, reader, None, default, _texts({each.key: each.shape for each in fields}))


def _filled(each: Field, default: Any) -> Field:
    """Return a field whose default is taken from a default for the whole form."""

    members: Mapping[str, Any] | None = default if is_object(default) else None
    value = members.get(each.name, UNSET) if members is not None else getattr(default, each.name, UNSET)
    return each if value is UNSET else structs.replace(each, required=False, default=value)


def _with_defaults(shape: ObjectShape, fields: Sequence[Field]) -> Any:
    changed = {
        each.name: each.default
        for each, before in zip(fields, [one for one in shape.fields if one.taken], strict=True)
        if each.default is not before.default
    }

    build_value: Any = shape.make or dict

    def make(taken: dict[str, Any]) -> Any:
        return build_value({**{name: fresh(each) for name, each in changed.items()}, **taken})

    return make


def _foreign(shape: ForeignShape, where: str) -> Form:
    found = shape.schema(Rendering())
    properties: Mapping[str, JSON] = found.get("properties") or {}
    if found.get("type") != "object" or not properties:
        raise RegistrationError(f"{where}: {_ADVICE}")
    flat = {key: _kept(each, f"{where}: {key}") for key, each in properties.items()}
    root: JSONObject = {"type": "object", "properties": flat}
    if found.get("required"):
        root["required"] = found["required"]
    return Form(root, shape)


def _plain(shape: Shape) -> Shape:
    """Return the shape below notes, bounds and null."""
    while True:
        if isinstance(shape, Bounded):
            shape = shape.inner
        elif isinstance(shape, UnionShape) and is_nullable(shape) and without_null(shape) is not shape:
            shape = without_null(shape)
        else:
            return shape


def _chosen(shape: Shape) -> Shape:
    """Return the shape of what is chosen: of the items of a list, or of the value itself."""
    bare = _plain(shape)
    return _plain(bare.item) if isinstance(bare, ArrayShape) and bare.item is not None else bare


def _property(shape: Shape, default: Any, where: str) -> JSONObject:
    bare, item = _plain(shape), _chosen(shape)
    is_text = bare.kinds == frozenset({"string"})
    if not is_text and not isinstance(bare, PlainShape | Number | Choice) and not isinstance(item, Choice):
        raise RegistrationError(f"{where}: {_ADVICE}")
    schema = shape.schema(Rendering())
    texts = _choice_texts(item)
    if texts:
        choices: JSONObject = {"type": "string", "enum": list(texts)}
        others = {key: each for key, each in schema.items() if key not in ("type", "enum", "anyOf", "items")}
        schema = {**choices, **others} if item is bare else {"type": "array", "items": choices, **others}
    if default is not UNSET and default is not None:
        schema |= _default(default, texts)
    return _kept(schema, where)


def _default(default: Any, texts: Mapping[str, JSON]) -> JSONObject:
    found = default_schema(default, Rendering())
    if texts and found:
        spelled = {_spelled(wire): text for text, wire in texts.items()}
        value: JSON = found["default"]
        if is_array(value):
            items: list[JSON] = value
            found["default"] = [spelled.get(_spelled(each), each) for each in items]
        else:
            found["default"] = spelled.get(_spelled(value), value)
    return found


def _kept(schema: JSON, where: str) -> JSONObject:
    """Return a property schema with the keywords that forms know (ELI-4). Raises: RegistrationError for other types."""
    members: Mapping[str, JSON] = without_null_schema(dict(schema)) if is_object(schema) else {}
    kind: JSON = members.get("type")
    if isinstance(kind, str) and kind in _KEPT:
        items: JSON = members.get("items")
        if kind == "array" and not (is_object(items) and "enum" in items):
            raise RegistrationError(f"{where}: {_ADVICE}")
        found: JSONObject = {"type": kind}
        found.update((key, each) for key, each in members.items() if key in _KEPT[kind])
        if found.get("format") not in _FORMATS:
            found.pop("format", None)
        if kind == "integer":  # forms have no exclusive bounds, and the next integer says the same
            if "exclusiveMinimum" in members:
                found.setdefault("minimum", int(members["exclusiveMinimum"]) + 1)
            if "exclusiveMaximum" in members:
                found.setdefault("maximum", int(members["exclusiveMaximum"]) - 1)
        return found
    raise RegistrationError(f"{where}: {_ADVICE}")


def _texts(shapes: Mapping[str, Shape]) -> dict[str, Mapping[JSON, JSON]]:
    found = {key: _choice_texts(_chosen(shape)) for key, shape in shapes.items()}
    return {key: texts for key, texts in found.items() if texts}


def _choice_texts(shape: Shape) -> dict[str, JSON]:
    """Return the texts that stand for choices that are not all texts: forms have string enums only."""
    if not isinstance(shape, Choice) or shape.kinds == frozenset({"string"}):
        return {}
    return {_spelled(wire): wire for wire, _ in shape.members if wire is not None}


def _spelled(wire: JSON) -> str:
    if isinstance(wire, bool):
        return "true" if wire else "false"
    return str(wire)
