"""What a client keeps because of its servers ends at a bound: the last that fits, and one more."""

from __future__ import annotations

import re
import socket
import threading
from types import SimpleNamespace
from typing import Any

import pytest
from test_negotiation import ORIGIN, WEB, state

from linkspan.client.transports import base, http_loops, stdio
from linkspan.client.transports.base import CallbackWaiter, ClientTransport
from linkspan.client.transports.http import HttpClientTransport
from linkspan.client.transports.http_accesses import HttpAccesses
from linkspan.client.transports.http_connections import (
    END_OF_HEAD,
    LARGEST_HEAD,
    HttpConnection,
    Routes,
    TunnelAnswer,
    connect_failure,
)
from linkspan.client.transports.http_loops import LoopConnection
from linkspan.client.transports.http_requests import HttpFailure
from linkspan.client.transports.stdio import StdioClientTransport
from linkspan.core.flow import RequestSpec
from linkspan.flows.client_errors import ConnectionLost
from linkspan.flows.http_messages import http_error

# Routes, and the heads of requests.


def test_routes_are_remembered_up_to_a_bound() -> None:
    routes, sizes = Routes(None, 1.0), set[int]()
    for number in range(200):
        url = f"http://there/{number}"
        found = routes.find(url)
        assert found.target == f"/{number}"
        assert routes.find(url) is found
        assert routes.known(url) is found
        sizes.add(len(routes._known))
    assert max(sizes) == 64
    assert routes.known("http://there/0") is None


def test_heads_of_requests_are_remembered_up_to_a_bound() -> None:
    route, sizes = Routes(None, 1.0).find("http://there/mcp"), set[int]()
    for number in range(100):
        for _ in range(2):
            sent = route.encode("POST", {"x-number": str(number)}, b"body")
            head, _, body = sent.partition(END_OF_HEAD)
            assert f"x-number: {number}".encode() in head.split(b"\r\n")
            assert body == b"body"
        sizes.add(len(route.heads))
    assert max(sizes) == 32


@pytest.mark.parametrize(
    ("method", "body", "length"),
    [("POST", b"", b"0"), ("POST", b"{}", b"2"), ("GET", b"", None), ("DELETE", b"x", b"1")],
)
def test_a_request_names_the_length_of_its_body(method: str, body: bytes, length: bytes | None) -> None:
    lines = Routes(None, 1.0).find("http://there/mcp").encode(method, {}, body).split(b"\r\n")
    assert [each for each in lines if each.startswith(b"content-length")] == (
        [b"content-length: " + length] if length is not None else []
    )


# Responses.


def connection(*parts: bytes) -> HttpConnection:
    found = HttpConnection()
    found.expect()
    for each in parts:
        found.receive(each)
    return found


def test_a_line_without_an_end_is_counted_by_its_bytes() -> None:
    head = b"HTTP/1.1 200 OK\r\nx: "
    rest = 2 * LARGEST_HEAD - len(head)
    found = connection(head, b"y" * rest)
    assert found.failure is None
    found.receive(b"y")
    assert "its headers are too large" in str(found.failure)


def test_what_is_counted_of_a_response_begins_anew_with_its_body_and_with_the_next_one() -> None:
    head = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n" + b"x: %b\r\n" % (b"y" * 100_000) + b"\r\n"
    found = HttpConnection()
    for _ in range(4):
        found.expect()
        found.receive(head)
        for _ in range(4):
            found.receive(b"%x\r\n%b\r\n" % (100_000, b"z" * 100_000))
            assert found.take() == b"z" * 100_000
        found.receive(b"0\r\n\r\n")
        assert found.failure is None
        assert found.take() == b""
        assert found.reusable


@pytest.mark.parametrize(
    ("end", "until_eof", "reason", "problem"),
    [
        (b"", False, "", "the server closed the connection before it responded"),
        (b"", False, "reset", "the connection was lost before the response arrived (reset)"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhi", False, "", "was closed in the middle of the response"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhi", False, "reset", "in the middle of the response (reset)"),
        (b"HTTP/1.1 200 OK\r\n\r\nhi", True, "", None),
        (b"HTTP/1.1 200 OK\r\n\r\nhi", True, "reset", "in the middle of the response (reset)"),
    ],
)
def test_the_end_of_a_connection_is_worded(end: bytes, until_eof: bool, reason: str, problem: str | None) -> None:
    found = connection(*([end] if end else []))
    found.receive_eof(reason)
    assert found.complete == (problem is None)
    if problem is None:
        assert (found.take(), found.take()) == (b"hi", b"")
    else:
        assert problem in str(found.failure)
        found.receive_eof("another")
        assert problem in str(found.failure)
    assert not found.reusable
    assert until_eof == found._until_eof


