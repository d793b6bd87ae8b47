"""Leases on top of records: one process at a time works on something, and a result that comes too late is thrown away.

The lease is in the record itself: owner, until when, and a fence that rises with each claim. An owner that lost the lease has
an old fence, and everything it writes is refused.
"""

from __future__ import annotations

import msgspec

from linkspan.stores.port import ABSENT, Store

__all__ = ["Lease", "claim"]


class _Held(msgspec.Struct, array_like=True):
    owner: str
    until: float
    fence: int
    value: bytes


_read = msgspec.msgpack.Decoder(_Held).decode


class Lease:
    """The right of one owner to change the value of a key until a time; `fence` is higher than that of every earlier one."""

    def __init__(self, store: Store, key: str, held: _Held, version: int) -> None:
        """Made by `claim`."""
        self._store = store
        self._key = key
        self._held = held
        self._version = version

    @property
    def owner(self) -> str:
        """Who has it."""
        return self._held.owner

    @property
    def fence(self) -> int:
        """Its number: pass it on to whatever the owner changes elsewhere, which refuses numbers below the last it saw."""
        return self._held.fence

    @property
    def until(self) -> float:
        """When another may claim it."""
        return self._held.until

    @property
    def value(self) -> bytes:
        """The value, as it was when it was claimed or last written."""
        return self._held.value

    def write(self, value: bytes, *, until: float | None = None) -> bool:
        """Change the value, and perhaps the time; return False, without writing, if another owner has claimed it since."""
        held = _Held(self.owner, self.until if until is None else until, self.fence, bytes(value))
        version = self._store.put(self._key, msgspec.msgpack.encode(held), expect=self._version)
        if version is None:
            return False
        self._held, self._version = held, version
        return True

    def renew(self, until: float) -> bool:
        """Keep it for longer; return False if another owner has claimed it since."""
        return self.write(self.value, until=until)

    def release(self, value: bytes | None = None) -> bool:
        """Write a last value, and let the next owner claim it at once; return False if another owner has done so already."""
        return self.write(self.value if value is None else value, until=0.0)


def claim(store: Store, key: str, owner: str, *, now: float, until: float) -> Lease | None:
    """Claim a key until a time; None if another owner has it, or was faster. A key without a record has the value `b""`.

    The same owner may claim it again, with a higher fence: that is how a process that has forgotten starts over.
    """
    record = store.get(key)
    old = _read(record.value) if record is not None else _Held("", 0.0, 0, b"")
    if old.until > now and old.owner != owner:
        return None
    held = _Held(owner, until, old.fence + 1, old.value)
    version = store.put(key, msgspec.msgpack.encode(held), expect=record.version if record is not None else ABSENT)
    return Lease(store, key, held, version) if version is not None else None
