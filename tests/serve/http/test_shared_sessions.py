"""Handshake sessions that several processes share: each request reaches another one. The machines here share a store."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from queue import Queue
from types import SimpleNamespace
from typing import Annotated, Any

import pytest
from http_faces import Asgi, Bare, Face, Http, Live, Scattered, Wsgi
from http_talk import BOTH, Session, call, text_of

from client.faces import wait_until
from linkspan import Ask, Context, Server
from linkspan.core.http_endpoint import Todo
from linkspan.core.shared_endpoint import SharedEndpoint
from linkspan.core.shared_state import Want, decode_message, decode_session, each_of
from linkspan.errors import RemoteProtocolError
from linkspan.revisions import LATEST_LEGACY, LEGACY
from linkspan.serve.store_flows import StoreFlows
from linkspan.stores import MemoryStore
from linkspan.stores.port import StoreError

NEWEST = LEGACY[-1]
CAN_ASK: dict[str, Any] = {"elicitation": {}}


def shop() -> Server:
    server = Server("shop", auto_notify=True)

    @server.tool
    def book(date: str, seats: Annotated[int, Ask("How many seats?")]) -> str:
        return f"{seats} seats on {date}"

    @server.tool
    def count(to: int, ctx: Context) -> str:
        for n in range(1, to + 1):
            ctx.progress(n, total=to)
        return "done"

    @server.tool
    def client(ctx: Context) -> str:
        ctx.debug("looked")
        return f"{ctx.client_info and ctx.client_info.name} {ctx.protocol_version}"

    @server.resource("note://today")
    def today() -> str:
        return "rest"

    return server


@pytest.fixture
def three() -> Scattered:
    return Scattered(shop())


def events(live: Live) -> list[tuple[str, Any]]:
    """Take the messages that have come, with their ids."""
    found: list[tuple[str, Any]] = []
    while not live.waiting:
        live._take()
    while live._events:
        each = live._events.pop(0)
        if each.data:
            found.append((each.id or "", json.loads(each.data)))
    return found


def methods(live: Live) -> list[str]:
    """Take the methods of the notifications that have come."""
    return [message.get("method", "result") for _, message in events(live)]


def loaded(face: Scattered) -> int:
    return sum(len(each.sessions) for each in face.endpoints)


def test_a_session_that_a_request_uses_is_not_removed_as_idle_at_the_same_moment(three: Scattered) -> None:
    session = Session(three)
    home = next(each for each in three._endpoints if any(kept.record.is_home for kept in each.sessions))
    three._endpoints[:] = [home]
    assert session.call("client", number=1).whole().status == 200  # it knows the newest record from here on
    three.now += 40.0
    tick, keep = threading.Thread(target=home._end_idle, args=(three.now,)), home.sessions.keep

    def keep_late(*arguments: Any) -> None:
        if tick.ident is None:
            tick.start()
            tick.join(0.5)  # it waits for the request; without a lock it would be over by now
        keep(*arguments)

    home.sessions.keep = keep_late  # type: ignore[method-assign]
    assert session.call("client", number=2).whole().status == 200
    tick.join(30)
    (kept,) = home.sessions
    record = decode_session(home.runner.load(kept.record.key).value)
    assert record.home == home._space.process  # it has not been given up


# What was agreed.


def test_any_process_knows_what_was_agreed_in_another(three: Scattered) -> None:
    session = Session(three)
    assert session.send("logging/setLevel", {"level": "debug"}, 1).whole().status == 200
    for number in (2, 3, 4):
        live = session.call("client", number=number)
        assert [each.get("method", "") for each in live.messages()] == ["notifications/message", ""]
    assert session.send("logging/setLevel", {"level": "error"}, 5).whole().status == 200
    assert [text_of(session.call("client", number=each).json()) for each in (6, 7, 8)] == [f"old {NEWEST}"] * 3


def test_a_change_in_one_process_keeps_those_of_the_others(three: Scattered) -> None:
    session = Session(three)
    for number in range(3):
        session.send("tools/list", number=number).whole()
    assert session.send("resources/subscribe", {"uri": "note://today"}, 3).whole().status == 200
    assert session.send("logging/setLevel", {"level": "debug"}, 4).whole().status == 200
    found = []
    for number in range(3):
        session.send("tools/list", number=number).whole()
        agreed = next(each for each in three.endpoint.sessions if each.id == session.id).connection.session
        found.append((list(agreed.subscriptions), agreed.log_level))
    assert found == [(["note://today"], "debug")] * 3


def test_a_session_that_ends_in_one_process_ends_in_all(three: Scattered) -> None:
    session = Session(three)
    stream = session.get().begin()
    assert session.delete().whole().status == 204
    assert stream.whole().ended
    assert [session.send("tools/list", number=each).whole().status for each in (1, 2, 3)] == [404] * 3
    assert loaded(three) == 0


def test_a_session_that_has_ended_ends_where_that_was_not_heard(three: Scattered) -> None:
    session = Session(three)
    stream = session.get().begin()
    three.bring = three.published.clear  # type: ignore[method-assign]
    assert session.delete().whole().status == 204
    assert not stream.ended
    three.tick(200)
    three.tick(1)
    assert stream.whole().ended
    assert loaded(three) == 0


def test_an_unused_session_expires_for_all_processes(three: Scattered) -> None:
    session, listening = Session(three), Session(three)
    stream = listening.get().begin()
    for _ in range(12):
        three.tick(200)
    assert [session.send("tools/list", number=each).whole().status for each in (1, 2, 3)] == [404] * 3
    assert [listening.send("tools/list", number=each).whole().status for each in (1, 2, 3)] == [200] * 3
    assert not stream.ended


def test_the_use_of_sessions_is_noted_once_however_long_the_store_stands_still(three: Scattered) -> None:
    session, waiting = Session(three), list[Any]()
    stream = session.get().begin()
    runner = three.endpoint.runner
    runner.spawn = waiting.append  # type: ignore[union-attr, method-assign, assignment]
    for _ in range(5):
        three.tick(200)
    (touch,) = [each for each in waiting if "touch" in each.__name__]
    runner.run(touch)  # type: ignore[union-attr]
    three.tick(200)
    assert len([each for each in waiting if "touch" in each.__name__]) == 2
    assert not stream.ended


def test_unused_sessions_take_no_memory_of_any_process(three: Scattered) -> None:
    sessions = [Session(three) for _ in range(50)]
    three.tick(31)
    assert loaded(three) == 0
    assert [each.send("tools/list", number=1).whole().status for each in sessions] == [200] * 50


def test_the_bounds_hold_for_all_processes_together() -> None:
    three = Scattered(shop(), max_sessions=3, max_sessions_per_principal=2)
    first = Session(three)
    three.tick(200)
    second, third = Session(three, principal="mia"), Session(three)
    three.tick(200)
    third.send("tools/list", number=1).whole()
    fourth = Session(three)
    found = [each.send("tools/list", number=2).whole().status for each in (first, second, third, fourth)]
    assert found == [404, 200, 200, 200]
    three.tick(200)
    Session(three, principal="mia")
    three.tick(200)
    Session(three, principal="mia")
    assert second.send("tools/list", number=3).whole().status == 404


def test_a_process_begins_no_session_beyond_the_bound_however_seldom_it_counts_them() -> None:
    face = Scattered(shop(), max_sessions=16)
    face._endpoints[1:] = []
    sessions = [Session(face) for _ in range(24)]
    found = [each.send("tools/list", number=1).whole().status for each in sessions]
    assert found == [404] * 8 + [200] * 16


def test_a_session_in_which_a_call_runs_makes_no_room_for_another() -> None:
    face = Scattered(shop(), max_sessions=1)
    face._endpoints[1:] = []
    session = Session(face, capabilities=CAN_ASK)
    call = session.call("book", {"date": "today"})
    hello = {"protocolVersion": LATEST_LEGACY.date, "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}
    message = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello}
    refused = face.ask("POST", {"accept": BOTH}, message)
    assert (refused.status, refused.headers["retry-after"]) == (503, "5")
    assert "max_sessions" in refused.json()["error"]["message"]
    assert events(call), "it still asks"


def test_nothing_is_kept_of_principals_whose_sessions_have_gone() -> None:
    three = Scattered(shop(), max_sessions=3)
    for principal in ("mia", "ada"):
        Session(three, principal=principal)
        three.tick(2000)
    three.tick(31)
    Session(three)
    queues = three.endpoint.runner.store._state.queues  # type: ignore[union-attr]
    assert [len(each) for each in queues.values()] == [1]


# Questions, and what a client takes back.


def test_an_answer_reaches_the_process_that_has_asked(three: Scattered) -> None:
    session = Session(three, capabilities=CAN_ASK)
    call = session.call("book", {"date": "today"})
    ((_, question),) = events(call)
    assert question["method"] == "elicitation/create"
    answer = {"action": "accept", "content": {"seats": 3}}
    assert session.answer(question["id"], answer).whole().status == 202
    assert [text_of(each) for each in call.messages()] == ["3 seats on today"]
    assert session.answer(question["id"], answer).whole().status == 202  # late: it is dropped (CAN-5)


def test_an_answer_that_no_process_waits_for_is_dropped(three: Scattered) -> None:
    session = Session(three, capabilities=CAN_ASK)
    for number in ("000000000000.1.7/1", "made up", 7):
        assert session.answer(number, {"action": "cancel"}).whole().status == 202


def test_a_cancellation_reaches_the_process_that_has_the_call(three: Scattered) -> None:
    session = Session(three, capabilities=CAN_ASK)
    call = session.call("book", {"date": "today"}, number=7)
    ((_, question),) = events(call)
    session.send("notifications/cancelled", {"requestId": 7, "reason": "changed"}).whole()
    (withdrawn,) = call.messages()
    assert (withdrawn["method"], withdrawn["params"]["requestId"]) == ("notifications/cancelled", question["id"])


def test_answers_in_a_batch_go_each_to_its_process(three: Scattered) -> None:
    march = LEGACY[1]

    @three._server.tool
    def roots(ctx: Context) -> str:
        return str(len(ctx.roots()))

    session = Session(three, march, {"roots": {}})
    calls = [session.call("roots", number=number) for number in (1, 2, 3)]
    asked = [events(each)[0][1]["id"] for each in calls]
    batch = [{"jsonrpc": "2.0", "id": each, "result": {"roots": []}} for each in asked]
    assert session.post([*batch, {"jsonrpc": "2.0", "id": 9, "method": "ping"}]).whole().status == 200
    assert [text_of(each.messages()[-1]) for each in calls] == ["0"] * 3


# The GET stream.


def test_a_change_is_notified_once_by_the_process_of_the_get_stream(three: Scattered) -> None:
    session = Session(three)
    stream = session.get().begin()
    for number in range(6):
        session.send("tools/list", number=number).whole()
    assert [session.id in [s.id for s in each.sessions] for each in three.endpoints] == [True] * 3
    assert three._server.notify_tools_list_changed() == 1
    assert methods(stream) == ["notifications/tools/list_changed"]


def test_a_subscription_reaches_the_process_of_the_get_stream(three: Scattered) -> None:
    session = Session(three)
    stream = session.get().begin()
    assert session.send("resources/subscribe", {"uri": "note://today"}, 1).whole().status == 200
    assert three._server.notify_resource_updated("note://today") == 1
    assert methods(stream) == ["notifications/resources/updated"]
    assert session.send("resources/unsubscribe", {"uri": "note://today"}, 2).whole().status == 200
    assert three._server.notify_resource_updated("note://today") == 0
    assert methods(stream) == []


def test_a_change_before_the_get_stream_is_notified_by_whichever_process_opens_it(three: Scattered) -> None:
    session = Session(three)
    three._server.notify_tools_list_changed()
    three._server.notify_tools_list_changed()
    assert methods(session.get().begin()) == ["notifications/tools/list_changed"]


def test_a_get_stream_in_another_process_ends_the_one_before(three: Scattered) -> None:
    session = Session(three)
    first = session.get().begin()
    second = session.get().begin()
    assert first.whole().ended
    three._server.notify_prompts_list_changed()
    three._server.notify_tools_list_changed()
    assert methods(second) == ["notifications/tools/list_changed"]


@pytest.mark.parametrize("home", [0, 1, 2], ids=["elsewhere", "the first one's process", "the last one's process"])
@pytest.mark.parametrize("comes_back", [False, True], ids=["anew", "with Last-Event-ID"])
def test_of_get_streams_that_are_opened_at_once_in_two_processes_the_last_stays(home: int, comes_back: bool) -> None:
    face = Scattered(shop())
    processes = [*face.endpoints]
    face._endpoints[:] = [processes[home]]
    session = Session(face)
    last = None
    if comes_back:
        stream = session.get().begin()
        face._server.notify_tools_list_changed()
        ((last, _),) = events(stream)
        stream.close()
    face._server.notify_resources_list_changed()
    bring, face.bring = face.bring, lambda: None  # type: ignore[method-assign]
    opened: list[Live] = []
    for process in processes[1:]:
        face._endpoints[:] = [process]
        opened.append(session.get(last))
    face._endpoints[:] = processes
    face.bring = bring  # type: ignore[method-assign]
    face.bring()
    first, second = opened
    assert first.whole().ended
    missed = [*methods(first), *methods(second.begin())]
    assert "notifications/resources/list_changed" in missed, "what was missed is not lost on the way"
    face._server.notify_tools_list_changed()
    assert methods(second) == ["notifications/tools/list_changed"]
    face.tick(3)
    assert not second.ended


def test_a_get_stream_goes_on_in_another_process(three: Scattered) -> None:
    """HL-5, HL-6."""
    session = Session(three)
    session.send("resources/subscribe", {"uri": "note://today"}, 1).whole()
    stream = session.get().begin()
    three._server.notify_tools_list_changed()
    ((last, _),) = events(stream)
    stream.close()
    three._server.notify_resource_updated("note://today")
    three._server.notify_tools_list_changed()
    again = session.get(last=last).begin()
    assert methods(again) == ["notifications/resources/updated", "notifications/tools/list_changed"]
    three._server.notify_resource_updated("note://today")
    ((last, _),) = events(again)
    again.close()
    assert methods(session.get(last=last).begin()) == []


def test_a_client_that_comes_back_after_a_long_time_is_notified_of_all_that_may_have_changed(three: Scattered) -> None:
    session = Session(three)
    session.send("resources/subscribe", {"uri": "note://today"}, 1).whole()
    stream = session.get().begin()
    three._server.notify_tools_list_changed()
    ((last, _),) = events(stream)
    three._server.notify_resource_updated("note://today")
    stream.close()
    three.tick(31)
    assert loaded(three) == 0
    found = methods(session.get(last=last).begin())
    assert found[0] == "notifications/resources/updated"
    assert sorted(set(found)) == [
        "notifications/resources/list_changed",
        "notifications/resources/updated",
        "notifications/tools/list_changed",
    ]


@pytest.mark.parametrize("comes_back", [True, False])
def test_only_a_client_that_comes_back_is_told_that_what_it_subscribed_to_may_have_changed(
    three: Scattered, comes_back: bool
) -> None:
    session = Session(three)
    session.send("resources/subscribe", {"uri": "note://today"}, 1).whole()
    stream = session.get().begin()
    three._server.notify_tools_list_changed()
    ((last, _),) = events(stream)
    stream.close()
    three.tick(31)
    assert loaded(three) == 0
    found = methods(session.get(last=last if comes_back else None).begin())
    assert ("notifications/resources/updated" in found) is comes_back


def test_a_get_stream_goes_on_without_a_process_that_has_died(three: Scattered) -> None:
    session = Session(three)
    stream = session.get().begin()
    dead = three.endpoint
    three._server.notify_tools_list_changed()
    ((last, _),) = events(stream)
    three._endpoints.remove(dead)
    again = session.get(last=last)
    assert again.waiting
    three.tick(3)
    assert set(methods(again.begin())) == {
        "notifications/resources/list_changed",
        "notifications/tools/list_changed",
    }


# Streams of calls.


def test_a_stream_that_runs_goes_on_in_another_process(three: Scattered) -> None:
    """HL-5, HL-6."""
    session = Session(three, capabilities=CAN_ASK)
    call = session.call("book", {"date": "today"})
    prime = call.event().id or ""
    ((asked, question),) = events(call)
    call.close()
    back = session.get(last=prime)
    assert [each for each, _ in events(back)] == [asked]
    back.close()
    back = session.get(last=asked)
    assert events(back) == []
    session.answer(question["id"], {"action": "accept", "content": {"seats": 2}}).whole()
    assert [text_of(each) for each in back.messages()] == ["2 seats on today"]
    assert session.get(last=prime).whole().status == 200


def test_a_stream_that_ended_while_its_client_was_away_is_read_anywhere(three: Scattered) -> None:
    session = Session(three, capabilities=CAN_ASK)
    call = session.call("book", {"date": "today"})
    prime = call.event().id or ""
    ((_, question),) = events(call)
    home = three.endpoint
    call.close()
    session.answer(question["id"], {"action": "accept", "content": {"seats": 2}}).whole()
    three._endpoints.remove(home)  # it may even have died since
    found = session.get(last=prime).messages()
    assert [each.get("method", "result") for each in found] == ["elicitation/create", "result"]


def test_a_stream_goes_on_in_its_own_process_with_what_comes_after_the_client_is_back(three: Scattered) -> None:
    """HL-6."""
    three._endpoints[1:] = []
    session = Session(three, capabilities=CAN_ASK)
    call = session.call("book", {"date": "today"})
    ((asked, question),) = [events(call)[-1]]
    call.close()
    back = session.get(last=asked)
    assert events(back) == []
    session.answer(question["id"], {"action": "accept", "content": {"seats": 2}}).whole()
    assert [text_of(each) for each in back.messages()] == ["2 seats on today"]


def test_a_stream_goes_on_with_what_comes_between_its_log_and_the_client_that_is_back(three: Scattered) -> None:
    three._endpoints[1:] = []
    session = Session(three, capabilities=CAN_ASK)
    call = session.call("book", {"date": "today"})
    ((asked, question),) = [events(call)[-1]]
    call.close()
    store: Any = three._endpoints[0].runner
    read = store.store.read

    def read_early(log: str, *rest: Any) -> Any:
        found, store.store.read = read(log, *rest), read
        session.answer(question["id"], {"action": "accept", "content": {"seats": 2}}).whole()
        return found

    store.store.read = read_early
    assert [text_of(each) for each in session.get(last=asked).messages()] == ["2 seats on today"]


def stored_bytes(face: Scattered) -> int:
    """Return how many bytes of events wait in the store, of all sessions."""
    runner: Any = face._endpoints[0].runner
    return sum(len(each.data) for entries, _ in runner.store._state.logs.values() for each in entries)


def test_what_waits_for_a_client_is_bounded_for_its_session_and_not_for_each_stream() -> None:
    face = Scattered(shop(), max_stored_bytes=10_000)
    session = Session(face, capabilities=CAN_ASK)
    streams: list[str] = []
    for number in range(60):
        call = session.call("book", {"date": "today"}, number)
        ((asked, _),) = events(call)
        streams.append(asked)
        call.close()
    assert 5_000 < stored_bytes(face) <= 10_000
    back = [session.get(last=f"{asked.rpartition('-')[0]}-0") for asked in streams]
    found = [len(events(each)) for each in back]
    assert sorted(found) == found, "the oldest events go first"
    assert set(found) == {0, 1}


def test_what_waits_for_a_store_that_stands_still_is_bounded_too() -> None:
    face, waiting = Scattered(shop(), max_stored_bytes=10_000, max_stored_events=20), list[Any]()
    del face._endpoints[1:]
    runner = face._endpoints[0].runner
    session, spawn, runner.spawn = Session(face, capabilities=CAN_ASK), runner.spawn, waiting.append  # type: ignore[method-assign, assignment]
    streams: list[str] = []
    for number in range(100):
        call = session.call("book", {"date": "today"}, number)
        ((asked, _),) = events(call)
        streams.append(asked)
        call.close()
    entries = [entry for each in waiting for entry in each.gi_frame.f_locals.get("entries", ())]
    assert 10 <= len(entries) <= 20
    assert 5_000 < sum(len(each.event) for each in entries) <= 10_000
    runner.spawn = spawn  # type: ignore[method-assign]
    for each in waiting:
        runner.run(each)
    back = [session.get(last=f"{asked.rpartition('-')[0]}-0") for asked in streams]
    assert {len(events(each)) for each in back[-10:]} == {1}, "what is not in the store is in memory"


def test_an_event_that_is_larger_than_the_bound_is_not_kept_in_the_store_either() -> None:
    server = shop()
    server.define_tool("large", handler=lambda ctx: ctx.ask("name", str, "Who?") * 20_000)
    face = Scattered(server, max_stored_bytes=10_000)
    session = Session(face, capabilities=CAN_ASK)
    call = session.call("large")
    ((asked, question),) = events(call)
    call.close()
    session.answer(question["id"], {"action": "accept", "content": {"name": "x"}}).whole()
    assert stored_bytes(face) < 10_000
    back = session.get(last=asked)
    assert back.whole().ended
    assert events(back) == []


@pytest.mark.parametrize("end", ["asked for", "pushed out"])
def test_nothing_waits_for_the_client_of_a_session_that_has_ended(end: str) -> None:
    face = Scattered(shop(), max_sessions=1)
    session = Session(face, capabilities=CAN_ASK)
    call = session.call("book", {"date": "today"})
    events(call)
    call.close()
    assert stored_bytes(face) > 100
    if end == "asked for":
        session.delete().whole()
    else:
        face.endpoint.sessions.remove(*face.endpoint.sessions)
        Session(face)
    assert stored_bytes(face) < 100


def test_what_waits_for_one_session_stays_when_another_ends(three: Scattered) -> None:
    one, other = Session(three, capabilities=CAN_ASK), Session(three)
    call = one.call("book", {"date": "today"})
    ((asked, _),) = events(call)
    call.close()
    other.delete().whole()
    assert len(events(one.get(last=f"{asked.rpartition('-')[0]}-0"))) == 1


def test_a_process_is_not_asked_whether_it_is_there_while_events_come_from_it(three: Scattered) -> None:
    three._server.define_tool("quiz", handler=lambda ctx: [ctx.ask(f"q{each}", str, "What?") for each in range(9)])
    session = Session(three, capabilities=CAN_ASK)
    call = session.call("quiz")
    ((asked, question),) = events(call)
    home, wanted = three.endpoint, list[Want]()
    assert isinstance(home, SharedEndpoint)
    receive = home.receive

    def note(data: bytes) -> Todo:
        message = decode_message(data)
        if isinstance(message, Want):
            wanted.append(message)
        return receive(data)

    home.receive = note  # type: ignore[method-assign]
    call.close()
    back = session.get(last=asked)
    for number in range(5):
        three.tick(6)
        session.answer(question["id"], {"action": "accept", "content": {f"q{number}": "x"}}).whole()
        ((_, question),) = events(back)
    assert len(wanted) == 1
    three.tick(11)
    assert len(wanted) == 2


def test_a_stream_of_a_process_that_died_ends(three: Scattered) -> None:
    session = Session(three, capabilities=CAN_ASK)
    call = session.call("book", {"date": "today"})
    ((asked, _),) = [events(call)[-1]]
    home = three.endpoint
    call.close()
    live = session.get(last=asked)
    three._endpoints.remove(home)
    three.tick(3)
    three.tick(11)  # from here on it is asked
    three.tick(1)
    assert None not in live._parts.queue
    three.tick(2)
    assert live.whole().ended


def test_an_unknown_event_is_no_stream_to_go_on_with_in_any_process(three: Scattered) -> None:
    session = Session(three)
    for last in ("", "1-1", "nonsense", "a.b.c-x", f"{'a' * 12}.1.2-3", f"{'a' * 12}.1.2-{'9' * 40}"):
        live = session.get(last=last)
        three.tick(3)
        assert live.whole().status == 400, last


# Clients of HTTP+SSE.


def test_a_message_to_another_process_brings_what_handlers_see_of_its_request_and_no_secret() -> None:
    server = Server("old", secret_headers=[])

    @server.tool
    def seen(ctx: Context) -> str:
        secrets = [ctx.headers.get(name) for name in ("authorization", "x-secret")]
        return f"{ctx.principal} {ctx.headers.get('x-probe')} {secrets}"

    face = Scattered(server, http_sse="/sse")
    stream = face.open("GET", {"accept": "text/event-stream"}, path="/sse", principal="mia")
    query = stream.event().data.removeprefix("?")
    hello = {"protocolVersion": LEGACY[0], "capabilities": {}, "clientInfo": {"name": "old", "version": "1"}}
    call = {"name": "seen", "arguments": {}}
    headers = {"authorization": "Bearer secret", "x-secret": "1", "x-probe": "blue"}
    for number, (method, params) in enumerate((("initialize", hello), ("tools/call", call))):
        message = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
        posted = face.open("POST", headers, message, path="/sse", query=query, principal="mia")
        assert posted.whole().status == 202
    assert text_of(events(stream)[-1][1]) == "mia blue [None, None]"
    refused = face.open("POST", headers, message, path="/sse", query=query, principal="tom")
    assert refused.whole().status == 404


# What fails.


class Broken:
    """A store that fails when it is told to, and takes its time."""

    quick = False

    def __init__(self) -> None:
        self._store = MemoryStore()
        self.fails = False

    def __getattr__(self, name: str) -> Any:
        if self.fails:
            raise StoreError("it is away")
        return getattr(self._store, name)


@pytest.mark.parametrize("face", [Asgi, Wsgi, Http])
def test_without_the_store_only_handshake_clients_are_refused(face: Callable[..., Face]) -> None:
    store = Broken()
    server = Server("broken", store=store)  # type: ignore[arg-type]
    server.tool(name="t")(lambda: "ok")
    served = face(server)
    try:
        session = Session(served)
        assert text_of(session.call("t").json()) == "ok"
        store.fails = True
        refused = session.call("t").whole()
        assert (refused.status, refused.headers["retry-after"]) == (503, "5")
        assert "store" in refused.json()["error"]["message"]
        store.fails = False
        assert text_of(session.call("t", number=2).json()) == "ok"
    finally:
        store.fails = False
        served.stop()


class Noting(Broken):
    """A store that notes its operations."""

    def __init__(self) -> None:
        super().__init__()
        self.noted: list[str] = []

    def __getattr__(self, name: str) -> Any:
        self.noted.append(name)
        return super().__getattr__(name)


def test_a_call_costs_one_read_of_the_store() -> None:
    store, server = Noting(), shop()
    server._profile.store = store  # type: ignore[assignment]
    served = Wsgi(server)
    try:
        session = Session(served)
        session.call("client").whole()
        store.noted.clear()
        assert session.call("client", number=2).whole().status == 200
        assert [each for each in store.noted if each != "now"] == ["get"]  # the time is known already
    finally:
        served.stop()


class Lame(Broken):
    """A store of which one operation fails."""

    def __init__(self, operation: str) -> None:
        super().__init__()
        self._operation = operation

    def __getattr__(self, name: str) -> Any:
        if self.fails and name == self._operation:
            raise StoreError("it is full")
        return getattr(self._store, name)


def test_a_process_is_subscribed_once_though_that_failed_before() -> None:
    store, subscribed = Broken(), list[str]()

    def subscribe(channel: str, _: object) -> Callable[[], None]:
        if store.fails and channel == "second":
            raise StoreError("it is away")
        subscribed.append(channel)
        return lambda: subscribed.remove(channel)

    store.subscribe = subscribe  # type: ignore[attr-defined]
    flows, store.fails = StoreFlows(lambda: store), True  # type: ignore[arg-type, return-value]
    flows.deliver(SimpleNamespace(channels=("first", "second")), bool)  # type: ignore[arg-type]
    for _ in range(3):
        with pytest.raises(StoreError):
            flows.run(each_of(()))
    store.fails = False
    flows.run(each_of(()))
    assert subscribed == ["first", "second"]


def test_first_requests_wait_for_one_attempt_to_subscribe_and_fail_with_it() -> None:
    store, waits, began = Broken(), threading.Event(), Queue[str]()

    def subscribe(channel: str, _: object) -> Callable[[], None]:
        began.put(channel)
        assert waits.wait(30)
        raise StoreError("it is away")

    store.subscribe = subscribe  # type: ignore[attr-defined]
    flows = StoreFlows(lambda: store)  # type: ignore[arg-type, return-value]
    flows.deliver(SimpleNamespace(channels=("first", "second")), bool)  # type: ignore[arg-type]
    arrived = threading.Barrier(21)

    def run() -> None:
        arrived.wait(30)
        flows.run(each_of(()))

    with ThreadPoolExecutor(20) as threads:
        running = [threads.submit(run) for _ in range(20)]
        arrived.wait(30)
        assert began.get(timeout=30) == "first"
        attempt = flows._attempt
        assert attempt is not None
        wait_until(lambda: len(attempt[1]._condition._waiters) == 19)  # type: ignore[attr-defined]
        waits.set()
        assert all(isinstance(each.exception(30), StoreError) for each in running)
    assert began.empty()


def test_calls_do_not_wait_for_sessions_whose_store_stands_still() -> None:
    store, stands_still, waiting = Broken(), threading.Event(), Queue[str]()

    def get(key: str) -> None:
        waiting.put(key)
        assert stands_still.wait(60)
        raise StoreError("it is away")

    server = Server("broken", store=store)  # type: ignore[arg-type]
    server.tool(name="t", timeout=30.0)(lambda: "ok")
    face = Asgi(server)
    store.get = get  # type: ignore[attr-defined]
    try:
        session = {"mcp-session-id": "0" * 32, "mcp-protocol-version": NEWEST}
        ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
        pings = [face.open("POST", session, ping) for _ in range(70)]
        for _ in range(64):  # as many threads as there are
            waiting.get(timeout=30)
        assert text_of(call(face, "t").json()) == "ok"
        assert all(each.waiting for each in pings)
    finally:
        stands_still.set()
        face.stop()


def test_a_get_stream_that_cannot_be_taken_from_another_process_is_not_kept() -> None:
    store, made = Lame("publish"), [shop(), shop()]
    for server in made:
        server._profile.store = store  # type: ignore[assignment]
    one, other = map(Wsgi, made)
    try:
        session = Session(one)
        session.get().begin()
        session.face, store.fails = other, True
        assert session.get().whole().status == 503
        assert [each.listening for each in other.endpoint.sessions] == [False]
    finally:
        store.fails = False
        one.stop()
        other.stop()


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_what_begins_while_the_store_cannot_be_written_to_is_refused_and_not_kept(method: str) -> None:
    """A session, and the stream of a pair: other processes would not know them."""
    store, server = Lame("put"), shop()
    server._profile.store = store  # type: ignore[assignment]
    served = Wsgi(server, http_sse="/sse")
    hello = {"protocolVersion": LATEST_LEGACY.date, "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}
    message = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello} if method == "POST" else None
    path = {"path": "/sse"} if method == "GET" else {}
    accept = BOTH if method == "POST" else "text/event-stream"
    try:
        store.fails = True
        refused = served.ask(method, {"accept": accept}, message, **path)
        assert (refused.status, refused.headers["retry-after"]) == (503, "5")
        assert (len(served.endpoint.sessions), len(served.endpoint.streams)) == (0, 0)
        assert len(served.endpoint.pairs) == 0
        store.fails = False
        begun = served.open(method, {"accept": accept}, message, **path).begin()
        assert begun.status == 200
        begun.close()
    finally:
        store.fails = False
        served.stop()


def test_a_call_ends_though_a_change_before_it_cannot_be_saved() -> None:
    store, server = Lame("put"), shop()
    server._profile.store = store  # type: ignore[assignment]
    served = Wsgi(server)
    try:
        session = Session(served)
        store.fails = True
        assert session.send("logging/setLevel", {"level": "debug"}, 1).whole().status == 503
        answer = session.call("client", number=2).whole()
        assert answer.status == 200
        store.fails = False
        assert text_of(session.call("client", number=2).messages()[-1]) == f"old {NEWEST}"
        assert [each.working for each in served.app.endpoint.sessions] == [False]
    finally:
        store.fails = False
        served.stop()


def test_an_answer_does_not_confirm_a_change_that_could_not_be_saved() -> None:
    store, server, go_on, fail = Lame("put"), shop(), threading.Event(), threading.Event()

    @server.resource("note://hers", when=lambda: go_on.wait(60))
    def hers() -> str:
        return "rest"

    @server.tool
    def failing() -> str:
        assert fail.wait(60)
        raise RemoteProtocolError(-32000, "the shop is closed")

    server._profile.store = store  # type: ignore[assignment]
    served = Wsgi(server)
    try:
        session = Session(served)
        call = session.call("failing", number=1)
        subscribing = session.send("resources/subscribe", {"uri": "note://hers"}, 2)
        store.fails = True
        go_on.set()
        problem = {"code": -32603, "message": "The session could not be saved; try again"}
        assert subscribing.json()["error"] == problem
        fail.set()
        assert call.json()["error"]["message"] == "the shop is closed", "an error confirms nothing, so it stays"
    finally:
        store.fails = False
        served.stop()


@pytest.mark.parametrize("quick", [True, False], ids=["a quick store", "a slow store"])
@pytest.mark.parametrize("face", [Asgi, Wsgi, Http])
def test_two_servers_with_one_store_serve_one_session(face: Callable[..., Face], quick: bool) -> None:
    store = Broken()
    store.quick = quick  # type: ignore[misc]
    made: list[Server] = []
    for _ in range(2):
        server = shop()
        server._profile.store = store  # type: ignore[assignment]
        made.append(server)
    one, other = map(face, made)
    try:
        session = Session(one, capabilities=CAN_ASK)
        stream = session.get().begin()
        session.face = other
        call = session.call("book", {"date": "today"})
        question = call.message()
        session.face = one
        session.answer(question["id"], {"action": "accept", "content": {"seats": 3}}).whole()
        assert text_of(call.message()) == "3 seats on today"
        session.send("resources/subscribe", {"uri": "note://today"}, 2).whole()
        session.face = other
        session.send("resources/subscribe", {"uri": "note://today"}, 3).whole()
        one.until(lambda: made[0].notify_resource_updated("note://today") == 1)
        assert stream.message()["method"] == "notifications/resources/updated"
        call = session.call("book", {"date": "tomorrow"}, number=4)
        prime = call.event().id
        question = call.message()
        session.face = one
        back = session.get(last=prime)
        assert back.message() == question
        session.face = other
        session.answer(question["id"], {"action": "accept", "content": {"seats": 4}}).whole()
        assert text_of(back.message()) == "4 seats on tomorrow"
        assert session.delete().whole().status == 204
        assert stream.whole().ended
    finally:
        one.stop()
        other.stop()


def test_one_process_names_streams_as_ever(one_process: Callable[..., Bare]) -> None:
    session = Session(one_process(shop()), capabilities=CAN_ASK)
    call = session.call("book", {"date": "today"})
    assert [each.id for each in (call.event(), call.event())] == ["4-0", "4-1"]
