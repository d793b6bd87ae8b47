"""What is declared is what is served and announced (SRV-2, SRV-3, SRV-4)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from linkspan import Context, RegistrationError, Server
from linkspan.core.connection import ServerConnection
from linkspan.types.messages import ServerCapabilities
from test_transcripts import feed


@pytest.mark.parametrize(
    ("declared", "named"),
    [
        ({"tools": True}, "tools"),
        ({"tools": {"listChanged": "yes"}}, "listChanged"),
        ({"experimental": 5}, "experimental"),
        ({"extensions": {"a/b": object()}}, "object"),
        (["tools"], "list"),
    ],
)
def test_capabilities_of_the_wrong_shape_are_refused_when_the_server_is_made(declared: Any, named: str) -> None:
    with pytest.raises(RegistrationError, match=named):
        Server(capabilities=declared)


def test_what_is_declared_cannot_change_behind_the_servers_back() -> None:
    declared: dict[str, Any] = {"tools": {}}
    server = Server(capabilities=declared)
    declared["tools"] = True
    assert server.handle({"jsonrpc": "2.0", "id": 1, "method": "tools/list"})["result"] == {"tools": []}


def connected(server: Server, revision: str = "2025-11-25") -> ServerConnection:
    """Return a connection after its handshake."""
    connection = server.connect()
    hello = {"protocolVersion": revision, "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
    say(connection, "initialize", hello, "hello")
    feed(connection, b'{"jsonrpc":"2.0","method":"notifications/initialized"}\n', None)
    return connection


def say(connection: ServerConnection, method: str, params: Any, request_id: object = 1) -> Any:
    """Send a request and return all that comes back."""
    request = {"jsonrpc": "2.0", "id": request_id, "method": method, "params": params}
    feed(connection, json.dumps(request).encode() + b"\n", None)
    return [json.loads(each) for each in connection.messages_to_send()]


def code(connection: ServerConnection, method: str, params: Any) -> int | None:
    """Return the error code of an answer, None for a result."""
    (answer,) = say(connection, method, params)
    found: int | None = answer.get("error", {}).get("code")
    return found


def full(**options: Any) -> Server:
    """A server with one of each."""
    server = Server(**options)
    server.define_tool(name="t", handler=lambda **args: "ok")
    server.define_resource("x://a", text="text")

    @server.prompt
    def p(language: str) -> str:
        return language

    @server.completion("p", "language")
    def languages(value: str) -> list[str]:
        return ["python"]

    return server


COMPLETE = {"ref": {"type": "ref/prompt", "name": "p"}, "argument": {"name": "language", "value": ""}}
WATCH = {"uri": "x://a"}


@pytest.mark.parametrize("method", ["resources/subscribe", "resources/unsubscribe"])
@pytest.mark.parametrize("declared", [{"resources": {}}, {"resources": {"subscribe": False}}, {"resources": None}])
def test_resources_are_watched_only_where_subscribe_is_declared(method: str, declared: Any) -> None:
    assert code(connected(full()), method, WATCH) is None
    assert code(connected(full(capabilities=declared)), method, WATCH) == -32601


def with_a_prompt() -> Server:
    """A server that has prompts only."""
    server = Server()
    server.prompt(lambda: "text", name="p")
    return server


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("resources/subscribe", WATCH),
        ("resources/unsubscribe", WATCH),
        ("resources/list", {}),
        ("resources/templates/list", {}),
        ("resources/read", WATCH),
        ("tools/list", {}),
        ("tools/call", {"name": "t"}),
    ],
)
def test_a_server_has_no_methods_for_what_it_does_not_offer(method: str, params: Any) -> None:
    """SRV-2."""
    assert code(connected(with_a_prompt()), method, params) == -32601


LISTS = {"tools": {"listChanged": True}, "prompts": {"listChanged": True}}
ALL_LISTS = LISTS | {"resources": {"subscribe": True, "listChanged": True}}


def declared_lists(server: Server) -> Any:
    """Return what a server says of its lists, to clients of both eras."""
    hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
    (answer,) = say(server.connect(), "initialize", hello)
    (discovered,) = say(server.connect(), "server/discover", ENVELOPE)
    lists = [{name: each["result"]["capabilities"].get(name) for name in ALL_LISTS} for each in (answer, discovered)]
    assert lists[0] == lists[1]
    return {name: each for name, each in lists[0].items() if each is not None}


ENVELOPE = {
    "_meta": {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    }
}


@pytest.mark.parametrize("params", [{}, ENVELOPE], ids=["handshake", "modern"])
def test_an_empty_server_declares_all_lists_and_answers_them_with_nothing(params: Any) -> None:
    server = Server()
    assert declared_lists(server) == ALL_LISTS
    connection = connected(server)
    for method, member in [
        ("tools/list", "tools"),
        ("prompts/list", "prompts"),
        ("resources/list", "resources"),
        ("resources/templates/list", "resourceTemplates"),
    ]:
        (answer,) = say(connection, method, params)
        assert answer["result"][member] == []
    assert code(connection, "tools/call", {"name": "t"} | params) == -32602
    missing = -32602 if params else -32002
    assert code(connection, "resources/read", WATCH | params) == missing


@pytest.mark.parametrize(
    ("capabilities", "lists"),
    [
        ({"tools": {}}, {"tools": {}}),
        ({"tools": None}, {}),
        ({"logging": None}, ALL_LISTS),
        (ServerCapabilities(), {}),
    ],
)
def test_an_empty_server_that_declares_a_list_offers_what_it_says(capabilities: Any, lists: Any) -> None:
    server = Server(capabilities=capabilities)
    assert declared_lists(server) == lists
    connection = connected(server)
    for kind in ALL_LISTS:
        assert code(connection, f"{kind}/list", {}) == (None if kind in lists else -32601)


def test_a_list_that_was_promised_stays_while_another_one_fills() -> None:
    server = Server()
    connection = connected(server)
    server.define_tool(name="t", handler=lambda **args: "ok")
    assert code(connection, "prompts/list", {}) is None
    assert code(connection, "prompts/get", {"name": "p"}) == -32602
    server.prompt(lambda: "text", name="p")
    assert server.notify_prompts_list_changed() == 1
    assert declared_lists(with_a_prompt()) == {"prompts": {"listChanged": True}}


def test_where_logging_was_declared_away_there_is_no_level_to_set_and_nothing_is_logged() -> None:
    server = full(capabilities={"logging": None})

    @server.tool
    def chatty(ctx: Context) -> str:
        ctx.error("hear me")
        return "done"

    connection = connected(server)
    assert code(connection, "logging/setLevel", {"level": "debug"}) == -32601
    assert [each.get("method") for each in say(connection, "tools/call", {"name": "chatty"})] == [None]


@pytest.mark.parametrize("revision", ["2025-03-26", "2025-11-25"])
def test_completion_is_there_only_where_it_is_declared(revision: str) -> None:
    assert code(connected(full(), revision), "completion/complete", COMPLETE) is None
    hidden = full(capabilities={"completions": None})
    assert code(connected(hidden, revision), "completion/complete", COMPLETE) == -32601
    declared = Server(capabilities={"completions": {}})
    assert code(connected(declared, revision), "completion/complete", COMPLETE) == -32602  # an unknown reference


def test_completion_is_always_there_in_the_revision_that_has_no_capability_for_it() -> None:
    hidden = full(capabilities={"completions": None})
    assert code(connected(hidden, "2024-11-05"), "completion/complete", COMPLETE) is None


@pytest.mark.parametrize(
    ("declared", "told"),
    [(None, 1), ({"tools": {}}, 0), ({"tools": {"listChanged": False}}, 0), (ServerCapabilities(), 0)],
)
def test_changes_of_a_list_are_announced_only_where_that_was_declared(declared: Any, told: int) -> None:
    server = full(capabilities=declared)
    connection = connected(server)
    assert server.notify_tools_list_changed() == told
    assert len(connection.messages_to_send()) == told


def test_a_client_hears_of_the_last_tool_that_goes_but_not_of_a_list_it_was_never_promised() -> None:
    server = full()
    connection = connected(server)
    server.remove_tool("t")
    assert server.notify_tools_list_changed() == 1
    assert [json.loads(each)["method"] for each in connection.messages_to_send()] == [
        "notifications/tools/list_changed"
    ]
    assert code(connection, "tools/list", {}) is None
    other = with_a_prompt()
    connection = connected(other)
    other.define_tool(name="t", handler=lambda **args: "ok")
    assert other.notify_tools_list_changed() == 0
    assert connection.messages_to_send() == []


@pytest.mark.parametrize("kind", ["tools", "prompts", "resources"])
def test_a_client_of_an_empty_server_hears_of_what_comes(kind: str) -> None:
    server = Server()
    connection = connected(server)
    server.define_tool(name="t", handler=lambda **args: "ok")
    assert getattr(server, f"notify_{kind}_list_changed")() == 1
    assert [json.loads(each)["method"] for each in connection.messages_to_send()] == [
        f"notifications/{kind}/list_changed"
    ]


def test_notifying_no_client_is_logged_once_for_each_list(caplog: pytest.LogCaptureFixture) -> None:
    server = Server("quiet", auto_notify=True)
    server.define_tool(name="t", handler=lambda **args: "ok")
    server.notify_resource_updated("x://a")
    assert caplog.messages == []
    for _ in range(2):
        assert server.notify_tools_list_changed() == 0
    assert [each for each in caplog.messages if "notify_tools_list_changed() reached no client of 'quiet'" in each]
    assert len(caplog.messages) == 1
    server.notify_prompts_list_changed()
    assert len(caplog.messages) == 2
