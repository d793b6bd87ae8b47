"""Servers that offer what another one offers, through one mount or several: tests run once more through them."""

from __future__ import annotations

from typing import Any

from linkspan import Server

SAME = (
    "pinned",
    "served",
    "page_size",
    "ttl_ms",
    "cache_scope",
    "require_initialized",
    "limits",
    "request_state_keys",
    "request_state_ttl",
    "secret_headers",
    "store",
    "store_key",
)
"""Facts of a server that the server around it needs for the same answers."""


def through_mounts(server: Server, times: int = 1, **options: Any) -> Server:
    """Return a server around others, the innermost of which is `server`; it introduces itself as that does."""
    for _ in range(times):
        outer = Server(server.name, server.version, auto_notify=server._auto_notify, **options)
        profile, inner = outer._profile, server._profile
        for name in SAME:
            setattr(profile, name, getattr(inner, name))
        profile.implementation, profile.result_suffix = inner.implementation, inner.result_suffix
        for each in inner_extensions(server):
            outer._dispatcher.extend(each)
        outer.mount(server)
        profile.mounted, profile.own_instructions = (), inner.instructions
        server = outer
    return server


def inner_extensions(server: Server) -> list[Any]:
    """Return the extensions that the server around a server needs, too: that of tasks comes with their tools."""
    return [each for name, each in server._catalogue.extensions.items() if not name.endswith("/tasks")]
