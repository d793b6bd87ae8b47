"""A server as a plain ASGI callable: no lifespan, no framework, no redirect; mount it anywhere.

Spec: https://asgi.readthedocs.io/en/latest/specs/www.html
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping, Sequence
from contextlib import suppress
from typing import Any, Final, TypeAlias, cast
from weakref import WeakKeyDictionary

from linkspan.core.call import Call
from linkspan.core.endpoint import Endpoint, Opened
from linkspan.core.exchange import HttpData, HttpEnd, HttpEvent, HttpStart, ServerExchange
from linkspan.core.gate import Arrival
from linkspan.core.principal import UnknownIdentity, principal_of
from linkspan.events import CallReady
from linkspan.io.complaints import Complaints
from linkspan.io.http_calls import HttpCalls
from linkspan.io.stopping import is_stopping
from linkspan.io.tasks import Steps, is_closed
from linkspan.revisions.neutral import Facts

__all__ = ["AsgiApp", "Scope"]

Scope: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send: TypeAlias = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Application: TypeAlias = Callable[[Any, Any, Any], Awaitable[None]]

_TICK: Final = 1.0
_WATCH_AFTER: Final = 0.05
"""Seconds that a call may take before somebody looks whether its client is still there: most are over by then."""


class AsgiApp:
    """The callable. It belongs to no event loop: any may call it, and the one that did last runs the async functions."""

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        path: str | None = None,
        health: str | None = None,
        otherwise: Application | None = None,
    ) -> None:
        """Serve `endpoint` at every path, or at `path` only; `health` is a path that says that all is well.

        `otherwise` is another ASGI application, for all other paths and all that is not HTTP.
        """
        self.endpoint = endpoint
        self._otherwise = otherwise
        self._path = path.rstrip("/") if path is not None else None
        self._health = health
        self._loop: asyncio.AbstractEventLoop | None = None
        self._calls = HttpCalls(self._running_loop, endpoint.policy)
        self._timers = WeakKeyDictionary[asyncio.AbstractEventLoop, _Timers]()
        self._complaints = Complaints()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection of whatever kind the ASGI server has."""
        kind = scope["type"]
        if kind == "http":
            self._loop = loop = asyncio.get_running_loop()
            timers = self._timers.get(loop)
            if timers is None:
                timers = self._timers[loop] = _Timers(self)
            await self._serve(scope, receive, send, timers)
        elif self._otherwise is not None:
            try:
                await self._otherwise(scope, receive, send)
            finally:
                if kind == "lifespan":
                    self.close()
        elif kind == "lifespan":
            await _live(receive, send, self.close)
        else:
            await send({"type": "websocket.close", "code": 1000})

    def drain(self) -> None:
        """End the streams of those who only listen; calls go on. Call it on the loop, when no more requests are taken."""
        self._calls.perform_all(self.endpoint.drain())

    def close(self) -> None:
        """End all streams and sessions in good order. Call it on the loop, before the process ends."""
        self._calls.perform_all(self.endpoint.close())

    async def _serve(self, scope: Scope, receive: Receive, send: Send, timers: _Timers) -> None:
        path: str = scope["path"]
        local = path.removeprefix(scope.get("root_path", "")).rstrip("/")
        if self._health is not None and local == self._health:
            await _respond(send, 200, b"ok", "text/plain")
            return
        if self._path is not None and local not in (self._path, self.endpoint.policy.http_sse):
            if self._otherwise is not None:
                await self._otherwise(scope, receive, send)
                return
            await _respond(
                send, 404, f"Nothing is here. The MCP endpoint is at {self._path or '/'}".encode(), "text/plain"
            )
            return
        method: str = scope["method"]
        headers = _headers(scope["headers"])
        if headers is None:
            await _respond(send, 400, b"Host or Origin is there twice", "text/plain")
            return
        refusal = self.endpoint.admit(method, headers, _arrival(scope))
        if refusal is None:
            try:
                principal = principal_of(scope.get("user"), 'scope["user"]')
            except UnknownIdentity as problem:
                self._complaints.tell(str(problem))
                await _send_all(send, self.endpoint.gate.unidentified(headers).events())
                return
            body = b"" if method == "GET" else await self._body(receive, headers, timers)
            if body is None:
                return  # the client has gone in the middle of it
            if isinstance(body, bytes):
                url = f"{scope.get('scheme', 'http')}://{headers.get('host', '')}{path}"
                query: bytes = scope.get("query_string", b"")
                facts = Facts(headers, principal, _address(scope))
                opened = self.endpoint.open(method, url, headers, body, facts, query=query.decode("latin-1"))
                await _Request(self, opened, receive, send, timers).run()
                return
            refusal = body
        elif refusal.complaint is not None:
            self._complaints.tell(refusal.complaint)
        await _send_all(send, refusal.events())

    async def _body(
        self, receive: Receive, headers: Mapping[str, str], timers: _Timers
    ) -> bytes | ServerExchange | None:
        """Return the body, or why it is refused: too large, too slow, or one too many; None if the client goes."""
        gate, bound = self.endpoint.gate, self.endpoint.policy.max_body_bytes
        if len(timers.bodies) >= self.endpoint.policy.max_streams:
            return gate.too_many_bodies(headers, "max_streams")
        whole = bytearray()
        task = timers.expect_body(self.endpoint.policy.body_timeout)
        try:
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    return None
                part: bytes = message.get("body", b"")
                if len(whole) + len(part) > bound:
                    return gate.too_large(headers)
                if not message.get("more_body", False):
                    return bytes(whole) + part if whole else part
                whole += part
                if not timers.keep_body(task, len(whole)):
                    return gate.too_many_bodies(headers, "max_incoming_bytes")
        except asyncio.CancelledError:
            if task in timers.bodies or task.uncancel():
                raise  # it was not us, or not only us
            if task in timers.crowded_out:
                return gate.too_many_bodies(headers, "max_incoming_bytes")
            return gate.too_slow(headers)
        finally:
            timers.bodies.pop(task, None)
            if task in timers.kept:
                timers.forget_body(task)

    # What requests use.

    def perform(self, opened: Opened) -> None:
        """Run what a request asks for."""
        if opened.connection is not None:
            self._calls.perform(opened.connection, opened.events)

    @property
    def calls(self) -> HttpCalls:
        """Who runs the calls."""
        return self._calls

    def tick(self) -> bool:
        """Do what time brings; tell whether there is anything left that time will bring something for."""
        if self.endpoint.streams and is_stopping():
            self.drain()
        self._calls.perform_all(self.endpoint.tick(time.monotonic()))
        return bool(self.endpoint.streams or len(self.endpoint.sessions))

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        assert self._loop is not None
        return self._loop


