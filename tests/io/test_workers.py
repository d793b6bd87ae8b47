"""Worker threads: none waits for another, and no more are made than it takes."""

from __future__ import annotations

import threading
from queue import SimpleQueue

import pytest

from linkspan.io import workers
from linkspan.io.workers import Workers


def test_items_that_block_do_not_hold_up_the_others():
    gate, done = threading.Event(), SimpleQueue()

    def run(item: int) -> None:
        if item < 10:
            gate.wait(30)
        done.put(item)

    pool = Workers(run, 64)
    for item in range(30):
        pool.submit(item)
    assert {done.get(timeout=30) for _ in range(20)} == set(range(10, 30))
    gate.set()
    assert {done.get(timeout=30) for _ in range(10)} == set(range(10))


def test_no_more_threads_work_than_the_limit_allows():
    gate, started, done = threading.Event(), SimpleQueue(), SimpleQueue()

    def run(item: int) -> None:
        started.put(item)
        gate.wait(30)
        done.put(threading.get_ident())

    pool = Workers(run, 3)
    for item in range(9):
        pool.submit(item)
    assert {started.get(timeout=30) for _ in range(3)} == {0, 1, 2}
    assert started.empty()
    gate.set()
    assert len({done.get(timeout=30) for _ in range(9)}) <= 3


def test_items_from_many_threads_are_all_run_once():
    done = SimpleQueue()
    pool = Workers(done.put, 8)
    threads = [
        threading.Thread(target=lambda base=base: [pool.submit(base + n) for n in range(500)])
        for base in range(0, 4000, 500)
    ]
    for thread in threads:
        thread.start()
    assert sorted(done.get(timeout=30) for _ in range(4000)) == list(range(4000))
    for thread in threads:
        thread.join()


def test_threads_with_nothing_to_do_go_away_and_new_ones_come(monkeypatch):
    monkeypatch.setattr(workers, "_IDLE_SECONDS", 0.01)
    idents = SimpleQueue()
    pool = Workers(lambda item: idents.put(threading.current_thread()), 4)
    for _ in range(3):
        pool.submit(0)
        thread = idents.get(timeout=30)
        thread.join(30)
        assert not thread.is_alive()


@pytest.mark.parametrize("error", [ValueError("reported"), SystemExit(3), KeyboardInterrupt(), GeneratorExit()])
def test_a_thread_survives_what_an_item_raises(monkeypatch, error):
    done, reported = SimpleQueue(), SimpleQueue()
    monkeypatch.setattr(threading, "excepthook", reported.put)

    def run(item: int) -> None:
        if item == 0:
            raise error
        done.put(item)

    pool = Workers(run, 1)
    pool.submit(0)
    pool.submit(1)
    assert done.get(timeout=30) == 1
    assert reported.get(timeout=30).exc_value is error
