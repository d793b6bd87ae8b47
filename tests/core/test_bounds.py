"""The limits of a connection: what is exactly at each is served, and one more is not."""

from __future__ import annotations

import json
from typing import Any

import pytest

from linkspan import Context, Limits, Server
from linkspan.core.call import Ports
from linkspan.core.connection import ServerConnection
from linkspan.revisions import LATEST_LEGACY
from linkspan.wire.jsonrpc import Batch, Malformed, RpcRequest, decode
from talk import connected, say


def asks(ctx: Context) -> str:
    return ctx.ask("q", str, "What?")


def asks_in_turn(count: int, ctx: Context) -> str:
    return " ".join(ctx.ask(f"q{number}", str, "What?") for number in range(count))


ENVELOPE = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
}


def watched(**limits: int) -> Server:
    server = Server("watched", limits=Limits(**limits), auto_notify=True)
    for name in ("a", "b", "c"):
        server.resource(f"note://{name}", name=name)(lambda: "text")
    return server


def listen(connection: ServerConnection, number: int, **wanted: Any) -> list[Any]:
    return say(connection, "subscriptions/listen", number, _meta=ENVELOPE, notifications=wanted)


def said(connection: ServerConnection) -> list[Any]:
    return [json.loads(each) for each in connection.messages_to_send()]


def test_no_more_subscriptions_are_open_than_allowed() -> None:
    connection = watched(max_subscriptions=2).connect()
    opened = [listen(connection, number, resourcesListChanged=True)[0] for number in (1, 2)]
    assert [each["method"] for each in opened] == ["notifications/subscriptions/acknowledged"] * 2
    (refused,) = listen(connection, 3, resourcesListChanged=True)
    assert (refused["id"], refused["error"]["code"]) == (3, -32602)
    assert say(connection, "notifications/cancelled", requestId=1) == []
    assert "error" not in listen(connection, 4, resourcesListChanged=True)[0]


def test_no_more_resources_are_in_a_subscription_than_allowed() -> None:
    connection = watched(max_subscriptions=2).connect()
    (refused,) = listen(connection, 1, resourceSubscriptions=["note://a", "note://b", "note://c"])
    assert refused["error"]["code"] == -32602
    (opened,) = listen(connection, 2, resourceSubscriptions=["note://a", "note://b"])
    assert opened["params"]["notifications"] == {"resourceSubscriptions": ["note://a", "note://b"]}


def test_no_more_resources_are_watched_in_a_session_than_allowed() -> None:
    connection = connected(watched(max_subscriptions=2))
    answers = [say(connection, "resources/subscribe", number, uri=f"note://{number}") for number in "aba"]
    assert [each[0]["result"] for each in answers] == [{}] * 3
    (refused,) = say(connection, "resources/subscribe", "c", uri="note://c")
    assert refused["error"]["code"] == -32602
    assert say(connection, "resources/unsubscribe", 1, uri="note://a")[0]["result"] == {}
    assert say(connection, "resources/subscribe", "c", uri="note://c")[0]["result"] == {}


def test_a_subscription_that_was_cancelled_sends_nothing() -> None:
    server = watched()
    connection = server.connect()
    listen(connection, 1, resourcesListChanged=True, resourceSubscriptions=["note://a"])
    server.notify_resource_updated("note://a")
    server.notify_resources_list_changed()
    assert len(said(connection)) == 2
    say(connection, "notifications/cancelled", requestId=1)
    server.notify_resource_updated("note://a")
    server.notify_resources_list_changed()
    assert said(connection) == []
    assert "error" not in listen(connection, 1, resourcesListChanged=True)[0]  # its id is free again


def test_changes_that_wait_to_be_read_go_with_their_subscription() -> None:
    server, unsent = watched(), ["earlier output"]
    connection = server.connect(ports=Ports(sending=lambda: bool(unsent)))
    listen(connection, 1, resourcesListChanged=True)
    server.notify_resources_list_changed()
    connection.cancel(1, None)
    unsent.clear()
    assert connection.data_to_send() == b""


@pytest.mark.parametrize("modern", [False, True])
def test_what_is_registered_later_is_announced(modern: bool) -> None:
    server = watched()
    server.tool(name="t")(lambda: "ok")
    server.prompt(name="p")(lambda: "ok")
    connection = server.connect() if modern else connected(server)
    if modern:
        listen(connection, 1, resourcesListChanged=True, toolsListChanged=True, promptsListChanged=True)
    for kind, register in {
        "resources": lambda: server.resource("note://d", name="d")(lambda: "text"),
        "tools": lambda: server.tool(name="t2")(lambda: "ok"),
        "prompts": lambda: server.prompt(name="p2")(lambda: "ok"),
    }.items():
        register()
        assert [each["method"] for each in said(connection)] == [f"notifications/{kind}/list_changed"]
    server.resource("note://{x}", name="template")(lambda x: "text")
    assert [each["method"] for each in said(connection)] == ["notifications/resources/list_changed"]


def test_the_longest_line() -> None:
    server = Server("long", limits=Limits(max_line_bytes=200))
    for extra, served in ((0, True), (1, False)):
        connection = server.connect()
        head = b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":"'
        line = head + b"y" * (200 + extra - len(head) - 3) + b'"}}'
        assert len(line) == 200 + extra
        connection.receive_data(line + b"\n")
        for at in range(0, len(line), 50):
            connection.receive_data(line[at : at + 50])
        connection.receive_data(b"\n")
        connection.receive_message(line)
        assert ["result" in each for each in said(connection)] == [served] * 3


