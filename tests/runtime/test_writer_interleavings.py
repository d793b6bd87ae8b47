"""The one writer under every order of its threads.

Each stops where it gives a lock back, writes or waits, and a schedule chooses which one goes on. By default that is the same one
for as long as it can. All schedules are tried that differ from that in at most `TURNS` places: a lost wake, or lost output,
would show.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from linkspan.runtime import descriptors
from linkspan.runtime.descriptors import Writer

TURNS = 2


class Actor:
    """A thread that runs only while it has the turn."""

    def __init__(self, name: str, work: Callable[[], object]) -> None:
        self.name = name
        self.turn = threading.Lock()
        self.turn.acquire()
        self.ready: Callable[[], bool] = lambda: True
        self.ended = False
        self.error: BaseException | None = None
        self.thread = threading.Thread(target=self._run, args=(work,), daemon=True)

    def _run(self, work: Callable[[], object]) -> None:
        self.turn.acquire()
        try:
            work()
        except BaseException as error:
            self.error = error
        self.ended = True
        Stage.current.stopped.release()


class Stage:
    """Runs actors one at a time."""

    current: Stage

    def __init__(self) -> None:
        Stage.current = self
        self.actors: list[Actor] = []
        self.on: Actor | None = None
        self.stopped = threading.Lock()
        self.stopped.acquire()

    def add(self, name: str, work: Callable[[], object]) -> None:
        actor = Actor(name, work)
        self.actors.append(actor)
        actor.thread.start()

    def stop(self, ready: Callable[[], bool] = lambda: True) -> None:
        """Let others go on, until it is this actor's turn again; it gets none before `ready`."""
        actor = self.on
        assert actor is not None
        actor.ready = ready
        self.stopped.release()
        actor.turn.acquire()

    def play(self, choices: list[int]) -> Iterator[int]:
        """Run all; yield at each choice how many can go on, the one that is at it first."""
        number = 0
        while True:
            can = [each for each in self.actors if not each.ended and each.ready()]
            if not can:
                break
            if self.on in can:
                can.sort(key=lambda each: each is not self.on)
            yield len(can)
            self.on = can[choices[number] if number < len(choices) else 0]
            number += 1
            self.on.turn.release()
            self.stopped.acquire()
        for each in self.actors:
            if each.error is not None:
                raise each.error
        assert not [each.name for each in self.actors if not each.ended], "these wait for ever"


class Lock:
    """A reentrant lock of the stage."""

    owner: Actor | None = None
    depth = 0

    def __enter__(self) -> None:
        stage = Stage.current
        if self.owner not in (None, stage.on):
            stage.stop(lambda: self.owner is None)
        self.owner, self.depth = stage.on, self.depth + 1

    def __exit__(self, *_: object) -> None:
        self.depth -= 1
        if not self.depth:
            self.owner = None
            Stage.current.stop()


class Condition:
    """A condition of the stage: who waits goes on only after a notification."""

    def __init__(self, lock: Lock) -> None:
        self.lock = lock
        self.waiting: list[list[bool]] = []

    def wait_for(self, done: Callable[[], bool], timeout: float | None) -> None:
        lock = self.lock
        while not done():
            notified, depth, owner = [False], lock.depth, lock.owner
            self.waiting.append(notified)
            lock.owner, lock.depth = None, 0
            Stage.current.stop(lambda notified=notified: notified[0] and lock.owner is None)  # type: ignore[misc]
            lock.owner, lock.depth = owner, depth

    def notify_all(self) -> None:
        for each in self.waiting:
            each[0] = True
        self.waiting.clear()


class Thread:
    """A thread that the writer starts: one more actor."""

    def __init__(self, target: Callable[..., object], args: tuple[Any, ...], name: str, daemon: bool) -> None:
        self.start = lambda: Stage.current.add(name, lambda: target(*args))


class Pipe:
    """Holds so many bytes."""

    room = 25

    def __init__(self) -> None:
        self.held = self.read = b""

    def write_some(self, data: bytes) -> memoryview | bytes:
        Stage.current.stop()
        count = min(len(data), self.room - len(self.held))
        self.held += bytes(data[:count])
        return memoryview(data)[count:] if count < len(data) else b""

    def write_all(self, _: int, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            Stage.current.stop(lambda: len(self.held) < self.room)
            count = min(len(rest), self.room - len(self.held))
            self.held += bytes(rest[:count])
            rest = rest[count:]

    def read_all(self, count: int) -> None:
        while self.read.count(b";") < count:
            Stage.current.stop(lambda: bool(self.held))
            self.read, self.held = self.read + self.held, b""


class Source:
    """Numbers what is said; of changes the last waits while earlier output is being sent, as in a connection."""

    def __init__(self, lock: Lock) -> None:
        self.lock, self.out, self.count, self.changed = lock, b"", 0, b""
        self.writer: Writer

    def produce(self) -> None:
        with self.lock:
            self.out += b"%d %s;" % (self.count, b"x" * 17)
            self.count += 1

    def change(self) -> None:
        with self.lock:
            self.changed = b"changed;"

    def data_to_send(self) -> bytes:
        if self.changed and not self.writer.is_sending():
            self.out, self.changed = self.out + self.changed, b""
        data, self.out = self.out, b""
        return data


def play(choices: list[int], monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """Let two workers, and the thread that reads and never waits for output, send through one writer."""
    stage, pipe, lock, woken = Stage(), Pipe(), Lock(), [False]
    monkeypatch.setattr(descriptors, "threading", SimpleNamespace(Condition=Condition, Thread=Thread))
    monkeypatch.setattr(descriptors, "Outlet", lambda _: pipe)
    monkeypatch.setattr(descriptors, "write_all", pipe.write_all)
    source = Source(lock)
    wake = lambda: woken.__setitem__(0, True)  # noqa: E731
    writer = source.writer = Writer(source, lock, 0, bound=30, on_change=wake)  # type: ignore[arg-type]

    def work() -> None:
        source.produce()
        writer.flush()

    def serve() -> None:
        for step in (source.produce, source.change):
            step()
            writer.flush_now()
            while writer.full:
                stage.stop(lambda: woken[0])
                woken[0] = False

    stage.add("serving", serve)
    stage.add("worker", work)
    stage.add("another", work)
    stage.add("reader", lambda: pipe.read_all(4))
    yield from stage.play(choices)
    *lines, end = pipe.read.split(b";")
    assert [int(each.split()[0]) for each in lines if each != b"changed"] == [0, 1, 2]
    assert (lines.count(b"changed"), end, writer.unsent, writer.full, source.changed) == (1, b"", 0, False, b"")


def schedules(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Play all schedules: the first choices are given, the others are 0."""
    waiting: list[list[int]] = [[]]
    while waiting:
        given = waiting.pop()
        may_differ = sum(map(bool, given)) < TURNS
        for number, can in enumerate(play(given, monkeypatch)):
            if number >= len(given) and may_differ:
                waiting += [given + [0] * (number - len(given)) + [each] for each in range(1, can)]
        yield given


def test_all_arrives_in_order_and_no_thread_waits_for_ever_whatever_the_order_of_the_threads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert sum(1 for _ in schedules(monkeypatch)) > 1000
