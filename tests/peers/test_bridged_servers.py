"""Servers of npm and PyPI behind one bridge, as clients of the official SDK and of FastMCP use them in one process."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from npm_servers import INSTALLING
from official import PATIENCE
from pip_servers import python_with
from test_typescript_servers import command

from over_http import serving

pytestmark = INSTALLING

Use = Callable[[Any], Awaitable[None]]
SEATS = {"seats": 2, "window": True}


async def as_official(mode: str, bridge: list[str], errlog: Any, use: Use) -> None:
    """Use a bridge as the official SDK does."""
    mcp: Any = pytest.importorskip("mcp", reason="mcp is not installed: pip install '.[peers]'")
    types: Any = pytest.importorskip("mcp_types")
    from mcp.client.stdio import stdio_client

    async def answer(*_: Any) -> Any:
        return types.ElicitResult(action="accept", content=SEATS)

    started = mcp.StdioServerParameters(command=bridge[0], args=bridge[1:], env=dict(os.environ))
    async with mcp.Client(stdio_client(started, errlog), mode=mode, elicitation_callback=answer) as client:

        async def call(name: str, arguments: Any) -> str:
            found = await client.call_tool(name, arguments)
            return str(found.content[0].text)

        await use(Used({each.name for each in (await client.list_tools()).tools}, call))


async def as_fastmcp(mode: str, bridge: list[str], errlog: Any, use: Use) -> None:
    """Use a bridge as FastMCP does."""
    fastmcp: Any = pytest.importorskip("fastmcp", reason="FastMCP is not installed: pip install '.[peers]'")
    from fastmcp.client.transports import StdioTransport

    async def answer(message: str, kind: Any, params: Any, context: Any) -> Any:
        return SEATS

    started = StdioTransport(bridge[0], bridge[1:], env=dict(os.environ))
    async with fastmcp.Client(started, elicitation_handler=answer) as client:

        async def call(name: str, arguments: Any) -> str:
            found = await client.call_tool(name, arguments)
            return str(found.content[0].text)

        await use(Used({each.name for each in await client.list_tools()}, call))


class Used:
    """What a client has listed, and how it calls."""

    def __init__(self, tools: set[str], call: Callable[[str, Any], Awaitable[str]]) -> None:
        self.tools = tools
        self.call = call


CLIENTS = pytest.mark.parametrize(
    ("through", "mode"),
    [(as_official, "legacy"), (as_official, "auto"), (as_fastmcp, "")],
    ids=["official, handshake", "official", "FastMCP"],
)


def bridge_of(tmp_path: Path, servers: dict[str, list[str]]) -> list[str]:
    """Return the command of a bridge of some commands."""
    config = tmp_path / "mcp.json"
    entries = {name: {"command": command, "args": arguments} for name, (command, *arguments) in servers.items()}
    config.write_text(json.dumps({"mcpServers": entries}))
    return [sys.executable, "-m", "linkspan", "bridge", str(config)]


def run(through: Any, mode: str, bridge: list[str], tmp_path: Path, use: Use) -> None:
    """Use a bridge; fail with what it wrote to stderr."""
    with (tmp_path / "stderr").open("w") as errlog:
        asyncio.run(asyncio.wait_for(through(mode, bridge, errlog, use), 4 * PATIENCE))


async def listed_with(used: Used, names: set[str]) -> None:
    assert names <= used.tools, names - used.tools


@CLIENTS
def test_servers_of_npm_and_of_the_official_sdk_are_listed_called_and_ask(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, through: Any, mode: str
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "note.txt").write_text("a note")
    asking = [sys.executable, str(Path(__file__).with_name("python_server.py")), "mcp"]
    files = command("filesystem", str(tmp_path))
    bridge = bridge_of(tmp_path, {"all": command("everything"), "files": files, "desk": asking})

    async def use(used: Used) -> None:
        await listed_with(used, {"all_echo", "files_read_text_file", "desk_book"})
        assert await used.call("all_echo", {"message": "hello"}) == "Echo: hello"
        assert await used.call("files_read_text_file", {"path": str(tmp_path / "note.txt")}) == "a note"
        assert await used.call("desk_book", {}) == "2 seats at the window"

    remember(bridge)
    run(through, mode, bridge, tmp_path, use)


def remember(bridge: list[str]) -> None:
    """Let a bridge learn what its servers offer, so that none of them is too slow for the first list."""
    from linkspan import SyncClient

    with SyncClient(bridge, max_cached_bytes=0) as client:
        end = time.monotonic() + 4 * PATIENCE
        while len({each.name.partition("_")[0] for each in client.list_tools()}) < 3:
            assert time.monotonic() < end, "a server does not start"
            time.sleep(0.1)


@CLIENTS
def test_servers_of_pypi_are_listed_and_called(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, through: Any, mode: str
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    python = python_with("bridged-servers.txt")
    repository = tmp_path / "repository"
    subprocess.run(["git", "init", "-q", str(repository)], check=True)
    modules = {"time": "mcp_server_time", "fetch": "mcp_server_fetch", "git": "mcp_server_git"}
    more = {"fetch": ["--ignore-robots-txt", "--allow-private-ips"], "git": ["--repository", str(repository)]}
    bridge = bridge_of(tmp_path, {name: [python, "-m", each, *more.get(name, ())] for name, each in modules.items()})

    async def page(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/plain")]})
            await send({"type": "http.response.body", "body": b"a page"})

    async def use(used: Used) -> None:
        await listed_with(used, {"time_get_current_time", "fetch_fetch", "git_git_status"})
        assert "UTC" in await used.call("time_get_current_time", {"timezone": "UTC"})
        assert "a page" in await used.call("fetch_fetch", {"url": url})
        assert "No commits yet" in await used.call("git_git_status", {"repo_path": str(repository)})

    remember(bridge)
    with serving(page) as url:
        run(through, mode, bridge, tmp_path, use)
