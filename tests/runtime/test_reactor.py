"""The thread that waits for all clients: what wakes it, and what does not."""

from __future__ import annotations

import time
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
