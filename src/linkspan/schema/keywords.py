"""Keywords of a foreign schema, one by one: those of older drafts made new, and values as JSON Schema wants them."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Mapping
from math import isfinite
from typing import Final

from linkspan.schema.kinds import is_array, is_object
from linkspan.types.base import JSON, JSONObject

__all__ = ["LARGEST_SIZE", "READ", "TYPES", "modern", "names", "pattern", "settled", "size"]

TYPES: Final = ("string", "integer", "number", "boolean", "null", "array", "object")
LARGEST_SIZE: Final = 20_000
"""How much of values and texts a schema may hold, in the measure of `size`."""

_LONGEST_PATTERN = 1_000
_LARGEST: Final = 2**63 - 1


def modern(flat: JSONObject) -> JSONObject:
    """Write anew, in place, what drafts 3 to 7 spelt differently."""
    fixed: JSON = flat.get("items")
    if is_array(fixed):
        del flat["items"]
        flat |= {"prefixItems": fixed} if fixed else {}
        flat |= {"items": flat["additionalItems"]} if "additionalItems" in flat else {}
    for key, limit in (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")):
        if isinstance(flat.get(key), bool) and flat.pop(key) and limit in flat:
            flat[key] = flat.pop(limit)
    given: JSON = flat.pop("dependencies", None)
    for name, each in given.items() if is_object(given) else ():
        key = "dependentRequired" if is_array(each) else "dependentSchemas"
        known: JSON = flat.get(key)
        flat[key] = {**(known if is_object(known) else {}), name: each}
    return flat


def settled(found: JSONObject) -> JSONObject:
    """Say what providers want said: the items of each array; and a choice of values as an enum."""
    if found.get("additionalProperties") == {}:
        del found["additionalProperties"]
    fixed: list[JSON] = found.get("prefixItems") or []
    if not fixed:
        found.pop("prefixItems", None)
    if found.get("items") is False:
        found["items"] = {}
        found["maxItems"] = min(len(fixed), found.get("maxItems", len(fixed)))
    if "array" in found.get("type", ()) or fixed:
        found.setdefault("items", {})
    for key in ("anyOf", "oneOf"):
        if key in found and "enum" not in found:
            _as_enum(key, found)
    return found


def _as_enum(key: str, found: JSONObject) -> None:
    values: list[JSON] = []
    for arm in found[key]:
        if not arm.keys() <= {"const", "type"} or "const" not in arm:
            return
        if arm["const"] in values or _type_of(arm["const"]) not in arm.get("type", _type_of(arm["const"])):
            return
        values.append(arm["const"])
    del found[key]
    found["enum"] = values


def _type_of(value: JSON) -> str:
    match value:
        case bool():
            return "boolean"
        case str():
            return "string"
        case int():
            return "integer"
        case _:
            return "another"


# Values of keywords, as JSON Schema wants them; None for others.


def _text(value: JSON) -> JSON:
    return value if isinstance(value, str) else None


def _list(value: JSON) -> JSON:
    return value if is_array(value) and value else None


def _kinds(value: JSON) -> JSON:
    listed: list[JSON] = value if is_array(value) else [value]
    found = [each for each in TYPES if each in listed]
    if not found or not all(each in TYPES for each in listed):
        return None
    return found[0] if len(found) == 1 else found


def _number(value: JSON) -> JSON:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return value if -_LARGEST <= value <= _LARGEST or (isinstance(value, float) and isfinite(value)) else None


def _positive(value: JSON) -> JSON:
    found = _number(value)
    return found if found is not None and found > 0 else None


def _count(value: JSON) -> JSON:
    found = _number(value)
    return int(found) if found is not None and 0 <= found <= _LARGEST and found == int(found) else None


def _flag(value: JSON) -> JSON:
    return value if isinstance(value, bool) else None


def pattern(value: JSON) -> JSON:
    """Return a regular expression, None if it is none."""
    if not isinstance(value, str) or len(value) > _LONGEST_PATTERN:
        return None
    try:
        with warnings.catch_warnings(action="ignore"):
            re.compile(value)
    except (re.error, OverflowError, RecursionError):
        return None
    return value or None


def names(value: JSON) -> JSON:
    """Return the texts of a list of names, each once; None for what is no list."""
    return list(dict.fromkeys(each for each in value if isinstance(each, str))) if is_array(value) else None


def _names_each(value: JSON) -> JSON:
    if not is_object(value) or not all(map(is_array, value.values())):
        return None
    return {name: names(each) for name, each in value.items()}


READ: Final[Mapping[str, Callable[[JSON], JSON]]] = {
    "title": _text,
    "description": _text,
    "format": _text,
    "examples": _list,
    "enum": _list,
    "type": _kinds,
    "minimum": _number,
    "maximum": _number,
    "exclusiveMinimum": _number,
    "exclusiveMaximum": _number,
    "multipleOf": _positive,
    "pattern": pattern,
    "uniqueItems": _flag,
    "required": names,
    "dependentRequired": _names_each,
    **dict.fromkeys(
        (
            "minLength",
            "maxLength",
            "minItems",
            "maxItems",
            "minProperties",
            "maxProperties",
            "minContains",
            "maxContains",
        ),
        _count,
    ),
}
"""Returns the value of a keyword, or None if it is not what JSON Schema wants there."""


def size(value: JSON) -> int:
    """Return about how much a value takes: texts by length, the rest by count."""
    found = 0
    waiting: list[JSON] = [value]
    while waiting and found <= LARGEST_SIZE:
        each = waiting.pop()
        found += 1 + (len(each) // 10 if isinstance(each, str) else 0)
        if is_array(each):
            waiting += each
        elif is_object(each):
            waiting += [*each, *each.values()]
    return found
