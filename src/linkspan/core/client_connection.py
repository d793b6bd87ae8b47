"""The client's end of one duplex byte stream: requests in, bytes out; bytes in, answers out. No I/O, no clock of its own.

Every request ends exactly once: answered, expired, cancelled or abandoned. Answers without a pending request are
dropped (CAN-5). Not thread-safe: the driver holds a lock around each call.
Spec: https://modelcontextprotocol.io/specification/2026-07-28/basic/transports.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeAlias, TypeVar

import msgspec

from linkspan.core.pending_requests import PendingRequests
from linkspan.errors import INTERNAL_ERROR, INVALID_REQUEST
from linkspan.revisions.agreement import Agreement
from linkspan.types.messages import CancelledParams, ProgressParams
from linkspan.types.methods import MAY_ASK
from linkspan.wire.framing import LineReader, TooLong
from linkspan.wire.jsonrpc import (
    Batch,
    ErrorResponse,
    Malformed,
    Message,
    Notification,
    Remains,
    RequestId,
    Response,
    RpcRequest,
    decode,
    encode,
    encode_error,
    encode_notification,
    encode_request,
    encode_response,
    identify,
    unreadable,
)
from linkspan.wire.values import Limits

OwnerT = TypeVar("OwnerT")


class ResponseReceived(msgspec.Struct, Generic[OwnerT], frozen=True):
    """A request has its answer."""

    owner: OwnerT
    message: Response | ErrorResponse


class InvalidMessage(msgspec.Struct, Generic[OwnerT], frozen=True):
    """A request was answered with something that is not a valid answer."""

    owner: OwnerT
    problem: str


class Progressed(msgspec.Struct, Generic[OwnerT], frozen=True):
    """A request has come further."""

    owner: OwnerT
    progress: ProgressParams


class Expired(msgspec.Struct, Generic[OwnerT], frozen=True):
    """A request was not answered in time; the server has been asked to stop. `seconds` is the bound that was passed."""

    owner: OwnerT
    seconds: float
    with_progress: bool
    """Whether the server showed signs of life, so that only the bound on the whole call was passed."""


class ServerRequest(msgspec.Struct, frozen=True):
    """The server asks us something: it must be answered or refused."""

    request: RpcRequest


class ForbiddenRequest(msgspec.Struct, frozen=True):
    """A modern server sent a request, which only handshake servers may do: it was dropped and gets no answer (MSG-7)."""

    method: str


class CancellationReceived(msgspec.Struct, frozen=True):
    """The server does not want an answer to its request any more."""

    request_id: RequestId


class NotificationReceived(msgspec.Struct, frozen=True):
    """The server tells us something."""

    message: Notification
    owner: object = None
    """Who waits for the request that a log message belongs to; where that is not said, for the oldest call."""


class UnexpectedOutput(msgspec.Struct, frozen=True):
    """Something came that is no message: a print, most likely. `before_first` if no message had come before it."""

    text: str
    before_first: bool


ClientStreamEvent: TypeAlias = (
    ResponseReceived[OwnerT]
    | InvalidMessage[OwnerT]
    | Progressed[OwnerT]
    | Expired[OwnerT]
    | ServerRequest
    | ForbiddenRequest
    | CancellationReceived
    | NotificationReceived
    | UnexpectedOutput
)


_SHOWN = 300
"""Characters of a stray line that are kept."""
_SEARCHED = 512
"""Bytes of one in which an id is looked for."""
_progress = msgspec.json.Decoder(ProgressParams)
_cancelled = msgspec.json.Decoder(CancelledParams)


class ClientConnection(Generic[OwnerT]):
    """The machine. `OwnerT` is whatever the driver knows a request's caller by."""

    def __init__(
        self, agreement: Agreement, *, clock: Callable[[], float], limits: Limits, input_timeout: float
    ) -> None:
        """Speak by `agreement`; a request may bring another one, and the driver replaces it when more is known.

        `clock` gives seconds that never go back. `input_timeout`: for so many seconds in all, questions of the server stop the
        clock of a call; several that are open at the same time count once.
        """
        self.agreement = agreement
        self._clock = clock
        self._limits = limits
        self._reader = LineReader(limits.max_line_bytes)
        self._last_id = 0
        self._pending: PendingRequests[OwnerT] = PendingRequests(input_timeout)
        self._out: list[bytes] = []
        self.replied = False
        """Whether it has answered or refused requests of the server by itself, which must be sent now."""
        self.has_received = False
        """Whether any message has come."""
        self.sends_cancel = True
        """Whether a request is cancelled by a message. Over HTTP, in the modern era, closing its stream says it (CAN-3)."""

    # What the driver calls to speak.

    def send_request(
        self,
        method: str,
        params: bytes,
        owner: OwnerT,
        *,
        timeout: float,
        total: float,
        meta: bytes = b"",
        agreement: Agreement | None = None,
        envelope: bytes | None = None,
        watches: bool = False,
        cancellable: bool = True,
    ) -> int:
        """Send a request and return its id, which is its progress token too (a server may then show signs of life).

        It expires after `timeout` seconds without an answer or progress, and after `total` seconds in any case; both may be
        infinite for a request that stays open, such as a subscription.
        """
        self._last_id = request_id = self._last_id + 1
        if agreement is not None:
            self.agreement = agreement
        self._pending.add(
            request_id, owner, method, self._clock(), timeout, total, watches=watches, cancellable=cancellable
        )
        token = request_id if cancellable else None
        self._out.append(encode_request(request_id, method, self.agreement.params(params, token, meta, envelope)))
        return request_id

    def send_notification(self, method: str, params: bytes | None = None) -> None:
        """Tell the server something."""
        self._out.append(encode_notification(method, params))

    def cancel(self, request_id: RequestId, reason: str | None = None) -> OwnerT | None:
        """Give up a request and tell the server; return its owner, or None if it has ended already."""
        pending = self._pending.by_id.pop(request_id, None)
        if pending is None:
            return None
        if pending.cancellable and self.sends_cancel:
            params = CancelledParams(request_id=request_id, reason=reason)
            self.send_notification("notifications/cancelled", encode(params))
        return pending.owner

    def forget(self, request_id: RequestId) -> OwnerT | None:
        """End a request without notifying the server; return its owner, or None if it has ended already."""
        pending = self._pending.by_id.pop(request_id, None)
        return pending.owner if pending is not None else None

    def hold(self, request_id: RequestId) -> None:
        """Stop the clock of a request that waits for a person to log in."""
        self._pending.hold(request_id, self._clock())

    def go_on(self, request_id: RequestId) -> None:
        """Let the clock of a request run again."""
        self._pending.release(request_id, self._clock())

    def is_pending(self, request_id: RequestId) -> bool:
        """Return whether a request still waits for its answer."""
        return request_id in self._pending.by_id

    def answer(self, request_id: RequestId, result: bytes) -> None:
        """Answer a request of the server with an encoded result."""
        if self._pending.answered(request_id, self._clock()):
            self._out.append(encode_response(request_id, result))

    def refuse(self, request_id: RequestId, code: int, message: str) -> None:
        """Answer a request of the server with an error."""
        if self._pending.answered(request_id, self._clock()):
            self._out.append(encode_error(request_id, code, message))

    def askable(self) -> list[OwnerT]:
        """Return who waits for the calls that may ask, the oldest first."""
        return [each.owner for each in self._pending.by_id.values() if each.method in MAY_ASK]

    def asked_for(self, question: RequestId) -> tuple[RequestId, OwnerT] | None:
        """Return the request for whose sake the server asks: it came on its stream, or there is no other.

        None in doubt.
        """
        if question not in self._pending.questions:
            return None
        during = self._pending.questions[question]
        if during is None:
            askable = [each for each, pending in self._pending.by_id.items() if pending.method in MAY_ASK]
            during = askable[0] if len(askable) == 1 else None
        if during is None or (pending := self._pending.by_id.get(during)) is None:
            return None
        return during, pending.owner

    def abandon(self) -> list[OwnerT]:
        """End every request that is still open, because the stream has ended; return their owners."""
        return self._pending.abandon()

    def data_to_send(self) -> bytes:
        """Return what must go to the server now, and forget it."""
        if not self._out:
            return b""
        self._out.append(b"")
        data = b"\n".join(self._out)
        self._out = []
        self.replied = False
        return data

    def messages_to_send(self) -> list[bytes]:
        """Return the same as `data_to_send`, message by message, for other framings."""
        messages, self._out = self._out, []
        self.replied = False
        return messages

    # What the driver calls when something came.

    def receive_data(self, data: bytes) -> list[ClientStreamEvent[OwnerT]]:
        """Take bytes from the stream, in any chunks."""
        events: list[ClientStreamEvent[OwnerT]] = []
        for line in self._reader.receive_data(data):
            self._receive_line(line, events)
        return events

    def receive_message(self, data: bytes, answers: RequestId | None = None) -> list[ClientStreamEvent[OwnerT]]:
        """Take one whole message, or batch, that some other framing delivered.

        Where it came as the answer to one request, `answers` is its id: then it can end no other, and an error without an
        id is meant for this one.
        """
        events: list[ClientStreamEvent[OwnerT]] = []
        message = decode(data, self._limits)
        for each in message.messages if isinstance(message, Batch) else (message,):
            if answers is not None and isinstance(each, Response | ErrorResponse | Malformed):
                if each.id not in (None, answers) or type(each.id) is bool:
                    continue
                if each.id is None and not isinstance(each, Malformed):
                    each = msgspec.structs.replace(each, id=answers)
            self._receive(each, data, events, answers)
        return events

    def receive_eof(self) -> list[ClientStreamEvent[OwnerT]]:
        """Record that the server will send no more. What is pending stays so until `abandon`.

        A response truncated by the end of the input is discarded.
        """
        events: list[ClientStreamEvent[OwnerT]] = []
        for line in self._reader.receive_eof():
            if isinstance(line, TooLong) or not _is_cut(line, self._limits):
                self._receive_line(line, events)
        return events

    @property
    def pending(self) -> int:
        """Requests that have not ended."""
        return len(self._pending.by_id)

    def next_timeout(self) -> float | None:
        """Return when `handle_timeout` wants to be called, by the constructor's clock."""
        return self._pending.next_timeout()

    def handle_timeout(self, now: float) -> list[ClientStreamEvent[OwnerT]]:
        """Give up the requests whose time is over. While the server waits for our user, the clock stands still (CAN-9)."""
        events: list[ClientStreamEvent[OwnerT]] = []
        for request_id, pending, seconds in self._pending.expired(now):
            self.cancel(request_id, "timed out")
            events.append(Expired(pending.owner, seconds, pending.progressed))
        return events

    # One message.

    def _receive_line(self, line: bytes | TooLong, events: list[ClientStreamEvent[OwnerT]]) -> None:
        if isinstance(line, TooLong):
            self._receive_too_long(line, events)
            return
        message = decode(line, self._limits)
        if isinstance(message, Batch):
            for each in message.messages:
                self._receive(each, line, events)
        else:
            self._receive(message, line, events)

    def _receive(
        self,
        message: Message,
        line: bytes,
        events: list[ClientStreamEvent[OwnerT]],
        during: RequestId | None = None,
    ) -> None:
        match message:
            case Response():
                self.has_received = True
                if (pending := self._pending.by_id.pop(message.id, None)) is not None:
                    events.append(ResponseReceived(pending.owner, message))
            case ErrorResponse():
                self.has_received = True
                self._receive_error(message, events)
            case Notification():
                self.has_received = True
                self._receive_notification(message, events, during)
            case RpcRequest():
                self.has_received = True
                self._receive_question(message, events, during)
            case Malformed():
                self._receive_malformed(message, line, events)

    def _receive_error(self, message: ErrorResponse, events: list[ClientStreamEvent[OwnerT]]) -> None:
        request_id = message.id
        if request_id is None and len(self._pending.by_id) == 1:
            (request_id,) = self._pending.by_id  # it could not read an id, and only one can be meant
        if request_id is not None and (pending := self._pending.by_id.pop(request_id, None)) is not None:
            events.append(ResponseReceived(pending.owner, message))

    def _receive_notification(
        self, message: Notification, events: list[ClientStreamEvent[OwnerT]], during: RequestId | None
    ) -> None:
        if message.method == "notifications/progress":
            self._receive_progress(message, events)
        elif message.method == "notifications/cancelled":
            try:
                request_id = _cancelled.decode(message.params or b"{}").request_id
            except msgspec.DecodeError:
                return
            if request_id is not None and self._pending.answered(request_id, self._clock()):
                events.append(CancellationReceived(request_id))
            elif request_id is not None:
                events.append(NotificationReceived(message))  # the end of a subscription (CAN-6)
        else:
            owner: OwnerT | None = None
            if message.method == "notifications/message":  # of several that may be meant, the oldest call
                pending = self._pending.by_id.get(during) if during is not None else None
                owner = pending.owner if pending is not None else next(iter(self.askable()), None)
            events.append(NotificationReceived(message, owner))

    def _receive_progress(self, message: Notification, events: list[ClientStreamEvent[OwnerT]]) -> None:
        try:
            progress = _progress.decode(message.params or b"{}")
        except msgspec.DecodeError:
            return
        pending = self._pending.by_id.get(progress.progress_token)
        if pending is None:
            return
        self._pending.progress(pending, self._clock())
        if pending.watches:
            events.append(Progressed(pending.owner, progress))

    def _receive_question(
        self, message: RpcRequest, events: list[ClientStreamEvent[OwnerT]], during: RequestId | None
    ) -> None:
        if message.id in self._pending.questions:
            problem = "Invalid Request: a request with this id is still running"
            self._out.append(encode_error(message.id, INVALID_REQUEST, problem))
            self.replied = True
        elif (echoed := self._pending.by_id.get(message.id)) is not None and echoed.method == message.method:
            del self._pending.by_id[message.id]
            events.append(InvalidMessage(echoed.owner, "the command echoes its input; is it an MCP server?"))
        elif _forbids(self.agreement, message.method):
            events.append(ForbiddenRequest(message.method))
        elif message.method == "ping":
            self._out.append(encode_response(message.id, b"{}"))
            self.replied = True
        elif len(self._pending.questions) >= self._limits.max_running:
            problem = "This client has too many questions to answer already"
            self._out.append(encode_error(message.id, INTERNAL_ERROR, problem))
            self.replied = True
        else:
            self._pending.ask(message.id, during, self._clock())
            events.append(ServerRequest(message))

    def _receive_malformed(self, message: Malformed, line: bytes, events: list[ClientStreamEvent[OwnerT]]) -> None:
        remains = identify(line[:_SEARCHED], b"") if message.id is None else message
        if self._end_unreadable(message, remains, events):
            return
        text = line[: _SHOWN * 4].decode("utf-8", "replace")[:_SHOWN]
        events.append(UnexpectedOutput(text, not self.has_received))

    def _receive_too_long(self, line: TooLong, events: list[ClientStreamEvent[OwnerT]]) -> None:
        """Fail the request that the line answers; with several in flight only the line's id identifies it."""
        bound = self._limits.max_line_bytes
        message = unreadable(line, f"the server sent a message longer than {bound} bytes (max_line_bytes)")
        if self._end_unreadable(message, message, events):
            return
        if len(self._pending.by_id) == 1 and message.id is None and message.kind != "request":
            _, pending = self._pending.by_id.popitem()
            events.append(InvalidMessage(pending.owner, message.message))
        else:
            events.append(UnexpectedOutput(message.message, False))

    def _end_unreadable(
        self, message: Malformed, remains: Malformed | Remains, events: list[ClientStreamEvent[OwnerT]]
    ) -> bool:
        """Fail the request that something unreadable answers, or refuse it if it is a question; return whether it was one."""
        request_id = remains.id
        if request_id is None:
            return False
        if remains.kind == "request":
            self.has_received = True
            if message is remains:  # it came whole, only too large: the server waits for an answer
                self._out.append(encode_error(request_id, message.code, message.message))
                self.replied = True
            return message is remains
        pending = self._pending.by_id.pop(request_id, None)
        if pending is None:
            return False
        self.has_received = True
        events.append(InvalidMessage(pending.owner, message.message))
        return True


def _is_cut(line: bytes, limits: Limits) -> bool:
    """Return whether a line is a response that was truncated."""
    return identify(line[:_SEARCHED], b"").id is not None and isinstance(decode(line, limits), Malformed)


def _forbids(agreement: Agreement, method: str) -> bool:
    """Return whether the server must not send such a request: any in the modern era (MSG-6).

    Before an agreement a handshake server may ping already.
    """
    return agreement.revision.asks_in_results and (agreement.settled or method != "ping")