@pytest.mark.parametrize("before", [b"", b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi"])
def test_what_nobody_asked_for_is_an_error(before: bytes) -> None:
    found = connection(before) if before else HttpConnection()
    found.receive(b"HTTP/1.1 200 OK\r\n\r\n")
    assert "it sent data that was not requested" in str(found.failure)
    assert not found.reusable


# What can go wrong before there is a connection.


class Named(Exception):
    """An error of TLS."""

    verify_message = "self-signed  certificate\nin the chain"


Named.__module__ = "ssl"


@pytest.mark.parametrize(
    ("error", "problem", "code"),
    [
        (socket.gaierror(-2, "unknown"), "the host name does not resolve", "LS-202"),
        (UnicodeError("label too long"), "the host name does not resolve", "LS-202"),
        (TimeoutError(), "the connection timed out", "LS-203"),
        (Named(), "the TLS handshake failed: self-signed certificate in the chain", "LS-"),
        (ConnectionRefusedError(111, "Connection refused"), r"refused or failed \(Connection refused\)", "LS-203"),
        (OSError(), r"refused or failed \(OSError\)", "LS-203"),
    ],
)
def test_what_prevents_a_connection_is_worded_and_nothing_was_sent(error: Exception, problem: str, code: str) -> None:
    found = connect_failure(error)
    assert re.search(problem, str(found))
    assert (found.sent, found.ours, found.garbled) == (False, False, False)
    assert code in (found.hint or "")
    assert connect_failure(found) is found


# Tunnels.


@pytest.mark.parametrize("size", [1, 2, 3, 5, 1000])
def test_a_tunnel_is_open_with_the_end_of_the_head_however_it_comes(size: int) -> None:
    head, answer = b"HTTP/1.1 200 Connection established\r\nx: y\r\n\r\n", TunnelAnswer()
    found = [answer.receive(head[at : at + size]) for at in range(0, len(head), size)]
    assert found == [False] * (len(found) - 1) + [True]


@pytest.mark.parametrize(
    ("head", "problem"),
    [
        (b"HTTP/1.1 407 X\r\n\r\n", "answered with status 407"),
        (b"HTTP/1.0 302 X\r\n\r\n", "answered with status 302"),
        (b"HTTP/1.1 100 X\r\n\r\n", "answered with status 100"),
        (b"\r\n\r\n", "does not speak HTTP"),
        (b"SSH-2.0-x\r\n\r\n", "does not speak HTTP"),
        (b"HTTP/2.0 200 X\r\n\r\n", "does not speak HTTP"),
    ],
)
def test_a_proxy_that_opens_no_tunnel_is_an_error(head: bytes, problem: str) -> None:
    with pytest.raises(HttpFailure, match=f"the proxy on the way to it {problem}") as failed:
        TunnelAnswer().receive(head)
    assert not failed.value.sent


def test_the_head_of_a_proxy_has_a_bound() -> None:
    answer = TunnelAnswer()
    assert not answer.receive(b"x" * (LARGEST_HEAD - 1))
    with pytest.raises(HttpFailure, match="does not speak HTTP"):
        answer.receive(b"x")


# What waits for its reader.


class Socket:
    """The transport of a connection on a loop."""

    def __init__(self) -> None:
        self.reads, self.aborted = True, False

    def get_extra_info(self, name: str) -> Any:
        return None

    def write(self, data: bytes) -> None: ...

    def pause_reading(self) -> None:
        self.reads = False

    def resume_reading(self) -> None:
        self.reads = True

    def abort(self) -> None:
        self.aborted = True


def test_a_connection_on_a_loop_reads_no_more_than_its_reader_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_loops, "_MOST_WAITING", 2)
    pool: Any = SimpleNamespace(connections=set())
    found, below, come = LoopConnection(pool, "key"), Socket(), list[str]()
    found._transport = below
    found.send(b"request")
    found.arrived = lambda: come.append("come")
    found.data_received(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n")
    for reads in (True, True, False):
        found.data_received(b"x")
        assert below.reads == reads
    assert found.take() == b"xxx"
    assert below.reads
    assert come == ["come"] * 4


# A server process.


class Owner:
    """Who opened a transport."""

    recorder = on_hop = None

    def __init__(self) -> None:
        self.printed: list[str] = []

    def stderr_received(self, _: object, text: str) -> None:
        self.printed.append(text)

    def connection_lost(self, *_: object) -> None: ...


class Silent(ClientTransport):
    """A transport on which nothing is sent."""

    def flush(self, here: Any = None) -> None: ...

    def close(self) -> None: ...


def test_of_what_is_no_message_the_beginning_is_kept_for_the_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base, "_STRAY_KEPT", 3)
    owner: Any = Owner()
    transport = Silent(owner, state())
    for number in range(5):
        transport.receive_data(b"junk %d\n" % number)
    assert transport.ending().stray == ("junk 0", "junk 1", "junk 2")
    assert owner.printed == [f"(stdout) junk {number}\n" for number in range(5)]
    transport.end()
    transport.end()
    assert not transport.alive
    assert transport.ended.is_set()


def test_of_stderr_the_end_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stdio, "_STDERR_KEPT", 10)
    owner = Owner()
    transport: Any = SimpleNamespace(_last_words=bytearray(), _owner=owner)
    for each in ("01234", "56789", "abcdefghij"):
        StdioClientTransport._keep_printed(transport, each)
    assert transport._last_words == b"0123456789abcdefghij"
    StdioClientTransport._keep_printed(transport, "k")
    assert transport._last_words == b"bcdefghijk"
    StdioClientTransport._keep_printed(transport, "")
    assert owner.printed == ["01234", "56789", "abcdefghij", "k"]


