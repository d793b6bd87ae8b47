"""A URL whose first answer takes longer than `probe`: both eras are asked side by side, and what answers first counts."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Sequence
from typing import Any

import pytest
from faces import FACES, outcome, wait_until

from linkspan import Connected, ConnectError, HttpError, Server, SyncClient, Timeouts
from over_http import serving
from raw_http import RawServer, Request, http, message

pytestmark = pytest.mark.timeout(60)
QUICK = Timeouts(connect=30.0, probe=0.3, close=0.5)
MODERN, LEGACY = "2026-07-28", "2025-11-25"
GREETED = {"protocolVersion": LEGACY, "capabilities": {}, "serverInfo": {"name": "raw", "version": "1"}}
DISCOVERED = {"resultType": "complete", "supportedVersions": [MODERN], "capabilities": {}, "_meta": {}}
SESSION = ["Mcp-Session-Id: late"]
BESIDE = object()
"""Stands for waiting until the handshake is asked for beside the probe."""


def server_of(discover: Sequence[Any], initialize: Sequence[Any]) -> RawServer:
    """Return a server that takes these steps for the two questions."""
    asked = threading.Event()

    def on_initialize(_: Request) -> Sequence[Any]:
        asked.set()
        return initialize

    steps = [(lambda _: asked.wait(30)) if each is BESIDE else each for each in discover]
    return RawServer({"server/discover": steps, "initialize": on_initialize})


def greeted() -> http:
    return http(200, message(GREETED), headers=SESSION)


@pytest.mark.parametrize("face", FACES)
@pytest.mark.parametrize(
    ("discover", "initialize", "agreed"),
    [
        ([BESIDE, 0.2, http(200, message(DISCOVERED))], [http(400, "no", "text/plain")], MODERN),
        ([BESIDE, http(200, message(DISCOVERED))], [3.0, greeted()], MODERN),
        ([BESIDE, http(400, "no", "text/plain")], [1.0, greeted()], LEGACY),
        ([3.0, http(400, "no", "text/plain")], [greeted()], LEGACY),
        ([30.0], [greeted()], LEGACY),
        ([30.0], [0.5, greeted()], LEGACY),
    ],
)
def test_what_answers_first_decides(face: str, discover: Any, initialize: Any, agreed: str) -> None:
    seen: list[Any] = []
    with server_of(discover, initialize) as server:
        began = time.monotonic()
        step = lambda client: client.call_tool("hi")  # noqa: E731
        assert outcome(face, server.url, step, timeouts=QUICK, on_event=seen.append).text == "hi"
        assert time.monotonic() - began < 25.0
        assert server.methods().count("initialize") == 1
    assert [each.revision for each in seen if isinstance(each, Connected)] == [agreed]


def test_the_session_of_a_handshake_that_came_too_late_is_ended() -> None:
    steps = [BESIDE, http(200, message(DISCOVERED))], [2.0, greeted()]
    with server_of(*steps) as server, SyncClient(server.url, timeouts=QUICK) as client:
        assert client.protocol_version == MODERN
        assert client.call_tool("hi").text == "hi"
        wait_until(lambda: "DELETE" in server.methods())
        ended = next(each for each in server.requests if each.verb == "DELETE")
        assert ended.headers["mcp-session-id"] == "late"
        calls = [each for each in server.requests if each.json.get("method") == "tools/call"]
        assert not any("mcp-session-id" in each.headers for each in calls)


def test_a_session_whose_number_came_before_the_modern_answer_is_ended_too() -> None:
    head, *_ = greeted().encode(b"$ID").partition(b"\r\n\r\n")
    half = [head.replace(b"Content-Length: ", b"Content-Length: 1") + b"\r\n\r\n", 5.0]
    with (
        server_of([BESIDE, 0.5, http(200, message(DISCOVERED))], half) as server,
        SyncClient(server.url, timeouts=QUICK) as client,
    ):
        assert client.protocol_version == MODERN
        wait_until(lambda: "DELETE" in server.methods())
        assert client.call_tool("hi").text == "hi"
    assert server.methods().count("DELETE") == 1


def test_a_server_that_is_quick_is_greeted_in_one_way_only() -> None:
    with RawServer() as server, SyncClient(server.url, timeouts=Timeouts(probe=3.0)) as client:
        client.call_tool("hi")
        time.sleep(3.2)
        assert "initialize" not in server.methods()


def test_a_server_that_was_modern_is_not_demoted_because_it_is_slow() -> None:
    """ERA-7."""
    with RawServer() as server, SyncClient(server.url, timeouts=QUICK) as client:
        assert client.protocol_version == MODERN
        client.close()
        server.requests.clear()  # a busy machine may have asked for a handshake before it knew
        server.plan(server_discover=[1.0, http(200, message(DISCOVERED))])
        client.connect()
        assert client.protocol_version == MODERN
        assert "initialize" not in server.methods()


@pytest.mark.parametrize(("era", "asked"), [("modern", "server/discover"), ("legacy", "initialize")])
def test_a_client_that_is_told_its_era_asks_in_one_way_only(era: Any, asked: str) -> None:
    slow = {"server/discover": [1.0, http(200, message(DISCOVERED))], "initialize": [1.0, greeted()]}
    with RawServer(slow) as server, SyncClient(server.url, era=era, timeouts=QUICK) as client:
        client.call_tool("hi")
        assert {*server.methods()} & {"server/discover", "initialize"} == {asked}


def test_both_ways_share_the_time_to_connect() -> None:
    with RawServer({"server/discover": [30.0], "initialize": [30.0]}) as server:
        began = time.monotonic()
        with pytest.raises(
            ConnectError,
            match=r"the server answered neither a probe nor a handshake within 4 s \(timeouts.connect\)",
        ):
            SyncClient(server.url, timeouts=Timeouts(connect=4.0, probe=0.3)).connect()
        assert 3.9 < time.monotonic() - began < 25.0
        assert sorted(server.methods()) == ["initialize", "server/discover"]


def test_a_slow_refusal_says_nothing_about_the_era() -> None:
    plan = {"server/discover": [1.0, http(401)], "initialize": [5.0]}
    with RawServer(plan) as server, pytest.raises(HttpError) as caught:
        SyncClient(server.url, timeouts=QUICK).connect()
    assert caught.value.status == 401


def test_our_own_server_forgets_the_session_that_lost() -> None:
    app = Server("slow").asgi(path="/mcp")
    sessions: list[Any] = []

    asked, answered = asyncio.Event(), asyncio.Event()

    async def slowly(scope: Any, receive: Any, send: Any) -> None:
        headers = {name.decode(): value.decode() for name, value in scope.get("headers", ())}
        if scope["type"] == "http" and scope["method"] == "DELETE":

            async def watched(event: Any) -> None:
                if event["type"] == "http.response.start":
                    sessions.append((headers.get("mcp-session-id"), event["status"]))
                await send(event)

            await app(scope, receive, watched)
            return
        is_modern = "mcp-method" in headers
        if scope["type"] == "http" and is_modern:
            await asked.wait()
        elif scope["type"] == "http":
            asked.set()
            await answered.wait()
            await asyncio.sleep(1.0)
        await app(scope, receive, send)
        if is_modern:
            answered.set()

    with serving(slowly) as url, SyncClient(url, timeouts=QUICK) as client:
        assert client.protocol_version == MODERN
        wait_until(lambda: sessions)
    ((session_id, status),) = sessions
    assert session_id
    assert status in (200, 202, 204)
