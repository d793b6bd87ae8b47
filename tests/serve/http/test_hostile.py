"""A sitting of hostile clients against a real server process: the right status each time, and good requests go on."""

from __future__ import annotations

import json
import os
import re
import secrets
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from http_talk import BOTH, NOW, body, mirror

from client.faces import wait_until
from linkspan.revisions import LATEST_LEGACY

TARGET = Path(__file__).parent / "hostile_target.py"
ADD = body("tools/call", {"name": "add", "arguments": {"a": 1, "b": 2}})
LISTEN = body("subscriptions/listen", {"notifications": {"toolsListChanged": True}})
_PAGE = os.sysconf("SC_PAGE_SIZE")


class Target:
    """The process, and raw requests to it."""

    def __init__(self, seconds: float) -> None:
        command = [sys.executable, str(TARGET), str(seconds)]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        assert self.process.stderr is not None
        found = re.search(r":(\d+)/mcp", self.process.stderr.readline())
        assert found is not None
        self.port = int(found[1])

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=60)

    def head(self, method: str, headers: dict[str, str]) -> bytes:
        lines = [f"{method} /mcp HTTP/1.1", f"Host: 127.0.0.1:{self.port}"]
        return "\r\n".join([*lines, *(f"{name}: {value}" for name, value in headers.items()), "", ""]).encode()

    def request(self, message: Any, headers: dict[str, str] | None = None, method: str = "POST") -> bytes:
        data = b"" if message is None else message if isinstance(message, bytes) else json.dumps(message).encode()
        given = headers if headers is not None else mirror(message)
        return self.head(method, {"content-type": "application/json", "content-length": str(len(data)), **given}) + data

    def ask(self, raw: bytes) -> tuple[int, dict[str, str], bytes]:
        with self.connect() as connection:
            connection.sendall(raw)
            return read_answer(connection)

    def is_well(self) -> bool:
        status, _, data = self.ask(self.request(ADD))
        return status == 200 and json.loads(data)["result"]["structuredContent"] == {"result": 3}

    def call(self, tool: str) -> Any:
        message = body("tools/call", {"name": tool, "arguments": {}})
        return json.loads(self.ask(self.request(message))[2])["result"]["structuredContent"]

    def memory(self) -> int:
        """Return the resident bytes of the process."""
        return int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1]) * _PAGE

    def files(self) -> int:
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))


def read_answer(connection: socket.socket) -> tuple[int, dict[str, str], bytes]:
    """Return status, headers and the body, as far as its length was said."""
    with connection.makefile("rb") as reader:
        first = reader.readline().split()
        headers: dict[str, str] = {}
        while (line := reader.readline().strip()) != b"":
            name, _, value = line.decode().partition(":")
            headers[name.lower()] = value.strip()
        return int(first[1]), headers, reader.read(int(headers.get("content-length", "0")))


@contextmanager
def running_target(seconds: float) -> Iterator[Target]:
    """Run a server that waits so long for its clients; it must end without a trace of an exception."""
    running = Target(seconds)
    try:
        assert running.is_well()
        yield running
        running.process.send_signal(signal.SIGTERM)
        rest = running.process.communicate(timeout=60)[1]
        assert running.process.returncode == 0
        assert "Traceback" not in rest, rest
        assert "Exception" not in rest, rest
    finally:
        running.process.kill()
        running.process.communicate()


@pytest.fixture(scope="module")
def target() -> Iterator[Target]:
    with running_target(60.0) as running:
        yield running


@pytest.fixture(scope="module")
def impatient() -> Iterator[Target]:
    """The server for those who are slow: on a busy machine all others may be."""
    with running_target(1.0) as running:
        yield running


@pytest.fixture(autouse=True)
def _the_next_good_request_is_answered(request: pytest.FixtureRequest) -> Iterator[None]:
    target: Target = request.getfixturevalue("impatient" if "impatient" in request.fixturenames else "target")
    yield
    try:
        assert target.is_well()
    except OSError as problem:
        target.process.kill()
        pytest.fail(f"{problem!r}; it ended with {target.process.wait()}: {target.process.communicate()[1]}")


def deep(levels: int) -> bytes:
    return b'{"jsonrpc":"2.0","id":1,"method":"x","params":' + b'{"a":' * levels + b"1" + b"}" * levels + b"}"


