"""Transports of one's own: channels of whole messages, plain and async, for servers and for clients."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest

from linkspan import (
    Client,
    ConnectError,
    ConnectionLost,
    Context,
    Server,
    SyncClient,
    Timeouts,
)

EXAMPLES = Path(__file__).parents[2] / "examples" / "websocket"


class Bridge:
    """One end of a plain channel in this process."""

    def __init__(self, incoming: SimpleQueue[Any], outgoing: SimpleQueue[Any]) -> None:
        self.incoming, self.outgoing = incoming, outgoing

    def send(self, message: str) -> None:
        self.outgoing.put(message)

    def __iter__(self) -> Iterator[str]:
        return iter(self.incoming.get, None)

    def close(self) -> None:
        self.incoming.put(None)
        self.outgoing.put(None)


class AsyncBridge:
    """One end of an async channel in this process."""

    def __init__(self, incoming: asyncio.Queue[Any], outgoing: asyncio.Queue[Any]) -> None:
        self.incoming, self.outgoing = incoming, outgoing

    async def send(self, message: str) -> None:
        self.outgoing.put_nowait(message)

    async def __aiter__(self) -> AsyncIterator[str]:
        while (message := await self.incoming.get()) is not None:
            yield message

    async def close(self) -> None:
        self.incoming.put_nowait(None)
        self.outgoing.put_nowait(None)


def pair() -> tuple[Bridge, Bridge]:
    here: SimpleQueue[Any] = SimpleQueue()
    there: SimpleQueue[Any] = SimpleQueue()
    return Bridge(here, there), Bridge(there, here)


def async_pair() -> tuple[AsyncBridge, AsyncBridge]:
    here: asyncio.Queue[Any] = asyncio.Queue()
    there: asyncio.Queue[Any] = asyncio.Queue()
    return AsyncBridge(here, there), AsyncBridge(there, here)


class Opened:
    """Opens channels to a server, each served by a thread of its own, and remembers the server's ends."""

    def __init__(self, server: Server, **options: Any) -> None:
        self.server, self.options = server, options
        self.ends: list[Bridge] = []

    def __call__(self) -> Bridge:
        mine, theirs = pair()
        self.ends.append(theirs)
        threading.Thread(target=self.server.attach, args=(theirs,), kwargs=self.options, daemon=True).start()
        return mine


class Bridged(Server):
    """A server that knows when `wait` runs, and when it was cancelled."""

    def __init__(self) -> None:
        super().__init__("bridged")
        self.started, self.stopped = threading.Event(), threading.Event()


def make_server() -> Bridged:
    server = Bridged()

    @server.tool
    def add(a: int, b: int, ctx: Context) -> int:
        ctx.progress(1, message="adding")
        return a + b

    @server.tool
    async def who(ctx: Context) -> str:
        return f"{ctx.principal} {dict(ctx.headers)}"

    @server.tool
    def confirm(ctx: Context) -> str:
        return "yes" if ctx.ask("sure", bool, "Sure?") else "no"

    @server.tool
    async def wait() -> None:
        server.started.set()
        try:
            await asyncio.Event().wait()
        finally:
            server.stopped.set()

    return server


@pytest.mark.parametrize("era", ["modern", "legacy"])
def test_a_client_in_threads_talks_over_a_plain_channel(era: Any) -> None:
    opened = Opened(make_server(), principal="alice", headers={"x-tenant": "a"})
    heard: list[str | None] = []
    with SyncClient(opened, era=era, elicitation=lambda question: {"sure": True}) as client:
        assert client.name == "Opened"
        result = client.call_tool("add", {"a": 1, "b": 2}, on_progress=lambda report: heard.append(report.message))
        assert result.structured == {"result": 3}
        assert client.call_tool("who").text == "alice {'x-tenant': 'a'}"
        assert client.call_tool("confirm").text == "yes"
    assert heard == ["adding"]


