"""Who sends a request and with which params: each params object is parsed once; arguments in it stay raw."""

from __future__ import annotations

from functools import cache
from typing import Any, Final, Protocol

import msgspec
from msgspec import Raw

from linkspan.errors import INVALID_PARAMS, RemoteProtocolError, clipped
from linkspan.types import messages
from linkspan.types.base import ABSENT
from linkspan.wire.raw_json import repeated

__all__ = ["AnyParams", "HasMeta", "UnknownIdentity", "principal_of", "read_meta", "read_params"]


class HasMeta(Protocol):
    """Every params shape keeps its `_meta` raw."""

    @property
    def meta(self) -> Raw:
        """The `_meta` member."""
        ...


class AnyParams(msgspec.Struct, frozen=True):
    """Params of which only `_meta` is known."""

    meta: Raw = msgspec.field(default=ABSENT, name="_meta")


_TYPES: dict[str, type[Any]] = {
    "initialize": messages.InitializeParams,
    "tools/list": messages.ListParams,
    "tools/call": messages.CallToolParams,
    "prompts/list": messages.ListParams,
    "prompts/get": messages.GetPromptParams,
    "resources/list": messages.ListParams,
    "resources/templates/list": messages.ListParams,
    "resources/read": messages.ReadResourceParams,
    "resources/subscribe": messages.SubscribeParams,
    "resources/unsubscribe": messages.SubscribeParams,
    "completion/complete": messages.CompleteParams,
    "logging/setLevel": messages.SetLevelParams,
    "subscriptions/listen": messages.ListenParams,
    "notifications/cancelled": messages.CancelledParams,
}


@cache
def _decoder(method: str) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(_TYPES[method])


_BARE_CALL = len(b'{"name":""}')
_ARGUMENTS = len(b',"arguments":')
_META = len(b',"_meta":')
_SECOND_NAME = len(b'"name":"",')
_any_params = msgspec.json.Decoder(AnyParams)


def read_params(method: str, params: Raw) -> HasMeta:
    """Decode the params of `method`; of an unknown method only `_meta`. Absent and null params are `{}`.

    Raises: RemoteProtocolError (-32602) that names the member that is wrong.
    """
    decoder = _decoder(method) if method in _TYPES else _any_params
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


def read_meta(params: Raw) -> Raw:
    """Return the `_meta` of params that may be wrong otherwise."""
    try:
        return _any_params.decode(params).meta if params is not ABSENT else ABSENT
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return ABSENT


def _decode(decoder: msgspec.json.Decoder[Any], params: bytes | Raw) -> HasMeta:
    try:
        decoded: HasMeta = decoder.decode(params)
    except msgspec.ValidationError as error:
        raise RemoteProtocolError(INVALID_PARAMS, f"Invalid params: {_in_words(str(error))}") from None
    return decoded


def _in_words(complaint: str) -> str:
    """Say `Object missing required field `name`` in the words of the wire."""
    what, _, where = complaint.partition(" - at `$")
    return f"{where.rstrip('`').lstrip('.')}: {what}" if where.rstrip("`") else what


_NAMES: Final = ("identity", "username")
"""What identifies a user, the first that says anything. A display name does not: others may have the same, or choose it."""
_NOTHING: Final = object()


class UnknownIdentity(TypeError):
    """A user has a shape from which no identity can be read; its text names what to set."""


def principal_of(user: object, where: str) -> str | None:
    """Return what identifies a user as text; None for None, an empty text, and one that is not authenticated.

    A user is a str, int or UUID, or an object with such an `identity` or `username`; `where` is its name in the error. Raises:
    UnknownIdentity for anything else: if treated as None, such users would share sessions.
    """
    if user is None or type(user) is str:
        return user or None
    if (found := _text(user)) is not None:
        return found or None
    if not _attribute(user, "is_authenticated", True):
        return None
    present = False
    for name in _NAMES:
        value = _attribute(user, name, _NOTHING)
        if value is _NOTHING:
            continue
        present = True
        found = "" if value is None else _text(value)
        if found is None:
            raise UnknownIdentity(f"{where}.{name} is a {type(value).__name__}: set `{name}` to a str, int or UUID")
        if found:
            return found
    if present:
        return None
    raise UnknownIdentity(
        f"{where} is a {type(user).__name__}, which identifies no user: set it to a str, int or UUID, "
        "or to an object whose attribute `identity` (or `username`) is one"
    )


def _text(value: object) -> str | None:
    """Return an identity as text; None for a value that is not of a type that identifies."""
    if isinstance(value, str | int):
        return None if isinstance(value, bool) else str(value)
    from uuid import UUID

    return str(value) if isinstance(value, UUID) else None


def _attribute(user: object, name: str, default: object) -> object:
    try:
        return getattr(user, name, default)
    except NotImplementedError:  # Starlette's own users have no identity
        return default
