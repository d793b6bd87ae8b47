"""HTTP connections on an event loop: the caller's own, so that a call crosses no thread."""

from __future__ import annotations

import asyncio
import re
import socket
import time
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any, Final

from linkspan.client.transports.http_connections import (
    END_OF_HEAD,
    IDLE_SECONDS,
    Destination,
    HttpConnection,
    Route,
    Routes,
    TunnelAnswer,
    connect_failure,
    patiences,
    plain,
)
from linkspan.client.transports.http_requests import HttpEffect, HttpFailure, HttpFlow, HttpReply, Open, ReadBody, Wait
from linkspan.core.flow import Sleep
from linkspan.runtime.forks import keep, point_to_devnull, renew

_MOST_WAITING: Final = 16
"""Chunks of a body that may wait to be taken; with more the server must wait."""
_ADDRESS: Final = re.compile(r"[0-9.]+|.*:.*")
"""Hosts that need no name server, nor a thread to ask one."""
_AT_ONCE: Final = 32
"""Flows that are started in one turn of a loop."""


class LoopConnection(HttpConnection, asyncio.Protocol):
    """A connection of one loop. `arrived` is called whenever something has come."""

    def __init__(self, pool: LoopPool, key: object) -> None:
        super().__init__()
        self.pool = pool
        self.key = key
        self.arrived: Callable[[], object] | None = None
        self.closed = False
        self._paused = False
        self._transport: Any = None

    def send(self, data: bytes) -> None:
        """Send a request."""
        self.expect()
        self._transport.write(data)

    def take(self) -> bytes | None:
        """Return the part of the body that has come, as `HttpConnection` does, and let more come."""
        data = super().take()
        if self._paused and not self.closed:
            self._paused = False
            self._transport.resume_reading()
        return data

    def give_back(self) -> None:
        """Keep the connection for the next request if it can carry one; close it otherwise."""
        self.arrived = None
        if self.closed or not self.pool.keep(self):
            self.close()

    def close(self) -> None:
        """Close it, at once."""
        self.closed = True
        self.pool.connections.discard(self)
        if self._transport is not None:
            with suppress(RuntimeError):  # the loop has ended before it
                self._transport.abort()

    @property
    def peer(self) -> str:
        """The address at the other end; empty if it is not known."""
        found = self._transport.get_extra_info("peername") if self._transport is not None else None
        return str(found[0]) if found else ""

    @property
    def fileno(self) -> int:
        """Its descriptor, or -1."""
        sock = self._transport.get_extra_info("socket") if self._transport is not None else None
        return sock.fileno() if sock is not None else -1

    # What the loop calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the transport, or the secure one that goes through it."""
        self._transport = transport
        self.watch(transport.get_extra_info("socket"))

    def data_received(self, data: bytes) -> None:
        """Take bytes."""
        self.receive(data)
        if self.arrived is not None:
            if len(self._chunks) > _MOST_WAITING and not self._paused:
                self._paused = True
                self._transport.pause_reading()
            self.arrived()
        elif self.idle:
            self.close()

    def eof_received(self) -> None:
        """Take the end."""
        self._lost("")

    def connection_lost(self, exc: Exception | None) -> None:
        """Take the end of the connection."""
        self._lost(plain(exc) if exc is not None else "")
        self.closed = True
        self.pool.connections.discard(self)

    def _lost(self, reason: str) -> None:
        self.receive_eof(reason)
        if self.arrived is not None:
            self.arrived()
        elif self.idle:
            self.close()


class _Tunnel(asyncio.Protocol):
    """What opens a tunnel through a proxy; the connection takes over then."""

    def __init__(self) -> None:
        self.opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._answer = TunnelAnswer()

    def data_received(self, data: bytes) -> None:
        try:
            if self._answer.receive(data) and not self.opened.done():
                self.opened.set_result(None)
        except HttpFailure as failure:
            if not self.opened.done():
                self.opened.set_exception(failure)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.opened.done():
            self.data_received(END_OF_HEAD)


