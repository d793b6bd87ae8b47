"""Keys that all processes of a store share, in one record: the first seals, all of them open.

A new key opens at once and seals half a minute later, when every process has read it. The one before opens for as long as what
it has sealed is valid, and goes then.
"""

from __future__ import annotations

import secrets
from math import inf
from typing import Final

import msgspec

from linkspan.stores.port import ABSENT, Record, Store, StoreError

REFRESH: Final = 10.0
"""Seconds after which a process reads the keys again."""
_SETTLED: Final = 3 * REFRESH
"""Seconds after which every process has read a new key, also one whose store stood still for a moment."""
_RECORD: Final = "keys/request-state"
_USES: Final = "keys/request-state-seconds"
"""For how many seconds servers may have to open what they have sealed, and until when each of these figures counts."""
_COUNTS: Final = 7 * 86400.0
"""Seconds for which a figure counts after it was noted, so that servers may be stopped for some days."""
_ATTEMPTS: Final = 100
"""How often the first key is written: a store that loses records would be written to for ever."""


class _Key(msgspec.Struct, array_like=True, frozen=True):
    secret: bytes
    since: float
    """When it begins to seal, in seconds since 1970."""
    until: float = inf
    """When it no longer opens."""


_decode = msgspec.msgpack.Decoder(list[_Key]).decode
_decode_uses = msgspec.msgpack.Decoder(dict[float, float]).decode


def read_keys(store: Store, now: float) -> list[bytes]:
    """Return the keys, the one that seals first; make one if there is none yet. Raises: StoreError."""
    for _ in range(_ATTEMPTS):
        if (found := store.get(_RECORD)) is not None:
            break
        _write(store, [_Key(secrets.token_bytes(32), 0.0)], ABSENT)
    else:
        raise StoreError(f"the store does not keep what is written to it: {_RECORD} is missing after each write")
    keys = [each for each in _decode(found.value) if each.until > now]
    sealing = [each for each in keys if each.since <= now]
    return [each.secret for each in (*sealing, *(each for each in keys if each not in sealing))]


def rotate_keys(store: Store, now: float, keep: float) -> int:
    """Put a new key in front, and keep those before it for `keep` seconds from when it seals; return how many there are.

    Raises: StoreError.
    """
    seals = now + _SETTLED
    while True:
        found: Record | None = store.get(_RECORD)
        old = [each for each in _decode(found.value) if each.until > now] if found is not None else []
        ending = [_Key(each.secret, each.since, min(each.until, seals + _SETTLED + keep)) for each in old]
        keys = [_Key(secrets.token_bytes(32), seals if old else 0.0), *ending]
        if _write(store, keys, found.version if found is not None else ABSENT):
            return len(keys)


def record_use(store: Store, seconds: float, now: float) -> None:
    """Note for how long a server may have to open what it seals: for ever is `inf`. Raises: StoreError.

    Call this now and then while the server runs: it reads the record, and writes when the figure is missing or has counted for
    half of its time. Deployments with different figures keep one each.
    """
    while True:
        found = store.get(_USES)
        uses = _decode_uses(found.value) if found is not None else {}
        if uses.get(seconds, now) - now > _COUNTS / 2:
            return
        noted = {each: until for each, until in uses.items() if until > now} | {seconds: now + _COUNTS}
        data = msgspec.msgpack.encode(noted)
        if store.put(_USES, data, expect=found.version if found is not None else ABSENT) is not None:
            return


def longest_use(store: Store, now: float) -> float | None:
    """Return for how many seconds an old key is needed; None if no server has noted it for a week. Raises: StoreError."""
    found = store.get(_USES)
    uses = _decode_uses(found.value) if found is not None else {}
    return max((seconds for seconds, until in uses.items() if until > now), default=None)


def _write(store: Store, keys: list[_Key], version: int) -> bool:
    return store.put(_RECORD, msgspec.msgpack.encode(keys), expect=version) is not None
