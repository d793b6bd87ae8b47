"""One HTTP response as a machine, without a server and without a face: JSON or a stream, and how each begins and ends."""

from __future__ import annotations

import sys
from collections.abc import Callable
from itertools import count
from types import FrameType, SimpleNamespace
from typing import Any

import pytest

from linkspan.core.http_exchange import HttpData, HttpEnd, HttpResponse, HttpStart, ServerExchange
from linkspan.wire.framing import COMMENT, encode_event

NOW = 1000.0
PROGRESS = b'{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":1}}'
RESULT = b'{"jsonrpc":"2.0","id":1,"result":{}}'
CHANGED = b'{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}'
STREAM = {"content-type": "text/event-stream", "cache-control": "no-cache, no-transform", "x-accel-buffering": "no"}


def started(exchange: ServerExchange) -> list[object]:
    """Let a stream begin; return what comes after its head."""
    exchange.message(PROGRESS, final=False)
    start, *rest = exchange.events()
    assert isinstance(start, HttpStart)
    assert (start.status, dict(start.headers)) == (200, STREAM)
    return list(rest)


def test_an_answer_that_comes_first_is_json() -> None:
    """H5-2."""
    exchange = ServerExchange(now=NOW)
    exchange.message(RESULT, final=True)
    response = HttpResponse(200, (("content-type", "application/json"),), RESULT)
    assert (exchange.response, exchange.events()) == (response, [response])
    assert exchange.events() == []


def test_anything_before_the_answer_makes_it_a_stream() -> None:
    exchange = ServerExchange(now=NOW)
    assert started(exchange) == [HttpData(encode_event(PROGRESS))]
    exchange.message(RESULT, final=True)
    assert exchange.events() == [HttpData(encode_event(RESULT)), HttpEnd()]


@pytest.mark.parametrize(
    "send",
    [
        lambda exchange: exchange.open_events(),
        lambda exchange: exchange.send_events([encode_event(CHANGED)]),
        lambda exchange: exchange.message(PROGRESS, final=False),
        lambda exchange: exchange.message(RESULT, final=True),
        lambda exchange: exchange.end(),
        lambda exchange: exchange.keep_alive(NOW + 99, silence=15.0),
    ],
    ids=["opening", "events", "message", "answer", "end", "comment"],
)
def test_who_writes_is_woken_by_whatever_there_is_to_write(send: Callable[[ServerExchange], object]) -> None:
    exchange, woken = ServerExchange(now=NOW), list[bool]()
    exchange.attach(lambda: woken.append(True))
    send(exchange)
    assert exchange.events()
    assert woken == [True]


def test_a_client_that_takes_no_events_gets_the_answer_alone() -> None:
    exchange = ServerExchange(now=NOW, accept="application/json")
    exchange.message(PROGRESS, final=False)
    assert exchange.events() == []
    exchange.message(RESULT, final=True)
    assert [type(each) for each in exchange.events()] == [HttpResponse]


@pytest.mark.parametrize(("seconds", "says"), [(14.9, False), (15.0, True), (15.1, True)])
def test_silence_is_broken_at_its_bound(seconds: float, says: bool) -> None:
    exchange = ServerExchange(now=NOW)
    exchange.keep_alive(NOW + seconds, silence=15.0)
    assert [type(each) for each in exchange.events()] == ([HttpStart, HttpData] if says else [])
    exchange.keep_alive(NOW + seconds + 14.0, silence=15.0)
    assert bool(exchange.events()) is (not says)


def test_a_stream_that_begins_with_silence_says_first_where_to_go_on() -> None:
    stream: Any = SimpleNamespace(headers=(), opening=lambda: b"id: 1-0\r\n\r\n")
    exchange = ServerExchange(now=NOW, stream=stream)
    exchange.keep_alive(NOW + 99, silence=15.0)
    assert list(exchange.events())[1:] == [HttpData(stream.opening()), HttpData(COMMENT)]


def test_a_comment_goes_to_nobody_who_takes_no_events_or_has_the_answer() -> None:
    for exchange in (ServerExchange(now=NOW, accept="application/json"), ServerExchange(now=NOW).respond(202)):
        exchange.events()
        exchange.keep_alive(NOW + 99, silence=15.0)
        assert exchange.events() == []
    open_stream = ServerExchange(now=NOW)
    started(open_stream)
    open_stream.keep_alive(NOW + 99, silence=15.0)
    assert open_stream.events() == [HttpData(COMMENT)]


def test_a_stream_that_ends_says_so_once_and_is_told_no_more() -> None:
    exchange = ServerExchange(now=NOW)
    started(exchange)
    exchange.end()
    exchange.end()
    exchange.message(RESULT, final=True)
    assert exchange.events() == [HttpEnd()]
    assert exchange.ended


def test_a_request_that_ends_without_an_answer_is_accepted() -> None:
    """H5-3."""
    exchange = ServerExchange(now=NOW)
    exchange.end()
    assert exchange.events() == [HttpResponse(202)]


def test_a_reader_who_does_not_read_is_given_no_more_than_the_bound() -> None:
    exchange = ServerExchange(now=NOW, bound=1000)
    for _ in range(50):
        exchange.message(PROGRESS, final=False)
    assert exchange.overrun
    waiting = sum(len(each.data) for each in exchange.events() if isinstance(each, HttpData))
    assert 1000 < waiting <= 1000 + len(encode_event(PROGRESS))


def test_an_unread_change_is_said_once() -> None:
    exchange = ServerExchange(now=NOW)
    for _ in range(3):
        exchange.message(CHANGED, final=False)
    assert len(exchange.events()) == 2
    exchange.message(CHANGED, final=False)
    assert exchange.events() == [HttpData(encode_event(CHANGED))]


def test_every_output_wakes_the_driver_until_it_is_released() -> None:
    exchange, woken = ServerExchange(now=NOW), []
    exchange.attach(lambda: woken.append(1))
    exchange.message(PROGRESS, final=False)
    exchange.send_events([b"data: x\n\n"])
    exchange.keep_alive(NOW + 99, silence=15.0)
    assert len(woken) == 3
    exchange.release()
    exchange.end()
    assert len(woken) == 3


def test_the_driver_may_let_go_at_any_step_of_a_thread_that_sends() -> None:
    """The thread that sends a response lets go of it while the one that answered may still be on its way out."""
    for step in range(100):
        exchange = ServerExchange(now=NOW)
        exchange.attach(lambda: None)
        lines = count(step)

        def trace(frame: FrameType, event: str, _: object, exchange: Any = exchange, lines: Any = lines) -> Any:
            if event == "line" and next(lines) == 99:
                exchange.release()
            return trace

        before = sys.gettrace()
        sys.settrace(trace)
        try:
            exchange.message(RESULT, final=True)
        finally:
            sys.settrace(before)
        assert exchange.ended