@pytest.mark.parametrize("era", ["modern", "legacy"])
def test_a_client_on_a_loop_talks_over_an_async_channel(era: Any) -> None:
    server = make_server()

    async def main() -> None:
        serving: list[asyncio.Task[None]] = []

        async def open_channel() -> AsyncBridge:
            mine, theirs = async_pair()
            serving.append(asyncio.create_task(server.attach(theirs, principal="bob")))
            return mine

        async with Client(open_channel, era=era, name="bridge", elicitation=lambda question: {"sure": True}) as client:
            calls = [client.call_tool("add", {"a": n, "b": 1}) for n in range(20)]
            assert [each.structured["result"] for each in await asyncio.gather(*calls)] == list(range(1, 21))
            assert (await client.call_tool("who")).text == "bob {}"
            assert (await client.call_tool("confirm")).text == "yes"
        await asyncio.wait_for(asyncio.gather(*serving), 60)

    asyncio.run(main())


def test_a_cancelled_call_is_cancelled_on_the_other_side() -> None:
    server = make_server()

    async def main() -> None:
        async with Client(Opened(server)) as client:
            call = asyncio.create_task(client.call_tool("wait"))
            assert await asyncio.to_thread(server.started.wait, 10)
            call.cancel()
            assert await asyncio.to_thread(server.stopped.wait, 10)

    asyncio.run(main())


def test_what_is_no_message_is_answered_and_disturbs_nothing() -> None:
    mine, theirs = pair()
    serving = threading.Thread(target=make_server().attach, args=(theirs,))
    serving.start()
    ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
    for wrong, code in (("no JSON", -32700), ("\udc80", -32700), ('{"jsonrpc": "2.0"}', -32600)):
        mine.send(wrong)
        assert json.loads(mine.incoming.get())["error"]["code"] == code
    mine.send(json.dumps(ping, indent=2))
    assert json.loads(mine.incoming.get()) == {"jsonrpc": "2.0", "id": 1, "result": {}}
    mine.close()
    serving.join(60)
    assert not serving.is_alive()


def test_a_lost_channel_ends_the_call_and_the_next_call_opens_another() -> None:
    server = make_server()
    opened = Opened(server)
    with SyncClient(opened, name="bridge") as client:
        failing: list[Exception] = []

        def call() -> None:
            try:
                client.call_tool("wait")
            except Exception as error:
                failing.append(error)

        thread = threading.Thread(target=call)
        client.call_tool("add", {"a": 1, "b": 2})
        thread.start()
        assert server.started.wait(60)
        opened.ends[0].close()
        thread.join(60)
        (error,) = failing
        assert isinstance(error, ConnectionLost)
        assert error.delivery == "maybe_sent"
        assert client.call_tool("add", {"a": 1, "b": 2}).text == "3"
        assert len(opened.ends) == 2


class Deaf(Bridge):
    """Takes messages and answers none."""

    def send(self, message: str) -> None:
        pass


class Broken(Bridge):
    """Fails when it is used."""

    def send(self, message: str) -> None:
        raise OSError("wire cut")


def test_a_client_that_is_closed_has_closed_its_channel() -> None:
    opened: list[Closing] = []

    class Closing(Bridge):
        closed = False

        def close(self) -> None:
            time.sleep(0.2)
            super().close()
            self.closed = True

    def open_channel() -> Bridge:
        mine, theirs = pair()
        serving.append(threading.Thread(target=make_server().attach, args=(theirs,)))
        serving[0].start()
        opened.append(Closing(mine.incoming, mine.outgoing))
        return opened[0]

    serving: list[threading.Thread] = []
    with SyncClient(open_channel, name="closing", timeouts=Timeouts(close=60)) as client:
        assert client.call_tool("add", {"a": 1, "b": 2}).text == "3"
        assert not opened[0].closed
    assert opened[0].closed
    serving[0].join(60)
    assert not serving[0].is_alive()


