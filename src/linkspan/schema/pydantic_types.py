"""Types that pydantic knows how to read: its models, its dataclasses, and annotations with its validators.

Looked for only if pydantic is imported already: it is the author who brings it.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from linkspan.errors import RegistrationError
from linkspan.schema.document import local_target, repair_value, types_of, unknown_keys
from linkspan.schema.problems import at, describe_value
from linkspan.schema.shapes import INVALID, Rendering, Walk, marker
from linkspan.types.base import JSON, JSONObject, is_array
from linkspan.types.base import is_mapping as is_object

__all__ = ["ForeignShape", "is_foreign", "told"]

_HOOK = "__get_pydantic_core_schema__"


def is_foreign(hint: Any, notes: Sequence[Any]) -> bool:
    """Tell whether a hint has to be read by pydantic."""
    if "pydantic" not in sys.modules:
        return False
    if isinstance(hint, type) and (hasattr(hint, _HOOK) or "__pydantic_core_schema__" in vars(hint)):
        return True
    return any(hasattr(each, _HOOK) for each in notes)


class ForeignShape:
    """A type that pydantic reads, strictly, and whose schema it writes."""

    __slots__ = ("_adapter", "_closed", "_where", "kinds", "native", "words")

    def __init__(self, hint: Any, where: str) -> None:
        pydantic: Any = sys.modules["pydantic"]
        self._where = where
        try:
            self._adapter: Any = pydantic.TypeAdapter(hint)
        except Exception as problem:
            raise RegistrationError(f"{where}: pydantic cannot read {hint}: {_first_line(problem)}") from None
        out = Rendering(portable=True)
        self._closed = self.schema(out)
        if out.definitions:
            self._closed["$defs"] = out.definitions
        self.kinds = types_of(self._closed, self._closed)
        self.words = f"an {next(iter(self.kinds))}" if self.kinds <= {"object", "array"} else "another value"
        self.native: Any = marker(self)

    def schema(self, out: Rendering) -> JSONObject:
        """Return pydantic's schema in our dialect. Raises: RegistrationError if pydantic has none."""
        try:
            found: JSONObject = self._adapter.json_schema(mode="serialization" if out.output else "validation")
        except Exception as problem:
            raise RegistrationError(f"{self._where}: pydantic cannot describe it: {_first_line(problem)}") from None
        return tidied(found, out)

    def convert(self, value: JSON, path: str, walk: Walk) -> Any:
        """Return what pydantic makes of the value."""
        before = len(walk.problems)
        walk.problems.extend(unknown_keys(value, self._closed, self._closed, path or "."))
        found = INVALID
        if len(walk.problems) == before:
            found = self._read(value, path, walk)
        if found is not INVALID or not walk.repair:
            return found
        repairs: list[str] = []
        mended = repair_value(value, self._closed, self._closed, path, repairs)
        second = Walk()
        found = self._reread(mended, path, second)
        if not second.problems:
            del walk.problems[before:]
            walk.repairs.extend(repairs)
        return found

    def _reread(self, value: JSON, path: str, walk: Walk) -> Any:
        walk.problems.extend(unknown_keys(value, self._closed, self._closed, path or "."))
        return INVALID if walk.problems else self._read(value, path, walk)

    def _read(self, value: JSON, path: str, walk: Walk) -> Any:
        try:
            return self._adapter.validate_json(msgspec.json.encode(value), strict=True)
        except ValueError as problem:
            return told(problem, path, walk)
        except Exception:
            return walk.refuse(path, "is not accepted")


def told(problem: Any, path: str, walk: Walk) -> Any:
    """Write down each of pydantic's errors in plain words; returns INVALID."""
    errors = getattr(problem, "errors", None)
    listed: Any = errors() if callable(errors) else []
    for each in listed:
        where = path
        for step in each["loc"]:
            where = at(where, step)
        walk.refuse(where, _words(each))
    return INVALID if listed else walk.refuse(path, "is not accepted")


def _words(error: dict[str, Any]) -> str:
    kind: str = error["type"]
    got = describe_value(error.get("input"))
    if kind == "missing":
        return "is missing"
    if kind in _WANTED:
        return f"must be {_WANTED[kind]}, got {got}"
    if kind in _LIMITS:
        words, name = _LIMITS[kind]
        return f"must {words.format(error.get('ctx', {}).get(name))}, got {got.removeprefix('the number ')}"
    if kind in ("value_error", "assertion_error"):
        text = str(error["msg"]).partition(", ")[2] or str(error["msg"])
        return f"is not accepted: {text[:200]}"
    text = str(error["msg"])
    return f"is not accepted: {text[:1].lower()}{text[1:200]} (got {got})"


