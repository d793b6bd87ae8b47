"""HTTP header values as MCP uses them: media types, mirrored names and parameters. Pure functions over text.

Spec: https://modelcontextprotocol.io/specification/2026-07-28/basic/transports (H5-8, HDR-4).
"""

from __future__ import annotations

import binascii
import re
from collections.abc import Mapping
from decimal import Decimal, InvalidOperation
from functools import lru_cache
from typing import Final

from linkspan.types.base import JSON, is_object

__all__ = [
    "BadEncoding",
    "accepts",
    "agrees",
    "decode_value",
    "encode_value",
    "media_type",
    "names",
    "value_at",
]

_REMEMBERED: Final = 128
"""Header values that are understood once: nearly all clients send the same few."""
_PREFIX: Final = "=?base64?"
_SUFFIX: Final = "?="
_BASE64: Final = re.compile(r"[A-Za-z0-9+/]*={0,2}")
_PLAIN: Final = re.compile(r"[\x20-\x7e]*")


class BadEncoding(ValueError):
    """A header value claims to be base64 and is not."""


@lru_cache(_REMEMBERED)
def media_type(value: str) -> str:
    """Return the media type without its parameters, in lower case."""
    return value.partition(";")[0].strip().lower()


@lru_cache(_REMEMBERED)
def accepts(accept: str | None, wanted: str) -> bool:
    """Return whether an Accept header takes a media type such as `text/event-stream`. No header takes everything."""
    if accept is None:
        return True
    return not _ranges(accept).isdisjoint((wanted, f"{wanted.partition('/')[0]}/*", "*/*"))


def names(accept: str, wanted: str) -> bool:
    """Return whether an Accept header asks for this very media type, not merely for everything."""
    return wanted in _ranges(accept)


@lru_cache(_REMEMBERED)
def _ranges(accept: str) -> frozenset[str]:
    return frozenset(media_type(each) for each in accept.split(","))


def decode_value(value: str) -> str:
    """Return what a mirrored header says. Raises: BadEncoding for base64 that is none (HDR-4)."""
    if not (value.startswith(_PREFIX) and value.endswith(_SUFFIX) and len(value) >= len(_PREFIX + _SUFFIX)):
        return value
    inner = value[len(_PREFIX) : -len(_SUFFIX)]
    if len(inner) % 4 or not _BASE64.fullmatch(inner):
        raise BadEncoding("is not valid base64")
    try:
        return binascii.a2b_base64(inner).decode()
    except (binascii.Error, UnicodeDecodeError):
        raise BadEncoding("is not base64 of UTF-8") from None


def encode_value(value: JSON) -> str:
    """Return a value as its mirrored header says it (HDR-3, HDR-4)."""
    text = str(value).lower() if isinstance(value, bool) else str(value)
    plain = _PLAIN.fullmatch(text) is not None and text == text.strip(" \t")
    if plain and not (text.startswith(_PREFIX) and text.endswith(_SUFFIX)):
        return text
    return f"{_PREFIX}{binascii.b2a_base64(text.encode(), newline=False).decode()}{_SUFFIX}"


def agrees(header: str, value: JSON) -> bool:
    """Return whether a decoded header says the same as a JSON value; numbers are compared as numbers."""
    if isinstance(value, bool):
        return header == ("true" if value else "false")
    if isinstance(value, int | float):
        try:
            return Decimal(header.strip()) == Decimal(str(value))
        except InvalidOperation:
            return False
    return isinstance(value, str) and header == value


def value_at(arguments: JSON, path: tuple[str, ...]) -> JSON:
    """Return the value at a path of names, or None."""
    found: JSON = arguments
    for name in path:
        members: Mapping[str, JSON] = found if is_object(found) else {}
        found = members.get(name)
    return found
