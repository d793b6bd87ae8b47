"""Several workers of a bridge: whichever a request reaches, the answers, questions and changes are the same."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

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
        serving(*BRIDGE, there, "--http", "--port", "0", "--open", "--shared", "--workers", "3") as here,
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


def test_rounds_of_one_call_may_reach_different_workers(url: str) -> None:
    states: list[Any] = []
    for _ in range(6):
        with SyncClient(url, elicitation=lambda _: {"seats": 3}) as client:
            states.append(client.call_tool("book").text)
    assert states == ["3 seats"] * 6


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
        pytest.raises(ClientError, match="Unsupported protocol version"),
    ):
        client.list_tools()


OLD = """
from linkspan import Server
Server("old", revisions="2025-11-25").run("http", port=0)
"""
BRIDGE = ("-m", "linkspan", "bridge")