class LoopPool:
    """The connections of a client on one loop. All of it is called there."""

    def __init__(self, routes: Routes, loop: asyncio.AbstractEventLoop) -> None:
        """Prepare; nothing is opened."""
        self.routes = routes
        self.loop = loop
        self.connections: set[LoopConnection] = set()
        self._idle: dict[object, list[LoopConnection]] = {}
        self._expiry: asyncio.TimerHandle | None = None
        self._ending: AsyncGenerator[None, None] | None = None
        self._closed = False
        self._starting: deque[LoopRun] = deque()
        self._due = False
        """Whether `_start_some` will be called."""
        renew(self)

    def start_afresh(self) -> None:
        """Let go of all connections; in a forked child they are the parent's."""
        point_to_devnull([each.fileno for each in self.connections])
        keep(self.connections, self._idle, self._expiry, self._ending, self.loop)
        self.connections, self._idle, self._closed = set(), {}, True

    def idle(self, route: Route) -> LoopConnection | None:
        """Return a connection that can carry a request now, if there is one."""
        idle = self._idle.get(route.key)
        while idle:
            found = idle.pop()
            if not found.closed and found.is_quiet():
                return found
            found.close()
        return None

    def run(self, flow: HttpFlow[object]) -> LoopRun:
        """Return what runs a flow here, once it is started."""
        return LoopRun(flow, self)

    def start(self, runs: Iterable[LoopRun]) -> None:
        """Start flows: a few in each turn of the loop, which others share, and which may give them up again. Any thread."""
        self._starting.extend(runs)
        if self._due:
            return
        self._due = True
        if is_here(self.loop):
            self._start_some()
        else:
            with suppress(RuntimeError):  # the loop has ended, and all who wait on it
                self.loop.call_soon_threadsafe(self._start_some)

    def _start_some(self) -> None:
        for _ in range(_AT_ONCE):
            if not self._starting:
                break
            self._starting.popleft().start()
        self._due = False
        if self._starting:
            self._due = True
            self.loop.call_soon(self._start_some)

    async def open(self, url: str) -> tuple[LoopConnection, Route]:
        """Return a connection to where a URL leads, and the route. Raises: HttpFailure."""
        route = self.routes.known(url)
        if route is None:
            route = await self.loop.run_in_executor(None, self.routes.find, url)
        found = self.idle(route)
        if found is not None:
            return found, route
        try:
            async with asyncio.timeout(self.routes.connect_timeout):
                found = await self._connected(route)
        except Exception as error:
            raise connect_failure(error) from None
        self.connections.add(found)
        if self._ending is None:
            self._ending = self._until_the_end()
            await anext(self._ending)
        return found, route

    def keep(self, connection: LoopConnection) -> bool:
        """Take back a connection that has carried a request, for the next one; return whether it can be used again."""
        if self._closed or not connection.reusable:
            return False
        connection.idle = True
        connection.used_at = time.monotonic()
        self._idle.setdefault(connection.key, []).append(connection)
        if self._expiry is None:
            self._expiry = self.loop.call_later(IDLE_SECONDS, self._expire)
        return True

    @asynccontextmanager
    async def send(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes
    ) -> AsyncGenerator[HttpReply, None]:
        """Send a request. Raises: HttpFailure."""
        connection, route = await self.open(url)
        try:
            connection.send(route.encode(method, headers, body))
            while not connection.answered and connection.failure is None:
                await self._arrival(connection)
            if not connection.answered and connection.failure is not None:
                raise connection.failure
            yield HttpReply(connection.status, connection.headers, self._chunks(connection))
        finally:
            connection.give_back()

    async def close(self) -> None:
        """Close all connections."""
        self.close_now()

    def close_soon(self) -> None:
        """Close all connections, soon. Any thread."""
        if is_here(self.loop):
            self.close_now()
        else:
            with suppress(RuntimeError):  # the loop has ended
                self.loop.call_soon_threadsafe(self.close_now)

    def close_now(self) -> None:
        """Close all connections, at once."""
        self._closed = True
        if self._expiry is not None:
            self._expiry.cancel()
        for each in list(self.connections):
            each.close()

    async def _connected(self, route: Route) -> LoopConnection:
        loop, place, server = self.loop, route.place, route.server
        found = LoopConnection(self, route.key)
        sock = await self._socket(place)
        context = self.routes.ssl(place)
        name = place.host if context is not None else None
        if not route.tunnel:
            await loop.create_connection(lambda: found, sock=sock, ssl=context, server_hostname=name)
            return found
        transport, opening = await loop.create_connection(_Tunnel, sock=sock, ssl=context, server_hostname=name)
        try:
            transport.write(route.tunnel)
            await opening.opened
            context = self.routes.ssl(server)
            assert context is not None
            secure = await loop.start_tls(transport, found, context, server_hostname=server.host)
        except BaseException:
            transport.abort()
            raise
        assert secure is not None
        found.connection_made(secure)
        return found

    async def _socket(self, place: Destination) -> socket.socket:
        """Return a socket that is connected to one of the addresses of a place. Raises: OSError, HttpFailure."""
        problem = OSError("it has no address")
        if _ADDRESS.fullmatch(place.host):
            addresses = socket.getaddrinfo(place.host, place.port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
        else:
            addresses = await self.loop.getaddrinfo(place.host, place.port, type=socket.SOCK_STREAM)
        for patience in patiences(len(addresses)):
            for family, kind, protocol, _, address in addresses:
                self.routes.admit(place.host, str(address[0]))
                sock = socket.socket(family, kind, protocol)
                try:
                    sock.setblocking(False)
                    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    async with asyncio.timeout(patience):
                        await self.loop.sock_connect(sock, address)
                    return sock
                except OSError as error:
                    problem = error
                    sock.close()
                except BaseException:
                    sock.close()
                    raise
        raise problem

    async def _arrival(self, connection: LoopConnection) -> None:
        arrived = self.loop.create_future()

        def has_come() -> None:
            if not arrived.done():
                arrived.set_result(None)

        connection.arrived = has_come
        await arrived

    async def _chunks(self, connection: LoopConnection) -> AsyncIterator[bytes]:
        while (data := connection.take()) != b"":
            if data is None:
                await self._arrival(connection)
            else:
                yield data

    def _expire(self) -> None:
        """Close what has been idle for too long."""
        self._expiry = None
        oldest = time.monotonic() - IDLE_SECONDS
        for each in [each for some in self._idle.values() for each in some if each.used_at <= oldest or each.closed]:
            self._idle[each.key].remove(each)
            each.close()
        if any(self._idle.values()):
            self._expiry = self.loop.call_later(IDLE_SECONDS, self._expire)

    async def _until_the_end(self) -> AsyncGenerator[None, None]:
        """Close what is idle when the loop ends, which closes its asynchronous generators first."""
        try:
            yield
        finally:
            self.close_now()
            with suppress(RuntimeError):
                await asyncio.sleep(0)


class LoopRun:
    """A flow that runs on a loop, in the callbacks of its connections. `start` is for its pool."""

    __slots__ = ("_busy", "_cancelled", "_connection", "_effect", "_flow", "_pool", "_task", "_timer")

    def __init__(self, flow: HttpFlow[object], pool: LoopPool) -> None:
        self._flow = flow
        self._pool = pool
        self._effect: HttpEffect | None = None
        """What the flow waits for."""
        self._connection: LoopConnection | None = None
        self._task: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._busy = False
        """Whether the flow is at work at this moment."""
        self._cancelled = False

    def start(self) -> None:
        """Begin, unless this was cancelled meanwhile."""
        if not self._cancelled:
            self._advance(None)

    def cancel(self) -> None:
        """End the flow, and close its stream. Any thread, and the flow itself."""
        self._cancelled = True
        if is_here(self._pool.loop):
            self._end()
        else:
            with suppress(RuntimeError):  # the loop has ended, and all that ran on it
                self._pool.loop.call_soon_threadsafe(self._end)

    def _end(self) -> None:
        if self._task is not None:
            self._task.cancel()
        if self._timer is not None:
            self._timer.cancel()
        if not self._busy:
            self._flow.close()
            self._let_go()

    def _let_go(self) -> None:
        """Close the connection of a request that was not answered."""
        connection, self._connection = self._connection, None
        if connection is not None and type(self._effect) is Open:
            connection.give_back()

    def _advance(self, outcome: object, failure: HttpFailure | None = None) -> None:
        """Go on with what came, until the flow has to wait or ends."""
        flow = self._flow
        while not self._cancelled:
            self._busy = True
            try:
                effect = self._effect = flow.send(outcome) if failure is None else flow.throw(failure)
            except StopIteration:
                return
            finally:
                self._busy = False
            if type(effect) is Open:
                self._connection = None  # the flow has given back the one before
            if self._cancelled:
                break
            outcome = failure = None
            try:
                if type(effect) is ReadBody:
                    outcome = effect.reply.take()
                    if outcome is not None:
                        continue
                elif type(effect) is Open:
                    self._open(effect)
                elif type(effect) is Sleep:
                    self._timer = self._pool.loop.call_later(effect.seconds, self._advance, None)
                elif type(effect) is Wait:
                    effect.until(self._go_on)
                return
            except HttpFailure as found:
                failure = found.with_traceback(None)  # which would lead back to this frame
        flow.close()

    def _go_on(self) -> None:
        """Go on with what was waited for. Any thread."""
        with suppress(RuntimeError):  # the loop has ended, and all that ran on it
            self._pool.loop.call_soon_threadsafe(self._advance, None)

    def _open(self, effect: Open) -> None:
        route = self._pool.routes.known(effect.url)
        connection = self._pool.idle(route) if route is not None else None
        if connection is not None and route is not None:
            self._send(connection, route, effect)
        else:
            self._task = self._pool.loop.create_task(self._connect(effect))

    async def _connect(self, effect: Open) -> None:
        try:
            found = await self._pool.open(effect.url)
            self._task = None
            self._send(*found, effect)
        except HttpFailure as failure:
            self._task = None
            self._advance(None, failure)

    def _send(self, connection: LoopConnection, route: Route, effect: Open) -> None:
        self._connection = connection
        connection.arrived = self._arrived
        try:
            connection.send(route.encode(effect.method, effect.headers, effect.body))
        except HttpFailure:
            self._let_go()
            raise

    def _arrived(self) -> None:
        """Go on if what the flow waits for has come."""
        connection, effect = self._connection, self._effect
        if connection is None:
            return
        outcome: object = connection
        try:
            if type(effect) is ReadBody:
                outcome = connection.take()
            elif not connection.answered:
                if connection.failure is None:
                    return
                self._let_go()
                raise connection.failure
        except HttpFailure as failure:
            self._advance(None, failure)
        else:
            if outcome is not None:
                self._advance(outcome)


def is_here(loop: asyncio.AbstractEventLoop) -> bool:
    """Return whether `loop` runs in this thread."""
    try:
        return asyncio.get_running_loop() is loop
    except RuntimeError:
        return False
