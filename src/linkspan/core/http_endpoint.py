"""One HTTP endpoint for every revision: which era a request is of, whose session, and what is wrong with it.

Modern requests stand alone; handshake clients have sessions. Both come to the same path at the same time. No I/O here.
Spec: https://modelcontextprotocol.io/specification/2026-07-28/basic/transports/streamable-http (H5-1 to H5-18), and
https://modelcontextprotocol.io/specification/2025-11-25/basic/transports (HL-1 to HL-18).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias, TypeVar
from urllib.parse import parse_qs

import msgspec

from linkspan.core.call import NO_PORTS, Background, Event, Lifespan, Ports
from linkspan.core.connection import ServerConnection
from linkspan.core.http_checks import VERSION_HEADER, Gate, HttpPolicy, compare_headers, refusal_body
from linkspan.core.http_exchange import (
    EVENTS,
    JSON_HEADERS,
    BrowserPage,
    ExchangeOutlet,
    Header,
    OwnConnection,
    ServerExchange,
)
from linkspan.core.http_open import OpenResponses
from linkspan.core.http_sessions import (
    SESSION_HEADER,
    SESSION_PARAMETER,
    STREAM_IS_OVER,
    HttpSession,
    Pair,
    Pairs,
    Respond,
    Sessions,
)
from linkspan.core.params import ToolCall, read_call, read_meta
from linkspan.errors import INVALID_REQUEST, UNSUPPORTED_PROTOCOL_VERSION, RemoteProtocolError
from linkspan.revisions import ALL, DEFAULT_NEGOTIATED, MODERN, REVISIONS, Served
from linkspan.revisions.modern import PROTOCOL_VERSION, read_envelope
from linkspan.revisions.neutral import TransportInfo
from linkspan.wire.headers import accepts, wants_page
from linkspan.wire.jsonrpc import (
    Batch,
    ErrorResponse,
    Malformed,
    Message,
    Notification,
    Response,
    RpcRequest,
    decode,
    encode_error,
)
from linkspan.wire.values import Limits

if TYPE_CHECKING:
    from linkspan.core.shared_state import StoreRunner

_FREE: Final = 64
"""Connections that are kept for further requests."""
_FREE_BYTES: Final = 65536
"""Bytes of a response up to which its connection is kept: that refers to it until the next request."""
_LISTEN: Final = "subscriptions/listen"
_MARKER = PROTOCOL_VERSION.encode()
_DISAGREES: Final = f"{VERSION_HEADER} does not match the version of this session [LS-506]"
_NO_EVENTS: Final = "GET opens a stream: accept text/event-stream [LS-503]"
_NO_SESSION: Final = (
    "Missing mcp-session-id: initialize first, or send the envelope of the newest revision in _meta [LS-506]"
)
_FULL: Final = "Too many responses are open (max_streams); try again later [LS-505]"
_BUSY: Final = "Too many requests are running in this session (max_running); try again later [LS-505]"


SessionT = TypeVar("SessionT", bound=HttpSession)


class Serves(Protocol):
    """A server, as an endpoint sees it."""

    def connect(
        self, *, back_channel: bool = True, one_shot: bool = False, notified: bool = True, ports: Ports = NO_PORTS
    ) -> ServerConnection:
        """Open a connection, which gets changes of lists and resources if it is `notified`."""
        ...


Owner: TypeAlias = OwnConnection | HttpSession
"""Whose response it is."""

Todo: TypeAlias = list[tuple[ServerConnection, Sequence[Event]]]
"""What connections want to have run."""


class Arrived(msgspec.Struct, frozen=True):
    """A request that was admitted. `respond` begins its response; header names are in lower case."""

    url: str
    query: str
    headers: Mapping[str, str]
    body: bytes
    facts: TransportInfo
    respond: Respond

    def refuse(self, status: int, body: bytes, headers: tuple[Header, ...] = ()) -> Opened:
        """Answer with an error, and run nothing."""
        exchange: ServerExchange = self.respond()
        return Opened(exchange.respond(status, body, (*headers, *JSON_HEADERS)))

    def accept(self, connection: ServerConnection | None = None, events: Sequence[Event] = ()) -> Opened:
        """Answer that there is no answer (H5-3)."""
        exchange: ServerExchange = self.respond().respond(202)
        return Opened(
            exchange, events, OwnConnection(connection, ExchangeOutlet(exchange)) if connection is not None else None
        )

    def busy(self, status: int, problem: str, seconds: int) -> Opened:
        """Refuse what may be tried again later."""
        return self.refuse(status, _error(problem), (("retry-after", str(seconds)),))

    def unsupported(self, served: Served, message: Message | Batch, version: str) -> Opened:
        """Refuse a revision that is not among those that are `served`."""
        data = {"supported": served.versions, "requested": version}
        request_id = message.id if isinstance(message, RpcRequest) else None
        problem = f"Unsupported protocol version: {version}"
        return self.refuse(400, encode_error(request_id, UNSUPPORTED_PROTOCOL_VERSION, problem, data))

    def too_many_sessions(self, bound: str) -> Opened:
        """Refuse to begin a session beyond the bound of this name: that of the server, or that of one principal."""
        status = 503 if bound == "max_sessions" else 429
        return self.busy(status, f"Too many sessions ({bound}); try again later [LS-505]", 5)


class Opened(msgspec.Struct, frozen=True):
    """A request that was taken in: its response, what has to run for it, and whose it is; None: of no connection."""

    exchange: ServerExchange
    events: Sequence[Event] = ()
    owner: Owner | None = None
    also: Todo = []
    """What has to run for other connections."""

    @property
    def connection(self) -> ServerConnection | None:
        """The connection that wants the events to be run."""
        return self.owner.connection if self.owner is not None else None


class Endpoint:
    """The machine behind `run("http")`, ASGI and WSGI.

    Any thread may call it: what it changes of a connection it changes under the lock of that one.
    """

    runner: StoreRunner | None = None
    """What runs flows with the store that processes share, where they share sessions."""

    def __init__(
        self,
        server: Serves,
        policy: HttpPolicy,
        *,
        limits: Limits,
        clock: Callable[[], float],
        random: Callable[[int], bytes],
        lock: Callable[[], AbstractContextManager[object]],
        page: Callable[[str, TransportInfo], BrowserPage] | None = None,
        served: Served = ALL,
    ) -> None:
        """Serve `server` as `policy` says, in the revisions that are `served`.

        `clock` gives seconds that never go back, `random(n)` unguessable bytes, `lock()` a new lock. `page(url, facts)` makes
        what people see in a browser.
        """
        self.policy = policy
        self.gate = Gate(policy)
        self._random = random
        self._server = server
        self.limits = limits
        self.clock = clock
        self._lock = lock
        self._page = page
        self._served = served
        self._check = compare_headers if served is ALL else partial(compare_headers, served=served)
        self._methods = {"POST": self._post, "GET": self._get, "DELETE": self._delete}
        self.start_afresh()

    @property
    def background(self) -> Background | None:
        """What the server does besides answering."""
        return self._server.connect(one_shot=True).background

    @property
    def lifespan(self) -> Lifespan | None:
        """What the server opens before its first call, if there is anything."""
        return self._server.connect(one_shot=True).lifespan

    def start_afresh(self) -> None:
        """Begin without sessions and streams: in a forked process they are the parent's."""
        self.sessions = Sessions(self.policy, self._random, self._lock())
        self.pairs = Pairs(self._random)
        self.streams: OpenResponses[Owner] = OpenResponses(self.policy.max_streams)
        """The responses that are not complete, and calls whose client has gone."""
        self._free: list[OwnConnection] = []

    def open(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes, facts: TransportInfo, *, query: str = ""
    ) -> Opened:
        """Take in a request that was admitted. `url` is without the `query`; header names are in lower case."""
        respond = partial(
            ServerExchange,
            now=self.clock(),
            accept=headers.get("accept"),
            headers=self.gate.cors_headers(headers) if "origin" in headers else (),
            bound=self.policy.max_unsent_bytes,
            access=facts.access,
        )
        return self._methods[method](Arrived(url, query, headers, body, facts, respond))

    # POST.

    def _post(self, request: Arrived) -> Opened:
        if request.query and self._is_pair(request.url):
            pair_id = parse_qs(request.query).get(SESSION_PARAMETER)
            if pair_id is not None:
                return self._post_to_pair(request, pair_id[0])
        version = request.headers.get(VERSION_HEADER)
        served = self._served
        if version in served.with_envelope and (call := read_call(request.body, self.limits.max_depth)) is not None:
            return self._modern(request, call)
        message = decode(request.body, self.limits)
        if isinstance(message, Malformed):
            return request.refuse(400, encode_error(message.reply_id, message.code, message.message))
        if version in served.with_envelope or (_MARKER in request.body and _claims_modern(message)):
            return self._modern(request, message)  # sessions mean nothing to it (H5-9)
        if version is not None and version not in served.with_handshake:
            return request.unsupported(served, message, version[:40])
        if not served.with_handshake:
            return self._modern(request, message)  # which names what is missing
        if self.policy.sessions:
            if type(message) is RpcRequest and message.method == "initialize":
                return self._initialize(request, message)
            if SESSION_HEADER in request.headers:
                return self._post_to_session(request, message)
            if self.policy.require_session:
                return request.refuse(400, _error(_NO_SESSION))
        return self._alone(request, message)

    def _modern(self, request: Arrived, message: ToolCall | Message | Batch) -> Opened:
        """Serve a request that stands alone, on a connection that is free, or on a new one."""
        if not isinstance(message, ToolCall | RpcRequest):
            if isinstance(message, Notification):
                return self._notified(request, message)
            is_batch = isinstance(message, Batch)
            why = "this revision has no batches" if is_batch else "clients send no responses in this revision"
            return request.refuse(400, _error(f"Invalid Request: {why}"))
        streams = self.streams
        if len(streams.owners) + len(streams.orphans) >= streams.most and streams.is_full:
            return request.busy(503, _FULL, 5)
        listens = message.method == _LISTEN
        if listens and not accepts(request.headers.get("accept"), EVENTS):
            problem = "subscriptions/listen opens a stream: accept text/event-stream [LS-503]"
            return request.refuse(406, encode_error(message.id, INVALID_REQUEST, problem))
        try:
            own = self.new_connection(notified=True) if listens else self._free.pop()
        except IndexError:
            own = self.new_connection(notified=False)
        connection = own.connection
        exchange: ServerExchange = request.respond(lock=connection.lock)
        with connection.lock:
            own.outlet.begin(exchange)
            events = connection.receive(message, request.facts)
        self.streams.owners[exchange] = own
        if exchange.ended:
            self.finished(exchange)
            self.streams.leave_running(connection)
        return Opened(exchange, events, own)

    def new_connection(self, *, notified: bool = False, lone: bool = True) -> OwnConnection:
        """Open a connection for modern requests. A `lone` one that is not `notified` may serve whichever comes next."""
        outlet = ExchangeOutlet()
        ports = Ports(self._lock(), send=outlet.send, check=self._check)
        return OwnConnection(self._server.connect(notified=notified, ports=ports), outlet, lone and not notified)

    def _notified(self, request: Arrived, message: Notification) -> Opened:
        """Serve a notification that stands alone. It takes room until it ends (`max_streams`), though it has its answer."""
        if message.method == "notifications/cancelled":
            return request.accept()  # a client cancels by closing the stream (CAN-3)
        connection = self._connect()
        if connection.serves(message) and self.streams.is_full:
            return request.busy(503, _FULL, 5)
        events = connection.receive(message, request.facts)
        self.streams.leave_running(connection)
        return request.accept(connection, events)

    # The handshake era.

    def _alone(self, request: Arrived, message: Message | Batch) -> Opened:
        """Serve a handshake client's request without a session (HL-9)."""
        if isinstance(message, Response | ErrorResponse):
            return request.accept()
        session = HttpSession("", None, partial(self._connect, back_channel=False), self.policy)
        if not (type(message) is RpcRequest and message.method == "initialize"):
            version = request.headers.get(VERSION_HEADER, DEFAULT_NEGOTIATED.date)
            if version not in self._served.with_handshake:
                return request.unsupported(self._served, message, version)
            session.connection.session.assume(REVISIONS[version])
        return self._in_session(request, session, message)

    def _initialize(self, request: Arrived, message: Message | Batch) -> Opened:
        """Begin a session. Where there is no room for one, nothing of the handshake is done, and no hook runs."""
        principal = request.facts.principal
        with self.sessions.lock:
            try:
                victim = self.sessions.victim(principal)
            except OverflowError as bound:
                return request.too_many_sessions(str(bound))
            session = self.sessions.new(principal, self._connect)
            opened = self._in_session(request, session, message, announces=True)
            if not session.connection.session.negotiated:
                return opened  # sessions exist only after a handshake that succeeded
            self.sessions.keep(session, self.clock(), victim)
        if victim is None:
            return opened
        return Opened(opened.exchange, opened.events, session, [(victim.connection, victim.close())])

    def _in_session(
        self, request: Arrived, session: HttpSession, message: Message | Batch, *, announces: bool = False
    ) -> Opened:
        connection = session.connection
        if type(message) is RpcRequest or _asks(connection, message):
            if not connection.has_room:
                return request.busy(429, _BUSY, 1)
            streams = self.streams
            if len(streams.owners) + len(streams.orphans) >= streams.most and streams.is_full:
                return request.busy(503, _FULL, 5)
        exchange, events = session.receive(message, request.facts, request.respond, announces=announces)
        if not exchange.ended:
            self.streams.owners[exchange] = session
        if not session.id and exchange.ended:
            self.streams.leave_running(connection)  # a notification, whose end no request waits for
        return Opened(exchange, events, session)

    def _post_to_session(self, request: Arrived, message: Message | Batch) -> Opened:
        session = self._session_of(request)
        return session if isinstance(session, Opened) else self._in_session(request, session, message)

    def _session_of(self, request: Arrived) -> HttpSession | Opened:
        """Return the session that a request names, or its refusal."""
        session_id = request.headers.get(SESSION_HEADER)
        if session_id is None or not self.policy.sessions or not self._served.with_handshake:
            return request.refuse(
                405, _error("Only POST is supported without a session [LS-506]"), (("allow", "POST"),)
            )
        session = self.sessions.find(session_id, request.facts.principal, self.clock())
        version = request.headers.get(VERSION_HEADER)
        if session is not None and version == session.connection.session.peer.revision.date:
            return session
        return fitting(request, session)

    # GET and DELETE.

    def _get(self, request: Arrived) -> Opened:
        wanted = request.headers.get("accept") or ""
        if SESSION_HEADER not in request.headers:
            if self._is_pair(request.url) and not wants_page(wanted):
                return self._open_pair(request)
            if self._page is not None and wants_page(wanted) and self.gate.shows_page(request.headers):
                page = self._page(request.url, request.facts)
                response: ServerExchange = request.respond()
                return Opened(response.respond(200, page.body, tuple(page.headers)))
        return self._get_of_session(request)

    def _get_of_session(self, request: Arrived) -> Opened:
        session = self._session_of(request)
        if isinstance(session, Opened):
            return session
        if (refusal := self._no_stream(request)) is not None:
            return refusal
        exchange = session.listen(request.respond, request.headers.get("last-event-id"))
        return self._listening(request, session, exchange)

    def _no_stream(self, request: Arrived) -> Opened | None:
        """Return why a GET gets no stream, if that can be seen without its session."""
        if not accepts(request.headers.get("accept"), EVENTS):
            return request.refuse(406, _error(_NO_EVENTS))
        return request.busy(503, _FULL, 5) if self.streams.is_full else None

    def _listening(self, request: Arrived, session: HttpSession, exchange: ServerExchange | None) -> Opened:
        """Look after the stream of a GET; None: the one that it asks for is over."""
        if exchange is None:  # not 404, which would mean that the session is gone
            return request.refuse(400, _error(STREAM_IS_OVER))
        self.streams.hold(exchange, session)
        return Opened(exchange, (), session)

    def _delete(self, request: Arrived) -> Opened:
        session = self._session_of(request)
        if isinstance(session, Opened):
            return session
        self.sessions.remove(session)
        return Opened(request.respond().respond(204), session.close(), session)

    # The transport of the first revision.

    def _is_pair(self, url: str) -> bool:
        path = self.policy.http_sse if self._served.with_handshake else None
        return path is not None and url.rstrip("/").endswith(path.rstrip("/"))

    def _open_pair(self, request: Arrived) -> Opened:
        if self.streams.is_full:
            return request.busy(503, _FULL, 5)
        if not accepts(request.headers.get("accept"), EVENTS):
            return request.refuse(406, _error(_NO_EVENTS))
        pair = self.pairs.open(request.respond, self._connect, request.facts.principal, self._lock())
        self.streams.hold(pair.exchange, pair)
        return Opened(pair.exchange, (), pair)

    def _post_to_pair(self, request: Arrived, pair_id: str) -> Opened:
        pair = self.pairs.find(pair_id, request.facts.principal)
        if pair is None:
            return request.refuse(404, _error("Session not found: open the stream again [LS-506]"))
        message = decode(request.body, self.limits)
        if isinstance(message, Malformed):
            return request.refuse(400, encode_error(message.reply_id, message.code, message.message))
        connection = pair.connection
        if not connection.has_room and _asks(connection, message):
            return request.busy(429, _BUSY, 1)
        with connection.lock:
            events = connection.receive(message, request.facts)
        return request.accept(connection, events)

    # Life.

    def _connect(
        self, lock: AbstractContextManager[object] | None = None, *, back_channel: bool = True, **ports: Any
    ) -> ServerConnection:
        """Open a connection with these `ports`."""
        return self._server.connect(back_channel=back_channel, ports=Ports(lock or self._lock(), **ports))

    def disconnect(self, opened: Opened) -> Sequence[Event]:
        """Cancel what the client of a request cancels by going: a modern request (H5-7)."""
        exchange, owner = opened.exchange, opened.owner
        self.finished(exchange)
        if owner is None:
            return ()
        events = owner.leave(exchange)
        if isinstance(owner, HttpSession) and not owner.id:
            self.streams.leave_running(owner.connection)
        return events

    def finished(self, exchange: ServerExchange) -> None:
        """Forget a response that is complete. A connection that is free then may serve another request."""
        owner = self.streams.owners.pop(exchange, None)
        if type(owner) is OwnConnection:
            response = exchange.response
            is_small = response is None or len(response.body) <= _FREE_BYTES
            is_free = owner.lone and is_small and exchange.ended and not owner.connection.running
            if is_free and len(self._free) < _FREE:
                self._free.append(owner)
        elif type(owner) is Pair:
            self.pairs.remove(owner)

    def tick(self, now: float) -> Todo:
        """Run what is due: comments on quiet streams, calls without a client that have ended, expired questions.

        Streams whose token has expired end, and so do idle sessions.
        """
        self.streams.keep_alive(now, self.policy.silence)
        self.streams.forget_orphans()
        found: Todo = []
        for each in (*self.sessions, *self.pairs):
            with each.connection.lock:
                due = each.connection.next_timeout()
                if due is not None and due <= now:
                    found.append((each.connection, each.connection.handle_timeout(now)))
        return found + self._end_without_right() + self._end_idle(now)

    def _end_without_right(self) -> Todo:
        """End the streams that only listen, and whose token is not good any more. Calls keep their responses."""
        return [
            (owner.connection, owner.end_listening(exchange))
            for exchange, owner in list(self.streams.owners.items())
            if exchange.access is not None and owner.only_listens(exchange) and not exchange.access.holds()
        ]

    def _end_idle(self, now: float) -> Todo:
        """End the sessions that were not used for too long."""
        return [(session.connection, session.close()) for session in self.sessions.idle(now)]

    def drain(self) -> Todo:
        """End the streams of clients that only listen. Calls go on, until `close`."""
        for session in self.sessions:
            session.close_get_stream()
        own = [(each, owner) for each, owner in list(self.streams.owners.items()) if isinstance(owner, OwnConnection)]
        return [(owner.connection, owner.end_listening(each)) for each, owner in own]

    def close(self) -> Todo:
        """Cancel what runs, end every stream, and forget the sessions."""
        owners = list(dict.fromkeys((*self.sessions, *self.streams.owners.values())))
        for session in self.sessions:
            self.sessions.remove(session)
        ended: Todo = [(owner.connection, owner.close()) for owner in owners]
        for connection in list(self.streams.orphans):
            with connection.lock:
                ended.append((connection, connection.close()))
        return ended


