"""Schemas of OpenAPI documents as plain JSON Schema: what a model needs of them, and nothing that a reader might fetch or run.

Law: keywords are copied from a list, so `$id`, `$schema` and anchors of a document go nowhere. A `$ref` is a pointer into the
document; what repeats or contains itself becomes a member of `$defs`. Nodes, depth and texts are bounded.
Spec: https://spec.openapis.org/oas/v3.1.1.html#schema-object and, for 3.0, https://spec.openapis.org/oas/v3.0.4.html#schema-object.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final, Literal
from urllib.parse import unquote

from linkspan.schema.document import why_not_linear
from linkspan.text import clip
from linkspan.types.base import JSON, JSONObject, is_array, is_object

__all__ = ["MAX_DESCRIPTION", "ApiDocumentError", "SchemaReader", "UnreadableOperation", "find", "plain_text"]

MAX_DEPTH: Final = 60
"""Levels of the schemas of an operation, those behind references included."""
MAX_NODES: Final = 20_000
"""Schemas that one operation may have, those below it included."""
MAX_ENUM: Final = 200
MAX_PATTERN: Final = 500
MAX_DEFS: Final = 1_000
"""Schemas behind references that one operation may have."""
MAX_REFS: Final = 32
"""References that may lead to each other before there is something else."""
MAX_TEXT: Final = 300
"""Characters of the description of an argument."""
MAX_DESCRIPTION: Final = 1_200
"""Characters of the description of a tool."""

_INVISIBLE: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\U000e0000-\U000e0fff\ud800-\udfff]"
)
"""Controls, marks of direction, and letters that are not shown: a model would read what a person does not."""
_LINK: Final = re.compile(r"!?\[([^\[\]\n]{0,200})\]\([^()\s]{0,500}\)")
_MARKUP: Final = re.compile(r"</?[A-Za-z][^<>\n]{0,200}>")
_UNSAFE_NAMES: Final = frozenset({"__proto__", "constructor", "prototype"})
_KEPT: Final = (
    "type", "enum", "const", "default", "format", "pattern", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum",
    "multipleOf", "minLength", "maxLength", "minItems", "maxItems", "uniqueItems", "minProperties", "maxProperties",
    "contentEncoding", "contentMediaType",
)  # fmt: skip
_TYPES: Final = frozenset({"string", "number", "integer", "boolean", "array", "object", "null"})
_NUMBERS: Final = frozenset(
    {
        "minimum",
        "maximum",
        "multipleOf",
        "minLength",
        "maxLength",
        "minItems",
        "maxItems",
        "minProperties",
        "maxProperties",
    }
)
_LISTS: Final = ("oneOf", "anyOf", "allOf", "prefixItems")
_SINGLE: Final = ("not", "if", "then", "else", "contains", "propertyNames", "unevaluatedItems")

Direction = Literal["request", "response"]


class ApiDocumentError(ValueError):
    """A document cannot be read; the message has what is wrong, and where."""


class UnreadableOperation(ApiDocumentError):
    """One operation cannot be offered; the message has the reason."""


def plain_text(text: object, longest: int) -> str:
    """Return a text of a document as people see it: without invisible characters, targets of links and tags, and cut."""
    if not isinstance(text, str):
        return ""
    found = _INVISIBLE.sub("", _MARKUP.sub("", _LINK.sub(r"\1", text[: 8 * longest])))
    return clip(re.sub(r"\n\s*\n\s*", "\n", re.sub(r"[ \t]+", " ", found)).strip(), longest)


def find(document: JSON, pointer: str) -> JSON:
    """Return what a local reference such as `#/components/schemas/Pet` points to. Raises: UnreadableOperation."""
    if not pointer.startswith("#"):
        raise UnreadableOperation(
            f"$ref {clip(pointer, 80)!r} leads out of the document, and nothing is fetched: bundle it first"
        )
    found = document
    for part in unquote(pointer[1:]).split("/")[1:]:
        key = part.replace("~1", "/").replace("~0", "~")
        if is_object(found) and key in found:
            found = found[key]
        elif is_array(found) and key.isascii() and key.isdigit() and int(key[:9]) < len(found):
            found = found[int(key[:9])]
        else:
            raise UnreadableOperation(f"$ref {clip(pointer, 80)!r} points to a place that the document does not have")
    return found


class SchemaReader:
    """Reads the schemas of one operation. `defs` is what they share."""

    def __init__(self, document: JSONObject, direction: Direction, *, is_3_0: bool) -> None:
        """Take the whole document, into which references point."""
        self._document = document
        self._is_3_0 = is_3_0
        self._hidden = "readOnly" if direction == "request" else "writeOnly"
        self._names: dict[str, str] = {}
        self._nodes = 0
        self.defs: JSONObject = {}

    def read(self, schema: JSON, depth: int = 0) -> JSON:
        """Return a schema in the plain form, with references into `defs`. Raises: UnreadableOperation."""
        self._nodes += 1
        if self._nodes > MAX_NODES:
            raise UnreadableOperation(f"its schemas have more than {MAX_NODES} parts")
        if depth > MAX_DEPTH:
            raise UnreadableOperation(f"a schema is more than {MAX_DEPTH} levels deep")
        if isinstance(schema, bool):
            return schema
        if not is_object(schema):
            return {}
        if isinstance(pointer := schema.get("$ref"), str):
            return self._reference(pointer, schema, depth)
        found: JSONObject = {key: schema[key] for key in _KEPT if key in schema}
        self._repair(found, schema)
        if text := plain_text(schema.get("description"), MAX_TEXT):
            found["description"] = text
        self._add_members(found, schema, depth)
        for key in _LISTS:
            if is_array(parts := schema.get(key)) and parts:
                found[key] = [self.read(each, depth + 1) for each in parts]
        for key in _SINGLE:
            if key in schema:
                found[key] = self.read(schema[key], depth + 1)
        if "items" in schema and not is_array(schema["items"]):
            found["items"] = self.read(schema["items"], depth + 1)
        if is_object(depends := schema.get("dependentRequired")):
            found["dependentRequired"] = depends
        return self._nullable(self._merged(found), schema)

    def _reference(self, pointer: str, schema: JSONObject, depth: int) -> JSON:
        """Return a reference to a member of `defs`, which is read once."""
        target = self.target(pointer)
        name = self._names.get(pointer)
        if name is None:
            if len(self.defs) >= MAX_DEFS:
                raise UnreadableOperation(f"its schemas refer to more than {MAX_DEFS} others")
            last = re.sub(r"[^A-Za-z0-9_.-]+", "_", unquote(pointer).rpartition("/")[2])[:64] or "schema"
            name, count = last, 1
            while name in self.defs or name in _UNSAFE_NAMES:
                count += 1
                name = f"{last}_{count}"
            self._names[pointer] = name
            self.defs[name] = {}
            self.defs[name] = self.read(target, depth + 1)
        found: JSONObject = {"$ref": f"#/$defs/{name}"}
        if not self._is_3_0:  # before 3.1 a reference has no members beside it
            if text := plain_text(schema.get("description"), MAX_TEXT):
                found["description"] = text
            if "default" in schema:
                found["default"] = schema["default"]
        return found

    def target(self, pointer: str) -> JSON:
        """Return what a reference leads to in the end: not to another reference. Raises: UnreadableOperation."""
        for _ in range(MAX_REFS):
            found = find(self._document, pointer)
            if not (is_object(found) and isinstance(found.get("$ref"), str) and len(found) == 1):
                return found
            pointer = found["$ref"]
        raise UnreadableOperation(f"$ref {clip(pointer, 80)!r} leads to references only")

    def resolved(self, schema: JSON) -> JSON:
        """Return a schema of the document without a reference in its place."""
        if is_object(schema) and isinstance(pointer := schema.get("$ref"), str):
            return self.target(pointer)
        return schema

    def is_hidden(self, schema: JSON) -> bool:
        """Return whether a member is only for the other direction."""
        found = self.resolved(schema)
        return is_object(found) and found.get(self._hidden) is True

    def _add_members(self, found: JSONObject, schema: JSONObject, depth: int) -> None:
        properties: JSON = schema.get("properties")
        gone: set[str] = set()
        if is_object(properties):
            members: JSONObject = {}
            for name, each in properties.items():
                if name in _UNSAFE_NAMES or not name.isprintable():
                    raise UnreadableOperation(
                        f"a schema has a member named {plain_text(name, 40)!r}, which some readers run into"
                    )
                if self.is_hidden(each):
                    gone.add(name)
                else:
                    members[name] = self.read(each, depth + 1)
            found["properties"] = members
            found.setdefault("type", "object")
        if is_array(required := schema.get("required")):
            names = [
                each for each in dict.fromkeys(each for each in required if isinstance(each, str)) if each not in gone
            ]
            if names:
                found["required"] = names
        if (more := schema.get("additionalProperties")) is False or is_object(more):
            found["additionalProperties"] = more if more is False else self.read(more, depth + 1)
        if is_object(patterns := schema.get("patternProperties")):
            found["patternProperties"] = {
                key: self.read(each, depth + 1) for key, each in patterns.items() if _can_be_run(key)
            }

    def _repair(self, found: JSONObject, schema: JSONObject) -> None:
        """Say in today's words what 3.0 says otherwise, and leave out what is not valid."""
        kinds: list[JSON] = found["type"] if is_array(found.get("type")) else [found.get("type")]
        kinds = [each for each in kinds if isinstance(each, str) and each in _TYPES]
        found.pop("type", None)
        if kinds:
            found["type"] = kinds[0] if len(kinds) == 1 else kinds
        for key in _NUMBERS & found.keys():
            if isinstance(found[key], bool) or not isinstance(found[key], int | float):
                del found[key]
        for bound, least in (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")):
            if found.get(bound) is True and least in found:
                found[bound] = found.pop(least)
            elif isinstance(found.get(bound), bool):
                del found[bound]
        values: JSON = found.get("enum")
        if "enum" in found and (not is_array(values) or not values or len(values) > MAX_ENUM):
            del found["enum"]
        if not isinstance(pattern := found.get("pattern", ""), str) or not _can_be_run(pattern):
            del found["pattern"]
        if not isinstance(found.get("format", ""), str):
            del found["format"]
        if found.get("format") in ("binary", "byte", "base64"):
            del found["format"]
            found["contentEncoding"] = "base64"
        if found.get("contentMediaType") == "application/octet-stream":  # bytes, as 3.1 has them
            found["contentEncoding"] = "base64"

    def _nullable(self, found: JSON, schema: JSONObject) -> JSON:
        if not self._is_3_0 or schema.get("nullable") is not True or not is_object(found):
            return found
        if isinstance(kind := found.get("type"), str):
            values: JSON = found.get("enum")
            more: JSONObject = {"enum": [*values, None]} if is_array(values) and None not in values else {}
            return {**found, "type": [kind, "null"], **more}
        parts: JSON = found.get("anyOf") or found.get("oneOf")
        if is_array(parts):
            return {**found, "anyOf" if "anyOf" in found else "oneOf": [*parts, {"type": "null"}]}
        return {"anyOf": [found, {"type": "null"}]} if found else found

    def _merged(self, found: JSONObject) -> JSONObject:
        """Return a schema with its `allOf` merged into it, where its parts are objects that agree."""
        parts: JSON = found.get("allOf")
        if not is_array(parts):
            return found
        rest = {key: value for key, value in found.items() if key != "allOf"}
        if len(parts) == 1 and not (rest.keys() - {"description", "default"}):
            return {**parts[0], **rest} if is_object(parts[0]) else found
        merged: JSONObject = {"type": "object", "properties": {}, **rest}
        required: list[str] = list(merged.get("required") or [])
        for each in parts:
            part: JSON = each
            if is_object(each) and isinstance(pointer := each.get("$ref"), str):
                part = self.defs.get(pointer.removeprefix("#/$defs/"))
            if not is_object(part) or part.keys() - {"type", "properties", "required", "description"} or not part:
                return found
            if part.get("type", "object") != "object" or merged.get("type") != "object":
                return found
            members: JSONObject = part.get("properties") or {}
            if any(merged["properties"].get(name, value) != value for name, value in members.items()):
                return found
            merged["properties"] = {**merged["properties"], **members}
            needed: list[str] = part.get("required") or []
            required += [name for name in needed if name not in required]
        return {**merged, "required": required} if required else merged

    def finished(self, schema: JSONObject) -> JSONObject:
        """Return a schema with the `$defs` that it reaches. What it reaches once stands in its place."""
        edges = {name: [each for each in _references(value) if each in self.defs] for name, value in self.defs.items()}
        counts: dict[str, int] = {}
        reached = [each for each in _references(schema) if each in self.defs]
        while reached:
            name = reached.pop()
            counts[name] = counts.get(name, 0) + 1
            if counts[name] == 1:
                reached += edges[name]
        single = {name for name, count in counts.items() if count == 1 and not _contains_itself(name, edges)}

        def placed(value: JSON) -> JSON:
            if is_array(value):
                return [placed(each) for each in value]
            if not is_object(value):
                return value
            name: str = _name_of(value)
            if name in single:
                inner: JSON = placed(self.defs[name])
                rest = {key: each for key, each in value.items() if key != "$ref"}
                return {**inner, **rest} if is_object(inner) else inner
            return {key: placed(each) for key, each in value.items()}

        found: JSONObject = placed(schema)
        defs = {name: placed(self.defs[name]) for name in counts if name not in single}
        return {**found, "$defs": defs} if defs else found


def _can_be_run(pattern: str) -> bool:
    """Return whether matching a pattern of a document takes time that grows with the text, and no faster."""
    try:
        re.compile(pattern)
    except (re.error, RecursionError, OverflowError):
        return False
    return len(pattern) <= MAX_PATTERN and why_not_linear(pattern) is None


def _contains_itself(name: str, edges: Mapping[str, list[str]]) -> bool:
    seen: set[str] = set()
    reached = [name]
    while reached:
        for each in edges[reached.pop()]:
            if each == name:
                return True
            if each not in seen:
                seen.add(each)
                reached.append(each)
    return False


def _name_of(value: Mapping[str, JSON]) -> str:
    pointer: JSON = value.get("$ref")
    return pointer.removeprefix("#/$defs/") if isinstance(pointer, str) else ""


def _references(value: JSON) -> Iterator[str]:
    """Yield the names of `$defs` that a schema refers to, as often as it does."""
    waiting: list[JSON] = [value]
    while waiting:
        each = waiting.pop()
        if is_array(each):
            waiting += each
        elif is_object(each):
            if name := _name_of(each):
                yield name
            waiting += each.values()
