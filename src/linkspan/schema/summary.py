"""JSON Schemas in a few words, for people who want to call something, at a terminal or in a browser. Never a validator."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Final, Generic, TypeVar

from linkspan.text import clip
from linkspan.types.base import JSON, JSONObject, is_array, is_mapping, is_object, json_type

T = TypeVar("T")
_DEEP: Final = 6
"""Levels that are described, and references in a row that are followed."""
_MANY: Final = 12
"""Alternatives, or properties, that are named."""
_LONGEST: Final = 500
"""Characters of alternatives: those of alternatives multiply."""
_EVERY_TYPE: Final = frozenset({"string", "integer", "number", "boolean", "array", "object", "null"})


def properties_of(schema: JSON) -> Mapping[str, JSON]:
    """Return the properties of an object schema, by name."""
    found: JSON = schema.get("properties") if is_object(schema) else None
    return found if is_object(found) else {}


def required_of(schema: JSON) -> list[str]:
    """Return the names of the properties that must be there."""
    found: JSON = schema.get("required") if is_object(schema) else None
    return [each for each in found if isinstance(each, str)] if is_array(found) else []


def resolve(schema: JSON, root: JSON) -> JSON:
    """Follow `$ref` as far as it leads within the same document."""
    for _ in range(_DEEP):
        reference: JSON = schema.get("$ref") if is_mapping(schema) else None
        if not isinstance(reference, str) or not reference.startswith("#"):
            return schema
        schema = local_target(reference, root)
    return schema


def local_target(reference: JSON, root: JSON) -> JSON:
    """Return what a reference inside the document (`#/$defs/Node`) points at, or None."""
    if not isinstance(reference, str) or not (reference == "#" or reference.startswith("#/")):
        return None
    found = root
    for step in reference[1:].split("/")[1:]:
        name = _unescaped(step)
        if is_mapping(found):
            members: Mapping[str, JSON] = found
            found = members.get(name)
        elif is_array(found) and re.fullmatch(r"[0-9]{1,9}", name) and int(name) < len(found):
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


def types_of(schema: JSON, root: JSON) -> frozenset[str]:
    """Return the JSON types that a value may have, as far as the schema says it plainly."""
    return _Descriptions(root, _types, _EVERY_TYPE).describe(schema, 0)


def type_words(schema: JSON, root: JSON) -> str:
    """Return what a value may be: `integer`, `array of string (date)`, `"CZK" | "USD"`."""
    return _Descriptions(root, _words, "any").describe(schema, 0)


class _Descriptions(Generic[T]):
    """Descriptions of the parts of one document. A part to which several references lead is described once for each level."""

    def __init__(self, root: JSON, of: Callable[[JSONObject, Callable[[JSON], T]], T], unknown: T) -> None:
        self._root = root
        self._of = of
        self._unknown = unknown
        self._known: dict[tuple[int, int], tuple[JSON, T]] = {}
        """By the id of the part, which is kept, and the level."""

    def describe(self, schema: JSON, deep: int) -> T:
        schema = resolve(schema, self._root)
        if not is_object(schema) or deep > _DEEP:
            return self._unknown
        found = self._known.get((id(schema), deep))
        if found is None:
            found = schema, self._of(schema, lambda part: self.describe(part, deep + 1))
            self._known[id(schema), deep] = found
        return found[1]


def _types(schema: JSONObject, inner: Callable[[JSON], frozenset[str]]) -> frozenset[str]:
    if "const" in schema or is_array(schema.get("enum")):
        return frozenset(json_type(each) for each in schema.get("enum", [schema.get("const")]))
    named: JSON = schema.get("type")
    if isinstance(named, str):
        return frozenset({named})
    if is_array(named):
        return frozenset(each for each in named if isinstance(each, str))
    for word in ("anyOf", "oneOf"):
        if is_array(schema.get(word)):
            return frozenset[str]().union(*map(inner, schema[word]))
    if "properties" in schema:
        return frozenset({"object"})
    return _EVERY_TYPE


def _words(schema: JSONObject, inner: Callable[[JSON], str]) -> str:
    if is_array(schema.get("enum")):
        return _alternatives(map(_as_json, schema["enum"]))
    if "const" in schema:
        return _as_json(schema["const"])
    for word in ("anyOf", "oneOf"):
        if is_array(schema.get(word)):
            return _alternatives(map(inner, schema[word]))
    named: JSON = schema.get("type")
    if is_array(named):
        return _alternatives(inner({**schema, "type": each}) for each in named[: _MANY + 1])
    if named == "array":
        items = inner(schema.get("items"))
        several = f"({items})" if " | " in items else items
        return "array" if items == "any" else f"array of {several}"
    if named == "object" or (named is None and "properties" in schema):
        return _object_words(schema)
    if isinstance(named, str):
        return f"{named} ({schema['format']})" if isinstance(schema.get("format"), str) else named
    return "any"


def _object_words(schema: Mapping[str, JSON]) -> str:
    names = list(properties_of(schema))
    if not names:
        return "object"
    needed = set(required_of(schema))
    words = [each if each in needed else f"{each}?" for each in names[:_MANY]]
    return f"{{{', '.join(words)}{', ...' if len(names) > _MANY else ''}}}"


def _alternatives(words: Iterable[str]) -> str:
    several = list(dict.fromkeys(words))
    return clip(" | ".join([*several[:_MANY], *(["..."] if len(several) > _MANY else [])]) or "any", _LONGEST, "...")


def default_words(schema: JSON) -> str:
    """Return ` = 6`, or nothing."""
    return f" = {_as_json(schema['default'])}" if is_object(schema) and "default" in schema else ""


def _as_json(value: JSON) -> str:
    from json import dumps

    return dumps(value, ensure_ascii=False)


def size_words(schema: JSON) -> str:
    """Return the bounds of a value: `1..1000`, `at least 2 items`; or nothing."""
    if not is_object(schema):
        return ""
    bounds = (
        _between(schema.get("minimum"), schema.get("maximum"), ""),
        _between(schema.get("exclusiveMinimum"), schema.get("exclusiveMaximum"), "", "above", "below"),
        _between(schema.get("minLength"), schema.get("maxLength"), " characters"),
        _between(schema.get("minItems"), schema.get("maxItems"), " items"),
    )
    return ", ".join(each for each in bounds if each)


def _between(least: JSON, most: JSON, unit: str, low: str = "at least", high: str = "at most") -> str:
    if least is not None and most is not None and low == "at least":
        return f"{least}..{most}{unit}"
    words = [f"{low} {least}{unit}" if least is not None else "", f"{high} {most}{unit}" if most is not None else ""]
    return ", ".join(each for each in words if each)
