"""One connection of a client to a server, used by any number of threads and loops at once.

    client (waits at a waiter)            supervisor (one connection at a time)
        |  submit(request, waiter)            ^  request_received, notification_received, connection_lost ...
        v                                   |
    ClientTransport: submit -> machine -> flush    receive_data -> machine -> deliver to waiters
        |  bytes                            ^  bytes
        v                                   |
    transport: pipe, HTTP requests, memory

Law: every request that was submitted ends exactly once: its waiter gets a response, an error response or a `ClientError`.
`lock` guards the machine. It is held while the machine is called and never while anything is delivered or written.
"""

from __future__ import annotations

import threading
import time
from abc import abstractmethod
from collections.abc import Callable, Iterable
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import msgspec

from linkspan.core.client_connection import (
    CancellationReceived,
    ClientConnection,
    ClientStreamEvent,
    Expired,
    ForbiddenRequest,
    InvalidMessage,
    NotificationReceived,
    Progressed,
    ResponseReceived,
    ServerRequest,
    UnexpectedOutput,
)
from linkspan.core.flow import RequestSpec
from linkspan.flows.client_errors import (
    CallStopped,
    CallTimeout,
    ClientClosed,
    ClientError,
    ConnectionLost,
    Delivery,
    InvalidResponse,
    Phase,
    ProcessEnd,
    hint_for_ending,
    hint_for_silence,
)
from linkspan.flows.requesting import shown, total_of
from linkspan.flows.state import ClientState
from linkspan.revisions import LATEST
from linkspan.revisions.agreement import Agreement, before_agreement
from linkspan.runtime.reactor import reactor
from linkspan.wire.jsonrpc import Notification, RequestId, RpcRequest
from linkspan.wire.reports import Report

if TYPE_CHECKING:
    import asyncio

    from linkspan.flows.http_messages import HttpHop

_STRAY_KEPT = 5


class Waiter(Protocol):
    """One caller's place: a thread at a queue, a task at its event loop, or a function.

    `pending_request` is for the transport.
    """

    pending_request: Any

    @property
    def loop(self) -> asyncio.AbstractEventLoop | None:
        """The loop on which `put` must be called; None for any thread."""
        ...

    @property
    def put(self) -> Callable[[object], object]:
        """Deliver an item without blocking."""
        ...


class ThreadWaiter(SimpleQueue[Any]):
    """For a thread. While it reads for all who wait, `wake` ends its wait for input."""

    __slots__ = ("pending_request", "thread", "wake")

    loop = None

    def __init__(self) -> None:
        self.pending_request: Any = None
        self.thread = threading.get_ident()
        self.wake: Callable[[], object] | None = None

    def put(self, item: object, block: bool = True, timeout: float | None = None) -> None:
        """Deliver an item; any thread, and never blocking."""
        _put(self, item)
        if self.wake is not None:
            self.wake()


_put = SimpleQueue[Any].put


class CallbackWaiter:
    """For a function, which is called at once in the thread that delivers. It must not block. By default it does nothing."""

    loop = None

    def __init__(self, function: Callable[[object], object] = lambda item: None) -> None:
        self.pending_request: Any = None
        self.put: Callable[[object], object] = function


class LoopWaiter(msgspec.Struct, eq=False):
    """For a task of `loop`."""

    loop: asyncio.AbstractEventLoop
    pending_request: Any = None
    items: list[Any] = []
    _future: asyncio.Future[None] | None = None

    def put(self, item: object) -> None:
        """Deliver an item; on the loop only."""
        self.items.append(item)
        future = self._future
        if future is not None and not future.done():
            future.set_result(None)

    def arrival(self) -> asyncio.Future[None]:
        """Return a future that is done with the next `put`, while `items` is empty. For one task at a time."""
        future = self._future = self.loop.create_future()
        return future

    async def get(self) -> Any:
        """Wait for the next item."""
        while not self.items:
            await self.arrival()
        return self.items.pop(0)


_Deliveries: TypeAlias = list[tuple[Waiter, object]]


