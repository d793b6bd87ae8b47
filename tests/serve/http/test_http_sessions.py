"""Sessions of handshake clients over HTTP: whose they are, how they end, their streams, and what is told again. HL-1 to HL-15."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from http_faces import Bare, Face, OnALoop
from http_talk import BOTH, Session, call, modern, text_of
from http_world import World

from linkspan import Limits, Server
from linkspan.core.call import CallCancelled, CallReady
from linkspan.core.http_exchange import HttpData, ServerExchange
from linkspan.errors import INVALID_REQUEST
from linkspan.revisions import LEGACY, MODERN
from linkspan.revisions.neutral import NO_FACTS
from linkspan.wire.jsonrpc import Notification

Serve = Callable[..., Face]
MARCH, JUNE, NEWEST = LEGACY[1:]
CAN_ASK: dict[str, Any] = {"elicitation": {}, "sampling": {}, "roots": {}}


# Whose they are, and how they end.


def test_ids_cannot_be_guessed(serve: Serve) -> None:
    face = serve(World().server)
    ids = {Session(face).id for _ in range(20)}
    assert len(ids) == 20
    assert all(len(each) == 32 and int(each, 16) >= 0 for each in ids)


@pytest.mark.parametrize("guess", ["", "0" * 32, "x", "é".encode().decode("latin-1"), "0" * 10_000])
def test_a_guessed_id_is_no_session(guess: str, serve: Serve) -> None:
    face = serve(World().server)
    session = Session(face)
    assert session.send("tools/list", number=1, mcp_session_id=guess).whole().status == 404
    assert session.get(mcp_session_id=guess).whole().status == 404
    assert session.call("add", {"a": 1, "b": 2}).whole().status == 200


def test_a_session_belongs_to_who_began_it(serve: Serve) -> None:
    """HL-8, SEC-6."""
    face = serve(World().server)
    session = Session(face, principal="mia")
    for stranger in ("tom", None):
        session.principal = stranger
        assert session.send("tools/list", number=1).whole().status == 404
        assert session.get().whole().status == 404
        assert session.delete().whole().status == 404
    session.principal = "mia"
    assert session.send("tools/list", number=1).whole().status == 200


def test_a_handshake_that_fails_makes_no_session(serve: Serve) -> None:
    face = serve(World().server)
    message = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": 7}}
    answer = face.ask("POST", {"accept": BOTH}, message)
    assert answer.code is not None
    assert "mcp-session-id" not in answer.headers
    assert not any(len(each.sessions) for each in face.endpoints)


def test_delete_ends_a_session_and_its_stream(serve: Serve) -> None:
    session = Session(serve(World().server))
    stream = session.get().begin()
    deleted = session.delete().whole()
    assert (deleted.status, deleted.body) == (204, b"")
    stream.whole()
    for answer in (session.send("tools/list", number=1), session.get(), session.delete()):
        assert answer.whole().status == 404


def test_session_idle(bare: Callable[..., Bare]) -> None:
    face = bare(World().server, session_idle=60)
    idle, busy, listening = Session(face), Session(face), Session(face)
    stream = listening.get()
    face.tick(59)
    assert busy.send("tools/list", number=1).whole().status == 200
    face.tick(59)
    assert idle.send("tools/list", number=1).whole().status == 404
    assert busy.send("tools/list", number=1).whole().status == 200
    assert not stream.ended
    stream.close()
    face.tick(61)
    assert not any(len(each.sessions) for each in face.endpoints)


def test_max_sessions_lets_the_one_go_that_was_idle_longest(one_process: Callable[..., Bare]) -> None:
    face = one_process(World().server, max_sessions=2)
    first, second = Session(face), Session(face)
    face.tick(1)
    first.send("tools/list", number=1)
    third = Session(face)
    found = [each.send("tools/list", number=1).whole().status for each in (first, second, third)]
    assert found == [200, 404, 200]


def test_max_sessions_takes_those_who_only_listen_after_those_who_do_nothing(one_process: Callable[..., Bare]) -> None:
    face = one_process(World().server, max_sessions=2)
    listening = Session(face)
    stream = listening.get()
    face.tick(1)
    idle = Session(face)
    third = Session(face)
    assert [each.send("tools/list", number=1).whole().status for each in (listening, idle, third)] == [200, 404, 200]
    third.get()
    face.tick(1)
    third.send("tools/list", number=2)
    Session(face)
    assert stream.whole().ended  # its session had no request for longest
    assert [each.send("tools/list", number=1).whole().status for each in (listening, third)] == [404, 200]


def _refused(face: Face, principal: str | None = None) -> tuple[int, str, str]:
    hello = {"protocolVersion": NEWEST, "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}
    request = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello}
    answer = face.ask("POST", {"accept": BOTH}, request, principal=principal)
    return answer.status, answer.headers["retry-after"], answer.json()["error"]["message"]


def test_max_sessions_takes_none_in_which_a_call_runs(on_a_loop: OnALoop) -> None:
    world = World()
    face = on_a_loop(world.server, max_sessions=1)
    session = Session(face)
    call = session.call("hold")
    world.wait_for("holding")
    assert _refused(face) == (503, "5", "Too many sessions (max_sessions); try again later [LS-505]")
    world.let_go.set()
    assert text_of(call.json()) == "held"
    assert session.send("tools/list", number=2).whole().status == 200


def test_what_an_evicted_session_has_left_to_run_is_its_own(one_process: Callable[..., Bare]) -> None:
    server = Server("sessions")
    server.custom_method("notifications/acme")(lambda: None)
    face = one_process(server, max_sessions=1)
    first = Session(face)
    (evicted,) = face.endpoint.sessions
    running = evicted.connection.receive(Notification("notifications/acme"))
    assert [type(each) for each in running] == [CallReady]
    hello = {"protocolVersion": NEWEST, "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}
    message = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello}).encode()
    opened = face.endpoint.open("POST", "http://localhost/", {"accept": BOTH}, message, NO_FACTS)
    assert opened.connection is not evicted.connection
    assert not opened.events
    assert opened.also == [(evicted.connection, [CallCancelled(running[0].call)])]
    assert first.send("tools/list", number=1).whole().status == 404


def test_max_sessions_per_principal(on_a_loop: OnALoop) -> None:
    world = World()
    face = on_a_loop(world.server, max_sessions_per_principal=2)
    first, second, other, nobody = (Session(face, principal=each) for each in ("eve", "eve", "bob", None))
    nobodies = [Session(face) for _ in range(3)]  # who is not known is nobody in particular
    third = Session(face, principal="eve")
    everyone = (first, second, third, other, nobody, *nobodies)
    assert [each.send("tools/list", number=1).whole().status for each in everyone] == [404, *[200] * 7]
    for session in (second, third):
        session.call("hold", number=2)
        world.wait_for("holding")
        world.seen.clear()
    assert _refused(face, "eve") == (
        429,
        "5",
        "Too many sessions (max_sessions_per_principal); try again later [LS-505]",
    )
    world.let_go.set()


# Requests.


def test_an_id_that_is_in_use_is_refused_and_disturbs_nothing(serve: Serve) -> None:
    world = World()
    face = serve(world.server)
    if isinstance(face, Bare):
        pytest.skip("the bare machine runs a call before it returns, so nothing can come in between")
    session = Session(face)
    first = session.call("hold", number=7)
    world.wait_for("holding")
    second = session.call("add", {"a": 1, "b": 2}, number=7).whole()
    assert (second.status, second.code) == (400, INVALID_REQUEST)
    assert text_of(session.call("add", {"a": 1, "b": 2}, number="7").json()) == "3"
    world.let_go.set()
    assert (first.whole().status, text_of(first.json())) == (200, "held")


def test_who_goes_away_cancels_nothing(serve: Serve) -> None:
    """HL-3; only a notification does."""
    world = World()
    face = serve(world.server, silence=0.2)  # under WSGI a client is missed when something is sent
    if isinstance(face, Bare):
        pytest.skip("the bare machine runs a call before it returns, so nothing can come in between")
    session = Session(face)
    live = session.call("tell_then_hold", number=1, progressToken="t")
    prime = live.event()
    world.wait_for("holding")
    live.close()
    face.until(lambda: not len(face.endpoint.streams))
    world.let_go.set()
    back = session.get(last=prime.id)
    assert [each.get("method") for each in back.messages()] == ["notifications/progress", None]
    assert "cancelled" not in world.seen


@pytest.mark.parametrize("tool", ["hold", "hold_async"])
def test_a_notification_cancels_a_request_of_its_session(tool: str, serve: Serve) -> None:
    """CAN-1."""
    world = World()
    face = serve(world.server)
    if isinstance(face, Bare):
        pytest.skip("the bare machine runs a call before it returns, so nothing can come in between")
    session = Session(face)
    live = session.call(tool, number=1)
    world.wait_for("holding")
    assert session.send("notifications/cancelled", {"requestId": 1}).whole().status == 202
    world.wait_for("cancelled")
    assert live.messages() == []


def test_max_running_is_for_one_session(on_a_loop: OnALoop) -> None:
    world = World(limits=Limits(max_running=1))
    face = on_a_loop(world.server)
    session, other = Session(face), Session(face)
    live = session.call("hold")
    world.wait_for("holding")
    refused = session.call("add", {"a": 1, "b": 2}, 2).whole()
    assert (refused.status, refused.headers["retry-after"]) == (429, "1")
    assert "max_running" in refused.json()["error"]["message"]
    assert session.send("notifications/initialized").whole().status == 202
    assert other.call("add", {"a": 1, "b": 2}).whole().status == 200
    world.let_go.set()
    assert text_of(live.json()) == "held"


BATCHES: dict[str, tuple[list[Any], int, list[Any]]] = {
    "requests": ([("tools/call", 1), ("tools/list", 2)], 200, [1, 2]),
    "with a notification": ([("tools/call", 1), ("notifications/x", None)], 200, [1]),
    "only notifications": ([("notifications/x", None), ("notifications/y", None)], 202, []),
}


@pytest.mark.parametrize("name", BATCHES)
def test_batches_are_answered_together(name: str, serve: Serve) -> None:
    parts, status, ids = BATCHES[name]
    params = {"name": "add", "arguments": {"a": 1, "b": 2}}
    batch = [
        {"jsonrpc": "2.0", "method": method, "params": params} | ({"id": number} if number else {})
        for method, number in parts
    ]
    answer = Session(serve(World().server), MARCH).post(batch).whole()
    assert answer.status == status
    assert (sorted(each["id"] for each in answer.json()) if answer.body else []) == ids


def test_a_batch_with_progress_is_a_stream_that_ends_with_all_answers(serve: Serve) -> None:
    params = {"name": "count", "arguments": {"to": 2}, "_meta": {"progressToken": "t"}}
    batch = [{"jsonrpc": "2.0", "id": n, "method": "tools/call", "params": params} for n in (1, 2)]
    answer = Session(serve(World().server), MARCH).post(batch).whole()
    *progress, last = answer.messages()
    assert [each["method"] for each in progress] == ["notifications/progress"] * 4
    assert sorted(each["id"] for each in last) == [1, 2]


@pytest.mark.parametrize("revision", [JUNE, NEWEST])
def test_later_revisions_have_no_batches(revision: str, serve: Serve) -> None:
    batch = [{"jsonrpc": "2.0", "id": 1, "method": "tools/list"}]
    session = Session(serve(World().server), revision)
    answer = session.post(batch).whole()
    assert (answer.status, answer.code) == (400, INVALID_REQUEST)
    assert session.send("tools/list", number=1).whole().status == 200


# Asking.


def test_a_question_goes_out_on_the_stream_of_its_call_and_is_answered_by_another_post(serve: Serve) -> None:
    face = serve(World().server)
    session = Session(face, capabilities=CAN_ASK)
    general = session.get().begin()
    live = session.call("book", {"date": "today"})
    question = live.message()
    assert question["method"] == "elicitation/create"
    answer = session.answer(question["id"], {"action": "accept", "content": {"seats": 4}}).whole()
    assert (answer.status, answer.body) == (202, b"")
    assert text_of(live.message()) == "4 seats on today"
    live.whole()
    general.close()


def test_a_stranger_cannot_answer_a_question(serve: Serve) -> None:
    face = serve(World().server)
    session, other = Session(face, capabilities=CAN_ASK), Session(face, capabilities=CAN_ASK)
    live = session.call("book", {"date": "today"})
    question = live.message()
    assert other.answer(question["id"], {"action": "accept", "content": {"seats": 9}}).whole().status == 202
    session.answer(question["id"], {"action": "accept", "content": {"seats": 4}})
    assert text_of(live.message()) == "4 seats on today"


# Streams.


def test_the_get_stream_says_what_belongs_to_no_request_once(serve: Serve) -> None:
    """HL-4, HL-5."""
    world = World()
    session = Session(serve(world.server))
    first = session.get().begin()
    assert (first.status, first.kind, first.headers["x-accel-buffering"]) == (200, "text/event-stream", "no")
    second = session.get().begin()
    first.whole()  # the newer one has taken its place
    world.server.notify_tools_list_changed()
    assert second.message() == {"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}
    assert first.messages() == []
    second.close()


def test_get_needs_to_accept_a_stream(serve: Serve) -> None:
    assert Session(serve(World().server)).get(accept="application/json").whole().status == 406


def test_the_newest_handshake_clients_get_an_event_without_data_first(serve: Serve) -> None:
    """HL-10, HL-11."""
    session = Session(serve(World().server, retry=500), NEWEST)
    for live in (session.call("count", {"to": 1}, progressToken="t"), session.get()):
        event = live.event()
        assert (event.data, event.retry) == ("", 500)
        assert (event.id or "").endswith("-0")
        live.close()


@pytest.mark.parametrize("revision", [MARCH, JUNE])
def test_older_clients_get_no_event_without_data(revision: str, serve: Serve) -> None:
    """HL-11."""
    live = Session(serve(World().server), revision).call("count", {"to": 1}, progressToken="t").whole()
    assert [bool(each.data) for each in live._events] == [True, True]


def test_every_event_has_an_id_of_its_own_and_what_was_missed_is_told_again(serve: Serve) -> None:
    """HL-6, HL-10."""
    session = Session(serve(World().server))
    live = session.call("count", {"to": 3}, progressToken="t")
    events = [live.event() for _ in range(5)]
    live.whole()
    ids = [each.id or "" for each in events]
    assert len(set(ids)) == 5
    other = session.call("count", {"to": 1}, number=2, progressToken="t").whole()
    again = session.get(last=ids[2])
    assert again.messages() == [json.loads(each.data) for each in events[3:]]  # of that stream alone
    assert other.status == 200


def test_a_call_whose_client_went_is_answered_when_it_comes_back(serve: Serve) -> None:
    world = World()
    face = serve(world.server)
    if isinstance(face, Bare):
        pytest.skip("the bare machine runs a call before it returns, so nothing can come in between")
    session = Session(face)
    live = session.call("tell_then_hold", progressToken="t")
    prime = live.event()
    progress = live.event()
    world.wait_for("holding")
    live.close()
    back = session.get(last=progress.id).begin()
    world.let_go.set()
    assert text_of(back.message()) == "held"
    back.whole()
    from_start = session.get(last=prime.id)
    assert [each.get("method") for each in from_start.messages()] == ["notifications/progress", None]


@pytest.mark.parametrize("last", ["nonsense", "99-1", "1-x", "-", "", "1-" + "9" * 30, "1-²"])
def test_an_event_id_that_was_never_there_is_a_bad_request_and_the_session_goes_on(last: str, serve: Serve) -> None:
    session = Session(serve(World().server))
    answer = session.get(last=last.encode().decode("latin-1")).whole()
    assert answer.status == 400
    assert session.send("tools/list", number=1).whole().status == 200


def test_the_streams_of_another_session_cannot_be_resumed(serve: Serve) -> None:
    world = World()
    face = serve(world.server)
    mine, yours = Session(face), Session(face)
    live = mine.call("count", {"to": 1}, progressToken="t")
    last = live.event().id
    live.whole()
    stolen = yours.get(last=last)
    if stolen.begin().status == 200:
        stolen.close()
        assert b"progress" not in stolen.body
    else:
        assert stolen.status == 400


def stored(face: Face) -> tuple[int, int, int]:
    """Return how many events, bytes and streams the one session keeps, the GET stream counted."""
    (session,) = face.endpoint.sessions
    return len(session._stored or ()), session._stored_bytes, 1 + len(session._streams)


def test_max_stored_events(bare: Callable[..., Bare]) -> None:
    face = bare(World().server, max_stored_events=5)
    session = Session(face)
    lives = [session.call("count", {"to": 3}, n, progressToken="t").whole() for n in range(20)]
    assert stored(face)[0] == 5
    assert stored(face)[2] <= 3  # the GET stream, and those that still have something to say
    first = lives[0]._events[0].id
    assert session.get(last=first).whole().status == 400
    assert len(session.get(last=lives[-1]._events[0].id).messages()) == 4


def test_max_stored_bytes(bare: Callable[..., Bare]) -> None:
    world = World()
    face = bare(world.server, max_stored_bytes=10_000)
    session = Session(face)
    for n in range(5):
        session.call("flood", {"parts": 20, "size": 1000}, n, progressToken="t").whole()
    assert 5_000 < stored(face)[1] <= 10_000


def test_answers_that_were_json_are_not_kept(bare: Callable[..., Bare]) -> None:
    face = bare(World().server)
    session = Session(face)
    for n in range(10):
        session.call("add", {"a": 1, "b": 2}, n)
    assert stored(face) == (0, 0, 1)


def test_without_sessions_nothing_can_be_resumed_and_nothing_says_so(bare: Callable[..., Bare]) -> None:
    face = bare(World().server, sessions=False)
    params = {"name": "count", "arguments": {"to": 1}, "_meta": {"progressToken": "t"}}
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    answer = face.ask("POST", {"accept": BOTH, "mcp-protocol-version": NEWEST}, message)
    assert len(answer.messages()) == 2
    assert b"id: " not in answer.body
    assert b"retry" not in answer.body


def test_a_quiet_get_stream_gets_comments(bare: Callable[..., Bare]) -> None:
    face = bare(World().server, silence=15)
    live = Session(face).get().begin()
    face.tick(15)
    face.tick(15)
    while not live.waiting:
        live._take()
    assert live.body.count(b":\r\n\r\n") == 2


def test_a_server_that_stops_ends_the_get_stream(serve: Serve) -> None:
    face = serve(World().server)
    live = Session(face).get().begin()
    face.endpoint.drain()
    live.whole()


def test_modern_requests_and_sessions_do_not_see_each_other(serve: Serve) -> None:
    world = World()
    face = serve(world.server)
    session = Session(face)
    stream = session.get().begin()
    listening = modern(face, "subscriptions/listen", {"notifications": {"toolsListChanged": True}})
    listening.message()
    world.server.notify_tools_list_changed()
    assert "params" not in stream.message()
    assert "_meta" in listening.message()["params"]
    assert text_of(call(face, "add", {"a": 1, "b": 2}).json()) == "3"
    for live in (stream, listening):
        live.close()


@pytest.mark.parametrize("method", ["GET", "DELETE"])
@pytest.mark.parametrize("version", ["2099-01-01", LEGACY[0], MODERN[0]])
def test_a_session_is_of_one_revision_whatever_the_method(method: str, version: str, serve: Serve) -> None:  # HL-15
    session = Session(serve(World().server))
    wrong = session.headers | {"accept": "text/event-stream", "mcp-protocol-version": version}
    assert session.face.ask(method, wrong).status == 400
    assert session.face.ask("DELETE", session.headers).status == 204  # it is still there


# Lists that change while nobody listens, or reads.


def _notified(live: Any, count: int) -> list[str]:
    return [live.message()["method"] for _ in range(count)]


@pytest.mark.parametrize("revision", [MARCH, NEWEST])
def test_a_list_that_changed_while_there_was_no_stream_is_told_on_the_next(revision: str, serve: Serve) -> None:
    world = World()
    session = Session(serve(world.server), revision)
    for _ in range(3):
        world.server.notify_tools_list_changed()
        world.server.notify_prompts_list_changed()
    stream = session.get().begin()
    tools, prompts = "notifications/tools/list_changed", "notifications/prompts/list_changed"
    assert _notified(stream, 2) == [tools, prompts]
    world.server.notify_prompts_list_changed()
    assert _notified(stream, 1) == [prompts]  # and nothing was told twice
    stream.close()


def test_changes_that_were_told_again_are_not_missed(bare: Callable[..., Bare]) -> None:
    world = World()
    session = Session(bare(world.server))
    stream = session.get().begin()
    last = stream.event().id
    stream.close()
    world.server.notify_tools_list_changed()
    world.server.notify_tools_list_changed()
    resumed = session.get(last)
    assert _notified(resumed, 1) == ["notifications/tools/list_changed"]
    resumed.close()
    again = session.get().begin()
    world.server.notify_prompts_list_changed()
    assert _notified(again, 1) == ["notifications/prompts/list_changed"]


def test_changes_that_nobody_has_read_are_one_change() -> None:
    exchange = ServerExchange(now=0.0)
    changed = b'{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}'
    other = b'{"jsonrpc":"2.0","method":"notifications/message","params":"/list_changed"}'
    exchange.open_events()
    for message in (changed, other, changed, other):
        exchange.message(message, final=False)
    assert sum(type(each) is HttpData for each in exchange.events()) == 3
    exchange.message(changed, final=False)
    assert sum(type(each) is HttpData for each in exchange.events()) == 1  # what was read before is another change
