"""The transport of the first revision, opted in to: a GET stream for all that the server says, POSTs for what it hears.

SSE-1 to SSE-7.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from urllib.parse import urljoin

import pytest
from http_faces import Bare, Face, Live, OnALoop, Scattered
from http_talk import Session, body, call, mirror, text_of
from http_world import World

from linkspan import Limits
from linkspan.core.http_checks import LOOPBACK
from linkspan.errors import INVALID_REQUEST, PARSE_ERROR
from linkspan.revisions import LEGACY

Serve = Callable[..., Face]
FIRST = LEGACY[0]


class Old:
    """A client that knows only this transport."""

    def __init__(self, face: Face, capabilities: dict[str, Any] | None = None, principal: str | None = None) -> None:
        self.face = face
        self.principal = principal
        self.stream = face.open("GET", {"accept": "text/event-stream"}, path="/sse", principal=principal)
        self.endpoint = self.stream.event()
        self.query = self.endpoint.data.removeprefix("?")
        params = {
            "protocolVersion": FIRST,
            "capabilities": capabilities or {},
            "clientInfo": {"name": "old", "version": "1"},
        }
        self.request("initialize", params, "hello")
        self.welcome = self.stream.message()
        assert self.send({"jsonrpc": "2.0", "method": "notifications/initialized"}).status == 202

    def send(self, message: Any, query: str | None = None) -> Live:
        """POST a message."""
        query = self.query if query is None else query
        return self.face.ask("POST", {}, message, path="/sse", query=query, principal=self.principal)

    def request(self, method: str, params: dict[str, Any], number: Any = 1) -> None:
        """POST a request, which is answered elsewhere."""
        answer = self.send({"jsonrpc": "2.0", "id": number, "method": method, "params": params})
        assert (answer.status, answer.body) == (202, b"")

    def call(self, tool: str, arguments: dict[str, Any], number: Any = 1, **meta: Any) -> None:
        """Call a tool."""
        params: dict[str, Any] = {"name": tool, "arguments": arguments}
        self.request("tools/call", params | ({"_meta": meta} if meta else {}), number)


@pytest.fixture
def pair(serve: Callable[..., Face]) -> Serve:
    return lambda server, **policy: serve(server, http_sse="/sse", **policy)


def test_the_first_event_says_where_to_send_and_everything_comes_back_on_the_stream(pair: Serve) -> None:
    client = Old(pair(World().server))
    assert (client.endpoint.event, client.stream.status, client.stream.kind) == ("endpoint", 200, "text/event-stream")
    target = urljoin("http://proxy.example.com/prefix/sse", client.endpoint.data)
    assert target.startswith("http://proxy.example.com/prefix/sse?session=")
    assert len(client.query) == len("session=") + 32
    assert client.welcome["result"]["protocolVersion"] == FIRST
    client.call("add", {"a": 1, "b": 2}, 7)
    event = client.stream.event()
    assert event.event == "message"
    assert event.id is None
    assert b"event: message\r\n" in client.stream.body
    client.stream.close()


def test_progress_questions_and_changes_come_on_the_one_stream(pair: Serve) -> None:
    world = World()
    client = Old(pair(world.server), {"sampling": {}})
    client.call("count", {"to": 2}, progressToken="t")
    assert [client.stream.message().get("method") for _ in range(3)] == [
        "notifications/progress",
        "notifications/progress",
        None,
    ]
    world.server.notify_tools_list_changed()
    assert client.stream.message()["method"] == "notifications/tools/list_changed"
    client.stream.close()


def test_what_is_no_message_gets_a_status(pair: Serve) -> None:
    client = Old(pair(World().server))
    answer = client.send(b"{")
    assert (answer.status, answer.code) == (400, PARSE_ERROR)
    client.call("add", {"a": 1, "b": 2})
    assert text_of(client.stream.message()) == "3"
    client.stream.close()


def test_what_is_no_message_is_refused_in_another_process_too() -> None:
    client = Old(Scattered(World().server, http_sse="/sse"))
    for _ in range(3):
        refused = client.send(b"{")
        assert (refused.status, refused.code) == (400, PARSE_ERROR)
    client.call("add", {"a": 1, "b": 2})
    assert text_of(client.stream.message()) == "3"


@pytest.mark.parametrize("query", ["session=" + "0" * 32, "session=x", "session=%00"])
def test_a_guessed_token_is_no_session(query: str, pair: Serve) -> None:
    client = Old(pair(World().server))
    answer = client.send({"jsonrpc": "2.0", "id": 1, "method": "ping"}, query)
    assert (answer.status, answer.json()["error"]["message"]) == (
        404,
        "Session not found: open the stream again [LS-506]",
    )
    client.stream.close()


def test_a_session_belongs_to_who_opened_its_stream(pair: Serve) -> None:
    client = Old(pair(World().server), principal="mia")
    client.principal = "tom"
    assert client.send({"jsonrpc": "2.0", "id": 1, "method": "ping"}).status == 404
    client.stream.close()


def test_the_session_ends_with_its_stream_and_so_do_its_calls(on_a_loop: OnALoop) -> None:
    world = World()
    face = on_a_loop(world.server, http_sse="/sse")
    client = Old(face)
    client.call("hold", {})
    world.wait_for("holding")
    client.stream.close()
    world.wait_for("cancelled")
    face.until(lambda: not any(len(each.pairs) or len(each.streams) for each in face.endpoints))
    assert client.send({"jsonrpc": "2.0", "id": 1, "method": "ping"}).status == 404


def test_clients_do_not_hear_each_other(pair: Serve) -> None:
    face = pair(World().server)
    first, second = Old(face), Old(face)
    first.call("add", {"a": 1, "b": 2}, 1)
    second.call("add", {"a": 3, "b": 4}, 1)
    assert text_of(first.stream.message()) == "3"
    assert text_of(second.stream.message()) == "7"
    for each in (first, second):
        each.stream.close()


def test_a_request_of_the_newest_revision_has_no_place_here(pair: Serve) -> None:
    """SEC-2: nobody could hold it to its headers."""
    client = Old(pair(World().server))
    assert client.send(body("tools/list", number=9)).status == 202
    refusal = client.stream.message()
    assert (refusal["id"], refusal["error"]["code"]) == (9, INVALID_REQUEST)
    client.stream.close()


def test_the_newer_transports_are_served_beside_it(pair: Serve) -> None:
    face = pair(World().server)
    assert text_of(call(face, "add", {"a": 1, "b": 2}).json()) == "3"
    session = Session(face)
    session.get().begin().close()
    request = body("tools/list")
    assert face.ask("POST", mirror(request), request, path="/sse").status == 200  # whoever tries there first
    assert face.ask("GET", {"accept": "text/event-stream"}).status == 405


def test_it_is_not_there_unless_asked_for(serve: Serve) -> None:
    assert serve(World().server).ask("GET", {"accept": "text/event-stream"}, path="/sse").status == 405


def test_host_and_origin_count_here_too(pair: Serve) -> None:
    """SSE-3."""
    face = pair(World().server, allowed_hosts=LOOPBACK)
    for method in ("GET", "POST"):
        assert face.ask(method, {"host": "evil.com"}, path="/sse", query="session=x").status == 421
        assert face.ask(method, {"origin": "https://evil.com"}, path="/sse", query="session=x").status == 403


def test_max_streams_counts_here_too(pair: Serve) -> None:
    face = pair(World().server, max_streams=1)
    client = Old(face)
    refused = face.ask("GET", {"accept": "text/event-stream"}, path="/sse")
    assert (refused.status, refused.headers["retry-after"]) == (503, "5")
    client.call("add", {"a": 1, "b": 2})
    assert text_of(client.stream.message()) == "3"
    client.stream.close()


def test_max_running_refuses_requests_and_nothing_else(on_a_loop: OnALoop) -> None:
    world = World(limits=Limits(max_running=1))
    client = Old(on_a_loop(world.server, http_sse="/sse"))
    client.call("hold", {}, 1)
    world.wait_for("holding")
    refused = client.send({"jsonrpc": "2.0", "id": 2, "method": "tools/list"})
    assert (refused.status, refused.headers["retry-after"]) == (429, "1")
    assert "max_running" in refused.json()["error"]["message"]
    cancelled = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}}
    assert client.send(cancelled).status == 202
    world.wait_for("cancelled")
    client.call("add", {"a": 1, "b": 2}, 3)
    assert text_of(client.stream.message()) == "3"
    client.stream.close()


def test_a_quiet_stream_gets_comments(bare: Callable[..., Bare]) -> None:
    face = bare(World().server, http_sse="/sse")
    client = Old(face)
    face.tick(15)
    client.stream._take()
    assert client.stream.body.endswith(b":\r\n\r\n")


def test_a_server_that_stops_ends_the_streams(pair: Serve) -> None:
    face = pair(World().server)
    client = Old(face)
    for each in face.endpoints:
        each.drain()
    client.stream.whole()
