"""A method of the protocol that one function of the author answers entirely."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest

from linkspan import (
    CallToolResult,
    Client,
    Configuration,
    Context,
    InputRequired,
    MethodAlreadyDefinedError,
    RegistrationError,
    Server,
    ServerError,
    SyncClient,
    TextContent,
    ToolError,
    ask_form,
)
from linkspan.types.messages import CallToolParams, ListToolsResult, Tool

ERAS = ["2024-11-05", "2025-06-18", "2025-11-25", "2026-07-28"]
LIST: dict[str, Any] = {
    "tools": [
        {"name": "add", "title": "Add", "inputSchema": {"type": "object"}, "_meta": {"v/a": 1}, "futureMember": [1]},
        {"name": "sub", "inputSchema": {"type": "object"}},
    ],
    "nextCursor": "2",
    "_meta": {"v/page": 1},
    "futureHint": True,
}


def raw(server: Server, method: str, params: dict[str, Any] | None = None, *, era: str = "2026-07-28") -> Any:
    """Return the response to one message, as JSON."""
    params = dict(params or {})
    if era == "2026-07-28":
        envelope = {
            "io.modelcontextprotocol/protocolVersion": era,
            "io.modelcontextprotocol/clientCapabilities": {"elicitation": {}},
        }
        params["_meta"] = envelope | params.get("_meta", {})
    answer = server.handle_json(json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}))
    assert answer is not None
    return json.loads(answer)


def lister(server: Server, *, seen: list[Any] | None = None) -> None:
    @server.handler("tools/list")
    def list_tools(params: dict[str, Any]) -> dict[str, Any]:
        if seen is not None:
            seen.append(params)
        return LIST


def test_a_function_answers_a_whole_list_with_meta_and_unknown_members() -> None:
    server, seen = Server("whole", ttl_ms=500), list[Any]()
    lister(server, seen=seen)
    result = raw(server, "tools/list", {"cursor": "1", "later": 7, "_meta": {"v/who": "ann"}})["result"]
    assert result.pop("_meta").pop("v/page") == 1
    assert result == {
        **{name: value for name, value in LIST.items() if name != "_meta"},
        "ttlMs": 500,
        "cacheScope": "private",
        "resultType": "complete",
    }
    assert (seen[0]["cursor"], seen[0]["later"], seen[0]["_meta"]["v/who"]) == ("1", 7, "ann")


def test_older_revisions_get_what_they_know_of_a_whole_result() -> None:
    server = Server("whole")
    lister(server)
    result = raw(server, "tools/list", era="")["result"]  # without a handshake: the newest revision that has one
    assert "ttlMs" not in result
    assert result["futureHint"] is True
    assert result["tools"][0]["futureMember"] == [1]
    for era in ERAS:
        with SyncClient(server, protocol_version=era) as client:
            page = client.request("tools/list")
            assert page["tools"][0].get("title") == (None if era < "2025-06-18" else "Add")
            assert page["tools"][0]["futureMember"] == [1]


@pytest.mark.parametrize("era", ERAS)
def test_functions_answer_every_method(era: str) -> None:
    server, calls = Server("whole"), list[str]()

    def answers(method: str, result: dict[str, Any] | None) -> None:
        @server.handler(method)
        async def function(params: dict[str, Any], ctx: Context) -> dict[str, Any] | None:
            calls.append(method)
            assert ctx.request_id is not None
            return result

    prompt = {"name": "hello", "arguments": [{"name": "city"}]}
    message = {"role": "user", "content": {"type": "text", "text": "hi"}}
    answers("tools/list", {"tools": [{"name": "add", "inputSchema": {"type": "object"}}]})
    answers("tools/call", {"content": [{"type": "text", "text": "3"}], "structuredContent": {"sum": 3}})
    answers("resources/list", {"resources": [{"uri": "docs://a", "name": "a"}]})
    answers("resources/templates/list", {"resourceTemplates": [{"uriTemplate": "docs://{x}", "name": "x"}]})
    answers("resources/read", {"contents": [{"uri": "docs://a", "text": "A"}]})
    answers("prompts/list", {"prompts": [prompt]})
    answers("prompts/get", {"messages": [message]})
    answers("completion/complete", {"completion": {"values": ["Oslo"]}})
    with SyncClient(server, protocol_version=era) as client:
        offered = client.server_capabilities
        assert None not in (offered.tools, offered.prompts, offered.resources)
        assert (offered.completions is not None) == (era >= "2025-03-26")
        assert [each.name for each in client.list_tools()] == ["add"]
        assert client.call_tool("add", {"a": 1}).text == "3"
        assert [each.uri for each in client.list_resources()] == ["docs://a"]
        assert [each.uri_template for each in client.list_resource_templates()] == ["docs://{x}"]
        assert client.read_resource("docs://a").contents[0].text == "A"
        assert [each.name for each in client.list_prompts()] == ["hello"]
        assert client.get_prompt("hello", {"city": "Oslo"}).messages[0].content.text == "hi"
        assert client.complete("hello", "city", "O").values == ["Oslo"]
    assert len(calls) >= 8


def test_a_function_gets_params_in_their_shape() -> None:
    server = Server("whole")

    @server.handler("tools/call")
    def call(params: CallToolParams) -> CallToolResult:
        return CallToolResult(content=[TextContent(f"{params.name} {bytes(params.arguments).decode()}")])

    with SyncClient(server) as client:
        assert client.call_tool("any", {"x": 1}).text == 'any {"x":1}'


def test_a_function_gets_single_members() -> None:
    server = Server("whole")

    @server.handler("tools/call")
    def call(name: str, arguments: dict[str, Any], ctx: Context) -> CallToolResult:
        return CallToolResult(content=[TextContent(f"{name} {arguments['x']} {ctx.meta.get('v/a')}")])

    with SyncClient(server) as client:
        assert client.call_tool("any", {"x": 1}, meta={"v/a": 2}).text == "any 1 2"


def test_params_carry_members_that_no_revision_names() -> None:
    server, seen = Server("whole"), list[Any]()

    @server.handler("tools/call")
    def call(params: dict[str, Any]) -> dict[str, Any]:
        seen.append(params)
        return {"content": [], "_meta": {"v/b": 1}}

    raw(server, "tools/call", {"name": "a", "arguments": {"x": [1]}, "task": {"ttl": 3}})
    raw(server, "tools/call", {"name": "b", "arguments": {"x": [1]}})
    seen[0].pop("_meta"), seen[1].pop("_meta")
    assert seen == [
        {"name": "a", "arguments": {"x": [1]}, "task": {"ttl": 3}},
        {"name": "b", "arguments": {"x": [1]}},
    ]


def test_middleware_surrounds_it_and_sees_its_result() -> None:
    server, seen = Server("whole"), list[object]()
    lister(server)

    @server.middleware(only=["tools/list"])
    def fewer(call: Any) -> Any:
        result = yield
        seen.append(result)
        return ListToolsResult(tools=result.tools[:1])

    with SyncClient(server) as client:
        assert [each.name for each in client.list_tools()] == ["add"]
    assert isinstance(seen[0], ListToolsResult)


def test_what_it_raises_is_answered_as_that_of_other_functions() -> None:
    server = Server("whole")

    @server.handler("tools/call")
    async def call(params: dict[str, Any]) -> dict[str, Any]:
        raise ToolError("closed") if params["name"] == "shop" else ValueError("secret")

    with SyncClient(server) as client:
        assert client.call_tool("shop").text == "closed"
        assert "secret" not in client.call_tool("other").text


def test_it_may_ask() -> None:
    server = Server("whole")

    def four(form: Any) -> dict[str, int]:
        return dict.fromkeys(form.requested_schema["properties"], 4)

    @server.handler("tools/call")
    def call(params: dict[str, Any], ctx: Context) -> Any:
        if "n" not in ctx.input_responses:
            return InputRequired({"n": ask_form("How many?", int, name="n")})
        return {"content": [{"type": "text", "text": str(ctx.ask("m", int, "And?"))}]}

    for era in ERAS[2:]:
        with SyncClient(server, protocol_version=era, elicitation=four) as client:
            assert client.call_tool("any").text == "4"


def test_a_wrong_result_is_reported_to_the_author() -> None:
    server, reported = Server("whole", exception_reporter=lambda error, _: reported.append(error)), list[Any]()

    @server.handler("tools/list")
    def list_tools(params: dict[str, Any]) -> Any:
        return CallToolResult(content=[])

    with SyncClient(server) as client, pytest.raises(ServerError, match="incident"):
        client.list_tools()
    assert "return ListToolsResult, or a mapping" in str(reported[0].__cause__)


def test_registered_items_keep_their_scopes() -> None:
    server = Server("whole")

    @server.tool(scopes=["write"])
    def write() -> str:
        return ""

    @server.handler("tools/call")
    def call(params: dict[str, Any]) -> dict[str, Any]:
        return {"content": []}

    assert server.item_scopes == {"tool 'write'": ("write",)}
    with SyncClient(server) as client:
        assert not client.call_tool("write").is_error  # memory has no tokens


def test_a_handler_of_its_own_server_sees_the_whole_list() -> None:
    server = Server("whole")
    lister(server)
    pages = {None: (["add"], "2"), "2": (["sub"], None)}

    @server.handler("prompts/list")
    async def list_prompts(params: dict[str, Any]) -> dict[str, Any]:
        names, after = pages[params.get("cursor")]
        return {"prompts": [{"name": each} for each in names], **({"nextCursor": after} if after else {})}

    @server.tool
    async def names(ctx: Context) -> list[str]:
        return [each.name for each in await ctx.list_prompts()]

    with SyncClient(server) as client:
        assert client.call_tool("names").structured == {"result": ["add", "sub"]}


@pytest.mark.parametrize("era", ["2025-06-18", "2025-11-25"])
def test_functions_run_before_a_session_keeps_a_setting(era: str) -> None:
    server, seen = Server("whole"), list[Any]()

    @server.handler("logging/setLevel")
    async def set_level(params: dict[str, Any]) -> None:
        seen.append(params["level"])

    @server.handler("resources/subscribe")
    def subscribe(uri: str) -> None:
        if uri == "docs://no":
            raise ToolError("not that one")
        seen.append(uri)

    @server.handler("resources/unsubscribe")
    def unsubscribe(uri: str) -> None:
        seen.append(f"- {uri}")

    async def main() -> None:
        async with Client(server, protocol_version=era) as client:
            await client.set_logging_level("error")
            with pytest.raises(ServerError, match="not that one"):
                await client.request("resources/subscribe", {"uri": "docs://no"})
            await client.request("resources/subscribe", {"uri": "docs://a"})
            assert server.notify_resource_updated("docs://a") == 1
            await client.request("resources/unsubscribe", {"uri": "docs://a"})
            assert server.notify_resource_updated("docs://a") == 0

    asyncio.run(main())
    assert seen == ["error", "docs://a", "- docs://a"]


@pytest.mark.parametrize(
    ("method", "function", "problem"),
    [
        ("tools/lst", lambda params: None, "did you mean 'tools/list'"),
        ("initialize", lambda params: None, "no such method"),
        ("tools/call", lambda title, name: None, "takes title"),
    ],
)
def test_a_function_that_cannot_answer_is_refused(method: str, function: Callable[..., Any], problem: str) -> None:
    with pytest.raises(RegistrationError, match=problem):
        Server("whole").handler(method)(function)


def test_a_second_function_is_refused() -> None:
    server = Server("whole")
    lister(server)
    with pytest.raises(MethodAlreadyDefinedError):
        lister(server)


def test_the_decorator_without_a_method_says_what_to_write() -> None:
    with pytest.raises(RegistrationError, match=r"@server.handler\('tools/call'\)"):
        Server("whole").handler(call)  # type: ignore[arg-type]


def call() -> None:
    """Stand in for a function without a method."""


def test_it_runs_once_the_lifespan_is_entered() -> None:
    entered: list[str] = []

    def lifespan() -> Any:
        entered.append("entered")
        yield

    server = Server("whole", lifespan=lifespan)

    @server.handler("tools/list")
    def list_tools(params: dict[str, Any]) -> ListToolsResult:
        assert entered
        return ListToolsResult(tools=[Tool(name="a", input_schema={"type": "object"})])

    with SyncClient(server) as client:
        assert [each.name for each in client.list_tools()] == ["a"]


def test_an_unknown_tool_is_a_result_where_the_server_says_so() -> None:
    server = Server("shop", configuration=Configuration(unknown_tools_as_results=True))

    @server.tool
    def add(a: int, b: int) -> int:
        return a + b

    with SyncClient(server) as client:
        found = client.call_tool("ad")
    assert found.is_error
    assert found.text == "Unknown tool: ad; did you mean 'add'?"
