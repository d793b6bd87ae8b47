"""Cancellation over the memory transport, and questions and notifications that a client must not get wrong."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from linkspan import CallStopped, Client, Context, Limits, Server, Stopper, SyncClient
from linkspan.client.transports.memory import MemoryClientTransport
from linkspan.flows.answers import Handlers
from linkspan.types.messages import CreateMessageParams, ElicitParams, ToolChoice


def waiting_server() -> tuple[Server, threading.Event, threading.Event]:
    server, running, cancelled = Server("waiting"), threading.Event(), threading.Event()

    @server.tool
    async def wait() -> str:
        running.set()
        try:
            await asyncio.sleep(30)
        except asyncio.CancelledError:
            cancelled.set()
            raise
        return "waited"

    return server, running, cancelled


@pytest.mark.parametrize("era", ["modern", "legacy"])
def test_a_call_in_memory_that_is_stopped_cancels_its_tool(era: Any) -> None:
    server, running, cancelled = waiting_server()
    with SyncClient(server, era=era) as client:
        stopper = Stopper()
        threading.Thread(target=lambda: (running.wait(30), stopper.stop())).start()
        with pytest.raises(CallStopped):
            client.call_tool("wait", stopper=stopper)
        assert cancelled.wait(30), "before the client is closed"


@pytest.mark.parametrize("era", ["modern", "legacy"])
def test_a_task_in_memory_that_is_cancelled_cancels_its_tool(era: Any) -> None:
    server, running, cancelled = waiting_server()

    async def run() -> None:
        async with Client(server, era=era) as client:
            call = asyncio.create_task(client.call_tool("wait"))
            assert await asyncio.to_thread(running.wait, 5)
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            assert await asyncio.to_thread(cancelled.wait, 5), "before the client is closed"

    asyncio.run(run())


def test_a_question_in_memory_that_nobody_answers_ends_in_its_time() -> None:
    server, ended = Server("asking", limits=Limits(input_timeout=1)), threading.Event()

    @server.tool
    def ask(ctx: Context) -> str:
        return ctx.ask("name", str, "Who are you?")

    def answer(_: ElicitParams) -> None:
        ended.wait(60)

    with SyncClient(server, era="legacy", elicitation=answer) as client:
        result = client.call_tool("ask")
        ended.set()
    assert result.text == "No answer from the user within 1 seconds"


@pytest.mark.parametrize("choice", [{"tools": []}, {"tool_choice": ToolChoice()}], ids=["tools", "tool_choice"])
def test_sampling_with_either_member_of_tools_needs_sampling_tools(choice: dict[str, Any]) -> None:
    def sample(params: CreateMessageParams) -> Any:
        return None

    asked = CreateMessageParams(messages=[], max_tokens=1, **choice)
    plain = CreateMessageParams(messages=[], max_tokens=1)
    method = "sampling/createMessage"
    assert Handlers(sampling=sample).handler(method, asked) is None
    assert Handlers(sampling=sample).handler(method, plain) is not None
    assert Handlers(sampling=sample, sampling_tools=True).handler(method, asked) is not None


@pytest.mark.parametrize(("era", "announced"), [("modern", 0), ("legacy", 1)])
def test_roots_that_changed_are_announced_to_handshake_servers_only(era: Any, announced: int) -> None:
    """ROOT-2; modern servers ask when they want to know."""

    class Sent:
        def __init__(self) -> None:
            self.data = bytearray()

        def client(self, data: bytes) -> None:
            self.data += data

        def server(self, data: bytes) -> None:
            pass

    sent = Sent()
    with SyncClient(Server("roots"), era=era, roots=[], recorder=sent) as client:
        client.notify_roots_changed()
        client.list_tools()  # sent after it
        assert sent.data.count(b"notifications/roots/list_changed") == announced


def test_a_stopper_ends_a_call_from_the_moment_in_which_it_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[str] = []
    flush = MemoryClientTransport.flush

    class Watched(Stopper):
        def attach(self, callback: Callable[[], object]) -> None:
            steps.append("attach")
            super().attach(callback)

    def noted(self: MemoryClientTransport, here: asyncio.AbstractEventLoop | None = None) -> None:
        steps.append("send")
        flush(self, here)

    async def main() -> None:
        async with Client(server) as client:
            await client.ping()
            steps.clear()
            await client.call_tool("echo", stopper=Watched())

    server = Server()
    server.tool(name="echo")(lambda: "hi")
    monkeypatch.setattr(MemoryClientTransport, "flush", noted)
    with SyncClient(server) as client:
        client.ping()
        steps.clear()
        client.call_tool("echo", stopper=Watched())
    assert steps[:2] == ["attach", "send"]
    asyncio.run(main())
    assert steps[:2] == ["attach", "send"]
