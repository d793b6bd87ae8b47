"""Runs of tasks in processes that share a store."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from queue import Queue
from typing import Any

import pytest

from client.faces import wait_until
from extensions.task_processes import DEFAULT, LEASE, PATIENCE, Process, Time, World, json_params, reply
from linkspan import Server
from linkspan.core.call import Call
from linkspan.errors import RemoteProtocolError
from linkspan.extensions.task_record import TaskRecord, submitted
from linkspan.extensions.task_runner import TaskRunner
from linkspan.extensions.task_store import TaskStore, Ticket, new_id
from linkspan.revisions import LATEST
from linkspan.revisions.neutral import Peer, Request, read_only
from linkspan.runtime.system import SYSTEM
from linkspan.server.task_settings import Task, TaskEngine
from linkspan.stores import MemoryStore, SqliteStore, Store, StoreError


@pytest.fixture(params=["memory", "sqlite"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    clock = Time()
    if request.param == "memory":
        memory = MemoryStore(clock)
        yield (world := World(memory.another, clock))
        world.end()
        return
    opened: list[SqliteStore] = []

    def another() -> Store:
        opened.append(SqliteStore(tmp_path / "tasks.db"))
        return opened[-1]

    yield (world := World(another, clock))
    world.end()
    for each in opened:
        each.close()


def accept(value: object) -> dict[str, Any]:
    return {"action": "accept", "content": {"value": value}}


def test_a_task_is_in_the_store_before_its_function_has_ended(world: World) -> None:
    """TSK-S4: another process sees it at once."""
    first, second = world.process(), world.process()
    task_id = first.call("index", shards=12)
    assert world.begun.get(timeout=PATIENCE) == 12
    assert second.see(task_id)["status"] == "working"
    world.held.set()
    assert first.wait(task_id, "completed")["result"]["content"] == [{"type": "text", "text": "indexed 12"}]
    assert second.see(task_id) == first.see(task_id)
    assert first.tasks.schedule.due(world.clock.now + 10**6, 9) == []


@pytest.mark.parametrize(
    ("tool", "status", "found"),
    [
        ("quick", "completed", ("result", "content", 0, "text", "done")),
        ("refuse", "failed", ("error", "message", "not today")),
        ("unsendable", "completed", ("result", "isError", True)),
        ("no_such_tool", "failed", ("error", "code", -32602)),
    ],
)
def test_a_task_ends_as_its_call_ends(world: World, tool: str, status: str, found: tuple[Any, ...]) -> None:
    process = world.process()
    value: Any = process.wait(process.call(tool), "completed", "failed")
    assert value["status"] == status
    for key in found[:-1]:
        value = value[key]
    assert value == found[-1]


def test_more_tasks_than_may_run_wait_for_their_turn(world: World) -> None:
    process = world.process(max_tasks=2)
    tasks = [process.call("index", shards=number) for number in range(5)]
    assert {world.begun.get(timeout=PATIENCE) for _ in range(2)} == {0, 1}
    process.turn(world.clock.now)
    assert world.begun.empty()
    assert {process.see(each)["status"] for each in tasks} == {"working"}
    world.held.set()
    process.turn_until_ended(tasks)
    assert sorted(world.begun.queue) == [2, 3, 4]


def test_another_process_takes_a_task_for_which_there_is_no_room(world: World) -> None:
    first, second = world.process(max_tasks=1), world.process()
    first.call("index", shards=1)
    waiting = first.call("quick")
    second.turn(world.clock.now)
    assert second.wait(waiting, "completed")
    world.held.set()


def test_one_principal_cannot_take_all_places(world: World) -> None:
    process = world.process(max_tasks=4)
    tasks = [process.call("index", owner="ada", shards=number) for number in range(70)]
    assert {world.begun.get(timeout=PATIENCE) for _ in range(3)} == {0, 1, 2}
    others = process.call("index", owner="eve", shards=100)
    assert world.begun.get(timeout=PATIENCE) == 100, "her place is free"
    world.held.set()
    process.turn_until_ended([*tasks, others])
    assert sorted(world.begun.queue) == list(range(3, 70)), "each once"


def test_a_task_of_a_principal_waits_for_its_place_while_others_run(world: World) -> None:
    process = world.process(max_tasks=4)
    for number in range(70):
        process.call("index", owner="ada", shards=number)
    assert {world.begun.get(timeout=PATIENCE) for _ in range(3)} == {0, 1, 2}
    elsewhere = world.process(max_tasks=4)
    elsewhere._stopping = True  # so that it only writes
    late = elsewhere.call("index", owner="eve", shards=100)
    world.clock.now += 1.0
    process.turn(world.clock.now)  # the tasks of ada are older
    process.schedule._due_at = 0.0
    process.turn(world.clock.now)
    assert world.begun.get(timeout=PATIENCE) == 100
    assert process.see(late)["status"] == "working"


def test_tasks_that_have_ended_or_gone_are_not_counted(world: World) -> None:
    first, second = (world.process(max_tasks_per_principal=2) for _ in range(2))
    for process in (first, second):
        assert process.wait(process.call("quick", owner="ada"), "completed")
    settings = Task(ttl=60.0)
    asked = first.call("ask", settings, owner="ada")
    first.wait(asked, "input_required")
    second.call("index", settings, owner="ada", shards=1)
    with pytest.raises(RemoteProtocolError, match="max_tasks_per_principal"):
        first.call("quick", owner="ada")
    assert first.call("quick", owner="eve")
    world.clock.now += 200.0  # nothing looked after the tasks until their records went
    assert first.wait(first.call("quick", owner="ada"), "completed")


@pytest.mark.parametrize("restart", ["never", "safe", "always"])
def test_a_task_whose_process_is_gone_ends_as_its_restart_says(world: World, restart: Any) -> None:
    settings = Task(restart=restart)
    gone, other = world.process(settings), world.process(settings)
    task_id = gone.call("index", shards=3)
    assert world.begun.get(timeout=PATIENCE) == 3
    world.clock.now += LEASE - 1
    other.turn(world.clock.now)
    assert other.see(task_id)["status"] == "working"
    assert world.begun.empty(), "the lease is not over"
    world.clock.now += 2
    other.turn(world.clock.now)
    if restart == "always":
        assert world.begun.get(timeout=PATIENCE) == 3
        world.held.set()
        assert other.wait(task_id, "completed")
        return
    world.held.set()
    assert other.see(task_id)["error"]["message"] == ("the server stopped while it ran; it may have been carried out")
    assert world.begun.empty()


def test_a_result_that_comes_too_late_is_thrown_away(world: World) -> None:
    """Two processes never both win."""
    settings = Task(restart="never")
    slow, other = world.process(settings), world.process(settings)
    task_id = slow.call("index", shards=1)
    world.begun.get(timeout=PATIENCE)
    world.clock.now += LEASE + 1  # as after a pause
    other.turn(world.clock.now)
    failed = other.see(task_id)
    world.held.set()
    run = slow.runs.by_id[task_id]
    assert run.ended.result(PATIENCE)
    assert other.see(task_id) == failed


def test_the_lease_of_a_long_task_is_renewed(world: World) -> None:
    owner, other = world.process(), world.process()
    task_id = owner.call("index", shards=1)
    for _ in range(10):
        world.clock.now += LEASE / 2
        owner.turn(world.clock.now)
        other.turn(world.clock.now)
    world.held.set()
    assert owner.wait(task_id, "completed")
    assert world.begun.qsize() == 1


def test_leases_and_times_are_those_of_the_clock_of_the_store() -> None:
    clock = Time()
    clock.now -= 40 * 365 * 86400
    store = MemoryStore(clock)
    server = Server("indexer")
    server.define_tool("quick", handler=lambda: "done")
    process = Process(server, store, None, DEFAULT)
    task_id = process.call("quick")
    found = process.tasks.get(task_id)
    assert found is not None
    assert found.created == clock.now
    process.wait(task_id, "completed")
    process.leave(process, within=0.0)


def test_a_lease_that_is_lost_before_its_end_is_warned_of_once(world: World, caplog: pytest.LogCaptureFixture) -> None:
    first, second = world.process(Task(restart="always")), world.process(Task(restart="always"))
    tasks = [first.call("index", shards=number) for number in range(2)]
    for _ in tasks:
        world.begun.get(timeout=PATIENCE)
    second.turn(world.clock.now + LEASE + 1)  # its clock is ahead
    for _ in tasks:
        world.begun.get(timeout=PATIENCE)
    world.clock.now += LEASE / 4
    first.turn(world.clock.now)
    (warned,) = [each.getMessage() for each in caplog.records if "clocks" in each.getMessage()]
    assert re.match(r"another process has claimed the task [0-9a-f]{32} 15\.0 s before its lease was over: ", warned)


def test_a_lease_that_is_lost_after_its_end_is_nothing_to_warn_of(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    first, second = world.process(Task(restart="always")), world.process(Task(restart="always"))
    first.call("index", shards=1)
    world.begun.get(timeout=PATIENCE)
    world.clock.now += LEASE + 1
    second.turn(world.clock.now)
    world.begun.get(timeout=PATIENCE)
    first.turn(world.clock.now)
    assert not first.runs.by_id
    assert "clocks" not in caplog.text


@pytest.mark.parametrize("is_there", [True, False])
def test_a_lease_that_ran_out_while_no_process_had_a_turn_is_its_owners_for_a_while(
    world: World, is_there: bool
) -> None:
    """The store was away from all of them, or their host was."""
    owner, other = world.process(Task(restart="never")), world.process(Task(restart="never"))
    task_id = owner.call("index", shards=1)
    other.attach(world, lambda: None)
    other.turn(world.clock.now)
    world.clock.now += LEASE + 1
    other.turn(world.clock.now)
    assert other.see(task_id)["status"] == "working"
    for _ in range(4):
        world.clock.now += LEASE / 4
        if is_there:
            owner.turn(world.clock.now)
        other.turn(world.clock.now)
    world.held.set()
    assert owner.wait(task_id, "completed" if is_there else "failed")


def test_a_process_whose_turns_are_slow_takes_tasks_over_all_the_same(world: World) -> None:
    gone, other = world.process(Task(restart="never")), world.process()
    task_id = gone.call("index", shards=1)
    other.attach(world, lambda: None)
    for _ in range(10):
        world.clock.now += LEASE / 2
        other.turn(world.clock.now)
    assert other.see(task_id)["status"] == "failed"


def test_progress_becomes_the_message_of_the_task(world: World) -> None:
    owner, other = world.process(), world.process()
    task_id = owner.call("index", shards=12)
    world.begun.get(timeout=PATIENCE)
    give_up = time.monotonic() + PATIENCE
    while "statusMessage" not in other.see(task_id):
        owner.turn(world.clock.now)
        assert time.monotonic() < give_up
    assert other.see(task_id)["statusMessage"] == "begun"
    assert owner.announced.get(timeout=PATIENCE)["statusMessage"] == "begun"
    world.held.set()
    assert owner.wait(task_id, "completed")


def test_a_question_frees_the_process_and_any_process_goes_on(world: World) -> None:
    first, second = world.process(), world.process()
    share_keys(first, second)
    task_id = first.call("ask")
    asked = first.wait(task_id, "input_required")
    assert list(asked["inputRequests"]) == ["name"]
    assert not first.runs.by_id
    reply(second, task_id, "Ada")
    assert second.see(task_id)["status"] == "working"
    second.turn(world.clock.now)
    assert list(second.wait(task_id, "input_required")["inputRequests"]) == ["town"]
    reply(first, task_id, "Turin")
    first.turn(world.clock.now)
    assert first.wait(task_id, "completed")["result"]["content"][0]["text"] == "hello Ada of Turin"
    assert world.begun.qsize() == 3, "the body runs again from the top with each answer"


def test_answers_count_however_long_the_user_took(world: World) -> None:
    process = world.process(Task(ttl=None))
    task_id = process.call("ask")
    process.wait(task_id, "input_required")
    world.clock.now += 90_000
    reply(process, task_id, "Ada")
    process.turn(world.clock.now)
    assert process.wait(task_id, "input_required", "failed")["status"] == "input_required"


def share_keys(*processes: Process) -> None:
    """Seal what a round knows with the same keys, as a store gives them."""
    for each in processes[1:]:
        each.server._dispatcher.rounds._made["keys"] = processes[0].server._dispatcher.rounds.keys()


def test_a_cancelled_coroutine_is_stopped_in_its_process(world: World) -> None:
    owner, other = world.process(), world.process()
    task_id = owner.call("rest")
    world.begun.get(timeout=PATIENCE)
    record = other.tasks.get(task_id)
    assert record is not None
    other.cancel(record)
    assert other.see(task_id)["status"] == "working", "an acknowledgement promises nothing"
    owner.receive("cancelled", task_id)
    owner.turn(world.clock.now)
    assert owner.wait(task_id, "cancelled")
    assert not other.runs.by_id


def test_a_cancellation_that_was_not_heard_is_seen_with_the_next_renewal(world: World) -> None:
    owner, other = world.process(), world.process()
    task_id = owner.call("rest")
    world.begun.get(timeout=PATIENCE)
    other.cancel(other.tasks.get(task_id))  # type: ignore[arg-type]
    world.clock.now += LEASE / 2
    owner.turn(world.clock.now)
    assert owner.wait(task_id, "cancelled")


def test_a_plain_function_that_looks_is_cancelled(world: World) -> None:
    process = world.process()
    task_id = process.call("index", shards=1)
    world.begun.get(timeout=PATIENCE)
    process.cancel(process.tasks.get(task_id))  # type: ignore[arg-type]
    world.held.set()
    assert process.wait(task_id, "cancelled", "completed")["status"] == "cancelled"


def test_a_task_that_waits_is_cancelled_at_once(world: World) -> None:
    process = world.process()
    task_id = process.call("ask")
    process.wait(task_id, "input_required")
    process.cancel(process.tasks.get(task_id))  # type: ignore[arg-type]
    assert process.see(task_id)["status"] == "cancelled"
    assert process.tasks.schedule.due(world.clock.now + 10**6, 9) == []


def test_a_cancelled_task_whose_process_is_gone_is_cancelled(world: World) -> None:
    settings = Task(restart="always")
    gone, other = world.process(settings), world.process(settings)
    task_id = gone.call("rest")
    world.begun.get(timeout=PATIENCE)
    other.cancel(other.tasks.get(task_id))  # type: ignore[arg-type]
    world.clock.now += LEASE + 1
    other.turn(world.clock.now)
    assert other.see(task_id)["status"] == "cancelled"


def test_a_task_ends_with_its_time_to_live(world: World) -> None:
    process = world.process(Task(ttl=100.0))
    running, waiting = process.call("rest"), process.call("ask")
    world.begun.get(timeout=PATIENCE)
    process.wait(waiting, "input_required")
    for _ in range(11):
        world.clock.now += 10
        process.turn(world.clock.now)
    for task_id in (running, waiting):
        task = process.wait(task_id, "failed")
        assert task["error"]["message"] == "the task did not end within its time to live (100 s)"


def test_a_task_fails_within_a_second_of_its_end(world: World) -> None:
    """It runs here, or in a process that is gone, or waits; and who reads it sees that at once."""
    process, other = world.process(Task(ttl=3.0), max_tasks=1), world.process()
    other.missing = {"quick"}
    running, waiting = process.call("index", shards=1), process.call("quick")
    world.begun.get(timeout=PATIENCE)
    process.turn(world.clock.now)
    world.clock.now += 2.5
    assert process.turn(world.clock.now) == pytest.approx(0.5)
    other.turn(world.clock.now)
    world.clock.now += 0.6
    found = process.find(running)
    assert found is not None
    assert (found.status, process.see(running)["status"]) == ("failed", "working")
    process._stopping = True
    process.turn(world.clock.now)
    assert (process.see(running)["status"], process.see(waiting)["status"]) == ("failed", "working")
    other.schedule._due_at = 0.0
    other.turn(world.clock.now)
    for task_id in (running, waiting):
        assert process.see(task_id)["error"]["message"].startswith("the task did not end within its time to live (3 s)")
    world.held.set()


@pytest.mark.parametrize("tool", ["index", "hold_and_ask"])
def test_a_result_after_the_time_to_live_does_not_count(world: World, tool: str) -> None:
    process, other = world.process(Task(ttl=3.0)), world.process()
    task_id = process.call(tool, **({"shards": 1} if tool == "index" else {}))
    world.begun.get(timeout=PATIENCE)
    run = process.runs.by_id[task_id]
    world.clock.now += 3.0
    world.held.set()
    assert run.ended.result(PATIENCE)
    task = other.wait(task_id, "failed", "completed", "input_required")
    assert task["error"]["message"] == "the task did not end within its time to live (3 s)"
    assert all_queues(other) == []


def test_a_task_of_a_dead_process_ends_with_its_time_to_live_though_its_lease_goes_on(world: World) -> None:
    dead, other = world.process(Task(ttl=5.0)), world.process()
    task_id = dead.call("index", shards=1)
    world.begun.get(timeout=PATIENCE)
    world.clock.now += 5.0
    other.turn(world.clock.now)
    assert other.see(task_id)["status"] == "failed"
    world.held.set()


def test_a_task_that_waits_in_an_engine_fails_within_a_second_of_its_end(world: World) -> None:
    process = world.process(Task(ttl=5.0), engine=Jobs())
    task_id = process.call("quick")
    for _ in range(5):
        assert process.see(task_id)["status"] == "working"
        world.clock.now += 1.0
        process.turn(world.clock.now)
    assert process.see(task_id)["status"] == "failed"
    assert all_queues(process) == []


def test_answers_and_cancellations_after_the_time_to_live_do_not_count(world: World) -> None:
    process = world.process(Task(ttl=5.0))
    asked, cancelled = process.call("ask"), process.call("ask")
    for each in (asked, cancelled):
        process.wait(each, "input_required")
    records = [process.tasks.get(each) for each in (asked, cancelled)]
    world.clock.now += 5.0
    reply(process, asked, "Ada")
    process.cancel(records[1])  # type: ignore[arg-type]
    assert [process.see(each)["status"] for each in (asked, cancelled)] == ["failed", "failed"]
    assert all_queues(process) == []


def test_a_process_that_stops_gives_its_tasks_back(world: World) -> None:
    stopping, other = world.process(Task(restart="always")), world.process(Task(restart="always"))
    task_id = stopping.call("index", shards=1)
    world.begun.get(timeout=PATIENCE)
    stopping.leave(world, within=0.0)
    world.held.set()
    other.turn(world.clock.now)  # at once: nothing has to wait for the lease
    assert other.wait(task_id, "completed")
    assert world.begun.qsize() == 1


def test_a_process_that_is_asked_to_stop_loses_no_run(world: World) -> None:
    settings = Task(attempts=2)
    processes = [world.process(settings) for _ in range(5)]
    for each in processes:
        each.repeatable = True
    task_id = processes[0].call("index", shards=1)
    for stopping, other in pairwise(processes):
        assert world.begun.get(timeout=PATIENCE) == 1
        stopping.leave(world, within=0.0)
        other.turn(world.clock.now)
    assert world.begun.get(timeout=PATIENCE) == 1
    record = processes[-1].tasks.get(task_id)
    assert record is not None
    assert (record.lost, record.running) == (0, True)
    world.held.set()
    assert processes[-1].wait(task_id, "completed")


def test_a_process_that_stops_waits_for_its_tasks(world: World) -> None:
    process = world.process(Task(restart="never"))
    task_id = process.call("index", shards=1)
    world.begun.get(timeout=PATIENCE)
    threading.Timer(0.05, world.held.set).start()
    process.leave(world, within=PATIENCE)
    assert process.see(task_id)["status"] == "completed"


def test_a_process_that_has_left_begins_nothing(world: World) -> None:
    gone, serving = world.process(), world.process(max_tasks=0)
    gone.turn(world.clock.now)
    gone.leave(world, within=0.0)
    assert gone.schedule.checked_at is None, "what it knew is of long ago when somebody needs it again"
    task_id = serving.call("quick")
    gone.turn(world.clock.now)
    assert gone.runs.by_id == {}
    assert gone.see(task_id)["status"] == "working"
    gone.attach(world, lambda: None)  # until somebody needs it again
    gone.turn(world.clock.now)
    assert gone.wait(task_id, "completed")


def test_a_task_that_may_not_run_again_fails_when_its_process_stops(world: World) -> None:
    process = world.process(Task(restart="never"))
    task_id = process.call("index", shards=1)
    world.begun.get(timeout=PATIENCE)
    process.leave(world, within=0.0)
    assert process.see(task_id)["error"]["message"] == ("the server stopped while it ran; it may have been carried out")
    world.held.set()


# Two releases of a server on one store.


def test_a_process_leaves_a_task_whose_tool_it_does_not_have_to_others(world: World) -> None:
    old, new = world.process(), world.process(max_tasks=1)
    old.missing = {"index", "quick"}
    tasks = [new.call("index", shards=1), new.call("quick")]
    for _ in range(3):
        world.clock.now += 1.0
        old.turn(world.clock.now)
    assert [new.see(each)["status"] for each in tasks] == ["working", "working"]
    world.held.set()
    new.turn_until_ended(tasks)
    assert world.begun.qsize() == 2
    assert all_queues(new) == []


@pytest.mark.parametrize("running", [True, False])
def test_a_process_whose_tool_takes_other_arguments_takes_no_turn_from_others(world: World, running: bool) -> None:
    """It looks before the others each time: no task of these waits for it, and it reads each record once."""
    settings = Task(restart="always")
    gone, old, new = world.process(settings, max_tasks=9 * running), world.process(), world.process(settings)
    old.not_taken = {"index"}
    tasks = [gone.call("index", shards=number) for number in range(8)]
    world.clock.now += LEASE + 1
    read: list[str] = []
    get = old.tasks.get
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(old.tasks, "get", lambda task_id: read.append(task_id) or get(task_id))
        for _ in range(30):
            world.clock.now += 1.0
            old.turn(world.clock.now)
    assert {new.see(each)["status"] for each in tasks} == {"working"}
    assert len(read) <= 2 * len(tasks), "when it leaves each, and when it meets each in the queue of its tool"
    world.held.set()
    new.turn_until_ended(tasks)
    assert {new.see(each)["status"] for each in tasks} == {"completed"}
    wait_until(lambda: not gone.runs.by_id)
    for _ in range(2 * len(new.tools())):
        world.clock.now += LEASE
        new.turn(world.clock.now)
    assert all_queues(new) == []


@pytest.mark.parametrize(("repeatable", "status"), [(True, "completed"), (False, "failed")])
def test_a_process_without_the_tool_does_not_judge_a_lost_run(world: World, repeatable: bool, status: str) -> None:
    gone, old, new = (world.process(Task()) for _ in range(3))
    old.missing, new.repeatable = {"index"}, repeatable
    task_id = gone.call("index", shards=1)
    world.begun.get(timeout=PATIENCE)
    world.clock.now += LEASE + 1
    old.turn(world.clock.now)
    assert old.see(task_id)["status"] == "working"
    for _ in range(12):  # one of its tools in each look
        world.clock.now += 1.0
        new.turn(world.clock.now)
    world.held.set()
    assert new.wait(task_id, "completed", "failed")["status"] == status
    assert all_queues(new) == []


@pytest.mark.parametrize("ttl", [100.0, None])
def test_a_task_whose_tool_no_process_has_fails_with_a_sentence(world: World, ttl: float | None) -> None:
    new, old = world.process(max_tasks=0), world.process()
    old.missing = {"quick"}
    task_id = new.call("quick", Task(ttl=ttl), owner="ada")
    for _ in range(3):
        world.clock.now += 30.0
        old.turn(world.clock.now)
    assert old.see(task_id)["status"] == "working"
    world.clock.now += 11.0 if ttl is not None else 86400.0
    old.turn(world.clock.now)
    waited = "the task did not end within its time to live (100 s)" if ttl else "the task has waited for 86400 s"
    assert old.see(task_id)["error"]["message"] == f"{waited}: no process that has its tool, quick, had room for it"
    assert all_queues(old) == []


def test_a_lost_run_whose_tool_no_process_has_fails_after_a_day(world: World) -> None:
    dead, other = world.process(Task(ttl=None)), world.process()
    other.missing = {"index"}
    task_id = dead.call("index", shards=1)
    world.begun.get(timeout=PATIENCE)
    for seconds in (LEASE + 1, 86400.0):
        assert other.see(task_id)["status"] == "working"
        world.clock.now += seconds
        other.turn(world.clock.now)
    assert other.see(task_id)["error"]["message"] == "the server stopped while it ran; it may have been carried out"
    assert all_queues(other) == []
    world.held.set()


def test_tasks_of_another_release_do_not_keep_others_from_their_turn(world: World) -> None:
    new, old = world.process(max_tasks=0, max_tasks_per_principal=1000), world.process(max_tasks=2)
    old.missing = {"index"}
    for number in range(150):
        new.call("index", shards=number)
    task_id = new.call("quick")
    old.turn(world.clock.now)
    old.wait(task_id, "completed")


@pytest.mark.parametrize("missing", [set[str](), {"quick"}], ids=["waits", "was left"])
def test_a_task_that_is_cancelled_before_it_runs_is_in_no_queue(world: World, missing: set[str]) -> None:
    making, other = world.process(max_tasks=0), world.process()
    other.missing = missing
    task_id = making.call("quick")
    if missing:
        other.turn(world.clock.now)
    making.cancel(making.tasks.get(task_id))  # type: ignore[arg-type]
    assert making.see(task_id)["status"] == "cancelled"
    assert all_queues(making) == []


def all_queues(process: Process) -> list[str]:
    """Return what is left in the queues of tasks."""
    return queued(process.tasks._store())


def queued(store: Store) -> list[str]:
    """Return what is in the queues of tasks of a store, but not those that have ended."""
    if isinstance(store, SqliteStore):
        rows = store._run("SELECT queue, key FROM {p}schedule")
    else:
        assert isinstance(store, MemoryStore)
        rows = [(queue, key) for queue, keys in store._state.queues.items() for key in keys]
    return [f"{queue} {key}" for queue, key in rows if "/ended" not in queue]


def test_rows_of_ended_tasks_are_swept_when_their_records_have_gone(world: World) -> None:
    process = world.process(Task(ttl=10.0))
    world.held.set()
    process.wait(process.call("quick"), "completed")
    process.turn(world.clock.now)
    store, ended = process.tasks._store(), f"{process.tasks._name}/ended"
    assert len(store.due(ended, 1e18, 10)) == 1
    world.clock.now += 10 + 60 + 1
    process.turn(world.clock.now)
    assert not store.due(ended, 1e18, 10)


def test_rows_of_tasks_whose_records_have_gone_are_swept(world: World) -> None:
    """No process was there when their time was over; neither their principals nor their tools come back."""
    gone, other = world.process(Task(ttl=60.0), max_tasks=1), world.process()
    other.missing = {"index", "quick", "ask"}
    for tool in ("index", "quick", "ask"):
        gone.call(tool, owner="ada", **({"shards": 1} if tool == "index" else {}))
    other.turn(world.clock.now)
    store = gone.tasks._store()
    if isinstance(store, SqliteStore):
        store._run("DELETE FROM {p}records")
    else:
        assert isinstance(store, MemoryStore)
        store._state.records.clear()
    world.clock.now += 1000.0
    other.turn(world.clock.now)
    assert all_queues(other) == []
    world.held.set()


# What was interrupted, and many at once.


def test_tasks_whose_time_is_over_at_once_all_end_at_once(world: World) -> None:
    process = world.process(Task(ttl=10.0), max_tasks=0, max_tasks_per_principal=1000)
    tasks = [process.call("quick") for _ in range(150)]
    world.clock.now += 10.0
    turns = 1
    while process.turn(world.clock.now) == 0.0:
        turns += 1
    assert {process.see(each)["status"] for each in tasks} == {"failed"}
    assert turns == 3, "64 in each"
    assert all_queues(process) == []


def test_a_task_that_waits_and_is_in_no_queue_for_that_is_put_back(world: World) -> None:
    """The process that made it wait was lost before it had put it there."""
    lost, other = world.process(max_tasks=0), world.process()
    task_id = lost.call("quick")
    lost.tasks.waiting.remove(ticket_of(lost, task_id))
    world.clock.now += 299.0
    other.turn(world.clock.now)
    assert world.begun.empty()
    world.clock.now += 2.0
    other.turn(world.clock.now)
    assert other.wait(task_id, "completed")
    assert all_queues(other) == []


def ticket_of(process: Process, task_id: str) -> Ticket:
    record = process.tasks.get(task_id)
    assert record is not None
    return Ticket.of(record)


@pytest.mark.parametrize("tool", ["index", "ask"])
def test_a_task_that_could_not_be_taken_out_of_the_queue_is_out_of_the_way(world: World, tool: str) -> None:
    owner, other = world.process(Task(ttl=None)), world.process()
    task_id = owner.call(tool, **({"shards": 1} if tool == "index" else {}))
    world.begun.get(timeout=PATIENCE)
    if tool == "ask":
        owner.wait(task_id, "input_required")
    owner.tasks.waiting.put(ticket_of(owner, task_id), 0.0)
    other.turn(world.clock.now)
    if tool == "index":
        assert owner.tasks.waiting.due(world.clock.now, 9), "its process takes it out at this moment"
    for _ in range(6):
        world.clock.now += 1.0
        owner.turn(world.clock.now)
        other.turn(world.clock.now)
    assert owner.tasks.waiting.due(world.clock.now, 9) == []
    assert other.see(task_id)["status"] == ("working" if tool == "index" else "input_required")
    world.held.set()
    if tool == "ask":
        owner.cancel(owner.tasks.get(task_id))  # type: ignore[arg-type]
    owner.wait(task_id, "completed", "cancelled")
    world.clock.now += LEASE
    other.turn(world.clock.now)
    assert all_queues(other) == []


def test_an_answer_to_nothing_that_was_asked_changes_nothing(world: World) -> None:
    process = world.process(Task(ttl=100.0))
    task_id = process.call("ask")
    process.wait(task_id, "input_required")
    record = process.tasks.get(task_id)
    assert record is not None
    process.answer(record, {"unknown": {"action": "accept"}})
    assert process.tasks.get(task_id) == record
    assert process.tasks.schedule.due(world.clock.now + 99, 9) == []
    assert process.tasks.schedule.due(world.clock.now + 101, 9) == [Ticket.of(record)]


# What a task costs.


class Counting:
    """A store that counts what it is asked for."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.count = 0

    def __getattr__(self, name: str) -> Any:
        self.count += 1
        return getattr(self._store, name)


