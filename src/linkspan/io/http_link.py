"""A connection to a URL: every message is an HTTP request of its own. Both eras, and the first HTTP transport.

All I/O is on one event loop in the background, so threads and loops of the application share one pool. A failure costs the
request that met it, and no other. Spec: checklist 4.7, 5.2-5.4.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urljoin, urlsplit

import msgspec

from linkspan.client.errors import ClientError, ConnectError, ConnectionLost, Delivery, HttpError, InvalidResponse
from linkspan.client.mirroring import mirrored
from linkspan.client.state import ClientState
from linkspan.core.flow import Outgoing
from linkspan.io.background import background_loop
from linkspan.io.http_port import HttpFailure, HttpPort, HttpReply
from linkspan.io.link import Link, LinkOwner, Ticket
from linkspan.io.reactor import reactor
from linkspan.io.slots import Slot, deliver
from linkspan.revisions.agreement import Agreement
from linkspan.wire.headers import media_type
from linkspan.wire.messages import ErrorResponse, RequestId, Response, decode
from linkspan.wire.sse import EventReader, ServerSentEvent

if TYPE_CHECKING:
    from ssl import SSLContext

__all__ = ["HttpLink"]

_BOTH: Final = "application/json, text/event-stream"
_SESSION: Final = "mcp-session-id"
_ERROR_BODY: Final = 65536
_REDIRECTS: Final = 4
_RESUMES: Final = 5
_PAUSE: Final = 1.0
_LISTEN_AGAIN: Final = 5.0
_SETTLE: Final = 1.0
_NOTHING_DONE: Final = (429, 503)


class _Sent(msgspec.Struct, eq=False):
    """A message on its way. `request_id` is None for what gets no answer."""

    message: bytes
    headers: Mapping[str, str]
    request_id: RequestId | None = None
    method: str = ""


class HttpLink(Link):
    """One server at one URL."""

    def __init__(
        self, owner: LinkOwner, state: ClientState, url: str, headers: Mapping[str, str], ssl: SSLContext | None
    ) -> None:
        """Prepare; the first request opens a connection."""
        super().__init__(owner, state)
        self._url = url
        self._post_url = url
        self._own = {name.lower(): value for name, value in headers.items()}
        self._ssl = ssl
        self._loop = background_loop().loop
        self._port: HttpPort | None = None
        self._queue: deque[_Sent] = deque()
        self._tasks: dict[object, asyncio.Task[None]] = {}
        self._session_id: str | None = None
        self._old_transport = False
        self._listening = threading.Event()
        self._watching = reactor()
        self._watching.call(lambda: self._watching.watch(self))

    # Callers.

    def submit(self, outgoing: Outgoing, slot: Slot) -> None:
        """Send a request. Raises: ConnectionLost."""
        with self.lock:
            super().submit(outgoing, slot)
            *others, message = self._messages()
            self._queue.extend(_Sent(each, self._plain_headers()) for each in others)
            ticket: Ticket = slot.ticket
            headers = self._request_headers(outgoing)
            self._queue.append(_Sent(message, headers, ticket.request_id, outgoing.method))

    def _request_headers(self, outgoing: Outgoing) -> dict[str, str]:
        agreement = outgoing.agreement or self.machine.agreement
        if agreement.revision.era == "modern":
            headers = mirrored(self.state, agreement, outgoing.method, outgoing.params)
        elif outgoing.method == "initialize":
            headers = {}  # nothing modern may leak into a handshake, and there is no session yet
        else:
            headers = self._plain_headers()
        return headers | {name.lower(): value for name, value in (outgoing.headers or {}).items()}

    def _plain_headers(self) -> dict[str, str]:
        headers: dict[str, str] = {}
        revision = self.machine.agreement.revision
        if revision.era == "modern" or revision.version_header:
            headers["mcp-protocol-version"] = revision.date
        if self._session_id is not None:
            headers[_SESSION] = self._session_id
        return headers

    def agree(self, agreement: Agreement) -> None:
        """From now on speak by `agreement`; a handshake server may have something to say on a stream of its own."""
        super().agree(agreement)
        modern = agreement.revision.era == "modern"
        self.machine.tells_cancel = not modern
        if not modern and not self._old_transport:
            self._on_loop(self._listen)

    def settle(self) -> None:
        """Wait until a handshake server has our stream, because some ask on it alone."""
        if self.machine.agreement.revision.era == "legacy" and not self._old_transport:
            self._listening.wait(_SETTLE)

    def flush(self) -> None:
        """Start what was submitted."""
        with self.lock:
            self._queue.extend(_Sent(each, self._plain_headers()) for each in self._messages())
            if not self._queue:
                return
        self._on_loop(self._start)

    def give_up(self, request_id: RequestId, reason: str | None, *, tell: bool = False) -> None:
        """Cancel a request: in the modern era by closing its stream."""
        super().give_up(request_id, reason, tell=tell)
        self._on_loop(self._sweep)

    def fall_back(self, reason: Exception, timeout: float) -> None:
        """Use the transport of the first revision: a stream to listen to, and another URL to send to (SSE-1)."""
        opened = asyncio.run_coroutine_threadsafe(self._open_old(), self._loop)
        try:
            opened.result(timeout)
        except Exception:
            opened.cancel()
            raise reason from None
        self._old_transport = True

    def close(self) -> None:
        """End the session, if there is one, and close all connections."""
        with self.lock:
            if self._closed:
                return
            self._closed = True
        self.end(by_us=True)
        self._watching.call(lambda: self._watching.forget(self))
        closing = asyncio.run_coroutine_threadsafe(self._close(), self._loop)
        if threading.current_thread().name != "linkspan-loop":
            try:
                closing.result(self.state.options.timeouts.close)
            except Exception:
                closing.cancel()

    async def _close(self) -> None:
        for task in list(self._tasks.values()):
            task.cancel()
        if self._port is None:
            return
        if self._session_id is not None:
            try:
                async with self._port.send("DELETE", self._url, self._own | self._plain_headers(), b""):
                    pass
            except HttpFailure:
                pass  # whoever is gone has forgotten us already
        await self._port.close()

    # The reactor.

    def next_timeout(self) -> float | None:
        """Return when something is due."""
        with self.lock:
            return self.machine.next_timeout()

    def handle_timeout(self, now: float) -> None:
        """Give up late requests."""
        self.expire(now)
        self._on_loop(self._sweep)

    def handle_readable(self, fd: int) -> None:
        """There is nothing to read here."""

    # On the loop.

    def _on_loop(self, step: Any) -> None:
        try:
            self._loop.call_soon_threadsafe(step)
        except RuntimeError:  # the interpreter is ending
            self.end()

    def _start(self) -> None:
        while self._queue:
            sent = self._queue.popleft()
            key = sent.request_id if sent.request_id is not None else sent
            self._tasks[key] = self._loop.create_task(self._run(sent, key))

    def _sweep(self) -> None:
        """Close the streams of requests that nobody waits for any more."""
        for key, task in list(self._tasks.items()):
            if isinstance(key, int | str) and not self.machine.is_pending(key):
                task.cancel()

    def _opened(self) -> HttpPort:
        if self._port is None:
            from linkspan.io.http_aiohttp import AiohttpPort

            self._port = AiohttpPort(ssl=self._ssl, connect_timeout=self.state.options.timeouts.connect)
        return self._port

    async def _run(self, sent: _Sent, key: object) -> None:
        try:
            await self._post(sent)
        except HttpFailure as failure:
            self._lose(sent, self._failed(failure, sent))
        except ClientError as error:
            self._lose(sent, error)
        except Exception as error:
            self._lose(sent, self._invalid(sent, f"{type(error).__name__}: {error}"))
        finally:
            self._tasks.pop(key, None)

    async def _post(self, sent: _Sent) -> None:
        url = self._post_url
        headers = {"accept": _BOTH, "content-type": "application/json", **self._own, **sent.headers}
        for _ in range(_REDIRECTS):
            async with self._opened().send("POST", url, headers, sent.message) as reply:
                if reply.status not in (307, 308):
                    await self._read(sent, reply)
                    return
                url = self._redirected(url, reply)
        raise self._invalid(sent, "it redirects without end")

    def _redirected(self, url: str, reply: HttpReply) -> str:
        """Return where to go; never to another origin, which should get neither our message nor our headers."""
        target = urljoin(url, reply.headers.get("location", ""))
        if _origin(target) != _origin(url):
            raise ConnectError(
                f"it redirects to another origin: {target[:200]}",
                self.state.origin,
                phase="connect",
                hint="if that is right, use that URL",
            )
        return target

    async def _read(self, sent: _Sent, reply: HttpReply) -> None:
        if sent.method == "initialize" and reply.status == 200:
            self._session_id = reply.headers.get(_SESSION)
        kind = media_type(reply.headers.get("content-type", ""))
        if reply.status >= 400:
            await self._read_refusal(sent, reply)
        elif sent.request_id is None or (self._old_transport and reply.status < 300):
            return
        elif kind == "text/event-stream":
            await self._read_answer(sent, reply)
        elif kind == "application/json" and reply.status == 200:
            self._take(sent, await self._whole(reply, self.state.options.limits.max_line_bytes))
        else:
            shown = f"status {reply.status} and {kind[:60] or 'no content type'}"
            raise self._invalid(sent, f"it came with {shown}")

    def _take(self, sent: _Sent, data: bytes) -> None:
        """Read an answer that is one JSON message."""
        self._understand(data)
        if sent.request_id is not None and self.machine.is_pending(sent.request_id):
            raise self._invalid(sent, "it is not an answer to this request")

    async def _read_refusal(self, sent: _Sent, reply: HttpReply) -> None:
        """Read an answer with an error status: an error of the protocol if its body is one."""
        data = await self._whole(reply, _ERROR_BODY, cut=True)
        message = decode(data, self.state.options.limits) if data else None
        if sent.request_id is None:
            return
        if isinstance(message, Response | ErrorResponse):
            if reply.status == 404 and self._session_id is not None and sent.method != "initialize":
                self._session_gone(sent)
                return
            with self.lock:
                slot = self.machine.forget(sent.request_id)
            if slot is not None:
                deliver([(slot, message)])
            return
        if reply.status == 404 and self._session_id is not None and sent.method != "initialize":
            self._session_gone(sent)
            return
        raise self._refused(sent, reply, data)

    def _session_gone(self, sent: _Sent) -> None:
        """The server has forgotten our session: nothing was done, and a new one must be begun (HL-7)."""
        problem = "the server has forgotten this session"
        self._lose(sent, ConnectionLost(problem, self.state.origin, delivery="not_sent"))
        self.end()

    # Streams.

    async def _read_answer(self, sent: _Sent, reply: HttpReply) -> None:
        """Read the stream of one request until it is answered; a handshake client may come back to it (HL-10)."""
        last_id, retry = await self._read_events(sent, reply, None)
        resumes = 0
        while sent.request_id is not None and self.machine.is_pending(sent.request_id):
            if last_id is None or self.machine.agreement.revision.era == "modern" or resumes >= _RESUMES:
                raise HttpFailure("the stream ended before the answer came", sent=True)
            resumes += 1
            await asyncio.sleep(retry if retry is not None else _PAUSE)
            last_id, retry = await self._resume(sent, last_id, retry)

    async def _resume(self, sent: _Sent, last_id: str, retry: float | None) -> tuple[str | None, float | None]:
        headers = {"accept": "text/event-stream", **self._own, **self._plain_headers(), "last-event-id": last_id}
        try:
            async with self._opened().send("GET", self._url, headers, b"") as reply:
                if reply.status != 200:
                    raise HttpFailure(f"the stream cannot be resumed (status {reply.status})", sent=True)
                return await self._read_events(sent, reply, last_id, retry)
        except HttpFailure as failure:
            if failure.sent:
                raise
            return last_id, retry  # the server is away for a moment

    async def _read_events(
        self, sent: _Sent | None, reply: HttpReply, last_id: str | None, retry: float | None = None
    ) -> tuple[str | None, float | None]:
        """Read events until the request is answered or the stream ends; return the last id, and when to come back."""
        reader = EventReader(self.state.options.limits.max_line_bytes)
        reader.last_id = last_id
        try:
            async for chunk in reply.chunks:
                for event in reader.receive_data(chunk):
                    retry = event.retry / 1000 if event.retry is not None else retry
                    self._receive_event(event)
                if sent is not None and sent.request_id is not None and not self.machine.is_pending(sent.request_id):
                    break
        except HttpFailure:
            if reader.last_id is None:
                raise
        except ValueError as problem:
            raise self._invalid(sent, str(problem)) from None
        return reader.last_id, retry

    def _receive_event(self, event: ServerSentEvent) -> None:
        if event.event != "message" or not event.data:
            return
        self._understand(event.data.encode())
        self.flush()

    def _understand(self, message: bytes) -> None:
        if self.recorder is not None:
            self.recorder.server(message.replace(b"\n", b" ") + b"\n")
        with self.lock:
            events = self.machine.receive_message(message)
        self.receive(events)

    def _messages(self) -> list[bytes]:
        """Return what there is to send. With the lock."""
        messages = self.machine.messages_to_send()
        if self.recorder is not None:
            for each in messages:
                self.recorder.client(each + b"\n")
        return messages

    def _listen(self) -> None:
        """Open the stream on which a handshake server speaks by itself."""
        if "listen" not in self._tasks and not self._closed:
            self._tasks["listen"] = self._loop.create_task(self._keep_listening())

    async def _keep_listening(self) -> None:
        last_id: str | None = None
        while self.alive:
            headers = {"accept": "text/event-stream", **self._own, **self._plain_headers()}
            if last_id is not None:
                headers["last-event-id"] = last_id
            retry: float | None = None
            try:
                async with self._opened().send("GET", self._url, headers, b"") as reply:
                    self._listening.set()
                    if reply.status != 200 or media_type(reply.headers.get("content-type", "")) != "text/event-stream":
                        return  # it has nothing to say by itself, or forgot us; the next request will tell
                    last_id, retry = await self._read_events(None, reply, last_id)
            except (HttpFailure, ClientError):
                self._listening.set()
                await asyncio.sleep(_LISTEN_AGAIN)
            await asyncio.sleep(retry if retry is not None else _PAUSE)

    async def _open_old(self) -> None:
        """Open the stream of the first transport, and wait until it says where to send."""
        endpoint: asyncio.Future[str] = self._loop.create_future()
        self._tasks["old"] = self._loop.create_task(self._read_old(endpoint))
        target = urljoin(self._url, await endpoint)
        if _origin(target) != _origin(self._url):
            raise HttpFailure("the endpoint is of another origin", sent=False)
        self._post_url = target

    async def _read_old(self, endpoint: asyncio.Future[str]) -> None:
        reader = EventReader(self.state.options.limits.max_line_bytes)
        headers = {"accept": "text/event-stream", **self._own}
        try:
            async with self._opened().send("GET", self._url, headers, b"") as reply:
                if reply.status != 200 or media_type(reply.headers.get("content-type", "")) != "text/event-stream":
                    raise HttpFailure("no stream", sent=False)
                async for chunk in reply.chunks:
                    for event in reader.receive_data(chunk):
                        if event.event == "endpoint" and not endpoint.done():
                            endpoint.set_result(event.data)
                        self._receive_event(event)
        except (HttpFailure, ValueError) as failure:
            if not endpoint.done():
                endpoint.set_exception(failure)
        finally:
            if not endpoint.done():
                endpoint.cancel()
            elif self._old_transport:
                self.end()

    async def _whole(self, reply: HttpReply, bound: int, *, cut: bool = False) -> bytes:
        parts: list[bytes] = []
        size = 0
        async for chunk in reply.chunks:
            parts.append(chunk)
            size += len(chunk)
            if size > bound:
                if cut:
                    break
                raise InvalidResponse(
                    f"an answer larger than {bound} bytes (max_line_bytes)", self.state.origin, delivery="answered"
                )
        return b"".join(parts)[: bound + 1]

    # Errors.

    def _lose(self, sent: _Sent, error: ClientError) -> None:
        """End one request with an error."""
        if sent.request_id is None:
            return
        with self.lock:
            slot = self.machine.forget(sent.request_id)
        if slot is not None:
            deliver([(slot, self._for_phase(error, slot))])

    def _failed(self, failure: HttpFailure, sent: _Sent) -> ConnectionLost:
        problem = str(failure) if failure.sent else f"it cannot be reached: {failure}"
        return ConnectionLost(
            problem,
            self.state.origin,
            delivery="maybe_sent" if failure.sent else "not_sent",
            hint=None if failure.sent else "is the server running, and are host and port of the URL right?",
        )

    def _invalid(self, sent: _Sent | None, problem: str) -> InvalidResponse:
        what = f"the answer to {sent.method or 'a message'}" if sent is not None else "a stream"
        return InvalidResponse(f"{what} is not one: {problem}", self.state.origin, delivery="answered")

    def _refused(self, sent: _Sent, reply: HttpReply, data: bytes) -> HttpError:
        status = reply.status
        delivery: Delivery = "answered" if status < 500 else "maybe_sent"
        if status in _NOTHING_DONE:
            delivery = "not_sent"
        error = HttpError(
            f"{sent.method or 'a message'} was answered with status {status}",
            self.state.origin,
            delivery=delivery,
            hint=_HINTS.get(status),
            message=data[:500].decode("utf-8", "replace") or None,
        )
        error.status = status
        after = reply.headers.get("retry-after", "")
        error.retry_after = float(after) if after.isdigit() and len(after) < 8 else None
        return error


_HINTS: Final = {
    401: "it wants to know who you are: pass headers={'Authorization': ...}",
    403: "you may not do that, or the server does not allow this Host or Origin",
    404: "is the path of the URL right? It often ends with /mcp",
    405: "is the path of the URL right? It often ends with /mcp",
    421: "the server does not serve this host name: see its allowed hosts",
    502: "something in front of the server cannot reach it",
    504: "something in front of the server waits no longer for it",
}


def _origin(url: str) -> tuple[str, str | None, int | None]:
    parts = urlsplit(url)
    try:
        port = parts.port
    except ValueError:
        port = None
    return parts.scheme, parts.hostname, port or {"http": 80, "https": 443}.get(parts.scheme)
