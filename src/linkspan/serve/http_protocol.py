"""One TCP connection of `run("http")`: uvicorn's protocol over httptools, with the endpoint in place of an application.

uvicorn keeps the socket, TLS, flow control and its options, and llhttp decides what is HTTP/1.1. A request that has arrived
goes to the endpoint without scope, receive and send; its response goes straight to the transport. There are no timers:
`look_after` is called once a second and ends what has waited too long.
Law: everything but `_wake` runs on the loop; nothing of the endpoint runs inside the parser, which would take an exception for an
error in the request.
Spec: https://www.rfc-editor.org/rfc/rfc9112.
"""

from __future__ import annotations

import asyncio
import contextvars
import re
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache, partial
from math import inf
from time import monotonic, time
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import quote, unquote

import httptools
import msgspec
from uvicorn.config import Config
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol
from uvicorn.server import ServerState

from linkspan.core.http_checks import Arrival, is_small
from linkspan.core.http_endpoint import Endpoint, Lane, Opened
from linkspan.core.http_exchange import TEXT, Header, HttpData, HttpEnd, HttpEvent, HttpResponse, HttpStart
from linkspan.revisions.neutral import TransportInfo
from linkspan.serve.http_app import HttpApp
from linkspan.wire.headers import split_target, unknown_coding

if TYPE_CHECKING:
    from linkspan.serve.guarding import Guard, Verification
    from linkspan.serve.metrics import MetricsPage

__all__ = ["DirectApp", "EndpointProtocol"]

_REMEMBERED: Final = 256
_SHORT_URL: Final = 256
"""Bytes of a URL up to which it is remembered where it leads: clients choose the rest of it."""
_LARGE: Final = 65536
"""Bytes from which a body is written by itself: a copy costs more than another write."""
_LINGER: Final = 2.0
"""Seconds in which a client may go on sending after a refusal. If we closed at once, the reset would take the refusal from it."""
_FRAMING: Final = 65536
"""Bytes of a request beside its headers and its body that are always taken: first line, chunk sizes and extensions, trailers."""
_CLOSE: Final[Header] = ("connection", "close")
_INVALID: Final = HttpResponse(400, TEXT, b"Invalid HTTP request received.", closes=True)
_CROWDED: Final = HttpResponse(503, TEXT, b"Service Unavailable", closes=True)
_STOPPING: Final = HttpResponse(503, TEXT, b"The server is stopping", closes=True)
_FAILED: Final = HttpResponse(500, TEXT, b"Internal Server Error", closes=True)
_CONTROL: Final = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_FORWARDED: Final = ("x-forwarded-for", "x-forwarded-proto")


class _Request(msgspec.Struct):
    """A request as it arrives: complete once it is in the queue."""

    method: str
    url: bytes
    headers: list[tuple[bytes, bytes]]
    version: str
    keep_alive: bool = False  # known once it is complete
    body: bytes | bytearray = b""
    admitted: _Admitted | None = None  # what was found out by its head
    verdict: TransportInfo | HttpResponse | None = None  # what has come of verifying its token
    opening: asyncio.Task[Opened] | None = None  # where taking it in waits for a store


class _Target(NamedTuple):
    """What a URL leads to: the endpoint, a fixed response, or the metrics."""

    path: str
    query: str
    authority: str | None
    response: HttpResponse | None = None
    metrics: MetricsPage | None = None


class _Admitted(NamedTuple):
    """What is known of a request that is let in. `url` is without the query."""

    url: str
    query: str
    facts: TransportInfo
    small: bool  # it may be remembered
    plain: bool  # it may go through the lane of its connection, which remembers it
    until: float = inf  # by the wall clock, for all that repeat its head


_NOTHING_KNOWN: Final[tuple[object, _Admitted | None]] = None, None


