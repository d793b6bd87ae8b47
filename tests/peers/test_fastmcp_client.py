"""FastMCP's client takes the value out of what our tools wrap, and drives our tasks.

Its part for the extension is `fastmcp_tasks`: once that is imported, each client declares the extension with its requests
and follows a task by polling. It listens to no task, and speaks nothing of the experimental tasks of 2025-11-25.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from official import PATIENCE
from task_server import make_server

from over_http import serving

fastmcp: Any = pytest.importorskip("fastmcp", reason="FastMCP is not installed: pip install '.[peers]'")
tasks: Any = pytest.importorskip("fastmcp_tasks", reason="fastmcp[tasks] is not installed: pip install '.[peers]'")

pytestmark = pytest.mark.timeout(60)

SERVER = """
from linkspan import Server

server = Server("wraps")


@server.tool
def text() -> str:
    return "a text"


@server.tool
def number() -> int:
    return 3


@server.tool
def items() -> list[str]:
    return ["a"]


server.run()
"""
TASKS = Path(__file__).with_name("task_server.py")


def test_the_data_of_fastmcp_is_the_value_itself(tmp_path: Path) -> None:
    file = tmp_path / "wraps.py"
    file.write_text(SERVER)
    config = {"mcpServers": {"wraps": {"command": sys.executable, "args": [str(file)]}}}

    async def talk(client: Any) -> list[Any]:
        return [(await client.call_tool(name)).data for name in ("text", "number", "items")]

    assert conversation(config, talk) == ["a text", 3, ["a"]]


@pytest.fixture(scope="module", params=["stdio", "http"])
def target(request: pytest.FixtureRequest) -> Iterator[Any]:
    """A server whose tools run as tasks: a process for each conversation, or one endpoint for all."""
    if request.param == "stdio":
        yield {"mcpServers": {"tasks": {"command": sys.executable, "args": [str(TASKS)]}}}
        return
    going = threading.Event()
    with serving(make_server(going).asgi()) as url:
        yield url
        going.set()


def conversation(target: Any, talk: Callable[[Any], Awaitable[Any]], **options: Any) -> Any:
    async def name(message: str, kind: Any, params: Any, context: Any) -> dict[str, str]:
        return {"name": "Ada"}

    async def converse() -> Any:
        async with (
            asyncio.timeout(2 * PATIENCE),
            fastmcp.Client(target, elicitation_handler=name, **options) as client,
        ):
            return await talk(client)

    return asyncio.run(converse())


def test_a_call_is_followed_to_its_end(target: Any) -> None:
    async def talk(client: Any) -> list[Any]:
        return [(await client.call_tool(name)).data for name in ("slow", "greet", "invite", "quick", "required")]

    assert conversation(target, talk) == [12, "hello Ada", "come, Ada", "at once", "only as a task"]


def test_a_failure_of_a_task_raises_as_one_of_a_call_does(target: Any) -> None:
    async def talk(client: Any) -> list[str]:
        found = []
        for name in ("broken", "refused"):
            with pytest.raises(fastmcp.exceptions.ToolError) as caught:
                await client.call_tool(name)
            found.append(str(caught.value))
        return found

    broken, refused = conversation(target, talk)
    assert "Internal error occurred" in broken
    assert "a secret" not in broken
    assert refused == "no ferries today"


def test_a_handle_sees_the_states_of_its_task(target: Any) -> None:
    async def talk(client: Any) -> None:
        task = await tasks.call_tool_task(client, "greet")
        assert (task.create_result.poll_interval_ms, task.create_result.ttl_ms) == (50, 3_600_000)
        asks = await task.wait(state="input_required", timeout=PATIENCE)
        assert {key: each["method"] for key, each in asks.input_requests.items()} == {"name": "elicitation/create"}
        assert (await task.result()).data == "hello Ada"
        assert (await task.status()).result["structuredContent"] == {"result": "hello Ada"}

    conversation(target, talk)


def test_a_handle_cancels_its_task(target: Any) -> None:
    async def talk(client: Any) -> None:
        task = await tasks.call_tool_task(client, "endless")
        while (status := await task.status()).status_message is None:
            await asyncio.sleep(0.01)
        assert (status.status, status.status_message) == ("working", "under way")
        await task.cancel()
        assert (await task.wait(timeout=PATIENCE)).status == "cancelled"
        with pytest.raises(fastmcp.exceptions.ToolError, match="was cancelled"):
            await task.result()

    conversation(target, talk)


def test_after_a_handshake_the_same_tools_run_in_the_foreground(target: Any) -> None:
    async def talk(client: Any) -> list[Any]:
        with pytest.raises(fastmcp.exceptions.ToolError, match="did not run as a task"):
            await tasks.call_tool_task(client, "slow")
        with pytest.raises(fastmcp.exceptions.ToolError, match="required runs as a task only"):
            await client.call_tool("required")
        return [(await client.call_tool(name)).data for name in ("slow", "greet", "invite", "quick")]

    assert conversation(target, talk, mode="legacy") == [12, "hello Ada", "come, Ada", "at once"]
