"""Processes that run the tasks of one server on one store: each runner here stands for one, and time is an argument."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Callable, Sequence
from queue import Queue
from typing import Any, cast

from linkspan import Context, Server
from linkspan.core.call import Call, Lifespan
from linkspan.errors import RemoteProtocolError
from linkspan.extensions.task_record import TaskRecord, detailed
from linkspan.extensions.task_runner import TaskRunner
from linkspan.extensions.task_store import TaskStore
from linkspan.revisions import LATEST
from linkspan.revisions.neutral import NO_FACTS, Outcome, Peer, Request, TransportInfo, read_only
from linkspan.runtime.system import SYSTEM
from linkspan.server.handlers import target_of
from linkspan.server.task_settings import Task
from linkspan.stores import Store
from linkspan.types.messages import CallToolParams

PATIENCE = 60.0
LEASE = 20.0
DEFAULT = Task()


class Time:
    """A clock that stands still."""

    def __init__(self) -> None:
        self.now = time.time()

    def __call__(self) -> float:
        return self.now


class Process(TaskRunner):
    """A runner whose turns are taken by the test, and its host."""

    def __init__(self, server: Server, store: Store, clock: Time | None, settings: Task, **options: Any) -> None:
        self.server = server
        self.announced: Queue[dict[str, Any]] = Queue()
        self.listened: set[str] = set()
        self.restart_settings, self.repeatable = settings, False
        self.missing: set[str] = set()
        """Tools that this process does not have, as one of another release."""
        self.not_taken: set[str] = set()
        """Tools that take other arguments here."""
        super().__init__(
            self, TaskStore(lambda: store, server.name), random=SYSTEM.random, clock=clock, lease=LEASE, **options
        )

    def wake(self) -> None:
        """Leave turns to the test."""

    # The host.

    lifespan: Lifespan | None = None

    def begin(self, request: Request) -> Outcome | Call:
        return self.server._dispatcher.begin(request)

    def reopen(self, request: Request, since: float) -> None:
        request.round = self.server._dispatcher.rounds.open(request, target_of(request.params) or "", at=since)

    def settings(self, record: TaskRecord) -> tuple[Task | None, bool]:
        return self.restart_settings, self.repeatable

    def can_run(self, record: TaskRecord) -> bool:
        return record.tool not in self.missing | self.not_taken

    def tools(self) -> Sequence[str]:
        return sorted({each.spec.name for each in self.server._catalogue.tools.all()} - self.missing)

    def announce(self, record: TaskRecord) -> None:
        self.announced.put(json.loads(detailed(record)))

    def listened_to(self) -> set[str]:
        return self.listened

    def unsendable(self, request: Request, error: Exception) -> RemoteProtocolError:
        return self.server._dispatcher.unsendable(request, error)

    # For the tests.

    def call(self, tool: str, settings: Task | None = None, owner: str | None = None, **arguments: object) -> str:
        text = json.dumps({"name": tool, "arguments": arguments}).encode()
        params = json_params(text)
        peer = Peer(LATEST, read_only({"elicitation": {}}))
        facts = NO_FACTS if owner is None else TransportInfo(principal=owner)
        return self.create(Request(1, "tools/call", params, peer, facts=facts), settings or self.restart_settings).id

    def see(self, task_id: str) -> dict[str, Any]:
        record = self.tasks.get(task_id)
        assert record is not None
        return json.loads(detailed(record))

    def wait(self, task_id: str, *statuses: str) -> dict[str, Any]:
        give_up = time.monotonic() + PATIENCE
        while (found := self.see(task_id))["status"] not in statuses or task_id in self.runs.by_id:
            assert time.monotonic() < give_up, found
            time.sleep(0.002)
        return found

    def turn_until_ended(self, tasks: Sequence[str]) -> None:
        give_up, clock = time.monotonic() + PATIENCE, cast("Time", self._clock)
        while any(self.see(each)["status"] == "working" for each in tasks):
            clock.now += 0.1  # a task whose place becomes free in the middle of a look is looked at again later
            self.turn(clock.now)
            assert time.monotonic() < give_up
            time.sleep(0.002)  # or hours pass, and the time of the tasks is over


def json_params(text: bytes) -> CallToolParams:
    import msgspec

    return msgspec.json.decode(text, type=CallToolParams)


class World:
    """Several processes on one store."""

    def __init__(self, another: Callable[[], Store], clock: Time) -> None:
        self.clock = clock
        self._another = another
        self.begun: Queue[int] = Queue()
        self.held = threading.Event()
        self.processes: list[Process] = []

    def process(self, settings: Task = DEFAULT, **options: Any) -> Process:
        server = Server("indexer", request_state_keys=["a key that all processes have in common"])

        @server.tool
        def index(shards: int, ctx: Context) -> str:
            self.begun.put(shards)
            ctx.progress(1, total=shards, message="begun")
            assert self.held.wait(PATIENCE)
            ctx.raise_if_cancelled()
            return f"indexed {shards}"

        @server.tool
        def quick() -> str:
            self.begun.put(1)
            return "done"

        @server.tool
        async def rest() -> str:
            self.begun.put(1)
            await asyncio.sleep(PATIENCE)
            return "rested"

        @server.tool
        def ask(ctx: Context) -> str:
            self.begun.put(1)
            return f"hello {ctx.ask('name', str, 'Who?')} of {ctx.ask('town', str, 'Where?')}"

        @server.tool
        def hold_and_ask(ctx: Context) -> str:
            self.begun.put(1)
            assert self.held.wait(PATIENCE)
            return f"hello {ctx.ask('name', str, 'Who?')}"

        @server.tool
        def refuse() -> str:
            raise RemoteProtocolError(-32000, "not today")

        @server.tool
        def unsendable() -> object:
            return object()

        self.processes.append(Process(server, self._another(), self.clock, settings, **options))
        return self.processes[-1]

    def end(self) -> None:
        """Let all processes stop."""
        self.held.set()
        for each in self.processes:
            each.leave(self, within=0.0)


def reply(process: Process, task_id: str, text: object) -> None:
    record = process.tasks.get(task_id)
    assert record is not None
    task = process.see(task_id)
    answers: dict[str, Any] = {}
    for key, asked in task["inputRequests"].items():
        (member,) = asked["params"]["requestedSchema"]["properties"]
        answers[key] = {"action": "accept", "content": {member: text}}
    process.answer(record, answers)
