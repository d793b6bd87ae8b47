"""SIGTERM while a call runs, of every kind and under every server: what was opened is closed, or the log names it."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

import pytest

from ports import reserve_port

SERVER = """
import asyncio, logging, os, time
from collections.abc import Iterator
from typing import Annotated, Any
from linkspan import Context, Depends, Server, Task

logging.basicConfig(level=logging.WARNING)
server = Server("shop")


def note(*what: object) -> None:
    with open("notes", "a") as notes:  # one short write: processes share the file
        notes.write(" ".join(map(str, what)) + "\\n")


@server.lifespan
def live() -> Iterator[None]:
    time.sleep(float(os.environ["ENTERING"]))
    note("open", "lifespan")
    yield None
    note("close", "lifespan")


def connection() -> Iterator[None]:
    note("open", "connection")
    try:
        yield None
    finally:
        note("close", "connection")


Connection = Annotated[Any, Depends(connection)]


@server.tool(inline=True)
def inline(connection: Connection) -> None:
    note("run")
    time.sleep(0.5)


@server.tool
def plain(connection: Connection, ctx: Context) -> None:
    note("run")
    while not ctx.cancelled:
        time.sleep(0.01)


@server.tool
async def coroutine(connection: Connection) -> None:
    note("run")
    await asyncio.sleep(3600)


@server.tool(isolated=True)
def isolated() -> None:
    note("run", os.getpid())
    time.sleep(3600)


@server.tool(task=Task(required=True))
def task(connection: Connection, ctx: Context) -> None:
    note("run")
    while not ctx.cancelled:
        time.sleep(0.01)


@server.tool(task=Task(required=True))
async def task_coroutine(connection: Connection) -> None:
    note("run")
    await asyncio.sleep(3600)


@server.tool
def deaf(connection: Connection) -> None:
    note("run")
    time.sleep(3600)


@server.tool
async def deaf_coroutine(connection: Connection) -> None:
    note("run")
    while True:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            pass


@server.tool(task=Task(required=True))
def deaf_task(connection: Connection) -> None:
    note("run")
    time.sleep(3600)


@server.tool(task=Task(required=True))
async def deaf_task_coroutine(connection: Connection) -> None:
    await deaf_coroutine(connection)


cleanup = float(os.environ["CLEANUP"])
asgi, wsgi = server.asgi(cleanup=cleanup), server.wsgi(cleanup=cleanup)


def run(port: int) -> None:
    server.run("http", port=port, path="/", drain=0.2, cleanup=cleanup)
