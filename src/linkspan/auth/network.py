"""What a flow of authorization may be made to contact: URLs that others gave us, and the addresses behind their names.

A server names the URLs of its metadata and of its authorization server, so it could make this machine send requests to hosts that
only this machine reaches. Spec: security best practices, server-side request forgery; OAuth 2.1, section 1.5.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import TypeAlias
from urllib.parse import urlsplit, urlunsplit

Origin: TypeAlias = tuple[str, str, int | None]
"""Scheme, host in lower case, and port."""
_NOT_HTTPS = "it is not https"
_PORTS = {"http": 80, "https": 443}
_NAT64 = 0x64FF9B << 64
"""The first 96 bits of an IPv6 address that stands for an IPv4 one (RFC 6052)."""
_CLOUD_METADATA = IPv6Address("fd00:ec2::254")
"""The one metadata service of a cloud whose address is not link-local."""


def origin_of(url: str) -> Origin | None:
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


def without_credentials(url: str) -> str:
    """Return the URL of a server without user name, password and fragment, and with its host in lower case."""
    parts = urlsplit(url)
    return urlunsplit((parts.scheme.lower(), parts.netloc.rpartition("@")[2].lower(), parts.path, parts.query, ""))


def check_url(url: str, server_url: str, plain: Collection[Origin] = ()) -> str | None:
    """Return what is wrong with a URL that a server gave us; None if it may be contacted, or shown to a person.

    It is https; http is for loopback only, if the MCP server is there, too, and for the origins in `plain`.
    """
    origin = origin_of(url)
    if origin is None or not url.isascii() or not url.isprintable() or " " in url:
        return "it is not an https URL"
    parts = urlsplit(url)
    if "@" in parts.netloc or "\\" in url:
        return "it has a user name or a backslash"
    if parts.fragment or url.endswith("#"):
        return "it has a fragment"
    if origin[0] == "https" or (is_local(url) and is_local(server_url)) or origin in plain:
        return None
    return _NOT_HTTPS


def check_issuer_url(owner: str, name: str, url: str, *, insecure: bool) -> None:
    """Raise ValueError for a URL at which no authorization server is asked; `insecure`: http is good on any host.

    `owner` and `name` are what the author has written it to: `Jwt`, `issuer`.
    """
    wrong = check_url(url, url)
    if wrong is None or (wrong == _NOT_HTTPS and insecure):
        return
    hint = (
        f"; for one inside a private network, where each machine is trusted, write {owner}(..., insecure_issuer=True)"
        if wrong == _NOT_HTTPS
        else ""
    )
    raise ValueError(f"{name} must be an https URL, or http on loopback: {url!r}: {wrong}{hint}")


def shown(url: str) -> str:
    """Return a URL for an error: without its query, in which some servers want a key."""
    return url.partition("?")[0]


def hosts_of(urls: Collection[str | None], hosts: Collection[str]) -> frozenset[str]:
    """Return the hosts that the user named, in lower case: in one of these URLs of theirs, or by themselves."""
    origins = [origin_of(each) for each in urls if each is not None]
    return frozenset({each[1] for each in origins if each is not None} | {each.lower() for each in hosts})


def was_named(host: str, urls: Collection[str | None], hosts: Collection[str]) -> bool:
    """Return whether the user named a host."""
    return host.lower() in hosts_of(urls, hosts)


def may_connect(address: str, server_addresses: Callable[[], Collection[str]], *, named: bool) -> bool:
    """Return whether to connect to an address for a host that a server named; `named`: the user named it, too.

    `server_addresses` returns those of the MCP server, which may take a look-up: it is called for a private address only.

    Public addresses are; private ones if the MCP server itself has a private address, loopback ones if it is on loopback.
    Link-local addresses never are, for there the metadata services of clouds give credentials away; nor are 0.0.0.0, which
    reaches loopback, and multicast addresses.
    """
    try:
        kind = _kind(address)
        if kind in ("public", "never"):
            return kind == "public"
        return named or kind in map(_kind, server_addresses())
    except ValueError:
        return False


def is_public(address: str) -> bool:
    """Return whether an address is in no private network and not on loopback. Raises: ValueError for a name."""
    return _kind(address) == "public"


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
    if isinstance(found, IPv4Address):
        return found
    if int(found) >> 32 == _NAT64:
        return IPv4Address(int(found) & 0xFFFFFFFF)
    return found.ipv4_mapped or found.sixtofour or found
