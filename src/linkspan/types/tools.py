"""Tools, and what they answer.

Spec: https://modelcontextprotocol.io/specification/2026-07-28/server/tools.
"""

from __future__ import annotations

from typing import Any

import msgspec

from linkspan.types.base import JSON, UNSET, JSONObject, Meta, UnsetType, Wire
from linkspan.types.shared import Icon

__all__ = ["CallToolResult", "ListToolsResult", "Tool", "ToolAnnotations"]


class ToolAnnotations(Wire, frozen=True):
    """Hints about a tool, never promises. What is not said means: not read-only, destructive, not idempotent, open world."""

    title: str | None = None
    read_only_hint: bool | None = None
    destructive_hint: bool | None = None
    idempotent_hint: bool | None = None
    open_world_hint: bool | None = None


class Tool(Wire, frozen=True):
    """A tool as a list shows it. The schemas go out verbatim (MSG-55)."""

    name: str
    input_schema: JSONObject
    title: str | None = None
    description: str | None = None
    output_schema: JSONObject | None = None
    annotations: ToolAnnotations | None = None
    icons: list[Icon] | None = None
    meta: Meta | None = msgspec.field(default=None, name="_meta")


class ListToolsResult(Wire, frozen=True):
    """One page of tools."""

    tools: list[Tool]
    next_cursor: str | None = None
    ttl_ms: int | None = None
    cache_scope: str | None = None
    meta: Meta | None = msgspec.field(default=None, name="_meta")


class CallToolResult(Wire, frozen=True):
    """What a tool answered: content blocks, and perhaps a JSON value (which may be null, so UNSET means absent)."""

    content: list[Any]
    structured_content: JSON | UnsetType = UNSET
    is_error: bool | None = None
    meta: Meta | None = msgspec.field(default=None, name="_meta")
