"""A handshake session that several processes serve: any of them may get its next request.

What was agreed is a record in the store, under compare-and-set. Calls, and the events of streams that are being read, are in the
memory of one process; the events of a stream go to the log of the session, in the store, when its client leaves. One process, the
home, notifies the client of changes, so that it is notified once.
Spec: https://modelcontextprotocol.io/specification/2025-11-25/basic/transports (HL-1 to HL-18).
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Final

from linkspan.core.call import Delivery, Event, encode_refusal
from linkspan.core.http_checks import refusal_body
from linkspan.core.http_exchange import JSON_HEADERS, Header, ServerExchange
from linkspan.core.http_sessions import STREAM_IS_OVER, Connect, HttpSession, Receiver, Respond, SessionStream
from linkspan.core.shared_record import SharedRecord
from linkspan.core.shared_state import (
    Handed,
    Logged,
    Relayed,
    SessionSpace,
    StoreFlow,
    Take,
)
from linkspan.core.waiting import ServerChange, untagged
from linkspan.errors import INTERNAL_ERROR, INVALID_REQUEST, LinkspanError, RemoteProtocolError
from linkspan.revisions.neutral import NO_FACTS, TransportInfo
from linkspan.wire.framing import encode_event

_NAME: Final = re.compile(r"([0-9a-f]{12})\.[0-9]{1,12}\.")
_EVENT_ID: Final = re.compile(_NAME.pattern + r"[0-9]{1,12}-[0-9]{1,18}")
_NOT_SAVED: Final = RemoteProtocolError(INTERNAL_ERROR, "The session could not be saved; try again")


class SharedSession(HttpSession):
    """What this process has in memory of a session: as much as it needs while it serves it."""

    __slots__ = ("_away", "_facts", "_space", "_unwritten", "_unwritten_bytes", "record")

    def __init__(
        self, session_id: str, principal: str | None, connect: Connect, space: SessionSpace, load: int
    ) -> None:
        """Begin; the handshake, or the record of it, is still to come. `load` counts those of this process.

        So it is part of what names streams and questions: no two have the same name, in any process.
        """
        prefix = f"{space.process}.{load}."
        super().__init__(session_id, principal, partial(connect, question_prefix=prefix), space.policy, prefix)
        self._space = space
        self.record = SharedRecord(session_id, principal, self.connection, space)
        """What the processes have agreed on."""
        self._facts: TransportInfo = NO_FACTS
        self._away: set[SessionStream] = set()
        """The streams that have no client any more: their events go to the log."""
        self._unwritten = self._unwritten_bytes = 0
        """Events that are on their way to the log."""

    def end(self) -> Sequence[Event]:
        """Close what this process has of a session that has ended for all."""
        with self.connection.lock:
            self.record.end()
            return self.close()

    def leave_home(self) -> StoreFlow[None]:
        """Note that no process notifies the client: this one forgets the session, or stops."""
        if not self.record.is_home:
            return
        with self.connection.lock:
            self._put_away(self._general)
        yield self.record.left()

    # Messages.

    @property
    def facts(self) -> TransportInfo:
        """What was known of the last request: what is passed on comes without any."""
        return self._facts

    def record_use(self, facts: TransportInfo) -> bool:
        """Remember what is known of a request; return whether the record must note that the session is in use."""
        self._facts = facts
        return self.record.is_stale

    def _send(self, delivery: Delivery) -> None:
        """Send a message; an answer that confirms a change only when that is in the record."""
        if delivery.final and self._receiving is None and self.id and self.record.has_changes:
            self._space.runner.spawn(self._send_saved(delivery))
        else:
            super()._send(delivery)

    def _send_saved(self, delivery: Delivery) -> StoreFlow[None]:
        try:
            yield from self.record.save()
        except LinkspanError:
            if delivery.about is not None and delivery.error is None:
                delivery = encode_refusal(delivery.about, _NOT_SAVED, dispatched=True)
        with self.connection.lock:
            super()._send(delivery)

    # Streams whose clients are away, or in another process.

    def store(self, stream: SessionStream, count: int, event: bytes) -> None:
        """Keep an event in memory; where its stream is not read, until it is in the log."""
        super().store(stream, count, event)
        is_kept = bool(self._stored)  # one that is larger than the bound is not kept anywhere
        if is_kept and stream in self._away:
            self._log(stream, [Logged(stream.name, count, event, stream.finished)])

    def _log(self, stream: SessionStream, entries: Sequence[Logged]) -> None:
        """Move events of a stream to the log soon. They stay in memory, within its bounds, while a store stands still."""
        if entries[-1].final:
            self._away.discard(stream)
        unwritten = self._unwritten + len(entries)
        unwritten_bytes = self._unwritten_bytes + sum(len(each.event) for each in entries)
        if (
            self.record.has_gone
            or unwritten > self.policy.max_stored_events
            or unwritten_bytes > self.policy.max_stored_bytes
        ):
            return
        self._unwritten, self._unwritten_bytes = unwritten, unwritten_bytes
        self._space.runner.spawn(self._write(stream, entries))

    def _write(self, stream: SessionStream, entries: Sequence[Logged]) -> StoreFlow[None]:
        """Move events of a stream from memory to the log."""
        try:
            for each in entries:
                yield self._space.append(self.id, each)
        finally:
            self._unwritten -= len(entries)
            self._unwritten_bytes -= sum(len(each.event) for each in entries)
        moved = {each.count for each in entries}
        with self.connection.lock:
            kept = deque(each for each in self._stored or () if each.stream is not stream or each.count not in moved)
            stream.keep(len(kept) - len(self._stored or ()))
            self._stored, self._stored_bytes = kept, sum(len(each.event) for each in kept)
            if stream.finished:
                self._drop_if_empty(stream)

    def _kept(self, stream: SessionStream) -> list[Logged]:
        return [
            Logged(stream.name, each.count, each.event, stream.finished and each.count == stream.count)
            for each in self._stored or ()
            if each.stream is stream
        ]

    def _put_away(self, stream: SessionStream) -> None:
        """Move what is kept of a stream to the log, and what comes from now on."""
        self._away.add(stream)
        kept = self._kept(stream)
        if stream.finished and not kept:
            kept = [_end_of(stream)]
        if kept:
            self._log(stream, kept)

    def _lose(self, stream: SessionStream) -> Receiver | None:
        exchange = super()._lose(stream)
        # A client that knows no event of a stream cannot come back for it.
        if stream is self._general or stream.name in self._streams:
            self._put_away(stream)
        return exchange

    def _drop_if_empty(self, stream: SessionStream) -> None:
        if stream.finished and stream in self._away:
            self._log(stream, [_end_of(stream)])
        super()._drop_if_empty(stream)

    def call_back(self, last_event_id: str) -> list[Logged]:
        """Keep what comes on a stream in memory again, since its client has come back; return what is there already.

        Read the log after this and before `resume` or `listen_on`: then no event is in neither.
        """
        name = last_event_id.rpartition("-")[0]
        with self.connection.lock:
            stream = self._general if is_general(name) else self._streams.get(name)
            if stream is None:
                return []
            self._away.discard(stream)
            return self._kept(stream)

    @property
    def log(self) -> str:
        """The name of the log."""
        return self._space.log(self.id)

    def resume(self, respond: Respond, last_event_id: str, logged: Sequence[Logged]) -> ServerExchange | None:
        """Go on with a stream of this process, or one of which all is in the log. None: there is no such stream."""
        with self.connection.lock:
            stream = self._streams.get(last_event_id.rpartition("-")[0])
            if stream is None and not logged:
                return None
            exchange: ServerExchange = respond(lock=self.connection.lock, stream=stream)
            if stream is None:
                exchange.send_events(events_after(logged, last_event_id))
                exchange.end()
                return exchange
            stream.end()
            exchange.send_events(events_after(merged(logged, self._kept(stream)), last_event_id))
            self._attach(stream, exchange)
            return exchange

    def _attach(self, stream: SessionStream, receiver: Receiver) -> None:
        self._away.discard(stream)
        if stream.finished:
            receiver.end()
        else:
            stream.attach(receiver)

    def hand_over(self, stream: str, to: str, ticket: int) -> Handed:
        """Let another process send the events of a stream of this one to its client."""
        with self.connection.lock:
            found = self._stream(stream)
            if found is None:
                return Handed(ticket)
            if isinstance(found.exchange, _StreamRelay) and found.exchange.ticket == ticket:
                return Handed(ticket, True, True)  # it only asks whether we are there
            found.end()
            self._put_away(found)
            self._away.discard(found)
            if found.finished:
                self._drop_if_empty(found)
            else:
                found.attach(_StreamRelay(found, self._space, to, ticket))
            return Handed(ticket, True, not found.finished)

    def follow(self, exchange: ServerExchange, last_event_id: str, logged: Sequence[Logged], handed: Handed) -> None:
        """Send what the log has of a stream of another process; it goes on with what that sends, if it is live."""
        with self.connection.lock:
            if exchange.ended:
                return
            if handed.known or logged:
                exchange.send_events(events_after(logged, last_event_id))
            else:
                exchange.respond(400, refusal_body(INVALID_REQUEST, STREAM_IS_OVER), JSON_HEADERS)
            if not handed.live:
                exchange.end()

    def take_back(self, stream: str) -> None:
        """Keep the events of a stream again that another process has sent on: the client is away."""
        with self.connection.lock:
            found = self._stream(stream)
            if found is not None and isinstance(found.exchange, _StreamRelay):
                self._lose(found)

    def give_home(self, take: Take, *, is_whole: bool) -> Handed:
        """Let another process have the GET stream. `is_whole`: no third one has a part of what the client has missed."""
        with self.connection.lock:
            self._general.end()
            self._lose(self._general)
            missed, self._missed = self._missed, ()
            self.record.give_home(take.to)
            return Handed(take.ticket, is_whole, missed=missed if is_whole else ())

    def hold(self, respond: Respond) -> ServerExchange:
        """Begin the response to a GET; `listen_on` goes on with it."""
        exchange: ServerExchange = respond(lock=self.connection.lock, stream=self._general)
        return exchange

    def listen_on(
        self, exchange: ServerExchange, last_event_id: str | None, logged: Sequence[Logged], handed: Handed
    ) -> None:
        """Go on with the GET stream on `exchange`: what was missed comes first; all that may have been, where that is unknown."""
        general = self._general
        with self.connection.lock:
            if exchange.ended:
                return
            if not self.record.is_home:  # another process has taken it since
                exchange.end()
                return
            own = self._kept(general)
            sent = [each.event for each in own]
            missed = [*handed.missed] if handed.known else self._promised(resumes=last_event_id is not None)
            if general.exchange is not exchange:
                general.end()
                missed[:0], self._missed = self._missed, ()
                if last_event_id is None:
                    sent = []
                    exchange.open_events()
                else:
                    sent = events_after(merged(logged, own), last_event_id)
                    exchange.send_events(sent)
                self._attach(general, exchange)
            for message in missed:
                if not any(message in event for event in sent):
                    exchange.message(message, final=False)

    def _promised(self, *, resumes: bool) -> list[bytes]:
        """Return notifications of all that may have changed while no process looked."""
        agreed = self.connection.session.agreed()
        changes = [ServerChange.of_list(kind) for kind in agreed.announced]
        if resumes:
            changes += [ServerChange.of_resource(uri) for uri in agreed.subscriptions]
        return [untagged(each) for each in changes]


class _StreamRelay:
    """Sends the events of a stream to the process that its client has come back to."""

    def __init__(self, stream: SessionStream, space: SessionSpace, to: str, ticket: int) -> None:
        self._stream = stream
        self._space = space
        self._to = to
        self.ticket = ticket

    def message(
        self, message: bytes | None, *, final: bool, status: int = 200, headers: tuple[Header, ...] = ()
    ) -> None:
        """Send a message. It is an event, so that a status and headers have no place."""
        event = b"" if message is None else encode_event(message, event_id=self._stream.number(message))
        self._space.spawn_send(self._to, Relayed(self.ticket, event, final))

    def open_events(self) -> None:
        """Do nothing: the other process has begun its response."""

    def end(self) -> None:
        """End the response of the other process."""
        self._space.spawn_send(self._to, Relayed(self.ticket, b"", True))


def process_of(name: object) -> str | None:
    """Return the process that has given a stream, or a question, its name; None for any other name."""
    found = _NAME.match(name) if isinstance(name, str) else None
    return found[1] if found is not None else None


def is_general(stream: str) -> bool:
    """Return whether a name is that of the GET stream, in whichever process that was."""
    return stream.endswith(".1")


def is_event_id(text: str) -> bool:
    """Return whether a text has the form of the id of an event of some process."""
    return _EVENT_ID.fullmatch(text) is not None


def of_stream(logged: Iterable[Logged], stream: str) -> list[Logged]:
    """Return the events of one stream; of the GET stream also those that it had in other processes."""
    general = is_general(stream)
    return [each for each in logged if each.stream == stream or (general and is_general(each.stream))]


def merged(logged: Sequence[Logged], kept: Sequence[Logged]) -> list[Logged]:
    """Return the events of a log, and those from memory that are not in it yet."""
    known = {(each.stream, each.count) for each in logged}
    return [*logged, *(each for each in kept if (each.stream, each.count) not in known)]


def events_after(entries: Sequence[Logged], last_event_id: str) -> list[bytes]:
    """Return the events that came after one; if it was dropped, those that came after where it stood."""
    name, _, count = last_event_id.rpartition("-")
    last = int(count)
    start = 0
    for index, each in enumerate(entries, 1):
        if each.stream == name and each.count <= last:
            start = index
    return [each.event for each in entries[start:] if each.event]


def _end_of(stream: SessionStream) -> Logged:
    """Return the end of a stream whose last event is not there, or in the log already."""
    return Logged(stream.name, stream.count + 1, final=True)
