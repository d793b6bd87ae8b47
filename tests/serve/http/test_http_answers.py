"""How a modern request is answered: JSON or a stream, comments, disconnects, listening, and the bounds on all of it.

H5-3, H5-5, H5-6, H5-7, H5-10, SUB-1 to SUB-10.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import pytest
from http_faces import Bare, Face, OnALoop
from http_talk import BOTH, PREFIX, Session, body, call, mirror, modern, text_of
from http_world import World

from linkspan import Server
from linkspan.core.http_exchange import HttpResponse, ServerExchange
from linkspan.errors import INVALID_PARAMS, METHOD_NOT_FOUND, MISSING_CLIENT_CAPABILITY

Serve = Callable[..., Face]
WHICH = ["", "_async"]


# JSON or a stream.


def test_nothing_comes_after_an_answer_that_was_given_while_a_comment_was_due() -> None:
    class ResponseReceived(AbstractContextManager[None]):
        """A lock that another thread holds to answer, while we wait for it."""

        def __init__(self) -> None:
            self.waited = False

        def __enter__(self) -> None:
            if not self.waited:
                self.waited = True
                exchange.message(b"{}", final=True)

        def __exit__(self, *_: object) -> None:
            pass

    exchange = ServerExchange(now=0.0, lock=ResponseReceived())
    exchange.keep_alive(60.0, silence=15.0)
    assert exchange.events() == [HttpResponse(200, (("content-type", "application/json"),), b"{}")]


@pytest.mark.parametrize("which", WHICH)
def test_an_answer_that_comes_first_is_json(which: str, serve: Serve) -> None:
    answer = call(serve(World().server), f"add{which}", {"a": 1, "b": 2}).whole()
    assert (answer.status, answer.kind) == (200, "application/json")
    assert answer.headers["content-length"] == str(len(answer.body))
    assert text_of(answer.json()) == "3"


@pytest.mark.parametrize("which", WHICH)
def test_what_comes_before_the_answer_makes_a_stream(which: str, serve: Serve) -> None:
    answer = call(serve(World().server), f"count{which}", {"to": 3}, token="t").whole()
    assert (answer.status, answer.kind) == (200, "text/event-stream")
    assert answer.headers["x-accel-buffering"] == "no"
    assert answer.headers["cache-control"] == "no-cache, no-transform"
    assert "content-length" not in answer.headers
    messages = answer.messages()
    assert [each["params"] for each in messages[:-1]] == [
        {"progressToken": "t", "progress": n, "total": 3} for n in (1, 2, 3)
    ]
    assert text_of(messages[-1]) == "done"
    assert b"id: " not in answer.body  # nobody can come back to it
    assert b"retry: " not in answer.body


@pytest.mark.parametrize("which", WHICH)
def test_who_accepts_only_json_gets_only_the_answer(which: str, serve: Serve) -> None:
    request = body("tools/call", {"name": f"count{which}", "arguments": {"to": 3}}, token="t")
    answer = serve(World().server).ask("POST", mirror(request, accept="application/json"), request)
    assert (answer.kind, text_of(answer.json())) == ("application/json", "done")


def test_who_accepts_only_streams_gets_one(serve: Serve) -> None:
    request = body("tools/call", {"name": "add", "arguments": {"a": 1, "b": 2}})
    answer = serve(World().server).ask("POST", mirror(request, accept="text/event-stream"), request)
    assert answer.kind == "text/event-stream"
    assert [text_of(each) for each in answer.messages()] == ["3"]


STATUSES: dict[str, tuple[str, dict[str, Any], int, int | None]] = {
    "wrong arguments": ("tools/call", {"name": "add", "arguments": {"a": "x"}}, 200, None),
    "a tool that fails": ("tools/call", {"name": "fail", "arguments": {"how": "badly"}}, 200, None),
    "a tool that refuses": ("tools/call", {"name": "fail", "arguments": {"how": "politely"}}, 200, None),
    "a tool that wants to exit": ("tools/call", {"name": "fail", "arguments": {"how": "exit"}}, 200, None),
    "no such tool": ("tools/call", {"name": "nobody", "arguments": {}}, 200, INVALID_PARAMS),
    "no such resource": ("resources/read", {"uri": "note://nothing"}, 200, INVALID_PARAMS),
    "no such prompt": ("prompts/get", {"name": "nobody"}, 200, INVALID_PARAMS),
    "a wrong cursor": ("tools/list", {"cursor": "?"}, 200, INVALID_PARAMS),
    "no such method": ("acme/unknown", {}, 404, METHOD_NOT_FOUND),
    "not advertised": (
        "completion/complete",
        {"ref": {"type": "ref/prompt", "name": "greet"}, "argument": {"name": "name", "value": "x"}},
        404,
        METHOD_NOT_FOUND,
    ),
    "what the client cannot do": (
        "tools/call",
        {"name": "book", "arguments": {"date": "today"}},
        400,
        MISSING_CLIENT_CAPABILITY,
    ),
}


@pytest.mark.parametrize("name", STATUSES)
def test_the_status_says_what_routers_need_to_know(name: str, serve: Serve) -> None:
    method, params, status, code = STATUSES[name]
    answer = modern(serve(World().server), method, params).whole()
    assert (answer.status, answer.code) == (status, code), answer.body
    assert b"hunter2" not in answer.body


def test_a_question_is_a_result_that_any_process_can_go_on_with(serve: Serve) -> None:
    params = {"name": "book", "arguments": {"date": "today"}}
    able: dict[str, Any] = {"clientCapabilities": {"elicitation": {}}}
    first = modern(serve(World().server), "tools/call", params, **able).json()["result"]
    assert first["resultType"] == "input_required"
    (key,) = first["inputRequests"]
    answers = {key: {"action": "accept", "content": {"seats": 4}}}
    more = {"inputResponses": answers, "requestState": first["requestState"]}
    second = modern(serve(World().server), "tools/call", params | more, **able).json()
    assert text_of(second) == "4 seats on today"


# Time.


def test_a_quiet_stream_gets_a_comment_and_a_quiet_call_becomes_a_stream(bare: Callable[..., Bare]) -> None:
    face = bare(World().server, silence=15)
    listening = modern(face, "subscriptions/listen", {"notifications": {"toolsListChanged": True}})
    listening.message()
    face.tick(14)
    assert listening.waiting
    face.tick(1)
    listening._take()
    assert listening.body.endswith(b":\r\n\r\n")
    face.tick(14)
    assert listening.waiting


# Going away.


@pytest.mark.parametrize("tool", ["hold", "hold_async", "tell_then_hold", "tell_then_hold_async"])
def test_who_goes_away_cancels_what_was_asked(tool: str, on_a_loop: OnALoop) -> None:
    world = World()
    face = on_a_loop(world.server)
    live = call(face, tool, token="t")
    world.wait_for("holding")
    live.close()
    world.wait_for("cancelled")
    assert call(face, "add", {"a": 1, "b": 2}).whole().status == 200
    assert len(face.endpoint.streams) == 0


def test_a_function_that_waited_for_something_cancelled_has_failed_and_is_answered(serve: Serve) -> None:
    server = Server("waiting")

    @server.tool
    async def wait() -> str:
        other = asyncio.get_running_loop().create_future()
        other.cancel()
        await other
        return "never"

    answer = call(serve(server), "wait").whole()
    assert (answer.status, answer.json()["result"]["isError"]) == (200, True)


def test_nobody_can_cancel_the_request_of_another(serve: Serve) -> None:
    """CAN-3, SEC-24."""
    world = World()
    face = serve(world.server)
    if isinstance(face, Bare):
        pytest.skip("the bare machine runs a call before it returns, so nothing can come in between")
    live = call(face, "hold", number=7)
    world.wait_for("holding")
    message = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 7}}
    assert face.ask("POST", mirror(body("x")) | {"mcp-method": "notifications/cancelled"}, message).status == 202
    assert call(face, "add", {"a": 1, "b": 2}, number=7).whole().status == 200
    world.let_go.set()
    assert text_of(live.json()) == "held"


# Listening.

ALL = {"toolsListChanged": True, "promptsListChanged": True, "resourcesListChanged": True}


def test_a_stream_begins_with_what_was_granted_and_tags_all_it_says(serve: Serve) -> None:
    world = World()
    face = serve(world.server)
    live = modern(face, "subscriptions/listen", {"notifications": ALL}, "s-1")
    tag = {PREFIX + "subscriptionId": "s-1"}
    assert live.message() == {
        "jsonrpc": "2.0",
        "method": "notifications/subscriptions/acknowledged",
        "params": {"notifications": ALL, "_meta": tag},
    }
    assert (live.status, live.kind, live.headers["x-accel-buffering"]) == (200, "text/event-stream", "no")
    world.server.notify_tools_list_changed()
    assert live.message() == {
        "jsonrpc": "2.0",
        "method": "notifications/tools/list_changed",
        "params": {"_meta": tag},
    }
    live.close()


def test_streams_hear_only_what_they_asked_for(serve: Serve) -> None:
    world = World()
    face = serve(world.server)
    prompts = modern(face, "subscriptions/listen", {"notifications": {"promptsListChanged": True}}, 1)
    tools = modern(face, "subscriptions/listen", {"notifications": {"toolsListChanged": True}}, 1)
    nothing = modern(face, "subscriptions/listen", {"notifications": {}}, 1)
    assert prompts.message()["params"]["notifications"] == {"promptsListChanged": True}
    assert tools.message()["params"]["notifications"] == {"toolsListChanged": True}
    assert nothing.message()["params"]["notifications"] == {}
    world.server.notify_tools_list_changed()
    world.server.notify_prompts_list_changed()
    assert tools.message()["method"] == "notifications/tools/list_changed"
    assert prompts.message()["method"] == "notifications/prompts/list_changed"
    assert nothing.waiting
    for live in (prompts, tools, nothing):
        live.close()


def test_a_server_that_stops_says_goodbye_on_every_stream(serve: Serve) -> None:
    """SUB-8."""
    face = serve(World().server)
    lives = [modern(face, "subscriptions/listen", {"notifications": ALL}, n) for n in range(3)]
    for live in lives:
        live.message()
    for each in face.endpoints:
        each.drain()
    for n, live in enumerate(lives):
        (goodbye,) = live.messages()
        assert goodbye["id"] == n
        assert goodbye["result"]["resultType"] == "complete"
        assert goodbye["result"]["_meta"][PREFIX + "subscriptionId"] == n


def test_a_server_with_nothing_to_announce_has_no_streams(serve: Serve) -> None:
    """SUB-11."""
    answer = modern(
        serve(Server("quiet", "1", capabilities={"tools": None})), "subscriptions/listen", {"notifications": ALL}
    ).whole()
    assert (answer.status, answer.code) == (404, METHOD_NOT_FOUND)


def test_listeners_that_went_are_forgotten(on_a_loop: OnALoop) -> None:
    world = World()
    face = on_a_loop(world.server)
    lives = [modern(face, "subscriptions/listen", {"notifications": ALL}, n) for n in range(20)]
    for live in lives:
        live.message()
    assert len(face.endpoint.streams) == 20
    for live in lives:
        live.close()
    face.until(lambda: len(face.endpoint.streams) == 0)
    world.server.notify_tools_list_changed()


# Bounds.


def test_max_streams(serve_one: Serve) -> None:
    face = serve_one(World().server, max_streams=2)
    lives = [modern(face, "subscriptions/listen", {"notifications": ALL}, n) for n in range(2)]
    for live in lives:
        live.message()
    refused = modern(face, "subscriptions/listen", {"notifications": ALL}).whole()
    assert (refused.status, refused.headers["retry-after"]) == (503, "5")
    assert "max_streams" in refused.json()["error"]["message"]
    if not isinstance(face, Bare):  # there is nobody to send its goodbye
        face.endpoint.drain()
        for live in lives:
            live.whole()
        assert call(face, "add", {"a": 1, "b": 2}).whole().status == 200


def test_max_streams_counts_get_streams(serve_one: Serve) -> None:
    face = serve_one(World().server, max_streams=1)
    first, second = Session(face), Session(face)
    live = first.get().begin()
    refused = second.get().whole()
    assert (refused.status, refused.headers["retry-after"]) == (503, "5")
    assert "max_streams" in refused.json()["error"]["message"]
    face.endpoint.drain()
    live.whole()
    face.until(lambda: not len(face.endpoint.streams))
    second.get().begin().close()


def test_max_unsent_bytes_ends_the_stream_of_who_does_not_read(on_a_loop: OnALoop) -> None:
    world = World()
    face = on_a_loop(world.server, max_unsent_bytes=100_000, send_timeout=600.0)  # that would end it, too
    face.reads = False
    call(face, "flood", {"parts": 1_000_000_000, "size": 10_000}, token="t")
    world.wait_for("cancelled")
    face.until(lambda: len(face.endpoint.streams) == 0)


def test_send_timeout_ends_the_stream_of_who_does_not_read(on_a_loop: OnALoop) -> None:
    world = World()
    face = on_a_loop(world.server, send_timeout=0.05)
    face.reads = False
    call(face, "tell_then_hold_async", token="t")
    world.wait_for("cancelled")
    face.until(lambda: len(face.endpoint.streams) == 0)


# What handlers see.

marked: contextvars.ContextVar[str] = contextvars.ContextVar("marked")


@pytest.mark.parametrize("which", WHICH)
def test_handlers_see_headers_principal_and_context(which: str, serve: Serve) -> None:
    world = World(server_context=lambda _: {"tenant": "acme"})
    request = body("tools/call", {"name": f"facts{which}", "arguments": {}})
    answer = serve(world.server).ask("POST", mirror(request) | {"X-Probe": " seen "}, request, principal="mia")
    found = answer.json()["result"]["structuredContent"]
    assert (found["probe"], found["principal"], found["client"]) == ("seen", "mia", "test")
    assert found["context"] == {"tenant": "acme"}


@pytest.mark.parametrize("which", WHICH)
def test_handlers_see_none_of_these_without_http(which: str) -> None:
    world = World(server_context=lambda _: {"tenant": "acme"})
    request = body("tools/call", {"name": f"facts{which}", "arguments": {}})
    found = world.server.handle(request)["result"]["structuredContent"]
    assert (found["probe"], found["principal"], found["context"]) == (None, None, {"tenant": "acme"})


def test_answers_have_no_session(serve: Serve) -> None:
    """H5-9."""
    request = body("tools/list")
    answer = serve(World().server).ask("POST", mirror(request) | {"mcp-session-id": "x" * 32, "accept": BOTH}, request)
    assert answer.status == 200
    assert "mcp-session-id" not in answer.headers
