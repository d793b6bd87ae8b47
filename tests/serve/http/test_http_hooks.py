"""Code of the author over HTTP: a slow hook delays its own request, and neither the event loop nor another request."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
from http_faces import PATIENCE, Face, OnALoop, run
from http_talk import Session, call, modern
from http_world import World

from linkspan import Context, Server
from linkspan.runtime.system import SYSTEM


class Slow:
    """A hook that takes until a test lets it go."""

    def __init__(self) -> None:
        self.begun = threading.Event()
        self.go_on = threading.Event()
        self.done = threading.Event()

    def __call__(self, *_: object) -> Any:
        self.begun.set()
        assert self.go_on.wait(PATIENCE)
        self.done.set()
        return {}


@pytest.fixture
def slow() -> Slow:
    return Slow()


def serving(**hooks: Any) -> Server:
    server = Server("hooked", **hooks)

    @server.tool
    async def with_context(ctx: Context) -> str:
        return "x"

    @server.tool
    async def failing() -> str:
        raise ValueError("x")

    @server.tool(inline=True)
    def quick() -> str:
        return "x"

    return server


def test_a_slow_server_context_of_an_async_tool_holds_no_other_call(on_a_loop: OnALoop, slow: Slow) -> None:
    # Each call needs one, once any handler of the process has asked for the current context: only the first is slow.
    face = on_a_loop(serving(server_context=lambda *_: {} if slow.begun.is_set() else slow()))
    first = call(face, "with_context")
    assert slow.begun.wait(PATIENCE)
    assert call(face, "quick").whole().status == 200
    assert not slow.done.is_set()
    slow.go_on.set()
    assert first.json()["result"]["content"][0]["text"] == "x"


def test_a_slow_reporter_holds_no_other_call(on_a_loop: OnALoop, slow: Slow) -> None:
    face = on_a_loop(serving(exception_reporter=slow))
    assert call(face, "failing").json()["result"]["isError"] is True
    assert slow.begun.wait(PATIENCE)
    assert call(face, "quick").whole().status == 200
    slow.go_on.set()
    assert slow.done.wait(PATIENCE)


@pytest.mark.parametrize("method", ["ping", "tools/list", "tools/call", "initialize", "no/such"])
def test_slow_instrumentation_holds_no_other_request_of_its_session(method: str, on_a_loop: OnALoop) -> None:
    heard: list[str] = []
    slow = Slow()

    def hear(data: Any) -> None:
        heard.append(data["method"])
        if len(heard) > 1:
            slow()

    session = Session(on_a_loop(serving(instrumentation_callback=hear)))
    params = {"name": "quick", "arguments": {}} if method == "tools/call" else {}
    first = session.send(method, params, number=1)
    assert slow.begun.wait(PATIENCE)
    if method in ("ping", "no/such", "initialize"):
        assert first.whole().status == 200  # what needs no code of the author is answered first
    assert session.send("notifications/cancelled", {"requestId": 99}).whole().status == 202
    assert session.send("ping", number=2).whole().status == 200
    slow.go_on.set()
    assert first.whole().status == 200


def test_hooks_of_requests_that_are_answered_take_room_until_they_end(on_a_loop: OnALoop, slow: Slow) -> None:
    face = on_a_loop(serving(instrumentation_callback=slow), max_streams=1)
    assert modern(face, "server/discover").whole().status == 200
    assert modern(face, "server/discover").whole().status == 503
    slow.go_on.set()
    face.until(lambda: modern(face, "server/discover").whole().status == 200)


def test_the_question_that_nobody_answers_is_observed_when_its_time_is_over(bare: Callable[..., Any]) -> None:
    heard: list[Any] = []
    world = World(instrumentation_callback=heard.append)
    face: Any = bare(world.server)
    session = Session(face, capabilities={"elicitation": {}})
    stream = session.call("book", {"date": "today"})
    assert stream.message()["method"] == "elicitation/create"
    heard.clear()
    for connection, events in face.endpoint.tick(SYSTEM.clock() + 601):
        run(connection, events)
    assert [each["method"] for each in heard] == ["tools/call"]


@pytest.mark.parametrize("era", ["modern", "session"])
def test_every_request_is_observed_once(era: str, serve: Callable[..., Face]) -> None:
    heard: list[str] = []
    face = serve(serving(instrumentation_callback=lambda data: heard.append(data["method"])))
    opened = Session(face) if era == "session" else None
    for method in ("tools/list", "no/such", "tools/call"):
        params = {"name": "with_context", "arguments": {}} if method == "tools/call" else {}
        live = opened.send(method, params, number=method) if opened is not None else modern(face, method, params)
        live.whole()
    wanted = (["initialize"] if era == "session" else []) + ["tools/call", "tools/list", "unsupported_method"]
    deadline = threading.Event()
    for _ in range(500):
        if len(heard) == len(wanted):
            break
        deadline.wait(0.01)
    assert sorted(heard) == wanted
