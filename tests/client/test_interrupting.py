"""A caller gives up: by cancelling its task, by a timeout of its own, by Ctrl-C. The server is told; nobody else notices."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from faces import ERAS, FACES
from wild import wild

from linkspan import CallStopped, CallTimeout, Client, Server, Stopper, SyncClient, Timeouts

HERE = Path(__file__).parent
TOLD = {"tools/call hang": [{"stderr": "started"}], "notifications/cancelled": [{"stderr": "cancelled"}]}


class Said:
    """What the server said on stderr; waiting for a word has an end."""

    def __init__(self) -> None:
        self.text = ""
        self._news = threading.Condition()

    def __call__(self, text: str) -> None:
        with self._news:
            self.text += text
            self._news.notify_all()

    def wait(self, word: str, times: int = 1) -> None:
        with self._news:
            assert self._news.wait_for(lambda: self.text.count(word) >= times, 30), (word, self.text)


def on_a_thread(said: Said, word: str, times: int = 1) -> Any:
    return asyncio.to_thread(said.wait, word, times)


@pytest.fixture
def said() -> Said:
    return Said()


def client_of(said: Said, era: Any = None, **options: Any) -> Client:
    """A client whose callbacks do not depend on its loop."""
    return Client(wild(TOLD), era=era, on_stderr=said, **options)


@pytest.mark.parametrize("era", ERAS)
def test_a_cancelled_task_ends_its_call_and_no_other(era: Any, said: Said) -> None:
    async def run() -> None:
        async with client_of(said, era) as client:
            calls = [asyncio.create_task(client.call_tool("hang")) for _ in range(3)]
            bystander = asyncio.create_task(asyncio.Event().wait())
            await on_a_thread(said, "started", 3)
            calls[1].cancel()
            with pytest.raises(asyncio.CancelledError):
                await calls[1]
            await on_a_thread(said, "cancelled")
            assert (await client.call_tool("hi")).text == "hi"
            assert not any(each.done() for each in (calls[0], calls[2], bystander))
            assert asyncio.current_task().cancelling() == 0  # type: ignore[union-attr]
            for each in (*calls, bystander):
                each.cancel()
            await asyncio.wait([*calls, bystander])
            await on_a_thread(said, "cancelled", 3)  # closing would not wait for what the process prints
        assert said.text.count("cancelled") == 3

    asyncio.run(run())


@pytest.mark.parametrize("era", ERAS)
def test_a_timeout_around_a_call_is_an_ordinary_timeout(era: Any, said: Said) -> None:
    async def run() -> None:
        async with client_of(said, era) as client:
            for _ in range(3):
                with pytest.raises(TimeoutError) as caught:
                    async with asyncio.timeout(0.05):
                        await client.call_tool("hang")
                assert not isinstance(caught.value, CallTimeout)
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(client.call_tool("hang"), 0.05)
            assert (await client.call_tool("hi")).text == "hi"
            await on_a_thread(said, "cancelled", 6)

    asyncio.run(run())


def test_a_timeout_around_connecting_leaves_a_client_that_works(said: Said) -> None:
    async def run() -> None:
        slow = {"server/discover": [{"sleep": 0.5}], "start": [{"stderr": "up"}]}
        client = Client(wild(slow), on_stderr=said, era="legacy")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.001):
                await client.connect()
        assert (await client.call_tool("hi")).text == "hi"
        await client.close()
        assert said.text.count("up") == 1  # the start that had begun was not thrown away

    asyncio.run(run())


def test_a_task_group_that_fails_takes_its_own_calls_only(said: Said) -> None:
    async def run() -> None:
        async with client_of(said) as client:
            outside = asyncio.create_task(client.call_tool("hang"))

            async def fail() -> None:
                await on_a_thread(said, "started", 3)
                raise KeyError("mine")

            async def together() -> None:
                async with asyncio.TaskGroup() as group:
                    for _ in range(2):
                        group.create_task(client.call_tool("hang"))
                    group.create_task(fail())

            with pytest.raises(ExceptionGroup) as caught:
                await together()
            assert [type(each) for each in caught.value.exceptions] == [KeyError]
            await on_a_thread(said, "cancelled", 2)
            assert not outside.done()
            outside.cancel()

    asyncio.run(run())


def test_cancelling_while_it_connects_disturbs_nobody_else_who_waits(said: Said) -> None:
    async def run() -> None:
        client = Client(wild({"initialize": [{"sleep": 0.2}, _GREETING]}), era="legacy")
        waiting = [asyncio.create_task(client.call_tool("hi")) for _ in range(3)]
        await asyncio.sleep(0)
        waiting[0].cancel()
        outcomes = await asyncio.gather(*waiting, return_exceptions=True)
        assert isinstance(outcomes[0], asyncio.CancelledError)
        assert [each.text for each in outcomes[1:]] == ["hi", "hi"]  # type: ignore[union-attr]
        await client.close()

    asyncio.run(run())


_GREETING = (
    '{"jsonrpc":"2.0","id":$ID,"result":{"protocolVersion":"2025-11-25","capabilities":{},'
    '"serverInfo":{"name":"w","version":"1"}}}'
)


def test_cancelling_close_still_closes() -> None:
    async def run() -> None:
        client = Client(wild({"end": [{"sleep": 60}]}), timeouts=Timeouts(close=0.2))
        await client.connect()
        closing = asyncio.create_task(client.close())
        await asyncio.sleep(0)
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        await client.close()
        assert not client.connected

    asyncio.run(run())


def test_an_async_tool_in_this_process_is_cancelled_with_its_call() -> None:
    server = Server("here")
    ended = threading.Event()

    @server.tool
    async def wait() -> str:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        return ""

    async def run() -> None:
        async with Client(server) as client:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.05):
                    await client.call_tool("wait")
            assert await asyncio.to_thread(ended.wait, 30)

    asyncio.run(run())


@pytest.mark.parametrize("face", FACES)
def test_a_call_over_its_time_is_taken_back(face: str, said: Said) -> None:
    async def loop() -> None:
        async with client_of(said) as client:
            with pytest.raises(CallTimeout):
                await client.call_tool("hang", timeout=0.1)
            await on_a_thread(said, "cancelled")

    if face == "async":
        asyncio.run(loop())
        return
    with SyncClient(wild(TOLD), on_stderr=said) as client:
        with pytest.raises(CallTimeout) as caught:
            client.call_tool("hang", timeout=0.1)
        assert isinstance(caught.value, TimeoutError)
        assert (caught.value.seconds, caught.value.delivery) == (0.1, "maybe_sent")
        said.wait("cancelled")


@pytest.mark.parametrize("face", FACES)
def test_a_stopper_ends_calls_from_elsewhere(face: str, said: Said) -> None:
    stopper = Stopper()

    def stop() -> None:
        said.wait("started", 2)
        stopper.stop("enough")

    threading.Thread(target=stop).start()

    async def loop() -> None:
        async with client_of(said) as client:
            calls = [client.call_tool("hang", stopper=stopper) for _ in range(2)]
            outcomes = await asyncio.gather(*calls, return_exceptions=True)
            assert [type(each) for each in outcomes] == [CallStopped] * 2
            await on_a_thread(said, "cancelled", 2)

    if face == "async":
        asyncio.run(loop())
        return
    outcomes: list[BaseException] = []

    def call(client: SyncClient) -> None:
        try:
            client.call_tool("hang", stopper=stopper)
        except BaseException as error:
            outcomes.append(error)

    with SyncClient(wild(TOLD), on_stderr=said) as client:
        threads = [threading.Thread(target=call, args=(client,)) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        said.wait("cancelled", 2)
    assert [type(each) for each in outcomes] == [CallStopped] * 2


def test_a_progress_callback_that_raises_ends_its_call_and_tells_the_server(said: Said) -> None:
    more = '{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":$ID,"progress":1}}'

    def oh(progress: Any) -> None:
        raise KeyError("mine")

    with SyncClient(wild(TOLD | {"tools/call hang": [more]}), on_stderr=said) as client:
        with pytest.raises(KeyError, match="mine"):
            client.call_tool("hang", on_progress=oh)
        said.wait("cancelled")
        assert client.call_tool("hi").text == "hi"


INTERRUPTED = f"""
import os, signal, sys
sys.path.insert(0, {str(HERE)!r})
from wild import wild
from linkspan import *
PLAN = {TOLD!r}
def heard(text):
    if "started" in text:
        os.kill(os.getpid(), signal.SIGINT)
    os.write(1, text.encode())
