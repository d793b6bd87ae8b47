"""A handler that asks runs once, in both eras and over HTTP."""

import asyncio

import pytest
from compat_kit import served, under

from linkspan import SyncClient
from linkspan.types.base import TextContent
from linkspan.types.messages import CreateMessageResult


def answers(runs):
    return {
        "elicitation": lambda asked: {"name": "Bo"} if "name" in asked.requested_schema["properties"] else {"value": 7},
        "sampling": lambda wanted: CreateMessageResult("assistant", TextContent("written"), "m"),
        "roots": ["file:///tmp/a"],
    }


@pytest.mark.parametrize("era", ["legacy", "modern"])
def test_a_tool_of_mcp_1_runs_once(mcp1, era):
    from mcp.server.fastmcp import Context, FastMCP
    from mcp.types import SamplingMessage, TextContent
    from pydantic import BaseModel

    class Who(BaseModel):
        name: str

    server, runs = FastMCP("x"), []

    @server.tool()
    async def greet(ctx: Context) -> str:
        runs.append(1)
        found = await ctx.elicit("Who?", Who)
        roots = await ctx.session.list_roots()
        message = SamplingMessage(role="user", content=TextContent(type="text", text="hi"))
        said = await ctx.session.create_message([message], max_tokens=10)
        again = await ctx.elicit("Who?", Who)
        return f"{found.action} {found.data.name} {roots.roots[0].uri} {said.content.text} {again.data.name} runs={len(runs)}"

    with SyncClient(under(server), era=era, **answers(runs)) as client:
        assert client.call_tool("greet").text == "accept Bo file:///tmp/a written Bo runs=1"
        assert client.call_tool("greet").text.endswith("runs=2")


@pytest.mark.parametrize("era", ["legacy", "modern"])
def test_a_tool_of_fastmcp_runs_once(era):
    with served("fastmcp4"):
        from fastmcp import Context, FastMCP

        server, runs = FastMCP("x"), []

        @server.tool
        async def greet(ctx: Context) -> str:
            runs.append(1)
            number = await ctx.elicit("How many?", int)
            said = await ctx.sample("hi")
            return f"{number.data} {said.text} runs={len(runs)}"

        with SyncClient(under(server), era=era, **answers(runs)) as client:
            assert client.call_tool("greet").text == "7 written runs=1"


def test_who_cannot_be_asked_or_refuses_is_an_error_of_the_question(mcp1):
    from mcp import McpError
    from mcp.server.fastmcp import Context, FastMCP
    from pydantic import BaseModel

    class Who(BaseModel):
        name: str

    server, seen = FastMCP("x"), []

    @server.tool()
    async def greet(ctx: Context) -> str:
        try:
            found = await ctx.elicit("Who?", Who)
        except McpError as error:
            seen.append(error)
            return "refused"
        return found.action

    with SyncClient(under(server), era="legacy") as client:
        assert client.call_tool("greet").text == "refused"
    with SyncClient(under(server), era="legacy", elicitation=lambda asked: False) as client:
        assert client.call_tool("greet").text == "decline"

    with SyncClient(under(server), era="legacy", elicitation=lambda asked: None) as client:
        assert client.call_tool("greet").text == "cancel"
    assert len(seen) == 1


def test_a_client_of_mcp_1_is_asked_to_open_a_page(mcp1):
    from mcp.server.fastmcp import Context, FastMCP
    from mcp.shared.memory import create_connected_server_and_client_session
    from mcp.types import ElicitResult

    server = FastMCP("x")
    shown = []

    async def open_page(ctx: Context) -> str:
        action = (await ctx.session.elicit_url("Log in", "https://a.example/", "one")).action
        await ctx.session.send_elicit_complete("one")
        return action

    server.tool()(open_page)
    open_page.__annotations__["ctx"] = Context

    async def on_elicit(context, params):
        shown.append((params.mode, params.url, params.elicitationId))
        return ElicitResult(action="accept")

    async def run():
        async with create_connected_server_and_client_session(server, elicitation_callback=on_elicit) as session:
            return (await session.call_tool("open_page", {})).content[0].text

    assert asyncio.run(run()) == "accept"
    assert shown == [("url", "https://a.example/", "one")]


@pytest.mark.parametrize("mode", ["legacy", "auto"])
def test_a_client_is_shown_the_id_of_a_page_that_the_server_gave(mode):
    with served("mcp2"):
        from mcp import Client
        from mcp.server.mcpserver import Context, MCPServer
        from mcp.types import ElicitResult

        server, shown = MCPServer("x"), []

        async def open_page(ctx: Context, name: str | None = None) -> str:
            return (await ctx.session.elicit_url("Log in", "https://a.example/", name)).action

        open_page.__annotations__["ctx"] = Context
        server.tool()(open_page)

        async def on_elicit(context, params):
            shown.append(params.elicitation_id)
            return ElicitResult(action="decline")

        async def run():
            async with Client(server, elicitation_callback=on_elicit, mode=mode) as client:
                named = await client.call_tool("open_page", {"name": "one"})
                await client.call_tool("open_page", {})
                return named.content[0].text

        assert asyncio.run(run()) == "decline"
        assert shown[0] == "one"
        assert len(shown[1] or "") == (32 if mode == "legacy" else 0)
