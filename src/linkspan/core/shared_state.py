"""What processes that serve the same handshake sessions keep in a store, and what they send each other. Values only, no I/O.

Law: a flow yields what it needs of the store, one operation at a time, and is sent the result; it holds no lock meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from typing import Any, Final, Protocol, TypeAlias, TypeVar

import msgspec

from linkspan.core.http_checks import HttpPolicy
from linkspan.revisions.legacy import Agreed
from linkspan.revisions.neutral import Grant

ResultT = TypeVar("ResultT")

# What flows yield: the operations of a store.


class Load(msgspec.Struct, frozen=True):
    """Get the value and the version of a record; None if there is none."""

    key: str


class Save(msgspec.Struct, frozen=True):
    """Write a record if its version is the one to expect (0: there is none); get the new version, or None."""

    key: str
    value: bytes
    expect: int | None
    ttl: float


class Drop(msgspec.Struct, frozen=True):
    """Delete a record."""

    key: str


class Schedule(msgspec.Struct, frozen=True):
    """Note the time of a key in a queue; None takes it out."""

    queue: str
    key: str
    at: float | None


class Due(msgspec.Struct, frozen=True):
    """Get up to `limit` keys of a queue whose time is not after `now`, the oldest first."""

    queue: str
    now: float
    limit: int


class Append(msgspec.Struct, frozen=True):
    """Add an entry to a log within these bounds."""

    log: str
    data: bytes
    items: int
    bytes: int
    ttl: float


class Read(msgspec.Struct, frozen=True):
    """Get all entries of a log."""

    log: str


class Publish(msgspec.Struct, frozen=True):
    """Send data to the processes that are subscribed to a channel."""

    channel: str
    data: bytes


StoreOperation: TypeAlias = Load | Save | Drop | Schedule | Due | Append | Read | Publish
StoreFlow: TypeAlias = Generator[StoreOperation, Any, ResultT]


class Loaded(Protocol):
    """A record that was read."""

    @property
    def value(self) -> bytes:
        """What was saved."""
        ...

    @property
    def version(self) -> int:
        """What to expect when it is changed."""
        ...


class StoreRunner(Protocol):
    """Runs flows with a store."""

    def load(self, key: str) -> Loaded | None:
        """Get a record here, as a flow of one `Load` would: each request of a session begins so. Raises: LinkspanError."""
        ...

    def run(self, flow: StoreFlow[ResultT]) -> ResultT:
        """Run a flow here, and return its value. Raises: what the flow raises, LinkspanError if the store fails."""
        ...

    def spawn(self, flow: StoreFlow[object]) -> object:
        """Run a flow soon, here or in a thread: one after the other, in the order in which they were given."""
        ...


# What is in the store.


class SessionRecord(msgspec.Struct, frozen=True, array_like=True):
    """One session."""

    principal: str | None
    home: str | None
    """The process that notifies the client of changes: that of its GET stream, or where it may open the first one."""
    used: float
    """When it was used last, to within a tenth of `session_idle`, in seconds since 1970."""
    agreed: Agreed


class PairRecord(msgspec.Struct, frozen=True, array_like=True):
    """One client of HTTP+SSE: whose it is, and the process that has its stream."""

    principal: str | None
    home: str


class Logged(msgspec.Struct, frozen=True, array_like=True):
    """One event of a stream whose client is away."""

    stream: str = ""
    count: int = 0
    event: bytes = b""
    """Empty where a stream has ended, and its last event was written before, or there was none."""
    final: bool = False
    """Nothing follows on that stream."""


# What processes send each other.


class PeerMessage(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """A message from another process."""


class Passed(PeerMessage, frozen=True, array_like=True, tag=True):
    """A message of the client that is for another process: an answer, or a cancellation."""

    session: str
    message: bytes


class Gone(PeerMessage, frozen=True, array_like=True, tag=True):
    """A session has ended."""

    session: str


class Changed(PeerMessage, frozen=True, array_like=True, tag=True):
    """The record of a session has changed: for the process that notifies its client."""

    session: str
    record: SessionRecord
    version: int


class Take(PeerMessage, frozen=True, array_like=True, tag=True):
    """The GET stream of a session is in the process `to` from now on; `Handed` is the response."""

    session: str
    to: str
    ticket: int
    version: int = 0
    """That of the record in which `to` has it; 0 from an earlier release."""


class Want(PeerMessage, frozen=True, array_like=True, tag=True):
    """The client has come back to the process `to` for a stream of yours; `Handed` is the response."""

    session: str
    stream: str
    to: str
    ticket: int


class Handed(PeerMessage, frozen=True, array_like=True, tag=True):
    """What the stream has had is in its log. A `live` one goes on with `Relayed`."""

    ticket: int
    known: bool = False
    live: bool = False
    missed: tuple[bytes, ...] = ()
    """The lists that have changed while the client had no GET stream, as notifications."""


class Relayed(PeerMessage, frozen=True, array_like=True, tag=True):
    """An event of a stream that another process has asked for."""

    ticket: int
    event: bytes
    final: bool


class Left(PeerMessage, frozen=True, array_like=True, tag=True):
    """The client of a stream that was asked for is away again."""

    session: str
    stream: str


class Posted(PeerMessage, frozen=True, array_like=True, tag=True):
    """A message of a client of HTTP+SSE, and what is known of its request."""

    pair: str
    message: bytes
    principal: str | None
    address: str | None
    headers: dict[str, str]
    grant: Grant | None


_Message: TypeAlias = Passed | Gone | Changed | Take | Want | Handed | Relayed | Left | Posted


_encoder: Final = msgspec.msgpack.Encoder(enc_hook=dict)  # of all that is encoded, only read-only mappings need it
decode_session: Final[Callable[[bytes], SessionRecord]] = msgspec.msgpack.Decoder(SessionRecord).decode
decode_pair: Final[Callable[[bytes], PairRecord]] = msgspec.msgpack.Decoder(PairRecord).decode
decode_message: Final[Callable[[bytes], _Message]] = msgspec.msgpack.Decoder(_Message).decode
_decode_logged: Final[Callable[[bytes], Logged]] = msgspec.msgpack.Decoder(Logged).decode


def encode_value(value: SessionRecord | PairRecord | Logged | PeerMessage) -> bytes:
    """Encode what goes into the store, or to another process."""
    return _encoder.encode(value)


def decode_log(entries: Sequence[bytes]) -> list[Logged]:
    """Decode the entries of a log."""
    return [_decode_logged(each) for each in entries]


class SessionSpace(msgspec.Struct, frozen=True, eq=False):
    """What the sessions of one endpoint have in common in all processes, and what this one is called."""

    scope: str
    """Names the server among those that use the store."""
    process: str
    policy: HttpPolicy
    wall_clock: Callable[[], float]
    runner: StoreRunner

    @property
    def lifetime(self) -> float:
        """Seconds after its last use was noted in which a record goes: that may be a tenth of the bound late."""
        return self.policy.session_idle * 1.1

    def is_stale(self, used: float) -> bool:
        """Return whether the use that a record notes is so long ago that a new one must be noted."""
        return self.wall_clock() - used > self.policy.session_idle / 10

    @property
    def everyone(self) -> str:
        """The channel of all processes."""
        return f"sessions/{self.scope}"

    def channel(self, process: str) -> str:
        """Return the channel of one process."""
        return f"sessions/{self.scope}/{process}"

    def key(self, kind: str, name: str) -> str:
        """Return the key of the record of a session, or of a pair."""
        return f"{kind}/{self.scope}/{name}"

    def append(self, session_id: str, entry: Logged) -> Append:
        """Return what adds an entry to the log of a session, which all of its streams share: so the bounds are those of all."""
        policy, log = self.policy, self.log(session_id)
        return Append(log, encode_value(entry), policy.max_stored_events, policy.max_stored_bytes, self.lifetime)

    def empty(self, session_id: str) -> Append:
        """Return what drops the events of a session that has ended: a last entry that leaves room for no other."""
        return Append(self.log(session_id), encode_value(Logged()), 1, 1, 1.0)

    def log(self, session_id: str) -> str:
        """Return the name of the log of a session."""
        return f"events/{self.scope}/{session_id}"

    def send(self, process: str, message: PeerMessage) -> Publish:
        """Return what sends a message to one process."""
        return Publish(self.channel(process), encode_value(message))

    def spawn_send(self, process: str, message: PeerMessage) -> None:
        """Send a message to one process soon."""
        self.runner.spawn(each_of([self.send(process, message)]))


def each_of(operations: Iterable[StoreOperation]) -> StoreFlow[None]:
    """Carry out operations one after the other."""
    for each in operations:  # noqa: UP028 - `yield from` cannot send results to a list
        yield each
