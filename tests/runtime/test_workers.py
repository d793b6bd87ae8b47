"""Worker threads: none waits for another, and no more are made than it takes."""

from __future__ import annotations

import threading
from queue import Empty, SimpleQueue

import pytest

from linkspan.runtime import workers
from linkspan.runtime.workers import Workers


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
        thread.join(60)
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


class _Held:
    """A pool whose items block until they are let go, one by one."""

    def __init__(self, limit: int) -> None:
        self.started: SimpleQueue[int] = SimpleQueue()
        self.gates = [threading.Event() for _ in range(20)]
        self.pool = Workers(self._run, limit)

    def _run(self, item: int) -> None:
        self.started.put(item)
        self.gates[item].wait(30)

    def submit(self, *items: int) -> None:
        for item in items:
            self.pool.submit(item)

    def next(self, count: int) -> set[int]:
        return {self.started.get(timeout=30) for _ in range(count)}

    def rests(self) -> bool:
        """Whether nothing else is started for a moment."""
        try:
            self.started.get(timeout=0.1)
        except Empty:
            return True
        return False

    def release(self) -> None:
        for gate in self.gates:
            gate.set()


def test_an_abandoned_item_does_not_count_and_its_thread_comes_back():
    held = _Held(2)
    held.submit(0, 1, 2, 3)
    assert (held.next(2), held.rests()) == ({0, 1}, True)
    held.pool.abandon(0)
    assert (held.next(1), held.rests()) == ({2}, True)
    held.gates[0].set()  # one thread too many now: it must not take the next item
    assert held.rests()
    held.gates[1].set()
    assert held.next(1) == {3}
    held.release()


def test_no_more_items_are_abandoned_than_the_limit():
    held = _Held(2)
    held.submit(*range(6))
    for first in (0, 2):
        assert held.next(2) == {first, first + 1}
        held.pool.abandon(first)
        held.pool.abandon(first + 1)
    assert held.rests()  # 2 and 3 count, though nobody waits for them: 0 and 1 are not counted already
    held.gates[2].set()
    assert held.next(1) == {4}
    held.release()


def test_abandoning_what_does_not_run_changes_nothing():
    held = _Held(1)
    held.submit(0, 1)
    assert held.next(1) == {0}
    held.pool.abandon(1)
    held.pool.abandon(7)
    assert held.rests()
    held.release()
    assert held.next(1) == {1}
