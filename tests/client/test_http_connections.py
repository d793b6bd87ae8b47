"""The HTTP client itself: what it sends, how it reads, which connections it keeps. Each promise holds in threads and on loops.

`ask` runs one request and returns what came of it; RawServer answers with whatever bytes it is told.
"""

from __future__ import annotations

import asyncio
import gzip
import socket
import ssl
import subprocess
import sys
import threading
import time
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from faces import FACES, wait_until
from test_http_proxies_and_tls import certificate, no_proxies, server

from linkspan import Client, SyncClient
from linkspan.client.transports import http_loops, http_runs, http_threads
from linkspan.client.transports.http_connections import LARGEST_HEAD, MOST_LINES, HttpConnection, Routes, patiences
from linkspan.client.transports.http_guarded import GuardedHttp
from linkspan.client.transports.http_loops import LoopPool
from linkspan.client.transports.http_requests import HttpFailure, HttpFlow, Open, ReadBody, Wait
from linkspan.client.transports.http_runs import HttpRuns
from linkspan.client.transports.http_threads import ThreadPool, ThreadRun
from linkspan.core.auth_flow import Http, HttpUnavailable
from over_http import serving
from ports import reserve_port
from raw_http import CUT, RawServer, event, http, message, sse

__all__ = ["certificate", "no_proxies"]

pytestmark = pytest.mark.timeout(60)


class Asked:
    """What came of a request: `failure`, or the rest."""

    status = 0
    headers: Mapping[str, str] = {}
    body = b""
    peer = ""
    failure: HttpFailure | None = None

    def flow(
        self, url: str, headers: Mapping[str, str], body: bytes, method: str, *, reads: bool = True
    ) -> HttpFlow[None]:
        try:
            reply = yield Open(method, url, headers, body)
            try:
                self.status, self.headers, self.peer = reply.status, dict(reply.headers), reply.peer
                while reads and (chunk := (yield ReadBody(reply))):
                    self.body += chunk
            finally:
                reply.give_back()
        except HttpFailure as failure:
            self.failure = failure


Ask = Callable[..., Asked]


@pytest.fixture(params=FACES)
def ask(request: pytest.FixtureRequest) -> Iterator[Ask]:
    """Returns how to send a request over connections that are kept for the next."""
    context: dict[str, Any] = {}

    def flow_of(
        url: str, headers: Mapping[str, str] | None, body: bytes, method: str, reads: bool
    ) -> tuple[Asked, HttpFlow[None]]:
        found = Asked()
        return found, found.flow(url, headers or {}, body, method, reads=reads)

    def in_thread(
        url: str, headers: Any = None, body: bytes = b"{}", method: str = "POST", ssl: Any = None, reads: bool = True
    ) -> Asked:
        pool = context.setdefault("pool", ThreadPool(Routes(ssl, 5.0)))
        found, flow = flow_of(url, headers, body, method, reads)
        ThreadRun(flow, pool).run()
        return found

    def on_loop(
        url: str, headers: Any = None, body: bytes = b"{}", method: str = "POST", ssl: Any = None, reads: bool = True
    ) -> Asked:
        pool = context.setdefault("pool", LoopPool(Routes(ssl, 5.0), runner.get_loop()))
        found, flow = flow_of(url, headers, body, method, reads)

        async def run() -> None:
            ended = asyncio.Event()

            def to_its_end() -> HttpFlow[None]:
                yield from flow
                ended.set()

            pool.start([pool.run(to_its_end())])
            await ended.wait()

        runner.run(run())
        return found

    if request.param == "sync":
        yield in_thread
        if "pool" in context:
            context["pool"].close()
        return
    with asyncio.Runner() as runner:
        yield on_loop


def accepted(server: RawServer) -> int:
    """Return how many connections were made."""
    return len(server._connections)


# What is sent.


def test_a_request_is_sent_as_it_is_meant(ask: Ask) -> None:
    with RawServer({"x": [http(200, "ok")]}) as there:
        assert ask(there.url, {"x-name": "v\u00e4lue", "accept": "a/b"}, b'{"method":"x"}').body == b"ok"
        (request,) = there.requests
        assert (request.verb, request.path, request.body) == ("POST", "/mcp", b'{"method":"x"}')
        assert request.headers.pop("user-agent").startswith("linkspan/")
        assert request.headers == {
            "host": f"127.0.0.1:{there.port}",
            "accept-encoding": "gzip, deflate",
            "x-name": "v\u00e4lue",
            "accept": "a/b",
            "content-length": "14",
        }


@pytest.mark.parametrize(
    "headers",
    [{"a": "b\r\nc: d"}, {"a": "b\nc"}, {"a": "\0"}, {"a b": "c"}, {"a:": "c"}, {"": "c"}, {"a\r\nb": "c"}, {"a": 7}],
)  # fmt: skip
def test_headers_that_would_break_the_request_are_not_sent(headers: Any, ask: Ask) -> None:
    with RawServer() as there:
        failure = ask(there.url, headers).failure
        assert failure is not None
        assert (str(failure), failure.ours, failure.sent) == ("the request cannot be sent", True, False)
        assert there.requests == []


@pytest.mark.parametrize(
    "url", ["http://", "ftp://a/b", "http://a b/", "http://[::1", "http://a:99999/", "nothing", ""]
)
def test_a_url_that_is_not_valid_is_not_asked(url: str, ask: Ask) -> None:
    failure = ask(url).failure
    assert failure is not None
    assert (str(failure), failure.ours, failure.sent) == ("invalid URL", True, False)


def test_the_user_of_a_url_is_named_unless_a_header_names_another(ask: Ask) -> None:
    with RawServer() as there:
        url = there.url.replace("//", "//ada:love%40lace@")
        ask(url)
        ask(url, {"authorization": "Bearer t"})
        assert [each.headers["authorization"] for each in there.requests] == ["Basic YWRhOmxvdmVAbGFjZQ==", "Bearer t"]


