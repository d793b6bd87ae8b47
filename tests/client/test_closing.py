"""Closing: in any order, from anywhere, any number of times, also by nobody at all. No process and no thread of ours stays."""

from __future__ import annotations

import asyncio
import gc
import os
import subprocess
import sys
import textwrap
import threading
import time
import weakref
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from faces import FACES, wait_until
from wild import alive, gone, wild

from linkspan import Client, ClientClosed, ClientError, Server, SyncClient, Timeouts
from linkspan.runtime.reactor import reactor
from over_http import serving

HERE = Path(__file__).parent
SLOW = {"server/discover": [{"sleep": 60}]}


class Started:
    """Hears the numbers of the servers' processes, through their stderr."""

    def __init__(self) -> None:
        self.pids: list[int] = []
        self._news = threading.Condition()

    def __call__(self, text: str) -> None:
        with self._news:
            self.pids += map(int, text.split())
            self._news.notify_all()

    def wait(self, count: int = 1) -> list[int]:
        with self._news:
            assert self._news.wait_for(lambda: len(self.pids) >= count, 30)
            return self.pids


TELLING = {"start": [{"stderr": "$PID"}]}


def test_clients_are_closed_oldest_first() -> None:
    async def run() -> None:
        clients = [Client(wild()) for _ in range(3)]
        for client in clients:
            await client.connect()
        for closing, client in enumerate(clients):
            await client.close()
            for later in clients[closing + 1 :]:
                assert (await later.call_tool("hi")).text == "hi"

    asyncio.run(run())


def test_context_managers_are_left_in_any_order() -> None:
    async def run() -> None:
        first, second = Client(wild()), Client(wild())
        await first.__aenter__()
        await second.__aenter__()
        await first.__aexit__(None, None, None)
        assert (await second.call_tool("hi")).text == "hi"
        await second.__aexit__(None, None, None)

    asyncio.run(run())


def test_a_client_is_closed_by_another_task_than_the_one_that_opened_it() -> None:
    async def run() -> None:
        client = Client(wild())
        await asyncio.create_task(client.connect())
        assert (await asyncio.create_task(client.call_tool("hi"))).text == "hi"
        await asyncio.create_task(client.close())
        with pytest.raises(ClientClosed):
            await client.call_tool("hi")

    asyncio.run(run())


def test_a_client_is_closed_by_another_loop_in_another_thread() -> None:
    async def run() -> None:
        client = Client(wild())
        await client.connect()
        hanging = asyncio.create_task(client.call_tool("hang"))
        await client.call_tool("hi")
        await asyncio.to_thread(lambda: asyncio.run(client.close()))
        with pytest.raises(ClientClosed):
            await hanging

    asyncio.run(run())


def test_a_client_is_closed_without_any_loop() -> None:
    client = Client(wild())
    asyncio.run(client.connect())
    client.close_now()
    with pytest.raises(ClientClosed):
        asyncio.run(client.call_tool("hi"))


@pytest.mark.parametrize("face", FACES)
def test_close_is_idempotent_before_and_after_connecting(face: str) -> None:
    async def loop() -> None:
        client = Client(wild())
        await client.close()
        await client.close()
        await client.connect()
        assert (await client.call_tool("hi")).text == "hi"
        await client.close()
        await client.close()
        client.close_now()

    if face == "async":
        asyncio.run(loop())
        return
    client = SyncClient(wild())
    client.close()
    client.close()
    client.connect()
    assert client.call_tool("hi").text == "hi"
    client.close()
    client.close()
    client.close_now()


@pytest.mark.skipif(sys.platform != "linux", reason="it looks at /proc")
@pytest.mark.parametrize("ended", ["closed", "died"])
def test_closing_again_does_not_touch_descriptors_that_others_have_by_now(ended: str) -> None:
    client = SyncClient(wild({"tools/call die": [{"exit": 1}]}), retry="never").connect()
    link: Any = client._supervisor._transport
    if ended == "died":
        with pytest.raises(ClientError):
            client.call_tool("die")
    link.close()
    stdin = link._child.stdin
    give_up = time.monotonic() + 30
    while os.path.exists(f"/proc/self/fd/{stdin}") and time.monotonic() < give_up:
        time.sleep(0.001)  # the reactor gives it back
    ours = [os.pipe() for _ in range(40)]
    try:
        assert any(stdin in pair for pair in ours)
        before = os.fstat(stdin)
        link.close()
        link.machine.send_notification("notifications/late")
        link.flush()
        assert os.fstat(stdin) == before
        for reader, _ in ours:
            os.set_blocking(reader, False)
            with pytest.raises(BlockingIOError):
                os.read(reader, 1)
    finally:
        for pair in ours:
            for fd in pair:
                os.close(fd)
        client.close()


