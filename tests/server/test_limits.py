"""Limits of a tool: time, and how many run at once."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from typing import Annotated, Any

import pytest
from test_dependencies import ways

from linkspan import Call, Client, Context, Depends, RegistrationError, Server, SyncClient

LONG = 60.0


def work() -> str:
    return "done"


class TestTimeout:
    @ways
    @pytest.mark.parametrize("tool", ["plain", "async"])
    def test_the_answer_comes_at_once_and_says_so(self, call: Any, tool: str) -> None:
        server = Server("shop")
        stopped = threading.Event()
        over = threading.Event()

        @server.tool(timeout=0.2)
        def plain(ctx: Context) -> str:
            while not ctx.cancelled:
                time.sleep(0.01)
            stopped.set()
            return "too late"

        @server.tool(name="async", timeout=0.2)
        async def later() -> str:
            try:
                await asyncio.sleep(LONG)
            finally:
                stopped.set()
            return "too late"

        began = time.monotonic()
        assert call(server, tool, {}) == f"{tool} was stopped after 0.2 s"
        assert time.monotonic() - began < LONG / 2
        assert stopped.wait(LONG)
        over.set()

    @ways
    @pytest.mark.parametrize("tool", ["plain", "async"])
    def test_a_call_in_time_has_its_result(self, call: Any, tool: str) -> None:
        server = Server("shop")

        @server.tool(timeout=LONG)
        def plain(a: int) -> int:
            return a

        @server.tool(name="async", timeout=LONG)
        async def later(a: int) -> int:
            return a

        assert call(server, tool, {"a": 3}) == "3"

    def test_a_function_that_never_looks_does_not_hold_up_the_answer(self) -> None:
        server = Server("shop")
        release = threading.Event()

        @server.tool(timeout=0.2)
        def stuck() -> None:
            release.wait(LONG)

        with SyncClient(server) as client:
            assert client.call_tool("stuck").text == "stuck was stopped after 0.2 s"
            assert client.call_tool("stuck").is_error
        release.set()


LIMITS: list[dict[str, Any]] = [{}, {"timeout": LONG}, {"concurrency": 1}, {"timeout": LONG, "concurrency": 1}]


class TestTheEnd:
    """A body ends before what surrounds it does, whatever its limits are."""

    @pytest.mark.parametrize("limits", LIMITS, ids=str)
    @pytest.mark.parametrize("is_async", [False, True])
    def test_a_cancelled_body_ends_before_its_dependencies_and_its_middleware(
        self, is_async: bool, limits: dict[str, Any]
    ) -> None:
        server, events, began, over = Server("shop"), list[str](), threading.Event(), threading.Event()
        _surround(server, events, over)

        @server.tool(**limits)
        async def on_loop(_: Annotated[None, Depends(partial(_opened, events))]) -> None:
            try:
                began.set()
                await asyncio.sleep(LONG)
            finally:
                await asyncio.sleep(0.05)
                events.append("body")

        @server.tool(**limits)
        def in_thread(ctx: Context, _: Annotated[None, Depends(partial(_opened, events))]) -> None:
            began.set()
            while not ctx.cancelled:
                time.sleep(0.01)
            time.sleep(0.05)
            events.append("body")

        async def main() -> None:
            async with Client(server) as client:
                call = asyncio.ensure_future(client.call_tool("on_loop" if is_async else "in_thread"))
                await asyncio.to_thread(began.wait, LONG)
                call.cancel()
                await asyncio.wait([call])
                await asyncio.to_thread(over.wait, LONG)

        asyncio.run(main())
        assert events == ["body", "dependency", "middleware"]

    def test_a_coroutine_that_takes_too_long_ends_before_its_middleware(self) -> None:
        server, events, over = Server("shop"), list[str](), threading.Event()
        _surround(server, events, over)

        @server.tool(timeout=0.05)
        async def late(_: Annotated[None, Depends(partial(_opened, events))]) -> None:
            try:
                await asyncio.sleep(LONG)
            finally:
                await asyncio.sleep(0.05)
                events.append("body")

        with SyncClient(server) as client:
            assert client.call_tool("late").text == "late was stopped after 0.05 s"
        assert events == ["body", "dependency", "middleware"]

    def test_a_coroutine_that_does_not_end_holds_up_its_answer_for_a_second_only(self) -> None:
        server, release = Server("shop"), asyncio.Event()

        @server.tool(timeout=0.05)
        async def stubborn() -> None:
            while not release.is_set():
                with suppress(asyncio.CancelledError):
                    await release.wait()

        async def main() -> None:
            async with Client(server) as client:
                assert (await client.call_tool("stubborn")).text == "stubborn was stopped after 0.05 s"
                release.set()

        asyncio.run(asyncio.wait_for(main(), LONG))


def _surround(server: Server, events: list[str], over: threading.Event) -> None:
    @server.middleware(only=["tools/call"])
    async def last(call: Call, call_next: Any) -> Any:
        try:
            return await call_next()
        finally:
            events.append("middleware")
            over.set()


def _opened(events: list[str]) -> Iterator[None]:
    try:
        yield
    finally:
        events.append("dependency")


class TestConcurrency:
    @pytest.mark.parametrize("is_async", [False, True])
    def test_no_more_run_at_once_and_the_rest_waits_in_order(self, is_async: bool) -> None:
        server = Server("shop")
        running = most = 0
        order: list[int] = []
        lock = threading.Lock()

        def enter(number: int) -> None:
            nonlocal running, most
            with lock:
                running += 1
                most = max(most, running)
                order.append(number)

        def leave() -> None:
            nonlocal running
            with lock:
                running -= 1

        if is_async:

            @server.tool(concurrency=2)
            async def work(number: int) -> int:
                enter(number)
                await asyncio.sleep(0.01)
                leave()
                return number

        else:

            @server.tool(name="work", concurrency=2)
            def plain_work(number: int) -> int:
                enter(number)
                time.sleep(0.01)
                leave()
                return number

        async def all_at_once() -> list[str]:
            async with Client(server) as client:
                calls = [client.call_tool("work", {"number": number}) for number in range(20)]
                return [each.text for each in await asyncio.gather(*calls)]

        assert asyncio.run(all_at_once()) == [str(number) for number in range(20)]
        assert most == 2
        assert sorted(order) == list(range(20))

    def test_what_is_too_much_is_refused_with_a_sentence(self) -> None:
        server = Server("shop")
        release = threading.Event()

        @server.tool(concurrency=1, max_waiting=1)
        def work() -> str:
            release.wait(LONG)
            return "done"

        async def three() -> list[str]:
            async with Client(server) as client:
                calls = [asyncio.ensure_future(client.call_tool("work")) for _ in range(3)]
                done, _ = await asyncio.wait(calls, return_when=asyncio.FIRST_COMPLETED)
                [refused] = [each.result().text for each in done]
                release.set()
                return sorted([refused, *[(await each).text for each in calls if each not in done]])

        assert asyncio.run(three()) == ["done", "done", "work is busy (running: 1, waiting: 1); try again later"]

    def test_one_that_is_cancelled_while_it_waits_makes_room(self) -> None:
        server = Server("shop")
        gate = threading.Event()

        @server.tool(concurrency=1)
        async def work(wait: bool) -> str:
            while wait and not gate.is_set():
                await asyncio.sleep(0.005)
            return "done"

        async def scenario() -> list[str]:
            async with Client(server) as client:
                first = asyncio.ensure_future(client.call_tool("work", {"wait": True}))
                await asyncio.sleep(0.1)
                second = asyncio.ensure_future(client.call_tool("work", {"wait": False}))
                await asyncio.sleep(0.1)
                third = asyncio.ensure_future(client.call_tool("work", {"wait": False}))
                await asyncio.sleep(0.1)
                second.cancel()
                await asyncio.wait([second])
                gate.set()
                return [(await first).text, (await third).text, (await client.call_tool("work", {"wait": False})).text]

        assert asyncio.run(asyncio.wait_for(scenario(), LONG)) == ["done"] * 3


class TestRefused:
    @pytest.mark.parametrize(
        ("limits", "advice"),
        [
            ({"timeout": 0}, "leaves no time"),
            ({"concurrency": 0}, "lets no call run"),
            ({"processes": 0, "isolated": True}, "lets no call run"),
            ({"memory": 1}, "add isolated=True"),
            ({"processes": 2}, "add isolated=True"),
            ({"isolated": True, "concurrency": 2}, "write processes="),
            ({"inline": True, "timeout": 1}, "leave inline=True out"),
            ({"max_waiting": 5}, "max_waiting= bounds the calls that wait for their turn: add concurrency="),
            ({"max_waiting": 5, "timeout": 1}, "add concurrency="),
            ({"max_waiting": 5, "isolated": True}, "leave max_waiting= out"),
        ],
    )
    def test_limits_that_make_no_sense(self, limits: dict[str, Any], advice: str) -> None:
        with pytest.raises(RegistrationError, match=advice):
            Server("shop").tool(**limits)(work)
