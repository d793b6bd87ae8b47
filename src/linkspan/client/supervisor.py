"""What keeps a client alive: one connection at a time, opened when it is needed, replaced when it is lost.

Both faces stand on it; it knows neither coroutines nor callers, only slots. Connecting happens in a thread of its own, so no
caller's cancellation can disturb it, and all who wait get the same outcome.
"""

from __future__ import annotations

import atexit
import threading
import time
import weakref
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import msgspec

from linkspan.client.callbacks import CallbackQueue, Callbacks, Question, answer_in_thread
from linkspan.client.probing import Asking
from linkspan.client.subscriptions import Filter, Subscription, SubscriptionSet
from linkspan.client.transports.base import ClientTransport, PendingRequest, Recorder, ThreadWaiter, Waiter, deliver
from linkspan.core.flow import Effect, FallBack, Reopen, RequestSpec, Send, Sleep, Tell
from linkspan.errors import INVALID_PARAMS, METHOD_NOT_FOUND
from linkspan.flows.answers import Handlers, read_question
from linkspan.flows.client_errors import (
    CallStopped,
    Change,
    ClientClosed,
    ClientError,
    ClientEvent,
    Connected,
    ConnectError,
    Disconnected,
    StateLost,
    StreamRestored,
)
from linkspan.flows.negotiation import negotiate
from linkspan.flows.requesting import backoff
from linkspan.flows.state import ClientState, Principal, ResponseCache
from linkspan.revisions.agreement import Agreement
from linkspan.runtime.forks import keep, renew
from linkspan.types.base import JSON
from linkspan.types.messages import LoggingLevel, LoggingMessageParams
from linkspan.wire.jsonrpc import ErrorResponse, Notification, Response, RpcRequest, encode

if TYPE_CHECKING:
    import asyncio

__all__ = ["Sessions", "Supervisor"]

_STABLE: Final = 2.0
"""A connection that held so many seconds is forgiven its end: the next one is opened at once."""
_DYING: Final = 3.0
"""Seconds to wait for the end of a server that is about to end, so that two of a kind do not get into each other's way."""
_GIVE_UP: Final = 8
"""Failures in a row after which listeners are told that there will be no connection."""


