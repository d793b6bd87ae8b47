"""The record of a handshake session that several processes serve: what they have agreed on, under compare-and-set."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import structs

from linkspan.core.connection import ServerConnection
from linkspan.core.shared_state import (
    Changed,
    Load,
    Save,
    Schedule,
    SessionRecord,
    SessionSpace,
    StoreFlow,
    decode_session,
    encode_value,
)
from linkspan.wire.values import key_of


class SharedRecord:
    """The record as this process knows it."""

    def __init__(
        self, session_id: str, principal: str | None, connection: ServerConnection, space: SessionSpace
    ) -> None:
        """Begin; the handshake, or the record of it, is still to come."""
        self._id = session_id
        self._principal = principal
        self._connection = connection
        self._space = space
        self._record: SessionRecord | None = None
        self.version = 0
        """The version that this process knows."""
        self.taken = 0
        """The version in which this process has last taken the GET stream."""
        self._saved = 0
        """As many changes as there were when the record was written or read."""
        self.has_gone = False
        """Whether the session has ended, or expired, for all processes: nothing is written for its client any more."""

    @property
    def key(self) -> str:
        """The key of the record."""
        return self._space.key("session", self._id)

    @property
    def has_changes(self) -> bool:
        """Whether the client has changed something that is not in the record yet."""
        return self._connection.session.changes != self._saved

    @property
    def is_home(self) -> bool:
        """Whether this process notifies the client of changes."""
        return self._record is not None and self._record.home == self._space.process

    @property
    def is_stale(self) -> bool:
        """Whether the record must note that the session is in use."""
        return self._record is not None and self._space.is_stale(self._record.used)

    def end(self) -> None:
        """Take it that the session has ended for all."""
        self.has_gone = True

    def adopt(self, record: SessionRecord, version: int) -> None:
        """Go on with what another process has written, and what was changed here since."""
        with self._connection.lock:
            if version <= self.version:
                return
            session, old = self._connection.session, self._record
            agreed = record.agreed
            if old is not None and self.has_changes:
                agreed = agreed.with_changes(old.agreed, session.agreed())
            else:
                self._saved = session.changes
            session.restore(agreed, notify=record.home == self._space.process)
            self._record, self.version = record, version

    def create(self) -> StoreFlow[None]:
        """Write the first record, after the handshake, and count the session."""
        with self._connection.lock:
            session, space = self._connection.session, self._space
            self._saved = session.changes
            record = SessionRecord(self._principal, space.process, space.wall_clock(), session.agreed())
        version = yield Save(self.key, encode_value(record), 0, space.lifetime)
        self.adopt(record, version)
        yield from self._schedule(record.used)

    def save(self) -> StoreFlow[None]:
        """Write what the client has changed, and let the process know that notifies it."""
        with self._connection.lock:
            session, old = self._connection.session, self._record
            changes, mine = session.changes, session.agreed()
        if old is None:
            return
        written = yield from self._rewrite(
            lambda found: structs.replace(found, agreed=found.agreed.with_changes(old.agreed, mine))
        )
        with self._connection.lock:
            if session.changes == changes:
                self._saved = changes
        if written is not None and (home := written[0].home) not in (None, self._space.process):
            yield self._space.send(home, Changed(self._id, *written))

    def take_home(self) -> StoreFlow[SessionRecord | None]:
        """Make this the process that notifies the client; return the record as it was, or None if the session has ended."""
        before: list[SessionRecord] = []

        def take(record: SessionRecord) -> SessionRecord:
            before.append(record)
            return structs.replace(record, home=self._space.process)

        taken = yield from self._rewrite(take)
        if taken is None:
            return None
        self.taken = taken[1]
        return before[-1]

    def give_home(self, process: str) -> None:
        """Let another process notify the client. With the lock of the connection."""
        if self._record is not None:
            self._record = structs.replace(self._record, home=process)
            session = self._connection.session
            session.restore(session.agreed(), notify=False)

    def left(self) -> Save:
        """Return what notes that no process notifies the client."""
        record = self._record
        assert record is not None
        left = self._space.lifetime - (self._space.wall_clock() - record.used)
        return Save(self.key, encode_value(structs.replace(record, home=None)), self.version, max(1.0, left))

    def touch(self) -> StoreFlow[None]:
        """Note that the session is in use."""
        touched = yield from self._rewrite(lambda record: record)
        if touched is not None:
            yield from self._schedule(touched[0].used)

    def _schedule(self, used: float) -> StoreFlow[None]:
        """Note in the queues of sessions when this one was used last."""
        for queue, key in entries(self._space.scope, self._principal, self._id):
            yield Schedule(queue, key, used)

    def _rewrite(self, change: Callable[[SessionRecord], SessionRecord]) -> StoreFlow[tuple[SessionRecord, int] | None]:
        """Change the record, whatever other processes do to it meanwhile; return it with its version, None if it is gone."""
        record, version = self._record, self.version
        while record is not None:
            new = structs.replace(change(record), used=self._space.wall_clock())
            written: int | None = yield Save(self.key, encode_value(new), version, self._space.lifetime)
            if written is not None:
                self.adopt(new, written)
                return new, written
            found = yield Load(self.key)
            if found is None:
                self.has_gone = True
                break
            record, version = decode_session(found.value), found.version
        return None


def entries(scope: str, principal: str | None, session_id: str) -> tuple[tuple[str, str], ...]:
    """Return the queues that count a session by when it was used last, with its key there: that of all, and its principal's."""
    if principal is None:
        return ((f"sessions/{scope}", session_id),)
    owner = key_of(principal)
    return (f"sessions/{scope}", f"{session_id}/{owner}"), (f"sessions/{scope}/{owner}", session_id)


def entries_of(queue: str, key: str) -> tuple[tuple[str, str], ...]:
    """Return an entry, and the one in the queue of the principal that it names: its record may have gone."""
    session_id, _, owner = key.partition("/")
    return ((queue, key), (f"{queue}/{owner}", session_id)) if owner else ((queue, key),)
