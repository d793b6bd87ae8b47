"""Records, queues and logs in tables: the statements that SQLite and PostgreSQL share.

Law: each operation on a record is one statement, so that no transaction has to be repeated. Times are those of one clock.
"""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from typing import Any, Final

from linkspan.stores.port import ABSENT, DEFAULT_BOUNDS, Bounds, Entry, Record, StoreError, first_number, shared_secret

NEVER: Final = 1e18
"""When a record expires that has no time to live."""
_PURGE: Final = 30.0
"""Seconds between two deletions of what has expired."""
_MESSAGES: Final = 60.0
"""Seconds that a message is kept for its subscribers."""


def tables(blob: str, serial: str, prefix: str = "") -> Mapping[str, str]:
    """Return the statements that make the tables and their index, by name; `blob` and `serial` are types of the database."""
    made = {
        "records": f"TABLE {{}} (key TEXT PRIMARY KEY, value {blob} NOT NULL, version BIGINT NOT NULL, "
        "expires DOUBLE PRECISION NOT NULL)",
        "schedule": "TABLE {} (queue TEXT, key TEXT, at DOUBLE PRECISION NOT NULL, PRIMARY KEY (queue, key))",
        "schedule_at": f"INDEX {{}} ON {prefix}schedule (queue, at)",
        "logs": "TABLE {} (log TEXT PRIMARY KEY, last BIGINT NOT NULL, bytes BIGINT NOT NULL, "
        "expires DOUBLE PRECISION NOT NULL)",
        "entries": f"TABLE {{}} (log TEXT, position BIGINT, data {blob} NOT NULL, PRIMARY KEY (log, position))",
        "messages": f"TABLE {{}} (id {serial}, channel TEXT NOT NULL, data {blob} NOT NULL, at DOUBLE PRECISION NOT NULL)",
    }
    return {
        f"{prefix}{name}": "CREATE " + each.replace("{}", f"IF NOT EXISTS {prefix}{name}", 1)
        for name, each in made.items()
    }


_PUT: Final = (
    "INSERT INTO {p}records (key, value, version, expires) VALUES (?, ?, ?, ?) ON CONFLICT (key) DO UPDATE SET "
    "value = excluded.value, version = {p}records.version + 1, expires = excluded.expires"
)
_PUT_NEW: Final = f"{_PUT} WHERE {{p}}records.expires <= ? RETURNING version"
_PUT_EXPECTED: Final = (
    "UPDATE {p}records SET value = ?, version = version + 1, expires = ? WHERE key = ? AND version = ? AND expires > ? "
    "RETURNING version"
)
SCHEDULE: Final = (
    "INSERT INTO {p}schedule (queue, key, at) VALUES (?, ?, ?) ON CONFLICT (queue, key) DO UPDATE SET at = excluded.at"
)
_APPEND: Final = (
    "INSERT INTO {p}logs (log, last, bytes, expires) VALUES (?, ?, ?, ?) ON CONFLICT (log) DO UPDATE SET "
    "last = {p}logs.last + 1, bytes = {p}logs.bytes + excluded.bytes, expires = excluded.expires RETURNING last, bytes"
)


