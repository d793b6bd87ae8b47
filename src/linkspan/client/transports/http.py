"""A connection to a URL: every message is an HTTP request of its own. Both eras, and the first HTTP transport.

A request runs where its caller waits: on the caller's loop, or in the thread that waits. A request without such a caller, or
one that must first open a connection for a thread, has a thread of its own. A failure costs one request only.
Spec: https://modelcontextprotocol.io/specification/2026-07-28/basic/transports/streamable-http (H5-1 to H5-24, HDR-1 to HDR-9),
https://modelcontextprotocol.io/specification/2025-11-25/basic/transports (HL-1 to HL-18).
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import msgspec

from linkspan.client import probing as known_eras
from linkspan.client.login_options import NO_OPTIONS, LoginOptions
from linkspan.client.transports.base import (
    ClientTransport,
    PendingRequest,
    StoppableClock,
    ThreadWaiter,
    TransportOwner,
    Waiter,
    deliver,
    for_phase,
)
from linkspan.client.transports.http_accesses import HttpAccesses
from linkspan.client.transports.http_connections import Routes
from linkspan.client.transports.http_requests import HttpFailure, HttpFlow, HttpRequests, Reply
from linkspan.client.transports.http_runs import HttpRuns
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
from linkspan.core.flow import RequestSpec, Sleep
from linkspan.flows.client_errors import (
    ClientError,
    ConnectionLost,
    HttpError,
    ServerOrigin,
)
from linkspan.flows.http_messages import (
    SPEAKS_FOR_ITSELF,
    excerpt,
    http_error,
    mirrored,
    refused_token_hint,
    shown_url,
    verdict,
    what_came,
)
from linkspan.flows.requesting import backoff
from linkspan.flows.state import Auth, ClientState
from linkspan.revisions.agreement import Agreement
from linkspan.runtime.reactor import reactor
from linkspan.wire.framing import ServerSentEvent
from linkspan.wire.headers import media_type
from linkspan.wire.jsonrpc import Batch, ErrorResponse, Message, RequestId, decode

if TYPE_CHECKING:
    import asyncio
    from ssl import SSLContext

    from linkspan.auth.identities import Identity

_BOTH: Final = {"accept": "application/json, text/event-stream", "content-type": "application/json"}
_ERROR_BODY: Final = 65536
_TRIES: Final = 3
_SETTLE: Final = 1.0


class _Sent(msgspec.Struct, eq=False):
    """A message on its way. `request_id` is None for what gets no answer."""

    message: bytes
    headers: Mapping[str, str]
    request_id: RequestId | None = None
    method: str = ""
    own: Mapping[str, str] | None = None
    """The caller's headers among `headers`."""
    identity: Hashable = None
    """Who asks, where the call says it so."""
    here: asyncio.AbstractEventLoop | None = None
    """The loop on which its caller waits, and which runs it."""
    reported: threading.Event | None = None
    """Set when what gets no answer has arrived, or cannot."""

    @property
    def what(self) -> str:
        """What to call it in an error."""
        return self.method or "a message"