"""
COMMANDS = {
    "run": "-c 'import shop; shop.run({port})'",
    "uvicorn": "-m uvicorn shop:asgi --port {port} --timeout-graceful-shutdown 1 --log-level warning",
    "hypercorn": "-m hypercorn shop:asgi -b 127.0.0.1:{port} --graceful-timeout 1 --log-level warning",
    "gunicorn with threads": "-m gunicorn shop:wsgi -b 127.0.0.1:{port} --threads 4 --graceful-timeout {graceful}",
    "gunicorn": "-m gunicorn shop:wsgi -b 127.0.0.1:{port} --graceful-timeout {graceful} --timeout 120",
}
KINDS = ["inline", "plain", "coroutine", "isolated", "task", "task_coroutine"]
DEAF = ["deaf", "deaf_coroutine", "deaf_task", "deaf_task_coroutine"]
META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {"extensions": {"io.modelcontextprotocol/tasks": {}}},
}


class Shop:
    """A server process, and a call that runs in it."""

    def __init__(self, name: str, folder: Path, cleanup: float, entering: float) -> None:
        (folder / "shop.py").write_text(SERVER)
        self._notes, self._log = folder / "notes", folder / "log"
        self._port = reserve_port()
        command = COMMANDS[name].format(port=self._port, graceful=int(cleanup) + 6)
        with self._log.open("w") as log:
            self.process = subprocess.Popen(
                f"exec {sys.executable} {command}",
                shell=True,
                cwd=folder,
                env=os.environ | {"CLEANUP": str(cleanup), "ENTERING": str(entering)},
                stdout=subprocess.DEVNULL,
                stderr=log,
            )
        self._connection: socket.socket | None = None

    def call(self, tool: str) -> None:
        """Begin a call, once the server can be reached, and wait until it runs."""
        message = {"name": tool, "arguments": {}, "_meta": META}
        content = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": message}).encode()
        head = (
            f"POST / HTTP/1.1\r\nHost: 127.0.0.1:{self._port}\r\nContent-Type: application/json\r\n"
            "Accept: application/json, text/event-stream\r\nMCP-Protocol-Version: 2026-07-28\r\n"
            f"Mcp-Method: tools/call\r\nMcp-Name: {tool}\r\nContent-Length: {len(content)}\r\n\r\n"
        )
        self._until(self._connect)
        assert self._connection is not None
        self._connection.sendall(head.encode() + content)
        self._until(lambda: any(line.startswith("run") for line in self.notes))

    def _connect(self) -> bool:
        with suppress(OSError):
            self._connection = socket.create_connection(("127.0.0.1", self._port), timeout=60)
        return self._connection is not None

    def _until(self, true: Callable[[], bool]) -> None:
        give_up = time.monotonic() + 60
        while not true():
            assert self.process.poll() is None, self.log
            assert time.monotonic() < give_up, self.log
            time.sleep(0.02)

    def stop(self) -> None:
        """Send SIGTERM, and wait for the end."""
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(90)

    @property
    def notes(self) -> list[str]:
        return self._notes.read_text().splitlines() if self._notes.exists() else []

    @property
    def log(self) -> str:
        return self._log.read_text()

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Callable[[str, float], Shop]]:
    found: list[Shop] = []

    def start(name: str, cleanup: float, entering: float = 0.0) -> Shop:
        module = name.split()[0]
        if module != "run" and find_spec(module) is None:
            pytest.skip(f"{module} is not installed")
        found.append(Shop(name, tmp_path, cleanup, entering))
        return found[-1]

    yield start
    for each in found:
        each.close()


def is_alive(pid: int) -> bool:
    with suppress(ProcessLookupError):
        os.kill(pid, 0)
        return True
    return False


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", COMMANDS)
def test_what_a_call_has_opened_is_closed(name: str, kind: str, shop: Callable[[str, float], Shop]) -> None:
    server = shop(name, 120.0)  # it must end long before that
    server.call(kind)
    server.stop()
    steps = [line.split()[:2] for line in server.notes if not line.startswith("run")]
    opened = [what for step, what in steps if step == "open"]
    assert opened[0] == "lifespan"
    assert [what for step, what in steps if step == "close"] == opened[::-1]
    assert "runs on" not in server.log
    for pid in re.findall(r"^run (\d+)$", "\n".join(server.notes), re.MULTILINE):
        assert not is_alive(int(pid))


@pytest.mark.parametrize("kind", ["inline", "plain", "coroutine"])
def test_what_a_call_has_opened_that_waited_for_the_lifespan_is_closed(kind: str, shop: Callable[..., Shop]) -> None:
    server = shop("run", 30.0, entering=0.5)
    server.call(kind)
    server.stop()
    assert server.notes == ["open lifespan", "open connection", "run", "close connection", "close lifespan"]


@pytest.mark.parametrize("kind", DEAF)
@pytest.mark.parametrize("name", COMMANDS)
def test_what_ignores_the_stop_is_named_and_the_lifespan_is_left(
    name: str, kind: str, shop: Callable[[str, float], Shop]
) -> None:
    server = shop(name, 0.5)
    server.call(kind)
    server.stop()
    # What a coroutine has opened may be closed as the interpreter ends and collects it.
    assert server.notes[:4] == ["open lifespan", "open connection", "run", "close lifespan"]
    named = f"tools/call of '{kind}' runs on 0.5 s after it was cancelled; not closed: connection"
    assert server.log.count(named) == 1