class Supervisor:
    """One client's connection to its server."""

    def __init__(
        self,
        state: ClientState,
        opener: Callable[[Supervisor], ClientTransport],
        handlers: Handlers,
        callbacks: Callbacks,
    ) -> None:
        """Prepare; `opener` opens the transport when it is needed, and may raise ClientError."""
        self.state = state
        self.handlers = handlers
        self.callbacks = callbacks
        self.courier = CallbackQueue()
        self.listeners = SubscriptionSet()
        self.opener = opener
        self._link: ClientTransport | None = None
        self._opening: ClientTransport | None = None
        self._closed = False
        self._log_level: LoggingLevel | None = None
        self._standing: Subscription | None = None
        self.start_afresh()
        renew(self)
        _engines.add(self)

    def start_afresh(self) -> None:
        """Begin without a connection, and without what was heard on one; in a forked child those are the parent's."""
        keep(*(each for each in (self._link, self._opening) if each is not None))
        self.answer_question: Callable[[Question], object] = answer_in_thread
        # The loop of the application, where callbacks and in-memory servers run; None for threads.
        self.home: asyncio.AbstractEventLoop | None = None
        self._lock = threading.RLock()
        self._link = self._opening = None
        self._waiting: dict[Waiter, RequestSpec | None] = {}
        self._sessions: Sessions | None = None
        self._connecting = False
        self._closing: threading.Thread | None = None
        """Closes a connection that did not come about."""
        self._stop = threading.Event()
        if self._closed:
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
        return self.callbacks.recorder

    @property
    def connected(self) -> bool:
        """Whether there is a connection now."""
        link = self._link
        return link is not None and link.alive

    @property
    def closed(self) -> bool:
        """Whether the client was closed."""
        return self._closed

    def submit(self, outgoing: RequestSpec | None, slot: Waiter) -> ClientTransport | None:
        """Send a request, as soon as there is a connection; what comes of it goes to `slot`. None only wants a connection.

        Returns the link that must be flushed, or None. Raises: ClientError.
        """
        if outgoing is not None and outgoing.stopper is not None and outgoing.stopper.stopped:
            raise self._stopped_error(outgoing.stopper.reason)
        link = self._link
        if link is None or not link.alive:
            with self._lock:
                link = self._link
                if self.closed:
                    raise self._closed_error("not_sent")
                if link is None or not link.alive:
                    self._waiting[slot] = outgoing
                    self._connect_soon()
                    return None
        if outgoing is None:
            slot.put(link)
            return None
        if outgoing.principal and (sessions := self._sessions_for(outgoing, link)) is not None:
            return sessions.submit(outgoing, slot)
        link.submit(outgoing, slot)
        return link

    def _sessions_for(self, outgoing: RequestSpec, link: ClientTransport) -> Sessions | None:
        """Return who sends a request in its principal's session; None if this connection is for all, or for that one."""
        mine = self.state.principal
        if (
            self.state.origin.url is None
            or outgoing.principal == mine
            or not link.machine.agreement.revision.keeps_sessions
        ):
            return None
        with self._lock:
            if self._sessions is None:
                self._sessions = Sessions(self)
        return self._sessions

    def withdraw(self, slot: Waiter, reason: str | None = None, *, tell: bool = False) -> None:
        """Give up whatever `slot` waits for; with `tell` it gets a `CallStopped`."""
        with self._lock:
            waited = slot in self._waiting
            self._waiting.pop(slot, None)
        ticket: PendingRequest | None = slot.ticket
        if waited and tell:
            deliver([(slot, self._stopped_error(reason))])
        elif ticket is not None:
            ticket.link.give_up(ticket.request_id, reason, tell=tell)
        elif self._sessions is not None:
            for each in self._sessions.all():
                each.withdraw(slot, reason, tell=tell)

    def set_level(self, level: LoggingLevel) -> None:
        """Remember which log messages are wanted, for this connection and the ones to come."""
        self._log_level = level
        link = self._link
        if link is not None:
            link.agree(link.machine.agreement.at_level(level, self.state.options.profile))
        if self._sessions is not None:
            self._sessions.set_level(level)

    def roots_changed(self) -> None:
        """Tell a handshake server that the folders are others now; modern ones ask when they want to know (ROOT-2)."""
        link = self._link
        if (
            link is not None
            and link.alive
            and "notifications/roots/list_changed" in (link.machine.agreement.revision.client_notifications)
        ):
            link.notify("notifications/roots/list_changed")
        if self._sessions is not None:
            for each in self._sessions.all():
                each.roots_changed()

    @property
    def idle(self) -> bool:
        """Whether nobody waits for anything."""
        link = self._link
        return not self._waiting and not self._connecting and (link is None or link.machine.pending == 0)

    def listen(self, wanted: Filter, hear: Callable[[object], object]) -> Subscription:
        """Hear of changes from now on."""
        listener = Subscription(wanted, hear)
        link = self._link
        self.listeners.add(listener, link if link is not None and link.alive else None)
        if not self.connected:
            with self._lock:
                self._connect_soon()
        return listener

    def watch(self, uri: str, *, on: bool) -> None:
        """Add a resource to what `on_change` hears of, or take it away."""
        if self._standing is None:
            if self.callbacks.on_change is None:
                raise ValueError("pass on_change=... to the client: it is called when a subscribed resource changes")
            raise ValueError("this server does not say when a resource changes: look at it again from time to time")
        wanted = self._standing.wanted
        uris = wanted.uris | {uri} if on else wanted.uris - {uri}
        if uris != wanted.uris:
            self.listeners.change(self._standing, Filter(wanted.kinds, uris))

    def close(self) -> None:
        """End everything; wait until the server is gone. Any thread, any number of times."""
        with self._lock:
            self._closed = True
            self._stop.set()
            links = [each for each in (self._link, self._opening) if each is not None]
            waiting, self._waiting = self._waiting, {}
        deliver([(slot, self._closed_error("not_sent")) for slot in waiting])
        self.listeners.end(self._closed_error("answered"))
        if self._sessions is not None:
            self._sessions.close()
        for link in links:
            link.close()
        if self._closing is not None:
            self._closing.join()
        self.courier.settle(1.0)

    def reopen(self) -> None:
        """Take back a `close`."""
        with self._lock:
            if self.closed:
                self._link = self._opening = self._sessions = None
                self._lost = None
                self._closed = False
                self._stop = threading.Event()

    def _stopped_error(self, reason: str | None) -> CallStopped:
        return CallStopped(f"the call was stopped{f': {reason}' if reason else ''}", self.state.origin)

    def _closed_error(self, delivery: Any) -> ClientClosed:
        return ClientClosed("the client was closed", self.state.origin, delivery=delivery)

    # Connecting.

    def _connect_soon(self) -> None:
        """With the lock: make sure that somebody is opening a connection."""
        if not self._connecting:
            self._connecting = True
            threading.Thread(target=self._connect, name="linkspan-connect", daemon=True).start()

    def _connect(self) -> None:
        try:
            link = self._opened()
            agreement = self._agree(link)
        except ClientError as error:
            self._connect_failed(error)
        except Exception as error:
            import logging

            logging.getLogger("linkspan").exception("connecting to %s failed", self.state.origin.server)
            problem = f"connecting failed: {type(error).__name__}: {error}"
            self._connect_failed(ConnectError(problem, self.state.origin, phase="connect"))
        else:
            self._connect_succeeded(agreement)

    def _opened(self) -> ClientTransport:
        """Open the transport, after a pause if that has failed just now, and not while the last server is dying."""
        dying = self._link
        if dying is not None:
            dying.ended.wait(_DYING)
        if self._closing is not None:
            self._closing.join(_DYING)
        if self._failures:
            pause = self._failed_at + backoff(self._failures, self.state.random()) - time.monotonic()
            self._stop.wait(max(0.0, pause))
        if self.closed:
            raise self._closed_error("not_sent")
        link = self.opener(self)
        _close_first_at_exit()
        with self._lock:
            self._opening = link
            closed = self.closed
        if closed:
            link.close()
            raise self._closed_error("not_sent")
        return link

    def _agree(self, link: ClientTransport) -> Agreement:
        """Run the negotiation, whose effects need no caller."""
        asking = Asking(time.monotonic() + self.state.options.timeouts.connect)
        flow = negotiate(self.state)
        try:
            effect = next(flow)
            while True:
                try:
                    outcome = self._perform(effect, asking)
                except ClientError as error:
                    effect = flow.throw(error)
                else:
                    effect = flow.send(outcome)
        except StopIteration as stop:
            agreement: Agreement = stop.value
            assert self._opening is not None
            asking.end(self._opening)
            return agreement
        except BaseException:
            self._close_soon(self._opening)
            raise

    def _close_soon(self, link: ClientTransport | None) -> None:
        """Close a link while those who wait get their error: a server that is silent has taken enough of their time."""
        if link is not None:
            closing = threading.Thread(target=link.close, name="linkspan-close", daemon=True)
            closing.start()
            self._closing = closing

    def _perform(self, effect: Effect, asking: Asking) -> Response | ErrorResponse | None:
        link = self._opening
        assert link is not None
        match effect:
            case Send():
                return asking.ask(link, effect)
            case Tell():
                link.machine.agreement = effect.agreement or link.machine.agreement
                link.notify(effect.method, effect.params)
            case Reopen():
                link.close()
                self._opened()
            case FallBack():
                link.fall_back(effect.reason, asking.left)
            case Sleep():
                self._stop.wait(effect.seconds)
            case _:
                raise AssertionError(f"the negotiation has no use for {effect}")
        return None

    def _connect_failed(self, error: ClientError) -> None:
        with self._lock:
            self._opening = None
            self._connecting = False
            self._failures += 1
            self._failed_at = time.monotonic()
            waiting, self._waiting = self._waiting, {}
            if not self.closed and self.listeners:
                if self._failures < _GIVE_UP:
                    self._connect_soon()
                else:
                    self.listeners.end(error)
        deliver([(slot, error.again()) for slot in waiting])

    def _connect_succeeded(self, agreement: Agreement) -> None:
        state = self.state
        if self._log_level is not None:
            agreement = agreement.at_level(self._log_level, state.options.profile)
        link = self._opening
        assert link is not None
        link.agree(agreement)
        link.settle()
        with self._lock:
            self._opening = None
            state.agreement = agreement
            state.era = agreement.revision.era
            state.forget_tools()
            state.cache.clear()
            self._link = link
            self._connecting = False
            self._failures = 0
            lost, self._lost = self._lost, None
        self._tell(Connected(state.origin.server, agreement.revision.date))
        if lost is not None:
            self._tell(StateLost(state.origin.server, lost))
        self._restore(link, agreement)
        self._submit_waiting(link)
        link.flush()
        if self.closed:
            link.close()

    def _submit_waiting(self, link: ClientTransport) -> None:
        """Send what waits for a connection, with the lock, so that at any time it can be withdrawn here or there."""
        with self._lock:
            waiting, self._waiting = self._waiting, {}
            for slot, outgoing in waiting.items():
                try:
                    if outgoing is None:
                        deliver([(slot, link)])
                    elif outgoing.principal and (sessions := self._sessions_for(outgoing, link)) is not None:
                        if (theirs := sessions.submit(outgoing, slot)) is not None:
                            theirs.flush()
                    else:
                        link.submit(outgoing, slot)
                except ClientError as error:
                    deliver([(slot, error)])

    def _restore(self, link: ClientTransport, agreement: Agreement) -> None:
        """Ask a new connection for what the last one was asked for."""
        if self._log_level is not None and not agreement.revision.log_level_in_envelope:
            level = RequestSpec("logging/setLevel", encode({"level": self._log_level}), phase="list")
            link.submit(level, ThreadWaiter())
        if self._standing is not None and self._standing not in self.listeners:
            self.listeners.add(self._standing, None)  # the client was closed, or had given up
        elif self._standing is None and self.callbacks.on_change is not None:
            self._stand(self.callbacks.on_change, agreement)
        self.listeners.reopen(link)

    def _stand(self, on_change: Callable[[Change], Any], agreement: Agreement) -> None:
        """Listen, for `on_change`, to every list that the server says it announces."""
        offers = agreement.capabilities
        announced: dict[Any, Any] = {"tools": offers.tools, "prompts": offers.prompts, "resources": offers.resources}
        kinds = frozenset(kind for kind, offer in announced.items() if offer is not None and offer.list_changed)

        def hear(item: object) -> None:
            if isinstance(item, Change):
                self.courier.post(on_change, item)

        if kinds or (offers.resources is not None and offers.resources.subscribe):
            self._standing = Subscription(Filter(kinds), hear)
            self.listeners.add(self._standing, None)

    # What links say.

    def link_asked(self, link: ClientTransport, request: RpcRequest) -> None:
        """Find the handler for a question of the server."""
        try:
            params = read_question(request.method, request.params)
        except (msgspec.DecodeError, RecursionError):
            link.refuse(request.id, INVALID_PARAMS, f"Invalid params for {request.method}")
            return
        handler = self.handlers.handler(request.method, params)
        if handler is None:
            known = request.method in self.handlers.answerable()
            code = INVALID_PARAMS if known else METHOD_NOT_FOUND
            link.refuse(request.id, code, f"This client was not told to answer {request.method[:80]} of this kind")
            return
        self.answer_question(Question(link, request.id, request.method, params, handler))

    def link_notified(self, link: ClientTransport, message: Notification) -> None:
        """Tell whoever wants to know."""
        if message.method == "notifications/tools/list_changed":
            self.state.forget_tools()
        self.state.cache.hear(message.method, message.params)
        if self.listeners.notified(link, message):
            return
        if message.method == "notifications/message":
            self._log(message)
        elif self.callbacks.on_notification is not None:
            on_notification, method = self.callbacks.on_notification, message.method
            try:
                params: JSON = msgspec.json.decode(message.params or b"null")
            except (msgspec.DecodeError, RecursionError):
                return
            self.courier.post(partial(on_notification, method), params)

    def _log(self, message: Notification) -> None:
        if self.callbacks.on_log is None:
            return
        try:
            params = _log_message.decode(message.params or b"{}")
        except msgspec.DecodeError:
            return
        self.courier.post(self.callbacks.on_log, params)

    def link_printed(self, link: ClientTransport, text: str) -> None:
        """Pass on what the server wrote to stderr."""
        if self.callbacks.on_stderr is not None:
            self.courier.post(self.callbacks.on_stderr, text)

    def link_restored(self, link: ClientTransport, error: ClientError) -> None:
        """Tell the application, and those who listen that they may have missed something: what was kept may be old."""
        self.state.cache.clear()
        self.state.forget_tools()
        self._tell(StreamRestored(self.state.origin.server, error))
        self.listeners.missed(link)

    def link_lost(self, link: ClientTransport, error: ClientError) -> None:
        """Remember it; the next caller opens a new connection, or a listener does."""
        with self._lock:
            if self._link is not link:
                return
            self._link = None
            self._lost = error
            if time.monotonic() - link.opened_at < _STABLE:
                self._failures += 1
                self._failed_at = time.monotonic()
            if self.listeners and not self.closed:
                self._connect_soon()
        self._tell(Disconnected(self.state.origin.server, error))

    def _tell(self, event: ClientEvent) -> None:
        if self.callbacks.on_event is not None:
            self.courier.post(self.callbacks.on_event, event)


