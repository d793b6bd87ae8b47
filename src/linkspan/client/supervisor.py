"""What keeps a client alive: one connection at a time, opened when it is needed, replaced when it is lost.

Both faces stand on it; it knows neither coroutines nor callers, only waiters. Connecting happens in a thread of its own, so no
caller's cancellation can disturb it, and all who wait get the same outcome.
"""

from __future__ import annotations

import atexit
import sys
import threading
import time
import weakref
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from linkspan.client.callbacks import Application
from linkspan.client.probing import Asking
from linkspan.client.subscriptions import Filter, Subscription, SubscriptionSet
from linkspan.client.transports.base import CallbackWaiter, ClientTransport, PendingRequest, Recorder, Waiter, deliver
from linkspan.core.flow import ITSELF, Effect, FallBack, Notify, Principal, Reopen, RequestSpec, Send, Sleep
from linkspan.flows.client_errors import (
    CallStopped,
    Change,
    ClientClosed,
    ClientError,
    Connected,
    ConnectError,
    Delivery,
    Disconnected,
    ServerOrigin,
    StateLost,
    StreamRestored,
)
from linkspan.flows.negotiation import negotiate
from linkspan.flows.requesting import backoff
from linkspan.flows.state import ClientState, ClientTelemetry, ResponseCache
from linkspan.loading import logger
from linkspan.revisions.agreement import Agreement
from linkspan.runtime.forks import keep, renew
from linkspan.runtime.reactor import reactor
from linkspan.types.messages import LoggingLevel
from linkspan.types.methods import LIST_CHANGED, TOOL_LIST
from linkspan.wire.jsonrpc import ErrorResponse, Notification, Response, RpcRequest, encode
from linkspan.wire.reports import Report

if TYPE_CHECKING:
    from linkspan.flows.http_messages import HttpHop

_STABLE: Final = 2.0
"""A connection that held so many seconds is forgiven its end: the next one is opened at once."""
_DYING: Final = 3.0
"""Seconds to wait for the end of a server that is about to end, so that two of a kind do not get into each other's way."""
_GIVE_UP: Final = 8
"""Failures in a row after which listeners are notified that there will be no connection."""


