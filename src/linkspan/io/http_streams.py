"""The streams on which a handshake server speaks by itself: its GET stream, and the only stream of the first transport.

Spec: checklist 5.3 (HL-4, HL-10), 5.4.
"""

from __future__ import annotations

import asyncio
import threading
import time
from typing import TYPE_CHECKING, Final
from urllib.parse import urljoin

import msgspec

from linkspan.client.errors import ClientError, ConnectError, ConnectionLost
from linkspan.client.http_errors import BUSY, http_error, retry_after, shown_url
from linkspan.client.requesting import backoff
from linkspan.io.http_port import HttpFailure, HttpReply
from linkspan.io.http_requests import may_send_to
from linkspan.wire.headers import media_type
from linkspan.wire.sse import EventReader, ServerSentEvent

if TYPE_CHECKING:
    from linkspan.io.http_link import HttpLink

__all__ = ["EVENTS", "FirstTransport", "OwnStream", "Read", "is_event_stream", "wait_asked_for"]

EVENTS: Final = {"accept": "text/event-stream"}
_PAUSE: Final = 1.0
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
    """Tell whether events will come."""
    return reply.status == 200 and media_type(reply.headers.get("content-type", "")) == "text/event-stream"


def wait_asked_for(reply: HttpReply) -> float | None:
    """Return how many seconds to wait, if the answer says so."""
    return retry_after(reply.headers.get("retry-after", ""), time.time())


class OwnStream:
    """The GET stream: opened again whenever it ends, for as long as the connection lives and the server has one."""

    def __init__(self, link: HttpLink) -> None:
        self._link = link
        self.open = threading.Event()
        """Set as soon as the server has answered, whatever it has answered."""
        self._failures = 0
        self._lost: ClientError | None = None

    async def keep_open(self) -> None:
        """Listen, until the server says that it has no such stream. Comes back when that is so."""
        read = Read()
        while self._link.alive:
            pause: float | None = None
            began = time.monotonic()
            try:
                async with self._link.get(read.last_id) as reply:
                    self.open.set()
                    if is_event_stream(reply):
                        self._opened()
                        read = await self._link.read_events(None, reply, read.last_id)
                        self._ended(read, time.monotonic() - began)
                        pause = None if read.retry is None else max(read.retry, _LEAST_PAUSE)
                    elif reply.status in BUSY:
                        pause = wait_asked_for(reply)
                        self._failed(http_error(self._link.state.origin, "the stream", reply.status, b""))
                    else:
                        await self._link.stream_refused(reply)
                        return
            except HttpFailure as failure:
                self._failed(self._link.failed(failure))
            except ClientError as error:
                self._failed(error)
            finally:
                self.open.set()
            if self._failures:
                pause = max(pause or 0.0, backoff(self._failures + 2, self._link.state.random()))
            await asyncio.sleep(_PAUSE if pause is None else pause)

    def _opened(self) -> None:
        lost, self._lost = self._lost, None
        if lost is not None:
            self._link.restored(lost)

    def _ended(self, read: Read, seconds: float) -> None:
        """Where the server has given ids and ended in good order, it will go on where it stopped, and nothing is missed."""
        if seconds >= _HELD:
            self._failures = 0
        if read.cut is not None:
            self._failed(self._link.failed(read.cut))
        elif read.last_id is None:
            self._lost = ConnectionLost(
                "the stream on which the server tells of changes ended", self._link.state.origin
            )

    def _failed(self, error: ClientError) -> None:
        self._failures += 1
        self._lost = self._lost or error


class FirstTransport:
    """The transport of the first revision: a stream to listen to, and another URL to send to (SSE-1)."""

    def __init__(self, link: HttpLink) -> None:
        self._link = link
        self._endpoint: asyncio.Future[str] | None = None
        self.used = False
        """Whether the connection lives from this stream."""

    async def open(self, url: str) -> str:
        """Open the stream; return where to send. Raises: ConnectError for another origin; HttpFailure, TimeoutError."""
        self._endpoint = asyncio.get_running_loop().create_future()
        self._link.start("stream", self._listen())
        target = urljoin(url, await self._endpoint)
        if not may_send_to(target, url):
            raise ConnectError(
                f"it wants messages to be sent to another origin, or with credentials of its own: {shown_url(target)}",
                self._link.state.origin,
                phase="negotiate",
                hint="a server of the first HTTP transport names an endpoint on its own host: its configuration is wrong",
            )
        return target

    async def _listen(self) -> None:
        assert self._endpoint is not None
        problem = HttpFailure("the stream ended", sent=True)
        try:
            async with self._link.get(None) as reply:
                if not is_event_stream(reply):
                    raise HttpFailure("no stream", sent=False)
                await self._read(reply, self._endpoint)
        except HttpFailure as failure:
            problem = failure
        except (ClientError, ValueError) as error:
            problem = HttpFailure(str(error), sent=True)
        finally:
            if not self._endpoint.done():
                self._endpoint.set_exception(problem)
            elif self.used:
                lost = ConnectionLost("the stream of its answers ended", self._link.state.origin, delivery="maybe_sent")
                self._link.end(error=lost)

    async def _read(self, reply: HttpReply, endpoint: asyncio.Future[str]) -> None:
        reader = EventReader(self._link.state.options.limits.max_line_bytes)
        async for chunk in reply.chunks:
            for event in reader.receive_data(chunk):
                if not endpoint.done():
                    endpoint.set_result(_where_to_send(event))
                else:
                    self._link.receive_event(event)


def _where_to_send(event: ServerSentEvent) -> str:
    if event.event != "endpoint" or not event.data.strip():
        raise ValueError("its first event names no endpoint")
    return event.data.strip()
