"""Every store keeps the contract."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from linkspan.stores import MemoryStore, SealedStore, SqliteStore, Store
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
