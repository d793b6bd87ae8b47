"""From what authors naturally return to content blocks and resource contents."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias, TypeGuard, TypeVar, cast

import msgspec

from linkspan.errors import RegistrationError
from linkspan.schema.results import encode_json
from linkspan.types.base import (
    JSON,
    AudioContent,
    BlobResourceContents,
    EmbeddedResource,
    ImageContent,
    Meta,
    ResourceLink,
    TextContent,
    TextResourceContents,
    ToolResultContent,
    ToolUseContent,
    UnknownContent,
    Wire,
    is_array,
    is_mapping,
    keep_unknown,
    unknown_members,
)
from linkspan.wire.values import decode_content, encode_base64, from_builtins, to_builtins

__all__ = [
    "BLOCKS",
    "CONTENTS",
    "Content",
    "audio",
    "binary",
    "blocks_of",
    "changed",
    "check_shown",
    "checked",
    "contents_of",
    "image",
    "is_block",
    "is_plain",
    "meta_of",
]

WireT = TypeVar("WireT", bound=Wire)
Block: TypeAlias = TextContent | ImageContent | AudioContent | EmbeddedResource | ResourceLink | UnknownContent
Contents: TypeAlias = TextResourceContents | BlobResourceContents

BLOCKS: tuple[type[Wire], ...] = (
    TextContent,
    ImageContent,
    AudioContent,
    EmbeddedResource,
    ResourceLink,
    ToolUseContent,
    ToolResultContent,
    UnknownContent,
)
CONTENTS: tuple[type[Wire], ...] = (TextResourceContents, BlobResourceContents)


class Content:
    """The content blocks by their short names: `Content.Text("hi")` is `TextContent("hi")`."""

    Text: TypeAlias = TextContent
    Image: TypeAlias = ImageContent
    Audio: TypeAlias = AudioContent
    EmbeddedResource: TypeAlias = EmbeddedResource
    ResourceLink: TypeAlias = ResourceLink


def image(data: bytes, mime_type: str) -> ImageContent:
    """Return an image block for raw bytes."""
    return ImageContent(encode_base64(data), mime_type)


def audio(data: bytes, mime_type: str) -> AudioContent:
    """Return an audio block for raw bytes."""
    return AudioContent(encode_base64(data), mime_type)


_SIGNATURES: Sequence[tuple[int, bytes, str]] = (
    (0, b"\x89PNG\r\n\x1a\n", "image/png"),
    (0, b"\xff\xd8\xff", "image/jpeg"),
    (0, b"GIF8", "image/gif"),
    (8, b"WEBP", "image/webp"),
    (8, b"WAVE", "audio/wav"),
    (0, b"ID3", "audio/mpeg"),
    (0, b"OggS", "audio/ogg"),
)
"""Where in a file stands what says of which type it is."""


def binary(data: bytes, uri: str) -> ImageContent | AudioContent | EmbeddedResource:
    """Return a block for raw bytes: an image or a sound if they begin like one, else an embedded resource under `uri`."""
    found = next((kind for start, mark, kind in _SIGNATURES if data.startswith(mark, start)), None)
    if found is None:
        return EmbeddedResource(BlobResourceContents(uri, encode_base64(data), mime_type="application/octet-stream"))
    return image(data, found) if found.startswith("image") else audio(data, found)


def checked(value: WireT) -> WireT:
    """Return a shape that an author made, if its members have the types that clients expect. Raises: TypeError."""
    try:
        from_builtins(to_builtins(value), type(value))
    except msgspec.ValidationError as problem:
        raise TypeError(f"{type(value).__name__} cannot be sent: {problem}") from None
    return value


def check_shown(spec: Wire) -> None:
    """Refuse what a list or a handshake would show, if its members have the wrong types: clients would lose all of it.

    Raises: RegistrationError.
    """
    if is_plain(spec):
        return  # as nearly always; the way below looks at hints, which takes long
    try:
        checked(spec)
    except TypeError as problem:
        raise RegistrationError(str(problem)) from None


def is_plain(spec: Wire) -> bool:
    """Return whether there is nothing in a shape but texts, and perhaps schemas."""
    members = (getattr(spec, name) for name in spec.__struct_fields__ if name not in _SCHEMAS)
    return all(each is None or isinstance(each, str) for each in members)


_SCHEMAS = ("input_schema", "output_schema")


def changed(value: WireT, **members: object) -> WireT:
    """Return a shape with other members; what its type does not name stays with it."""
    made = msgspec.structs.replace(value, **members)
    if unknown := unknown_members(value):
        keep_unknown(made, unknown)
    return made


def meta_of(value: object) -> Meta | None:
    """Return what an author gave as `_meta`. Raises: TypeError for what is no mapping."""
    if value is None or is_mapping(value):
        return dict(value) if value is not None else None
    raise TypeError(f"meta is a mapping, not {type(value).__name__}")


def is_block(value: object) -> bool:
    """Return whether `value` is a content block already."""
    return isinstance(value, BLOCKS)


def blocks_of(value: object) -> list[Any]:
    """Return content blocks for a block, a text, a mapping in wire form, or several of them.

    Raises: TypeError for anything else.
    """
    if value is None:
        return []
    if isinstance(value, str) or is_mapping(value) or is_block(value):
        return [_block(value)]
    if isinstance(value, Iterable):
        return [_block(each) for each in cast("Iterable[object]", value)]
    raise TypeError(f"a content block is a text, a content object or a mapping with a type; got {type(value).__name__}")


def _block(value: object) -> object:
    if isinstance(value, str):
        return TextContent(value)
    if is_mapping(value):
        value = _described(value)
    elif isinstance(value, BLOCKS):
        value = value if _is_text(value) or isinstance(value, UnknownContent) else checked(_in_base64(value))
    if isinstance(value, BLOCKS):
        return to_builtins(value) if isinstance(value, UnknownContent) or unknown_members(value) else value
    raise TypeError(f"a content block is a text, a content object or a mapping with a type; got {type(value).__name__}")


def _described(members: Mapping[str, JSON]) -> Wire:
    """Return the block that a mapping describes. Raises: TypeError for one that clients could not read."""
    try:
        found = decode_content(members)
    except msgspec.ValidationError as problem:
        raise TypeError(f"the content {members.get('type')!r} cannot be sent: {problem}") from None
    if isinstance(found, UnknownContent):
        raise TypeError(
            f"{members.get('type')!r} is no type of content: use text, image, audio, resource or resource_link; "
            "wrap content of other types in UnknownContent(...)"
        )
    return found


def _is_text(value: Wire) -> bool:
    """Return whether a block is a plain text without annotations, the most common one."""
    return type(value) is TextContent and type(value.text) is str and value.annotations is None and value.meta is None


def _in_base64(value: Wire) -> Wire:
    """Return a shape that carries its raw bytes as a text."""
    for member in ("data", "blob"):
        raw = getattr(value, member, None)
        if isinstance(raw, bytes | bytearray):
            return changed(value, **{member: encode_base64(bytes(raw))})
    inner = getattr(value, "resource", None)
    return changed(value, resource=_in_base64(inner)) if isinstance(inner, CONTENTS) else value


def contents_of(value: object, uri: str, mime_type: str | None) -> list[Any]:
    """Return resource contents for what a resource's function gave: a text, bytes, contents, JSON, or a list of contents."""
    if isinstance(value, CONTENTS):
        return [_contents(value)]
    if isinstance(value, str):
        return [TextResourceContents(uri=uri, text=value, mime_type=mime_type or "text/plain")]
    if isinstance(value, bytes | bytearray | memoryview):
        blob = encode_base64(bytes(cast("bytes", value)))
        return [BlobResourceContents(uri=uri, blob=blob, mime_type=mime_type or "application/octet-stream")]
    if is_contents(value):
        return [_contents(value)]
    if is_array(value) and value and all(isinstance(each, CONTENTS) or is_contents(each) for each in value):
        return [_contents(each) for each in value]
    text = encode_json(value).decode()
    return [TextResourceContents(uri=uri, text=text, mime_type=mime_type or "application/json")]


def is_contents(value: object) -> TypeGuard[Mapping[str, JSON]]:
    """Return whether a value is resource contents in wire form."""
    return is_mapping(value) and "uri" in value and ("text" in value or "blob" in value)


def _contents(value: Wire | Mapping[str, JSON]) -> object:
    if isinstance(value, Wire):
        found = checked(_in_base64(value))
    else:
        found = from_builtins(value, TextResourceContents if "text" in value else BlobResourceContents)
    return to_builtins(found) if unknown_members(found) else found
