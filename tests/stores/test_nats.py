"""A store in a real NATS server with JetStream: the contract, and what happens when the server goes and comes back."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from queue import Queue

import pytest

from linkspan import LinkspanError
from linkspan.stores import Bounds, Store, StoreError, open_store
from linkspan.stores.clock import StoreClock
from linkspan.stores.jetstream import JetStream
from linkspan.testing.store_contract import CHECKS
from stores.store_servers import (
    eventually,
    fork_with_a_store,
    goes_by_the_clock_of_its_server,
    keep_the_contract,
    nats_server,
    standing_still,
)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with nats_server(tmp_path_factory.mktemp("nats")) as (url, _):
        yield url


@pytest.mark.parametrize("check", CHECKS, ids=lambda each: each.__name__.lstrip("_"))
def test_the_store_keeps_the_contract(check: Callable[[Callable[[], Store]], None], server: str) -> None:
    keep_the_contract(check, server)


def test_namespaces_are_separate_and_must_be_able_to_name_streams(server: str) -> None:
    one, other = open_store(f"{server}?namespace=one"), open_store(f"{server}?namespace=other")
    one.put("key", b"1")
    assert other.get("key") is None
    one.close()
    other.close()
    with pytest.raises(LinkspanError, match=r"namespace 'a.b' cannot name a stream"):
        open_store(f"{server}?namespace=a.b")


def test_a_key_that_was_taken_out_of_a_queue_costs_its_readers_nothing(server: str) -> None:
    from linkspan.stores.nats import NatsStore

    store = NatsStore(server, namespace="queues")
    for at in (1.0, None):
        for number in range(20):
            store.schedule("queue", f"{number}", at)
    left = store._do(lambda: store._messages.all("queues-records", "queues.queue.>", "all"))
    assert left == []
    store.close()


def test_a_log_that_has_expired_begins_anew_at_the_next_position(server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    store = open_store(server)
    first = store.append("expiring", b"1", Bounds(ttl=60))
    now = store.now()
    monkeypatch.setattr(StoreClock, "now", lambda _: now + 61)
    assert store.append("expiring", b"2") == first + 1
    assert [each.data for each in store.read("expiring")] == [b"2"]
    store.close()


def test_a_server_that_stands_still_is_an_error_within_the_time_and_nothing_is_stuck(tmp_path: Path) -> None:
    from linkspan.stores.nats import NatsStore

    with nats_server(tmp_path) as (url, process):
        store = eventually(lambda: NatsStore(url, timeout=0.5))
        heard: Queue[bytes | None] = Queue()
        eventually(lambda: store.subscribe("channel", heard.put))
        with standing_still(process.pid), pytest.raises(StoreError, match="the store in NATS failed: "):
            store.put("key", b"value")
        eventually(lambda: store.put("key", b"value"))
        eventually(lambda: store.publish("channel", b"again"))
        while heard.get(timeout=30) != b"again":
            pass
        store.close()


def test_a_subscription_that_is_not_confirmed_in_time_is_an_error_and_leaves_no_subscriber(tmp_path: Path) -> None:
    from linkspan.stores.nats import NatsStore

    with nats_server(tmp_path) as (url, process):
        store = eventually(lambda: NatsStore(url, timeout=0.5))
        with standing_still(process.pid), pytest.raises(StoreError):
            store.subscribe("channel", print)
        assert store._subscribers.channels() == []
        store.close()


def test_what_was_published_on_a_connection_that_is_lost_is_an_error() -> None:
    """Until the server has answered, it may not have it."""

    class Lost:
        async def flush(self, timeout: float) -> None:
            raise OSError("the connection is lost")

    async def flush() -> None:
        stream = JetStream(None, "nats://127.0.0.1", {}, timeout=10.0, lost=list)
        stream.client = Lost()
        await stream.flush()

    with pytest.raises(OSError, match="the connection is lost"):
        asyncio.run(flush())


def test_a_connection_whose_server_refuses_the_streams_is_closed() -> None:
    class Library:
        is_open = True

        async def connect(self, *_: object, **__: object) -> Library:
            return self

        def jetstream(self) -> Library:
            return self

        async def add_stream(self, **_: object) -> None:
            raise OSError("no JetStream here")

        async def close(self) -> None:
            self.is_open = False

    library = Library()
    stream = JetStream(library, "nats://127.0.0.1", {"records": (["records.*"], 1)}, timeout=10.0, lost=list)
    with pytest.raises(OSError, match="no JetStream here"):
        asyncio.run(stream.connected())
    assert not library.is_open


def test_a_late_answer_to_what_was_published_does_not_end_the_connection(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    from linkspan.stores.nats import NatsStore

    with nats_server(tmp_path) as (url, process):
        store = eventually(lambda: NatsStore(url, timeout=0.5))
        with standing_still(process.pid), pytest.raises(StoreError, match="the store in NATS failed: "):
            store.publish("channel", b"late")
        eventually(lambda: store.publish("channel", b"again"))
        store.close()
    assert "encountered error" not in caplog.text


def test_no_server_is_an_error_with_a_sentence() -> None:
    pytest.importorskip("nats", reason="nats-py is not installed")
    from linkspan.stores.nats import NatsStore

    with pytest.raises(StoreError, match=r"the store in NATS failed: \w"):
        NatsStore("nats://127.0.0.1:1", timeout=0.3)


def test_a_forked_process_has_a_connection_of_its_own(server: str) -> None:
    fork_with_a_store(server)


def test_a_store_that_begins_afresh_opens_a_connection_for_the_time_and_closes_it(server: str) -> None:
    from linkspan.stores.nats import NatsStore

    store = NatsStore(server, namespace="afresh")
    first = store._messages.client
    store.start_afresh()
    assert abs(store._ask_time() - time.time()) < 60
    second = store._messages.client
    assert second is not first
    store._wait_for(first.close)
    store.close()
    assert second.is_closed
    store.close()  # a second time


def test_all_machines_go_by_the_clock_of_the_server(server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    goes_by_the_clock_of_its_server(f"{server}?namespace=clocks", monkeypatch)