"""


def run_interrupted(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", INTERRUPTED + textwrap.dedent(code)],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )


def test_ctrl_c_in_a_sync_call_reaches_its_caller_and_the_server() -> None:
    began = time.monotonic()
    done = run_interrupted(
        """
        import threading
        with SyncClient(wild(PLAN), on_stderr=heard) as client:
            try:
                client.call_tool("hang")
            except KeyboardInterrupt:
                print("interrupted", flush=True)
            assert client.call_tool("hi").text == "hi"  # the server got no signal, and the client works
        """
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "interrupted" in done.stdout
    assert "cancelled" in done.stdout
    assert time.monotonic() - began < 30


def test_ctrl_c_in_an_async_call_ends_the_program_as_usual() -> None:
    done = run_interrupted(
        """
        import asyncio
        async def main():
            async with Client(wild(PLAN), on_stderr=heard) as client:
                await client.call_tool("hang")
        try:
            asyncio.run(main())
        except KeyboardInterrupt:
            print("interrupted", flush=True)
        """
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "interrupted" in done.stdout


def test_ctrl_c_that_nobody_catches_ends_the_program_and_its_server() -> None:
    done = run_interrupted("client = SyncClient(wild(PLAN), on_stderr=heard); client.call_tool('hang')")
    assert done.returncode == -signal.SIGINT
    assert done.stderr.rstrip().endswith("KeyboardInterrupt")
