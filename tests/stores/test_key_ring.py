"""The keys of a store: which one seals, which open, and until when."""

from __future__ import annotations

import threading
from math import inf
from typing import Any

import pytest

from linkspan.stores import MemoryStore, StoreError
from linkspan.stores.key_ring import longest_use, read_keys, record_use, rotate_keys


def test_all_processes_read_the_key_that_one_of_them_made() -> None:
    store, found = MemoryStore(), list[list[bytes]]()
    threads = [threading.Thread(target=lambda: found.append(read_keys(store, 0.0))) for _ in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert found == [found[0]] * 4
    assert [len(key) for key in found[0]] == [32]


def test_a_new_key_opens_at_once_and_seals_when_every_process_has_read_it() -> None:
    store = MemoryStore()
    (old,) = read_keys(store, 0.0)
    assert rotate_keys(store, 1000.0, keep=60.0) == 2
    first, second = read_keys(store, 1001.0)
    assert first == old
    assert read_keys(store, 1030.0) == [second, old]
    assert read_keys(store, 1119.0) == [second, old]
    assert read_keys(store, 1120.0) == [second]
    assert rotate_keys(store, 1120.0, keep=60.0) == 2


def test_of_several_new_keys_the_newest_that_is_settled_seals() -> None:
    store = MemoryStore()
    (first,) = read_keys(store, 0.0)
    rotate_keys(store, 1000.0, keep=600.0)
    second = read_keys(store, 1040.0)[0]
    assert rotate_keys(store, 1050.0, keep=600.0) == 3
    assert read_keys(store, 1051.0)[:2] == [second, first]
    third = read_keys(store, 1051.0)[2]
    assert read_keys(store, 1080.0) == [third, second, first]


def test_the_first_rotation_of_an_empty_store_makes_a_key_that_seals_at_once() -> None:
    store = MemoryStore()
    assert rotate_keys(store, 1000.0, keep=60.0) == 1
    assert len(read_keys(store, 1000.0)) == 1


def test_a_store_that_loses_what_is_written_is_an_error() -> None:
    store = MemoryStore()
    store.get = lambda key: None  # type: ignore[method-assign]
    with pytest.raises(StoreError, match="does not keep what is written to it"):
        read_keys(store, 0.0)


WEEK = 7 * 86400.0


def test_of_deployments_with_different_figures_the_longest_is_needed_whichever_was_noted_last() -> None:
    store = MemoryStore()
    assert longest_use(store, 0.0) is None
    for seconds in (86400.0, 60.0, 3600.0):
        record_use(store, seconds, 0.0)
        assert longest_use(store, 1.0) == 86400.0


def test_a_use_is_noted_again_in_a_store_that_has_lost_its_records() -> None:
    old, new = MemoryStore(), MemoryStore()
    for store in (old, new):
        record_use(store, inf, 0.0)
        assert longest_use(store, 1.0) == inf


def test_a_use_counts_for_a_week_after_it_was_noted_and_is_written_again_after_half_of_it() -> None:
    store, puts = MemoryStore(), list[str]()
    put = store.put

    def counted(key: str, *arguments: Any, **options: Any) -> int | None:
        puts.append(key)
        return put(key, *arguments, **options)

    store.put = counted  # type: ignore[method-assign]
    record_use(store, inf, 0.0)  # its server is retired after this
    for now in range(0, int(WEEK), 3600):
        record_use(store, 60.0, float(now))
    assert longest_use(store, WEEK - 1) == inf
    assert longest_use(store, WEEK + 1) == 60.0
    assert len(puts) == 3
    record_use(store, 60.0, 2 * WEEK)
    assert len(puts) == 4
    assert longest_use(store, 3 * WEEK - 1) == 60.0
    assert longest_use(store, 3 * WEEK) is None
