"""Our client follows the tasks of a FastMCP server, which keeps them with Docket, in memory."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from linkspan import CallTimeout, Client, ServerError, SyncClient, TaskCancelled, Tasks
from ports import reserve_port

pytestmark = pytest.mark.timeout(120)

SERVER = """
import asyncio
import sys
from datetime import timedelta

from fastmcp import FastMCP
from fastmcp.utilities.tasks import TaskConfig
from fastmcp_tasks import TasksExtension

server = FastMCP("theirs")
server.add_extension(TasksExtension())
often = TaskConfig(poll_interval=timedelta(seconds=0.1))


@server.tool(task=often)
async def work(seconds: float) -> str:
    await asyncio.sleep(seconds)
    return f"worked {seconds} s"


@server.tool(task=often)
async def fail() -> str:
    raise ValueError("no ferries")


@server.tool
def add(a: int, b: int) -> int:
    return a + b


server.run(transport="http", port=int(sys.argv[1]), show_banner=False, log_level="ERROR")
"""


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    pytest.importorskip("fastmcp_tasks", reason="fastmcp[tasks] is not installed: pip install 'fastmcp[tasks]'")
    file = tmp_path_factory.mktemp("theirs") / "theirs.py"
    file.write_text(SERVER)
    port = reserve_port()
    process = subprocess.Popen([sys.executable, str(file), str(port)])
    try:
        yield reachable(port, process)
    finally:
        process.terminate()
        process.wait(60)


def reachable(port: int, process: subprocess.Popen[bytes]) -> str:
    """Wait until the server takes connections."""
    give_up = time.monotonic() + 60
    while process.poll() is None and time.monotonic() < give_up:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            break
        except OSError:
            time.sleep(0.05)
    return f"http://127.0.0.1:{port}/mcp"


def test_a_call_is_followed_to_its_end(url: str) -> None:
    with SyncClient(url, extensions=[Tasks()]) as client:
        assert client.call_tool("add", {"a": 1, "b": 2}).text == "3"
        assert client.call_tool("work", {"seconds": 0.1}).text == "worked 0.1 s"

    async def main() -> str:
        async with Client(url, extensions=[Tasks()]) as client:
            return (await client.call_tool("work", {"seconds": 0.2})).text

    assert asyncio.run(main()) == "worked 0.2 s"


def test_a_failure_of_a_tool_is_a_result(url: str) -> None:
    with SyncClient(url, extensions=[Tasks()]) as client:
        assert client.call_tool("fail").is_error


def test_a_task_is_taken_up_and_cancelled_elsewhere(url: str) -> None:
    with SyncClient(url, extensions=[Tasks()]) as client, pytest.raises(CallTimeout) as caught:
        client.call_tool("work", {"seconds": 60}, total=3.0)
    assert caught.value.task_id is not None
    with SyncClient(url, extensions=[Tasks()]) as client:
        task = client.task(caught.value.task_id)
        assert task.status().status == "working"
        task.cancel()
        with pytest.raises(TaskCancelled):
            task.result(30)
        with pytest.raises(ServerError) as unknown:
            client.task("nobody").status()
        assert unknown.value.code == -32602
