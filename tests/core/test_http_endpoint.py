"""An HTTP endpoint as a machine, without a server and without a face: which handler serves a request, and on which stream."""

from __future__ import annotations

import json
import os
from contextlib import nullcontext
from typing import Any

import pytest

from linkspan import Limits, Server
from linkspan.core.call import Call, CallCancelled, CallReady, Hook
from linkspan.core.http_checks import HttpPolicy
from linkspan.core.http_endpoint import Endpoint, Lane, Opened
from linkspan.core.http_exchange import BrowserPage, HttpData, HttpResponse, HttpStart, OwnConnection, ServerExchange
from linkspan.core.http_sessions import HttpSession, Pair
from linkspan.errors import HEADER_MISMATCH, INVALID_REQUEST, PARSE_ERROR, UNSUPPORTED_PROTOCOL_VERSION
from linkspan.revisions import LATEST, LATEST_LEGACY, LEGACY
from linkspan.revisions.neutral import TransportInfo
from linkspan.types.messages import ProgressParams
from linkspan.wire.framing import EventReader, ServerSentEvent

URL = "http://127.0.0.1/mcp"
SSE = "http://127.0.0.1/sse"
BOTH = {"accept": "application/json, text/event-stream", "content-type": "application/json"}
EVENTS = {"accept": "text/event-stream"}
MODERN = BOTH | {"mcp-protocol-version": LATEST.date, "mcp-method": "tools/call", "mcp-name": "t"}
ENVELOPE: dict[str, Any] = {
    "io.modelcontextprotocol/protocolVersion": LATEST.date,
    "io.modelcontextprotocol/clientCapabilities": {},
}
PING: dict[str, Any] = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
CALL: dict[str, Any] = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "t"}}
MODERN_CALL: dict[str, Any] = {**CALL, "params": {"name": "t", "_meta": ENVELOPE}}
INITIALIZED: dict[str, Any] = {"jsonrpc": "2.0", "method": "notifications/initialized"}
ANSWER: dict[str, Any] = {"jsonrpc": "2.0", "id": 1, "result": {}}


