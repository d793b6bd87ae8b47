"""Deadlines stand still while a person logs in for the sake of a call."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from linkspan import Server, SyncClient
from linkspan.client.transports.base import StoppableClock
from linkspan.core.client_connection import ClientConnection, Expired
from linkspan.flows.state import CLIENT_LIMITS
from linkspan.revisions import LATEST
from linkspan.revisions.agreement import ClientProfile, before_agreement
from linkspan.types.base import Implementation
from over_http import serving


class Machine:
    """A machine with two requests, `a` of 10 seconds and `b` of 20, and its clock."""

    def __init__(self) -> None:
        self.now = 100.0
        profile = ClientProfile(Implementation("test", "1"), {})
        self.machine: ClientConnection[str] = ClientConnection(
            before_agreement(LATEST, profile), clock=lambda: self.now, limits=CLIENT_LIMITS, input_timeout=600.0
        )
        self.ids = {
            name: self.machine.send_request("tools/call", b"{}", name, timeout=seconds, total=seconds)
            for name, seconds in (("a", 10.0), ("b", 20.0))
        }

    def expired_at(self, now: float) -> list[Any]:
        self.now = now
        return [each.owner for each in self.machine.handle_timeout(now) if isinstance(each, Expired)]


@pytest.fixture
def two() -> Machine:
    return Machine()


def test_a_request_that_waits_for_a_person_has_as_much_time_afterwards_as_before(two: Machine) -> None:
    two.now = 104.0
    two.machine.hold(two.ids["a"])
    assert two.expired_at(119.0) == []
    assert two.expired_at(121.0) == ["b"], "the other one does not wait"
    two.now = 300.0
    two.machine.go_on(two.ids["a"])
    assert two.machine.next_timeout() == 306.0
    assert two.expired_at(305.0) == []
    assert two.expired_at(306.5) == ["a"]


def test_holding_twice_counts_once_and_a_request_that_has_ended_is_left_alone(two: Machine) -> None:
    two.machine.hold(two.ids["a"])
    two.now = 105.0
    two.machine.hold(two.ids["a"])
    two.machine.go_on(two.ids["a"])
    two.machine.go_on(two.ids["a"])
    assert two.machine.next_timeout() == 115.0
    two.machine.forget(two.ids["a"])
    two.machine.hold(two.ids["a"])
    two.machine.go_on(two.ids["a"])
    assert two.machine.next_timeout() == 120.0


def test_the_clock_of_calls_goes_on_when_the_last_one_lets_it(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 50.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    clock = StoppableClock()
    clock.stop("a")
    now = 60.0
    clock.stop("b")
    clock.stop("b")
    clock.go_on("a")
    now = 70.0
    assert (clock(), clock.stands) == (50.0, True)
    clock.go_on("b")
    clock.go_on("b")
    now = 75.0
    assert (clock(), clock.stands) == (55.0, False)


def test_the_clock_of_calls_runs_again_after_a_login() -> None:
    with serving(Server("plain").asgi()) as url, SyncClient(url) as client:
        client.ping()
        transport: Any = client._supervisor._transport
        transport._person_waits("one", True)
        assert transport.state.clock.stands
        transport._person_waits("one", False)
        assert not transport.state.clock.stands


@pytest.mark.parametrize(
    "reply",
    [lambda transport: transport.answer("q", b"{}"), lambda transport: transport.refuse("q", -32603, "no")],
    ids=["answered", "refused"],
)
def test_deadlines_are_looked_after_again_when_a_question_has_its_reply(
    reply: Callable[[Any], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The question had put them off, and nothing else may wake the reactor in time."""
    expected: list[float] = []
    with SyncClient(Server("plain")) as client:
        client.ping()
        transport: Any = client._supervisor._transport
        with monkeypatch.context() as patch:
            patch.setattr(transport.machine, "next_timeout", lambda: 7.0)
            patch.setattr(transport, "_reactor", SimpleNamespace(expect=expected.append))
            reply(transport)
    assert expected == [7.0]
