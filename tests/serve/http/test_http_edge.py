"""The edge of an HTTP server, over sockets: what clients send that is late, doubled, broken or too much, and how they go.

Each test that says nothing else holds for `run("http")` with our protocol and with uvicorn's own, which stands in where httptools
is missing.
"""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import socket
import sys
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from types import SimpleNamespace
from typing import Any

import httptools
import pytest
from http_faces import Http
from http_talk import BOTH, body, mirror
from http_world import World, marked
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from linkspan.core.http_checks import HttpPolicy
from linkspan.core.http_endpoint import Opened
from linkspan.core.http_exchange import HttpEvent, ServerExchange
from linkspan.serve.http import make_endpoint
from linkspan.serve.http_protocol import DirectApp
from linkspan.serve.http_reader import ReadRequest, RequestReader
from linkspan.serve.http_uvicorn import make_uvicorn

ADD = body("tools/call", {"name": "add", "arguments": {"a": 1, "b": 2}})
HOST = "Host: 127.0.0.1"


def request(message: Any = ADD, *, first: str = "POST /mcp HTTP/1.1", length: bool = True, **headers: str) -> bytes:
    """Return the bytes of a request."""
    content = message if isinstance(message, bytes) else json.dumps(message).encode()
    given = {"content-type": "application/json", **(mirror(message) if isinstance(message, dict) else {"accept": BOTH})}
    given |= {name.replace("_", "-"): value for name, value in headers.items()}
    if length:
        given["content-length"] = str(len(content))
    lines = [first, HOST, *(f"{name}: {value}" for name, value in given.items()), "", ""]
    return "\r\n".join(lines).encode("latin-1") + content


def in_chunks(message: Any = ADD, *, trailer: str = "", **options: Any) -> bytes:
    """Return the bytes of a request whose body is one chunk; `trailer` is what follows it."""
    content = json.dumps(message).encode()
    head = request(message, length=False, **{"transfer_encoding": "chunked", **options}).removesuffix(content)
    return head + b"%x\r\n%b\r\n0\r\n%b\r\n" % (len(content), content, f"{trailer}\r\n".encode() if trailer else b"")


def tool(name: str, number: Any = 1, token: str | None = None, **arguments: Any) -> bytes:
    """Return the bytes of a call."""
    meta = {"token": token} if token is not None else {}
    return request(body("tools/call", {"name": name, "arguments": arguments}, number, **meta))