class HttpClientTransport(ClientTransport):
    """One server at one URL."""

    def __init__(
        self,
        owner: TransportOwner,
        state: ClientState,
        url: str,
        headers: Mapping[str, str],
        ssl: SSLContext | None,
        auth: Auth | Identity | None = None,
        hidden: Sequence[str] = (),
        login: LoginOptions = NO_OPTIONS,
    ) -> None:
        """Prepare; the first request opens a connection. `hidden` are secrets of the URL, `login` is for a person who logs in."""
        super().__init__(owner, state)
        self._url = url
        self._post_url = url
        self._accesses = HttpAccesses(state, url, ssl, login)
        token = auth if isinstance(auth, str) or callable(auth) else None
        self._requests = HttpRequests(
            state,
            headers,
            token,
            hidden,
            self._accesses.initial(auth, headers),
            self._accesses.of,
            finds_login="@" not in urlsplit(url).netloc,
            person_waits=self._person_waits,
            on_hop=owner.on_hop,
        )
        self._messages: Callable[[], list[bytes]] = (
            self.machine.messages_to_send if self.recorder is None else self._recorded_messages
        )
        """Returns what must go to the server now, and forgets it. With the lock."""
        self._runs = HttpRuns(Routes(ssl, state.options.timeouts.connect), self.lock)
        self._discarded: RequestId | None = None
        """The handshake that another answer overtook."""
        self._session = HttpSessionState(self.machine)
        self._streams = SseReader(state, self._requests, self._session, url, self._receive_event, self._stream_refused)
        self._own_stream = OwnStream(self._streams, state, self.restored)
        self._first_transport = FirstTransport(self._streams, state, lambda lost: self.end(error=lost))
        self.watch()
        if state.era is None and known_eras.is_legacy(shown_url(url)):
            state.era = "legacy"

    def _person_waits(self, request_id: RequestId, waits: bool) -> None:
        """Stop the clock of a request, and of the call that it belongs to, for as long as a person logs in. Any thread.

        What was kept before is of another login, perhaps.
        """
        if waits:
            with self.lock:
                self.machine.hold(request_id)
                clock = self.state.clock
                if not isinstance(clock, StoppableClock):
                    clock = self.state.clock = StoppableClock()
            clock.stop((self, request_id))
            self._owner.person_awaited()
            return
        if isinstance(clock := self.state.clock, StoppableClock):
            clock.go_on((self, request_id))
        with self.lock:
            self.machine.go_on(request_id)
        self._keep_deadlines()
        self.state.cache.clear()
        self.state.forget_tools()

    # Callers.

    def submit(self, spec: RequestSpec, waiter: Waiter) -> None:
        """Send a request. Raises: ConnectionLost."""
        with self.lock:
            super().submit(spec, waiter)
            *others, message = self._messages()
            for each in others:
                self._notify(each)
            pending_request: PendingRequest = waiter.pending_request
            request_id = pending_request.request_id
            agreement, named_by = spec.agreement or self.machine.agreement, self.state.options.named_by
            headers = _request_headers(spec, agreement, self._session, named_by)
            sent = _Sent(message, headers, request_id, spec.method, spec.headers, spec.identity, waiter.loop)
            self._runs.prepare(request_id, self._run(sent), waiter)

    def wait(self, waiter: ThreadWaiter) -> Any:
        """Return the next item of `waiter`; meanwhile its thread sends and reads, as long as nothing else is to be done."""
        pending_request: PendingRequest = waiter.pending_request
        if waiter.empty() and pending_request.transport is self:
            self._runs.step(pending_request.request_id, waiter)
        return waiter.get()

    def agree(self, agreement: Agreement) -> None:
        """From now on speak by `agreement`; a handshake server may have something to say on a stream of its own."""
        super().agree(agreement)
        revision = agreement.revision
        self.machine.sends_cancel = not revision.cancels_by_closing
        if not revision.keeps_sessions:
            known_eras.forget(shown_url(self._url))
            return
        if self.state.options.era is None and self.state.options.revision is None:
            known_eras.remember_legacy(shown_url(self._url))
        if not self._first_transport.used:
            self._start("stream", self._own_stream.keep_open)

    def settle(self) -> None:
        """Wait until a handshake server knows that we are ready, and has our stream, because some ask on it alone."""
        if not self.machine.agreement.revision.keeps_sessions:
            return
        until = time.monotonic() + _SETTLE
        for each in list(self._runs.by_key):
            if isinstance(each, _Sent) and each.reported is not None:
                each.reported.wait(max(0.0, until - time.monotonic()))
        if not self._first_transport.used:
            self._own_stream.open.wait(_SETTLE)

    def flush(self, here: asyncio.AbstractEventLoop | None = None) -> None:
        """Start what was submitted."""
        with self.lock:
            for each in self._messages():
                self._notify(each)
        self._runs.start_due()

    def give_up(self, request_id: RequestId, reason: str | None, *, report: bool = False) -> None:
        """Cancel a request: in the modern era by closing its stream."""
        super().give_up(request_id, reason, report=report)
        self._runs.cancel([request_id])

    def discard(self, request_id: RequestId) -> None:
        """Let go of a handshake that is not needed: it is not cut, so that its session can be ended when it is known."""
        with self.lock:
            self.machine.forget(request_id)
            self._discarded = request_id
            session_id, self._session.id = self._session.id, None
        reactor().call_later(self.state.options.timeouts.connect, lambda: self._runs.cancel([request_id]))
        if session_id is not None:
            self._start("farewell", lambda: self._end_session({SESSION: session_id}))

    def fall_back(self, reason: Exception, timeout: float) -> None:
        """Use the transport of the first revision. Raises: `reason` where there is none; ConnectError for a bad endpoint."""
        self._start("stream", self._first_transport.listen)
        endpoint = self._first_transport.endpoint(self._url, min(timeout, self.state.options.timeouts.probe))
        if endpoint is None:
            self._runs.cancel(["stream"])
            raise reason
        self._post_url = endpoint
        self._first_transport.used = True

    def end(self, *, by_us: bool = False, error: ClientError | None = None) -> None:
        """Record that the connection is gone, tell the server that the session is over, and release what this holds."""
        super().end(by_us=by_us, error=error)
        self.unwatch()
        with self.lock:
            farewell = self._end_session(self._session.headers()) if self._session.id is not None else None
            self._session.id = None
        self._runs.close(farewell, self.state.options.timeouts.close)

    def close(self) -> None:
        """End the session, if there is one, and close all connections."""
        with self.lock:
            again, self._closed = self._closed, True
        if not again:
            self.end(by_us=True)
        self._runs.wait_until_closed(self.state.options.timeouts.close + 1.0)

    def _end_session(self, headers: Mapping[str, str]) -> HttpFlow[None]:
        """Tell the server that the session which `headers` name is over. A server that is gone has forgotten it already."""
        with suppress(HttpFailure, ClientError):
            reply = yield from self._requests.send("DELETE", self._url, self._requests.headers({}, headers))
            reply.give_back()

    # The reactor.

    def handle_timeout(self, now: float) -> None:
        """Give up late requests."""
        self._runs.cancel(self.expire(now))

    # What runs.

    def _start(self, key: object, work: Callable[[], HttpFlow[None]]) -> None:
        """Run something in a thread until it ends or the connection does; nothing, if the same is at work."""
        with self.lock:
            if key in self._runs.by_key or not self.alive:
                return
            self._runs.prepare_alone(key, self._logged(key, work()))
        self._runs.start_due()

    def _notify(self, message: bytes) -> None:
        """With the lock: prepare to send what gets no answer."""
        if not self.alive:
            return
        sent = _Sent(message, self._session.headers(), reported=threading.Event())
        deadline = time.monotonic() + self.state.options.timeouts.list
        self._runs.prepare_alone(sent, self._logged(sent, self._notify_again(sent)), deadline)

    def _logged(self, key: object, work: HttpFlow[None]) -> HttpFlow[None]:
        """Run something whose outcome has no receiver."""
        try:
            yield from work
        except Exception:  # a mistake of ours
            logging.getLogger("linkspan").exception("an error in an HTTP connection")
        finally:
            self._runs.by_key.pop(key, None)
            if isinstance(key, _Sent) and key.reported is not None:
                key.reported.set()

    def _run(self, sent: _Sent) -> HttpFlow[None]:
        """Send a request and read its answer: whatever happens, its caller gets an outcome."""
        try:
            yield from self._post(sent)
        except HttpFailure as failure:
            self._finish(sent, failed(self.state.origin, failure, sent.what))
        except ClientError as error:
            self._finish(sent, error)
        except Exception as error:  # a mistake of ours; no caller may wait forever because of it
            self._finish(sent, invalid(self.state.origin, sent.what, type(error).__name__, delivery="maybe_sent"))
            logging.getLogger("linkspan").exception("an error in an HTTP connection")
        finally:
            self._runs.by_key.pop(sent.request_id, None)

    def _notify_again(self, sent: _Sent) -> HttpFlow[None]:
        """Send what gets no answer: again, if it cannot have arrived; not for ever."""
        for attempt in range(1, _TRIES + 1):
            try:
                yield from self._post(sent)
            except (HttpFailure, HttpError) as failure:
                arrived = failure.sent if isinstance(failure, HttpFailure) else failure.delivery != "not_sent"
                if arrived or attempt == _TRIES:
                    return
            else:
                return
            yield Sleep(backoff(attempt, self.state.random()))

    def _post(self, sent: _Sent) -> HttpFlow[None]:
        headers = self._requests.headers(_BOTH, sent.headers)
        reply = yield from self._requests.send(
            "POST",
            self._post_url,
            headers,
            sent.message,
            what=sent.what,
            request_id=sent.request_id,
            identity=sent.identity,
        )
        try:
            yield from self._read(sent, reply)
        finally:
            reply.give_back()

    def _read(self, sent: _Sent, reply: Reply) -> HttpFlow[None]:
        if sent.method == "initialize" and reply.status == 200:
            session_id = reply.headers.get(SESSION)
            if sent.request_id == self._discarded:
                if session_id is not None:
                    yield from self._end_session({SESSION: session_id})
                return
            self._session.id = session_id
        kind = media_type(reply.headers.get("content-type", ""))
        if reply.status >= 400:
            yield from self._read_refusal(sent, reply)
        elif sent.request_id is None or (self._first_transport.used and reply.status < 300):
            return
        elif reply.status == 200 and kind == "text/event-stream":
            yield from self._streams.read_answer(reply, sent.request_id, sent.method, sent.here)
        elif reply.status == 200 and kind == "application/json":
            data = yield from self._requests.whole(reply, self.state.options.limits.max_line_bytes)
            self._take(sent, data)
        else:
            yield from _complain(sent, reply, kind, self._requests, self.state.origin)

    def _take(self, sent: _Sent, data: bytes) -> None:
        """Read an answer that is one JSON message."""
        self._understand(data, sent.request_id, sent.here)
        if sent.request_id is not None and self.machine.is_pending(sent.request_id):
            secrets = self._requests.secrets(sent.own, sent.identity)
            raise invalid(
                self.state.origin, sent.what, what_came(data, sent.request_id, self.state.options.limits, secrets)
            )

    def _read_refusal(self, sent: _Sent, reply: Reply) -> HttpFlow[None]:
        """Read an answer with an error status: an error of the protocol if its body is one. A result there is none."""
        data = b""
        with suppress(HttpFailure):  # the status says enough
            data = yield from self._requests.whole(reply, _ERROR_BODY, cut=True)
        message = decode(data, self.state.options.limits) if data else None
        self._doubt(sent, reply, message, data)
        meant = isinstance(message, ErrorResponse) and message.id in (sent.request_id, None)
        if isinstance(message, ErrorResponse) and meant and reply.status not in SPEAKS_FOR_ITSELF:
            self._finish(sent, message)
            return
        hint: str | None = None
        if self._requests.sends_credentials(self._post_url, sent.own, sent.identity):
            hint = refused_token_hint(reply.status, reply.headers.get("www-authenticate", ""))
        raise http_error(
            self.state.origin,
            sent.what,
            reply.status,
            data,
            error=message if isinstance(message, ErrorResponse) else None,
            wait=wait_asked_for(reply),
            hint=hint,
            secrets=self._requests.secrets(sent.own, sent.identity),
        )

    def _doubt(self, sent: _Sent, reply: Reply, message: Message | Batch | None, data: bytes) -> None:
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
            self._forgotten(sent, "the server no longer supports the agreed version")

    def _forgotten(self, sent: _Sent | None, problem: str) -> None:
        self._session.id = None
        error = ConnectionLost(problem, self.state.origin, delivery="not_sent")
        if sent is not None:
            self._finish(sent, error)
        self.end(error=ConnectionLost(problem, self.state.origin, delivery="maybe_sent"))

    def _stream_refused(self, reply: Reply) -> HttpFlow[None]:
        """Read why there is no stream: some servers have none, and some have forgotten us."""
        if self._session.id is None:
            return
        data = b""
        with suppress(HttpFailure):
            data = yield from self._requests.whole(reply, _ERROR_BODY, cut=True)
        message = decode(data, self.state.options.limits) if data else None
        revision = self.machine.agreement.revision
        if verdict(reply.status, message, data, revision, in_session=True) == "session gone":
            self._forgotten(None, "the server has forgotten this session")

    # What came.

    def _receive_event(
        self, event: ServerSentEvent, answers: RequestId | None, here: asyncio.AbstractEventLoop | None
    ) -> None:
        """Understand one event; on the stream of a request, answers to others do not count."""
        if event.event != "message" or not event.data:
            return
        self._understand(event.data.encode(), answers, here)
        self.flush()

    def _understand(self, message: bytes, answers: RequestId | None, here: asyncio.AbstractEventLoop | None) -> None:
        if self.recorder is not None:
            self.recorder.server(message.replace(b"\n", b" ") + b"\n")
        with self.lock:
            events = self.machine.receive_message(message, answers)
        if UnexpectedOutput in map(type, events):
            events = [each for each in events if type(each) is not UnexpectedOutput]
        self.receive(events, here)

    def _recorded_messages(self) -> list[bytes]:
        messages = self.machine.messages_to_send()
        if self.recorder is not None:
            for each in messages:
                self.recorder.client(each + b"\n")
        return messages

    def _finish(self, sent: _Sent, item: ErrorResponse | ClientError) -> None:
        """End one request with an error."""
        if sent.request_id is None:
            return
        with self.lock:
            waiter = self.machine.forget(sent.request_id)
        if waiter is not None:
            deliver([(waiter, for_phase(item, waiter) if isinstance(item, ClientError) else item)])


