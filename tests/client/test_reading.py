"""Who reads what a server process sends: the loop or the thread that waits for it, and the reactor whenever these do not."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from faces import wait_until
from wild import LEGACY_ONLY, raw, result, wild

from linkspan import CallTimeout, Client, ClientClosed, ConnectionLost, Stopper, SyncClient, Timeouts
from linkspan.client.transports.base import ThreadWaiter
from linkspan.client.transports.stdio import LeaderFollowers, StdioClientTransport

HI = result({"resultType": "complete", "content": [{"type": "text", "text": "hi"}]})
PING = LEGACY_ONLY | {
    "tools/call hi": [HI, {"sleep": 0.2}, raw(id="p", method="ping")],
    "answer": [{"stderr": "ponged"}],
}
ROUNDS = 20
"""Between calls the reactor reads; on a busy machine it may leave the pipe too late for most calls of a round."""
LATER = {"tools/call hi": [HI, {"sleep": 0.2}, raw(method="notifications/later")]}


class Noted(list[Any]):
    """What a callback was called with."""

    def __call__(self, *values: Any) -> None:
        self.extend(values)


@pytest.fixture
def readers(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The threads that have read something, in order."""
    noted: list[int] = []
    receive_data = StdioClientTransport.receive_data

    def note(self: StdioClientTransport, data: bytes, here: Any = None) -> None:
        noted.append(threading.get_ident())
        receive_data(self, data, here)

    monkeypatch.setattr(StdioClientTransport, "receive_data", note)
    return noted


def loops() -> list[Callable[[], asyncio.AbstractEventLoop]]:
    made: list[Any] = [asyncio.new_event_loop]
    try:
        import uvloop
    except ImportError:
        return made
    return [*made, uvloop.new_event_loop]


every_loop = pytest.mark.parametrize("new_loop", loops(), ids=lambda each: each.__module__)


@every_loop
def test_the_loop_of_the_caller_reads(readers: list[int], new_loop: Any) -> None:
    async def run() -> None:
        await client.call_tool("hi")
        await client.call_tool("hi")
        for _ in range(ROUNDS):
            readers.clear()
            for _ in range(20):
                assert (await client.call_tool("hi")).text == "hi"
            if readers.count(threading.get_ident()) >= 18:
                return
        pytest.fail("another thread reads")

    client = Client(wild())
    for _ in range(3):
        with asyncio.Runner(loop_factory=new_loop) as runner:
            runner.run(run())
    client.close_now()


def test_the_thread_that_waits_reads(readers: list[int]) -> None:
    with SyncClient(wild()) as client:
        client.call_tool("hi")
        client.call_tool("hi")
        for _ in range(ROUNDS):
            readers.clear()
            for _ in range(20):
                assert client.call_tool("hi").text == "hi"
            if readers.count(threading.get_ident()) >= 18:
                return
        pytest.fail("another thread reads")


@every_loop
def test_what_comes_after_its_loop_has_ended_is_received(new_loop: Any) -> None:
    heard = Noted()
    client = Client(wild(LATER), on_notification=heard)
    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(client.call_tool("again"))
        runner.run(client.call_tool("hi"))
    wait_until(lambda: heard)
    assert heard == ["notifications/later", None]
    client.close_now()


def ponged(client: Client) -> bool:
    transport = client._supervisor._transport
    return isinstance(transport, StdioClientTransport) and b"ponged" in transport._last_words


def test_a_server_that_pings_is_answered_while_the_loop_rests() -> None:
    client = Client(wild(PING), era="legacy")
    with asyncio.Runner() as runner:
        runner.run(client.call_tool("again"))
        runner.run(client.call_tool("hi"))
        wait_until(lambda: ponged(client))
        assert runner.run(client.call_tool("again")).text == "hi"
        runner.run(client.close())


def test_a_server_that_pings_is_answered_while_the_loop_is_blocked() -> None:
    async def run() -> None:
        async with Client(wild(PING), era="legacy") as client:
            await client.call_tool("again")
            await client.call_tool("hi")
            wait_until(lambda: ponged(client))  # without an await

    asyncio.run(run())


def test_a_response_that_comes_while_the_loop_is_blocked_is_in_time() -> None:
    async def run() -> None:
        async with Client(wild({"tools/call hi": [{"sleep": 0.1}, HI]})) as client:
            await client.call_tool("again")
            call = asyncio.create_task(client.call_tool("hi", timeout=1.5))
            await asyncio.sleep(0)
            time.sleep(2.0)
            assert (await call).text == "hi"

    asyncio.run(run())


def test_two_loops_that_run_at_once_do_not_wait_for_each_other() -> None:
    client = Client(wild())
    blocked, done = threading.Event(), threading.Event()

    async def block() -> None:
        for _ in range(3):
            await client.call_tool("hi")
        blocked.set()
        assert done.wait(30)  # in the way of this loop
        assert (await client.call_tool("hi")).text == "hi"

    async def call() -> list[str]:
        return [(await client.call_tool("hi")).text for _ in range(20)]

    with ThreadPoolExecutor(1) as pool:
        other = pool.submit(asyncio.run, block())
        assert blocked.wait(30)
        assert asyncio.run(asyncio.wait_for(call(), 20)) == ["hi"] * 20
        done.set()
        other.result(30)
    assert asyncio.run(client.call_tool("hi")).text == "hi"
    client.close_now()


