"""Over HTTP: streams that come back, sessions that are forgotten, servers that are busy or restart, eras that are remembered."""

from __future__ import annotations

import asyncio
import gc
import itertools
import queue
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from faces import ERAS, FACES, outcome, wait_until

from linkspan import (
    CallTimeout,
    Change,
    Client,
    Connected,
    ConnectionLost,
    Disconnected,
    HttpError,
    InvalidResponse,
    Server,
    StateLost,
    StreamRestored,
    SyncClient,
    Timeouts,
)
from linkspan.client.transports import http as http_transport
from linkspan.client.transports.http import HttpClientTransport
from over_http import serving
from raw_http import CUT, END, RawServer, event, http, message, sse

pytestmark = pytest.mark.timeout(60)
BRIEF = Timeouts(close=0.2)
TAG = "io.modelcontextprotocol/subscriptionId"


def note(method: str, **params: Any) -> bytes:
    text = message(id=None, method=f"notifications/{method}", params=params).replace('"id": null, ', "")
    return event(text)


def tagged(method: str) -> bytes:
    return note(method, _meta={TAG: "$ID"})


ACKNOWLEDGED, TOOLS_CHANGED = tagged("subscriptions/acknowledged"), tagged("tools/list_changed")


def in_turn(*plans: Any) -> Callable[[Any], Any]:
    """Return steps that differ each time; the last ones stay."""
    left = list(plans)
    return lambda _: left.pop(0) if len(left) > 1 else left[0]


# Listening, in the modern era (CLI-10).


def test_a_subscription_whose_stream_is_cut_is_asked_for_again() -> None:
    events: queue.Queue[Any] = queue.Queue()
    again = in_turn(
        [*sse(ACKNOWLEDGED, TOOLS_CHANGED), CUT],
        [http(502)],
        [CUT],
        [*sse(ACKNOWLEDGED, TOOLS_CHANGED), 60.0],
    )
    with RawServer({"subscriptions/listen": again}) as server, SyncClient(server.url, on_event=events.put) as client:
        with client.listen(tools=True) as changes:
            assert next(changes) == Change("tools")
            assert next(changes) == Change("tools", missed=True)
            assert next(changes) == Change("tools")
            assert client.call_tool("hi").text == "hi"
        assert isinstance(events.get(timeout=30), Connected)
        restored = events.get(timeout=30)
    assert isinstance(restored, StreamRestored)
    assert (restored.server, restored.error.problem) == (
        client.name,
        "the connection was closed in the middle of the response",
    )
    assert server.methods().count("subscriptions/listen") == 4


def test_a_subscription_that_the_server_ends_is_asked_for_again() -> None:
    done = event(message({"resultType": "complete"}))
    again = in_turn([*sse(ACKNOWLEDGED, done), CUT], [*sse(ACKNOWLEDGED, TOOLS_CHANGED), 60.0])
    with (
        RawServer({"subscriptions/listen": again}) as server,
        SyncClient(server.url) as client,
        client.listen(tools=True) as changes,
    ):
        assert [next(changes), next(changes)] == [Change("tools", missed=True), Change("tools")]


@pytest.mark.parametrize("face", FACES)
def test_a_subscription_that_cannot_be_had_says_so(face: str) -> None:
    async def listen(client: Any) -> None:
        async with client.listen(tools=True):
            pass

    def listen_sync(client: Any) -> Any:
        with client.listen(tools=True):
            return []

    cases = [([http(403)], HttpError, 1), ([http(200, "no")], InvalidResponse, 1), ([CUT], ConnectionLost, 3)]
    for answer, kind, asked in cases:
        with RawServer({"subscriptions/listen": answer}) as server:
            with pytest.raises(kind):
                outcome(face, server.url, listen if face == "async" else listen_sync)
            assert server.methods().count("subscriptions/listen") == asked


def test_listening_ends_with_the_client_while_it_waits_to_ask_again() -> None:
    again = in_turn([*sse(ACKNOWLEDGED), CUT], [http(503, headers=["Retry-After: 60"])])
    with RawServer({"subscriptions/listen": again}) as server, SyncClient(server.url) as client:
        with client.listen(tools=True):
            wait_until(lambda: server.methods().count("subscriptions/listen") == 2)
            client.close()
        assert server.methods().count("subscriptions/listen") == 2


