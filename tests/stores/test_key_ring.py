"""The keys of a store: which one seals, which open, and until when."""

from __future__ import annotations

import threading

import pytest

from linkspan.stores import MemoryStore, StoreError
from linkspan.stores.key_ring import read_keys, rotate_keys


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
    assert read_keys(store, 1121.0) == [second]


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
