"""What the ASGI and the WSGI callable share: access, the runner of calls, timers, and the log of refused requests."""

from __future__ import annotations

import signal
from collections.abc import Callable, Mapping
from math import inf
from typing import TYPE_CHECKING, Any, Final

from linkspan.core.http_endpoint import Endpoint, Opened, Todo
from linkspan.core.http_exchange import TEXT, HttpResponse
from linkspan.core.principal import UnknownIdentity, principal_of
from linkspan.revisions.neutral import TransportInfo, log_facts
from linkspan.runtime.calls import CallRunner
from linkspan.runtime.unexpected import Unexpected

if TYPE_CHECKING:
    import asyncio

    from linkspan.core.shared_endpoint import SharedEndpoint
    from linkspan.serve.guarding import Guard
    from linkspan.serve.metrics import MetricsPage

TICK: Final = 1.0
"""Seconds between two runs of due timers."""


class HttpApp:
    """One endpoint behind an interface of Python's web servers."""

    def __init__(
        self,
        endpoint: Endpoint,
        path: str | None,
        loop: Callable[[], asyncio.AbstractEventLoop | None],
        metrics: MetricsPage | None = None,
        guard: Guard | None = None,
        health: str | None = None,
    ) -> None:
        """Serve `endpoint` at every path, or at `path` only, and `metrics` at its own; `health` is a path that answers 200.

        `loop` returns the event loop for async functions. `guard` lets requests in by their tokens, and has metadata for clients
        without one.
        """
        self.endpoint = endpoint
        self.metrics = metrics
        self._health = health
        self.guard = guard
        self._path = path.rstrip("/") if path is not None else None
        self._metadata_places = guard.places(self._path or "") if guard is not None else frozenset[str]()
        policy = endpoint.policy
        self.calls = CallRunner(loop, max_workers=policy.max_workers, share=policy.share)
        self._refusals = RefusalLog()
        self._unexpected = Unexpected("linkspan.http", "streams and sessions were not looked after")
        self.slow: SharedEndpoint | None = None
        """The endpoint, where an event loop must not wait for what it may need of the store."""
        if endpoint.runner is not None:
            self._share(endpoint)

    def _share(self, endpoint: Endpoint) -> None:
        """Share the sessions with other processes."""
        from linkspan.core.shared_endpoint import SharedEndpoint
        from linkspan.serve.store_flows import StoreFlows

        if not isinstance(endpoint, SharedEndpoint) or not isinstance(endpoint.runner, StoreFlows):
            return

        def receive(data: bytes | None) -> None:
            if data is not None and (todo := endpoint.receive(data)):  # what was missed cannot be had again
                self.call_soon(lambda: self._perform_all(todo))

        endpoint.runner.deliver(endpoint, receive)
        self.slow = None if endpoint.runner.quick else endpoint

    def call_soon(self, perform: Callable[[], object]) -> None:
        """Call `perform` soon where requests are served: a thread of the store must not run an author's code."""
        raise NotImplementedError

    def _is_elsewhere(self, path: str) -> bool:
        """Return whether a path, without the prefix of the mount and a last slash, is not ours."""
        return self._path is not None and path not in (self._path, self.endpoint.policy.http_sse)

    def _public(self, path: str, local: str) -> HttpResponse | None:
        """Return what any page of any origin may read at a path, so before the gate: that we are well, or our metadata.

        `local` is the path without the prefix of the mount and a last slash.
        """
        if local == self._health:
            return HttpResponse(200, TEXT, b"ok")
        if self.guard is None or self._metadata_places.isdisjoint((local, path.rstrip("/"))):
            return None
        return self.guard.metadata

    def answer(self, fixed: HttpResponse, method: str) -> HttpResponse:
        """Return the answer to a request at a path with a fixed response."""
        return fixed if self.guard is None else self.guard.answer(fixed, method)

    @property
    def _nothing_here(self) -> HttpResponse:
        return HttpResponse(404, TEXT, f"Nothing is here. The MCP endpoint is at {self._path or '/'}".encode())

    def identify(
        self, headers: Mapping[str, str] | HttpResponse, address: str | None, user: object, where: str
    ) -> TransportInfo | HttpResponse:
        """Return what is known of a request that the gate let in, or its refusal. `user` comes from `where`."""
        if isinstance(headers, HttpResponse):
            if headers.complaint is not None:
                self._refusals.add(headers.complaint)
            return headers
        try:
            return TransportInfo(headers, None if user is None else principal_of(user, where), address)
        except UnknownIdentity as problem:
            self._refusals.add(str(problem))
            return self.endpoint.gate.unidentified(headers)

    async def open_slowly(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes, facts: TransportInfo, query: str
    ) -> Opened:
        """Take in a request in a thread, since that waits for the store."""
        from linkspan.runtime.system import SYSTEM

        opened: list[Opened] = []
        try:
            await SYSTEM.in_thread(
                lambda: opened.append(self.endpoint.open(method, url, headers, body, facts, query=query)), "sessions"
            )
        except BaseException:
            if opened:  # it was cancelled: the client has gone
                self.perform_unread(opened[0])
            raise
        return opened[0]

    def perform_unread(self, opened: Opened) -> None:
        """Run what a request asks for whose client has gone while it was taken in: a call of a session goes on without it."""
        self.perform(opened)
        self.disconnect(opened)

    def perform(self, opened: Opened) -> HttpResponse | None:
        """Run what a request asks for; return the response if it is complete already, as where everything ran right here.

        If it is not, `attach` to the exchange, and then take its events: some may be there. Either way, call `finished` of the
        endpoint when the response was sent, or `disconnect` when its client has gone.
        """
        if opened.events and opened.owner is not None:
            self.calls.perform(opened.owner.connection, opened.events)
        if opened.also:
            self._perform_all(opened.also)
        return opened.exchange.response

    def disconnect(self, opened: Opened) -> None:
        """Cancel what only the client of this request waits for: it has gone."""
        events = self.endpoint.disconnect(opened)
        if events and opened.owner is not None:
            self.calls.perform(opened.owner.connection, events)

    def work(self, loop: Callable[[], asyncio.AbstractEventLoop | None]) -> None:
        """Let the server do what it does besides answering, such as running tasks."""
        if (background := self.endpoint.background) is not None:
            background.attach(self.calls, loop)

    def drain(self) -> None:
        """End the streams of clients that only listen; calls go on. Call it when no more requests are taken."""
        self._perform_all(self.endpoint.drain())
        if (background := self.endpoint.background) is not None:
            background.drain(self.calls)

    def close(self) -> None:
        """End all streams and sessions in good order. Call it before the process ends."""
        self._perform_all(self.endpoint.close())

    async def enter(self) -> str | None:
        """Enter the lifespan of the server on this event loop; return the problem if that fails."""
        from asyncio import get_running_loop

        lifespan, loop = self.endpoint.lifespan, get_running_loop()
        self.work(lambda: loop)
        if lifespan is None:
            return None
        lifespan.begin(self.calls, lambda: loop)
        await lifespan.opened()
        return lifespan.refusal

    async def leave(self, within: float = 1.0) -> None:
        """End all streams and sessions in good order, and leave the lifespan of the server once what ran has cleaned up.

        Tasks have `within` seconds to end.
        """
        from asyncio import sleep, to_thread

        self.close()
        cleanup = self.endpoint.policy.cleanup
        if (background := self.endpoint.background) is not None:
            await to_thread(background.leave, self.calls, within, cleanup)
        await self.calls.aleave(self.endpoint.lifespan, cleanup)
        self.calls.disown_tasks()
        await sleep(0)  # so that it has happened

    def tick(self, now: float) -> bool:
        """Run due timers; return whether anything is left that waits for time to pass. Never raises: the next tick goes on."""
        try:
            if self.metrics is not None:
                self.metrics.refresh()
            if self.endpoint.streams and is_stopping():
                self.drain()
            self._perform_all(self.endpoint.tick(now))
        except Exception as error:
            self._unexpected.log(error)
            return True
        return bool(self.endpoint.streams or len(self.endpoint.sessions))

    def _perform_all(self, todo: Todo) -> None:
        for connection, events in todo:
            self.calls.perform(connection, events)


