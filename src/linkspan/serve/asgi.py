"""A server as a plain ASGI callable: no lifespan, no framework, no redirect; mount it anywhere.

Three coroutines carry a request: one reads its body, one sends its response, and one, where a call takes long, watches for the
client to go. An answer that is there at once needs only the first.
Spec: https://asgi.readthedocs.io/en/latest/specs/www.html
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping, Sequence
from math import inf
from typing import Any, Final, TypeAlias

import msgspec

from linkspan.core.call import CallReady
from linkspan.core.http_checks import Arrival
from linkspan.core.http_endpoint import Endpoint, Opened
from linkspan.core.http_exchange import HttpData, HttpEnd, HttpEvent, HttpStart, ServerExchange
from linkspan.revisions.neutral import TransportInfo
from linkspan.serve.http_app import TICK, HttpApp

__all__ = ["AsgiApp", "Scope"]

Scope: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send: TypeAlias = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Application: TypeAlias = Callable[[Any, Any, Any], Awaitable[None]]

_WATCH_AFTER: Final = 0.05
"""Seconds that a call may take before its client is watched: most are over by then."""


class AsgiApp(HttpApp):
    """The callable. It belongs to no event loop: any may call it, and the one that did last runs the async functions."""

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        path: str | None = None,
        health: str | None = None,
        otherwise: Application | None = None,
    ) -> None:
        """Serve `endpoint` at every path, or at `path` only; `health` is a path that answers 200.

        `otherwise` is another ASGI application, for all other paths and all that is not HTTP.
        """
        super().__init__(endpoint, path, self._running_loop)
        self._otherwise = otherwise
        self._health = health
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timers: dict[asyncio.AbstractEventLoop, _Timers] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection of whatever kind the ASGI server has."""
        if scope["type"] != "http":
            await self._serve_other(scope, receive, send)
            return
        path: str = scope["path"]
        if self._path is not None or self._health is not None:
            local = path.removeprefix(scope.get("root_path", "")).rstrip("/")
            if local == self._health:
                await _respond(send, 200, b"ok")
                return
            if self._is_elsewhere(local):
                if self._otherwise is not None:
                    await self._otherwise(scope, receive, send)
                else:
                    await _respond(send, 404, self._nothing_here)
                return
        method: str = scope["method"]
        headers = _headers(scope["headers"])
        if headers is None:
            await _respond(send, 400, b"Host or Origin is there twice")
            return
        # Servers name the path of a Unix socket in place of an address.
        own, peer = scope.get("server"), scope.get("client")
        arrival = Arrival(own[0] if own else None, peer[0] if peer else None, path, scope.get("http_version") or "1.1")
        facts = self.admit(method, headers, arrival, scope.get("user"), 'scope["user"]')
        if isinstance(facts, TransportInfo):
            await self._serve(scope, headers, facts, receive, send)
        else:
            await _send_all(send, facts.events())

    async def _serve(
        self, scope: Scope, headers: Mapping[str, str], facts: TransportInfo, receive: Receive, send: Send
    ) -> None:
        """Serve a request that was let in."""
        self._loop = loop = asyncio.get_running_loop()
        timers = self._timers.get(loop)
        if timers is None:
            for each in [each for each in list(self._timers) if each.is_closed()]:
                self._timers.pop(each, None)  # its timers would keep it for ever
            timers = self._timers[loop] = _Timers(self, loop)
        method: str = scope["method"]
        body = b"" if method == "GET" else await _read_body(receive, self.endpoint, headers, timers)
        if body is None:
            return  # the client has gone in the middle of it
        if isinstance(body, ServerExchange):
            await _send_all(send, body.events())
            return
        url = f"{scope.get('scheme', 'http')}://{headers.get('host', '')}{scope['path']}"
        query: bytes = scope.get("query_string", b"")
        opened = self.endpoint.open(method, url, headers, body, facts, query=query.decode("latin-1") if query else "")
        events = opened.events
        performed = not events or (len(events) == 1 and type(events[0]) is CallReady and events[0].call.inline)
        if performed:  # an inline function runs right here, on the loop, so nothing could be sent meanwhile
            self.perform(opened)
        if not (performed and opened.exchange.ended):
            await _Response(self, opened, receive, send, timers).run(performed=performed)
            return
        try:
            await _send_all(send, opened.exchange.events())
        finally:
            self.endpoint.finished(opened.exchange)

    async def _serve_other(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._otherwise is not None:
            try:
                await self._otherwise(scope, receive, send)
            finally:
                if scope["type"] == "lifespan":
                    self.close()
        elif scope["type"] == "lifespan":
            await _live(receive, send, self.close)
        else:
            await send({"type": "websocket.close", "code": 1000})

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        assert self._loop is not None
        return self._loop


class _Timers:
    """What waits on one loop: a map of when to do what, and one timer for all of it, since a timer of its own would cost each
    call more than its way through the gate. Another loop that serves at the same time, or after this one, has its own.
    """

    def __init__(self, app: AsgiApp, loop: asyncio.AbstractEventLoop) -> None:
        self.due: dict[Callable[[], object], float] = {}
        """When to call what, once, by the clock of the loop. What is not needed any more is taken out."""
        self.bodies: set[_Incoming] = set()
        self._app = app
        self._loop = loop
        self._timer: asyncio.TimerHandle | None = None
        self._next = inf
        """When the timer fires: the handle of another kind of event loop may not know."""
        self._kept = 0

    def after(self, seconds: float, act: Callable[[], object]) -> None:
        """Call `act` in so many seconds, or a little later."""
        when = self.due[act] = self._loop.time() + seconds
        if when + _WATCH_AFTER < self._next:
            self._arm(when)

    def tick_soon(self) -> None:
        """Look after streams and sessions once a second, as long as there are any."""
        if self._tick not in self.due:
            self.after(TICK, self._tick)

    def keep_body(self, incoming: _Incoming, size: int, bound: int) -> bool:
        """Note how much of a body there is. If all together are above `bound`, the largest ends; False if it is this one."""
        self._kept += incoming.grow(size)
        if self._kept <= bound:
            return True
        largest = max((each for each in self.bodies if not each.expired), key=lambda each: each.size)
        if largest is incoming:
            return False
        largest.crowd_out()
        return True

    def forget_body(self, incoming: _Incoming) -> None:
        """Free what was kept of a body."""
        self._kept -= incoming.size
        self.bodies.discard(incoming)
        self.due.pop(incoming.expire, None)

    def _arm(self, when: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._next = self._loop.call_at(when, self._fire), when

    def _fire(self) -> None:
        self._timer, self._next = None, inf
        now = self._loop.time()
        for act in [act for act, when in self.due.items() if when <= now]:
            del self.due[act]
            act()
        if self.due:
            self._arm(max(min(self.due.values()), now + _WATCH_AFTER))

    def _tick(self) -> None:
        if self._app.tick(time.monotonic()):
            self.tick_soon()


class _Incoming(msgspec.Struct, eq=False):
    """A body that is arriving: the task that reads it, and how much of it there is.

    `asyncio.timeout` would cost each request 5 us, even where the body is there at once.
    """

    reader: asyncio.Task[Any]
    size: int = 0
    expired: bool = False
    crowded_out: bool = False

    def grow(self, size: int) -> int:
        """Set how much there is; return how much that is more."""
        more, self.size = size - self.size, size
        return more

    def expire(self) -> None:
        """End the wait for more. Called by the loop or by the reader of another body, so the reader waits in `receive`."""
        if not self.expired:
            self.expired = True
            self.reader.cancel()

    def crowd_out(self) -> None:
        """End the wait for more: others need the room."""
        self.crowded_out = True
        self.expire()


async def _read_body(
    receive: Receive, endpoint: Endpoint, headers: Mapping[str, str], timers: _Timers
) -> bytes | ServerExchange | None:
    """Return the body, or why it is refused: too large, too slow, or one too many; None if the client disconnects."""
    gate, policy = endpoint.gate, endpoint.policy
    if len(timers.bodies) >= policy.max_streams:
        return gate.too_many_bodies(headers, "max_streams")
    task = asyncio.current_task()
    assert task is not None
    cancelled_before = task.cancelling()
    whole = bytearray()
    incoming = _Incoming(task)
    timers.bodies.add(incoming)
    timers.after(policy.body_timeout, incoming.expire)
    try:
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                return None
            part: bytes = message.get("body", b"")
            if len(whole) + len(part) > policy.max_body_bytes:
                return gate.too_large(headers)
            if not message.get("more_body", False):
                return bytes(whole) + part if whole else part
            whole += part
            if not timers.keep_body(incoming, len(whole), max(policy.max_incoming_bytes, policy.max_body_bytes)):
                return gate.too_many_bodies(headers, "max_incoming_bytes")
    except asyncio.CancelledError:
        if not incoming.expired or task.uncancel() > cancelled_before:
            raise  # the server cancelled the request
        if incoming.crowded_out:
            return gate.too_many_bodies(headers, "max_incoming_bytes")
        return gate.too_slow(headers)
    finally:
        timers.forget_body(incoming)


class _Response:
    """One response that takes its time: sends what its exchange has to send, until it ends or its client goes."""

    def __init__(self, app: AsgiApp, opened: Opened, receive: Receive, send: Send, timers: _Timers) -> None:
        self._app = app
        self._timers = timers
        self._opened = opened
        self._exchange = opened.exchange
        self._receive = receive
        self._send = send
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._waiter: asyncio.Future[None] | None = None
        self._woken = False
        self._gone = False
        self._watcher: asyncio.Task[None] | None = None
        self._sending: asyncio.Timeout | None = None

    async def run(self, *, performed: bool) -> None:
        """Run what the request asks for unless it is `performed` already, and send."""
        self._exchange.attach(self._on_output)
        self._timers.after(_WATCH_AFTER, self._watch)
        try:
            if not performed:
                self._app.perform(self._opened)
            await self._send_until_end()
        except asyncio.CancelledError:
            self._leave()
            raise
        finally:
            self._timers.due.pop(self._watch, None)
            if self._watcher is not None:
                self._watcher.cancel()
            self._exchange.release()
            self._app.endpoint.finished(self._exchange)

    # Sending.

    async def _send_until_end(self) -> None:
        while not self._gone:
            self._woken = False
            events = self._exchange.events()
            if events:
                await self._send_events(events)
                if type(events[-1]) is HttpEnd:
                    return
            if self._exchange.overrun:
                self._leave()
                return
            if not self._woken:
                self._timers.tick_soon()
                self._waiter = self._loop.create_future()
                await self._waiter
                self._waiter = None

    async def _send_events(self, events: Sequence[HttpEvent]) -> None:
        if type(events[-1]) is HttpEnd and type(events[0]) is HttpStart:
            await _send_all(self._send, events)  # the whole answer: the server below has its own bounds for it
            return
        try:
            async with asyncio.timeout(self._app.endpoint.policy.send_timeout) as self._sending:
                await _send_all(self._send, events)
        except (TimeoutError, OSError):
            self._leave()
        finally:
            self._sending = None

    def _on_output(self) -> None:
        """Wake the sender, from any thread."""
        if self._woken and not self._exchange.overrun:
            return
        self._woken = True
        if threading.get_ident() == self._thread:
            self._wake()
            return
        try:
            self._loop.call_soon_threadsafe(self._wake)
        except RuntimeError:
            return  # the loop is closed

    def _wake(self) -> None:
        if self._exchange.overrun and self._sending is not None:
            self._sending.reschedule(self._loop.time())  # a client that does not read is given no more time
            self._sending = None
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    # Watching for the client to go.

    def _watch(self) -> None:
        self._watcher = self._loop.create_task(self._wait_for_disconnect())

    async def _wait_for_disconnect(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            continue
        self._leave()

    def _leave(self) -> None:
        """Note that the client has gone."""
        if self._gone:
            return
        self._gone = True
        self._app.disconnect(self._opened)
        self._woken = True
        self._wake()


def _headers(raw: Iterable[tuple[bytes, bytes]]) -> dict[str, str] | None:
    """Return the headers by name; None if one that safety depends on is there twice."""
    headers: dict[str, str] = {}
    for name, value in raw:
        key = name.decode("latin-1").lower()
        if key in headers:
            if key in ("host", "origin"):
                return None
            headers[key] = f"{headers[key]}, {value.decode('latin-1').strip()}"
        else:
            headers[key] = value.decode("latin-1").strip()
    return headers


async def _send_all(send: Send, events: Sequence[HttpEvent]) -> None:
    last = len(events) - 1
    for number, event in enumerate(events):
        if type(event) is HttpStart:
            headers = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in event.headers]
            await send({"type": "http.response.start", "status": event.status, "headers": headers})
        elif type(event) is HttpData:
            ends = number + 1 == last and type(events[last]) is HttpEnd
            await send({"type": "http.response.body", "body": event.data, "more_body": not ends})
            if ends:
                return
        else:
            await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _respond(send: Send, status: int, body: bytes) -> None:
    headers = [(b"content-type", b"text/plain"), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body, "more_body": False})


async def _live(receive: Receive, send: Send, close: Callable[[], object]) -> None:
    """Answer a lifespan, though nothing depends on it."""
    while True:
        message = await receive()
        if message["type"] == "lifespan.startup":
            await send({"type": "lifespan.startup.complete"})
        elif message["type"] == "lifespan.shutdown":
            close()
            await send({"type": "lifespan.shutdown.complete"})
            return
