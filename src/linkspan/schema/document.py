"""A JSON Schema that somebody wrote by hand: taken as it is, but within bounds, and without reaching outside.

Checklist 1.11 (JS-1 ... JS-5) and MSG-55.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from copy import deepcopy
from typing import Any

import msgspec

from linkspan.errors import RegistrationError
from linkspan.schema.kinds import is_array, is_object
from linkspan.schema.patterns import why_not_linear
from linkspan.schema.repair import local_target
from linkspan.types.base import JSON, JSONObject

__all__ = ["DRAFT_7", "DRAFT_2020_12", "Targets", "check_document", "dialect_of", "input_schema"]

DRAFT_2020_12 = "https://json-schema.org/draft/2020-12/schema"
DRAFT_7 = "http://json-schema.org/draft-07/schema"
_DEEPEST = 64
_MOST = 10_000
_MAPS = ("properties", "$defs", "definitions", "patternProperties", "dependentSchemas", "dependencies")
_LISTS = ("anyOf", "oneOf", "allOf", "prefixItems", "items")
_ONES = (
    "items", "additionalItems", "additionalProperties", "not", "if", "then", "else", "contains", "propertyNames",
    "unevaluatedItems", "unevaluatedProperties", "contentSchema",
)  # fmt: skip
_IN_PLACE = ("anyOf", "oneOf", "allOf")
_IN_PLACE_ONE = ("not", "if", "then", "else")
_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")


def input_schema(schema: Mapping[str, JSON] | str) -> JSONObject:
    """Return an author's input schema as it goes over the wire.

    A JSON text will do, and one with `properties` only: `type: object` is supplied and an empty `required` left out; all
    else stays as written (MSG-55). Raises: RegistrationError if it is not the schema of an object.
    """
    found = _read(schema)
    if found.get("type", "object") != "object":
        raise RegistrationError(f'the input schema must have "type": "object", not {found["type"]!r}')
    properties = found.get("properties", {})
    if not is_object(properties):
        raise RegistrationError("the properties of the input schema must be an object: a schema for each argument")
    if "required" in found and not found["required"]:
        del found["required"]
    return found if "type" in found else {"type": "object", **found}


def _read(schema: Any) -> JSONObject:
    if isinstance(schema, str | bytes):
        try:
            schema = msgspec.json.decode(schema)
        except (msgspec.DecodeError, ValueError, RecursionError):
            raise RegistrationError("the input schema is not valid JSON") from None
    if not is_object(schema):
        raise RegistrationError('an input schema is an object such as {"properties": {"message": {"type": "string"}}}')
    members: Mapping[str, JSON] = schema
    return deepcopy(dict(members))


def dialect_of(schema: Mapping[str, JSON]) -> str:
    """Return the dialect of a schema, 2020-12 unless it says otherwise. Raises: RegistrationError for others (JS-1)."""
    declared: JSON = schema.get("$schema", DRAFT_2020_12)
    bare = declared.rstrip("#").replace("https:", "http:") if isinstance(declared, str) else ""
    for known in (DRAFT_2020_12, DRAFT_7):
        if bare == known.replace("https:", "http:"):
            return known
    raise RegistrationError(
        f'the JSON Schema dialect {declared!r} is not supported; leave "$schema" out for 2020-12, or use {DRAFT_7}#'
    )


def check_document(schema: Mapping[str, JSON]) -> None:
    """Hold a schema to bounds: depth, size, references within the document, patterns that match in linear time.

    Raises: RegistrationError (JS-3, JS-4).
    """
    ids: set[str] = set()
    references: list[tuple[str, str]] = []
    for count, (where, each, depth) in enumerate(subschemas(schema)):
        if depth > _DEEPEST:
            raise RegistrationError(f"the schema is nested more than {_DEEPEST} deep, at {where[:80]}; flatten it")
        if count >= _MOST:
            raise RegistrationError(f"the schema has more than {_MOST} parts; split the tool")
        ids.update(each[key] for key in ("$id", "$anchor", "$dynamicAnchor") if isinstance(each.get(key), str))
        references.extend((where, each[key]) for key in _REFERENCES if isinstance(each.get(key), str))
        _check_patterns(each, where)
        if depth and isinstance(each.get("$schema"), str):
            dialect_of(each)
    for where, reference in references:
        _check_reference(reference, where, schema, ids)
    _Cost(schema).of(schema, ())


def subschemas(schema: JSON, where: str = "#", depth: int = 0) -> Iterator[tuple[str, Mapping[str, JSON], int]]:
    """Yield every schema in a schema with its place and depth; no deeper than is allowed, and one step."""
    if not is_object(schema):
        return
    members: Mapping[str, JSON] = schema
    yield where, members, depth
    if depth > _DEEPEST:
        return
    for key, each in members.items():
        if key in _MAPS and is_object(each):
            inner: Mapping[str, JSON] = each
            for name, one in inner.items():
                yield from subschemas(one, f"{where}/{key}/{name}", depth + 1)
        elif key in _LISTS and is_array(each):
            items: list[JSON] = each
            for index, one in enumerate(items):
                yield from subschemas(one, f"{where}/{key}/{index}", depth + 1)
        elif key in _ONES:
            yield from subschemas(each, f"{where}/{key}", depth + 1)


def _check_patterns(schema: Mapping[str, JSON], where: str) -> None:
    named: JSON = schema.get("patternProperties")
    patterns: list[JSON] = [schema.get("pattern")]
    if is_object(named):
        patterns.extend(named)
    for pattern in patterns:
        why = why_not_linear(pattern) if isinstance(pattern, str) else None
        if why is not None:
            raise RegistrationError(
                f"the pattern {pattern!r} at {where} {why}, which can take for ever; write it without"
            )


def _check_reference(reference: str, where: str, root: Mapping[str, JSON], ids: set[str]) -> None:
    if reference in ids or reference.partition("#")[0] in ids:
        return
    if not reference.startswith("#"):
        raise RegistrationError(f"the $ref {reference!r} at {where} leads outside; put the definition under $defs")
    if reference[1:] in ids or (reference[1:2] in ("", "/") and local_target(reference, root) is not None):
        return
    raise RegistrationError(f"the $ref {reference!r} at {where} does not resolve; define it under $defs")


class Targets:
    """What the references of one document point at: a place in it (`#/$defs/a`, `#`), or an anchor (`#a`)."""

    def __init__(self, root: Mapping[str, JSON]) -> None:
        self._root = root
        self._anchors: dict[str, JSON] | None = None

    def find(self, reference: JSON) -> JSON:
        """Return the schema that a reference points at; None if it is none of these."""
        if not isinstance(reference, str):
            return None
        base, _, fragment = reference.partition("#")
        if base not in ("", self._root.get("$id")):
            return None
        if fragment[:1] in ("", "/"):
            return local_target(f"#{fragment}", self._root)
        if self._anchors is None:
            every = (each for _, each, _ in subschemas(self._root))
            self._anchors = {each["$anchor"]: each for each in every if isinstance(each.get("$anchor"), str)}
        return self._anchors.get(fragment)


class _Cost:
    """How many schemas one value may be held against at once: small schemas can multiply through references."""

    def __init__(self, root: Mapping[str, JSON]) -> None:
        self._targets = Targets(root)
        self._known: dict[int, int] = {}
        for _, each, _ in subschemas(root):
            self.of(each, ())

    def of(self, schema: JSON, open_: tuple[int, ...]) -> int:
        if not is_object(schema):
            return 1
        members: Mapping[str, JSON] = schema
        if id(members) in open_:
            raise RegistrationError("a $ref in the schema leads back to itself; let it go through properties or items")
        if id(members) not in self._known:
            inner = (*open_, id(members))
            self._known[id(members)] = 1 + sum(self.of(each, inner) for each in self._in_place(members))
        if self._known[id(members)] > _MOST:
            raise RegistrationError(f"the schema multiplies to more than {_MOST} parts through $ref; flatten it")
        return self._known[id(members)]

    def _in_place(self, schema: Mapping[str, JSON]) -> Iterator[JSON]:
        for key in _IN_PLACE:
            arms: JSON = schema.get(key)
            if is_array(arms):
                yield from arms
        for key in _IN_PLACE_ONE:
            if key in schema:
                yield schema[key]
        target = self._targets.find(schema.get("$ref"))
        if target is not None:
            yield target