def deliver(deliveries: Iterable[tuple[Waiter, object]], here: asyncio.AbstractEventLoop | None = None) -> None:
    """Put items into waiters, from any thread, with one wake-up for each loop but `here`, which runs in this thread.

    Waiters of a closed loop get nothing.
    """
    by_loop: dict[asyncio.AbstractEventLoop, _Deliveries] = {}
    for waiter, item in deliveries:
        loop = waiter.loop
        if loop is here or loop is None:
            waiter.put(item)
        else:
            by_loop.setdefault(loop, []).append((waiter, item))
    for loop, mine in by_loop.items():
        try:
            if len(mine) == 1:
                loop.call_soon_threadsafe(mine[0][0].put, mine[0][1])
            else:
                loop.call_soon_threadsafe(_put_all, mine)
        except RuntimeError:
            continue


def _put_all(deliveries: _Deliveries) -> None:
    for waiter, item in deliveries:
        waiter.put(item)


class Recorder(Protocol):
    """Takes down what is said, as `linkspan.testing.TranscriptWriter` does. Called from any thread."""

    def client(self, data: bytes) -> object:
        """Take bytes that go to the server: lines, in any chunks."""
        ...

    def server(self, data: bytes) -> object:
        """Take bytes that come from the server."""
        ...


class _SafeRecorder:
    """A recorder whose failures are logged: they must not cost a message."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder

    def client(self, data: bytes) -> None:
        self._record(self._recorder.client, data)

    def server(self, data: bytes) -> None:
        self._record(self._recorder.server, data)

    def _record(self, take: Callable[[bytes], object], data: bytes) -> None:
        try:
            take(data)
        except Exception:
            import logging

            logging.getLogger("linkspan").exception("the recorder of a client raised")


class TransportOwner(Protocol):
    """Who opened a transport. Called in whatever thread brings the news; must not block."""

    @property
    def recorder(self) -> Recorder | None:
        """Who takes down what is said."""
        ...

    @property
    def on_hop(self) -> Callable[[HttpHop], object] | None:
        """Whom to tell of each request over HTTP."""
        ...

    def request_received(self, transport: ClientTransport, request: RpcRequest) -> None:
        """The server asks something."""
        ...

    def notification_received(self, transport: ClientTransport, message: Notification, owner: object) -> None:
        """The server says something; `owner` is who waits for the call that a log message belongs to."""
        ...

    def stderr_received(self, transport: ClientTransport, text: str) -> None:
        """The server process wrote to stderr."""
        ...

    def report_received(self, transport: ClientTransport, report: Report) -> None:
        """The server process reported a record of its log."""
        ...

    def stream_restored(self, transport: ClientTransport, error: ClientError) -> None:
        """A stream on which the server speaks by itself was lost, as `error` says, and is open again."""
        ...

    def person_awaited(self) -> None:
        """A request waits for a person who logs in."""
        ...

    def connection_lost(self, transport: ClientTransport, error: ClientError) -> None:
        """The connection has ended, and not because it was closed."""
        ...


class StoppableClock:
    """The monotonic clock without the time during which a person was waited for. Any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._stopped_by: set[object] = set()
        self._stopped_at = 0.0
        self._gone = 0.0

    def __call__(self) -> float:
        """Return seconds that never go back."""
        return (self._stopped_at if self._stopped_by else time.monotonic()) - self._gone

    @property
    def stands(self) -> bool:
        """Whether it stands still now."""
        return bool(self._stopped_by)

    def stop(self, who: object) -> None:
        """Stop it until `who` lets it run again, and all others who have stopped it."""
        with self._lock:
            if not self._stopped_by:
                self._stopped_at = time.monotonic()
            self._stopped_by.add(who)

    def go_on(self, who: object) -> None:
        """Let it run again, if `who` has stopped it."""
        with self._lock:
            if self._stopped_by == {who}:
                self._gone += time.monotonic() - self._stopped_at
            self._stopped_by.discard(who)


def stands(clock: Callable[[], float]) -> bool:
    """Return whether a clock stands still now, because a person logs in."""
    return isinstance(clock, StoppableClock) and clock.stands


class PendingRequest(msgspec.Struct, frozen=True, eq=False):
    """A request under way: what a waiter's caller needs to give it up."""

    transport: ClientTransport
    spec: RequestSpec
    request_id: RequestId


