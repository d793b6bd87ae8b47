"""What a flow of authorization may be made to contact: URLs that others gave us, and the addresses behind their names.

A server names the URLs of its metadata and of its authorization server, so it could make this machine send requests to hosts that
only this machine reaches. Spec: security best practices, server-side request forgery; OAuth 2.1, section 1.5.
"""

from __future__ import annotations

from collections.abc import Collection
from ipaddress import IPv4Address, IPv6Address, ip_address
from urllib.parse import urlsplit

__all__ = ["check_url", "is_local", "may_connect", "origin_of", "was_named"]

_PORTS = {"http": 80, "https": 443}
_CLOUD_METADATA = IPv6Address("fd00:ec2::254")
"""The one metadata service of a cloud whose address is not link-local."""


def origin_of(url: str) -> tuple[str, str, int | None] | None:
    """Return scheme, host and port of a URL; None for one that is not http or https, or is malformed."""
    try:
        parts = urlsplit(url)
        port = parts.port or _PORTS[parts.scheme]
    except (ValueError, KeyError):
        return None
    return (parts.scheme, parts.hostname, port) if parts.hostname else None


def is_local(url: str) -> bool:
    """Return whether a URL is on the loopback interface of this machine, by its name."""
    origin = origin_of(url)
    if origin is None:
        return False
    host = origin[1]
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return _address(host).is_loopback
    except ValueError:
        return False


def check_url(url: str, server_url: str) -> str | None:
    """Return what is wrong with a URL that a server gave us; None if it may be contacted, or shown to a person.

    It is https; http is for loopback only, if the MCP server is there, too.
    """
    origin = origin_of(url)
    if origin is None or not url.isascii() or not url.isprintable() or " " in url:
        return "it is not an https URL"
    parts = urlsplit(url)
    if "@" in parts.netloc or "\\" in url:
        return "it has a user name or a backslash"
    if parts.fragment or url.endswith("#"):
        return "it has a fragment"
    if origin[0] == "https" or (is_local(url) and is_local(server_url)):
        return None
    return "it is not https"


def was_named(host: str, urls: Collection[str | None], hosts: Collection[str]) -> bool:
    """Return whether the user named a host: in one of these URLs of theirs, or by itself."""
    ours = {origin[1] for url in urls if url is not None and (origin := origin_of(url)) is not None}
    return host.lower() in ours | {each.lower() for each in hosts}


def may_connect(address: str, server_addresses: Collection[str], *, named: bool) -> bool:
    """Return whether to connect to an address for a host that a server named; `named`: the user named it, too.

    Public addresses are; private ones if the MCP server itself has a private address, loopback ones if it is on loopback.
    Link-local addresses never are, for there the metadata services of clouds give credentials away; nor are 0.0.0.0, which
    reaches loopback, and multicast addresses.
    """
    try:
        kind = _kind(address)
        kinds = {_kind(each) for each in server_addresses}
    except ValueError:
        return False
    if kind in ("public", "never"):
        return kind == "public"
    return named or kind in kinds


def _kind(address: str) -> str:
    found = _address(address)
    if found.is_link_local or found.is_multicast or found.is_unspecified or found == _CLOUD_METADATA:
        return "never"
    if found.is_loopback:
        return "loopback"
    return "public" if found.is_global else "private"


def _address(text: str) -> IPv4Address | IPv6Address:
    """Return an address; an IPv4 address inside an IPv6 one as itself."""
    found = ip_address(text.partition("%")[0])
    if isinstance(found, IPv6Address):
        return found.ipv4_mapped or found.sixtofour or _nat64(found) or found
    return found


def _nat64(address: IPv6Address) -> IPv4Address | None:
    return IPv4Address(int(address) & 0xFFFFFFFF) if int(address) >> 32 == 0x64FF9B << 64 else None
