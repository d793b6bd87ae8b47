"""What every wire shape shares: the JSON aliases, the Struct they inherit from, small shapes, content blocks."""

from __future__ import annotations

import builtins
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, Literal, Never, TypeAlias, TypeGuard

import msgspec
from msgspec import UNSET, Raw, UnsetType

from linkspan.text import no_attribute

__all__ = [
    "ABSENT",
    "JSON",
    "META_PREFIX",
    "UNSET",
    "Annotations",
    "AudioContent",
    "BlobResourceContents",
    "Block",
    "ContentBlock",
    "EmbeddedResource",
    "Icon",
    "ImageContent",
    "Implementation",
    "JSONObject",
    "Meta",
    "RequestId",
    "ResourceContents",
    "ResourceLink",
    "Role",
    "SamplingContent",
    "TextContent",
    "TextResourceContents",
    "ToolResultContent",
    "ToolUseContent",
    "UnknownContent",
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

META_PREFIX: Final = "io.modelcontextprotocol/"
"""What the keys of the protocol in `_meta` begin with."""


class Wire(msgspec.Struct, omit_defaults=True, rename="camel", frozen=True, dict=True):
    """A shape of the protocol. Members that its schema does not name are kept beside the fields (`unknown_members`)."""

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Never:
            names = zip(self.__struct_encode_fields__, self.__struct_fields__, strict=True)
            raise no_attribute(self, name, {wire: f".{ours}" for wire, ours in names if wire != ours})

    def _repr_html_(self) -> str | None:  # what notebooks look for, as the next one
        from linkspan.types.display import html

        return html(self)

    def _repr_markdown_(self) -> str | None:
        from linkspan.types.display import markdown

        return markdown(self)


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


class Block(Wire, frozen=True):
    """A content block."""

    @property
    def type(self) -> str:
        """Its type on the wire, such as `image`."""
        return str(self.__struct_config__.tag)


def _from_base64(data: str) -> bytes:
    import binascii

    try:
        return binascii.a2b_base64("".join(data.split()), strict_mode=True)
    except ValueError as problem:
        raise ValueError(f"the data is not valid base64: {problem}") from None


class TextContent(Block, frozen=True, tag_field="type", tag="text"):
    """A text."""

    text: str
    annotations: Annotations | None = None
    meta: Meta | None = msgspec.field(default=None, name="_meta")


class ImageContent(Block, frozen=True, tag_field="type", tag="image"):
    """An image; `data` is base64."""

    data: str
    mime_type: str
    annotations: Annotations | None = None
    meta: Meta | None = msgspec.field(default=None, name="_meta")

    @property
    def bytes(self) -> builtins.bytes:
        """The data, decoded. Raises: ValueError for invalid base64."""
        return _from_base64(self.data)


class AudioContent(Block, frozen=True, tag_field="type", tag="audio"):
    """A sound; `data` is base64."""

    data: str
    mime_type: str
    annotations: Annotations | None = None
    meta: Meta | None = msgspec.field(default=None, name="_meta")

    @property
    def bytes(self) -> builtins.bytes:
        """The data, decoded. Raises: ValueError for invalid base64."""
        return _from_base64(self.data)


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

    @property
    def bytes(self) -> builtins.bytes:
        """The data, decoded. Raises: ValueError for invalid base64."""
        return _from_base64(self.blob)


ResourceContents: TypeAlias = TextResourceContents | BlobResourceContents


class EmbeddedResource(Block, frozen=True, tag_field="type", tag="resource"):
    """A resource with its contents."""

    resource: Any
    """A `TextResourceContents` or `BlobResourceContents`."""
    annotations: Annotations | None = None
    meta: Meta | None = msgspec.field(default=None, name="_meta")


class ResourceLink(Block, frozen=True, tag_field="type", tag="resource_link"):
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


class ToolUseContent(Block, frozen=True, tag_field="type", tag="tool_use"):
    """A model's wish to call a tool (sampling only)."""

    id: str
    name: str
    input: JSONObject
    meta: Meta | None = msgspec.field(default=None, name="_meta")


class ToolResultContent(Block, frozen=True, tag_field="type", tag="tool_result"):
    """What a tool answered to a model (sampling only)."""

    tool_use_id: str
    content: list[Any]
    """Each a `ContentBlock`."""
    structured_content: JSON | UnsetType = UNSET
    is_error: bool | None = None
    meta: Meta | None = msgspec.field(default=None, name="_meta")


class UnknownContent(Block, frozen=True):
    """A block of a type that a later revision, or none, defines; `members` is all of it (MSG-53)."""

    members: JSONObject

    @property
    def type(self) -> str:
        """Its type on the wire; an empty text where it has none."""
        found: JSON = self.members.get("type")
        return found if isinstance(found, str) else ""


ContentBlock: TypeAlias = TextContent | ImageContent | AudioContent | EmbeddedResource | ResourceLink | UnknownContent
SamplingContent: TypeAlias = (
    TextContent | ImageContent | AudioContent | ToolUseContent | ToolResultContent | UnknownContent
)