class _Timers:
    """What waits on one loop, with one timer for all of a kind: a timer of its own would cost each call more than its way
    through the gate. Another loop that serves at the same time, or after this one, has its own. All is called on the loop.
    """

    def __init__(self, app: AsgiApp) -> None:
        self.bodies: dict[asyncio.Task[object], float] = {}
        """When the body that a task reads must be there."""
        self.kept: dict[asyncio.Task[object], int] = {}
        """Bytes of the bodies that have arrived in part."""
        self.crowded_out: set[asyncio.Task[object]] = set()
        """Those of them that had to make room: their tasks are cancelled."""
        self._total = 0
        self._young: dict[_Request, float] = {}
        self._app = app
        self._ticking = self._looking = False

    def expect_body(self, seconds: float) -> asyncio.Task[object]:
        """Give the task that calls so many seconds to read a body; return it. It is cancelled, and gone from `bodies`, then."""
        task = asyncio.current_task()
        assert task is not None
        self.bodies[task] = asyncio.get_running_loop().time() + seconds
        self.tick_soon()
        return task

    def keep_body(self, task: asyncio.Task[object], size: int) -> bool:
        """Note how much of an unfinished body there is. If all are too much, the largest goes; False if it is this one."""
        self._total += size - self.kept.get(task, 0)
        self.kept[task] = size
        policy = self._app.endpoint.policy
        if self._total <= max(policy.max_incoming_bytes, policy.max_body_bytes):
            return True
        left = {each: size for each, size in self.kept.items() if each not in self.crowded_out}
        largest = max(left, key=lambda each: left[each])
        if largest is task:
            return False
        del self.bodies[largest]
        self.crowded_out.add(largest)
        largest.cancel()
        return True

    def forget_body(self, task: asyncio.Task[object]) -> None:
        """What was kept of a body is kept no longer."""
        self._total -= self.kept.pop(task)
        self.crowded_out.discard(task)

    def tick_soon(self) -> None:
        """Look after bodies, streams and sessions once a second, as long as there are any."""
        if not self._ticking:
            self._ticking = True
            asyncio.get_running_loop().call_later(_TICK, self._tick)

    def _tick(self) -> None:
        self._ticking = False
        more = self._app.tick()
        now = asyncio.get_running_loop().time()
        for task in [task for task, deadline in self.bodies.items() if deadline <= now]:
            del self.bodies[task]
            task.cancel()
        if more or self.bodies:
            self.tick_soon()

    def watch_later(self, request: _Request) -> None:
        """Have a request watch its client if it is still there in a moment."""
        loop = asyncio.get_running_loop()
        self._young[request] = loop.time() + _WATCH_AFTER
        if not self._looking:
            self._looking = True
            loop.call_later(_WATCH_AFTER, self._look)

    def forget(self, request: _Request) -> None:
        """A request has ended."""
        self._young.pop(request, None)

    def _look(self) -> None:
        self._looking = False
        loop = asyncio.get_running_loop()
        now = loop.time()
        for request in [request for request, due in self._young.items() if due <= now]:
            del self._young[request]
            request.watch()
        if self._young:
            self._looking = True
            loop.call_later(_WATCH_AFTER, self._look)


