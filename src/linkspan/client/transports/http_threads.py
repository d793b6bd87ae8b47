"""HTTP connections of threads: the one that waits for an answer sends and reads, and needs no loop."""

from __future__ import annotations

import math
import socket
import threading
import time
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from linkspan.client.transports.http_connections import (
    END_OF_HEAD,
    IDLE_SECONDS,
    LARGEST_READ,
    Destination,
    HttpConnection,
    Route,
    Routes,
    TunnelAnswer,
    connect_failure,
    patiences,
    plain,
)
from linkspan.client.transports.http_requests import HttpEffect, HttpFailure, HttpFlow, Open, ReadBody, Wait
from linkspan.core.flow import Sleep
from linkspan.runtime.forks import keep, point_to_devnull, renew
from linkspan.runtime.reactor import reactor

if TYPE_CHECKING:
    from linkspan.client.transports.tls_in_tls import TlsInTls

_NO_THREAD: Final = 0.5
"""Seconds after which a thread is asked for again where the system had none."""


class ThreadConnection(HttpConnection):
    """A connection for one thread at a time. Only `interrupt` may be called from another."""

    def __init__(self, sock: socket.socket | TlsInTls, key: object) -> None:
        super().__init__()
        self.socket = sock
        self.key = key
        self.run: ThreadRun | None = None
        """What uses it, and may be cancelled."""
        self.watch(sock)

    def send(self, data: bytes, deadline: float | None) -> None:
        """Send a request; what goes wrong is in `failure`."""
        self.expect()
        try:
            self.socket.settimeout(None if deadline is None else _left(deadline))
            self.socket.sendall(data)
        except (OSError, ValueError) as error:
            self.receive_eof(plain(error))

    def wait(self, deadline: float | None) -> None:
        """Wait for bytes and take them."""
        try:
            if deadline is not None:
                self.socket.settimeout(_left(deadline))
            data = self.socket.recv(LARGEST_READ)
        except (OSError, ValueError) as error:
            self.receive_eof(plain(error))
            return
        if data:
            self.receive(data)
        else:
            self.receive_eof()

    @property
    def peer(self) -> str:
        """The address at the other end; empty if it is gone."""
        with suppress(OSError):
            return str(self.socket.getpeername()[0])
        return ""

    def interrupt(self) -> None:
        """Close the stream under a thread that waits for it."""
        raw = self.socket if isinstance(self.socket, socket.socket) else self.socket.outer
        with suppress(OSError):
            socket.socket.shutdown(raw, socket.SHUT_RDWR)  # that of a secure one would end its encryption first

    def give_back(self) -> None:
        """Keep the connection for the next request if it can carry one; close it otherwise."""
        run, self.run = self.run, None
        if run is None:
            return
        run.release()
        if self.reusable:
            run.pool.keep(self)
        else:
            run.pool.drop(self)

    def close(self) -> None:
        """Close it."""
        self.socket.close()


