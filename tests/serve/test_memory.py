"""The same bytes without a process."""

from __future__ import annotations

import asyncio
import json
import threading

import pytest
from fake_server import Server
from stdio_process import META, line, ping, said, tool_call

from linkspan import Server as RealServer
from linkspan.serve.event_loop import AsyncMemoryTransport
from linkspan.serve.memory import MemoryTransport


@pytest.fixture
def server() -> Server:
    server = Server()
    server.cleaned = threading.Event()

    @server.tool
    def add(a: int, b: int) -> int:
        return a + b

    @server.tool
    async def async_add(a: int, b: int) -> int:
        await asyncio.sleep(0)
        return a + b

    @server.tool
    async def wait() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            server.cleaned.set()

    return server


@pytest.mark.parametrize("tool", ["add", "async_add"])
@pytest.mark.parametrize("workers", [0, 4])
def test_a_call_is_answered(server, tool, workers):
    with MemoryTransport(server, max_workers=workers) as pipe:
        pipe.send(tool_call(1, tool, a=1, b=2))
        assert said(json.loads(pipe.receive(30)), 1) == "3"


def test_a_closed_connection_leaves_no_thread_behind(server):
    before = {*threading.enumerate()}
    with MemoryTransport(server) as pipe:
        pipe.send(tool_call(1, "add", a=1, b=2))
        assert said(json.loads(pipe.receive(30)), 1) == "3"
        workers = {*threading.enumerate()} - before
        assert workers
    for each in workers:
        each.join(20)  # idle, they would wait for 30 seconds
        assert not each.is_alive()


def test_an_answer_without_a_function_is_there_at_once(server):
    with MemoryTransport(server) as pipe:
        pipe.send(ping(1)[:10])
        pipe.send(ping(1)[10:])
        assert json.loads(pipe.receive(0))["id"] == 1


def test_silence_is_a_timeout(server):
    with MemoryTransport(server) as pipe, pytest.raises(TimeoutError, match="the server sent nothing"):
        pipe.receive(0.01)


def test_a_call_can_be_cancelled(server):
    with MemoryTransport(server) as pipe:
        pipe.send(tool_call(1, "wait"))
        pipe.send(tool_call(2, "async_add", a=1, b=2))
        assert said(json.loads(pipe.receive(30)), 2) == "3"
        pipe.send(line({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}}))
        assert server.cleaned.wait(30)


def test_closing_cancels_what_runs_and_ends_the_stream(server):
    pipe = MemoryTransport(server)
    pipe.send(tool_call(1, "wait"))
    pipe.send(tool_call(2, "async_add", a=1, b=2))
    pipe.receive(30)
    pipe.close()
    assert server.cleaned.wait(30)
    assert pipe.receive() == b""
    with pytest.raises(ValueError, match="closed"):
        pipe.send(b"")


def test_all_who_wait_for_a_connection_that_is_closed_get_its_end(server):
    pipe, found = MemoryTransport(server), []
    waiting = [threading.Thread(target=lambda: found.append(pipe.receive(30))) for _ in range(4)]
    for each in waiting:
        each.start()
    pipe.close()
    for each in waiting:
        each.join(60)
    assert found == [b""] * 4


def test_answers_of_many_threads_arrive_once_and_whole(server):
    with MemoryTransport(server) as pipe:
        threads = [threading.Thread(target=lambda n=n: pipe.send(tool_call(n, "add", a=n, b=0))) for n in range(50)]
        for each in threads:
            each.start()
        lines: list[bytes] = []
        while len(lines) < 50:
            data = pipe.receive(30)
            assert data.endswith(b"\n")
            lines += data.splitlines()
    assert {json.loads(each)["id"] for each in lines} == set(range(50))


@pytest.mark.parametrize("tool", ["add", "async_add"])
def test_the_async_face_answers_too(server, tool):
    async def main() -> bytes:
        async with AsyncMemoryTransport(server) as pipe:
            await pipe.send(tool_call(1, tool, a=1, b=2))
            return await asyncio.wait_for(pipe.receive(), 60)

    assert said(json.loads(asyncio.run(main())), 1) == "3"


