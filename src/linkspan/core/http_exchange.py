"""One HTTP request, from the server's end: messages in, a response out. No I/O, no clock of its own.

Whether the answer is one JSON object or a stream of events is decided when the first message goes out: the answer first
makes it JSON, anything before the answer, or a long silence, makes it a stream.
Spec: https://modelcontextprotocol.io/specification/2026-07-28/basic/transports/streamable-http (H5-3 to H5-7).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Final, Protocol, TypeAlias

import msgspec

from linkspan.core.call import Delivery, Event
from linkspan.core.connection import ServerConnection
from linkspan.errors import (
    HEADER_MISMATCH,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    MISSING_CLIENT_CAPABILITY,
    PARSE_ERROR,
    UNSUPPORTED_PROTOCOL_VERSION,
)
from linkspan.revisions.neutral import TokenAccess
from linkspan.wire.framing import COMMENT, encode_event
from linkspan.wire.headers import accepts

Header: TypeAlias = tuple[str, str]
NO_LOCK: Final = nullcontext()
TEXT: Final = (("content-type", "text/plain"),)
"""The headers of a response for people."""


class HttpResponse(msgspec.Struct, frozen=True):
    """A whole response. The driver adds `content-length`, the length of the body; a 204 has none (RFC 9110, section 8.6)."""

    status: int
    headers: tuple[Header, ...] = ()
    body: bytes = b""
    complaint: str | None = None
    """What the log should contain about a refusal."""
    closes: bool = False
    """Whether the connection is closed behind it, because the rest of the request was not read."""


class HttpStart(msgspec.Struct, frozen=True):
    """A response begins whose body comes in parts: send the status and these headers."""

    status: int
    headers: tuple[Header, ...] = ()


class HttpData(msgspec.Struct, frozen=True):
    """Send a part of the body."""

    data: bytes


class HttpEnd(msgspec.Struct, frozen=True):
    """The response is complete."""


class BrowserPage(msgspec.Struct, frozen=True):
    """Something for people who came with a browser; its headers give its type, and what it may do there."""

    body: bytes
    headers: Sequence[Header]


HttpEvent: TypeAlias = HttpResponse | HttpStart | HttpData | HttpEnd
END: Final = HttpEnd()
EVENTS: Final = "text/event-stream"
JSON_HEADERS: Final[tuple[Header, ...]] = (("content-type", "application/json"),)
EVENT_STREAM_HEADERS: Final[tuple[Header, ...]] = (
    ("content-type", EVENTS),
    ("cache-control", "no-cache, no-transform"),
    ("x-accel-buffering", "no"),
)
_NOTIFICATION: Final = b'{"jsonrpc":"2.0","method":"notifications/'
_STATUS: Final = {
    PARSE_ERROR: 400,
    INVALID_REQUEST: 400,
    METHOD_NOT_FOUND: 404,
    HEADER_MISMATCH: 400,
    MISSING_CLIENT_CAPABILITY: 400,
    UNSUPPORTED_PROTOCOL_VERSION: 400,
}


def status_of(code: int, *, dispatched: bool) -> int:
    """Return the status of an answer with this error code in the modern era (H5-4)."""
    if code == INVALID_PARAMS and not dispatched:
        return 400
    return _STATUS.get(code, 200)


def refusal_of(delivery: Delivery, status: int) -> tuple[int, tuple[Header, ...]]:
    """Return the status, and headers, of a response that is one error message: `status`, unless the right to it is missing."""
    challenge = delivery.challenge
    if challenge is None:
        return status, ()
    return 403, (("www-authenticate", challenge),) if challenge else ()


def is_list_changed(message: bytes) -> bool:
    """Return whether a message, as this package encodes it, is a notification that a list has changed."""
    if not message.startswith(_NOTIFICATION):
        return False
    return message.endswith(b"/list_changed", len(_NOTIFICATION), message.find(b'"', len(_NOTIFICATION)))


class EventStream(Protocol):
    """What a response adds to its messages where the client can come back for them: a session's part in it."""

    @property
    def headers(self) -> tuple[Header, ...]:
        """Headers that are known when the response begins."""
        ...

    def opening(self) -> bytes:
        """Return the event that opens a stream."""
        ...

    def number(self, message: bytes) -> str | None:
        """Keep a message that goes out as an event, and return the id of that event."""
        ...


