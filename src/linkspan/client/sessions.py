"""Handshake sessions of those in whose name one client calls: a session belongs to one principal, and dies without the others.

In the modern era there are no sessions, and all share one connection. Spec: checklist 5.3 (HL-7), SEC-19.
"""

from __future__ import annotations

import threading

from linkspan.client.supervisor import Callbacks, Supervisor
from linkspan.client.transports.base import ClientTransport, ThreadWaiter, Waiter
from linkspan.core.flow import RequestSpec
from linkspan.flows.client_errors import ClientClosed, ClientError, ClientEvent, StateLost
from linkspan.flows.state import ClientState, Principal, ResponseCache
from linkspan.types.messages import LoggingLevel
from linkspan.wire.jsonrpc import encode

__all__ = ["Sessions"]


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