_WANTED = {
    "int_type": "an integer",
    "int_parsing": "an integer",
    "int_from_float": "an integer",
    "float_type": "a number",
    "float_parsing": "a number",
    "string_type": "a string",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "list_type": "an array",
    "set_type": "an array",
    "tuple_type": "an array",
    "dict_type": "an object",
    "model_type": "an object",
    "model_attributes_type": "an object",
    "none_required": "null",
    "enum": "one of the values in the schema",
}
_LIMITS = {
    "greater_than_equal": ("be at least {}", "ge"),
    "greater_than": ("be more than {}", "gt"),
    "less_than_equal": ("be at most {}", "le"),
    "less_than": ("be less than {}", "lt"),
    "multiple_of": ("be a multiple of {}", "multiple_of"),
    "string_too_short": ("have at least {} characters", "min_length"),
    "string_too_long": ("have at most {} characters", "max_length"),
    "too_short": ("have at least {} items", "min_length"),
    "too_long": ("have at most {} items", "max_length"),
    "literal_error": ("be {}", "expected"),
}


def _first_line(problem: Exception) -> str:
    return next(iter(str(problem).splitlines()), type(problem).__name__)


_MAPS = ("properties", "$defs", "patternProperties", "definitions")
_LISTS = ("anyOf", "oneOf", "allOf", "prefixItems")
_ONES = ("items", "additionalProperties", "not", "contains", "propertyNames")


def tidied(schema: JSONObject, out: Rendering) -> JSONObject:
    """Return a schema as `out` wants it; what is recursive, or all that is named, goes to `out.definitions`."""
    return _Tidy(schema, out).one(schema)


class _Tidy:
    def __init__(self, root: JSONObject, out: Rendering) -> None:
        self._root = root
        self._out = out
        self._open: dict[str, str | None] = {}
        self._named: dict[str, str] = {}

    def one(self, schema: Mapping[str, JSON]) -> JSONObject:
        if "$ref" in schema:
            rest = {key: each for key, each in schema.items() if key != "$ref"}
            return {**self._referred(schema["$ref"]), **self.one(rest)}
        found: JSONObject = {}
        for key, each in schema.items():
            if key in _MAPS and is_object(each):
                members: Mapping[str, JSON] = each
                if key not in ("$defs", "definitions"):
                    found[key] = {name: self._any(one) for name, one in members.items()}
            elif key in _LISTS and is_array(each):
                found[key] = [self._any(one) for one in each]
            elif key in _ONES:
                found[key] = self._any(each)
            elif key != "title":
                found[key] = each
        return self._plainer(found)

    def _any(self, schema: JSON) -> JSON:
        if not is_object(schema):
            return schema
        members: Mapping[str, JSON] = schema
        return self.one(members)

    def _referred(self, reference: str) -> JSONObject:
        name = reference.rpartition("/")[2]
        if reference in self._named:
            return {"$ref": f"#/$defs/{self._named[reference]}"}
        if reference in self._open or not self._out.portable:
            return self._name(reference, name)
        target: JSON = local_target(reference, self._root) or {}
        self._open[reference] = None
        found = self.one(target)
        del self._open[reference]
        return {"$ref": f"#/$defs/{self._named[reference]}"} if reference in self._named else found

    def _name(self, reference: str, name: str) -> JSONObject:
        """Put a definition under `$defs`, where recursion or the author asks for it."""
        while name in self._out.definitions:
            name += "_"
        self._named[reference] = name
        self._out.definitions[name] = {}
        target: JSON = local_target(reference, self._root) or {}
        self._out.definitions[name] = self.one(target)
        return {"$ref": f"#/$defs/{name}"}

    def _plainer(self, schema: JSONObject) -> JSONObject:
        if schema.get("type") == "object" and "properties" in schema and not self._out.output:
            schema.setdefault("additionalProperties", False)
        if not self._out.portable:
            return schema
        schema.pop("discriminator", None)
        if "const" in schema and "enum" not in schema:
            schema["enum"] = [schema.pop("const")]
        if "oneOf" in schema and "anyOf" not in schema:
            schema["anyOf"] = schema.pop("oneOf")
        if "prefixItems" in schema:
            kinds: list[JSON] = []
            fixed: list[JSON] = schema.pop("prefixItems")
            kinds.extend(each for each in fixed if each not in kinds)
            schema["items"] = kinds[0] if len(kinds) == 1 else {"anyOf": kinds}
        if self._out.output:
            return schema
        schema.pop("uniqueItems", None)
        return _without_null(schema)


def _without_null(schema: JSONObject) -> JSONObject:
    arms: JSON = schema.get("anyOf")
    if not is_array(arms):
        return schema
    each: list[JSON] = arms
    rest = [one for one in each if one != {"type": "null"}]
    if len(rest) == len(each):
        return schema
    others = {key: value for key, value in schema.items() if key != "anyOf"}
    if others.get("default", 0) is None:
        del others["default"]
    return {**rest[0], **others} if len(rest) == 1 else {**others, "anyOf": rest}