class Answers:
    """What a client understands of what it receives on one connection: responses one after the other."""

    def __init__(self) -> None:
        self.found: list[tuple[int, dict[str, str], bytes]] = []
        self._parser = httptools.HttpResponseParser(self)
        self._headers: dict[str, str] = {}
        self._body = b""

    def feed(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_message_begin(self) -> None:
        self._headers, self._body = {}, b""

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers[name.decode().lower()] = value.decode("latin-1")

    def on_body(self, data: bytes) -> None:
        self._body += data

    def on_message_complete(self) -> None:
        self.found.append((self._parser.get_status_code(), self._headers, self._body))


class Client:
    """A connection that sends raw bytes."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=60)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._answers = Answers()
        self.ended = False

    def send(self, data: bytes) -> Client:
        self.socket.sendall(data)
        return self

    def answers(self, count: int) -> list[tuple[int, dict[str, str], bytes]]:
        """Receive so many responses."""
        while len(self._answers.found) < count:
            data = self.socket.recv(65536)
            assert data, f"the server closed after {len(self._answers.found)} responses"
            self._answers.feed(data)
        return self._answers.found

    def rest(self) -> list[tuple[int, dict[str, str], bytes]]:
        """Receive to the end."""
        while data := self.socket.recv(65536):
            self._answers.feed(data)
        return self._answers.found

    def raw(self) -> bytes:
        """Receive to the end, without understanding it."""
        found = b""
        while data := self.socket.recv(65536):
            found += data
        return found

    def statuses(self) -> list[int]:
        """Receive to the end; return the statuses."""
        return [status for status, _, _ in self.rest()]


class Edge:
    """A server in a thread."""

    def __init__(self, kind: str, **options: Any) -> None:
        self.world = World()
        policy = {name: options.pop(name) for name in HttpPolicy.__struct_fields__ if name in options}
        own = {"drain": 1.0, "head_timeout": 30.0}
        own |= {name: options.pop(name) for name in own if name in options}
        if kind == "uvicorn":
            options["http"] = "httptools"
        self.endpoint = make_endpoint(self.world.server, HttpPolicy(**policy))
        started = threading.Event()
        self.serving = make_uvicorn(
            self.endpoint,
            path="/mcp",
            health="/health",
            ready=started.set,
            options={"log_config": None, **options},
            **own,
        )
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.thread = threading.Thread(target=self.serving.run, kwargs={"sockets": [self.listener]}, daemon=True)
        self.thread.start()
        assert started.wait(60)
        self.clients: list[Client] = []

    def connect(self) -> Client:
        self.clients.append(client := Client(self.port))
        return client

    def send(self, *pieces: bytes) -> Client:
        """Send pieces on a new connection."""
        client = self.connect()
        for piece in pieces:
            client.send(piece)
        return client

    def until(self, true: Callable[[], bool]) -> None:
        give_up = time.monotonic() + 60
        while not true():
            assert time.monotonic() < give_up
            time.sleep(0.005)

    def arriving(self) -> list[int]:
        """Return how much has come of each body that is not complete."""
        app: Any = self.serving._app
        if isinstance(app, DirectApp):
            return app.bodies.sizes
        return sorted(size for timers in app._timers.values() for size in timers.bodies.sizes)

    def stop(self) -> None:
        self.world.let_go.set()
        for client in self.clients:
            client.socket.close()
        self.serving.should_exit = True
        self.thread.join(60)
        self.listener.close()
        assert not self.thread.is_alive()


@pytest.fixture
def edges() -> Iterator[list[Edge]]:
    edges: list[Edge] = []
    yield edges
    for edge in edges:
        edge.stop()


@pytest.fixture(params=["ours", "uvicorn"])
def edge(request: pytest.FixtureRequest, edges: list[Edge]) -> Callable[..., Edge]:
    """Serve with each protocol."""

    def start(**options: Any) -> Edge:
        edges.append(Edge(request.param, **options))
        return edges[-1]

    return start


@pytest.fixture
def ours(edges: list[Edge]) -> Callable[..., Edge]:
    """Serve with our protocol."""

    def start(**options: Any) -> Edge:
        edges.append(Edge("ours", **options))
        return edges[-1]

    return start


@pytest.fixture(scope="module")
def running() -> Iterator[Callable[[str], Edge]]:
    """Servers for the tests that change nothing in them."""
    edges: dict[str, Edge] = {}

    def find(kind: str) -> Edge:
        return edges.get(kind) or edges.setdefault(kind, Edge(kind))

    yield find
    for edge in edges.values():
        edge.stop()


@pytest.fixture(params=["ours", "uvicorn"])
def same_edge(request: pytest.FixtureRequest, running: Callable[[str], Edge]) -> Edge:
    """Use the running server of each protocol."""
    return running(request.param)


@pytest.fixture
def same_ours(running: Callable[[str], Edge]) -> Edge:
    """Use the running server of our protocol."""
    return running("ours")


def value(answer: tuple[int, dict[str, str], bytes]) -> Any:
    """Return the number that `add` has returned."""
    return json.loads(answer[2])["result"]["structuredContent"]["result"]


def test_without_httptools_uvicorn_serves_with_what_it_has(monkeypatch: pytest.MonkeyPatch, edges: list[Edge]) -> None:
    monkeypatch.setitem(sys.modules, "httptools", None)
    monkeypatch.delitem(sys.modules, "uvicorn.protocols.http.auto", raising=False)
    edges.append(bare := Edge("without"))
    assert bare.serving.config.http_protocol_class.__name__ == "H11Protocol"
    assert value(bare.send(request()).answers(1)[0]) == 3


# What is not HTTP/1.1, or may be understood in two ways. Behind each stands a request that must not be served.

SMUGGLED = request(body("tools/call", {"name": "hold", "arguments": {}}))
CHUNKED = f"POST /mcp HTTP/1.1\r\n{HOST}\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n"
PLAIN = f"POST /mcp HTTP/1.1\r\n{HOST}\r\n"
BROKEN = {
    "two lengths": f"{PLAIN}Content-Length: 2\r\nContent-Length: 3\r\n\r\n{{}}",
    "two equal lengths": f"{PLAIN}Content-Length: 2\r\nContent-Length: 2\r\n\r\n{{}}",
    "a list of lengths": f"{PLAIN}Content-Length: 2, 2\r\n\r\n{{}}",
    "length and chunks": f"{CHUNKED}Content-Length: 2\r\n\r\n0\r\n\r\n",
    "chunks and length": f"{PLAIN}Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "chunks inside another coding": f"{PLAIN}Transfer-Encoding: chunked, gzip\r\n\r\n0\r\n\r\n",
    "chunked twice": f"{CHUNKED}Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "a space before the colon": f"{PLAIN}Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
    "an odd space in a coding": f"{PLAIN}Transfer-Encoding:\x0bchunked\r\n\r\n0\r\n\r\n",
    "a signed length": f"{PLAIN}Content-Length: +2\r\n\r\n{{}}",
    "a negative length": f"{PLAIN}Content-Length: -2\r\n\r\n{{}}",
    "a hexadecimal length": f"{PLAIN}Content-Length: 0x2\r\n\r\n{{}}",
    "an empty length": f"{PLAIN}Content-Length:\r\n\r\n{{}}",
    "a length beyond 64 bits": f"{PLAIN}Content-Length: 18446744073709551618\r\n\r\n{{}}",
    "lines that end with LF": f"POST /mcp HTTP/1.1\n{HOST}\nContent-Length: 2\n\n{{}}",
    "a header that ends with LF": f"{PLAIN}X: a\nContent-Length: 2\r\n\r\n{{}}",
    "a header that ends with CR": f"{PLAIN}X: a\rContent-Length: 2\r\n\r\n{{}}",
    "a folded header": f"{PLAIN}X: a\r\n b\r\nContent-Length: 2\r\n\r\n{{}}",
    "a folded first header": f"POST /mcp HTTP/1.1\r\n {HOST}\r\n\r\n",
    "NUL in a value": f"{PLAIN}X: a\0b\r\n\r\n",
    "NUL in a name": f"{PLAIN}X\0: a\r\n\r\n",
    "NUL in the URL": f"POST /mcp\0 HTTP/1.1\r\n{HOST}\r\n\r\n",
    "a control character": f"{PLAIN}X: a\x01b\r\n\r\n",
    "no name": f"{PLAIN}: a\r\n\r\n",
    "a name of two words": f"{PLAIN}X y: a\r\n\r\n",
    "an unknown method": f"BREW /mcp HTTP/1.1\r\n{HOST}\r\n\r\n",
    "a method in small letters": f"post /mcp HTTP/1.1\r\n{HOST}\r\n\r\n",
    "an unknown version": f"POST /mcp HTTP/3.7\r\n{HOST}\r\n\r\n",
    "HTTP/2": "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "TLS": "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    "a chunk that ends with LF": f"{CHUNKED}\r\n2\n{{}}\n0\n\n",
    "an extension that ends with LF": f"{CHUNKED}\r\n2;a=b\n{{}}\r\n0\r\n\r\n",
    "a negative chunk": f"{CHUNKED}\r\n-2\r\n{{}}\r\n0\r\n\r\n",
    "a chunk with 0x": f"{CHUNKED}\r\n0x2\r\n{{}}\r\n0\r\n\r\n",
    "a chunk beyond 64 bits": f"{CHUNKED}\r\n10000000000000002\r\n{{}}\r\n0\r\n\r\n",
    "a chunk longer than it says": f"{CHUNKED}\r\n1\r\n{{}}\r\n0\r\n\r\n",
}


@pytest.mark.parametrize("what", BROKEN)
def test_what_is_no_request_is_refused_and_nothing_behind_it_is_served(what: str, same_edge: Edge) -> None:
    with same_edge.connect().socket as connection:
        connection.sendall(BROKEN[what].encode("latin-1") + SMUGGLED)
        found = b""
        try:
            while data := connection.recv(65536):
                found += data
        except ConnectionResetError:
            pass
    assert found.startswith(b"HTTP/1.1 400 ")
    assert found.count(b"HTTP/1.1 ") == 1
    assert same_edge.world.seen == []
    assert same_edge.send(request()).answers(1)[0][0] == 200


@pytest.mark.parametrize("coding", ["gzip", "gzip, chunked", "xchunked", "identity", "x" * 200])
@pytest.mark.parametrize("first", ["POST /mcp HTTP/1.1", "POST /mcp HTTP/1.0"])
@pytest.mark.parametrize("more", [{}, {"connection": "upgrade", "upgrade": "h2c"}], ids=["plain", "upgrade"])
def test_a_transfer_coding_that_is_unknown_is_not_implemented(
    more: dict[str, str], first: str, coding: str, same_ours: Edge, caplog: pytest.LogCaptureFixture
) -> None:
    """RFC 9112, section 6.1. What follows may be a part of that body, so it is not read."""
    answers = same_ours.send(in_chunks(first=first, transfer_encoding=coding, **more) + SMUGGLED).rest()
    assert [(status, headers["connection"]) for status, headers, _ in answers] == [(501, "close")]
    assert (
        f"{coding.removesuffix(', chunked')[:60]!r} is not supported" in json.loads(answers[0][2])["error"]["message"]
    )
    assert same_ours.world.seen == []
    assert [record for record in caplog.records if record.name == "asyncio"] == []


ONLY_OURS = {
    "chunks in HTTP/1.0": CHUNKED.replace("HTTP/1.1", "HTTP/1.0") + "\r\n0\r\n\r\n",
    "a tunnel": f"CONNECT 127.0.0.1:80 HTTP/1.1\r\n{HOST}\r\n\r\n",
}


@pytest.mark.parametrize("what", ONLY_OURS)
def test_what_uvicorn_would_let_pass_is_refused_too(what: str, same_ours: Edge) -> None:
    assert same_ours.send(ONLY_OURS[what].encode() + SMUGGLED).statuses() == [400]
    assert same_ours.world.seen == []


@pytest.mark.parametrize("at_once", [True, False])
def test_what_follows_a_chunked_body_is_no_header(at_once: bool, same_ours: Edge) -> None:
    """A trailer must not add to the headers that were checked."""
    message = body("tools/call", {"name": "facts", "arguments": {}})
    content = json.dumps(message).encode()
    head = request(message, length=False, transfer_encoding="chunked").partition(b"\r\n\r\n")[0] + b"\r\n\r\n"
    pieces = [head, b"%x\r\n%b\r\n" % (len(content), content), b"0\r\nX-Probe: late\r\nHost: evil.com\r\n\r\n"]
    client = same_ours.send(*([b"".join(pieces)] if at_once else pieces))
    assert json.loads(client.answers(1)[0][2])["result"]["structuredContent"]["probe"] is None


@pytest.mark.parametrize("part", [b"x" * 65536, b"x: y\r\n" * 10_000])
def test_trailers_without_end_are_refused_however_large_the_body(part: bytes, same_ours: Edge) -> None:
    chunk = b"10000\r\n%b\r\n" % (b" " * 65536)
    client = same_ours.send(request(b"", length=False, transfer_encoding="chunked") + 4 * chunk + b"0\r\n")
    with suppress(OSError):  # the server has refused it and takes no more
        for _ in range(20):
            client.send(part)
    assert client.rest()[0][0] == 400


@pytest.mark.parametrize("trailer", ["Connection: close", "Connection: keep-alive, close"])
@pytest.mark.parametrize("behind", [b"", request()], ids=["nothing", "a request"])
def test_a_trailer_that_closes_the_connection_closes_it(behind: bytes, trailer: str, same_ours: Edge) -> None:
    """llhttp takes nothing more after it, so a client that may send another request would wait for ever."""
    answers = same_ours.send(in_chunks(trailer=trailer) + behind).rest()
    assert [(status, headers["connection"]) for status, headers, _ in answers] == [(200, "close")]


@pytest.mark.parametrize(
    "trailer", ["Connection: keep-alive", "Connection: upgrade\r\nUpgrade: h2c", "Expect: 100-continue"]
)
def test_other_trailers_change_nothing_of_the_connection(trailer: str, same_ours: Edge) -> None:
    client = same_ours.send(in_chunks(trailer=trailer) + request())
    assert [(status, headers.get("connection")) for status, headers, _ in client.answers(2)] == [(200, None)] * 2


def test_what_comes_after_a_refusal_is_not_kept(ours: Callable[..., Edge]) -> None:
    """The client may go on sending for a while, so that it sees the refusal."""
    edge = ours()
    head, _, rest = request(origin="https://evil.example", length=False).partition(b"\r\n\r\n")
    client = edge.send(head + b"\r\ncontent-length: 3000000\r\n\r\n" + rest)
    assert client.answers(1)[0][0] == 403
    (protocol,) = edge.serving.server_state.connections
    client.send(b" " * 2_000_000)
    edge.until(lambda: client.socket.fileno() >= 0)
    late = edge.send(request())
    assert late.answers(1)[0][0] == 200  # the loop has read what came before
    assert len(protocol._reader.head.body) <= len(rest)


def test_a_failure_of_the_endpoint_is_answered_500_and_closes(
    ours: Callable[..., Edge], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    edge = ours()

    def fail(*_: object, **__: object) -> Opened:
        raise RuntimeError("the endpoint is broken")

    monkeypatch.setattr(edge.endpoint, "open", fail)
    message = body("ping", {})
    answers = edge.send(request(message, mcp_protocol_version="2025-06-18") + request()).rest()
    assert [(status, headers["connection"], body) for status, headers, body in answers] == [
        (500, "close", b"Internal Server Error")
    ]
    assert "the endpoint is broken" in caplog.text


# Connections that are idle.

LARGE: dict[str, Callable[[int], bytes]] = {
    "headers": lambda n: request(**{f"x-{each}": f"{n}{'v' * 3000}" for each in range(10)}),
    "headers of a refusal": lambda n: request(
        **{f"x-{each}": f"{n}{'v' * 3000}" for each in range(10)}, origin="https://evil.example"
    ),
    "headers of a handshake client": lambda n: request(
        body("ping", {}), **{f"x-{each}": f"{n}{'v' * 3000}" for each in range(10)}, mcp_protocol_version="2025-06-18"
    ),
    "a URL": lambda n: request(first=f"POST /mcp?{n}{'x' * 60_000} HTTP/1.1"),
    "a path": lambda n: request(first=f"POST /{n}{'x' * 60_000} HTTP/1.1"),
    "a body": lambda n: tool("add", a=1, b=2, c=f"{n}{'x' * 1_000_000}"),
    "a response": lambda n: tool("text", size=1_000_000 + n),
}


@pytest.mark.parametrize("what", LARGE)
def test_an_idle_connection_keeps_nothing_large_of_its_last_request(what: str, ours: Callable[..., Edge]) -> None:
    edge = ours()

    def answered(message: bytes) -> None:
        client = edge.send(message)
        client.answers(1)
        client._answers = Answers()  # it keeps what it has read

    def held(make: Callable[[int], bytes], at_most: int) -> int:
        """Return the bytes that ten idle connections hold, as soon as they are few or have had time to be."""
        gc.collect()
        before = tracemalloc.get_traced_memory()[0]
        for number in range(10):
            answered(make(number))
        deadline = time.monotonic() + 30
        while True:  # a client may have its answer before the server has let go of the request
            gc.collect()
            held = tracemalloc.get_traced_memory()[0] - before
            if held < at_most or time.monotonic() > deadline:
                return held
            time.sleep(0.01)

    answered(LARGE[what](-1))
    tracemalloc.start()
    try:
        bound = held(lambda _: request(), at_most=200_000) + 100_000
        assert held(LARGE[what], bound) < bound  # 600,000 and more, if each kept it
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("message", [request, in_chunks])
@pytest.mark.parametrize("version", ["2.0", "0.9"])
def test_a_request_line_of_another_http_is_refused_by_its_version(
    version: str, message: Callable[..., bytes], same_ours: Edge
) -> None:
    answers = same_ours.send(message(first=f"POST /mcp HTTP/{version}") + SMUGGLED).rest()
    assert [(status, headers["connection"]) for status, headers, _ in answers] == [(505, "close")]
    assert f"HTTP/{version} is not spoken" in json.loads(answers[0][2])["error"]["message"]
    assert same_ours.world.seen == []


# Several requests on one connection.


def test_what_is_counted_of_a_request_begins_anew_with_each() -> None:
    """Or the later ones of a connection would be refused as larger than their bodies."""
    reader, whole = RequestReader(ReadRequest), in_chunks()
    for _ in range(3):
        reader.receive_data(whole[:20])
        reader.receive_data(whole[20:])
        assert (reader.received, reader.received_with_body) == (len(whole) - 20, len(whole) - 20)


def test_the_headers_of_all_responses_are_those_of_now(same_ours: Edge) -> None:
    """uvicorn makes a new list when the date changes."""
    app = same_ours.serving._app
    assert isinstance(app, DirectApp)
    for date in (b"one", b"two"):
        fixed = [(b"date", date)]
        made = [app.make_head(status, (), fixed) for status in (200, 202)]
        assert made[0].endswith(b"date: " + date + b"\r\n")
        assert app.heads == {(200, ()): made[0], (202, ()): made[1]}, "of another date, none is kept"
        assert app.fixed is fixed


def test_each_request_of_a_connection_has_its_own_version(same_ours: Edge) -> None:
    """HTTP/1.0 has no chunks: whoever stands between takes that body for the next request (RFC 9112, 6.1)."""
    client = same_ours.send(request() + in_chunks(first="POST /mcp HTTP/1.0", connection="keep-alive") + request())
    assert client.statuses() == [200, 400]


def test_a_connection_of_http_1_0_is_not_kept_after_a_request_of_http_1_1(same_ours: Edge) -> None:
    client = same_ours.send(request() + request(first="POST /mcp HTTP/1.0", connection="keep-alive") + request())
    assert [(status, headers.get("connection")) for status, headers, _ in client.rest()] == [
        (200, None),
        (200, "close"),
    ]


def test_a_wish_for_another_protocol_does_not_change_the_version(same_ours: Edge) -> None:
    wish = {"connection": "keep-alive, upgrade", "upgrade": "h2c"}
    assert same_ours.send(in_chunks(first="POST /mcp HTTP/1.0", **wish)).statuses() == [400]


def test_requests_of_one_connection_are_answered_in_their_order(same_edge: Edge) -> None:
    client = same_edge.send(b"".join(tool("add", n, a=n, b=1) for n in range(200)))
    assert [value(each) for each in client.answers(200)] == [n + 1 for n in range(200)]
    client.send(tool("add", 7, a=1, b=1))
    assert value(client.answers(201)[-1]) == 2


def test_a_request_behind_a_slow_one_waits(edge: Callable[..., Edge]) -> None:
    server = edge()
    client = server.send(tool("hold_async") + tool("add", 2, a=1, b=2))
    server.world.wait_for("holding")
    assert server.send(tool("add", a=2, b=2)).answers(1)[0][0] == 200
    server.world.let_go.set()
    assert [json.loads(each[2])["id"] for each in client.answers(2)] == [1, 2]


def test_what_follows_a_running_request_is_not_kept_without_bound(ours: Callable[..., Edge]) -> None:
    server = ours(max_body_bytes=100_000)
    client = server.send(tool("hold_async"))
    server.world.wait_for("holding")
    client.send(request(length=False, transfer_encoding="chunked").partition(b"\r\n\r\n")[0] + b"\r\n\r\n")
    client.socket.settimeout(1.0)
    with pytest.raises(TimeoutError):  # the server has stopped reading
        client.send((b"10000\r\n" + b" " * 0x10000 + b"\r\n") * 1000)
    client.socket.settimeout(60)
    server.world.let_go.set()
    assert client.answers(2)[1][0] == 413


def test_a_client_that_goes_before_its_turn_leaves_nothing(ours: Callable[..., Edge]) -> None:
    server = ours(max_streams=2)
    head = request().partition(b"\r\n\r\n")[0] + b"\r\n\r\n"
    for _ in range(5):
        client = server.send(tool("add_async", a=1, b=2) + head)
        client.answers(1)
        client.socket.close()
    server.until(lambda: not server.serving.server_state.connections)
    assert server.send(head, request().partition(b"\r\n\r\n")[2]).answers(1)[0][0] == 200


def test_what_is_good_before_what_is_broken_is_answered(same_ours: Edge) -> None:
    client = same_ours.send(tool("add", a=1, b=2) + tool("add_async", 2, a=3, b=4), b"nonsense\r\n\r\n")
    assert client.statuses() == [200, 200, 400]


def test_a_stream_and_the_next_answer_share_a_connection(same_edge: Edge) -> None:
    client = same_edge.send(tool("count", token="t", to=3) + tool("add", 2, a=1, b=2))
    first, second = client.answers(2)
    assert first[1]["content-type"] == "text/event-stream"
    assert first[2].count(b"notifications/progress") == 3
    assert value(second) == 3


def test_modern_requests_of_one_connection_share_a_machine(
    ours: Callable[..., Edge], monkeypatch: pytest.MonkeyPatch
) -> None:
    server = ours()
    made: list[object] = []
    connect = server.endpoint.new_connection
    monkeypatch.setattr(server.endpoint, "new_connection", lambda **options: made.append(options) or connect(**options))
    client = server.send(*(tool(name, n, a=n, b=1) for n, name in enumerate(["add", "add_async", "add", "add_async"])))
    assert [value(each) for each in client.answers(4)] == [1, 2, 3, 4]
    client.send(tool("count", 5, token="t", to=2)).answers(5)
    client.send(tool("fail", 6, how="politely")).send(tool("add", 7, a=1, b=1)).answers(7)
    assert made == [{"lone": False}]


def test_what_a_request_sets_in_its_context_is_not_seen_by_the_next(ours: Callable[..., Edge]) -> None:
    server = ours()

    @server.world.server.tool(inline=True)
    def mark() -> str:
        before = marked.get()
        marked.set("seen")
        return before

    for _, _, data in server.send(tool("mark") + tool("mark", 2)).answers(2):
        assert json.loads(data)["result"]["content"][0]["text"] == "nothing"


def test_connection_close_is_obeyed(same_edge: Edge) -> None:
    answers = same_edge.send(request(connection="close")).rest()
    assert [(status, headers["connection"]) for status, headers, _ in answers] == [(200, "close")]


@pytest.mark.parametrize("headers", [{}, {"connection": "keep-alive"}])
def test_http_1_0_gets_one_answer(headers: dict[str, str], same_edge: Edge) -> None:
    assert [value(each) for each in same_edge.send(request(first="POST /mcp HTTP/1.0", **headers)).rest()] == [3]


def test_a_stream_in_http_1_0_ends_with_its_connection(same_ours: Edge) -> None:
    """That version has no chunks."""
    message = body("tools/call", {"name": "count", "arguments": {"to": 2}}, token="t")
    found = same_ours.send(request(message, first="POST /mcp HTTP/1.0")).raw()
    head, _, rest = found.partition(b"\r\n\r\n")
    assert b"transfer-encoding" not in head
    assert b"connection: close" in head
    assert [line[:5] for line in rest.split(b"\r\n") if line] == [b"data:"] * 3
    assert rest.endswith(b"\r\n\r\n")


@pytest.mark.parametrize("url", ["http://127.0.0.1/mcp", "/mcp/", "/mcp?x=y", "/%6dcp", "http://127.0.0.1/mcp?x#y"])
def test_urls_of_the_endpoint(url: str, same_edge: Edge) -> None:
    assert same_edge.send(request(first=f"POST {url} HTTP/1.1")).answers(1)[0][0] == 200


@pytest.mark.parametrize(
    ("authority", "host", "status"),
    [
        ("127.0.0.1", "evil.example", 200),
        ("evil.example", "127.0.0.1", 421),
        ("evil.example@127.0.0.1", "127.0.0.1", 400),
        ("127.0.0.1", "evil.example:x", 400),
        ("127.0.0.1", "", 400),
    ],
)
def test_the_authority_of_a_target_counts_instead_of_host(
    authority: str, host: str, status: int, same_ours: Edge
) -> None:
    found = same_ours.send(
        request(first=f"POST http://{authority}/mcp HTTP/1.1").replace(HOST.encode(), f"Host: {host}".encode())
    )
    assert found.answers(1)[0][0] == status


@pytest.mark.parametrize(("url", "status"), [("/health", 200), ("/", 404), ("/mcp/x", 404), ("*", 404)])
def test_other_urls(url: str, status: int, same_ours: Edge) -> None:
    client = same_ours.send(f"GET {url} HTTP/1.1\r\n{HOST}\r\n\r\n".encode())
    assert client.answers(1)[0][0] == status


@pytest.mark.parametrize(("accept", "status"), [("text/html, */*", 200), ("text/html;q=0, */*", 405)])
def test_who_takes_no_html_gets_no_page(accept: str, status: int, edge: Callable[..., Edge]) -> None:
    client = edge(page=True).send(f"GET /mcp HTTP/1.1\r\n{HOST}\r\nAccept: {accept}\r\n\r\n".encode())
    found, _, page = client.answers(1)[0]
    assert found == status
    assert (b"http://127.0.0.1/mcp" in page) is (status == 200), "a page says where it is"


def test_empty_lines_before_a_request_are_let_pass(same_edge: Edge) -> None:
    client = same_edge.send(b"\r\n\r\n" + request(), b"\r\n" + request())
    assert [status for status, _, _ in client.answers(2)] == [200, 200]


def test_head_has_no_body(same_edge: Edge) -> None:
    found = same_edge.send(f"HEAD /mcp HTTP/1.1\r\n{HOST}\r\nConnection: close\r\n\r\n".encode()).raw()
    assert found.startswith(b"HTTP/1.1 405 ")
    assert found.endswith(b"\r\n\r\n")


# Wishes for another protocol.


@pytest.mark.parametrize("at_once", [True, False])
def test_a_body_after_a_wish_for_another_protocol_is_a_body(at_once: bool, same_ours: Edge) -> None:
    """So Java's client asks for HTTP/2 by default. llhttp takes no body then: what comes would be the next request."""
    wish = request(tool("hold"), connection="Upgrade, HTTP2-Settings", upgrade="h2c", http2_settings="AAMAAABk")
    good = request(connection="Upgrade, HTTP2-Settings", upgrade="h2c", http2_settings="AAMAAABk")
    for message, status in ((wish, 400), (good, 200)):
        head, _, rest = message.partition(b"\r\n\r\n")
        pieces = [head + b"\r\n\r\n", rest, request()]
        client = same_ours.send(*([b"".join(pieces)] if at_once else pieces))
        assert [found for found, _, _ in client.answers(2)] == [status, 200]
    assert same_ours.world.seen == []


def test_a_websocket_is_refused(same_edge: Edge) -> None:
    wish = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA=="
    status = same_edge.send(f"GET /mcp HTTP/1.1\r\n{HOST}\r\n{wish}\r\n\r\n".encode()).answers(1)[0][0]
    assert status in (403, 405)


def test_a_wish_to_close_stays_when_the_other_is_declined(same_ours: Edge) -> None:
    assert same_ours.send(request(connection="close, upgrade", upgrade="h2c")).statuses() == [200]


# Bodies.


def test_a_client_that_asks_is_told_to_go_on(same_edge: Edge) -> None:
    head, _, rest = request(expect="100-continue").partition(b"\r\n\r\n")
    client = same_edge.send(head + b"\r\n\r\n")
    assert client.socket.recv(1000) == b"HTTP/1.1 100 Continue\r\n\r\n"
    assert client.send(rest).answers(1)[0][0] == 200


def test_a_client_that_does_not_wait_is_not_told(same_ours: Edge) -> None:
    assert same_ours.send(request(expect="100-continue")).answers(1)[0][0] == 200


def test_a_body_that_would_be_refused_is_not_asked_for(same_edge: Edge) -> None:
    head = request(expect="100-continue", origin="https://evil.com").partition(b"\r\n\r\n")[0] + b"\r\n\r\n"
    assert same_edge.send(head).answers(1)[0][0] == 403


def test_a_client_sees_why_its_body_is_refused_though_it_goes_on_sending(ours: Callable[..., Edge]) -> None:
    server = ours(max_body_bytes=1000)
    head = request(length=False, content_length="3000000").partition(b"\r\n\r\n")[0] + b"\r\n\r\n"
    client = server.send(head)
    for _ in range(30):
        client.send(b"x" * 100_000)
        time.sleep(0.001)
    status, headers, data = client.rest()[0]
    assert (status, headers["connection"]) == (413, "close")
    assert b"max_body_bytes" in data


def test_chunks_that_are_all_framing_are_refused(same_ours: Edge) -> None:
    head = request(length=False, transfer_encoding="chunked").partition(b"\r\n\r\n")[0] + b"\r\n\r\n"
    client = same_ours.send(head)
    for _ in range(10):
        client.send(b"1;" + b"a" * 20_000 + b"\r\nx\r\n")
        time.sleep(0.01)
    assert client.statuses() == [400]


def test_a_head_without_an_end_is_refused(same_ours: Edge) -> None:
    client = same_ours.send(f"{PLAIN}X: ".encode())
    for _ in range(40):
        client.send(b"a" * 10_000)
        time.sleep(0.001)
    assert client.statuses() == [431]


def test_the_largest_of_too_many_bodies_is_refused(edge: Callable[..., Edge]) -> None:
    server = edge(max_incoming_bytes=50_000, max_body_bytes=40_000)
    head = request(length=False, content_length="40000").partition(b"\r\n\r\n")[0] + b"\r\n\r\n"
    small, large = server.send(head, b" " * 10_000), server.send(head, b" " * 30_000)
    server.until(lambda: server.arriving() == [10_000, 30_000])
    late = server.send(head, b" " * 15_000)
    status, headers, data = large.rest()[0]
    assert (status, headers["connection"]) == (503, "close")
    assert b"max_incoming_bytes" in data
    for client, missing in ((small, 30_000), (late, 25_000)):
        assert client.send(b" " * missing).answers(1)[0][0] == 400  # complete, though no JSON


def test_one_body_more_than_may_arrive_is_refused(edge: Callable[..., Edge]) -> None:
    server = edge(max_streams=2)
    head, _, rest = request().partition(b"\r\n\r\n")
    first, second = server.send(head + b"\r\n\r\n"), server.send(head + b"\r\n\r\n")
    server.until(lambda: len(server.arriving()) == 2)
    assert b"max_streams" in server.send(head + b"\r\n\r\n").answers(1)[0][2]
    for client in (first, second):
        assert client.send(rest).answers(1)[0][0] == 200


class _Racing(ServerExchange):
    """A response that a thread completes between two looks at it."""

    def events(self) -> list[HttpEvent]:
        self.respond(200, b"late")
        return super().events()


def test_an_answer_that_comes_between_two_looks_is_sent_whole() -> None:
    face = Http(World().server)
    sent: list[bytes] = []

    async def look() -> None:
        protocol, _ = face.connect(sent.append)
        protocol._opened = Opened(_Racing())
        protocol._flush()

    try:
        face.loop.run(look)
    finally:
        face.stop()
    assert b"".join(sent).endswith(b"content-length: 4\r\n\r\nlate")


# Clients that go, and clients that do not read.


@pytest.mark.parametrize("name", ["hold", "hold_async", "tell_then_hold", "tell_then_hold_async"])
@pytest.mark.parametrize("how", ["close", "half"])
def test_a_client_that_goes_cancels_its_call(name: str, how: str, edge: Callable[..., Edge]) -> None:
    server = edge()
    client = server.send(tool(name, token="t"))
    server.world.wait_for("holding")
    if how == "half":  # it may mean that no more requests come, or that it is gone: nobody can tell
        client.socket.shutdown(socket.SHUT_WR)
    else:
        client.socket.close()
    server.world.wait_for("cancelled")
    server.until(lambda: len(server.endpoint.streams) == 0)


def test_a_client_that_half_closes_gets_what_was_answered(same_ours: Edge) -> None:
    client = same_ours.send(request(body("server/discover")))
    client.socket.shutdown(socket.SHUT_WR)
    assert client.statuses() in ([200], [])


def test_who_does_not_read_is_not_served_on(edge: Callable[..., Edge]) -> None:
    server = edge()
    client = server.connect()
    client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
    many = 100
    sender = threading.Thread(
        target=client.socket.sendall,
        args=(b"".join(tool("text", n, size=200_000) for n in range(many)),),
        daemon=True,
    )
    sender.start()
    time.sleep(0.3)
    served = server.serving.server_state.total_requests
    assert served < many / 2  # a few fill the buffers between us
    assert [json.loads(each[2])["id"] for each in client.answers(many)] == list(range(many))
    sender.join(60)


def test_an_answer_of_megabytes_arrives_whole(same_edge: Edge) -> None:
    _, _, data = same_edge.send(tool("text", size=5_000_000)).answers(1)[0]
    assert json.loads(data)["result"]["content"][0]["text"] == "x" * 5_000_000


@pytest.mark.parametrize("name", ["tell_then_hold", "tell_then_hold_async"])
def test_a_reader_that_has_stopped_ends_its_stream_after_send_timeout(name: str, ours: Callable[..., Edge]) -> None:
    server = ours(send_timeout=0.2)
    client = server.connect()
    client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.send(tool("flood", token="t", parts=1_000_000, size=10_000))
    server.world.wait_for("cancelled")
    server.until(lambda: len(server.endpoint.streams) == 0)


def test_a_reader_that_leaves_too_much_loses_its_call_and_its_connection(edge: Callable[..., Edge]) -> None:
    server = edge(max_unsent_bytes=100_000, send_timeout=600.0)
    client = server.connect()
    client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.send(tool("flood", token="t", parts=1_000_000, size=10_000))
    server.world.wait_for("cancelled")
    server.until(lambda: len(server.endpoint.streams) == 0)
    with suppress(ConnectionResetError):
        while client.socket.recv(1_000_000):  # what was written before, and then its end
            continue


def test_a_connection_is_not_idle_while_a_token_is_verified(
    ours: Callable[..., Edge], monkeypatch: pytest.MonkeyPatch
) -> None:
    server = ours(timeout_keep_alive=1)
    app = server.serving._app
    assert isinstance(app, DirectApp)
    began, good = threading.Event(), threading.Event()

    class Slow:
        def admit(self, facts: Any, *_: object, **__: object) -> Any:
            return SimpleNamespace(awaited=partial(self.awaited, facts))

        async def awaited(self, facts: Any) -> Any:
            began.set()
            await asyncio.to_thread(good.wait, 60)
            return facts

        def good_until(self, _: object) -> float:
            return 0.0

    client = server.send(request())
    assert client.answers(1)[0][0] == 200
    monkeypatch.setattr(app, "guard", Slow())
    client.send(request().replace(b"\r\n\r\n", b"\r\nx-new: 1\r\n\r\n", 1))  # so that its head is looked at
    assert began.wait(60)
    (protocol,) = server.serving.server_state.connections
    looked = threading.Event()
    protocol.loop.call_soon_threadsafe(lambda: (protocol.handle_timeouts(time.monotonic() + 1000), looked.set()))
    assert looked.wait(60)
    good.set()
    assert client.answers(2)[1][0] == 200


@pytest.mark.parametrize("chunked", [False, True])
def test_a_body_may_be_as_large_as_max_body_bytes(chunked: bool, edge: Callable[..., Edge]) -> None:
    server, data = edge(max_body_bytes=2000), body("tools/list")
    text = json.dumps(data)
    for size, status in ((2000, 200), (2001, 413)):
        content = text.encode() + b" " * (size - len(text))
        head = request(data).partition(b"\r\n\r\n")[0]
        lines = [each for each in head.split(b"\r\n") if not each.lower().startswith(b"content-length")]
        framing = b"transfer-encoding: chunked" if chunked else b"content-length: %d" % size
        sent = b"%x\r\n%b\r\n0\r\n\r\n" % (size, content) if chunked else content
        assert server.send(b"\r\n".join([*lines, framing, b"", sent])).answers(1)[0][0] == status


# Time.


def test_late_heads_bodies_and_idle_connections_are_closed(ours: Callable[..., Edge]) -> None:
    server = ours(head_timeout=1.0, body_timeout=1.0, timeout_keep_alive=1)
    head = request().partition(b"\r\n\r\n")[0] + b"\r\n\r\n"
    silent, begun, idle, slow = server.connect(), server.send(b"POST /mc"), server.send(request()), server.send(head)
    busy = server.send(tool("hold_async"))
    assert idle.answers(1)[0][0] == 200
    assert [silent.rest(), begun.rest(), idle.statuses(), slow.statuses()] == [[], [], [200], [408]]
    server.world.let_go.set()
    assert busy.answers(1)[0][0] == 200


def test_a_head_that_drips_gets_no_more_time_for_each_byte(ours: Callable[..., Edge]) -> None:
    client = ours(head_timeout=1.0).send(b"POST /mcp HTTP/1.1\r\nX: ")
    client.socket.settimeout(0.05)
    for _ in range(300):
        try:
            client.send(b"x")
            assert client.socket.recv(1) == b""
            return
        except TimeoutError:
            continue
        except ConnectionError:
            return
    raise AssertionError("the connection is still open")


# What uvicorn's options say.


def test_a_trusted_proxy_names_the_client_and_others_do_not(
    edge: Callable[..., Edge], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "uvicorn.access")
    logging.getLogger("uvicorn.access").propagate = True  # servers without an access log switch it off for the process
    for trusted in ("127.0.0.1", "10.9.9.9"):
        server = edge(forwarded_allow_ips=trusted, access_log=True, log_level="info")
        assert server.send(request(x_forwarded_for="203.0.113.7", x_forwarded_proto="https")).answers(1)[0][0] == 200
    lines = [each.getMessage() for each in caplog.records if each.name == "uvicorn.access"]
    assert lines[0] == '203.0.113.7:0 - "POST /mcp HTTP/1.1" 200'
    assert lines[-1].startswith("127.0.0.1:")


def test_limit_concurrency(edge: Callable[..., Edge]) -> None:
    server = edge(limit_concurrency=2)
    first = server.send(tool("hold_async"))
    server.world.wait_for("holding")
    status, headers, data = server.send(request()).rest()[0]
    assert (status, headers["connection"], data) == (503, "close", b"Service Unavailable")
    server.world.let_go.set()
    assert first.answers(1)[0][0] == 200


def test_limit_max_requests_ends_the_server(edge: Callable[..., Edge]) -> None:
    server = edge(limit_max_requests=3)
    assert len(server.send(request() * 3).answers(3)) == 3
    server.thread.join(60)
    assert not server.thread.is_alive()


def test_headers_of_every_answer(edge: Callable[..., Edge]) -> None:
    server = edge(headers=[("X-Mine", "yes")], server_header=False)
    for message in (request(), request(origin="https://evil.com"), b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n"):
        _, headers, _ = server.send(message).answers(1)[0]
        assert headers["x-mine"] == "yes"
        assert "date" in headers
        assert "server" not in headers


def test_a_path_in_front_of_the_endpoint(edge: Callable[..., Edge]) -> None:
    server = edge(root_path="/api")
    assert server.send(request()).answers(1)[0][0] == 200
    assert server.send(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n").answers(1)[0][2] == b"ok"


# The end.


def test_at_the_end_idle_connections_close_and_running_calls_are_answered(edge: Callable[..., Edge]) -> None:
    server = edge(drain=10.0)
    idle, busy = server.send(request()), server.send(tool("hold_async"))
    idle.answers(1)
    server.world.wait_for("holding")
    server.serving.should_exit = True
    assert len(idle.rest()) == 1
    server.world.let_go.set()
    assert busy.statuses() == [200]


def test_a_call_that_outlasts_the_drain_is_cancelled_and_refused(ours: Callable[..., Edge]) -> None:
    server = ours(drain=0.2)
    busy, stream = server.send(tool("hold_async")), server.send(tool("tell_then_hold_async", token="t"))
    server.until(lambda: server.world.seen.count("holding") == 2)
    server.serving.should_exit = True
    assert busy.statuses() == [503]
    assert b"event-stream" in stream.raw()
    server.until(lambda: server.world.seen.count("cancelled") == 2)


# In whatever pieces it comes.

MANY = [
    tool("add", 1, a=1, b=2),
    request(length=False, transfer_encoding="chunked").partition(b"\r\n\r\n")[0] + b"\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
    b"\r\n" + tool("count", 2, token="t", to=2),
    request(connection="Upgrade", upgrade="h2c"),
    tool("text", 3, size=100),
    request(b"not json"),
    b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n",
    tool("add_async", 4, a=3, b=4),
]


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(cuts=st.lists(st.integers(1, len(b"".join(MANY)) - 1), max_size=12))
def test_pieces_do_not_change_the_answers(cuts: list[int], edges: list[Edge]) -> None:
    if not edges:
        edges.append(Edge("ours"))
    whole, ends = b"".join(MANY), sorted(set(cuts))
    client = edges[0].connect()
    for begin, end in zip([0, *ends], [*ends, len(whole)], strict=True):
        client.send(whole[begin:end])
    found = client.answers(len(MANY))
    client.socket.close()
    assert [status for status, _, _ in found] == [200, 400, 200, 200, 200, 400, 200, 200]
    assert (value(found[0]), value(found[3]), value(found[7])) == (3, 3, 7)


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(at=st.integers(0, len(b"".join(MANY)) - 1), put=st.binary(max_size=6), cut=st.integers(0, 6))
def test_damage_is_refused_or_served_but_never_a_failure(at: int, put: bytes, cut: int, edges: list[Edge]) -> None:
    if not edges:
        edges.append(Edge("ours", head_timeout=1.0, body_timeout=1.0, timeout_keep_alive=1))
        for name in ("uvicorn.error", "asyncio"):
            logging.getLogger(name).addFilter(_unexpected)
    whole = b"".join(MANY)
    client = edges[0].connect()
    client.send(whole[:at] + put + whole[at + cut :])
    client.socket.shutdown(socket.SHUT_WR)
    with suppress(ConnectionError):
        client.raw()
    client.socket.close()
    assert value(edges[0].send(request()).answers(1)[0]) == 3
    assert failures == []


failures: list[str] = []


def _unexpected(record: logging.LogRecord) -> bool:
    if record.exc_info:
        failures.append(record.getMessage())
    return True
