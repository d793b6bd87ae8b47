"""A server and a session in one process, for tests."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from linkspan_compat.client.ends import ends
from linkspan_compat.client.session import ClientSession
from linkspan_compat.keywords import check

__all__ = ["create_client_server_memory_streams", "create_connected_server_and_client_session", "session_with"]


def _lowlevel(server: Any) -> Any:
    return getattr(server, "_mcp_server", server)


def served(server: Any) -> Any:
    """Return a server of the SDKs, or of Linkspan, as one of Linkspan."""
    from linkspan import Server as LinkspanServer
    from linkspan_compat.server.serving import Served

    return server if isinstance(server, LinkspanServer) else Served(_lowlevel(server), lifespan=True).under


def connects(server: Any) -> Any:
    """Return what connects a client to a server of the SDKs, or of Linkspan, in this process."""

    def connect(**callbacks: Any) -> Any:
        from linkspan import Client

        return Client(served(server), **callbacks)

    return connect


def session_with(server: Any, **callbacks: Any) -> ClientSession:
    """Return a session with a server in this process."""
    reader, writer = ends(connects(server), "memory")
    return ClientSession(reader, writer, **callbacks)


@asynccontextmanager
async def create_connected_server_and_client_session(
    server: Any, read_timeout_seconds: Any = None, raise_exceptions: bool = False, **callbacks: Any
) -> AsyncIterator[ClientSession]:
    """Yield a session that is agreed with a server in this process."""
    check("create_connected_server_and_client_session", {"raise_exceptions": raise_exceptions}, "raise_exceptions")
    async with session_with(server, read_timeout_seconds=read_timeout_seconds, **callbacks) as session:
        await session.initialize()
        yield session


@asynccontextmanager
async def create_client_server_memory_streams() -> AsyncIterator[Any]:
    """Yield two pairs of streams of anyio, which are connected."""
    import anyio

    to_client, from_server = anyio.create_memory_object_stream[Any](10)
    to_server, from_client = anyio.create_memory_object_stream[Any](10)
    async with to_client, from_server, to_server, from_client:
        yield (from_server, to_server), (from_client, to_client)