def test_a_client_on_a_loop_that_is_closed_has_closed_its_channel() -> None:
    closed: list[str] = []

    class Closing(AsyncBridge):
        async def close(self) -> None:
            await asyncio.sleep(0.2)
            await super().close()
            closed.append("closed")

    async def main() -> None:
        serving: list[asyncio.Task[None]] = []

        async def open_channel() -> AsyncBridge:
            mine, theirs = async_pair()
            serving.append(asyncio.create_task(make_server().attach(theirs)))
            return Closing(mine.incoming, mine.outgoing)

        async with Client(open_channel, name="closing", timeouts=Timeouts(close=60)) as client:
            assert (await client.call_tool("add", {"a": 1, "b": 2})).text == "3"
            assert closed == []
        assert closed == ["closed"]
        await asyncio.wait_for(asyncio.gather(*serving), 60)

    asyncio.run(main())


@pytest.mark.parametrize("kind", ["plain", "async"])
def test_a_channel_on_which_a_client_cannot_send_is_closed(kind: str) -> None:
    closed = threading.Event()

    class Failing(Bridge):
        def send(self, message: str) -> None:
            raise OSError("wire cut")

        def close(self) -> None:
            closed.set()

    class FailingLater(AsyncBridge):
        async def send(self, message: str) -> None:
            raise OSError("wire cut")

        async def close(self) -> None:
            closed.set()

    async def open_later() -> AsyncBridge:
        return FailingLater(asyncio.Queue(), asyncio.Queue())

    here: SimpleQueue[Any] = SimpleQueue()
    client = SyncClient((lambda: Failing(here, here)) if kind == "plain" else open_later, name="failing")
    with pytest.raises(ConnectError, match="the channel failed: OSError: wire cut"):
        client.call_tool("add")
    assert closed.wait(60)
    here.put(None)
    client.close()


def test_a_silent_server_times_out() -> None:
    client = SyncClient(lambda: Deaf(*[SimpleQueue()] * 2), timeouts=Timeouts(connect=0.3, probe=0.1), name="deaf")
    with pytest.raises(ConnectError):
        client.call_tool("add")
    client.close()


def test_a_channel_that_fails_says_so() -> None:
    client = SyncClient(lambda: Broken(*[SimpleQueue()] * 2), name="broken")
    with pytest.raises(ConnectError, match="the channel failed: OSError: wire cut"):
        client.call_tool("add")
    client.close()


def test_a_channel_that_cannot_be_opened_is_an_error_of_the_call() -> None:
    def fail() -> Bridge:
        raise ConnectionRefusedError("nobody there")

    async def fail_later() -> AsyncBridge:
        raise ConnectionRefusedError("nobody there")

    for opener in (fail, fail_later):
        with pytest.raises(ConnectError, match="could not be opened: ConnectionRefusedError: nobody there"):
            SyncClient(opener).connect()


def test_a_channel_that_does_not_open_is_given_up() -> None:
    over = threading.Event()

    def hang() -> Bridge:
        over.wait(30)
        return pair()[0]

    with pytest.raises(ConnectError, match=r"was not opened within 0\.1 s"):
        SyncClient(hang, timeouts=Timeouts(connect=0.1)).connect()
    over.set()


def test_a_channel_that_opens_after_it_was_given_up_is_closed() -> None:
    over, opened = threading.Event(), pair()[0]

    def open_late() -> Bridge:
        assert over.wait(30)
        return opened

    with pytest.raises(ConnectError, match="was not opened within"):
        SyncClient(open_late, timeouts=Timeouts(connect=0.05)).connect()
    over.set()
    assert opened.incoming.get(timeout=30) is None  # what `close` of a bridge puts there


def test_an_async_channel_that_opens_after_it_was_given_up_is_closed() -> None:
    over, closed = threading.Event(), threading.Event()

    class Late(AsyncBridge):
        async def close(self) -> None:
            closed.set()

    async def open_late() -> AsyncBridge:
        await asyncio.to_thread(over.wait, 30)
        return Late(asyncio.Queue(), asyncio.Queue())

    with pytest.raises(ConnectError, match="was not opened within"):
        SyncClient(open_late, timeouts=Timeouts(connect=0.05)).connect()
    over.set()
    assert closed.wait(30)


