"""A store in a real Redis server: the contract, and what happens when the server goes and comes back."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from queue import Queue

import pytest

from client.faces import wait_until
from linkspan.stores import Store, StoreError, open_store
from linkspan.testing.store_contract import CHECKS
from stores.store_servers import (
    eventually,
    fork_with_a_store,
    goes_by_the_clock_of_its_server,
    goes_on_after_an_unexpected_error,
    keep_the_contract,
    redis_server,
    standing_still,
)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with redis_server(tmp_path_factory.mktemp("redis")) as (url, _):
        yield url


@pytest.mark.parametrize("check", CHECKS, ids=lambda each: each.__name__.lstrip("_"))
def test_the_store_keeps_the_contract(check: Callable[[Callable[[], Store]], None], server: str) -> None:
    keep_the_contract(check, f"{server}?namespace=contract")


def test_namespaces_are_separate(server: str) -> None:
    one, other = open_store(f"{server}?namespace=one"), open_store(f"{server}?namespace=other")
    one.put("key", b"1")
    assert other.get("key") is None
    one.close()
    other.close()


def test_a_server_that_stands_still_is_an_error_within_the_time_and_nothing_is_stuck(tmp_path: Path) -> None:
    from linkspan.stores.redis import RedisStore

    with redis_server(tmp_path) as (url, process):
        store = eventually(lambda: RedisStore(url, timeout=0.3))
        with standing_still(process.pid), pytest.raises(StoreError, match="the store in Redis failed: "):
            store.put("key", b"value")
        eventually(lambda: store.put("key", b"value"))
        store.close()


def test_subscribers_hear_that_they_may_have_missed_something_when_the_connection_was_lost(tmp_path: Path) -> None:
    with redis_server(tmp_path) as (url, _):
        store = open_store(url)
        heard: Queue[bytes | None] = Queue()
        store.subscribe("channel", heard.put)
        store._client.client_kill_filter(_type="pubsub")  # type: ignore[attr-defined]
        assert heard.get(timeout=30) is None
        store.publish("channel", b"again")
        assert heard.get(timeout=30) == b"again"
        store.close()


def test_a_subscription_that_is_not_confirmed_in_time_is_an_error_and_leaves_no_subscriber(tmp_path: Path) -> None:
    from linkspan.stores.redis import RedisStore

    with redis_server(tmp_path) as (url, process):
        store = eventually(lambda: RedisStore(url, timeout=0.3))
        heard: Queue[bytes | None] = Queue()
        kept: Queue[bytes | None] = Queue()
        with standing_still(process.pid), pytest.raises(StoreError, match=r"the store in Redis failed: "):
            store.subscribe("channel", heard.put)
        eventually(lambda: store.subscribe("channel", kept.put))
        eventually(lambda: store.publish("channel", b"again"))
        while kept.get(timeout=30) != b"again":
            pass
        assert heard.empty()
        store.close()


def test_a_channel_without_subscribers_is_left(server: str) -> None:
    store, other = open_store(f"{server}?namespace=left"), open_store(f"{server}?namespace=left")
    store.subscribe("kept", print)
    store.subscribe("left", print)()
    wait_until(lambda: other._client.pubsub_channels("{left}:*") == [b"{left}:channel:kept"])  # type: ignore[attr-defined]
    store.close()
    other.close()


def test_a_store_that_is_closed_has_no_connection(server: str) -> None:
    other = open_store(server)

    def connections() -> set[str]:
        return {each["id"] for each in other._client.client_list()}  # type: ignore[attr-defined]

    before, store = connections(), open_store(server)
    store.subscribe("channel", print)
    assert len(connections() - before) == 2
    store.close()
    wait_until(lambda: not connections() - before)
    other.close()


def test_messages_are_delivered_on_after_an_unexpected_error(server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    goes_on_after_an_unexpected_error(open_store(server), monkeypatch)


def test_no_server_is_an_error_with_a_sentence() -> None:
    pytest.importorskip("redis", reason="redis is not installed")
    with pytest.raises(StoreError, match=r"the store in Redis failed: .*refused"):
        open_store("redis://127.0.0.1:1/0")


def test_a_forked_process_has_connections_of_its_own(server: str) -> None:
    fork_with_a_store(server)


def test_without_the_package_the_error_names_the_extra() -> None:
    code = """
import sys
sys.modules["redis"] = None
import linkspan.stores
try:
    linkspan.stores.open_store("redis://localhost")
except linkspan.LinkspanError as error:
    print(error)
"""
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert said.startswith("a store in Redis needs redis-py: ")


def test_all_machines_go_by_the_clock_of_the_server(server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    goes_by_the_clock_of_its_server(f"{server}?namespace=clocks", monkeypatch)


def test_a_user_who_may_not_ask_for_the_time_is_warned_of_once(server: str, caplog: pytest.LogCaptureFixture) -> None:
    admin = open_store(server)
    rules = "on >secret resetchannels ~{linkspan}:* &{linkspan}:* +@read +@write +@scripting +@pubsub +ping"
    admin._client.execute_command("ACL", "SETUSER", "timeless", "reset", *rules.split())  # type: ignore[attr-defined]
    store = open_store(server.replace("redis://", "redis://timeless:secret@"))
    assert store.put("key", b"1")
    assert abs(store.now() - time.time()) < 10
    assert caplog.text.count("allow it with +time") == 1
    store.close()
    admin.close()