class ConnectionErrors:
    """Words what went wrong with the requests of one connection."""

    def __init__(self, state: ClientState, machine: ClientConnection[Waiter]) -> None:
        """Of the connection of `machine`."""
        self._state = state
        self._machine = machine
        self._has_complained = False

    def gone(self, ending: ProcessEnd, delivery: Delivery, phase: Phase) -> ConnectionLost:
        """Return the error for a connection that has ended."""
        return ConnectionLost(
            how_it_ended(ending, started=self._machine.has_received),
            self._state.origin,
            phase=phase,
            delivery=delivery,
            ending=ending,
            hint=hint_for_ending(ending, self._state.origin.command),
        )

    def timeout(self, ending: ProcessEnd, event: Expired[Any]) -> CallTimeout:
        """Return the error for a request that has expired."""
        pending_request: PendingRequest = event.owner.pending_request
        spec = pending_request.spec
        seconds = event.seconds
        total = spec.left == seconds  # the end of a time that began with an earlier attempt or round
        if total:
            seconds = total_of(self._state, spec)
        if event.with_progress and not total:
            missing = f"no response for {seconds:g} s in all, though it showed progress"
        elif total or not spec.cancellable or spec.phase != "call":
            missing = f"no response for {seconds:g} s" + " in all" * total
        else:
            missing = f"no response or progress for {seconds:g} s"
        return CallTimeout(
            f"{shown(spec)} timed out: {missing}",
            self._state.origin,
            phase=pending_request.spec.phase,
            delivery="maybe_sent",
            ending=ending,
            seconds=seconds,
            hint=hint_for_silence(
                ending, starting=not self._machine.has_received, at_url=self._state.origin.url is not None
            ),
        )

    def log_forbidden(self, event: ForbiddenRequest) -> None:
        """Log a request that was dropped: the first of a connection as a warning, the others in detail only."""
        import logging

        level = logging.DEBUG if self._has_complained else logging.WARNING
        self._has_complained = True
        logging.getLogger("linkspan").log(
            level,
            "%s sent the request %r, which servers of protocol version %s must not send; it was dropped",
            self._state.origin.server,
            event.method[:80],
            self._machine.agreement.revision.date,
        )


def for_phase(error: ClientError, waiter: Waiter) -> ClientError:
    """Return an error for one of those that wait: with the phase of its request."""
    copy = error.again()
    pending_request: PendingRequest | None = waiter.pending_request
    if pending_request is not None and copy.phase != "authorize":
        copy.phase = pending_request.spec.phase
    return copy