def hello(version: str = LATEST_LEGACY.date) -> dict[str, Any]:
    params = {"protocolVersion": version, "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}
    return {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}


def serve(server: Server | None = None, page: Any = None, **policy: Any) -> Endpoint:
    if server is None:
        server = Server("endpoint")
        server.tool(name="t")(lambda: "ok")
    return Endpoint(
        server,
        HttpPolicy(page=page is not None, **policy),
        limits=Limits(),
        clock=lambda: 0.0,
        random=os.urandom,
        lock=nullcontext,
        page=page,
    )


def send(
    endpoint: Endpoint,
    headers: dict[str, str],
    message: Any = b"",
    *,
    method: str = "POST",
    url: str = URL,
    query: str = "",
    principal: str | None = None,
) -> Opened:
    body = message if isinstance(message, bytes) else json.dumps(message).encode()
    return endpoint.open(method, url, headers, body, TransportInfo(headers, principal), query=query)


def taken(exchange: ServerExchange) -> tuple[int, bytes]:
    """Return the status and the body of a response that is complete."""
    (response,) = exchange.events()
    assert isinstance(response, HttpResponse)
    return response.status, response.body


def refused(opened: Opened) -> tuple[int, int]:
    """Return the status and the code of a refusal, for which nothing runs."""
    assert (list(opened.events), opened.owner, opened.connection) == ([], None, None)
    status, body = taken(opened.exchange)
    return status, json.loads(body)["error"]["code"]


def begun(opened: Opened) -> Call:
    """Return the call that a request wants to have run; its response waits for it."""
    (event,) = opened.events
    assert isinstance(event, CallReady)
    assert not opened.exchange.ended
    return event.call


def finish(opened: Opened, value: object = "ok") -> None:
    assert opened.connection is not None
    assert not opened.connection.finish(begun(opened), value)


def session_of(endpoint: Endpoint, principal: str | None = None) -> tuple[HttpSession, dict[str, str]]:
    """Open a session; return it, and the headers of its requests."""
    session = send(endpoint, BOTH, hello(), principal=principal).owner
    assert isinstance(session, HttpSession)
    headers = BOTH | {"mcp-session-id": session.id}
    assert taken(send(endpoint, headers, INITIALIZED, principal=principal).exchange) == (202, b"")
    return session, headers


# POST: which handler serves it.


@pytest.mark.parametrize("policy", [{}, {"require_session": False}, {"sessions": False}], ids=str)
@pytest.mark.parametrize("extra", [{}, {"mcp-session-id": "unknown"}], ids=str)
def test_a_modern_request_has_its_own_connection_and_no_session(policy: dict[str, Any], extra: dict[str, str]) -> None:
    """H5-9."""
    endpoint = serve(**policy)
    one, other = (send(endpoint, MODERN | extra, MODERN_CALL) for _ in range(2))
    assert isinstance(one.owner, OwnConnection)
    assert one.connection is not other.connection
    assert (len(endpoint.sessions), len(endpoint.streams)) == (0, 2)
    finish(one)
    status, body = taken(one.exchange)
    assert (status, json.loads(body)["result"]["content"][0]["text"]) == (200, "ok")
    assert not other.exchange.ended
    endpoint.finished(one.exchange)
    assert len(endpoint.streams) == 1


def test_a_connection_that_is_free_serves_the_next_request_and_keeps_nothing_of_the_last() -> None:
    endpoint = serve()
    first = send(endpoint, MODERN, MODERN_CALL, principal="mia")
    late = begun(first).request
    finish(first)
    endpoint.finished(first.exchange)
    second = send(endpoint, MODERN, MODERN_CALL, principal="tom")
    assert second.connection is first.connection
    assert begun(second).request.facts.principal == "tom"
    late.emit(late, "notifications/progress", ProgressParams(progress_token=1, progress=1))
    assert endpoint.disconnect(first) == ()
    assert (second.exchange.events(), second.exchange.ended, len(endpoint.streams)) == ([], False, 1)
    finish(second, "tom's")
    assert b"tom's" in taken(second.exchange)[1]
    assert first.exchange.response != second.exchange.response


@pytest.mark.parametrize(("more", "free"), [(0, True), (1, False)])
def test_a_connection_that_has_answered_much_is_not_kept(more: int, free: bool) -> None:
    endpoint = serve()
    finish(first := send(endpoint, MODERN, MODERN_CALL), "")
    around = len(taken(first.exchange)[1])
    finish(first := send(endpoint, MODERN, MODERN_CALL), "x" * (65536 - around + more))
    assert len(taken(first.exchange)[1]) == 65536 + more
    endpoint.finished(first.exchange)
    assert (send(endpoint, MODERN, MODERN_CALL).connection is first.connection) is free


def test_a_connection_whose_call_was_given_up_serves_no_other_request() -> None:
    endpoint = serve()
    first = send(endpoint, MODERN, MODERN_CALL)
    call = begun(first)
    assert endpoint.disconnect(first) == [CallCancelled(call)]
    assert send(endpoint, MODERN, MODERN_CALL).connection is not first.connection


@pytest.mark.parametrize(
    ("headers", "message"),
    [(MODERN, CALL), (BOTH, MODERN_CALL), (MODERN | {"mcp-method": "ping"}, MODERN_CALL)],
    ids=["only the header", "only _meta", "another method"],
)
def test_either_mark_makes_a_request_modern_and_both_must_agree(headers: dict[str, str], message: Any) -> None:
    opened = send(serve(), headers, message)
    assert isinstance(opened.owner, OwnConnection)
    assert (list(opened.events), taken(opened.exchange)[0]) == ([], 400)


def test_a_modern_request_is_held_to_its_headers() -> None:
    status, body = taken(send(serve(), MODERN | {"mcp-name": "u"}, MODERN_CALL).exchange)
    assert (status, json.loads(body)["error"]["code"]) == (400, HEADER_MISMATCH)


@pytest.mark.parametrize(("message", "why"), [([PING], "has no batches"), (ANSWER, "send no responses")])
def test_what_has_no_place_in_the_modern_era_is_refused_and_named(message: Any, why: str) -> None:
    assert refused(send(serve(), MODERN, message)) == (400, INVALID_REQUEST)
    _, body = taken(send(serve(), MODERN, message).exchange)
    assert why in json.loads(body)["error"]["message"]


def test_a_modern_notification_is_accepted() -> None:
    for method in ("notifications/cancelled", "notifications/anything"):
        assert taken(send(serve(), MODERN, {"jsonrpc": "2.0", "method": method}).exchange) == (202, b"")


@pytest.mark.parametrize("version", LEGACY)
def test_a_handshake_begins_a_session_and_its_answer_names_it(version: str) -> None:
    endpoint = serve()
    opened = send(endpoint, BOTH, hello(version))
    (session,) = endpoint.sessions
    assert opened.owner is session
    (response,) = opened.exchange.events()
    assert isinstance(response, HttpResponse)
    assert dict(response.headers)["mcp-session-id"] == session.id
    assert json.loads(response.body)["result"]["protocolVersion"] == version


def test_a_handshake_that_fails_leaves_no_session() -> None:
    endpoint = serve()
    (response,) = send(endpoint, BOTH, {**hello(), "params": {}}).exchange.events()
    assert isinstance(response, HttpResponse)
    assert ("mcp-session-id" in dict(response.headers), len(endpoint.sessions)) == (False, 0)


def test_a_handshake_without_room_does_nothing_and_calls_no_hook() -> None:
    seen: list[Any] = []
    server = Server("observed", instrumentation_callback=lambda data: seen.append(data["method"]))
    server.tool(name="t")(lambda: "ok")
    endpoint = serve(server, max_sessions=1)
    first = send(endpoint, BOTH, hello())
    call = send(endpoint, BOTH | {"mcp-session-id": first.owner.id}, CALL)  # type: ignore[union-attr]
    assert [type(each.call) for each in first.events] == [Hook]
    assert refused(send(endpoint, BOTH, hello())) == (503, INVALID_REQUEST)
    assert (seen, list(endpoint.sessions)) == ([], [first.owner])
    assert call.connection is not None
    call.connection.finish(begun(call), "ok")
    last = send(endpoint, BOTH, hello())
    assert [type(each.call) for each in last.events] == [Hook]
    assert (list(endpoint.sessions), last.also) == ([last.owner], [(first.connection, [])])


def test_a_handshake_that_fails_takes_no_room() -> None:
    endpoint = serve(max_sessions=1)
    session, _ = session_of(endpoint)
    assert taken(send(endpoint, BOTH, {**hello(), "params": {}}).exchange)[0] == 200
    assert list(endpoint.sessions) == [session]


def test_the_requests_of_a_session_share_its_connection() -> None:
    endpoint = serve()
    session, headers = session_of(endpoint)
    other, _ = session_of(endpoint)
    opened = send(endpoint, headers, CALL)
    assert (opened.owner, opened.connection) == (session, session.connection)
    assert other.connection is not session.connection
    assert taken(send(endpoint, headers, {**PING, "id": 2}).exchange)[0] == 200
    finish(opened)
    status, body = taken(opened.exchange)
    assert (status, json.loads(body)["id"]) == (200, 1)


@pytest.mark.parametrize("method", ["POST", "GET", "DELETE"])
def test_an_unknown_session_is_not_found(method: str) -> None:
    """HL-8: the session of another principal is as unknown as one that never was."""
    endpoint = serve()
    _, headers = session_of(endpoint, "mia")
    for found in (headers, BOTH | {"mcp-session-id": "unknown"}):
        assert refused(send(endpoint, found, PING, method=method, principal="tom")) == (404, INVALID_REQUEST)
    assert len(endpoint.sessions) == 1


@pytest.mark.parametrize("method", ["POST", "GET", "DELETE"])
def test_a_session_keeps_to_the_revision_that_it_agreed_on(method: str) -> None:
    """HL-15."""
    endpoint = serve()
    _, headers = session_of(endpoint)
    wrong = headers | {"mcp-protocol-version": LEGACY[0]}
    assert refused(send(endpoint, wrong, PING, method=method)) == (400, INVALID_REQUEST)


def test_a_request_without_a_session_is_refused_where_one_is_required() -> None:
    for message in (PING, CALL, INITIALIZED, ANSWER, [PING]):
        assert refused(send(serve(), BOTH, message)) == (400, INVALID_REQUEST)


@pytest.mark.parametrize("policy", [{"require_session": False}, {"sessions": False}], ids=str)
@pytest.mark.parametrize("extra", [{}, {"mcp-protocol-version": LEGACY[0]}], ids=str)
def test_elsewhere_a_request_without_a_session_stands_alone(policy: dict[str, Any], extra: dict[str, str]) -> None:
    """HL-9."""
    endpoint = serve(**policy)
    one, other = (send(endpoint, BOTH | extra, CALL) for _ in range(2))
    assert isinstance(one.owner, HttpSession)
    assert (one.owner.id, len(endpoint.sessions)) == ("", 0)
    assert one.connection is not other.connection
    finish(one)
    assert (taken(one.exchange)[0], other.exchange.ended) == (200, False)
    assert taken(send(endpoint, BOTH | extra, ANSWER).exchange) == (202, b"")


def test_without_sessions_a_handshake_is_answered_and_forgotten() -> None:
    endpoint = serve(sessions=False)
    opened = send(endpoint, BOTH, hello())
    (response,) = opened.exchange.events()
    assert isinstance(response, HttpResponse)
    assert (response.status, "mcp-session-id" in dict(response.headers), len(endpoint.sessions)) == (200, False, 0)
    assert taken(send(endpoint, BOTH | {"mcp-session-id": "unknown"}, PING).exchange)[0] == 200


def test_an_unknown_revision_is_refused_before_any_handler() -> None:
    for extra in ({}, {"mcp-session-id": "unknown"}):
        found = refused(send(serve(), BOTH | extra | {"mcp-protocol-version": "1999-01-01"}, PING))
        assert found == (400, UNSUPPORTED_PROTOCOL_VERSION)


@pytest.mark.parametrize("headers", [BOTH, MODERN, BOTH | {"mcp-session-id": "unknown"}], ids=["old", "modern", "in"])
def test_what_is_not_json_is_refused_before_any_handler(headers: dict[str, str]) -> None:
    assert refused(send(serve(), headers, b"{")) == (400, PARSE_ERROR)


def test_at_the_bound_of_open_responses_calls_are_refused_until_one_ends() -> None:
    endpoint = serve(max_streams=1)
    _, headers = session_of(endpoint)
    opened = send(endpoint, MODERN, MODERN_CALL)
    for found, message in ((MODERN, MODERN_CALL), (headers, CALL)):
        assert refused(send(endpoint, found, message)) == (503, INVALID_REQUEST)
    finish(opened)
    endpoint.finished(opened.exchange)
    begun(send(endpoint, headers, CALL))


# GET and DELETE.


@pytest.mark.parametrize("policy", [{}, {"require_session": False}, {"sessions": False}], ids=str)
@pytest.mark.parametrize("method", ["GET", "DELETE"])
def test_get_and_delete_need_a_session(policy: dict[str, Any], method: str) -> None:
    endpoint = serve(**policy)
    assert refused(send(endpoint, EVENTS, method=method)) == (405, INVALID_REQUEST)


def test_get_opens_the_stream_of_a_session() -> None:
    endpoint = serve()
    session, headers = session_of(endpoint)
    opened = send(endpoint, headers | EVENTS, method="GET")
    assert (opened.owner, session.listening, len(endpoint.streams)) == (session, True, 1)
    start, *_ = opened.exchange.events()
    assert isinstance(start, HttpStart)
    assert (start.status, dict(start.headers)["content-type"]) == (200, "text/event-stream")
    endpoint.disconnect(opened)
    assert (session.listening, len(endpoint.streams), len(endpoint.sessions)) == (False, 0, 1)


@pytest.mark.parametrize(
    ("extra", "status"), [({"accept": "application/json"}, 406), ({"last-event-id": "9-9"}, 400)], ids=str
)
def test_a_stream_that_cannot_be_opened_is_refused(extra: dict[str, str], status: int) -> None:
    endpoint = serve()
    _, headers = session_of(endpoint)
    assert refused(send(endpoint, headers | EVENTS | extra, method="GET")) == (status, INVALID_REQUEST)


@pytest.mark.parametrize(
    ("accept", "opens"),
    [("*/*", True), ("text/*", True), ("Text/Event-Stream", True), (None, True), ("text/event-stream;q=0", False)],
    ids=str,
)
def test_a_stream_of_a_session_opens_for_what_that_of_a_pair_does(accept: str | None, opens: bool) -> None:
    endpoint = serve(http_sse="/sse")
    session, headers = session_of(endpoint)
    wanted = {} if accept is None else {"accept": accept}
    own = {name: value for name, value in headers.items() if name != "accept"} | wanted
    ours, theirs = send(endpoint, own, method="GET"), send(endpoint, wanted, method="GET", url=SSE)
    if opens:
        assert (ours.owner, type(theirs.owner)) == (session, Pair)
    else:
        assert refused(ours) == refused(theirs) == (406, INVALID_REQUEST)


def test_a_pair_opens_unless_html_is_wanted() -> None:
    endpoint = serve(http_sse="/sse", page=shown)
    assert taken(send(endpoint, {"accept": "Text/HTML"}, method="GET", url=SSE).exchange)[0] == 200
    both = {"accept": "text/event-stream, text/html;q=0"}
    assert isinstance(send(endpoint, both, method="GET", url=SSE).owner, Pair)


def shown(url: str, _: TransportInfo) -> BrowserPage:
    return BrowserPage(url.encode(), [("content-type", "text/html")])


def test_only_a_browser_gets_the_page() -> None:
    endpoint = serve(page=shown)
    assert taken(send(endpoint, {"accept": "text/html,*/*"}, method="GET").exchange) == (200, URL.encode())
    for accept in ("*/*", "text/event-stream", "text/html, text/event-stream"):
        assert refused(send(endpoint, {"accept": accept}, method="GET")) == (405, INVALID_REQUEST)


def test_delete_ends_a_session_with_all_its_streams_and_calls() -> None:
    endpoint = serve()
    session, headers = session_of(endpoint)
    stream = send(endpoint, headers | EVENTS, method="GET")
    opened = send(endpoint, headers, CALL)
    call = begun(opened)
    deleted = send(endpoint, headers, method="DELETE")
    assert (deleted.owner, deleted.events) == (session, [CallCancelled(call)])
    assert taken(deleted.exchange) == (204, b"")
    assert (stream.exchange.ended, opened.exchange.ended, len(endpoint.sessions)) == (True, True, 0)
    assert refused(send(endpoint, headers, PING)) == (404, INVALID_REQUEST)


def read(exchange: ServerExchange) -> list[ServerSentEvent]:
    """Return the events that a stream has to send."""
    data = b"".join(each.data for each in exchange.events() if isinstance(each, HttpData))
    return EventReader(1_000_000).receive_data(data)


def test_a_call_ends_its_stream_and_its_client_comes_back_for_the_answer() -> None:
    """HL-10."""
    endpoint = serve()
    _, headers = session_of(endpoint)
    opened = send(endpoint, headers, CALL)
    call = begun(opened)
    assert call.request.close_stream()
    assert opened.exchange.ended
    assert not call.request.close_stream(), "it is closed"
    (primed,) = read(opened.exchange)
    assert (primed.data, primed.retry is not None) == ("", True)
    assert opened.connection is not None
    opened.connection.finish(call, "late")
    back = send(endpoint, headers | EVENTS | {"last-event-id": primed.id or ""}, method="GET")
    (answer,) = read(back.exchange)
    assert json.loads(answer.data)["result"]["content"][0]["text"] == "late"
    assert back.exchange.ended


def test_a_stream_to_which_no_client_comes_back_is_not_closed() -> None:
    endpoint = serve()
    greeted = send(endpoint, BOTH, hello("2025-06-18")).owner
    assert isinstance(greeted, HttpSession)
    opened = send(endpoint, BOTH | {"mcp-session-id": greeted.id}, CALL)
    assert not begun(opened).request.close_stream()
    assert not opened.exchange.ended
    assert not begun(send(endpoint, MODERN, MODERN_CALL)).request.close_stream()


# HTTP+SSE.


def answers(pair: Pair) -> list[tuple[str, Any]]:
    """Return the ids and results of the messages on the stream of a pair."""
    found = read(pair.exchange)
    assert {each.event for each in found} <= {"message"}
    decoded = [json.loads(each.data) for each in found]
    return [(each["id"], each.get("result", {}).get("content", [{}])[0].get("text")) for each in decoded]


class Old:
    """A client of HTTP+SSE, after its handshake."""

    def __init__(self, endpoint: Endpoint, principal: str | None = None) -> None:
        self.endpoint = endpoint
        self.principal = principal
        self.opened = send(endpoint, EVENTS, method="GET", url=SSE, principal=principal)
        assert isinstance(self.opened.owner, Pair)
        self.pair = self.opened.owner
        ((event, self.query),) = [(each.event, each.data.removeprefix("?")) for each in read(self.opened.exchange)]
        assert event == "endpoint"
        for message in (hello(LEGACY[0]), INITIALIZED):
            self.post(message)
        assert answers(self.pair) == [(0, None)]

    def post(self, message: Any) -> Opened:
        """POST a message, which gets nothing but a status."""
        opened = send(self.endpoint, BOTH, message, url=SSE, query=self.query, principal=self.principal)
        assert taken(opened.exchange) == (202, b"")
        return opened

    def call(self, number: int) -> Call:
        """POST a call; return what has to run."""
        opened = self.post({**CALL, "id": number})
        assert opened.connection is self.pair.connection
        (event,) = opened.events
        assert isinstance(event, CallReady)
        return event.call


def test_each_request_of_a_pair_has_one_response_on_the_stream_of_its_pair() -> None:
    """SSE-7."""
    endpoint = serve(http_sse="/sse")
    one, other = Old(endpoint), Old(endpoint)
    running = [(old, number, old.call(number)) for number in (1, 2) for old in (one, other)]
    for old, number, call in reversed(running):
        old.pair.connection.finish(call, f"{number}")
        assert answers(old.pair) == [(number, f"{number}")]
    assert (answers(one.pair), answers(other.pair), one.pair.connection.running) == ([], [], 0)


def test_a_pair_answers_what_needs_no_call_on_its_stream_too() -> None:
    endpoint = serve(http_sse="/sse")
    one, other = Old(endpoint), Old(endpoint)
    one.post({**PING, "id": 5})
    one.post(ANSWER)
    assert (answers(one.pair), answers(other.pair)) == ([(5, None)], [])


def test_a_pair_cannot_serve_modern_requests() -> None:
    """SEC-2."""
    old = Old(serve(http_sse="/sse"))
    assert not old.post(MODERN_CALL).events
    (refusal,) = (json.loads(each.data) for each in read(old.pair.exchange))
    assert (refusal["id"], refusal["error"]["code"]) == (1, INVALID_REQUEST)


def test_a_pair_is_found_by_its_own_principal_only() -> None:
    endpoint = serve(http_sse="/sse")
    old = Old(endpoint, "mia")
    for query, principal in ((old.query, "tom"), (old.query, None), ("session=unknown", "mia")):
        opened = send(endpoint, BOTH, PING, url=SSE, query=query, principal=principal)
        assert refused(opened) == (404, INVALID_REQUEST)
    assert answers(old.pair) == []


def test_a_pair_ends_with_its_stream() -> None:
    """SSE-4."""
    endpoint = serve(http_sse="/sse")
    old, stays = Old(endpoint), Old(endpoint)
    call = old.call(1)
    assert endpoint.disconnect(old.opened) == [CallCancelled(call)]
    assert (list(endpoint.pairs), len(endpoint.streams)) == ([stays.pair], 1)
    assert refused(send(endpoint, BOTH, PING, url=SSE, query=old.query)) == (404, INVALID_REQUEST)
    assert not stays.pair.exchange.ended


def test_a_message_that_is_not_json_is_refused_where_it_was_sent() -> None:
    old = Old(serve(http_sse="/sse"))
    assert refused(send(old.endpoint, BOTH, b"{", url=SSE, query=old.query)) == (400, PARSE_ERROR)
    assert answers(old.pair) == []


def test_the_other_transports_are_served_on_the_path_of_the_pairs() -> None:
    endpoint = serve(http_sse="/sse")
    assert isinstance(send(endpoint, MODERN, MODERN_CALL, url=SSE).owner, OwnConnection)
    assert isinstance(send(endpoint, BOTH, hello(), url=SSE).owner, HttpSession)
    assert refused(send(endpoint, EVENTS, method="GET")) == (405, INVALID_REQUEST)
    assert refused(send(serve(), EVENTS, method="GET", url=SSE)) == (405, INVALID_REQUEST)
    assert not len(endpoint.pairs)


# A lane: what `Endpoint.open` would answer, on one machine for all requests of a connection.


def down(lane: Lane, message: Any, headers: dict[str, str] = MODERN) -> Opened | None:
    body = message if isinstance(message, bytes) else json.dumps(message).encode()
    return lane.open(headers, body, TransportInfo(headers))


@pytest.mark.parametrize(
    ("method", "query", "headers", "takes"),
    [
        ("POST", "", MODERN, True),
        ("GET", "", MODERN, False),
        ("POST", "session=x", MODERN, False),
        ("POST", "", BOTH, False),
        ("POST", "", BOTH | {"mcp-protocol-version": LATEST_LEGACY.date}, False),
        ("POST", "", MODERN | {"origin": "http://127.0.0.1"}, False),  # its response has headers of its own
    ],
)
def test_a_lane_takes_requests_that_their_head_shows_to_be_modern(
    method: str, query: str, headers: dict[str, str], takes: bool
) -> None:
    assert Lane.takes(method, query, headers) is takes


def test_requests_of_a_lane_share_a_connection_and_their_ids() -> None:
    endpoint = serve()
    lane = Lane(endpoint)
    connections: set[Any] = set()
    for value in ("one", "two"):
        opened = down(lane, MODERN_CALL)
        assert opened is not None
        endpoint.streams.hold(opened.exchange, opened.owner)
        assert len(endpoint.streams) == 1
        finish(opened, value)
        status, body = taken(opened.exchange)
        endpoint.finished(opened.exchange)
        assert (status, json.loads(body)["result"]["content"][0]["text"]) == (200, value)
        connections.add(opened.connection)
    assert (len(connections), len(endpoint.streams)) == (1, 0)


@pytest.mark.parametrize(
    "message", [b"{", [MODERN_CALL], ANSWER, INITIALIZED, {**MODERN_CALL, "method": "subscriptions/listen"}]
)
def test_what_is_no_request_for_one_answer_is_for_the_endpoint(message: Any) -> None:
    assert down(Lane(serve()), message) is None


def test_a_lane_of_a_full_endpoint_takes_nothing() -> None:
    endpoint = serve(max_streams=1)
    send(endpoint, MODERN, MODERN_CALL)
    assert down(Lane(endpoint), MODERN_CALL) is None


def test_a_request_of_a_lane_is_checked_as_any_other() -> None:
    opened = down(Lane(serve()), MODERN_CALL, MODERN | {"mcp-name": "other"})
    assert opened is not None
    status, body = taken(opened.exchange)
    assert (status, json.loads(body)["error"]["code"]) == (400, HEADER_MISMATCH)


def test_a_client_of_a_lane_that_goes_cancels_its_call() -> None:
    endpoint = serve()
    opened = down(Lane(endpoint), MODERN_CALL)
    assert opened is not None
    endpoint.streams.hold(opened.exchange, opened.owner)
    call = begun(opened)
    assert endpoint.disconnect(opened) == [CallCancelled(call)]
    assert len(endpoint.streams) == 0


def test_a_quiet_call_of_a_lane_becomes_a_stream() -> None:
    endpoint = serve(silence=15.0)
    opened = down(Lane(endpoint), MODERN_CALL)
    assert opened is not None
    endpoint.streams.hold(opened.exchange, opened.owner)
    endpoint.tick(15.0)
    start, comment = opened.exchange.events()
    assert isinstance(start, HttpStart)
    assert isinstance(comment, HttpData)


def test_hooks_that_still_run_keep_their_connection_and_take_room() -> None:
    server = Server("observed", instrumentation_callback=lambda _: None)
    endpoint = serve(server, max_streams=2)
    lane = Lane(endpoint)
    asked = {"jsonrpc": "2.0", "id": 1, "method": "server/discover", "params": {"_meta": ENVELOPE}}
    headers = MODERN | {"mcp-method": "server/discover"}
    first, second = down(lane, asked, headers), down(lane, asked, headers)
    assert first is not None
    assert second is not None
    assert first.connection is not second.connection
    assert (first.exchange.ended, len(endpoint.streams)) == (True, 2)
    assert down(lane, asked, headers) is None
    for opened in (first, second):
        (hook,) = opened.events
        assert opened.connection is not None
        opened.connection.finish(hook.call, hook.call.run())
    assert not endpoint.streams.is_full
