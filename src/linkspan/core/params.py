"""The params of each method, as shapes. Each params object is parsed once; arguments in it stay raw."""

from __future__ import annotations

from functools import cache
from typing import Any, Protocol

import msgspec
from msgspec import Raw

from linkspan.errors import INVALID_PARAMS, RemoteProtocolError
from linkspan.types import requests
from linkspan.types.base import ABSENT

__all__ = ["AnyParams", "HasMeta", "read_meta", "read_params"]


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
    "initialize": requests.InitializeParams,
    "tools/list": requests.ListParams,
    "tools/call": requests.CallToolParams,
    "prompts/list": requests.ListParams,
    "prompts/get": requests.GetPromptParams,
    "resources/list": requests.ListParams,
    "resources/templates/list": requests.ListParams,
    "resources/read": requests.ReadResourceParams,
    "resources/subscribe": requests.SubscribeParams,
    "resources/unsubscribe": requests.SubscribeParams,
    "completion/complete": requests.CompleteParams,
    "logging/setLevel": requests.SetLevelParams,
    "subscriptions/listen": requests.ListenParams,
    "notifications/cancelled": requests.CancelledParams,
}


@cache
def _decoder(method: str) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(_TYPES[method])


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
    return decoded


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
