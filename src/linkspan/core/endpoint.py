"""One HTTP endpoint for every revision: which era a request is of, whose session, and what is wrong with it.

Modern requests stand alone; handshake clients have sessions. Both come to the same path at the same time. No I/O here.
Spec: https://modelcontextprotocol.io/specification/2026-07-28/basic/transports (checklist 2.4.2, 5.2, 5.3).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Final, Protocol
from urllib.parse import parse_qs

import msgspec

from linkspan.core.call import NO_PORTS, Call, Check, Delivery, Ports
from linkspan.core.connection import ServerConnection
from linkspan.core.exchange import Page, ServerExchange, status_of
from linkspan.core.gate import Arrival, Gate, refusal_body
from linkspan.core.http_pair import SESSION_PARAMETER, Pairs
from linkspan.core.http_policy import HttpPolicy
from linkspan.core.http_session import SESSION_HEADER, HttpSession, Sessions
from linkspan.core.mirror import Mirror
from linkspan.core.params import read_meta
from linkspan.errors import INVALID_REQUEST, UNSUPPORTED_PROTOCOL_VERSION, RemoteProtocolError
from linkspan.events import Event
from linkspan.revisions import DEFAULT_NEGOTIATED, LEGACY, MODERN, REVISIONS, supported_versions
from linkspan.revisions.modern import PROTOCOL_VERSION, read_envelope
from linkspan.revisions.neutral import Facts
from linkspan.wire.headers import accepts, names
from linkspan.wire.limits import Limits
from linkspan.wire.messages import (
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
)

__all__ = ["Endpoint", "Opened", "Serves"]

VERSION_HEADER = "mcp-protocol-version"
_MARKER = PROTOCOL_VERSION.encode()
_DISAGREES: Final = f"{VERSION_HEADER} is not what this session agreed on"
_BUSY: Final = "Too many requests are running in this session (max_running); try again when one has ended"


class Serves(Protocol):
    """A server, as an endpoint sees it."""

    def connect(
        self, *, back_channel: bool = True, one_shot: bool = False, ports: Ports = NO_PORTS
    ) -> ServerConnection:
        """Open a connection."""
        ...


class Opened(msgspec.Struct, frozen=True):
    """A request that was taken in: its response, and what has to run for it, on which connection."""

    exchange: ServerExchange
    connection: ServerConnection | None = None
    events: Sequence[Event[Call]] = ()
    session: HttpSession | None = None


class Endpoint:
    """The machine behind ASGI and WSGI. Not thread-safe except where a connection's lock says so."""

    def __init__(
        self,
        server: Serves,
        policy: HttpPolicy,
        *,
        limits: Limits,
        clock: Callable[[], float],
        random: Callable[[int], bytes],
        lock: Callable[[], AbstractContextManager[object]],
        page: Callable[[str, Facts], Page] | None = None,
    ) -> None:
        """Serve `server` as `policy` says.

        `clock` gives seconds that never go back, `random(n)` unguessable bytes, `lock()` a new lock. `page(url, facts)` makes
        what people see in a browser.
        """
        self.policy = policy
        self.gate = Gate(policy)
        self._random = random
        self._server = server
        self._limits = limits
        self._clock = clock
        self._lock = lock
        self._page = page
        self.start_afresh()

    def start_afresh(self) -> None:
        """Begin without sessions and streams: in a forked process they are the parent's."""
        self.sessions = Sessions(self.policy, self._random, self._lock())
        self.pairs = Pairs(self._random)
        self._open: set[ServerExchange] = set()
        self._orphans: set[ServerConnection] = set()

    def admit(self, method: str, headers: Mapping[str, str], arrival: Arrival) -> ServerExchange | None:
        """Refuse what needs no look at the body; None means: read the body and `open` it."""
        return self.gate.admit(method, headers, arrival)

    def open(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes, facts: Facts, *, query: str = ""
    ) -> Opened:
        """Take in a request that was admitted. `url` is without the `query`; header names are in lower case."""
        exchange = ServerExchange(
            now=self._clock(),
            takes_json=accepts(headers.get("accept"), "application/json"),
            takes_events=accepts(headers.get("accept"), "text/event-stream"),
            headers=self.gate.cors_headers(headers) if "origin" in headers else (),
            bound=self.policy.max_unsent_bytes,
        )
        if method == "POST":
            pair_id = parse_qs(query).get(SESSION_PARAMETER) if query and self._is_pair(url) else None
            if pair_id is not None:
                return self._post_to_pair(exchange, pair_id[0], body, facts)
            return self._post(exchange, headers, body, facts)
        if method == "GET":
            if self._is_pair(url) and SESSION_HEADER not in headers and "text/html" not in headers.get("accept", ""):
                return self._open_pair(exchange, facts)
            return self._get(exchange, url, headers, facts)
        return self._delete(exchange, headers, facts)

    # POST.

    def _post(self, exchange: ServerExchange, headers: Mapping[str, str], body: bytes, facts: Facts) -> Opened:
        message = decode(body, self._limits)
        if isinstance(message, Malformed):
            answer = encode_error(message.reply_id, message.code, message.message)
            return Opened(exchange.refuse(400, answer))
        if self._is_modern(message, headers, body):
            return self._modern(exchange, headers, message, facts)
        return self._handshake(exchange, headers, message, facts)

    def _is_modern(self, message: Message | Batch, headers: Mapping[str, str], body: bytes) -> bool:
        """Tell the era of a message: by its header in nearly all cases, else by what its `_meta` claims."""
        if headers.get(VERSION_HEADER) in MODERN:
            return True
        if not isinstance(message, RpcRequest) or _MARKER not in body:
            return False
        try:
            return read_envelope(read_meta(message.params)).peer is not None
        except RemoteProtocolError:
            return True

    def _modern(
        self, exchange: ServerExchange, headers: Mapping[str, str], message: Message | Batch, facts: Facts
    ) -> Opened:
        """Serve a request that stands alone. Sessions mean nothing to it (H5-9)."""
        if isinstance(message, Batch | Response | ErrorResponse):
            what = "a batch" if isinstance(message, Batch) else "a response"
            return Opened(exchange.refuse(400, _error(f"Invalid Request: {what} has no place in this revision")))
        if isinstance(message, RpcRequest) and self._is_full:
            return self._no_room(exchange)
        if isinstance(message, RpcRequest) and message.method == "subscriptions/listen" and not exchange.takes_events:
            problem = "subscriptions/listen opens a stream: accept text/event-stream"
            return Opened(exchange.refuse(406, encode_error(message.id, INVALID_REQUEST, problem)))
        if isinstance(message, Notification):
            return self._notified(exchange, message, facts)
        assert isinstance(message, RpcRequest)

        def send(each: Delivery) -> None:
            exchange.message(each.data, final=each.final, status=status_of(each.error, dispatched=each.dispatched))

        connection = self._connect(send=send, check=Mirror(headers).check)
        exchange.connection, exchange.stands_alone, exchange.lock = connection, True, connection.lock
        events = connection.receive(message, facts)
        self._note(exchange)
        if exchange.ended and connection.running:
            self._orphans.add(connection)  # a hook of the author's, which nobody waits for
        return Opened(exchange, connection, events)

    def _notified(self, exchange: ServerExchange, message: Notification, facts: Facts) -> Opened:
        """Serve a notification that stands alone. Nobody waits for it, so it takes room until it ends (`max_streams`)."""
        if message.method == "notifications/cancelled":
            return Opened(exchange.accept())  # a client cancels by closing the stream (CAN-3)
        connection = self._connect()
        exchange.connection, exchange.stands_alone, exchange.lock = connection, True, connection.lock
        if connection.serves(message) and self._is_full:
            return self._no_room(exchange)
        events = connection.receive(message, facts)
        if connection.running:
            self._orphans.add(connection)
        return Opened(exchange.accept(), connection, events)

    # The handshake era.

    def _handshake(
        self, exchange: ServerExchange, headers: Mapping[str, str], message: Message | Batch, facts: Facts
    ) -> Opened:
        version = headers.get(VERSION_HEADER)
        initializes = isinstance(message, RpcRequest) and message.method == "initialize"
        if version is not None and version not in LEGACY:
            return Opened(exchange.refuse(400, _unsupported(version, message)))
        if initializes and self.policy.sessions:
            return self._initialize(exchange, message, facts)
        session_id = headers.get(SESSION_HEADER)
        if session_id is not None and self.policy.sessions:
            session = self.sessions.find(session_id, facts.principal, self._clock())
            if session is None:
                return Opened(exchange.refuse(404, _error("Session not found: initialize again without a session id")))
            if _disagrees(version, session):
                return Opened(exchange.refuse(400, _error(_DISAGREES)))
            return self._in_session(exchange, session, message, facts)
        if self.policy.sessions and self.policy.require_session:
            hint = "Missing mcp-session-id: initialize first, or send the envelope of the newest revision in _meta"
            return Opened(exchange.refuse(400, _error(hint)))
        return self._alone(exchange, version, message, facts)

    def _initialize(self, exchange: ServerExchange, message: Message | Batch, facts: Facts) -> Opened:
        session = self.sessions.new(facts.principal, self._connect)
        connection = session.connection
        exchange.late_headers = lambda: session.headers if connection.session.negotiated else ()
        opened = self._in_session(exchange, session, message, facts)
        if not connection.session.negotiated:
            return opened  # sessions exist only after a handshake that succeeded
        try:
            evicted = self.sessions.keep(session, self._clock())
        except OverflowError as bound:
            busy = ServerExchange(now=self._clock(), headers=[("retry-after", "5")])
            status = 503 if str(bound) == "max_sessions" else 429
            return Opened(busy.refuse(status, _error(f"Too many sessions ({bound}); try again later")))
        return Opened(exchange, connection, [*opened.events, *self._end_session(evicted)], session)

    def _in_session(
        self, exchange: ServerExchange, session: HttpSession, message: Message | Batch, facts: Facts
    ) -> Opened:
        connection = session.connection
        exchange.connection = connection
        messages = message.messages if isinstance(message, Batch) else [message]
        requests: list[RequestId] = [each.id for each in messages if isinstance(each, RpcRequest)]
        if requests or any(connection.serves(each) for each in messages):
            if not connection.has_room:
                return Opened(exchange.refuse(429, _error(_BUSY), [("retry-after", "1")]))
            if self._is_full:
                return self._no_room(exchange)
        with connection.lock:
            exchange.lock = connection.lock
            session.begin(exchange, requests)
            events = connection.receive(message, facts)
            session.received()
        self._note(exchange)
        if not session.id and exchange.ended and connection.running:
            self._orphans.add(connection)  # a notification, which nobody waits for
        return Opened(exchange, connection, events, session)

    def _alone(self, exchange: ServerExchange, version: str | None, message: Message | Batch, facts: Facts) -> Opened:
        """Serve a handshake client's request without a session (HL-9)."""
        if isinstance(message, Response | ErrorResponse):
            return Opened(exchange.accept())
        session = HttpSession("", None, partial(self._connect, back_channel=False), self.policy)
        if not (isinstance(message, RpcRequest) and message.method == "initialize"):
            session.connection.session.assume(REVISIONS[version] if version is not None else DEFAULT_NEGOTIATED)
        return self._in_session(exchange, session, message, facts)

    # GET and DELETE.

    def _get(self, exchange: ServerExchange, url: str, headers: Mapping[str, str], facts: Facts) -> Opened:
        wanted = headers.get("accept") or ""
        if self._page is not None and SESSION_HEADER not in headers and _is_browser(wanted):
            return Opened(exchange.page(self._page(url, facts)))
        session = self._session_of(headers, facts)
        if session is None:
            return self._no_session(exchange, headers)
        if _disagrees(headers.get(VERSION_HEADER), session):
            return Opened(exchange.refuse(400, _error(_DISAGREES)))
        if "text/event-stream" not in wanted:
            return Opened(exchange.refuse(406, _error("GET opens a stream: accept text/event-stream")))
        if self._is_full:
            return self._no_room(exchange)
        exchange.lock = session.connection.lock
        with session.connection.lock:
            last = headers.get("last-event-id")
            if last is None:
                session.listen(exchange)
            elif not session.resume(exchange, last):
                # Not 404, which would mean that the session is gone.
                return Opened(exchange.refuse(400, _error("No stream with that Last-Event-ID: it is over")))
        self._note(exchange)
        return Opened(exchange, session.connection, (), session)

    def _delete(self, exchange: ServerExchange, headers: Mapping[str, str], facts: Facts) -> Opened:
        session = self._session_of(headers, facts)
        if session is None:
            return self._no_session(exchange, headers)
        if _disagrees(headers.get(VERSION_HEADER), session):
            return Opened(exchange.refuse(400, _error(_DISAGREES)))
        self.sessions.remove(session)
        events = self._end_session(session)
        return Opened(exchange.refuse(204), session.connection, events)

    def _session_of(self, headers: Mapping[str, str], facts: Facts) -> HttpSession | None:
        session_id = headers.get(SESSION_HEADER)
        if session_id is None or not self.policy.sessions:
            return None
        return self.sessions.find(session_id, facts.principal, self._clock())

    def _no_session(self, exchange: ServerExchange, headers: Mapping[str, str]) -> Opened:
        if SESSION_HEADER in headers and self.policy.sessions:
            return Opened(exchange.refuse(404, _error("Session not found")))
        return Opened(exchange.refuse(405, _error("Only POST is possible without a session"), [("allow", "POST")]))

    # The transport of the first revision.

    def _is_pair(self, url: str) -> bool:
        path = self.policy.http_sse
        return path is not None and url.rstrip("/").endswith(path.rstrip("/"))

    def _open_pair(self, exchange: ServerExchange, facts: Facts) -> Opened:
        if self._is_full:
            return self._no_room(exchange)
        if not exchange.takes_events:
            return Opened(exchange.refuse(406, _error("GET opens a stream: accept text/event-stream")))
        pair = self.pairs.open(exchange, self._connect, facts.principal)
        self._note(exchange)
        return Opened(exchange, pair.connection)

    def _post_to_pair(self, exchange: ServerExchange, pair_id: str, body: bytes, facts: Facts) -> Opened:
        pair = self.pairs.find(pair_id, facts.principal)
        if pair is None:
            return Opened(exchange.refuse(404, _error("Session not found: open the stream again")))
        message = decode(body, self._limits)
        if isinstance(message, Malformed):
            return Opened(exchange.refuse(400, encode_error(message.reply_id, message.code, message.message)))
        connection = pair.connection
        messages = message.messages if isinstance(message, Batch) else [message]
        if not connection.has_room and any(connection.serves(each) for each in messages):
            return Opened(exchange.refuse(429, _error(_BUSY), [("retry-after", "1")]))
        with connection.lock:
            events = connection.receive(message, facts)
        return Opened(exchange.accept(), connection, events)

    # Life.

    def _connect(
        self,
        *,
        back_channel: bool = True,
        send: Callable[[Delivery], object] | None = None,
        check: Check | None = None,
        hang_up: Callable[[RequestId], bool] | None = None,
    ) -> ServerConnection:
        ports = Ports(self._lock(), send=send, check=check, hang_up=hang_up)
        return self._server.connect(back_channel=back_channel, ports=ports)

    @property
    def _is_full(self) -> bool:
        """Whether there is no room; calls that go on though their client has gone, and cannot come back, need room too."""
        if len(self._open) + len(self._orphans) < self.policy.max_streams:
            return False
        self._forget_orphans()
        return len(self._open) + len(self._orphans) >= self.policy.max_streams

    def _forget_orphans(self) -> None:
        """Forget the calls that have ended. Other threads add to the set meanwhile, so it is changed in place."""
        for connection in list(self._orphans):
            if not connection.running:
                self._orphans.discard(connection)

    def _no_room(self, exchange: ServerExchange) -> Opened:
        problem = "Too many responses are open (max_streams); try again later"
        return Opened(exchange.refuse(503, _error(problem), [("retry-after", "5")]))

    def disconnect(self, opened: Opened) -> Sequence[Event[Call]]:
        """Take note that the client of a request has gone: a modern request is cancelled by that (H5-7)."""
        exchange, connection = opened.exchange, opened.connection
        self.finished(exchange)
        if connection is None:
            return ()
        with connection.lock:
            if opened.session is not None:
                opened.session.leave(exchange)
                if not opened.session.id and connection.running:
                    self._orphans.add(connection)
                return ()
            if exchange.ended:
                return ()  # only its last words did not arrive
            exchange.ended = True
            return connection.close()

    def finished(self, exchange: ServerExchange) -> None:
        """Take note that a response is complete."""
        self._open.discard(exchange)
        if self.policy.http_sse is not None:
            self.pairs.leave(exchange)
        exchange.release()

    @property
    def streams(self) -> int:
        """Responses that are not complete, and calls whose client has gone."""
        return len(self._open) + len(self._orphans)

    def tick(self, now: float) -> list[tuple[ServerConnection, Sequence[Event[Call]]]]:
        """Do what time brings: comments on quiet streams, questions nobody answered, sessions nobody uses."""
        for exchange in list(self._open):
            exchange.keep_alive(now, silence=self.policy.silence)
        self._forget_orphans()
        found: list[tuple[ServerConnection, Sequence[Event[Call]]]] = []
        for each in (*self.sessions, *self.pairs):
            with each.connection.lock:
                due = each.connection.next_timeout()
                if due is not None and due <= now:
                    found.append((each.connection, each.connection.handle_timeout(now)))
        found += [(session.connection, self._end_session(session)) for session in self.sessions.idle(now)]
        return found

    def drain(self) -> list[tuple[ServerConnection, Sequence[Event[Call]]]]:
        """Say goodbye to those who only listen. What was called goes on, until `close`."""
        ended: list[tuple[ServerConnection, Sequence[Event[Call]]]] = []
        for session in self.sessions:
            with session.connection.lock:
                session.hush()
        for exchange in list(self._open):
            connection = exchange.connection
            alone = exchange.stands_alone or exchange.event_name is not None
            if alone and connection is not None and not connection.running:
                with connection.lock:
                    ended.append((connection, connection.close()))
                exchange.end()
        return ended

    def close(self) -> list[tuple[ServerConnection, Sequence[Event[Call]]]]:
        """Say goodbye on every stream, and end the sessions."""
        ended: list[tuple[ServerConnection, Sequence[Event[Call]]]] = []
        for session in self.sessions:
            self.sessions.remove(session)
            ended.append((session.connection, self._end_session(session)))
        for exchange in list(self._open):
            if exchange.connection is not None:
                with exchange.connection.lock:
                    ended.append((exchange.connection, exchange.connection.close()))
            exchange.end()
        for connection in list(self._orphans):
            with connection.lock:
                ended.append((connection, connection.close()))
        return ended

    def _end_session(self, session: HttpSession | None) -> Sequence[Event[Call]]:
        if session is None:
            return ()
        with session.connection.lock:
            events = session.connection.close()
            session.end()
        return events

    def _note(self, exchange: ServerExchange) -> None:
        if not exchange.ended:
            self._open.add(exchange)


def _disagrees(version: str | None, session: HttpSession) -> bool:
    """Tell whether a request claims another revision than that of its session (HL-15)."""
    return version is not None and version != session.connection.session.revision.date


def _is_browser(accept: str) -> bool:
    """Tell a person's GET from a client's: a browser names HTML outright, and a client the stream that it wants."""
    return names(accept, "text/html") and not names(accept, "text/event-stream")


def _error(message: str) -> bytes:
    return refusal_body(INVALID_REQUEST, message)


def _unsupported(version: str, message: Message | Batch) -> bytes:
    data = {"supported": supported_versions(), "requested": version[:40]}
    request_id = message.id if isinstance(message, RpcRequest) else None
    return encode_error(request_id, UNSUPPORTED_PROTOCOL_VERSION, f"Unsupported protocol version: {version[:40]}", data)