def test_the_deepest_message() -> None:
    for levels, served in ((10, True), (11, False)):
        arrays = levels - 2
        line = (
            b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"y":[[],[]],"x":'
            + b"[" * arrays
            + b"]" * arrays
            + b"}}"
        )
        assert isinstance(decode(line, Limits(max_depth=10)), RpcRequest if served else Malformed)


def test_the_longest_batch() -> None:
    for count, kind in ((3, Batch), (4, Malformed)):
        line = json.dumps([{"jsonrpc": "2.0", "id": n, "method": "ping"} for n in range(count)]).encode()
        assert isinstance(decode(line, Limits(max_batch=3)), kind)


def test_the_last_moment_for_an_answer() -> None:
    server = Server("slow", limits=Limits(input_timeout=10))
    server.tool(name="ask")(asks)
    connection = connected(server, clock=lambda: 0.0)
    assert say(connection, "tools/call", 1, name="ask")[0]["method"] == "elicitation/create"
    assert connection.handle_timeout(9.999) == []
    assert said(connection) == []
    connection.handle_timeout(10.0)
    assert {each.get("id") for each in said(connection)} == {1, None}


@pytest.mark.parametrize("most", [1, 2, 3])
def test_the_last_round_of_questions(most: int) -> None:
    server = Server("curious", limits=Limits(max_rounds=most))
    server.tool(name="ask")(asks_in_turn)
    connection = connected(server)

    def call(number: int, count: int) -> tuple[int, Any]:
        """Call the tool and answer whatever it asks; return how often it asked, and the result."""
        (found,) = say(connection, "tools/call", number, name="ask", arguments={"count": count})
        rounds = 0
        while found.get("method") == "elicitation/create":
            rounds += 1
            names = found["params"]["requestedSchema"]["properties"]
            accepted = {"action": "accept", "content": dict.fromkeys(names, f"a{rounds}")}
            (found,) = say(connection, None, found["id"], result=accepted)
        assert found["id"] == number
        return rounds, found["result"]

    for number in (1, 3):  # each request has as many rounds, whatever happened to the one before it
        rounds, served = call(number, most)
        assert (rounds, served.get("isError", False)) == (most, False)
        assert served["content"][0]["text"] == " ".join(f"a{each}" for each in range(1, most + 1))
        rounds, refused = call(number + 1, most + 1)
        assert (rounds, refused["isError"]) == (most, True)
        assert refused["content"][0]["text"] == f"Gave up after {most} rounds of questions (max_rounds)"


@pytest.mark.parametrize("name", Limits.__struct_fields__)
def test_no_limit_is_below_one(name: str) -> None:
    assert getattr(Limits(**{name: 1}), name) == 1
    with pytest.raises(ValueError, match=f"{name} must be at least 1"):
        Limits(**{name: 0})


# Leaks.


def tables(connection: ServerConnection) -> dict[str, Any]:
    """Return what a connection remembers of requests: every container of it, and of its session, that is not empty."""
    owners: dict[str, object] = {"connection": connection, "subscriptions": connection._subscriptions}
    if connection._batches is not None:
        owners["batches"] = connection._batches
    if connection._held is not None:
        owners["held"] = connection._held
    if connection._legacy is not None:
        owners["session"] = connection._legacy
    found = {}
    for owner, each in owners.items():
        kind = type(each)
        names = getattr(kind, "__struct_fields__", None) or getattr(kind, "__slots__", None) or vars(each)
        for name in names:
            value = getattr(each, name)
            if isinstance(value, dict | list | set) and value:
                found[f"{owner}.{name}"] = value
    return found


@pytest.mark.parametrize("revision", ["2025-03-26", LATEST_LEGACY.date])
def test_nothing_is_remembered_of_requests_that_have_ended(revision: str) -> None:
    server = watched(max_rounds=2)
    server.tool(name="t")(lambda: "ok")
    server.tool(name="fail")(lambda: 1 / 0)
    server.tool(name="ask")(asks)
    server.define_custom_method("notifications/note", lambda params: None)
    connection = connected(server, revision=revision, capabilities={"elicitation": {}, "sampling": {}})
    for round_ in range(20):
        for name in ("t", "fail", "none"):
            say(connection, "tools/call", f"{name}{round_}", name=name)
        say(connection, "tools/call", 7, name="t", _meta=ENVELOPE)
        say(connection, "ask/nothing", 8)
        say(connection, "notifications/note")
        listen(connection, 9, resourcesListChanged=True)
        say(connection, "notifications/cancelled", requestId=9)
        asked = say(connection, "tools/call", 10, name="ask")
        if "method" in asked[0]:
            say(connection, None, asked[0]["id"], result={"action": "accept", "content": {"q": "yes"}})
        asked = say(connection, "tools/call", 11, name="ask")
        say(connection, "notifications/cancelled", requestId=11)
        say(connection, "tools/call", 12, name="ask")
        connection.handle_timeout(1e9)
        said(connection)
        batch = [{"jsonrpc": "2.0", "id": n, "method": "ping"} for n in range(3)]
        connection.receive_data(json.dumps(batch).encode() + b"\n")
        said(connection)
    assert connection.running == 0
    assert tables(connection) == {}
