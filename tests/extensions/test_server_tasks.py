"""Tools that run as tasks, on whole servers: who gets a task, what clients do with it, and what stays as it was."""

from __future__ import annotations

import asyncio
import gc
import json
import math
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from queue import Queue
from typing import Annotated, Any, ClassVar

import pytest
from msgspec.structs import replace

import mounts
from client.faces import wait_until
from linkspan import Ask, Context, InputRequired, RegistrationError, Server, Task, Tool, ToolResponse, ask_form
from linkspan.core.call import CallReady, Event, Ports
from linkspan.core.connection import ServerConnection
from linkspan.errors import INTERNAL_ERROR, RemoteProtocolError
from linkspan.extensions.engine import run_task
from linkspan.extensions.task_run import TaskRun
from linkspan.revisions import LATEST_LEGACY
from linkspan.revisions.modern import CAPABILITIES, PROTOCOL_VERSION, SUBSCRIPTION_ID
from linkspan.revisions.neutral import Grant, TransportInfo
from linkspan.serve.memory import MemoryTransport
from linkspan.stores import MemoryStore
from linkspan.types.messages import ToolAnnotations
from talk import connected, say

way = mounts.way
PATIENCE = 60.0
TASKS = "io.modelcontextprotocol/tasks"
DECLARED = {"elicitation": {}, "extensions": {TASKS: {}}}
META = {PROTOCOL_VERSION: "2026-07-28", CAPABILITIES: DECLARED}
UNDECLARED = {**META, CAPABILITIES: {"elicitation": {}}}


class Caller:
    """A modern client in memory; the calls that it causes run right here."""

    def __init__(self, server: Server, facts: TransportInfo | None = None) -> None:
        self.messages: Queue[dict[str, Any]] = Queue()
        ports = Ports(on_output=self._take) if facts is None else Ports(on_output=self._take, facts=facts)
        self.connection: ServerConnection = server.connect(ports=ports)
        self._number = 0

    def _take(self) -> None:
        for each in self.connection.messages_to_send():
            self.messages.put(json.loads(each))

    def send(self, method: str, meta: dict[str, Any] = META, **params: Any) -> dict[str, Any]:
        """Send a request, and return the response."""
        self._number += 1
        message = {"jsonrpc": "2.0", "id": self._number, "method": method, "params": {**params, "_meta": meta}}
        self._run(self.connection.receive_message(json.dumps(message).encode()))
        self._take()
        return self.messages.get(timeout=PATIENCE)

    def _run(self, events: list[Event]) -> None:
        for event in events:
            if not isinstance(event, CallReady):
                continue
            try:
                value: Any = event.call.run()
                value = asyncio.run(value) if hasattr(value, "__await__") else value
            except BaseException as error:
                self._run(self.connection.fail(event.call, error))
            else:
                self._run(self.connection.finish(event.call, value))

    def call(self, tool: str, meta: dict[str, Any] = META, **more: Any) -> dict[str, Any]:
        """Call a tool, and return its result."""
        arguments = more.pop("arguments", {})
        return self.send("tools/call", meta, name=tool, arguments=arguments, **more)["result"]

    def get(self, task_id: str) -> dict[str, Any]:
        """Return a task."""
        return self.send("tasks/get", taskId=task_id)["result"]

    def wait(self, task_id: str, *statuses: str) -> dict[str, Any]:
        """Poll until a task has one of some states."""
        give_up = time.monotonic() + PATIENCE
        while (task := self.get(task_id))["status"] not in statuses:
            assert time.monotonic() < give_up, task
            time.sleep(0.002)
        return task

    def answer(self, task: dict[str, Any], **contents: Any) -> None:
        """Accept questions of a task."""
        answers: dict[str, Any] = {}
        for key, text in contents.items():
            (member,) = task["inputRequests"][key]["params"]["requestedSchema"]["properties"]
            answers[key] = {"action": "accept", "content": {member: text}}
        response = self.send("tasks/update", taskId=task["taskId"], inputResponses=answers)
        assert set(response["result"]) == {"resultType", "_meta"}


