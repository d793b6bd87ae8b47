"""A server as a plain ASGI callable: no framework, no redirect; mount it anywhere.

Three coroutines carry a request: one reads its body, one sends its response, and one, where a call takes long, watches for the
client to go. An answer that is there at once needs only the first.
Spec: https://asgi.readthedocs.io/en/latest/specs/www.html
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, MutableMapping, Sequence
from contextlib import asynccontextmanager, suppress
from contextvars import ContextVar, copy_context
from functools import lru_cache
from math import inf
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

import msgspec

from linkspan.core.http_bodies import ArrivingBodies, ArrivingBody
from linkspan.core.http_checks import Arrival
from linkspan.core.http_endpoint import Endpoint, Opened
from linkspan.core.http_exchange import Header, HttpData, HttpEnd, HttpEvent, HttpResponse, HttpStart
from linkspan.errors import LinkspanError
from linkspan.revisions.neutral import TransportInfo
from linkspan.serve.http_app import TICK, HttpApp
from linkspan.serve.write_batch import Turns
from linkspan.wire.headers import split_target

if TYPE_CHECKING:
    from linkspan.serve.guarding import Guard
    from linkspan.serve.metrics import MetricsPage

Scope: TypeAlias = MutableMapping[str, Any]
Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
Application: TypeAlias = Callable[[Any, Any, Any], Awaitable[None]]

_WATCH_AFTER: Final = 0.05
"""Seconds that a call may take before its client is watched: most are over by then."""


class AsgiApp(HttpApp):
    """The callable. It belongs to no event loop: any may call it, and runs the async functions of its own requests."""

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        path: str | None = None,
        health: str | None = None,
        metrics: MetricsPage | None = None,
        otherwise: Application | None = None,
        guard: Guard | None = None,
    ) -> None:
        """Serve `endpoint` at every path, or at `path` only; `health` is a path that answers 200; `metrics` has its own.

        `otherwise` is another ASGI application, for all other paths and all that is not HTTP. `guard` verifies tokens.
        """
        super().__init__(endpoint, path, _loop_of_request, metrics, guard, health)
        self._is_one_of_several = path is not None or health is not None or metrics is not None
        self._otherwise = otherwise
        self._timers: dict[asyncio.AbstractEventLoop, _Timers] = {}
        self._last_client: object = None
        """That of the last response which was complete at once."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection of whatever kind the ASGI server has."""
        if scope["type"] != "http":
            await self._serve_other(scope, receive, send)
            return
        path: str = scope["path"]
        authority: str | None = None
        if path[:1] != "/":  # hypercorn and h11 of uvicorn take the whole target for the path
            authority, path = split_target(path)
        page: MetricsPage | None = None
        if self._is_one_of_several or (self.guard is not None and "/.well-known/" in path):
            local = path.removeprefix(scope.get("root_path", "")).rstrip("/")
            if (public := self._public(path, local)) is not None:
                method: str = scope["method"]
                await send_all(send, [self.answer(public, method)], bodiless=method == "HEAD")
                return
            if self.metrics is not None and local == self.metrics.path:
                page = self.metrics
            elif self._is_elsewhere(local):
                if self._otherwise is not None:
                    await self._otherwise(scope, receive, send)
                else:
                    await send_all(send, [self._nothing_here])
                return
        # Servers name the path of a Unix socket in place of an address.
        own, peer = scope.get("server"), scope.get("client")
        version: str = scope.get("http_version") or "1.1"
        arrival = Arrival(own[0] if own else None, peer[0] if peer else None, path, version, authority)
        raw = tuple(scope["headers"])
        if raw and type(raw[0]) is not tuple:
            raw = tuple((bytes(name), bytes(value)) for name, value in raw)
        headers = self.endpoint.gate.read(scope["method"], raw, arrival)
        facts = self.identify(headers, arrival.peer or None, scope.get("user"), 'scope["user"]')
        if self.guard is not None and page is None:
            below, query = bool(scope.get("root_path")), scope.get("query_string", b"").decode("latin-1")
            admitted = self.guard.admit(facts, scope["method"], query, below=below)
            if not isinstance(admitted, TransportInfo | HttpResponse):
                admitted = await admitted.awaited()
            facts = admitted
        if not isinstance(facts, TransportInfo):
            await send_all(send, [facts])
        elif page is not None:
            await send_all(send, [page.response(scope["method"], facts.headers)])
        else:
            await self._serve(scope, path, facts, receive, send)

    async def _serve(self, scope: Scope, path: str, facts: TransportInfo, receive: Receive, send: Send) -> None:
        """Serve a request that was let in."""
        loop = asyncio.get_running_loop()
        _request_loop.set(loop)
        timers = self._timers.get(loop)
        if timers is None:
            for each in [each for each in list(self._timers) if each.is_closed()]:
                self._timers.pop(each, None)  # its timers would keep it for ever
            timers = self._timers[loop] = _Timers(self, loop)
            self.work(lambda: loop)
            if (lifespan := self.endpoint.lifespan) is not None:
                lifespan.begin_unasked(self.calls, lambda: loop)
        method, url, headers = scope["method"], path, facts.headers
        body: bytes | HttpResponse | None = b""
        if method == "GET":  # a page shows where it is
            url = f"{scope.get('scheme', 'http')}://{headers.get('host', '')}{url}"
        else:
            body = await _read_body(receive, self.endpoint, headers, timers)
        if body is None:
            return  # the client has gone in the middle of it
        if isinstance(body, HttpResponse):
            await send_all(send, [body])
            return
        query: bytes = scope.get("query_string", b"")
        decoded = query.decode("latin-1") if query else ""
        if self.slow is not None and self.slow.may_wait(method, headers):
            opened = await self.open_slowly(method, url, headers, body, facts, decoded)
        else:
            opened = self.endpoint.open(method, url, headers, body, facts, query=decoded)
        response = self.perform(opened)
        if response is None:
            await _Sender(self, opened, receive, send, timers).run()
            return
        client = scope.get("client")
        try:
            if client != self._last_client:  # one that is alone does not wait
                self._last_client = client
                await timers.end_of_turn()
            await send_all(send, [response])
        finally:
            self.endpoint.finished(opened.exchange)

    def call_soon(self, perform: Callable[[], object]) -> None:
        """Call `perform` on an event loop that serves."""
        for loop in list(self._timers):
            context = copy_context()
            context.run(_request_loop.set, loop)
            with suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(perform, context=context)
                return

    async def _serve_other(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._serve_lifespan(scope, receive, send)
        elif self._otherwise is not None:
            await self._otherwise(scope, receive, send)
        else:
            await send({"type": "websocket.close", "code": 1000})

    @asynccontextmanager
    async def live(self, _application: object = None) -> AsyncGenerator[None]:
        """Enter the lifespan of the server, and leave it at the end of the block. Raises: LinkspanError if that fails."""
        if (problem := await self.enter()) is not None:
            raise LinkspanError(problem)
        try:
            yield
        finally:
            await self.leave()

    async def _serve_lifespan(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Enter the lifespan of the server at startup and leave it at shutdown; that of another application stands inside."""
        startup = await receive()
        if (problem := await self.enter()) is not None:
            await send({"type": "lifespan.startup.failed", "message": problem})
            return
        try:
            last = await self._serve_other_lifespan(scope, startup, receive, send)
            if last is None:
                await send({"type": "lifespan.startup.complete"})
                await receive()
                last = {"type": "lifespan.shutdown.complete"}
        finally:
            await self.leave()
        if last["type"].startswith("lifespan.shutdown"):
            await send(last)

    async def _serve_other_lifespan(
        self, scope: Scope, startup: Message, receive: Receive, send: Send
    ) -> Message | None:
        """Let the other application live until it ends; return its last message, or None if it has no lifespan."""
        received, last = [startup], None

        async def receive_next() -> Message:
            return received.pop() if received else await receive()

        async def send_on(message: Message) -> None:
            nonlocal last
            last = message
            if message["type"].startswith("lifespan.startup"):  # the end is sent after our own
                await send(message)

        if self._otherwise is not None:
            try:
                await self._otherwise(scope, receive_next, send_on)
            except Exception:
                if last is not None:
                    raise
        return last


_request_loop: Final[ContextVar[asyncio.AbstractEventLoop | None]] = ContextVar("linkspan_request_loop", default=None)


def _loop_of_request() -> asyncio.AbstractEventLoop | None:
    """Return the loop that serves a request: the one that runs here, or in a worker thread, which has the request's context."""
    return asyncio._get_running_loop() or _request_loop.get()


class _Timed(Protocol):
    def on_time(self) -> object:
        """Do what was to be done at this time."""
        ...


class _Timers:
    """What waits on one loop: a map of what is due when, and one timer for all of it, since a timer of its own would cost each
    call more than its way through the gate. Another loop that serves at the same time, or after this one, has its own.
    """

    def __init__(self, app: AsgiApp, loop: asyncio.AbstractEventLoop) -> None:
        self.due: dict[_Timed, float] = {}
        """What is due once, and when by the clock of the loop. What is not needed any more is taken out."""
        self.bodies = ArrivingBodies(app.endpoint.gate, app.endpoint.policy)
        """The bodies that tasks wait for."""
        self.loop = loop
        self.thread = threading.get_ident()
        self._turns = Turns(time.monotonic)  # the time of some loops has only milliseconds
        self._app = app
        self._timer: asyncio.TimerHandle | None = None
        self._next = inf
        """When the timer fires: the handle of another kind of event loop may not know."""

    def after(self, seconds: float, timed: _Timed) -> None:
        """Call `on_time` in so many seconds, or a little later."""
        when = self.due[timed] = self.loop.time() + seconds
        if when + _WATCH_AFTER < self._next:
            self._arm(when)

    async def end_of_turn(self) -> None:
        """Let other requests be answered that are here already: what is written between two of them wakes its client."""
        if self._turns.keep():
            try:
                await asyncio.sleep(0)
            finally:
                self._turns.let_go()

    def tick_soon(self) -> None:
        """Look after streams and sessions once a second, as long as there are any."""
        if self not in self.due:
            self.after(TICK, self)

    def wait_for_body(self, headers: Mapping[str, str]) -> tuple[_WaitingTask, ArrivingBody | HttpResponse]:
        """Let the current task wait for a body; return its refusal if there are too many already."""
        waiting = _WaitingTask.here(self.loop)
        body = self.bodies.begin(headers, self.loop.time(), waiting.refuse)
        if isinstance(body, ArrivingBody) and body.until + _WATCH_AFTER < self._next:
            self._arm(body.until)
        return waiting, body

    def _arm(self, when: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._next = self.loop.call_at(when, self._fire), when

    def _fire(self) -> None:
        self._timer, self._next = None, inf
        now = self.loop.time()
        try:
            self.bodies.expire(now)
            for timed in [timed for timed, when in self.due.items() if when <= now]:
                del self.due[timed]
                timed.on_time()
        finally:  # one that raises, which the loop reports, must not stop the others
            body = self.bodies.next_timeout()
            due = self.due.values() if body is None else (*self.due.values(), body)
            if due:
                self._arm(max(min(due), now + _WATCH_AFTER))

    def on_time(self) -> None:
        """Run due timers of the endpoint."""
        if self._app.tick(time.monotonic()):
            self.tick_soon()


class _WaitingTask(msgspec.Struct, eq=False):
    """A task that waits for its client, until it is over or what it waits for is refused.

    `asyncio.timeout` would cost each request 5 us, even where what it waits for is there at once.
    """

    task: asyncio.Task[Any]
    cancelled_before: int
    expired: bool = False
    refusal: HttpResponse | None = None

    @classmethod
    def here(cls, loop: asyncio.AbstractEventLoop) -> _WaitingTask:
        """Return the current task as it is before it waits."""
        task = asyncio.current_task(loop)
        assert task is not None
        return cls(task, task.cancelling())

    def on_time(self) -> None:
        """End the wait. Called while the task waits: by a timer, or by another task."""
        if not self.expired:
            self.expired = True
            self.task.cancel()

    def refuse(self, refusal: HttpResponse) -> None:
        """End the wait with a response."""
        self.refusal = refusal
        self.on_time()

    def take_back(self) -> bool:
        """Take the cancellation back that ended the wait; False if it was the server's, who cancels the request."""
        return self.expired and self.task.uncancel() <= self.cancelled_before


async def _read_body(
    receive: Receive, endpoint: Endpoint, headers: Mapping[str, str], timers: _Timers
) -> bytes | HttpResponse | None:
    """Return the body, or why it is refused: too large, too slow, or one too many; None if the client disconnects."""
    bound, whole = endpoint.policy.max_body_bytes, bytearray()
    waiting, body = timers.wait_for_body(headers)
    if isinstance(body, HttpResponse):
        return body
    try:
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                return None
            part: bytes = message.get("body", b"")
            if not message.get("more_body", False):
                if len(whole) + len(part) > bound:
                    return endpoint.gate.too_large(headers)
                return bytes(whole) + part if whole else part
            whole += part
            if (refusal := timers.bodies.grow(body, len(whole))) is not None:
                return refusal
    except asyncio.CancelledError:
        if not waiting.take_back():
            raise
        return waiting.refusal
    finally:
        timers.bodies.end(body)


class _Sender(msgspec.Struct, eq=False):
    """Sends one response that takes its time, until it ends or its client goes."""

    app: AsgiApp
    opened: Opened
    receive: Receive
    send: Send
    timers: _Timers
    _waiter: asyncio.Future[None] | None = None
    _woken: bool = False
    _gone: bool = False
    _watcher: asyncio.Task[None] | None = None
    _sending: _WaitingTask | None = None

    async def run(self) -> None:
        """Send what there is, and what comes."""
        exchange, timers = self.opened.exchange, self.timers
        exchange.attach(self._on_output)
        timers.after(_WATCH_AFTER, self)
        try:
            while not self._gone:
                self._woken = False
                if exchange.started and (events := exchange.events()):
                    await self._send_events(events)
                    if type(events[-1]) is HttpEnd or type(events[-1]) is HttpResponse:
                        return
                if exchange.overrun:
                    self._leave()
                elif not self._woken:
                    timers.tick_soon()
                    self._waiter = timers.loop.create_future()
                    await self._waiter
                    self._waiter = None
        except asyncio.CancelledError:
            self._leave()
            raise
        finally:
            timers.due.pop(self, None)
            if self._watcher is not None:
                self._watcher.cancel()
            exchange.release()
            self.app.endpoint.finished(exchange)

    async def _send_events(self, events: Sequence[HttpEvent]) -> None:
        if type(events[0]) is HttpResponse or (type(events[-1]) is HttpEnd and type(events[0]) is HttpStart):
            await send_all(self.send, events)  # the whole answer: the server below has its own bounds for it
            return
        self._sending = sending = _WaitingTask.here(self.timers.loop)
        self.timers.after(self.app.endpoint.policy.send_timeout, sending)
        try:
            await send_all(self.send, events)
        except OSError:
            self._leave()
        except asyncio.CancelledError:
            if not sending.take_back():
                raise
            self._leave()
        finally:
            self._sending = None
            self.timers.due.pop(sending, None)

    def _on_output(self) -> None:
        """Wake the sender, from any thread."""
        if self._woken and not self.opened.exchange.overrun:
            return
        self._woken = True
        if threading.get_ident() == self.timers.thread:
            self._wake()
            return
        with suppress(RuntimeError):  # the loop is closed
            self.timers.loop.call_soon_threadsafe(self._wake)

    def _wake(self) -> None:
        if self._sending is not None and self.opened.exchange.overrun:
            self._sending.on_time()  # a client that does not read is given no more time
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def on_time(self) -> None:
        """Watch for the client to go: this takes long."""
        self._watcher = self.timers.loop.create_task(self._wait_for_disconnect())

    async def _wait_for_disconnect(self) -> None:
        while (await self.receive())["type"] != "http.disconnect":
            continue
        self._leave()

    def _leave(self) -> None:
        """Note that the client has gone."""
        if self._gone:
            return
        self._gone = True
        self.app.disconnect(self.opened)
        self._woken = True
        self._wake()


@lru_cache(128)
def _encoded(headers: tuple[Header, ...]) -> tuple[tuple[bytes, bytes], ...]:
    return tuple((name.encode("latin-1"), value.encode("latin-1")) for name, value in headers)


async def send_all(send: Send, events: Sequence[HttpEvent], *, bodiless: bool = False) -> None:
    """Send what an exchange has to send: all of a response, or what there is of a stream. The answer to HEAD is `bodiless`."""
    first, last = events[0], events[-1]
    if type(first) is HttpResponse:
        headers = [*_encoded(first.headers)]
        if first.status != 204:
            headers.append((b"content-length", b"%d" % len(first.body)))
        if first.closes:
            headers.append((b"connection", b"close"))
        await send({"type": "http.response.start", "status": first.status, "headers": headers})
        await send({"type": "http.response.body", "body": b"" if bodiless else first.body, "more_body": False})
        return
    if type(first) is HttpStart:
        await send({"type": "http.response.start", "status": first.status, "headers": [*_encoded(first.headers)]})
    body, more = b"".join([each.data for each in events if type(each) is HttpData]), type(last) is not HttpEnd
    if body or not more:
        await send({"type": "http.response.body", "body": body, "more_body": more})
