"""FastMCP's client takes the value out of what our tools wrap."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest

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


def test_the_data_of_fastmcp_is_the_value_itself(tmp_path: Path) -> None:
    fastmcp: Any = pytest.importorskip("fastmcp")
    file = tmp_path / "wraps.py"
    file.write_text(SERVER)
    config = {"mcpServers": {"wraps": {"command": sys.executable, "args": [str(file)]}}}

    async def talk() -> list[Any]:
        async with asyncio.timeout(50), fastmcp.Client(config) as client:
            return [(await client.call_tool(name, {})).data for name in ("text", "number", "items")]

    assert asyncio.run(talk()) == ["a text", 3, ["a"]]
