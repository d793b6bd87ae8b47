"""Plain functions over HTTP: no client holds all worker threads, neither with calls nor with calls that it gave up."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
from http_faces import Asgi, Live, OnALoop
from http_talk import body, call, mirror, text_of

from linkspan import HttpPolicy, Server


class Slow:
    """A server whose tool `block` returns when a test lets it."""

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.at_work = threading.Semaphore(0)
        self.server = Server("slow")
        self.server.define_tool("block", handler=self._block)
        self.server.define_tool("quick", handler=lambda: "done")

    def _block(self) -> str:
        self.at_work.release()
        self.gate.wait(30)
        return "let go"

    def started(self, count: int) -> None:
        """Wait until so many more have begun; nobody else begins for a moment after that."""
        for _ in range(count):
            assert self.at_work.acquire(timeout=60)
        assert not self.at_work.acquire(timeout=0.1)


@pytest.fixture
def slow() -> Iterator[Slow]:
    found = Slow()
    yield found
    found.gate.set()


def of(face: Asgi, principal: str, tool: str = "block") -> Live:
    request = body("tools/call", {"name": tool, "arguments": {}})
    return face.open("POST", mirror(request), request, principal=principal)


def answered(live: Live) -> bool:
    return text_of(live.json()) == "done"


def test_one_client_leaves_threads_to_the_others(on_a_loop: OnALoop, slow: Slow) -> None:
    face = on_a_loop(slow.server, max_workers=4)  # three quarters of them for one client
    for _ in range(8):
        of(face, "greedy")
    slow.started(3)
    assert answered(of(face, "modest", "quick"))
    slow.gate.set()
    slow.started(5)  # those that waited for a thread of their client's share


def test_an_address_is_a_client_where_there_are_no_principals(on_a_loop: OnALoop, slow: Slow) -> None:
    face = on_a_loop(slow.server, max_workers=3, max_workers_per_client=2)
    for _ in range(4):
        call(face, "block")
    slow.started(2)
    assert answered(of(face, "modest", "quick"))


def test_calls_that_were_given_up_leave_the_threads_to_others(on_a_loop: OnALoop, slow: Slow) -> None:
    face = on_a_loop(slow.server, max_workers=2, max_workers_per_client=2)
    calls = [of(face, "impatient") for _ in range(5)]
    slow.started(2)
    for each in calls:
        each.close()
    assert answered(of(face, "modest", "quick"))
    face.until(lambda: face.app.calls.in_threads == 2)  # they cannot be stopped; those that had not begun are forgotten
    slow.gate.set()
    face.until(lambda: face.app.calls.in_threads == 0)
    slow.started(0)


def test_the_bound_is_what_the_policy_says(on_a_loop: OnALoop, slow: Slow) -> None:
    face = on_a_loop(slow.server, max_workers=3, max_workers_per_client=3)
    for _ in range(4):
        call(face, "block")
    slow.started(3)


@pytest.mark.parametrize(("given", "share"), [({}, 48), ({"max_workers": 1}, 1), ({"max_workers_per_client": 5}, 5)])
def test_one_client_may_have_three_quarters_unless_told_otherwise(given: Any, share: int) -> None:
    assert HttpPolicy(**given).share == share
