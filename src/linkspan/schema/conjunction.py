"""Two schemas that must both hold, as one: what `allOf` says, without `allOf`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

from linkspan.schema.kinds import is_array, is_object
from linkspan.types.base import JSON, JSONObject

__all__ = ["conjoined", "is_among"]

_Tell: TypeAlias = Callable[[str], None]

_MOST_COMPARED = 250_000
_LARGER = ("minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties")
_SMALLER = ("maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties")
_MAPS = ("properties", "patternProperties", "dependentSchemas")
_ONES = ("items", "propertyNames", "additionalProperties")
_FIRST_SAID = ("title", "default", "examples", "format")
_TOGETHER = (("if", "then", "else"), ("contains", "minContains", "maxContains"), ("prefixItems", "items"))


def conjoined(first: Mapping[str, JSON], second: Mapping[str, JSON], tell: _Tell) -> JSONObject:
    """Return one schema for both; members that both describe become an `allOf` of their own.

    `tell` hears of what cannot be said in one schema: it is then wider than the two.
    """
    found = dict(first)
    _tell_of_closed(first, second, tell)
    left_out = _left_out(first, second, tell)
    for key, theirs in second.items():
        if key in left_out:
            continue
        if key not in found:
            found[key] = theirs
        elif found[key] != theirs or type(found[key]) is not type(theirs):
            found[key] = _both(key, found[key], theirs, tell)
    return found


def is_among(value: JSON, values: list[JSON]) -> bool:
    """Tell whether a JSON value is one of some; true is not 1."""
    return any(value == each and isinstance(value, bool) == isinstance(each, bool) for each in values)


def _tell_of_closed(first: Mapping[str, JSON], second: Mapping[str, JSON], tell: _Tell) -> None:
    """A closed schema shuts out what only the other names; such a pair is meant as a sum, and taken as one."""
    for one, other in ((first, second), (second, first)):
        mine: JSON = one.get("properties")
        theirs: JSON = other.get("properties")
        if one.get("additionalProperties", True) in (True, {}):
            continue
        named: set[str] = set(theirs) if is_object(theirs) else set()
        if named - set(mine if is_object(mine) else ()) or "patternProperties" in other:
            tell("one part of an allOf allows no members that another part names; all of them are offered")
            return


def _left_out(first: Mapping[str, JSON], second: Mapping[str, JSON], tell: _Tell) -> list[str]:
    """Keywords that mean something only together are not mixed from two schemas."""
    found: list[str] = []
    for group in _TOGETHER:
        mine = {key: first[key] for key in group if key in first}
        theirs = {key: second[key] for key in group if key in second}
        if not mine or not theirs or mine == theirs or mine.keys() == theirs.keys() == {"items"}:
            continue
        found += group
        tell(f"only the first {group[0]} of an allOf is said; the server still checks the others")
    return found


def _both(key: str, mine: JSON, theirs: JSON, tell: _Tell) -> JSON:
    if key in _FIRST_SAID:
        return mine
    if key == "description":
        return f"{mine} {theirs}" if isinstance(mine, str) and isinstance(theirs, str) else mine
    if key in _MAPS and is_object(mine) and is_object(theirs):
        return _members(mine, theirs)
    if key == "required" and is_array(mine) and is_array(theirs):
        return list(dict.fromkeys(each for each in (*mine, *theirs) if isinstance(each, str)))
    if key == "type":
        return _types(mine, theirs, tell)
    if key == "enum" and is_array(mine) and is_array(theirs) and len(mine) * len(theirs) <= _MOST_COMPARED:
        return [each for each in mine if is_among(each, theirs)] or _given_up(key, mine, tell)
    if key in (*_LARGER, *_SMALLER) and _is_number(mine) and _is_number(theirs):
        return max(mine, theirs) if key in _LARGER else min(mine, theirs)
    if key == "uniqueItems":
        return mine is True or theirs is True
    if key == "additionalProperties" and (mine is False or theirs is False):
        return False
    if key in _ONES:
        return {"allOf": [mine, theirs]}
    return _given_up(key, mine, tell)


def _members(mine: Mapping[str, JSON], theirs: Mapping[str, JSON]) -> JSONObject:
    found = {**mine, **theirs}
    for name in mine.keys() & theirs.keys():
        found[name] = mine[name] if mine[name] == theirs[name] else {"allOf": [mine[name], theirs[name]]}
    return found


def _types(mine: JSON, theirs: JSON, tell: _Tell) -> JSON:
    ours: list[JSON] = mine if is_array(mine) else [mine]
    others: list[JSON] = theirs if is_array(theirs) else [theirs]
    found = [each for each in ours if each in others or (each == "integer" and "number" in others)]
    if "number" in ours and "number" not in found and "integer" in others and "integer" not in found:
        found.append("integer")
    if not found:
        return _given_up("type", mine, tell)
    return found[0] if len(found) == 1 else found


def _is_number(value: JSON) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _given_up(key: str, mine: JSON, tell: _Tell) -> JSON:
    tell(f"only the first {key} of an allOf is said; the server still checks the others")
    return mine
