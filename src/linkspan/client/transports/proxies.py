"""The proxy on the way to a server, as the environment or the system names it.

HTTP_PROXY, HTTPS_PROXY and ALL_PROXY name it, NO_PROXY the servers that are reached without, as for curl and for Go: hosts with
all below them, addresses, networks such as 10.0.0.0/8, each with a port if only that one is meant, or `*` for all.
"""

from __future__ import annotations

import os
import re
import sys
from typing import Final

_ENTRY: Final = re.compile(r"(?P<name>\[[^\[\]]*\]|[^:]*|[^\[]*)(?::(?P<port>[0-9]+))?")
"""A name, or an address, which needs brackets only if it has colons and a port follows."""


def find_proxy(scheme: str, host: str, port: int) -> str:
    """Return the URL of the proxy on the way to a server; empty for none. On some systems this takes a while."""
    if sys.platform not in ("darwin", "win32") and not any(name.lower().endswith("_proxy") for name in os.environ):
        return ""  # without the import, which takes longer than a call
    from urllib.request import getproxies, proxy_bypass

    proxies = getproxies()
    proxy = proxies.get(scheme) or proxies.get("all", "")
    if not proxy or is_exempt(host, port, proxies.get("no", "")) or proxy_bypass(host):
        return ""
    return proxy if "://" in proxy else f"http://{proxy}"


def is_exempt(host: str, port: int, no_proxy: str) -> bool:
    """Return whether a value of NO_PROXY names a server; `host` in lower case, an IPv6 address without brackets."""
    return any(_names(entry.strip().lower(), host, port) for entry in no_proxy.split(","))


def _names(entry: str, host: str, port: int) -> bool:
    found = _ENTRY.fullmatch(entry)
    if found is None or (found["port"] and int(found["port"]) != port):
        return False
    name = found["name"].strip("[]")
    if name == "*":
        return True
    name = name.removeprefix("*").removeprefix(".")
    return bool(name) and (host == name or host.endswith(f".{name}") or _is_in_network(host, name))


def _is_in_network(host: str, network: str) -> bool:
    from ipaddress import ip_address, ip_network

    try:
        return ip_address(host) in ip_network(network, strict=False)
    except ValueError:
        return False