class ClientTransport:
    """What all transports share.

    A transport overrides `flush` and `close`, calls `receive_data` with what arrives and `end` when the connection is gone.
    The reactor watches it from `watch` to `unwatch`, and calls the three methods below "The reactor" in its own thread.
    May be overridden, with a call of `super()`: `submit` to refuse or to add headers, `give_up` and `discard` to close what
    carries one request, `agree` and `settle` to act on the agreement, `end` to give back what the transport holds.
    Instead of: `fall_back` for an older transport, `ending` for what is known of a process.
    """

    def __init__(self, owner: TransportOwner, state: ClientState) -> None:
        """Prepare to connect; nothing is opened yet."""
        self.lock = threading.RLock()
        self.state = state
        self.machine: ClientConnection[Waiter] = ClientConnection(
            before_agreement(LATEST, state.options.profile),
            clock=time.monotonic,
            limits=state.options.limits,
            input_timeout=state.options.timeouts.input,
        )
        self.alive = True
        self.agreed = False
        self.opened_at = time.monotonic()
        self.recorder = _SafeRecorder(owner.recorder) if owner.recorder is not None else None
        self.data_to_send: Callable[[], bytes] = (
            self.machine.data_to_send if self.recorder is None else self._recorded_data_to_send
        )
        """Returns what must go to the server now, and forgets it. With the lock."""
        self._owner = owner
        self._reactor = reactor()
        self._stray: list[str] = []
        self._errors = ConnectionErrors(state, self.machine)
        self.ended = threading.Event()
        """Set when the owner and the waiters know that the connection is gone; `alive` is false before that."""
        self._closed = False
        self._ended = False

    # What callers use.

    def submit(self, spec: RequestSpec, waiter: Waiter) -> None:
        """Send a request; all that it results in goes to `waiter`. `flush` must follow. Raises: ConnectionLost."""
        timeout = self.state.options.timeouts.list if spec.timeout is None else spec.timeout
        total = spec.left
        if total is None:
            total = max(timeout, self.state.options.timeouts.total) if spec.total is None else spec.total
        with self.lock:
            if not self.alive:
                raise self._errors.gone(self.ending(), "not_sent", spec.phase)
            request_id = self.machine.send_request(
                spec.method,
                spec.params,
                waiter,
                timeout=timeout,
                total=total,
                meta=spec.meta,
                agreement=spec.agreement,
                envelope=spec.envelope,
                watches=spec.on_progress is not None,
                cancellable=spec.cancellable,
            )
            waiter.pending_request = PendingRequest(self, spec, request_id)
        self._reactor.expect(time.monotonic() + (timeout if timeout < total else total))

    def give_up(self, request_id: RequestId, reason: str | None, *, report: bool = False) -> None:
        """Cancel a request and tell the server; with `report` its waiter gets a `CallStopped`."""
        with self.lock:
            waiter = self.machine.cancel(request_id, reason)
        self.flush()
        if report and waiter is not None:
            error = CallStopped(
                f"the call was stopped{f': {reason}' if reason else ''}", self.state.origin, delivery="maybe_sent"
            )
            deliver([(waiter, error)])

    def discard(self, request_id: RequestId) -> None:
        """Let go of a request of which nothing is wanted any more, whatever it may begin at the server."""
        self.give_up(request_id, None)

    def notify(self, method: str, params: bytes | None = None) -> None:
        """Tell the server something."""
        with self.lock:
            self.machine.send_notification(method, params)
        self.flush()

    def answer(self, request_id: RequestId, result: bytes) -> None:
        """Answer a question of the server."""
        with self.lock:
            self.machine.answer(request_id, result)
        self._keep_deadlines()
        self.flush()

    def refuse(self, request_id: RequestId, code: int, message: str) -> None:
        """Answer a question of the server with an error."""
        with self.lock:
            self.machine.refuse(request_id, code, message)
        self._keep_deadlines()
        self.flush()

    def fail_call(self, question: RequestId, error: ClientError) -> None:
        """End the call for whose sake the server asks, if it is known which that is, and tell the server."""
        with self.lock:
            found = self.machine.asked_for(question)
        if found is not None:
            request_id, waiter = found
            self.give_up(request_id, "the client's handler failed")
            deliver([(waiter, error)])

    def _keep_deadlines(self) -> None:
        """Make sure that the reactor knows the next deadline: that of a call, which a question of the server had put off, or,
        where the server is in this process, that of its question.
        """
        if (due := self.next_timeout()) is not None:
            self._reactor.expect(due)

    def agree(self, agreement: Agreement) -> None:
        """From now on speak by `agreement`."""
        self.machine.agreement = agreement
        self.agreed = True

    def settle(self) -> None:
        """Wait, briefly, until the server can say something by itself. In the thread that connects."""

    def restored(self, error: ClientError) -> None:
        """Signal that a stream on which the server sends messages of its own was lost, and is open again."""
        self._owner.stream_restored(self, error)

    def fall_back(self, reason: Exception, timeout: float) -> None:
        """Use an older transport from now on; most have none. Raises: `reason`."""
        raise reason

    @abstractmethod
    def flush(self, here: asyncio.AbstractEventLoop | None = None) -> None:
        """Send what there is to send, without blocking; `here`, the loop of this thread, may read the responses."""
        raise NotImplementedError

    def wait(self, waiter: ThreadWaiter) -> Any:
        """Return the next item of `waiter`; meanwhile this thread may read for all."""
        return waiter.get()

    @abstractmethod
    def close(self) -> None:
        """End the connection and whatever it has started; wait until that is done. Any thread, any number of times."""
        raise NotImplementedError

    # The reactor.

    def next_timeout(self) -> float | None:
        """Return when something is due."""
        with self.lock:
            return self.machine.next_timeout()

    def handle_timeout(self, now: float) -> None:
        """Give up late requests."""
        self.expire(now)

    def handle_readable(self, fd: int) -> None:
        """Read from a descriptor that was watched; by default there is none."""

    # What transports use.

    def watch(self, *fds: int) -> None:
        """Let the reactor watch this transport, and its descriptors, from now on."""
        self._reactor.call(lambda: self._reactor.watch(self, fds))

    def unwatch(self) -> None:
        """Let the reactor forget this transport."""
        self._reactor.call(lambda: self._reactor.forget(self))

    def _recorded_data_to_send(self) -> bytes:
        data = self.machine.data_to_send()
        if self.recorder is not None and data:
            self.recorder.client(data)
        return data

    def receive_data(self, data: bytes, here: asyncio.AbstractEventLoop | None = None) -> None:
        """Understand bytes from the server, and hand out what they say; `here` is the loop of this thread."""
        if self.recorder is not None:
            self.recorder.server(data)
        with self.lock:
            events = self.machine.receive_data(data)
        self.receive(events, here)
        if self.machine.replied:
            self.flush()

    def receive(self, events: list[ClientStreamEvent[Waiter]], here: asyncio.AbstractEventLoop | None = None) -> None:
        """Hand out what the machine has understood. Without the lock."""
        deliveries: _Deliveries = []
        for event in events:
            match event:
                case ResponseReceived():
                    deliveries.append((event.owner, event.message))
                case Progressed():
                    deliveries.append((event.owner, event.progress))
                case Expired():
                    deliveries.append((event.owner, self._errors.timeout(self.ending(), event)))
                case InvalidMessage():
                    spec = event.owner.pending_request.spec
                    problem = f"invalid response to {spec.method}: {event.problem}"
                    error = InvalidResponse(problem, self.state.origin, phase=spec.phase, delivery="answered")
                    deliveries.append((event.owner, error))
                case UnexpectedOutput():
                    self._owner.stderr_received(self, f"(stdout) {event.text}\n")
                    if len(self._stray) < _STRAY_KEPT:
                        self._stray.append(event.text)
                case ServerRequest():
                    self._keep_deadlines()
                    self._owner.request_received(self, event.request)
                case ForbiddenRequest():
                    self._errors.log_forbidden(event)
                case CancellationReceived():
                    self._keep_deadlines()  # the handler may go on; its answer will be dropped
                case NotificationReceived():
                    self._owner.notification_received(self, event.message, event.owner)
        if deliveries:
            deliver(deliveries, here)

    def expire(self, now: float) -> list[RequestId]:
        """Give up what was not answered in time; return which requests that were."""
        with self.lock:
            due = self.machine.next_timeout()
            events = self.machine.handle_timeout(now) if due is not None and due <= now else []
        if events:
            self.receive(events)
            self.flush()
        return [each.owner.pending_request.request_id for each in events if isinstance(each, Expired)]

    def end(self, *, by_us: bool = False, error: ClientError | None = None) -> None:
        """Record that the connection is gone, and pass the reason, `error`, to all that still wait."""
        with self.lock:
            if self._ended:
                return
            self._ended = True
            self.alive = False
            waiters = self.machine.abandon()
        if by_us or self._closed:
            error = ClientClosed("the client was closed", self.state.origin, delivery="maybe_sent")
        elif error is None:
            error = self._errors.gone(self.ending(), "maybe_sent", "call")
        deliver([(waiter, for_phase(error, waiter)) for waiter in waiters])
        if not by_us and not self._closed:
            self._owner.connection_lost(self, error)
        self.ended.set()

    def ending(self) -> ProcessEnd:
        """Return what is known of the server's process."""
        return ProcessEnd(stray=tuple(self._stray))


def how_it_ended(ending: ProcessEnd, *, started: bool) -> str:
    """Return one sentence about how a server process ended."""
    when = "" if started else " before it sent a message"
    if ending.signal is not None:
        return f"the server was ended by {ending.signal}{when}"
    if ending.exit_code is not None:
        return f"the server ended with exit status {ending.exit_code}{when}"
    return f"the server closed the connection{when}"
