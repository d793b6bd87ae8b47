"""Tools that read resources and get prompts, for hosts that show tools only; and the lists that a handler asks for."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from linkspan import Client, Context, RegistrationError, Server, SyncClient
from linkspan.types.base import ResourceLink


def library(**options: Any) -> Server:
    server = Server("library", **options)
    server.define_resource("book://1", "first", text="It was a dark night.")
    server.define_resource("book://secret", "secret", text="x", when=lambda ctx: ctx.principal == "ann")
    server.define_resource("book://cover", "cover", read=lambda: b"\x89PNG", mime_type="image/png")
    server.define_resource("book://data", "data", read=lambda: b"\x00", mime_type="application/zip")

    @server.resource("book://{number}/page/{page}")
    async def page(number: int, page: int) -> str:
        await asyncio.sleep(0)
        return f"page {page} of {number}"

    @server.prompt
    def review(title: str, tone: str = "kind") -> list[Any]:
        """Review a book."""
        return [f"Review {title}, be {tone}", ResourceLink("book://1", "first")]

    return server


@pytest.mark.parametrize("page_size", [None, 1])
@pytest.mark.parametrize("mounted", [False, True])
def test_a_host_that_shows_tools_only_reaches_everything(page_size: int | None, mounted: bool) -> None:
    server = library(page_size=page_size)
    if mounted:
        outer = Server("outer", page_size=page_size)
        outer.mount(server)
        server = outer
    server.as_tools("resources", "prompts")
    with SyncClient(server) as client:
        tools = {each.name: each for each in client.list_tools()}
        assert [*tools] == ["list_resources", "read_resource", "list_prompts", "get_prompt"]
        assert all(each.annotations is not None and each.annotations.read_only_hint for each in tools.values())
        listed = client.call_tool("list_resources").structured
        assert [each["uri"] for each in listed["resources"]] == ["book://1", "book://cover", "book://data"]
        assert [each["uriTemplate"] for each in listed["resourceTemplates"]] == ["book://{number}/page/{page}"]
        assert client.call_tool("read_resource", {"uri": "book://1"}).text == "It was a dark night."
        assert client.call_tool("read_resource", {"uri": "book://2/page/7"}).text == "page 7 of 2"
        (cover,) = client.call_tool("read_resource", {"uri": "book://cover"}).content
        assert (cover.type, cover.mime_type) == ("image", "image/png")
        (data,) = client.call_tool("read_resource", {"uri": "book://data"}).content
        assert data.type == "resource"
        assert [each["name"] for each in client.call_tool("list_prompts").structured["prompts"]] == ["review"]
        result = client.call_tool("get_prompt", {"name": "review", "arguments": {"title": "Emma"}})
        assert (result.content[0].text, result.content[1].type) == ("Review Emma, be kind", "resource_link")
        assert [each["role"] for each in result.structured["messages"]] == ["user", "user"]
        for uri in ("book://secret", "book://other"):
            with pytest.raises(Exception, match="not found"):
                client.call_tool("read_resource", {"uri": uri})


def test_a_question_of_a_prompt_goes_to_the_user() -> None:
    server = Server("s")

    @server.prompt
    def menu(ctx: Context) -> str:
        return f"menu for {ctx.ask('guests', int, 'How many?')}"

    server.as_tools("prompts")
    with SyncClient(server, elicitation=lambda form: {"guests": 4}) as client:
        assert [each.name for each in client.list_tools()] == ["list_prompts", "get_prompt"]
        assert client.call_tool("get_prompt", {"name": "menu"}).text == "menu for 4"


def test_conditions_and_mistakes() -> None:
    server = library()
    server.as_tools(when=lambda: False)
    with SyncClient(server) as client:
        assert client.list_tools() == []
    with pytest.raises(RegistrationError, match="there are tools for resources and prompts; did you mean 'prompts'"):
        library().as_tools("prompt")


def test_a_handler_asks_for_the_lists_that_its_caller_sees() -> None:
    server = library(page_size=2)
    passed: list[str] = []

    @server.middleware(only=["tools/list", "resources/list"])
    def layer(call: Any) -> Any:
        passed.append(call.method)
        yield

    @server.tool
    def plain(ctx: Context) -> list[int]:
        return [len(ctx.list_tools()), len(ctx.list_prompts()), len(ctx.list_resources())]

    @server.tool
    async def awaited(ctx: Context) -> list[int]:
        return [len(await ctx.list_tools()), len(await ctx.list_resource_templates())]

    async def main() -> None:
        async with Client(server) as client:
            assert (await client.call_tool("plain")).structured == {"result": [2, 1, 3]}
            assert (await client.call_tool("awaited")).structured == {"result": [2, 1]}

    asyncio.run(main())
    assert passed == ["tools/list", "resources/list", "resources/list", "tools/list"]