class DirectApp(HttpApp):
    """The endpoint, and what all its connections share."""

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        path: str | None = None,
        health: str | None = None,
        metrics: MetricsPage | None = None,
        head_timeout: float = 30.0,
        guard: Guard | None = None,
    ) -> None:
        """Serve `endpoint` at every path, or at `path` only; `health` is a path that answers 200; `metrics` has its own.

        `head_timeout`: seconds in which the headers of a request must arrive. `guard` verifies tokens.
        """
        self._loop: asyncio.AbstractEventLoop | None = None
        super().__init__(endpoint, path, lambda: self._loop, metrics, guard, health)
        self.head_timeout = head_timeout
        self._target = lru_cache(_REMEMBERED)(self._judge_target)
        self._arriving: dict[EndpointProtocol, int] = {}
        self._kept = 0
        self._fixed: object = None
        self._heads: dict[tuple[int, tuple[Header, ...]], bytes] = {}

    def serve_on(self, loop: asyncio.AbstractEventLoop) -> None:
        """Run async functions on this loop."""
        self._loop = loop

    def hear(self, perform: Callable[[], object]) -> None:
        """Call `perform` on the event loop that serves."""
        if self._loop is not None:
            with suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(perform)

    def target(self, url: bytes, root: str) -> _Target | None:
        """Return what the URL of a request leads to, below the prefix `root`; None if it is not valid."""
        return self._target(url, root) if len(url) <= _SHORT_URL else self._judge_target(url, root)

    def _judge_target(self, url: bytes, root: str) -> _Target | None:
        try:
            parsed = httptools.parse_url(url)
            local = unquote(parsed.path.decode("ascii"))
        except (httptools.HttpParserInvalidURLError, UnicodeDecodeError, AttributeError):
            return None  # AttributeError: there is no path in it
        path, query, local = root + local, (parsed.query or b"").decode("latin-1"), local.rstrip("/")
        authority, _ = split_target(url.decode("latin-1"))
        if self.metrics is not None and local == self.metrics.path:
            return _Target(path, query, authority, metrics=self.metrics)
        fixed = self._public(path, local) or (self._nothing_here if self._is_elsewhere(local) else None)
        return _Target(path, query, authority, fixed)

    def head(self, status: int, headers: tuple[Header, ...], fixed: Sequence[tuple[bytes, bytes]]) -> bytes:
        """Return the beginning of a response with the `fixed` headers of all: uvicorn makes new ones once a second, for the date.

        Raises: ValueError for a header with a control character.
        """
        if fixed is not self._fixed or len(self._heads) > _REMEMBERED:
            self._fixed, self._heads = fixed, {}
        found = self._heads.get((status, headers))
        if found is None:
            lines = [f"{name}: {value}" for name, value in headers]
            if any(map(_CONTROL.search, lines)):
                raise ValueError("a header of a response contains a control character")
            own = "".join([f"{line}\r\n" for line in lines]).encode("latin-1")
            found = b"".join([STATUS_LINE[status], *(b"%b: %b\r\n" % each for each in fixed), own])
            self._heads[status, headers] = found
        return found

    # Bodies that have not arrived completely, of all connections.

    def has_room_for_body(self) -> bool:
        """Return whether one more may begin to arrive."""
        return len(self._arriving) < self.endpoint.policy.max_streams

    def keep_body(self, connection: EndpointProtocol, size: int) -> None:
        """Note how many bytes there are of a body. If all together are too many, the largest is refused."""
        self._kept += size - self._arriving.get(connection, 0)
        self._arriving[connection] = size
        policy = self.endpoint.policy
        if self._kept > max(policy.max_incoming_bytes, policy.max_body_bytes):
            max(self._arriving, key=self._arriving.__getitem__).crowd_out()

    def forget_body(self, connection: EndpointProtocol) -> None:
        """Free what was kept of a body."""
        self._kept -= self._arriving.pop(connection, 0)


