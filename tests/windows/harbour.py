"""The server of these tests: one tool for each way to run, and a few that misbehave."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager

from linkspan import Context, Server


@contextmanager
def open_harbour(server: Server) -> Generator[None]:
    """Report when it is opened and closed."""
    os.write(2, b"opened\n")
    yield
    os.write(2, b"closed\n")


server = Server("harbour", version="1", lifespan=open_harbour)


@server.tool(inline=True)
def inline(text: str) -> str:
    """Return a text, from the thread that reads."""
    return text


@server.tool
def plain(text: str) -> str:
    """Return a text, from a worker thread."""
    return text


@server.tool
async def on_loop(text: str) -> str:
    """Return a text, from an event loop."""
    return text


@server.tool(isolated=True)
def isolated(text: str) -> str:
    """Return a text, from a process of its own."""
    return text


@server.tool
def prints(text: str) -> str:
    """Print a text, in Python and below it, before returning it."""
    print(text)
    subprocess.run([sys.executable, "-c", "print('from a child')"], check=True)
    return text


@server.tool
def counts(to: int, ctx: Context) -> int:
    """Report progress."""
    for number in range(1, to + 1):
        ctx.progress(number, total=to)
    return to


@server.tool(inline=True)
def block() -> None:
    """Never return."""
    os.write(2, b"blocking\n")
    time.sleep(600)


@server.tool
def raise_signal(name: str) -> None:
    """Raise a signal, as Ctrl-C and others do."""
    signal.raise_signal(getattr(signal, name))


@server.tool
async def raise_signal_on_loop(name: str) -> None:
    """Raise a signal while an event loop runs."""
    raise_signal(name)
    await asyncio.sleep(600)


@server.tool(inline=True)
def raise_signal_and_block(name: str) -> None:
    """Raise a signal while the thread that reads never returns."""
    threading.Timer(0.2, raise_signal, (name,)).start()
    time.sleep(600)


@server.tool
def die() -> None:
    """End the process."""
    os.write(2, b"the harbour burns\n")
    os._exit(3)


@server.tool
def start_another(port: int) -> str:
    """Start a process that is connected to a port of the test for as long as it lives."""
    code = f"import socket, time; held = socket.create_connection(('127.0.0.1', {port})); time.sleep(600)"
    subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    return "started"


@server.tool
def hold(port: int) -> str:
    """Be connected to a port of the test for as long as this process lives."""
    held.append(socket.create_connection(("127.0.0.1", port)))
    return "held"


held: list[socket.socket] = []

if __name__ == "__main__":
    server.run()
