"""A foreign schema in plain words: no references, no `allOf`, every keyword well-formed, old spellings made new.

What comes out is JSON Schema 2020-12 that no validator refuses, of bounded depth and size; what it does not say any more is
told. Nothing is ever fetched.
"""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import unquote

from linkspan.schema.conjunction import conjoined
from linkspan.schema.document import subschemas
from linkspan.schema.keywords import LARGEST_SIZE, READ, TYPES, modern, names, pattern, settled, size
from linkspan.schema.kinds import is_array, is_object
from linkspan.schema.losses import Losses, below
from linkspan.schema.repair import local_target
from linkspan.types.base import JSON, JSONObject

__all__ = ["Plain"]

_DEEPEST = 24
_MOST = 2_000
_REPEATS = 2
_EXACT = ("not", "propertyNames", "contains", "dependentSchemas", "patternProperties", "if")
_EXACT_MAPS = ("dependentSchemas", "patternProperties")
_PARTS = ("properties", "anyOf", "oneOf", "prefixItems", "items", "additionalProperties")
_NOT_SAID = ("$dynamicRef", "$recursiveRef", "unevaluatedProperties", "unevaluatedItems")


class Plain:
    """One conversion of one document."""

    def __init__(self, document: JSON, losses: Losses) -> None:
        self._document = document
        self._losses = losses
        self._parts = 0
        self._size = 0
        self._anchors: dict[str, JSON] | None = None

    def arguments(self) -> JSONObject:
        """Return the document as the schema of an object, without a union at its root."""
        flat, opened = self._object(self._document, (), 0)
        for key in ("enum", "const", "not"):
            if flat.pop(key, None) is not None:
                self._losses.tell("", f"{key} left out: no provider takes it for all arguments together")
        kinds: JSON = flat.get("type", "object")
        if kinds != "object" and not (is_array(kinds) and "object" in kinds):
            self._losses.tell("", "the type is not object; arguments always are one")
        found = self._keywords({**flat, "type": "object"}, "", 0, opened)
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
            self._losses.tell("", f"{key} became one object: the server still checks which arguments go together")
        return flat, opened

    # Schemas.

    @property
    def _is_full(self) -> bool:
        return self._parts > _MOST or self._size > LARGEST_SIZE

    def one(self, schema: JSON, path: str, depth: int, opened: tuple[str, ...]) -> JSONObject:
        """Return a schema as a plain one."""
        if schema is True:
            return {}
        if not is_object(schema):
            what = "nothing is allowed here" if schema is False else "this is no schema"
            self._losses.tell(path, f"{what}; anything is offered, and the server checks it")
            return {}
        self._parts += 1
        if depth > _DEEPEST or self._is_full:
            self._losses.tell(path, "the schema is too large or too deep; from here on anything is offered")
            return {}
        flat, opened = self._flat(schema, path, opened)
        return self._keywords(flat, path, depth, opened)

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
            flat = conjoined(flat, inner, lambda words: self._losses.tell(path, words))
        return flat, opened

    def _referred(self, reference: JSON, path: str, opened: tuple[str, ...]) -> tuple[JSON, tuple[str, ...]]:
        target = self._target(reference)
        if not isinstance(reference, str) or target is None:
            self._losses.tell(path, "its $ref leads nowhere within the schema; anything is offered")
            return True, opened
        if opened.count(reference) > _REPEATS:
            self._losses.tell(path, "the schema contains itself; from here on its members are not described")
            kind: JSON = target.get("type") if is_object(target) else None
            return ({"type": kind} if kind in TYPES else True), opened
        return target, (*opened, reference)

    def _target(self, reference: JSON) -> JSON:
        if not isinstance(reference, str) or not reference.startswith("#"):
            return None
        if reference == "#" or reference.startswith("#/"):
            found = local_target(reference, self._document)
            return found if found is not None else local_target(unquote(reference), self._document)
        if self._anchors is None:
            every = (each for _, each, _ in subschemas(self._document))
            self._anchors = {name: each for each in every if isinstance(name := each.get("$anchor"), str)}
        return self._anchors.get(reference[1:])

    # Keywords. Those that no table here knows say nothing about a value, and go without a word.

    def _keywords(self, flat: Mapping[str, JSON], path: str, depth: int, opened: tuple[str, ...]) -> JSONObject:
        found: JSONObject = {}
        for key in sorted(flat, key=lambda each: each == "oneOf"):
            value: JSON = flat[key]
            if key in ("default", "const"):
                self._take(key, value, path, found)
            elif value is None:
                continue
            elif key in READ:
                self._take(key, READ[key](value), path, found)
            elif key in _NOT_SAID:
                self._losses.tell(path, f"{key} left out, the server still checks it")
            elif key in _EXACT:
                self._exactly(key, flat, path, depth, opened, found)
            elif key in _PARTS:
                self._parts_of(key, value, path, depth, opened, found)
        return settled(found)

    def _take(self, key: str, value: JSON, path: str, found: JSONObject) -> None:
        if value is None and key not in ("default", "const"):
            self._malformed(path, key)
            return
        self._size += size(value)
        if self._is_full:
            self._losses.tell(path, f"{key} left out: the schema is too large")
            return
        found[key] = value

    def _parts_of(
        self, key: str, value: JSON, path: str, depth: int, opened: tuple[str, ...], found: JSONObject
    ) -> None:
        if key == "properties" and is_object(value):
            found[key] = self._properties(value, path, depth, opened)
        elif key in ("anyOf", "oneOf") and is_array(value):
            self._union(key, value, path, depth, opened, found)
        elif key == "prefixItems" and is_array(value):
            found[key] = [self.one(each, below(path, str(at)), depth + 1, opened) for at, each in enumerate(value)]
        elif key in ("items", "additionalProperties") and value is False:
            found[key] = False
        elif key in ("items", "additionalProperties"):
            found[key] = self.one(value, below(path, "*"), depth + 1, opened)
        else:
            self._malformed(path, key)

    def _properties(
        self, members: Mapping[str, JSON], path: str, depth: int, opened: tuple[str, ...]
    ) -> dict[str, JSONObject]:
        found: dict[str, JSONObject] = {}
        for name, each in members.items():
            if self._is_full:
                self._losses.tell(path, "the schema is too large; the rest of the members is left out")
                break
            found[name] = self.one(each, below(path, name), depth + 1, opened)
        return found

    def _union(
        self, key: str, arms: list[JSON], path: str, depth: int, opened: tuple[str, ...], found: JSONObject
    ) -> None:
        """Keep `oneOf` only while each arm says what it said: of two arms that grew wider, both may hold."""
        since = len(self._losses)
        read = [self.one(each, path, depth + 1, opened) for each in arms if each is not False]
        if not read:
            self._malformed(path, key)
        elif key == "anyOf" or len(self._losses) == since:
            found[key] = read
        elif "anyOf" in found:
            self._losses.tell(path, "oneOf left out beside anyOf, the server still checks it")
        else:
            found["anyOf"] = read
            self._losses.tell(path, "oneOf became anyOf")

    def _exactly(
        self, key: str, flat: Mapping[str, JSON], path: str, depth: int, opened: tuple[str, ...], found: JSONObject
    ) -> None:
        """Keep conditions and negations only if nothing of them is lost: what grows wider within may narrow without."""
        since = len(self._losses)
        group = ("if", "then", "else") if key == "if" else (key,)
        read = {each: self._condition(each, flat[each], path, depth, opened) for each in group if each in flat}
        if len(self._losses) == since:
            found.update(read)
            return
        self._losses.forget(since)
        self._losses.tell(path, f"{key} left out, the server still checks it")

    def _condition(self, key: str, value: JSON, path: str, depth: int, opened: tuple[str, ...]) -> JSON:
        if key not in _EXACT_MAPS:
            return self.one(value, path, depth + 1, opened)
        members: Mapping[str, JSON] = value if is_object(value) else {}
        if not is_object(value) or (key == "patternProperties" and not all(map(pattern, members))):
            self._malformed(path, key)
        return {name: self.one(each, path, depth + 1, opened) for name, each in members.items()}

    def _malformed(self, path: str, key: str) -> None:
        self._losses.tell(path, f"{key} left out: it is not what JSON Schema wants there")


def _joined(base: JSONObject, arms: list[JSONObject]) -> JSONObject:
    """Return one schema of an object that offers what any arm offers, and requires what all of them require."""
    if not arms:
        return base
    members = dict(_members(base))
    for name in dict.fromkeys(each for arm in arms for each in _members(arm)):
        offered: list[JSON] = []
        for arm in arms:
            each = _members(arm).get(name, False)
            offered += [each] if each is not False and each not in offered else []
        either: JSON = offered[0] if len(offered) == 1 else {"anyOf": offered}
        if offered and name not in members:
            members[name] = either
        elif offered and all(name in _members(arm) for arm in arms):
            members[name] = {"allOf": [members[name], either]}
    common = [name for name in _required(arms[0]) if all(name in _required(arm) for arm in arms)]
    found = {**base, "properties": members, "required": [*_required(base), *common]}
    if "additionalProperties" not in base and all(arm.get("additionalProperties") is False for arm in arms):
        found["additionalProperties"] = False
    return found


def _members(schema: Mapping[str, JSON]) -> Mapping[str, JSON]:
    members: JSON = schema.get("properties")
    return members if is_object(members) else {}


def _required(schema: Mapping[str, JSON]) -> list[str]:
    return names(schema.get("required")) or []