def test_a_loop_that_cannot_wait_for_pipes_is_served_all_the_same() -> None:
    asked: list[str] = []

    class Poor(asyncio.SelectorEventLoop):
        def add_reader(self, *_: Any) -> None:
            asked.append("asked")
            raise NotImplementedError

    async def run() -> None:
        async with Client(wild()) as client:
            for _ in range(5):
                assert (await client.call_tool("hi")).text == "hi"

    with asyncio.Runner(loop_factory=Poor) as runner:
        runner.run(run())
    assert asked == ["asked"], "it is not asked again with each call"


@pytest.mark.alone
@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="counts descriptors in /proc")
@every_loop
def test_loops_and_threads_leave_no_descriptor_behind(new_loop: Any) -> None:
    def descriptors() -> int:
        return len(os.listdir("/proc/self/fd"))

    async def run() -> None:
        await client.call_tool("hi")
        await client.call_tool("hi")

    def settled() -> int:
        found = [descriptors()]
        for _ in range(20):
            time.sleep(0.01)
            found.append(descriptors())
        return max(found)

    with SyncClient(wild()) as sync_client:  # the reactor has its descriptors from now on
        sync_client.call_tool("hi")
    before = settled()
    client = Client(wild())
    for _ in range(10):
        with asyncio.Runner(loop_factory=new_loop) as runner:
            runner.run(run())
    client.close_now()
    with SyncClient(wild()) as sync_client:
        sync_client.call_tool("hi")
    wait_until(lambda: descriptors() <= before)


def test_what_comes_when_no_thread_waits_is_received() -> None:
    heard, stderr = Noted(), Noted()
    with SyncClient(wild(LATER), on_notification=heard) as client:
        client.call_tool("again")
        client.call_tool("hi")
        wait_until(lambda: heard)
    with SyncClient(wild(PING), era="legacy", on_stderr=stderr) as client:
        client.call_tool("again")
        client.call_tool("hi")
        wait_until(lambda: stderr)


def test_the_thread_that_reads_for_all_is_stopped_times_out_and_hands_on() -> None:
    with SyncClient(wild()) as client, ThreadPoolExecutor(8) as pool:
        client.call_tool("hi")
        stopper = Stopper()
        stopped = pool.submit(client.call_tool, "hang", stopper=stopper)  # the first to wait reads
        late = pool.submit(client.call_tool, "hang", timeout=0.3)
        closed = pool.submit(client.call_tool, "hang")
        assert [pool.submit(client.call_tool, "hi").result(20).text for _ in range(5)] == ["hi"] * 5
        stopper.stop()
        assert stopped.exception(20) is not None
        assert [each.text for each in pool.map(lambda _: client.call_tool("hi"), range(50))] == ["hi"] * 50
        assert isinstance(late.exception(20), CallTimeout)
        assert client.call_tool("hi").text == "hi"
        client.close()
        assert isinstance(closed.exception(20), ClientClosed)


@pytest.mark.parametrize("face", ["async", "sync"])
def test_a_server_that_closes_its_output_costs_no_time(face: str) -> None:
    plan = {"tools/call die": [{"close": 1}, {"sleep": 20}], "end": [{"sleep": 20}]}

    async def run() -> float:
        async with Client(wild(plan), timeouts=Timeouts(close=0.1), retry="never") as client:
            await client.call_tool("hi")
            await client.call_tool("hi")
            began = time.process_time()
            with pytest.raises(ConnectionLost):
                await client.call_tool("die")
            return time.process_time() - began

    if face == "async":
        assert asyncio.run(run()) < 0.4
        return
    with SyncClient(wild(plan), timeouts=Timeouts(close=0.1), retry="never") as client:
        client.call_tool("hi")
        client.call_tool("hi")
        began = time.process_time()
        with pytest.raises(ConnectionLost):
            client.call_tool("die")
        assert time.process_time() - began < 0.4


def test_a_stderr_that_the_server_has_closed_is_watched_no_more() -> None:
    with SyncClient(wild({"tools/call hi": [{"close": 2}, HI]})) as client:
        assert client.call_tool("hi").text == "hi"
        transport = client._supervisor._transport
        assert isinstance(transport, StdioClientTransport)
        wait_until(lambda: transport._stderr not in transport._open.values())


# Leader and followers alone, on a pipe whose bytes are the numbers of those who wait.


