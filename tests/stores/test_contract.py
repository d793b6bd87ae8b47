"""Every store keeps the contract."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from linkspan.stores import Bounds, MemoryStore, SealedStore, SqliteStore, Store
from linkspan.testing.store_contract import CHECKS

Make = Callable[[], Store]


def memory(_: Path) -> Make:
    return MemoryStore().another


def sqlite(directory: Path) -> Make:
    return lambda: SqliteStore(directory / "store.db")


def sealed(directory: Path) -> Make:
    pytest.importorskip("cryptography", reason="cryptography is not installed")
    return lambda: SealedStore(SqliteStore(directory / "store.db"), "a key of 16 bytes or more")


@pytest.fixture(params=[memory, sqlite, sealed], ids=lambda each: each.__name__)
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Make]:
    opened: list[Store] = []
    new: Make = request.param(tmp_path)

    def tracked() -> Store:
        opened.append(new())
        return opened[-1]

    yield tracked
    for each in opened:
        each.close()


@pytest.mark.parametrize("check", CHECKS, ids=lambda each: each.__name__.lstrip("_"))
def test_the_store_keeps_the_contract(check: Callable[[Make], None], make: Make) -> None:
    check(make)


@pytest.mark.parametrize("make", [memory, sqlite], indirect=True, ids=lambda each: each.__name__)
def test_a_log_may_hold_exactly_as_many_bytes_as_its_bound(make: Make) -> None:
    """What is sealed is longer, so this is not a part of the contract."""
    store, bounds = make(), Bounds(bytes=3000)
    for size in (1000, 1500, 500):
        store.append("log", bytes(size), bounds)
    assert [len(each.data) for each in store.read("log")] == [1000, 1500, 500]
    store.append("log", b"1", bounds)
    assert [len(each.data) for each in store.read("log")] == [1500, 500, 1]
    store.append("log", bytes(2499), bounds)
    assert [len(each.data) for each in store.read("log")] == [500, 1, 2499]


def test_a_store_in_memory_forgets_what_has_expired() -> None:
    now = [1000.0]
    store = MemoryStore(lambda: now[0])
    store.put("short", b"1", ttl=10)
    store.put("kept", b"1")
    store.append("log", b"1", Bounds(ttl=10))
    now[0] += 60
    store.put("kept", b"2")
    assert list(store._state.records) == ["kept"]
    assert not store._state.logs
    store.schedule("queue", "key", 1)
    store.schedule("queue", "key", None)
    assert not store._state.queues