def text_of(result: dict[str, Any]) -> str:
    return result["content"][0]["text"]


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server("indexer")
    held = threading.Event()

    @server.tool(task=True)
    def greet(name: str) -> str:
        return f"hello {name}"

    @server.tool(task=Task(after=0.2))
    def hold(release: bool, ctx: Context) -> str:
        ctx.progress(1, total=2, message="waiting")
        assert release or held.wait(PATIENCE)
        return "let go"

    @server.tool(task=Task(after=0.2))
    async def rest(seconds: float) -> str:
        await asyncio.sleep(seconds)
        return "rested"

    @server.tool(task=Task(required=True))
    def only_as_task() -> str:
        raise RemoteProtocolError(-32000, "the index is locked")

    @server.tool(task=True)
    def rename(old: str, new: Annotated[str, Ask("Which name?")]) -> str:
        return f"{old} is {new}"

    @server.tool(task=True)
    def travel(ctx: Context) -> str:
        return f"to {ctx.ask('town', str, 'Where?')} on {ctx.ask('day', str, 'When?')}"

    @server.tool(task=True)
    def two_questions(ctx: Context) -> Any:
        if len(ctx.input_responses) < 2:
            return InputRequired({"a": ask_form("A?", str), "b": ask_form("B?", str)})
        return "both"

    @server.tool(task=True)
    def count(ctx: Context) -> str:
        ctx.progress(1)
        ctx.log("error", "no client sees it")
        ctx.notify("notifications/acme/step")
        return "counted"

    @server.tool
    def release() -> str:
        held.set()
        return "done"

    yield server
    held.set()


@pytest.fixture
def caller(server: Server) -> Caller:
    return Caller(server)


# Who gets a task.


def test_a_client_that_declares_the_extension_gets_a_task(caller: Caller) -> None:
    """TSK-S1, TSK-S4: flat, and there at once."""
    created = caller.call("greet", arguments={"name": "Ada"})
    assert created.pop("_meta")
    assert {key: type(value) for key, value in created.items()} == {
        "resultType": str,
        "taskId": str,
        "status": str,
        "createdAt": str,
        "lastUpdatedAt": str,
        "ttlMs": int,
        "pollIntervalMs": int,
    }
    assert (created["resultType"], created["status"]) == ("task", "working")
    assert caller.get(created["taskId"])["resultType"] == "complete"
    done = caller.wait(created["taskId"], "completed")
    assert text_of(done["result"]) == "hello Ada"
    assert "_meta" not in done["result"], "TSK-S14"


def test_any_other_client_gets_the_result(caller: Caller, server: Server) -> None:
    """TSK-S3."""
    assert text_of(caller.call("greet", UNDECLARED, arguments={"name": "Ada"})) == "hello Ada"
    legacy = connected(server, capabilities=DECLARED)
    (answer,) = say(legacy, "tools/call", 1, name="greet", arguments={"name": "Ada"}, task={"ttl": 1000})
    assert text_of(answer["result"]) == "hello Ada"


def test_a_required_task_refuses_clients_without_the_extension(caller: Caller, server: Server) -> None:
    """TSK-S2."""
    refused = caller.send("tools/call", UNDECLARED, name="only_as_task")["error"]
    assert refused["code"] == -32021
    assert refused["data"] == {"requiredCapabilities": {"extensions": {TASKS: {}}}}
    (answer,) = say(connected(server), "tools/call", 1, name="only_as_task")
    assert answer["result"]["isError"]
    assert "only_as_task runs as a task only" in text_of(answer["result"])
    failed = caller.wait(caller.call("only_as_task")["taskId"], "failed")
    assert failed["error"] == {"code": -32000, "message": "the index is locked"}
    assert failed["statusMessage"] == "the index is locked"


def test_a_call_that_ends_in_time_is_answered_at_once(caller: Caller) -> None:
    result = caller.call("hold", arguments={"release": True})
    assert (result["resultType"], text_of(result)) == ("complete", "let go")
    result = caller.call("rest", arguments={"seconds": 0})
    assert text_of(result) == "rested"


def test_a_call_that_takes_longer_goes_on_as_a_task(caller: Caller) -> None:
    created = caller.call("hold", arguments={"release": False})
    assert created["resultType"] == "task"
    caller.call("release")
    assert text_of(caller.wait(created["taskId"], "completed")["result"]) == "let go"


