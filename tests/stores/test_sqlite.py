"""What a file can do to a store: it is deleted, locked, full, opened by many processes, and inherited by a fork."""

from __future__ import annotations

import os
import sqlite3
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path
from queue import Queue

import pytest

from client.faces import wait_until
from linkspan import LinkspanError
from linkspan.stores import MemoryStore, SealedStore, SqliteStore, StoreError, open_store, sqlite
from linkspan.stores.opening import _with_namespace
from linkspan.stores.subscribers import Subscribers
from stores.store_servers import delete_store


def test_the_file_is_private(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    store = SqliteStore(path)
    store.put("key", b"value")
    assert {stat.S_IMODE(each.stat().st_mode) for each in tmp_path.iterdir()} == {0o600}
    store.close()


def test_a_file_that_was_deleted_is_made_again_and_subscribers_may_have_missed_something(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "store.db"
    one, other = SqliteStore(path), SqliteStore(path)
    heard: Queue[bytes | None] = Queue()
    other.subscribe("channel", heard.put)
    one.put("key", b"value")
    delete_store(path)
    wait_until(lambda: one.get("key") is None)
    assert heard.get(timeout=30) is None
    wait_until(lambda: other.get("key") is None)
    one.publish("channel", b"again")
    assert heard.get(timeout=30) == b"again"
    assert "was deleted or replaced" in caplog.text
    one.close()
    other.close()


def test_after_a_message_the_next_one_is_not_waited_for_as_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite, "_LIVELY", 1e9)
    store = SqliteStore(tmp_path / "store.db")
    heard: Queue[bytes | None] = Queue()
    store.subscribe("channel", heard.put)
    store.publish("channel", b"first")
    assert heard.get(timeout=30) == b"first"
    monkeypatch.setattr(sqlite, "_POLL", 120.0)
    store.publish("channel", b"second")
    store.publish("channel", b"third")
    assert [heard.get(timeout=30), heard.get(timeout=30)] == [b"second", b"third"]
    store.close()


def test_a_message_is_in_the_file_that_is_there_now(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    store = SqliteStore(path)
    store.publish("channel", b"before")
    delete_store(path)
    other = SqliteStore(path)
    heard: Queue[bytes | None] = Queue()
    other.subscribe("channel", heard.put)
    store.publish("channel", b"after")
    assert heard.get(timeout=30) == b"after"
    store.close()
    other.close()


def test_a_file_that_another_program_has_locked_is_an_error_within_the_time(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    store = SqliteStore(path, busy_timeout=0.1)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    began = time.monotonic()
    with pytest.raises(StoreError, match="database is locked"):
        store.put("key", b"value")
    assert time.monotonic() - began < 15
    other.execute("ROLLBACK")
    other.close()
    assert store.put("key", b"value")
    with pytest.raises(StoreError, match="unable to open database file"):
        SqliteStore(tmp_path)
    store.close()


def test_a_full_disk_is_an_error_and_nothing_is_lost(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "store.db")
    store.put("key", b"value")
    assert store._connection is not None
    pages = store._connection.execute("PRAGMA page_count").fetchone()[0]
    store._connection.execute(f"PRAGMA max_page_count = {pages}")
    for write in (lambda: store.put("large", bytes(100_000)), lambda: store.append("log", bytes(100_000))):
        with pytest.raises(StoreError, match="full"):
            write()
    found = store.get("key")
    assert found is not None
    assert found.value == b"value"
    store.close()


def test_processes_share_records_and_messages(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    store = SqliteStore(path)
    heard: Queue[bytes | None] = Queue()
    store.subscribe("channel", heard.put)
    code = f"""
from linkspan.stores import open_store
store = open_store("sqlite://{path}")
for number in range(100):
    counted = None
    while counted is None:
        store.put("counter", b"0", expect=0)
        found = store.get("counter")
        counted = store.put("counter", b"%d" % (int(found.value) + 1), expect=found.version)
store.publish("channel", b"done")
"""
    running = [subprocess.Popen([sys.executable, "-c", code]) for _ in range(3)]
    assert [each.wait(100) for each in running] == [0, 0, 0]
    found = store.get("counter")
    assert found is not None
    assert found.value == b"300"
    assert [heard.get(timeout=30) for _ in running] == [b"done"] * 3
    store.close()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
def test_a_forked_process_opens_the_file_anew() -> None:
    code = """
import os, sys, tempfile
from linkspan.stores import SqliteStore
with tempfile.TemporaryDirectory() as directory:
    store = SqliteStore(directory + "/store.db")
    heard = []
    store.subscribe("channel", heard.append)
    if os.fork() == 0:
        store.put("child", b"1")
        os._exit(0 if store._poller is None else 1)
    assert os.wait()[1] == 0
    assert store.get("child").value == b"1"
    store.close()
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_store_that_cannot_be_sealed_is_closed_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("cryptography", reason="cryptography is not installed")
    closed: list[SqliteStore] = []
    close = SqliteStore.close

    def note(store: SqliteStore) -> None:
        closed.append(store)
        close(store)

    monkeypatch.setattr(SqliteStore, "close", note)
    with pytest.raises(LinkspanError, match="store_key needs at least 16 bytes"):
        open_store(f"sqlite://{tmp_path}/store.db", store_key="short")
    assert len(closed) == 1


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_the_end_of_a_line_is_no_part_of_a_store_key(tmp_path: Path, end: str) -> None:
    pytest.importorskip("cryptography", reason="cryptography is not installed")
    path, key = tmp_path / "store.db", "0123456789abcdef"
    with pytest.raises(LinkspanError, match="store_key needs at least 16 bytes"):
        SealedStore(SqliteStore(path), f"{key[:15]}{end}")
    printed, echoed, earlier = (SealedStore(SqliteStore(path), each) for each in (key, f"{key}{end}", f"{key}{end}"))
    earlier._ciphers = earlier._ciphers[1:]  # as when it was a part of it
    earlier.put("old", b"1")
    assert echoed.get("old") == earlier.get("old")
    with pytest.raises(StoreError, match="record old was not sealed with this store_key"):
        printed.get("old")
    echoed.put("new", b"2")
    assert printed.get("new") == echoed.get("new")
    assert printed.secret("name") == echoed.secret("name")
    for each in (printed, echoed, earlier):
        each.close()


@pytest.mark.parametrize("end", [b"\n", b"\r", b"\r\n"])
def test_a_key_of_sixteen_random_bytes_may_end_like_a_line(end: bytes) -> None:
    pytest.importorskip("cryptography", reason="cryptography is not installed")
    plain, key = MemoryStore(), b"0123456789abcdef"[: -len(end)] + end
    SealedStore(plain, key).put("key", b"value")
    found = SealedStore(plain, key).get("key")
    assert found is not None
    assert found.value == b"value"
    with pytest.raises(LinkspanError, match="store_key needs at least 16 bytes"):
        SealedStore(plain, key[1:])


def test_what_is_sealed_cannot_be_read_moved_or_changed_in_the_file(tmp_path: Path) -> None:
    pytest.importorskip("cryptography", reason="cryptography is not installed")
    plain = SqliteStore(tmp_path / "store.db")
    store = SealedStore(plain, b"0123456789abcdef")
    store.put("mine", b"secret value")
    inside = plain.get("mine")
    assert inside is not None
    assert b"secret" not in inside.value
    assert store.secret("name") != plain.secret("name")
    plain.put("other", inside.value)
    plain.put("mine", inside.value[:-1] + b"x")
    for key in ("other", "mine"):
        with pytest.raises(StoreError, match=f"record {key} was not sealed with this store_key, or was changed"):
            store.get(key)
    heard: Queue[bytes | None] = Queue()
    store.subscribe("channel", heard.put)
    plain.publish("channel", b"not sealed")
    assert heard.get(timeout=30) is None
    store.close()
    with pytest.raises(LinkspanError, match="at least 16 bytes"):
        SealedStore(plain, "short")


def test_a_url_opens_a_store(tmp_path: Path) -> None:
    store = open_store(f"sqlite://{tmp_path}/a%20b.db")
    assert store.put("key", b"value")
    assert (tmp_path / "a b.db").exists()
    store.close()
    memory = open_store("memory:")
    assert memory.quick
    memory.close()


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("sqlite://relative.db", "is not the URL of a file: write sqlite:// and its full path"),
        ("sqlite:relative.db", "is not the URL of a file"),
        ("mysql://host/db", r"a store is given as memory:, sqlite:///.*; not as 'mysql'"),
        ("store.db", "not as 'store.db'"),
    ],
)
def test_a_url_that_opens_none_is_refused_with_what_to_write(url: str, problem: str) -> None:
    with pytest.raises(LinkspanError, match=problem):
        open_store(url)


def test_what_else_a_url_says_is_for_the_server() -> None:
    address = "redis://host:6379/0?protocol=3&client_name="
    assert _with_namespace(f"{address}&namespace=mine") == (address, {"namespace": "mine"})
    assert _with_namespace(address) == (address, {})


def test_a_store_that_breaks_the_contract_is_named(tmp_path: Path) -> None:
    from linkspan.testing import check_store

    class Forgetful(SqliteStore):
        def put(self, key: str, value: bytes, *, expect: int | None = None, ttl: float | None = None) -> int | None:
            return super().put(key, value, ttl=ttl)

    with pytest.raises(AssertionError, match="put with expect wrote a record that did not exist"):
        check_store(lambda: Forgetful(tmp_path / "store.db"))


def test_messages_go_though_nothing_but_messages_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = SqliteStore(tmp_path / "store.db")
    monkeypatch.setattr("linkspan.stores.sql._PURGE", 0.0)
    monkeypatch.setattr("linkspan.stores.sql._MESSAGES", -1.0)
    for _ in range(5):
        store.publish("channel", b"data")
    assert store._run("SELECT count(*) FROM messages") == [(0,)]
    store.close()


def test_what_was_written_is_written_though_nothing_can_be_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = SqliteStore(tmp_path / "store.db")
    monkeypatch.setattr("linkspan.stores.sql._PURGE", 0.0)

    def locked() -> None:
        raise StoreError("database is locked")

    monkeypatch.setattr(store, "_purge", locked)
    assert store.put("key", b"value")
    store.append("log", b"entry")
    store.close()


def test_while_another_program_holds_the_lock_only_the_first_write_waits_for_it(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "store.db", busy_timeout=1.5)
    store.put("key", b"before")
    other = sqlite3.connect(tmp_path / "store.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    began = time.monotonic()
    for _ in range(20):
        with pytest.raises(StoreError, match="locked"):
            store.put("key", b"meanwhile")
        assert store.get("key") is not None
    assert time.monotonic() - began < 15, "20 times the wait would be 30 s"
    other.execute("ROLLBACK")
    other.close()
    assert store.put("key", b"after")
    assert store._connection is not None
    assert store._connection.execute("PRAGMA busy_timeout").fetchone() == (1500,)
    store.close()


def test_the_write_ahead_log_is_emptied_once_no_other_process_reads_it(tmp_path: Path) -> None:
    store, log = SqliteStore(tmp_path / "store.db"), tmp_path / "store.db-wal"
    store.put("large", b"")
    reader = sqlite3.connect(tmp_path / "store.db", isolation_level=None)
    reader.execute("BEGIN")
    reader.execute("SELECT * FROM records").fetchall()
    for _ in range(20):
        store.put("large", os.urandom(1024 * 1024))  # pages that do not change are not written
    assert log.stat().st_size > 16 * 1024 * 1024
    assert store.get("large"), "a reader delays no write"
    reader.close()
    store.put("small", b"")
    assert log.stat().st_size < 1024 * 1024
    assert [store.get(key) is not None for key in ("large", "small")] == [True, True]
    store.close()


def test_a_change_that_fails_half_way_leaves_nothing_and_stops_no_later_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = SqliteStore(tmp_path / "store.db")
    store.append("log", b"before")
    run = store._run

    def fails_in_the_middle(statement: str, *values: object) -> object:
        rows = run(statement, *values)
        if statement.startswith("INSERT INTO {p}entries"):
            raise StoreError("the disk is full")
        return rows

    monkeypatch.setattr(store, "_run", fails_in_the_middle)
    with pytest.raises(StoreError, match="the disk is full"):
        store.append("log", b"lost")
    monkeypatch.undo()
    assert [each.data for each in store.read("log")] == [b"before"]
    store.append("log", b"after")
    assert [each.data for each in store.read("log")] == [b"before", b"after"]
    store.close()


def test_what_has_expired_is_deleted_now_and_then_and_not_with_each_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = SqliteStore(tmp_path / "store.db")
    purged: list[None] = []
    monkeypatch.setattr(store, "_purge", lambda: purged.append(None))
    for since, expected in ((0.0, 0), (3600.0, 1), (0.0, 0)):
        monkeypatch.setattr(store, "_purged", time.monotonic() - since)
        purged.clear()
        for number in range(20):
            store.put(f"key {number}", b"value")
        assert len(purged) == expected
    store.close()


def test_a_subscriber_is_removed_once() -> None:
    subscribers = Subscribers()
    subscribers.add("channel", print)
    assert subscribers.remove("channel", print)
    assert not subscribers.remove("channel", print)
    assert not subscribers.remove("another", print)


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="what is open can be seen on Linux only")
def test_a_file_that_is_no_database_is_closed_though_somebody_keeps_the_error(tmp_path: Path) -> None:
    """The error holds the frames that it came through, and with these the connection."""
    path = tmp_path.resolve() / "store.db"
    path.write_bytes(b"no database " * 1000)
    with pytest.raises(StoreError) as kept:
        SqliteStore(path)
    opened = [os.path.realpath(f"/proc/self/fd/{each}") for each in os.listdir("/proc/self/fd")]
    assert str(path) not in opened
    assert kept.value.__context__ is not None


class Connections(list[sqlite3.Connection]):
    """All connections that are made, which are not closed by being forgotten."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        connect = sqlite._connect

        def connected(path: Path, busy_timeout: float) -> sqlite3.Connection:
            self.append(connect(path, busy_timeout))
            return self[-1]

        monkeypatch.setattr(sqlite, "_connect", connected)

    def opened(self) -> list[bool]:
        """Return whether each is open."""
        return [_is_open(each) for each in self]


def _is_open(connection: sqlite3.Connection) -> bool:
    try:
        connection.total_changes  # noqa: B018
    except sqlite3.ProgrammingError:
        return False
    return True


def test_every_connection_is_closed_with_its_file_or_its_last_subscription_or_its_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = Connections(monkeypatch)
    store, received = SqliteStore(tmp_path / "store.db"), Queue[bytes | None]()
    store.put("key", b"value")
    assert made.opened() == [True]
    delete_store(tmp_path / "store.db")
    wait_until(lambda: store.get("key") is None)
    assert made.opened() == [False, True]
    leave = store.subscribe("channel", received.put)
    assert made.opened() == [False, True, True]
    leave()
    wait_until(lambda: made.opened() == [False, True, False])
    store.subscribe("channel", received.put)
    store.close()
    wait_until(lambda: made.opened() == [False] * 4)


def test_a_subscription_for_which_there_is_no_thread_leaves_no_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    made = Connections(monkeypatch)
    store, received = SqliteStore(tmp_path / "store.db"), Queue[bytes | None]()
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        with pytest.raises(RuntimeError):
            store.subscribe("channel", received.put)
    assert made.opened() == [True, False]
    store.subscribe("channel", received.put)
    store.publish("channel", b"data")
    assert received.get(timeout=30) == b"data"
    store.close()


def test_a_connection_whose_first_statements_fail_is_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(path: Path) -> None:
        raise OSError("the disk is away")

    made = Connections(monkeypatch)
    with monkeypatch.context() as patched:
        patched.setattr(sqlite, "_TABLES", {"records": "CREATE nonsense"})
        with pytest.raises(StoreError):
            SqliteStore(tmp_path / "store.db")
    assert made.opened() == [False]
    store = SqliteStore(tmp_path / "store.db")
    store.put("key", b"value")
    with monkeypatch.context() as patched:
        patched.setattr(sqlite, "_identity", fail)
        with pytest.raises(StoreError, match="the disk is away"):
            store.subscribe("channel", print)
    assert made.opened()[-1] is False
    store.close()
    assert not any(made.opened())
