"""What every wire shape shares: the JSON aliases, the Struct they inherit from, and small shapes that many others contain.

Wire shapes follow the newest revision's schema. `None` means absent; `UNSET` is used only where null is a value.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal, TypeAlias, TypeGuard

import msgspec
from msgspec import UNSET, Raw, UnsetType

__all__ = [
    "ABSENT",
    "JSON",
    "UNSET",
    "Annotations",
    "Icon",
    "Implementation",
    "JSONObject",
    "Meta",
    "RequestId",
    "Role",
    "UnsetType",
    "Wire",
    "is_array",
    "is_mapping",
    "is_number",
    "is_object",
    "json_type",
    "keep_unknown",
    "unknown_members",
]


JSON: TypeAlias = Any
"""Any JSON value: str, int, float, bool, None, list or dict."""

ABSENT: Final = Raw()
"""Stands in the place of a raw member that is absent; compare with `is`."""

JSONObject: TypeAlias = dict[str, Any]
"""A JSON object."""

Meta: TypeAlias = dict[str, Any]
"""The `_meta` member: open, its unknown keys are kept."""


class Wire(msgspec.Struct, omit_defaults=True, rename="camel", frozen=True, dict=True):
    """A shape of the protocol. Members that its schema does not name are kept beside the fields (`unknown_members`)."""


def unknown_members(value: Wire) -> Mapping[str, JSON]:
    """Return the members that came with `value` and that its type does not name (empty for values made here)."""
    found: Mapping[str, JSON] = value.__dict__.get("unknown", {})
    return found


def keep_unknown(value: Wire, members: Mapping[str, JSON]) -> None:
    """Keep members that the type of `value` does not name beside its fields."""
    vars(value)["unknown"] = members


def is_object(value: object) -> TypeGuard[JSONObject]:
    """Return whether a JSON value is an object."""
    return isinstance(value, dict)


def is_mapping(value: object) -> TypeGuard[Mapping[str, JSON]]:
    """Return whether a value of an author's is a mapping; its keys are taken to be texts."""
    return isinstance(value, Mapping)


def is_array(value: object) -> TypeGuard[list[JSON]]:
    """Return whether a JSON value is an array."""
    return isinstance(value, list)


def is_number(value: object) -> TypeGuard[int | float]:
    """Return whether a JSON value is a number; true and false are not."""
    return isinstance(value, int | float) and not isinstance(value, bool)


_TYPES: Final = ((bool, "boolean"), (str, "string"), (int, "integer"), (float, "number"), (list, "array"))


def json_type(value: JSON) -> str:
    """Return the JSON Schema type of a JSON value; a float is a number even if it is whole."""
    for kind, name in _TYPES:
        if isinstance(value, kind):
            return name
    return "null" if value is None else "object"


Role: TypeAlias = Literal["user", "assistant"]
RequestId: TypeAlias = int | str


class Annotations(Wire, frozen=True):
    """Hints for clients: for whom something is, how much it matters (0 to 1), when it changed (ISO 8601)."""

    audience: list[Role] | None = None
    priority: float | None = None
    last_modified: str | None = None


class Icon(Wire, frozen=True):
    """An image that stands for something. `src` is an https: or data: URI, `sizes` are like "48x48" or "any"."""

    src: str
    mime_type: str | None = None
    sizes: list[str] | None = None
    theme: Literal["light", "dark"] | None = None


class Implementation(Wire, frozen=True):
    """The name and version of a server or a client, for display."""

    name: str
    version: str
    title: str | None = None
    description: str | None = None
    website_url: str | None = None
    icons: list[Icon] | None = None
