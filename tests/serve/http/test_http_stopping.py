"""A server that is asked to stop does not wait for streams that nobody would end: under uvicorn, under gunicorn, and alone."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from http_faces import Asgi, Wsgi
from http_talk import BOTH, Session, body, mirror
from http_world import World

from linkspan.serve import http_app
from linkspan.serve.http_app import is_stopping
from ports import reserve_port

APP = """
import time
from linkspan import Context, Server
server = Server("streams")
@server.tool
def sleep(seconds: float, ctx: Context) -> str:
    ctx.progress(0)
    time.sleep(seconds)
    return "awake"
app = server.asgi()
wsgi = server.wsgi(silence=0.5)  # a WSGI server sends the head of a stream with its first bytes
"""
COMMANDS = {
    "uvicorn": ["-m", "uvicorn", "streams:app", "--log-level", "warning", "--port"],
    "gunicorn": ["-m", "gunicorn", "streams:wsgi", "--threads", "8", "--log-level", "error", "-b"],
    "run": ["-c", "import sys, streams; streams.server.run('http', port=int(sys.argv[1]), path='/')"],
}
HELLO = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "old", "version": "1"}}


class Streams:
    """A server process, and the connections that a test keeps open."""

    def __init__(self, command: list[str], folder: Path) -> None:
        (folder / "streams.py").write_text(APP)
        self.port = reserve_port()
        address = f"127.0.0.1:{self.port}" if command[-1] == "-b" else str(self.port)
        self.process = subprocess.Popen([sys.executable, *command, address], cwd=folder, stderr=subprocess.DEVNULL)
        self._open: list[socket.socket] = []
        give_up = time.monotonic() + 60
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
                return
            except OSError:
                assert time.monotonic() < give_up
                time.sleep(0.05)

    def request(self, method: str, headers: dict[str, str], message: Any = None) -> bytes:
        """Send a request on a connection of its own, which stays open; return what comes first."""
        data = json.dumps(message).encode() if message is not None else b""
        all_headers = {"Host": f"127.0.0.1:{self.port}", "Content-Type": "application/json", **headers}
        head = "".join(f"{name}: {value}\r\n" for name, value in all_headers.items())
        connection = socket.create_connection(("127.0.0.1", self.port), timeout=60)
        self._open.append(connection)
        connection.sendall(f"{method} / HTTP/1.1\r\n{head}Content-Length: {len(data)}\r\n\r\n".encode() + data)
        found = connection.recv(65536)
        assert b" 200 " in found.partition(b"\r\n")[0], found
        return found

    def listen(self) -> None:
        """Open a stream of each era."""
        hello = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": HELLO}
        answer = self.request("POST", {"Accept": BOTH}, hello).decode()
        session = next(
            line.split(": ")[1] for line in answer.split("\r\n") if line.lower().startswith("mcp-session-id")
        )
        self.request("GET", {"Accept": "text/event-stream", "Mcp-Session-Id": session})
        listen = body("subscriptions/listen", {"notifications": {"toolsListChanged": True}})
        self.request("POST", mirror(listen), listen)

    def work(self) -> None:
        """Begin a call that takes long."""
        call = body("tools/call", {"name": "sleep", "arguments": {"seconds": 60}}, token="t")
        self.request("POST", mirror(call), call)

    def rest(self) -> None:
        """Wait until the server is done with taking requests in.

        gunicorn hangs if a signal arrives while its main thread hands a request over to another, which may have answered by
        then: the handler waits for a lock that the thread beneath it holds. It is the main thread that closes a connection.
        See https://github.com/python/cpython/issues/121649.
        """
        with socket.create_connection(("127.0.0.1", self.port), timeout=60) as connection:
            connection.sendall(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
            while connection.recv(65536):
                pass

    def stop(self, number: int) -> float:
        """Ask the process to stop; return how many seconds that took."""
        self.rest()
        started = time.monotonic()
        self.process.send_signal(number)
        self.process.wait(90)
        return time.monotonic() - started

    def close(self) -> None:
        for connection in self._open:
            connection.close()
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()


@pytest.fixture
def streams(tmp_path: Path) -> Iterator[Callable[[str], Streams]]:
    found: list[Streams] = []

    def start(name: str) -> Streams:
        if name != "run" and find_spec(name) is None:
            pytest.skip(f"{name} is not installed")
        found.append(Streams(COMMANDS[name], tmp_path))
        return found[-1]

    yield start
    for each in found:
        each.close()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("name", COMMANDS)
def test_a_server_does_not_wait_for_those_who_only_listen(
    name: str, number: int, streams: Callable[[str], Streams]
) -> None:
    server = streams(name)
    server.listen()
    assert server.stop(number) < 15  # gunicorn would take 30 seconds, uvicorn for ever


def test_a_busy_server_of_our_own_ends_within_two_seconds(streams: Callable[[str], Streams]) -> None:
    server = streams("run")
    server.listen()
    server.work()
    assert (
        server.stop(signal.SIGTERM) < 15
    )  # the call would take 60; under 2 on an idle machine: the grace for calls is 1


class _Server:
    """An object whose method handles a signal, as servers have one."""

    should_exit = False

    def handle(self, *_: object) -> None:
        """Nothing is done here."""


def test_the_sign_is_in_the_object_behind_the_handler(monkeypatch: pytest.MonkeyPatch) -> None:
    server = _Server()
    for handler, sign in ((server.handle, False), (signal.SIG_DFL, False), (None, False), (lambda *_: None, False)):
        monkeypatch.setattr(http_app.signal, "getsignal", lambda _, handler=handler: handler)
        assert is_stopping() is sign
    monkeypatch.setattr(http_app.signal, "getsignal", lambda _: server.handle)
    server.should_exit = True
    assert is_stopping()


@pytest.mark.parametrize("face", [Asgi, Wsgi])
def test_streams_end_when_the_server_around_us_stops(face: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    server = _Server()
    monkeypatch.setattr(http_app.signal, "getsignal", lambda _: server.handle)
    world = World()
    opened = face(world.server)
    session = Session(opened)
    stream = session.get().begin()
    call = session.call("hold")
    world.wait_for("holding")
    server.should_exit = True
    stream.whole()
    assert call.waiting  # what was called goes on
    world.let_go.set()
    assert call.whole().status == 200
    opened.stop()
