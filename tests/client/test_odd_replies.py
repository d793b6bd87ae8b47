"""What a client's HTTP transport makes of URLs, sockets and loops that are not good any more, without a server."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections import deque
from types import SimpleNamespace
from typing import Any

import pytest

from linkspan.client.transports.base import CallbackWaiter, LoopWaiter, deliver
from linkspan.client.transports.http import HttpClientTransport
from linkspan.client.transports.http_connections import Routes
from linkspan.client.transports.http_guarded import _onward
from linkspan.client.transports.http_loops import LoopConnection
from linkspan.client.transports.http_requests import HttpFailure, HttpFlow, may_send_to
from linkspan.client.transports.http_runs import HttpRuns
from linkspan.client.transports.http_streams import _LEAST_PAUSE, _PAUSE, OwnStream, StreamEnd
from linkspan.client.transports.http_threads import ThreadConnection, ThreadPool
from linkspan.core.flow import Sleep

URL = "https://shop.example/mcp"


@pytest.mark.parametrize("target", ["https://[", "https://shop.example:port/", "https://shop.example:99999/mcp"])
def test_a_url_that_is_none_is_not_sent_to(target: str) -> None:
    assert not may_send_to(target, URL)
    assert not may_send_to(URL, target)
    reply: Any = SimpleNamespace(status=307, headers={"location": target})
    assert _onward(URL, reply) is None


def test_who_waits_on_a_loop_that_is_closed_keeps_nothing_from_others() -> None:
    loop, heard = asyncio.new_event_loop(), list[object]()
    loop.close()
    gone = LoopWaiter(loop, items=[])
    deliver([(gone, "a"), (gone, "b"), (CallbackWaiter(heard.append), "c"), (LoopWaiter(loop, items=[]), "d")])
    assert heard == ["c"]
    assert gone.items == []


def test_a_connection_that_was_closed_below_us_fails_its_request() -> None:
    ours, theirs = socket.socketpair()
    connection = ThreadConnection(ours, "key")
    theirs.close()
    ours.close()
    connection.send(b"POST / HTTP/1.1\r\n\r\n", None)
    assert connection.failure is not None


class Raced(deque[Any]):
    """Idle connections of which another thread takes the last one."""

    def pop(self) -> Any:
        self.clear()
        return super().pop()


def test_a_connection_that_another_thread_takes_first_is_not_there() -> None:
    route: Any = SimpleNamespace(key="key")
    pool = ThreadPool(SimpleNamespace())  # type: ignore[arg-type]
    pool._idle["key"] = Raced([object()])
    assert pool.idle(route) is None


def farewell(goes_on: threading.Event, ended: list[bool]) -> HttpFlow[None]:
    ended.append(goes_on.wait(5))
    return
    yield


@pytest.mark.parametrize("threads", [True, False])
def test_a_farewell_is_said_in_a_thread_and_where_there_is_none_at_once(
    threads: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread at interpreter shutdown")

    goes_on, ended = threading.Event(), list[bool]()
    runs = HttpRuns(Routes(None, 5.0), threading.RLock())
    if not threads:
        goes_on.set()
        monkeypatch.setattr(threading.Thread, "start", refuse)
    runs.close(farewell(goes_on, ended), 10.0)
    goes_on.set()
    runs.wait_until_closed(60)
    assert ended == [True], "it holds up nobody"


def test_without_a_farewell_all_is_closed_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threading, "Thread", None)
    runs = HttpRuns(Routes(None, 5.0), threading.RLock())
    runs.close(None, 10.0)
    assert runs._closed.is_set()


@pytest.mark.parametrize(("arrived", "tries"), [(False, 3), (True, 1)])
def test_what_gets_no_answer_is_sent_again_only_if_it_cannot_have_arrived(arrived: bool, tries: int) -> None:
    sent = list[object]()

    def post(message: object) -> HttpFlow[None]:
        sent.append(message)
        raise HttpFailure("refused", sent=arrived)
        yield

    transport: Any = SimpleNamespace(_post=post, state=SimpleNamespace(random=lambda: 0.5))
    pauses = list(HttpClientTransport._notify_again(transport, "message"))  # type: ignore[arg-type]
    assert (len(sent), len(pauses)) == (tries, tries - 1)


def test_a_connection_of_a_loop_that_is_closed_is_forgotten() -> None:
    pool: Any = SimpleNamespace(connections=set())
    connection = LoopConnection(pool, "key")
    pool.connections.add(connection)
    connection.close()
    assert pool.connections == set()


@pytest.mark.parametrize(("retry", "pause"), [(None, _PAUSE), (0.0, _LEAST_PAUSE), (0.01, _LEAST_PAUSE), (3.0, 3.0)])
def test_a_stream_is_opened_again_when_its_server_wants_us_back(retry: float | None, pause: float) -> None:
    reply = SimpleNamespace(status=200, headers={"content-type": "text/event-stream"}, give_back=lambda: None)

    def yields(found: object) -> HttpFlow[object]:
        return found
        yield

    streams: Any = SimpleNamespace(
        get=lambda _: yields(reply), read=lambda *_: yields(StreamEnd(last_id="1", retry=retry))
    )
    state: Any = SimpleNamespace(origin=None, random=lambda: 0.5)
    slept = next(OwnStream(streams, state, lambda _: None).keep_open())
    assert isinstance(slept, Sleep)
    assert slept.seconds == pause
