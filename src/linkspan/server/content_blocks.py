"""From what authors naturally return to content blocks and resource contents."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeGuard, TypeVar, cast

import msgspec

from linkspan.errors import RegistrationError
from linkspan.schema.results import encode_json
from linkspan.types.base import (
    JSON,
    Annotations,
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

if TYPE_CHECKING:
    from io import BytesIO

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
BYTES: Final[tuple[type, ...]] = (bytes, bytearray, memoryview)


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


class Media:
    """Bytes of a known type that a function returns: `Image`, `Audio` and `File` are such values."""

    __slots__ = ("annotations", "data", "mime_type")

    def __init__(self, data: bytes, mime_type: str, annotations: Annotations | None = None) -> None:
        """Hold bytes and what they are."""
        self.data = data
        self.mime_type = mime_type
        self.annotations = annotations

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.mime_type}: {len(self.data)} bytes>"

    def block(self) -> Wire:
        """Return the content block for a result or a message."""
        raise NotImplementedError

    def resource(self, uri: str) -> TextResourceContents | BlobResourceContents:
        """Return the contents of a resource at `uri`: texts as texts, if they are UTF-8."""
        if is_text_type(self.mime_type):
            try:
                return TextResourceContents(uri, self.data.decode(), mime_type=self.mime_type)
            except UnicodeDecodeError:
                pass
        return BlobResourceContents(uri, encode_base64(self.data), mime_type=self.mime_type)


_TEXT_TYPES = frozenset({"json", "xml", "javascript", "toml", "yaml", "sql", "x-sh"})


def is_text_type(mime_type: str) -> bool:
    """Return whether values of a media type are texts."""
    major, _, minor = mime_type.partition(";")[0].partition("/")
    return major == "text" or minor in _TEXT_TYPES or minor.endswith(("+json", "+xml"))


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


def media_type(data: bytes) -> str | None:
    """Return of which type an image or a sound is, by how it begins; None for anything else."""
    return next((kind for start, mark, kind in _SIGNATURES if data.startswith(mark, start)), None)


def binary(data: bytes, uri: str) -> ImageContent | AudioContent | EmbeddedResource:
    """Return a block for raw bytes: an image or a sound if they begin like one, else an embedded resource under `uri`."""
    found = media_type(data)
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


def _save_image(picture: Any, out: BytesIO) -> None:
    """Write a Pillow image; PNG has no CMYK, no other colour spaces and no floats."""
    plain = picture if picture.mode in ("1", "L", "LA", "I", "I;16", "P", "RGB", "RGBA") else picture.convert("RGB")
    plain.save(out, "PNG")


_PICTURES: Final[Mapping[str, tuple[str, Callable[[Any, BytesIO], object]]]] = {
    "PIL.Image": ("Image", _save_image),
    "matplotlib.figure": ("Figure", lambda figure, out: figure.savefig(out, format="png")),
}
"""Classes of other libraries whose values are pictures, by module, and what writes one as PNG."""


def content_types() -> tuple[type, ...]:
    """Return the types whose values are content: blocks, media, and pictures of the libraries that are loaded."""
    pictures = [getattr(sys.modules[home], name) for home, (name, _) in _PICTURES.items() if home in sys.modules]
    return (*BLOCKS, Media, *pictures)


def _drawn(value: object) -> Wire | None:
    """Return a block for a picture of another library, or None. It runs that library's code."""
    for home, (name, save) in _PICTURES.items():
        if home in sys.modules and isinstance(value, getattr(sys.modules[home], name)):
            from io import BytesIO

            out = BytesIO()
            save(value, out)
            return image(out.getvalue(), "image/png")
    return None


def is_block(value: object) -> bool:
    """Return whether `value` is one piece of content: a block, media, or a picture of another library."""
    return isinstance(value, content_types())


def is_content(value: object, more: tuple[type, ...] = ()) -> bool:
    """Return whether `value` is content, whatever hints say: one piece, or a list with one; `more` count as such in a list."""
    kinds = content_types()
    if isinstance(value, list | tuple):
        kinds += more
        return any(isinstance(each, kinds) for each in cast("Sequence[object]", value))
    return isinstance(value, kinds)


def blocks_of(value: object, uri: str = "result:content") -> list[Any]:
    """Return content blocks for content, a text, bytes, a mapping in wire form, or several of them.

    `uri` is for bytes that are neither an image nor a sound. Raises: TypeError for anything else.
    """
    if value is None:
        return []
    single = value
    if isinstance(value, (str, BYTES)) or is_mapping(value) or is_block(value):
        return [_block(single, uri)]
    if isinstance(value, Iterable):
        return [_block(each, uri) for each in cast("Iterable[object]", value)]
    raise _not_content(value)


def _not_content(value: object) -> TypeError:
    return TypeError(
        "content is a string, bytes, a content object such as Image, or a mapping with a type; "
        f"got {type(value).__name__}"
    )


def _block(value: object, uri: str) -> object:
    if isinstance(value, str):
        return TextContent(value)
    if isinstance(value, BYTES):
        return binary(bytes(cast("bytes", value)), uri)
    if isinstance(value, Media):
        return value.block()
    if is_mapping(value):
        value = _described(value)
    elif isinstance(value, BLOCKS):
        value = value if _is_text(value) or isinstance(value, UnknownContent) else checked(_in_base64(value))
    if isinstance(value, BLOCKS):
        return to_builtins(value) if isinstance(value, UnknownContent) or unknown_members(value) else value
    drawn = _drawn(value)
    if drawn is None:
        raise _not_content(value)
    return drawn


def _described(members: Mapping[str, JSON]) -> Wire:
    """Return the block that a mapping describes. Raises: TypeError for one that clients could not read."""
    try:
        found = decode_content(members)
    except msgspec.ValidationError as problem:
        raise TypeError(f"the content {members.get('type')!r} cannot be sent: {problem}") from None
    if isinstance(found, UnknownContent):
        raise TypeError(
            f"{members.get('type')!r} is not a type of content: use text, image, audio, resource or resource_link; "
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
    if isinstance(value, Media):
        return [value.resource(uri)]
    if isinstance(value, BYTES):
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
