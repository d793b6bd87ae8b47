"""A store in PostgreSQL, for several machines: the tables and statements of SQLite, and NOTIFY for channels.

One connection for each process runs the statements, another one listens while there are subscribers. Both are opened anew when
they are lost. Times are those of the database.
Spec: https://www.postgresql.org/docs/current/sql-notify.html
"""

from __future__ import annotations

import binascii
import threading
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final

from linkspan.errors import LinkspanError, import_problem
from linkspan.runtime.forks import keep, renew
from linkspan.runtime.unexpected import Unexpected
from linkspan.stores.clock import StoreClock
from linkspan.stores.port import Due, Receiver, StoreError
from linkspan.stores.sql import SCHEDULE, SqlStore, tables
from linkspan.stores.subscribers import MISSED, Subscribers, pause_after

_INLINE: Final = 5000
"""Bytes of a message that go with its notification, whose payload is below 8000 characters; a larger one is a row."""
_NOTIFY_LARGE: Final = (
    "WITH kept AS (INSERT INTO {p}messages (channel, data, at) VALUES (?, ?, ?) RETURNING id) "
    "SELECT pg_notify(?, '#' || id || ' ' || ?::text) FROM kept"
)
_WAIT: Final = 0.5
_MISSING: Final = "{} cannot be made in PostgreSQL: let a user who may run what `linkspan store schema URL` prints ({})"
_LATE: Final = 1.0
"""Seconds that we wait for longer than the server should: then it stands still, and its own bounds with it."""


def library() -> Any:
    """Return the client library. Raises: LinkspanError where it is missing."""
    try:
        import psycopg
    except ImportError as error:
        raise LinkspanError(import_problem("a store in PostgreSQL needs psycopg", "postgres", error)) from None
    return psycopg


def schema(namespace: str = "linkspan") -> Mapping[str, str]:
    """Return the statements that make what a store needs in a database, by its name there. Raises: LinkspanError."""
    if not (namespace.isascii() and namespace.isidentifier() and len(namespace) <= 30):
        raise LinkspanError(
            f"namespace {namespace!r} cannot name tables: use letters, digits and underscores, 30 at most"
        )
    return tables("BYTEA", "BIGSERIAL PRIMARY KEY", f"{namespace.lower()}_")


