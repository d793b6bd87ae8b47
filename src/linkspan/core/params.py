"""The params of requests: read once, into the shape that their method has."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, ClassVar, Final, Literal, Protocol, TypeAlias

import msgspec
from msgspec import Raw

from linkspan.errors import INVALID_PARAMS, RemoteProtocolError, clipped
from linkspan.types import messages
from linkspan.types.base import ABSENT
from linkspan.types.methods import METHODS
from linkspan.wire.jsonrpc import (
    SLACK,
    RequestId,
    RpcRequest,
    check_utf8,
    has_few_brackets,
    most_depth,
    repeated,
)


class HasMeta(Protocol):
    """Every params shape keeps its `_meta` raw."""

    named_by: ClassVar[str | None]

    @property
    def meta(self) -> Raw:
        """The `_meta` member."""
        ...


class AnyParams(msgspec.Struct, frozen=True):
    """Params of which only `_meta` is known."""

    named_by: ClassVar[str | None] = None
    meta: Raw = msgspec.field(default=ABSENT, name="_meta")


@cache
def _decoder(method: str) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(METHODS[method].params)


_BARE_CALL = len(b'{"name":""}')
_ARGUMENTS = len(b',"arguments":')
_META = len(b',"_meta":')
_SECOND_NAME = len(b'"name":"",')
_any_params = msgspec.json.Decoder(AnyParams)


class Decoder(Protocol):
    """Reads params into a shape, as decoders of msgspec do."""

    def decode(self, buf: bytes | Raw, /) -> Any:
        """Return the params. Raises: msgspec.DecodeError, msgspec.ValidationError."""
        ...


Decoders: TypeAlias = Mapping[str, Decoder]
"""What reads the params of further methods, and of methods whose params are more than their shape."""

_NONE: Final[Decoders] = {}


def read_params(method: str, params: Raw, extended: Decoders = _NONE) -> HasMeta:
    """Decode the params of `method`; of an unknown method only `_meta`. Absent and null params are `{}`.

    Raises: RemoteProtocolError (-32602) that names the member that is wrong.
    """
    decoder = extended.get(method) or (_decoder(method) if method in METHODS else _any_params)
    if params is ABSENT:
        return _decode(decoder, b"{}")
    try:
        decoded: HasMeta = decoder.decode(params)
    except msgspec.ValidationError:
        return _decode(decoder, b"{}" if bytes(params) == b"null" else params)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise RemoteProtocolError(INVALID_PARAMS, "Invalid params: not readable") from error
    if type(decoded) is messages.CallToolParams:  # where what is called stands between long values
        arguments, meta = len(decoded.arguments), len(decoded.meta)
        needed = _BARE_CALL + len(decoded.name) + arguments + meta
        needed += (_ARGUMENTS if arguments else 0) + (_META if meta else 0)
        if len(params) - needed >= _SECOND_NAME:
            _refuse_repeated(params, decoded.arguments)
    elif type(decoded) is messages.GetPromptParams:
        _refuse_repeated(params, ABSENT)
    return decoded


def _refuse_repeated(params: Raw, arguments: Raw) -> None:
    name = repeated(bytes(params), arguments)
    if name is not None:
        problem = f"{clipped(name)!r} appears more than once" if name else "too many members"
        raise RemoteProtocolError(INVALID_PARAMS, f"Invalid params: {problem}")


class ToolCall(msgspec.Struct, gc=False):
    """A `tools/call` that was read in one pass."""

    jsonrpc: Literal["2.0"]
    id: RequestId
    method: Literal["tools/call"]
    params: messages.CallToolParams


AnyRequest: TypeAlias = RpcRequest | ToolCall

_read_call = msgspec.json.Decoder(ToolCall).decode
_CALL_LINE = len(b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"","arguments":,"_meta":}}')
_CALL_QUOTES = b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"","arguments":,"_meta":}}'.count(b'"')
_BEGINNING = 100
"""Bytes in which the name of a method stands, if a message says early what it is."""


def read_call(line: bytes, max_depth: int) -> ToolCall | None:
    """Read the commonest message in one pass; None for whatever needs a closer look, by `decode` and `read_params`.

    Those give the same for what is returned here: a `tools/call` with a name, arguments, an envelope and no other member.
    """
    if line.find(b'"tools/call"', 0, _BEGINNING) < 0:
        return None
    size = len(line)
    few = size <= 2 * max_depth or has_few_brackets(line, max_depth)
    try:
        if not line.isascii():
            check_utf8(line)
        call = _read_call(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    params = call.params
    arguments, meta = params.arguments, params.meta
    if not arguments or not meta or not (few or 2 + most_depth(arguments) + len(meta) <= max_depth):
        return None
    if size - _CALL_LINE - len(params.name) - len(arguments) - len(meta) <= SLACK:
        return call  # no room for another member
    quotes = _CALL_QUOTES + bytes(arguments).count(b'"') + bytes(meta).count(b'"') + (2 if type(call.id) is str else 0)
    return call if line.count(b'"') == quotes else None  # each member has two, however much space is between them


def read_meta(params: Raw) -> Raw:
    """Return the `_meta` of params that may be wrong otherwise."""
    try:
        return _any_params.decode(params).meta if params is not ABSENT else ABSENT
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return ABSENT


def _decode(decoder: Decoder, params: bytes | Raw) -> HasMeta:
    try:
        decoded: HasMeta = decoder.decode(params)
    except msgspec.ValidationError as error:
        raise RemoteProtocolError(INVALID_PARAMS, f"Invalid params: {_in_words(str(error))}") from None
    return decoded


def _in_words(complaint: str) -> str:
    """Say `Object missing required field `name`` in the words of the wire."""
    what, _, where = complaint.partition(" - at `$")
    return f"{where.rstrip('`').lstrip('.')}: {what}" if where.rstrip("`") else what