@pytest.mark.parametrize(("unsent", "alive", "refused"), [(10, True, False), (11, True, True), (11, False, False)])
def test_a_server_that_does_not_read_gets_no_more(
    unsent: int, alive: bool, refused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stdio, "_MAX_UNSENT", 10)
    sent: list[object] = []
    monkeypatch.setattr(ClientTransport, "submit", lambda *arguments: sent.append(arguments))
    transport: Any = object.__new__(StdioClientTransport)
    transport._writer, transport.alive = SimpleNamespace(unsent=unsent), alive
    transport.state = SimpleNamespace(origin=ORIGIN)
    spec: Any = SimpleNamespace(phase="call")
    if refused:
        with pytest.raises(ConnectionLost, match="the server does not read its input") as failed:
            transport.submit(spec, None)
        assert failed.value.delivery == "not_sent"
    else:
        transport.submit(spec, None)
    assert bool(sent) is not refused


class Flushing(Silent):
    """One that notes what it was asked to send."""

    def __init__(self) -> None:
        owner: Any = Owner()
        super().__init__(owner, state())
        self.flushed = 0

    def flush(self, here: Any = None) -> None:
        self.flushed += 1


def test_what_a_client_says_is_sent_at_once() -> None:
    transport = Flushing()
    for number, say in enumerate(
        [
            lambda: transport.notify("notifications/roots/list_changed"),
            lambda: transport.answer(1, b"{}"),
            lambda: transport.refuse(1, -32601, "no"),
            lambda: transport.give_up(1, None),
            lambda: transport.discard(1),
        ],
        1,
    ):
        say()
        assert transport.flushed == number
    transport.end()


def test_a_connection_that_has_ended_takes_no_request() -> None:
    """It would wait for its deadline."""
    transport = Flushing()
    transport.end()
    with pytest.raises(ConnectionLost) as refused:
        transport.submit(RequestSpec("tools/call", b"{}", phase="call"), CallbackWaiter(print))
    assert refused.value.delivery == "not_sent"
    assert transport.machine.pending == 0


def test_a_recorder_takes_down_what_is_said_and_no_silence() -> None:
    said: list[bytes] = []
    owner: Any = Owner()
    owner.recorder = SimpleNamespace(client=said.append, server=said.append)
    transport = Silent(owner, state())
    assert transport.data_to_send() == b""
    assert said == []
    transport.notify("notifications/roots/list_changed")
    sent = transport.data_to_send()
    assert sent.endswith(b"\n")
    assert said == [sent]
    assert transport.data_to_send() == b""
    transport.receive_data(b"junk\n")
    assert said == [sent, b"junk\n"]
    transport.end()