class Supervisor:
    """One client's connection to its server."""

    def __init__(
        self,
        state: ClientState,
        opener: Callable[[Supervisor], ClientTransport],
        application: Application,
    ) -> None:
        """Prepare; `opener` opens the transport when it is needed, and may raise ClientError."""
        self.state = state
        self.application = application
        self.person_awaited = application.person_awaited
        self.listeners = SubscriptionSet()
        self.opener = opener
        self._transport: ClientTransport | None = None
        self._opening: ClientTransport | None = None
        self.closed = False
        """Whether the client was closed."""
        self._log_level: LoggingLevel | None = None
        self._standing: Subscription | None = None
        self.start_afresh()
        renew(self)
        _supervisors.add(self)

    def start_afresh(self) -> None:
        """Begin without a connection, and without what one received; in a forked child those are the parent's."""
        keep(*(each for each in (self._transport, self._opening) if each is not None))
        self._lock = threading.RLock()
        self._transport = self._opening = None
        self._waiting: dict[Waiter, RequestSpec | None] = {}
        self._resting: set[Waiter] = set()
        self._sessions: PrincipalSessions | None = None
        self._connecting = False
        self._attempt = 0
        """Counts what `reopen` begins: a thread that connects for what was before changes nothing any more."""
        self._closing: threading.Thread | None = None
        """Closes a connection that did not come about."""
        self._stop = threading.Event()
        if self.closed:
            self._stop.set()
        self._lost: ClientError | None = None
        self._failures = 0
        self._failed_at = 0.0
        self.state.forget_tools()
        self.state.cache.clear()

    # Callers.

    @property
    def recorder(self) -> Recorder | None:
        """Who takes down what is said."""
        return self.application.callbacks.recorder

    @property
    def on_hop(self) -> Callable[[HttpHop], object] | None:
        """Whom to tell of each request over HTTP; in the order in which their responses came."""
        on_http = self.application.callbacks.on_http
        return partial(self.application.queue.post, on_http) if on_http is not None else None

    @property
    def connected(self) -> bool:
        """Whether there is a connection now."""
        transport = self._transport
        return transport is not None and transport.alive

    def submit(self, spec: RequestSpec | None, waiter: Waiter) -> ClientTransport | None:
        """Send a request, as soon as there is a connection; its outcome goes to `waiter`. None only connects.

        Returns the transport that must be flushed, or None. Raises: ClientError.
        """
        if spec is not None and spec.stopper is not None and spec.stopper.stopped:
            raise _stopped(self.state.origin, spec.stopper.reason)
        transport = self._transport
        if transport is None or not transport.alive:
            with self._lock:
                transport = self._transport
                if self.closed:
                    raise _closed(self.state.origin, "not_sent")
                if transport is None or not transport.alive:
                    self._waiting[waiter] = spec
                    self._connect_soon()
                    return None
        if spec is None:
            waiter.put(transport)
            return None
        if spec.principal is not ITSELF and (sessions := self._sessions_for(spec, transport)) is not None:
            return sessions.submit(spec, waiter)
        transport.submit(spec, waiter)
        return transport

    def _sessions_for(self, spec: RequestSpec, transport: ClientTransport) -> PrincipalSessions | None:
        """Return who sends a request in its principal's session; None if this connection is for all, or for that one."""
        mine = self.state.principal
        if (
            self.state.origin.url is None
            or spec.principal == mine
            or not transport.machine.agreement.revision.keeps_sessions
        ):
            return None
        with self._lock:
            if self._sessions is None:
                self._sessions = PrincipalSessions(self)
        return self._sessions

    def withdraw(self, waiter: Waiter, reason: str | None = None, *, report: bool = False) -> None:
        """Give up whatever `waiter` waits for; with `report` it gets a `CallStopped`."""
        with self._lock:
            waited = waiter in self._waiting
            self._waiting.pop(waiter, None)
        pending_request: PendingRequest | None = waiter.pending_request
        if waited and report:
            deliver([(waiter, _stopped(self.state.origin, reason))])
        elif pending_request is not None:
            pending_request.transport.give_up(pending_request.request_id, reason, report=report)
        elif self._sessions is not None:
            for each in self._sessions.all():
                each.withdraw(waiter, reason, report=report)

    @contextmanager
    def resting(self, waiter: Waiter) -> Generator[None]:
        """Let `close` end a wait that does not depend on a connection. Raises: ClientClosed."""
        with self._lock:
            if self.closed:
                raise _closed(self.state.origin, "answered")
            self._resting.add(waiter)
        try:
            yield
        finally:
            self._resting.discard(waiter)

    def set_level(self, level: LoggingLevel) -> None:
        """Remember which log messages are wanted, for this connection and the ones to come."""
        self._log_level = level
        transport = self._transport
        if transport is not None:
            transport.agree(transport.machine.agreement.at_level(level, self.state.options.profile))
        if self._sessions is not None:
            self._sessions.set_level(level)

    def roots_changed(self) -> None:
        """Tell a handshake server that the folders are others now; modern ones ask when they want to know (ROOT-2)."""
        transport = self._transport
        if (
            transport is not None
            and transport.alive
            and "notifications/roots/list_changed" in (transport.machine.agreement.revision.client_notifications)
        ):
            transport.notify("notifications/roots/list_changed")
        if self._sessions is not None:
            for each in self._sessions.all():
                each.roots_changed()

    @property
    def idle(self) -> bool:
        """Whether no call is waiting for a connection or a response."""
        transport = self._transport
        return not self._waiting and not self._connecting and (transport is None or transport.machine.pending == 0)

    def listen(self, wanted: Filter, receive: Callable[[object], object]) -> Subscription:
        """Listen for changes from now on."""
        listener = Subscription(wanted, receive)
        transport = self._transport
        self.listeners.add(listener, transport if transport is not None and transport.alive else None)
        if not self.connected:
            with self._lock:
                self._connect_soon()
        return listener

    def watch(self, uri: str, *, on: bool) -> None:
        """Add a resource to those whose changes `on_change` receives, or remove it."""
        if self._standing is None:
            if self.application.callbacks.on_change is None:
                raise ValueError("pass on_change=... to the client: it is called when a subscribed resource changes")
            raise ValueError("this server does not report when a resource changes: read it again from time to time")
        wanted = self._standing.wanted
        uris = wanted.uris | {uri} if on else wanted.uris - {uri}
        if uris != wanted.uris:
            self.listeners.change(self._standing, Filter(wanted.kinds, uris))

    def close(self) -> None:
        """End everything; wait until the server is gone. Any thread, any number of times."""
        with self._lock:
            self.closed = True
            self._stop.set()
            transports = [each for each in (self._transport, self._opening) if each is not None]
            waiting, self._waiting = self._waiting, {}
            resting = list(self._resting)
        deliver([(waiter, _closed(self.state.origin, "not_sent")) for waiter in waiting])
        deliver([(waiter, _closed(self.state.origin, "answered")) for waiter in resting])
        self.listeners.end(_closed(self.state.origin, "answered"))
        if self._sessions is not None:
            self._sessions.close()
        for transport in transports:
            transport.close()
        if self._closing is not None:
            self._closing.join()
        self.application.queue.settle(1.0)

    def reopen(self) -> None:
        """Take back a `close`."""
        with self._lock:
            if self.closed:
                self._transport = self._opening = self._sessions = None
                self._lost = None
                self._attempt += 1
                self._connecting = False
                self.closed = False
                self._stop = threading.Event()

    # Connecting.

    def _connect_soon(self) -> None:
        """With the lock: make sure that a thread is opening a connection."""
        if not self._connecting:
            self._connecting = True
            attempt = self._attempt
            connect: Callable[[], object] = partial(self._connect, attempt)
            self.state.telemetry = telemetry = self.state.telemetry or self.state.find_telemetry()
            if telemetry is not None:
                connect = telemetry.carry(connect)
            try:
                threading.Thread(target=connect, name="linkspan-connect", daemon=True).start()
            except RuntimeError as problem:
                error = ConnectError(f"connecting failed: {problem}", self.state.origin, phase="connect")
                reactor().call(lambda: self._connect_failed(error, attempt))

    def _connect(self, attempt: int) -> None:
        try:
            transport, agreement = self._agree(attempt)
        except ClientError as error:
            self._connect_failed(error, attempt)
        except Exception as error:
            logger("linkspan").exception("connecting to %s failed", self.state.origin.server)
            problem = f"connecting failed: {type(error).__name__}: {error}"
            self._connect_failed(ConnectError(problem, self.state.origin, phase="connect"), attempt)
        else:
            self._connect_succeeded(transport, agreement, attempt)

    def _opened(self, attempt: int) -> ClientTransport:
        """Open the transport, after a pause if that has failed just now, and not while the last server is dying."""
        dying = self._transport
        if dying is not None:
            dying.ended.wait(_DYING)
        if self._closing is not None:
            self._closing.join(_DYING)
        if self._failures:
            pause = max(0.0, self._failed_at + backoff(self._failures, self.state.random()) - time.monotonic())
            server = self.state.origin.server
            logger("linkspan.client").info(
                "%s: opening a connection in %.1f s, after %d failures",
                server,
                pause,
                self._failures,
                extra={"server": server},
            )
            self._stop.wait(pause)
        if self.closed or attempt != self._attempt:
            raise _closed(self.state.origin, "not_sent")
        transport = self.opener(self)
        atexit.unregister(
            _close_all
        )  # it must run before what a connection has loaded ends, such as the loop it runs on
        atexit.register(_close_all)
        with self._lock:
            is_wanted = not self.closed and attempt == self._attempt
            if is_wanted:
                self._opening = transport
        if not is_wanted:
            transport.close()
            raise _closed(self.state.origin, "not_sent")
        return transport

    def _agree(self, attempt: int) -> tuple[ClientTransport, Agreement]:
        """Open a transport, and run the negotiation, whose effects need no caller."""
        transport = self._opened(attempt)
        asking = Asking(self.state)
        flow = negotiate(self.state)
        try:
            effect = next(flow)
            while True:
                try:
                    outcome = None
                    if isinstance(effect, Reopen):
                        transport.close()
                        transport = self._opened(attempt)
                    elif isinstance(effect, Sleep):
                        self._stop.wait(effect.seconds)
                    else:
                        outcome = _perform(effect, transport, asking)
                except ClientError as error:
                    effect = flow.throw(error)
                else:
                    effect = flow.send(outcome)
        except StopIteration as stop:
            agreement: Agreement = stop.value
            asking.end(transport)
            return transport, agreement
        except BaseException:
            # While those who wait get their error: a server that is silent has taken enough of their time.
            closing = threading.Thread(target=transport.close, name="linkspan-close", daemon=True)
            closing.start()
            self._closing = closing  # only now: `close` joins it from another thread
            raise

    def _connect_failed(self, error: ClientError, attempt: int) -> None:
        with self._lock:
            if attempt != self._attempt:
                return  # `close` has told those who waited
            self._opening = None
            self._connecting = False
            self._failures += 1
            self._failed_at = time.monotonic()
            waiting, self._waiting = self._waiting, {}
            if not self.closed and self.listeners:
                if self._failures < _GIVE_UP and error.phase != "authorize":
                    self._connect_soon()
                else:
                    self.listeners.end(error)
        deliver([(waiter, error.again()) for waiter in waiting])

    def _connect_succeeded(self, transport: ClientTransport, agreement: Agreement, attempt: int) -> None:
        state = self.state
        if self._log_level is not None:
            agreement = agreement.at_level(self._log_level, state.options.profile)
        transport.agree(agreement)
        transport.settle()
        with self._lock:
            lost: ClientError | None = None
            is_wanted = attempt == self._attempt
            if is_wanted:
                self._opening = None
                state.agreement = agreement
                state.era = agreement.revision.era
                state.forget_tools()
                state.cache.clear()
                self._transport = transport
                self._connecting = False
                self._failures = 0
                lost, self._lost = self._lost, None
        if not is_wanted:
            transport.close()
            return
        self.application.report(Connected(state.origin.server, agreement.revision.date))
        if lost is not None:
            self.application.report(StateLost(state.origin.server, lost))
        self._restore(transport, agreement)
        self._submit_waiting(transport)
        transport.flush()
        if self.closed:
            transport.close()

    def _submit_waiting(self, transport: ClientTransport) -> None:
        """Send what waits for a connection, with the lock, so that at any time it can be withdrawn here or there."""
        with self._lock:
            waiting, self._waiting = self._waiting, {}
            for waiter, spec in waiting.items():
                try:
                    if spec is None:
                        deliver([(waiter, transport)])
                    elif spec.principal is not ITSELF and (sessions := self._sessions_for(spec, transport)) is not None:
                        if (theirs := sessions.submit(spec, waiter)) is not None:
                            theirs.flush()
                    else:
                        transport.submit(spec, waiter)
                except ClientError as error:
                    deliver([(waiter, error)])

    def _restore(self, transport: ClientTransport, agreement: Agreement) -> None:
        """Ask a new connection for what the last one was asked for."""
        if self._log_level is not None and not agreement.revision.log_level_in_envelope:
            level = RequestSpec("logging/setLevel", encode({"level": self._log_level}), phase="list")
            transport.submit(level, CallbackWaiter())
        if self._standing is not None and self._standing not in self.listeners:
            self.listeners.add(self._standing, None)  # the client was closed, or had given up
        elif self._standing is None and self.application.callbacks.on_change is not None:
            self._standing = _subscription_to_all(agreement, self.application)
            if self._standing is not None:
                self.listeners.add(self._standing, None)
        self.listeners.reopen(transport)

    # What transports say.

    def request_received(self, transport: ClientTransport, request: RpcRequest) -> None:
        """Let the application answer a question of the server."""
        self.application.ask(transport, request)

    def notification_received(self, transport: ClientTransport, message: Notification, owner: object) -> None:
        """Pass a notification to the cache, the listeners and the callbacks that want it."""
        if LIST_CHANGED.get(message.method) == TOOL_LIST.capability:
            self.state.forget_tools()
        self.state.cache.receive(message.method, message.params)
        if not self.listeners.notified(transport, message):
            self.application.notify(message, owner)

    def stderr_received(self, transport: ClientTransport, text: str) -> None:
        """Pass on what the server wrote to stderr."""
        if self.application.callbacks.on_stderr is not None:
            self.application.queue.post(self.application.callbacks.on_stderr, text)

    def report_received(self, transport: ClientTransport, report: Report) -> None:
        """Pass on what the server reported; what no callback receives, not even as text, is logged if it is a crash."""
        callbacks, server = self.application.callbacks, self.state.origin.server
        if callbacks.on_report is not None:
            self.application.queue.post(callbacks.on_report, report)
        elif report.traceback and callbacks.on_stderr is None:
            logger("linkspan.client").error(
                "%s: %s", server, report, extra={"server": server, "incident": report.incident}
            )

    def stream_restored(self, transport: ClientTransport, error: ClientError) -> None:
        """Tell the application, and those who listen that they may have missed something: what was kept may be old."""
        self.state.cache.clear()
        self.state.forget_tools()
        self.application.report(StreamRestored(self.state.origin.server, error))
        self.listeners.missed(transport)

    def connection_lost(self, transport: ClientTransport, error: ClientError) -> None:
        """Remember it; the next caller opens a new connection, or a listener does."""
        with self._lock:
            if self._transport is not transport:
                return
            self._transport = None
            self._lost = error
            if time.monotonic() - transport.opened_at < _STABLE:
                self._failures += 1
                self._failed_at = time.monotonic()
            if self.listeners and not self.closed:
                self._connect_soon()
        self.application.report(Disconnected(self.state.origin.server, error))