class PostgresStore(SqlStore):
    """The store. Its tables have names that begin with the namespace, and are made if they are not there."""

    quick = False

    def __init__(self, url: str, *, namespace: str = "linkspan", timeout: float = 5.0) -> None:
        """Connect to `postgresql://`; wait `timeout` seconds for the connection and for each statement.

        Raises: LinkspanError where psycopg is missing or for an invalid namespace, StoreError where there is no connection.
        """
        self._library = library()
        made = schema(namespace)
        self._url, self._timeout, self._namespace = url, timeout, namespace.lower()
        self._class = _bounded(self._library, timeout + _LATE)
        self._clock = StoreClock(self._ask_time)
        self._closed = False
        self._connection: Any = None
        self.start_afresh()
        renew(self)
        try:
            self._make(made)
        except BaseException:
            self.close()
            raise

    def start_afresh(self) -> None:
        """Be without connections and subscribers: in a forked child they are the parent's."""
        if self._connection is not None:
            keep(self._connection)
        self._lock = threading.RLock()
        self._connection = None
        self._purged = self._failed = 0.0
        self._in_transaction = False
        self._subscribers = Subscribers()
        self._listener: _PostgresListener | None = None

    # Statements.

    def _now(self) -> float:
        self._clock.refresh()
        return self._clock.now()

    def now(self) -> float:
        """Return the seconds since 1970 by the clock of the database."""
        return self._clock.now()

    def _ask_time(self) -> float:
        return float(self._run("SELECT extract(epoch FROM clock_timestamp())")[0][0])

    @contextmanager
    def _turn(self) -> Generator[None]:
        """Have the connection; fail where another operation failed while we waited for it, instead of being as late again."""
        came = time.monotonic()
        with self._lock:
            if came < self._failed:
                raise StoreError("the store in PostgreSQL failed: it did not answer another operation in time")
            yield

    def connect(self) -> Any:
        """Return a new connection. Raises: an error of psycopg."""
        options = f"-c statement_timeout={int(self._timeout * 1000)} -c lock_timeout={int(self._timeout * 1000)}"
        seconds = max(2, round(self._timeout))
        idle = {
            "keepalives_idle": 5,
            "keepalives_interval": 2,
            "keepalives_count": 3,
            "tcp_user_timeout": seconds * 1000,
        }
        return self._class.connect(self._url, autocommit=True, connect_timeout=seconds, options=options, **idle)

    def _open(self) -> Any:
        """Return the connection; a new one if there is none. With the lock."""
        if self._closed:
            raise StoreError("the store was closed")
        if self._connection is None or self._connection.closed:
            try:
                self._connection = self.connect()
            except self._library.Error as problem:
                self._failed = time.monotonic()
                raise _failed(problem) from None
            self._clock.learn()  # it may be another server by now
        return self._connection

    def _run(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        with self._turn():
            connection = self._connection if self._in_transaction else self._open()
            text = statement.format(p=f"{self._namespace}_").replace("?", "%s")
            try:
                cursor = connection.execute(text, values)
                return cursor.fetchall() if cursor.description is not None else []
            except self._library.Error as problem:
                raise self._give_up(connection, problem) from None

    def _give_up(self, connection: Any, problem: Exception) -> StoreError:
        """Return the error for a problem; close a connection that was lost, or is late: it may still be at work."""
        if isinstance(problem, self._library.OperationalError):
            self._failed = time.monotonic()
            with suppress(Exception):
                connection.close()
        return _failed(problem)

    @contextmanager
    def _transaction(self) -> Generator[None]:
        with self._turn():
            connection = self._open()
            self._in_transaction = True
            try:
                with connection.transaction():
                    yield
            except self._library.Error as problem:
                raise self._give_up(connection, problem) from None
            finally:
                self._in_transaction = False

    def _make(self, schema: Mapping[str, str]) -> None:
        """Make what is not there: a user that may not create anything in the database can use what another has made."""
        missing = [name for name in schema if not self._run("SELECT to_regclass(?) IS NOT NULL", name)[0][0]]
        if not missing:
            return
        try:
            with self._transaction():  # one process at a time: PostgreSQL does not keep two from making one table
                self._run("SELECT pg_advisory_xact_lock(hashtext(?))", f"linkspan stores {self._namespace}")
                for statement in schema.values():
                    self._run(statement)
        except StoreError as problem:
            raise StoreError(_MISSING.format(", ".join(missing), problem)) from None

    def schedule_together(self, changes: Sequence[Due]) -> None:
        """Let keys be due at a time, or take them out, in one statement. No key is there twice."""
        gone = [each for queue, key, at in changes if at is None for each in (queue, key)]
        put = [each for change in changes if change[-1] is not None for each in change]
        statements: list[str] = []
        if gone:
            statements.append(f"DELETE FROM {{p}}schedule WHERE (queue, key) IN ({_rows('(?, ?)', len(gone) // 2)})")
        if put:
            statements.append(SCHEDULE.replace("(?, ?, ?)", _rows("(?, ?, ?)", len(put) // 3)))
        if len(statements) == 2:
            statements = [f"WITH gone AS ({statements[0]}) {statements[1]}"]
        for statement in statements:
            self._run(statement, *gone, *put)

    # Channels.

    def publish(self, channel: str, data: bytes) -> None:
        """Send data to all who are subscribed, in every process: they are notified in the order of commits."""
        to = f"{self._namespace}_channels"
        if len(data) <= _INLINE:
            said = binascii.b2a_base64(data, newline=False).decode()
            self._run("SELECT pg_notify(?, ?)", to, f"={said} {channel}")
        else:
            self._run(_NOTIFY_LARGE, channel, data, self._now(), to, channel)
        self._purge_if_due()

    def subscribe(self, channel: str, receive: Receiver) -> Callable[[], None]:
        """Call `receive` with what is published from now on."""
        with self._lock:
            self._open()
            if self._listener is None:
                try:
                    self._listener = _PostgresListener(self, self._library.Error, self._namespace, self._subscribers)
                except self._library.Error as problem:
                    raise _failed(problem) from None
            self._subscribers.add(channel, receive)

        def leave() -> None:
            with self._lock:
                self._subscribers.remove(channel, receive)
                if not self._subscribers and self._listener is not None:
                    self._listener.stopped.set()
                    self._listener = None

        return leave

    def message(self, number: int) -> bytes | None:
        """Return a message that was too large for its notification; None if it is gone."""
        rows = self._run("SELECT data FROM {p}messages WHERE id = ?", number)
        return bytes(rows[0][0]) if rows else None

    def close(self) -> None:
        """Close the connections."""
        with self._lock:
            self._closed = True
            self._subscribers.clear()
            if self._listener is not None:
                self._listener.stopped.set()
            if self._connection is not None:
                self._connection.close()


class _PostgresListener:
    """Receives notifications in a thread, on a connection of its own, which is opened again when it is lost."""

    def __init__(self, store: PostgresStore, error: type[Exception], namespace: str, subscribers: Subscribers) -> None:
        """Listen from now on. Raises: an error of psycopg."""
        self._store = store
        self._error = error
        self._listen = f'LISTEN "{namespace}_channels"'
        self._subscribers = subscribers
        self.stopped = threading.Event()
        """Set to end the thread soon."""
        self._connection: Any = self._connected()
        try:
            threading.Thread(target=self._run, name="linkspan-store", daemon=True).start()
        except RuntimeError:
            self._connection.close()
            raise

    def _connected(self) -> Any:
        connection = self._store.connect()
        try:
            connection.execute(self._listen)
        except BaseException:
            connection.close()
            raise
        return connection

    def _run(self) -> None:
        failures, unexpected = 0, Unexpected("linkspan.stores", MISSED)
        while not self.stopped.is_set():
            try:
                if self._connection.closed:
                    self._connection = self._connected()
                    self._subscribers.missed()
                for notified in self._connection.notifies(timeout=_WAIT):
                    self._receive(notified.payload)
                    if self.stopped.is_set():
                        break
                self._connection.execute("SELECT 1")  # a connection that was cut says nothing by itself
                failures = 0
            except (self._error, StoreError):
                failures += 1
                with suppress(Exception):
                    self._connection.close()
                self.stopped.wait(pause_after(failures))
            except Exception as error:
                self.stopped.wait(unexpected.log(error))
                self._subscribers.missed()
        with suppress(Exception):
            self._connection.close()

    def _receive(self, payload: str) -> None:
        where, channel = payload.split(" ", 1)
        data = binascii.a2b_base64(where[1:]) if where[0] == "=" else self._store.message(int(where[1:]))
        self._subscribers.deliver(channel, data)


def _rows(row: str, count: int) -> str:
    return ", ".join([row] * count)


def _failed(problem: Exception) -> StoreError:
    return StoreError(f"the store in PostgreSQL failed: {str(problem).strip() or type(problem).__name__}")


def _bounded(library: Any, seconds: float) -> Any:
    """Return the class of connections that wait so long for an answer at most: the library waits for ever."""

    def wait(self: Any, answer: Generator[Any, Any, Any], *arguments: Any, **options: Any) -> Any:
        return library.Connection.wait(self, within(answer), *arguments, **options)

    def within(answer: Generator[Any, Any, Any]) -> Generator[Any, Any, Any]:
        give_up, ready = time.monotonic() + seconds, None
        while True:
            try:
                ready = yield answer.send(ready)
            except StopIteration as end:
                return end.value
            if not ready and time.monotonic() > give_up:  # it is asked now and then, also if nothing has come
                raise library.OperationalError(f"no answer within {seconds:g} s")

    return type("BoundedConnection", (library.Connection,), {"wait": wait})
