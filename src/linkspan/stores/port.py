"""The port of stores: twelve operations, all of which may block. None knows of the protocol.

Law: what several processes decide, they decide by compare-and-set on a record. `linkspan.testing.check_store` is the contract.
"""

from __future__ import annotations

import random
import secrets
import time
from collections.abc import Callable, Sequence
from typing import Final, Protocol, TypeAlias

import msgspec

from linkspan.errors import LinkspanError

ABSENT: Final = 0
"""What `put` expects of a record that must not exist."""


class StoreError(LinkspanError):
    """The store cannot be reached, is full, or was closed. Whether an operation was carried out is unknown."""


class Record(msgspec.Struct, frozen=True):
    """The value of a key, and the version to expect when it is changed."""

    value: bytes
    version: int


class Entry(msgspec.Struct, frozen=True):
    """One entry of a log. Positions are consecutive; the first may be any."""

    position: int
    data: bytes


class Bounds(msgspec.Struct, frozen=True, kw_only=True):
    """What a log holds at most: the oldest entries go first, but the newest stays."""

    items: int = 500
    """Entries."""
    bytes: int = 1024 * 1024
    """Bytes of all entries together."""
    ttl: float = 3600.0
    """Seconds after the last entry, when the whole log goes."""


DEFAULT_BOUNDS: Final = Bounds()
Receiver: TypeAlias = Callable[[bytes | None], object]
"""Receives what is published, in a thread of the store; None where something may have been missed. It must not block."""


class Store(Protocol):
    """State that processes share. Any thread may use it; every operation raises StoreError if the store fails.

    Keys and names are texts of up to 200 bytes without control characters. Times are seconds; `now` and `at` since 1970.
    """

    @property
    def quick(self) -> bool:
        """Whether operations take microseconds, so that an event loop may wait for them."""
        ...

    def secret(self, name: str) -> bytes:
        """Return 32 random bytes, the same for every process."""
        ...

    def get(self, key: str) -> Record | None:
        """Return a record, or None if there is none or its time is over."""
        ...

    def put(self, key: str, value: bytes, *, expect: int | None = None, ttl: float | None = None) -> int | None:
        """Write a record and return its version; None, without writing, if its version is not the one to `expect`.

        `expect=ABSENT` writes only where there is no record; None writes in any case. The record goes `ttl` seconds later;
        without one it stays. A key never has the same version twice, not even after it was deleted.
        """
        ...

    def delete(self, key: str, *, expect: int | None = None) -> bool:
        """Delete a record; return whether there was one, of the version to `expect`."""
        ...

    def schedule(self, queue: str, key: str, at: float | None) -> None:
        """Let a key of a queue be due at a time, instead of the time that it had; None takes it out."""
        ...

    def due(self, queue: str, now: float, limit: int) -> Sequence[str]:
        """Return the keys that are due, those that are due longest first. They stay in the queue: claim before you act."""
        ...

    def append(self, log: str, data: bytes, bounds: Bounds = DEFAULT_BOUNDS) -> int:
        """Add an entry to a log, and drop what is beyond its bounds; return the position of the entry."""
        ...

    def read(self, log: str, after: int = 0) -> Sequence[Entry]:
        """Return the entries after a position, oldest first. If the first does not follow it, others were dropped."""
        ...

    def publish(self, channel: str, data: bytes) -> None:
        """Send data to all who are subscribed now, in every process; what one thread publishes arrives in order."""
        ...

    def subscribe(self, channel: str, receive: Receiver) -> Callable[[], None]:
        """Call `receive` with what is published from now on; return what ends that."""
        ...

    def now(self) -> float:
        """Return the seconds since 1970 by the clock that all who use the store have in common, as far as there is one.

        It does not wait once the store has been used.
        """
        ...

    def close(self) -> None:
        """Let go of the store: subscriptions end, and other operations raise StoreError. Any number of times."""
        ...


def first_number() -> int:
    """Return the first version of a record, or position of a log: one that an earlier record of that key did not have."""
    return random.SystemRandom().randrange(1, 2**47)


def store_time(store: Store) -> float:
    """Return the seconds since 1970 by the clock of a store; by that of this machine where a store of one's own has none."""
    now: Callable[[], float] = getattr(store, "now", time.time)
    return now()


Due: TypeAlias = tuple[str, str, float | None]
"""A queue, a key of it, and when that is due; None takes it out."""


def schedule_together(store: Store, changes: Sequence[Due]) -> None:
    """Do what `schedule` does for several keys: in one step where a store has an operation of this name, else in this order."""
    together: Callable[[Sequence[Due]], None] | None = getattr(store, "schedule_together", None)
    if together is not None:
        together(changes)
        return
    for queue, key, at in changes:
        store.schedule(queue, key, at)


def shared_secret(store: Store, name: str) -> bytes:
    """Return the secret of a name; make it if no process has yet."""
    key = f"secret/{name}"
    while (found := store.get(key)) is None:
        store.put(key, secrets.token_bytes(32), expect=ABSENT)
    return found.value
