"""One client in many tasks, threads and event loops: at once, one after the other, and in the shapes that test suites have."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from faces import ERAS
from wild import descendants, gone, wild

from linkspan import Client, ClientClosed, ConnectionLost, Context, Server, SyncClient
from linkspan.client.callbacks import CallbackQueue


def target(where: str) -> Any:
    if where == "process":
        return wild()
    server = Server("here")

    @server.tool
    async def hi() -> str:
        await asyncio.sleep(0)
        return "hi"

    @server.tool
    def again() -> str:
        return "hi"

    return server


WHERE = ("process", "memory")


@pytest.mark.parametrize("where", WHERE)
def test_a_client_opened_in_one_run_is_used_in_the_next(where: str) -> None:
    client = Client(target(where))
    asyncio.run(client.connect())
    for _ in range(3):
        assert asyncio.run(client.call_tool("hi")).text == "hi"
    asyncio.run(client.close())


@pytest.mark.parametrize("where", WHERE)
def test_the_loops_of_earlier_runs_are_not_kept(where: str) -> None:
    client = Client(target(where))
    loops: list[weakref.ref[asyncio.AbstractEventLoop]] = []

    async def run() -> None:
        loops.append(weakref.ref(asyncio.get_running_loop()))
        await client.call_tool("hi")

    for _ in range(5):
        asyncio.run(run())
    gc.collect()
    assert [each() for each in loops[:-1]] == [None] * 4
    client.close_now()


@pytest.mark.skipif(not hasattr(asyncio, "eager_task_factory"), reason="tasks are eager from Python 3.12 on")
def test_an_eager_task_that_ends_at_once_answers() -> None:
    server = Server("eager")

    @server.tool
    async def quick() -> str:
        return "done"

    async def run() -> str:
        asyncio.get_running_loop().set_task_factory(asyncio.eager_task_factory)
        async with Client(server) as client:
            return (await asyncio.wait_for(client.call_tool("quick"), 20)).text

    assert asyncio.run(run()) == "done"


@pytest.mark.parametrize("where", WHERE)
def test_a_call_that_its_loop_has_abandoned_does_not_disturb_the_next_loop(where: str) -> None:
    client = Client(target(where))

    async def abandon() -> None:
        task = asyncio.create_task(client.call_tool("hang" if where == "process" else "hi"))
        await client.call_tool("hi")
        del task

    for _ in range(2):
        asyncio.run(abandon())
        assert asyncio.run(client.call_tool("hi")).text == "hi"
    asyncio.run(client.close())


@pytest.mark.parametrize("where", WHERE)
def test_many_loops_and_threads_use_one_client_at_once(where: str) -> None:
    with SyncClient(target(where)) as sync_client:
        client = Client(target(where))

        async def calls() -> list[str]:
            return [each.text for each in await asyncio.gather(*(client.call_tool("hi") for _ in range(20)))]

        with ThreadPoolExecutor(8) as pool:
            loops = [pool.submit(asyncio.run, calls()) for _ in range(8)]
            threads = [pool.submit(sync_client.call_tool, "hi") for _ in range(40)]
            assert all(loop.result(20) == ["hi"] * 20 for loop in loops)
            assert {thread.result(20).text for thread in threads} == {"hi"}
        client.close_now()


def test_they_start_one_server_together() -> None:
    seen: list[Any] = []
    client = SyncClient(wild(), on_event=seen.append)
    with ThreadPoolExecutor(20) as pool:
        assert {each.text for each in pool.map(lambda _: client.call_tool("hi"), range(20))} == {"hi"}
    client.close()
    assert len(seen) == 1


def test_a_sync_client_works_inside_a_running_loop() -> None:
    async def run() -> str:
        with SyncClient(target("memory")) as client:
            return client.call_tool("hi").text + client.call_tool("again").text

    assert asyncio.run(run()) == "hihi"


def test_a_failed_start_tells_everybody_who_waits() -> None:
    from linkspan import ConnectError

    client = SyncClient(wild({"start": [{"exit": 1}]}))
    with ThreadPoolExecutor(10) as pool:
        errors = [each.exception(20) for each in [pool.submit(client.call_tool, "hi") for _ in range(10)]]
    assert {type(error) for error in errors} == {ConnectError}
    client.close()


def test_callbacks_run_on_the_loop_that_uses_the_client() -> None:
    where: list[bool] = []

    async def run() -> None:
        me = threading.get_ident()
        heard = asyncio.Event()

        async def on_stderr(text: str) -> None:
            where.append(threading.get_ident() == me)
            heard.set()

        async with Client(wild({"tools/call hi": [{"stderr": "x"}]}), on_stderr=on_stderr) as client:
            call = asyncio.create_task(client.call_tool("hi"))
            async with asyncio.timeout(30):
                await heard.wait()
            call.cancel()

    asyncio.run(run())
    assert where == [True]


def test_callbacks_go_on_after_a_loop_has_ended_in_the_middle_of_one() -> None:
    heard: list[str] = []
    later = threading.Event()

    async def on_event(event: Any) -> None:
        heard.append(type(event).__name__)
        if len(heard) == 1:
            await asyncio.Event().wait()
        later.set()

    client = Client(wild({"tools/call die": [{"exit": 1}]}), on_event=on_event, retry="never")

    async def lose() -> None:
        with pytest.raises(ConnectionLost):
            await client.call_tool("die")
        await asyncio.to_thread(later.wait, 30)

    asyncio.run(client.call_tool("hi"))
    asyncio.run(lose())
    client.close_now()
    assert heard == ["Connected", "Disconnected"]


def test_an_event_whose_loop_ended_before_it_was_told_is_told_in_a_thread() -> None:
    heard: list[tuple[str, int]] = []
    client = Client(wild(), on_event=lambda event: heard.append((type(event).__name__, threading.get_ident())))

    async def leave_it_queued() -> None:
        await client.call_tool("hi")
        client._application.queue.post(client._application.callbacks.on_event, None)

    asyncio.run(leave_it_queued())
    client.close_now()
    assert [name for name, _ in heard] == ["Connected", "NoneType"]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize("error", [asyncio.CancelledError, SystemExit])
def test_callbacks_go_on_in_a_thread_after_one_that_raised_what_nobody_catches(error: type[BaseException]) -> None:
    courier, heard = CallbackQueue(), threading.Event()
    threads: list[threading.Thread] = []

    def first(value: object) -> None:
        threads.append(threading.current_thread())
        courier.post(lambda value: heard.set(), None)
        raise error

    async def run() -> None:
        courier.loop = asyncio.get_running_loop()
        courier.post(first, None)
        while not heard.is_set():
            await asyncio.sleep(0)

    if error is SystemExit:  # it ends the loop that it is raised on, as everywhere
        courier.post(first, None)
        assert heard.wait(30)
        threads[0].join()
    else:
        asyncio.run(asyncio.wait_for(run(), 30))


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Closing waits long for callbacks, so that a wait is told from a busy machine."""
    settle = CallbackQueue.settle
    monkeypatch.setattr(CallbackQueue, "settle", lambda self, timeout: settle(self, 20.0))


