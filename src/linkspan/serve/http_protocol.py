"""One TCP connection of `run("http")`: uvicorn's protocol over httptools, with the endpoint in place of an application.

uvicorn keeps the socket, TLS, flow control and its options, and llhttp decides what is HTTP/1.1. A request that has arrived
goes to the endpoint without scope, receive and send; its response goes straight to the transport, or with those of other
connections if it is there as soon as the request is. There are no timers: `handle_timeouts` is called once a second and ends
what has waited too long.
Law: everything but `EndpointProtocol._wake` and `DirectApp.call_soon` runs on the loop.
Spec: https://www.rfc-editor.org/rfc/rfc9112.
"""

from __future__ import annotations

import asyncio
import contextvars
import re
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import lru_cache, partial
from math import inf
from time import monotonic, time
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias
from urllib.parse import quote, unquote

import httptools
from uvicorn.config import Config
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol
from uvicorn.server import ServerState

from linkspan.core.http_bodies import ArrivingBodies, ArrivingBody
from linkspan.core.http_checks import Arrival, is_small
from linkspan.core.http_endpoint import Endpoint, Lane, Opened
from linkspan.core.http_exchange import TEXT, Header, HttpData, HttpEnd, HttpEvent, HttpResponse, HttpStart
from linkspan.revisions.neutral import TransportInfo
from linkspan.serve.http_app import HttpApp
from linkspan.serve.http_reader import ReadRequest, RequestReader
from linkspan.serve.write_batch import WriteBatch
from linkspan.wire.headers import split_target

if TYPE_CHECKING:
    from linkspan.serve.guarding import Guard, Verification
    from linkspan.serve.metrics import MetricsPage

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
_VERSIONS: Final = ("1.1", "1.0")
"""Of HTTP: llhttp also reads a request line of HTTP/2.0, which has no meaning here (RFC 9110, section 15.6.6)."""
_INVALID: Final = HttpResponse(400, TEXT, b"Invalid HTTP request received.", closes=True)
_CROWDED: Final = HttpResponse(503, TEXT, b"Service Unavailable", closes=True)
_STOPPING: Final = HttpResponse(503, TEXT, b"The server is stopping", closes=True)
_FAILED: Final = HttpResponse(500, TEXT, b"Internal Server Error", closes=True)
_CONTROL: Final = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_FORWARDED: Final = ("x-forwarded-for", "x-forwarded-proto")


_Write: TypeAlias = Callable[[asyncio.Transport, bytes], object]
"""A way of a `WriteBatch` to write to a transport."""


class _QueuedRequest(ReadRequest):
    """A request, and what has been found out about it."""

    admitted: _Admitted | None = None  # by its head
    verdict: TransportInfo | HttpResponse | None = None  # what has come of verifying its token
    opening: asyncio.Task[Opened] | None = None  # where taking it in waits for a store


