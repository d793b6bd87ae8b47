"""A server whose store fails: calls that do not need it go on, and afterwards nothing is stuck."""

from __future__ import annotations

import os
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
from linkspan.stores import StoreError
from over_http import serving
from stores.servers import redis_server

SOON = 2.0
"""Seconds: much less than the deadline of a store, much more than a call takes."""


def shop(url: str) -> Server:
    server = Server("shop", capabilities={"tools": {"listChanged": True}}, store=url)
    server.define_tool("add", handler=lambda: 3)
    return server


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
    here, there = (shop(f"sqlite://{tmp_path}/store.db") for _ in range(2))
    with listening(here) as (client, heard), listening(there) as (_, heard_there):
        other = sqlite3.connect(tmp_path / "store.db", isolation_level=None)
        other.execute("BEGIN EXCLUSIVE")
        goes_on(here, client, heard)
        assert heard_there.empty()
        other.execute("ROLLBACK")
        other.close()
        assert heard_there.get(timeout=20) == Change("tools")


def test_a_file_that_was_deleted(tmp_path: Path) -> None:
    here, there = (shop(f"sqlite://{tmp_path}/store.db") for _ in range(2))
    with listening(here) as (client, heard), listening(there) as (_, heard_there):
        for each in tmp_path.iterdir():
            each.unlink()
        goes_on(here, client, heard)
        assert heard_there.get(timeout=20) == Change("tools")  # it may have missed something
        while not heard.empty() or not heard_there.empty():
            (heard if heard_there.empty() else heard_there).get()
        there.notify_tools_list_changed()
        assert heard_there.get(timeout=20) == Change("tools")
        assert heard.get(timeout=20) == Change("tools")


def test_a_disk_that_is_full(tmp_path: Path) -> None:
    here, there = (shop(f"sqlite://{tmp_path}/store.db") for _ in range(2))
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
        assert heard_there.get(timeout=20) == Change("tools")


@pytest.mark.skipif(not hasattr(signal, "SIGSTOP"), reason="this system cannot stop a process for a while")
def test_a_server_of_redis_that_stands_still(tmp_path: Path) -> None:
    with redis_server(tmp_path) as (url, process):
        here, there = shop(url), shop(url)
        with listening(here) as (client, heard), listening(there) as (_, heard_there):
            os.kill(process.pid, signal.SIGSTOP)
            goes_on(here, client, heard)
            assert heard_there.empty()
            os.kill(process.pid, signal.SIGCONT)
            assert heard_there.get(timeout=20) == Change("tools")
            there.notify_tools_list_changed()
            assert heard.get(timeout=20) == Change("tools")
        for each in (here, there):
            each.store.close()
