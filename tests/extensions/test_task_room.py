"""The bytes of ended tasks: of each principal, of all, and how they are counted. Time is an argument."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from linkspan.extensions.task_record import TaskRecord, created, ended
from linkspan.extensions.task_room import TaskRoom
from linkspan.revisions import LATEST
from linkspan.revisions.neutral import EncodedToolResult, Peer, Request, TransportInfo, read_only
from linkspan.server.task_settings import Task
from linkspan.stores import MemoryStore
from linkspan.types.messages import CallToolParams

KB = 1024


class World:
    """Processes that share a store, in which ended tasks are made."""

    def __init__(self) -> None:
        self.now = 1_700_000_000.0
        self.store = MemoryStore(lambda: self.now)
        self.deleted: list[str] = []
        self.looks = 0
        self._made = 0

    def room(self, most: int = 1000 * KB, most_of_one: int = 500 * KB) -> TaskRoom:
        def store() -> Any:
            return self.store.another()

        return TaskRoom(store, "ended", self.deleted.append, most=most, most_of_one=most_of_one, clock=lambda: self.now)

    def task(self, size: int, owner: str | None = None, settings: Task | None = None) -> TaskRecord:
        """Return an ended task that takes so many bytes."""
        self.now += 0.01
        self._made += 1
        params = msgspec.json.decode(json.dumps({"name": "t", "arguments": {}}).encode(), type=CallToolParams)
        facts = TransportInfo(principal=owner)
        request = Request(1, "tools/call", params, Peer(LATEST, read_only({})), facts=facts)
        record = created(request, f"{self._made:032}", settings or Task(), self.now)
        empty = ended(record, EncodedToolResult(b'""'), self.now).size
        return ended(record, EncodedToolResult(b'"%b"' % (b"x" * (size - empty))), self.now)


@pytest.fixture
def world() -> World:
    return World()


def test_a_task_counts_what_it_holds_and_something_for_itself(world: World) -> None:
    assert world.task(5 * KB).size == 5 * KB
    assert ended(world.task(5 * KB), EncodedToolResult(b'""'), 0).size >= 4096


def test_at_its_bound_the_oldest_of_a_principal_go_until_an_eighth_is_free(world: World) -> None:
    room = world.room(most_of_one=80 * KB)
    tasks = [world.task(10 * KB, "ada") for _ in range(9)]
    for each in tasks[:8]:
        room.keep(each, world.now)
    assert world.deleted == [], "exactly the bound is kept"
    room.keep(tasks[8], world.now)
    assert world.deleted == [each.id for each in tasks[:2]]


def test_nobody_pushes_out_what_belongs_to_another(world: World) -> None:
    room = world.room(most_of_one=80 * KB)
    room.keep(hers := world.task(70 * KB, "eve"), world.now)
    mine = [world.task(50 * KB, "ada") for _ in range(3)]
    for each in mine:
        room.keep(each, world.now)
    assert hers.id not in world.deleted
    assert world.deleted == [each.id for each in mine[:2]]


def test_the_newest_stays_however_large_it_is(world: World) -> None:
    room = world.room(most_of_one=80 * KB)
    room.keep(old := world.task(5 * KB, "ada"), world.now)
    room.keep(world.task(90 * KB, "ada"), world.now)
    assert world.deleted == [old.id]


def test_callers_without_a_principal_count_as_one(world: World) -> None:
    room = world.room(most_of_one=80 * KB)
    tasks = [world.task(50 * KB, None) for _ in range(2)]
    for each in tasks:
        room.keep(each, world.now)
    assert world.deleted == [tasks[0].id]


def test_a_task_that_never_expires_is_counted_too(world: World) -> None:
    room = world.room(most_of_one=80 * KB)
    tasks = [world.task(50 * KB, "ada", Task(ttl=None)) for _ in range(2)]
    for each in tasks:
        room.keep(each, world.now)
    assert world.deleted == [tasks[0].id]


def test_all_together_fill_the_room_until_tasks_expire(world: World) -> None:
    room = world.room(most=100 * KB, most_of_one=50 * KB)
    assert not room.is_full(world.now)
    for owner in ("ada", "eve"):
        room.keep(world.task(50 * KB, owner), world.now)
        world.now += 2
    assert room.is_full(world.now)
    assert world.deleted == []
    world.now += 3600 + 60
    assert not room.is_full(world.now)
    assert world.store.due("ended", 1e18, 10) == [], "nothing is left of tasks whose records have gone"


def test_what_other_processes_keep_is_counted(world: World) -> None:
    one, other = (world.room(most=400 * KB, most_of_one=200 * KB) for _ in range(2))
    tasks = [world.task(20 * KB, "ada") for _ in range(12)]
    for number, each in enumerate(tasks):
        (one, other)[number % 2].keep(each, world.now)
    assert world.deleted == [each.id for each in tasks[: len(world.deleted)]], "the oldest of all processes go"
    kept = len(tasks) - len(world.deleted)
    assert 20 * kept <= 200
    for owner in ("eve", "bob"):
        for _ in range(6):
            one.keep(world.task(20 * KB, owner), world.now)
    world.now += 31
    assert other.is_full(world.now)


def test_counting_costs_less_and_less_for_each_task(world: World) -> None:
    room = world.room(most=100_000 * KB, most_of_one=50_000 * KB)
    read, due = [0], world.store.due

    def counting(queue: str, now: float, limit: int) -> Any:
        found = due(queue, now, limit)
        read[0] += len(found)
        return found

    world.store.due = counting  # type: ignore[method-assign]
    world.store.another = lambda: world.store  # type: ignore[method-assign]
    for _ in range(1000):
        world.now -= 0.01  # of one moment, as no count is due for its age
        room.keep(world.task(5 * KB, "ada"), world.now)
    assert read[0] < 10_000


def test_a_task_that_is_counted_twice_counts_once(world: World) -> None:
    room = world.room(most_of_one=80 * KB)
    task = world.task(50 * KB, "ada")
    for _ in range(3):
        room.keep(task, world.now)
    assert world.deleted == []