class ServerExchange(msgspec.Struct, eq=False, kw_only=True):
    """The response of one request. The driver takes its events and sends them, as soon as it is woken."""

    now: float = 0.0
    """When something was sent last, or the request began."""
    accept: str | None = None
    """What the client takes; None for everything."""
    headers: tuple[Header, ...] = ()
    """They go with every response."""
    bound: int = 4 * 1024 * 1024
    """For bytes that wait for a reader who does not read."""
    lock: AbstractContextManager[object] = NO_LOCK
    """That of the connection which answers."""
    access: TokenAccess | None = None
    """What the transport knows of the token of the request."""
    stream: EventStream | None = None
    event_name: str | None = None
    """Names each event."""
    response: HttpResponse | None = None
    """All of the response, where nothing was sent before the answer."""
    started: bool = False
    ended: bool = False
    overrun: bool = False
    """The reader does not read."""
    _wake: Callable[[], object] = bool
    """Wakes the driver, if there is one. It is never None: a thread may call it while another lets go of the driver."""
    _events: list[HttpEvent] = []
    _waiting: int = 0
    _unread_changes: tuple[bytes, ...] = ()

    # The driver.

    def attach(self, wake: Callable[[], object]) -> None:
        """Call `wake`, in any thread, whenever there are events to send, until `release`."""
        self._wake = wake

    def release(self) -> None:
        """Forget the driver and the response once it has sent that: a connection that may be idle for long refers to this."""
        self._wake, self.response, self._events = bool, None, []

    def events(self) -> list[HttpEvent]:
        """Return what must be sent now, and forget it."""
        with self.lock:
            events, self._events = self._events, []
            self._waiting, self._unread_changes = 0, ()
            return events

    def keep_alive(self, now: float, *, silence: float) -> None:
        """After `silence` seconds without a message begin a stream, or send a comment, so that no proxy closes it."""
        if now - self.now < silence or self.ended or not accepts(self.accept, EVENTS):
            return
        with self.lock:
            if self.ended:
                return  # it was answered while we waited for the lock
            self.now = now
            self._begin_stream(opening=True)
            self._add(COMMENT)
        self._wake()

    # What goes out.

    def respond(self, status: int, body: bytes = b"", headers: tuple[Header, ...] = ()) -> ServerExchange:
        """Answer with a whole response; return the exchange."""
        self.started = self.ended = True
        if self.headers:
            headers = self.headers + headers
        if self.stream is not None:
            headers += self.stream.headers
        self.response = HttpResponse(status, headers, body)
        self._events.append(self.response)
        return self

    def message(
        self, message: bytes | None, *, final: bool, status: int = 200, headers: tuple[Header, ...] = ()
    ) -> None:
        """Send one message; `final` is the answer, or with None the end without one.

        `status` is that of the response if the answer is all of it, and `headers` are additional ones of that. With these it is
        never an event.
        """
        with self.lock:
            if self.ended:
                return
            whole = final and not self.started and message is not None
            if whole and message is not None and (headers or accepts(self.accept, "application/json")):
                self.respond(status, message, JSON_HEADERS + headers)
            elif message is not None and (self.started or accepts(self.accept, EVENTS)):
                self._event(message, final=final)
            elif final:
                self._end()
        self._wake()

    def open_events(self) -> None:
        """Begin a stream without a message."""
        with self.lock:
            self._begin_stream(opening=True)
        self._wake()

    def send_events(self, events: Iterable[bytes]) -> None:
        """Send events that are encoded already: those of a stream that its client has come back to."""
        with self.lock:
            if self.ended or self.overrun or self._waiting > self.bound:
                self.overrun = True  # a reader who does not read gets no more; the driver hangs up
                return
            self._begin_stream()
            for event in events:
                self._add(event)
        self._wake()

    def end(self) -> None:
        """End the stream, or the request without an answer."""
        with self.lock:
            self._end()
        self._wake()

    def abandon(self) -> None:
        """End without another event: the client has gone."""
        self.ended = True

    def _event(self, message: bytes, *, final: bool) -> None:
        if is_list_changed(message):
            if message in self._unread_changes:
                return  # it would say nothing new
            self._unread_changes += (message,)
        event_id = self.stream.number(message) if self.stream is not None else None
        if self.overrun or (self._waiting > self.bound and not final):
            self.overrun = True  # a reader who does not read gets no more; the driver hangs up
            return
        self._begin_stream(opening=True)
        self._add(encode_event(message, event=self.event_name, event_id=event_id))
        if final:
            self._end()

    def _begin_stream(self, *, opening: bool = False) -> None:
        if self.started:
            return
        self.started = True
        stream = self.stream
        late = stream.headers if stream is not None else ()
        self._events.append(HttpStart(200, (*self.headers, *late, *EVENT_STREAM_HEADERS)))
        if opening and stream is not None and (first := stream.opening()):
            self._add(first)

    def _add(self, data: bytes) -> None:
        self._waiting += len(data)
        self._events.append(HttpData(data))

    def _end(self) -> None:
        if self.ended:
            return
        if not self.started:
            self.respond(202)  # there is no answer (H5-3)
            return
        self.ended = True
        self._events.append(END)


class ExchangeOutlet(msgspec.Struct, eq=False):
    """Sends for a connection that serves one request at a time. It does not refer to it, or the two would be a cycle."""

    exchange: ServerExchange = msgspec.field(default_factory=ServerExchange)
    """The response of the request at hand."""

    def begin(self, exchange: ServerExchange) -> None:
        """Send to `exchange` from now on."""
        self.exchange = exchange

    def send(self, delivery: Delivery) -> None:
        """Send a message, with the status of a response that is this message alone."""
        error = delivery.error
        if error is None:
            self.exchange.message(delivery.data, final=delivery.final)
        else:
            status, headers = refusal_of(delivery, status_of(error, dispatched=delivery.dispatched))
            self.exchange.message(delivery.data, final=delivery.final, status=status, headers=headers)


class OwnConnection(msgspec.Struct, frozen=True, eq=False):
    """A connection that serves one request at a time, and what it sends to."""

    connection: ServerConnection
    outlet: ExchangeOutlet
    lone: bool = True
    """It gets no changes of lists and resources, so that it may serve another request after this one."""

    @property
    def exchange(self) -> ServerExchange:
        """The response of the request that it serves now."""
        return self.outlet.exchange

    def leave(self, exchange: ServerExchange) -> Sequence[Event]:
        """Cancel what runs: the client has gone (H5-7)."""
        with self.connection.lock:
            if exchange.ended:
                return ()  # only its last words did not arrive
            exchange.abandon()
            return self.connection.close()

    def only_listens(self, _: ServerExchange) -> bool:
        """Return whether this is a stream whose client waits for no answer."""
        return not (self.lone or self.connection.running)

    def end_listening(self, exchange: ServerExchange) -> Sequence[Event]:
        """End a stream whose client only listens; nothing else."""
        with self.connection.lock:
            return self.close() if self.only_listens(exchange) else ()

    def close(self) -> Sequence[Event]:
        """Cancel what runs, and end the response."""
        with self.connection.lock:
            events = self.connection.close()
        self.exchange.end()
        return events
