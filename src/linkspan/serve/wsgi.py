"""A server as a plain WSGI callable, for Flask, Django, gunicorn, waitress: no event loop in sight.

Plain functions run in worker threads so that their progress can be sent while they work; async ones on one loop in the
background. Spec: https://peps.python.org/pep-3333/
"""

from __future__ import annotations

import operator
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from http import HTTPStatus
from math import inf
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from linkspan.core.http_bodies import ArrivingBodies, ArrivingBody
from linkspan.core.http_checks import Arrival, Gate, HttpPolicy
from linkspan.core.http_endpoint import Endpoint, Opened
from linkspan.core.http_exchange import TEXT, Header, HttpData, HttpEvent, HttpResponse, HttpStart
from linkspan.loading import load
from linkspan.revisions.neutral import TransportInfo
from linkspan.runtime.forks import renew
from linkspan.runtime.lifespan import end_at_exit
from linkspan.runtime.workers import Workers
from linkspan.serve.http_app import TICK, HttpApp, stopping_within
from linkspan.wire.headers import split_target

if TYPE_CHECKING:
    import asyncio

    from linkspan.serve.guarding import Guard

_AT_EXIT: Final = 1.0
"""Seconds that tasks have to end when the process does."""
_EXIT: Final = 4.0
"""Seconds that it takes to notice a stop, twice a tick at the most, and to leave the process after the last call."""

Environ: TypeAlias = Mapping[str, Any]
StartResponse: TypeAlias = Callable[[str, list[tuple[str, str]]], object]
Application: TypeAlias = Callable[[Any, Any], Iterable[bytes]]