def raw_requests(target: Target) -> dict[str, tuple[bytes, int]]:
    plain = {"accept": BOTH}
    json_type = {"content-type": "application/json"}
    chunked = target.head("POST", {**json_type, "transfer-encoding": "chunked"})
    return {
        "no HTTP": (b"\x16\x03\x01 what\r\n\r\n", 400),
        "a foreign host": (target.request(ADD).replace(b"Host: 127.0.0.1", b"Host: evil.com"), 421),
        "two hosts": (target.request(ADD, {**mirror(ADD), "Host": "evil.com"}), 400),
        "a foreign origin": (target.request(ADD, {**mirror(ADD), "Origin": "https://evil.com"}), 403),
        "a form": (target.request(b"a=b", {"content-type": "application/x-www-form-urlencoded"}), 415),
        "only html": (target.request(ADD, {**mirror(ADD), "accept": "text/html"}), 406),
        "PUT": (target.request(ADD, plain, "PUT"), 405),
        "GET without a session": (target.request(None, {"accept": "text/event-stream"}, "GET"), 405),
        "a huge body is announced": (target.head("POST", {**json_type, "content-length": str(5 * 10**12)}), 413),
        "a huge body in one chunk": (chunked + b"%x\r\n" % 1_100_000 + b" " * 1_100_000 + b"\r\n0\r\n\r\n", 413),
        "a huge body in chunks": (chunked + (b"4000\r\n" + b" " * 0x4000 + b"\r\n") * 70 + b"0\r\n\r\n", 413),
        "many headers": (target.request(ADD, mirror(ADD) | {f"x-{n}": "1" for n in range(150)}), 431),
        "large headers": (target.request(ADD, mirror(ADD) | {"x": "1" * 40_000}), 431),
        "no JSON": (target.request(b"{", plain), 400),
        "no UTF-8": (target.request(b'"\xff"', plain), 400),
        "nested a little too deeply": (target.request(deep(257), plain), 400),
        "nested much too deeply": (target.request(deep(100_000), plain), 400),
        "brackets": (target.request(b"[" * 900_000, plain), 400),
        "a long number": (target.request(b'{"jsonrpc":"2.0","method":"x","id":' + b"9" * 100_000 + b"}", plain), 400),
        "a huge batch": (target.request(b"[" + b"{}," * 5000 + b"{}]", plain), 400),
        "another version": (target.request(ADD, mirror(ADD, MCP_Protocol_Version="1")), 400),
        "another method": (target.request(ADD, mirror(ADD, Mcp_Method="tools/list")), 400),
        "another name": (target.request(ADD, mirror(ADD, Mcp_Name="wait")), 400),
        "no version": (target.request(ADD, mirror(ADD, MCP_Protocol_Version=None)), 400),
        "no method": (target.request(ADD, mirror(ADD, Mcp_Method=None)), 400),
        "no name": (target.request(ADD, mirror(ADD, Mcp_Name=None)), 400),
        "no envelope": (target.request({"jsonrpc": "2.0", "id": 1, "method": "x"}, {"mcp-protocol-version": NOW}), 400),
        "a guessed session": (target.request(ADD, {"mcp-session-id": "0" * 32}), 400),
    }


def test_each_is_answered_with_its_status(target: Target) -> None:
    wanted = {name: status for name, (_, status) in raw_requests(target).items()}
    found = {name: target.ask(raw)[0] for name, (raw, _) in raw_requests(target).items()}
    assert found == wanted


def test_who_connects_and_says_nothing_is_let_go(impatient: Target) -> None:
    before = impatient.files()
    with ExitStack() as stack:
        silent = [stack.enter_context(impatient.connect()) for _ in range(50)]
        for connection in silent[:25]:
            connection.sendall(b"POST /mcp HTTP/1.1\r\nHost: 127")
        assert [each.recv(1000) for each in silent] == [b""] * 50
    wait_until(lambda: impatient.files() <= before + 2)


def test_a_body_that_stops_coming_is_answered_408(impatient: Target) -> None:
    whole = impatient.request(ADD)
    body_at = whole.index(b"\r\n\r\n") + 4
    with ExitStack() as stack:
        connections = [stack.enter_context(impatient.connect()) for _ in range(3)]
        for connection, sent in zip(connections, (0, 1, 20), strict=True):
            connection.sendall(whole[: body_at + sent])
        for connection in connections:
            status, headers, data = read_answer(connection)
            assert (status, headers["connection"]) == (408, "close")
            assert "body_timeout" in json.loads(data)["error"]["message"]