@pytest.mark.parametrize(
    ("path", "sent"),
    [("/a b/\u00e4?q=\u00fc r#frag", "/a%20b/%C3%A4?q=%C3%BC%20r"), ("", "/"), ("?a=1", "/?a=1"), ("/%41%2f;x=1", "/%41%2f;x=1")],
)  # fmt: skip
def test_a_path_is_encoded_once(path: str, sent: str) -> None:
    assert Routes(None, 1.0).find(f"http://a{path}").target == sent


@pytest.mark.parametrize(
    ("url", "host"),
    [
        ("http://Example.COM/", "example.com"),
        ("http://example.com:80/", "example.com"),
        ("http://example.com:81/", "example.com:81"),
        ("https://[::1]:8443/", "[::1]:8443"),
        ("https://b\u00fccher.example/", "xn--bcher-kva.example"),
    ],
)
def test_the_host_is_named_as_servers_expect(url: str, host: str) -> None:
    assert Routes(None, 1.0).find(url).headers["host"] == host


# What is read.


PLAIN = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"
PACKED = gzip.compress(b"hello", mtime=0)
ANSWERS = {
    "length": PLAIN,
    "chunks": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2;x=y\r\nhe\r\n3\r\nllo\r\n0\r\nTrailer: x\r\n\r\n",
    "until the end": b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nhello",
    "until the end, 1.0": b"HTTP/1.0 200 OK\r\n\r\nhello",
    "after others": b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 X\r\nLink: x\r\n\r\n" + PLAIN,
    "after the last of others": b"HTTP/1.1 199 X\r\n\r\n" + PLAIN,
    "gzip": b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(PACKED) + PACKED,
}


@pytest.mark.parametrize("what", [b"HTTP/1.1 408 X\r\n", b""], ids=["a response", "the end"])
def test_a_connection_is_quiet_until_something_comes(what: bytes) -> None:
    connection, (ours, theirs) = HttpConnection(), socket.socketpair()
    with ours, theirs:
        assert connection.is_quiet(), "nothing is known of its socket"
        connection.watch(ours)
        assert connection.is_quiet()
        if what:
            theirs.sendall(what)
        else:
            theirs.close()
        assert not connection.is_quiet()


@pytest.mark.parametrize("size", [1, 3, 1000])
@pytest.mark.parametrize("name", ANSWERS)
def test_an_answer_is_the_same_in_any_pieces(name: str, size: int) -> None:
    data = ANSWERS[name]
    connection = HttpConnection()
    connection.expect()
    body = b""
    for at in range(0, len(data), size):
        connection.receive(data[at : at + size])
        while connection.answered and (piece := connection.take()):
            body += piece
    connection.receive_eof()
    assert connection.take() == b""
    assert (connection.status, body, connection.failure) == (200, b"hello", None)
    assert connection.reusable == (not name.startswith("until"))
    assert "link" not in connection.headers


CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
LINE = b"a: %b\r\n"


def received(*parts: bytes) -> HttpConnection:
    """Return a connection that has received a response in these parts."""
    connection = HttpConnection()
    connection.expect()
    for part in parts:
        connection.receive(part)
    return connection


def lines(count: int, size: int = 2) -> bytes:
    """Return so many header lines, with so many bytes of name and value each."""
    return LINE % (b"x" * (size - 1)) * count


@pytest.mark.parametrize(
    ("good", "more"),
    [
        (lines(MOST_LINES - 1), lines(1)),
        (b"HTTP/1.1 103 X\r\n%b\r\nHTTP/1.1 200 OK\r\n" % lines(10) + lines(MOST_LINES - 11), lines(1)),
        (lines(127, 1024) + lines(1, 1009), lines(1, 1)),
        (lines(1, LARGEST_HEAD - 15), b"a: \r\n"),
    ],
)
@pytest.mark.parametrize("size", [1000, 10**7])
def test_the_headers_of_an_answer_are_bounded_by_their_lines_and_bytes(good: bytes, more: bytes, size: int) -> None:
    length = b"Content-Length: 0\r\n\r\n"  # 15 bytes
    first = b"" if good.startswith(b"HTTP") else b"HTTP/1.1 200 OK\r\n"
    connections: list[HttpConnection] = []
    for head in (first + good + length, first + good + more + length):
        connections.append(received(*(head[at : at + size] for at in range(0, len(head), size))))
    fits, exceeds = connections
    assert (fits.failure, fits.complete) == (None, True)
    assert str(exceeds.failure) == "the response is not valid HTTP: its headers are too large"


def test_a_trailer_is_no_header() -> None:
    """RFC 9110, section 6.5.1."""
    connection = received(CHUNKED, b"2\r\nhi\r\n0\r\nRetry-After: 3600\r\nTransfer-Encoding: x\r\n\r\n")
    assert (connection.complete, connection.take(), connection.headers) == (
        True,
        b"hi",
        {"transfer-encoding": "chunked"},
    )


@pytest.mark.parametrize("part", [lines(MOST_LINES), lines(128, 1024), b"x" * 65536])
def test_trailers_without_end_are_an_error_and_are_not_kept(part: bytes) -> None:
    connection = received(CHUNKED, b"2\r\nhi\r\n0\r\n", *[part] * 5)
    assert str(connection.failure) == "the response is not valid HTTP: its trailers are too large"
    assert connection.take() == b"hi"
    with pytest.raises(HttpFailure):
        connection.take()


@pytest.mark.parametrize("part", [b"x" * 65536, b"HTTP/1.1 103 X\r\n\r\n" * 4096])
def test_a_head_without_end_is_an_error(part: bytes) -> None:
    connection = received(b"HTTP/1.1 103 X\r\n\r\nHTTP/1.1 200 " if part.startswith(b"x") else b"", *[part] * 5)
    assert str(connection.failure) == "the response is not valid HTTP: its headers are too large"


def test_an_extension_of_a_chunk_without_end_is_an_error() -> None:
    connection = received(CHUNKED, b"2;a=", *[b"x" * 65536] * 5)
    assert str(connection.failure) == "the response is not valid HTTP: its trailers are too large"


