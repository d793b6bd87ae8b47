"""Schema-directed repair: models send `"[1, 2]"` where an array is wanted, and 2.0 where an integer is.

A text is decoded only where the schema wants an array or an object and no string. Nothing else is ever coerced.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from linkspan.schema.kinds import is_array, is_object
from linkspan.schema.problems import Problem, at, unknown_words
from linkspan.types.base import JSON

__all__ = ["arm", "local_target", "repair_value", "types_of", "unknown_keys"]

_DEEPEST = 64
_INDEX = re.compile(r"[0-9]{1,9}")
_EVERY = frozenset({"string", "integer", "number", "boolean", "null", "array", "object"})


def repair_value(value: JSON, schema: JSON, root: JSON, path: str, repairs: list[str], depth: int = 0) -> JSON:
    """Return the value with its repairs made; each is written down as a short sentence."""
    if depth > _DEEPEST or not is_object(schema):
        return value
    types = types_of(schema, root)
    value = _decoded(value, types, path, repairs)
    if isinstance(value, float) and value.is_integer() and "integer" in types and "number" not in types:
        return int(value)
    found = arm(value, schema, root)
    if is_object(value):
        members: Mapping[str, JSON] = value
        return {
            key: repair_value(each, member_schema(found, key), root, at(path, key), repairs, depth + 1)
            for key, each in members.items()
        }
    if is_array(value):
        items: list[JSON] = value
        return [
            repair_value(each, item_schema(found, index), root, at(path, index), repairs, depth + 1)
            for index, each in enumerate(items)
        ]
    return value


def _decoded(value: JSON, types: frozenset[str], path: str, repairs: list[str]) -> JSON:
    if not isinstance(value, str) or "string" in types or value.lstrip()[:1] not in ("[", "{"):
        return value
    wanted = "array" if value.lstrip()[0] == "[" else "object"
    if wanted not in types:
        return value
    try:
        found: JSON = msgspec.json.decode(value)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return value
    repairs.append(f"{path or 'the arguments'}: decoded a string into an {wanted}")
    return found


def unknown_keys(value: JSON, schema: JSON, root: JSON, path: str, depth: int = 0) -> Iterator[Problem]:
    """Yield a problem for each member that a closed object schema does not name."""
    if depth > _DEEPEST or not is_object(schema):
        return
    found = arm(value, schema, root)
    if is_object(value):
        members: Mapping[str, JSON] = value
        properties: Mapping[str, JSON] = found.get("properties") or {}
        closed = found.get("additionalProperties") is False and not found.get("patternProperties")
        for key, each in members.items():
            if closed and key not in properties:
                yield Problem(path, unknown_words(key, properties, root=not path))
            else:
                yield from unknown_keys(each, member_schema(found, key), root, at(path, key), depth + 1)
    elif is_array(value):
        items: list[JSON] = value
        for index, each in enumerate(items):
            yield from unknown_keys(each, item_schema(found, index), root, at(path, index), depth + 1)


def member_schema(schema: Mapping[str, JSON], key: str) -> JSON:
    """Return the schema of a member of an object."""
    properties: Mapping[str, JSON] = schema.get("properties") or {}
    return properties.get(key, schema.get("additionalProperties"))


def item_schema(schema: Mapping[str, JSON], index: int) -> JSON:
    """Return the schema of an item of an array."""
    first: JSON = schema.get("prefixItems")
    if is_array(first):
        fixed: Sequence[JSON] = first
        if index < len(fixed):
            return fixed[index]
    return schema.get("items")


def local_target(reference: JSON, root: JSON) -> JSON:
    """Return what a reference inside the document (`#/$defs/Node`) points at, or None."""
    if not isinstance(reference, str) or not (reference == "#" or reference.startswith("#/")):
        return None
    found = root
    for step in reference[1:].split("/")[1:]:
        name = _unescaped(step)
        if is_object(found):
            members: Mapping[str, JSON] = found
            found = members.get(name)
        elif is_array(found) and _INDEX.fullmatch(name) and int(name) < len(found):
            items: list[JSON] = found
            found = items[int(name)]
        else:
            return None
    return found


def _unescaped(step: str) -> str:
    """Return a name as it was before it went into a pointer, and that into a URI (RFC 6901, section 6)."""
    if "%" in step:
        from urllib.parse import unquote

        step = unquote(step)
    return step.replace("~1", "/").replace("~0", "~")


def types_of(schema: JSON, root: JSON, depth: int = 0) -> frozenset[str]:
    """Return the JSON types that a schema lets through, as far as is plain to see."""
    if not is_object(schema) or depth > 16:
        return _EVERY
    members: Mapping[str, JSON] = schema
    found = _EVERY
    declared: JSON = members.get("type")
    if isinstance(declared, str):
        found &= {declared}
    elif is_array(declared):
        listed: list[str] = declared
        found &= set(listed)
    if "$ref" in members:
        target = local_target(members["$ref"], root)
        found &= types_of(target, root, depth + 1) if target is not None else _EVERY
    for keyword in ("anyOf", "oneOf"):
        arms: JSON = members.get(keyword)
        if is_array(arms) and arms:
            each: list[JSON] = arms
            found &= frozenset[str]().union(*(types_of(one, root, depth + 1) for one in each))
    return found


def arm(value: JSON, schema: Mapping[str, JSON], root: JSON, depth: int = 0) -> Mapping[str, JSON]:
    """Follow references, and a union where only one arm has the value's type, to the schema that says more."""
    if depth > 16:
        return schema
    if "$ref" in schema:
        target = local_target(schema["$ref"], root)
        return arm(value, target, root, depth + 1) if is_object(target) else schema
    for keyword in ("anyOf", "oneOf"):
        arms: JSON = schema.get(keyword)
        if is_array(arms):
            each: list[JSON] = arms
            kind = "object" if is_object(value) else "array" if is_array(value) else "null"
            fitting = [one for one in each if is_object(one) and kind in types_of(one, root)]
            return arm(value, fitting[0], root, depth + 1) if len(fitting) == 1 else schema
    return schema
