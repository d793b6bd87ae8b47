"""A store in the memory of one process: the reference of the contract, for tests and for servers without a store."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from math import inf
from queue import SimpleQueue
from typing import Final

from linkspan.runtime.forks import renew
from linkspan.stores.port import (
    DEFAULT_BOUNDS,
    Bounds,
    Entry,
    Receiver,
    Record,
    StoreError,
    first_number,
    shared_secret,
)
from linkspan.stores.subscribers import Subscribers

_PURGE: Final = 30.0
"""Seconds between two deletions of what has expired."""


class _State:
    """What all handles of one store share. A forked child has a copy of its own, without subscribers."""

    def __init__(self) -> None:
        self.records: dict[str, tuple[Record, float]] = {}
        self.queues: dict[str, dict[str, float]] = {}
        self.logs: dict[str, tuple[list[Entry], float]] = {}
        self.purged = 0.0
        self.start_afresh()
        renew(self)

    def start_afresh(self) -> None:
        self.lock = threading.Lock()
        self.subscribers: list[tuple[Subscribers, SimpleQueue[tuple[str, bytes] | None]]] = []


class MemoryStore:
    """The store. `another()` returns a second handle to the same state, as another process has one of a real store."""

    quick = True

    def __init__(self, clock: Callable[[], float] = time.time, _state: _State | None = None) -> None:
        """Begin empty; `clock` gives seconds since 1970."""
        self._clock = clock
        self._state = _state or _State()
        self._closed = False
        self.start_afresh()
        renew(self)

    def start_afresh(self) -> None:
        """Be without subscribers: in a forked child they are the parent's."""
        self._subscribers = Subscribers()
        self._inbox: SimpleQueue[tuple[str, bytes] | None] | None = None

    def another(self) -> MemoryStore:
        """Return another handle."""
        return MemoryStore(self._clock, self._state)

    def _opened(self) -> _State:
        if self._closed:
            raise StoreError("the store was closed")
        return self._state

    def secret(self, name: str) -> bytes:
        """Return 32 random bytes."""
        return shared_secret(self, name)

    def get(self, key: str) -> Record | None:
        """Return a record."""
        with self._opened().lock:
            return self._live(key)

    def _live(self, key: str) -> Record | None:
        record, until = self._state.records.get(key, (None, inf))
        return record if until > self._clock() else None

    def put(self, key: str, value: bytes, *, expect: int | None = None, ttl: float | None = None) -> int | None:
        """Write a record under compare-and-set."""
        with self._opened().lock:
            old = self._live(key)
            if expect is not None and expect != (old.version if old is not None else 0):
                return None
            version = old.version + 1 if old is not None else first_number()
            self._state.records[key] = Record(_exactly(value), version), inf if ttl is None else self._clock() + ttl
            self._purge()
            return version

    def _purge(self) -> None:
        """Delete what has expired, now and then. With the lock."""
        state, now = self._state, self._clock()
        if now - state.purged < _PURGE:
            return
        state.purged = now
        state.records = {key: each for key, each in state.records.items() if each[1] > now}
        state.logs = {log: each for log, each in state.logs.items() if each[1] > now}

    def delete(self, key: str, *, expect: int | None = None) -> bool:
        """Delete a record."""
        with self._opened().lock:
            old = self._live(key)
            if old is None or expect not in (None, old.version):
                return False
            del self._state.records[key]
            return True

    def schedule(self, queue: str, key: str, at: float | None) -> None:
        """Let a key be due at a time."""
        with self._opened().lock:
            keys = self._state.queues.setdefault(queue, {})
            keys.pop(key, None)
            if at is not None:
                keys[key] = at
            elif not keys:
                del self._state.queues[queue]

    def due(self, queue: str, now: float, limit: int) -> Sequence[str]:
        """Return the keys that are due."""
        with self._opened().lock:
            keys = self._state.queues.get(queue, {})
            return sorted((key for key, at in keys.items() if at <= now), key=keys.__getitem__)[:limit]

    def append(self, log: str, data: bytes, bounds: Bounds = DEFAULT_BOUNDS) -> int:
        """Add an entry to a log."""
        with self._opened().lock:
            entries = [*self._entries(log)]
            position = entries[-1].position + 1 if entries else first_number()
            entries.append(Entry(position, _exactly(data)))
            size = sum(len(each.data) for each in entries)
            while len(entries) > 1 and (len(entries) > bounds.items or size > bounds.bytes):
                size -= len(entries.pop(0).data)
            self._state.logs[log] = entries, self._clock() + bounds.ttl
            self._purge()
            return position

    def _entries(self, log: str) -> list[Entry]:
        entries, until = self._state.logs.get(log, ([], inf))
        return entries if until > self._clock() else []

    def read(self, log: str, after: int = 0) -> Sequence[Entry]:
        """Return the entries after a position."""
        with self._opened().lock:
            return [each for each in self._entries(log) if each.position > after]

    def publish(self, channel: str, data: bytes) -> None:
        """Send data to all who are subscribed."""
        state = self._opened()
        with state.lock:
            for _, inbox in state.subscribers:
                inbox.put((channel, bytes(data)))

    def subscribe(self, channel: str, receive: Receiver) -> Callable[[], None]:
        """Call `receive` with what is published from now on, in a thread of this handle."""
        state = self._opened()
        with state.lock:
            if self._inbox is None:
                inbox = SimpleQueue[tuple[str, bytes] | None]()
                threading.Thread(target=self._deliver, args=(inbox,), name="linkspan-store", daemon=True).start()
                state.subscribers.append((self._subscribers, inbox))
                self._inbox = inbox
        self._subscribers.add(channel, receive)

        def leave() -> None:
            self._subscribers.remove(channel, receive)

        return leave

    def _deliver(self, inbox: SimpleQueue[tuple[str, bytes] | None]) -> None:
        while (message := inbox.get()) is not None:
            self._subscribers.deliver(*message)

    def now(self) -> float:
        """Return the seconds since 1970: there is one process, and one clock."""
        return self._clock()

    def close(self) -> None:
        """Let go of the state."""
        with self._state.lock:
            self._closed = True
            self._subscribers.clear()
            self._state.subscribers = [each for each in self._state.subscribers if each[0] is not self._subscribers]
            if self._inbox is not None:
                self._inbox.put(None)


def _exactly(value: bytes) -> bytes:
    """Return a copy: what encoders return may have half as much memory again behind it."""
    return bytes(memoryview(value))
