"""Servers that offer what another one offers, through one mount or several: tests run once more through them."""

from __future__ import annotations

from typing import Any

import pytest

from linkspan import Server
from linkspan.core.connection import ServerConnection

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
    "tasks",
    "max_tasks",
    "max_tasks_per_principal",
    "max_task_bytes",
    "max_task_bytes_per_principal",
)
"""Facts of a server that the server around it needs for the same answers."""


def through_mounts(server: Server, times: int = 1, **options: Any) -> Server:
    """Return a server around others, the innermost of which is `server`; it introduces itself as that does."""
    for _ in range(times):
        outer = Server(server.name, server.version, auto_notify=server._offer_options.auto_notify, **options)
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


def serve_through_mounts(monkeypatch: pytest.MonkeyPatch, times: int = 1) -> None:
    """Let each server that a test connects to be reached through mounts: a test runs once more without a change."""
    connect = Server.connect
    around: dict[int, tuple[Server, Server]] = {}

    def through(server: Server, **options: Any) -> ServerConnection:
        if id(server) not in around:
            outer = through_mounts(server, times)
            around[id(server)] = around[id(outer)] = (outer, server)
        return connect(around[id(server)][0], **options)

    monkeypatch.setattr(Server, "connect", through)


@pytest.fixture(params=["direct", "mounted"], autouse=True)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """How the servers of each test of a module are reached; a module that has this fixture runs twice."""
    if request.param == "mounted":
        serve_through_mounts(monkeypatch)
    return str(request.param)


DIRECT = pytest.mark.parametrize("way", ["direct"], indirect=True)
"""Marks a test that holds of the server that is served, not of one inside it."""