class Pipe:
    """Delivers to the waiter whose number comes."""

    def __init__(self) -> None:
        self.reader, self.writer = os.pipe()
        os.set_blocking(self.reader, False)
        self.waiters: dict[int, ThreadWaiter] = {}
        self.read_by: list[int] = []
        self.turns = LeaderFollowers(self.reader, self.read)

    def read(self) -> bool:
        data = os.read(self.reader, 100)
        self.read_by.append(threading.get_ident())
        for number in data:
            self.waiters[number].put(number)
        return bool(data)

    def waiter(self, number: int) -> ThreadWaiter:
        self.waiters[number] = ThreadWaiter()
        return self.waiters[number]

    def send(self, *numbers: int) -> None:
        os.write(self.writer, bytes(numbers))


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    made = Pipe()
    yield made
    made.turns.close()
    os.close(made.reader)
    os.close(made.writer)


def test_a_waiter_that_has_an_item_does_not_read(pipe: Pipe) -> None:
    waiter = pipe.waiter(1)
    waiter.put("here")
    assert pipe.turns.wait(waiter) == "here"
    assert not pipe.read_by


def test_one_thread_reads_for_all_and_hands_on(pipe: Pipe) -> None:
    waiters = [pipe.waiter(number) for number in range(1, 9)]
    with ThreadPoolExecutor(8) as pool:
        waits = [pool.submit(pipe.turns.wait, each) for each in waiters]
        for number in range(1, 9):
            pipe.send(number)
            assert waits[number - 1].result(20) == number
    assert pipe.turns._leader is None
    assert not pipe.turns._followers


def test_answers_of_others_that_come_in_one_read_are_handed_out(pipe: Pipe) -> None:
    waiters = [pipe.waiter(number) for number in range(1, 9)]
    with ThreadPoolExecutor(8) as pool:
        waits = [pool.submit(pipe.turns.wait, each) for each in waiters]
        pipe.send(8, 7, 6, 5, 4, 3, 2, 1)
        assert [each.result(20) for each in waits] == list(range(1, 9))


def test_a_leader_gets_what_does_not_come_by_the_pipe(pipe: Pipe) -> None:
    with ThreadPoolExecutor(2) as pool:
        first = pipe.waiter(1)
        wait = pool.submit(pipe.turns.wait, first)
        wait_until(lambda: first.wake is not None)
        second = pool.submit(pipe.turns.wait, pipe.waiter(2))
        first.put("stopped")
        assert wait.result(20) == "stopped"
        pipe.send(2)
        assert second.result(20) == 2


def test_waiters_go_on_without_reading_once_there_is_nothing_to_read() -> None:
    pipe = Pipe()
    with ThreadPoolExecutor(2) as pool:
        waiters = [pipe.waiter(number) for number in (1, 2)]
        waits = [pool.submit(pipe.turns.wait, each) for each in waiters]
        os.close(pipe.writer)
        wait_until(lambda: pipe.read_by)
        for each in waiters:
            each.put("lost")
        assert [each.result(20) for each in waits] == ["lost"] * 2
    pipe.turns.close()
    pipe.turns.close()
    waiters[0].put("later")
    assert pipe.turns.wait(waiters[0]) == "later"
    os.close(pipe.reader)


def test_a_fork_after_the_end_leaves_the_numbers_of_closed_descriptors_alone() -> None:
    """They may belong to something else by then: to what a `preexec_fn` needs, for example."""
    reader, writer = os.pipe()
    turns = LeaderFollowers(reader, lambda: False)
    leader = ThreadWaiter()
    leading = threading.Thread(target=turns.wait, args=[leader])
    leading.start()
    wait_until(lambda: turns._wakes is not None)
    leader.put("answer")
    leading.join(30)
    turns.close()
    others = [os.pipe() for _ in range(4)]
    try:
        turns.start_afresh()
        for theirs, ours in others:
            os.write(ours, b"x")
            assert os.read(theirs, 1) == b"x"
    finally:
        for fd in (reader, writer, *(each for pair in others for each in pair)):
            os.close(fd)


def test_who_comes_while_another_one_reads_goes_on_waiting_for_input() -> None:
    with SyncClient(wild({"tools/call hi": [HI]})) as client:
        assert client.call_tool("hi").text == "hi"
        transport = client._supervisor._transport
        assert isinstance(transport, StdioClientTransport)
        with transport._receiving:
            assert transport._read(transport._stdout) is True
        assert client.call_tool("hi").text == "hi"


def test_an_error_while_something_is_received_is_logged_and_ends_no_connection(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with SyncClient(wild({"tools/call hi": [HI]})) as client:
        assert client.call_tool("hi").text == "hi"
        transport = client._supervisor._transport
        assert isinstance(transport, StdioClientTransport)
        receive = transport.receive_data

        def fail_once(data: bytes, here: Any = None) -> None:
            monkeypatch.setattr(transport, "receive_data", receive)
            receive(data, here)
            raise ValueError("a mistake")

        monkeypatch.setattr(transport, "receive_data", fail_once)
        assert [client.call_tool("hi").text for _ in range(2)] == ["hi", "hi"]
    assert "an error in a client's connection" in caplog.text
    assert "a mistake" in caplog.text
