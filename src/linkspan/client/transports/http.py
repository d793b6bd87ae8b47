"""A connection to a URL: every message is an HTTP request of its own. Both eras, and the first HTTP transport.

All I/O is on one event loop in the background, so threads and loops of the application share one pool. A failure costs the
request that met it, and no other. Spec: checklist 4.7, 5.2-5.4.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import msgspec

from linkspan.client import probing as known_eras
from linkspan.client.transports.base import ClientTransport, PendingRequest, TransportOwner, Waiter, deliver
from linkspan.client.transports.http_requests import HttpFailure, HttpPort, HttpReply, HttpRequests
from linkspan.client.transports.http_streams import (
    SESSION,
    FirstTransport,
    HttpSessionState,
    OwnStream,
    SseReader,
    failed,
    invalid,
    wait_asked_for,
)
from linkspan.core.client_connection import UnexpectedOutput
from linkspan.core.flow import RequestSpec
from linkspan.errors import install_hint
from linkspan.flows.client_errors import (
    ClientError,
    ConnectError,
    ConnectionLost,
    HttpError,
)
from linkspan.flows.http_messages import (
    SPEAKS_FOR_ITSELF,
    excerpt,
    http_error,
    mirrored,
    shown_url,
    verdict,
    what_came,
)
from linkspan.flows.requesting import backoff
from linkspan.flows.state import Auth, ClientState
from linkspan.revisions.agreement import Agreement
from linkspan.runtime.background import background_loop
from linkspan.wire.framing import ServerSentEvent
from linkspan.wire.headers import media_type
from linkspan.wire.jsonrpc import Batch, ErrorResponse, Message, RequestId, decode

if TYPE_CHECKING:
    from ssl import SSLContext

__all__ = ["HttpClientTransport"]

_BOTH: Final = {"accept": "application/json, text/event-stream", "content-type": "application/json"}
_ERROR_BODY: Final = 65536
_TRIES: Final = 3
_SETTLE: Final = 1.0
_AT_ONCE: Final = 32
"""Requests that are started or ended in one turn of the loop, which all URLs of the process share."""


class _Sent(msgspec.Struct, eq=False):
    """A message on its way. `request_id` is None for what gets no answer."""

    message: bytes
    headers: Mapping[str, str]
    request_id: RequestId | None = None
    method: str = ""
    own: Mapping[str, str] | None = None
    """The caller's headers among `headers`."""

    @property
    def what(self) -> str:
        """What to call it in an error."""
        return self.method or "a message"


def _open_port(ssl: SSLContext | None, connect_timeout: float) -> HttpPort:
    try:
        from linkspan.client.transports.http_aiohttp import AiohttpPort
    except ImportError:
        problem = "the library for HTTP is not installed"
        raise HttpFailure(problem, sent=False, ours=True, hint=install_hint("http")) from None
    return AiohttpPort(ssl=ssl, connect_timeout=connect_timeout)