def test_what_was_asked_before_the_end_is_answered() -> None:
    server, release = Server(), threading.Event()
    server.tool(name="slow")(lambda: release.wait(60) and "done")
    mine, theirs = pair()
    serving = threading.Thread(target=server.attach, args=(theirs,), kwargs={"grace": 10.0})
    serving.start()
    mine.send(json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "slow"}}))
    theirs.incoming.put(None)  # the client sends no more, and still reads
    release.set()
    assert json.loads(mine.incoming.get())["result"]["content"][0]["text"] == "done"
    serving.join(60)
    assert not serving.is_alive()


def test_a_channel_on_which_nothing_can_be_sent_is_closed() -> None:
    """Only that ends its iteration."""

    class Deaf(Bridge):
        def send(self, message: str) -> None:
            raise OSError("the other side is gone")

    here: SimpleQueue[Any] = SimpleQueue()
    here.put('{"jsonrpc":"2.0","id":1,"method":"ping"}')
    serving = threading.Thread(target=Server("deaf").attach, args=(Deaf(here, SimpleQueue()),), daemon=True)
    serving.start()
    serving.join(60)
    assert not serving.is_alive()


def test_an_async_channel_on_which_nothing_can_be_sent_is_closed() -> None:
    class Deaf(AsyncBridge):
        async def send(self, message: str) -> None:
            raise OSError("the other side is gone")

    async def main() -> None:
        here: asyncio.Queue[Any] = asyncio.Queue()
        here.put_nowait('{"jsonrpc":"2.0","id":1,"method":"ping"}')
        await asyncio.wait_for(Server("deaf").attach(Deaf(here, asyncio.Queue())), 60)

    asyncio.run(main())


def test_a_channel_that_is_served_in_the_background_does_not_hold_the_process() -> None:
    code = """
import threading
from linkspan import Server

class Silent:
    def send(self, message): ...
    def close(self): ...
    def __iter__(self):
        begun.set()
        threading.Event().wait()
        yield ""

begun = threading.Event()
threading.Thread(target=Server("silent").attach, args=(Silent(),), daemon=True).start()
assert begun.wait(60)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_client_that_does_not_read_is_not_read_from() -> None:
    room, taken = threading.Event(), threading.Semaphore(0)

    class Slow(Bridge):
        def send(self, message: str) -> None:
            taken.release()
            room.wait(60)
            super().send(message)

    here: SimpleQueue[Any] = SimpleQueue()
    there: SimpleQueue[Any] = SimpleQueue()
    server, called = Server(), 0

    @server.tool(inline=True)
    def count() -> int:
        nonlocal called
        called += 1
        return called

    serving = threading.Thread(target=server.attach, args=(Slow(here, there),), kwargs={"max_unsent": 1})
    serving.start()
    for number in range(10):
        here.put(json.dumps({"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": {"name": "count"}}))
    assert taken.acquire(timeout=60)
    assert called < 3
    room.set()
    answers = [json.loads(there.get())["id"] for _ in range(10)]
    assert answers == list(range(10))
    here.put(None)
    serving.join(60)


@pytest.mark.parametrize("name", ["server.py", "client.py"])
def test_the_example_is_short(name: str) -> None:
    assert len((EXAMPLES / name).read_text().splitlines()) < 60


def test_the_example_over_websockets_runs() -> None:
    pytest.importorskip("websockets", reason="the example needs websockets")
    server = subprocess.Popen([sys.executable, EXAMPLES / "server.py"], stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        url = server.stdout.readline().strip()
        done = subprocess.run(
            [sys.executable, EXAMPLES / "client.py", url], capture_output=True, text=True, timeout=60, check=True
        )
        assert done.stdout == "sounding for alice\n6.5\n7.5\n"
    finally:
        server.terminate()
        server.wait(60)
        assert server.stdout is not None
        server.stdout.close()
