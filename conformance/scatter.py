"""A balancer without affinity: each request goes to the next of several servers, on a connection of its own."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import cycle

__all__ = ["scattered"]

_CONNECTION = re.compile(rb"\r\n(connection|keep-alive):[^\r]*", re.IGNORECASE)


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
        writer.close()


@contextmanager
def scattered(ports: list[int]) -> Iterator[int]:
    """Listen on a free port of 127.0.0.1 until the end of the block; give the port."""
    loop, turn = asyncio.new_event_loop(), cycle(ports)
    ready: list[int] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.IncompleteReadError):
            head = await reader.readuntil(b"\r\n\r\n")
            head = _CONNECTION.sub(b"", head)[:-2] + b"connection: close\r\n\r\n"
            back, to = await asyncio.open_connection("127.0.0.1", next(turn))
            to.write(head)
            sending = asyncio.ensure_future(_pump(reader, to))
            await _pump(back, writer)
            sending.cancel()
            to.close()
        writer.close()

    async def listen() -> None:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        ready.append(server.sockets[0].getsockname()[1])

    loop.run_until_complete(listen())
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    try:
        yield ready[0]
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
