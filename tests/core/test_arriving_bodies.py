"""Bodies that are arriving, without a socket and without a clock."""

from __future__ import annotations

from linkspan.core.http_bodies import ArrivingBodies, ArrivingBody
from linkspan.core.http_checks import Gate, HttpPolicy
from linkspan.core.http_exchange import HttpResponse


class World:
    def __init__(self, **policy: int) -> None:
        self.policy = HttpPolicy(body_timeout=10.0, **policy)
        self.bodies = ArrivingBodies(Gate(self.policy), self.policy)
        self.refused: list[tuple[str, int]] = []

    def begin(self, name: str, now: float = 0.0) -> ArrivingBody:
        body = self.bodies.begin({}, now, lambda refusal: self.refused.append((name, refusal.status)))
        assert isinstance(body, ArrivingBody)
        return body


def test_a_body_beyond_its_bound_is_refused_and_no_other() -> None:
    world = World(max_body_bytes=100)
    small, large = world.begin("small"), world.begin("large")
    assert world.bodies.grow(small, 100) is None
    refusal = world.bodies.grow(large, 101)
    assert refusal is not None
    assert (refusal.status, world.refused) == (413, [])


def test_the_largest_body_goes_where_all_together_are_too_large() -> None:
    world = World(max_body_bytes=100, max_incoming_bytes=150)
    large, small = world.begin("large"), world.begin("small")
    assert world.bodies.grow(large, 90) is None
    assert world.bodies.grow(small, 70) is None
    assert world.refused == [("large", 503)]
    world.bodies.end(large)
    assert world.bodies.sizes == [70]


def test_a_body_that_is_the_largest_itself_is_refused_as_it_grows() -> None:
    world = World(max_body_bytes=100, max_incoming_bytes=100)
    first, second = world.begin("first"), world.begin("second")
    assert world.bodies.grow(first, 40) is None
    refusal = world.bodies.grow(second, 70)
    assert (refusal and refusal.status, world.refused) == (503, [])


def test_more_bodies_than_streams_do_not_begin() -> None:
    world = World(max_streams=1)
    first = world.begin("first")
    assert isinstance(world.bodies.begin({}, 0.0, bool), HttpResponse)
    world.bodies.end(first)
    world.begin("second")


def test_a_body_that_takes_too_long_is_refused_once() -> None:
    world = World()
    world.begin("first", 0.0)
    world.begin("second", 5.0)
    assert world.bodies.next_timeout() == 10.0
    world.bodies.expire(10.0)
    world.bodies.expire(11.0)
    assert (world.refused, world.bodies.next_timeout()) == ([("first", 408)], 15.0)


def test_a_body_that_nothing_ends_from_outside_keeps_its_room_and_is_refused_itself() -> None:
    world = World(max_body_bytes=100, max_incoming_bytes=150)
    read, later = (world.bodies.begin({}, 0.0, None) for _ in range(2))
    assert isinstance(read, ArrivingBody)
    assert isinstance(later, ArrivingBody)
    assert world.bodies.grow(read, 90) is None
    refusal = world.bodies.grow(later, 70)
    assert (refusal and refusal.status, world.bodies.sizes) == (503, [70, 90])
    world.bodies.end(later)
    endable = world.begin("endable")
    refusal = world.bodies.grow(endable, 61)
    assert (refusal and refusal.status, world.refused) == (503, [])
    world.bodies.expire(99.0)
    assert world.refused == [("endable", 408)]
