"""A balancer without affinity: each request goes to the next of several servers, on a connection of its own."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from itertools import cycle

__all__ = ["scattered"]

_KEPT_ALIVE = re.compile(rb"\r\n(connection|keep-alive):[^\r]*", re.IGNORECASE)


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()


async def _balance(ports: list[int], ready: Future[tuple[int, asyncio.AbstractEventLoop, asyncio.Event]]) -> None:
    turn, ended = cycle(ports), asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers = [writer]
        with suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            head = await reader.readuntil(b"\r\n\r\n")
            back, to = await asyncio.open_connection("127.0.0.1", next(turn))
            writers.append(to)
            to.write(_KEPT_ALIVE.sub(b"", head)[:-2] + b"connection: close\r\n\r\n")
            both = [asyncio.ensure_future(_pump(reader, to)), asyncio.ensure_future(_pump(back, writer))]
            _, going = await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            for each in going:
                each.cancel()
            await asyncio.wait(both)
        for each in writers:
            each.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    ready.set_result((server.sockets[0].getsockname()[1], asyncio.get_running_loop(), ended))
    await ended.wait()
    server.close()


@contextmanager
def scattered(ports: list[int]) -> Iterator[int]:
    """Listen on a free port of 127.0.0.1 until the end of the block; give the port."""
    ready: Future[tuple[int, asyncio.AbstractEventLoop, asyncio.Event]] = Future()
    thread = threading.Thread(target=lambda: asyncio.run(_balance(ports, ready)), daemon=True)
    thread.start()
    port, loop, ended = ready.result(10)
    try:
        yield port
    finally:
        loop.call_soon_threadsafe(ended.set)
        thread.join(10)
