"""Streams of events over HTTP: with the answer to one request, and those on which a handshake server speaks by itself.

Spec: checklist 5.3 (HL-4, HL-10), 5.4.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from typing import Any, Final
from urllib.parse import urljoin

import msgspec

from linkspan.client.transports.http_requests import HttpFailure, HttpReply, HttpRequests, may_send_to
from linkspan.core.client_connection import ClientConnection
from linkspan.flows.client_errors import (
    ClientError,
    ConnectError,
    ConnectionLost,
    Delivery,
    InvalidResponse,
    Origin,
)
from linkspan.flows.http_messages import BUSY, http_error, retry_after, shown_url
from linkspan.flows.requesting import backoff
from linkspan.flows.state import ClientState
from linkspan.revisions.record import Revision
from linkspan.wire.framing import EventReader, ServerSentEvent
from linkspan.wire.headers import media_type
from linkspan.wire.jsonrpc import RequestId

__all__ = [
    "SESSION",
    "FirstTransport",
    "HttpSessionState",
    "OwnStream",
    "SseReader",
    "failed",
    "invalid",
    "wait_asked_for",
]

SESSION: Final = "mcp-session-id"
_EVENTS: Final = {"accept": "text/event-stream"}
_PAUSE: Final = 1.0
_RESUMES: Final = 5
"""Failures in a row to reach the server, after which a stream is not resumed."""
_LEAST_PAUSE: Final = 0.1
"""Seconds: a server that asks us to come back at once, and ends the stream at once, is not asked without end."""
_HELD: Final = 1.0
"""A stream that was open for so many seconds has not failed."""


class Read(msgspec.Struct, frozen=True):
    """What is left of a stream when it ends."""

    last_id: str | None = None
    retry: float | None = None
    """Seconds after which the server wants us back."""
    cut: HttpFailure | None = None
    """None if it ended in good order."""


def is_event_stream(reply: HttpReply) -> bool:
    """Return whether the response is a stream of events."""
    return reply.status == 200 and media_type(reply.headers.get("content-type", "")) == "text/event-stream"


def wait_asked_for(reply: HttpReply) -> float | None:
    """Return how many seconds the response asks to wait, if it does."""
    return retry_after(reply.headers.get("retry-after", ""), time.time())


def failed(origin: Origin, failure: HttpFailure, what: str = "the stream") -> ClientError:
    """Return the error for a request without an answer. `what` was requested."""
    if failure.garbled:
        return invalid(origin, what, str(failure), hint=failure.hint, delivery="maybe_sent")
    if failure.ours:
        return ClientError(str(failure), origin, hint=failure.hint)
    delivery: Delivery = "maybe_sent" if failure.sent else "not_sent"
    return ConnectionLost(str(failure), origin, delivery=delivery, hint=failure.hint)


def invalid(
    origin: Origin, what: str, problem: str, *, hint: str | None = None, delivery: Delivery = "answered"
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
        receive: Callable[[ServerSentEvent, RequestId | None], None],
        refused: Callable[[HttpReply], Awaitable[None]],
    ) -> None:
        """`receive` gets each event, and the request on whose stream it came; `refused` each reply without a stream."""
        self._state = state
        self._requests = requests
        self._session = session
        self._url = url
        self.receive = receive
        self.refused = refused

    def get(self, last_id: str | None) -> AbstractAsyncContextManager[HttpReply]:
        """Request a stream, from the event `last_id` on."""
        after = {"last-event-id": last_id} if last_id is not None else {}
        headers = self._requests.headers(_EVENTS, {**self._session.headers(), **after})
        return self._requests.send("GET", self._url, headers, what="the stream")

    async def read(
        self, reply: HttpReply, last_id: str | None, request_id: RequestId | None = None, what: str = "the stream"
    ) -> Read:
        """Read events until the request is answered or the stream ends. Raises: InvalidResponse."""
        reader = EventReader(self._state.options.limits.max_line_bytes)
        reader.last_id = last_id
        retry: float | None = None
        try:
            async for chunk in reply.chunks:
                for event in reader.receive_data(chunk):
                    retry = event.retry / 1000 if event.retry is not None else retry
                    self.receive(event, request_id)
                if request_id is not None and not self._session.is_pending(request_id):
                    break
        except HttpFailure as failure:
            return Read(reader.last_id, retry, failure)
        except ValueError as problem:
            raise invalid(self._state.origin, what, str(problem)) from None
        return Read(reader.last_id, retry)

    async def read_answer(self, reply: HttpReply, request_id: RequestId, method: str) -> None:
        """Read the stream of one request until it is answered. Raises: HttpFailure, InvalidResponse."""
        read = await self.read(reply, None, request_id, method)
        failures = 0
        while self._session.is_pending(request_id):
            if read.last_id is None or self._session.revision.cancels_by_closing or failures >= _RESUMES:
                raise read.cut or HttpFailure("the stream ended before the answer came", sent=True)
            pause = _PAUSE if read.retry is None else read.retry
            await asyncio.sleep(max(pause, backoff(failures, self._state.random())) if failures else pause)
            again = await self._resume(read, request_id, method)
            failures = failures + 1 if again is None else 0
            read = read if again is None else again

    async def _resume(self, read: Read, request_id: RequestId, method: str) -> Read | None:
        """Go on with a stream; return None if the server cannot be reached at the moment."""
        try:
            async with self.get(read.last_id) as reply:
                if is_event_stream(reply):
                    again = await self.read(reply, read.last_id, request_id, method)
                    return again if again.retry is not None else msgspec.structs.replace(again, retry=read.retry)
                if reply.status in BUSY:
                    return None
                await self.refused(reply)
                raise InvalidResponse(
                    f"the stream with the answer to {method} was cut and cannot be resumed (status {reply.status})",
                    self._state.origin,
                    delivery="maybe_sent",
                )
        except HttpFailure:
            return None


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

    async def keep_open(self) -> None:
        """Listen until the server reports that it has no such stream, then return."""
        read = Read()
        while True:
            pause: float | None = None
            began = time.monotonic()
            try:
                async with self._streams.get(read.last_id) as reply:
                    self.open.set()
                    if is_event_stream(reply):
                        self._opened()
                        read = await self._streams.read(reply, read.last_id)
                        self._ended(read, time.monotonic() - began)
                        pause = None if read.retry is None else max(read.retry, _LEAST_PAUSE)
                    elif reply.status in BUSY:
                        pause = wait_asked_for(reply)
                        self._failed(http_error(self._state.origin, "the stream", reply.status, b""))
                    else:
                        await self._streams.refused(reply)
                        return
            except HttpFailure as failure:
                self._failed(failed(self._state.origin, failure))
            except ClientError as error:
                self._failed(error)
            finally:
                self.open.set()
            if self._failures:
                pause = max(pause or 0.0, backoff(self._failures + 2, self._state.random()))
            await asyncio.sleep(_PAUSE if pause is None else pause)

    def _opened(self) -> None:
        lost, self._lost = self._lost, None
        if lost is not None:
            self._restored(lost)

    def _ended(self, read: Read, seconds: float) -> None:
        """Where the server has given ids and ended in good order, it will go on where it stopped, and nothing is missed."""
        if seconds >= _HELD:
            self._failures = 0
        if read.cut is not None:
            self._failed(failed(self._state.origin, read.cut))
        elif read.last_id is None:
            self._lost = ConnectionLost("the stream on which the server tells of changes ended", self._state.origin)

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
        self._endpoint: asyncio.Future[str] | None = None
        self.used = False
        """Whether the connection lives from this stream."""

    async def endpoint(self, url: str) -> str:
        """Return where to send, which the stream names first. Raises: ConnectError for another origin; HttpFailure."""
        assert self._endpoint is not None
        target = urljoin(url, await self._endpoint)
        if not may_send_to(target, url):
            raise ConnectError(
                f"it wants messages to be sent to another origin, or with credentials of its own: {shown_url(target)}",
                self._state.origin,
                phase="negotiate",
                hint="a server of the first HTTP transport names an endpoint on its own host: its configuration is wrong",
            )
        return target

    def listen(self) -> Coroutine[Any, Any, None]:
        """Return what opens the stream and reads it to its end."""
        self._endpoint = asyncio.get_running_loop().create_future()
        return self._listen(self._endpoint)

    async def _listen(self, endpoint: asyncio.Future[str]) -> None:
        problem = HttpFailure("the stream ended", sent=True)
        try:
            async with self._streams.get(None) as reply:
                if not is_event_stream(reply):
                    raise HttpFailure("no stream", sent=False)
                await self._read(reply, endpoint)
        except HttpFailure as failure:
            problem = failure
        except (ClientError, ValueError) as error:
            problem = HttpFailure(str(error), sent=True)
        finally:
            if not endpoint.done():
                endpoint.set_exception(problem)
            elif self.used:
                problem_of_all = "the stream of its answers ended"
                self._lost(ConnectionLost(problem_of_all, self._state.origin, delivery="maybe_sent"))

    async def _read(self, reply: HttpReply, endpoint: asyncio.Future[str]) -> None:
        reader = EventReader(self._state.options.limits.max_line_bytes)
        async for chunk in reply.chunks:
            for event in reader.receive_data(chunk):
                if not endpoint.done():
                    endpoint.set_result(_where_to_send(event))
                else:
                    self._streams.receive(event, None)


def _where_to_send(event: ServerSentEvent) -> str:
    if event.event != "endpoint" or not event.data.strip():
        raise ValueError("its first event names no endpoint")
    return event.data.strip()
