"""A foreign schema in plain words: no references, no `allOf`, every keyword well-formed, old spellings made new.

What comes out is JSON Schema 2020-12 that no validator refuses, of bounded depth and size; what it no longer says is
listed. Nothing is ever fetched.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Mapping
from math import isfinite
from typing import Final, TypeAlias
from urllib.parse import unquote

import msgspec

from linkspan.schema.document import Targets
from linkspan.schema.problems import TYPE_WORDS, quote
from linkspan.schema.summary import local_target, properties_of
from linkspan.types.base import JSON, JSONObject, is_array, is_number, is_object, json_type

_DEEPEST = 24
_MOST = 2_000
_REPEATS = 2
_EXACT = ("not", "propertyNames", "contains", "dependentSchemas", "patternProperties", "if")
_EXACT_MAPS = ("dependentSchemas", "patternProperties")
_PARTS = ("properties", "anyOf", "oneOf", "prefixItems", "items", "additionalProperties")
_ANY_VALUE = ("default", "const")
_NOT_SAID = ("$dynamicRef", "$recursiveRef", "unevaluatedProperties", "unevaluatedItems")


class _SchemaPlace(msgspec.Struct, frozen=True):
    """A part of the document: where errors place it, how deep it is, and which references led there."""

    path: str = ""
    depth: int = 0
    opened: tuple[str, ...] = ()

    def inner(self, step: str | None = None) -> _SchemaPlace:
        """Return the place of a part; None for one that describes the same value."""
        return _SchemaPlace(self.path if step is None else below(self.path, step), self.depth + 1, self.opened)


class PlainSchemas:
    """One conversion of one document."""

    def __init__(self, document: JSON, losses: Losses) -> None:
        self._document = document
        self._losses = losses
        self._parts = 0
        self._size = 0
        self._targets = Targets(document if is_object(document) else {})

    def arguments(self) -> JSONObject:
        """Return the document as the schema of an object, without a union at its root."""
        flat, opened = self._object(self._document, (), 0)
        for key in ("enum", "const", "not"):
            if flat.pop(key, None) is not None:
                self._losses.report("", f"{key} left out: no provider takes it for all arguments together")
        kinds: JSON = flat.get("type", "object")
        if kinds != "object" and not (is_array(kinds) and "object" in kinds):
            self._losses.report("", "the type is not object; arguments always are one")
        found = self._keywords({**flat, "type": "object"}, _SchemaPlace(opened=opened))
        return {"type": "object", "properties": {}, **found}

    # Unions at the root.

    def _object(self, schema: JSON, opened: tuple[str, ...], depth: int) -> tuple[JSONObject, tuple[str, ...]]:
        """Return a schema of an object with the arms of its unions joined into it."""
        if not is_object(schema):
            return {}, opened
        flat, opened = self._flat(schema, "", opened)
        for key in ("anyOf", "oneOf"):
            arms: JSON = flat.pop(key, None)
            if arms is None or not is_array(arms):
                continue
            joined: list[JSONObject] = []
            for each in arms if depth < _REPEATS else []:
                if self._is_full:
                    break
                arm, opened = self._object(each, opened, depth + 1)
                joined.append(arm)
            flat = _joined(flat, joined)
            self._losses.report("", f"{key} became one object: the server still checks which arguments go together")
        return flat, opened

    # Schemas.

    @property
    def _is_full(self) -> bool:
        return self._parts > _MOST or self._size > LARGEST_SIZE

    def _one(self, schema: JSON, place: _SchemaPlace) -> JSONObject:
        """Return a schema as a plain one."""
        if schema is True:
            return {}
        if not is_object(schema):
            what = "nothing is allowed here" if schema is False else "this is not a schema"
            self._losses.report(place.path, f"{what}; anything is offered, and the server checks it")
            return {}
        self._parts += 1
        if place.depth > _DEEPEST or self._is_full:
            self._losses.report(place.path, "the schema is too large or too deep; from here on anything is offered")
            return {}
        flat, opened = self._flat(schema, place.path, place.opened)
        return self._keywords(flat, msgspec.structs.replace(place, opened=opened))

    def _flat(
        self, schema: Mapping[str, JSON], path: str, opened: tuple[str, ...]
    ) -> tuple[JSONObject, tuple[str, ...]]:
        """Put what `$ref` and `allOf` say into the schema itself."""
        self._parts += 1
        flat = modern({key: each for key, each in schema.items() if key not in ("$ref", "allOf")})
        parts: list[JSON] = []
        if "$ref" in schema:
            target, opened = self._referred(schema["$ref"], path, opened)
            parts.append(target)
        every: JSON = schema.get("allOf", [])
        if is_array(every):
            parts += every
        else:
            self._malformed(path, "allOf")
        for part in parts:
            if part is True or self._is_full:
                continue
            if not is_object(part):
                self._malformed(path, "allOf")
                continue
            inner, opened = self._flat(part, path, opened)
            flat = conjoined(flat, inner, lambda words: self._losses.report(path, words))
        return flat, opened

    def _referred(self, reference: JSON, path: str, opened: tuple[str, ...]) -> tuple[JSON, tuple[str, ...]]:
        target = self._targets.find(reference)
        if target is None and isinstance(reference, str):
            target = local_target(unquote(reference), self._document)
        if not isinstance(reference, str) or target is None:
            self._losses.report(path, "its $ref does not resolve within the schema; anything is offered")
            return True, opened
        if opened.count(reference) > _REPEATS:
            self._losses.report(path, "the schema contains itself; from here on its members are not described")
            kind: JSON = target.get("type") if is_object(target) else None
            return ({"type": kind} if kind in TYPES else True), opened
        return target, (*opened, reference)

    # Keywords. Those that no table here knows say nothing about a value, and are dropped silently.

    def _keywords(self, flat: Mapping[str, JSON], place: _SchemaPlace) -> JSONObject:
        found: JSONObject = {}
        for key in sorted(flat, key=lambda each: each == "oneOf"):
            value: JSON = flat[key]
            if value is None and key not in _ANY_VALUE:
                continue
            if key in READ:
                value = READ[key](value)
                if value is None and key not in _ANY_VALUE:
                    self._malformed(place.path, key)
                    continue
                self._size += size(value)
                if self._is_full:
                    self._losses.report(place.path, f"{key} left out: the schema is too large")
                else:
                    found[key] = value
            elif key in _NOT_SAID:
                self._losses.report(place.path, f"{key} left out, the server still checks it")
            elif key in _EXACT:
                self._exactly(key, flat, place, found)
            elif key in _PARTS:
                self._parts_of(key, value, place, found)
        return settled(found)

    def _parts_of(self, key: str, value: JSON, place: _SchemaPlace, found: JSONObject) -> None:
        if key == "properties" and is_object(value):
            found[key] = dict[str, JSON]()
            for name, each in value.items():
                if self._is_full:
                    self._losses.report(place.path, "the schema is too large; the rest of the members is left out")
                    break
                found[key][name] = self._one(each, place.inner(name))
        elif key in ("anyOf", "oneOf") and is_array(value):
            since = len(self._losses)
            arms = [self._one(each, place.inner()) for each in value if each is not False]
            if not arms:
                self._malformed(place.path, key)
            elif key == "anyOf" or len(self._losses) == since:
                found[key] = arms
            elif "anyOf" in found:
                self._losses.report(place.path, "oneOf left out beside anyOf, the server still checks it")
            else:  # a value may fit two arms that grew wider
                found["anyOf"] = arms
                self._losses.report(place.path, "oneOf became anyOf")
        elif key == "prefixItems" and is_array(value):
            found[key] = [self._one(each, place.inner(str(at))) for at, each in enumerate(value)]
        elif key in ("items", "additionalProperties"):
            found[key] = self._one(value, place.inner("*")) if value is not False else False
        else:
            self._malformed(place.path, key)

    def _exactly(self, key: str, flat: Mapping[str, JSON], place: _SchemaPlace, found: JSONObject) -> None:
        """Keep conditions and negations only if nothing of them is lost: what grows wider within may narrow without."""
        since = len(self._losses)
        group = ("if", "then", "else") if key == "if" else (key,)
        read: JSONObject = {}
        for each, value in ((each, flat[each]) for each in group if each in flat):
            if each not in _EXACT_MAPS:
                read[each] = self._one(value, place.inner())
                continue
            members: Mapping[str, JSON] = value if is_object(value) else {}
            if not is_object(value) or (each == "patternProperties" and not all(map(pattern, members))):
                self._malformed(place.path, each)
            read[each] = {name: self._one(inner, place.inner()) for name, inner in members.items()}
        if len(self._losses) == since:
            found.update(read)
            return
        self._losses.forget(since)
        self._losses.report(place.path, f"{key} left out, the server still checks it")

    def _malformed(self, path: str, key: str) -> None:
        self._losses.report(path, f"{key} left out: its value is not valid JSON Schema")


def _joined(base: JSONObject, arms: list[JSONObject]) -> JSONObject:
    """Return one schema of an object that offers what any arm offers, and requires what all of them require."""
    if not arms:
        return base
    members = dict(properties_of(base))
    for name in dict.fromkeys(each for arm in arms for each in properties_of(arm)):
        offered: list[JSON] = []
        for arm in arms:
            each = properties_of(arm).get(name, False)
            offered += [each] if each is not False and each not in offered else []
        either: JSON = offered[0] if len(offered) == 1 else {"anyOf": offered}
        if offered and name not in members:
            members[name] = either
        elif offered and all(name in properties_of(arm) for arm in arms):
            members[name] = {"allOf": [members[name], either]}
    common = [name for name in _required(arms[0]) if all(name in _required(arm) for arm in arms)]
    found = {**base, "properties": members, "required": [*_required(base), *common]}
    if "additionalProperties" not in base and all(arm.get("additionalProperties") is False for arm in arms):
        found["additionalProperties"] = False
    return found


def _required(schema: Mapping[str, JSON]) -> list[str]:
    return names(schema.get("required")) or []


_Report: TypeAlias = Callable[[str], None]

_MOST_COMPARED = 250_000
_LARGER = ("minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties")
_SMALLER = ("maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties")
_MAPS = ("properties", "patternProperties", "dependentSchemas")
_ONES = ("items", "propertyNames", "additionalProperties")
_FIRST_SAID = ("title", "default", "examples", "format")
_TOGETHER = (("if", "then", "else"), ("contains", "minContains", "maxContains"), ("prefixItems", "items"))


def conjoined(first: Mapping[str, JSON], second: Mapping[str, JSON], report: _Report) -> JSONObject:
    """Return one schema for both; members that both describe become an `allOf` of their own.

    `report` receives what one schema cannot express: it is then wider than the two.
    """
    for one, other in ((first, second), (second, first)):
        if one.get("additionalProperties", True) in (True, {}):
            continue
        unnamed = set(properties_of(other)) - set(properties_of(one))
        if unnamed or "patternProperties" in other:  # meant as a sum, and taken as one
            report("one part of an allOf allows no members that another part names; all of them are offered")
            break
    left_out: list[str] = []
    for group in _TOGETHER:
        mine = {key: first[key] for key in group if key in first}
        theirs = {key: second[key] for key in group if key in second}
        if mine and theirs and mine != theirs and not mine.keys() == theirs.keys() == {"items"}:
            left_out += group
            report(f"only the first {group[0]} of an allOf is kept; the server still checks the others")
    found = dict(first)
    for key, value in second.items():
        if key in left_out:
            continue
        if key not in found:
            found[key] = value
        elif found[key] != value or type(found[key]) is not type(value):
            found[key] = _both(key, found[key], value, report)
    return found


def is_among(value: JSON, values: list[JSON]) -> bool:
    """Return whether a JSON value is one of some; true is not 1."""
    return any(value == each and isinstance(value, bool) == isinstance(each, bool) for each in values)


def _both(key: str, mine: JSON, theirs: JSON, report: _Report) -> JSON:
    if key in _FIRST_SAID:
        return mine
    if key == "description":
        return f"{mine} {theirs}" if isinstance(mine, str) and isinstance(theirs, str) else mine
    if key in _MAPS and is_object(mine) and is_object(theirs):
        shared = {name for name in mine.keys() & theirs.keys() if mine[name] != theirs[name]}
        return {**mine, **theirs, **{name: {"allOf": [mine[name], theirs[name]]} for name in shared}}
    if key == "required" and is_array(mine) and is_array(theirs):
        return list(dict.fromkeys(each for each in (*mine, *theirs) if isinstance(each, str)))
    if key == "type":
        return _types(mine, theirs, report)
    if key == "enum" and is_array(mine) and is_array(theirs) and len(mine) * len(theirs) <= _MOST_COMPARED:
        return [each for each in mine if is_among(each, theirs)] or _given_up(key, mine, report)
    if key in (*_LARGER, *_SMALLER) and is_number(mine) and is_number(theirs):
        return max(mine, theirs) if key in _LARGER else min(mine, theirs)
    if key == "uniqueItems":
        return mine is True or theirs is True
    if key == "additionalProperties" and (mine is False or theirs is False):
        return False
    if key in _ONES:
        return {"allOf": [mine, theirs]}
    return _given_up(key, mine, report)


def _types(mine: JSON, theirs: JSON, report: _Report) -> JSON:
    ours: list[JSON] = mine if is_array(mine) else [mine]
    others: list[JSON] = theirs if is_array(theirs) else [theirs]
    found = [each for each in ours if each in others or (each == "integer" and "number" in others)]
    if "number" in ours and "number" not in found and "integer" in others and "integer" not in found:
        found.append("integer")
    if not found:
        return _given_up("type", mine, report)
    return found[0] if len(found) == 1 else found


def _given_up(key: str, mine: JSON, report: _Report) -> JSON:
    report(f"only the first {key} of an allOf is kept; the server still checks the others")
    return mine


TYPES: Final = tuple(TYPE_WORDS)
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
    """Write what providers require: the items of each array; and a choice of values as an enum."""
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
        arms: list[JSONObject] = found.get(key) or []
        values: list[JSON] = [arm["const"] for arm in arms if arm.keys() <= {"const", "type"} and "const" in arm]
        kinds = [(json_type(arm.get("const")), arm.get("type")) for arm in arms]
        if not arms or len(values) < len(arms) or "enum" in found:
            continue
        if all(type is None or kind in type for kind, type in kinds) and not any(
            each in values[:at] for at, each in enumerate(values)
        ):
            del found[key]
            found["enum"] = values
    return found


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
    if not is_number(value):
        return None
    return value if -_LARGEST <= value <= _LARGEST or (isinstance(value, float) and isfinite(value)) else None


def _count(value: JSON) -> JSON:
    found = _number(value)
    return int(found) if found is not None and 0 <= found <= _LARGEST and found == int(found) else None


def pattern(value: JSON) -> JSON:
    """Return a valid regular expression, else None."""
    if not isinstance(value, str) or len(value) > _LONGEST_PATTERN:
        return None
    try:
        with warnings.catch_warnings(action="ignore"):
            re.compile(value)
    except (re.error, OverflowError, RecursionError):
        return None
    return value or None


def names(value: JSON) -> JSON:
    """Return the texts of a list of names, each once; None for other values."""
    return list(dict.fromkeys(each for each in value if isinstance(each, str))) if is_array(value) else None


def _names_each(value: JSON) -> JSON:
    if not is_object(value) or not all(map(is_array, value.values())):
        return None
    return {name: names(each) for name, each in value.items()}


_COUNTED = (
    "minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties", "minContains", "maxContains",
)  # fmt: skip
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
    "multipleOf": lambda value: found if (found := _number(value)) is not None and found > 0 else None,
    "pattern": pattern,
    "uniqueItems": lambda value: value if isinstance(value, bool) else None,
    "required": names,
    "dependentRequired": _names_each,
    **dict.fromkeys(_COUNTED, _count),
    **dict.fromkeys(_ANY_VALUE, lambda value: value),
}
"""Returns the value of a keyword, or None if its value is not valid JSON Schema."""


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


_MOST_LOSSES = 50
_PLAIN = re.compile(r"[\w.$@-]{1,64}")


class Losses:
    """The sentences so far. A part that is given up as a whole takes back what was said about its own parts."""

    __slots__ = ("_reported",)

    def __init__(self) -> None:
        self._reported: list[str] = []

    def __len__(self) -> int:
        return len(self._reported)

    def report(self, path: str, words: str) -> None:
        """Write down what is lost at a place (`/filter/kind`; empty for the arguments as a whole)."""
        self._reported.append(f"{path or 'the arguments'}: {words}")

    def forget(self, since: int) -> None:
        """Take back what was said since there were so many."""
        del self._reported[since:]

    def listed(self) -> list[str]:
        """Return the sentences, each once, and of a great many only the first."""
        reported = list(dict.fromkeys(self._reported))
        more = len(reported) - _MOST_LOSSES
        return [*reported[:_MOST_LOSSES], f"and {more} more"] if more > 0 else reported


def below(path: str, step: str) -> str:
    """Return the place of a member, or of the items (`*`), of what `path` names."""
    return f"{path}/{step if _PLAIN.fullmatch(step) or step == '*' else quote(step)}"
