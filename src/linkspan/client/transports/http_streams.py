"""Streams of events over HTTP: with the answer to one request, and those on which a handshake server speaks by itself.

Spec: https://modelcontextprotocol.io/specification/2025-11-25/basic/transports (HL-4, HL-10), and
https://modelcontextprotocol.io/specification/2024-11-05/basic/transports (SSE-1 to SSE-7).
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urljoin

import msgspec

from linkspan.client.transports.http_requests import HttpFailure, HttpFlow, HttpRequests, ReadBody, Reply, may_send_to
from linkspan.core.client_connection import ClientConnection
from linkspan.core.flow import Sleep
from linkspan.flows.client_errors import (
    ClientError,
    ConnectError,
    ConnectionLost,
    Delivery,
    InvalidResponse,
    ServerOrigin,
)
from linkspan.flows.http_messages import BUSY, http_error, retry_after, shown_url
from linkspan.flows.requesting import backoff
from linkspan.flows.state import ClientState
from linkspan.revisions.record import Revision
from linkspan.wire.framing import EventReader, ServerSentEvent
from linkspan.wire.headers import media_type
from linkspan.wire.jsonrpc import RequestId

if TYPE_CHECKING:
    import asyncio

SESSION: Final = "mcp-session-id"
_EVENTS: Final = {"accept": "text/event-stream"}
_log = logging.getLogger("linkspan.client")
_PAUSE: Final = 1.0
_RESUMES: Final = 5
"""Failures in a row to reach the server, after which a stream is not resumed."""
_LEAST_PAUSE: Final = 0.1
"""Seconds: a server that asks us to come back at once, and ends the stream at once, is not asked without end."""
_HELD: Final = 1.0
"""A stream that was open for so many seconds has not failed."""


class StreamEnd(msgspec.Struct, frozen=True):
    """What is left of a stream when it ends."""

    last_id: str | None = None
    retry: float | None = None
    """Seconds after which the server wants us back."""
    cut: HttpFailure | None = None
    """None if it ended in good order."""


def is_event_stream(reply: Reply) -> bool:
    """Return whether the response is a stream of events."""
    return reply.status == 200 and media_type(reply.headers.get("content-type", "")) == "text/event-stream"


def wait_asked_for(reply: Reply) -> float | None:
    """Return how many seconds the response asks to wait, if it does."""
    return retry_after(reply.headers.get("retry-after", ""), time.time())


def failed(origin: ServerOrigin, failure: HttpFailure, what: str = "the stream") -> ClientError:
    """Return the error for a request without an answer. `what` was requested."""
    if failure.garbled:
        return invalid(origin, what, str(failure), hint=failure.hint, delivery="maybe_sent")
    if failure.ours:
        return ClientError(str(failure), origin, hint=failure.hint)
    delivery: Delivery = "maybe_sent" if failure.sent else "not_sent"
    return ConnectionLost(str(failure), origin, delivery=delivery, hint=failure.hint)


def invalid(
    origin: ServerOrigin, what: str, problem: str, *, hint: str | None = None, delivery: Delivery = "answered"
) -> InvalidResponse:
    """Return the error for an answer that breaks the protocol. `what` was requested."""
    return InvalidResponse(f"invalid response to {what}: {problem}", origin, delivery=delivery, hint=hint)


class HttpSessionState:
    """What every request names once there is an agreement: the revision, and the session of a handshake server."""

    def __init__(self, machine: ClientConnection[Any]) -> None:
        self._machine = machine
        self.id: str | None = None

    @property
    def revision(self) -> Revision:
        """The revision that was agreed."""
        return self._machine.agreement.revision

    def is_pending(self, request_id: RequestId) -> bool:
        """Return whether a request still waits for its answer."""
        return self._machine.is_pending(request_id)

    def headers(self) -> dict[str, str]:
        """Return the headers that name both."""
        headers: dict[str, str] = {}
        if self.revision.version_header:
            headers["mcp-protocol-version"] = self.revision.date
        if self.id is not None:
            headers[SESSION] = self.id
        return headers


class SseReader:
    """Reads streams of events, and resumes those that were cut before the answer came (HL-10)."""

    def __init__(
        self,
        state: ClientState,
        requests: HttpRequests,
        session: HttpSessionState,
        url: str,
        receive: Callable[[ServerSentEvent, RequestId | None, asyncio.AbstractEventLoop | None], None],
        refused: Callable[[Reply], HttpFlow[None]],
    ) -> None:
        """`receive` gets each event, the request on whose stream it came and the loop that reads it, if one does.

        `refused` gets each reply without a stream.
        """
        self._state = state
        self._requests = requests
        self._session = session
        self._url = url
        self.receive = receive
        self.refused = refused

    def get(self, last_id: str | None) -> HttpFlow[Reply]:
        """Request a stream, from the event `last_id` on; return what must be given back."""
        after = {"last-event-id": last_id} if last_id is not None else {}
        headers = self._requests.headers(_EVENTS, {**self._session.headers(), **after})
        return self._requests.send("GET", self._url, headers, what="the stream")

    def read(
        self,
        reply: Reply,
        last_id: str | None,
        request_id: RequestId | None = None,
        what: str = "the stream",
        here: asyncio.AbstractEventLoop | None = None,
    ) -> HttpFlow[StreamEnd]:
        """Read events until the request is answered or the stream ends. Raises: InvalidResponse."""
        reader = EventReader(self._state.options.limits.max_line_bytes)
        reader.last_id = last_id
        retry: float | None = None
        read = ReadBody(reply)
        try:
            while chunk := (yield read):
                for event in reader.receive_data(chunk):
                    retry = event.retry / 1000 if event.retry is not None else retry
                    self.receive(event, request_id, here)
                if request_id is not None and not self._session.is_pending(request_id):
                    break
        except HttpFailure as failure:
            return StreamEnd(reader.last_id, retry, failure)
        except ValueError as problem:
            raise invalid(self._state.origin, what, str(problem)) from None
        return StreamEnd(reader.last_id, retry)

    def read_answer(
        self, reply: Reply, request_id: RequestId, method: str, here: asyncio.AbstractEventLoop | None
    ) -> HttpFlow[None]:
        """Read the stream of one request until it is answered. Raises: HttpFailure, InvalidResponse."""
        end = yield from self.read(reply, None, request_id, method, here)
        failures = 0
        while self._session.is_pending(request_id):
            reply.give_back()
            if end.last_id is None or self._session.revision.cancels_by_closing or failures >= _RESUMES:
                raise end.cut or HttpFailure("the stream ended before the response arrived", sent=True)
            pause = _PAUSE if end.retry is None else end.retry
            pause = max(pause, backoff(failures, self._state.random())) if failures else pause
            server = self._state.origin.server
            _log.info(
                "%s: resuming the stream with the answer to %s in %.1f s",
                server,
                method,
                pause,
                extra={"server": server},
            )
            yield Sleep(pause)
            again = yield from self._resume(end, request_id, method, here)
            failures = failures + 1 if again is None else 0
            end = end if again is None else again

    def _resume(
        self, end: StreamEnd, request_id: RequestId, method: str, here: asyncio.AbstractEventLoop | None
    ) -> HttpFlow[StreamEnd | None]:
        """Go on with a stream; return None if the server cannot be reached at the moment."""
        try:
            reply = yield from self.get(end.last_id)
        except HttpFailure:
            return None
        try:
            if is_event_stream(reply):
                again = yield from self.read(reply, end.last_id, request_id, method, here)
                return again if again.retry is not None else msgspec.structs.replace(again, retry=end.retry)
            if reply.status in BUSY:
                return None
            yield from self.refused(reply)
        finally:
            reply.give_back()
        raise InvalidResponse(
            f"the stream with the response to {method} was closed and cannot be resumed (status {reply.status})",
            self._state.origin,
            delivery="maybe_sent",
        )


class OwnStream:
    """The GET stream: opened again whenever it ends, for as long as the connection lives and the server has one."""

    def __init__(self, streams: SseReader, state: ClientState, restored: Callable[[ClientError], object]) -> None:
        """`restored` is called when the stream is open again, with the reason for which it was lost."""
        self._streams = streams
        self._state = state
        self._restored = restored
        self.open = threading.Event()
        """Set as soon as the server has answered, whatever it has answered."""
        self._failures = 0
        self._lost: ClientError | None = None

    def keep_open(self) -> HttpFlow[None]:
        """Listen until the server reports that it has no such stream, then return."""
        end = StreamEnd()
        while True:
            pause: float | None = None
            try:
                reply = yield from self._streams.get(end.last_id)
                try:
                    self.open.set()
                    if is_event_stream(reply):
                        end = yield from self._listen(reply, end)
                        pause = None if end.retry is None else max(end.retry, _LEAST_PAUSE)
                    elif reply.status in BUSY:
                        pause = wait_asked_for(reply)
                        self._failed(http_error(self._state.origin, "the stream", reply.status, b""))
                    else:
                        yield from self._streams.refused(reply)
                        return
                finally:
                    reply.give_back()
            except HttpFailure as failure:
                self._failed(failed(self._state.origin, failure))
            except ClientError as error:
                if error.phase == "authorize":
                    return  # a person is not asked again and again for the sake of a stream
                self._failed(error)
            finally:
                self.open.set()
            if self._failures:
                pause = max(pause or 0.0, backoff(self._failures + 2, self._state.random()))
            yield Sleep(_PAUSE if pause is None else pause)

    def _listen(self, reply: Reply, last: StreamEnd) -> HttpFlow[StreamEnd]:
        """Read one stream; one that gave ids and ended in good order goes on where it stopped, and nothing is missed."""
        lost, self._lost = self._lost, None
        if lost is not None:
            self._restored(lost)
        began = time.monotonic()
        end = yield from self._streams.read(reply, last.last_id)
        if time.monotonic() - began >= _HELD:
            self._failures = 0
        if end.cut is not None:
            self._failed(failed(self._state.origin, end.cut))
        elif end.last_id is None:
            self._lost = ConnectionLost("the stream of notifications ended", self._state.origin)
        return end

    def _failed(self, error: ClientError) -> None:
        self._failures += 1
        self._lost = self._lost or error


class FirstTransport:
    """The transport of the first revision: a stream to listen to, and another URL to send to (SSE-1)."""

    def __init__(self, streams: SseReader, state: ClientState, lost: Callable[[ClientError], object]) -> None:
        """`lost` is called when the stream, and the connection with it, has ended."""
        self._streams = streams
        self._state = state
        self._lost = lost
        self._named = threading.Event()
        self._endpoint: str | None = None
        self.used = False
        """Whether the connection lives from this stream."""

    def endpoint(self, url: str, timeout: float) -> str | None:
        """Return where to send, which the stream names first; None if it does not. Raises: ConnectError for another origin."""
        self._named.wait(timeout)
        if self._endpoint is None:
            return None
        target = urljoin(url, self._endpoint)
        if not may_send_to(target, url):
            raise ConnectError(
                f"it names an endpoint on another origin, or one with credentials: {shown_url(target)}",
                self._state.origin,
                phase="negotiate",
                hint="with HTTP+SSE the endpoint must be on the same host: correct the server's configuration [LS-220]",
            )
        return target

    def listen(self) -> HttpFlow[None]:
        """Open the stream and read it to its end."""
        reader = EventReader(self._state.options.limits.max_line_bytes)
        try:
            reply = yield from self._streams.get(None)
            try:
                while is_event_stream(reply) and (chunk := (yield ReadBody(reply))):
                    for event in reader.receive_data(chunk):
                        self._receive(event)
            finally:
                reply.give_back()
        except (HttpFailure, ClientError, ValueError):
            pass  # the stream ends with it, whatever it was
        finally:
            self._named.set()
            if self.used:
                problem = "the stream of responses ended"
                self._lost(ConnectionLost(problem, self._state.origin, delivery="maybe_sent"))

    def _receive(self, event: ServerSentEvent) -> None:
        """Take an event; the first names the endpoint. Raises: ValueError if it does not."""
        if self._endpoint is not None:
            self._streams.receive(event, None, None)
            return
        if event.event != "endpoint" or not event.data.strip():
            raise ValueError("its first event does not name an endpoint")
        self._endpoint = event.data.strip()
        self._named.set()
