"""Leases on top of records: one process at a time works on something, and a result that comes too late is thrown away.

The lease is in the record itself: owner, until when, and a fence that rises with each claim. An owner that lost the lease has
an old fence, and everything it writes is refused. Others may `amend` the value of a lease that they do not have.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from linkspan.stores.port import ABSENT, Store


class Leased(msgspec.Struct, array_like=True, frozen=True):
    """The record of a key with a lease, as it was read."""

    owner: str
    until: float
    fence: int
    value: bytes


_read = msgspec.msgpack.Decoder(Leased).decode
_NOTHING = Leased("", 0.0, 0, b"")


class Lease:
    """The right of one owner to change the value of a key until a time; `fence` is higher than that of every earlier one."""

    def __init__(self, store: Store, key: str, held: Leased, version: int) -> None:
        """Made by `claim`."""
        self._store = store
        self._key = key
        self._known = held, version  # in one step: another thread may renew the lease

    @property
    def fence(self) -> int:
        """Its number: pass it on to whatever the owner changes elsewhere, which refuses numbers below the last it saw."""
        return self._known[0].fence

    @property
    def until(self) -> float:
        """When another may claim it."""
        return self._known[0].until

    @property
    def value(self) -> bytes:
        """The value, as it was when it was claimed or last written."""
        return self._known[0].value

    def change(self, change: Callable[[bytes], bytes], *, until: float | None = None, ttl: float | None = None) -> bool:
        """Change the value, and perhaps the time; return False, without writing, if another owner has claimed it since.

        `change` gets the value as it is now, perhaps several times. The record goes `ttl` seconds later; without one it stays.
        """
        while True:
            held, version = self._known
            new = Leased(held.owner, held.until if until is None else until, held.fence, bytes(change(held.value)))
            written = self._store.put(self._key, msgspec.msgpack.encode(new), expect=version, ttl=ttl)
            if written is not None:
                self._known = new, written
                return True
            if (record := self._store.get(self._key)) is None or (found := _read(record.value)).fence != held.fence:
                return False
            self._known = found, record.version

    def write(self, value: bytes, *, until: float | None = None) -> bool:
        """Replace the value, and perhaps the time; return False, without writing, if another owner has claimed it since."""
        return self.change(lambda _: value, until=until)

    def renew(self, until: float) -> bool:
        """Keep it for longer; return False if another owner has claimed it since."""
        return self.change(_same, until=until)

    def release(self, value: bytes | None = None) -> bool:
        """Write a last value, and let the next owner claim it at once; return False if another owner has done so already."""
        return self.change(_same if value is None else lambda _: value, until=0.0)


def look(store: Store, key: str) -> Leased | None:
    """Return what a key has, leased or not; None for one without a record."""
    record = store.get(key)
    return _read(record.value) if record is not None else None


def create(store: Store, key: str, value: bytes, owner: str, *, until: float, ttl: float | None = None) -> Lease | None:
    """Write a new key, and claim it in the same step; None if there is one already. `until=0.0` leaves it to be claimed."""
    held = Leased(owner, until, 1, bytes(value))
    version = store.put(key, msgspec.msgpack.encode(held), expect=ABSENT, ttl=ttl)
    return Lease(store, key, held, version) if version is not None else None


def claim(
    store: Store,
    key: str,
    owner: str,
    *,
    now: float,
    until: float,
    change: Callable[[bytes], bytes | None] | None = None,
    ttl: float | None = None,
) -> Lease | None:
    """Claim a key until a time; None if another owner has it, or was faster. A key without a record has the value `b""`.

    With the claim the value becomes what `change` makes of it; there is no claim where that is None. The same owner may claim it
    again, with a higher fence: that is how a process that has forgotten starts over.
    """
    record = store.get(key)
    old = _read(record.value) if record is not None else _NOTHING
    if old.until > now and old.owner != owner:
        return None
    value = old.value if change is None else change(old.value)
    if value is None:
        return None
    held = Leased(owner, until, old.fence + 1, bytes(value))
    version = store.put(key, msgspec.msgpack.encode(held), expect=record.version if record else ABSENT, ttl=ttl)
    return Lease(store, key, held, version) if version is not None else None


def amend(
    store: Store, key: str, change: Callable[[bytes], bytes | None], *, ttl: float | None = None
) -> Leased | None:
    """Change the value of a key without its lease, which stays as it is; return what the key has then, None without a record.

    `change` gets the value as it is now, perhaps several times; nothing is written where it returns None.
    """
    while (record := store.get(key)) is not None:
        found = _read(record.value)
        value = change(found.value)
        if value is None:
            return found
        new = Leased(found.owner, found.until, found.fence, bytes(value))
        if store.put(key, msgspec.msgpack.encode(new), expect=record.version, ttl=ttl) is not None:
            return new
    return None


def _same(value: bytes) -> bytes:
    return value
