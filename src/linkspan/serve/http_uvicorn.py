"""Serve an endpoint with uvicorn: stop in good order, and close connections that are held without being used.

What uvicorn does by itself: it waits for streams that would never end, leaves the process by the signal that ended it, and
lets a client take as long as it likes to send its first line.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from functools import partial
from importlib.util import find_spec
from types import FrameType
from typing import TYPE_CHECKING, Any

import uvicorn

from linkspan.core.http_endpoint import Endpoint
from linkspan.errors import LinkspanError
from linkspan.revisions.neutral import log_facts
from linkspan.runtime.system import keep_freed_memory
from linkspan.serve.asgi import AsgiApp
from linkspan.serve.http_app import HttpApp

if TYPE_CHECKING:
    from linkspan.serve.guarding import Guard
    from linkspan.serve.http_protocol import EndpointProtocol
    from linkspan.serve.metrics import MetricsPage

_KEEP_ALIVE = 60
"""Seconds that an idle connection stays: clients that keep a pool lose a race whenever one is closed under them."""

_OURS = {"app", "host", "port", "uds", "fd", "factory", "lifespan", "reload", "workers", "timeout_graceful_shutdown"}
SETTINGS = frozenset(inspect.signature(uvicorn.Config).parameters) - _OURS
"""What a caller may set: what this uvicorn has, and we do not decide."""

_SIGNALS = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGBREAK") if hasattr(signal, name)]
_TICKS_PER_SECOND = 10


def make_uvicorn(
    endpoint: Endpoint,
    *,
    path: str,
    health: str,
    metrics: MetricsPage | None = None,
    drain: float,
    head_timeout: float,
    options: Mapping[str, Any],
    ready: Callable[[], object] = int,
    guard: Guard | None = None,
    shared: bool = False,
) -> QuietUvicorn:
    """Return a server of `endpoint` at `path`, with a protocol of ours where httptools is installed.

    `health` is a path that answers 200, `metrics` has a path of its own. `ready` is called once the server can be reached.
    `guard` verifies tokens. `shared` is for a socket of several processes, on Windows.
    """
    settings = {"log_level": "warning", "access_log": False, "timeout_keep_alive": _KEEP_ALIVE, **options}
    app: HttpApp
    if "http" not in options and find_spec("httptools") is not None:
        from linkspan.serve.http_protocol import DirectApp, EndpointProtocol

        app = DirectApp(endpoint, path=path, health=health, metrics=metrics, head_timeout=head_timeout, guard=guard)
        settings |= {"app": _no_application, "http": partial(EndpointProtocol, app), "ws": "none"}
    else:
        settings["app"] = app = AsgiApp(endpoint, path=path, health=health, metrics=metrics, guard=guard)
    config = uvicorn.Config(lifespan="off", timeout_graceful_shutdown=drain, **settings)  # type: ignore[arg-type]
    return QuietUvicorn(config, app, head_timeout=head_timeout, ready=ready, shared=shared)


def serve_with_uvicorn(server: QuietUvicorn, listener: socket.socket) -> int:
    """Serve until the process is asked to stop; return 0, 130 after Ctrl-C, or 1 if the lifespan could not be entered."""
    keep_freed_memory()
    server.run(sockets=[listener])
    if server.refusal is not None:
        sys.stderr.write(f"linkspan: {server.refusal}\n")
        return 1
    return 130 if server.ended_by == signal.SIGINT else 0


async def serve_on_this_loop(server: QuietUvicorn, listener: socket.socket) -> None:
    """Serve until the task is cancelled, and end in good order then; cancelled again, at once.

    Raises: LinkspanError if the lifespan cannot be entered.
    """
    server.takes_signals = False
    serving = asyncio.ensure_future(server.serve(sockets=[listener]))
    try:
        await asyncio.shield(serving)
    except asyncio.CancelledError:
        server.should_exit = True
        try:
            await asyncio.shield(serving)
        finally:
            serving.cancel()
        raise
    if server.refusal is not None:
        raise LinkspanError(server.refusal)


async def _no_application(_scope: object, _receive: object, _send: object) -> None:
    """Stand in for the application: requests do not come so far."""


class QuietUvicorn(uvicorn.Server):
    """uvicorn that ends streams and returns when it is asked to stop, and closes idle or unread connections."""

    def __init__(
        self,
        config: uvicorn.Config,
        app: HttpApp,
        *,
        head_timeout: float,
        ready: Callable[[], object] = int,
        shared: bool = False,
    ) -> None:
        """Serve `app`; call `ready` once it can be reached."""
        super().__init__(config)
        self.ended_by = 0
        self.takes_signals = True
        self.refusal: str | None = None
        """Why the lifespan could not be entered."""
        self._app = app
        self._head_timeout = head_timeout
        self._ready = ready
        self._shared = shared
        self._silent_since: Mapping[Any, float] = {}
        self._unread: Mapping[Any, tuple[int, float]] = {}

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Call `ready` once signals have their handlers, clients can connect, and the lifespan is entered."""
        await super().startup([] if self._shared else sockets)
        if self._shared:
            self.servers = [self._accept_at(each) for each in sockets or ()]
        self._entering = asyncio.ensure_future(self._enter())

    def _accept_at(self, listener: socket.socket) -> Any:
        from linkspan.serve.shared_listener import SharedListener

        config = self.config
        make_protocol: Callable[..., Any] = config.http_protocol_class
        state = {"server_state": self.server_state, "app_state": self.lifespan.state}
        return SharedListener(listener, partial(make_protocol, config=config, **state), config.ssl)

    async def _enter(self) -> None:
        """Enter the lifespan, while requests that do not need it are answered; stop if that fails."""
        self.refusal = await self._app.enter()
        if self.refusal is None:
            self._ready()
        else:
            self.should_exit = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Close listening streams; running calls and tasks may finish within the drain."""
        began, drain = time.monotonic(), self.config.timeout_graceful_shutdown or 0.0
        self._app.drain()
        await super().shutdown(sockets)
        for connection in self._own_connections():
            connection.abandon()
        await self._app.leave(max(0.0, began + drain - time.monotonic()))
        self._app.calls.end_threads()

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        """Stop on a signal, and leave the process by returning: a server that was asked to stop has not failed."""
        if not self.takes_signals or threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, self._stop) for number in _SIGNALS}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _stop(self, number: int, frame: FrameType | None) -> None:
        self.ended_by = self.ended_by or number
        self.handle_exit(number, frame)

    async def on_tick(self, counter: int) -> bool:
        """Look for connections without a request head or a reader, once a second."""
        if counter % _TICKS_PER_SECOND == 0:
            self.handle_timeouts(time.monotonic())
        return await super().on_tick(counter)

    def handle_timeouts(self, now: float) -> None:
        """Run due timers, close the connections whose request is late, and abort those whose response is not read."""
        self._app.tick(now)
        for connection in self._own_connections():
            try:
                connection.handle_timeouts(now)
            except Exception:  # what is wrong with one connection must not end the server
                logging.getLogger("linkspan.http").exception("a connection is closed", extra=log_facts())
                connection.transport.abort()
        self._drop_silent(now)
        self._drop_unread(now)

    def _own_connections(self) -> list[EndpointProtocol]:
        """Return the connections with a protocol of ours; where httptools is missing they have one of uvicorn's."""
        connections: set[Any] = self.server_state.connections
        return [each for each in connections if hasattr(each, "handle_timeouts")]

    def _drop_unread(self, now: float) -> None:
        """An answer is handed over as a whole, and kept below us until it is read: not for ever (`send_timeout`)."""
        unread: dict[Any, tuple[int, float]] = {}
        for connection in list(self.server_state.connections):
            if (size := _unsent(connection)) == 0:
                continue
            before, since = self._unread.get(connection, (0, now))
            unread[connection] = (size, since if size == before else now)
            if now - unread[connection][1] >= self._app.endpoint.policy.send_timeout:
                connection.transport.abort()
        self._unread = unread

    def _drop_silent(self, now: float) -> None:
        waiting = {
            each: self._silent_since.get(each, now) for each in self.server_state.connections if _is_silent(each)
        }
        for connection, since in waiting.items():
            if now - since >= self._head_timeout:
                connection.transport.close()
        self._silent_since = waiting


def _unsent(connection: Any) -> int:
    """Return how many bytes wait below a connection; there is no transport before it is made."""
    return connection.transport.get_write_buffer_size() if connection.transport is not None else 0


def _is_silent(connection: Any) -> bool:
    """Return whether the head of a request is still to arrive; between two requests uvicorn has its own bound."""
    if not hasattr(connection, "cycle") or hasattr(connection, "handle_timeouts"):
        return False  # a WebSocket, which is being refused, or a connection with bounds of its own
    cycle = connection.cycle
    return connection.timeout_keep_alive_task is None and (cycle is None or cycle.response_complete)
