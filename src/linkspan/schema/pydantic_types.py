"""Types that pydantic knows how to read: its models, its dataclasses, and annotations with its validators.

Loaded only if an author uses one: it is the author who brings pydantic.
"""

from __future__ import annotations

import sys
from typing import Any

import msgspec

from linkspan.errors import RegistrationError
from linkspan.schema.containers import refuse_by_author, without_null_schema
from linkspan.schema.document import LISTS, MAPS, ONES
from linkspan.schema.problems import UnknownMember, first_line
from linkspan.schema.shapes import INVALID, Rendering, Shape, Walk
from linkspan.schema.summary import local_target
from linkspan.types.base import JSON, JSONObject, is_array
from linkspan.types.base import is_mapping as is_object


class ForeignShape(Shape):
    """A type that pydantic reads, strictly, and whose schema it writes.

    The walk over that schema repairs a value and explains what is wrong with it; pydantic decides what else to accept.
    """

    __slots__ = ("_adapter", "_reader", "_where")

    def __init__(self, hint: Any, where: str) -> None:
        from linkspan.schema.written import compile_written

        pydantic: Any = sys.modules["pydantic"]
        self._where = where
        try:
            self._adapter: Any = pydantic.TypeAdapter(hint)
        except Exception as problem:
            raise RegistrationError(f"{where}: pydantic cannot read {hint}: {first_line(problem)}") from None
        out = Rendering(portable=False)
        closed = self.schema(out)
        self._reader = compile_written({**closed, "$defs": out.definitions}).shape
        super().__init__(self._reader.kinds, self._reader.words)

    def schema(self, out: Rendering) -> JSONObject:
        """Return pydantic's schema in our dialect. Raises: RegistrationError if pydantic has none."""
        try:
            found: JSONObject = self._adapter.json_schema(mode="serialization" if out.output else "validation")
        except Exception as problem:
            raise RegistrationError(f"{self._where}: pydantic cannot describe it: {first_line(problem)}") from None
        return tidied(found, out)

    def convert(self, value: JSON, path: str, walk: Walk) -> Any:
        """Return what pydantic makes of the value, with repairs only where it refuses the value as it is."""
        inner = walk.inside(value)
        found = self._read(value, path, inner)
        if found is INVALID and walk.repair:
            inner = walk.inside(value, repair=True)
            found = self._read(value, path, inner)
        if found is INVALID:
            walk.problems.extend(inner.problems)
        walk.repairs.extend(inner.repairs)
        return found

    def _read(self, value: JSON, path: str, walk: Walk) -> Any:
        mended = self._reader.convert(value, path, walk)
        if any(isinstance(each, UnknownMember) for each in walk.problems):
            return INVALID
        try:  # a validator of the author's may take what the schema does not name
            return self._adapter.validate_json(msgspec.json.encode(value if walk.problems else mended), strict=True)
        except ValueError as problem:
            return INVALID if walk.problems else refuse_by_author(problem, path, walk)
        except Exception:
            return INVALID if walk.problems else walk.refuse(path, "is not accepted")


def tidied(schema: JSONObject, out: Rendering) -> JSONObject:
    """Return a schema as `out` wants it; what is recursive, or all that is named, goes to `out.definitions`."""
    found: JSONObject = _Tidy(schema, out).one(schema)
    return found


class _Tidy:
    def __init__(self, root: JSONObject, out: Rendering) -> None:
        self._root = root
        self._out = out
        self._open: dict[str, str | None] = {}
        self._named: dict[str, str] = {}

    def one(self, schema: JSON) -> JSON:
        if not is_object(schema):
            return schema
        if "$ref" in schema:
            rest = {key: each for key, each in schema.items() if key != "$ref"}
            return {**self._referred(schema["$ref"]), **self.one(rest)}
        found: JSONObject = {}
        for key, each in schema.items():
            if key in MAPS and is_object(each):
                if key not in ("$defs", "definitions"):
                    found[key] = {name: self.one(one) for name, one in each.items()}
            elif key in LISTS and is_array(each):
                found[key] = [self.one(one) for one in each]
            elif key in ONES:
                found[key] = self.one(each)
            elif key != "title":
                found[key] = each
        return self._plainer(found)

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
        properties: JSONObject = schema.get("properties") or {}
        optional = properties.keys() - schema.get("required", ())
        properties |= {name: without_null_schema(properties[name]) for name in optional}
        return schema
