"""A store whose values are sealed with a key that the store does not have: AES-256-GCM, of `cryptography`.

What stays visible: keys, names of queues, logs and channels, sizes and times. A value is bound to its place, so that it cannot
be moved to another one; that an older value of the same place is put back is not noticed.
"""

from __future__ import annotations

import hmac
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final

from linkspan.errors import LinkspanError, import_problem
from linkspan.stores.port import (
    DEFAULT_BOUNDS,
    Bounds,
    Due,
    Entry,
    Receiver,
    Record,
    Store,
    StoreError,
    schedule_together,
    store_time,
)

_NONCE: Final = 12
_LEAST: Final = 16


class SealedStore:
    """The wrapper: every process needs the same key."""

    def __init__(self, store: Store, key: bytes | str) -> None:
        """Seal what goes into `store`. The end of a line is no part of the key: `echo` writes the same as `printf`.

        What was sealed while it was a part of the key can still be read. Raises: LinkspanError for a key below 16 bytes (of
        a string, without the end of a line), or without `cryptography`.
        """
        given = key.encode() if isinstance(key, str) else bytes(key)
        secret = given.rstrip(b"\r\n")
        if len(secret if isinstance(key, str) else given) < _LEAST:  # random bytes may end like a line
            raise LinkspanError(f"store_key needs at least {_LEAST} bytes: make one with secrets.token_bytes(32)")
        try:
            from cryptography.hazmat.primitives.ciphers.aead import AESGCM
        except ImportError as error:
            raise LinkspanError(import_problem("store_key needs cryptography", "auth", error)) from None
        self._store = store
        self._secret = hmac.digest(b"linkspan store", secret, "sha256")
        secrets = [self._secret, hmac.digest(b"linkspan store", given, "sha256")][: 1 if given == secret else 2]
        self._ciphers: list[Any] = [AESGCM(hmac.digest(each, b"encrypt\x01", "sha256")) for each in secrets]
        """The first one seals, all of them open."""

    @property
    def quick(self) -> bool:
        """Whether operations take microseconds."""
        return self._store.quick

    def _seal(self, place: str, value: bytes) -> bytes:
        nonce = os.urandom(_NONCE)
        sealed: bytes = self._ciphers[0].encrypt(nonce, bytes(value), place.encode())
        return nonce + sealed

    def _open(self, place: str, value: bytes) -> bytes:
        from cryptography.exceptions import InvalidTag

        for cipher in self._ciphers:
            with suppress(InvalidTag, ValueError):
                opened: bytes = cipher.decrypt(value[:_NONCE], value[_NONCE:], place.encode())
                return opened
        raise StoreError(f"{place} was not sealed with this store_key, or was changed")

    def secret(self, name: str) -> bytes:
        """Return 32 bytes that the store cannot know, the same for every process."""
        return hmac.digest(self._secret, name.encode() + b"\0" + self._store.secret(name), "sha256")

    def get(self, key: str) -> Record | None:
        """Return a record. Raises: StoreError, also for a value that was changed."""
        found = self._store.get(key)
        return Record(self._open(f"record {key}", found.value), found.version) if found is not None else None

    def put(self, key: str, value: bytes, *, expect: int | None = None, ttl: float | None = None) -> int | None:
        """Write a record under compare-and-set."""
        return self._store.put(key, self._seal(f"record {key}", value), expect=expect, ttl=ttl)

    def delete(self, key: str, *, expect: int | None = None) -> bool:
        """Delete a record."""
        return self._store.delete(key, expect=expect)

    def schedule(self, queue: str, key: str, at: float | None) -> None:
        """Let a key be due at a time."""
        self._store.schedule(queue, key, at)

    def schedule_together(self, changes: Sequence[Due]) -> None:
        """Do the same for several keys."""
        schedule_together(self._store, changes)

    def due(self, queue: str, now: float, limit: int) -> Sequence[str]:
        """Return the keys that are due."""
        return self._store.due(queue, now, limit)

    def append(self, log: str, data: bytes, bounds: Bounds = DEFAULT_BOUNDS) -> int:
        """Add an entry to a log."""
        return self._store.append(log, self._seal(f"log {log}", data), bounds)

    def read(self, log: str, after: int = 0) -> Sequence[Entry]:
        """Return the entries after a position."""
        return [Entry(each.position, self._open(f"log {log}", each.data)) for each in self._store.read(log, after)]

    def publish(self, channel: str, data: bytes) -> None:
        """Send data to all who are subscribed."""
        self._store.publish(channel, self._seal(f"channel {channel}", data))

    def subscribe(self, channel: str, receive: Receiver) -> Callable[[], None]:
        """Call `receive` with what is published; None for what was not sealed with this key."""

        def opened(data: bytes | None) -> None:
            try:
                found = None if data is None else self._open(f"channel {channel}", data)
            except StoreError:
                found = None
            receive(found)

        return self._store.subscribe(channel, opened)

    def now(self) -> float:
        """Return the seconds since 1970 by the clock of the store."""
        return store_time(self._store)

    def close(self) -> None:
        """Let go of the store."""
        self._store.close()
