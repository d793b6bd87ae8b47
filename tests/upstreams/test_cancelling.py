"""A call that is cancelled, at whichever stage, reaches the server elsewhere once, and leaves nothing behind."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Generator
from typing import Any, Literal

import pytest
from elsewhere import Elsewhere

from linkspan import Call, Client, ClientError, Context, Server, Stopper, SyncClient, Timeouts
from linkspan.server.mounting import Mounted

Era = Literal["modern", "legacy"]
ERAS: tuple[Era, ...] = ("modern", "legacy")
PAIRS = pytest.mark.parametrize(("there", "here"), [(there, here) for there in ERAS for here in ERAS])


class Recording:
    """A server with a call that hangs, and one that asks; remembers what ran and what was cancelled there."""

    def __init__(self) -> None:
        self.server = Server("there")
        self.began = threading.Event()
        self.ran: list[str] = []
        self.cancelled: list[str] = []

        @self.server.tool
        async def hang() -> str:
            self.ran.append("hang")
            self.began.set()
            try:
                await asyncio.sleep(600)
            except asyncio.CancelledError:
                self.cancelled.append("hang")
                raise
            return "late"

        @self.server.tool(hold=True)
        async def ask(ctx: Context) -> str:
            self.ran.append("ask")
            try:
                answer: Any = ctx.ask("n", int, "How many?")  # holds: it is awaited
                return f"{await answer}"
            except asyncio.CancelledError:
                self.cancelled.append("ask")
                raise


def until(holds: Callable[[], object]) -> None:
    """Wait until something holds."""
    end = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < end, "it did not come"
        time.sleep(0.01)


def under_way(mounted: Mounted) -> list[object]:
    """Return what waits for the server elsewhere, of all callers."""
    upstream: Any = vars(mounted)["_mount"]
    return [each for caller in upstream.callers for each in (*caller.under_way, *caller._parked)]


@PAIRS
def test_in_flight(there: Era, here: Era) -> None:
    recording, server = Recording(), Server("here")
    mounted = server.mount(Elsewhere(recording.server), era=there)
    stopper = Stopper()
    with SyncClient(server, era=here) as client:
        threading.Thread(target=lambda: recording.began.wait(60) and stopper.stop(), daemon=True).start()
        with pytest.raises(ClientError, match="stopped"):
            client.call_tool("hang", stopper=stopper)
        until(lambda: recording.cancelled)
        until(lambda: not under_way(mounted))
    assert (recording.ran, recording.cancelled) == (["hang"], ["hang"])


@PAIRS
def test_before_it_is_sent(there: Era, here: Era) -> None:
    recording, server = Recording(), Server("here")
    listing, gate = threading.Event(), threading.Event()

    @recording.server.middleware(only=["tools/list"], blocking=True)
    def wait(call: Call) -> Generator[None, Any, Any]:
        listing.set()
        gate.wait(60)
        return (yield)

    mounted = server.mount(Elsewhere(recording.server), era=there, list_timeout=60)
    stopper = Stopper()
    with SyncClient(server, era=here) as client:
        threading.Thread(target=lambda: listing.wait(60) and stopper.stop(), daemon=True).start()
        with pytest.raises(ClientError, match="stopped"):
            client.call_tool("hang", stopper=stopper)
        gate.set()
        assert [each.name for each in client.list_tools()] == ["hang", "ask"]
        until(lambda: not under_way(mounted))
    assert (recording.ran, recording.cancelled) == ([], [])


@PAIRS
def test_while_the_user_is_asked(there: Era, here: Era) -> None:
    """A modern caller just does not come back: what waits upstream ends when no answer can be expected any more."""
    recording, server = Recording(), Server("here")
    mounted = server.mount(Elsewhere(recording.server), era=there, timeouts=Timeouts(input=1.0))
    stopper, asked, over = Stopper(), threading.Event(), threading.Event()

    def stop() -> None:
        asked.wait(60)
        stopper.stop()
        over.set()

    def answer(question: object) -> dict[str, int]:
        asked.set()
        over.wait(60)
        return {"n": 1}

    with SyncClient(server, era=here, elicitation=answer) as client:
        threading.Thread(target=stop, daemon=True).start()
        with pytest.raises(ClientError, match="stopped"):
            client.call_tool("ask", stopper=stopper)
        until(lambda: not under_way(mounted))
        if there == "legacy":
            until(lambda: recording.cancelled)
    assert recording.ran == ["ask"]
    # Nobody cancels a modern one: it ends with the time for its answer, or with the connection.
    assert recording.cancelled in ([["ask"]] if there == "legacy" else [[], ["ask"]])


def test_a_question_whose_call_was_cancelled_makes_room_at_once() -> None:
    recording, server = Recording(), Server("here")
    mounted = server.mount(Elsewhere(recording.server), era="legacy")
    stopper, asked, over = Stopper(), threading.Event(), threading.Event()

    def answer(question: object) -> dict[str, int]:
        asked.set()
        over.wait(60)
        return {"n": 1}

    with SyncClient(server, era="legacy", elicitation=answer) as client:
        threading.Thread(target=lambda: asked.wait(60) and stopper.stop(), daemon=True).start()
        with pytest.raises(ClientError, match="stopped"):
            client.call_tool("ask", stopper=stopper)
        until(lambda: not under_way(mounted))  # its question could have been answered for ten minutes
        over.set()


@PAIRS
def test_nothing_is_left_of_many(there: Era, here: Era) -> None:
    """A thousand in all: of each twenty, ten are cancelled where they have got to by then, and ten while they run there."""
    recording, server = Recording(), Server("here")
    mounted = server.mount(Elsewhere(recording.server), era=there)
    asyncio.run(cancel_many(recording, Client(server, era=here), mounted))
    assert len(recording.cancelled) == len(recording.ran) >= 130


async def cancel_many(recording: Recording, connecting: Client, mounted: Mounted) -> None:
    """Cancel 260 calls, and wait each time until nothing is left of them."""

    async def eventually(holds: Callable[[], object]) -> None:
        end = time.monotonic() + 60
        while not holds():
            assert time.monotonic() < end, "it did not come"
            await asyncio.sleep(0.005)

    async with connecting as client:
        await client.list_tools()
        for turn in range(13):
            at_once = [asyncio.create_task(client.call_tool("hang")) for _ in range(10)]
            for _ in range(turn):
                await asyncio.sleep(0)
            for each in at_once:
                each.cancel()
            await asyncio.wait(at_once)
            await eventually(lambda: not under_way(mounted) and len(recording.cancelled) == len(recording.ran))
            later = [asyncio.create_task(client.call_tool("hang")) for _ in range(10)]
            # One of those before may begin now, and end.
            await eventually(lambda: len(recording.ran) - len(recording.cancelled) == 10)
            for each in later:
                each.cancel()
            await asyncio.wait(later)
            assert all(each.cancelled() for each in (*at_once, *later))
            await eventually(lambda: not under_way(mounted) and len(recording.cancelled) == len(recording.ran))