def _perform(effect: Effect, transport: ClientTransport, asking: Asking) -> Response | ErrorResponse | None:
    """Carry out what the negotiation wants to be said. Raises: ClientError."""
    match effect:
        case Send():
            return asking.ask(transport, effect)
        case Notify():
            transport.machine.agreement = effect.agreement or transport.machine.agreement
            transport.notify(effect.method, effect.params)
        case FallBack():
            transport.fall_back(effect.reason, asking.left)
        case _:
            raise AssertionError(f"the negotiation has no use for {effect}")
    return None


def _subscription_to_all(agreement: Agreement, application: Application) -> Subscription | None:
    """Return the subscription, for `on_change`, to every list whose changes the server announces.

    None if it announces none, and no resource can be subscribed to.
    """
    offers, on_change = agreement.capabilities, application.callbacks.on_change
    announced: dict[Any, Any] = {"tools": offers.tools, "prompts": offers.prompts, "resources": offers.resources}
    kinds = frozenset(kind for kind, offer in announced.items() if offer is not None and offer.list_changed)

    def receive(item: object) -> None:
        if isinstance(item, Change) and on_change is not None:
            application.queue.post(on_change, item)

    if kinds or (offers.resources is not None and offers.resources.subscribe):
        return Subscription(Filter(kinds), receive)
    return None


