"""Tool schemas of foreign servers, brought down to what a provider of models accepts, with every loss said.

One tool that a provider refuses takes all the others of the request with it: so a schema is made plain first, and of what
is left only what the provider is known to take goes out. The server checks the arguments all the same.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from typing import Final, Literal, TypeAlias

from linkspan.schema.plain_schemas import Losses, PlainSchemas, below, conjoined
from linkspan.schema.summary import properties_of
from linkspan.text import clip
from linkspan.types.base import JSON, JSONObject, is_array, is_object, json_type

Provider: TypeAlias = Literal["openai", "anthropic", "gemini"]
"""A wire format of models; "openai" also stands for all that speak its chat completions."""

NAMES: Final[Mapping[Provider, re.Pattern[str]]] = {
    "openai": re.compile(r".+", re.DOTALL),
    "anthropic": re.compile(r"[a-zA-Z0-9_.-]{1,64}"),
    "gemini": re.compile(r"[a-zA-Z_][a-zA-Z0-9_]{0,63}"),
}
"""What each provider takes as the name of a member of the arguments."""

_TITLES: Final[Mapping[Provider, str]] = {"openai": "OpenAI", "anthropic": "Anthropic", "gemini": "Gemini"}


def convert(schema: JSONObject, provider: Provider) -> tuple[JSONObject, list[str]]:
    """Return an input schema as the provider accepts it, and in plain words what it does not say any more.

    Takes whatever a server sends and never raises: at worst an object of which nothing is known comes out. Where nothing
    is lost, arguments that fit the result fit the original; each loss names its place, as `/filter/kind: oneOf became
    anyOf`. A required member whose name the provider refuses stays in; see `refused_names`.
    """
    losses = Losses()
    try:
        found = PlainSchemas(schema, losses).arguments()
        if provider == "gemini":
            found = _Gemini(losses).one(found, "")
        for holder, path, name in list(_refused(found, provider, "")):
            if name in holder.get("required", ()):
                words = f"{_TITLES[provider]} refuses this name, and it is required: leave the tool out"
            else:  # under another name no server would know it
                words = f"left out: {_TITLES[provider]} refuses this name"
                del holder["properties"][name]
                if provider == "gemini" and not holder["properties"]:
                    del holder["properties"]
            losses.report(below(path, name), words)
        return found, losses.listed()
    except RecursionError:
        return {"type": "object", "properties": {}}, ["the arguments: the schema is nested too deeply to be read"]


def refused_names(schema: JSONObject, provider: Provider) -> list[str]:
    """Return the places of names in a converted schema that the provider refuses: leave such a tool out."""
    return [below(path, name) for _, path, name in _refused(schema, provider, "")]


def _refused(schema: JSON, provider: Provider, path: str) -> Iterator[tuple[JSONObject, str, str]]:
    if not is_object(schema):
        return
    yield from ((schema, path, name) for name in schema.get("properties", ()) if not NAMES[provider].fullmatch(name))
    inner: list[tuple[str, JSON]] = [*properties_of(schema).items()]
    inner += [("*", schema[key]) for key in ("items", "additionalProperties") if key in schema]
    for key in ("anyOf", "oneOf", "prefixItems"):
        arms: JSON = schema.get(key)
        inner += [("", each) for each in arms] if is_array(arms) else []
    for step, each in inner:
        yield from _refused(each, provider, below(path, step) if step else path)


FORMATS: Final = {"string": ("date-time",), "number": ("float", "double"), "integer": ("int32", "int64")}
"""Formats that are taken, by type; others are refused by some models."""

_ANY = ("type", "description", "nullable")
KEYWORDS: Final = {
    "string": (*_ANY, "enum", "format"),
    "number": (*_ANY, "minimum", "maximum", "format"),
    "integer": (*_ANY, "minimum", "maximum", "format"),
    "boolean": _ANY,
    "array": (*_ANY, "items", "minItems", "maxItems"),
    "object": (*_ANY, "properties", "required"),
}
"""Keywords that are taken, by type."""

_ANYTHING: Final = ("string", "number", "boolean", "object")
_CHECKS: Final = {
    "string": ("pattern", "minLength", "maxLength"),
    "number": ("exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
    "integer": ("exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
    "array": ("uniqueItems", "contains", "prefixItems"),
    "object": ("minProperties", "maxProperties", "patternProperties", "propertyNames", "dependentRequired", "dependentSchemas"),
    "boolean": (),
}  # fmt: skip
_EXCLUSIVE: Final = (("exclusiveMinimum", "minimum", 1, max), ("exclusiveMaximum", "maximum", -1, min))
_DESCRIBING = ("title", "description", "default", "examples")
_SHOWN = (
    "pattern", "minLength", "maxLength", "multipleOf", "exclusiveMinimum", "exclusiveMaximum", "minProperties", "maxProperties",
)  # fmt: skip
_LONGEST_SHOWN = 200
_MOST = 4_000
_MOST_ARMS = 32


class _Gemini:
    """Writes a plain schema in Gemini's words."""

    def __init__(self, losses: Losses) -> None:
        self._losses = losses
        self._parts = 0

    def one(self, schema: Mapping[str, JSON], path: str) -> JSONObject:
        """Return a schema with one type, or a choice of such."""
        self._parts += 1
        if self._parts > _MOST:
            self._losses.report(path, "the schema is too large; from here on it is not described")
            kind: JSON = schema.get("type")
            return {"type": kind if kind in _ANYTHING else "string"}
        arms: list[tuple[str, Mapping[str, JSON]]] = []
        nullable = False
        for each in self._choices(schema, path):
            kinds = _kinds(each)
            if kinds == list(_ANYTHING):
                self._losses.report(path, "anything is allowed here; Gemini is offered all but arrays and null")
            nullable = nullable or "null" in kinds
            bare = {key: one for key, one in each.items() if key not in _DESCRIBING}
            others = [kind for kind in kinds if kind != "null"]
            arms += [(kind, bare if at else each) for at, kind in enumerate(others)]
        if not arms:
            self._losses.report(path, "only null is allowed here, which Gemini cannot express")
            arms = [("string", {})]
        if len(arms) > _MOST_ARMS:
            self._losses.report(path, f"only the first {_MOST_ARMS} choices are offered")
        found = [self._single(kind, each, path) for kind, each in arms[:_MOST_ARMS]]
        found = [each for at, each in enumerate(found) if each not in found[:at]]
        if nullable:
            found[0]["nullable"] = True
        return found[0] if len(found) == 1 else {"anyOf": found}

    def _choices(self, schema: Mapping[str, JSON], path: str) -> list[Mapping[str, JSON]]:
        """Put what stands beside a union into each of its arms: beside `anyOf`, Gemini takes nothing."""
        while "allOf" in schema:
            parts: list[JSON] = schema["allOf"]
            schema = {key: each for key, each in schema.items() if key != "allOf"}
            for each in parts:
                schema = conjoined(schema, each, lambda words: self._losses.report(path, words))
        rest = {key: each for key, each in schema.items() if key not in ("anyOf", "oneOf")}
        key = "anyOf" if "anyOf" in schema else "oneOf"
        if key not in schema:
            return [schema]
        if key == "oneOf":
            self._losses.report(path, "oneOf became anyOf")
        elif "oneOf" in schema:
            self._losses.report(path, "oneOf left out beside anyOf, the server still checks it")
        arms: list[Mapping[str, JSON]] = schema[key][:_MOST_ARMS]
        found: list[Mapping[str, JSON]] = []
        for arm in arms:
            joined = conjoined(arm, rest, lambda words: self._losses.report(path, words))
            if len(found) >= _MOST_ARMS:
                self._losses.report(path, f"only the first {_MOST_ARMS} choices are offered")
                break
            found += self._choices(joined, path)
        return found

    # One type.

    def _single(self, kind: str, schema: Mapping[str, JSON], path: str) -> JSONObject:
        notes: list[str] = []
        found: JSONObject = {"type": kind}
        self._values(kind, schema, path, found, notes)
        if kind == "object":
            self._members(schema, path, found, notes)
        elif kind == "array":
            fixed: list[JSON] = schema.get("prefixItems", [])
            most: JSON = schema.get("maxItems")
            kinds = [*fixed, *([schema.get("items", {})] if not fixed or most is None or most > len(fixed) else [])]
            found["items"] = self.one({"anyOf": kinds} if len(kinds) > 1 else kinds[0], below(path, "*"))
        elif kind in ("number", "integer"):
            for key, limit, step, tighter in _EXCLUSIVE:
                if key in schema:
                    edge: int | float = schema[key]
                    if kind == "integer":
                        edge = (math.floor(edge) if step > 0 else math.ceil(edge)) + step
                    found[limit] = tighter(edge, schema.get(limit, edge))
        for key in ("minimum", "maximum", "minItems", "maxItems"):
            if key in KEYWORDS[kind] and key in schema and key not in found:
                found[key] = schema[key]
        if schema.get("format") in FORMATS.get(kind, ()):
            found["format"] = schema["format"]
        self._checks(kind, schema, path, found, notes)
        text: str = schema.get("description") or schema.get("title") or ""
        notes += [f"default: {_shown(schema['default'])}"] if "default" in schema else []
        notes += [f"for example {_shown(schema['examples'])}"] if "examples" in schema else []
        described = f"{text} ({'; '.join(notes)})".strip() if notes else text
        return {**found, "description": described} if described else found

    def _values(self, kind: str, schema: Mapping[str, JSON], path: str, found: JSONObject, notes: list[str]) -> None:
        values = _values(schema)
        if not values:
            return
        texts = [each for each in values if isinstance(each, str) and each]
        if kind == "string" and texts:
            found["enum"] = list(dict.fromkeys(texts))
            if any(each == "" for each in values):
                self._losses.report(path, "the empty text left out of its values: Gemini does not accept it")
            return
        fitting = [each for each in values if kind in _kinds_of(each)]
        if fitting:
            notes.append(f"one of {_shown(fitting)}")
        self._losses.report(path, "its values moved into the description: Gemini takes an enum of texts only")

    def _members(self, schema: Mapping[str, JSON], path: str, found: JSONObject, notes: list[str]) -> None:
        named: Mapping[str, JSON] = schema.get("properties", {})
        other: JSON = schema.get("additionalProperties")
        members = {name: self.one(each, below(path, name)) for name, each in named.items()}
        required: list[str] = schema.get("required", [])
        for name in required:
            if name not in members:
                members[name] = self.one(other if is_object(other) else {}, below(path, name))
        if members:
            found["properties"] = members
        if required:
            found["required"] = required
        if is_object(other):
            notes.append(f"other members: {_shown(other)}")
            self._losses.report(
                path, "what other members look like moved into the description: Gemini takes named ones only"
            )

    def _checks(self, kind: str, schema: Mapping[str, JSON], path: str, found: JSONObject, notes: list[str]) -> None:
        """Record what Gemini does not check; the numbers and patterns among it in the description as well."""
        for key in (*_CHECKS[kind], "not", "if"):
            if key not in schema or (key.startswith("exclusive") and kind == "integer"):
                continue
            if key in _SHOWN:
                notes.append(f"{key}: {_shown(schema[key])}")
            if schema[key] is not False:
                self._losses.report(path, f"{key} dropped: Gemini does not accept it, the server still checks it")
        form: JSON = schema.get("format")
        if kind in FORMATS and form is not None and "format" not in found:
            notes.append(f"format: {_shown(form)}")