class _UrlTarget(NamedTuple):
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
        self.bodies = ArrivingBodies(endpoint.gate, endpoint.policy)
        """The bodies that have not arrived completely, of all connections."""
        self.batch = WriteBatch(self._at_end_of_turn, monotonic)
        """What connections have to send in this turn of the loop."""
        self.fixed: object = None
        self.heads: dict[tuple[int, tuple[Header, ...]], bytes] = {}
        """Beginnings of responses that have the `fixed` headers, by their status and own headers."""

    def serve_on(self, loop: asyncio.AbstractEventLoop) -> None:
        """Run async functions on this loop."""
        self._loop = loop

    def _at_end_of_turn(self, perform: Callable[[], object]) -> None:
        assert self._loop is not None
        self._loop.call_soon(perform)

    def call_soon(self, perform: Callable[[], object]) -> None:
        """Call `perform` on the event loop that serves. Any thread may call this."""
        if self._loop is not None:
            with suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(perform)

    def target(self, url: bytes, root: str) -> _UrlTarget | None:
        """Return what the URL of a request leads to, below the prefix `root`; None if it is not valid."""
        return self._target(url, root) if len(url) <= _SHORT_URL else self._judge_target(url, root)

    def _judge_target(self, url: bytes, root: str) -> _UrlTarget | None:
        try:
            parsed = httptools.parse_url(url)
            local = unquote(parsed.path.decode("ascii"))
        except (httptools.HttpParserInvalidURLError, UnicodeDecodeError, AttributeError):
            return None  # AttributeError: there is no path in it
        path, query, local = root + local, (parsed.query or b"").decode("latin-1"), local.rstrip("/")
        authority, _ = split_target(url.decode("latin-1"))
        if self.metrics is not None and local == self.metrics.path:
            return _UrlTarget(path, query, authority, metrics=self.metrics)
        fixed = self._public(path, local) or (self._nothing_here if self._is_elsewhere(local) else None)
        return _UrlTarget(path, query, authority, fixed)

    def make_head(self, status: int, headers: tuple[Header, ...], fixed: Sequence[tuple[bytes, bytes]]) -> bytes:
        """Make the beginning of a response with the `fixed` headers of all: uvicorn makes new ones once a second, for the date.

        It is kept in `heads`. Raises: ValueError for a header with a control character.
        """
        if fixed is not self.fixed or len(self.heads) > _REMEMBERED:
            self.fixed, self.heads = fixed, {}
        lines = [f"{name}: {value}" for name, value in headers]
        if any(map(_CONTROL.search, lines)):
            raise ValueError("a header of a response contains a control character")
        own = "".join([f"{line}\r\n" for line in lines]).encode("latin-1")
        head = b"".join([STATUS_LINE[status], *(b"%b: %b\r\n" % each for each in fixed), own])
        self.heads[status, headers] = head
        return head


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
        self._batch = app.batch
        self._endpoint = app.endpoint
        self._policy = app.endpoint.policy
        self._thread = threading.get_ident()
        # Each request runs in a copy, as it would in a task of its own.
        fresh = getattr(config, "reset_contextvars", False)
        self._context = contextvars.Context() if fresh else contextvars.copy_context()
        trusted = config.forwarded_allow_ips
        self._proxies = ProxyHeadersMiddleware(_forward, trusted) if config.proxy_headers and trusted else None
        self._phase: str = "new"
        self._since = monotonic()
        waits = ("new", app.head_timeout), ("head", app.head_timeout), ("closing", _LINGER)
        self._patience = dict(waits, idle=self.timeout_keep_alive)
        self.parser = None  # type: ignore[assignment]  # uvicorn's own
        self._reader = RequestReader(_QueuedRequest)
        self._body: ArrivingBody | None = None
        """The body of its head, if it was let in."""
        # The last head that was let in, and what is known of it: a client repeats its heads.
        self._known = _NOTHING_KNOWN
        # The response that is being sent.
        self._over = self._last = False
        self._lane: Lane | None = None
        self._request: _QueuedRequest | None = None
        self._opened: Opened | None = None
        self._pending: asyncio.Task[Any] | None = None
        self._chunked = self._woken = False

    # What the transport and uvicorn call.

    def data_received(self, data: bytes) -> None:
        """Take bytes of any number of requests."""
        if not self._over:
            self._reader.receive_data(data)
            self._serve()

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel what only this client waits for."""
        super().connection_lost(exc)
        self._over = True
        self._batch.forget(self.transport)
        self._end_body()
        self._reader.close()
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
        reader = self._reader
        if self._over or (self._opened is None and not reader.ready and reader.head is None):
            self._batch.close(self.transport)

    def abandon(self) -> None:
        """Cancel what runs, and close: it has had its time to end."""
        opened = self._leave()
        if opened is not None and not opened.exchange.started:
            self._refuse(_STOPPING)
        self._batch.close(self.transport)

    def handle_timeouts(self, now: float) -> None:
        """End what has waited too long: for a head, a body, the next request, the end, or a reader of a stream."""
        waited = now - self._since
        if self._opened is not None:
            if self.flow.write_paused and waited >= self._policy.send_timeout:
                self.transport.abort()
        elif not self.flow.write_paused:
            if self._phase == "body":
                self._app.bodies.expire(now)
            elif self._pending is None and waited >= self._patience.get(self._phase, inf):
                self._batch.close(self.transport)

    # One request after the other.

    def _serve(self) -> None:
        """Serve what has arrived, as long as each request is answered at once and the client reads."""
        reader, flow = self._reader, self.flow
        while self._opened is None and self._pending is None and not flow.write_paused and not self._over:
            if reader.ready:
                request = self._request = reader.ready.popleft()
                if self._phase != "idle":
                    self._end_body()
                    self._phase = "busy"
                try:
                    response = self._context.copy().run(self._open, request)
                except Exception:
                    self.logger.exception("Exception while serving a request")
                    response = _FAILED
                if response is not None:
                    self._respond(response, self._batch.write_soon)
                elif (opened := self._opened) is not None:
                    opened.exchange.attach(self._wake)
                    if opened.exchange.started:
                        self._send(opened, self._batch.write_soon)
            elif reader.is_broken:
                self.logger.warning("Invalid HTTP request received.")
                coding = reader.unknown_coding()
                self._refuse(_INVALID if coding is None else self._endpoint.gate.unreadable(coding, {}))
            else:
                if flow.read_paused:
                    flow.resume_reading()
                if reader.has_begun:
                    self._await_rest()
                elif self._phase != "new":
                    self._phase, self._since = "idle", monotonic()
                return
        if reader.ready or reader.is_broken or reader.has_begun:
            flow.pause_reading()  # a client that sends on waits for its answers, and what it sends waits below us

    def _open(self, request: _QueuedRequest) -> HttpResponse | None:
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
                self._reader.ready.appendleft(request)  # it is the next again once the store has answered
                opening = self._app.open_slowly(request.method, url, facts.headers, body, facts, query)
                self._pending = request.opening = self.loop.create_task(opening)
                request.opening.add_done_callback(self._opened_slowly)
                return None
            else:
                opened = self._endpoint.open(request.method, url, facts.headers, body, facts, query=query)
        response = self._app.perform(opened)
        if response is None:
            self._opened = opened
            if not held and opened.owner is not None:
                self._endpoint.streams.hold(opened.exchange, opened.owner)
        elif held:
            self._endpoint.finished(opened.exchange)
        else:
            opened.exchange.release()
        return response

    def _admit(self, request: _QueuedRequest) -> _Admitted | HttpResponse | None:
        """Let a request in by its head, or return its refusal; None if it is being found out, after which `_serve` goes on."""
        if request.admitted is not None:
            return request.admitted
        if request.version not in _VERSIONS:
            problem = f"HTTP/{request.version} is not spoken on this connection: send HTTP/1.1"
            return self._endpoint.gate.refuse(505, problem, {}, closes=True)
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
        arrival = _arrival(self.server, target, request.version, self.client)
        headers = self._endpoint.gate.read(request.method, raw, arrival)
        if self._proxies and (isinstance(headers, HttpResponse) or any(name in headers for name in _FORWARDED)):
            client, scheme = self._sender(raw)
            arrival = _arrival(self.server, target, request.version, client)
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

    def _verify(self, request: _QueuedRequest, verification: Verification) -> None:
        """Find out whether its token is good; it is the next request then, and what follows waits below us."""
        if request is not self._reader.head:
            self._reader.ready.appendleft(request)
        self._pending = self.loop.create_task(verification.awaited())
        self._pending.add_done_callback(partial(self._verified, request))

    def _opened_slowly(self, task: asyncio.Task[Opened]) -> None:
        self._pending = None
        if self._over:
            self._app.perform_unread(task.result())
        else:
            self._serve()

    def _verified(self, request: _QueuedRequest, task: asyncio.Task[TransportInfo | HttpResponse]) -> None:
        self._pending = None
        if self._over:
            return
        try:
            request.verdict = task.result()
        except Exception:  # what follows on this connection must not wait for ever
            self.logger.exception("Exception while serving a request")
            request.verdict = _FAILED
        self._serve()

    def _sender(self, headers: Iterable[tuple[bytes, bytes]]) -> tuple[tuple[str, int] | None, str | None]:
        """Return the address of the client and the scheme that it uses, from a proxy that uvicorn trusts or the socket."""
        if self._proxies is None:
            return self.client, self.scheme
        reported = [(name.lower(), value) for name, value in headers]
        scope: Any = {"type": "http", "client": self.client, "scheme": self.scheme, "headers": reported}
        with suppress(StopIteration):
            self._proxies(scope, _forward, _forward).send(None)  # type: ignore[arg-type]
        return scope["client"], scope["scheme"]

    # A request that is still arriving.

    def _await_rest(self) -> None:
        """Wait for the rest of a head, or of a body that is let in."""
        reader = self._reader
        if reader.head is not None:
            self._await_body(reader.head)
            return
        self._enter("head")
        most = self._policy.max_header_bytes
        if reader.received > most + _FRAMING:
            problem = f"The headers are larger than {most} bytes (max_header_bytes) [LS-504]"
            self._refuse(self._endpoint.gate.refuse(431, problem, {}))

    def _await_body(self, head: _QueuedRequest) -> None:
        """Refuse a request before its body is here, by its head or the size of the body; otherwise wait for the rest."""
        reader, bodies, size = self._reader, self._app.bodies, len(head.body)
        if self._phase != "body":
            admitted = self._admit(head)
            if admitted is None:
                return self.flow.pause_reading()
            if isinstance(admitted, HttpResponse):
                return self._refuse(admitted)
            headers = admitted.facts.headers
            body = bodies.begin(headers, monotonic(), self._refuse)
            if isinstance(body, HttpResponse):
                return self._refuse(body)
            self._body = body
            if size == 0 and head.version == "1.1" and headers.get("expect", "").lower() == "100-continue":
                self._batch.write_now(self.transport, b"HTTP/1.1 100 Continue\r\n\r\n")
            self._enter("body")
        assert self._body is not None
        refusal = bodies.grow(self._body, size, reader.received)
        framing = self._policy.max_header_bytes + _FRAMING
        if refusal is None and (
            reader.received > 8 * size + framing or reader.received - reader.received_with_body > framing
        ):
            refusal = _INVALID
        if refusal is not None:
            self._refuse(refusal)
        return None

    def _end_body(self) -> None:
        body, self._body = self._body, None
        if body is not None:
            self._app.bodies.end(body)

    def _refuse(self, response: HttpResponse) -> None:
        """Answer before the end of a request, and take no more; close when the client has had the time to see the answer."""
        self._end_body()
        self._last = self._over = True
        self._request = self._reader.head or self._request
        self._respond(response, self._batch.write_now)
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
        if opened is None or not self._send(opened, self._batch.write_now) or self._over:
            return
        reader = self._reader
        if reader.ready or reader.is_broken or reader.has_begun:
            self.loop.call_soon(self._serve)
        else:
            self._serve()

    def _send(self, opened: Opened, write: _Write) -> bool:
        """Send what there is with `write`, as long as the client reads; return whether that was the end."""
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
                parts = [part for event in events for part in self._encode(event)]
                if sum(map(len, parts)) < _LARGE:
                    write(self.transport, b"".join(parts))
                else:
                    self._batch.write_parts(self.transport, parts)
            if not events or type(events[-1]) is not HttpEnd:
                return False
        self._opened = None
        exchange.release()
        self._endpoint.finished(exchange)
        if response is None:
            self._end()
        else:
            self._respond(response, write)
        return True

    def _respond(self, response: HttpResponse, write: _Write) -> None:
        """Send a whole response with `write`."""
        request, body = self._request, response.body
        length = b"content-length: %d\r\n\r\n" % len(body) if response.status != 204 else b"\r\n"
        head = self._head_of(response.status, response.headers, closes=response.closes) + length
        if request is not None and request.method == "HEAD":
            write(self.transport, head)
        elif len(body) < _LARGE:
            write(self.transport, head + body)
        else:
            self._batch.write_parts(self.transport, (head, body))
        self.server_state.total_requests += 1
        self._request = None  # a connection may be idle for long
        if self._last:
            self._hang_up()

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
        app, fixed = self._app, self.server_state.default_headers
        found = app.heads.get((status, headers)) if fixed is app.fixed else None  # most are there, and need no call
        return app.make_head(status, headers, fixed) if found is None else found

    def _end(self) -> None:
        """Note that the last part of a stream has been sent."""
        self.server_state.total_requests += 1
        self._request = None
        if self._last:
            self._hang_up()

    def _hang_up(self) -> None:
        """Close, unless the client may still send."""
        self._enter("closing")
        if not self._over:
            self._over = True
            self._batch.close(self.transport)

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


def _arrival(
    server: tuple[str, int | None] | None, target: _UrlTarget, version: str, client: tuple[str, int] | None
) -> Arrival:
    peer = client[0] or None if client else None
    return Arrival(server[0] if server else None, peer, target.path, version, target.authority)


async def _forward(*_: object) -> None:
    """Stand in for the application behind uvicorn's middleware, which only changes the scope."""
