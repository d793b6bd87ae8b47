"""Both clients at servers of ours whose tools run as tasks, in memory and over HTTP: the two sides of the extension together."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Annotated, Any

import pytest

import over_http
from linkspan import (
    Ask,
    CallTimeout,
    Client,
    Context,
    InvalidResponse,
    RemoteProtocolError,
    Server,
    ServerError,
    SyncClient,
    Task,
    TaskCancelled,
    Tasks,
    ToolError,
)

POLL = 0.05
ANSWERS = {"name": "Ada", "seats": 2}


class World:
    """A server, and what its tools wait for."""

    def __init__(self) -> None:
        self.go_on = threading.Event()
        self.server = server = Server("tasks")
        quick = Task(poll=POLL)

        @server.tool(task=quick)
        def wait(ctx: Context) -> str:
            ctx.progress(3, total=12, message="3 of 12")
            while not self.go_on.wait(0.01) and not ctx.cancelled:
                pass
            return "done"

        @server.tool(task=quick)
        async def sleep() -> str:
            await asyncio.sleep(60)
            return "slept"

        @server.tool(task=quick)
        async def greet(ctx: Context) -> str:
            return "hello " + ctx.ask("name", str, "Your name?")

        @server.tool(task=quick)
        def book(seats: Annotated[int, Ask("How many seats?")]) -> int:
            return seats

        @server.tool(task=Task(poll=POLL, after=30.0))
        def soon() -> str:
            return "at once"

        @server.tool(task=Task(poll=POLL, required=True))
        def only() -> str:
            return "only as a task"

        @server.tool(task=quick)
        def fail() -> str:
            raise ToolError("no ferries")

        @server.tool(task=quick)
        def refuse() -> str:
            raise RemoteProtocolError(-50, "not today", {"day": "Sunday"})

        @server.tool
        def add(a: int, b: int) -> int:
            return a + b


@pytest.fixture
def world() -> Iterator[World]:
    made = World()
    yield made
    made.go_on.set()


@pytest.fixture(params=["memory", "http"])
def target(request: pytest.FixtureRequest, world: World) -> Iterator[Any]:
    if request.param == "memory":
        yield world.server
        return
    with over_http.serving(world.server.asgi()) as url:
        yield url


def answer(form: Any) -> Any:
    return {name: ANSWERS[name] for name in form.requested_schema["properties"]}


def open_client(target: Any) -> SyncClient:
    return SyncClient(target, extensions=[Tasks()], elicitation=answer)


def test_calls_return_and_raise_as_ever(world: World, target: Any) -> None:
    world.go_on.set()
    with open_client(target) as client:
        assert client.call_tool("wait").text == "done"
        assert client.call_tool("soon").text == "at once"
        assert client.call_tool("only").text == "only as a task"
        assert client.call_tool("add", {"a": 1, "b": 2}).structured == {"result": 3}
        assert client.call_tool("fail").text == "no ferries"
        with pytest.raises(ServerError) as caught:
            client.call_tool("refuse")
        assert (caught.value.code, caught.value.data) == (-50, {"day": "Sunday"})
        assert client.call_tool("wait", {"x": 1}).is_error


def test_a_client_for_asyncio_gets_the_same(world: World, target: Any) -> None:
    world.go_on.set()

    async def main() -> list[str]:
        async with Client(target, extensions=[Tasks()], elicitation=answer) as client:
            names = ("wait", "soon", "only", "greet", "book", "fail")
            return [each.text for each in await asyncio.gather(*(client.call_tool(name) for name in names))]

    assert asyncio.run(main()) == ["done", "at once", "only as a task", "hello Ada", "2", "no ferries"]


def test_questions_come_before_the_task_and_within_it(target: Any) -> None:
    with open_client(target) as client:
        assert client.call_tool("book").structured == {"result": 2}
        assert client.call_tool("greet").text == "hello Ada"
        booking = client.start_tool("book")
        assert booking.id is not None
        assert booking.result().structured == {"result": 2}
        greeting = client.start_tool("greet")
        assert greeting.result().text == "hello Ada"


def test_a_task_outlives_the_client_that_began_it(world: World, target: Any) -> None:
    task_id = None
    for total in (0.5, 5.0, 50.0):  # a slow machine may not have begun it within the first
        with open_client(target) as client, pytest.raises(CallTimeout) as caught:
            client.call_tool("wait", total=total)
        if task_id := caught.value.task_id:
            break
    with open_client(target) as client:
        task = client.task(task_id or "")
        states = task.watch()
        assert next(states).status == "working"
        world.go_on.set()
        assert [each.status for each in states][-1] == "completed"
        assert task.result().text == "done"


def test_what_a_task_reports_reaches_the_one_who_watches(world: World, target: Any) -> None:
    with open_client(target) as client:
        task, seen = client.start_tool("wait"), list[str | None]()
        for each in task.watch():
            seen.append(each.status_message)
            if each.status_message == "3 of 12":
                world.go_on.set()
        assert "3 of 12" in seen


def test_a_task_is_cancelled(target: Any) -> None:
    with open_client(target) as client:
        task = client.start_tool("sleep")
        task.cancel()
        with pytest.raises(TaskCancelled) as caught:
            task.result(60.0)
        assert caught.value.task_id == task.id


def test_clients_without_the_extension_are_served_as_ever(world: World, target: Any) -> None:
    world.go_on.set()
    with SyncClient(target, elicitation=answer) as client:
        assert client.call_tool("wait").text == "done"
        assert client.call_tool("greet").text == "hello Ada"
        with pytest.raises(ServerError) as caught:
            client.call_tool("only")
        assert caught.value.code == -32021
    with SyncClient(target, era="legacy", extensions=[Tasks()], elicitation=answer) as client:
        assert client.call_tool("wait").text == "done"
        assert client.call_tool("greet").text == "hello Ada"
        assert client.call_tool("only").is_error


def test_a_task_that_a_client_did_not_declare_is_invalid(world: World) -> None:
    declares_only = Tasks(results={})
    with SyncClient(world.server, extensions=[declares_only]) as client:
        with pytest.raises(InvalidResponse, match="has the type 'task'"):
            client.call_tool("wait")
        world.go_on.set()


def answering() -> tuple[Server, list[Any]]:
    """Return a server whose calls one function answers, with a tool that may be a task, and what the function saw."""
    server, seen = Server("whole"), list[Any]()

    @server.define_tool("slow", input_schema={"type": "object"}, task=Task(poll=POLL))
    def slow(arguments: dict[str, Any]) -> None:
        raise AssertionError("only the function below answers")

    @server.handler("tools/call", hold=True)
    async def call(params: dict[str, Any], ctx: Context) -> dict[str, Any]:
        seen.append((params["name"], ctx.task_id))
        arguments = params.get("arguments") or {}
        if "ask" in arguments:
            schema = {"type": "object", "properties": {"name": {"type": "string"}}}
            asked = {"message": arguments["ask"], "requestedSchema": schema}
            answer = await ctx.question("name", "elicitation/create", asked)  # type: ignore[misc]
            arguments = answer["content"]
        return {"content": [{"type": "text", "text": f"{arguments}"}], "_meta": {"com.example/own": 1}}

    return server, seen


def test_a_function_that_answers_calls_answers_those_that_are_tasks() -> None:
    server, seen = answering()
    with SyncClient(server, extensions=[Tasks()]) as client:
        task = client.start_tool("slow", {"n": 1})
        result = task.result(timeout=60)
        at_once = client.call_tool("quick", {"n": 2})
    assert task.id is not None
    assert (result.text, result.meta) == ("{'n': 1}", {"com.example/own": 1})
    assert at_once.text == "{'n': 2}"
    assert seen == [("slow", task.id), ("quick", None)]


def test_a_function_that_waits_at_its_questions_runs_again_where_the_call_is_a_task() -> None:
    server, seen = answering()
    with SyncClient(server, extensions=[Tasks()], elicitation=lambda _: {"name": "Ada"}) as client:
        in_task = client.call_tool("slow", {"ask": "Your name?"}, total=60)
        task_id = seen[0][1]
        waiting = client.call_tool("quick", {"ask": "Your name?"})
    assert (in_task.text, waiting.text) == ("{'name': 'Ada'}", "{'name': 'Ada'}")
    assert seen == [("slow", task_id), ("slow", task_id), ("quick", None)]
    assert task_id is not None
