"""Handshake clients over HTTP: sessions whose streams a client can come back to, and the pairs of the first revision.

Law: each message is on exactly one stream (HL-5), and a stream that lost its client goes on collecting, within bounds, until
the client resumes it or the session ends. Of a pair, a POST gets nothing but a status (SSE-7), and the pair lives as long as
its GET stream (SSE-4).
Spec: https://modelcontextprotocol.io/specification/2025-11-25/basic/transports (HL-1 to HL-18), and
https://modelcontextprotocol.io/specification/2024-11-05/basic/transports (SSE-1 to SSE-7).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from hashlib import sha256
from typing import Final, Protocol

import msgspec

from linkspan.core.call import Delivery, Event
from linkspan.core.connection import ServerConnection
from linkspan.core.http_checks import HttpPolicy
from linkspan.core.http_exchange import (
    ExchangeOutlet,
    Header,
    OwnConnection,
    ServerExchange,
    is_list_changed,
    refusal_of,
)
from linkspan.core.params import AnyRequest, HasMeta
from linkspan.errors import INVALID_REQUEST, PARSE_ERROR, RemoteProtocolError
from linkspan.revisions.neutral import Peer, TransportInfo
from linkspan.wire.framing import encode_event
from linkspan.wire.jsonrpc import Batch, Message, RequestId, RpcRequest

SESSION_HEADER: Final = "mcp-session-id"
_GENERAL: Final = "1"
"""The name of the stream of a session for what belongs to no request."""
SESSION_PARAMETER: Final = "session"
"""The parameter of the URL that names a pair."""
STREAM_IS_OVER: Final = "No stream with this Last-Event-ID: it has ended [LS-506]"
Connect = Callable[..., ServerConnection]
"""Opens a connection with the ports that are given by name."""
Respond = Callable[..., ServerExchange]
"""Begins the response of the request at hand, with what is given by name."""


class Receiver(Protocol):
    """What a stream sends to: a response of this process, or whatever carries its messages to one of another process."""

    def message(
        self, message: bytes | None, *, final: bool, status: int = 200, headers: tuple[Header, ...] = ()
    ) -> None:
        """Send a message; the `final` one, which may be None, ends the stream."""
        ...

    def open_events(self) -> None:
        """Begin a stream without a message."""
        ...

    def end(self) -> None:
        """End the stream."""
        ...


class SessionStream(msgspec.Struct, eq=False):
    """The events of one POST, or of the GET: numbered, kept, and sent to the client that is there now."""

    session: HttpSession
    name: str
    announces: bool = False
    """It answers the handshake that begins the session."""
    exchange: Receiver | None = None
    finished: bool = False
    kept: int = 0
    count: int = 0

    @property
    def headers(self) -> tuple[Header, ...]:
        """The id of the session, where this stream answers the handshake that began it."""
        return self.session.headers if self.announces and self.session.connection.session.negotiated else ()

    def number(self, message: bytes) -> str | None:
        """Give a message its id, and keep it; no client can come back to a request that stands alone."""
        if not self.session.id:
            return None
        self.count += 1
        event_id = f"{self.name}-{self.count}"
        self.session.store(self, self.count, encode_event(message, event_id=event_id))
        return event_id

    def opening(self) -> bytes:
        """Return the event that gives the id under which the client can come back (HL-10, HL-11)."""
        if not self.session.primes:
            return b""
        self.session.remember(self)
        return encode_event(b"", event_id=f"{self.name}-0", retry=self.session.policy.retry)

    def message(
        self, message: bytes | None, *, final: bool, status: int = 200, headers: tuple[Header, ...] = ()
    ) -> None:
        """Send a message, or keep it for a client that is away.

        `status` and `headers` are for an answer that is the whole response.
        """
        self.finished = self.finished or final
        if self.exchange is not None:
            self.exchange.message(message, final=final, status=status, headers=headers)
        elif message is not None:
            self.number(message)

    def attach(self, exchange: Receiver) -> None:
        """Send what comes from now on to `exchange`."""
        self.exchange = exchange

    def detach(self) -> Receiver | None:
        """Keep what comes from now on; return the response that was open."""
        exchange, self.exchange = self.exchange, None
        return exchange

    def end(self) -> None:
        """End the response that is open, if one is."""
        if self.exchange is not None:
            self.exchange.end()

    def resume(self, exchange: ServerExchange, after: int) -> None:
        """Send on `exchange` what came after an event, and what comes from now on."""
        self.end()
        exchange.send_events(self.session.stored(self, after))
        if self.finished:
            exchange.end()
        else:
            self.exchange = exchange

    def keep(self, change: int) -> None:
        """Count the events that are kept."""
        self.kept += change


class _Stored(msgspec.Struct, frozen=True):
    """One event that a client may come back for."""

    stream: SessionStream
    count: int
    event: bytes


class HttpSession:
    """One client's session. Its connection is shared by all its requests, so use it with the connection's lock.

    Most sessions wait for their client most of the time, so what they hold is made when it is needed.
    """

    __slots__ = (
        "_count",
        "_general",
        "_missed",
        "_of_request",
        "_prefix",
        "_receiving",
        "_stored",
        "_stored_bytes",
        "_streams",
        "connection",
        "id",
        "policy",
        "principal",
        "used",
    )

    def __init__(
        self, session_id: str, principal: str | None, connect: Connect, policy: HttpPolicy, prefix: str = ""
    ) -> None:
        """Begin; the handshake is still to come. `prefix` begins the names of the streams."""
        self._prefix = prefix
        self.id = session_id
        self.principal = principal
        self.connection = connect(send=self._send, close_stream=self._close_stream, session=name_of_session(session_id))
        self.policy = policy
        self.used = 0.0
        self._count = 1
        self._of_request: dict[RequestId, SessionStream] = {}
        self._receiving: SessionStream | None = None
        self._stored: deque[_Stored] | None = None
        self._stored_bytes = 0
        self._missed: tuple[bytes, ...] = ()
        """The lists that have changed while the client had no GET stream, as notifications."""
        self._general = SessionStream(self, prefix + _GENERAL)
        self._streams: dict[str, SessionStream] = {}
        """Those whose events the client may come back for, besides the general one."""

    @property
    def headers(self) -> tuple[Header, ...]:
        """The header that names the session."""
        return ((SESSION_HEADER, self.id),)

    @property
    def primes(self) -> bool:
        """Whether the client understands an event without data: only the newest handshake clients do."""
        agreed = self.connection.session
        return bool(self.id) and agreed.negotiated and not agreed.revision.error_id_required

    @property
    def listening(self) -> bool:
        """Whether the client has a GET stream."""
        return self._general.exchange is not None

    @property
    def working(self) -> bool:
        """Whether a request has not ended, or is being received by another thread."""
        return bool(self._of_request) or self._receiving is not None

    def use(self, now: float) -> None:
        """Note that the client is there."""
        self.used = now

    def receive(
        self, message: Message | Batch, facts: TransportInfo, respond: Respond, *, announces: bool = False
    ) -> tuple[ServerExchange, Sequence[Event]]:
        """Take a POST; return its response, and what must run for it. `announces`: the answer names the session."""
        connection = self.connection
        messages = message.messages if type(message) is Batch else (message,)
        with connection.lock:
            self._count += 1
            self._receiving = stream = SessionStream(self, f"{self._prefix}{self._count}", announces)
            exchange: ServerExchange = respond(lock=connection.lock, stream=stream)
            stream.attach(exchange)
            events = connection.receive(message, facts)
            self._receiving = None
            waits = False
            for each in messages:
                if type(each) is RpcRequest and connection.is_running(each.id):
                    waits = self._of_request.setdefault(each.id, stream) is stream or waits
            if not waits:
                self._drop_if_empty(stream)
                if not exchange.ended:
                    exchange.respond(202)
        return exchange, events

    def listen(self, respond: Respond, last_event_id: str | None) -> ServerExchange | None:
        """Open the GET stream, for what belongs to no request; or go on after an event (HL-6). None: its stream is over."""
        with self.connection.lock:
            if last_event_id is not None:
                return self._resume(respond, last_event_id)
            stream = self._general
            stream.end()
            exchange: ServerExchange = respond(lock=self.connection.lock, stream=stream)
            stream.attach(exchange)
            exchange.open_events()
            missed, self._missed = self._missed, ()
            for message in missed:
                exchange.message(message, final=False)
            return exchange

    def _resume(self, respond: Respond, last_event_id: str) -> ServerExchange | None:
        name, _, count = last_event_id.rpartition("-")
        stream = self._stream(name)
        if stream is None or not (count.isascii() and count.isdigit() and len(count) < 20):
            return None
        if stream is self._general:
            self._missed = ()  # they are among the events that are sent again
        exchange: ServerExchange = respond(lock=self.connection.lock, stream=stream)
        stream.resume(exchange, int(count))
        return exchange

    def _stream(self, name: str) -> SessionStream | None:
        """Return the stream of a name, if a client may come back to it."""
        return self._general if name == self._general.name else self._streams.get(name)

    def remember(self, stream: SessionStream) -> None:
        """Find a stream again when its client comes back for it."""
        if stream is not self._general:
            self._streams[stream.name] = stream

    def store(self, stream: SessionStream, count: int, event: bytes) -> None:
        """Keep an event for a client that comes back; the oldest go when there are too many, or they are too large."""
        self.remember(stream)
        if self._stored is None:
            self._stored = deque()
        self._stored.append(_Stored(stream, count, event))
        self._stored_bytes += len(event)
        stream.keep(1)
        while len(self._stored) > self.policy.max_stored_events or self._stored_bytes > self.policy.max_stored_bytes:
            old = self._stored.popleft()
            self._stored_bytes -= len(old.event)
            old.stream.keep(-1)
            if old.stream.finished:
                self._drop_if_empty(old.stream)

    def stored(self, stream: SessionStream, after: int) -> list[bytes]:
        """Return the events of a stream that came after the one with this number."""
        return [each.event for each in self._stored or () if each.stream is stream and each.count > after]

    def leave(self, exchange: ServerExchange) -> Sequence[Event]:
        """Note that the client of `exchange` is away. That cancels nothing (HL-3)."""
        with self.connection.lock:
            for stream in (self._general, *self._of_request.values()):
                if stream.exchange is exchange:
                    self._lose(stream)
        return ()

    def _lose(self, stream: SessionStream) -> Receiver | None:
        """Keep what comes from now on: the stream has no client. Return the response that was open."""
        return stream.detach()

    def _close_stream(self, request_id: RequestId) -> bool:
        """End the stream of a request early: the client comes back for the answer (HL-10)."""
        with self.connection.lock:
            stream = self._of_request.get(request_id)
            if stream is None or not self.primes or (exchange := self._lose(stream)) is None:
                return False
            exchange.open_events()
            exchange.end()
            return True

    def only_listens(self, exchange: ServerExchange) -> bool:
        """Return whether a response is the GET stream."""
        return self._general.exchange is exchange

    def end_listening(self, exchange: ServerExchange) -> Sequence[Event]:
        """End the GET stream, and keep what comes for a client that comes back."""
        with self.connection.lock:
            if self._general.exchange is exchange:
                self._lose(self._general)
                exchange.end()
        return ()

    def close_get_stream(self) -> None:
        """End the GET stream."""
        with self.connection.lock:
            self._general.end()

    def close(self) -> Sequence[Event]:
        """Cancel what runs, and end all streams."""
        with self.connection.lock:
            streams = (self._general, *self._of_request.values())
            events = self.connection.close()
            for stream in streams:
                stream.end()
            return events

    def _send(self, delivery: Delivery) -> None:
        """Send a message on the one stream that it belongs to."""
        message, about, final = delivery.data, delivery.about, delivery.final
        # What is received at the moment may be answered at once; an answer to a batch, or to an invalid message, has no request.
        stream = (
            self._of_request.get(about, self._receiving) if about is not None else self._receiving if final else None
        )
        if stream is None:
            if message is not None and about is None:
                self._announce(message)
            return
        if final and about is not None:
            self._of_request.pop(about, None)
        if message is None and stream is self._receiving:
            return  # a part of a batch whose other parts are still to come
        last = final and (about is None or stream not in self._of_request.values())
        if message is not None or last:
            invalid = not delivery.dispatched and delivery.error in (PARSE_ERROR, INVALID_REQUEST)
            status, headers = refusal_of(delivery, 400 if invalid else 200)
            stream.message(message, final=last, status=status, headers=headers)
        if last:
            stream.detach()
            self._drop_if_empty(stream)

    def _announce(self, message: bytes) -> None:
        """Send what belongs to no request. That a list has changed is kept once for the next GET stream, where there is none."""
        if self._general.exchange is None and is_list_changed(message):
            if message in self._missed:
                return
            self._missed += (message,)
        self._general.message(message, final=False)

    def _drop_if_empty(self, stream: SessionStream) -> None:
        """Forget a stream that has ended, unless a client may come back for its last events."""
        if not stream.kept:
            self._streams.pop(stream.name, None)


class Sessions:
    """All sessions of an endpoint."""

    def __init__(
        self, policy: HttpPolicy, random: Callable[[int], bytes], lock: AbstractContextManager[object]
    ) -> None:
        """Keep sessions as `policy` says; `random(n)` gives n unguessable bytes, `lock` keeps threads apart."""
        self.lock = lock
        """Held while one session takes the place of another."""
        self._policy = policy
        self._random = random
        self._sessions: dict[str, HttpSession] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def __iter__(self) -> Iterator[HttpSession]:
        return iter(list(self._sessions.values()))

    def new(self, principal: str | None, connect: Connect) -> HttpSession:
        """Return a session that is not kept yet: that comes after its handshake."""
        return HttpSession(self._random(16).hex(), principal, connect, self._policy)

    def victim(self, principal: str | None) -> HttpSession | None:
        """Return the session that must go for another one of `principal`: the one that matters least, None if there is room.

        A client that listens may still get a message. Raises: OverflowError with the bound, if calls run in all. Hold `lock`
        until the new one is kept.
        """
        policy = self._policy
        among = [each for each in self if each.principal == principal is not None]
        if len(among) >= policy.max_sessions_per_principal:
            bound = "max_sessions_per_principal"
        elif len(self._sessions) >= policy.max_sessions:
            among, bound = list(self), "max_sessions"
        else:
            return None
        free = (each for each in among if not each.working)
        found = min(free, key=lambda each: (each.listening, each.used), default=None)
        if found is None:
            raise OverflowError(bound)
        return found

    def keep(self, session: HttpSession, now: float, victim: HttpSession | None = None) -> None:
        """Keep a session, in place of its victim."""
        if victim is not None:
            self.remove(victim)
        session.use(now)
        self._sessions[session.id] = session

    def get(self, session_id: str) -> HttpSession | None:
        """Return a session that is kept here."""
        return self._sessions.get(session_id)

    def find(self, session_id: str, principal: str | None, now: float) -> HttpSession | None:
        """Return a session of `principal`, and note that it was used. Those of other principals are not found (HL-8)."""
        session = self._sessions.get(session_id)
        if session is None or session.principal != principal:
            return None
        session.use(now)
        return session

    def remove(self, session: HttpSession) -> None:
        """Forget a session."""
        self._sessions.pop(session.id, None)

    def idle(self, now: float) -> list[HttpSession]:
        """Return and forget the sessions that were not used for too long."""
        late = [
            each
            for each in self
            if not (each.working or each.listening) and now - each.used >= self._policy.session_idle
        ]
        for session in late:
            self.remove(session)
        return late


class Pair(OwnConnection, frozen=True, eq=False, kw_only=True):
    """One client of HTTP+SSE: its stream, and the connection that its POSTs feed."""

    id: str
    principal: str | None

    def only_listens(self, _: ServerExchange) -> bool:
        """Return whether the client waits for no answer: all of them come on its stream, also those that it is asked for."""
        return not (self.connection.running or self.connection.owes_answers)


class _PairOutlet(ExchangeOutlet):
    """Sends all messages of a pair as events of its one stream, which no answer ends."""

    def send(self, delivery: Delivery) -> None:
        """Send a message."""
        if delivery.data is not None:
            self.exchange.message(delivery.data, final=False)


class Pairs:
    """The clients of an endpoint that use HTTP+SSE: one GET stream for what the server sends, POSTs for what it receives."""

    def __init__(self, random: Callable[[int], bytes]) -> None:
        """Begin without any; `random(n)` gives n unguessable bytes."""
        self._random = random
        self._pairs: dict[str, Pair] = {}

    def __len__(self) -> int:
        return len(self._pairs)

    def __iter__(self) -> Iterator[Pair]:
        return iter(list(self._pairs.values()))

    def open(
        self, respond: Respond, connect: Connect, principal: str | None, lock: AbstractContextManager[object]
    ) -> Pair:
        """Begin a stream, and send on it where to send messages (SSE-1)."""
        exchange: ServerExchange = respond(lock=lock, accept="text/event-stream", event_name="message")
        outlet = _PairOutlet(exchange)
        pair_id = self._random(16).hex()
        connection = connect(lock, send=outlet.send, check=_only_handshakes, session=name_of_session(pair_id))
        pair = Pair(connection, outlet, lone=False, id=pair_id, principal=principal)
        # Relative to the URL that the client asked for, which a proxy may have changed on its way to us.
        exchange.send_events([encode_event(f"?{SESSION_PARAMETER}={pair.id}".encode(), event="endpoint")])
        self._pairs[pair.id] = pair
        return pair

    def find(self, pair_id: str, principal: str | None) -> Pair | None:
        """Return a client of `principal`; those of others are not found."""
        pair = self._pairs.get(pair_id)
        return pair if pair is not None and pair.principal == principal else None

    def remove(self, pair: Pair) -> None:
        """Forget a client whose stream has ended."""
        self._pairs.pop(pair.id, None)


def _only_handshakes(
    _: TransportInfo, __: AnyRequest, ___: HasMeta | None, peer: Peer | None, *____: object
) -> RemoteProtocolError | None:
    """Refuse requests that need headers to agree with: this transport cannot hold them to any (SEC-2)."""
    if peer is None:
        return None
    problem = f"Invalid Request: revision {peer.revision.date} has no HTTP+SSE; POST to the endpoint without a session"
    return RemoteProtocolError(INVALID_REQUEST, problem)


def name_of_session(session_id: str) -> str | None:
    """Return what code of the author may know of a session: the same in each process, and not what a request proves itself by."""
    return sha256(session_id.encode()).hexdigest()[:16] if session_id else None