@pytest.mark.parametrize(
    ("coding", "pack"),
    [
        ("gzip", gzip.compress),
        ("X-GZIP", gzip.compress),
        ("deflate", zlib.compress),
        ("deflate", lambda data: zlib.compress(data)[2:-4]),
        ("identity", bytes),
    ],
)
def test_a_body_is_unpacked_in_bounded_pieces(coding: str, pack: Callable[[bytes], bytes]) -> None:
    data = b"".join(b"%d " % number for number in range(200_000))
    packed = pack(data)
    connection = HttpConnection()
    connection.expect()
    connection.receive(
        b"HTTP/1.1 200 OK\r\nContent-Encoding: %s\r\nContent-Length: %d\r\n\r\n" % (coding.encode(), len(packed))
    )
    connection.receive(packed)
    pieces = list(iter(connection.take, b""))
    assert b"".join(piece or b"" for piece in pieces) == data
    assert coding == "identity" or max(map(len, [piece or b"" for piece in pieces])) <= 65536


HEAD_OF = b"HTTP/1.1 200 OK\r\nContent-Encoding: %s\r\nContent-Length: %d\r\n\r\n"


def unpacked(coding: bytes, packed: bytes, size: int = 10**9) -> bytes:
    """Return what a body holds that comes in pieces of `size`. Raises: HttpFailure."""
    connection = received(HEAD_OF % (coding, len(packed)))
    body = b""
    for at in range(0, len(packed), size):
        connection.receive(packed[at : at + size])
        while piece := connection.take():
            body += piece
    while piece := connection.take():
        body += piece
    return body


@pytest.mark.parametrize("size", [1, 7, 10**9])
def test_a_body_of_several_members_is_unpacked_as_a_whole(size: int) -> None:
    """RFC 1952, section 2.2."""
    members = [b"he", b"", b"l" * 100_000, b"lo"]
    assert unpacked(b"gzip", b"".join(map(gzip.compress, members)), size) == b"".join(members)
    assert unpacked(b"gzip", b"", size) == b""


@pytest.mark.parametrize("size", [65535, 65536, 65537, 65536 * 2, 65536 + 258])
@pytest.mark.parametrize("coding", [b"gzip", b"deflate", b"raw"])
def test_a_body_that_ends_with_a_piece_is_unpacked_as_a_whole(coding: bytes, size: int) -> None:
    data = b"x" * size
    packed = {b"gzip": gzip.compress(data), b"deflate": zlib.compress(data), b"raw": zlib.compress(data)[2:-4]}[coding]
    assert unpacked(b"gzip" if coding == b"gzip" else b"deflate", packed) == data


@pytest.mark.parametrize(
    ("coding", "packed", "said"),
    [
        (b"gzip", PACKED[:-8], "its compressed body ends too early"),
        (b"gzip", PACKED[:-1], "its compressed body ends too early"),
        (b"gzip", PACKED * 2 + PACKED[:5], "its compressed body ends too early"),
        (b"deflate", zlib.compress(b"hello")[:-1], "its compressed body ends too early"),
        (b"gzip", PACKED + b"junk", "its compressed body cannot be decoded"),
        (b"gzip", PACKED + bytes(8), "its compressed body cannot be decoded"),
        (b"gzip", zlib.compress(b"hello"), "its compressed body cannot be decoded"),
        (b"deflate", zlib.compress(b"hello") + b"junk", "its compressed body cannot be decoded"),
        (b"deflate", zlib.compress(b"hello") * 2, "its compressed body cannot be decoded"),
        (b"gzip", PACKED[:-8] + bytes(8), "its compressed body cannot be decoded"),
    ],
)
@pytest.mark.parametrize("size", [1, 10**9])
def test_a_body_that_is_cut_or_goes_on_is_an_error(coding: bytes, packed: bytes, said: str, size: int) -> None:
    with pytest.raises(HttpFailure, match=said) as caught:
        unpacked(coding, packed, size)
    assert (caught.value.sent, caught.value.garbled) == (True, True)


def test_a_reply_knows_the_address_from_which_it_came(ask: Ask) -> None:
    """What a login may contact depends on it."""
    with RawServer({"x": [http(200, b"{}")]}) as server:
        assert ask(server.url).peer == "127.0.0.1"


def test_what_waits_for_work_elsewhere_keeps_its_time() -> None:
    """A person who logs in takes longer than a request may."""
    pool, found, waited = ThreadPool(Routes(None, 5.0)), Asked(), 0.5
    with RawServer({"x": [http(200, b"{}")]}) as server:

        def flow() -> HttpFlow[None]:
            yield Wait(lambda go_on: threading.Timer(waited, go_on).start())
            yield from found.flow(server.url, {}, b"{}", "POST")

        run = ThreadRun(flow(), pool, began := time.monotonic() + 5)
        run.run()
        assert run.deadline is not None
        assert run.deadline >= began + waited
    assert found.status == 202
    pool.close()


def test_connections_of_threads_that_nothing_uses_are_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    pool = ThreadPool(Routes(None, 5.0))
    with RawServer({"x": [http(200, b"{}")]}) as server:
        for _ in range(2):
            run = Asked()
            ThreadRun(run.flow(server.url, {}, b"{}", "POST"), pool).run()
        [connection] = pool._open
        pool._expire()
        assert pool._open == {connection}, "it was used a moment ago"
        monkeypatch.setattr(http_threads, "IDLE_SECONDS", 0.0)
        pool._expire()
        assert connection.socket.fileno() == -1
        assert not pool._open
        assert not pool._expires
    pool.close()


def test_a_coding_that_was_not_asked_for_cannot_be_read(ask: Ask) -> None:
    with RawServer({"POST": [], "x": [http(200, b"x", headers=["Content-Encoding: br"])]}) as there:
        failure = ask(there.url, body=b'{"method":"x"}').failure
    assert failure is not None
    assert (str(failure), failure.sent, failure.garbled) == ("its compressed body cannot be decoded", True, True)


def test_what_comes_after_an_answer_is_not_the_next_one(ask: Ask) -> None:
    twice = http(200, "first").encode(b"") + http(200, "stolen").encode(b"")
    with RawServer({"x": [twice], "y": [http(200, "second")]}) as there:
        assert ask(there.url, body=b'{"method":"x"}').body == b"first"
        assert ask(there.url, body=b'{"method":"y"}').body == b"second"
        assert accepted(there) == 2


