"""The server's end of one duplex byte stream: bytes in, calls out; values in, bytes out. No I/O, no clock of its own.

Both eras share the stream: an envelope in a request's `_meta` means modern, none means the handshake session. Every request
is answered exactly once or cancelled. Not thread-safe: the driver holds the lock of the ports around what it calls but `finish`
and `fail`, which take it themselves once the author's code in them has run; no other method runs any of that. What the server
behind it calls, from any thread, takes the lock itself.
Spec: https://modelcontextprotocol.io/specification/2026-07-28/basic/transports.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Final

from msgspec import Raw, structs

from linkspan.core.call import (
    BUSY,
    CANCELLED,
    NO_PORTS,
    NO_REQUEST,
    NOT_ASKABLE,
    NOTHING_TO_LISTEN_ON,
    OWN_ANSWER,
    Background,
    Call,
    CallCancelled,
    CallReady,
    ConnectionServer,
    Delivery,
    Event,
    Hook,
    Ports,
    encode_refusal,
    method_not_found,
    most_urgent,
    not_in_a_batch,
    not_initialized,
    respond,
)
from linkspan.core.params import AnyParams, AnyRequest, HasMeta, ToolCall, read_call, read_meta, read_params
from linkspan.core.waiting import Batches, HeldRequests, ServerChange, Subscriptions, goodbye, untagged
from linkspan.errors import INVALID_REQUEST, LocalProtocolError, RemoteProtocolError
from linkspan.revisions.modern import NO_ENVELOPE, Envelope, read_envelope
from linkspan.revisions.neutral import (
    ANSWERED_BY_CONNECTIONS,
    NO_FACTS,
    OWN_METHODS,
    InputRequired,
    Outcome,
    Request,
    TransportInfo,
    stay,
)
from linkspan.revisions.stepdown import encode_as
from linkspan.types.base import ABSENT, JSON, Wire
from linkspan.types.messages import CancelledParams, InputParams, ListenParams
from linkspan.wire.framing import LineReader, TooLong
from linkspan.wire.jsonrpc import (
    Batch,
    ErrorResponse,
    Malformed,
    Message,
    Notification,
    RequestId,
    Response,
    RpcRequest,
    decode,
    encode_error,
    encode_notification,
)
from linkspan.wire.values import Limits

if TYPE_CHECKING:
    from linkspan.revisions.legacy import LegacySession

_CLOSING = "the server is closing"
_NO_INPUT: Final = InputParams()
_MEMORABLE: Final = 2048
"""Bytes of an envelope that is kept."""
_data_of: Final[Callable[[Delivery], bytes | None]] = attrgetter("data")


class ServerConnection:
    """The machine. Feed it bytes, run the calls it hands out, send what it has to send."""

    def __init__(
        self,
        server: ConnectionServer,
        *,
        clock: Callable[[], float],
        random: Callable[[int], bytes],
        back_channel: bool = True,
        one_shot: bool = False,
        ports: Ports = NO_PORTS,
    ) -> None:
        """Open a connection to `server`.

        `clock` gives seconds that never go back, `random(n)` gives n unguessable bytes. With `back_channel` the
        client can be asked in the handshake era.
        `one_shot` serves single messages that come without a handshake, and batches of them (`handle_json`).
        """
        self._server = server
        self._decoders = server.decoders
        self.lifespan = server.lifespan
        self.limits: Limits = server.profile.limits
        self.served = server.profile.served
        self._clock = clock
        self._back_channel = back_channel
        self._one_shot = one_shot
        self._reader: LineReader | None = None
        self._legacy: LegacySession | None = None
        self._random = random
        self._subscriptions: Subscriptions | None = None
        self._in_flight: dict[RequestId, Request] = {}
        self._calls: dict[Call, None] = {}
        self._unanswered = 0  # of these calls, how many no client waits for
        self._streams = self._modern = self._closed = False
        self._held: HeldRequests | None = None
        self._line_bytes = 0
        self._batches: Batches | None = None
        self._out: list[Delivery] = []
        self._changes: dict[object, Delivery] = {}  # notifications that wait until earlier output is sent
        self._deliver: Callable[[Delivery], object] = ports.send or self._out.append
        self._facts = ports.facts
        self._meta, self._envelope = ABSENT, NO_ENVELOPE
        self._ports = ports
        self.lock = ports.lock

    # What the driver calls.

    def receive_data(self, data: bytes) -> list[Event]:
        """Take bytes from the stream, in any chunks. Answers that need no author's code are in `data_to_send` afterwards."""
        if self._reader is None:
            self._reader = LineReader(self.limits.max_line_bytes)
            self._streams = True
        return self._receive_lines(self._reader.receive_data(data))

    def receive_eof(self) -> list[Event]:
        """Receive the end of the input."""
        return self._receive_lines(self._reader.receive_eof()) if self._reader is not None else []

    def receive(self, message: ToolCall | Message | Batch, facts: TransportInfo = NO_FACTS) -> list[Event]:
        """Take a message that is decoded already, and what the transport knows of it."""
        self._facts = facts
        events: list[Event] = []
        if type(message) is ToolCall or type(message) is RpcRequest:
            self._receive_request(message, events)
        else:
            self._receive(message, events)
        return events

    def receive_message(self, data: bytes) -> list[Event]:
        """Take one whole message or batch that some other framing delivered."""
        return self._receive_lines([data if len(data) <= self.limits.max_line_bytes else TooLong.of(data)])

    def cancel(self, request_id: RequestId, reason: str | None) -> list[Event]:
        """End a request without a response."""
        if (request := self._in_flight.pop(request_id, None)) is None:
            return []
        events: list[Event] = []
        request.cancel(reason)
        self._end_observation(request, CANCELLED, events)
        if self._subscriptions is not None:
            self._subscriptions.remove(request_id)
            self._changes = {key: each for key, each in self._changes.items() if each.about != request_id}
        if self._legacy is not None:
            self._send_all(self._legacy.forget(request_id, reason or "cancelled"), request_id)
        self._send(Delivery(None, request_id, True))
        if (call := next((each for each in self._calls if each.request is request), None)) is not None:
            self._forget(call)
            events.append(CallCancelled(call))
        if self._held is not None:
            self._held.discard(request)
            self._release(self._held, events)
        return events

    def finish(self, call: Call, value: object) -> list[Event]:
        """Take the value of a call's function: encode the result without the lock, and send it under the lock.

        Raises: LocalProtocolError if the call has already ended.
        """
        return self._settle(call, call.finish(value))

    def fail(self, call: Call, error: BaseException) -> list[Event]:
        """Take the exception of a call's function, as `finish` takes a value."""
        return self._settle(call, call.fail(error))

    def _settle(self, call: Call, outcome: Outcome) -> list[Event]:
        request = call.request
        later = outcome is OWN_ANSWER or (type(outcome) is InputRequired and not request.peer.revision.asks_in_results)
        response = (
            None if later or request.is_notification or request.cancelled else respond(self._server, request, outcome)
        )
        events: list[Event] = []
        with self.lock:
            is_known = call in self._calls
            if is_known:
                del self._calls[call]
                self._unanswered -= request.is_notification
            if request.is_notification or request.cancelled:
                self._end_observation(request, CANCELLED, events)
            elif not is_known:
                raise LocalProtocolError(f"the call for request {request.id!r} has already ended")
            elif response is not None:
                self._end(response)
            elif isinstance(outcome, InputRequired):
                self._ask(request, outcome, events)
            else:
                self._answer(request, partial(self._own, request), events)
            if self._held is not None:
                self._release(self._held, events)
        return events

    def _forget(self, call: Call) -> None:
        """Count a call no longer that was counted."""
        del self._calls[call]
        self._unanswered -= call.request.is_notification

    def data_to_send(self) -> bytes:
        """Return what must go to the client now, and forget it."""
        if self._changes and not self._ports.sending():
            self._out += self._changes.values()
            self._changes.clear()
        if not self._out:
            return b""
        messages = [*filter(None, map(_data_of, self._out)), b""]
        self._out.clear()
        return b"\n".join(messages)

    def messages_to_send(self) -> list[bytes]:
        """Return what `data_to_send` does, message by message, for framings without `sending`: changes that wait for it stay."""
        messages = list(filter(None, map(_data_of, self._out)))
        self._out.clear()
        return messages

    def next_timeout(self) -> float | None:
        """Return when `handle_timeout` wants to be called, by the constructor's clock."""
        return self._legacy.deadline() if self._legacy is not None else None

    def handle_timeout(self, now: float) -> list[Event]:
        """End what has waited too long for the client."""
        events: list[Event] = []
        for request, outcome, messages in self.session.expire(now):
            self._reply(request, outcome, messages, events)
        return events

    @property
    def session(self) -> LegacySession:
        """What was agreed in the handshake, if there was one. A connection without one never makes it."""
        if self._legacy is None:
            from linkspan.revisions.legacy import LegacySession

            lasting = self._back_channel or self._one_shot
            prefix = self._ports.question_prefix
            self._legacy = LegacySession(self._server, random=self._random, lasting=lasting, question_prefix=prefix)
        return self._legacy

    @property
    def background(self) -> Background | None:
        """What the server does besides answering."""
        return self._server.background

    @property
    def running(self) -> int:
        """Calls that were handed out and have not ended, hooks too."""
        return len(self._calls)

    @property
    def owes_answers(self) -> bool:
        """Whether a request waits for its answer: it runs, its client is asked something, or it is a subscription."""
        return bool(self._in_flight)

    def is_running(self, request_id: RequestId) -> bool:
        """Whether a request waits for its answer."""
        return request_id in self._in_flight

    def serves(self, message: Message) -> bool:
        """Whether a message asks for something to be run: a request, or a notification that the author serves."""
        custom = self._server.custom_methods()
        return isinstance(message, RpcRequest) or (isinstance(message, Notification) and message.method in custom)

    @property
    def has_room(self) -> bool:
        """Whether fewer calls run than the limits allow. On a byte stream further requests wait for room."""
        return len(self._calls) < self.limits.max_running

    @property
    def accepting(self) -> bool:
        """Whether the driver should read on; not while the author's hooks lag so far behind that they pile up."""
        return self._unanswered < 2 * self.limits.max_running

    def close(self) -> list[Event]:
        """Say goodbye: end the subscriptions, withdraw questions, cancel what still runs."""
        events: list[Event] = []
        held, self._held = self._held, None  # first, or they would begin as others end
        while held is not None and (request := held.take()) is not None:
            if not request.is_notification:
                events += self.cancel(request.id, _CLOSING)
        self._changes.clear()
        subscriptions, self._subscriptions = self._subscriptions, None
        for request in subscriptions.requests() if subscriptions is not None else ():
            self._reply(request, goodbye(request), [], events)
        for request_id in list(self._in_flight):
            events += self.cancel(request_id, _CLOSING)
        for call in [each for each in self._calls if each.request is not NO_REQUEST]:  # custom notifications
            call.request.cancel(_CLOSING)
            self._forget(call)
            events.append(CallCancelled(call))
        if self._ports.session is not None and not self._closed:
            self._hand_out(self._server.session_ended(self._ports.session), events)
        self._closed = True
        return events

    # What the server behind it calls.

    @property
    def is_listened_to(self) -> bool:
        """Whether the client listens for changes, or was promised notifications of them. Needs no lock."""
        return bool(self._subscriptions) or (self._legacy is not None and self._legacy.listens_for("resources", None))

    def watched_resources(self) -> set[str]:
        """Return the URIs of the resources that the client subscribed to."""
        with self.lock:
            legacy = self._legacy.subscriptions if self._legacy is not None else ()
            return {*legacy, *(self._subscriptions.uris() if self._subscriptions is not None else ())}

    def listened_for(self, member: str) -> list[JSON]:
        """Return what the client listens for under a member that an extension has added."""
        with self.lock:
            return [] if self._subscriptions is None else list(self._subscriptions.values(member))

    def listeners(self, change: ServerChange) -> dict[RequestId | None, Request]:
        """Return the requests that subscribed to a change, by id; under None one that stands for the session, if it did."""
        with self.lock:
            found = {} if self._subscriptions is None else self._subscriptions.listeners(change)
            if self._legacy is not None and self._legacy.listens_for(change.kind, change.uri):
                stands_for = self._ports.session
                found[None] = Request(
                    0, "", None, self._legacy.peer, facts=self._facts, is_notification=True, session=stands_for
                )
        return found

    def notify(self, change: ServerChange, to: Collection[RequestId | None] | None = None) -> bool:
        """Notify the client of a change: all `listeners`, or those in `to`. Return whether there was one."""
        with self.lock:
            found = [] if self._subscriptions is None else self._subscriptions.tagged(change, to)
            legacy = self._legacy
            if legacy is not None and (to is None or None in to) and legacy.listens_for(change.kind, change.uri):
                found.insert(0, Delivery(untagged(change)))
            for each in found:
                if self._ports.sending():
                    key = (each.about, change.method, change.uri, change.value)
                    self._changes.pop(key, None)  # it goes behind what comes meanwhile, which may be older
                    self._changes[key] = each
                else:
                    self._deliver(each)
        if found:
            self._ports.on_output()
        return bool(found)

    # One message.

    def _receive_lines(self, lines: Iterable[bytes | TooLong]) -> list[Event]:
        events: list[Event] = []
        max_depth = self.limits.max_depth
        for line in lines:
            if type(line) is bytes:
                self._line_bytes = len(line)
                if (call := read_call(line, max_depth)) is not None:
                    self._receive_request(call, events)
                    continue
            self._receive(decode(line, self.limits), events)
        return events

    def _receive(self, message: ToolCall | Message | Batch, events: list[Event]) -> None:
        match message:
            case RpcRequest() | ToolCall():
                self._receive_request(message, events)
            case Notification():
                self._receive_notification(message, events)
            case Response():
                self._reissue(self.session.receive_answer(message), events)
            case ErrorResponse():
                refused = self.session.receive_refusal(message)
                if isinstance(refused, tuple):
                    self._reply(*refused, events)
                else:
                    self._reissue(refused, events)
            case Malformed():
                asked = self._legacy if message.kind != "request" else None
                if asked is not None and (failed := asked.receive_unreadable(message.id, message.message)) is not None:
                    self._reply(*failed, events)
                else:
                    self._reject(message.reply_id, message.code, message.message)
            case Batch():
                self._line_bytes //= len(message.messages)
                self._receive_batch(message, events)

    def _receive_batch(self, batch: Batch, events: list[Event]) -> None:
        session = self.session
        allowed = session.revision.batching if session.negotiated else self._one_shot
        if not allowed:
            self._reject(None, INVALID_REQUEST, "Invalid Request: batches are not part of this protocol revision")
            return
        if self._batches is None:
            self._batches = Batches()
        self._batches.begin()
        for message in batch.messages:
            if isinstance(message, RpcRequest) and message.method == "initialize":
                self._reject(message.id, INVALID_REQUEST, "Invalid Request: initialize must not be part of a batch")
            else:
                self._receive(message, events)
        self._deliver(self._batches.end())

    def _receive_request(self, rpc: AnyRequest, events: list[Event]) -> None:
        if rpc.id in self._in_flight:
            self._reject(rpc.id, INVALID_REQUEST, "Invalid Request: a request with this id is still running")
            return
        if self._batches is not None:
            self._batches.expect(rpc.id)
        try:
            try:
                params = (
                    rpc.params if isinstance(rpc, ToolCall) else read_params(rpc.method, rpc.params, self._decoders)
                )
                meta = params.meta
                envelope = self._envelope if meta == self._meta else read_envelope(meta, self.served)
                if envelope is not self._envelope and envelope.progress_token is None and len(meta) < _MEMORABLE:
                    self._meta, self._envelope = Raw(bytes(meta)), envelope  # the next one nearly always has the same
            except RemoteProtocolError as error:
                self._refuse_unread(rpc, error, events)
                return
            peer, check = envelope.peer, self._ports.check
            if check and (wrong := check(self._facts, rpc, params, peer, None, self._server.header_plan)):
                self._refuse(rpc, wrong, events)
            elif peer is not None and self._batches is not None and self._batches.receiving:
                self._refuse_unread(rpc, not_in_a_batch(peer), events)
            else:
                self._begin_request(rpc, params, envelope, events)
        except Exception as error:  # a mistake of ours or the author's must not end the connection
            lost = Request(rpc.id, rpc.method, rpc.params, self.session.peer)
            self._fail_later(lost, error, events)

    def _refuse_unread(self, rpc: AnyRequest, error: RemoteProtocolError, events: list[Event]) -> None:
        peer, error = most_urgent(rpc, error, self._server, self._ports.check, self._facts)
        self._modern = self._modern or (peer is not None and self._streams)
        self._refuse(rpc, error, events)

    def _refuse(self, rpc: AnyRequest, error: RemoteProtocolError, events: list[Event]) -> None:
        self._send(encode_refusal(rpc.id, error, dispatched=False))
        request = Request(rpc.id, rpc.method, rpc.params, NO_REQUEST.peer, facts=self._facts)
        self._hand_out(self._server.observe(request, error, 0.0), events)

    def _begin_request(self, rpc: AnyRequest, params: HasMeta, envelope: Envelope, events: list[Event]) -> None:
        method, peer, log_level = rpc.method, envelope.peer, envelope.log_level
        asked, is_modern, close_stream = _NO_INPUT, peer is not None, self._ports.close_stream
        is_agreed = True
        if peer is None:
            session = self.session
            peer, log_level, is_agreed = session.peer, session.log_level, session.negotiated
        else:
            self._modern = self._streams
            if isinstance(params, InputParams):  # a session has its own way to ask
                asked = params
        request = Request(
            rpc.id,
            method,
            rpc.params if type(params) is AnyParams else params,
            peer,
            params.meta,
            envelope.progress_token,
            None,
            log_level,
            asked.input_responses,
            asked.request_state,
            self._facts,
            self._emit,
            stay if close_stream is None else partial(close_stream, rpc.id),
            self._ports.session,
        )
        if not is_agreed and self._needs_handshake and method not in ("initialize", "ping"):
            self._answer(request, partial(not_initialized, self.served), events)
        elif method not in peer.revision.requests and not self._server.adds(method, peer.revision):
            self._answer(request, partial(method_not_found, method), events)
        elif method in ANSWERED_BY_CONNECTIONS and not (is_modern and method in OWN_METHODS):
            self._begin_own(request, events)
        elif self._streams and len(self._calls) >= self.limits.max_running:
            self._hold(request, events)
        else:
            self._begin(request, events)

    def _begin_own(self, request: Request, events: list[Event]) -> None:
        """Answer one of the connection's own methods, now or after what the server must run before it."""
        first = self._server.before(request)
        if first is None or not self.has_room:
            self._answer(request, partial(self._own, request) if first is None else lambda: BUSY, events)
        else:
            self._run(first, events)

    def _own(self, request: Request) -> Outcome | None:
        """Answer one of the connection's own methods; None where a subscription has begun."""
        params = request.params
        if request.method == "server/discover":
            return self._server.discover()
        if not isinstance(params, ListenParams):
            return self.session.answer(request.method, params, request.shown)
        if self._one_shot:
            return NOTHING_TO_LISTEN_ON
        if self._subscriptions is None:
            self._subscriptions = Subscriptions(self.limits.max_subscriptions)
        refusal, acknowledgement = self._subscriptions.add(request, params, self._server)
        if refusal is not None:
            return refusal
        self._in_flight[request.id] = request
        self._deliver(Delivery(acknowledgement, request.id))
        return None

    @property
    def _needs_handshake(self) -> bool:
        """Whether a request without an envelope is refused until there was a handshake.

        It is if no revision with a handshake is served, the author insists on one, or this stream has had modern requests.
        """
        if not self.served.with_handshake:
            return True
        return not self._one_shot and (self._modern or self._server.profile.require_initialized)

    def _answer(self, request: Request, answer: Callable[[], Outcome | None], events: list[Event]) -> None:
        """Answer a request without the author's code. None means that the answer comes later."""
        started = self._clock()
        outcome = answer()
        error = outcome if isinstance(outcome, RemoteProtocolError) else None
        if outcome is not None:
            if request.method == "initialize" and error is None:  # answered in the revision that was just agreed on
                request = structs.replace(request, peer=self.session.peer)
            self._end(respond(self._server, request, outcome, dispatched=False))
        self._hand_out(self._server.observe(request, error, self._clock() - started), events)

    def _hand_out(self, hook: Callable[[], object] | None, events: list[Event]) -> None:
        """Have the driver run a hook for which no client waits."""
        if hook is not None:
            self._run(Hook(NO_REQUEST, hook), events)

    def _fail_later(self, request: Request, error: Exception, events: list[Event]) -> None:
        """Have the driver report an exception, and answer with the error that the client receives."""
        self._run(Hook(request, partial(self._server.unsendable, request, error)), events)

    def _run(self, call: Call, events: list[Event]) -> None:
        request = call.request
        self._calls[call] = None
        if request.is_notification:
            self._unanswered += 1
        else:
            self._in_flight[request.id] = request
        events.append(CallReady(call))

    def _begin(self, request: Request, events: list[Event]) -> None:
        step = self._server.begin(request)
        if isinstance(step, Call):
            self._run(step, events)
        elif request.is_notification:
            return
        elif type(step) is InputRequired and not request.peer.revision.asks_in_results:
            self._ask(request, step, events)
        else:
            self._end(respond(self._server, request, step))

    def _hold(self, request: Request, events: list[Event]) -> None:
        """Keep a request until there is room. Where too much is kept already it is refused, and a notification dropped."""
        if self._held is None:
            self._held = HeldRequests(self.limits.max_held_bytes)
        if not self._held.add(request, self._line_bytes):
            if not request.is_notification:
                self._answer(request, lambda: BUSY, events)
        elif not request.is_notification:
            self._in_flight[request.id] = request

    def _release(self, held: HeldRequests, events: list[Event]) -> None:
        """Begin what is held, the oldest first, as far as there is room."""
        while self.has_room:
            if (request := held.take()) is None:
                self._held = None
                return
            self._begin(request, events)

    # Notifications and answers from the client.

    def _receive_notification(self, message: Notification, events: list[Event]) -> None:
        if message.method == "notifications/cancelled":
            with suppress(RemoteProtocolError):
                params = read_params(message.method, message.params)
                if isinstance(params, CancelledParams) and params.request_id is not None:
                    events += self.cancel(params.request_id, params.reason)
        elif message.method == "notifications/initialized":
            self.session.initialized()
        elif message.method in self._server.custom_methods():
            self._receive_custom(message, events)

    def _receive_custom(self, message: Notification, events: list[Event]) -> None:
        """Serve a custom notification; one that comes too early, or with a wrong envelope, is ignored (MSG-4)."""
        meta = read_meta(message.params)
        try:
            peer = read_envelope(meta, self.served).peer
        except RemoteProtocolError:
            return
        if peer is None and self._needs_handshake and not self.session.negotiated:
            return
        self._modern = self._modern or (peer is not None and self._streams)
        peer = peer or self.session.peer
        request = Request(
            0,
            message.method,
            message.params,
            peer,
            meta,
            facts=self._facts,
            session=self._ports.session,
            is_notification=True,
        )
        if self._streams and not self.has_room:
            self._hold(request, events)
        else:
            self._begin(request, events)

    def _reissue(self, request_id: RequestId | None, events: list[Event]) -> None:
        """Serve a request again once the client has answered all that it was asked."""
        if request_id is not None and (request := self.session.due(request_id)) is not None:
            del self._in_flight[request_id]
            self._begin(request, events)

    # The outcome of a request.

    def _ask(self, request: Request, outcome: InputRequired, events: list[Event]) -> None:
        if not self._back_channel:
            self._reply(request, NOT_ASKABLE, [], events)
            return
        try:
            messages = self.session.ask(request, outcome, self._clock())
        except Exception as error:  # the author's question cannot be encoded as JSON
            self._send_all(self.session.forget(request.id, "not askable"), request.id)
            self._fail_later(request, error, events)
            return
        if isinstance(messages, list):
            self._in_flight[request.id] = request
            self._send_all(messages, request.id)
            self._reissue(request.id, events)
        else:
            self._reply(request, messages, [], events)

    def _reply(self, request: Request, outcome: Outcome, withdrawals: list[bytes], events: list[Event]) -> None:
        """End a request that is in flight, and withdraw what the client is asked for it."""
        self._send_all(withdrawals, request.id)
        self._end_observation(request, outcome, events)
        self._end(respond(self._server, request, outcome))

    def _end_observation(self, request: Request, outcome: Outcome, events: list[Event]) -> None:
        """Report the end of a request to its observer, if it may have ended while it waited for the client."""
        for observer in request.take_observers():
            self._hand_out(partial(observer.end, request, outcome), events)

    # What goes out.

    def _end(self, response: Delivery) -> None:
        """End a request with its response, and withdraw what it has asked a handshake client."""
        request_id = response.about
        if self._in_flight and request_id is not None:
            self._in_flight.pop(request_id, None)
        if self._legacy is not None and request_id is not None:
            self._send_all(self._legacy.forget(request_id, "ended"), request_id)
        self._deliver(response if self._batches is None else self._batches.collect(response))

    def _reject(self, request_id: RequestId | None, code: int, message: str) -> None:
        """Answer what is no message. It has no place in a table, so it can disturb nothing, nor the request whose id it has."""
        session = self.session
        id_required = session.negotiated and session.revision.error_id_required
        data = encode_error(request_id, code, message, id_required=id_required)
        self._send(Delivery(data, final=True, error=code, dispatched=False))

    def _send(self, response: Delivery) -> None:
        self._deliver(response if self._batches is None else self._batches.collect(response))

    def _send_all(self, messages: list[bytes], about: RequestId) -> None:
        for message in messages:
            self._deliver(Delivery(message, about))

    def _emit(self, request: Request, method: str, params: Wire | Raw) -> None:
        """Send a notification of a running request, from whatever thread it runs in."""
        ports = self._ports
        with self.lock:
            if self._in_flight.get(request.id) is not request:
                return  # it has ended, or was cancelled; another request may have its id by now
            if ports.congested():
                return  # progress and logs may be lost on a client that does not read; answers never are
            revision = request.peer.revision
            if isinstance(params, Raw):  # the author's own, which no revision knows
                self._deliver(Delivery(encode_notification(method, bytes(params)), request.id))
            elif method in revision.server_notifications:
                message = encode_notification(method, encode_as(revision, params))
                self._deliver(Delivery(message, request.id))
        ports.on_output()