def test_many_close_at_once() -> None:
    async def run() -> None:
        client = Client(wild())
        await client.connect()
        await asyncio.gather(
            *(client.close() for _ in range(20)), *(asyncio.to_thread(client.close_now) for _ in range(5))
        )
        assert not client.connected

    asyncio.run(run())
    client = SyncClient(wild()).connect()
    threads = [threading.Thread(target=client.close) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()


@pytest.mark.parametrize("face", FACES)
def test_whoever_returns_from_close_finds_the_server_gone(face: str) -> None:
    started = Started()
    plan = TELLING | {"end": [{"sleep": 60}]}
    options: Any = {"on_stderr": started, "timeouts": Timeouts(close=0.2)}

    async def loop() -> None:
        client = await Client(wild(plan), **options).connect()
        await asyncio.to_thread(started.wait)
        await asyncio.gather(client.close(), client.close())
        assert not any(map(alive, started.pids))

    if face == "async":
        asyncio.run(loop())
        return
    client = SyncClient(wild(plan), **options).connect()
    started.wait()
    others = [threading.Thread(target=client.close) for _ in range(2)]
    for other in others:
        other.start()
    for other in others:
        other.join()
    assert not any(map(alive, started.pids))


def test_closing_during_calls_ends_them_with_client_closed() -> None:
    async def run() -> None:
        client = Client(wild())
        await client.connect()
        calls = [asyncio.create_task(client.call_tool("hang")) for _ in range(10)]
        await client.call_tool("hi")
        await client.close()
        outcomes = await asyncio.gather(*calls, return_exceptions=True)
        assert {type(each) for each in outcomes} == {ClientClosed}
        assert {each.delivery for each in outcomes if isinstance(each, ClientError)} == {"maybe_sent"}

    asyncio.run(run())


def test_closing_during_calls_in_threads_ends_them() -> None:
    client = SyncClient(wild()).connect()
    outcomes: list[BaseException] = []

    def call() -> None:
        try:
            client.call_tool("hang")
        except BaseException as error:
            outcomes.append(error)

    threads = [threading.Thread(target=call) for _ in range(10)]
    for thread in threads:
        thread.start()
    client.call_tool("hi")
    client.close()
    for thread in threads:
        thread.join(30)
    assert [type(each) for each in outcomes] == [ClientClosed] * 10


@pytest.mark.parametrize("face", FACES)
def test_closing_while_it_connects_ends_both(face: str) -> None:
    started = Started()
    options: Any = {"on_stderr": started, "timeouts": Timeouts(close=0.1)}

    async def loop() -> None:
        client = Client(wild(TELLING | SLOW), **options)
        connecting = [asyncio.create_task(client.connect()), asyncio.create_task(client.call_tool("hi"))]
        await asyncio.to_thread(started.wait)
        began = time.monotonic()
        await client.close()
        for each in await asyncio.gather(*connecting, return_exceptions=True):
            assert isinstance(each, ClientClosed)
        assert time.monotonic() - began < 30

    if face == "async":
        asyncio.run(loop())
        return
    client = SyncClient(wild(TELLING | SLOW), **options)
    outcomes: list[BaseException] = []

    def connect() -> None:
        try:
            client.connect()
        except BaseException as error:
            outcomes.append(error)

    thread = threading.Thread(target=connect)
    thread.start()
    started.wait()
    client.close()
    thread.join(30)
    assert [type(each) for each in outcomes] == [ClientClosed]


@pytest.mark.parametrize("delay", [0.0, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02])
def test_closing_at_any_moment_of_connecting_leaves_nothing(delay: float) -> None:
    client = SyncClient(wild(), timeouts=Timeouts(close=0.2))
    outcomes: list[object] = []

    def call() -> None:
        try:
            outcomes.append(client.call_tool("hi").text)
        except ClientClosed:
            outcomes.append(ClientClosed)

    thread = threading.Thread(target=call)
    thread.start()
    time.sleep(delay)  # any moment will do: there is nothing to wait for
    client.close()
    thread.join(30)
    assert outcomes in ([ClientClosed], ["hi"])


def test_connecting_again_while_it_closes_does_not_hang() -> None:
    client = SyncClient(wild()).connect()
    closing = threading.Thread(target=client.close)
    closing.start()
    for _ in range(20):
        try:
            client.connect()
            client.call_tool("hi")
        except ClientClosed:
            continue
    closing.join(30)
    client.connect()
    assert client.call_tool("hi").text == "hi"
    client.close()


@pytest.mark.parametrize("face", FACES)
def test_a_client_that_is_dropped_without_close_takes_its_server_along(face: str) -> None:
    started = Started()

    async def use() -> weakref.ref[Any]:
        client = Client(wild(TELLING), on_stderr=started)
        await client.call_tool("hi")
        return weakref.ref(client)

    def use_sync() -> weakref.ref[Any]:
        client = SyncClient(wild(TELLING), on_stderr=started)
        client.call_tool("hi")
        return weakref.ref(client)

    dropped = asyncio.run(use()) if face == "async" else use_sync()
    gc.collect()
    try:
        assert gone({*started.wait()})
    finally:
        if (client := dropped()) is not None:
            client.close_now()


def test_an_error_that_is_kept_does_not_keep_the_server() -> None:
    started = Started()

    def use() -> ClientError:
        client = SyncClient(wild(TELLING | {"tools/call hi": ['{"jsonrpc":"2.0","id":$ID}']}), on_stderr=started)
        try:
            client.call_tool("hi")
        except ClientError as error:
            return error.with_traceback(None)
        raise AssertionError

    kept = use()
    gc.collect()
    assert gone({*started.wait()})
    assert kept.server == "wild_server"


# At the end of the interpreter, and after the end of everything.

PROLOGUE = f"""
import asyncio, os, sys, threading
sys.path.insert(0, {str(HERE)!r})
from wild import wild
from linkspan import *
PLAN = {{"start": [{{"stderr": "$PID"}}], "end": [{{"sleep": 60}}]}}
def quietly(function, *arguments):
    try:
        function(*arguments)
    except ClientClosed:
        pass
def out(text):
    os.write(1, text.encode())
    heard.release()
heard = threading.Semaphore(0)
options = dict(on_stderr=out, timeouts=Timeouts(close=0.2))
"""
EXITS = {
    "idle": "c = SyncClient(wild(PLAN), **options); c.call_tool('hi')",
    "a call in a daemon thread": """
        c = SyncClient(wild(PLAN), **options)
        c.connect()
        threading.Thread(target=quietly, args=(c.call_tool, "hang"), daemon=True).start()
        """,
    "a connect in a daemon thread": """
        c = SyncClient(wild({**PLAN, "server/discover": [{"sleep": 60}]}), **options)
        threading.Thread(target=quietly, args=(c.connect,), daemon=True).start()
        heard.acquire()
        """,
    "an exception": "c = SyncClient(wild(PLAN), **options); c.call_tool('hi'); raise SystemExit(7)",
    "a call in asyncio": """
        async def main():
            client = Client(wild(PLAN), **options)
            await client.connect()
            asyncio.create_task(client.call_tool("hang"))
            await client.call_tool("hi")
        asyncio.run(main())
        """,
    "a client that is global": """
        client = Client(wild(PLAN), **options)
        asyncio.run(client.call_tool("hi"))
        """,
    "in a generator": """
        async def clients():
            async with Client(wild(PLAN), **options) as client:
                yield client
        async def main():
            async for client in clients():
                await client.call_tool("hi")
                break
        asyncio.run(main())
        """,
    "a listener": """
        c = SyncClient(wild(PLAN), era="legacy", **options)
        changes = c.listen(tools=True)
        changes.__enter__()
        """,
}


def run_script(code: str) -> tuple[subprocess.CompletedProcess[str], list[int]]:
    code = PROLOGUE + textwrap.dedent(code)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=50, check=False)
    return done, [int(each) for each in done.stdout.split()]