class ThreadPool:
    """The connections of a client's threads. Any thread."""

    def __init__(self, routes: Routes) -> None:
        """Prepare; nothing is opened."""
        self.routes = routes
        self._closed = False
        self._lock = threading.Lock()
        self._idle: dict[object, deque[ThreadConnection]] = {}
        self._open: set[ThreadConnection] = set()
        self._expires = False
        """Whether `_expire` will be called."""
        renew(self)

    def start_afresh(self) -> None:
        """Let go of all connections; in a forked child they are the parent's."""
        point_to_devnull([each.socket.fileno() for each in self._open])
        keep(self._open)
        self._lock = threading.Lock()
        self._idle, self._open, self._expires = {}, set(), False

    def idle(self, route: Route) -> ThreadConnection | None:
        """Return a connection that can carry a request now, if there is one."""
        idle = self._idle.get(route.key)
        while idle:
            try:
                found = idle.pop()
            except IndexError:
                return None
            if found.is_quiet():
                return found
            self.drop(found)
        return None

    def open(self, route: Route, deadline: float | None = None) -> ThreadConnection:
        """Open a connection; give up at `deadline`. Raises: HttpFailure."""
        until = time.monotonic() + self.routes.connect_timeout
        try:
            sock = _connected(route, self.routes, until if deadline is None else min(until, deadline))
        except Exception as error:
            raise connect_failure(error) from None
        found = ThreadConnection(sock, route.key)
        with self._lock:
            self._open.add(found)
        return found

    def keep(self, connection: ThreadConnection) -> None:
        """Take back a connection that has carried a request, for the next one."""
        connection.used_at = time.monotonic()
        with self._lock:
            if not self._closed:
                self._idle.setdefault(connection.key, deque()).append(connection)
                if not self._expires:
                    reactor().call_later(IDLE_SECONDS, self._expire)
                    self._expires = True
                return
        self.drop(connection)

    def _expire(self) -> None:
        """Close what has been idle for too long."""
        oldest = time.monotonic() - IDLE_SECONDS
        with self._lock:
            for idle in self._idle.values():
                while idle and idle[0].used_at <= oldest:
                    expired = idle.popleft()
                    self._open.discard(expired)
                    expired.close()
            self._expires = any(self._idle.values())
            if self._expires:
                reactor().call_later(IDLE_SECONDS, self._expire)

    def drop(self, connection: ThreadConnection) -> None:
        """Close a connection."""
        with self._lock:
            self._open.discard(connection)
        connection.close()

    def close(self) -> None:
        """Close what is idle, and what is given back from now on."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, {}
        for each in (each for some in idle.values() for each in some):
            self.drop(each)


def _connected(route: Route, routes: Routes, until: float) -> socket.socket | TlsInTls:
    """Return a socket over which the server of a route can be spoken to. Raises: OSError, HttpFailure."""
    sock: socket.socket | TlsInTls = _socket(route.place, routes, until)
    try:
        sock = _secured(sock, route.place, routes, until)
        if route.tunnel:
            sock.sendall(route.tunnel)
            answer = TunnelAnswer()
            sock.settimeout(_left(until))
            while not answer.receive(sock.recv(LARGEST_READ) or END_OF_HEAD):
                sock.settimeout(_left(until))
            sock = _secured(sock, route.server, routes, until)
        sock.settimeout(None)
    except BaseException:
        sock.close()
        raise
    return sock


def _socket(place: Destination, routes: Routes, until: float) -> socket.socket:
    """Return a socket that is connected to one of the addresses of a place. Raises: OSError, HttpFailure."""
    problem = OSError("it has no address")
    addresses = socket.getaddrinfo(place.host.encode(), place.port, type=socket.SOCK_STREAM)
    for patience in patiences(len(addresses)):
        for family, kind, protocol, _, address in addresses:
            routes.admit(place.host, str(address[0]))
            sock = socket.socket(family, kind, protocol)
            try:
                sock.settimeout(min(_left(until), patience or math.inf))
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                sock.connect(address)
                return sock
            except OSError as error:
                problem = error
                sock.close()
    raise problem


def _left(until: float) -> float:
    return max(0.001, until - time.monotonic())


def _secured(
    sock: socket.socket | TlsInTls, place: Destination, routes: Routes, until: float
) -> socket.socket | TlsInTls:
    context = routes.ssl(place)
    if context is None:
        return sock
    sock.settimeout(_left(until))
    if type(sock) is socket.socket:
        return context.wrap_socket(sock, server_hostname=place.host)
    from linkspan.client.transports.tls_in_tls import TlsInTls

    assert isinstance(sock, socket.socket)  # a tunnel leads through one proxy
    return TlsInTls(sock, context, place.host)


class ThreadRun:
    """A flow that threads run: the one that waits for its outcome, while there is only reading to do, or one of its own.

    Opening a connection cannot be interrupted and a pause takes long, so neither is done in a thread that has a deadline to keep.
    """

    __slots__ = (
        "_at_work",
        "_cancelled",
        "_connection",
        "_effect",
        "_flow",
        "_is_here",
        "_is_taken",
        "_lock",
        "_paused",
        "deadline",
        "pool",
    )

    def __init__(self, flow: HttpFlow[object], pool: ThreadPool, deadline: float | None = None) -> None:
        """Prepare; `deadline` by the monotonic clock is for each wait of a thread of its own."""
        self.pool = pool
        self.deadline = deadline
        self._flow = flow
        self._lock = threading.Lock()
        self._effect: HttpEffect | None = None
        self._connection: ThreadConnection | None = None
        self._paused: threading.Event | None = None
        self._cancelled = False
        self._at_work = False
        """A thread is doing what comes next."""
        self._is_taken = False
        self._is_here = False
        """The thread that waits for the outcome runs it."""

    def start(self) -> None:
        """Go on in a thread of its own, unless the thread that waits for the outcome runs it already."""
        if self._take():
            self._hand_over()

    def _take(self) -> bool:
        """Return whether no thread has run it before."""
        with self._lock:
            is_free, self._is_taken = not self._is_taken, True
        return is_free

    def _hand_over(self) -> None:
        try:
            threading.Thread(target=self.run, name="linkspan-http", daemon=True).start()
        except RuntimeError:  # the system has no more threads now
            reactor().call_later(_NO_THREAD, self._hand_over)

    def run(self) -> None:
        """Go on to the end."""
        while self._step(may_open=True):
            pass

    def step(self) -> bool:
        """Do what comes next; return whether there is more to do here. Only for the thread that waits for the outcome."""
        if not self._is_here:
            self._is_here = self._take()
        if not self._is_here:
            return False  # a thread of its own runs it
        if self._step(may_open=False):
            return True
        self._is_here = False
        if self._effect is not None and not self._cancelled:
            self._hand_over()
        return False

    def cancel(self) -> None:
        """End the flow, and close its stream. Any thread, the flow's too.

        A thread that is at work ends it as soon as it can. If there is none, because the outcome came in another way or its
        caller has left, this call closes it.
        """
        with self._lock:
            self._cancelled = True
            at_rest = not self._at_work
            if self._connection is not None:
                self._connection.interrupt()
            if self._paused is not None:
                self._paused.set()
        if at_rest:
            self._flow.close()

    def release(self) -> None:
        """Let go of the connection, which another may use from now on."""
        with self._lock:
            self._connection = None

    def _step(self, *, may_open: bool) -> bool:
        """Do what comes next, unless the flow was cancelled; return whether there is more to do."""
        with self._lock:
            if self._cancelled:
                return False
            self._at_work = True
        try:
            return self._go_on(may_open=may_open)
        finally:
            with self._lock:
                self._at_work = False
                cancelled = self._cancelled
            if cancelled:
                self._flow.close()

    def _go_on(self, *, may_open: bool) -> bool:
        effect, failure = self._effect, None
        outcome: object = None
        try:
            if effect is None:
                pass
            elif type(effect) is ReadBody:
                while (outcome := effect.reply.take()) is None and self._connection is not None:
                    self._connection.wait(self.deadline)
            elif type(effect) is Open and (found := self._connected(effect.url, may_open=may_open)) is not None:
                outcome = self._send(*found, effect)
            elif type(effect) is Sleep and may_open:
                self._pause(effect.seconds)
            elif type(effect) is Wait and may_open:
                self._wait(effect)
            else:
                return False
        except HttpFailure as problem:
            failure = problem.with_traceback(None)  # which would lead back to this frame
        except BaseException:
            self._flow.close()
            raise
        self._effect = None
        if self._cancelled:
            if isinstance(outcome, ThreadConnection):  # which the flow has not got any more
                outcome.give_back()
            return False
        try:
            self._effect = self._flow.send(outcome) if failure is None else self._flow.throw(failure)
        except StopIteration:
            return False
        return True

    def _connected(self, url: str, *, may_open: bool) -> tuple[ThreadConnection, Route] | None:
        pool = self.pool
        route = pool.routes.find(url) if may_open else pool.routes.known(url)
        found = pool.idle(route) if route is not None else None
        if found is None and may_open and route is not None:
            found = pool.open(route, self.deadline)
        return (found, route) if found is not None and route is not None else None

    def _send(self, connection: ThreadConnection, route: Route, effect: Open) -> ThreadConnection:
        with self._lock:
            self._connection = connection
            cancelled = self._cancelled
        connection.run = self
        try:
            if not cancelled:
                connection.send(route.encode(effect.method, effect.headers, effect.body), self.deadline)
            while not connection.answered and connection.failure is None and not self._cancelled:
                connection.wait(self.deadline)
            if not connection.answered and connection.failure is not None:
                raise connection.failure
        except BaseException:
            connection.give_back()
            raise
        return connection

    def _pause(self, seconds: float) -> None:
        with self._lock:
            paused = self._paused = threading.Event()
            if self._cancelled:
                return
        paused.wait(seconds)

    def _wait(self, effect: Wait) -> None:
        """Wait for what is not this flow's work, and so does not count against its deadline."""
        with self._lock:
            paused = self._paused = threading.Event()
            if self._cancelled:
                return
        began = time.monotonic()
        effect.until(paused.set)
        paused.wait()
        if self.deadline is not None:
            self.deadline += time.monotonic() - began
