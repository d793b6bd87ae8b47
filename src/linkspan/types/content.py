"""Content blocks and resource contents.

Spec: https://modelcontextprotocol.io/specification/2026-07-28/server/tools.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import msgspec

from linkspan.types.base import JSON, UNSET, Annotations, Icon, JSONObject, Meta, UnsetType, Wire

__all__ = [
    "AudioContent",
    "BlobResourceContents",
    "ContentBlock",
    "EmbeddedResource",
    "ImageContent",
    "ResourceContents",
    "ResourceLink",
    "SamplingContent",
    "TextContent",
    "TextResourceContents",
    "ToolResultContent",
    "ToolUseContent",
    "UnknownContent",
]


class TextContent(Wire, frozen=True, tag_field="type", tag="text"):
    """A text."""

    text: str
    annotations: Annotations | None = None
    meta: Meta | None = msgspec.field(default=None, name="_meta")


class ImageContent(Wire, frozen=True, tag_field="type", tag="image"):
    """An image; `data` is base64."""

    data: str
    mime_type: str
    annotations: Annotations | None = None
    meta: Meta | None = msgspec.field(default=None, name="_meta")


class AudioContent(Wire, frozen=True, tag_field="type", tag="audio"):
    """A sound; `data` is base64."""

    data: str
    mime_type: str
    annotations: Annotations | None = None
    meta: Meta | None = msgspec.field(default=None, name="_meta")


class TextResourceContents(Wire, frozen=True):
    """The contents of a resource, as a text."""

    uri: str
    text: str
    mime_type: str | None = None
    meta: Meta | None = msgspec.field(default=None, name="_meta")


class BlobResourceContents(Wire, frozen=True):
    """The contents of a resource, as base64."""

    uri: str
    blob: str
    mime_type: str | None = None
    meta: Meta | None = msgspec.field(default=None, name="_meta")


ResourceContents: TypeAlias = TextResourceContents | BlobResourceContents


class EmbeddedResource(Wire, frozen=True, tag_field="type", tag="resource"):
    """A resource with its contents."""

    resource: Any
    """A `TextResourceContents` or `BlobResourceContents`."""
    annotations: Annotations | None = None
    meta: Meta | None = msgspec.field(default=None, name="_meta")


class ResourceLink(Wire, frozen=True, tag_field="type", tag="resource_link"):
    """A pointer to a resource that the client may read."""

    uri: str
    name: str
    title: str | None = None
    description: str | None = None
    mime_type: str | None = None
    size: int | None = None
    annotations: Annotations | None = None
    icons: list[Icon] | None = None
    meta: Meta | None = msgspec.field(default=None, name="_meta")


class ToolUseContent(Wire, frozen=True, tag_field="type", tag="tool_use"):
    """A model's wish to call a tool (sampling only)."""

    id: str
    name: str
    input: JSONObject
    meta: Meta | None = msgspec.field(default=None, name="_meta")


class ToolResultContent(Wire, frozen=True, tag_field="type", tag="tool_result"):
    """What a tool answered to a model (sampling only)."""

    tool_use_id: str
    content: list[Any]
    structured_content: JSON | UnsetType = UNSET
    is_error: bool | None = None
    meta: Meta | None = msgspec.field(default=None, name="_meta")


class UnknownContent(Wire, frozen=True):
    """A block of a type that a later revision, or none, defines; `members` is all of it (MSG-53)."""

    members: JSONObject


ContentBlock: TypeAlias = TextContent | ImageContent | AudioContent | EmbeddedResource | ResourceLink | UnknownContent
SamplingContent: TypeAlias = (
    TextContent | ImageContent | AudioContent | ToolUseContent | ToolResultContent | UnknownContent
)
