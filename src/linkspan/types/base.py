"""What every wire shape shares: the JSON alias, the Struct they inherit from, and where unknown members go.

Wire shapes follow the newest revision's schema. `None` means absent; `UNSET` is used only where null is a value.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeAlias, TypeGuard

import msgspec
from msgspec import UNSET, Raw, UnsetType

__all__ = [
    "ABSENT",
    "JSON",
    "UNSET",
    "JSONObject",
    "Meta",
    "UnsetType",
    "Wire",
    "is_array",
    "is_mapping",
    "is_object",
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
    """Tell whether a JSON value is an object."""
    return isinstance(value, dict)


def is_mapping(value: object) -> TypeGuard[Mapping[str, JSON]]:
    """Tell whether a value of an author's is a mapping; its keys are taken to be texts."""
    return isinstance(value, Mapping)


def is_array(value: object) -> TypeGuard[list[JSON]]:
    """Tell whether a JSON value is an array."""
    return isinstance(value, list)