# The stream of a handshake server (HL-4, HL-10).


def test_the_stream_of_a_handshake_server_comes_back_where_it_was_cut() -> None:
    events: queue.Queue[Any] = queue.Queue()
    changed = note("tools/list_changed")
    listening = threading.Event()
    first = [*sse("retry: 10\nid: a1\n\n"), lambda _: listening.wait(30), changed, CUT]
    again = in_turn(first, [http(503)], [*sse(changed), 60.0])
    with RawServer({"GET": again}, era="legacy", session="s1") as server:
        with (
            SyncClient(server.url, on_event=events.put, timeouts=BRIEF) as client,
            client.listen(tools=True) as changes,
        ):
            listening.set()
            assert next(changes) == Change("tools")
            assert isinstance(events.get(timeout=30), Connected)
            restored = events.get(timeout=30)
            heard = [next(changes), next(changes)]
        gets = [each.headers for each in server.requests if each.verb == "GET"]
    assert isinstance(restored, StreamRestored)
    assert heard == [Change("tools", missed=True), Change("tools")]
    assert [each.get("last-event-id") for each in gets] == [None, "a1", "a1"]
    assert {each["mcp-session-id"] for each in gets} == {"s1"}
    assert {each["mcp-protocol-version"] for each in gets} == {"2025-11-25"}


@pytest.mark.parametrize("status", [405, 400, 200])
def test_a_handshake_server_without_a_stream_is_not_asked_again(status: int) -> None:
    with RawServer({"GET": [http(status)]}, era="legacy", session="s1") as server:
        with SyncClient(server.url, timeouts=BRIEF) as client:
            for _ in range(3):
                client.call_tool("hi")
        assert server.methods().count("GET") == 1


