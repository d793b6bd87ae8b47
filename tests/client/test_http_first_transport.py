"""The HTTP transport of the first revision, two URLs and one stream, as the last thing a client tries (SSE-1 to SSE-7)."""

from __future__ import annotations

import asyncio
import json
import queue
import threading
import time
from typing import Any

import pytest
from faces import FACES, outcome

from linkspan import Connected, ConnectError, ConnectionLost, Disconnected, HttpError, StateLost, SyncClient, Timeouts
from raw_http import CUT, RawServer, event, http, message, sse

pytestmark = pytest.mark.timeout(90)
BRIEF = Timeouts(close=0.2)
HASTY = Timeouts(close=0.2, probe=0.5)
"""For servers that do not answer: `probe` bounds the wait for an endpoint, too."""
HANDSHAKE = {
    "protocolVersion": "2024-11-05",
    "capabilities": {"tools": {}},
    "serverInfo": {"name": "a", "version": "1"},
}
RESULTS = {
    "initialize": HANDSHAKE,
    "tools/call": {"content": [{"type": "text", "text": "hi"}]},
    "ping": {},
    "tools/list": {"tools": []},
}


class FirstServer(RawServer):
    """Such a server: POST /mcp is answered with `status`; what is POSTed to /messages is answered on the stream."""

    def __init__(self, status: int = 405, endpoint: str = "/messages?session=s1", plan: Any = None) -> None:
        self.outbox: queue.Queue[Any] = queue.Queue()
        self.status = status
        self.endpoint = endpoint
        self.answer_with: dict[str, Any] = {}
        super().__init__(
            {
                "GET": lambda _: [*sse(), self._stream],
                **dict.fromkeys(("server/discover", *RESULTS), self._post),
                **(plan or {}),
            }
        )

    def _post(self, request: Any) -> list[Any]:
        if not request.path.startswith("/messages"):
            return [http(self.status, "Not here", "text/plain")]
        method = request.json["method"]
        if method in self.answer_with:
            return self.answer_with[method]
        result = message(RESULTS[method]).replace("$ID", json.dumps(request.json["id"]))
        self.outbox.put(event(result, "event: message\n"))
        return [http(202, "Accepted", "text/plain")]

    def _stream(self, connection: Any) -> None:
        outbox = self.outbox = queue.Queue()
        connection.sendall(f"event: endpoint\ndata: {self.endpoint}\n\n".encode())
        while (item := outbox.get()) is not CUT:
            connection.sendall(item)
        raise OSError


@pytest.mark.parametrize("face", FACES)
@pytest.mark.parametrize("status", [400, 404, 405])
def test_it_is_tried_when_a_handshake_is_refused(status: int, face: str) -> None:
    """SSE-1, SSE-2, SSE-7."""
    with FirstServer(status) as server:
        step: Any = lambda client: client.call_tool("hi")  # noqa: E731
        assert outcome(face, server.url, step, headers={"x-key": "k"}, timeouts=BRIEF).text == "hi"
        order = [(each.verb, each.path.partition("?")[0], list(each.keys)[-1]) for each in server.requests]
        assert {each.headers.get("x-key") for each in server.requests} == {"k"}
    assert order == [
        ("POST", "/mcp", "server/discover"),
        ("POST", "/mcp", "initialize"),
        ("GET", "/mcp", "GET"),
        ("POST", "/messages", "initialize"),
        ("POST", "/messages", "notifications/initialized"),
        ("POST", "/messages", "tools/call"),
    ]


@pytest.mark.parametrize("status", [401, 403, 406, 500, 503])
def test_it_is_not_tried_for_other_reasons(status: int) -> None:
    with FirstServer(status) as server:
        with pytest.raises(HttpError) as caught:
            outcome("sync", server.url, lambda client: client.ping(), timeouts=BRIEF)
        assert caught.value.status == status
        assert "GET" not in server.methods()


@pytest.mark.parametrize("endpoint", ["/messages?session=s1", "messages?session=s1", "$BASE/messages?session=s1"])
def test_the_endpoint_may_be_absolute_or_relative(endpoint: str) -> None:
    with FirstServer() as server:
        server.endpoint = endpoint.replace("$BASE", f"http://127.0.0.1:{server.port}")
        with SyncClient(server.url, timeouts=BRIEF) as client:
            assert client.protocol_version == "2024-11-05"