@pytest.mark.parametrize("known", [True, False])
def test_a_handler_that_failed_ends_the_call_for_whose_sake_the_server_asks(known: bool) -> None:
    transport, found, cancelled = Flushing(), list[object](), list[object]()
    waiter = CallbackWaiter(found.append)
    transport.machine = SimpleNamespace(  # type: ignore[assignment]
        asked_for=lambda question: (7, waiter) if known and question == 3 else None,
        cancel=lambda request_id, reason: cancelled.append((request_id, reason)),
    )
    error = ConnectionLost("the handler failed", ORIGIN)
    transport.fail_call(3, error)
    assert found == ([error] if known else [])
    assert cancelled == ([(7, "the client's handler failed")] if known else [])
    assert transport.flushed == known


@pytest.mark.parametrize(
    ("error", "problem"),
    [
        (OSError(8, "Exec format error"), "the command 'run me' cannot be started: Exec format error"),
        (ValueError("embedded null byte"), "the command 'run me' cannot be started: embedded null byte"),
        (OSError("out of luck"), "the command 'run me' cannot be started: out of luck"),
    ],
)
def test_why_a_command_cannot_be_started_is_told_without_numbers(error: OSError | ValueError, problem: str) -> None:
    transport: Any = SimpleNamespace(
        _command=SimpleNamespace(argv=["run me"], cwd=None), state=SimpleNamespace(origin=ORIGIN)
    )
    found = StdioClientTransport._cannot_start(transport, error)
    assert (found.problem, found.phase, found.hint) == (problem, "spawn", None)


@pytest.mark.parametrize(("delivery", "tries"), [("not_sent", 3), ("maybe_sent", 1), ("answered", 1)])
def test_what_was_refused_is_sent_again_only_if_nothing_came_of_it(delivery: Any, tries: int) -> None:
    sent = list[object]()

    def post(message: object) -> Any:
        sent.append(message)
        error = http_error(WEB, "a message", 503, b"")
        error.delivery = delivery
        raise error
        yield

    transport: Any = SimpleNamespace(_post=post, state=SimpleNamespace(random=lambda: 0.5))
    pauses = list(HttpClientTransport._notify_again(transport, "message"))  # type: ignore[arg-type]
    assert (len(sent), len(pauses)) == (tries, tries - 1)


def test_what_was_kept_is_forgotten_once_a_person_has_logged_in() -> None:
    done: list[str] = []
    found: Any = SimpleNamespace(
        clock=lambda: 0.0,
        cache=SimpleNamespace(clear=lambda: done.append("cache")),
        forget_tools=lambda: done.append("tools"),
    )
    transport: Any = object.__new__(HttpClientTransport)
    transport.lock, transport.state, transport._keep_deadlines = threading.RLock(), found, lambda: None
    transport.machine = SimpleNamespace(hold=lambda _: done.append("hold"), go_on=lambda _: done.append("go on"))
    transport._owner = SimpleNamespace(person_awaited=lambda: done.append("person awaited"))
    HttpClientTransport._person_waits(transport, 1, True)
    assert done == ["hold", "person awaited"]
    assert found.clock.stands
    HttpClientTransport._person_waits(transport, 1, False)
    assert done == ["hold", "person awaited", "go on", "cache", "tools"]
    assert not found.clock.stands


# Identities.


def test_the_oldest_identity_makes_room_for_one_more() -> None:
    found = state(origin=WEB)
    most = found.options.limits.max_principals
    accesses = HttpAccesses(found, "https://there/mcp", None, SimpleNamespace())  # type: ignore[arg-type]
    accesses._known = {number: SimpleNamespace() for number in range(most)}  # type: ignore[misc]
    kept = accesses.of(most - 1)
    assert len(accesses.identities) == most
    from linkspan.auth import ClientCredentials

    who = ClientCredentials("id", "secret")
    made = accesses.of(who)
    assert accesses.identities == [*range(1, most), who]
    assert accesses.of(who) is made
    assert accesses.of(most - 1) is kept
