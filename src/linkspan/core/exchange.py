"""One HTTP request, from the server's end: messages in, a response out. No I/O, no clock of its own.

Whether the answer is one JSON object or a stream of events is decided when the first message goes out: the answer first
makes it JSON, anything before the answer, or a long silence, makes it a stream.
Spec: https://modelcontextprotocol.io/specification/2026-07-28/basic/transports (checklist 5.2).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Final, TypeAlias

import msgspec

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
from linkspan.wire.messages import encode_error
from linkspan.wire.sse import COMMENT, encode_event

__all__ = [
    "Header",
    "HttpData",
    "HttpEnd",
    "HttpEvent",
    "HttpStart",
    "Page",
    "ServerExchange",
    "is_list_changed",
    "status_of",
]

Header: TypeAlias = tuple[str, str]


class HttpStart(msgspec.Struct, frozen=True):
    """The response begins: send the status and these headers."""

    status: int
    headers: Sequence[Header] = ()


class HttpData(msgspec.Struct, frozen=True):
    """Send a part of the body."""

    data: bytes


class HttpEnd(msgspec.Struct, frozen=True):
    """The response is complete."""


class Page(msgspec.Struct, frozen=True):
    """Something for people who came with a browser; its headers say what it is, and what it may do there."""

    body: bytes
    headers: Sequence[Header]


HttpEvent: TypeAlias = HttpStart | HttpData | HttpEnd
END: Final = HttpEnd()
JSON_HEADERS: Final[Sequence[Header]] = (("content-type", "application/json"),)
EVENT_STREAM_HEADERS: Final[Sequence[Header]] = (
    ("content-type", "text/event-stream"),
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


def status_of(code: int | None, *, dispatched: bool) -> int:
    """Return the status of an answer with this error code in the modern era (H5-4)."""
    if code is None:
        return 200
    if code == INVALID_PARAMS and not dispatched:
        return 400
    return _STATUS.get(code, 200)


def is_list_changed(message: bytes) -> bool:
    """Return whether a message, as this package encodes it, is a notification that a list has changed."""
    if not message.startswith(_NOTIFICATION):
        return False
    return message.endswith(b"/list_changed", len(_NOTIFICATION), message.find(b'"', len(_NOTIFICATION)))


class ServerExchange:
    """The response of one request. The driver takes its events and sends them, as soon as `on_output` is called."""

    def __init__(
        self,
        *,
        now: float,
        takes_json: bool = True,
        takes_events: bool = True,
        headers: Sequence[Header] = (),
        connection: ServerConnection | None = None,
        stands_alone: bool = False,
        bound: int = 4 * 1024 * 1024,
    ) -> None:
        """Begin. `headers` go with every response; `bound` is for bytes that wait for a reader who does not read."""
        self.connection = connection
        self.stands_alone = stands_alone
        self.headers = list(headers)
        self.takes_json = takes_json
        self.takes_events = takes_events
        self.started = self.ended = self.overrun = False
        self.complaint: str | None = None
        self.quiet_since = now
        self.on_output: Callable[[], object] = _nobody
        self.event_name: str | None = None
        self.on_event: Callable[[bytes], str | None] = _unnumbered
        self.late_headers: Callable[[], Sequence[Header]] = tuple
        self.prime: Callable[[], bytes] = bytes
        self.lock: AbstractContextManager[object] = nullcontext()
        self._unread_changes: set[bytes] = set()
        self._bound = bound
        self._waiting = 0
        self._events: list[HttpEvent] = []

    # The driver.

    def events(self) -> list[HttpEvent]:
        """Return what must be sent now, and forget it."""
        with self.lock:
            events, self._events = self._events, []
            self._waiting = 0
            if self._unread_changes:
                self._unread_changes.clear()
            return events

    def keep_alive(self, now: float, *, silence: float) -> None:
        """After `silence` seconds without a word begin a stream, or send a comment, so that nobody hangs up."""
        if now - self.quiet_since < silence or self.ended or not self.takes_events:
            return
        with self.lock:
            if self.ended:
                return  # it was answered while we waited for the lock
            self.quiet_since = now
            if not self.started:
                self._start_events()
            self._add(HttpData(COMMENT))
        self.on_output()

    # What goes out.

    def refuse(self, status: int, body: bytes = b"", headers: Sequence[Header] = ()) -> ServerExchange:
        """Answer without any protocol."""
        self.headers += [*headers, ("content-type", "application/json")] if body else headers
        self._whole(status, body)
        return self

    def complain(self, status: int, problem: str) -> ServerExchange:
        """Refuse what whoever runs the server may want to allow: `problem` names the setting."""
        self.complaint = problem
        return self.refuse(status, encode_error(None, INVALID_REQUEST, problem))

    def accept(self) -> ServerExchange:
        """Answer that there is no answer (H5-3)."""
        self._whole(202, b"")
        return self

    def page(self, page: Page) -> ServerExchange:
        """Answer with something for people."""
        self.headers += page.headers
        self._whole(200, page.body)
        return self

    def message(self, message: bytes | None, *, final: bool, status: int = 200) -> None:
        """Send one message; `final` is the answer, or with None the end without one.

        `status` is that of the response if the answer is all of it.
        """
        with self.lock:
            if self.ended:
                return
            if final and not self.started and self.takes_json:
                self._answer(message, status)
            elif message is not None and (self.takes_events or self.started):
                self._event(message, final=final)
            elif final:
                self._end()
        self.on_output()

    def open_events(self) -> None:
        """Begin a stream without a message."""
        with self.lock:
            if not self.started:
                self._start_events()
        self.on_output()

    def end(self) -> None:
        """End the stream, or the request without an answer."""
        with self.lock:
            self._end()
        self.on_output()

    def release(self) -> None:
        """Let go of connection and driver once the response is complete: with them, each request would be a cycle."""
        self.connection = None
        self.on_output = _nobody

    def send_event(self, data: bytes) -> None:
        """Send an event that is encoded already, as a part of a stream that is told again."""
        with self.lock:
            if not self.started:
                self._start_events()
            self._add(HttpData(data))
        self.on_output()

    def _answer(self, message: bytes | None, status: int) -> None:
        if message is None:
            self._whole(202, b"")
            return
        self.headers += JSON_HEADERS
        self._whole(status, message)

    def _event(self, message: bytes, *, final: bool) -> None:
        if is_list_changed(message):
            if message in self._unread_changes:
                return  # it would say nothing new
            self._unread_changes.add(message)
        event_id = self.on_event(message)  # and it is kept, for those who can come back
        if self.overrun or (self._waiting > self._bound and not final):
            self.overrun = True  # a reader who does not read gets no more; the driver hangs up
            return
        if not self.started:
            self._start_events()
        self._add(HttpData(encode_event(message, event=self.event_name, event_id=event_id)))
        if final:
            self._end()

    def _start_events(self) -> None:
        self.started = True
        self._add(HttpStart(200, [*self.headers, *self.late_headers(), *EVENT_STREAM_HEADERS]))
        if first := self.prime():
            self._add(HttpData(first))

    def _whole(self, status: int, body: bytes) -> None:
        self.started = self.ended = True
        headers = [*self.headers, *self.late_headers(), ("content-length", str(len(body)))]
        self._events += [HttpStart(status, headers), HttpData(body), END]

    def _end(self) -> None:
        if self.ended:
            return
        if not self.started:
            self._whole(202, b"")
            return
        self.ended = True
        self._events.append(END)

    def _add(self, event: HttpStart | HttpData) -> None:
        if isinstance(event, HttpData):
            self._waiting += len(event.data)
        self._events.append(event)


def _nobody() -> None:
    """Stand in for a driver that has not attached itself."""


def _unnumbered(_message: bytes) -> None:
    """Modern streams cannot be resumed, so their events need no ids."""