class Lane:
    """The modern requests of one TCP connection, one after the other, on one machine.

    What `Endpoint.open` decides for each request is decided for these by their head, once for all that repeat it.
    """

    def __init__(self, endpoint: Endpoint) -> None:
        """Serve requests to `endpoint`."""
        self._endpoint = endpoint
        self._own = endpoint.new_connection(lone=False)

    @staticmethod
    def takes(method: str, query: str, headers: Mapping[str, str]) -> bool:
        """Return whether requests with this head may go through a lane."""
        return method == "POST" and not query and headers.get(VERSION_HEADER) in MODERN and "origin" not in headers

    def open(self, headers: Mapping[str, str], body: bytes, facts: TransportInfo) -> Opened | None:
        """Take in a request that was admitted; None if it is one for `Endpoint.open` all the same.

        If its response has not ended once its events were performed, the caller passes it to `Endpoint.streams.hold`; then it
        ends as all others do.
        """
        endpoint, own = self._endpoint, self._own
        streams = endpoint.streams
        message: ToolCall | Message | Batch | None = read_call(body, endpoint.limits.max_depth)
        if message is None:
            message = decode(body, endpoint.limits)
            if type(message) is not RpcRequest or message.method == _LISTEN:
                return None
        if len(streams.owners) + len(streams.orphans) >= streams.most and streams.is_full:
            return None
        if own.connection.running and streams.leave_running(own.connection):
            own = self._own = endpoint.new_connection(lone=False)
        connection, bound = own.connection, endpoint.policy.max_unsent_bytes
        exchange = ServerExchange(now=endpoint.clock(), accept=headers.get("accept"), bound=bound, lock=connection.lock)
        with connection.lock:
            own.outlet.begin(exchange)
            events = connection.receive(message, facts)
        if exchange.ended and streams.leave_running(connection):
            self._own = endpoint.new_connection(lone=False)
        return Opened(exchange, events, own)


def fitting(request: Arrived, session: SessionT | None) -> SessionT | Opened:
    """Return the session that was found, or the refusal of a request that does not fit it."""
    if session is None:
        return request.refuse(404, _error("Session not found: initialize again without a session id [LS-506]"))
    version = request.headers.get(VERSION_HEADER)
    if version is not None and version != session.connection.session.revision.date:
        return request.refuse(400, _error(_DISAGREES))  # HL-15
    return session


def _claims_modern(message: Message | Batch) -> bool:
    """Return whether the `_meta` of a message claims a revision of the newest era, rightly or not."""
    if not isinstance(message, RpcRequest):
        return False
    try:
        return read_envelope(read_meta(message.params)).peer is not None
    except RemoteProtocolError:
        return True


def _asks(connection: ServerConnection, message: Message | Batch) -> bool:
    """Return whether a message needs room: it is, or has in it, what must be run."""
    if isinstance(message, Batch):
        return any(connection.serves(each) for each in message.messages)
    return connection.serves(message)


def _error(message: str) -> bytes:
    return refusal_body(INVALID_REQUEST, message)
