"""Questions of FastMCP: a type of the answer, or none."""

from __future__ import annotations

import dataclasses
import enum
import typing
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel, TypeAdapter, create_model

from linkspan_compat.server.elicitation import form_schema

__all__ = ["Form"]


class Form:
    """The schema of a form for a type, and the answer as that type."""

    def __init__(self, response_type: Any) -> None:
        """Look at the type. Raises: TypeError for one that a form cannot ask for."""
        self.is_empty = response_type is None
        self.wraps = False
        self._adapter: TypeAdapter[Any] | None = None
        if self.is_empty:
            self.schema: dict[str, Any] = {"type": "object", "properties": {}}
            return
        if isinstance(response_type, dict):
            self.schema = _choices_schema(
                {name: each.get("title", name) for name, each in response_type.items()}, many=False
            )
            self.wraps = True
            return
        if isinstance(response_type, list):
            self.wraps = True
            if len(response_type) == 1 and isinstance(response_type[0], dict):
                self.schema = _choices_schema(
                    {name: each.get("title", name) for name, each in response_type[0].items()}, many=True
                )
                return
            if len(response_type) == 1 and isinstance(response_type[0], list):
                self.schema = _wrapped({"type": "array", "items": {"type": "string", "enum": response_type[0]}})
                return
            response_type = Literal[tuple(response_type)]
        if _is_scalar(response_type):
            self.wraps = True
            response_type = create_model("ScalarElicitationType", value=(response_type, ...))
        self._adapter = TypeAdapter(response_type)
        self.schema = form_schema(self._adapter.json_schema())
        if self.schema.get("type") != "object":
            raise TypeError(
                f"A form cannot ask for {response_type!r}: use a scalar, an enum, a dataclass or a model of these."
            )

    def read(self, content: Any) -> Any:
        """Return an answer as the type. Raises: ValueError."""
        if self.is_empty:
            return content or {}
        if self._adapter is None:
            return (content or {}).get("value")
        found = self._adapter.validate_python(content or {})
        return found.value if self.wraps else found


def _wrapped(schema: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": {"value": schema}, "required": ["value"]}


def _choices_schema(titles: dict[str, str], *, many: bool) -> dict[str, Any]:
    choices = [{"const": name, "title": title} for name, title in titles.items()]
    if many:
        return _wrapped({"type": "array", "items": {"anyOf": choices}})
    return _wrapped({"type": "string", "oneOf": choices})


def _is_scalar(kind: Any) -> bool:
    if get_origin(kind) in (Literal, list, typing.Union) or get_args(kind):
        return True
    return (
        isinstance(kind, type)
        and not issubclass(kind, BaseModel)
        and not dataclasses.is_dataclass(kind)
        and (kind in (str, int, float, bool) or issubclass(kind, enum.Enum))
    )