class SqlStore:
    """What the adapters of both databases share; they add how to run statements, and channels."""

    _purged: float

    @abstractmethod
    def _run(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        """Run one statement, and commit it unless a transaction is open; return its rows. Raises: StoreError."""

    @abstractmethod
    def _transaction(self) -> AbstractContextManager[object]:
        """Return a context manager around several statements that are carried out together. Raises: StoreError."""

    @abstractmethod
    def _now(self) -> float:
        """Return the seconds since 1970 by the clock of all who use the tables."""

    def secret(self, name: str) -> bytes:
        """Return 32 random bytes, the same for every process."""
        return shared_secret(self, name)  # type: ignore[arg-type]  # the adapters have the other operations

    def get(self, key: str) -> Record | None:
        """Return a record."""
        rows = self._run("SELECT value, version FROM {p}records WHERE key = ? AND expires > ?", key, self._now())
        return Record(bytes(rows[0][0]), rows[0][1]) if rows else None

    def put(self, key: str, value: bytes, *, expect: int | None = None, ttl: float | None = None) -> int | None:
        """Write a record under compare-and-set."""
        now = self._now()
        expires = NEVER if ttl is None else now + ttl
        if expect is None:
            rows = self._run(f"{_PUT} RETURNING version", key, value, first_number(), expires)
        elif expect == ABSENT:
            rows = self._run(_PUT_NEW, key, value, first_number(), expires, now)
        else:
            rows = self._run(_PUT_EXPECTED, value, expires, key, expect, now)
        self._purge_if_due()
        return rows[0][0] if rows else None

    def delete(self, key: str, *, expect: int | None = None) -> bool:
        """Delete a record."""
        statement, values = "DELETE FROM {p}records WHERE key = ? AND expires > ?", (key, self._now())
        if expect is None:
            return bool(self._run(f"{statement} RETURNING version", *values))
        return bool(self._run(f"{statement} AND version = ? RETURNING version", *values, expect))

    def schedule(self, queue: str, key: str, at: float | None) -> None:
        """Let a key be due at a time."""
        if at is None:
            self._run("DELETE FROM {p}schedule WHERE queue = ? AND key = ?", queue, key)
        else:
            self._run(SCHEDULE, queue, key, at)

    def due(self, queue: str, now: float, limit: int) -> Sequence[str]:
        """Return the keys that are due."""
        statement = "SELECT key FROM {p}schedule WHERE queue = ? AND at <= ? ORDER BY at LIMIT ?"
        return [key for (key,) in self._run(statement, queue, now, limit)]

    def append(self, log: str, data: bytes, bounds: Bounds = DEFAULT_BOUNDS) -> int:
        """Add an entry to a log, and drop what is beyond its bounds."""
        now = self._now()
        with self._transaction():
            self._forget_logs("log = ? AND expires <= ?", log, now)
            ((last, size),) = self._run(_APPEND, log, first_number(), len(data), now + bounds.ttl)
            self._run("INSERT INTO {p}entries (log, position, data) VALUES (?, ?, ?)", log, last, data)
            self._run("DELETE FROM {p}entries WHERE log = ? AND position <= ?", log, last - bounds.items)
            if size > bounds.bytes:
                self._cut(log, bounds)
        self._purge_if_due()
        position: int = last
        return position

    def _cut(self, log: str, bounds: Bounds) -> None:
        """Drop the oldest entries of a log until what is left fits, and count it anew: others were dropped before."""
        kept, oldest = 0, 0
        statement = "SELECT position, length(data) FROM {p}entries WHERE log = ? ORDER BY position DESC"
        for position, size in self._run(statement, log):
            if oldest and kept + size > bounds.bytes:
                break
            kept, oldest = kept + size, position
        self._run("DELETE FROM {p}entries WHERE log = ? AND position < ?", log, oldest)
        self._run("UPDATE {p}logs SET bytes = ? WHERE log = ?", kept, log)

    def read(self, log: str, after: int = 0) -> Sequence[Entry]:
        """Return the entries after a position."""
        statement = (
            "SELECT position, data FROM {p}entries WHERE log = ? AND position > ? "
            "AND EXISTS (SELECT 1 FROM {p}logs WHERE log = ? AND expires > ?) ORDER BY position"
        )
        rows = self._run(statement, log, after, log, self._now())
        return [Entry(position, bytes(data)) for position, data in rows]

    def _purge_if_due(self) -> None:
        """Delete what has expired, now and then, after a write. That was carried out, so what fails here does not fail it."""
        if (since := time.monotonic()) - self._purged >= _PURGE:
            self._purged = since
            with suppress(StoreError):
                self._purge()

    def _purge(self) -> None:
        """Delete what has expired, and messages that every subscriber has had the time to read."""
        now = self._now()
        self._run("DELETE FROM {p}records WHERE expires <= ?", now)
        with self._transaction():
            self._forget_logs("expires <= ?", now)
        self._run("DELETE FROM {p}messages WHERE at <= ?", now - _MESSAGES)

    def _forget_logs(self, where: str, *values: Any) -> None:
        self._run(f"DELETE FROM {{p}}entries WHERE log IN (SELECT log FROM {{p}}logs WHERE {where})", *values)
        self._run(f"DELETE FROM {{p}}logs WHERE {where}", *values)
