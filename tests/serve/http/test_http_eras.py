"""Which era a request is of, and what is wrong with it: H5-4, H5-8, HL-15, through every face."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from http_faces import Face
from http_talk import BOTH, NOW, Session, body, call, mirror, modern
from http_world import World, same_server

from linkspan.errors import (
    HEADER_MISMATCH,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    PARSE_ERROR,
    UNSUPPORTED_PROTOCOL_VERSION,
)

Serve = Callable[..., Face]
NEVER = "2099-01-01"
OLD = "2025-06-18"
ADD = {"name": "add", "arguments": {"a": 1, "b": 2}}
PLAIN = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
HELLO = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": OLD, "capabilities": {}, "clientInfo": {"name": "old", "version": "1"}},
}

# What is sent, and the status and the code of the error that must come.
MODERN: dict[str, tuple[dict[str, str], Any, int, int | None]] = {}


def row(name: str, request: Any, status: int, code: int | None, **headers: str | None) -> None:
    sent = mirror(request, **headers) if isinstance(request, dict) else {"accept": BOTH}
    MODERN[name] = (sent, request, status, code)


row("1 served", body("tools/call", ADD), 200, None)
row("1 without clientInfo", body("tools/list", clientInfo=None), 200, None)
row("2 the same unknown version twice", body("tools/list", protocolVersion=NEVER), 400, UNSUPPORTED_PROTOCOL_VERSION)
row("2 an old version in an envelope", body("tools/list", protocolVersion=OLD), 400, UNSUPPORTED_PROTOCOL_VERSION)
row("3 header and body differ", body("tools/list"), 400, HEADER_MISMATCH, MCP_Protocol_Version=NEVER)
row("3 header is an old version", body("tools/list"), 400, HEADER_MISMATCH, MCP_Protocol_Version=OLD)
row("3 body is nonsense", body("tools/list", protocolVersion="x"), 400, HEADER_MISMATCH, MCP_Protocol_Version=NOW)
row("3 both are nonsense", body("tools/list", protocolVersion="x"), 400, HEADER_MISMATCH, MCP_Protocol_Version="y")
row("4 no header", body("tools/list"), 400, HEADER_MISMATCH, MCP_Protocol_Version=None)
row(
    "4 no header, no capabilities",
    body("tools/list", clientCapabilities=None),
    400,
    HEADER_MISMATCH,
    MCP_Protocol_Version=None,
)
row("5 no envelope", PLAIN, 400, INVALID_PARAMS)
row("5 no params", {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}, 400, INVALID_PARAMS)
row("5 only capabilities", body("tools/list", protocolVersion=None), 400, INVALID_PARAMS)
row("5 initialize", HELLO, 400, INVALID_PARAMS)
row("6 no capabilities", body("tools/list", clientCapabilities=None), 400, INVALID_PARAMS)
row("6 odd capabilities", body("tools/list", clientCapabilities=[]), 400, INVALID_PARAMS)
row("6 odd version", body("tools/list", protocolVersion=7), 400, INVALID_PARAMS, MCP_Protocol_Version=NOW)
for method in (
    "initialize",
    "ping",
    "logging/setLevel",
    "resources/subscribe",
    "resources/unsubscribe",
    "tasks/result",
    "tasks/list",
    "unknown/method",
):
    row(f"8 {method}", body(method), 404, METHOD_NOT_FOUND)
row("12 unknown version, no envelope", PLAIN, 400, UNSUPPORTED_PROTOCOL_VERSION, MCP_Protocol_Version=NEVER)
row("12 garbage version, initialize", HELLO, 400, UNSUPPORTED_PROTOCOL_VERSION, MCP_Protocol_Version="garbage")
row("15 a session id", body("tools/list"), 200, None, Mcp_Session_Id="abc")
row("17 a notification", {"jsonrpc": "2.0", "method": "notifications/x"}, 202, None)
row("17 no names on it", {"jsonrpc": "2.0", "method": "notifications/x"}, 202, None, Mcp_Method=None)
row("17 a cancellation", {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}}, 202, None)
MODERN["18 a response"] = (
    {"mcp-protocol-version": NOW},
    {"jsonrpc": "2.0", "id": 1, "result": {}},
    400,
    INVALID_REQUEST,
)
MODERN["a batch"] = ({"mcp-protocol-version": NOW}, [body("tools/list")], 400, INVALID_REQUEST)

# The order in which things are looked at: what is wrong twice is told by what comes first.
row(
    "10 before params",
    body("tools/call", {"arguments": {}}),
    400,
    HEADER_MISMATCH,
    Mcp_Method="tools/list",
    Mcp_Name="x",
)
row("8 before params", body("tools/call", {}), 400, HEADER_MISMATCH, MCP_Protocol_Version=OLD, Mcp_Name="x")
row("9 before 10", body("tools/list", protocolVersion=NEVER), 400, UNSUPPORTED_PROTOCOL_VERSION, Mcp_Method="x")
row("10 before 12", body("unknown/method"), 400, HEADER_MISMATCH, Mcp_Method=None)
row("12 before params", body("ping", {"x": 1}), 404, METHOD_NOT_FOUND)
row("13 wrong params", body("tools/call", {"name": 7}), 400, INVALID_PARAMS, Mcp_Name="7")
row("method missing", body("tools/list"), 400, HEADER_MISMATCH, Mcp_Method=None)
row("method differs", body("tools/list"), 400, HEADER_MISMATCH, Mcp_Method="tools/call")
row("method in capitals", body("tools/list"), 400, HEADER_MISMATCH, Mcp_Method="TOOLS/LIST")
row("method twice", body("tools/list"), 400, HEADER_MISMATCH, Mcp_Method="tools/list, tools/list")
row("name missing", body("tools/call", ADD), 400, HEADER_MISMATCH, Mcp_Name=None)
row("name differs", body("tools/call", ADD), 400, HEADER_MISMATCH, Mcp_Name="echo")
row("name of a prompt", body("prompts/get", {"name": "greet", "arguments": {"name": "x"}}), 200, None)
row("name of a prompt differs", body("prompts/get", {"name": "greet"}), 400, HEADER_MISMATCH, Mcp_Name="other")
row("uri of a resource", body("resources/read", {"uri": "note://today"}), 200, None)
row("uri of a resource missing", body("resources/read", {"uri": "note://today"}), 400, HEADER_MISMATCH, Mcp_Name=None)
row("name where none is needed", body("tools/list"), 200, None, Mcp_Name="whatever")
row("unknown tool", body("tools/call", {"name": "nobody", "arguments": {}}), 200, INVALID_PARAMS)

BROKEN: dict[str, tuple[bytes, int]] = {
    "not JSON": (b"{", PARSE_ERROR),
    "empty": (b"", PARSE_ERROR),
    "not UTF-8": (b'{"jsonrpc":"2.0","id":1,"method":"\xff"}', PARSE_ERROR),
    "too deep": (b"[" * 5000, PARSE_ERROR),
    "two messages": (b"{}{}", PARSE_ERROR),
    "a number": (b"7", INVALID_REQUEST),
    "no message": (b"{}", INVALID_REQUEST),
    "a null id": (b'{"jsonrpc":"2.0","id":null,"method":"ping"}', INVALID_REQUEST),
    "another JSON-RPC": (b'{"jsonrpc":"1.0","id":1,"method":"ping"}', INVALID_REQUEST),
    "an empty batch": (b"[]", INVALID_REQUEST),
}


@pytest.mark.parametrize("name", MODERN)
def test_a_modern_request_is_judged_by_its_headers_and_its_body(name: str, serve: Serve) -> None:
    headers, request, status, code = MODERN[name]
    answer = serve(same_server()).ask("POST", headers, request)
    assert (answer.status, answer.code) == (status, code), answer.body
    assert "mcp-session-id" not in answer.headers
    if isinstance(request, dict) and "id" in request and "method" in request:
        assert answer.json()["id"] == request["id"]  # every answer to a request says to which


@pytest.mark.parametrize("name", BROKEN)
def test_what_is_no_message_is_answered_with_400(name: str, serve: Serve) -> None:
    sent, code = BROKEN[name]
    answer = serve(same_server()).ask("POST", {"accept": BOTH, "content-type": "application/json"}, sent)
    assert (answer.status, answer.code) == (400, code)


def test_an_unsupported_version_is_answered_with_those_that_are_served(serve: Serve) -> None:
    face = serve(same_server())
    request = body("tools/list", protocolVersion=NEVER)
    both = face.ask("POST", mirror(request), request).json()["error"]["data"]
    header = face.ask("POST", {"mcp-protocol-version": NEVER}, PLAIN).json()["error"]["data"]
    assert both["requested"] == header["requested"] == NEVER
    discovered = modern(face, "server/discover").json()["result"]["supportedVersions"]
    assert set(both["supported"]) <= set(discovered)


def test_header_names_are_read_in_any_case_and_values_without_the_space_around_them(serve: Serve) -> None:
    request = body("tools/call", ADD)
    headers = {name.upper(): f" {value}\t" for name, value in mirror(request).items()}
    assert serve(same_server()).ask("POST", headers, request).status == 200


# The handshake era, on the same endpoint.


@pytest.mark.parametrize("header", [None, OLD, "2024-11-05"], ids=str)
def test_a_handshake_makes_a_session(header: str | None, serve: Serve) -> None:
    headers = {"accept": BOTH} | ({"mcp-protocol-version": header} if header else {})
    answer = serve(same_server()).ask("POST", headers, HELLO)
    assert answer.status == 200
    assert answer.json()["result"]["protocolVersion"] == OLD
    assert len(answer.headers["mcp-session-id"]) >= 32
    assert answer.headers["mcp-session-id"].isascii()


LEGACY: dict[str, tuple[dict[str, str | None], Any, int, int | None]] = {
    "9 in a session": ({}, PLAIN, 200, None),
    "10 without a version": ({"mcp_protocol_version": None}, PLAIN, 200, None),
    "12 with garbage": ({"mcp_protocol_version": "garbage"}, PLAIN, 400, UNSUPPORTED_PROTOCOL_VERSION),
    "12 a notification": (
        {"mcp_protocol_version": "garbage"},
        {"jsonrpc": "2.0", "method": "x"},
        400,
        UNSUPPORTED_PROTOCOL_VERSION,
    ),
    "13 a session that is not there": ({"mcp_session_id": "0" * 32}, PLAIN, 404, INVALID_REQUEST),
    "14 without a session": ({"mcp_session_id": None}, PLAIN, 400, INVALID_REQUEST),
    "18 a response to nothing": ({}, {"jsonrpc": "2.0", "id": 9, "result": {}}, 202, None),
    "19 names are ignored": ({"mcp_method": "x", "mcp_name": "y"}, PLAIN, 200, None),
    "another version than agreed": ({"mcp_protocol_version": "2025-11-25"}, PLAIN, 400, INVALID_REQUEST),
    "unknown method": ({}, PLAIN | {"method": "unknown/method"}, 200, METHOD_NOT_FOUND),
    "wrong params": ({}, PLAIN | {"method": "tools/call"}, 200, INVALID_PARAMS),
    "a batch": ({}, [PLAIN], 400, INVALID_REQUEST),
    "a second handshake": ({"mcp_session_id": None}, HELLO, 200, None),
}


@pytest.mark.parametrize("name", LEGACY)
def test_a_handshake_request_is_judged_by_its_headers_and_its_body(name: str, serve: Serve) -> None:
    changes, message, status, code = LEGACY[name]
    answer = Session(serve(same_server()), OLD).post(message, **changes).whole()
    assert (answer.status, answer.code) == (status, code), answer.body


def test_both_eras_are_served_at_the_same_time(serve: Serve) -> None:
    face = serve(same_server())
    first, second = Session(face, OLD), Session(face, "2025-03-26")
    assert call(face, "add", {"a": 1, "b": 2}).json()["result"]["structuredContent"] == {"result": 3}
    assert first.call("add", {"a": 2, "b": 3}).json()["result"]["structuredContent"] == {"result": 5}
    assert second.call("add", {"a": 3, "b": 4}).json()["result"]["content"][0]["text"] == "7"
    assert first.id != second.id


@pytest.mark.parametrize("method", ["GET", "DELETE"])
def test_without_a_session_only_post_is_possible(method: str, serve: Serve) -> None:
    answer = serve(same_server()).ask(method, {"accept": "text/event-stream"})
    assert (answer.status, answer.headers["allow"]) == (405, "POST")


# Without sessions.


def test_without_sessions_each_request_stands_alone(serve: Serve) -> None:
    face = serve(same_server(), sessions=False)
    hello = face.ask("POST", {"accept": BOTH}, HELLO)
    assert hello.status == 200
    assert "mcp-session-id" not in hello.headers
    headers = {"accept": BOTH, "mcp-protocol-version": OLD}
    assert face.ask("POST", headers, {"jsonrpc": "2.0", "method": "notifications/initialized"}).status == 202
    answer = face.ask("POST", headers, PLAIN | {"method": "tools/call", "params": ADD})
    assert answer.json()["result"]["structuredContent"] == {"result": 3}
    assert face.ask("GET", {"accept": "text/event-stream"}).status == 405
    assert face.ask("DELETE", {"mcp-session-id": "x"}).status == 405
    assert call(face, "add", {"a": 1, "b": 2}).whole().status == 200


def test_without_sessions_and_version_the_first_revision_with_this_transport_is_assumed(serve: Serve) -> None:
    answer = serve(same_server(), sessions=False).ask("POST", {"accept": BOTH}, [PLAIN, PLAIN | {"id": 2}])
    assert sorted(each["id"] for each in answer.json()) == [1, 2]


def test_without_sessions_a_client_cannot_be_asked(serve: Serve) -> None:
    message = PLAIN | {"method": "tools/call", "params": {"name": "book", "arguments": {"date": "today"}}}
    answer = serve(same_server(), sessions=False).ask("POST", {"accept": BOTH}, message)
    result = answer.json()["result"]
    assert (result["isError"], result["content"][0]["text"]) == (
        True,
        "The client does not support what this needs: elicitation",
    )


def test_without_sessions_a_notification_of_the_authors_own_is_served(serve: Serve) -> None:
    world = World()
    world.server.define_custom_method("acme/noted", lambda params: world.note(params["what"]))
    message = {"jsonrpc": "2.0", "method": "acme/noted", "params": {"what": "this"}}
    face = serve(world.server, sessions=False)
    assert face.ask("POST", {"accept": BOTH}, message).status == 202
    world.wait_for("this")


def test_sessions_need_not_be_required(serve: Serve) -> None:
    face = serve(same_server(), require_session=False)
    session = Session(face, OLD)
    assert session.send("tools/list", number=1).whole().status == 200
    assert face.ask("POST", {"accept": BOTH, "mcp-protocol-version": OLD}, PLAIN).status == 200


def test_without_sessions_nothing_is_declared_that_needs_one(serve: Serve) -> None:
    """SRV-2, SRV-4: no changes, no subscriptions, no log messages."""
    server = World().server
    face = serve(server, sessions=False)
    capabilities = face.ask("POST", {"accept": BOTH}, HELLO).json()["result"]["capabilities"]
    assert {name: given for name, given in capabilities.items() if given} == {}
    assert "logging" not in capabilities
    headers = {"accept": BOTH, "mcp-protocol-version": OLD}
    for method, params in (("logging/setLevel", {"level": "debug"}), ("resources/subscribe", {"uri": "note://today"})):
        assert face.ask("POST", headers, PLAIN | {"method": method, "params": params}).code == -32601


def test_listening_needs_a_client_that_takes_events(serve: Serve) -> None:
    """H5-2: the only answer would be a stream, which such a client would never get."""
    request = body("subscriptions/listen", {"notifications": {"toolsListChanged": True}}, "s-1")
    answer = serve(same_server()).ask("POST", mirror(request, accept="application/json"), request)
    assert (answer.status, answer.json()["id"], answer.code) == (406, "s-1", INVALID_REQUEST)
    assert "text/event-stream" in answer.json()["error"]["message"]
