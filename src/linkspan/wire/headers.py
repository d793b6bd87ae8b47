"""HTTP header values as MCP uses them: media types, mirrored names and parameters, hosts and origins. Pure functions over text.

Hosts and origins are parsed as wholes, and a part of one is never compared. Spec:
https://modelcontextprotocol.io/specification/2026-07-28/basic/transports/streamable-http (H5-8, HDR-4), RFC 9110
section 7.2 (Host), RFC 3986 section 3.2 (authority), RFC 6454 section 6 (origin).
"""

from __future__ import annotations

import binascii
import re
from collections.abc import Iterable, Mapping
from decimal import Decimal, InvalidOperation
from functools import lru_cache
from typing import Final

import msgspec

from linkspan.types.base import JSON, is_object

_REMEMBERED: Final = 128
"""Header values that are understood once: nearly all clients send the same few."""
_OF_PROXIES: Final = ("forwarded", "via", "x-real-ip")
_PREFIX: Final = "=?base64?"
_SUFFIX: Final = "?="
_BASE64: Final = re.compile(r"[A-Za-z0-9+/]*={0,2}")
_PLAIN: Final = re.compile(r"[\x20-\x7e]*")
_WEIGHTLESS: Final = re.compile(r";\s*q=0(\.0{0,3})?\s*(;|$)", re.IGNORECASE)


class BadEncoding(ValueError):
    """A header value claims to be base64 and is not."""


def join_lines(lines: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return header lines by name: the values of one that came more than once are joined by commas (RFC 9110, section 5.3)."""
    values: dict[str, list[str]] = {}
    for name, value in lines:
        values.setdefault(name, []).append(value)
    return {name: ", ".join(found) for name, found in values.items()}


@lru_cache(_REMEMBERED)
def media_type(value: str) -> str:
    """Return the media type without its parameters, in lower case."""
    return value.partition(";")[0].strip().lower()


@lru_cache(_REMEMBERED)
def accepts(accept: str | None, wanted: str) -> bool:
    """Return whether an Accept header takes a media type such as `text/event-stream`. No header takes everything.

    Of the ranges that match, the most specific one counts (RFC 9110, section 12.5.1).
    """
    if accept is None:
        return True
    ranges = _ranges(accept)
    matching = (wanted, f"{wanted.partition('/')[0]}/*", "*/*")
    return next((ranges[each] for each in matching if each in ranges), False)


def wants_page(accept: str) -> bool:
    """Return whether an Accept header is that of a browser: it names HTML outright, where a client names the stream it wants."""
    wanted = _ranges(accept)
    return wanted.get("text/html", False) and not wanted.get("text/event-stream", False)


def is_forwarded(names: Iterable[str]) -> bool:
    """Return whether headers of these names, in lower case, come from a proxy (RFC 7239, and what was usual before)."""
    return any(name in _OF_PROXIES or name.startswith("x-forwarded-") for name in names)


@lru_cache(_REMEMBERED)
def _ranges(accept: str) -> Mapping[str, bool]:
    """Return the media ranges of an Accept header, and whether each is acceptable: with a weight of 0 it is not."""
    ranges: dict[str, bool] = {}
    for each in accept.split(","):
        kind = media_type(each)
        ranges[kind] = ranges.get(kind, False) or _WEIGHTLESS.search(each) is None
    return ranges


def unknown_coding(transfer_encoding: str) -> str | None:
    """Return the first transfer coding other than `chunked`; None if there is none, or `chunked` is not the last."""
    codings = [each for each in map(str.strip, transfer_encoding.lower().split(",")) if each]
    if "chunked" in codings[:-1]:
        return None
    return next((each for each in codings if each != "chunked"), None)


def decode_value(value: str) -> str:
    """Return what a mirrored header says. Raises: BadEncoding for invalid base64 (HDR-4)."""
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
        found = found.get(name) if is_object(found) else None
    return found


_MAX_PORT: Final = 65535
_PORTS: Final = {"http": 80, "https": 443}

# A comma is legal in a name, but no real name has one: with it, this would be two headers that a server joined.
_AUTHORITY: Final = re.compile(
    r"(?:(?P<name>(?:[A-Za-z0-9._~!$&'()*+;=-]|%[0-9A-Fa-f]{2})+)|\[(?P<v6>[0-9A-Fa-f:.]+)\])(?::(?P<port>[0-9]{0,5}))?"
)
_ABSOLUTE: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://(?P<authority>[^/?#]*)")
_ORIGIN: Final = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*)://(?P<authority>[^/]*)/?")


class Authority(msgspec.Struct, frozen=True):
    """A name in lower case, or an address (IPv6 in brackets, in its shortest form), and the port if it is given."""

    name: str
    port: int | None
    loopback: bool
    """Whether only this machine can be meant: `localhost`, 127/8 and [::1]. No DNS answers for these names."""


class Origin(msgspec.Struct, frozen=True):
    """Where a web page comes from. The port is the default of the scheme where it is left out."""

    scheme: str
    name: str
    port: int | None
    loopback: bool

    @property
    def default_port(self) -> int | None:
        """The port of a page that names none; None for what is not a page of a web server, such as an extension or an app."""
        return _PORTS.get(self.scheme)


@lru_cache(_REMEMBERED)
def parse_authority(text: str) -> Authority | None:
    """Return the host and port of `name[:port]`, as in a Host header; None if any part is invalid, or user information."""
    found = _AUTHORITY.fullmatch(text)
    if found is None or int(found["port"] or 0) > _MAX_PORT:
        return None
    port = int(found["port"]) if found["port"] else None
    if found["v6"] is None:
        name = found["name"].lower()
        return Authority(name, port, name == "localhost" or is_loopback(name) is True)
    from ipaddress import IPv6Address  # 2 ms, and clients do not come here

    try:
        address = IPv6Address(found["v6"])
    except ValueError:
        return None
    return Authority(f"[{address.compressed}]", port, is_loopback(found["v6"]) is True)


def split_target(target: str) -> tuple[str | None, str]:
    """Return the authority and the rest of a request's target in absolute form; None and all of it of another form.

    See RFC 9112, section 3.2. The authority may be invalid.
    """
    found = _ABSOLUTE.match(target)
    return (None, target) if found is None else (found["authority"], target[found.end() :] or "/")


@lru_cache(_REMEMBERED)
def parse_origin(text: str) -> Origin | None:
    """Return the parts of `scheme://name[:port]`; None if any is invalid. `null` is an origin of that scheme, without a name."""
    if text == "null":
        return Origin(text, "", None, False)
    found = _ORIGIN.fullmatch(text)
    at = parse_authority(found["authority"]) if found is not None else None
    if found is None or at is None:
        return None
    scheme = found["scheme"].lower()
    return Origin(scheme, at.name, at.port if at.port is not None else _PORTS.get(scheme), at.loopback)


@lru_cache(_REMEMBERED)
def is_loopback(address: str) -> bool | None:
    """Return whether a numeric address is loopback, all of 127/8 and ::1; None for a name or an unspecified address."""
    from ipaddress import ip_address

    try:
        found = ip_address(address)
    except ValueError:
        return None
    found = getattr(found, "ipv4_mapped", None) or found  # how a socket of both families shows an IPv4 address
    return None if found.is_unspecified else found.is_loopback