@pytest.mark.parametrize(
    ("steps", "sent", "garbled"),
    [
        ([CUT], True, False),
        ([b"HTTP/1.1 2", CUT], True, False),
        ([http(200, "x", length=9), CUT], True, False),
        ([b"HTTP/1.1 101 X\r\nUpgrade: h2c\r\nConnection: upgrade\r\n\r\n", CUT], True, True),
        ([b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", CUT], True, True),
        ([b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 1\r\n\r\n0\r\n\r\n", CUT], True, True),
        ([b"SSH-2.0-x\r\n", CUT], True, True),
    ],
)
def test_a_failure_says_what_the_server_may_have_seen(steps: Any, sent: bool, garbled: bool, ask: Ask) -> None:
    with RawServer({"x": steps}) as there:
        failure = ask(there.url, body=b'{"method":"x"}').failure
    assert failure is not None
    assert (failure.sent, failure.garbled) == (sent, garbled)


BROKEN = b"HTTP/1.1 404 X\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\nno number\r\n"


def test_an_answer_whose_body_breaks_in_the_same_bytes_as_its_head_has_a_status(ask: Ask) -> None:
    with RawServer({"x": [BROKEN]}) as there:
        found = ask(there.url, body=b'{"method":"x"}')
    assert (found.status, found.body, str(found.failure)) == (404, b"hi", CLOSED)


def test_a_caller_that_awaits_such_an_answer_gets_its_status_too() -> None:
    async def run(url: str) -> int:
        pool = LoopPool(Routes(None, 5.0), asyncio.get_running_loop())
        async with pool.send("POST", url, {}, b'{"method":"x"}') as reply:
            return reply.status

    with RawServer({"x": [BROKEN]}) as there:
        assert asyncio.run(run(there.url)) == 404


def test_what_never_reached_a_server_is_said_to_be_unsent(ask: Ask) -> None:
    refused, unknown = ask(f"http://127.0.0.1:{reserve_port()}/").failure, ask("http://nothing.invalid/").failure
    assert refused is not None
    assert unknown is not None
    assert (refused.sent, unknown.sent) == (False, False)
    assert "refused" in str(refused)
    assert str(unknown) == "it cannot be reached: the host name does not resolve"


def test_an_authorization_server_that_cannot_be_reached_is_an_error_with_its_cure() -> None:
    port = reserve_port()
    guarded = GuardedHttp(
        f"http://127.0.0.1:{port}/", lambda host: True, lambda: {"127.0.0.1"}, plain={("http", "127.0.0.1", port)}
    )
    with pytest.raises(
        HttpUnavailable, match=r"cannot be reached: .* \(check that the server is running, .*\[LS-203\]\)"
    ):
        guarded.fetch(Http("GET", f"http://127.0.0.1:{port}/", {}))
    guarded.close()


def test_an_address_that_does_not_answer_holds_up_the_others_briefly() -> None:
    assert patiences(1) == (None,)
    first, then = patiences(2)
    assert first is not None
    assert first < 1.0
    assert then is None


# Connections.


def test_a_connection_carries_one_request_after_the_other_whatever_their_paths(ask: Ask) -> None:
    with RawServer() as there:
        for path in ("/mcp", "/mcp/", "/other?q=1"):
            assert ask(there.url.replace("/mcp", path)).status == 202
        assert [each.path for each in there.requests] == ["/mcp", "/mcp/", "/other?q=1"]
        assert accepted(there) == 1


def test_a_connection_that_the_server_has_closed_is_not_used_again(ask: Ask) -> None:
    with RawServer({"x": [http(200, "ok"), CUT]}) as there:
        for _ in range(3):
            found = ask(there.url, body=b'{"method":"x"}')
            assert (found.body, found.failure) == (b"ok", None)
            time.sleep(0.1)  # nothing runs on the loop meanwhile
        assert accepted(there) == 3


def test_an_answer_that_asks_to_close_is_the_last_of_its_connection(ask: Ask) -> None:
    with RawServer({"x": [http(200, "ok", headers=["Connection: close"])]}) as there:
        for _ in range(2):
            assert ask(there.url, body=b'{"method":"x"}').body == b"ok"
        assert accepted(there) == 2


def test_idle_connections_end_with_their_loop() -> None:
    """Else each `asyncio.run` would leave some behind, and Python would say so."""
    with RawServer() as there:
        client = Client(there.url)
        for _ in range(2):
            assert asyncio.run(client.call_tool("hi")).text == "hi"
            wait_until(lambda: all(_is_over(each) for each in there._connections[1:]))
        client.close_now()


def _is_over(connection: socket.socket) -> bool:
    return connection.fileno() == -1


async def _until(true: Callable[[], bool]) -> None:
    """Wait on a loop."""
    async with asyncio.timeout(30):
        while not true():
            await asyncio.sleep(0.005)


@pytest.mark.parametrize(("text", "length"), [("part", 10), ("whole", 5)])
def test_an_answer_that_is_not_read_to_its_end_ends_its_connection(text: str, length: int, ask: Ask) -> None:
    with RawServer({"x": [http(200, text, length=length)], "y": [http(200, "second")]}) as there:
        assert ask(there.url, body=b'{"method":"x"}', reads=False).status == 200
        assert ask(there.url, body=b'{"method":"y"}').body == b"second"
        assert accepted(there) == 2
        wait_until(lambda: _is_over(there._connections[0]))
        assert not _is_over(there._connections[1])


LASTS = [b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhi", lambda connection: connection.recv(1)]
"""The beginning of an answer whose end never comes."""


def test_a_pool_of_threads_that_is_closed_keeps_nothing() -> None:
    pool = ThreadPool(Routes(None, 5.0))
    with RawServer({"x": [http(200, "ok")]}) as there:
        for number in range(2):
            found = Asked()
            ThreadRun(found.flow(there.url, {}, b'{"method":"x"}', "POST"), pool).run()
            assert found.body == b"ok"
            pool.close()
            wait_until(lambda number=number: _is_over(there._connections[number]))
            assert not pool._open


@pytest.mark.parametrize("where", ["here", "in another thread"])
def test_a_pool_on_a_loop_that_is_closed_ends_what_runs_and_keeps_nothing(where: str) -> None:
    busy, later = Asked(), Asked()

    async def run(url: str) -> None:
        pool = LoopPool(Routes(None, 5.0), asyncio.get_running_loop())
        pool.start([pool.run(busy.flow(url, {}, b'{"method":"x"}', "POST"))])
        await _until(lambda: busy.body == b"hi")
        if where == "here":
            pool.close_soon()
        else:
            await asyncio.to_thread(pool.close_soon)
        await _until(lambda: busy.failure is not None and not pool.connections)
        pool.start([pool.run(later.flow(url, {}, b'{"method":"y"}', "POST"))])
        await _until(lambda: later.body == b"ok" and not pool.connections)

    with RawServer({"x": LASTS, "y": [http(200, "ok")]}) as there:
        asyncio.run(run(there.url))
        wait_until(lambda: all(map(_is_over, there._connections)))
        assert accepted(there) == 2
    assert str(busy.failure) == "the connection was closed in the middle of the response"


def test_connections_of_a_loop_that_nothing_uses_are_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    async def run(url: str) -> None:
        pool = LoopPool(Routes(None, 5.0), asyncio.get_running_loop())
        for _ in range(2):
            async with pool.send("POST", url, {}, b'{"method":"x"}') as reply:
                assert [each async for each in reply.chunks] == [b"ok"]
        [connection] = pool.connections
        first = pool._expiry
        assert first is not None
        pool._expire()
        assert pool.connections == {connection}, "it was used a moment ago"
        assert pool._expiry not in (None, first)
        monkeypatch.setattr(http_loops, "IDLE_SECONDS", 0.0)
        pool._expire()
        assert connection.closed
        assert not pool.connections
        assert pool._expiry is None
        first.cancel()
        await asyncio.to_thread(wait_until, lambda: _is_over(there._connections[0]))

    with RawServer({"x": [http(200, "ok")]}) as there:
        asyncio.run(run(there.url))


@pytest.mark.parametrize("last", [CUT, b"unasked"])
def test_an_idle_connection_on_which_anything_comes_is_closed_at_once(last: Any) -> None:
    async def run(url: str) -> None:
        pool = LoopPool(Routes(None, 5.0), asyncio.get_running_loop())
        async with pool.send("POST", url, {}, b'{"method":"x"}') as reply:
            assert [each async for each in reply.chunks] == [b"ok"]
        goes_on.set()
        await _until(lambda: not pool.connections)

    goes_on = threading.Event()
    with RawServer({"x": [http(200, "ok"), lambda _: goes_on.wait(30), last]}) as there:
        asyncio.run(run(there.url))
        wait_until(lambda: _is_over(there._connections[0]))


def test_who_awaits_an_answer_that_does_not_come_gets_the_failure() -> None:
    async def run(url: str) -> None:
        pool = LoopPool(Routes(None, 5.0), asyncio.get_running_loop())
        with pytest.raises(HttpFailure, match="the server closed the connection before it responded"):
            async with pool.send("POST", url, {}, b'{"method":"x"}'):
                pass
        assert not pool.connections

    with RawServer({"x": [CUT]}) as there:
        asyncio.run(asyncio.wait_for(run(there.url), 60))


def test_a_flow_that_has_ended_in_the_thread_of_its_caller_is_not_handed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another thread would send its request again."""
    handed: list[ThreadRun] = []
    pool = ThreadPool(Routes(None, 5.0))
    with RawServer() as there:
        ThreadRun(Asked().flow(there.url, {}, b"{}", "POST"), pool).run()
        monkeypatch.setattr(ThreadRun, "_hand_over", handed.append)
        found = Asked()
        run = ThreadRun(found.flow(there.url, {}, b"{}", "POST", reads=False), pool, time.monotonic() + 60)
        while run.step():
            continue
        assert found.status == 202
        assert handed == []
        assert len(there.requests) == 2
    pool.close()


def test_a_request_that_was_cancelled_before_it_began_is_not_sent() -> None:
    async def run(url: str) -> None:
        pool = LoopPool(Routes(None, 5.0), asyncio.get_running_loop())
        runs = [pool.run(Asked().flow(url, {}, b"{}", "POST")) for _ in range(100)]
        pool.start(runs)
        for each in runs:
            each.cancel()
        await asyncio.sleep(0.2)
        pool.close_now()

    with RawServer() as there:
        asyncio.run(run(there.url))
        assert len(there.requests) <= 32


@pytest.mark.parametrize("refused", [False, True])
def test_a_socket_whose_connection_is_not_made_is_closed(refused: bool) -> None:
    async def main() -> None:
        loop, begun = asyncio.get_running_loop(), asyncio.Event()
        sockets: list[socket.socket] = []

        async def connect(sock: socket.socket, address: object) -> None:
            sockets.append(sock)
            begun.set()
            if refused:
                raise ConnectionRefusedError
            await asyncio.Event().wait()

        loop.sock_connect = connect  # type: ignore[assignment, method-assign]
        pool = LoopPool(Routes(None, 30.0), loop)
        asked = Asked()
        pool.start([run := pool.run(asked.flow("http://127.0.0.1:9/", {}, b"{}", "POST"))])
        await begun.wait()
        if not refused:
            run.cancel()
        async with asyncio.timeout(30):
            while any(each.fileno() != -1 for each in sockets):
                await asyncio.sleep(0.005)
        assert sockets
        pool.close_now()

    asyncio.run(main())


def test_a_request_that_is_cancelled_while_its_connection_is_opened_is_not_sent_and_waits_for_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sent: list[object] = []
    monkeypatch.setattr(http_threads.ThreadConnection, "send", lambda _, data, deadline: sent.append(data))

    class Pool(ThreadPool):
        def open(self, *arguments: Any) -> Any:
            connection = super().open(*arguments)
            run.cancel()
            return connection

    with RawServer() as there:
        asked = Asked()
        run = ThreadRun(asked.flow(there.url, {}, b"{}", "POST"), Pool(Routes(None, 5.0)), time.monotonic() + 20)
        began = time.monotonic()
        run.run()
        assert time.monotonic() - began < 15
        assert sent == []


def test_a_thread_that_reads_is_released_when_its_request_is_cancelled() -> None:
    reached = threading.Event()

    def hang(connection: socket.socket) -> None:
        reached.set()
        with suppress(OSError):
            connection.recv(1)
        closed.set()

    closed = threading.Event()
    for steps in ([hang], [*sse(": open\n\n"), hang]):
        with RawServer({"x": steps}) as there:
            reached.clear()
            closed.clear()
            run = ThreadRun(Asked().flow(there.url, {}, b'{"method":"x"}', "POST"), ThreadPool(Routes(None, 5.0)))
            reading = threading.Thread(target=run.run)
            reading.start()
            assert reached.wait(30)
            run.cancel()
            assert closed.wait(30)
            reading.join(30)
            assert not reading.is_alive()


def test_a_request_whose_caller_has_left_closes_its_connection() -> None:
    """Its thread reads no more, so that nobody but `cancel` can."""
    pool = ThreadPool(Routes(None, 5.0))
    with RawServer({"x": sse(": open\n\n")}) as there:
        pool.keep(pool.open(pool.routes.find(there.url)))
        run = ThreadRun(Asked().flow(there.url, {}, b'{"method":"x"}', "POST"), pool)
        assert run.step()  # to the request
        assert run.step()  # to the head of the response
        (connection,) = pool._open
        run.cancel()
        assert connection.socket.fileno() == -1
        assert not pool._open
        assert not run.step()


def test_a_call_whose_callback_raises_closes_its_connection() -> None:
    class Mine(Exception):
        """An error of the application."""

    def fail(*_: object) -> None:
        (run,) = [each for each in transport._runs.by_key.values() if each._connection is not None]
        connections.append(run._connection)
        raise Mine

    connections: list[Any] = []
    progress = message(method="notifications/progress", params={"progressToken": "$ID", "progress": 1}).replace(
        '"id": $ID, ', ""
    )
    with RawServer({"tools/call": sse(event(progress))}) as there, SyncClient(there.url) as client:
        client.ping()
        transport: Any = client._supervisor._transport
        with pytest.raises(Mine):
            client.call_tool("hi", on_progress=fail)
        (connection,) = connections
        assert connection.socket.fileno() == -1


def test_a_flow_that_was_cancelled_by_itself_waits_for_nothing() -> None:
    async def run(url: str) -> None:
        pool = LoopPool(Routes(None, 5.0), asyncio.get_running_loop())
        ended = asyncio.Event()

        def flow() -> HttpFlow[None]:
            reply = yield Open("POST", url, {}, b'{"method":"x"}')
            try:
                run.cancel()
                yield ReadBody(reply)
            finally:
                reply.give_back()
                ended.set()

        run = pool.run(flow())
        pool.start([run])
        await asyncio.wait_for(ended.wait(), 30)
        assert not pool.connections

    with RawServer({"x": sse()}) as there:
        asyncio.run(run(there.url))


def test_a_cancelled_flow_leaves_a_connection_that_it_has_given_back_to_others() -> None:
    """Redirected, it connects elsewhere, while another request uses its first connection."""

    async def run(url: str) -> None:
        pool = LoopPool(Routes(None, 5.0), asyncio.get_running_loop())
        first, second = Asked(), Asked()

        def flow() -> HttpFlow[None]:
            yield from first.flow(url, {}, b'{"method":"x"}', "POST")
            yield Open("POST", "http://elsewhere.invalid/", {}, b"")

        redirected = pool.run(flow())
        pool.start([redirected])
        while not connecting.is_set():
            await asyncio.sleep(0)
        pool.start([pool.run(second.flow(url, {}, b'{"method":"slow"}', "POST"))])
        redirected.cancel()
        go.set()
        while not second.body and second.failure is None:
            await asyncio.sleep(0.01)
        assert (second.body, second.failure) == (b"ok", None)
        pool.close_now()

    connecting, go = threading.Event(), threading.Event()
    found = LoopPool.open

    async def never(self: LoopPool, url: str) -> Any:
        if "elsewhere" in url:
            connecting.set()
            await asyncio.Event().wait()
        return await found(self, url)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LoopPool, "open", never)
        with RawServer({"x": [http(200, "ok")], "slow": [lambda _: go.wait(30), http(200, "ok")]}) as there:
            asyncio.run(run(there.url))


# Encryption and tunnels.


CLOSED = "the connection was closed in the middle of the response"
REFUSED = (400, 406, 415)
"""How the server itself, rather than something on the way, answers a request that is no message."""


class Tunnels(threading.Thread):
    """A proxy that opens tunnels, or answers with `status`; with a certificate and its key, over TLS."""

    def __init__(self, status: int = 200, certificate: tuple[Path, Path] | None = None) -> None:
        super().__init__(daemon=True)
        self.heads: list[str] = []
        self.ended = threading.Semaphore(0)
        """Released with the end of each connection."""
        self._status = status
        self._tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH) if certificate is not None else None
        if self._tls is not None and certificate is not None:
            self._tls.load_cert_chain(*certificate)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self.start()

    def run(self) -> None:
        with suppress(OSError):
            while True:
                threading.Thread(target=self._serve, args=(self._listener.accept()[0],), daemon=True).start()

    def close(self) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _serve(self, near: socket.socket) -> None:
        head = b""
        if self._tls is not None:
            near = self._tls.wrap_socket(near, server_side=True)
        with near, suppress(OSError):
            while b"\r\n\r\n" not in head:
                head += near.recv(1)
            self.heads.append(head.decode())
            near.sendall(b"HTTP/1.1 %d X\r\n\r\n" % self._status)
            host, _, port = head.decode().split()[1].rpartition(":")
            with socket.create_connection((host, int(port))) as far:
                back = threading.Thread(target=self._pass, args=(far, near), daemon=True)
                back.start()
                self._pass(near, far)
                back.join(5)
        self.ended.release()

    @staticmethod
    def _pass(source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                target.sendall(data)
        with suppress(OSError):
            target.shutdown(socket.SHUT_RDWR)


def test_a_secure_server_is_reached_through_a_tunnel_and_only_the_proxy_gets_its_password(
    ask: Ask, certificate: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    proxy = Tunnels()
    monkeypatch.setenv("https_proxy", f"http://ada:lovelace@{proxy.address}")
    known = ssl.create_default_context(cafile=str(certificate[0]))
    with serving(server.asgi(), ssl_certfile=certificate[0], ssl_keyfile=certificate[1]) as url:
        secure = url.replace("http:", "https:")
        assert ask(secure, {"connection": "close"}, ssl=known).status in REFUSED
    proxy.close()
    (head,) = proxy.heads
    assert "\r\nproxy-authorization: Basic YWRhOmxvdmVsYWNl\r\n" in head


def test_a_secure_server_is_reached_through_a_proxy_that_is_spoken_to_over_tls(
    ask: Ask, certificate: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    proxy = Tunnels(certificate=certificate)
    monkeypatch.setenv("https_proxy", f"https://ada:lovelace@{proxy.address}")
    known = ssl.create_default_context(cafile=str(certificate[0]))
    with serving(server.asgi(), ssl_certfile=certificate[0], ssl_keyfile=certificate[1]) as url:
        secure = url.replace("http:", "https:")
        for body in (b"{}", b" " * 1_000_000):
            found = ask(secure, {"connection": "close", "content-type": "application/json"}, body, ssl=known)
            assert (found.failure, found.status in REFUSED) == (None, True)
    proxy.close()
    assert {head.splitlines()[0] for head in proxy.heads} == {f"CONNECT {secure[8:-4]} HTTP/1.1"}
    assert all("\r\nproxy-authorization: Basic YWRhOmxvdmVsYWNl\r\n" in head for head in proxy.heads)


def test_a_read_through_two_layers_of_tls_ends_with_the_connection_or_its_deadline(
    certificate: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    known = ssl.create_default_context(cafile=str(certificate[0]))
    proxy = Tunnels(certificate=certificate)
    monkeypatch.setenv("https_proxy", f"https://{proxy.address}")
    theirs = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    theirs.load_cert_chain(*certificate)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        accepted = threading.Thread(
            target=lambda: ends.append(theirs.wrap_socket(listener.accept()[0], server_side=True))
        )
        ends: list[ssl.SSLSocket] = []
        accepted.start()
        pool = ThreadPool(Routes(known, 30.0))
        connection = pool.open(pool.routes.find(f"https://127.0.0.1:{listener.getsockname()[1]}/"))
        accepted.join(30)
        connection.expect()
        connection.wait(time.monotonic() + 0.1)
        assert "timed out" in str(connection.failure)
        connection.failure = None
        ends[0].close()
        connection.wait(time.monotonic() + 30)
        assert "before it responded" in str(connection.failure)
        pool.drop(connection)
    proxy.close()


def test_what_is_closed_through_two_layers_of_tls_is_closed_at_the_proxy(
    certificate: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    known = ssl.create_default_context(cafile=str(certificate[0]))
    proxy = Tunnels(certificate=certificate)
    monkeypatch.setenv("https_proxy", f"https://{proxy.address}")
    theirs = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    theirs.load_cert_chain(*certificate)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        ends: list[ssl.SSLSocket] = []
        accepted = threading.Thread(
            target=lambda: ends.append(theirs.wrap_socket(listener.accept()[0], server_side=True))
        )
        accepted.start()
        pool = ThreadPool(Routes(known, 30.0))
        connection = pool.open(pool.routes.find(f"https://127.0.0.1:{listener.getsockname()[1]}/"))
        accepted.join(30)
        assert pool._open == {connection}
        pool.drop(connection)
        assert proxy.ended.acquire(timeout=30)
        assert not pool._open
        ends[0].close()
    proxy.close()


@pytest.mark.parametrize("proxy", ["socks5://ada:lovelace@127.0.0.1:1080", "socks5h://127.0.0.1:1080", "ftp://x"])
@pytest.mark.parametrize("name", ["https_proxy", "ALL_PROXY"])
def test_a_proxy_that_is_not_supported_is_named(
    name: str, proxy: str, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, proxy)
    failure = ask("https://far.example/").failure
    assert failure is not None
    shown = proxy.replace("ada:lovelace@", "")
    assert (
        str(failure) == f"the proxy {shown} is not supported: only proxies that speak HTTP are, by http:// or https://"
    )
    assert failure.hint == "check HTTP_PROXY, HTTPS_PROXY, ALL_PROXY and NO_PROXY [LS-208]"
    assert (failure.ours, failure.sent) == (True, False)


@pytest.mark.parametrize("proxy", ["http://:3128", "http://proxy:port", "http://a b:3128", "http://["])
def test_a_proxy_without_a_valid_address_is_not_taken_for_the_url_of_the_server(
    proxy: str, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("https_proxy", proxy)
    failure = ask("https://far.example/").failure
    assert failure is not None
    assert str(failure).startswith("the proxy ")
    assert failure.hint == "check HTTP_PROXY, HTTPS_PROXY, ALL_PROXY and NO_PROXY [LS-208]"


@pytest.mark.parametrize(("status", "said"), [(407, "answered with status 407"), (502, "answered with status 502")])
def test_a_tunnel_that_is_refused_names_the_proxy(
    status: int, said: str, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    proxy = Tunnels(status)
    monkeypatch.setenv("https_proxy", proxy.address)
    failure = ask("https://far.example/").failure
    proxy.close()
    assert failure is not None
    assert (str(failure), failure.sent) == (f"the proxy on the way to it {said}", False)


def test_a_connection_whose_tunnel_is_refused_is_closed(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    ends: list[bytes] = []

    def refuse(listener: socket.socket) -> None:
        with suppress(OSError):
            while True:
                near, _ = listener.accept()
                near.settimeout(60)
                with near:
                    head = b""
                    while b"\r\n\r\n" not in head:
                        head += near.recv(1000)
                    near.sendall(b"HTTP/1.1 407 X\r\n\r\n")
                    ends.append(near.recv(1000))

    with socket.create_server(("127.0.0.1", 0)) as listener:
        monkeypatch.setenv("https_proxy", f"http://127.0.0.1:{listener.getsockname()[1]}")
        refusing = threading.Thread(target=refuse, args=(listener,), daemon=True)
        refusing.start()
        for _ in range(2):  # on a loop the first is closed while the second is opened
            assert ask("https://far.example/").failure is not None
        wait_until(lambda: bool(ends))
        assert ends[0] == b""
        with suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)


def test_a_session_is_ended_though_no_thread_can_be_started_for_that(monkeypatch: pytest.MonkeyPatch) -> None:
    """As when the interpreter ends."""

    def no_thread(**_: object) -> None:
        raise RuntimeError("can't create new thread at interpreter shutdown")

    runs, found = HttpRuns(Routes(None, 5.0), threading.RLock()), Asked()
    monkeypatch.setattr(http_runs, "threading", SimpleNamespace(Thread=no_thread))
    with RawServer() as there:
        runs.close(found.flow(there.url, {}, b"", "DELETE"), 30.0)
        assert [each.verb for each in there.requests] == ["DELETE"]
        runs.wait_until_closed(0.0)
        assert runs._closed.is_set()
        wait_until(lambda: all(map(_is_over, there._connections)))


def test_flows_that_run_are_stopped_at_the_end() -> None:
    runs, begun = HttpRuns(Routes(None, 5.0), threading.RLock()), Asked()
    with RawServer({"x": LASTS}) as there:
        runs.prepare_alone("key", begun.flow(there.url, {}, b'{"method":"x"}', "POST"))
        runs.start_due()
        wait_until(lambda: begun.body == b"hi")
        runs.close(None, 0.0)
        wait_until(lambda: all(map(_is_over, there._connections)))
        runs.wait_until_closed(60)


def test_a_client_certificate_is_shown(ask: Ask, certificate: tuple[Path, Path]) -> None:
    known = ssl.create_default_context(cafile=str(certificate[0]))
    options = {"ssl_certfile": certificate[0], "ssl_keyfile": certificate[1], "ssl_ca_certs": certificate[0]}
    with serving(server.asgi(), ssl_cert_reqs=ssl.CERT_REQUIRED, **options) as url:
        known.load_cert_chain(certificate[0], certificate[1])
        assert ask(url.replace("http:", "https:"), {"connection": "close"}, ssl=known).status in REFUSED


# Cost.


def test_a_client_for_threads_needs_no_event_loop() -> None:
    program = (
        "import sys; from linkspan import SyncClient\n"
        "with SyncClient(sys.argv[1]) as client: assert client.call_tool('hi').text == 'hi'\n"
        "print(sorted({'asyncio', 'ssl', 'urllib.request', 'email'} & {*sys.modules}))"
    )
    with RawServer() as there:
        done = subprocess.run([sys.executable, "-c", program, there.url], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("[]\n", "")


def test_without_its_library_the_client_says_what_to_install() -> None:
    program = (
        "import sys; sys.modules['httptools'] = None\n"
        "from linkspan import ClientError, SyncClient\n"
        "try: SyncClient('http://127.0.0.1:9/mcp').connect()\n"
        "except ClientError as error: print(error.problem, '|', error.hint)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.stdout == "HTTP needs httptools | run pip install '.[http]' in your clone of Linkspan [LS-601]\n"


def test_a_large_answer_waits_for_its_reader() -> None:
    """On a loop: what a slow caller has not taken stays with the server."""

    async def run(url: str) -> int:
        pool = LoopPool(Routes(None, 5.0), asyncio.get_running_loop())
        async with pool.send("POST", url, {}, b'{"method":"x"}') as reply:
            first = await anext(aiter(reply.chunks))
            await asyncio.sleep(0.5)
            (connection,) = pool.connections
            waiting = sum(map(len, connection._chunks))
        pool.close_now()
        return len(first) + waiting

    with RawServer({"x": [http(200, message() + " " * 100_000_000)]}) as there:
        assert asyncio.run(run(there.url)) < 20_000_000


def test_a_host_whose_name_ends_with_a_digit_is_a_name(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    found = socket.getaddrinfo

    def fake(host: Any, port: int, *args: Any, **options: Any) -> Any:
        if options.get("flags"):
            return found(host, port, *args, **options)
        return found("127.0.0.1" if host in ("node1", b"node1") else host, port, *args, **options)

    monkeypatch.setattr(socket, "getaddrinfo", fake)
    with RawServer() as there:
        assert ask(there.url.replace("127.0.0.1", "node1")).status == 202


@pytest.mark.parametrize("first", ["start", "step"])
def test_a_flow_is_run_by_one_thread_whichever_comes_first(first: str) -> None:
    began, go, ran = threading.Event(), threading.Event(), list[int]()

    def flow() -> Any:
        ran.append(threading.get_ident())
        began.set()
        assert go.wait(10)
        return None
        yield

    run = ThreadRun(flow(), ThreadPool(Routes(None, 5.0)))
    waiting = threading.Thread(target=run.step)
    run.start() if first == "start" else waiting.start()
    assert began.wait(10)
    waiting.start() if first == "start" else run.start()
    if first == "start":
        waiting.join(10)
    go.set()
    if first == "step":
        waiting.join(10)
        assert ran == [waiting.ident]
    assert len(ran) == 1


# Heads that are sent again.


def test_a_head_is_written_again_only_where_something_in_it_differs() -> None:
    route = Routes(None, 1.0).find("http://a/mcp")
    first = route.encode("POST", {"x": "1"}, b"{}")
    assert route.encode("POST", {"x": "1"}, b"{}!") == first.replace(b"content-length: 2", b"content-length: 3") + b"!"
    assert route.encode("POST", {"x": "2"}, b"{}") == first.replace(b"x: 1", b"x: 2")
    assert (
        route.encode("DELETE", {"x": "1"}, b"")
        == first.replace(b"POST", b"DELETE").replace(b"content-length: 2\r\n", b"")[:-2]
    )
    assert len(route.heads) == 3


def test_the_heads_that_are_kept_do_not_grow_without_bound() -> None:
    route = Routes(None, 1.0).find("http://a/mcp")
    for number in range(1000):
        assert f"x: {number}\r\n".encode() in route.encode("POST", {"x": str(number)}, b"{}")
    assert len(route.heads) <= 32