def test_a_body_that_drips_is_answered_408(impatient: Target) -> None:
    with impatient.connect() as connection:
        connection.sendall(impatient.head("POST", {"content-type": "application/json", "content-length": "1000"}))
        connection.settimeout(0.05)
        for _ in range(400):
            connection.sendall(b" ")
            try:
                first = connection.recv(12)
                break
            except TimeoutError:
                continue
        assert first == b"HTTP/1.1 408"


def test_who_leaves_at_any_stage_leaves_nothing(target: Target) -> None:
    slow = target.request(body("tools/call", {"name": "wait", "arguments": {}}, token="t"))
    head = slow.index(b"\r\n\r\n") + 4
    before = target.files()
    for stage in (0, 1, head // 2, head, head + 1, len(slow) - 1, len(slow)):
        for _ in range(10):
            with target.connect() as connection:
                connection.sendall(slow[:stage])
    for _ in range(10):
        with target.connect() as connection:
            connection.sendall(slow)
            assert connection.recv(1000).startswith(b"HTTP/1.1 200")  # in the middle of the stream
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")  # a reset
    wait_until(lambda: target.files() <= before + 2)


def test_who_does_not_read_is_dropped(impatient: Target) -> None:
    with impatient.connect() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.sendall(impatient.request(body("tools/call", {"name": "flood", "arguments": {}}, token="t")))
        wait_until(lambda: "ended" in impatient.call("flooded")["result"])


HELLO = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": LATEST_LEGACY.date,
        "capabilities": {},
        "clientInfo": {"name": "x", "version": "1"},
    },
}


def test_sessions_cannot_be_guessed_and_ids_not_taken(target: Target) -> None:
    plain = {"accept": BOTH}
    session = {**plain, "mcp-session-id": target.ask(target.request(HELLO, plain))[1]["mcp-session-id"]}
    call = {"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": {"name": "wait", "arguments": {}}}
    before = target.call("waits")["result"]
    with target.connect() as connection:
        connection.sendall(target.request(call, {**session, "accept": "application/json"}))
        wait_until(lambda: target.call("waits")["result"] > before)
        again = target.ask(target.request(call, session))
        assert (again[0], json.loads(again[2])["error"]["code"]) == (400, -32600)
        for _ in range(50):
            guess = {**plain, "mcp-session-id": secrets.token_hex(16)}
            for method, message in (("POST", call), ("GET", None), ("DELETE", None)):
                assert target.ask(target.request(message, guess, method))[0] == 404
        target.call("go_on")
        status, _, data = read_answer(connection)
        assert (status, json.loads(data)["result"]["content"][0]["text"]) == (200, "done")


def sit(target: Target, streams: int) -> None:
    """Open idle streams and sessions, send large bodies, leave."""
    listen = target.request(LISTEN)
    with ExitStack() as stack:
        idle = []
        for _ in range(streams):
            idle.append(stack.enter_context(target.connect()))
            idle[-1].sendall(listen)  # at once: a connection without a head is closed after `head_timeout`
        for connection in idle:
            assert connection.recv(1000).startswith(b"HTTP/1.1 200")
        assert target.is_well()
    large = target.request(body("tools/call", {"name": "add", "arguments": {"a": "x" * 900_000}}))
    for _ in range(10):
        assert target.ask(large)[0] == 200
    for _ in range(100):
        session = target.ask(target.request(HELLO, {"accept": BOTH}))[1]["mcp-session-id"]
        target.ask(target.request(None, {"mcp-session-id": session}, "DELETE"))
    wait_until(lambda: target.files() <= _FILES)  # it takes the server a moment to see that all of them have gone


_FILES = 60
"""Descriptors of a server that nobody talks to, and some more."""


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs /proc to see the memory of a process")
def test_five_hundred_idle_streams_cost_little_and_memory_stays_flat(target: Target) -> None:
    sit(target, 500)
    before = target.memory()
    for _ in range(3):
        sit(target, 500)
    grown = target.memory() - before
    assert grown < 15_000_000, grown  # what 1500 streams hold while they are open is more than that
