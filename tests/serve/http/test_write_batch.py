"""Responses that are written together: their order, how long they are kept, and what is never kept. No I/O."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from linkspan.serve.write_batch import LONG, MOST, WARY, Turns, WriteBatch


class Loop:
    """Turns of a loop, and its time."""

    def __init__(self) -> None:
        self.time = 0.0
        self.written: list[tuple[str, bytes]] = []
        self.soon: list[Callable[[], object]] = []
        self.batch = WriteBatch(self.soon.append, lambda: self.time)

    def transport(self, name: str) -> Transport:
        return Transport(name, self.written)

    def end_turn(self) -> None:
        soon, self.soon[:] = list(self.soon), []
        for perform in soon:
            perform()

    def take(self) -> list[tuple[str, bytes]]:
        """Return what was written since."""
        written, self.written[:] = list(self.written), []
        return written


class Transport:
    """Notes what is written to it."""

    def __init__(self, name: str, written: list[tuple[str, bytes]]) -> None:
        self.name, self._written = name, written

    def write(self, data: bytes, /) -> None:
        self._written.append((self.name, data))

    def writelines(self, list_of_data: Sequence[bytes], /) -> None:
        self.write(b"".join(list_of_data))

    def close(self) -> None:
        self.write(b"closed")


@pytest.fixture
def loop() -> Loop:
    return Loop()


def served(loop: Loop, count: int) -> list[Any]:
    """Return transports of which each has had a response."""
    transports = [loop.transport(chr(97 + number)) for number in range(count)]
    for each in transports:
        loop.batch.write_soon(each, b"0")
    loop.end_turn()
    loop.take()
    return transports


def test_what_several_connections_complete_in_a_turn_is_written_at_its_end(loop: Loop) -> None:
    a, b, c = served(loop, 3)
    for each in (a, b, c):
        loop.batch.write_soon(each, b"1")
    assert loop.take() == []
    assert len(loop.soon) == 1
    loop.end_turn()
    assert loop.take() == [("a", b"1"), ("b", b"1"), ("c", b"1")]
    assert loop.soon == []


def test_a_connection_that_is_alone_writes_at_once(loop: Loop) -> None:
    a, b = loop.transport("a"), loop.transport("b")
    for _ in range(3):
        loop.batch.write_soon(a, b"1")
        assert loop.take() == [("a", b"1")]
    loop.batch.write_soon(b, b"2")
    assert loop.take() == []
    loop.end_turn()
    loop.batch.write_soon(b, b"3")
    assert loop.take() == [("b", b"2"), ("b", b"3")]
    assert loop.soon == []


def test_the_responses_of_one_connection_stay_in_order(loop: Loop) -> None:
    a, b = served(loop, 2)
    for data in (b"1", b"2"):
        loop.batch.write_soon(a, data)
    loop.batch.write_soon(b, b"3")
    loop.batch.write_now(a, b"4")
    assert loop.take() == [("a", b"12"), ("a", b"4")]
    loop.end_turn()
    assert loop.take() == [("b", b"3")]


def test_a_connection_that_ends_gets_its_response_before(loop: Loop) -> None:
    a, b = served(loop, 2)
    loop.batch.write_soon(a, b"1")
    loop.batch.write_soon(b, b"2")
    loop.batch.close(a)
    assert loop.take() == [("a", b"1"), ("a", b"closed")]
    loop.batch.write_parts(b, (b"3", b"4"))
    assert loop.take() == [("b", b"2"), ("b", b"34")]


def test_nothing_is_written_to_a_connection_that_is_lost(loop: Loop) -> None:
    a, b = served(loop, 2)
    loop.batch.write_soon(a, b"1")
    loop.batch.write_soon(b, b"2")
    loop.batch.forget(b)
    loop.end_turn()
    assert loop.take() == [("a", b"1")]


def test_a_response_is_not_kept_while_many_others_are_made(loop: Loop) -> None:
    a, b = served(loop, 2)
    loop.batch.write_soon(a, b"1")
    for _ in range(2):
        assert loop.take() == []
        loop.time += 0.75 * LONG
        loop.batch.write_soon(b, b"2")
    assert loop.take() == [("a", b"1"), ("b", b"22")]
    loop.batch.write_soon(a, b"3")
    assert loop.take() == []  # no single one was slow
    assert len(loop.soon) == 1


@pytest.mark.parametrize("kept", [True, False], ids=["its response is kept", "its response comes later"])
def test_after_a_slow_function_nothing_waits_for_the_next_one(kept: bool, loop: Loop) -> None:
    a, b = served(loop, 2)
    loop.batch.write_soon(a, b"1")
    loop.time += 1.5 * LONG
    if kept:
        loop.batch.write_soon(b, b"2")
        assert loop.take() == [("a", b"1"), ("b", b"2")]
    loop.end_turn()
    loop.take()
    for each in (a, b) * (WARY // 2):
        loop.batch.write_soon(each, b"3")
        assert loop.take() == [(each.name, b"3")]
    loop.batch.write_soon(a, b"4")
    assert loop.take() == []


def test_responses_that_are_large_together_are_not_kept(loop: Loop) -> None:
    a, b = served(loop, 2)
    part = bytes(MOST // 2)
    loop.batch.write_soon(a, part)
    loop.batch.write_soon(b, part)
    assert loop.take() == []
    loop.batch.write_soon(a, b"1")
    assert loop.take() == [("a", part + b"1"), ("b", part)]


def test_the_first_responses_may_be_as_large_as_later_ones(loop: Loop) -> None:
    a, b = loop.transport("a"), loop.transport("b")
    loop.batch.write_soon(a, b"0")
    assert loop.take() == [("a", b"0")]
    loop.batch.write_soon(b, bytes(MOST))
    assert loop.take() == []
    loop.end_turn()
    assert loop.take() == [("b", bytes(MOST))]


def test_what_has_left_does_not_count_as_kept(loop: Loop) -> None:
    a, b, c = served(loop, 3)
    for leave in (loop.batch.release, loop.batch.forget):
        for each in (a, b):
            loop.batch.write_soon(each, bytes(MOST // 2))
        leave(b)
        loop.take()
        loop.batch.write_soon(c, bytes(MOST // 2))
        assert loop.take() == []
        loop.end_turn()
        loop.take()


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["soon", "soon", "soon", "now", "release", "end"]),
        st.integers(0, 2),
        st.sampled_from([0.0, 0.0, LONG / 4, LONG * 2]),
        st.sampled_from([1, 1, 300, MOST // 3]),
    ),
    max_size=60,
)


@given(STEPS)
def test_in_any_order_of_events_each_connection_gets_its_bytes_in_order_and_soon(
    steps: list[tuple[str, int, float, int]],
) -> None:
    loop = Loop()
    transports = [loop.transport(name) for name in "abc"]
    sent, received = dict.fromkeys("abc", b""), dict.fromkeys("abc", b"")
    kept_since: float | None = None
    for number, (what, which, seconds, size) in enumerate(steps):
        transport, data = transports[which], bytes([number]) * size
        loop.time += seconds
        if what == "end":
            loop.end_turn()
        elif what == "release":
            loop.batch.release(transport)
        else:
            sent[transport.name] += data
            write = loop.batch.write_soon if what == "soon" else loop.batch.write_now
            write(transport, data)
        for name, data in loop.take():
            received[name] += data
        assert all(sent[name].startswith(received[name]) for name in "abc")
        assert sum(map(len, sent.values())) - sum(map(len, received.values())) <= MOST
        if what == "end":
            assert sent == received
        elif what != "soon":
            assert sent[transport.name] == received[transport.name]
        kept_since = None if sent == received else loop.time if kept_since is None else kept_since
        assert what != "soon" or kept_since is None or loop.time - kept_since <= LONG
        assert kept_since is None or len(loop.soon) == 1


# What decides for ASGI.


@pytest.mark.parametrize("seconds", [LONG / 2, LONG * 1.5])
@pytest.mark.parametrize("seen", ["by the next response", "at the end of the turn"])
def test_responses_wait_for_each_other_until_one_step_was_slow(seen: str, seconds: float, loop: Loop) -> None:
    turns = Turns(lambda: loop.time)
    loop.time = 1000.0
    assert turns.keep()
    loop.time += seconds
    if seen == "by the next response":
        is_kept = turns.keep()
        assert is_kept == (seconds < LONG)
        if is_kept:
            turns.let_go()
    turns.let_go()
    loop.time += 1.0  # nothing waits, so that no step of a turn
    expected = 0 if seconds < LONG else WARY - (seen == "by the next response")
    kept = [turns.keep() for _ in range(WARY)]
    assert kept.count(False) == expected
    assert kept == sorted(kept)


def test_many_quick_responses_of_a_turn_are_not_one_slow_step(loop: Loop) -> None:
    turns = Turns(lambda: loop.time)
    for _ in range(100):
        assert turns.keep()
        loop.time += LONG / 10
    for _ in range(100):
        turns.let_go()
    assert turns.keep()
