"""A process of a server with tasks is killed at each operation of the store, also during a deploy: no task is left behind."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final

import pytest

from extensions.task_processes import PATIENCE, Process, Time, World, reply
from linkspan.extensions.task_store import TaskStore
from linkspan.server.task_settings import Task
from linkspan.stores import MemoryStore

AGAIN: Final = Task(restart="always")
OPERATIONS: Final = ("get", "put", "delete", "schedule", "due", "publish")
LATEST: Final = 310.0
"""Seconds after which a task has ended whose process was killed: of the rarest look at one, five minutes, and of a few more."""
pytestmark = pytest.mark.filterwarnings("ignore:Exception in thread linkspan-worker")  # it is of a process that is dead


class Killed(SystemExit):
    """The process is dead: nothing that it does from now on happens."""


class MortalStore:
    """A handle of a store, whose process dies after so many operations."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store
        self.left = 10**9

    def __getattr__(self, name: str) -> Any:
        operation = getattr(self._store, name)
        if name not in OPERATIONS:
            return operation

        def carry_out(*arguments: Any, **options: Any) -> Any:
            if self.left == 0:
                raise Killed
            self.left -= 1
            return operation(*arguments, **options)

        return carry_out


class Place:
    """A process, and the one that replaces it when it has died."""

    def __init__(self, deploy: Deploy, *, has_tool: bool = True, engine: bool = False, holds: bool = False) -> None:
        """`holds`: its runs do not end."""
        self._deploy, self._has_tool, self._engine, self._holds = deploy, has_tool, engine, holds
        self.replace()

    def replace(self) -> None:
        self.process = self._deploy.world.process(AGAIN, engine=self._deploy if self._engine else None)
        self.store = self._deploy.handles[-1]
        self.process.missing = set() if self._has_tool else {"quick", "hold_and_ask"}
        if (queue := self.process._submit_queue) is not None:
            queue.put = self._deploy.submit  # type: ignore[method-assign]
        if self._holds:
            self.process.runs.start = lambda run, step: None  # type: ignore[method-assign]

    def act(self, what: Callable[[Process], object]) -> bool:
        """Do something; return whether the process lives, and replace it if not."""
        give_up = time.monotonic() + PATIENCE
        with suppress(Killed):
            what(self.process)
            while self.process.runs.by_id and self.store.left and not self._holds:
                assert time.monotonic() < give_up
                time.sleep(0.0002)
        lives = self.store.left > 0
        if not lives:
            self.replace()
        return lives


class Deploy:
    """Processes of two releases, of which the old one does not have the tools; with an engine its workers take jobs in turn."""

    def __init__(self, *, engine: bool, old_first: bool) -> None:
        self.clock, self.handles = Time(), list[MortalStore]()
        memory = MemoryStore(self.clock)

        def another() -> Any:
            self.handles.append(MortalStore(memory.another()))
            return self.handles[-1]

        self.world, self.tasks = World(another, self.clock), TaskStore(lambda: memory, "indexer")
        self.world.held.set()
        self.jobs = deque[str]()
        self.old, self.new = (Place(self, has_tool=each, engine=engine) for each in (False, True))
        self.serving = [self.old, self.new] if old_first else [self.new, self.old]
        self.workers = [Place(self, has_tool=each, engine=True) for each in (False, True)] if engine else []

    def submit(self, task_id: str) -> None:
        self.jobs.append(task_id)

    def call(self, tool: str = "quick", *, waits: bool = False) -> str:
        """Make a task, perhaps one for which there is no room yet."""
        tasks = list[str]()
        self.new.process._stopping = waits
        assert self.new.act(lambda process: tasks.append(process.call(tool)))
        self.new.process._stopping = False
        return tasks[0]

    def hold(self) -> tuple[Place, str]:
        """Let another process begin a task that does not end there."""
        place = Place(self, holds=True)
        return place, place.process.call("quick")

    def pass_time(self, seconds: float) -> None:
        """Let each process do what it does from time to time."""
        for place in self.serving:
            place.act(lambda process: process.turn(self.clock.now))
        for task_id in [*self.jobs]:
            self.jobs.remove(task_id)
            worker = self.workers.pop(0)
            self.workers.append(worker)
            worker.act(lambda process, task_id=task_id: process.run_now(task_id))
        self.clock.now += seconds

    def let_all_end(self) -> None:
        """Wait until nothing is scheduled, and no longer than it may take."""
        began = self.clock.now
        while self.tasks.schedule.due(began + 1e9, 1):
            assert self.clock.now - began <= LATEST
            self.pass_time(2.0)


@contextmanager
def deploy(*, engine: bool, old_first: bool = False) -> Iterator[Deploy]:
    made = Deploy(engine=engine, old_first=old_first)
    try:
        yield made
    finally:
        for handle in made.handles:
            handle.left = 10**9
        made.world.end()


CASES = [
    (state, engine, victim, old_first)
    for state in ("new", "waiting", "lost")
    for engine in (False, True)
    for victim in range(4 if engine else 2)
    for old_first in (False, True)
    if not (state == "waiting" and engine)
]


@pytest.mark.parametrize(("state", "engine", "victim", "old_first"), CASES)
def test_a_task_ends_at_whatever_operation_a_process_is_killed(
    state: str, engine: bool, victim: int, old_first: bool
) -> None:
    """The new process that serves is killed, the old one, or a worker of either release, while they look after a task."""
    operation, lives, task_id = 0, False, ""
    while not lives:
        with deploy(engine=engine, old_first=old_first) as world:
            if state != "new":
                task_id = world.hold()[1] if state == "lost" else world.call(waits=True)
            place = [world.new, world.old, *world.workers][victim]
            place.store.left, process = operation, place.process
            if state == "new":
                place.act(lambda process: process.call("quick"))
            world.let_all_end()
            lives = place.process is process
            assert not task_id or world.new.process.see(task_id)["status"] == "completed"
        operation += 1
    assert operation > 1 or (state, engine, victim) == ("new", False, 1)


def answer(process: Process, task_id: str) -> None:
    if process.see(task_id)["status"] == "input_required":
        reply(process, task_id, "Ada")


def cancel(process: Process, task_id: str) -> None:
    record = process.find(task_id)
    assert record is not None
    process.cancel(record)


def stop(process: Process, task_id: str) -> None:
    process.leave(process, within=0.0)


@pytest.mark.parametrize("engine", [False, True])
@pytest.mark.parametrize(("action", "state"), [(answer, "asks"), (cancel, "waits"), (cancel, "runs"), (stop, "runs")])
def test_a_task_ends_at_whatever_operation_a_process_is_killed_that_is_asked_for_something(
    action: Callable[[Process, str], object], state: str, engine: bool
) -> None:
    """A client that got no response asks the next process."""
    operation, lives = 0, False
    while not lives:
        with deploy(engine=engine) as world:
            place = world.new
            if state == "runs":
                holder, task_id = world.hold()
                world.serving.append(holder)
                place = holder if action is stop else place
            else:
                task_id = world.call("hold_and_ask" if state == "asks" else "quick", waits=state == "waits")
            while state == "asks" and place.process.see(task_id)["status"] == "working":
                world.pass_time(1.0)
            place.store.left = operation
            lives = place.act(lambda process, task_id=task_id: action(process, task_id))
            place.store.left = 10**9
            if action is stop:
                world.serving.remove(place)
            elif not lives:
                place.act(lambda process, task_id=task_id: action(process, task_id))
            world.let_all_end()
            assert world.new.process.see(task_id)["status"] == ("cancelled" if action is cancel else "completed")
        operation += 1
    assert operation > 2
