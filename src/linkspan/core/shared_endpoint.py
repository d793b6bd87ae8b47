"""The endpoint of a server whose handshake sessions are shared by several processes: no request needs the one before's process.

Modern requests are served as by any endpoint. A request of a session loads the record of it first; what only another process
can do, because it has a call or a stream in its memory, is passed on to that one over the channels of the store.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from itertools import count
from typing import Any, Final

import msgspec
from msgspec import Raw, structs

from linkspan.core.awaited_streams import AwaitedStreams
from linkspan.core.call import BUSY, Event, encode_refusal
from linkspan.core.http_checks import VERSION_HEADER
from linkspan.core.http_endpoint import Arrived, Endpoint, Opened, Todo, fitting
from linkspan.core.http_exchange import ServerExchange
from linkspan.core.http_sessions import SESSION_HEADER, HttpSession, Pair
from linkspan.core.params import read_params
from linkspan.core.shared_record import entries, entries_of
from linkspan.core.shared_sessions import (
    SharedSession,
    is_event_id,
    is_general,
    process_of,
)
from linkspan.core.shared_state import (
    Changed,
    Drop,
    Due,
    Gone,
    Handed,
    Left,
    Load,
    Loaded,
    PairRecord,
    Passed,
    Posted,
    Publish,
    Relayed,
    Save,
    Schedule,
    SessionSpace,
    StoreFlow,
    StoreRunner,
    Take,
    Want,
    decode_message,
    decode_pair,
    decode_session,
    each_of,
    encode_value,
)
from linkspan.errors import LinkspanError, RemoteProtocolError
from linkspan.revisions import REVISIONS
from linkspan.revisions.neutral import CREDENTIALS, TransportInfo
from linkspan.types.messages import CancelledParams
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
from linkspan.wire.values import key_of

_CACHED: Final = 30.0
"""Seconds for which a session without a call and a stream stays in the memory of a process after a request."""
_CANDIDATES: Final = 16
"""Sessions among which one is found that may go for another one."""
_KNOWN: Final = Handed(0, known=True)
_UNKNOWN: Final = Handed(0)
_FAILED: Final = "The store of the sessions cannot be reached; try again later"


def _with_store(serve: Callable[..., Opened]) -> Callable[..., Opened]:
    """Serve a request; refuse it where the store fails."""

    def serve_or_refuse(self: SharedEndpoint, request: Arrived, *arguments: Any) -> Opened:
        try:
            return serve(self, request, *arguments)
        except LinkspanError:
            return request.busy(503, _FAILED, 5)

    return serve_or_refuse


class SharedEndpoint(Endpoint):
    """The machine behind ASGI and WSGI where sessions are in a store."""

    def __init__(
        self,
        *arguments: Any,
        name: str,
        wall_clock: Callable[[], float],
        runner: StoreRunner,
        is_secret: Callable[[str], bool] = bool,
        **options: Any,
    ) -> None:
        """Share sessions with the other processes whose server has this `name`, through the store of `runner`.

        `wall_clock` gives seconds since 1970. Headers for which `is_secret` is true stay in this process. The rest is
        what an endpoint takes.
        """
        self._name = name
        self._wall_clock = wall_clock
        self._is_secret = is_secret
        self._runner = self.runner = runner  # the public one may be None for the type of an endpoint
        super().__init__(*arguments, **options)

    def start_afresh(self) -> None:
        """Begin without sessions and streams, as a process of its own."""
        super().start_afresh()
        self._space = SessionSpace(
            key_of(self._name), self._random(6).hex(), self.policy, self._wall_clock, self._runner
        )
        self.channels = self._space.everyone, self._space.channel(self._space.process)
        """What this process must be subscribed to: what comes there goes to `receive`."""
        self._loads = count(1)
        self._awaited = AwaitedStreams(self._space, self._runner, self.clock)
        self._room = 0
        """As many sessions may begin before they are counted again."""
        self._pairs_noted = self.clock()
        self._touches = False
        """Whether sessions are being noted as used."""

    def may_wait(self, method: str, headers: Mapping[str, str]) -> bool:
        """Return whether `open` may need the store for a request with this head."""
        return method != "POST" or headers.get(VERSION_HEADER) not in self._served.with_envelope

    # Sessions.

    @_with_store
    def _initialize(self, request: Arrived, message: Message | Batch) -> Opened:
        principal = request.facts.principal
        full = self._runner.run(self._make_room(principal))
        if full is not None:
            return request.too_many_sessions(full)
        session = self._new_session(self._random(16).hex(), principal)
        opened = self._in_session(request, session, message, announces=True)
        if not session.connection.session.negotiated:
            return opened
        try:
            self._runner.run(session.record.create())
        except LinkspanError:
            self.disconnect(opened)
            raise
        self.sessions.keep(session, self.clock())
        return opened

    def _new_session(self, session_id: str, principal: str | None) -> SharedSession:
        return SharedSession(session_id, principal, self._connect, self._space, next(self._loads))

    def _make_room(self, principal: str | None) -> StoreFlow[str | None]:
        """Let a session of long ago go where there are too many; return the bound if none can go."""
        now = self._wall_clock()
        bounds = ("max_sessions", "max_sessions_per_principal")
        for (queue, _), name in zip(entries(self._space.scope, principal, ""), bounds, strict=False):
            if name == "max_sessions" and self._room > 0:
                self._room -= 1
                continue
            bound: int = getattr(self.policy, name)
            for key in (yield Due(queue, now - self._space.lifetime, bound)):
                yield from each_of(Schedule(*entry, None) for entry in entries_of(queue, key))  # its record has gone
            keys: Sequence[str] = yield Due(queue, now + self._space.lifetime, bound)
            if len(keys) >= bound and not (yield from self._evict(keys[:_CANDIDATES])):
                return name
            if name == "max_sessions":
                # Other processes begin sessions meanwhile, so count again long before it is full.
                self._room = (bound - len(keys)) // 8
        return None

    def _evict(self, keys: Sequence[str]) -> StoreFlow[bool]:
        """End the session that was used longest ago, as far as this process knows; return whether there is room now."""
        for key in keys:
            session_id = key.partition("/")[0]
            local = self.sessions.get(session_id)
            if local is not None and local.working:
                continue
            found = yield Load(self._space.key("session", session_id))
            principal = decode_session(found.value).principal if found is not None else None
            yield from self._forget(session_id, principal)
            return True
        return False

    def _forget(self, session_id: str, principal: str | None) -> StoreFlow[None]:
        """End a session for all processes."""
        yield Drop(self._space.key("session", session_id))
        yield self._space.empty(session_id)
        for queue, key in entries(self._space.scope, principal, session_id):
            yield Schedule(queue, key, None)
        yield Publish(self._space.everyone, encode_value(Gone(session_id)))

    def _find(self, request: Arrived) -> SharedSession | Opened:
        """Return the session that a request names as it is now, or the refusal of the request."""
        session_id = request.headers.get(SESSION_HEADER)
        if session_id is None or not self.policy.sessions or not self._served.with_handshake:
            refusal = self._session_of(request)
            assert isinstance(refusal, Opened)
            return refusal
        found = self._runner.load(self._space.key("session", session_id)) if _is_id(session_id) else None
        if found is None:
            return structs.replace(fitting(request, None), also=self._end(session_id))
        session = self._local_session(session_id, found, request.facts.principal)
        if session is not None and session.record_use(request.facts):
            self._runner.run(session.record.touch())
        return fitting(request, session)

    def _local_session(self, session_id: str, found: Loaded, principal: str | None) -> SharedSession | None:
        """Return what this process has of a session, as its record is now; None if `principal` cannot use it here."""
        with self.sessions.lock:  # until it is kept: it may be removed, or loaded by another thread
            local = self.sessions.get(session_id)
            session = local if isinstance(local, SharedSession) else None
            if session is None or session.record.version != found.version:
                record = decode_session(found.value)
                if record.principal != principal:
                    return None  # those of other principals are not found (HL-8)
                if record.agreed.revision not in REVISIONS:
                    return None  # that of a newer release
                session = session or self._new_session(session_id, principal)
                session.record.adopt(record, found.version)
            if session.principal != principal:
                return None
            self.sessions.keep(session, self.clock())
            return session

    def _end(self, session_id: str) -> Todo:
        """End what this process has of a session that is over."""
        session = self.sessions.get(session_id)
        if not isinstance(session, SharedSession):
            return []
        self.sessions.remove(session)
        self._awaited.end_session(session)
        return [(session.connection, session.end())]

    # POST.

    @_with_store
    def _post_to_session(self, request: Arrived, message: Message | Batch) -> Opened:
        session = self._find(request)
        if isinstance(session, Opened):
            return session
        if not isinstance(message, RpcRequest):  # requests are for any process
            here = self._runner.run(self._pass_on(session, message, request.body))
            if here is None:
                return request.accept()
            message = here
        opened = self._in_session(request, session, message)
        if session.record.has_changes:
            try:
                self._runner.run(session.record.save())
            except LinkspanError:
                if opened.events:  # calls that have begun must end; the next request saves what has changed
                    return opened
                self.disconnect(opened)
                raise
        return opened

    def _pass_on(
        self, session: SharedSession, message: Message | Batch, body: bytes
    ) -> StoreFlow[Message | Batch | None]:
        """Pass on what is for other processes; return what is for this one, if anything is."""
        if not isinstance(message, Batch):
            channel = _destination(self._space, session, message)
            if channel is None:
                return message
            yield Publish(channel, encode_value(Passed(session.id, body)))
            return None
        here: list[Any] = []
        for each, raw in zip(message.messages, msgspec.json.decode(body, type=list[Raw]), strict=True):
            channel = _destination(self._space, session, each)
            if channel is None:
                here.append(each)
            else:
                yield Publish(channel, encode_value(Passed(session.id, bytes(raw))))
        return structs.replace(message, messages=here) if here else None

    # GET and DELETE.

    @_with_store
    def _get_of_session(self, request: Arrived) -> Opened:
        session = self._find(request)
        if isinstance(session, Opened):
            return session
        if (refusal := self._no_stream(request)) is not None:
            return refusal
        last = request.headers.get("last-event-id")
        if last is not None and not is_event_id(last):
            return self._listening(request, session, None)
        stream = last.rpartition("-")[0] if last is not None else None
        if stream is None or is_general(stream):
            return self._runner.run(self._open_get_stream(request, session, last))
        return self._runner.run(self._resume(request, session, last or "", stream))

    def _open_get_stream(self, request: Arrived, session: SharedSession, last: str | None) -> StoreFlow[Opened]:
        """Open the GET stream here, wherever it was; what another process has of it comes when that has responded."""
        before = yield from session.record.take_home()
        if before is None:
            return fitting(request, None)
        exchange, home = session.hold(request.respond), before.home
        if home is None or home == self._space.process:
            logged = (yield from self._awaited.events(session, last)) if last is not None else []
            session.listen_on(exchange, last, logged, _UNKNOWN if home is None else _KNOWN)
            return self._listening(request, session, exchange)
        if last is None:
            session.listen_on(exchange, None, (), _KNOWN)
        yield from self._ask(session, exchange, last, home)
        return self._listening(request, session, exchange)

    def _resume(self, request: Arrived, session: SharedSession, last: str, stream: str) -> StoreFlow[Opened]:
        """Go on with the stream of a POST: that of this process, one that is over, or one of another process."""
        logged, process = (yield from self._awaited.events(session, last)), process_of(stream)
        if process is None or process == self._space.process or any(each.final for each in logged):
            return self._listening(request, session, session.resume(request.respond, last, logged))
        exchange: ServerExchange = request.respond(lock=session.connection.lock)
        yield from self._ask(session, exchange, last, process, stream)
        return self._listening(request, session, exchange)

    def _ask(
        self,
        session: SharedSession,
        exchange: ServerExchange,
        last: str | None,
        process: str,
        stream: str | None = None,
    ) -> StoreFlow[None]:
        try:
            yield from self._awaited.ask(session, exchange, last, process, stream)
        except LinkspanError:
            self.disconnect(Opened(exchange, (), session))
            raise

    @_with_store
    def _delete(self, request: Arrived) -> Opened:
        session = self._find(request)
        if isinstance(session, Opened):
            return session
        self._runner.run(self._forget(session.id, session.principal))
        return Opened(request.respond().respond(204), also=self._end(session.id))

    # Pairs.

    @_with_store
    def _open_pair(self, request: Arrived) -> Opened:
        opened = super()._open_pair(request)
        if isinstance(opened.owner, Pair):
            try:
                self._runner.run(each_of([self._save_pair(opened.owner)]))
            except LinkspanError:
                self.disconnect(opened)
                raise
        return opened

    def _save_pair(self, pair: Pair) -> Save:
        record = PairRecord(pair.principal, self._space.process)
        return Save(self._space.key("pair", pair.id), encode_value(record), None, self._space.lifetime)

    @_with_store
    def _post_to_pair(self, request: Arrived, pair_id: str) -> Opened:
        """Take a message in, or pass it on to the process that has the stream of the client."""
        elsewhere = self.pairs.find(pair_id, request.facts.principal) is None and _is_id(pair_id)
        found = self._runner.load(self._space.key("pair", pair_id)) if elsewhere else None
        pair, facts = decode_pair(found.value) if found is not None else None, request.facts
        if pair is None or pair.principal != facts.principal or pair.home == self._space.process:
            return super()._post_to_pair(request, pair_id)
        message = decode(request.body, self.limits)
        if isinstance(message, Malformed):
            return request.refuse(400, encode_error(message.reply_id, message.code, message.message))
        # Credentials stay here even where the server shows them to its handlers.
        secret = {name for name in facts.headers if name in CREDENTIALS or self._is_secret(name)}
        headers = {name: value for name, value in facts.headers.items() if name not in secret}
        posted = Posted(pair_id, request.body, facts.principal, facts.address, headers, facts.grant)
        self._runner.run(each_of([self._space.send(pair.home, posted)]))
        return request.accept()

    # What other processes send.

    def receive(self, data: bytes) -> Todo:
        """Take what has come on one of the `channels`, in any thread but always the same; return what must run for it."""
        message = decode_message(data)
        match message:
            case Gone():
                return self._end(message.session)
            case Posted():
                pair = self.pairs.find(message.pair, message.principal)
                return self._receive_posted(pair, message) if pair is not None else []
            case Handed():
                self._awaited.handed(message)
            case Relayed():
                self._awaited.relayed(message)
            case _:
                session = self.sessions.get(message.session)
                if isinstance(session, SharedSession):
                    return self._receive_for(session, message)
                if isinstance(message, Take | Want):
                    self._space.spawn_send(message.to, Handed(message.ticket))
        return []

    def _receive_posted(self, pair: Pair, posted: Posted) -> Todo:
        """Take a message of a client of HTTP+SSE. Its response has been sent, so what has no room is refused on the stream."""
        connection, message = pair.connection, decode(posted.message, self.limits)
        if not connection.has_room:
            for each in message.messages if isinstance(message, Batch) else (message,):
                if isinstance(each, RpcRequest):
                    pair.outlet.send(encode_refusal(each.id, BUSY, dispatched=False))
            return []
        facts = TransportInfo(posted.headers, posted.principal, posted.address, posted.grant)
        with connection.lock:
            return [(connection, connection.receive(message, facts))]

    def _receive_for(self, session: SharedSession, message: Passed | Changed | Take | Want | Left) -> Todo:
        match message:
            case Passed():
                connection = session.connection
                with connection.lock:
                    return [(connection, connection.receive(decode(message.message, self.limits), session.facts))]
            case Changed():
                session.record.adopt(message.record, message.version)
            case Take():
                self._awaited.give_home(session, message)
            case Want():
                self._space.spawn_send(message.to, session.hand_over(message.stream, message.to, message.ticket))
            case Left():
                session.take_back(message.stream)
        return []

    # Life.

    def disconnect(self, opened: Opened) -> Sequence[Event]:
        """Keep what comes for a client that has gone, here or in the process that serves its stream."""
        self._awaited.leave(opened.exchange)
        return super().disconnect(opened)

    def finished(self, exchange: ServerExchange) -> None:
        """Forget a response that is complete."""
        owner = self.streams.owners.get(exchange)
        super().finished(exchange)
        if type(owner) is Pair:
            self._runner.spawn(each_of([Drop(self._space.key("pair", owner.id))]))

    def _end_idle(self, now: float) -> Todo:
        """Forget the sessions that nothing of this process needs; note that the others are in use."""
        stale: list[SharedSession] = []
        ended: Todo = []
        for session in self.sessions:
            assert isinstance(session, SharedSession)
            if session.record.has_gone:
                ended += self._end(session.id)
            elif session.working or session.listening:
                if session.record.is_stale:
                    stale.append(session)
            elif self._remove_unused(session, now - min(_CACHED, self.policy.session_idle)):
                self._runner.spawn(session.leave_home())
        if stale and not self._touches:  # a store may stand still for many ticks
            self._touches = True
            self._runner.spawn(self._touch(stale))
        if now - self._pairs_noted > self.policy.session_idle / 10:
            self._pairs_noted = now
            self._runner.spawn(each_of(map(self._save_pair, self.pairs)))
        self._awaited.expire(now)
        return ended

    def _remove_unused(self, session: SharedSession, used: float) -> bool:
        """Remove a session that was not used after that time; return whether it was removed."""
        with self.sessions.lock:  # a request may be about to use it
            if session.used > used:
                return False
            self.sessions.remove(session)
            return True

    def _touch(self, sessions: Sequence[SharedSession]) -> StoreFlow[None]:
        try:
            for each in sessions:
                yield from each.record.touch()
        finally:
            self._touches = False

    def close(self) -> Todo:
        """Cancel what runs, end every stream, and leave the sessions to the other processes."""
        sessions: list[HttpSession] = [*self.sessions]
        ended = super().close()
        for session in sessions:
            if isinstance(session, SharedSession):
                self._runner.spawn(session.leave_home())
        return ended


def _is_id(text: str) -> bool:
    """Return whether a text can be the id of a session or a pair, and so a part of a key."""
    return len(text) == 32 and text.isascii() and text.isalnum()


def _destination(space: SessionSpace, session: SharedSession, message: Message) -> str | None:
    """Return the channel of those who need a message; None for this process."""
    if isinstance(message, Response | ErrorResponse):
        process = process_of(message.id)
        return None if process in (None, space.process) else space.channel(process)
    if isinstance(message, Notification) and message.method == "notifications/cancelled":
        with suppress(RemoteProtocolError):
            params = read_params(message.method, message.params)
            request_id = params.request_id if isinstance(params, CancelledParams) else None
            if request_id is not None and not session.connection.is_running(request_id):
                return space.everyone
    return None