class HttpClientTransport(ClientTransport):
    """One server at one URL."""

    def __init__(
        self,
        owner: TransportOwner,
        state: ClientState,
        url: str,
        headers: Mapping[str, str],
        ssl: SSLContext | None,
        auth: Auth | None = None,
        hidden: Sequence[str] = (),
    ) -> None:
        """Prepare; the first request opens a connection. `hidden` are secrets of the URL."""
        super().__init__(owner, state)
        self._url = url
        self._post_url = url
        self._requests = HttpRequests(
            state, headers, partial(_open_port, ssl, state.options.timeouts.connect), auth, hidden
        )
        self._loop = background_loop().loop
        self._queue: deque[_Sent] = deque()
        self._starting = False
        """Whether `_start` is due on the loop."""
        self._tasks: dict[object, asyncio.Task[None]] = {}
        self._given_up: deque[RequestId] = deque()
        """Requests whose streams must be closed; `_close_some` is due on the loop while there are any."""
        self._discarded: RequestId | None = None
        """The handshake that another answer overtook."""
        self._released = threading.Event()
        self._session = HttpSessionState(self.machine)
        self._streams = SseReader(state, self._requests, self._session, url, self._receive_event, self._stream_refused)
        self._own_stream = OwnStream(self._streams, state, self.restored)
        self._first_transport = FirstTransport(self._streams, state, lambda lost: self.end(error=lost))
        self.watch()
        if state.era is None and known_eras.is_legacy(shown_url(url)):
            state.era = "legacy"

    # Callers.

    def submit(self, spec: RequestSpec, waiter: Waiter) -> None:
        """Send a request. Raises: ConnectionLost."""
        with self.lock:
            super().submit(spec, waiter)
            *others, message = self._messages()
            self._queue.extend(_Sent(each, self._session.headers()) for each in others)
            pending_request: PendingRequest = waiter.pending_request
            headers = self._request_headers(spec)
            self._queue.append(_Sent(message, headers, pending_request.request_id, spec.method, spec.headers))

    def _request_headers(self, spec: RequestSpec) -> dict[str, str]:
        agreement = spec.agreement or self.machine.agreement
        if agreement.revision.repeats_in_headers:
            headers = mirrored(agreement, spec.method, spec.params, spec.header_plan)
        elif spec.method == "initialize":
            headers = {}  # nothing modern may leak into a handshake, and there is no session yet
        else:
            headers = self._session.headers()
        return headers | {name.lower(): value for name, value in (spec.headers or {}).items()}

    def agree(self, agreement: Agreement) -> None:
        """From now on speak by `agreement`; a handshake server may have something to say on a stream of its own."""
        super().agree(agreement)
        revision = agreement.revision
        self.machine.tells_cancel = not revision.cancels_by_closing
        if not revision.keeps_sessions:
            known_eras.forget(shown_url(self._url))
            return
        if self.state.options.era is None and self.state.options.revision is None:
            known_eras.remember_legacy(shown_url(self._url))
        if not self._first_transport.used:
            self._on_loop(lambda: self.start("stream", self._own_stream.keep_open()))

    def settle(self) -> None:
        """Wait until a handshake server knows that we are ready, and has our stream, because some ask on it alone."""
        if not self.machine.agreement.revision.keeps_sessions:
            return
        with suppress(Exception):
            asyncio.run_coroutine_threadsafe(self._all_told(), self._loop).result(_SETTLE)
        if not self._first_transport.used:
            self._own_stream.open.wait(_SETTLE)

    async def _all_told(self) -> None:
        if telling := [task for key, task in self._tasks.items() if isinstance(key, _Sent)]:
            await asyncio.wait(telling, timeout=_SETTLE)

    def flush(self, here: asyncio.AbstractEventLoop | None = None) -> None:
        """Start what was submitted."""
        with self.lock:
            self._queue.extend(_Sent(each, self._session.headers()) for each in self._messages())
            if self._starting or not self._queue:
                return
            self._starting = True
        self._on_loop(self._start)

    def give_up(self, request_id: RequestId, reason: str | None, *, tell: bool = False) -> None:
        """Cancel a request: in the modern era by closing its stream."""
        super().give_up(request_id, reason, tell=tell)
        self._close_streams([request_id])

    def discard(self, request_id: RequestId) -> None:
        """Let go of a handshake that is not needed: it is not cut, so that its session can be ended when it is known."""
        with self.lock:
            self.machine.forget(request_id)
        self._on_loop(lambda: self._discard(request_id))

    def _discard(self, request_id: RequestId) -> None:
        self._discarded = request_id
        session_id, self._session.id = self._session.id, None
        task = self._tasks.get(request_id)
        if task is not None:
            self._loop.call_later(self.state.options.timeouts.connect, task.cancel)
        if session_id is not None:
            self.start("farewell", self._end_session({SESSION: session_id}))

    def fall_back(self, reason: Exception, timeout: float) -> None:
        """Use the transport of the first revision. Raises: `reason` where there is none; ConnectError for a bad endpoint."""
        opened = asyncio.run_coroutine_threadsafe(self._open_first_transport(), self._loop)
        try:
            self._post_url = opened.result(min(timeout, self.state.options.timeouts.probe))
        except ConnectError:
            raise
        except Exception:
            opened.cancel()
            self._on_loop(lambda: self._stop("stream"))
            raise reason from None
        self._first_transport.used = True

    async def _open_first_transport(self) -> str:
        self.start("stream", self._first_transport.listen())
        return await self._first_transport.endpoint(self._url)

    def end(self, *, by_us: bool = False, error: ClientError | None = None) -> None:
        """Record that the connection is gone, and release what it holds."""
        super().end(by_us=by_us, error=error)
        if not self._closed:
            self.unwatch()
            self._on_loop(lambda: self.start("release", self._release()))

    def close(self) -> None:
        """End the session, if there is one, and close all connections."""
        with self.lock:
            again, self._closed = self._closed, True
        if not again:
            self.end(by_us=True)
            self.unwatch()
            asyncio.run_coroutine_threadsafe(self._release(), self._loop)
        if not background_loop().is_here():
            self._released.wait(self.state.options.timeouts.close + 1.0)

    async def _release(self) -> None:
        """Stop all that runs here, tell the server that the session is over, and close the connections."""
        this = asyncio.current_task()
        for task in list(self._tasks.values()):
            if task is not this:
                task.cancel()
        try:
            if self._session.id is not None:
                await self._end_session(self._session.headers())
        finally:
            try:
                await self._requests.close()
            finally:
                self._released.set()

    async def _end_session(self, headers: Mapping[str, str]) -> None:
        """Tell the server that the session which `headers` name is over. A server that is gone has forgotten it already."""
        with suppress(HttpFailure, ClientError, TimeoutError):
            async with (
                asyncio.timeout(self.state.options.timeouts.close),
                self._requests.send("DELETE", self._url, self._requests.headers({}, headers)),
            ):
                pass

    # The reactor.

    def handle_timeout(self, now: float) -> None:
        """Give up late requests."""
        self._close_streams(self.expire(now))

    # On the loop.

    def _on_loop(self, step: Any) -> None:
        try:
            self._loop.call_soon_threadsafe(step)
        except RuntimeError:  # the interpreter is ending
            self.end()

    def start(self, key: object, work: Coroutine[Any, Any, None]) -> None:
        """Run something until it ends or the connection does; nothing, if the same is at work. On the loop."""
        if key in self._tasks or (not self.alive and key != "release"):
            work.close()
            return
        task = self._tasks[key] = self._loop.create_task(work)
        task.add_done_callback(lambda done: self._finished(key, done))

    def _finished(self, key: object, done: asyncio.Task[None]) -> None:
        if self._tasks.get(key) is done:
            del self._tasks[key]
        if not done.cancelled() and (error := done.exception()) is not None:
            import logging

            logging.getLogger("linkspan").error("an error in an HTTP connection", exc_info=error)

    def _stop(self, key: object) -> None:
        task = self._tasks.pop(key, None)
        if task is not None:
            task.cancel()

    def _start(self) -> None:
        """Start what is queued, a few at a time: others share the loop. What was given up meanwhile is not sent at all."""
        for _ in range(_AT_ONCE):
            with self.lock:
                if not self._queue:
                    self._starting = False
                    return
                sent = self._queue.popleft()
            if sent.request_id is None:
                self.start(sent, self._run(sent))
            elif self.machine.is_pending(sent.request_id):
                self.start(sent.request_id, self._run(sent))
        self._loop.call_soon(self._start)

    def _close_streams(self, request_ids: Iterable[RequestId]) -> None:
        """Close the streams of requests that were given up. Any thread."""
        with self.lock:
            closing = bool(self._given_up)
            self._given_up.extend(request_ids)
            if closing or not self._given_up:
                return
        self._on_loop(self._close_some)

    def _close_some(self) -> None:
        """Close a few streams and let others have the loop: thousands may be given up at once."""
        for _ in range(_AT_ONCE):
            with self.lock:
                request_id = self._given_up.popleft()
                more = bool(self._given_up)
            task = self._tasks.get(request_id)
            if task is not None:
                task.cancel()
            if not more:
                return
        self._loop.call_soon(self._close_some)

    async def _run(self, sent: _Sent) -> None:
        try:
            await (self._post(sent) if sent.request_id is not None else self._tell(sent))
        except HttpFailure as failure:
            self._lose(sent, failed(self.state.origin, failure, sent.what))
        except ClientError as error:
            self._lose(sent, error)
        except Exception as error:  # a mistake of ours; no caller may wait forever because of it
            self._lose(sent, invalid(self.state.origin, sent.what, type(error).__name__, delivery="maybe_sent"))
            raise

    async def _tell(self, sent: _Sent) -> None:
        """Send what gets no answer: again, if it cannot have arrived; not for ever."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self.state.options.timeouts.list):
                for attempt in range(1, _TRIES + 1):
                    try:
                        await self._post(sent)
                    except (HttpFailure, HttpError) as failure:
                        arrived = failure.sent if isinstance(failure, HttpFailure) else failure.delivery != "not_sent"
                        if arrived or attempt == _TRIES:
                            return
                    else:
                        return
                    await asyncio.sleep(backoff(attempt, self.state.random()))

    async def _post(self, sent: _Sent) -> None:
        headers = self._requests.headers(_BOTH, sent.headers)
        async with self._requests.send("POST", self._post_url, headers, sent.message, what=sent.what) as reply:
            await self._read(sent, reply)

    async def _read(self, sent: _Sent, reply: HttpReply) -> None:
        if sent.method == "initialize" and reply.status == 200:
            session_id = reply.headers.get(SESSION)
            if sent.request_id == self._discarded:
                if session_id is not None:
                    await self._end_session({SESSION: session_id})
                return
            self._session.id = session_id
        kind = media_type(reply.headers.get("content-type", ""))
        if reply.status >= 400:
            await self._read_refusal(sent, reply)
        elif sent.request_id is None or (self._first_transport.used and reply.status < 300):
            return
        elif reply.status == 200 and kind == "text/event-stream":
            await self._streams.read_answer(reply, sent.request_id, sent.method)
        elif reply.status == 200 and kind == "application/json":
            self._take(sent, await self._requests.whole(reply, self.state.options.limits.max_line_bytes))
        else:
            await self._complain(sent, reply, kind)

    async def _complain(self, sent: _Sent, reply: HttpReply, kind: str) -> None:
        """Report what came instead of a response. Raises: InvalidResponse."""
        if reply.status in (202, 204):
            raise invalid(
                self.state.origin, sent.what, f"it came with status {reply.status}, which is for what needs no answer"
            )
        data = await self._requests.whole(reply, _ERROR_BODY, cut=True)
        shown = excerpt(data, self._requests.secrets(sent.own))
        what = f"it came with status {reply.status} and {repr(kind[:60]) if kind else 'no content type'}"
        raise invalid(self.state.origin, sent.what, f"{what}{f': {shown}' if shown else ''}", hint=_WRONG_KIND)

    def _take(self, sent: _Sent, data: bytes) -> None:
        """Read an answer that is one JSON message."""
        self._understand(data, sent.request_id)
        if sent.request_id is not None and self.machine.is_pending(sent.request_id):
            secrets = self._requests.secrets(sent.own)
            raise invalid(
                self.state.origin, sent.what, what_came(data, sent.request_id, self.state.options.limits, secrets)
            )

    async def _read_refusal(self, sent: _Sent, reply: HttpReply) -> None:
        """Read an answer with an error status: an error of the protocol if its body is one. A result there is none."""
        data = b""
        with suppress(HttpFailure):  # the status says enough
            data = await self._requests.whole(reply, _ERROR_BODY, cut=True)
        message = decode(data, self.state.options.limits) if data else None
        self._doubt(sent, reply, message, data)
        meant = isinstance(message, ErrorResponse) and message.id in (sent.request_id, None)
        if isinstance(message, ErrorResponse) and meant and reply.status not in SPEAKS_FOR_ITSELF:
            self._answer(sent, message)
            return
        raise http_error(
            self.state.origin,
            sent.what,
            reply.status,
            data,
            error=message if isinstance(message, ErrorResponse) else None,
            wait=wait_asked_for(reply),
            secrets=self._requests.secrets(sent.own),
        )

    def _answer(self, sent: _Sent, message: ErrorResponse) -> None:
        if sent.request_id is None:
            return
        with self.lock:
            waiter = self.machine.forget(sent.request_id)
        if waiter is not None:
            deliver([(waiter, message)])

    def _doubt(self, sent: _Sent, reply: HttpReply, message: Message | Batch | None, data: bytes) -> None:
        """End the connection if the server has forgotten it. Nothing was done then, and all must begin anew (HL-7)."""
        if not self.agreed or sent.method == "initialize":
            return
        revision = self.machine.agreement.revision
        in_session = self._session.id is not None or self._first_transport.used
        found = verdict(reply.status, message, data, revision, in_session=in_session)
        if found == "session gone":
            self._forgotten(sent, "the server has forgotten this session")
        elif found == "other era":
            self.state.era = None
            known_eras.forget(shown_url(self._url))
            self._forgotten(sent, "the server does not speak what was agreed any more")

    def _forgotten(self, sent: _Sent | None, problem: str) -> None:
        self._session.id = None
        error = ConnectionLost(problem, self.state.origin, delivery="not_sent")
        if sent is not None:
            self._lose(sent, error)
        self.end(error=ConnectionLost(problem, self.state.origin, delivery="maybe_sent"))

    async def _stream_refused(self, reply: HttpReply) -> None:
        """Read why there is no stream: some servers have none, and some have forgotten us."""
        if self._session.id is None:
            return
        data = b""
        with suppress(HttpFailure):
            data = await self._requests.whole(reply, _ERROR_BODY, cut=True)
        message = decode(data, self.state.options.limits) if data else None
        revision = self.machine.agreement.revision
        if verdict(reply.status, message, data, revision, in_session=True) == "session gone":
            self._forgotten(None, "the server has forgotten this session")

    # What came.

    def _receive_event(self, event: ServerSentEvent, answers: RequestId | None) -> None:
        """Understand one event; on the stream of a request, answers to others do not count."""
        if event.event != "message" or not event.data:
            return
        self._understand(event.data.encode(), answers)
        self.flush()

    def _understand(self, message: bytes, answers: RequestId | None) -> None:
        if self.recorder is not None:
            self.recorder.server(message.replace(b"\n", b" ") + b"\n")
        with self.lock:
            events = self.machine.receive_message(message, answers)
        self.receive([each for each in events if type(each) is not UnexpectedOutput])

    def _messages(self) -> list[bytes]:
        """Return what there is to send. With the lock."""
        messages = self.machine.messages_to_send()
        if self.recorder is not None:
            for each in messages:
                self.recorder.client(each + b"\n")
        return messages

    # Errors.

    def _lose(self, sent: _Sent, error: ClientError) -> None:
        """End one request with an error."""
        if sent.request_id is None:
            return
        with self.lock:
            waiter = self.machine.forget(sent.request_id)
        if waiter is not None:
            deliver([(waiter, self._for_phase(error, waiter))])


_WRONG_KIND: Final = "is that the URL of an MCP server? Its path often ends with /mcp"