@pytest.mark.parametrize(
    "endpoint",
    [
        "http://127.0.0.1:9/messages",
        "https://127.0.0.1/messages",
        "//example.com/messages?token=abcdefgh",
        "http://eve:pw@127.0.0.1:$PORT/messages",
    ],
)
def test_an_endpoint_of_another_origin_gets_nothing(endpoint: str) -> None:
    with FirstServer() as server:
        server.endpoint = endpoint.replace("$PORT", str(server.port))
        with pytest.raises(ConnectError, match="on another origin, or one with credentials: http") as caught:
            outcome("sync", server.url, lambda client: client.ping(), timeouts=BRIEF)
        assert "abcdefgh" not in str(caught.value)
        assert "initialize" not in [list(each.keys)[-1] for each in server.requests if each.path != "/mcp"]


@pytest.mark.parametrize(
    "stream",
    [
        [http(405)],
        [http(200, "hello", "text/plain")],
        [*sse(event(message(method="notifications/x"))), 60.0],
        [*sse(event("/messages?session=s1")), 60.0],
        [*sse("event: endpoint\ndata:\n\n"), 60.0],
        [*sse(), CUT],
        [*sse(), 60.0],
        [CUT],
    ],
    ids=["405", "no stream", "another event", "a URL in another event", "no URL", "empty", "silent", "cut"],
)
def test_without_an_endpoint_the_first_refusal_is_the_error(stream: Any) -> None:
    with FirstServer(404, plan={"GET": stream}) as server:
        began = time.monotonic()
        with pytest.raises(HttpError) as caught:
            outcome("sync", server.url, lambda client: client.ping(), timeouts=HASTY)
        assert time.monotonic() - began < 20
        assert caught.value.problem == "initialize was answered with status 404: Not here"
        assert caught.value.phase == "negotiate"


def test_when_its_stream_ends_the_calls_are_lost_and_the_next_one_begins_anew() -> None:
    """SSE-4: the session lives with the stream."""
    events: queue.Queue[Any] = queue.Queue()
    with FirstServer() as server, SyncClient(server.url, on_event=events.put, timeouts=BRIEF) as client:
        assert client.call_tool("hi").text == "hi"

        def end_the_stream(connection: Any) -> None:
            connection.sendall(http(202).encode(b""))
            threading.Timer(0.1, server.outbox.put, [CUT]).start()

        server.answer_with["tools/call"] = [end_the_stream]
        with pytest.raises(ConnectionLost, match="the stream of responses ended") as caught:
            client.call_tool("hi", timeout=30)
        assert caught.value.delivery == "maybe_sent"
        server.answer_with.clear()
        assert client.call_tool("hi").text == "hi"
        kinds = [type(events.get(timeout=30)) for _ in range(4)]
    assert kinds == [Connected, Disconnected, Connected, StateLost]
    assert server.methods().count("server/discover") == 1


def test_a_post_for_a_session_that_is_forgotten_begins_a_new_one() -> None:
    with FirstServer() as server, SyncClient(server.url, timeouts=BRIEF) as client:
        assert client.call_tool("hi").text == "hi"
        gone = [http(404, "Could not find session", "text/plain")]
        calls = iter([gone])

        def answer(request: Any) -> list[Any]:
            return next(calls, None) or server._post(request)

        server.plan(tools_call=answer)
        assert client.call_tool("hi").text == "hi"
        assert server.methods().count("GET") == 2


@pytest.mark.parametrize("face", FACES)
def test_the_official_server_is_served_with_it(face: str) -> None:
    from over_http import serving

    pytest.importorskip("mcp.server.sse")
    from mcp.server.mcpserver import MCPServer

    official: Any = MCPServer("official")

    @official.tool()
    def add(a: int, b: int) -> int:
        return a + b

    async def many(client: Any) -> Any:
        return await asyncio.gather(*(client.call_tool("add", {"a": 1, "b": each}) for each in range(20)))

    with serving(official.sse_app()) as url:
        sse_url = url.replace("/mcp", "/sse")
        if face == "async":
            found = outcome("async", sse_url, many, timeouts=BRIEF)
        else:
            found = outcome(
                "sync",
                sse_url,
                lambda c: [c.call_tool("add", {"a": 1, "b": each}) for each in range(20)],
                timeouts=BRIEF,
            )
    assert [each.text for each in found] == [str(1 + each) for each in range(20)]