@pytest.mark.parametrize("owner", [None, "ada"])
def test_a_backlog_costs_no_more_for_each_task_than_a_short_queue(owner: str | None) -> None:
    def operations(count: int) -> float:
        clock = Time()
        memory = MemoryStore(clock)
        store = Counting(memory)
        world = World(lambda: store, clock)  # type: ignore[arg-type, return-value]
        process = world.process(max_tasks=4, max_tasks_per_principal=1000)
        process.runs.max_tasks = 0  # all of them wait
        for _ in range(count):
            process.call("quick", owner=owner)
        process.runs.max_tasks = 4
        while queued(memory) or process.runs.by_id:
            process.turn(clock.now)  # the clock stands still: what a process looks at each second is not counted
            time.sleep(0.001)
        world.end()
        return store.count / count

    short, long = operations(8), operations(400)
    assert long <= short + 1, f"{long:.1f} operations for each task, and {short:.1f} in a short queue"


# A store that fails.


class Failing:
    """A store that fails while `down` is set."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.down = False

    def __getattr__(self, name: str) -> Any:
        if self.down:
            raise StoreError("the store is down")
        return getattr(self._store, name)


def test_a_result_waits_until_the_store_can_be_reached(tmp_path: Path) -> None:
    clock = Time()
    failing = Failing(MemoryStore(clock))
    world = World(lambda: failing, clock)  # type: ignore[arg-type, return-value]
    process = world.process()
    task_id = process.call("index", shards=1)
    world.begun.get(timeout=PATIENCE)
    failing.down = True
    world.held.set()
    run = process.runs.by_id[task_id]
    assert run.ended.result(PATIENCE)
    with pytest.raises(StoreError):
        process.turn(world.clock.now + 1)
    failing.down = False
    process.turn(world.clock.now + 2)
    assert process.wait(task_id, "completed")


def test_a_call_that_ends_while_it_cannot_become_a_task_leaves_room_for_others() -> None:
    clock = Time()
    failing = Failing(MemoryStore(clock))
    world = World(lambda: failing, clock)  # type: ignore[arg-type, return-value]
    process = world.process(max_tasks=1)
    request = Request(1, "tools/call", json_params(b'{"name": "quick"}'), Peer(LATEST, read_only({})))
    step = process.begin(request)
    assert isinstance(step, Call)
    run = process.begin_in_foreground(request, step)
    assert run.ended.result(PATIENCE)
    failing.down = True
    with pytest.raises(StoreError):
        process.become_task(run, DEFAULT)
    process.runs.abandon(run, "the client does not wait any more")
    assert process.runs.has_room()
    failing.down = False
    world.end()


@pytest.mark.parametrize("seconds", [10, 18, 22, 28, 33, 40, 50, 60, 70])
@pytest.mark.parametrize("steps", [(1.0,), (1.0, 0.3)], ids=["each_second", "also_between"])
def test_a_task_that_runs_stays_its_owners_after_any_outage_of_the_store(
    seconds: int, steps: tuple[float, ...]
) -> None:
    clock, memory = Time(), MemoryStore()
    stores: list[Failing] = []

    def another() -> Store:
        stores.append(Failing(memory))
        return stores[-1]  # type: ignore[return-value]

    world = World(another, clock)
    owner, other = world.process(), world.process()
    other.attach(world, lambda: None)

    def take_turns(*processes: Process, step: float) -> None:
        clock.now += step
        for each in processes:
            with suppress(StoreError):
                each.turn(clock.now)

    task_id = owner.call("index", shards=1)
    take_turns(owner, other, step=1.0)
    back = clock.now + seconds
    for each in stores:
        each.down = True
    while clock.now < back:
        for step in steps:
            take_turns(owner, other, step=step)
    for each in stores:
        each.down = False
    take_turns(other, owner, step=1.0)  # the other is first
    world.held.set()
    assert owner.wait(task_id, "completed", "failed")["status"] == "completed"
    assert world.begun.qsize() == 1


def test_an_outage_of_the_store_is_logged_once_however_often_the_process_is_woken(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Woken(Process):
        wake = TaskRunner.wake  # type: ignore[assignment]
        turns: Queue[float] = Queue()

        def turn(self, now: float) -> float | None:
            self.turns.put(now)
            return super().turn(now)

    clock = Time()
    store = Failing(MemoryStore(clock))
    process = Woken(Server("indexer"), store, clock, DEFAULT)  # type: ignore[arg-type]
    store.down = True
    process.attach(clock, lambda: None)
    for _ in range(6):  # every other turn uses the store
        process.turns.get(timeout=PATIENCE)
        clock.now += 0.6
        process.wake()
    process.leave(clock, within=0.0)
    assert [each.message for each in caplog.records] == ["the store of the tasks fails: the store is down"]


class Hasty(Failing):
    """A store that fails after it has carried out what it was asked for, as one does whose answer is lost."""

    def __getattr__(self, name: str) -> Any:
        operation = getattr(self._store, name)

        def carried_out(*arguments: Any, **options: Any) -> Any:
            found = operation(*arguments, **options)
            if self.down:
                raise StoreError("the answer of the store was lost")
            return found

        return carried_out


def test_a_question_is_asked_once_though_the_store_seemed_to_fail() -> None:
    clock = Time()
    store = Hasty(MemoryStore(clock))
    world = World(lambda: store, clock)  # type: ignore[arg-type, return-value]
    process = world.process()
    task_id = process.call("hold_and_ask")
    world.begun.get(timeout=PATIENCE)
    run, store.down = process.runs.by_id[task_id], True
    world.held.set()
    assert run.ended.result(PATIENCE)
    store.down = False
    assert list(process.see(task_id)["inputRequests"]) == ["name"]
    reply(process, task_id, "Ada")
    process.turn(clock.now)
    assert process.wait(task_id, "completed")["result"]["content"][0]["text"] == "hello Ada"
    world.end()


class Late(Failing):
    """A store that carries out what was written while `down` was set, but only when it is read again."""

    late: Callable[[], object] | None = None

    def __getattr__(self, name: str) -> Any:
        if name == "get":
            return self._get
        if name == "put" and self.down:
            return self._put
        return getattr(self._store, name)

    def _put(self, *arguments: Any, **options: Any) -> None:
        self.late = lambda: self._store.put(*arguments, **options)
        raise StoreError("the answer did not come in time")

    def _get(self, key: str) -> Any:
        found = self._store.get(key)
        if not self.down and self.late is not None:
            self.late, late = None, self.late
            late()
        return found


class HastyWrites(Hasty):
    """A store of which only what it writes seems to fail."""

    def __getattr__(self, name: str) -> Any:
        return super().__getattr__(name) if name == "put" else getattr(self._store, name)


@pytest.mark.parametrize("kind", [HastyWrites, Late], ids=["whose answer was lost", "that is carried out late"])
def test_a_claim_that_seemed_to_fail_is_not_a_lost_run(kind: type[Failing]) -> None:
    clock = Time()
    store = kind(MemoryStore(clock))
    world = World(lambda: store, clock)  # type: ignore[arg-type, return-value]
    process = world.process(Task(restart="never"), max_tasks=0)
    task_id = process.call("quick")
    process.runs.max_tasks, store.down = 1, True
    with pytest.raises(StoreError):
        process.schedule._take_waiting(clock.now)
    store.down = False
    for _ in range(2):  # the first one finds what is carried out late
        clock.now += 2
        process.turn(clock.now)
    assert process.see(task_id)["status"] == "completed"
    assert world.begun.qsize() == 1
    world.end()


def test_a_claim_that_another_process_has_prevented_is_not_in_doubt(world: World) -> None:
    owner, other = world.process(), world.process()
    task_id = owner.call("index", shards=1)
    assert other.schedule.claim(task_id, world.clock.now, lambda record: record) is None
    assert other.claims.doubtful == {}


class Silent(Failing):
    """A store that publishes nothing while `down` is set."""

    def __getattr__(self, name: str) -> Any:
        return super().__getattr__(name) if name == "publish" else getattr(self._store, name)


def test_an_end_that_could_not_be_published_is_published_later() -> None:
    clock = Time()
    store = Silent(MemoryStore(clock))
    world = World(lambda: store, clock)  # type: ignore[arg-type, return-value]
    process = world.process(max_tasks=0, shared=lambda: True)
    task_id = process.call("index", Task(ttl=60.0), shards=1)
    heard: Queue[str] = Queue()
    process.tasks.subscribe(lambda what, _: heard.put(what))
    clock.now += 61
    store.down = True
    with pytest.raises(StoreError):
        process.turn(clock.now)
    assert process.see(task_id)["status"] == "failed"
    store.down = False
    clock.now += 2
    process.turn(clock.now)
    assert heard.get(timeout=PATIENCE) == "changed"
    assert process.tasks.schedule.due(clock.now + LEASE, 9) == []
    world.end()


@pytest.mark.parametrize("again", [False, True])
def test_the_end_of_a_cancelled_task_that_could_not_be_published_is_published_later(again: bool) -> None:
    clock = Time()
    store = Silent(MemoryStore(clock))
    world = World(lambda: store, clock)  # type: ignore[arg-type, return-value]
    process = world.process(Task(ttl=None), shared=lambda: True)
    task_id = process.call("ask", owner="ada")
    process.wait(task_id, "input_required")
    record = process.tasks.get(task_id)
    assert record is not None
    heard: Queue[str] = Queue()
    process.tasks.subscribe(lambda what, _: heard.put(what))
    store.down = True
    for _ in range(1 + again):  # a client tries once more
        with pytest.raises(StoreError):
            process.cancel(record)
    assert process.see(task_id)["status"] == "cancelled"
    store.down = False
    clock.now += 6
    process.turn(clock.now)
    assert heard.get(timeout=PATIENCE) == "changed"
    assert process.tasks.count("ada", clock.now, 10) == 0
    assert process.tasks.schedule.due(clock.now + 10**6, 9) == []
    world.end()


def test_after_something_was_missed_clients_get_the_state_of_the_tasks_that_they_listen_for() -> None:
    clock = Time()
    store = Failing(MemoryStore(clock))
    world = World(lambda: store, clock)  # type: ignore[arg-type, return-value]
    process = world.process()
    task_id = process.call("quick")
    process.wait(task_id, "completed")
    while not process.announced.empty():
        process.announced.get()
    process.listened = {task_id}
    process.receive("", "")
    store.down = True
    with pytest.raises(StoreError):
        process.turn(clock.now)
    store.down = False
    process.turn(clock.now)
    assert process.announced.get(timeout=PATIENCE)["status"] == "completed"
    assert process.announced.empty()
    world.end()


def test_a_task_that_cannot_be_read_does_not_keep_others_from_their_turn(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    first, second = world.process(max_tasks=0), world.process()
    alien, task_id = new_id(SYSTEM.random), first.call("quick")
    first.tasks._store().put(first.tasks._key(alien), b"of another release")
    first.tasks.waiting.put(Ticket(alien, "", ""), world.clock.now - 60)
    first.tasks.schedule.put(Ticket(alien, "", ""), world.clock.now - 60)
    second.turn(world.clock.now)
    assert second.wait(task_id, "completed")
    assert f"task {alien} could not be looked after" in caplog.text
    for queue in (second.tasks.waiting, second.tasks.schedule):
        assert alien not in [each.task_id for each in queue.due(world.clock.now, 9)], "it is put off"


# Engines.


class Jobs:
    """An engine that keeps what it gets."""

    def __init__(self) -> None:
        self.jobs: Queue[str] = Queue()

    def submit(self, task_id: str) -> None:
        self.jobs.put(task_id)


def test_an_engine_runs_what_processes_that_serve_make(world: World) -> None:
    engine = Jobs()
    serving, worker = world.process(engine=engine), world.process(engine=engine)
    share_keys(serving, worker)
    port: TaskEngine = engine
    assert port
    task_id = serving.call("ask")
    assert world.begun.empty()
    worker.run_now(engine.jobs.get(timeout=PATIENCE))
    assert worker.see(task_id)["status"] == "input_required"
    reply(serving, task_id, "Ada")
    worker.run_now(engine.jobs.get(timeout=PATIENCE))
    reply(serving, task_id, "Turin")
    again = engine.jobs.get(timeout=PATIENCE)
    worker.run_now(again)
    worker.run_now(again)  # an engine may deliver twice
    assert worker.see(task_id)["status"] == "completed"
    assert world.begun.qsize() == 3


def test_an_engine_that_blocks_delays_neither_leases_nor_answers(world: World) -> None:
    class Blocked(Jobs):
        goes_on = threading.Event()

        def submit(self, task_id: str) -> None:
            super().submit(task_id)
            assert self.goes_on.wait(PATIENCE)

    engine = Blocked()
    serving = world.process(engine=engine)
    first = serving.call("index", shards=1)
    assert engine.jobs.get(timeout=PATIENCE) == first
    running = threading.Thread(target=serving.run_now, args=(first,), daemon=True)
    running.start()
    assert world.begun.get(timeout=PATIENCE) == 1
    world.clock.now += 61.0  # the engine gets what it has not begun again
    waiting = serving.call("quick")
    world.clock.now += 61.0
    serving.turn(world.clock.now)
    lease = serving.runs.by_id[first].lease
    assert lease is not None
    assert lease.until == world.clock.now + LEASE
    assert engine.jobs.empty(), "it blocks"
    engine.goes_on.set()
    assert engine.jobs.get(timeout=PATIENCE) == waiting
    world.held.set()
    running.join(PATIENCE)
    assert serving.wait(first, "completed")


def test_a_process_that_stops_waits_until_its_engine_has_its_tasks(world: World) -> None:
    class Slow(Jobs):
        begun, goes_on = threading.Event(), threading.Event()

        def submit(self, task_id: str) -> None:
            self.begun.set()
            assert self.goes_on.wait(PATIENCE)
            super().submit(task_id)

    engine = Slow()
    process = world.process(engine=engine)
    task_id = process.call("quick")
    assert engine.begun.wait(PATIENCE)
    threading.Timer(0.05, engine.goes_on.set).start()
    process.leave(world, within=0.0)
    assert engine.jobs.get_nowait() == task_id


def test_an_engine_that_refuses_a_task_gets_the_next(world: World, caplog: pytest.LogCaptureFixture) -> None:
    class Full(Jobs):
        def submit(self, task_id: str) -> None:
            super().submit(task_id)
            raise OSError("the queue is full")

    engine = Full()
    process = world.process(engine=engine)
    tasks = [process.call("quick") for _ in range(3)]
    assert [engine.jobs.get(timeout=PATIENCE) for _ in tasks] == tasks
    wait_until(lambda: process._submit_queue is not None and not process._submit_queue._is_working)
    assert [each.message for each in caplog.records] == [
        "the engine did not take a task, which it gets again later; it is logged once"
    ]


def test_an_engine_gets_its_tasks_after_a_thread_could_not_be_started(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = Jobs()
    process = world.process(engine=engine)

    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        first = process.call("quick")
    second = process.call("quick")
    assert [engine.jobs.get(timeout=PATIENCE) for _ in range(2)] == [first, second]


def test_an_engine_gets_a_task_again_that_it_has_lost(world: World) -> None:
    engine = Jobs()
    process = world.process(engine=engine)
    task_id = process.call("quick")
    assert engine.jobs.get(timeout=PATIENCE) == task_id
    process.turn(world.clock.now + 30)
    assert engine.jobs.empty()
    process.turn(world.clock.now + 61)
    assert engine.jobs.get(timeout=PATIENCE) == task_id
    assert process.tasks.schedule.due(world.clock.now + 61, 9) == [], "it is looked at when it is due again"


def test_an_engine_gets_a_task_that_waits_ever_more_rarely_and_from_one_process(world: World) -> None:
    engine = Jobs()
    first, second = (world.process(Task(ttl=None), engine=engine) for _ in range(2))
    task_id = first.call("quick")
    assert engine.jobs.get(timeout=PATIENCE) == task_id
    began, at = world.clock.now, list[float]()
    due = first.tasks.schedule.due
    for _ in range(2000):
        world.clock.now += 1.0
        for one, other in ((first, second), (second, first)):
            seen = due(world.clock.now, 9)
            with pytest.MonkeyPatch.context() as patched:  # the second has read the queue before the first changed it
                one.turn(world.clock.now)
                patched.setattr(other.tasks.schedule, "due", lambda now, limit, seen=seen: seen)
                other.turn(world.clock.now)
        wait_until(lambda: not any(each._submit_queue and each._submit_queue._is_working for each in (first, second)))
        while not engine.jobs.empty():
            assert engine.jobs.get() == task_id
            at.append(world.clock.now - began)
    assert at == [60.0, 180.0, 420.0, 900.0, 1860.0]
    second.run_now(task_id)
    assert second.see(task_id)["status"] == "completed"
    assert all_queues(first) == []


def test_a_worker_without_the_tool_gives_a_job_back_ever_more_rarely(world: World) -> None:
    engine = Jobs()
    serving, old, new = world.process(engine=engine), world.process(), world.process()
    old.missing = {"quick"}
    task_id, at, began = serving.call("quick"), list[float](), world.clock.now
    for _ in range(100):
        wait_until(lambda: serving._submit_queue is not None and not serving._submit_queue._is_working)
        while not engine.jobs.empty():
            old.run_now(engine.jobs.get())
            at.append(world.clock.now - began)
        world.clock.now += 1.0
        serving.turn(world.clock.now)
    assert at == [0.0, 1.0, 3.0, 7.0, 15.0, 31.0, 61.0, 91.0]
    new.run_now(task_id)
    assert new.see(task_id)["status"] == "completed"


def test_a_process_with_an_engine_runs_nothing_that_was_left_by_itself(world: World) -> None:
    process = world.process(engine=Jobs())
    task_id = process.call("quick")
    ticket = ticket_of(process, task_id)
    process.tasks.left(ticket.tool).put(ticket, 0.0)
    for _ in range(2 * len(process.tools())):
        world.clock.now += 1.0
        process.turn(world.clock.now)
    assert process.tasks.left(ticket.tool).due(world.clock.now, 9) == []
    assert world.begun.empty()
    assert process.see(task_id)["status"] == "working"


def test_a_worker_claims_again_where_the_task_was_submitted_again_meanwhile(world: World) -> None:
    """Else the job is gone, and the task waits for the next one."""
    serving, worker = world.process(engine=Jobs()), world.process()
    task_id, settings = serving.call("quick"), worker.settings

    def submitted_meanwhile(record: TaskRecord) -> Any:
        worker.settings = settings  # type: ignore[method-assign]
        assert serving.tasks.amend(record, world.clock.now, lambda each: submitted(each, world.clock.now))
        return settings(record)

    worker.settings = submitted_meanwhile  # type: ignore[method-assign]
    worker.run_now(task_id)
    assert worker.see(task_id)["status"] == "completed"


def test_a_job_that_a_worker_refuses_at_once_is_submitted_again_as_soon(world: World) -> None:
    serving, old = world.process(engine=Jobs()), world.process()
    old.missing = {"quick"}
    task_id, at, began = serving.call("quick"), list[float](), world.clock.now

    def refuse(task_id: str) -> None:
        at.append(world.clock.now - began)
        old.run_now(task_id)

    assert serving._submit_queue is not None
    serving._submit_queue.put = refuse  # type: ignore[method-assign]
    old.run_now(task_id)
    for _ in range(70):
        world.clock.now += 1.0
        serving.turn(world.clock.now)
    assert at == [1.0, 3.0, 7.0, 15.0, 31.0, 61.0]


def test_a_worker_fails_a_task_without_an_end_whose_tool_never_comes(world: World) -> None:
    engine = Jobs()
    serving, old = world.process(Task(ttl=None), engine=engine), world.process()
    old.missing = {"quick"}
    task_id = serving.call("quick")
    world.clock.now += 86400.0
    old.run_now(task_id)
    assert old.see(task_id)["error"]["message"] == (
        "the task has waited for 86400 s: no process that has its tool, quick, had room for it"
    )
    assert all_queues(serving) == []


def test_an_engine_whose_worker_died_gets_the_task_again_if_it_may_run_again(world: World) -> None:
    engine = Jobs()
    for restart, again in (("always", True), ("never", False)):
        settings = Task(restart=restart)  # type: ignore[arg-type]
        process = world.process(settings, engine=engine)
        dead = world.process(settings)
        task_id = dead.call("index", shards=1)
        world.begun.get(timeout=PATIENCE)
        world.clock.now += LEASE + 1
        process.turn(world.clock.now)
        assert process.see(task_id)["status"] == ("working" if again else "failed")
        assert [engine.jobs.get(timeout=PATIENCE)] == [task_id] if again else engine.jobs.empty()
    world.held.set()


def test_ids_cannot_be_guessed_and_others_are_unknown(world: World) -> None:
    process = world.process()
    assert len({new_id(SYSTEM.random) for _ in range(100)}) == 100
    assert all(len(new_id(SYSTEM.random)) * 4 == 128 for _ in range(3))
    for wrong in ("", "../x", "x" * 10_000, "\n", "0" * 32):
        assert process.tasks.get(wrong) is None


def test_two_servers_in_one_store_do_not_see_each_others_tasks(world: World) -> None:
    mine = world.process()
    task_id = mine.call("ask")
    mine.wait(task_id, "input_required")
    other = TaskStore(mine.tasks._store, "another")
    assert other.get(task_id) is None
    assert other.schedule.due(world.clock.now + 10**6, 9) == []