def closes_itself(how: str) -> float:
    """Return how long a callback needs to close the client that calls it."""
    took: list[float] = []
    closed = threading.Event()

    def close_it() -> None:
        began = time.monotonic()
        client.close_now()
        took.append(time.monotonic() - began)
        closed.set()

    async def close_in_a_coroutine(event: Any) -> None:
        began = time.monotonic()
        await client.close()
        took.append(time.monotonic() - began)
        closed.set()

    async def run() -> None:
        with contextlib.suppress(ClientClosed):
            await client.call_tool("hang")
        while not closed.is_set():
            await asyncio.sleep(0.001)

    on_event = close_in_a_coroutine if how == "a coroutine on the loop" else lambda event: close_it()
    client: Any = SyncClient(wild(), on_event=on_event) if how == "a thread" else Client(wild(), on_event=on_event)
    if how == "a thread":
        with pytest.raises(ClientClosed):
            client.call_tool("hang")
        assert closed.wait(30)
    else:
        asyncio.run(run())
    return took[0]


@pytest.mark.parametrize("how", ["a thread", "the loop", "a coroutine on the loop"])
def test_a_callback_that_closes_its_client_does_not_wait_for_itself(how: str, patient: None) -> None:
    assert closes_itself(how) < 10.0


def test_closing_on_the_loop_that_has_callbacks_to_run_does_not_wait_for_them(patient: None) -> None:
    heard: list[Any] = []

    async def run() -> float:
        client = Client(target("memory"), on_event=heard.append)
        await client.call_tool("hi")
        client._application.queue.post(heard.append, "queued")
        began = time.monotonic()
        client.close_now()
        took = time.monotonic() - began
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        return took

    assert asyncio.run(run()) < 10.0
    assert heard[-1] == "queued"


def test_a_callback_that_closes_its_client_does_not_hang() -> None:
    closed = threading.Event()

    def on_stderr(text: str) -> None:
        client.close()
        closed.set()

    client = SyncClient(wild({"start": [{"stderr": "x"}]}), on_stderr=on_stderr)
    call: Callable[[], Any] = lambda: [client.call_tool("hi") for _ in range(10_000)]  # noqa: E731
    with pytest.raises(ClientClosed):
        call()
    assert closed.wait(30)


@pytest.mark.parametrize("era", ERAS)
def test_a_tool_that_uses_the_same_client_does_not_hang(era: Any) -> None:
    server = Server("inner")

    @server.tool
    def leaf() -> str:
        return "leaf"

    @server.tool
    def nested(ctx: Context) -> str:
        return client.call_tool("leaf").text

    @server.tool
    async def nested_async(ctx: Context) -> str:
        return (await async_client.call_tool("leaf")).text

    with SyncClient(server, era=era) as client:
        assert client.call_tool("nested").text == "leaf"

    async def run() -> None:
        assert (await async_client.call_tool("nested_async")).text == "leaf"
        await async_client.close()

    async_client = Client(server, era=era)
    asyncio.run(run())


# The shapes of fixtures. Nothing here needs a plugin.


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    """A plain fixture of a wide scope that makes an async client: the loop of each test is another one."""
    before = descendants()
    made = Client(wild())
    asyncio.run(made.connect())
    yield made
    made.close_now()
    assert gone({*descendants()} - {*before})


@pytest.mark.parametrize("run", [1, 2, 3])
def test_a_client_from_a_wide_fixture_works_in_the_loop_of_each_test(run: int, client: Client) -> None:
    assert asyncio.run(client.call_tool("hi")).text == "hi"


@pytest.mark.parametrize("run", [1, 2])
def test_it_works_in_a_loop_that_lives_longer_too(run: int, client: Client) -> None:
    with asyncio.Runner() as runner:
        assert runner.run(client.call_tool("hi")).text == "hi"
        assert runner.run(client.call_tool("again")).text == "hi"


async def connected() -> Any:
    """What plugins do with an async generator fixture: its two halves run in different tasks."""
    async with Client(wild()) as client:
        yield client


def test_a_fixture_whose_halves_run_in_different_tasks() -> None:
    with asyncio.Runner() as runner:
        fixture = connected()
        found = runner.run(anext(fixture))
        assert runner.run(found.call_tool("hi")).text == "hi"

        async def finish() -> None:
            with pytest.raises(StopAsyncIteration):
                await anext(fixture)

        runner.run(finish())
        assert not found.connected