def test_connecting_waits_only_until_a_handshake_server_knows_that_we_are_ready(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(http_transport, "_SETTLE", 600.0)
    waits, settle = threading.Event(), HttpClientTransport.settle

    def note(transport: HttpClientTransport) -> None:
        waits.set()
        settle(transport)

    def answer(_: object) -> list[bytes]:
        assert waits.wait(60)
        return [http(202)]

    monkeypatch.setattr(HttpClientTransport, "settle", note)
    plan = {"GET": [http(405)], "notifications/initialized": answer}
    with RawServer(plan, era="legacy", session="s1") as server:
        with SyncClient(server.url, timeouts=BRIEF) as client:
            client.ping()
        assert server.methods().count("notifications/initialized") == 1


def test_a_connection_that_has_ended_tells_the_server_nothing_more() -> None:
    with RawServer(era="legacy", session="s1") as server, SyncClient(server.url, timeouts=BRIEF) as client:
        client.ping()
        transport: Any = client._supervisor._transport
        client.close()
        transport.notify("notifications/roots/list_changed")
        assert not transport._runs.by_key
    assert "notifications/roots/list_changed" not in server.methods()


@pytest.mark.parametrize("face", FACES)
@pytest.mark.parametrize("ending", [CUT, END], ids=["cut", "in good order"])
def test_the_stream_of_an_answer_is_resumed_after_as_long_as_the_server_wants(ending: object, face: str) -> None:
    at: list[float] = []

    def again(request: Any) -> list[Any]:
        if "last-event-id" not in request.headers:
            return [http(405)]  # the stream of the session, which may be asked for late
        at.append(time.monotonic())
        if request.headers["last-event-id"] == "e2":
            return [*sse(event(message().replace("$ID", answer_id[0]), "id: e3\n")), CUT]
        return [*sse("id: e2\n\n"), ending]

    def start(request: Any) -> list[Any]:
        answer_id.append(str(request.json["id"]))
        at.clear()
        at.append(time.monotonic())
        return [*sse("retry: 200\nid: e1\ndata:\n\n"), ending]

    answer_id: list[str] = []
    plan = {"GET": again, "tools/call": start}
    with RawServer(plan, era="legacy", session="s1") as server:
        assert outcome(face, server.url, lambda client: client.call_tool("hi"), timeouts=BRIEF).text == "hi"
    waits = [later - earlier for earlier, later in itertools.pairwise(at)]
    assert len(waits) == 2
    assert all(wait >= 0.2 for wait in waits), waits


@pytest.mark.parametrize("face", FACES)
@pytest.mark.parametrize("status", [429, 502, 503, 504])
def test_the_stream_of_an_answer_is_resumed_though_the_server_was_busy(status: int, face: str) -> None:
    answers: list[str] = []

    def start(request: Any) -> list[Any]:
        answers.append(message().replace("$ID", str(request.json["id"])))
        return [*sse("retry: 10\nid: e1\n\n"), CUT]

    def again(request: Any) -> list[Any]:
        if "last-event-id" not in request.headers:
            return [http(405)]
        resumed.append(request.headers["last-event-id"])
        return [http(status)] if len(resumed) <= 2 else [*sse(event(answers[0])), CUT]

    resumed: list[str] = []
    plan = {"GET": again, "tools/call": start}
    with RawServer(plan, era="legacy", session="s1") as server:
        assert outcome(face, server.url, lambda client: client.call_tool("hi"), timeouts=BRIEF).text == "hi"
    assert resumed == ["e1"] * 3


def test_a_stream_whose_server_stays_busy_is_given_up_after_a_few_tries() -> None:
    def again(request: Any) -> list[Any]:
        resumed.append(request.headers.get("last-event-id"))
        return [http(503)] if resumed[-1] else [http(405)]

    resumed: list[str | None] = []
    plan = {"tools/call": [*sse("retry: 10\nid: e1\n\n"), CUT], "GET": again}
    with RawServer(plan, era="legacy", session="s1") as server, SyncClient(server.url, timeouts=BRIEF) as client:
        with pytest.raises(ConnectionLost, match="was closed in the middle") as caught:
            client.call_tool("hi")
        assert caught.value.delivery == "maybe_sent"
    assert resumed.count("e1") == 5


def test_a_stream_that_cannot_be_resumed_is_an_error_of_its_call() -> None:
    plan = {"tools/call": [*sse("retry: 10\nid: e1\n\n"), CUT], "GET": [http(405)]}
    with RawServer(plan, era="legacy", session="s1") as server, SyncClient(server.url, timeouts=BRIEF) as client:
        with pytest.raises(InvalidResponse, match=r"was closed and cannot be resumed \(status 405\)") as caught:
            client.call_tool("hi")
        assert caught.value.delivery == "maybe_sent"


# Sessions (HL-7).

FORGOTTEN = {
    "not found": http(404, "Session not found", "text/plain"),
    "not found, in a message": http(404, message(id=None, error={"code": -32001, "message": "Session not found"})),
    "bad request": http(400, message(id=None, error={"code": -32000, "message": "Bad Request: No valid session ID"})),
    "not initialized": http(400, message(id=None, error={"code": -32000, "message": "Server not initialized"})),
}


@pytest.mark.parametrize("face", FACES)
@pytest.mark.parametrize("answer", FORGOTTEN.values(), ids=FORGOTTEN)
def test_a_forgotten_session_is_begun_anew_and_the_application_told(answer: http, face: str) -> None:
    events: queue.Queue[Any] = queue.Queue()
    plan = {"tools/call": in_turn([http(200, message())], [answer], [http(200, message())])}
    with RawServer(plan, era="legacy", session="s1") as server:

        def both(client: Any) -> Any:
            client.call_tool("hi")
            return client.call_tool("hi")

        async def both_async(client: Any) -> Any:
            await client.call_tool("hi")
            return await client.call_tool("hi")

        step = both if face == "sync" else both_async
        assert outcome(face, server.url, step, on_event=events.put, timeouts=BRIEF).text == "hi"
        posts = [each for each in server.methods() if each in ("initialize", "tools/call")]
    assert posts == ["initialize", "tools/call", "tools/call", "initialize", "tools/call"]
    initializes = [each for each in server.requests if "initialize" in each.keys]
    assert not any("mcp-session-id" in each.headers for each in initializes)
    kinds = [events.get(timeout=30) for _ in range(4)]
    assert [type(each) for each in kinds] == [Connected, Disconnected, Connected, StateLost]
    assert kinds[1].error.problem == "the server has forgotten this session"


def test_a_client_that_never_repeats_says_that_its_session_was_forgotten() -> None:
    plan = {"tools/call": in_turn([http(404)], [http(200, message())])}
    with (
        RawServer(plan, era="legacy", session="s1") as server,
        SyncClient(server.url, retry="never", timeouts=BRIEF) as client,
    ):
        with pytest.raises(ConnectionLost, match="the server has forgotten this session") as caught:
            client.call_tool("hi")
        assert caught.value.delivery == "not_sent"
        assert client.call_tool("hi").text == "hi"


def test_a_session_that_is_forgotten_while_nobody_calls_is_begun_anew_for_who_listens() -> None:
    events: queue.Queue[Any] = queue.Queue()
    again = in_turn([*sse("retry: 10\nid: a\n\n"), CUT], [http(404)], [*sse(), 60.0])
    with (
        RawServer({"GET": again}, era="legacy", session="s1") as server,
        SyncClient(server.url, on_event=events.put, timeouts=BRIEF) as client,
        client.listen(tools=True) as changes,
    ):
        assert next(changes) == Change("tools", missed=True)
        kinds = [type(events.get(timeout=30)) for _ in range(4)]
    assert kinds == [Connected, Disconnected, Connected, StateLost]


def test_a_connection_that_has_ended_gives_back_what_it_held() -> None:
    links: weakref.WeakSet[HttpClientTransport] = weakref.WeakSet()
    plan = {"tools/call": in_turn(*[[each] for _ in range(5) for each in (http(404), http(200, message()))])}
    with RawServer(plan, era="legacy", session="s1") as server, SyncClient(server.url, timeouts=BRIEF) as client:
        for _ in range(5):
            assert client.call_tool("hi").text == "hi"
            link = client._supervisor._transport
            assert isinstance(link, HttpClientTransport)
            links.add(link)
        del link
        wait_until(lambda: gc.collect() is not None and len(links) == 1)


def test_a_session_is_ended_with_the_client_and_without_waiting_for_long() -> None:
    for steps in ([http(200)], [http(405)], [CUT], [60.0]):
        with RawServer({"DELETE": steps}, era="legacy", session="s1") as server:
            client = SyncClient(server.url, timeouts=BRIEF).connect()
            began = time.monotonic()
            client.close()
            assert time.monotonic() - began < 20
            last = server.requests[-1]
            assert last.verb == "DELETE"
            assert last.headers["mcp-session-id"] == "s1"


def test_without_a_session_there_is_nothing_to_end() -> None:
    for era in ERAS:
        with RawServer(era=era) as server:
            SyncClient(server.url, timeouts=BRIEF).connect().close()
            assert "DELETE" not in server.methods()


@pytest.mark.parametrize("era", [None, "legacy"])
def test_nothing_modern_leaks_into_a_handshake(era: Any) -> None:
    """HDR-9."""
    with RawServer(era="legacy", session="s1") as server:
        with SyncClient(server.url, era=era, timeouts=BRIEF) as client:
            client.call_tool("hi")
        sent = [(list(each.keys)[-1], each.headers, each.body) for each in server.requests]
    versions = {method: headers.get("mcp-protocol-version") for method, headers, _ in sent if "discover" not in method}
    assert versions.pop("initialize") is None
    assert versions == dict.fromkeys(("notifications/initialized", "GET", "tools/call", "DELETE"), "2025-11-25")
    for method, headers, body in sent:
        if method != "server/discover":
            assert "mcp-method" not in headers
            assert b"io.modelcontextprotocol" not in body


def test_the_first_call_waits_for_the_stream_of_the_session(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some servers ask on it alone."""
    monkeypatch.setattr(http_transport, "_SETTLE", 60.0)
    seen: list[str] = []

    def stream(_: Any) -> list[Any]:
        time.sleep(0.3)
        seen.append("stream")
        return [http(405)]

    def call(_: Any) -> list[Any]:
        seen.append("call")
        return [http(200, message())]

    plan = {"GET": stream, "tools/call": call}
    with RawServer(plan, era="legacy", session="s1") as server, SyncClient(server.url, timeouts=BRIEF) as client:
        assert client.call_tool("hi").text == "hi"
    assert seen == ["stream", "call"]


def test_nothing_is_asked_before_the_server_knows_that_we_are_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    """INI-3."""
    monkeypatch.setattr(http_transport, "_SETTLE", 60.0)
    ready: list[bool] = []
    told = threading.Event()

    def listen(_: Any) -> list[Any]:
        return [0.2, lambda _: told.set(), http(202)]

    def call(_: Any) -> list[Any]:
        ready.append(told.is_set())
        return [http(200, message())]

    plan = {"notifications/initialized": listen, "tools/call": call}
    with RawServer(plan, era="legacy") as server, SyncClient(server.url, timeouts=BRIEF) as client:
        client.call_tool("hi")
    assert ready == [True]


# Busy servers.


@pytest.mark.parametrize("status", [429, 503])
def test_a_busy_server_is_asked_again_when_it_wants_to_be(status: int) -> None:
    busy = in_turn([http(status, headers=["Retry-After: 1"])], [http(200, message())])
    with RawServer({"tools/call": busy}) as server, SyncClient(server.url) as client:
        began = time.monotonic()
        assert client.call_tool("hi").text == "hi"  # though it is not marked as safe: nothing was done
        assert 1.0 <= time.monotonic() - began < 20.0


@pytest.mark.parametrize(
    ("header", "timeout", "seconds"),
    [
        ("Retry-After: 60", 30.0, 60.0),
        ("Retry-After: 3600", 60.0, 3600.0),
        ("Retry-After: 99999999999", 60.0, None),
        ("Retry-After: Fri, 31 Dec 2100 23:59:59 GMT", 60.0, 86400.0),
    ],
)
def test_who_wants_us_to_wait_longer_than_the_call_may_take_is_not_waited_for(
    header: str, timeout: float, seconds: float | None
) -> None:
    with RawServer({"tools/call": [http(503, headers=[header])]}) as server, SyncClient(server.url) as client:
        began = time.monotonic()
        with pytest.raises(HttpError) as caught:
            client.call_tool("hi", timeout=timeout)
        assert time.monotonic() - began < timeout - 5
        assert caught.value.retry_after == seconds


@pytest.mark.parametrize(
    ("tool", "status", "asked"), [("hi", 502, 1), ("again", 502, 3), ("hi", 503, 6), ("hi", 400, 1)]
)
def test_a_call_is_repeated_only_where_that_is_safe(tool: str, status: int, asked: int) -> None:
    with RawServer({"tools/call": [http(status)]}) as server, SyncClient(server.url) as client:
        with pytest.raises(HttpError):
            client.call_tool(tool)
        assert server.methods().count("tools/call") == asked


def test_all_attempts_together_keep_to_the_deadline_of_the_call() -> None:
    with RawServer({"tools/call": [0.6, CUT]}) as server, SyncClient(server.url, retry="always") as client:
        began = time.monotonic()
        with pytest.raises((ConnectionLost, CallTimeout)):
            client.call_tool("hi", timeout=2.0)
        assert time.monotonic() - began < 15.0
        assert 1 < server.methods().count("tools/call") <= 3


# Restarts.


@pytest.fixture
def numbered() -> Iterator[Callable[[], Server]]:
    def make() -> Server:
        server = Server("numbered")

        @server.tool
        def number() -> int:
            return 7

        return server

    return make


@pytest.mark.parametrize("face", FACES)
@pytest.mark.parametrize("era", ERAS)
def test_a_server_that_restarts_between_calls_costs_none(era: Any, face: str, numbered: Callable[[], Server]) -> None:
    with serving(numbered().asgi()) as url:
        port = int(url.split(":")[2].split("/")[0])
    if face == "sync":
        client = SyncClient(url, era=era, timeouts=BRIEF)
        for _ in range(2):
            with serving(numbered().asgi(), port):
                assert client.call_tool("number").structured == {"result": 7}
        client.close()
        return

    async def run() -> None:
        client = Client(url, era=era, timeouts=BRIEF)
        for _ in range(2):
            with serving(numbered().asgi(), port):
                assert (await client.call_tool("number")).structured == {"result": 7}
        await client.close()

    asyncio.run(run())


@pytest.mark.parametrize("era", ERAS)
def test_a_listener_outlives_a_restart_of_its_server(era: Any) -> None:
    def make() -> Server:
        server = Server("notes", capabilities={"tools": {"listChanged": True}})
        server.define_tool("change", handler=server.notify_tools_list_changed)
        return server

    with serving(make().asgi()) as url:
        port = int(url.split(":")[2].split("/")[0])
    running = serving(make().asgi(), port)
    running.__enter__()
    with SyncClient(url, era=era, timeouts=BRIEF) as client, client.listen(tools=True) as changes:
        client.call_tool("change")
        assert next(changes) == Change("tools")
        running.__exit__(None, None, None)
        with serving(make().asgi(), port):
            assert next(changes) == Change("tools", missed=True)  # without any call
            client.call_tool("change")
            assert next(changes) == Change("tools")
            client.close()


# Eras (ERA-2).


def test_the_era_of_a_handshake_server_is_remembered_for_the_next_client() -> None:
    with RawServer(era="legacy") as server:
        for _ in range(3):
            with SyncClient(server.url, timeouts=BRIEF) as client:
                assert client.call_tool("hi").text == "hi"
        assert server.methods().count("server/discover") == 1
        assert server.methods().count("initialize") == 3


def test_what_was_remembered_is_forgotten_when_the_server_contradicts() -> None:
    with RawServer(era="legacy") as server:
        with SyncClient(server.url, timeouts=BRIEF) as client:
            client.call_tool("hi")
        modern = {"resultType": "complete", "supportedVersions": ["2026-07-28"], "capabilities": {}, "_meta": {}}
        server.plan(server_discover=[http(200, message(modern))], initialize=[http(400)])
        for _ in range(2):
            with SyncClient(server.url, timeouts=BRIEF) as client:
                assert client.protocol_version == "2026-07-28"
        assert server.methods().count("initialize") == 2


def test_a_server_of_another_era_after_a_restart_is_agreed_with_anew() -> None:
    events: queue.Queue[Any] = queue.Queue()
    wants_a_session = http(400, message(id=None, error={"code": -32000, "message": "Bad Request: no session"}))
    with RawServer() as server, SyncClient(server.url, on_event=events.put, timeouts=BRIEF) as client:
        assert client.protocol_version == "2026-07-28"
        server.plan(
            server_discover=[wants_a_session],
            tools_call=lambda request: [
                http(200, message()) if request.headers["mcp-protocol-version"] == "2025-11-25" else wants_a_session
            ],
        )
        assert client.call_tool("hi").text == "hi"
        assert client.protocol_version == "2025-11-25"
    kinds = [type(events.get(timeout=30)) for _ in range(4)]
    assert kinds == [Connected, Disconnected, Connected, StateLost]


def test_a_modern_server_in_the_place_of_a_handshake_server_is_agreed_with_anew() -> None:
    newer = {"code": -32022, "message": "Unsupported", "data": {"supported": ["2026-07-28"], "requested": "2025-11-25"}}
    modern = {"resultType": "complete", "supportedVersions": ["2026-07-28"], "capabilities": {}, "_meta": {}}
    with RawServer(era="legacy") as server, SyncClient(server.url, timeouts=BRIEF) as client:
        assert client.protocol_version == "2025-11-25"
        server.plan(
            server_discover=[http(200, message(modern))],
            initialize=[http(400, message(error=newer))],
            tools_call=lambda request: [
                http(200, message()) if "mcp-method" in request.headers else http(400, message(error=newer))
            ],
        )
        assert client.call_tool("hi").text == "hi"
        assert client.protocol_version == "2026-07-28"
        methods = server.methods()
        assert methods[methods.index("tools/call") + 1] == "server/discover", "what was agreed before does not count"
