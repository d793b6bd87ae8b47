"""Requests beyond `max_running` on a byte stream: they wait or are refused, and all else is served meanwhile."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from linkspan import Limits, Server
from linkspan.core.call import Call, CallCancelled, CallReady
from linkspan.core.connection import ServerConnection
from linkspan.serve.memory import MemoryTransport


def line(method: str, number: int | None = None, **params: Any) -> bytes:
    message = {"jsonrpc": "2.0", "method": method, "params": params}
    return json.dumps(message if number is None else message | {"id": number}).encode() + b"\n"


def adding(**limits: int) -> ServerConnection:
    server = Server("held", limits=Limits(**limits))
    server.tool(name="t")(lambda: "ok")
    server.define_custom_method("notifications/note", lambda params: None)
    return server.connect()


def begin(connection: ServerConnection, *numbers: int) -> list[Call]:
    """Send calls, and return those that may run."""
    events = connection.receive_data(b"".join(line("tools/call", number, name="t") for number in numbers))
    return [event.call for event in events]


def said(connection: ServerConnection) -> list[Any]:
    return [json.loads(each) for each in connection.messages_to_send()]


def test_requests_beyond_the_bound_wait_and_pings_and_cancellations_are_heard() -> None:
    connection = adding(max_running=2)
    first, second = begin(connection, 1, 2, 3, 4)
    assert begin(connection, 5) == []
    assert connection.accepting
    assert connection.receive_data(line("ping", 6)) == []
    assert [each["id"] for each in said(connection)] == [6]
    ended, begun = connection.receive_data(line("notifications/cancelled", requestId=1))
    assert (ended, type(begun), begun.call.request.id) == (CallCancelled(first), CallReady, 3)
    assert connection.receive_data(line("notifications/cancelled", requestId=4)) == []
    (after,) = connection.finish(second, "ok")
    assert after.call.request.id == 5  # 4 was cancelled before it began
    assert connection.finish(begun.call, "ok") == connection.finish(after.call, "ok") == []
    assert sorted(each["id"] for each in said(connection)) == [2, 3, 5]
    assert (connection.running, connection._held) == (0, None)


def test_a_request_that_waits_has_its_id() -> None:
    connection = adding(max_running=1)
    begin(connection, 1, 2, 2)
    (refused,) = said(connection)
    assert (refused["id"], refused["error"]["code"]) == (2, -32600)


def test_what_waits_is_bounded_and_further_requests_are_refused() -> None:
    connection = adding(max_running=1, max_held_bytes=2048)
    (running,) = begin(connection, 1, 2, 3, 4)
    (refused,) = said(connection)
    assert (refused["id"], refused["error"]["code"]) == (4, -32603)
    assert "max_held_bytes" in refused["error"]["message"]
    (second,) = connection.finish(running, "ok")
    assert begin(connection, 5) == []
    assert [each["id"] for each in said(connection)] == [1]
    assert second.call.request.id == 2


def test_the_size_of_a_request_counts() -> None:
    connection = adding(max_running=1, max_held_bytes=8000)
    begin(connection, 1)
    connection.receive_data(line("tools/call", 2, name="t", arguments={"x": "y" * 8000}))
    assert said(connection) == []
    begin(connection, 3)
    assert [each["id"] for each in said(connection)] == [3]


@pytest.mark.parametrize(("room", "waiting"), [(0, 1), (1, 2)])
def test_what_waits_may_fill_the_bound_exactly(room: int, waiting: int) -> None:
    size = len(line("tools/call", 2, name="t")) - 1 + 1024
    connection = adding(max_running=1, max_held_bytes=size + room)
    begin(connection, 1, 2, 3)
    assert (len(connection._held._sizes) if connection._held else 0) == waiting
    assert len(said(connection)) == 2 - waiting


def test_notifications_with_a_handler_wait_too_and_are_dropped_beyond_the_bound() -> None:
    connection = adding(max_running=1, max_held_bytes=1025)
    (running,) = [event.call for event in connection.receive_data(line("notifications/note") * 5)]
    chain = []
    while running is not None:
        chain.append(running)
        events = connection.finish(running, None)
        running = events[0].call if events else None
    assert len(chain) == 2
    assert said(connection) == []


def test_what_waits_is_cancelled_at_the_end_and_nothing_of_it_begins() -> None:
    connection = adding(max_running=1)
    (running,) = begin(connection, 1, 2, 3)
    connection.receive_data(line("notifications/note"))
    assert connection.close() == [CallCancelled(running)]
    assert running.request.cancel_reason == "the server is closing"
    assert connection._held is None
    assert said(connection) == []


async def ok() -> str:
    return "ok"


@pytest.mark.parametrize("max_workers", [0, 2])
@pytest.mark.parametrize("tool", [lambda: "ok", ok])
def test_a_long_row_of_waiting_calls_does_not_nest(max_workers: int, tool: Callable[[], object]) -> None:
    server = Server("row", limits=Limits(max_running=1))
    server.tool(name="t", inline=True)(tool)
    with MemoryTransport(server, max_workers=max_workers) as pipe:
        pipe.send(b"".join(line("tools/call", number, name="t") for number in range(3000)))
        got = b""
        while got.count(b"\n") < 3000:
            got += pipe.receive(30)
    assert {json.loads(each)["id"] for each in got.splitlines()} == set(range(3000))


def test_reports_that_pile_up_stop_the_reading() -> None:
    server = Server("slow hooks", limits=Limits(max_running=2), instrumentation_callback=lambda data: None)
    connection = server.connect()
    hooks = [event.call for number in range(4) for event in connection.receive_data(line("ping", number))]
    assert not connection.accepting
    connection.finish(hooks[0], hooks[0].run())
    assert connection.accepting
