"""The responses for which another process has something: a stream whose client has come back here, or the GET stream."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count
from typing import Final

import msgspec
from msgspec import structs

from linkspan.core.http_exchange import ServerExchange
from linkspan.core.shared_sessions import SharedSession, merged, of_stream
from linkspan.core.shared_state import (
    Handed,
    Left,
    Logged,
    PeerMessage,
    Read,
    Relayed,
    SessionSpace,
    StoreFlow,
    StoreRunner,
    Take,
    Want,
    decode_log,
)

_PATIENCE: Final = 2.0
"""Seconds in which another process must respond; one that does not is taken for dead."""
_SILENCE: Final = 10.0
"""Seconds after which a process from which nothing more came is asked whether it is still there."""
_UNKNOWN: Final = Handed(0)


class _Awaited(msgspec.Struct, frozen=True):
    """The response to a GET for which another process has something."""

    session: SharedSession
    exchange: ServerExchange
    last: str | None
    process: str
    until: float
    stream: str | None = None
    """None: the GET stream."""
    live: bool = False
    """It goes on: the other process sends what comes."""
    asked: bool = True
    """A response is awaited."""


class AwaitedStreams:
    """What this process has asked others for, each under a ticket."""

    def __init__(self, space: SessionSpace, runner: StoreRunner, clock: Callable[[], float]) -> None:
        """Ask over the channels of `space`."""
        self._space = space
        self._runner = runner
        self._clock = clock
        self._tickets = count(1)
        self._awaited: dict[int, _Awaited] = {}

    def ask(
        self,
        session: SharedSession,
        exchange: ServerExchange,
        last: str | None,
        process: str,
        stream: str | None = None,
    ) -> StoreFlow[None]:
        """Let another process send what it has of a stream; without a name, of the GET stream. Raises: LinkspanError."""
        ticket = next(self._tickets)
        awaited = _Awaited(session, exchange, last, process, self._clock() + _PATIENCE, stream)
        self._awaited[ticket] = awaited
        yield self._space.send(process, self._question(ticket, awaited))

    def _question(self, ticket: int, awaited: _Awaited) -> PeerMessage:
        session_id, me = awaited.session.id, self._space.process
        if awaited.stream is None:
            return Take(session_id, me, ticket, awaited.session.record.taken)
        return Want(session_id, awaited.stream, me, ticket)

    def events(self, session: SharedSession, last: str) -> StoreFlow[list[Logged]]:
        """Return what is known here of the stream of an event: what its log has, and what is not there yet."""
        kept = session.call_back(last)
        logged = decode_log((yield Read(session.log)))
        return merged(of_stream(logged, last.rpartition("-")[0]), kept)

    # What the others send.

    def handed(self, handed: Handed) -> None:
        """Go on with a response that has waited for another process."""
        awaited = self._awaited.get(handed.ticket)
        if awaited is None:
            return
        if handed.live:
            until = self._clock() + _SILENCE
            self._awaited[handed.ticket] = structs.replace(awaited, live=True, asked=False, until=until)
        else:
            self._awaited.pop(handed.ticket, None)
        if not awaited.live:
            self._runner.spawn(self._go_on(awaited, handed))
        elif not handed.live:
            awaited.exchange.end()  # its client comes back for the rest

    def _go_on(self, awaited: _Awaited, handed: Handed) -> StoreFlow[None]:
        session, exchange, last, stream = awaited.session, awaited.exchange, awaited.last, awaited.stream
        logged: Sequence[Logged] = (yield from self.events(session, last)) if last is not None else []
        if stream is None:
            session.listen_on(exchange, last, logged, handed)
        elif last is not None:
            session.follow(exchange, last, logged, handed)

    def relayed(self, relayed: Relayed) -> None:
        """Send on an event, behind what reads the log of its stream."""
        self._runner.spawn(self._relay(relayed))

    def _relay(self, relayed: Relayed) -> StoreFlow[None]:
        awaited = self._awaited.get(relayed.ticket)
        if awaited is None:
            return
        if relayed.event:
            awaited.exchange.send_events((relayed.event,))
        if relayed.final:
            self._awaited.pop(relayed.ticket, None)
            awaited.exchange.end()
        else:
            self._awaited[relayed.ticket] = structs.replace(awaited, asked=False, until=self._clock() + _SILENCE)
        yield from ()

    # What ends.

    def give_home(self, session: SharedSession, take: Take) -> None:
        """Let another process have the GET stream, unless this one has taken it later: then that one is asked for it, too."""
        if 0 < take.version < session.record.taken:
            return
        is_whole = True
        for ticket, each in list(self._awaited.items()):
            if each.session is session and each.stream is None:  # its client has gone on elsewhere already
                self._awaited.pop(ticket, None)
                each.exchange.end()
                is_whole = is_whole and each.process == take.to
        self._space.spawn_send(take.to, session.give_home(take, is_whole=is_whole))

    def end_session(self, session: SharedSession) -> None:
        """End the responses to the client of a session that is over."""
        for ticket, each in list(self._awaited.items()):
            if each.session is session:
                self._awaited.pop(ticket, None)
                each.exchange.end()

    def leave(self, exchange: ServerExchange) -> None:
        """Let the process that serves a stream keep what comes: the client of a response has gone."""
        for ticket, each in list(self._awaited.items()):
            if each.exchange is exchange:
                self._awaited.pop(ticket, None)
                each.exchange.abandon()
                if each.stream is not None:
                    self._space.spawn_send(each.process, Left(each.session.id, each.stream))

    def expire(self, now: float) -> None:
        """Ask processes of which nothing has come for a while; go on without those that do not respond."""
        for ticket, each in list(self._awaited.items()):
            if each.until > now:
                continue
            if not each.asked:
                self._awaited[ticket] = structs.replace(each, asked=True, until=now + _PATIENCE)
                self._space.spawn_send(each.process, self._question(ticket, each))
                continue
            self._awaited.pop(ticket, None)
            if each.live:
                each.exchange.end()
            else:
                self._runner.spawn(self._go_on(each, _UNKNOWN))
