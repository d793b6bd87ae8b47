"""Other people's schemas (pydantic's) in our dialect: closed objects, and for providers that take little, no `$ref`, no
null, no `const`, no `prefixItems`."""

from __future__ import annotations

from collections.abc import Mapping

from linkspan.schema.kinds import is_array, is_object
from linkspan.schema.repair import local_target
from linkspan.schema.shape import Rendering
from linkspan.types.base import JSON, JSONObject

__all__ = ["tidied"]

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