def is_stopping() -> bool:
    """Return whether a server that handles SIGTERM was asked to stop; False where nothing shows that. Any thread."""
    return stopping_within() is not None


def stopping_within() -> float | None:
    """Return how many seconds a server that was asked to stop gives to what runs: inf where it cancels that itself.

    None if it was not asked, or nothing shows it. No protocol signals it in time: uvicorn sends its lifespan event, and gunicorn
    ends its threads, only after all connections have ended, and a stream that is open for our messages never ends by itself. Both
    note the signal in the object whose method handles it, so that is where to look. gunicorn kills what runs on.
    """
    try:
        owner: Any = getattr(signal.getsignal(signal.SIGTERM), "__self__", None)
    except ValueError:
        return None
    if owner is None:
        return None
    if getattr(owner, "should_exit", False) is True:  # uvicorn, and what builds on its server
        return inf
    if type(owner).__module__.startswith("gunicorn.") and getattr(owner, "alive", True) is False:
        return float(owner.cfg.graceful_timeout)
    return None


_MOST: Final = 100
"""Different reasons that are logged: untrusted peers choose the names in them, and must not fill a disk."""


class RefusalLog:
    """The refusals that one endpoint has logged."""

    def __init__(self) -> None:
        """Begin with an empty log."""
        self._logged: set[str] = set()

    def add(self, problem: str) -> None:
        """Log a problem, unless it was logged before."""
        if problem in self._logged or len(self._logged) >= _MOST:
            return
        from logging import getLogger

        self._logged.add(problem)
        getLogger("linkspan.http").warning("a request was refused: %s", problem, extra=log_facts())
