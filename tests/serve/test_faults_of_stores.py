"""A server whose store fails: calls that do not need it go on, and afterwards nothing is stuck."""

from __future__ import annotations

import signal
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from queue import Queue

import pytest

from linkspan import Change, Server, SyncClient
from linkspan.stores import SqliteStore, Store, StoreError
from over_http import serving
from stores.store_servers import delete_store, redis_server, standing_still

DEADLINE = 60.0
"""Seconds that a store waits for what does not come."""
SOON = 20.0
"""Seconds: much less than the deadline of a store, much more than a call takes."""
PATIENCE = 30.0
"""Seconds until what has to come is missing."""


def shop(store: Store) -> Server:
    server = Server("shop", capabilities={"tools": {"listChanged": True}}, store=store)
    server.define_tool("add", handler=lambda: 3)
    return server


def two_shops(tmp_path: Path) -> tuple[Server, Server]:
    """Return servers that share a file."""
    path = tmp_path / "store.db"
    return shop(SqliteStore(path, busy_timeout=DEADLINE)), shop(SqliteStore(path, busy_timeout=DEADLINE))


@contextmanager
def listening(server: Server) -> Iterator[tuple[SyncClient, Queue[Change]]]:
    """Serve over HTTP; give a client that listens, and what it hears."""
    with ExitStack() as stack:
        client = stack.enter_context(SyncClient(stack.enter_context(serving(server.asgi()))))
        changes, heard = stack.enter_context(client.listen(tools=True)), Queue[Change]()
        threading.Thread(target=lambda: [heard.put(each) for each in changes], daemon=True).start()
        yield client, heard


def goes_on(server: Server, client: SyncClient, heard: Queue[Change]) -> None:
    """Check that calls, and changes of the process itself, do not wait for the store."""
    began = time.monotonic()
    for _ in range(20):
        assert client.call_tool("add").text == "3"
    server.notify_tools_list_changed()
    assert heard.get(timeout=SOON) == Change("tools")
    assert time.monotonic() - began < SOON


def test_a_file_that_another_program_has_locked(tmp_path: Path) -> None:
    here, there = two_shops(tmp_path)
    with listening(here) as (client, heard), listening(there) as (_, heard_there):
        other = sqlite3.connect(tmp_path / "store.db", isolation_level=None)
        other.execute("BEGIN EXCLUSIVE")
        goes_on(here, client, heard)
        assert heard_there.empty()
        other.execute("ROLLBACK")
        other.close()
        assert heard_there.get(timeout=PATIENCE) == Change("tools")


def test_a_file_that_was_deleted(tmp_path: Path) -> None:
    here, there = two_shops(tmp_path)
    with listening(here) as (client, heard), listening(there) as (_, heard_there):
        delete_store(tmp_path / "store.db")
        goes_on(here, client, heard)
        for each in (heard, heard_there):  # each may have missed something
            assert each.get(timeout=PATIENCE) == Change("tools")
        there.notify_tools_list_changed()
        for each in (heard, heard_there):
            assert each.get(timeout=PATIENCE) == Change("tools")


def test_a_disk_that_is_full(tmp_path: Path) -> None:
    here, there = two_shops(tmp_path)
    with listening(here) as (client, heard), listening(there) as (_, heard_there):
        connection = here.store._connection  # type: ignore[attr-defined]
        pages = connection.execute("PRAGMA page_count").fetchone()[0]
        connection.execute(f"PRAGMA max_page_count = {pages}")
        with suppress(StoreError):
            for number in range(1000):
                here.store.put(f"filler {number}", bytes(100))
        with pytest.raises(StoreError, match="full"):
            here.store.put("one more", bytes(1000))
        goes_on(here, client, heard)
        connection.execute("PRAGMA max_page_count = 1000000")
        assert heard_there.get(timeout=PATIENCE) == Change("tools")


@pytest.mark.skipif(not hasattr(signal, "SIGSTOP"), reason="this system cannot stop a process for a while")
def test_a_server_of_redis_that_stands_still(tmp_path: Path) -> None:
    pytest.importorskip("redis", reason="redis is not installed")
    from linkspan.stores.redis import RedisStore

    with redis_server(tmp_path) as (url, process):
        here, there = (shop(RedisStore(url, timeout=DEADLINE)) for _ in range(2))
        with listening(here) as (client, heard), listening(there) as (_, heard_there):
            with standing_still(process.pid):
                goes_on(here, client, heard)
                assert heard_there.empty()
            assert heard_there.get(timeout=PATIENCE) == Change("tools")
            there.notify_tools_list_changed()
            assert heard.get(timeout=PATIENCE) == Change("tools")
        for each in (here, there):
            each.store.close()
