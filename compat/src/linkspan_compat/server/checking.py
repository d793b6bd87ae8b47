"""Checks a value against a JSON Schema, and words what is wrong as the validator of the SDKs does.

The common keywords are checked here; a schema with others is left to `jsonschema` where that is installed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

__all__ = ["problem_of"]

_ANNOTATIONS: Final = {
    "$defs", "$schema", "$id", "$comment", "title", "description", "default", "examples", "deprecated", "format", "readOnly",
    "writeOnly", "definitions",
}  # fmt: skip
_CHECKED: Final = {
    "type", "required", "properties", "items", "enum", "const", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum",
    "minLength", "maxLength", "minItems", "maxItems", "additionalProperties", "anyOf", "$ref",
}  # fmt: skip


def problem_of(value: Any, schema: dict[str, Any]) -> str | None:
    """Return what is wrong with a value, None if nothing is."""
    if not _is_simple(schema):
        try:
            import jsonschema  # type: ignore[import-untyped]
        except ImportError:
            pass
        else:
            try:
                jsonschema.validate(value, schema)
            except jsonschema.ValidationError as error:
                return str(error.message)
            return None
    return next(_problems(value, schema, schema), None)


def _is_simple(schema: Any) -> bool:
    if not isinstance(schema, dict):
        return isinstance(schema, bool)
    if not schema.keys() <= _CHECKED | _ANNOTATIONS and any(
        not key.startswith("x-") for key in schema.keys() - _CHECKED - _ANNOTATIONS
    ):
        return False
    inside = [*schema.get("properties", {}).values(), *schema.get("anyOf", ()), *schema.get("$defs", {}).values()]
    inside += [schema[key] for key in ("items", "additionalProperties") if key in schema]
    return all(map(_is_simple, inside))


_TYPES: Final[dict[str, Callable[[Any], bool]]] = {
    "object": lambda value: isinstance(value, dict),
    "array": lambda value: isinstance(value, list),
    "string": lambda value: isinstance(value, str),
    "boolean": lambda value: isinstance(value, bool),
    "null": lambda value: value is None,
    "number": lambda value: isinstance(value, int | float) and not isinstance(value, bool),
    "integer": lambda value: (
        (isinstance(value, int) and not isinstance(value, bool)) or (isinstance(value, float) and value.is_integer())
    ),
}
_BOUNDS: Final[dict[str, tuple[Callable[[Any, Any], bool], str]]] = {
    "minimum": (lambda value, bound: value >= bound, "is less than the minimum of"),
    "maximum": (lambda value, bound: value <= bound, "is greater than the maximum of"),
    "exclusiveMinimum": (lambda value, bound: value > bound, "is less than or equal to the minimum of"),
    "exclusiveMaximum": (lambda value, bound: value < bound, "is greater than or equal to the maximum of"),
}


def _problems(value: Any, schema: Any, root: dict[str, Any]) -> Iterator[str]:
    if schema is True or schema == {}:
        return
    if schema is False:
        yield f"False schema does not allow {value!r}"
        return
    if "$ref" in schema:
        yield from _problems(value, root.get("$defs", {}).get(schema["$ref"].rpartition("/")[2], True), root)
    kinds = schema.get("type")
    if kinds is not None:
        listed = kinds if isinstance(kinds, list) else [kinds]
        if not any(_TYPES.get(kind, lambda _: True)(value) for kind in listed):
            yield f"{value!r} is not of type {', '.join(map(repr, listed))}"
            return
    if "enum" in schema and value not in schema["enum"]:
        yield f"{value!r} is not one of {schema['enum']!r}"
    if "const" in schema and value != schema["const"]:
        yield f"{schema['const']!r} was expected"
    if "anyOf" in schema and not any(next(_problems(value, each, root), None) is None for each in schema["anyOf"]):
        yield f"{value!r} is not valid under any of the given schemas"
    if isinstance(value, dict):
        yield from _of_object(value, schema, root)
    elif isinstance(value, list):
        if len(value) < schema.get("minItems", 0):
            yield f"{value!r} should be non-empty" if schema["minItems"] == 1 else f"{value!r} is too short"
        if len(value) > schema.get("maxItems", len(value)):
            yield f"{value!r} is too long"
        for each in value:
            yield from _problems(each, schema.get("items", True), root)
    elif isinstance(value, str):
        if len(value) < schema.get("minLength", 0):
            yield f"{value!r} should be non-empty" if schema["minLength"] == 1 else f"{value!r} is too short"
        if len(value) > schema.get("maxLength", len(value)):
            yield f"{value!r} is too long"
    elif isinstance(value, int | float) and not isinstance(value, bool):
        for key, (holds, words) in _BOUNDS.items():
            if key in schema and not holds(value, schema[key]):
                yield f"{value!r} {words} {schema[key]!r}"


def _of_object(value: dict[str, Any], schema: dict[str, Any], root: dict[str, Any]) -> Iterator[str]:
    properties = schema.get("properties", {})
    for name in schema.get("required", ()):
        if name not in value:
            yield f"{name!r} is a required property"
    for name, each in properties.items():
        if name in value:
            yield from _problems(value[name], each, root)
    others, more = [name for name in value if name not in properties], schema.get("additionalProperties", True)
    if more is False and others:
        names = ", ".join(map(repr, others))
        yield f"Additional properties are not allowed ({names} {'was' if len(others) == 1 else 'were'} unexpected)"
    elif isinstance(more, dict):
        for name in others:
            yield from _problems(value[name], more, root)