def _kinds(schema: Mapping[str, JSON]) -> list[str]:
    """Return the types that a schema lets through, told by its values where it names none."""
    declared: JSON = schema.get("type", [])
    kinds: list[str] = [declared] if isinstance(declared, str) else [*declared]
    values = _values(schema)
    present = dict.fromkeys(each for value in values for each in _kinds_of(value))
    if not kinds and values:
        kinds = list(dict.fromkeys(_kinds_of(each)[0] for each in values))
    kinds = [each for each in kinds if not values or each in present] or kinds
    if not kinds:
        reported = (kind for kind, keys in _TELLING.items() if any(key in schema for key in keys))
        kinds = [kind] if (kind := next(reported, None)) is not None else list(_ANYTHING)
    return [each for each in kinds if each != "integer" or "number" not in kinds]


def _values(schema: Mapping[str, JSON]) -> list[JSON]:
    return [schema["const"]] if "const" in schema else schema.get("enum", [])


_TELLING: Final = {
    "object": ("properties", "required", "additionalProperties"),
    "array": ("items", "prefixItems"),
    "string": ("pattern", "minLength", "maxLength"),
    "number": ("minimum", "maximum", "multipleOf", "exclusiveMinimum", "exclusiveMaximum"),
}


def _kinds_of(value: JSON) -> tuple[str, ...]:
    """Return the types that a value has, its own first: a whole number has both types of numbers."""
    kind = json_type(value)
    if kind == "integer":
        return ("integer", "number")
    return ("number", "integer") if kind == "number" and value.is_integer() else (kind,)


def _shown(value: JSON) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return clip(text, _LONGEST_SHOWN)