class EndpointProtocol(HttpToolsProtocol):
    """The connection. Its phases are: new, idle (between two requests), head, body, busy (with a response), closing."""

    def __init__(
        self,
        app: DirectApp,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        """Serve `app`. The rest is what uvicorn gives each of its protocols."""
        super().__init__(config, server_state, app_state, _loop)
        app.serve_on(self.loop)
        self._app = app
        self._endpoint = app.endpoint
        policy = self._policy = app.endpoint.policy
        self._thread = threading.get_ident()
        # Each request runs in a copy, as it would in a task of its own.
        fresh = getattr(config, "reset_contextvars", False)
        self._context = contextvars.Context() if fresh else contextvars.copy_context()
        trusted = config.forwarded_allow_ips
        self._proxies = ProxyHeadersMiddleware(_forward, trusted) if config.proxy_headers and trusted else None
        self._phase: str = "new"
        self._since = monotonic()
        waits = (
            ("new", app.head_timeout),
            ("head", app.head_timeout),
            ("body", policy.body_timeout),
            ("closing", _LINGER),
        )
        self._patience = dict(waits, idle=self.timeout_keep_alive)
        # The request that is arriving.
        self._fields: list[tuple[bytes, bytes]] = []
        self._begun = self._upgrade = False
        self._head: _Request | None = None
        self._incoming: Mapping[str, str] = {}
        self._received = self._received_with_body = 0  # bytes of it; bytes up to the last ones of its body
        # The last head that was let in, and what is known of it: a client repeats its heads.
        self._known = _NOTHING_KNOWN
        # The requests that have arrived, and the response that is being sent.
        self._ready: deque[_Request] = deque()
        self._broken = self._over = self._last = False
        self._lane: Lane | None = None
        self._request: _Request | None = None
        self._opened: Opened | None = None
        self._pending: asyncio.Task[Any] | None = None
        self._chunked = self._woken = False

    # What the transport and uvicorn call.

    def data_received(self, data: bytes) -> None:
        """Take bytes of any number of requests."""
        if self._over:
            return
        if self._begun:
            self._received += len(data)
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self._decline_upgrades(memoryview(data)[upgrade.args[0] :])
        except httptools.HttpParserError:
            self._broken = True
        self._serve()

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel what only this client waits for."""
        super().connection_lost(exc)
        self._over = True
        self._app.forget_body(self)
        self._leave()

    def pause_writing(self) -> None:
        """Keep what comes next: the client does not read."""
        super().pause_writing()
        self._since = monotonic()

    def resume_writing(self) -> None:
        """Go on: the client reads again."""
        super().resume_writing()
        self._flush() if self._opened is not None else self._serve()

    def shutdown(self) -> None:
        """Close once the request that is here has its response. Called by uvicorn as it stops."""
        self._last = True
        if self._over or (self._opened is None and not self._ready and self._head is None):
            self.transport.close()

    def abandon(self) -> None:
        """Cancel what runs, and close: it has had its time to end."""
        opened = self._leave()
        if opened is not None and not opened.exchange.started:
            self._refuse(_STOPPING)
        self.transport.close()

    def look_after(self, now: float) -> None:
        """End what has waited too long: for a head, a body, the next request, the end, or a reader of a stream."""
        waited = now - self._since
        if self._opened is not None:
            if self.flow.write_paused and waited >= self._policy.send_timeout:
                self.transport.abort()
        elif not self.flow.write_paused and waited >= self._patience.get(self._phase, inf):
            if self._head is not None and self._phase == "body":
                self._refuse(self._endpoint.gate.too_slow(self._incoming))
            else:
                self.transport.close()

    # What the parser calls.

    def on_message_begin(self) -> None:
        """Begin a request."""
        self.url = b""
        self._fields = []
        self._begun = True
        self._received = self._received_with_body = 0

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header line. Those that follow a chunked body are not kept: they were not checked."""
        if self._head is None:
            self._fields.append((name, value))

    def on_headers_complete(self) -> None:
        """Keep the head as llhttp has understood it."""
        parser = self.parser
        method, version = parser.get_method().decode("ascii"), parser.get_http_version()
        self._upgrade = parser.should_upgrade()
        self._head = _Request(method, self.url, self._fields, version)
        self._fields = []

    def on_body(self, body: bytes) -> None:
        """Take a part of the body."""
        head = self._head
        assert head is not None
        self._received_with_body = self._received
        if not head.body:
            head.body = body
            return
        if isinstance(head.body, bytes):
            head.body = bytearray(head.body)
        head.body += body

    def on_message_complete(self) -> None:
        """Keep the request until it is its turn."""
        if self._upgrade:
            return  # it is not complete: llhttp leaves out the body
        head = self._head
        assert head is not None
        # Only here, since llhttp obeys a Connection among the trailers too, and reads no other request then.
        head.keep_alive = head.version == "1.1" and self.parser.should_keep_alive()
        self._ready.append(head)
        self._begun, self._head = False, None

    def _decline_upgrades(self, rest: memoryview) -> None:
        """Parse a head again without its wish for another protocol, which a server may ignore (RFC 9110, 7.8), and what follows.

        llhttp takes whatever follows such a head for the other protocol. Its body must not be read as the next request.
        """
        while (head := self._head) is not None and head.method != "CONNECT":
            self._head, self.parser = None, httptools.HttpRequestParser(self)
            try:
                self.parser.feed_data(_without_upgrade(head))
                self.parser.feed_data(rest)
                return
            except httptools.HttpParserUpgrade as upgrade:
                rest = rest[upgrade.args[0] :]
            except httptools.HttpParserError:
                break
        self._broken = True

    # One request after the other.

    def _serve(self) -> None:
        """Serve what has arrived, as long as each request is answered at once and the client reads."""
        while self._opened is None and self._pending is None and not self.flow.write_paused and not self._over:
            if self._ready:
                self._begin(self._ready.popleft())
            elif self._broken:
                self.logger.warning("Invalid HTTP request received.")
                self._refuse(self._unreadable())
            else:
                self._await_more()
                return
        if self._ready or self._broken or self._begun:
            self.flow.pause_reading()  # a client that sends on waits for its answers, and what it sends waits below us

    def _unreadable(self) -> HttpResponse:
        """Return the refusal of what llhttp cannot read: it takes no body whose last transfer coding is not `chunked`."""
        given = (
            [value for name, value in self._head.headers if name.lower() == b"transfer-encoding"] if self._head else []
        )
        coding = unknown_coding(b",".join(given).decode("latin-1"))
        return _INVALID if coding is None else self._endpoint.gate.unreadable(coding, {})

    def _begin(self, request: _Request) -> None:
        """Begin the response to a request, and send it if it is there at once."""
        if self._phase != "idle":
            self._app.forget_body(self)
            self._phase = "busy"
        self._request = request
        try:
            response = self._context.copy().run(self._open, request)
        except Exception:
            self.logger.exception("Exception while serving a request")
            response = _FAILED
        if response is not None:
            self._respond(response)
        elif (opened := self._opened) is not None:
            opened.exchange.attach(self._wake)
            if opened.exchange.started:
                self._send(opened)

    def _open(self, request: _Request) -> HttpResponse | None:
        """Give a request to the endpoint, and run what it asks for. Return the response, if it is complete then."""
        head = request.headers, request.url, request.method, request.version
        known, admitted = self._known
        again = head != known or self.limit_concurrency is not None
        if again or admitted is None or (admitted.until is not inf and admitted.until <= time()):
            found = self._admit(request)
            if not isinstance(found, _Admitted):
                return found
            admitted = found
            self._known = (head, admitted) if admitted.small else _NOTHING_KNOWN
        if len(request.body) > self._policy.max_body_bytes:
            return self._endpoint.gate.too_large(admitted.facts.headers)
        url, query, facts = admitted.url, admitted.query, admitted.facts
        body, opened = bytes(request.body), None
        if admitted.plain:
            lane = self._lane = self._lane or Lane(self._endpoint)
            opened = lane.open(facts.headers, body, facts)
        held = opened is None
        if opened is None:
            slow = self._app.slow
            if request.opening is not None:
                opened = request.opening.result()
            elif slow is not None and slow.may_wait(request.method, facts.headers):
                self._ready.appendleft(request)  # it is the next again once the store has answered
                opening = self._app.open_slowly(request.method, url, facts.headers, body, facts, query)
                self._pending = request.opening = self.loop.create_task(opening)
                request.opening.add_done_callback(self._opened_slowly)
                return None
            else:
                opened = self._endpoint.open(request.method, url, facts.headers, body, facts, query=query)
        response = self._app.perform(opened)
        if response is None:
            self._opened = opened
            if not held:
                self._endpoint.hold(opened)
        elif held:
            self._endpoint.finished(opened.exchange)
        else:
            opened.exchange.release()
        return response

    def _admit(self, request: _Request) -> _Admitted | HttpResponse | None:
        """Let a request in by its head, or return its refusal; None if it is being found out, after which `_serve` goes on."""
        if request.admitted is not None:
            return request.admitted
        target = self._app.target(request.url, self.root_path)
        if target is None:
            return _INVALID
        if self.limit_concurrency is not None and len(self.connections) >= self.limit_concurrency:
            self.logger.warning("Exceeded concurrency limit.")
            return _CROWDED
        if target.response is not None:
            return self._app.answer(target.response, request.method)
        raw = tuple(request.headers)
        scheme: str | None = self.scheme
        arrival = self._arrival(target, request.version, self.client)
        headers = self._endpoint.gate.read(request.method, raw, arrival)
        if self._proxies and (isinstance(headers, HttpResponse) or any(name in headers for name in _FORWARDED)):
            client, scheme = self._sender(raw)
            arrival = self._arrival(target, request.version, client)
            headers = self._endpoint.gate.read(request.method, raw, arrival)
        facts, guard = self._app.identify(headers, arrival.peer, None, ""), self._app.guard
        if request.verdict is not None:
            facts = request.verdict
        elif guard is not None and target.metrics is None:
            found = guard.admit(facts, request.method, target.query, below=bool(self.root_path))
            if not isinstance(found, TransportInfo | HttpResponse):
                self._verify(request, found)
                return None
            facts = found
        if isinstance(facts, HttpResponse):
            return facts
        if request.version != "1.1" and "transfer-encoding" in facts.headers:
            return _INVALID
        if target.metrics is not None:
            return target.metrics.response(request.method, facts.headers)
        url = target.path
        if request.method == "GET":  # a page shows where it is
            url = f"{scheme}://{facts.headers.get('host', '')}{url}"
        small = len(request.url) <= _SHORT_URL and is_small(raw)
        plain = small and Lane.takes(request.method, target.query, facts.headers)
        until = guard.good_until(facts) if guard is not None else inf
        request.admitted = _Admitted(url, target.query, facts, small, plain, until)
        return request.admitted

    def _verify(self, request: _Request, verification: Verification) -> None:
        """Find out whether its token is good; it is the next request then, and what follows waits below us."""
        if request is not self._head:
            self._ready.appendleft(request)
        self._pending = self.loop.create_task(verification.awaited())
        self._pending.add_done_callback(partial(self._verified, request))

    def _opened_slowly(self, task: asyncio.Task[Opened]) -> None:
        self._pending = None
        if self._over:
            self._app.perform_unread(task.result())
        else:
            self._serve()

    def _verified(self, request: _Request, task: asyncio.Task[TransportInfo | HttpResponse]) -> None:
        self._pending = None
        if self._over:
            return
        try:
            request.verdict = task.result()
        except Exception:  # what follows on this connection must not wait for ever
            self.logger.exception("Exception while serving a request")
            request.verdict = _FAILED
        self._serve()

    def _arrival(self, target: _Target, version: str, client: tuple[str, int] | None) -> Arrival:
        own, peer = self.server, client[0] or None if client else None
        return Arrival(own[0] if own else None, peer, target.path, version, target.authority)

    def _sender(self, headers: Iterable[tuple[bytes, bytes]]) -> tuple[tuple[str, int] | None, str | None]:
        """Return the address of the client and the scheme that it uses, from a proxy that uvicorn trusts or the socket."""
        if self._proxies is None:
            return self.client, self.scheme
        told = [(name.lower(), value) for name, value in headers]
        scope: Any = {"type": "http", "client": self.client, "scheme": self.scheme, "headers": told}
        with suppress(StopIteration):
            self._proxies(scope, _forward, _forward).send(None)  # type: ignore[arg-type]
        return scope["client"], scope["scheme"]

    # A request that is still arriving.

    def _await_more(self) -> None:
        """Wait for the next request, or for the rest of one."""
        if self.flow.read_paused:
            self.flow.resume_reading()
        if not self._begun:
            if self._phase != "new":
                self._phase, self._since, self.url, self._incoming = "idle", monotonic(), b"", {}
        elif self._head is not None:
            self._await_body(self._head)
        else:
            self._enter("head")
            most = self._policy.max_header_bytes
            if self._received > most + _FRAMING:
                problem = f"The headers are larger than {most} bytes (max_header_bytes) [LS-504]"
                self._refuse(self._endpoint.gate.refuse(431, problem, {}))

    def _await_body(self, head: _Request) -> None:
        """Refuse a request before its body is here, by its head or the size of the body; otherwise wait for the rest."""
        gate, size = self._endpoint.gate, len(head.body)
        if self._phase != "body":
            admitted = self._admit(head)
            if admitted is None:
                return self.flow.pause_reading()
            if isinstance(admitted, HttpResponse):
                return self._refuse(admitted)
            self._incoming = admitted.facts.headers
            if not self._app.has_room_for_body():
                return self._refuse(gate.too_many_bodies(self._incoming, "max_streams"))
            if size == 0 and head.version == "1.1" and self._incoming.get("expect", "").lower() == "100-continue":
                self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            self._enter("body")
        if size > self._policy.max_body_bytes:
            return self._refuse(gate.too_large(self._incoming))
        framing = self._policy.max_header_bytes + _FRAMING
        if self._received > 8 * size + framing or self._received - self._received_with_body > framing:
            return self._refuse(_INVALID)
        return self._app.keep_body(self, max(size, self._received))

    def crowd_out(self) -> None:
        """Refuse the body that is arriving: others need the room."""
        self._refuse(self._endpoint.gate.too_many_bodies(self._incoming, "max_incoming_bytes"))

    def _refuse(self, response: HttpResponse) -> None:
        """Answer before the end of a request, and take no more; close when the client has had the time to see the answer."""
        self._app.forget_body(self)
        self._last = self._over = True
        self._request = self._head or self._request
        self._respond(response)
        if self.transport.can_write_eof():
            with suppress(OSError):  # the client has reset the connection
                self.transport.write_eof()

    def _enter(self, phase: str) -> None:
        if phase != self._phase:
            self._phase, self._since = phase, monotonic()

    # The response.

    def _wake(self) -> None:
        """Send what there is: a complete response now, the rest soon and together with what follows it. Any thread."""
        if threading.get_ident() == self._thread:
            opened = self._opened
            if opened is not None and opened.exchange.ended:
                self._flush()
            elif not self._woken:
                self._woken = True
                self.loop.call_soon(self._flush)
        elif not self._woken:
            self._woken = True
            with suppress(RuntimeError):  # the loop is closed
                self.loop.call_soon_threadsafe(self._flush)

    def _flush(self) -> None:
        """Send what there is of the response that runs; after its end go on with the next request, but not under its lock."""
        self._woken = False
        opened = self._opened
        if opened is None or not self._send(opened) or self._over:
            return
        if self._ready or self._broken or self._begun:
            self.loop.call_soon(self._serve)
        else:
            self._await_more()

    def _send(self, opened: Opened) -> bool:
        """Send what there is, as long as the client reads; return whether that was the end."""
        exchange = opened.exchange
        if exchange.overrun:
            self._last = True
            self._leave()
            self._end()
            return True
        if self.flow.write_paused:
            return False
        events = exchange.events() if exchange.response is None else []
        response = exchange.response  # a thread may have answered between the two
        if response is None:
            if events:
                self.transport.writelines([part for event in events for part in self._encode(event)])
            if not events or type(events[-1]) is not HttpEnd:
                return False
        self._opened = None
        exchange.release()
        self._endpoint.finished(exchange)
        if response is None:
            self._end()
        else:
            self._respond(response)
        return True

    def _respond(self, response: HttpResponse) -> None:
        """Send a whole response."""
        request, body = self._request, response.body
        length = b"content-length: %d\r\n\r\n" % len(body) if response.status != 204 else b"\r\n"
        head = self._head_of(response.status, response.headers, closes=response.closes) + length
        if request is not None and request.method == "HEAD":
            self.transport.write(head)
        elif len(body) < _LARGE:
            self.transport.write(head + body)
        else:
            self.transport.writelines((head, body))
        self._end()

    def _encode(self, event: HttpEvent) -> Iterable[bytes]:
        """Return the bytes of a part of a stream."""
        if type(event) is HttpData:
            return (b"%x\r\n" % len(event.data), event.data, b"\r\n") if self._chunked and event.data else (event.data,)
        if type(event) is not HttpStart:
            return (b"0\r\n\r\n",) if self._chunked else ()
        self._chunked = self._request is not None and self._request.version == "1.1"
        framing = b"transfer-encoding: chunked\r\n" if self._chunked else b""
        return self._head_of(event.status, event.headers), framing, b"\r\n"

    def _head_of(self, status: int, headers: tuple[Header, ...], *, closes: bool = False) -> bytes:
        """Return the beginning of a response, without its framing."""
        request = self._request
        if closes or request is None or not request.keep_alive:
            self._last = True
        if self._last:
            headers = (*headers, _CLOSE)
        if self.access_log:
            self._log(status)
        return self._app.head(status, headers, self.server_state.default_headers)

    def _end(self) -> None:
        """Note that a response has been sent, and forget its request: a connection may be idle for long."""
        self.server_state.total_requests += 1
        self._request = None
        if self._last:
            self._enter("closing")
            if not self._over:
                self._over = True
                self.transport.close()

    def _log(self, status: int) -> None:
        """Write a line of uvicorn's access log."""
        request = self._request
        target = self._app.target(request.url, self.root_path) if request is not None else None
        if request is None or target is None:
            return
        client, _ = self._sender(request.headers)
        path = quote(target.path) + (f"?{target.query}" if target.query else "")
        peer = f"{client[0]}:{client[1]}" if client else ""
        self.access_logger.info('%s - "%s %s HTTP/%s" %d', peer, request.method, path, request.version, status)

    def _leave(self) -> Opened | None:
        """Cancel what the running request has asked for, if there is one; return it."""
        opened, self._opened = self._opened, None
        if opened is not None:
            opened.exchange.release()
            self._app.disconnect(opened)
        return opened


async def _forward(*_: object) -> None:
    """Stand in for the application behind uvicorn's middleware, which only changes the scope."""


def _without_upgrade(head: _Request) -> bytes:
    """Return a head again, without its wish for another protocol."""
    lines = [b"%b %b HTTP/%b" % (head.method.encode(), head.url, head.version.encode())]
    for name, value in head.headers:
        if name.lower() == b"connection":
            tokens = [each.strip() for each in value.split(b",")]
            lines.append(b"%b: %b" % (name, b", ".join([each for each in tokens if each.lower() != b"upgrade"])))
        elif name.lower() != b"upgrade":
            lines.append(b"%b: %b" % (name, value))
    return b"\r\n".join([*lines, b"", b""])