@pytest.fixture(scope="module")
def exits() -> dict[str, tuple[subprocess.CompletedProcess[str], list[int], float]]:
    """What came of each of them, and after how many seconds; several run at once."""

    def run(name: str) -> tuple[subprocess.CompletedProcess[str], list[int], float]:
        began = time.monotonic()
        return *run_script(EXITS[name]), time.monotonic() - began

    with ThreadPoolExecutor(4) as pool:
        return dict(zip(EXITS, pool.map(run, EXITS), strict=True))


@pytest.mark.parametrize("name", EXITS)
def test_the_interpreter_ends_and_its_servers_with_it(name: str, exits: Any) -> None:
    done, pids, seconds = exits[name]
    assert (done.returncode, done.stderr) == (7 if name == "an exception" else 0, "")
    assert len(pids) == 1
    assert gone({*pids})  # where a server was only being started, its guard ends it just after us
    assert seconds < 40  # and not 60, as long as the server would live


def test_a_client_that_is_killed_takes_its_servers_along() -> None:
    endings = ["os._exit(1)", "os.kill(os.getpid(), 9)", "os.abort()"]
    with ThreadPoolExecutor(3) as pool:
        code = "c = SyncClient(wild(PLAN), **options); c.call_tool('hi'); heard.acquire(timeout=10); {}"
        results = [*pool.map(lambda ending: run_script(code.format(ending)), endings)]
    for done, pids in results:
        assert done.returncode != 0
        assert len(pids) == 1
        assert gone({*pids})


