"""A store in one file, for the processes of one host: SQLite with a write-ahead log, from the standard library.

Channels are a table that is looked at every 50 ms while there are subscribers, and every 5 ms for a second after a message:
`PRAGMA data_version` costs a microsecond if nothing has changed. A file that was deleted or replaced is opened anew within a
second, empty as it is then.
Spec: https://www.sqlite.org/wal.html
"""

from __future__ import annotations

import logging
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from functools import cache, partial
from pathlib import Path
from typing import Any, Final

from linkspan.runtime.forks import NO_FORK, keep, renew
from linkspan.runtime.unexpected import Unexpected
from linkspan.stores.port import Receiver, StoreError
from linkspan.stores.sql import SqlStore, tables
from linkspan.stores.subscribers import MISSED, Subscribers

_POLL: Final = 0.05
_POLL_SOON: Final = 0.005
_LIVELY: Final = 1.0
"""Seconds after a message in which others are expected soon: tasks report progress, and streams move, step by step."""
_LOOK_AT_FILE: Final = 1.0
_LOCKED: Final = 0.02
"""Seconds that a write waits for a lock for which another has waited for too long."""
_LONGEST_LOG: Final = 16 * 1024 * 1024
"""Bytes of the write-ahead log from which on it is emptied as soon as no other process reads it.

SQLite begins it anew from 4 MB on, but not while others write without a pause, and never makes the file shorter.
"""
_without_prefix: Final = cache(partial(str.format, p=""))
"""A statement without the prefix of the tables, which other databases share with other programs; put together once."""
_TABLES: Final = tables("BLOB", "INTEGER PRIMARY KEY AUTOINCREMENT")