def test_closing_the_async_face_cancels_what_runs(server):
    async def main() -> bytes:
        async with AsyncMemoryTransport(server) as pipe:
            await pipe.send(tool_call(1, "wait"))
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.01)
        return await pipe.receive()

    assert asyncio.run(main()) == b""
    assert server.cleaned.is_set()


def test_no_task_is_left_when_a_connection_on_a_loop_has_ended(server):
    async def main() -> set[asyncio.Task]:
        async with AsyncMemoryTransport(server) as pipe:
            for number in range(3):
                await pipe.send(tool_call(number, "wait"))
            await pipe.send(tool_call(3, "async_add", a=1, b=2))
            assert said(json.loads(await pipe.receive()), 3) == "3"
        for _ in range(3):  # they are cancelled, and have a turn to end
            await asyncio.sleep(0)
        return asyncio.all_tasks() - {asyncio.current_task()}

    assert asyncio.run(main()) == set()


LISTEN = line(
    {
        "jsonrpc": "2.0",
        "id": "changes",
        "method": "subscriptions/listen",
        "params": {"notifications": {"toolsListChanged": True}, "_meta": META},
    }
)


def listened() -> RealServer:
    return RealServer("listened", capabilities={"tools": {"listChanged": True}})


def test_who_listens_gets_a_last_answer_when_the_connection_is_closed():
    with MemoryTransport(listened()) as pipe:
        pipe.send(LISTEN)
        assert json.loads(pipe.receive(30))["method"] == "notifications/subscriptions/acknowledged"
    assert json.loads(pipe.receive(30))["id"] == "changes"
    assert pipe.receive(30) == b""


def test_who_listens_on_a_loop_gets_a_last_answer_when_the_connection_is_closed():
    async def main() -> list[bytes]:
        async with AsyncMemoryTransport(listened()) as pipe:
            await pipe.send(LISTEN)
            acknowledged = await asyncio.wait_for(pipe.receive(), 60)
        return [acknowledged, await pipe.receive(), await pipe.receive()]

    acknowledged, last, end = asyncio.run(main())
    assert json.loads(acknowledged)["method"] == "notifications/subscriptions/acknowledged"
    assert json.loads(last)["id"] == "changes"
    assert end == b""


def test_who_waits_on_a_loop_for_a_connection_that_is_closed_gets_its_end(server):
    async def main() -> bytes:
        pipe = AsyncMemoryTransport(server)
        waiting = asyncio.create_task(pipe.receive())
        await asyncio.sleep(0)
        await pipe.close()
        await pipe.close()
        return await asyncio.wait_for(waiting, 60)

    assert asyncio.run(main()) == b""


def test_what_cannot_be_sent_any_more_is_refused_on_a_loop_too(server):
    async def main() -> None:
        async with AsyncMemoryTransport(server) as pipe:
            assert repr(pipe) == "<AsyncMemoryTransport: open>"
        assert repr(pipe) == "<AsyncMemoryTransport: closed>"
        with pytest.raises(ValueError, match="closed"):
            await pipe.send(b"")

    asyncio.run(main())


@pytest.mark.parametrize("face", ["threads", "loop"])
def test_the_lifespan_is_left_when_the_last_connection_is_closed(face):
    seen: list[str] = []
    server = RealServer("kept")

    @server.lifespan
    def opened():
        seen.append("in")
        yield
        seen.append("out")

    @server.tool
    def used() -> str:
        return "used"

    call = line(
        {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "used", "arguments": {}, "_meta": META}}
    )
    if face == "threads":
        with MemoryTransport(server) as pipe:
            pipe.send(call)
            assert said(json.loads(pipe.receive(30)), 1) == "used"
            assert seen == ["in"]
    else:

        async def main() -> None:
            async with AsyncMemoryTransport(server) as pipe:
                await pipe.send(call)
                assert said(json.loads(await asyncio.wait_for(pipe.receive(), 60)), 1) == "used"
                assert seen == ["in"]

        asyncio.run(main())
    assert seen == ["in", "out"]
