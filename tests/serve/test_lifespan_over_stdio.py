"""The lifespan of a server on stdio: it holds up nothing that does not need it, and ends with the process, however that ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

SERVER = '''
import asyncio, os, sys
from collections.abc import AsyncIterator, Iterator
from linkspan import Context, Server

KIND, FAILS = os.environ["KIND"], os.environ.get("FAILS")
server = Server("piped", lifespan_timeout=float(os.environ.get("TIMEOUT", "5")))


class Pool:
    is_open = True


def note(what):
    sys.stderr.write(what + "\\n")
    sys.stderr.flush()


def wait_for_go():
    """Wait until the test has seen what it wants to see: a byte on the descriptor."""
    if "GO" in os.environ:
        os.read(int(os.environ["GO"]), 1)


if KIND == "def":
    @server.lifespan
    def live() -> Iterator[Pool]:
        wait_for_go()
        note("enter")
        if FAILS == "enter":
            raise ConnectionError("secret")
        yield Pool()
        if FAILS == "stuck":
            os.read(os.pipe()[0], 1)
        note("leave")
else:
    @server.lifespan
    async def live() -> AsyncIterator[Pool]:
        await asyncio.to_thread(wait_for_go)
        note("enter")
        if FAILS == "enter":
            raise ConnectionError("secret")
        yield Pool()
        if FAILS == "stuck":
            await asyncio.Event().wait()
        note("leave")


@server.tool
def in_thread(pool: Pool) -> bool:
    return pool.is_open


@server.tool
async def on_loop(ctx: Context[Pool]) -> bool:
    return ctx.lifespan.is_open


@server.tool(inline=True)
def inline(pool: Pool) -> bool:
    return pool.is_open


server.run()
'''
TOOLS = ("in_thread", "on_loop", "inline")
every_kind = pytest.mark.parametrize("kind", ["def", "async"])


class Stdio:
    """A server in a process of its own."""

    def __init__(self, kind: str, fds: tuple[int, ...] = (), **environment: str) -> None:
        self.child = subprocess.Popen(
            [sys.executable, "-c", SERVER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=os.environ | {"KIND": kind} | environment,
            pass_fds=fds,
        )
        self._pipes: Any = self.child

    def ask(self, number: int, method: str, **params: object) -> None:
        request = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
        self._pipes.stdin.write(json.dumps(request).encode() + b"\n")
        self._pipes.stdin.flush()

    def answer(self) -> Any:
        return json.loads(self._pipes.stdout.readline())

    def end(self, stop: Callable[[subprocess.Popen[bytes]], object] | None = None) -> tuple[int, list[str]]:
        """End it, by closing its input if not otherwise, and return the status and what it wrote to stderr."""
        if stop is not None:
            stop(self.child)
            self.child.wait(60)
        _, errors = self.child.communicate(timeout=60)
        return self.child.returncode, [line for line in errors.decode().splitlines() if line]


INITIALIZE: Any = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}


@pytest.mark.skipif(sys.platform == "win32", reason="descriptors are not passed on Windows")
@every_kind
def test_what_needs_no_lifespan_is_answered_while_it_is_entered(kind: str) -> None:
    reader, writer = os.pipe()
    server = Stdio(kind, (reader,), GO=str(reader))
    server.ask(1, "initialize", **INITIALIZE)
    for number, name in enumerate(TOOLS):
        server.ask(10 + number, "tools/call", name=name)
    server.ask(2, "tools/list")
    server.ask(3, "ping")
    assert [server.answer()["id"] for _ in range(3)] == [1, 2, 3]
    os.write(writer, b"go")
    answers = [server.answer() for _ in TOOLS]
    assert sorted(each["id"] for each in answers) == [10, 11, 12]
    assert all(each["result"]["structuredContent"] == {"result": True} for each in answers)
    assert server.end() == (0, ["enter", "leave"])
    os.close(reader)
    os.close(writer)


STOPS: dict[str, tuple[Callable[[subprocess.Popen[bytes]], object] | None, int]] = {
    "end of input": (None, 0),
    "SIGTERM": (lambda child: child.send_signal(signal.SIGTERM), 0),
    "SIGINT": (lambda child: child.send_signal(signal.SIGINT), 130),
}


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such signals")
@pytest.mark.parametrize("stop", STOPS)
@every_kind
def test_it_is_left_once_however_the_process_ends(kind: str, stop: str) -> None:
    how, status = STOPS[stop]
    server = Stdio(kind)
    server.ask(1, "tools/call", name="in_thread")
    assert server.answer()["result"]["structuredContent"] == {"result": True}
    found, lines = server.end(how)
    assert found == status
    assert [line for line in lines if line in ("enter", "leave")] == ["enter", "leave"]


@every_kind
def test_a_server_that_cannot_start_answers_and_ends_with_a_status(kind: str) -> None:
    server = Stdio(kind, FAILS="enter")
    for number in (1, 2):
        server.ask(number, "tools/call", name="on_loop")
        message = server.answer()["error"]["message"]
        assert message.startswith("The server could not start (incident ")
    status, lines = server.end()
    assert status == 1
    assert lines[-1] == f"linkspan: {message}"
    assert lines.count("enter") == 1


@every_kind
def test_an_end_that_takes_too_long_does_not_keep_the_process(kind: str) -> None:
    server = Stdio(kind, FAILS="stuck", TIMEOUT="0.1")
    server.ask(1, "tools/call", name="in_thread")
    server.answer()
    status, lines = server.end()
    assert status == 0
    assert lines == ["enter", "the lifespan live did not end within 0.1 s (lifespan_timeout)"]