_log_message = msgspec.json.Decoder(LoggingMessageParams)


class _Session(Supervisor):
    """One principal's connection. What the application is told and asked goes the ways of its client."""

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
                principal=principal,
                own=state.own,
                others=state.others,
            ),
            client.opener,
            client.handlers,
            Callbacks(
                on_log=client.callbacks.on_log,
                on_event=self._pass_on if client.callbacks.on_event is not None else None,
                on_notification=client.callbacks.on_notification,
                recorder=client.callbacks.recorder,
            ),
        )
        self.courier = client.courier
        self.answer_question = lambda question: client.answer_question(question)
        self._client = client

    def _pass_on(self, event: ClientEvent) -> object:
        """Tell the application what it can act on: connecting and losing are the client's own."""
        on_event = self._client.callbacks.on_event
        return on_event(event) if on_event is not None and isinstance(event, StateLost) else None


class Sessions:
    """The sessions of one client, by principal; `limits.max_principals` of them, those used least recently end first."""

    def __init__(self, client: Supervisor) -> None:
        """Prepare; the first call in somebody's name opens a session."""
        self._client = client
        self._lock = threading.Lock()
        self._by_principal: dict[Principal, Supervisor] = {}
        self._level: LoggingLevel | None = None
        self._closed = False

    def submit(self, outgoing: RequestSpec, slot: Waiter) -> ClientTransport | None:
        """Send a request in its principal's session, as `Supervisor.submit` does. Raises: ClientError."""
        with self._lock:  # until it is sent, or the session would be idle, and might be ended for another's sake
            if self._closed:
                raise ClientClosed("the client was closed", self._client.state.origin, delivery="not_sent")
            found = self._by_principal.pop(outgoing.principal, None)
            if found is None:
                found = _Session(self._client, outgoing.principal)
                if self._level is not None:
                    found.set_level(self._level)
            for each in self._overdue():
                threading.Thread(target=each.close, name="linkspan-close", daemon=True).start()
            self._by_principal[outgoing.principal] = found
            return found.submit(outgoing, slot)

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
                link = each.submit(wanted, ThreadWaiter())
            except ClientError:
                continue
            if link is not None:
                link.flush()

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


_engines: weakref.WeakSet[Supervisor] = weakref.WeakSet()


def _close_all() -> None:
    """Let no server outlive the interpreter."""
    for engine in list(_engines):
        engine.close()


def _close_first_at_exit() -> None:
    """Close the clients before whatever a connection has loaded, such as the loop that it runs on."""
    atexit.unregister(_close_all)
    atexit.register(_close_all)
