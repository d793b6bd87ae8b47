"""Tasks through both clients, in memory and over HTTP, at a server whose tasks the test decides."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

import over_http
from fake_tasks import QUESTION, FakeTasks
from linkspan import (
    CallStopped,
    CallTimeout,
    Client,
    ClientClosed,
    InputUnavailable,
    Server,
    ServerError,
    Stopper,
    SyncClient,
    TaskCancelled,
    Tasks,
    TaskStatus,
)

QUIET_POLL = 60_000
"""Milliseconds between polls where only notifications may end the wait."""


@pytest.fixture(params=["memory", "http"])
def where(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def open_target(where: str) -> Iterator[Any]:
    """Return what makes a target of a server."""
    opened: list[Any] = []

    def target(server: Server) -> Any:
        if where == "memory":
            return server
        context = over_http.serving(server.asgi())
        opened.append(context)
        return context.__enter__()

    yield target
    for context in opened:
        context.__exit__(None, None, None)


def later(function: Any, *arguments: Any) -> None:
    threading.Thread(target=function, args=arguments, daemon=True).start()


def test_a_call_is_driven_to_its_end_by_polls(open_target: Any) -> None:
    tasks = FakeTasks(poll_ms=50, listens=False)
    tasks.plan = lambda task_id: later(tasks.complete, task_id)
    with SyncClient(open_target(tasks.server), extensions=[Tasks()]) as client:
        assert client.call_tool("work").text == "done"
        assert client.call_tool("add").text == "3"
    assert tasks.polls


def test_a_call_is_driven_to_its_end_by_notifications(open_target: Any) -> None:
    tasks = FakeTasks(poll_ms=QUIET_POLL)

    def complete_when_listened_to() -> None:
        tasks.wait_for("t1", "working")
        while not tasks.polls:  # which is once, when the server has begun to report
            time.sleep(0.01)
        tasks.complete("t1")

    later(complete_when_listened_to)
    with SyncClient(open_target(tasks.server), extensions=[Tasks()]) as client:
        assert client.call_tool("work").text == "done"
    assert tasks.polls == 1


def test_a_client_for_asyncio_follows_a_task(open_target: Any) -> None:
    tasks = FakeTasks()
    tasks.plan = lambda task_id: later(tasks.complete, task_id)

    async def main() -> str:
        async with Client(open_target(tasks.server), extensions=[Tasks()]) as client:
            return (await client.call_tool("work")).text

    assert asyncio.run(main()) == "done"


def test_questions_of_a_task_go_to_the_handlers(open_target: Any) -> None:
    tasks = FakeTasks()
    tasks.plan = lambda task_id: later(lambda: tasks.set(task_id, "input_required", inputRequests={"name": QUESTION}))

    def answer(_: Any) -> Any:
        return {"name": "Ada"}

    with SyncClient(open_target(tasks.server), extensions=[Tasks()], elicitation=answer) as client:
        assert client.call_tool("work").text == "answered"
    assert tasks.answers == [b'{"name":{"action":"accept","content":{"name":"Ada"}}}']

    async def main() -> str:
        async with Client(open_target(tasks.server), extensions=[Tasks()], elicitation=answer) as client:
            return (await client.call_tool("work")).text

    assert asyncio.run(main()) == "answered"


def test_a_question_without_a_handler_names_the_task() -> None:
    tasks = FakeTasks()
    tasks.plan = lambda task_id: tasks.set(task_id, "input_required", inputRequests={"name": QUESTION})
    with SyncClient(tasks.server, extensions=[Tasks()]) as client, pytest.raises(InputUnavailable) as caught:
        client.call_tool("work")
    assert caught.value.task_id == "t1"


def test_a_deadline_leaves_the_task_which_another_client_takes_up(open_target: Any) -> None:
    tasks = FakeTasks()
    target = open_target(tasks.server)
    with SyncClient(target, extensions=[Tasks()]) as client, pytest.raises(CallTimeout) as caught:
        client.call_tool("work", total=2.0)
    assert caught.value.task_id == "t1"
    assert tasks.states["t1"]["status"] == "working"
    with SyncClient(target, extensions=[Tasks()]) as client:
        task = client.task("t1")
        assert task.status().status == "working"
        later(tasks.complete, "t1")
        assert task.result(10.0).text == "done"
        assert task.result().text == "done"


def test_a_stopper_cancels_the_task_at_once(open_target: Any) -> None:
    tasks = FakeTasks(poll_ms=QUIET_POLL)
    stopper = Stopper()
    tasks.plan = lambda task_id: later(stopper.stop, "enough")
    with SyncClient(open_target(tasks.server), extensions=[Tasks()]) as client, pytest.raises(CallStopped):
        client.call_tool("work", stopper=stopper)
    # The answer that creates the task may have lost the race against the stopper; then there is nothing to cancel.
    assert tasks.states["t1"]["status"] in ("cancelled", "working")


@pytest.mark.parametrize("face", ["sync", "async"])
def test_a_stopper_wakes_the_wait_for_the_next_poll(open_target: Any, face: str) -> None:
    tasks = FakeTasks(poll_ms=QUIET_POLL)
    target, stopper = open_target(tasks.server), Stopper()

    def stop() -> None:
        tasks.wait_for("t1", "working")
        while not tasks.server._announcer.is_listened_to():
            pass  # the client waits
        stopper.stop("enough")

    later(stop)
    if face == "sync":
        with SyncClient(target, extensions=[Tasks()]) as client, pytest.raises(CallStopped):
            client.call_tool("work", stopper=stopper)
    else:

        async def main() -> None:
            async with Client(target, extensions=[Tasks()]) as client:
                with pytest.raises(CallStopped):
                    await client.call_tool("work", stopper=stopper)

        asyncio.run(main())
    assert tasks.states["t1"]["status"] == "cancelled"


def test_a_caller_of_asyncio_that_is_cancelled_cancels_the_task(open_target: Any) -> None:
    tasks = FakeTasks(poll_ms=QUIET_POLL)

    async def main() -> None:
        async with Client(open_target(tasks.server), extensions=[Tasks()]) as client:
            call = asyncio.create_task(client.call_tool("work"))
            while "t1" not in tasks.states or not tasks.server._announcer.is_listened_to():
                await asyncio.sleep(0.001)
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call

    asyncio.run(main())
    assert tasks.states["t1"]["status"] == "cancelled"


@pytest.mark.parametrize("listens", [True, False])
def test_a_client_that_is_closed_ends_the_wait_and_leaves_the_task(open_target: Any, listens: bool) -> None:
    tasks = FakeTasks(poll_ms=QUIET_POLL, listens=listens)
    target = open_target(tasks.server)
    client = SyncClient(target, extensions=[Tasks()])

    def close() -> None:
        tasks.wait_for("t1", "working")
        while not client._supervisor._resting:
            pass
        client.close()

    later(close)
    with pytest.raises(ClientClosed) as caught:
        client.call_tool("work")
    assert caught.value.task_id == "t1"

    async def main() -> None:
        client = Client(target, extensions=[Tasks()])
        call = asyncio.create_task(client.call_tool("work"))
        while not client._supervisor._resting:
            await asyncio.sleep(0.001)
        await client.close()
        with pytest.raises(ClientClosed):
            await call

    asyncio.run(main())
    assert [each["status"] for each in tasks.states.values()] == ["working", "working"]


def test_a_started_call_is_watched_to_its_end(open_target: Any) -> None:
    tasks = FakeTasks(poll_ms=20, listens=False)
    with SyncClient(open_target(tasks.server), extensions=[Tasks()]) as client:
        task = client.start_tool("work")
        assert task.id == "t1"
        assert repr(task) == "SyncClientTask('t1')"
        seen: list[TaskStatus] = []
        for each in task.watch():
            seen.append(each)
            if len(seen) == 1:
                tasks.set("t1", "working", statusMessage="3 of 12")
            elif len(seen) == 2:
                tasks.complete("t1")
        assert [(each.status, each.status_message) for each in seen] == [
            ("working", None),
            ("working", "3 of 12"),
            ("completed", None),
        ]
        assert repr(seen[1]) == "TaskStatus('t1', 'working', '3 of 12')"
        heard: list[str] = []
        assert task.result(on_status=lambda status: heard.append(status.status)).text == "done"
        assert heard == ["completed"]


def test_a_client_for_asyncio_starts_watches_and_cancels(open_target: Any) -> None:
    tasks = FakeTasks(poll_ms=20, listens=False)

    async def main() -> list[str]:
        async with Client(open_target(tasks.server), extensions=[Tasks()]) as client:
            task = await client.start_tool("work")
            seen: list[str] = []
            async for each in task.watch():
                seen.append(each.status)
                if len(seen) == 1:
                    await task.cancel()
            assert (await task.status()).is_final
            with pytest.raises(TaskCancelled):
                await task.result()
            return seen

    assert asyncio.run(main()) == ["working", "cancelled"]


@pytest.mark.parametrize("era", ["modern", "legacy"])
def test_a_call_that_is_answered_at_once_has_no_id(era: Any) -> None:
    tasks = FakeTasks()
    name = "add" if era == "modern" else "work"
    with SyncClient(tasks.server, era=era, extensions=[Tasks()]) as client:
        task = client.start_tool(name)
        assert task.id is None
        assert task.status().status == "completed"
        assert [each.status for each in task.watch()] == ["completed"]
        task.cancel()
        assert task.result().text == ("3" if era == "modern" else "worked at once")


def test_a_client_without_tasks_says_what_to_pass() -> None:
    tasks = FakeTasks()
    with SyncClient(tasks.server) as client:
        for use in (lambda: client.start_tool("work"), lambda: client.task("t1")):
            with pytest.raises(ValueError, match=r"pass extensions=\[Tasks\(\)\]"):
                use()
        assert client.call_tool("work").text == "worked at once"


def test_an_unknown_task_is_an_error_of_the_server(open_target: Any) -> None:
    with SyncClient(open_target(FakeTasks().server), extensions=[Tasks()]) as client:
        with pytest.raises(ServerError) as caught:
            client.task("nobody").status()
        assert caught.value.code == -32602


def test_many_tasks_of_one_client_are_followed_at_a_time(open_target: Any) -> None:
    tasks = FakeTasks(poll_ms=200)
    tasks.plan = lambda task_id: later(tasks.complete, task_id, task_id)

    async def main() -> list[str]:
        async with Client(open_target(tasks.server), extensions=[Tasks()]) as client:
            return [each.text for each in await asyncio.gather(*(client.call_tool("work") for _ in range(40)))]

    assert sorted(asyncio.run(main())) == sorted(f"t{number}" for number in range(1, 41))
