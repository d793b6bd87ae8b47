"""A JSON Schema written by hand: taken as it is, but within bounds, and without reaching outside.

Spec: https://modelcontextprotocol.io/specification/2026-07-28/basic (JS-1 to JS-5, MSG-55).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from importlib import import_module
from typing import Any, TypeAlias

import msgspec

from linkspan.errors import RegistrationError
from linkspan.schema.annotations import HEADER_KEYWORD
from linkspan.schema.summary import local_target
from linkspan.types.base import JSON, JSONObject, is_array
from linkspan.types.base import is_mapping as is_object

DRAFT_2020_12 = "https://json-schema.org/draft/2020-12/schema"
DRAFT_7 = "http://json-schema.org/draft-07/schema"
_DEEPEST = 64
_MOST = 10_000
MAPS = ("properties", "$defs", "definitions", "patternProperties", "dependentSchemas", "dependencies")
LISTS = ("anyOf", "oneOf", "allOf", "prefixItems", "items")
ONES = (
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
    given: Any = schema
    if isinstance(given, str | bytes):
        try:
            given = msgspec.json.decode(given)
        except (msgspec.DecodeError, ValueError, RecursionError):
            raise RegistrationError("the input schema is not valid JSON") from None
    if not is_object(given):
        raise RegistrationError('an input schema is an object such as {"properties": {"message": {"type": "string"}}}')
    found: JSONObject = deepcopy(dict(given))
    if found.get("type", "object") != "object":
        raise RegistrationError(f'the input schema must have "type": "object", not {found["type"]!r}')
    properties = found.get("properties", {})
    if not is_object(properties):
        raise RegistrationError("the properties of the input schema must be an object: a schema for each argument")
    if "required" in found and not found["required"]:
        del found["required"]
    return found if "type" in found else {"type": "object", **found}


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
        base, _, fragment = reference.partition("#")
        if reference in ids or base in ids or (not base and fragment in ids):
            continue
        if not reference.startswith("#"):
            raise RegistrationError(
                f"the $ref {reference!r} at {where} points outside the schema; put the definition under $defs [LS-708]"
            )
        if local_target(reference, schema) is None:
            raise RegistrationError(
                f"the $ref {reference!r} at {where} does not resolve; define it under $defs [LS-708]"
            )
    _Cost(schema).of(schema, ())


def subschemas(schema: JSON, where: str = "#", depth: int = 0) -> Iterator[tuple[str, Mapping[str, JSON], int]]:
    """Yield every schema in a schema with its place and depth; no deeper than is allowed, and one step."""
    if not is_object(schema):
        return
    yield where, schema, depth
    if depth > _DEEPEST:
        return
    for key, each in schema.items():
        if key in MAPS and is_object(each):
            for name, one in each.items():
                yield from subschemas(one, f"{where}/{key}/{name}", depth + 1)
        elif key in LISTS and is_array(each):
            for index, one in enumerate(each):
                yield from subschemas(one, f"{where}/{key}/{index}", depth + 1)
        elif key in ONES:
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
                f"the pattern {pattern!r} at {where} {why}, which may never finish to match; rewrite it [LS-707]"
            )


class Targets:
    """What the references of one document point at: a place in it (`#/$defs/a`, `#`), or an anchor (`#a`)."""

    def __init__(self, root: Mapping[str, JSON]) -> None:
        self._root = root
        self._anchors: dict[str, JSON] | None = None

    def find(self, reference: JSON) -> JSON:
        """Return the schema that a reference points at; None for any other reference."""
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
        if id(schema) in open_:
            raise RegistrationError("a $ref in the schema leads back to itself; let it go through properties or items")
        if id(schema) not in self._known:
            inner = (*open_, id(schema))
            listed: list[JSON] = [schema.get(key) for key in _IN_PLACE]
            parts: list[JSON] = [each for arms in listed if is_array(arms) for each in arms]
            parts += [schema[key] for key in _IN_PLACE_ONE if key in schema]
            target = self._targets.find(schema.get("$ref"))
            parts += [target] if target is not None else []
            self._known[id(schema)] = 1 + sum(self.of(each, inner) for each in parts)
        if self._known[id(schema)] > _MOST:
            raise RegistrationError(f"the schema multiplies to more than {_MOST} parts through $ref; flatten it")
        return self._known[id(schema)]


Matcher: TypeAlias = Callable[[str], bool]
"""Returns whether a text fits."""

_LOOKAROUND = r"\(\?<?[=!]"
_QUANTIFIER = r"[*+]|\{(\d*)(,?)(\d*)\}"
_FEW = 16


def linear_matcher(pattern: str) -> Matcher | None:
    """Return what finds a pattern anywhere in a text, in linear time; None if there is no such engine for it here."""
    try:
        library: Any = import_module("jsonschema_rs")
    except ImportError:
        return None
    try:
        compiled = library.Draft202012Validator({"pattern": pattern}, pattern_options=library.RegexOptions())
    except (library.ValidationError, ValueError):
        return None
    matches: Matcher = compiled.is_valid
    return matches


def why_not_linear(pattern: str) -> str | None:
    """Return what makes a pattern dangerous, or None: a look-around, a back-reference, or a repeat within a repeat."""
    bare = _without_classes(pattern)
    if re.search(_LOOKAROUND, bare):
        return "looks ahead or behind"
    if re.search(r"\\[1-9]|\\k<|\(\?P=", bare):
        return "refers back to a group"
    return "repeats within a repeat" if _nests(bare) else None


def _without_classes(pattern: str) -> str:
    """Return the pattern with `[...]` and escaped characters replaced by one plain character each."""
    found: list[str] = []
    position = 0
    while position < len(pattern):
        char = pattern[position]
        if char == "\\":
            following = pattern[position + 1 : position + 2]
            found.append(f"\\{following}" if following.isdigit() or following == "k" else "x")
            position += 2
        elif char == "[":
            position = _class_end(pattern, position + 1)
            found.append("x")
        else:
            found.append(char)
            position += 1
    return "".join(found)


def _class_end(pattern: str, position: int) -> int:
    if pattern[position : position + 1] == "^":
        position += 1
    if pattern[position : position + 1] == "]":
        position += 1
    while position < len(pattern) and pattern[position] != "]":
        position += 2 if pattern[position] == "\\" else 1
    return position + 1


def _nests(bare: str) -> bool:
    """Return whether a group that repeats something is repeated itself."""
    repeats = [False]
    position = 0
    while position < len(bare):
        char = bare[position]
        if char == "(":
            repeats.append(False)
        elif char == ")" and len(repeats) > 1:
            inner = repeats.pop()
            unbounded = _is_repeat(bare, position + 1)
            if inner and unbounded:
                return True
            repeats[-1] = repeats[-1] or inner or unbounded
        elif _is_repeat(bare, position):
            repeats[-1] = True
        position += 1
    return False


def _is_repeat(bare: str, position: int) -> bool:
    """Return whether a quantifier that repeats often or without end begins here."""
    found = re.compile(_QUANTIFIER).match(bare, position)
    if found is None:
        return False
    if found[0] in "*+":
        return True
    least, comma, most = found[1], found[2], found[3]
    if not least and not most:
        return False
    return bool(comma and not most) or int(most or least or 0) > _FEW


_TOKEN = r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+"
_TYPES = ("integer", "string", "boolean")
_DATA = ("default", "enum", "const", "examples", "required")
_HEADER_MAPS = ("properties", "$defs", "definitions", "patternProperties", "dependentSchemas")


def header_paths(schema: Mapping[str, JSON], name: str = "the input schema") -> dict[tuple[str, ...], str]:
    """Return the header name of each annotated property, by its path. Raises: RegistrationError for a misplaced one."""
    found: dict[tuple[str, ...], str] = {}
    if HEADER_KEYWORD not in repr(schema):  # as in nearly all; to search takes ten times as long
        return found
    try:
        _search(schema, (), True, found)
        names = [each.lower() for each in found.values()]
        for path, header in found.items():
            if names.count(header.lower()) > 1:
                where = ".".join(path)
                raise RegistrationError(f"{where}: another argument has the header {header!r} too; choose another name")
    except RegistrationError as problem:
        raise RegistrationError(f"{name}: {problem}") from None
    return found


def _search(schema: JSON, path: tuple[str, ...], reachable: bool, found: dict[tuple[str, ...], str]) -> None:
    if is_array(schema):
        for each in schema:
            _search(each, path, False, found)
        return
    if not is_object(schema):
        return
    if HEADER_KEYWORD in schema:
        found[path] = _checked(schema, path, reachable)
    for key, each in schema.items():
        if key in _DATA:
            continue
        if key in _HEADER_MAPS and is_object(each):
            for name, one in each.items():
                _search(one, (*path, name), reachable and key == "properties", found)
        else:
            _search(each, (*path, key), False, found)


def _checked(schema: Mapping[str, JSON], path: tuple[str, ...], reachable: bool) -> str:
    where = ".".join(path) or "the whole"
    name: JSON = schema[HEADER_KEYWORD]
    if not isinstance(name, str) or not re.fullmatch(_TOKEN, name):
        raise RegistrationError(f"{where}: {name!r} cannot be part of a header name; use letters, digits and '-'")
    if not reachable or not path:
        raise RegistrationError(
            f"{where}: only a plain argument or a field of a nested object can go into the header {name!r}, "
            "not one inside an array, a dictionary or a union"
        )
    if schema.get("type") not in _TYPES:
        raise RegistrationError(f"{where}: only a string, an integer or a boolean can go into the header {name!r}")
    return name
