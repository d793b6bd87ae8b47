"""Functions that end in odd ways are answered: by GeneratorExit, or by cancelling the task that they run in."""

from __future__ import annotations

import asyncio
import gc
import json
import threading
from collections.abc import Callable
from typing import Any

import pytest
from http_faces import Asgi, Face, Live, OnALoop
from http_talk import Session, call, text_of
from http_world import World

from linkspan import Server
from linkspan.serve.event_loop import AsyncMemoryTransport
from linkspan.serve.memory import MemoryTransport

FAILED = ["generator_exit", "generator_exit_async", "cancels_itself", "cancels_itself_twice"]


def odd() -> Server:
    server = Server("odd")

    @server.tool
    def generator_exit() -> str:
        raise GeneratorExit

    @server.tool
    async def generator_exit_async() -> str:
        await asyncio.sleep(0)
        raise GeneratorExit

    @server.tool
    async def cancels_itself() -> str:
        _cancel()
        await asyncio.sleep(60)
        return "never"

    @server.tool
    async def cancels_itself_twice() -> str:
        _cancel()
        try:
            await asyncio.sleep(60)
        finally:
            _cancel()
        return "never"

    @server.tool
    async def cancels_itself_and_returns() -> str:
        await asyncio.sleep(0)
        _cancel()
        return "returned"

    @server.tool
    async def takes_it_back() -> str:
        _cancel()
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            assert task is not None
            task.uncancel()
        try:
            async with asyncio.timeout(0.01):
                await asyncio.sleep(60)
        except TimeoutError:
            return "returned"
        return "never"

    return server


def _cancel() -> None:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()


@pytest.mark.parametrize("tool", FAILED)
def test_what_ends_itself_over_http_has_failed(tool: str, serve: Callable[..., Face]) -> None:
    face = serve(odd())
    for send in (call, _in_session):
        answer = send(face, tool).whole()
        assert (answer.status, answer.json()["result"]["isError"]) == (200, True)
        assert text_of(answer.json()).startswith("Internal error occurred (incident ")


def _in_session(face: Face, tool: str) -> Live:
    return Session(face).call(tool)


@pytest.mark.parametrize("tool", ["cancels_itself_and_returns", "takes_it_back"])
def test_what_returns_after_it_cancelled_itself_is_answered(tool: str, on_a_loop: OnALoop) -> None:
    face = on_a_loop(odd())
    for send in (call, _in_session):
        assert text_of(send(face, tool).whole().json()) == "returned"


@pytest.mark.parametrize("tool", FAILED)
def test_what_ends_itself_in_memory_has_failed(tool: str) -> None:
    line = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": tool}}).encode() + b"\n"
    with MemoryTransport(odd()) as pipe:
        pipe.send(line)
        assert json.loads(pipe.receive(10))["result"]["isError"] is True

    async def on_a_loop() -> Any:
        async with AsyncMemoryTransport(odd()) as pipe:
            await pipe.send(line)
            return json.loads(await asyncio.wait_for(pipe.receive(), 60))

    assert asyncio.run(on_a_loop())["result"]["isError"] is True


# From outside.


@pytest.mark.parametrize("tool", ["hold_async", "tell_then_hold_async", "hold", "tell_then_hold"])
def test_an_asgi_task_that_is_cancelled_from_outside_ends_so_and_cancels_its_call(
    tool: str, asgi: Callable[..., Asgi]
) -> None:
    world = World()
    face = asgi(world.server)
    live = call(face, tool, token="t")
    world.wait_for("holding")
    task = live.task
    assert task is not None
    face.loop.loop.call_soon_threadsafe(task.cancel)
    world.wait_for("cancelled")
    face.until(task.done)
    assert task.cancelled()
    assert len(face.endpoint.streams) == 0


def test_a_task_that_is_cancelled_from_outside_while_its_call_cancels_itself_ends_so(asgi: Callable[..., Asgi]) -> None:
    server = Server("odd")
    begun = threading.Event()

    @server.tool
    async def stubborn() -> str:
        begun.set()
        try:
            await asyncio.sleep(60)
        finally:
            _cancel()
        return "never"

    face = asgi(server)
    live = call(face, "stubborn")
    assert begun.wait(60)
    assert live.task is not None
    face.loop.loop.call_soon_threadsafe(live.task.cancel)
    face.until(live.task.done)
    assert live.task.cancelled()


def test_a_body_that_is_waited_for_is_cancelled_from_outside(asgi: Callable[..., Asgi]) -> None:
    face = asgi(World().server)
    face.chunk, face.stall_after = 10, 1
    live = call(face, "add", {"a": 1, "b": 2})
    face.until(lambda: live.task is not None)
    assert live.task is not None
    face.loop.loop.call_soon_threadsafe(live.task.cancel)
    face.until(live.task.done)
    assert live.task.cancelled()
    assert live.status == 0


def test_a_loop_that_ends_with_calls_at_work_reports_no_failure_of_theirs() -> None:
    failures: list[BaseException] = []
    server = Server("left", exception_reporter=lambda error, _: failures.append(error))

    begun: list[bool] = []

    @server.tool
    async def wait() -> str:
        begun.append(True)
        await asyncio.Event().wait()
        return "never"

    loop = asyncio.new_event_loop()

    async def begin() -> AsyncMemoryTransport:
        pipe = AsyncMemoryTransport(server)
        await pipe.__aenter__()
        await pipe.send(b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"wait"}}\n')
        while not begun:
            await asyncio.sleep(0.001)
        return pipe

    loop.set_exception_handler(lambda *_: None)
    pipe = loop.run_until_complete(begin())
    loop.close()
    del pipe
    gc.collect()
    assert failures == []
