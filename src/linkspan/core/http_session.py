"""Sessions of handshake clients over HTTP: an id, a connection, and streams that a client can come back to.

Law: each message is on exactly one stream (HL-5), and a stream that lost its client goes on collecting, within bounds, until
the client resumes it or the session ends. Spec: checklist 5.3.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager

import msgspec

from linkspan.core.call import Delivery
from linkspan.core.connection import ServerConnection
from linkspan.core.exchange import Header, ServerExchange, is_list_changed
from linkspan.core.http_policy import HttpPolicy
from linkspan.errors import INVALID_REQUEST, PARSE_ERROR
from linkspan.wire.messages import RequestId
from linkspan.wire.sse import encode_event

__all__ = ["HttpSession", "Sessions"]

SESSION_HEADER = "mcp-session-id"


class _Stream:
    """The events of one POST, or of the GET: numbered, kept, and sent to whoever listens now."""

    def __init__(self, name: str, session: HttpSession) -> None:
        self.name = name
        self.finished = False
        self.exchange: ServerExchange | None = None
        self.kept = 0
        self._session = session
        self._count = 0

    def attach(self, exchange: ServerExchange) -> None:
        """Send what comes from now on to `exchange`."""
        self.exchange = exchange
        exchange.on_event = self.number
        exchange.prime = self._prime

    def number(self, message: bytes) -> str | None:
        """Give a message its id, and keep it; nobody can come back to a request that stands alone."""
        if not self._session.id:
            return None
        self._count += 1
        event_id = f"{self.name}-{self._count}"
        self._session.store(self, self._count, encode_event(message, event_id=event_id))
        return event_id

    def _prime(self) -> bytes:
        """Say under which id the client can come back, before anything has happened (HL-10, HL-11)."""
        if not self._session.primes:
            return b""
        return encode_event(b"", event_id=f"{self.name}-0", retry=self._session.policy.retry)

    def message(self, message: bytes | None, *, final: bool, status: int = 200) -> None:
        """Send a message, or keep it for a client that is away. `status` is for an answer that is the whole response."""
        self.finished = self.finished or final
        if self.exchange is not None:
            self.exchange.message(message, final=final, status=status)
        elif message is not None:
            self.number(message)

    def resume(self, exchange: ServerExchange, after: int) -> None:
        """Tell `exchange` what came after an event, and what comes from now on."""
        if self.exchange is not None:
            self.exchange.end()
        for event in self._session.stored(self, after):
            exchange.send_event(event)
        exchange.open_events()
        exchange.on_event = self.number
        if self.finished:
            exchange.end()
        else:
            self.exchange = exchange


class _Stored(msgspec.Struct, frozen=True):
    """One event that a client may come back for."""

    stream: _Stream
    count: int
    event: bytes


class HttpSession:
    """One client's session. Its connection is shared by all its requests, so use it with the connection's lock."""

    def __init__(
        self, session_id: str, principal: str | None, connect: Callable[..., ServerConnection], policy: HttpPolicy
    ) -> None:
        """Begin; the handshake is still to come. `connect` takes the ports `send` and `hang_up`."""
        self.id = session_id
        self.principal = principal
        self.connection = connect(send=self._send, hang_up=self._hang_up)
        self.policy = policy
        self.used = 0.0
        self._count = 0
        self._streams: dict[str, _Stream] = {}
        self._of_request: dict[RequestId, _Stream] = {}
        self._receiving: _Stream | None = None
        self._answering: ServerExchange | None = None
        self._stored: deque[_Stored] = deque()
        self._stored_bytes = 0
        self._missed: dict[bytes, None] = {}
        """The lists that have changed while nobody had a GET stream, as notifications."""
        self._general = self._new_stream()

    @property
    def headers(self) -> Sequence[Header]:
        """What an answer says of the session."""
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
        """Whether a request has not ended, or its response is on its way. Other threads may work on it meanwhile."""
        streams = list(self._streams.values())
        return bool(self._of_request) or any(each.exchange for each in streams if each is not self._general)

    def begin(self, exchange: ServerExchange, requests: Sequence[RequestId]) -> None:
        """Receive a POST from now on, whose requests are answered on `exchange`."""
        stream = self._new_stream()
        stream.attach(exchange)
        for request_id in requests:
            self._of_request.setdefault(request_id, stream)
        self._receiving, self._answering = stream, exchange

    def received(self) -> None:
        """The POST has been received."""
        stream, exchange = self._receiving, self._answering
        self._receiving = self._answering = None
        if stream is None or exchange is None:
            return
        for request_id, of_stream in list(self._of_request.items()):
            if of_stream is stream and not self.connection.is_running(request_id):
                del self._of_request[request_id]  # it was refused as part of something else
        if stream not in self._of_request.values():
            self._drop_if_empty(stream)
            if not exchange.ended:
                exchange.accept()

    def listen(self, exchange: ServerExchange) -> None:
        """Send what belongs to no request to `exchange`: the GET stream."""
        if self._general.exchange is not None:
            self._general.exchange.end()
        self._general.attach(exchange)
        exchange.open_events()
        missed, self._missed = self._missed, {}
        for message in missed:
            exchange.message(message, final=False)

    def resume(self, exchange: ServerExchange, last_event_id: str) -> bool:
        """Go on with the stream of an event, on `exchange`; False if there is no such stream any more (HL-6)."""
        name, _, count = last_event_id.rpartition("-")
        stream = self._streams.get(name)
        if stream is None or not (count.isascii() and count.isdigit() and len(count) < 20):
            return False
        if stream is self._general:
            self._missed = {}  # they are among what is told again
        stream.resume(exchange, int(count))
        return True

    def store(self, stream: _Stream, count: int, event: bytes) -> None:
        """Keep an event for a client that comes back; the oldest go when there are too many, or they are too large."""
        self._stored.append(_Stored(stream, count, event))
        self._stored_bytes += len(event)
        stream.kept += 1
        while len(self._stored) > self.policy.max_stored_events or self._stored_bytes > self.policy.max_stored_bytes:
            self._forget(self._stored.popleft())

    def stored(self, stream: _Stream, after: int) -> list[bytes]:
        """Return the events of a stream that came after the one with this number."""
        return [each.event for each in self._stored if each.stream is stream and each.count > after]

    def _forget(self, old: _Stored) -> None:
        self._stored_bytes -= len(old.event)
        old.stream.kept -= 1
        if old.stream.finished:
            self._drop_if_empty(old.stream)

    def leave(self, exchange: ServerExchange) -> None:
        """The client of `exchange` is away. That cancels nothing (HL-3)."""
        for stream in list(self._streams.values()):
            if stream.exchange is exchange:
                stream.exchange = None

    def _hang_up(self, request_id: RequestId) -> bool:
        """End the stream of a request early: the client comes back for the answer (HL-10)."""
        with self.connection.lock:
            stream = self._of_request.get(request_id)
            if stream is None or stream.exchange is None or not self.primes:
                return False
            exchange, stream.exchange = stream.exchange, None
            exchange.open_events()
            exchange.end()
            return True

    def hush(self) -> None:
        """End the GET stream."""
        if self._general.exchange is not None:
            self._general.exchange.end()

    def end(self) -> None:
        """End all streams."""
        for stream in self._streams.values():
            if stream.exchange is not None:
                stream.exchange.end()

    def _send(self, delivery: Delivery) -> None:
        """Send a message on the one stream that it belongs to."""
        message, about, final = delivery.data, delivery.about, delivery.final
        stream = self._of_request.get(about) if about is not None else None
        if stream is None and final:
            stream = self._receiving  # an answer to something that was no request, or to all of a batch
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
            stream.message(message, final=last, status=400 if invalid else 200)
        if last:
            stream.exchange = None
            self._drop_if_empty(stream)

    def _announce(self, message: bytes) -> None:
        """Send what belongs to no request. That a list has changed is kept once for the next GET stream, where there is none."""
        if self._general.exchange is None and is_list_changed(message):
            if message in self._missed:
                return
            self._missed[message] = None
        self._general.message(message, final=False)

    def _new_stream(self) -> _Stream:
        self._count += 1
        stream = self._streams[str(self._count)] = _Stream(str(self._count), self)
        return stream

    def _drop_if_empty(self, stream: _Stream) -> None:
        """Forget a stream that has ended, unless a client may come back for its last words."""
        if not stream.kept:
            self._drop(stream)

    def _drop(self, stream: _Stream) -> None:
        self._streams.pop(stream.name, None)


class Sessions:
    """All sessions of an endpoint."""

    def __init__(
        self, policy: HttpPolicy, random: Callable[[int], bytes], lock: AbstractContextManager[object]
    ) -> None:
        """Keep sessions as `policy` says; `random(n)` gives n unguessable bytes, `lock` keeps threads apart."""
        self._policy = policy
        self._lock = lock
        self._random = random
        self._sessions: dict[str, HttpSession] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def __iter__(self) -> Iterator[HttpSession]:
        return iter(list(self._sessions.values()))

    def new(self, principal: str | None, connect: Callable[..., ServerConnection]) -> HttpSession:
        """Return a session that is not kept yet: that comes after its handshake."""
        return HttpSession(self._random(16).hex(), principal, connect, self._policy)

    def keep(self, session: HttpSession, now: float) -> HttpSession | None:
        """Keep a session; return the one that has to go for it. Raises: OverflowError with the bound, if calls run in all."""
        policy = self._policy
        with self._lock:
            evicted: HttpSession | None = None
            own = [each for each in self if each.principal == session.principal is not None]
            if len(own) >= policy.max_sessions_per_principal:
                evicted = self._evict(own, "max_sessions_per_principal")
            elif len(self._sessions) >= policy.max_sessions:
                evicted = self._evict(list(self), "max_sessions")
            session.used = now
            self._sessions[session.id] = session
        return evicted

    def _evict(self, among: list[HttpSession], bound: str) -> HttpSession:
        """Forget the session that will be missed least: one whose client listens may hear of something still."""
        found = min((each for each in among if not each.working), key=_importance, default=None)
        if found is None:
            raise OverflowError(bound)
        self.remove(found)
        return found

    def find(self, session_id: str, principal: str | None, now: float) -> HttpSession | None:
        """Return a session of `principal`, and note that it was used. A stranger's does not exist (HL-8)."""
        session = self._sessions.get(session_id)
        if session is None or session.principal != principal:
            return None
        session.used = now
        return session

    def remove(self, session: HttpSession) -> None:
        """Forget a session."""
        self._sessions.pop(session.id, None)

    def idle(self, now: float) -> list[HttpSession]:
        """Return and forget the sessions that nobody has used for too long."""
        late = [
            each
            for each in self
            if not (each.working or each.listening) and now - each.used >= self._policy.session_idle
        ]
        for session in late:
            self.remove(session)
        return late


def _importance(session: HttpSession) -> tuple[bool, float]:
    return session.listening, session.used
