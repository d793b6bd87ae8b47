"""A handler reads resources and gets prompts of its own server, as its caller would."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from linkspan import Client, Context, ResourceNotFoundError, Server, SyncClient
from linkspan.errors import RemoteProtocolError
from talk import connected, say


def library(**options: Any) -> Server:
    server = Server("library", request_state_keys=["a key for tests that is long enough"], **options)

    @server.resource("book://{name}")
    def book(name: str) -> str:
        return f"the text of {name}"

    @server.resource("news://today")
    async def news() -> str:
        await asyncio.sleep(0)
        return "rain"

    server.define_resource("motto://us", text="read")
    server.define_resource("secret://us", text="gold", when=lambda ctx: ctx.principal == "admin")

    @server.prompt
    def review(code: str) -> str:
        return f"Review {code}"

    @server.tool
    def quote(uri: str, ctx: Context) -> str:
        (content,) = ctx.read_resource(uri).contents
        return f"plain: {content.text}"  # type: ignore[union-attr]

    @server.tool
    async def quote_async(uri: str, ctx: Context) -> str:
        (content,) = (await ctx.read_resource(uri)).contents
        return f"async: {content.text}"  # type: ignore[union-attr]

    @server.tool
    def ask_review(name: str, ctx: Context) -> str:
        return str(ctx.get_prompt(name, {"code": "x"}).messages[0].content)

    @server.tool
    async def ask_review_async(name: str, ctx: Context) -> str:
        return str((await ctx.get_prompt(name, {"code": "x"})).messages[0].content)

    return server


TEXTS = {"book://dune": "the text of dune", "news://today": "rain", "motto://us": "read"}


def call(server: Server, tool: str, **arguments: Any) -> Any:
    """Return the text of a result, or the error."""
    params = {"name": tool, "arguments": arguments}
    answer: Any = server.handle({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})
    return answer["result"]["content"][0]["text"] if "result" in answer else answer["error"]


@pytest.mark.parametrize("uri", TEXTS)
def test_plain_and_async_tools_read_plain_and_async_resources(uri: str) -> None:
    server = library()
    assert call(server, "quote", uri=uri) == f"plain: {TEXTS[uri]}"
    assert call(server, "quote_async", uri=uri) == f"async: {TEXTS[uri]}"
    with SyncClient(server) as client:
        assert client.call_tool("quote", {"uri": uri}).text == f"plain: {TEXTS[uri]}"
        assert client.call_tool("quote_async", {"uri": uri}).text == f"async: {TEXTS[uri]}"

    async def main() -> None:
        async with Client(server) as client:
            assert (await client.call_tool("quote", {"uri": uri})).text == f"plain: {TEXTS[uri]}"
            assert (await client.call_tool("quote_async", {"uri": uri})).text == f"async: {TEXTS[uri]}"

    asyncio.run(main())


def test_prompts_are_got_alike() -> None:
    server = library()
    for tool in ("ask_review", "ask_review_async"):
        assert "Review x" in call(server, tool, name="review")
        assert call(server, tool, name="reviw") == {
            "code": -32602,
            "message": "Unknown prompt: reviw; did you mean 'review'?",
        }


def test_what_does_not_exist_or_is_hidden_raises() -> None:
    server = library()
    caught: list[str] = []

    @server.tool
    def careful(uri: str, ctx: Context) -> str:
        with pytest.raises(ResourceNotFoundError) as error:
            ctx.read_resource(uri)
        caught.append(str(error.value))
        return "caught"

    assert call(server, "careful", uri="book:x") == "caught"
    assert call(server, "careful", uri="secret://us") == "caught"
    assert caught == ["Resource not found: book:x", "Resource not found: secret://us"]


def test_an_exception_of_the_resource_reaches_the_handler_as_it_is() -> None:
    server = library()

    @server.resource("broken://one")
    def broken() -> str:
        raise KeyError("inner")

    @server.tool
    def careful(ctx: Context) -> str:
        try:
            ctx.read_resource("broken://one")
        except KeyError as error:
            return f"caught {error}"
        return "not caught"

    assert call(server, "careful") == "caught 'inner'"


@pytest.mark.parametrize("tool", ["quote", "quote_async"])
def test_middleware_surrounds_what_a_handler_reads(tool: str) -> None:
    server = library()
    seen: list[tuple[str, str | None]] = []

    @server.middleware
    def watch(call: Any) -> Any:
        seen.append((call.method, call.name))
        if call.name == "book://denied":
            raise RemoteProtocolError(1, "denied")
        return (yield)

    assert call(server, tool, uri="book://dune").endswith("the text of dune")
    assert seen == [("tools/call", tool), ("resources/read", "book://dune")]
    assert call(server, tool, uri="book://denied") == {"code": 1, "message": "denied"}


def test_a_question_of_the_resource_is_asked_for_the_whole_request() -> None:
    server = library()
    runs: list[str] = []

    @server.resource("ask://{name}")
    def asks(name: str, ctx: Context) -> str:
        return f"{name} for {ctx.ask('who', str, 'Who reads?')}"

    @server.tool
    def quote_twice(ctx: Context) -> str:
        runs.append("run")
        (content,) = ctx.read_resource("ask://dune").contents
        return content.text  # type: ignore[union-attr]

    connection = connected(server)
    (question,) = say(connection, "tools/call", 1, name="quote_twice", arguments={})
    assert question["method"] == "elicitation/create"
    (answer,) = say(connection, None, question["id"], result={"action": "accept", "content": {"who": "Ann"}})
    assert answer["result"]["content"][0]["text"] == "dune for Ann"
    assert runs == ["run", "run"]


def test_progress_and_logs_of_what_is_read_go_to_the_client() -> None:
    server = library()

    @server.resource("loud://one")
    def loud(ctx: Context) -> str:
        ctx.log("warning", "reading")
        return "loud"

    connection = connected(server)
    messages = say(connection, "tools/call", 1, name="quote", arguments={"uri": "loud://one"})
    assert [each.get("method") for each in messages] == ["notifications/message", None]
