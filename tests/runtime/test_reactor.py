"""The thread that waits for all clients: what wakes it, and what does not."""

from __future__ import annotations

import os
import threading
import time
from queue import Queue
from typing import Any

import pytest

from linkspan.runtime.descriptors import WakePipe
from linkspan.runtime.reactor import Reactor


class Short:
    """Something whose calls are over before the reactor looks at their deadlines: it never has one that is due."""

    def next_timeout(self) -> None:
        return None

    def handle_timeout(self, now: float) -> None:
        raise AssertionError

    def handle_readable(self, fd: int) -> None:
        raise AssertionError


class Broken(Short):
    """Something whose deadline cannot be asked for any more, after some turns."""

    def __init__(self, turns: int) -> None:
        self.turns = turns

    def next_timeout(self) -> None:
        self.turns -= 1
        if self.turns < 0:
            raise RuntimeError("a mistake")


class Reader(Short):
    """Something that reads what comes."""

    def __init__(self) -> None:
        self.received: Queue[bytes] = Queue()

    def handle_readable(self, fd: int) -> None:
        self.received.put(os.read(fd, 100))


def until(reactor: Reactor, sleeps_until: float) -> None:
    give_up = time.monotonic() + 60
    while reactor._sleeps_until != sleeps_until:
        assert time.monotonic() < give_up
        time.sleep(0.001)


def test_calls_that_end_before_their_deadlines_wake_the_reactor_once_and_not_each(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    wakes = 0
    wake = WakePipe.wake

    def counted(pipe: WakePipe, *arguments: Any) -> None:
        nonlocal wakes
        wakes += 1
        wake(pipe, *arguments)

    reactor = Reactor()
    reactor.call(lambda: reactor.watch(Short()))
    until(reactor, float("inf"))
    monkeypatch.setattr(WakePipe, "wake", counted)
    deadline = time.monotonic() + 1000
    reactor.expect(deadline)
    until(reactor, deadline)
    for later in range(100):
        reactor.expect(deadline + later)
    assert wakes == 1
    reactor.expect(deadline - 500)  # an earlier one does
    until(reactor, deadline - 500)
    assert wakes == 2
    soon = time.monotonic() + 0.01
    reactor.expect(soon)
    until(reactor, float("inf"))  # a time that has come is forgotten


@pytest.mark.parametrize("turns", [0, 1], ids=["after the calls", "before it sleeps"])
def test_one_whose_deadline_raises_is_forgotten_and_the_others_are_read(
    turns: int, caplog: pytest.LogCaptureFixture
) -> None:
    reactor, broken, other = Reactor(), Broken(turns), Reader()
    reader, writer = os.pipe()

    def watch() -> None:
        reactor.watch(broken)
        reactor.watch(other, [reader])

    reactor.call(watch)
    try:
        for data in (b"1", b"2", b"3"):
            os.write(writer, data)
            assert other.received.get(timeout=30) == data
    finally:
        forgotten = threading.Event()
        reactor.call(lambda: (reactor.forget(other), forgotten.set()))
        assert forgotten.wait(30)
        os.close(reader)
        os.close(writer)
    assert [each.message for each in caplog.records] == ["an error in a client's connection, which is watched no more"]
    assert broken.turns == -1