def test_a_coroutine_that_takes_longer_goes_on_as_a_task(server: Server) -> None:
    with MemoryTransport(server) as pipe:
        ask = {"name": "rest", "arguments": {"seconds": 0.5}, "_meta": META}
        pipe.send(json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": ask}).encode() + b"\n")
        created = json.loads(pipe.receive(PATIENCE))["result"]
    assert created["resultType"] == "task"
    assert text_of(Caller(server).wait(created["taskId"], "completed")["result"]) == "rested"


def test_wrong_arguments_are_answered_at_once(caller: Caller) -> None:
    result = caller.call("greet", arguments={"nam": "Ada"})
    assert (result["resultType"], result["isError"]) == ("complete", True)
    assert caller.send("tools/call", name="greeet")["error"]["code"] == -32602


# Questions.


def test_parameters_that_the_user_fills_in_are_asked_for_before_there_is_a_task(caller: Caller) -> None:
    """TSK-S12."""
    asked = caller.call("rename", arguments={"old": "a"})
    assert asked["resultType"] == "input_required"
    assert "taskId" not in asked
    answers = {"new": {"action": "accept", "content": {"new": "b"}}}
    created = caller.call("rename", arguments={"old": "a"}, inputResponses=answers, requestState=asked["requestState"])
    assert created["resultType"] == "task"
    assert not {"requestState", "inputRequests"} & set(created)
    done = caller.wait(created["taskId"], "completed")
    assert "requestState" not in done
    assert text_of(done["result"]) == "a is b"


def test_the_same_function_asks_in_a_task_in_the_foreground_and_in_a_session(caller: Caller, server: Server) -> None:
    task_id = caller.call("travel")["taskId"]
    caller.answer(caller.wait(task_id, "input_required"), town="Turin")
    caller.answer(caller.wait(task_id, "input_required"), day="Monday")
    assert text_of(caller.wait(task_id, "completed")["result"]) == "to Turin on Monday"

    asked = caller.call("travel", UNDECLARED)
    for key, text in (("town", "Turin"), ("day", "Monday")):
        assert list(asked["inputRequests"]) == [key]
        answers = {key: {"action": "accept", "content": {key: text}}}
        asked = caller.call("travel", UNDECLARED, inputResponses=answers, requestState=asked["requestState"])
    assert text_of(asked) == "to Turin on Monday"

    legacy = connected(server)
    (question,) = say(legacy, "tools/call", 1, name="travel")
    for key, text in (("town", "Turin"), ("day", "Monday")):
        answer = {"action": "accept", "content": {key: text}}
        (question,) = say(legacy, None, question["id"], result=answer)
    assert text_of(question["result"]) == "to Turin on Monday"


def test_a_wrong_answer_is_asked_for_again_under_another_key(caller: Caller) -> None:
    """TSK-S6."""
    task_id = caller.call("travel")["taskId"]
    asked = caller.wait(task_id, "input_required")
    caller.send("tasks/update", taskId=task_id, inputResponses={"town": {"action": "accept", "content": {"town": 7}}})
    again = caller.wait(task_id, "input_required")
    while again["inputRequests"] == asked["inputRequests"]:
        again = caller.wait(task_id, "input_required")
    assert list(again["inputRequests"]) == ["town#2"]
    caller.answer(again, **{"town#2": "Turin"})
    caller.answer(caller.wait(task_id, "input_required"), day="Monday")
    assert text_of(caller.wait(task_id, "completed")["result"]) == "to Turin on Monday"


def test_partial_answers_leave_the_rest_to_be_answered(caller: Caller) -> None:
    task_id = caller.call("two_questions")["taskId"]
    asked = caller.wait(task_id, "input_required")
    assert list(asked["inputRequests"]) == ["a", "b"]
    caller.answer(asked, a="1")
    half = caller.get(task_id)
    assert (half["status"], list(half["inputRequests"])) == ("input_required", ["b"])
    for malformed in ({"inputResponses": [1]}, {"inputResponses": None}, {}):
        assert caller.send("tasks/update", taskId=task_id, **malformed)["error"]["code"] == -32602
    caller.answer(half, b="2")
    assert text_of(caller.wait(task_id, "completed")["result"]) == "both"


def test_a_user_who_declines_ends_the_task_as_the_call(caller: Caller) -> None:
    task_id = caller.call("travel")["taskId"]
    caller.wait(task_id, "input_required")
    caller.send("tasks/update", taskId=task_id, inputResponses={"town": {"action": "decline"}})
    assert caller.wait(task_id, "completed")["result"]["isError"]


# What clients may do.


def test_a_task_of_another_principal_does_not_exist(server: Server) -> None:
    """TSK-S13, SEC-5: possession of an id is not enough, and the refusal reveals nothing."""
    ada, eve = (Caller(server, TransportInfo(principal=name)) for name in ("ada", "eve"))
    task_id = ada.call("travel")["taskId"]
    ada.wait(task_id, "input_required")
    unknown = eve.send("tasks/get", taskId="0" * 32)["error"]
    assert unknown["code"] == -32602
    for stranger in (eve, Caller(server)):
        for method in ("tasks/get", "tasks/update", "tasks/cancel"):
            assert stranger.send(method, taskId=task_id, inputResponses={})["error"] == unknown
    assert eve.send("tasks/get", taskId="\x00/../x" * 99)["error"] == unknown
    assert ada.get(task_id)["status"] == "input_required"


def test_a_task_without_a_principal_does_not_exist_for_one_that_has_a_principal(server: Server) -> None:
    """TSK-S13."""
    unknown, eve = Caller(server), Caller(server, TransportInfo(principal="eve"))
    task_id = unknown.call("travel")["taskId"]
    unknown.wait(task_id, "input_required")
    for method in ("tasks/get", "tasks/update", "tasks/cancel"):
        refused = eve.send(method, taskId=task_id, inputResponses={"town": {"action": "decline"}})
        assert refused["error"]["message"].startswith("Unknown task"), method
    listening = eve.send("subscriptions/listen", notifications={"taskIds": [task_id]})
    assert not listening["params"]["notifications"]
    assert unknown.get(task_id)["status"] == "input_required"


def test_methods_that_the_extension_does_not_have_do_not_exist(caller: Caller) -> None:
    """TSK-S9."""
    for method in ("tasks/list", "tasks/result"):
        assert caller.send(method, taskId="0" * 32)["error"]["code"] == -32601


@pytest.mark.parametrize("declared", [False, True, None, "yes", 1, [], [{}]])
def test_the_extension_is_declared_by_an_object(caller: Caller, declared: Any) -> None:
    """EXT-2: the value is an object of settings; an empty one has none."""
    undeclared = {**META, CAPABILITIES: {"extensions": {TASKS: declared}}}
    assert text_of(caller.call("greet", undeclared, arguments={"name": "Ada"})) == "hello Ada"
    refused = caller.send("tasks/get", undeclared, taskId="0" * 32)["error"]
    assert refused["code"] == -32021


def test_methods_need_the_extension_declared_with_each_request(caller: Caller) -> None:
    """TSK-S8."""
    task_id = caller.call("greet", arguments={"name": "Ada"})["taskId"]
    for method in ("tasks/get", "tasks/update", "tasks/cancel"):
        refused = caller.send(method, UNDECLARED, taskId=task_id, inputResponses={})["error"]
        assert (refused["code"], refused["data"]) == (-32021, {"requiredCapabilities": {"extensions": {TASKS: {}}}})
    refused = caller.send("subscriptions/listen", UNDECLARED, notifications={"taskIds": [task_id]})["error"]
    assert refused["code"] == -32021


def test_cancelling_is_an_acknowledgement_however_often(server: Server) -> None:
    """TSK-S7."""
    caller = Caller(server)
    created = caller.call("rest", arguments={"seconds": PATIENCE})
    for _ in range(2):
        assert set(caller.send("tasks/cancel", taskId=created["taskId"])["result"]) == {"resultType", "_meta"}
    assert caller.wait(created["taskId"], "cancelled")
    assert caller.send("tasks/cancel", taskId=created["taskId"])["result"]


def test_a_task_whose_time_is_over_has_failed_for_all_who_read_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also before a process has looked at it, or where none does."""
    server, held = Server("late"), threading.Event()

    @server.tool(task=Task(ttl=0.05))
    def hold() -> str:
        assert held.wait(PATIENCE)
        return "too late"

    monkeypatch.setattr(server.tasks.runner, "turn", lambda now: 1.0)
    caller = Caller(server)
    task_id = caller.call("hold")["taskId"]
    task = caller.wait(task_id, "failed")
    assert task["error"]["message"] == "the task did not end within its time to live (0.05 s)"
    held.set()
    run = server.tasks.runner.runs.by_id.get(task_id)
    assert run is None or run.ended.result(PATIENCE)
    assert caller.get(task_id)["error"] == task["error"]


# Bounds.


def test_a_principal_has_a_bound_on_tasks_that_have_not_ended() -> None:
    server = Server("bounded", max_tasks_per_principal=2)
    held = threading.Event()

    @server.tool(task=True)
    def hold() -> str:
        assert held.wait(PATIENCE)
        return "let go"

    @server.tool(task=Task(after=5.0))
    def soon() -> str:
        return "soon"

    ada, eve, unknown = (Caller(server, TransportInfo(principal=name)) for name in ("ada", "eve", None))
    mine = [ada.call("hold")["taskId"] for _ in range(2)]
    problem = "Too many tasks of this principal have not ended (max_tasks_per_principal); try again later [LS-505]"
    for tool in ("hold", "soon"):
        assert ada.send("tools/call", name=tool)["error"] == {"code": -32603, "message": problem}
    assert text_of(ada.call("soon", UNDECLARED)) == "soon", "a call in the foreground is no task"
    others = [(who, who.call("hold")["taskId"]) for who in (eve, eve, unknown, unknown)]
    also_unknown = Caller(server)
    assert also_unknown.send("tools/call", name="hold")["error"]["message"] == problem, "they count as one"
    held.set()
    assert [each["status"] for each in (ada.wait(task_id, "completed") for task_id in mine)] == ["completed"] * 2
    assert all(who.wait(task_id, "completed") for who, task_id in others)
    assert text_of(ada.call("soon")) == "soon"
    assert ada.wait(ada.call("hold")["taskId"], "completed")


def test_results_that_are_kept_are_bounded_for_each_principal_and_in_all() -> None:
    server = Server("bounded", max_task_bytes=1_400_000, max_task_bytes_per_principal=400_000)

    @server.tool(task=True)
    def large(size: int) -> str:
        return "x" * size

    ada, eve, unknown = (Caller(server, TransportInfo(principal=name)) for name in ("ada", "eve", None))
    kept: dict[Caller, list[str]] = {}
    for who in (ada, eve, unknown):
        for _ in range(6):
            kept.setdefault(who, []).append(who.call("large", arguments={"size": 90_000})["taskId"])
            who.wait(kept[who][-1], "completed")
    for who, tasks in kept.items():
        found = ["result" in who.send("tasks/get", taskId=each) for each in tasks]
        assert found == [False] * 2 + [True] * 4, "the oldest have gone, and no other"
    records = server.store._state.records.values()  # type: ignore[attr-defined]
    assert sum(len(each.value) for each, _ in records) < 1_200_000
    assert unknown.call("large", arguments={"size": 10})["taskId"]
    lone = Caller(server, TransportInfo(principal="bob"))
    lone.wait(lone.call("large", arguments={"size": 300_000})["taskId"], "completed")
    problem = "Too many bytes of ended tasks are kept (max_task_bytes); try again later [LS-505]"
    give_up = time.monotonic() + PATIENCE
    while (refused := lone.send("tools/call", name="large", arguments={"size": 10})).get("error") is None:
        assert time.monotonic() < give_up  # it is counted now and then
        time.sleep(0.1)
    assert refused["error"] == {"code": -32603, "message": problem}
    assert text_of(lone.call("large", UNDECLARED, arguments={"size": 3})) == "xxx", (
        "a call in the foreground is no task"
    )
    assert "result" in ada.send("tasks/get", taskId=kept[ada][-1]), "nobody deletes another's"


def test_a_result_that_is_larger_than_the_bound_fails_its_task(caplog: pytest.LogCaptureFixture) -> None:
    server = Server("bounded", max_task_bytes_per_principal=100_000)
    server.define_tool("large", handler=lambda: "x" * 100_000, task=True, input_schema={"type": "object"})
    caller = Caller(server)
    task = caller.wait(caller.call("large")["taskId"], "failed")
    assert task["statusMessage"].endswith("more bytes than one principal may keep (max_task_bytes_per_principal)")
    assert "max_task_bytes_per_principal" in caplog.text


def test_a_run_that_has_ended_does_not_wait_for_the_collector(monkeypatch: pytest.MonkeyPatch) -> None:
    runs: list[weakref.ref[TaskRun]] = []
    begin = TaskRun.__init__

    def remember(run: TaskRun, *arguments: Any) -> None:
        begin(run, *arguments)
        runs.append(weakref.ref(run))

    monkeypatch.setattr(TaskRun, "__init__", remember)
    server = Server("tidy")
    server.define_tool("greet", handler=lambda: "hello", task=True, input_schema={"type": "object"})
    caller = Caller(server)
    gc.collect()
    gc.disable()
    try:
        caller.wait(caller.call("greet")["taskId"], "completed")
        give_up = time.monotonic() + PATIENCE
        while any(each() is not None for each in runs):
            assert time.monotonic() < give_up
            time.sleep(0.01)
    finally:
        gc.enable()
    assert len(runs) == 1


@pytest.mark.parametrize(
    "bound", ["max_tasks", "max_tasks_per_principal", "max_task_bytes", "max_task_bytes_per_principal"]
)
def test_a_bound_on_tasks_is_at_least_one(bound: str) -> None:
    options: dict[str, Any] = {bound: 0}
    with pytest.raises(ValueError, match=f"^{bound} must be at least 1; got 0$"):
        Server("bounded", **options)


def test_without_its_store_a_server_answers_with_a_sentence_and_goes_on() -> None:
    store = MemoryStore()
    server = Server("indexer", store=store)
    server.define_tool("at_once", handler=lambda: "done", task=True)
    server.define_tool("after", handler=lambda: "done", task=Task(after=0.2))
    server.define_tool("plain", handler=lambda: "done")
    caller = Caller(server)
    task_id = caller.call("at_once")["taskId"]
    assert caller.wait(task_id, "completed")
    store.close()
    failed = [caller.send("tools/call", name=name) for name in ("at_once", "after")]
    failed += [caller.send(method, taskId=task_id) for method in ("tasks/get", "tasks/cancel")]
    failed.append(caller.send("tasks/update", taskId=task_id, inputResponses={}))
    failed.append(caller.send("subscriptions/listen", notifications={"taskIds": [task_id]}))
    sentence = "The server cannot reach the store of its tasks; try again later"
    assert [(each["error"]["code"], each["error"]["message"]) for each in failed] == [(-32603, sentence)] * 6
    assert text_of(caller.call("plain")) == "done"


# Listening.


def test_listeners_receive_the_whole_state_of_their_own_tasks(server: Server) -> None:
    """TSK-S10."""
    ada, eve = (Caller(server, TransportInfo(principal=name)) for name in ("ada", "eve"))
    mine, other = (who.call("travel")["taskId"] for who in (ada, eve))
    ada.wait(mine, "input_required")
    wanted = {"taskIds": [mine, other, "0" * 32, mine]}
    acknowledged = ada.send("subscriptions/listen", notifications=wanted)
    assert acknowledged["params"]["notifications"] == {"taskIds": [mine]}
    subscription = acknowledged["params"]["_meta"]
    eve.answer(eve.wait(other, "input_required"), town="Turin")
    polling = Caller(server, TransportInfo(principal="ada"))
    polling.answer(polling.get(mine), town="Turin")
    states = [ada.messages.get(timeout=PATIENCE) for _ in range(2)]
    assert [each["params"]["status"] for each in states] == ["working", "input_required"]
    expected = {key: value for key, value in polling.get(mine).items() if key != "resultType"}
    assert states[-1] == {
        "jsonrpc": "2.0",
        "method": "notifications/tasks",
        "params": {**expected, "_meta": subscription},
    }
    assert subscription == {SUBSCRIPTION_ID: ada._number}
    polling.answer(polling.get(mine), day="Monday")
    ada.messages.get(timeout=PATIENCE)
    completed = ada.messages.get(timeout=PATIENCE)["params"]
    assert text_of(completed["result"]) == "to Turin on Monday"
    assert ada.messages.empty()


def test_nothing_is_sent_on_behalf_of_a_task(caller: Caller) -> None:
    """TSK-S10: progress becomes the message of the task."""
    meta = {**META, "progressToken": 5}
    progress = caller.send("tools/call", meta, name="hold", arguments={"release": False})
    assert (progress["method"], progress["params"]["progress"]) == ("notifications/progress", 1), "of the foreground"
    task_id = caller.messages.get(timeout=PATIENCE)["result"]["taskId"]
    caller.call("release")
    assert caller.wait(task_id, "completed")
    task_id = caller.call("count", meta)["taskId"]
    assert caller.wait(task_id, "completed")
    assert caller.messages.empty()


def test_progress_becomes_the_message_of_a_task_whose_client_asked_for_none() -> None:
    server, may, done = Server("packer"), threading.Event(), threading.Event()

    @server.tool(task=Task(after=0.1))
    def pack(ctx: Context) -> str:
        assert may.wait(PATIENCE)
        ctx.progress(1, message="packing")
        assert done.wait(PATIENCE)
        return "packed"

    caller = Caller(server)
    task_id = caller.call("pack")["taskId"]
    may.set()
    wait_until(lambda: caller.get(task_id).get("statusMessage") == "packing", PATIENCE)
    done.set()
    assert caller.wait(task_id, "completed")


def test_a_task_whose_result_cannot_be_encoded_fails() -> None:
    server = Server("odd")
    server.tool(name="odd", task=True)(lambda: ToolResponse("x", meta={"a": object()}))
    caller = Caller(server)
    failed = caller.wait(caller.call("odd")["taskId"], "failed")
    assert failed["error"]["code"] == INTERNAL_ERROR


# What surrounds a tool.


def test_middleware_surrounds_runs_and_not_the_creation() -> None:
    server = Server("watched")
    seen: list[str] = []

    @server.middleware
    def watch(call: Any) -> Generator[None, Any]:
        outcome = yield
        seen.append(f"{call.method}: {type(outcome).__name__}")

    @server.tool(task=True)
    def greet(name: Annotated[str, Ask("Who?")]) -> str:
        return f"hello {name}"

    caller = Caller(server)
    asked = caller.call("greet")
    assert asked["resultType"] == "input_required"
    answers = {"name": {"action": "accept", "content": {"name": "Ada"}}}
    created = caller.call("greet", inputResponses=answers, requestState=asked["requestState"])
    done = caller.wait(created["taskId"], "completed")
    assert text_of(done["result"]) == "hello Ada"
    assert [each for each in seen if each.startswith("tools/call")] == [
        "tools/call: InputRequired",
        "tools/call: CallToolResult",
    ]


@mounts.DIRECT  # the server that is served makes the task, and that inside it runs the tool
def test_both_the_creation_and_the_run_are_instrumented() -> None:
    seen: Queue[str] = Queue()
    server = Server("watched", instrumentation_callback=lambda data: seen.put(data.get("tool_name", data["method"])))

    @server.tool(task=True)
    def greet() -> str:
        return "hello"

    caller = Caller(server)
    task_id = caller.call("greet")["taskId"]
    caller.wait(task_id, "completed")
    assert [each for each in seen.queue if each != "tasks/get"] == ["greet", "greet"]


def test_a_hidden_tool_makes_no_task_and_none_that_needs_more_scopes() -> None:
    server = Server("careful")

    @server.tool(task=Task(required=True), when=lambda ctx: ctx.principal == "ada")
    def secret() -> str:
        return "found"

    @server.tool(task=True, scopes=["write"])
    def write() -> str:
        return "written"

    eve, ada = (Caller(server, TransportInfo(principal=name)) for name in ("eve", "ada"))
    for meta in (META, UNDECLARED):
        assert eve.send("tools/call", meta, name="secret")["error"]["message"].startswith("Unknown tool: secret")
    assert text_of(ada.wait(ada.call("secret")["taskId"], "completed")["result"]) == "found"
    grants = [Grant("https://issuer", "ada", scopes=frozenset(scopes)) for scopes in ((), ("write",))]
    less, more = (Caller(server, TransportInfo(principal=each.subject, grant=each)) for each in grants)
    assert "error" in less.send("tools/call", name="write")
    assert text_of(more.wait(more.call("write")["taskId"], "completed")["result"]) == "written"


def test_a_task_keeps_the_decision_of_its_creation_about_who_sees_its_tool() -> None:
    server = Server("careful")
    asked: list[str | None] = []

    def is_blue(ctx: Context) -> bool:
        asked.append(ctx.headers.get("x-team"))
        return ctx.headers.get("x-team") == "blue"

    @server.tool(task=True, when=is_blue)
    def paint(ctx: Context) -> str:
        return f"painted {ctx.ask('what', str, 'What?')}"

    @server.tool(task=True, when=is_blue)
    def other() -> str:
        return "other"

    red, blue = (Caller(server, TransportInfo({"x-team": team}, "ada")) for team in ("red", "blue"))
    assert "error" in red.send("tools/call", name="paint")
    task_id = blue.call("paint")["taskId"]
    blue.answer(blue.wait(task_id, "input_required"), what="the wall")
    assert text_of(blue.wait(task_id, "completed")["result"]) == "painted the wall"
    assert None not in asked, "a run has no headers"


def test_the_lifespan_stays_open_while_tasks_run() -> None:
    events: Queue[str] = Queue()
    go_on = threading.Event()

    @contextmanager
    def pool() -> Iterator[str]:
        events.put("opened")
        yield "pool"
        events.put("closed")

    server = Server("pooled", lifespan=pool)

    @server.tool(task=True)
    def use(ctx: Context[str]) -> str:
        events.put("begun")
        assert go_on.wait(PATIENCE)
        events.put("used")
        return ctx.lifespan

    with MemoryTransport(server) as pipe:
        ask = {"name": "use", "_meta": META}
        pipe.send(json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": ask}).encode() + b"\n")
        assert json.loads(pipe.receive(PATIENCE))["result"]["resultType"] == "task"
        assert [events.get(timeout=PATIENCE) for _ in range(2)] == ["opened", "begun"]
    go_on.set()
    assert [events.get(timeout=PATIENCE) for _ in range(2)] == ["used", "closed"]


# Settings, and what is not used.


@dataclass
class Checked:
    """A parameter whose class has code of the author's."""

    value: int
    checks: ClassVar[list[int]] = []

    def __post_init__(self) -> None:
        self.checks.append(self.value)


@mounts.DIRECT  # the records are those of the server that is served
def test_a_process_can_run_what_it_has_the_tool_and_the_revision_for() -> None:
    server = Server("indexer")
    server.define_tool("index", handler=lambda shards: f"{shards}", task=True)
    server.define_tool("plain", handler=lambda: "done", annotations=ToolAnnotations(read_only_hint=True))

    @server.tool(task=True)
    def check(checked: Checked) -> str:
        return "checked"

    caller, tasks = Caller(server), server.tasks
    record = tasks.runner.tasks.get(caller.call("index", arguments={"shards": 1})["taskId"])
    assert record is not None
    assert tasks.can_run(record)
    assert not tasks.can_run(replace(record, caller=replace(record.caller, revision="2999-01-01")))
    assert not tasks.can_run(replace(record, params=b'{"name": "index", "arguments": {"parts": 1}}'))
    assert not tasks.can_run(replace(record, tool="gone"))
    assert tasks.settings(replace(record, tool="gone")) == (None, False)
    assert tasks.settings(replace(record, tool="plain")) == (Task(), True)
    assert tasks.can_run(
        replace(record, tool="check", params=b'{"name": "check", "arguments": {"checked": {"value": 7}}}')
    )
    assert Checked.checks == [], "no code of the author's runs for that"
    assert tasks.tools() == ["index", "check"]


def test_the_extension_is_on_though_its_tasks_were_looked_at_before_the_first_tool() -> None:
    server = Server("early")
    assert server.tasks.max_tasks == 16
    server.define_tool("greet", handler=lambda: "hello", task=True)
    assert Caller(server).call("greet")["resultType"] == "task"


def test_every_way_to_write_a_tool_takes_task() -> None:
    class Index(Tool):
        """Index."""

        task = Task(poll=0.5)

        def call(self) -> str:
            return "indexed"

    server = Server("ways", tools=[Index])
    server.define_tool("define", handler=lambda: "defined", task=True)
    caller = Caller(server)
    assert caller.call("index")["pollIntervalMs"] == 500
    assert caller.call("define")["resultType"] == "task"


def test_what_makes_no_sense_is_refused() -> None:
    server = Server("strict")
    with pytest.raises(RegistrationError, match="leave out inline=True"):
        server.define_tool("t", handler=lambda: "1", task=True, inline=True)
    with pytest.raises(ValueError, match="max_tasks must be at least 1"):
        Server(max_tasks=0)


@mounts.DIRECT  # a worker runs the tasks of the server that is served
def test_an_engine_runs_the_tasks_of_a_server() -> None:
    submitted: Queue[str] = Queue()

    class Engine:
        submit: Callable[[Any, str], None] = lambda _, task_id: submitted.put(task_id)

    server = Server("engined", tasks=Engine())

    @server.tool(task=True)
    async def greet() -> str:
        return "hello"

    caller = Caller(server)
    task_id = caller.call("greet")["taskId"]
    assert submitted.get(timeout=PATIENCE) == task_id
    assert caller.get(task_id)["status"] == "working"
    run_task(server, task_id)
    assert text_of(caller.get(task_id)["result"]) == "hello"


def test_a_server_without_such_tools_loads_and_starts_nothing() -> None:
    code = f"""
import json, sys, threading, linkspan
server = linkspan.Server()
@server.tool
def add(a: int, b: int) -> int: return a + b
call = {{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {{"name": "add", "arguments": {{"a": 1, "b": 2}}}}}}
call["params"]["_meta"] = {META!r}
assert server.handle(call)["result"]["content"]
assert threading.active_count() == 1
print(*sys.modules)
"""
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not [each for each in loaded if each.startswith(("linkspan.extensions", "linkspan.stores"))]


def test_discovery_announces_the_extension_with_the_first_tool_for_it() -> None:
    """EXT-3: `task=` is the opt-in."""
    server = Server("plain")
    assert "extensions" not in Caller(server).send("server/discover")["result"]["capabilities"]
    server.define_tool("t", handler=lambda: "1", task=True)
    server.define_tool("u", handler=lambda: "1", task=True)
    capabilities = Caller(server).send("server/discover")["result"]["capabilities"]
    assert capabilities["extensions"] == {TASKS: {}}
    assert "tasks" not in capabilities
    (hello,) = say(
        server.connect(),
        "initialize",
        1,
        protocolVersion=LATEST_LEGACY.date,
        capabilities={},
        clientInfo={"name": "c", "version": "1"},
    )
    assert "extensions" not in hello["result"]["capabilities"]
    assert "tasks" not in hello["result"]["capabilities"]


def test_a_question_of_a_task_may_be_answered_for_as_long_as_the_task_lives() -> None:
    server = Server("shop", request_state_ttl=60.0)
    assert server._answerable() == 60.0
    server.define_tool(name="short", handler=lambda: "ok", task=Task(ttl=30.0))
    assert server._answerable() == 60.0
    server.define_tool(name="long", handler=lambda: "ok", task=Task(ttl=7200.0))
    assert server._answerable() == 7200.0
    server.define_tool(name="endless", handler=lambda: "ok", task=Task(ttl=None))
    assert server._answerable() == math.inf