class _Request:
    """One request on the loop: sends what its exchange says, and sees when the client goes."""

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
        self._main: asyncio.Task[object] | None = None
        self._sender: asyncio.Task[None] | None = None
        self._sending: asyncio.Timeout | None = None

    async def run(self) -> None:
        exchange, opened = self._exchange, self._opened
        if exchange.ended and not opened.events:
            await _send_all(self._send, exchange.events())
            return
        exchange.on_output = self._on_output
        call = self._own_call()
        self._timers.watch_later(self)
        try:
            if call is not None:
                await self._run_here(call)
            else:
                self._app.perform(opened)
            await self._send_until_end()
        except asyncio.CancelledError:
            if not self._gone:
                self._leave()
                raise
        finally:
            self._timers.forget(self)
            if self._watcher is not None:
                self._watcher.cancel()
            self._app.endpoint.finished(exchange)

    def _own_call(self) -> Call | None:
        """Return the call that can run right in this task: the one async function of a modern request."""
        events = self._opened.events
        if (
            self._exchange.stands_alone
            and len(events) == 1
            and type(events[0]) is CallReady
            and events[0].call.is_async
        ):
            return events[0].call
        return None

    async def _run_here(self, call: Call) -> None:
        connection = self._opened.connection
        assert connection is not None
        main = self._main = asyncio.current_task()
        assert main is not None
        steps: Steps | None = None
        try:
            steps = Steps(cast("Awaitable[object]", call.run()), main)
            value = await steps
            if steps.cancellations:
                await steps.take_back()
        except BaseException as error:
            by_others = isinstance(error, asyncio.CancelledError) and await _by_others(steps, main)
            if is_closed(error, main) or (by_others and not self._gone):
                raise
            if by_others:
                return  # by us, because the client has gone
            # A function may also have met the end of something that it waited for, or ended itself: that fails the call.
            self._main = None
            self._app.calls.fail(connection, call, error)
        else:
            self._main = None
            self._app.calls.finish(connection, call, value)

    # Sending.

    def _on_output(self) -> None:
        """Wake the sender, from any thread. While a call runs in our task, another task sends."""
        if self._woken and not self._exchange.overrun:
            return
        self._woken = True
        if threading.get_ident() == self._thread:
            self._wake()
        else:
            try:
                self._loop.call_soon_threadsafe(self._wake)
            except RuntimeError:
                return  # the loop is closed

    def _wake(self) -> None:
        if self._exchange.overrun and self._sending is not None:
            self._sending.reschedule(self._loop.time())  # who does not read is given no more time
            self._sending = None
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
        elif self._main is not None and self._sender is None:
            self._sender = self._loop.create_task(self._send_now())

    async def _send_now(self) -> None:
        """Send what there is while the call goes on."""
        while self._woken and self._main is not None and not self._gone:
            self._woken = False
            await self._send_events(self._exchange.events())
        self._sender = None

    async def _send_until_end(self) -> None:
        if self._sender is not None:
            await asyncio.wait([self._sender])
        while not self._gone:
            self._woken = False
            events = self._exchange.events()
            await self._send_events(events)
            if events and type(events[-1]) is HttpEnd:
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
        if not events:
            return
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

    # Seeing the client go.

    _watcher: asyncio.Task[None] | None = None

    def watch(self) -> None:
        """Look whether the client goes, from now on."""
        self._watcher = self._loop.create_task(self._wait_for_disconnect())

    async def _wait_for_disconnect(self) -> None:
        while True:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                break
        self._leave()

    def _leave(self) -> None:
        """The client has gone."""
        if self._gone:
            return
        self._gone = True
        opened = self._opened
        events = self._app.endpoint.disconnect(opened)
        if opened.connection is not None and self._main is None:
            self._app.calls.perform(opened.connection, events)
        if self._main is not None:
            self._main.cancel()
        self._woken = True
        self._wake()


def _arrival(scope: Mapping[str, Any]) -> Arrival:
    """Return where a request came in. Servers name the path of a Unix socket in place of an address."""
    own, peer = scope.get("server"), scope.get("client")
    return Arrival(
        own[0] if own else None, peer[0] if peer else None, scope["path"], scope.get("http_version") or "1.1"
    )


async def _by_others(steps: Steps | None, task: asyncio.Task[object]) -> bool:
    """Return whether a cancellation that ended an author's coroutine came from somewhere else than that coroutine."""
    if steps is not None and steps.cancellations:
        with suppress(asyncio.CancelledError):
            await steps.take_back()
    return task.cancelling() > 0


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


def _address(scope: Mapping[str, Any]) -> str | None:
    """Return where the request came from; a Unix socket has no address."""
    client: Sequence[object] | None = scope.get("client")
    return str(client[0]) if client and client[0] else None


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


async def _respond(send: Send, status: int, body: bytes, kind: str) -> None:
    headers = [(b"content-type", kind.encode()), (b"content-length", b"%d" % len(body))]
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
