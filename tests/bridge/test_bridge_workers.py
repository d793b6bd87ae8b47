"""Several workers of a bridge: whichever a request reaches, the answers, questions and changes are the same."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from linkspan import ClientError, SyncClient

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="workers are forked")

THERE = """
import sys
from linkspan import Context, Server

server = Server("there", version="7")

@server.tool
def add(a: int, b: int) -> int:
    return a + b

@server.tool
def count(to: int) -> str:
    return "\\n".join(f"number {each}" for each in range(to))

@server.tool
def book(ctx: Context) -> str:
    return f"{ctx.ask('seats', int, 'How many?')} seats"

@server.tool
def grow(name: str) -> str:
    server.tool(name=name)(lambda: name)
    server.notify_tools_list_changed()
    return name

if __name__ == "__main__":
    server.run("http", port=0)
"""


@contextmanager
def serving(*command: str) -> Generator[str]:
    """Start what writes its URL to stderr or stdout; yield the URL, and end it."""
    process = subprocess.Popen(
        [sys.executable, *command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, encoding="utf-8"
    )
    assert process.stdout is not None
    try:
        said: list[str] = []
        for line in process.stdout:
            said.append(line)
            if line.startswith("http"):
                yield line.strip()
                return
            if line.startswith("Serving MCP at ") and command[0] != "-m":
                yield line.split()[3].rstrip(",")
                return
        pytest.fail("".join(said))
    finally:
        process.terminate()
        process.communicate(timeout=60)


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    pytest.importorskip("uvicorn")
    program: Path = tmp_path_factory.mktemp("there") / "there.py"
    program.write_text(THERE, encoding="utf-8")
    with (
        serving(str(program)) as there,
        serving(
            *BRIDGE, there, "--http", "--port", "0", "--open", "--shared", "--workers", "3", "--budget", "1000"
        ) as here,
    ):
        yield here


def until(holds: Callable[[], object]) -> None:
    """Wait until something holds."""
    end = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < end, "it did not come"
        time.sleep(0.02)


@pytest.mark.parametrize("era", ["modern", "legacy"])
def test_whichever_worker_a_request_reaches_the_question_is_answered(url: str, era: Any) -> None:
    for _ in range(6):  # each client has connections of its own, so they come to different workers
        with SyncClient(url, era=era, elicitation=lambda _: {"seats": 2}) as client:
            assert client.call_tool("book").text == "2 seats"
            assert client.call_tool("add", {"a": 1, "b": 2}).text == "3"


class Line:
    """A connection to one worker, which serves all that is sent on it."""

    def __init__(self, url: str) -> None:
        self._place = urlsplit(url)
        self._connection = HTTPConnection(self._place.hostname or "", self._place.port, timeout=60)
        self._connection.connect()
        self.port = int(self._connection.sock.getsockname()[1])

    def call(self, name: str, arguments: dict[str, Any] | None = None, **members: Any) -> dict[str, Any]:
        """Call a tool; return its result."""
        params: dict[str, Any] = {"name": name, "arguments": arguments or {}, "_meta": META, **members}
        body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})
        headers = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
        headers |= {"mcp-protocol-version": "2026-07-28", "mcp-method": "tools/call", "mcp-name": name}
        self._connection.request("POST", self._place.path, body, headers)
        text = self._connection.getresponse().read().decode()
        found: dict[str, Any] = json.loads(text)
        assert "result" in found, text
        result: dict[str, Any] = found["result"]
        return result

    def worker(self) -> int:
        """Return the process that serves it."""
        theirs = {int(line.split()[2].split(":")[1], 16): line.split()[9] for line in _sockets()}
        inode = theirs[self.port]
        for folder in Path("/proc").glob("[0-9]*/fd"):
            with suppress(OSError):
                if any(os.readlink(each) == f"socket:[{inode}]" for each in folder.iterdir()):
                    return int(folder.parent.name)
        raise LookupError(inode)

    def close(self) -> None:
        """Close it."""
        self._connection.close()


def _sockets() -> list[str]:
    return Path("/proc/net/tcp").read_text().splitlines()[1:]


@pytest.fixture
def two_workers(url: str) -> Iterator[tuple[Line, Line]]:
    """Connections to two workers."""
    if not sys.platform.startswith("linux"):
        pytest.skip("whose a socket is can be told on Linux")
    lines = [Line(url)]
    lines[0].call("add", {"a": 1, "b": 2})
    first, end = lines[0].worker(), time.monotonic() + 60
    try:
        while True:
            assert time.monotonic() < end, "one worker takes all connections"
            other = Line(url)
            lines.append(other)
            other.call("add", {"a": 1, "b": 2})
            if other.worker() != first:
                break
        yield lines[0], other
    finally:
        for each in lines:
            each.close()


def test_rounds_of_one_call_reach_different_workers(two_workers: tuple[Line, Line]) -> None:
    first, second = two_workers
    interim = first.call("book")
    assert interim["resultType"] == "input_required"
    (key,) = interim["inputRequests"]
    answers = {key: {"action": "accept", "content": {"seats": 3}}}
    result = second.call("book", inputResponses=answers, requestState=interim["requestState"])
    assert result["content"][0]["text"] == "3 seats"


def test_a_large_result_is_read_on_in_another_worker(two_workers: tuple[Line, Line]) -> None:
    first, second = two_workers
    shown = first.call("count", {"to": 2000})["content"][0]["text"]
    handle = shown.partition("[r")[2].partition(":")[0]
    found = second.call("search_result", {"handle": f"r{handle}", "text": "number 1999"})["content"][0]["text"]
    assert "number 1999" not in shown
    assert "number 1999" in found


@pytest.mark.parametrize("era", ["modern", "legacy"])
def test_a_change_reaches_each_client_wherever_it_listens(url: str, era: Any) -> None:
    heard: list[list[Any]] = [[] for _ in range(4)]
    clients = [SyncClient(url, era=era, on_change=each.append) for each in heard]
    try:
        for each in clients:
            each.list_tools()
        time.sleep(0.3)
        with SyncClient(url) as other:
            other.call_tool("grow", {"name": f"grown_{era}"})
        for each, client in zip(heard, clients, strict=True):
            until(lambda each=each: any(change.kind == "tools" for change in each))  # type: ignore[misc]
            until(lambda client=client: f"grown_{era}" in [tool.name for tool in client.list_tools()])  # type: ignore[misc]
    finally:
        for each in clients:
            each.close()


def test_a_server_of_the_handshake_alone_is_refused() -> None:
    pytest.importorskip("uvicorn")
    with (
        serving("-c", OLD) as there,
        serving(*BRIDGE, there, "--http", "--port", "0", "--open", "--shared", "--workers", "2") as here,
        SyncClient(here) as client,
        pytest.raises(ClientError, match=r"Unsupported protocol version.* leave out --workers"),
    ):
        client.list_tools()


OLD = """
from linkspan import Server
Server("old", revisions="2025-11-25").run("http", port=0)
"""
META: dict[str, Any] = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {"elicitation": {"form": {}}},
}
BRIDGE = ("-m", "linkspan", "bridge")