class WsgiApp(HttpApp):
    """The callable. Without a store that is shared, handshake sessions live in this process."""

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        path: str | None = None,
        otherwise: Application | None = None,
        guard: Guard | None = None,
    ) -> None:
        """Serve `endpoint` at every path, or at `path` only; `otherwise` is another WSGI application for all other paths.

        `guard` verifies tokens.
        """
        super().__init__(endpoint, path, _background, guard=guard)
        self._otherwise = otherwise
        self._calling: Workers[Callable[[], object]] = Workers(operator.call, 1)
        self._bodies = BodiesInThreads(endpoint.gate, endpoint.policy)
        self._ticked = 0.0
        self._cancels_at = inf
        """When what runs is cancelled, once the server is asked to stop."""
        self._ends_before: bool | None = None
        """Whether there was a loop in the background, which ends at the exit too, when `end_at_exit` was registered."""

    def __call__(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        """Answer one request."""
        self.tick_if_due()
        local = _target(environ)[1].rstrip("/")
        if self.guard is not None and (public := self._public(f"{environ.get('SCRIPT_NAME') or ''}{local}", local)):
            method = str(environ["REQUEST_METHOD"])
            return send_whole(self.answer(public, method), start_response, bodiless=method == "HEAD")
        if self._is_elsewhere(local):
            if self._otherwise is not None:
                return self._otherwise(environ, start_response)
            return send_whole(self._nothing_here, start_response)
        opened = self._open(environ)
        if isinstance(opened, HttpResponse):
            return send_whole(opened, start_response)
        self.perform(opened)
        self._register()
        return _WsgiResponse(self, opened).begin(start_response)

    def tick_if_due(self) -> None:
        """Look after what is due: no timer runs here, so requests do."""
        now = time.monotonic()
        if now - self._ticked >= TICK:
            self._ticked = now
            self.tick(now)
            self.work(_background)

    def work(self, loop: Callable[[], asyncio.AbstractEventLoop | None]) -> None:
        """Let the server do what it does besides answering, until the process ends: no server of WSGI calls us then."""
        super().work(loop)
        if self.endpoint.background is not None:
            load("linkspan.runtime.background")
            self._register()

    def _register(self) -> None:
        has_loop = "linkspan.runtime.background" in sys.modules
        if has_loop is not self._ends_before:
            self._ends_before = has_loop
            end_at_exit(self)

    def end_at_exit(self) -> None:
        """Cancel what runs and let it clean up, and give back what the server does besides: other processes go on with it."""
        cleanup = self.endpoint.policy.cleanup
        self.close()
        if self.endpoint.background is not None:
            self.endpoint.background.leave(self.calls, _AT_EXIT, cleanup)
        self.calls.leave(self.endpoint.lifespan, cleanup)

    def watch_for_end(self, now: float) -> None:
        """End streams once the server is asked to stop, and cancel what runs early enough to clean up before it is killed."""
        within = stopping_within()
        if within is None:
            return
        self.drain()
        self._cancels_at = min(self._cancels_at, now + within - self.endpoint.policy.cleanup - _EXIT)
        if now >= self._cancels_at:
            self.close()

    def call_soon(self, perform: Callable[[], object]) -> None:
        """Call `perform` in a thread."""
        self._calling.submit_or_run(perform)

    def _open(self, environ: Environ) -> Opened | HttpResponse:
        """Take in a request, or refuse it."""
        method, arrival = str(environ["REQUEST_METHOD"]), _arrival(environ)
        admitted = self.endpoint.gate.admit(method, _headers(environ), arrival)
        facts = self.identify(admitted, arrival.peer or None, environ.get("REMOTE_USER"), "REMOTE_USER")
        query = str(environ.get("QUERY_STRING", ""))
        if self.guard is not None:
            found = self.guard.admit(facts, method, query, below=bool(environ.get("SCRIPT_NAME")))
            facts = found if isinstance(found, TransportInfo | HttpResponse) else found.run()
        if isinstance(facts, HttpResponse):
            return facts
        headers = facts.headers
        body = b"" if method == "GET" else self._body(environ, headers)
        if isinstance(body, HttpResponse):
            return body
        url = f"{environ.get('wsgi.url_scheme', 'http')}://{headers.get('host', '')}{arrival.path}"
        return self.endpoint.open(method, url, headers, body, facts, query=query)

    def _body(self, environ: Environ, headers: Mapping[str, str]) -> bytes | HttpResponse:
        """Return the body, or why it is refused."""
        gate, bound = self.endpoint.gate, self.endpoint.policy.max_body_bytes
        stream: Any = environ["wsgi.input"]
        length = str(environ.get("CONTENT_LENGTH") or "")
        if gate.is_too_long(length):
            return gate.too_large(headers)
        counted = length.isascii() and length.isdigit()
        if not counted and not environ.get("wsgi.input_terminated"):
            return b""
        size = int(length) if counted else bound + 1
        body = self._bodies.begin(headers, min(size, bound))
        if isinstance(body, HttpResponse):
            return body
        try:
            found: bytes = stream.read(size)
        finally:
            self._bodies.end(body)
        if counted and len(found) < size:
            return gate.too_short(headers)  # it may be whole JSON all the same: the rest of a longer one is missing
        return found if len(found) <= bound else gate.too_large(headers)


class BodiesInThreads:
    """The bodies that threads read. Each counts as a whole from its beginning: a read cannot be ended from outside."""

    def __init__(self, gate: Gate, policy: HttpPolicy) -> None:
        """Take as many, and as large ones, as `policy` says."""
        self._gate = gate
        self._policy = policy
        self.start_afresh()
        renew(self)

    def start_afresh(self) -> None:
        """Begin with all the room."""
        self._bodies = ArrivingBodies(self._gate, self._policy)
        self._lock = threading.Lock()

    def begin(self, headers: Mapping[str, str], size: int) -> ArrivingBody | HttpResponse:
        """Let a thread read a body of `size` bytes, until it ends it; or return the refusal."""
        with self._lock:
            body = self._bodies.begin(headers, time.monotonic(), None)
            if isinstance(body, ArrivingBody) and (refusal := self._bodies.grow(body, size)) is not None:
                self._bodies.end(body)
                return refusal
            return body

    def end(self, body: ArrivingBody) -> None:
        """Forget a body: it is here, or it could not be read."""
        with self._lock:
            self._bodies.end(body)


class _WsgiResponse:
    """The body of one response, as the WSGI server asks for it."""

    def __init__(self, app: WsgiApp, opened: Opened) -> None:
        self._app = app
        self._opened = opened
        self._exchange = opened.exchange
        self._more = threading.Condition()
        self._outputs = 0
        self._events: deque[HttpEvent] = deque()
        self._exchange.attach(self._on_output)

    def begin(self, start_response: StartResponse) -> Iterable[bytes]:
        """Wait for the status, and start the response with it."""
        start = self._next()
        if isinstance(start, HttpResponse):
            self.close()
            return send_whole(start, start_response)
        assert isinstance(start, HttpStart)
        _start(start_response, start.status, start.headers)
        return self

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        event = self._next()
        if isinstance(event, HttpData):
            return event.data
        self.close()
        raise StopIteration

    def close(self) -> None:
        """The server calls it at the end, and when the client has gone."""
        if self._exchange.ended and not self._events:
            self._app.endpoint.finished(self._exchange)
        else:
            self._app.disconnect(self._opened)
        self._exchange.release()

    def _next(self) -> HttpEvent:
        while not self._events:
            with self._more:
                seen = self._outputs
            self._events += self._exchange.events()
            if self._events:
                break
            if self._exchange.overrun:
                raise StopIteration  # what it did not read is more than we keep; the server calls `close`
            with self._more:
                woken = self._more.wait_for(lambda seen=seen: self._outputs != seen, TICK)  # type: ignore[misc]
            if not woken:
                self._app.tick_if_due()
                self._app.watch_for_end(time.monotonic())
        return self._events.popleft()

    def _on_output(self) -> None:
        with self._more:
            self._outputs += 1
            self._more.notify_all()


def send_whole(response: HttpResponse, start_response: StartResponse, *, bodiless: bool = False) -> Iterable[bytes]:
    """Send a response that is complete; the answer to HEAD is `bodiless`.

    Whether the connection is kept is up to the server: an application must not name it.
    """
    headers = response.headers
    if response.status != 204:
        kind = () if response.body else TEXT  # PEP 3333 does not need it, but what checks applications by it does
        headers = (*headers, *kind, ("content-length", str(len(response.body))))
    _start(start_response, response.status, headers)
    return [] if bodiless else [response.body]


def _start(start_response: StartResponse, status: int, headers: tuple[Header, ...]) -> None:
    start_response(f"{status} {HTTPStatus(status).phrase}", list(headers))


def _arrival(environ: Environ) -> Arrival:
    """Return where a request came in.

    PEP 3333 has no address of ours: `SERVER_NAME` may be the address that the server is bound to, a name of its configuration,
    or what Host says, so the socket itself counts more (gunicorn), and so does `SERVER_ADDR` (CGI, mod_wsgi).
    """
    connection: Any = environ.get("gunicorn.socket")
    if connection is not None:
        address: Any = connection.getsockname()
        # The path of a Unix socket, or host and port.
        own = "/" if isinstance(address, str | bytes) else str(address[0])
    else:
        own = str(environ.get("SERVER_ADDR") or environ.get("SERVER_NAME") or "")
    authority, path = _target(environ)
    version = str(environ.get("SERVER_PROTOCOL") or "HTTP/1.1").rpartition("/")[2]
    peer = str(environ.get("REMOTE_ADDR") or "") or None
    return Arrival(own or None, peer, f"{environ.get('SCRIPT_NAME', '')}{path}", version, authority)


def _target(environ: Environ) -> tuple[str | None, str]:
    """Return the authority of a target in absolute form, or None, and the path below the mount.

    PEP 3333 has no place for that authority. gunicorn and waitress add the target as it came; wsgiref takes it for the path.
    """
    authority, path = split_target(str(environ.get("PATH_INFO") or ""))
    if authority is None:
        authority, _ = split_target(str(environ.get("RAW_URI") or environ.get("REQUEST_URI") or ""))
    return authority, path


def _headers(environ: Environ) -> dict[str, str]:
    headers = {
        key[5:].replace("_", "-").lower(): str(value).strip()
        for key, value in environ.items()
        if key.startswith("HTTP_")
    }
    for key, name in (("CONTENT_TYPE", "content-type"), ("CONTENT_LENGTH", "content-length")):
        if environ.get(key):
            headers[name] = str(environ[key])
    return headers


def _background() -> asyncio.AbstractEventLoop:
    from linkspan.runtime.background import background_loop

    return background_loop().loop
