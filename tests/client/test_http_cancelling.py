"""Giving up calls over HTTP: the stream of each is closed, which is how the newest revision cancels, and nobody else waits."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from faces import ERAS

from linkspan import CallStopped, CallTimeout, Client, Stopper, Timeouts
from raw_http import RawServer, sse

pytestmark = pytest.mark.timeout(120)
SCRIPT = Path(__file__).parent / "quiet_server.py"


class Watcher:
    """A server's step: wait until the client closes the connection."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self.closed = threading.Event()

    def __call__(self, connection: socket.socket) -> None:
        self.reached.set()
        with suppress(OSError):
            while connection.recv(4096):
                pass
        self.closed.set()


async def cancel_the_task(client: Client, watcher: Watcher) -> None:
    call = asyncio.ensure_future(client.call_tool("hi"))
    await asyncio.to_thread(watcher.reached.wait, 30)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call


async def stop(client: Client, watcher: Watcher) -> None:
    stopper = Stopper()
    call = asyncio.ensure_future(client.call_tool("hi", stopper=stopper))
    await asyncio.to_thread(watcher.reached.wait, 30)
    stopper.stop()
    with pytest.raises(CallStopped):
        await call


async def run_out_of_time(client: Client, watcher: Watcher) -> None:
    with pytest.raises(CallTimeout):
        await client.call_tool("hi", timeout=1.5)


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("streams", [True, False], ids=["in a stream", "before the head"])
@pytest.mark.parametrize("give_up", [cancel_the_task, stop, run_out_of_time])
def test_the_stream_of_a_call_that_is_given_up_is_closed_and_its_client_lives_on(
    give_up: Any, streams: bool, era: Any
) -> None:
    """CAN-3."""
    watcher = Watcher()
    plan = {"tools/call hi": [*sse(": opened\n\n"), 0.2, watcher] if streams else [watcher]}

    async def run() -> str:
        async with Client(server.url, era=era, timeouts=Timeouts(close=0.2)) as client:
            await give_up(client, watcher)
            assert await asyncio.to_thread(watcher.closed.wait, 30), "the stream is still open"
            text = (await client.call_tool("again")).text
            async with asyncio.timeout(30):
                while era == "legacy" and not cancelled():  # which the end of the client would cut short
                    await asyncio.sleep(0.01)
            return text

    def cancelled() -> list[Any]:
        return [each.json for each in server.requests if each.json.get("method") == "notifications/cancelled"]

    with RawServer(plan, era=era) as server:
        assert asyncio.run(run()) == "hi"
    assert len(cancelled()) == (1 if era == "legacy" else 0)


@pytest.fixture
def quiet() -> Iterator[str]:
    process = subprocess.Popen([sys.executable, str(SCRIPT)], stdout=subprocess.PIPE)
    assert process.stdout is not None
    try:
        yield f"http://127.0.0.1:{int(process.stdout.readline())}/mcp"
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def test_ten_thousand_cancelled_calls_hold_up_no_other(quiet: str) -> None:
    async def timed(client: Client) -> float:
        began = time.perf_counter()
        await client.call_tool("hi")
        return time.perf_counter() - began

    async def extra(client: Client, other: Client) -> float:
        """Return what cancelling costs the next call, of this client or another."""
        usual = max(await timed(client), await timed(other))
        calls = [asyncio.ensure_future(client.call_tool("slow")) for _ in range(10_000)]
        await asyncio.sleep(0)
        for each in calls:
            each.cancel()
        await asyncio.gather(*calls, return_exceptions=True)
        return max(await asyncio.gather(timed(client), timed(other))) - usual

    async def run() -> list[float]:
        async with Client(quiet) as client, Client(quiet) as other:
            found: list[float] = []
            while len(found) < 6 and not (found and found[-1] < 0.1):  # the machine may be busy with something else
                found.append(await extra(client, other))
            return found

    found = asyncio.run(run())
    assert min(found) < 0.1, found


def test_calls_that_are_cancelled_while_they_are_open_are_all_closed(quiet: str) -> None:
    async def run() -> float:
        async with Client(quiet) as client:
            calls = [asyncio.ensure_future(client.call_tool("slow")) for _ in range(1000)]
            while _open_streams(client) < 1000:
                await asyncio.sleep(0.01)
            for each in calls:
                each.cancel()
            await asyncio.gather(*calls, return_exceptions=True)
            began = time.perf_counter()
            await client.call_tool("hi")
            waited = time.perf_counter() - began
            while _open_streams(client):
                assert time.perf_counter() - began < 30
                await asyncio.sleep(0.01)
            return waited

    assert asyncio.run(run()) < 15.0


def test_calls_can_be_cancelled_by_the_thousand_while_their_client_connects() -> None:
    """Each is withdrawn by itself; looking through all that wait takes many seconds of CPU."""

    async def cpu(url: str, number: int) -> float:
        client = Client(url)
        stopper = Stopper()
        calls = [asyncio.ensure_future(client.call_tool("hi", stopper=stopper)) for _ in range(number)]
        await asyncio.sleep(0.1)
        began = time.process_time()
        for each in reversed(calls):
            each.cancel()
        await asyncio.gather(*calls, return_exceptions=True)
        used = time.process_time() - began
        client.close_now()
        return used

    with socket.create_server(("127.0.0.1", 0)) as mute:
        url = f"http://127.0.0.1:{mute.getsockname()[1]}/mcp"
        assert asyncio.run(cpu(url, 10_000)) < 4.0


def _open_streams(client: Client) -> int:
    link: Any = client._supervisor._transport
    return len(link._runs.by_key)
