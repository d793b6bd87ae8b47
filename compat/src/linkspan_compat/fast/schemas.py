"""Schemas as FastMCP writes them: without titles and unused definitions, and with references written out on listing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from linkspan_compat.keywords import check

__all__ = ["compress_schema", "dereferenced"]

_MAPS: Final = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
_LISTS: Final = ("anyOf", "allOf", "oneOf", "prefixItems")
_SINGLE: Final = (
    "items", "additionalProperties", "not", "if", "then", "else", "contains", "propertyNames", "unevaluatedItems",
    "unevaluatedProperties", "additionalItems",
)  # fmt: skip
_STRUCTURE: Final = {"type", "properties", "$ref", "items", "allOf", "oneOf", "anyOf", "required"}
_DESCRIBING: Final = {"title", "description", "deprecated", "readOnly", "writeOnly"}
_MAX_DEPTH: Final = 50
_MAX_NODES: Final = 20_000


def _inside(schema: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the schemas directly inside a schema."""
    for key, value in schema.items():
        if key in _MAPS and isinstance(value, dict):
            yield from (each for each in value.values() if isinstance(each, dict))
        elif key in _LISTS or key in _SINGLE:
            listed = value if isinstance(value, list) else [value]
            yield from (each for each in listed if isinstance(each, dict))


def compress_schema(
    schema: dict[str, Any], prune_params: list[str] | None = None, prune_titles: bool = False, **more: Any
) -> dict[str, Any]:
    """Return a schema without parameters of these names, without titles, and without definitions that nothing uses."""
    check("compress_schema", more, "prune_defs prune_additional_properties dereference")
    found = _with_root(_copied(schema))
    for name in prune_params or ():
        found.get("properties", {}).pop(name, None)
        if name in found.get("required", ()):
            found["required"] = [each for each in found["required"] if each != name]
            if not found["required"]:
                del found["required"]
    if prune_titles:
        _drop_titles(found, 0)
    _drop_unused(found)
    return found


def _copied(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _copied(each) for key, each in value.items()}
    return [_copied(each) for each in value] if isinstance(value, list) else value


def _with_root(schema: dict[str, Any]) -> dict[str, Any]:
    """Put a definition that a schema only refers to at its root."""
    reference = schema.get("$ref")
    if isinstance(reference, str) and reference.startswith("#/$defs/") and "properties" not in schema:
        definition = schema.get("$defs", {}).get(reference.removeprefix("#/$defs/"))
        if isinstance(definition, dict):
            return {**_copied(definition), **{key: value for key, value in schema.items() if key != "$ref"}}
    return schema


def _drop_titles(schema: dict[str, Any], depth: int) -> None:
    if depth > _MAX_DEPTH:
        return
    has_structure = not _STRUCTURE.isdisjoint(schema)
    if isinstance(schema.get("title"), str) and (has_structure or schema.keys() <= _DESCRIBING):  # FastMCP's rule
        del schema["title"]
    for each in _inside(schema):
        _drop_titles(each, depth + 1)


def _drop_unused(schema: dict[str, Any]) -> None:
    definitions = schema.get("$defs")
    if not isinstance(definitions, dict):
        return
    used: set[str] = set()
    ahead = [_references({key: value for key, value in schema.items() if key != "$defs"})]
    while ahead:
        for name in ahead.pop():
            if name not in used and name in definitions:
                used.add(name)
                ahead.append(_references(definitions[name]))
    schema["$defs"] = {name: each for name, each in definitions.items() if name in used}
    if not schema["$defs"]:
        del schema["$defs"]


def _references(value: Any) -> set[str]:
    found: set[str] = set()
    if isinstance(value, dict):
        reference = value.get("$ref")
        if isinstance(reference, str) and reference.startswith("#/$defs/"):
            found.add(reference.split("/")[-1])
        for each in value.values():
            found |= _references(each)
    elif isinstance(value, list):
        for each in value:
            found |= _references(each)
    return found


class _CannotInline(Exception):
    """A schema refers to itself, or would become too large."""


def dereferenced(schema: dict[str, Any]) -> dict[str, Any]:
    """Return a schema with its definitions in the places that refer to them; one that refers to itself stays as it is."""
    if "$defs" not in schema:
        return schema
    without = {key: value for key, value in schema.items() if key != "$defs"}
    try:
        found: dict[str, Any] = _inlined(without, schema["$defs"], (), [_MAX_NODES])
    except _CannotInline:
        return _with_root(schema)
    return found


def _inlined(value: Any, definitions: dict[str, Any], open_: tuple[str, ...], left: list[int]) -> Any:
    left[0] -= 1
    if left[0] < 0 or len(open_) > _MAX_DEPTH:
        raise _CannotInline
    again: Callable[[Any], Any] = lambda each: _inlined(each, definitions, open_, left)  # noqa: E731
    if isinstance(value, list):
        return [again(each) for each in value]
    if not isinstance(value, dict):
        return value
    reference = value.get("$ref")
    if isinstance(reference, str) and reference.startswith("#/$defs/"):
        name = reference.removeprefix("#/$defs/")
        if name in open_ or name not in definitions:
            raise _CannotInline
        found = _inlined(definitions[name], definitions, (*open_, name), left)
        more = {key: again(each) for key, each in value.items() if key != "$ref"}
        return {**found, **more} if isinstance(found, dict) else found
    return {key: again(each) for key, each in value.items() if key != "discriminator" or "oneOf" not in value}
