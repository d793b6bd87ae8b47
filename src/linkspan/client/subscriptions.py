"""The listeners for changes, and how they ask the server: a listen request, or subscriptions of the handshake era.

A listener outlives the connections, and over HTTP its stream: each new one is asked again, and the listener is then
notified that it may have missed changes (CLI-10).
Spec: https://modelcontextprotocol.io/specification/2026-07-28/basic/patterns/subscriptions (SUB-1 to SUB-11).
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Generic, Literal, TypeVar, cast

import msgspec

from linkspan.client.transports.base import CallbackWaiter, ClientTransport, Waiter, deliver
from linkspan.core.flow import RequestSpec
from linkspan.flows.client_errors import (
    CallTimeout,
    Change,
    ClientError,
    ConnectionLost,
    HttpError,
    InvalidResponse,
    ServerError,
    ServerOrigin,
)
from linkspan.flows.requesting import backoff
from linkspan.loading import logger
from linkspan.revisions.modern import SUBSCRIPTION_ID
from linkspan.revisions.neutral import NOTHING
from linkspan.runtime.forks import renew
from linkspan.runtime.reactor import reactor
from linkspan.types.base import JSON, is_object
from linkspan.types.methods import LIST_CHANGED
from linkspan.wire.jsonrpc import ErrorResponse, Notification, Response, encode

WaiterT = TypeVar("WaiterT", bound=Waiter)

READY = object()
"""What a listener gets once the server has confirmed."""

Kind = Literal["tools", "prompts", "resources"]
_KINDS = cast("Mapping[str, Kind]", LIST_CHANGED)
_UPDATED = "notifications/resources/updated"
_SOON = 1.0
"""A subscription that ends within so many seconds has failed."""
_PATIENCE = 5
"""Failures in a row after which a server that answers, but not as it should, is not asked again."""
_NOT_NOW = (408, 425, 429)
_LONGEST_PAUSE = 300.0


class Filter(msgspec.Struct, frozen=True):
    """The changes that a listener wants to receive."""

    kinds: frozenset[Kind] = frozenset()
    uris: frozenset[str] = frozenset()
    extended: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """Members that extensions add, and the values to listen for."""

    def wants(self, change: Change) -> bool:
        """Return whether a change is of interest."""
        return change.uri in self.uris if change.kind == "resource" else change.kind in self.kinds

    def encode(self) -> bytes:
        """Return the params of `subscriptions/listen`."""
        wanted: dict[str, JSON] = {f"{kind}ListChanged": True for kind in sorted(self.kinds)}
        if self.uris:
            wanted["resourceSubscriptions"] = sorted(self.uris)
        wanted |= {member: list(values) for member, values in self.extended}
        return encode({"notifications": wanted})

    def missed(self) -> Iterable[Change]:
        """Return the changes that may have happened while the client was not listening."""
        for kind in sorted(self.kinds):
            yield Change(kind, missed=True)
        for uri in sorted(self.uris):
            yield Change("resource", uri, missed=True)


class Subscription:
    """One who listens. `receive` gets READY, changes, and at the end an error, in any thread; it must not block."""

    def __init__(self, wanted: Filter, receive: Callable[[object], object]) -> None:
        self.wanted = wanted
        self.receive = receive
        self.transport: ClientTransport | None = None
        self.request_id: object = None
        self.established = False
        self.acknowledged: Mapping[str, JSON] = NOTHING
        """What the server acknowledged of the filter."""
        self.attempt: object = None
        """The current attempt to subscribe at the server; the outcome of earlier attempts is ignored."""
        self.failures = 0
        self.lost: ClientError | None = None
        self.behind = False


class SubscriptionSet:
    """All who listen through one client."""

    def __init__(self) -> None:
        self.start_afresh()
        renew(self)

    def start_afresh(self) -> None:
        """Begin without listeners; in a forked child the existing ones belong to the parent."""
        self._lock = threading.Lock()
        self._all: list[Subscription] = []

    def __bool__(self) -> bool:
        return bool(self._all)

    def __contains__(self, listener: Subscription) -> bool:
        return listener in self._all

    def add(self, listener: Subscription, transport: ClientTransport | None) -> None:
        """Begin to listen; without a transport as soon as there is one."""
        with self._lock:
            self._all.append(listener)
        if transport is not None:
            self.establish(listener, transport)

    def remove(self, listener: Subscription) -> None:
        """Listen no more, and tell the server."""
        with self._lock:
            if listener not in self._all:
                return
            self._all.remove(listener)
        self._withdraw(listener.transport, listener.request_id, listener.wanted, keep=frozenset())

    def change(self, listener: Subscription, wanted: Filter) -> None:
        """Listen for something else from now on."""
        transport, old = listener.transport, (listener.transport, listener.request_id, listener.wanted)
        listener.wanted = wanted
        if transport is not None and transport.alive:
            listener.established = False
            self.establish(listener, transport)
            self._withdraw(*old, keep=wanted.uris)

    def reopen(self, transport: ClientTransport) -> None:
        """Ask a new connection for the changes that each listener wants."""
        for listener in list(self._all):
            if listener.transport is not transport:
                self.establish(listener, transport)

    def end(self, error: ClientError) -> None:
        """There will be no connection any more."""
        with self._lock:
            listeners, self._all = self._all, []
        for listener in listeners:
            listener.receive(error.again())

    def establish(self, listener: Subscription, transport: ClientTransport) -> None:
        """Ask the server for the changes that `listener` wants."""
        listener.behind = listener.established
        listener.transport = transport
        listener.attempt = attempt = object()
        try:
            if transport.machine.agreement.revision.listens_by_request:
                self._listen(listener, transport, attempt)
            else:
                self._subscribe(listener, transport, attempt)
        except ClientError:
            return  # lost again already; the next connection will be asked
        transport.flush()

    def missed(self, transport: ClientTransport) -> None:
        """Signal that notifications of a legacy server may be lost. Modern ones have a stream for each listener."""
        if transport.machine.agreement.revision.listens_by_request:
            return
        for listener in list(self._all):
            if listener.transport is transport and listener.established:
                self._catch_up(listener)

    def _listen(self, listener: Subscription, transport: ClientTransport, attempt: object) -> None:
        def receive(item: object) -> None:
            if listener.attempt is not attempt:
                return
            if isinstance(item, ErrorResponse):
                self._fail(listener, _refused(transport, item))
            elif isinstance(item, Response | ClientError):
                if time.monotonic() - began >= _SOON:
                    listener.failures = 0
                self._lose(listener, transport, item if isinstance(item, ClientError) else _ended(transport))

        began = time.monotonic()
        waiter = CallbackWaiter(receive)
        spec = RequestSpec("subscriptions/listen", listener.wanted.encode(), timeout=math.inf, total=math.inf)
        with transport.lock:  # so that no notification is looked at before the id is known
            transport.submit(spec, waiter)
            listener.request_id = waiter.pending_request.request_id

    def _subscribe(self, listener: Subscription, transport: ClientTransport, attempt: object) -> None:
        waiting = set(listener.wanted.uris)
        if not waiting:
            self._ready(listener)
        for uri in listener.wanted.uris:

            def receive(item: object, uri: str = uri) -> None:
                if listener.attempt is not attempt:
                    return
                waiting.discard(uri)
                if isinstance(item, ErrorResponse):
                    self._fail(listener, _refused(transport, item))
                elif isinstance(item, CallTimeout):
                    self._fail(listener, item)
                elif isinstance(item, ClientError):
                    self._lose(listener, transport, item)
                elif isinstance(item, Response) and not waiting:
                    self._ready(listener)

            transport.submit(
                RequestSpec("resources/subscribe", encode({"uri": uri}), phase="list"), CallbackWaiter(receive)
            )

    def _lose(self, listener: Subscription, transport: ClientTransport, error: ClientError) -> None:
        """Ask again after a pause, as long as that makes sense. If the connection is gone, the next one will be asked."""
        listener.attempt = attempt = object()
        if not transport.alive:
            return
        listener.failures += 1
        listener.lost = listener.lost or error
        if not _is_worth_another(listener, transport, error):
            self._fail(listener, error)
            return

        def again() -> None:
            if listener.attempt is attempt and transport.alive and listener in self._all:
                self.establish(listener, transport)

        asked, server = getattr(error, "retry_after", None) or 0.0, transport.state.origin.server
        pause = min(max(asked, backoff(listener.failures, transport.state.random())), _LONGEST_PAUSE)
        logger("linkspan.client").info(
            "%s: subscribing again in %.1f s: %s", server, pause, error.problem, extra={"server": server}
        )
        reactor().call_later(pause, again)

    def _ready(self, listener: Subscription) -> None:
        lost, listener.lost = listener.lost, None
        if not listener.established:
            listener.established = True
            listener.receive(READY)
        elif listener.behind:
            if lost is not None and listener.transport is not None:
                listener.transport.restored(lost)
            self._catch_up(listener)

    def _catch_up(self, listener: Subscription) -> None:
        listener.behind = False
        if listener.wanted.extended:
            listener.receive(READY)
        for change in listener.wanted.missed():
            listener.receive(change)

    def _fail(self, listener: Subscription, error: ClientError) -> None:
        with self._lock:
            if listener in self._all:
                self._all.remove(listener)
        listener.receive(error)

    def _withdraw(
        self, transport: ClientTransport | None, request_id: Any, wanted: Filter, *, keep: frozenset[str]
    ) -> None:
        if transport is None or not transport.alive:
            return
        if transport.machine.agreement.revision.listens_by_request:
            transport.give_up(request_id, "no longer listening")
            return
        others = {uri for each in self._all for uri in each.wanted.uris} | keep
        for uri in wanted.uris - others:
            try:
                transport.submit(
                    RequestSpec("resources/unsubscribe", encode({"uri": uri}), phase="list"), CallbackWaiter()
                )
            except ClientError:
                return
        transport.flush()

    # What the server says.

    def notified(self, transport: ClientTransport, message: Notification) -> bool:
        """Pass a notification to the listeners that want it; return whether it was about changes."""
        kind = _KINDS.get(message.method)
        acknowledged = message.method == "notifications/subscriptions/acknowledged"
        if kind is None and message.method != _UPDATED and not acknowledged:
            return self._notified_extended(transport, message)
        params = _params(message)
        if transport.machine.agreement.revision.listens_by_request:
            self._notified_tagged(transport, params, kind, acknowledged=acknowledged)
            return True
        change = _change(kind, params)
        for listener in list(self._all):
            if change is not None and listener.wanted.wants(change):
                listener.receive(change)
        return True

    def _notified_tagged(
        self, transport: ClientTransport, params: dict[str, JSON], kind: Kind | None, *, acknowledged: bool
    ) -> None:
        listener = self._tagged(transport, params)
        if listener is None:
            return
        if acknowledged:
            honoured = params.get("notifications")
            listener.acknowledged = honoured if is_object(honoured) else NOTHING
            self._ready(listener)
        elif (change := _change(kind, params)) is not None:
            listener.receive(change)

    def _notified_extended(self, transport: ClientTransport, message: Notification) -> bool:
        """Pass a notification of an extension to the listener for which it is tagged; return whether there is one."""
        if not any(each.wanted.extended for each in list(self._all)):
            return False
        listener = self._tagged(transport, _params(message))
        if listener is None or not listener.wanted.extended:
            return False
        listener.receive(message)
        return True

    def _tagged(self, transport: ClientTransport, params: dict[str, JSON]) -> Subscription | None:
        """Return the listener to whose subscription a notification belongs."""
        meta = params.get("_meta")
        tag = meta.get(SUBSCRIPTION_ID) if is_object(meta) else None
        with transport.lock:
            return next((each for each in self._all if each.transport is transport and each.request_id == tag), None)


class MemberReader(Generic[WaiterT]):
    """Listens for values of members that extensions add; what comes goes to `waiter`."""

    def __init__(
        self,
        listen: Callable[[Filter, Callable[[object], object]], Subscription],
        listeners: SubscriptionSet,
        wanted: Mapping[str, tuple[str, ...]],
        waiter: WaiterT,
    ) -> None:
        self.waiter = waiter
        self._listeners = listeners
        self._subscription = listen(
            Filter(extended=tuple(wanted.items())),
            lambda item: deliver([(waiter, item if item is not READY else None)]),
        )

    @property
    def acknowledged(self) -> Mapping[str, JSON]:
        """What the server acknowledged of the filter."""
        return self._subscription.acknowledged

    def close(self) -> None:
        """Listen no more."""
        self._listeners.remove(self._subscription)


def unconfirmed(origin: ServerOrigin, seconds: float) -> CallTimeout:
    """Return the error for a subscription that the server neither confirms nor refuses."""
    return CallTimeout(
        f"the server did not confirm the subscription within {seconds:g} seconds (timeouts.list)",
        origin,
        phase="list",
        delivery="maybe_sent",
        seconds=seconds,
    )


def left_behind(origin: ServerOrigin) -> ConnectionLost:
    """Return the error for a subscription in a process that was forked after it had begun."""
    return ConnectionLost(
        "the subscription belongs to the parent process",
        origin,
        phase="list",
        hint="call listen() again in this process [LS-306]",
    )


def _is_worth_another(listener: Subscription, transport: ClientTransport, error: ClientError) -> bool:
    """Return whether to ask again. A listener established once is kept while the server or the network is down."""
    if isinstance(error, HttpError):
        wrong = error.status < 500 and error.status not in _NOT_NOW
        return not wrong and (listener.established or listener.failures < transport.state.options.attempts)
    if isinstance(error, InvalidResponse):
        return listener.established and listener.failures < _PATIENCE
    return listener.established or listener.failures < transport.state.options.attempts


def _params(message: Notification) -> dict[str, JSON]:
    try:
        params: JSON = msgspec.json.decode(message.params or b"{}")
    except (msgspec.DecodeError, RecursionError):
        return {}
    return params if is_object(params) else {}


def _change(kind: Kind | None, params: dict[str, JSON]) -> Change | None:
    if kind is not None:
        return Change(kind)
    uri = params.get("uri")
    return Change("resource", uri) if isinstance(uri, str) else None


def _refused(transport: ClientTransport, error: ErrorResponse) -> ServerError:
    return ServerError(
        f"the subscription was refused: {error.message} ({error.code})",
        transport.state.origin,
        delivery="answered",
        code=error.code,
        message=error.message,
        data=error.data,
    )


def _ended(transport: ClientTransport) -> InvalidResponse:
    return InvalidResponse("the server ended the subscription", transport.state.origin, delivery="answered")
