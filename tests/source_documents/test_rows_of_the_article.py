"""Table J: the host, the client and the server that the article builds from scratch. Each test names its row."""

from __future__ import annotations

import asyncio
import importlib.util
import io
import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol

import pytest
from spoken import HELLO, call, result, text_of

from linkspan import (
    CallTimeout,
    Client,
    ClientClosed,
    ConnectionLost,
    Context,
    Server,
    ServerError,
    SyncClient,
    SyncClientGroup,
)
from linkspan.core.call import CallReady
from linkspan.host.consent import Policy
from linkspan.host.conversation import Conversation
from linkspan.host.dialects.anthropic import AnthropicDialect
from linkspan.host.host import Host
from linkspan.host.messages import ModelRequest, Text, ToolMessage, ToolSpec, UserMessage
from linkspan.host.scripted import ScriptedModel, use
from over_http import serving

SCRATCH = Path(__file__).parent.parent.parent / "examples" / "from_scratch"
ARTICLE = Path(__file__).parent / "article_server.py"
DICE_SCHEMA = {
    "type": "object",
    "properties": {"sides": {"type": "integer", "minimum": 1, "description": "The number of sides on the dice"}},
    "required": ["sides"],
}


def load(name: str) -> ModuleType:
    """Load a part of the example; its name on its own would be anybody's."""
    spec = importlib.util.spec_from_file_location(f"from_scratch_{name}", SCRATCH / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


HOST: Any = load("host")


def dice() -> Server:
    """Return a server of the example of its own."""
    server: Server = load("server").server
    return server


def ask_host(model: ScriptedModel, query: str) -> str:
    """Let the host from scratch answer, with the dice server behind a real client."""

    async def answer() -> str:
        async with Client(dice()) as client:
            found: str = await HOST.answer(client, model, query)
            return found

    return asyncio.run(answer())


class Article:
    """The article's server in a process, and what it has read."""

    def __init__(self, folder: Path) -> None:
        self.log = folder / "read.jsonl"
        self.command = [sys.executable, str(ARTICLE), str(self.log)]

    def client(self, **options: Any) -> SyncClient:
        return SyncClient(self.command, era="legacy", **options)

    def read(self) -> list[Any]:
        return [json.loads(line) for line in self.log.read_text().splitlines()]


@pytest.fixture
def article(tmp_path: Path) -> Article:
    return Article(tmp_path)


class ClientConnection(Protocol):
    """What mcp-rb asks of a transport."""

    def read_next_message(self) -> str | None: ...
    def send_message(self, message: str) -> None: ...


def serve(server: Server, transport: ClientConnection) -> None:
    """Serve over any transport."""
    connection = server.connect()
    while (message := transport.read_next_message()) is not None:
        for event in connection.receive_message(message.encode()):
            if isinstance(event, CallReady):
                connection.finish(event.call, event.call.run())
        for answer in connection.messages_to_send():
            transport.send_message(answer.decode())


class Queue:
    """A transport from the client's side: what it sends, and what has come back."""

    def __init__(self, *messages: dict[str, Any]) -> None:
        self.unread = [json.dumps({"jsonrpc": "2.0", **each}) for each in messages]
        self.sent: list[Any] = []

    def read_next_message(self) -> str | None:
        return self.unread.pop(0) if self.unread else None

    def send_message(self, message: str) -> None:
        self.sent.append(json.loads(message))


# J1
def test_a_host_stands_between_the_user_and_the_model_and_reaches_the_server_through_a_client() -> None:
    model = ScriptedModel([use("dice", sides=1), "You rolled a one."])
    assert "You rolled a one." in ask_host(model, "Roll a dice with 1 side")
    (answers,) = [message for message in model.requests[1].messages if isinstance(message, ToolMessage)]
    assert [answer.text for answer in answers.answers] == ["1"]


# J2
def test_a_client_starts_the_server_and_speaks_over_its_pipes_while_stderr_is_drained(article: Article) -> None:
    heard: list[str] = []
    with article.client(on_stderr=heard.append) as client:
        assert client.call_tool("dice").text == "3"
    assert sum(map(len, heard)) > 0


# J3
def test_the_host_greets_answers_each_line_and_ends_at_exit(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("Hello\nExIt\nnever\n"))
    model = ScriptedModel(["Hello yourself."])
    asyncio.run(HOST.main(model))
    assert capsys.readouterr().out == ("MCP Client Started!\nType your queries 'exit' to exit.\nHello yourself.\n")


# J4
def test_the_model_is_given_the_query_the_tools_and_the_system_prompt() -> None:
    model = ScriptedModel(["Hai."])

    async def main() -> None:
        async with Host({"dice": dice()}, policy=Policy(otherwise="allow")) as host:
            await Conversation(host, model, system="Respond only in Japanese.").answer("Roll")

    asyncio.run(main())
    (request,) = model.requests
    assert request.messages == [UserMessage([Text("Roll")])]
    assert request.system is not None
    assert request.system.startswith("Respond only in Japanese.")
    assert request.tools == [ToolSpec("dice", "Roll a dice", DICE_SCHEMA)]
    bare = ModelRequest([UserMessage([Text("Roll")])], request.tools, "Respond only in Japanese.", 1000)
    body = AnthropicDialect().encode_request(bare, "claude-3-7-sonnet-20250219")
    assert (body["model"], body["max_tokens"], body["system"]) == (
        "claude-3-7-sonnet-20250219",
        1000,
        "Respond only in Japanese.",
    )
    assert [(each["role"], each["content"][0]["text"]) for each in body["messages"]] == [("user", "Roll")]
    (tool,) = body["tools"]
    assert (tool["name"], tool["description"], set(tool) >= {"input_schema"}) == ("dice", "Roll a dice", True)


# J5
def test_the_answer_is_texts_and_calls_by_lines_and_what_the_tool_said_goes_back_to_the_model() -> None:
    model = ScriptedModel([["I roll.", use("dice", sides=1)], "You rolled a one."])
    assert ask_host(model, "Roll") == ('I roll.\n[Calling tool dice with args {"sides": 1}]\nYou rolled a one.')
    first, second = model.requests
    assert len(first.messages) == 1
    body = AnthropicDialect().encode_request(second, "model")
    asked, called, answered = body["messages"]
    assert (asked["role"], called["role"], answered["role"]) == ("user", "assistant", "user")
    said, used = called["content"]
    assert (said["text"], used["type"], used["name"], used["input"]) == ("I roll.", "tool_use", "dice", {"sides": 1})
    (told,) = answered["content"]
    assert (told["type"], told["tool_use_id"], told["content"][0]["text"]) == ("tool_result", used["id"], "1")


# J5
def test_the_host_says_so_when_there_is_no_answer(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("Hello\n"))
    asyncio.run(HOST.main(ScriptedModel([""])))
    assert capsys.readouterr().out.splitlines()[-1] == "No response from the server"


# J6, J7, with C13 and C15
def test_a_client_shakes_hands_before_anything_else(article: Article) -> None:
    with article.client() as client:
        client.list_tools()
        assert client.server_info is not None
        assert (client.server_info.name, client.protocol_version) == ("article", "2025-03-26")
    hello, ready, listing = article.read()
    assert (hello["jsonrpc"], hello["method"], listing["method"]) == ("2.0", "initialize", "tools/list")
    assert set(hello["params"]) == {"protocolVersion", "capabilities", "clientInfo"}
    assert set(hello["params"]["clientInfo"]) >= {"name", "version"}
    assert ready == {"jsonrpc": "2.0", "method": "notifications/initialized"}
    assert hello["id"] != listing["id"]


# J7 and C22
def test_a_server_may_insist_on_the_handshake_and_still_answers_a_ping() -> None:
    strict = Server(require_initialized=True)
    strict.define_tool(name="t", handler=lambda: None)
    queue = Queue({"id": 1, "method": "tools/list"}, {"id": 2, "method": "ping"})
    serve(strict, queue)
    refused, pong = queue.sent
    assert (refused["id"], refused["error"]["code"]) == (1, -32602)  # what the newest revision says of a bare request
    assert "send initialize first" in refused["error"]["message"]
    assert pong == {"jsonrpc": "2.0", "id": 2, "result": {}}


# J8 and C13
def test_capabilities_are_what_the_client_can_answer_and_a_server_does_without(article: Article) -> None:
    with article.client(elicitation=lambda asked: None, roots=["."]) as client:
        client.ping()
    assert set(article.read()[0]["params"]["capabilities"]) == {"elicitation", "roots"}
    minimal = {name: value for name, value in HELLO.items() if name != "capabilities"}
    assert result(Server(), "initialize", **minimal)["protocolVersion"] == "2025-06-18"


# J9
def test_a_client_lists_and_calls_tools_until_it_is_closed(article: Article) -> None:
    client = article.client()
    assert [(tool.name, tool.description) for tool in client.list_tools()] == [("dice", "Roll a dice")]
    assert client.call_tool("dice", {"sides": 6}).text == "3"
    client.close()
    with pytest.raises(ClientClosed):
        client.list_tools()
    called = article.read()[-1]
    assert (called["method"], called["params"]["name"], called["params"]["arguments"]) == (
        "tools/call",
        "dice",
        {"sides": 6},
    )


# J10
def test_what_the_server_says_wrong_is_an_error_that_tells_it(article: Article) -> None:
    with article.client() as client:
        with pytest.raises(ServerError) as refused:
            client.call_tool("dice", {"how": "refuse"})
        assert (refused.value.code, refused.value.message) == (-32000, "no dice here")
        with pytest.raises(ConnectionLost) as lost:
            client.call_tool("dice", {"how": "die"})
    assert lost.value.exit_code == 3
    assert "this is no JSON" in str(lost.value)
    assert "out of dice" in str(lost.value)


# J11
def test_a_client_pings_with_an_id_so_that_it_hears_the_answer(article: Article) -> None:
    with article.client() as client:
        client.ping()
    assert article.read()[-1]["method"] == "ping"
    assert "id" in article.read()[-1]


# J12
def test_closing_ends_the_process_and_may_be_done_twice() -> None:
    server = Path(__file__).parent / "pid_server.py"
    client = SyncClient(server)
    pid = client.call_tool("pid").decode(int)
    os.kill(pid, 0)
    client.close()
    client.close()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


# J13
def test_a_tool_is_registered_with_four_things_and_its_handler_gets_the_arguments() -> None:
    seen: list[Mapping[str, Any]] = []

    def throw(args: dict[str, Any]) -> int:
        seen.append(args)
        return 4

    server = Server()
    server.register_tool(name="dice", description="Roll a dice", input_schema=DICE_SCHEMA, handler=throw)
    assert text_of(call(server, "dice", sides=6)) == "4"
    assert seen == [{"sides": 6}]


# J14
def test_the_server_introduces_itself() -> None:
    server = Server(name="dice", version="1.0.0", instructions="Optional instructions for the client")
    told = result(server, "initialize", **HELLO | {"protocolVersion": "2025-03-26"})
    assert (told["protocolVersion"], told["serverInfo"], told["instructions"]) == (
        "2025-03-26",
        {"name": "dice", "version": "1.0.0"},
        "Optional instructions for the client",
    )
    assert server.handle({"jsonrpc": "2.0", "method": "notifications/initialized"}) is None


# J15 and C14
def test_the_tools_and_their_results_have_the_names_of_the_protocol() -> None:
    server = dice()
    (tool,) = result(server, "tools/list")["tools"]
    assert (tool["name"], tool["description"], tool["inputSchema"]) == ("dice", "Roll a dice", DICE_SCHEMA)
    assert call(server, "dice", sides=1)["content"] == [{"type": "text", "text": "1"}]


# J16
def test_a_dice_has_the_sides_that_were_asked_for() -> None:
    server = dice()
    rolled = {int(text_of(call(server, "dice", sides=3))) for _ in range(200)}
    assert rolled == {1, 2, 3}
    for wrong in ({}, {"sides": 0}, {"sides": "six"}):
        assert call(server, "dice", **wrong)["isError"] is True


# J17
def test_what_the_article_names_as_missing_is_there() -> None:
    server = Server("named", secret_headers=[])  # a handler sees the caller's token only where that is said

    @server.tool
    async def sleep() -> None:
        await asyncio.sleep(60)

    @server.tool
    def who(ctx: Context) -> str:
        return ctx.headers["authorization"]

    with SyncClient(server) as client, pytest.raises(CallTimeout):
        client.call_tool("sleep", timeout=0.05)
    with SyncClientGroup({"one": server, "dice": dice()}) as group:
        assert {entry.name for entry in group.list_tools()} == {"sleep", "who", "dice"}
    with serving(server.asgi()) as url, SyncClient(url, auth="token-of-somebody") as client:
        assert client.call_tool("who").text == "Bearer token-of-somebody"
        assert client.server_capabilities is not None
        assert client.server_capabilities.tools is not None


# J18
def test_a_server_is_served_over_any_transport_of_ones_own() -> None:
    server = dice()
    queue = Queue(
        {"id": 1, "method": "initialize", "params": HELLO},
        {"method": "notifications/initialized"},
        {"id": 2, "method": "tools/call", "params": {"name": "dice", "arguments": {"sides": 1}}},
    )
    serve(server, queue)
    hello, rolled = queue.sent
    assert (hello["id"], hello["result"]["serverInfo"]["name"]) == (1, "dice")
    assert (rolled["id"], text_of(rolled["result"])) == (2, "1")


# J18
def test_tools_are_listed_in_pages_if_the_server_wants_that() -> None:
    server = Server(page_size=1)
    server.define_tool(name="a", handler=lambda: None)
    server.define_tool(name="b", handler=lambda: None)
    with SyncClient(server) as client:
        page = client.list_tools_page()
        assert [tool.name for tool in client.iter_tools()] == ["a", "b"]
    assert page.next_cursor is not None