def test_a_forked_child_neither_closes_nor_uses_its_parents_server() -> None:
    done, pids = run_script(
        """
        c = SyncClient(wild(PLAN), **options)
        c.call_tool("hi")
        pid = os.fork()
        if pid == 0:
            sys.exit(0)
        _, status = os.waitpid(pid, 0)
        assert status == 0, status
        assert c.call_tool("hi").text == "hi"
        """
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert len(pids) == 1


@pytest.mark.skipif(not hasattr(os, "waitid"), reason="needs to wait for a process without collecting it")
def test_the_last_words_of_a_server_arrive_before_it_is_closed_however_busy_the_reactor_is() -> None:
    heard: list[str] = []
    client = SyncClient(wild({"start": [{"stderr": "$PID"}], "end": [{"stderr": "bye"}]}), on_stderr=heard.append)
    client.call_tool("hi")
    wait_until(lambda: heard)
    pid = int(heard[0])
    reactor_of_clients = reactor()

    def be_busy() -> None:
        """Read nothing until the process has ended and its transport shall be left."""
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        wait_until(lambda: reactor_of_clients._calls)

    reactor_of_clients.call(be_busy)
    client.close()
    assert "".join(heard).split() == [str(pid), "bye"]


def test_a_thousand_clients_that_were_never_used_cost_no_thread_and_no_process() -> None:
    threads = {*threading.enumerate()}
    clients: list[SyncClient | Client] = [SyncClient(wild()) for _ in range(500)]
    clients += [Client(wild()) for _ in range(500)]
    assert not {*threading.enumerate()} - threads
    del clients


@pytest.mark.alone
def test_descriptors_and_threads_are_given_back() -> None:
    def cycle() -> None:
        with SyncClient(wild({"tools/call die": [{"exit": 1}]})) as client:
            client.call_tool("hi")
            with pytest.raises(ClientError):
                client.call_tool("die")

    def left() -> set[str]:
        """Return the threads that have begun and not ended; only the reactor's may stay."""
        return {each.name for each in {*threading.enumerate()} - threads} - {"linkspan-clients"}

    threads = {*threading.enumerate()}
    cycle()
    wait_until(lambda: not left())
    descriptors = count_descriptors()
    for _ in range(5):
        cycle()
    wait_until(lambda: not left() and count_descriptors() <= descriptors)


def count_descriptors() -> int:
    return len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0


AT_EXIT = """
from linkspan import SyncClient
def use():
    client = SyncClient({url!r}, era="legacy")
    client.call_tool("now")
    return client
{last}
"""


@pytest.mark.parametrize("last", ["kept = use()", "use()"])
def test_a_client_of_a_url_that_is_open_at_exit_ends_its_session(last: str) -> None:
    server = Server("open")
    server.define_tool("now", handler=lambda: "now")
    app = server.asgi()
    with serving(app) as url:
        script = AT_EXIT.format(url=url, last=last)
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, timeout=60, check=False)
        assert (done.returncode, done.stderr.decode()) == (0, "")
        assert len(app.endpoint.sessions) == 0


@pytest.mark.parametrize("late", ["fails", "connects"])
def test_an_attempt_to_connect_from_before_a_close_changes_nothing_afterwards(late: str) -> None:
    """A caller of the new connection got its error; or it took the place of the new one."""
    client = SyncClient(wild())
    supervisor: Any = client._supervisor
    began, goes_on, ended = threading.Event(), threading.Event(), threading.Event()
    opened: list[Any] = []

    def opener(owner: Any) -> Any:
        if not began.is_set():
            began.set()
            assert goes_on.wait(60)
            if late == "fails":
                raise ClientError("too late", owner.state.origin, phase="connect")
        opened.append(make(owner))
        return opened[-1]

    def connect() -> None:
        with pytest.raises(ClientClosed):
            client.connect()
        ended.set()

    make, supervisor.opener = supervisor.opener, opener
    before = {*threading.enumerate()}
    first = threading.Thread(target=connect)
    first.start()
    assert began.wait(60)
    (attempt,) = [each for each in {*threading.enumerate()} - before if each.name == "linkspan-connect"]
    client.close()
    assert ended.wait(60)
    with ThreadPoolExecutor() as pool:
        supervisor.reopen()
        call = pool.submit(client.call_tool, "hi")
        assert call.result(60).text
        goes_on.set()
        attempt.join(60)
        assert client.call_tool("hi").text
    assert supervisor._transport is opened[0]
    client.close()
    first.join(60)
