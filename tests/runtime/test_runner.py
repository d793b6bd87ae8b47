"""The runner of calls, with calls of a connection that only remembers what it gets."""

from __future__ import annotations

import asyncio
import gc
import sys
import threading
import warnings
from collections.abc import Callable
from typing import Any

import pytest

from linkspan.core.call import Call, CallCancelled, CallReady, Event
from linkspan.revisions import LATEST
from linkspan.revisions.neutral import Peer, Request
from linkspan.runtime.calls import CallRunner


class Remembering:
    """A connection that remembers how its calls end."""

    def __init__(self) -> None:
        self.ends: list[object] = []

    def finish(self, call: Call, value: object) -> list[Event]:
        self.ends.append(value)
        return []

    def fail(self, call: Call, error: BaseException) -> list[Event]:
        self.ends.append(error)
        return []


def request() -> Request:
    return Request(1, "tools/call", None, Peer(LATEST))


async def answer() -> int:
    return 1


def test_a_coroutine_of_a_call_that_was_cancelled_meanwhile_is_closed():
    connection, asked = Remembering(), request()

    def run() -> object:
        asked.cancel("changed my mind")
        return answer()

    async def main() -> None:
        runner = CallRunner(asyncio.get_running_loop, max_workers=0)
        runner.perform(connection, [CallReady(Call(asked, run))])
        assert runner.in_tasks == 0

    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        asyncio.run(main())
        gc.collect()
    assert connection.ends == []


EAGER = pytest.mark.skipif(sys.version_info < (3, 12), reason="tasks begin where they are made from Python 3.12 on")


@EAGER
def test_an_async_call_without_a_wait_ends_where_it_begins():
    connection, ended = Remembering(), list[int]()

    async def main() -> None:
        runner = CallRunner(asyncio.get_running_loop, on_task_end=lambda: ended.append(len(connection.ends)))
        runner.perform(connection, [CallReady(Call(request(), answer, is_async=True))])
        assert (connection.ends, ended, runner.in_tasks) == ([1], [1], 0)

    asyncio.run(main())


@EAGER
def test_a_loop_with_a_task_factory_of_its_own_makes_the_tasks():
    connection, made = Remembering(), list[object]()

    async def main() -> None:
        loop = asyncio.get_running_loop()
        loop.set_task_factory(lambda loop, steps, **more: made.append(steps) or asyncio.Task(steps, loop=loop, **more))
        runner = CallRunner(lambda: loop)
        runner.perform(connection, [CallReady(Call(request(), answer, is_async=True))])
        assert (len(made), connection.ends) == (1, [])
        await asyncio.sleep(0)
        assert connection.ends == [1]

    asyncio.run(main())


def test_each_async_call_is_a_task_of_its_own_that_can_be_cancelled():
    connection, tasks = Remembering(), list[object]()

    async def wait() -> None:
        tasks.append(asyncio.current_task())
        await asyncio.sleep(60)

    async def main() -> None:
        runner = CallRunner(asyncio.get_running_loop)
        calls = [Call(request(), wait, is_async=True) for _ in range(2)]
        runner.perform(connection, [CallReady(each) for each in calls])
        await asyncio.sleep(0)
        assert (len(set(tasks)), runner.in_tasks) == (2, 2)
        assert asyncio.current_task() not in tasks
        runner.perform(connection, [CallCancelled(calls[0])])
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert ([type(each) for each in connection.ends], runner.in_tasks) == ([asyncio.CancelledError], 1)

    asyncio.run(main())


# The end: cancelled calls have time to close what they opened.


def running(runner: CallRunner, run: Callable[[], object], *, is_async: bool = False) -> Request:
    asked = request()
    asked.held = ["database", "lock"]
    runner.perform(Remembering(), [CallReady(Call(asked, run, is_async=is_async))])
    return asked


def test_the_end_waits_for_a_thread_that_cleans_up(caplog: pytest.LogCaptureFixture) -> None:
    runner, begun, go, closed = CallRunner(lambda: None), threading.Event(), threading.Event(), []

    def run() -> None:
        begun.set()
        go.wait(60)
        closed.append(True)

    running(runner, run)
    assert begun.wait(60)
    threading.Timer(0.05, go.set).start()
    runner.leave(None, 60.0)
    assert closed == [True]
    assert caplog.text == ""


@pytest.mark.parametrize("on_loop", [False, True])
def test_a_thread_that_runs_on_is_named_with_what_it_holds(on_loop: bool, caplog: pytest.LogCaptureFixture) -> None:
    runner, begun, go = CallRunner(lambda: None), threading.Event(), threading.Event()

    def run() -> None:
        begun.set()
        go.wait(60)

    running(runner, run)
    assert begun.wait(60)
    asyncio.run(runner.aleave(None, 0.05)) if on_loop else runner.leave(None, 0.05)
    go.set()
    assert caplog.messages == ["tools/call runs on 0.05 s after it was cancelled; not closed: database, lock"]


def test_a_task_that_runs_on_is_named_and_does_not_hold_up_the_end_of_its_loop(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def run() -> None:
        while True:
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                continue

    async def main() -> None:
        loop = asyncio.get_running_loop()
        runner = CallRunner(lambda: loop)
        running(runner, run, is_async=True)
        await asyncio.sleep(0)
        await runner.aleave(None, 0.05)
        runner.disown_tasks()
        await asyncio.sleep(0)
        left.extend(runner._tasks.values())

    left: list[asyncio.Task[Any]] = []
    asyncio.run(main())
    assert caplog.messages == ["tools/call runs on 0.05 s after it was cancelled; not closed: database, lock"]
    left[0]._log_destroy_pending = False  # type: ignore[attr-defined]
