"""`fastmcp.utilities.tests`: what tests of FastMCP servers use."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any

from linkspan_compat.fast.http import find_available_port, serve_http
from linkspan_compat.fast.settings import settings

__all__ = ["caplog_for_fastmcp", "run_server_async", "temporary_settings"]

_START = 5.0
"""Seconds in which a server must listen."""


@contextmanager
def temporary_settings(**changed: Any) -> Iterator[None]:
    """Change settings until the block ends."""
    former = {name: settings.get_setting(name) for name in changed}
    for name, value in changed.items():
        settings.set_setting(name, value)
    try:
        yield
    finally:
        for name, value in former.items():
            settings.set_setting(name, value)


@contextmanager
def caplog_for_fastmcp(caplog: Any) -> Iterator[Any]:
    """Catch what is logged under `fastmcp`, also where it is not passed on to the root."""
    caplog.clear()
    logger = logging.getLogger("fastmcp")
    logger.addHandler(caplog.handler)
    try:
        yield caplog
    finally:
        logger.removeHandler(caplog.handler)


@asynccontextmanager
async def run_server_async(
    server: Any, port: int | None = None, transport: str = "http", path: str = "/mcp", host: str = "127.0.0.1"
) -> AsyncIterator[str]:
    """Serve on a port of this machine until the block ends; yield the URL. Raises: what the server raised at its start."""
    port = port or find_available_port()
    serving = asyncio.create_task(serve_http(server, transport, host, port, path=path))
    try:
        async with asyncio.timeout(_START):
            while not serving.done() and not await _listens(host, port):
                await asyncio.sleep(0.02)
        if serving.done():
            await serving
        yield f"http://{host}:{port}{path}"
    finally:
        serving.cancel()
        with suppress(asyncio.CancelledError):
            await serving


async def _listens(host: str, port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection(host, port)
    except OSError:
        return False
    writer.close()
    return True