class SqliteStore(SqlStore):
    """The store. It is private to its owner: what is in it is as secret as the process.

    No other thread holds its lock while a process forks: SQLite remembers for the whole process which locks of a file it has, and
    would have them for ever in the child.
    """

    quick = True

    def __init__(self, path: str | os.PathLike[str], *, busy_timeout: float = 5.0) -> None:
        """Open the file, and make it if it is not there; wait `busy_timeout` seconds for others who write.

        Raises: StoreError.
        """
        self._path = Path(path)
        self._log = f"{self._path}-wal"
        self._busy_timeout = busy_timeout
        self._closed = False
        self._connection: sqlite3.Connection | None = None
        self.start_afresh()
        renew(self)
        with NO_FORK, self._lock:
            self._open()

    def start_afresh(self) -> None:
        """Be without a connection, and without subscribers: in a forked child they are the parent's."""
        if self._connection is not None:
            keep(self._connection)
        self._lock = threading.RLock()
        self._connection = None
        self._file: tuple[int, int] | None = None
        self._checked = self._purged = 0.0
        self._in_transaction = self._is_locked = False
        self._subscribers = Subscribers()
        self._poller: _MessagePoller | None = None

    # Statements.

    _now = staticmethod(time.time)  # pyright: ignore[reportAssignmentType]: called as a method, without a frame of ours

    def _open(self) -> sqlite3.Connection:
        """Return the connection, a new one if there is none or the file was replaced. With the lock."""
        if self._closed:
            raise StoreError("the store was closed")
        now = time.monotonic()
        if self._connection is not None:
            if self._in_transaction or now - self._checked < _LOOK_AT_FILE:
                return self._connection
            self._checked = now
            if self._file == _identity(self._path):
                return self._connection
            logging.getLogger("linkspan.stores").warning("%s was deleted or replaced: what it held is lost", self._path)
            self._connection.close()
        try:
            self._connection = _connect(self._path, self._busy_timeout)
            for statement in _TABLES.values():
                self._connection.execute(statement)
        except (sqlite3.Error, OSError) as problem:
            if self._connection is not None:
                self._connection.close()
            self._connection = None
            raise _failed(self._path, problem) from None
        self._file, self._checked, self._is_locked = _identity(self._path), now, False
        return self._connection

    def _run(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        with NO_FORK, self._lock:
            connection = self._open()
            try:
                rows = connection.execute(_without_prefix(statement), values).fetchall()
            except sqlite3.Error as problem:
                if getattr(problem, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_BUSY:
                    self._wait_at_most(connection, min(_LOCKED, self._busy_timeout))
                raise _failed(self._path, problem) from None
            if self._is_locked and not statement.startswith("SELECT"):  # reading does not wait for a lock
                self._wait_at_most(connection, self._busy_timeout)
            return rows

    def _wait_at_most(self, connection: sqlite3.Connection, seconds: float) -> None:
        """Wait so long for others who write: after one operation was late, the next ones, and an event loop, fail at once."""
        self._is_locked = seconds < self._busy_timeout
        connection.execute(f"PRAGMA busy_timeout = {round(seconds * 1000)}")

    @contextmanager
    def _transaction(self) -> Generator[None]:
        with NO_FORK, self._lock:
            self._run("BEGIN IMMEDIATE")
            self._in_transaction = True
            try:
                yield
                self._run("COMMIT")
            except BaseException:
                with suppress(StoreError):
                    self._run("ROLLBACK")
                raise
            finally:
                self._in_transaction = False

    def _purge_if_due(self) -> None:
        super()._purge_if_due()
        with suppress(OSError, StoreError):
            if os.stat(self._log).st_size > _LONGEST_LOG:
                self._empty_log()

    def _empty_log(self) -> None:
        """Move the write-ahead log into the file, unless another process reads it for longer: the next write tries again."""
        with NO_FORK, self._lock:
            connection, before = self._open(), self._is_locked
            self._wait_at_most(connection, min(_LOCKED, self._busy_timeout))
            try:
                self._run("PRAGMA wal_checkpoint(TRUNCATE)")
            finally:
                if not before:
                    self._wait_at_most(connection, self._busy_timeout)

    # Channels.

    def publish(self, channel: str, data: bytes) -> None:
        """Send data to all who are subscribed, in every process."""
        with NO_FORK, self._lock:
            written = None
            while self._open() is not written:
                self._run("INSERT INTO {p}messages (channel, data, at) VALUES (?, ?, ?)", channel, data, self._now())
                # Look at the file again: subscribers that have opened a new one do not see what is written to the old one.
                written, self._checked = self._connection, 0.0
        self._purge_if_due()

    def subscribe(self, channel: str, receive: Receiver) -> Callable[[], None]:
        """Call `receive` with what is published from now on."""
        with NO_FORK, self._lock:
            self._open()
            if self._poller is None:
                self._poller = _MessagePoller(self._path, self._busy_timeout, self._subscribers)
            self._subscribers.add(channel, receive)

        def leave() -> None:
            with NO_FORK, self._lock:
                self._subscribers.remove(channel, receive)
                if not self._subscribers and self._poller is not None:
                    self._poller.stopped.set()
                    self._poller = None

        return leave

    now = staticmethod(time.time)
    """All processes are on one machine, and have its clock."""

    def close(self) -> None:
        """Close the file."""
        with NO_FORK, self._lock:
            self._closed = True
            self._subscribers.clear()
            if self._poller is not None:
                self._poller.stopped.set()
            if self._connection is not None:
                self._connection.close()
            self._poller = self._connection = None


class _MessagePoller:
    """Reads new messages in a thread, with a connection of its own: a connection does not see its own changes."""

    def __init__(self, path: Path, busy_timeout: float, subscribers: Subscribers) -> None:
        """Begin with what is published from now on. Raises: StoreError."""
        self._path = path
        self._busy_timeout = busy_timeout
        self._subscribers = subscribers
        self.stopped = threading.Event()
        """Set to end the thread soon."""
        self._connection: sqlite3.Connection | None = None
        self._version: int = 0
        self._last: int = 0
        self._lively_until = 0.0
        try:
            self._connect()
            threading.Thread(target=self._run, name="linkspan-store", daemon=True).start()
        except (sqlite3.Error, OSError) as problem:
            self._close()
            raise _failed(path, problem) from None
        except RuntimeError:  # the system has no more threads
            self._close()
            raise

    def _connect(self) -> None:
        self._connection = connection = _connect(self._path, self._busy_timeout)
        self._file, self._checked = _identity(self._path), time.monotonic()
        self._version = connection.execute("PRAGMA data_version").fetchone()[0]
        self._last = connection.execute("SELECT coalesce(max(seq), 0) FROM sqlite_sequence").fetchone()[0]

    def _run(self) -> None:
        unexpected = Unexpected("linkspan.stores", MISSED)
        while not self.stopped.wait(_POLL_SOON if time.monotonic() < self._lively_until else _POLL):
            try:
                self._check_file(self._connection)
            except (sqlite3.Error, OSError):  # the next look opens the file anew
                self._close()
            except Exception as error:
                self.stopped.wait(unexpected.log(error))
                self._subscribers.missed()
        self._close()

    def _close(self) -> None:
        with NO_FORK:
            if self._connection is not None:
                self._connection.close()
            self._connection = None

    def _check_file(self, connection: sqlite3.Connection | None) -> None:
        """Deliver what is new. Raises: sqlite3.Error, OSError."""
        with NO_FORK:
            found = self._read(connection)
        for number, channel, data in found or ():
            if number != self._last + 1:
                self._subscribers.missed()
            self._last, self._lively_until = number, time.monotonic() + _LIVELY
            self._subscribers.deliver(channel, bytes(data))
        if found is None:
            self._subscribers.missed()

    def _read(self, connection: sqlite3.Connection | None) -> list[tuple[int, str, bytes]] | None:
        """Return the new messages; None where the file had to be opened anew. Raises: sqlite3.Error, OSError."""
        now = time.monotonic()
        if connection is not None and now - self._checked >= _LOOK_AT_FILE:
            self._checked = now
            if self._file != _identity(self._path):
                connection.close()
                connection = None
        if connection is None:
            self._connect()
            return None
        before, self._version = self._version, connection.execute("PRAGMA data_version").fetchone()[0]
        if self._version == before:
            return []
        statement = "SELECT id, channel, data FROM messages WHERE id > ? ORDER BY id"
        return connection.execute(statement, (self._last,)).fetchall()


def _connect(path: Path, busy_timeout: float) -> sqlite3.Connection:
    """Open the file, readable by its owner only if it is made now. Raises: sqlite3.Error, OSError.

    One that exists is opened by SQLite only: any other descriptor, once closed, would free all locks of this process.
    """
    with suppress(FileExistsError):
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0), 0o600))
    connection = sqlite3.connect(path, timeout=busy_timeout, isolation_level=None, check_same_thread=False)
    try:
        give_up = time.monotonic() + busy_timeout
        while True:
            try:
                connection.execute("PRAGMA journal_mode = WAL")
                break
            except sqlite3.OperationalError:
                # Another process changes the mode just now, for which SQLite does not wait.
                if time.monotonic() >= give_up:
                    raise
                time.sleep(0.01)
        connection.execute("PRAGMA synchronous = NORMAL")
    except BaseException:
        connection.close()
        raise
    return connection


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        return (found := path.stat()).st_dev, found.st_ino
    except OSError:
        return None


def _failed(path: Path, problem: Exception) -> StoreError:
    reason = problem.strerror if isinstance(problem, OSError) and problem.strerror else problem
    return StoreError(f"the store {path} failed: {reason}")
