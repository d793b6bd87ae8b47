"""A session over HTTP as a machine, without a server around it and without a face: which message is on which stream. HL-5."""

from __future__ import annotations

import json
import os
from contextlib import nullcontext
from functools import partial
from typing import Any

from linkspan import Server
from linkspan.core.call import Ports
from linkspan.core.connection import ServerConnection
from linkspan.core.http_checks import HttpPolicy
from linkspan.core.http_exchange import HttpData, HttpResponse, ServerExchange
from linkspan.core.http_sessions import HttpSession, Sessions
from linkspan.core.waiting import ServerChange
from linkspan.revisions import LATEST_LEGACY
from linkspan.revisions.neutral import NO_FACTS
from linkspan.wire.framing import EventReader
from linkspan.wire.jsonrpc import Notification, RpcRequest, decode


def connect(**ports: Any) -> ServerConnection:
    server = Server("session")
    server.tool(name="t")(lambda: "ok")
    server.prompt(name="p")(lambda: "ok")
    return server.connect(ports=Ports(nullcontext(), **ports))


HELLO = {
    "jsonrpc": "2.0",
    "id": 0,
    "method": "initialize",
    "params": {
        "protocolVersion": LATEST_LEGACY.date,
        "capabilities": {},
        "clientInfo": {"name": "c", "version": "1"},
    },
}


def post(found: HttpSession, message: Any) -> ServerExchange:
    decoded = decode(json.dumps(message).encode(), found.connection.limits)
    assert isinstance(decoded, RpcRequest | Notification)
    exchange, ready = found.receive(decoded, NO_FACTS, partial(ServerExchange))
    assert not ready
    return exchange


def session(**policy: Any) -> HttpSession:
    found = HttpSession("s1", None, connect, HttpPolicy(**policy))
    for message in (HELLO, {"jsonrpc": "2.0", "method": "notifications/initialized"}):
        post(found, message)
    return found


def listening(found: HttpSession, last: str | None = None) -> ServerExchange:
    exchange = found.listen(partial(ServerExchange), last)
    assert exchange is not None
    return exchange


def events(exchange: ServerExchange) -> list[tuple[str | None, str]]:
    data = b"".join(each.data for each in exchange.events() if isinstance(each, HttpData))
    return [(each.id, each.data) for each in EventReader(1_000_000).receive_data(data)]


def changed(found: HttpSession) -> None:
    found.connection.notify(ServerChange.of_list("tools"))


def test_a_change_without_a_get_stream_waits_for_the_next_one_once() -> None:
    found = session()
    changed(found)
    changed(found)
    assert [data for _, data in events(listening(found)) if "list_changed" in data] == [
        '{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}'
    ]


def test_a_new_get_stream_ends_the_one_before() -> None:
    found = session()
    first = listening(found)
    second = listening(found)
    assert (first.ended, second.ended, found.listening) == (True, False, True)


def test_a_client_that_comes_back_gets_what_came_after_the_event() -> None:
    found = session()
    first = listening(found)
    changed(found)
    (*_, (last, _)) = events(first)
    found.leave(first)
    assert not found.listening
    found.connection.notify(ServerChange.of_list("prompts"))
    assert last is not None
    again = events(listening(found, last))
    assert ["prompts" in data for _, data in again] == [True]


def test_a_session_whose_batch_is_answered_at_once_does_not_work_on() -> None:
    found = HttpSession("s1", None, connect, HttpPolicy())
    hello = HELLO | {"params": HELLO["params"] | {"protocolVersion": "2025-03-26"}}  # type: ignore[operator]
    for message in (hello, {"jsonrpc": "2.0", "method": "notifications/initialized"}):
        post(found, message)
    batch = decode(
        json.dumps([{"jsonrpc": "2.0", "id": n, "method": "ping"} for n in (1, 2)]).encode(), found.connection.limits
    )
    exchange, _ = found.receive(batch, NO_FACTS, partial(ServerExchange))
    (response,) = exchange.events()
    assert isinstance(response, HttpResponse)
    assert json.loads(response.body) == [{"jsonrpc": "2.0", "id": n, "result": {}} for n in (1, 2)]
    assert not found.working


def test_an_unknown_event_id_is_no_stream_to_go_on_with() -> None:
    found = session()
    assert [found.listen(partial(ServerExchange), last) for last in ("9-1", "1-x", "nonsense", "")] == [None] * 4


def test_a_post_is_answered_on_its_own_response() -> None:
    found = session()
    stream = listening(found)
    stream.events()
    exchange = post(found, {"jsonrpc": "2.0", "id": 1, "method": "ping"})
    (response,) = exchange.events()
    assert isinstance(response, HttpResponse)
    assert (response.status, response.body) == (200, b'{"jsonrpc":"2.0","id":1,"result":{}}')
    assert (events(stream), found.working) == ([], False)


def test_at_the_bound_the_session_used_longest_ago_goes_first() -> None:
    sessions = Sessions(HttpPolicy(max_sessions=2), os.urandom, nullcontext())
    old, new, last = (sessions.new(None, connect) for _ in range(3))
    for session, now, victim in ((old, 1.0, None), (new, 2.0, None), (last, 3.0, old)):
        assert sessions.victim(None) is victim
        sessions.keep(session, now, victim)
    assert len(sessions) == 2
    assert sessions.find(new.id, None, 4.0) is new
    assert sessions.find(new.id, "another", 4.0) is None


def test_an_idle_session_goes_at_its_bound() -> None:
    sessions = Sessions(HttpPolicy(session_idle=10.0), os.urandom, nullcontext())
    found = sessions.new(None, connect)
    sessions.keep(found, 100.0)
    assert (sessions.idle(109.9), sessions.idle(110.0), len(sessions)) == ([], [found], 0)
