"""A tool that returns what a client received: all of it goes on, as it came."""

from __future__ import annotations

import asyncio

import pytest

from linkspan import (
    AudioContent,
    CallToolResult,
    Client,
    ResourceLink,
    Server,
    SyncClient,
    TextContent,
    ToolError,
    ToolResult,
)

behind = Server("behind", version="7")


@behind.tool
def add(a: int, b: int) -> int:
    return a + b


@behind.tool
def refuse() -> str:
    raise ToolError("closed on Mondays")


@behind.tool
def many() -> CallToolResult:
    blocks = [TextContent("a text"), ResourceLink(uri="file:///a", name="a"), AudioContent("AAAA", "audio/wav")]
    return CallToolResult(content=blocks, structured_content={"n": None}, meta={"com.example/cost": 3})


@pytest.mark.parametrize("era", ["2025-06-18", "2026-07-28"])
@pytest.mark.parametrize("name", ["add", "refuse", "many"])
def test_a_plain_tool_passes_on_the_result_of_a_client(name: str, era: str) -> None:
    arguments = {"a": 2, "b": 3} if name == "add" else {}
    with SyncClient(behind, protocol_version=era) as inner:
        front = Server("front")

        @front.tool
        def hinted() -> ToolResult:
            return inner.call_tool(name, arguments)

        @front.tool
        def unhinted():  # type: ignore[no-untyped-def]
            return inner.call_tool(name, arguments)

        direct = inner.call_tool(name, arguments)
        with SyncClient(front, protocol_version=era) as client:
            assert [each.output_schema for each in client.list_tools()] == [None, None]
            for tool in ("hinted", "unhinted"):
                found = client.call_tool(tool)
                assert found.content == direct.content
                assert (found.structured, found.has_structured) == (direct.structured, direct.has_structured)
                assert found.is_error == direct.is_error
                assert found.meta.get("com.example/cost") == direct.meta.get("com.example/cost")


def test_an_async_tool_passes_on_the_result_of_a_client() -> None:
    async def main() -> int:
        async with Client(behind) as inner:
            front = Server("front")

            @front.tool
            async def total(a: int, b: int) -> ToolResult:
                return await inner.call_tool("add", {"a": a, "b": b})

            async with Client(front) as client:
                return (await client.call_tool("total", {"a": 2, "b": 3})).decode(int)

    assert asyncio.run(main()) == 5


def test_keys_of_the_protocol_are_those_of_the_server_that_answers() -> None:
    with SyncClient(behind) as inner:
        assert any(key.startswith("io.modelcontextprotocol/") for key in inner.call_tool("many").meta)
        assert inner.call_tool("many").as_result().meta == {"com.example/cost": 3}
        front = Server("front")

        @front.tool
        def many() -> ToolResult:
            return inner.call_tool("many")

        with SyncClient(front) as client:
            meta = client.call_tool("many").meta
    assert meta["io.modelcontextprotocol/serverInfo"]["name"] == "front"


def test_a_promise_of_the_tool_itself_is_kept() -> None:
    with SyncClient(behind) as inner:
        front = Server("front")

        @front.tool
        def add(a: int, b: int) -> int:
            return inner.call_tool("add", {"a": a, "b": b})  # type: ignore[return-value]

        @front.tool
        def many() -> int:
            return inner.call_tool("many")  # type: ignore[return-value]

        with SyncClient(front) as client:
            assert client.call_tool("add", {"a": 2, "b": 3}).structured == {"result": 5}
            assert client.call_tool("many").text.startswith("Internal error")
