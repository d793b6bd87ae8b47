"""Hosts, origins and socket addresses, parsed as wholes and in one place: a part of one is never compared.

Spec: RFC 9110 section 7.2 (Host), RFC 3986 section 3.2 (authority), RFC 6454 section 6 (origin).
"""

from __future__ import annotations

import re
from functools import lru_cache
from ipaddress import IPv6Address, ip_address
from typing import Final

import msgspec

__all__ = ["Authority", "Origin", "is_loopback", "parse_authority", "parse_origin"]

_REMEMBERED: Final = 128
"""Values that are parsed once: nearly all clients send the same few."""
_MAX_PORT: Final = 65535
_PORTS: Final = {"http": 80, "https": 443}

# A comma is legal in a name, but no real name has one: with it, this would be two headers that a server joined.
_AUTHORITY: Final = re.compile(
    r"(?:(?P<name>(?:[A-Za-z0-9._~!$&'()*+;=-]|%[0-9A-Fa-f]{2})+)|\[(?P<v6>[0-9A-Fa-f:.]+)\])(?::(?P<port>[0-9]{0,5}))?"
)
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
    try:
        address = IPv6Address(found["v6"])
    except ValueError:
        return None
    return Authority(f"[{address.compressed}]", port, is_loopback(found["v6"]) is True)


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
    try:
        found = ip_address(address)
    except ValueError:
        return None
    found = getattr(found, "ipv4_mapped", None) or found  # how a socket of both families shows an IPv4 address
    return None if found.is_unspecified else found.is_loopback