_WRONG_KIND: Final = "check that this is the URL of an MCP server; its path often ends with /mcp [LS-211]"


def _complain(sent: _Sent, reply: Reply, kind: str, requests: HttpRequests, origin: ServerOrigin) -> HttpFlow[None]:
    """Report what came instead of a response. Raises: InvalidResponse."""
    if reply.status in (202, 204):
        raise invalid(origin, sent.what, f"it came with status {reply.status}, which is for notifications")
    data = yield from requests.whole(reply, _ERROR_BODY, cut=True)
    shown = excerpt(data, requests.secrets(sent.own, sent.identity))
    what = f"it came with status {reply.status} and {repr(kind[:60]) if kind else 'no content type'}"
    raise invalid(origin, sent.what, f"{what}{f': {shown}' if shown else ''}", hint=_WRONG_KIND)


def _request_headers(
    spec: RequestSpec, agreement: Agreement, session: HttpSessionState, named_by: Mapping[str, str]
) -> dict[str, str]:
    if agreement.revision.repeats_in_headers:
        headers = mirrored(agreement, spec.method, spec.params, spec.header_plan, named_by)
    elif spec.method == "initialize":
        headers = {}  # nothing modern may leak into a handshake, and there is no session yet
    else:
        headers = session.headers()
    if spec.headers:
        headers |= {name.lower(): value for name, value in spec.headers.items()}
    return headers
