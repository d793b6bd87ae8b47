"""The values of `ctx.once` in a store: a function runs once for a request in all processes, or an error states that it may have.

Law: a record is written before the function runs, so what a process that died has begun does not begin again.
"""

from __future__ import annotations

import time
from typing import Any, Final

import msgspec

from linkspan.errors import INTERNAL_ERROR, LocalProtocolError, RemoteProtocolError
from linkspan.stores.port import ABSENT, Store, StoreError
from linkspan.types.base import JSON, is_array, is_object
from linkspan.wire.values import key_of

_PATIENCE: Final = 30.0
"""Seconds to wait for the function in another process."""
_LOOK: Final = 0.05


class _StoredValueRecord(msgspec.Struct, array_like=True, frozen=True):
    """What a record holds; while the function runs neither."""

    value: bytes | None = None
    kind: str = ""
    """The type of a value that only the process that ran the function has."""


_decode: Final = msgspec.msgpack.Decoder(_StoredValueRecord).decode


class StoredValue:
    """One value: it is there, or this process has the right to make it."""

    def __init__(self, store: Store, place: str, ttl: float, kept: _StoredValueRecord | None) -> None:
        """Made by `claim_value`."""
        self._store = store
        self._place = place
        self._ttl = ttl
        self._kept = kept

    @property
    def is_there(self) -> bool:
        """Whether the function has run, in whichever process."""
        return self._kept is not None

    @property
    def value(self) -> object:
        """What it returned."""
        assert self._kept is not None
        assert self._kept.value is not None
        return msgspec.msgpack.decode(self._kept.value)

    def keep(self, value: object) -> bool:
        """Keep what the function returned, here; return whether other processes can have it, too. Raises: StoreError."""
        data = _plain(value)
        kept = _StoredValueRecord(data) if data is not None else _StoredValueRecord(kind=type(value).__name__)
        self._store.put(self._place, msgspec.msgpack.encode(kept), ttl=self._ttl)
        return data is not None

    def give_up(self) -> None:
        """Let the function run again: it has raised. Raises: StoreError."""
        self._store.delete(self._place)


def claim_value(store: Store, server: str, chain: str, key: str, ttl: float) -> StoredValue:
    """Return the value of a key of a chain, or the right to make it; blocks while another process makes it.

    Raises: LocalProtocolError where that process has not ended for long, or its value cannot be had here; RemoteProtocolError
    if the store fails.
    """
    place, give_up = f"once/{key_of(server)}/{chain}/{key_of(key)}", time.monotonic() + _PATIENCE
    try:
        while store.put(place, msgspec.msgpack.encode(_StoredValueRecord()), expect=ABSENT, ttl=ttl) is None:
            found = store.get(place)
            kept = _decode(found.value) if found is not None else _StoredValueRecord()
            if kept.kind:
                raise LocalProtocolError(
                    f"ctx.once({key!r}) ran in another process and returned a {kept.kind}, which only that process has: return "
                    "text, numbers, lists or mappings"
                )
            if kept.value is not None:
                return StoredValue(store, place, ttl, kept)
            if time.monotonic() > give_up:
                raise LocalProtocolError(
                    f"ctx.once({key!r}) began in another process, which has not ended it: it may have been carried out"
                )
            time.sleep(_LOOK)
    except StoreError:
        problem = "Internal error: the store cannot be reached, so what must happen once cannot happen; try again later"
        raise RemoteProtocolError(INTERNAL_ERROR, problem) from None
    return StoredValue(store, place, ttl, None)


def _plain(value: object) -> bytes | None:
    """Encode a value that is the same when it is decoded; None for any other."""
    try:
        data = msgspec.msgpack.encode(value)
        decoded: JSON = msgspec.msgpack.decode(data)
    except (TypeError, ValueError, OverflowError, RecursionError):
        return None
    return data if _is_same(value, decoded) else None


def _is_same(value: Any, other: JSON) -> bool:
    """Return whether two values are equal, with equal types in all places: a tuple is not a list, nor True 1."""
    if type(value) is not type(other):
        return False
    if is_object(other):
        return value.keys() == other.keys() and all(_is_same(value[key], each) for key, each in other.items())
    if is_array(other):
        return len(value) == len(other) and all(map(_is_same, value, other))
    return bool(value == other)
