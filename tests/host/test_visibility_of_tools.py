"""Tools that only the views of a server call: a model neither sees nor calls them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from linkspan import Host, Policy, Server
from linkspan.host.messages import ToolUse

server = Server("tides")


@server.tool(meta={"ui": {"resourceUri": "ui://tides/chart"}})
def show() -> str:
    return "12"


@server.tool(meta={"ui": {"visibility": ["app"]}})
def refresh() -> str:
    return "13"


@server.tool(meta={"ui": {"visibility": []}})
def for_none() -> str:
    return "14"


@pytest.mark.parametrize("name", ["refresh", "for_none"])
def test_a_tool_for_apps_is_hidden_from_the_model_and_refused(name: str) -> None:
    async def run() -> Any:
        async with Host({"tides": server}, policy=Policy(otherwise="allow")) as host:
            shown = [each.name for each in await host.specs()]
            return shown, await host.call(ToolUse("1", name, {})), await host.call(ToolUse("2", "show", {}))

    shown, refused, answered = asyncio.run(run())
    assert [each for each in shown if each in ("show", "refresh", "for_none")] == ["show"]
    assert refused.is_error
    assert "13" not in refused.text
    assert "12" in answered.text