def _stopped(origin: ServerOrigin, reason: str | None) -> CallStopped:
    return CallStopped(f"the call was stopped{f': {reason}' if reason else ''}", origin)


def _closed(origin: ServerOrigin, delivery: Delivery) -> ClientClosed:
    return ClientClosed("the client was closed", origin, delivery=delivery)


class _PrincipalSession(Supervisor):
    """One principal's connection. Its events, notifications and questions reach the application through its client."""

    def __init__(self, client: Supervisor, principal: Principal) -> None:
        state = client.state
        super().__init__(
            ClientState(
                state.origin,
                state.options,
                state.random,
                ResponseCache(state.clock, max_bytes=0),
                state.clock,
                era="legacy",
                telemetry=state.telemetry,
                find_telemetry=state.find_telemetry,
                principal=principal,
                own=state.own,
                others=state.others,
            ),
            client.opener,
            client.application.of_a_session(),
        )


class PrincipalSessions:
    """The sessions of one client, by principal; `limits.max_principals` of them, those used least recently end first."""

    def __init__(self, client: Supervisor) -> None:
        """Prepare; the first call on behalf of a principal opens its session."""
        self._client = client
        self._lock = threading.Lock()
        self._by_principal: dict[Principal, Supervisor] = {}
        self._level: LoggingLevel | None = None
        self._closed = False

    def submit(self, spec: RequestSpec, waiter: Waiter) -> ClientTransport | None:
        """Send a request in its principal's session, as `Supervisor.submit` does. Raises: ClientError."""
        with self._lock:  # until it is sent, or the session would be idle, and might be ended for another's sake
            if self._closed:
                raise ClientClosed("the client was closed", self._client.state.origin, delivery="not_sent")
            found = self._by_principal.pop(spec.principal, None)
            if found is None:
                found = _PrincipalSession(self._client, spec.principal)
                if self._level is not None:
                    found.set_level(self._level)
            for each in self._overdue():
                threading.Thread(target=each.close, name="linkspan-close", daemon=True).start()
            self._by_principal[spec.principal] = found
            return found.submit(spec, waiter)

    def all(self) -> list[Supervisor]:
        """Return all that there are."""
        with self._lock:
            return list(self._by_principal.values())

    def set_level(self, level: LoggingLevel) -> None:
        """Ask every session for log messages from a level on, and those to come."""
        self._level = level
        for each in self.all():
            each.set_level(level)
            wanted = RequestSpec(
                "logging/setLevel", encode({"level": level}), phase="list", principal=each.state.principal
            )
            try:
                transport = each.submit(wanted, CallbackWaiter())
            except ClientError:
                continue
            if transport is not None:
                transport.flush()

    def close(self) -> None:
        """End all sessions; there will be no more."""
        with self._lock:
            self._closed = True
        ending = [threading.Thread(target=each.close, name="linkspan-close", daemon=True) for each in self.all()]
        for each in ending:
            each.start()
        for each in ending:
            each.join()

    def _overdue(self) -> list[Supervisor]:
        """Take out the sessions that are too many and have nothing to do, to make room for one."""
        too_many = len(self._by_principal) + 1 - self._client.state.options.limits.max_principals
        idle = [each for each, session in self._by_principal.items() if session.idle] if too_many > 0 else []
        return [self._by_principal.pop(each) for each in idle[:too_many]]


def find_telemetry() -> ClientTelemetry | None:
    """Return what traces and measures requests, if the application has set a provider of OpenTelemetry."""
    if "opentelemetry" not in sys.modules:
        return None
    from linkspan.client.tracing import ClientTracing
    from linkspan.runtime.otel import is_provided

    return ClientTracing() if is_provided() else None


_supervisors: weakref.WeakSet[Supervisor] = weakref.WeakSet()


def _close_all() -> None:
    """Let no server outlive the interpreter."""
    for supervisor in list(_supervisors):
        supervisor.close()
