"""Values of JSON: read them, bound them, compare them. The limits of one message."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from types import NoneType, UnionType
from typing import Any, TypeAlias, TypeVar, Union, cast, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Raw

from linkspan.types.base import (
    JSON,
    AudioContent,
    BlobResourceContents,
    EmbeddedResource,
    ImageContent,
    JSONObject,
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
)
from linkspan.types.messages import (
    CallToolResult,
    CreateMessageResult,
    PromptMessage,
    ReadResourceResult,
    SamplingMessage,
)

T = TypeVar("T", bound=Wire)
Convert: TypeAlias = Callable[[Any], Any]

_BLOCKS: dict[str, type[Wire]] = {
    "text": TextContent,
    "image": ImageContent,
    "audio": AudioContent,
    "resource": EmbeddedResource,
    "resource_link": ResourceLink,
    "tool_use": ToolUseContent,
    "tool_result": ToolResultContent,
}


def encode_base64(data: bytes) -> str:
    """Return bytes as the wire carries them."""
    import binascii

    return binascii.b2a_base64(data, newline=False).decode()


def encode_base64url(data: bytes) -> str:
    """Return bytes as URLs and tokens carry them, without padding (RFC 4648, section 5)."""
    return encode_base64(data).rstrip("=").translate(_TO_URL)


_TO_URL = str.maketrans("+/", "-_")


def key_of(name: str) -> str:
    """Return what stands for a name in the keys of a store: 32 characters, since names may be long, and contain anything."""
    from hashlib import sha256  # loads OpenSSL, which most servers never need

    return sha256(name.encode()).hexdigest()[:32]


def sha256_base64url(text: str) -> str:
    """Return the SHA-256 of a text as PKCE and DPoP write it (RFC 7636, RFC 9449)."""
    from hashlib import sha256

    return encode_base64url(sha256(text.encode()).digest())


# To builtins.


def to_builtins(value: object) -> JSON:
    """Turn shapes, and lists and mappings of them, into JSON builtins, unknown members included."""
    if isinstance(value, UnknownContent):
        return value.members
    if isinstance(value, msgspec.Struct):
        return _members(value)
    if is_mapping(value):
        return {key: to_builtins(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [to_builtins(each) for each in cast("Sequence[object]", value)]
    if isinstance(value, Raw):
        return msgspec.json.decode(value)
    return value


def _members(value: msgspec.Struct) -> JSONObject:
    members: JSONObject = {}
    config = value.__struct_config__
    if config.tag is not None:
        members[config.tag_field or "type"] = config.tag
    for attribute, name, default in _fields(type(value)):
        each = getattr(value, attribute)
        if each is not default:
            members[name] = to_builtins(each)
    unknown: JSONObject = getattr(value, "__dict__", {}).get("unknown", {})
    return members | unknown if unknown else members


@cache
def _fields(kind: type[msgspec.Struct]) -> tuple[tuple[str, str, object], ...]:
    names, wire = kind.__struct_fields__, kind.__struct_encode_fields__
    defaults = (msgspec.NODEFAULT,) * (len(names) - len(kind.__struct_defaults__)) + kind.__struct_defaults__
    return tuple(zip(names, wire, defaults, strict=True))


# From builtins.


def decode_open(data: bytes | Raw, kind: type[T]) -> T:
    """Decode JSON into a shape and keep what the shape does not name. Raises: msgspec.DecodeError, msgspec.ValidationError."""
    return from_builtins(msgspec.json.decode(data), kind)


def from_builtins(value: JSON, kind: type[T]) -> T:
    """Turn JSON builtins into a shape and keep what the shape does not name. Raises: msgspec.ValidationError."""
    if not is_mapping(value):
        raise msgspec.ValidationError(f"Expected `object`, got `{type(value).__name__}`")
    members: dict[str, JSON] = dict(value)
    config = kind.__struct_config__
    if config.tag is not None and (found := members.pop(config.tag_field or "type", None)) != config.tag:
        raise msgspec.ValidationError(f"Expected type `{config.tag}`, got {found!r}")
    given: dict[str, Any] = {}
    for attribute, name, convert, required in _plan(kind):
        if name in members:
            each = members.pop(name)
            try:
                given[attribute] = convert(each)
            except msgspec.ValidationError as error:
                raise msgspec.ValidationError(f"{error} (in {name})") from None
        elif required:
            raise msgspec.ValidationError(f"Object missing required field `{name}`")
    made = kind(**given)
    if members:
        keep_unknown(made, members)
    return made


def decode_content(value: Mapping[str, JSON]) -> Wire:
    """Turn one content block in wire form into its shape; of a type that is not known here, keep all of it."""
    name = value.get("type")
    kind = _BLOCKS.get(name) if isinstance(name, str) else None
    return UnknownContent(dict(value)) if kind is None else from_builtins(value, kind)


@cache
def _plan(kind: type[Wire]) -> tuple[tuple[str, str, Convert, bool], ...]:
    hints = get_type_hints(kind)
    return tuple(
        (attribute, name, _special(kind, attribute) or _converter(hints[attribute]), default is msgspec.NODEFAULT)
        for attribute, name, default in _fields(kind)
    )


def _converter(hint: Any) -> Convert:
    """Choose how to read a member: shapes by hand, so that nothing is lost in them, the rest by msgspec."""
    inner = [each for each in get_args(hint) if each is not NoneType] if _is_union(hint) else [hint]
    if len(inner) == 1:
        only, optional = inner[0], _is_union(hint)
        if _is_shape(only):
            return lambda value: None if value is None and optional else from_builtins(value, only)
        if get_origin(only) is list and _is_shape(get_args(only)[0]):
            element: type[Wire] = get_args(only)[0]
            return lambda value: (
                None if value is None and optional else [from_builtins(each, element) for each in _list(value)]
            )
    return lambda value: msgspec.convert(value, hint)


def _is_union(hint: Any) -> bool:
    return get_origin(hint) in (Union, UnionType)


def _is_shape(hint: Any) -> bool:
    return isinstance(hint, type) and issubclass(hint, Wire)


def _list(value: JSON) -> list[JSON]:
    if not is_array(value):
        raise msgspec.ValidationError(f"Expected `array`, got `{type(value).__name__}`")
    return value


def _block(value: JSON) -> Wire:
    if not is_mapping(value):
        raise msgspec.ValidationError(f"Expected `object`, got `{type(value).__name__}`")
    return decode_content(value)


def _block_or_blocks(value: JSON) -> Wire | list[Wire]:
    return [_block(each) for each in value] if is_array(value) else _block(value)


def _contents(value: JSON) -> Wire:
    is_blob = is_mapping(value) and "blob" in value
    return from_builtins(value, BlobResourceContents if is_blob else TextResourceContents)


def _special(kind: type[Wire], attribute: str) -> Convert | None:
    return _SPECIAL.get((kind, attribute))


_SPECIAL: dict[tuple[type[Wire], str], Convert] = {
    (CallToolResult, "content"): lambda value: [_block(each) for each in _list(value)],
    (ToolResultContent, "content"): lambda value: [_block(each) for each in _list(value)],
    (PromptMessage, "content"): _block,
    (SamplingMessage, "content"): _block_or_blocks,
    (CreateMessageResult, "content"): _block_or_blocks,
    (EmbeddedResource, "resource"): _contents,
    (ReadResourceResult, "contents"): lambda value: [_contents(each) for each in _list(value)],
}


class Limits(msgspec.Struct, frozen=True):
    """Bounds on what one peer may make us hold or do (MSG-60).

    Raises: ValueError for a bound below 1, because a bound of 0 would not mean "unlimited".
    """

    max_line_bytes: int = 16 * 1024 * 1024
    """One message, in bytes. A longer one is refused and the connection goes on. HTTP bodies have `max_body_bytes`."""

    max_depth: int = 256
    """Arrays and objects inside each other, in one message."""

    max_batch: int = 1000
    """Messages in one JSON-RPC batch (only one revision has batches)."""

    max_running: int = 1024
    """Calls at work on one connection. Over stdio, more requests wait; over HTTP, they are refused. As many more calls
    may wait for answers of a handshake client; then no more questions are asked. A client refuses more questions of its
    server than this."""

    max_held_bytes: int = 16 * 1024 * 1024
    """Requests over stdio that wait because of `max_running`: their bytes, and 1 KiB for each. More requests are refused,
    more notifications are dropped."""

    max_subscriptions: int = 1000
    """Open `subscriptions/listen` requests and subscribed resources, each, on one connection."""

    max_rounds: int = 16
    """Rounds of questions to the user that one request may need."""

    input_timeout: float = 600.0
    """Seconds that a handshake client has to answer one server request, and that a call with `hold=True` waits."""

    max_held_calls: int = 1000
    """Calls of functions with `hold=True` that wait for answers, each for `input_timeout` seconds at most."""

    max_held_calls_per_principal: int = 100
    """Of these, those of one principal. Callers that are not authenticated share the others' bound."""

    max_request_state_bytes: int = 64 * 1024
    """A sealed `requestState`."""

    max_once: int = 10_000
    """Requests whose `ctx.once` values are remembered, each as long as its `requestState` is valid. The oldest go first."""

    max_principals: int = 64
    """For a client: principals that calls name by `auth=` or `headers=` whose lists, and handshake sessions, are kept.

    The oldest go first."""

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)!r}")


DEFAULT_LIMITS = Limits()
