"""`await server.serve()`: on the caller's event loop, until the client goes or the task is cancelled; nothing stays behind."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from typing import Any
from urllib.request import Request, urlopen

import pytest

from linkspan import Context, LinkspanError, Server, StdioTransport
from linkspan.serve import event_loop

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="event loops of Windows do not watch pipes")


def make_server() -> tuple[Server, list[str]]:
    server, events = Server("here"), list[str]()

    @server.lifespan
    async def live() -> AsyncIterator[asyncio.AbstractEventLoop]:
        events.append("enter")
        yield asyncio.get_running_loop()
        events.append("leave")

    @server.tool
    async def same_loop(ctx: Context[asyncio.AbstractEventLoop]) -> bool:
        return ctx.lifespan is asyncio.get_running_loop()

    @server.tool
    def in_thread() -> bool:
        return threading.current_thread() is not threading.main_thread()

    @server.tool
    async def endless() -> None:
        events.append("began")
        try:
            await asyncio.Event().wait()
        finally:
            events.append("cancelled")

    return server, events


def line(number: int, name: str) -> bytes:
    params = {"name": name, "arguments": {}}
    return json.dumps({"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}).encode() + b"\n"


class Pipes:
    """The client's ends of two pipes."""

    def __init__(self) -> None:
        self.input_fd, self.to_server = os.pipe()
        self.from_server, self.output_fd = os.pipe()
        self._read = b""

    def send(self, data: bytes) -> None:
        os.write(self.to_server, data)

    async def answer(self) -> Any:
        while b"\n" not in self._read:
            self._read += await asyncio.to_thread(os.read, self.from_server, 65536)
        first, _, self._read = self._read.partition(b"\n")
        return json.loads(first)

    def hang_up(self) -> None:
        os.close(self.to_server)
        self.to_server = -1

    def close(self) -> None:
        for fd in (self.input_fd, self.to_server, self.from_server, self.output_fd):
            if fd >= 0:
                os.close(fd)


@pytest.fixture
def pipes() -> Iterator[Pipes]:
    opened = Pipes()
    yield opened
    opened.close()


@pytest.fixture(autouse=True)
def nothing_stays() -> Iterator[None]:
    """No thread, no descriptor and no handler of a signal is there that was not there before."""

    def handlers() -> list[object]:
        return [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)]

    def descriptors() -> set[tuple[str, str]]:
        """Return what is open, without the descriptor that lists it, which is closed by the time it is asked for."""
        found = set[tuple[str, str]]()
        for each in os.listdir("/proc/self/fd") if os.path.isdir("/proc/self/fd") else ():
            with suppress(FileNotFoundError):
                found.add((each, os.readlink(f"/proc/self/fd/{each}")))
        return found

    def threads() -> set[threading.Thread]:
        return {each for each in threading.enumerate() if each.name.startswith("linkspan")}

    handled, opened, ours = handlers(), descriptors(), threads()
    yield
    for thread in threads() - ours:
        thread.join(60)
        assert not thread.is_alive(), thread.name
    assert handlers() == handled
    give_up = time.monotonic() + 30  # a thread that an earlier test has left opens and closes what is its own
    while (more := descriptors() - opened) and time.monotonic() < give_up:
        time.sleep(0.01)
    assert not more


def test_stdio_is_served_on_the_callers_loop_until_the_client_hangs_up(pipes: Pipes) -> None:
    server, events = make_server()

    async def main() -> None:
        serving = asyncio.create_task(server.serve(input_fd=pipes.input_fd, output_fd=pipes.output_fd))
        for number, name in enumerate(("same_loop", "in_thread")):
            pipes.send(line(number, name))
            answer = await asyncio.wait_for(pipes.answer(), 60)
            assert answer["result"]["structuredContent"] == {"result": True}
        pipes.send(line(7, "same_loop"))
        pipes.hang_up()
        assert (await pipes.answer())["id"] == 7
        assert await asyncio.wait_for(serving, 60) is None

    asyncio.run(main())
    assert events == ["enter", "leave"]


class WithoutReaders(asyncio.SelectorEventLoop):
    """A loop that watches no descriptors, as Windows' is."""

    def add_reader(self, *_: object) -> None:
        raise NotImplementedError


def test_stdio_is_served_on_a_loop_that_watches_no_descriptors(
    pipes: Pipes, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(event_loop, "needs_pump", lambda _: True)  # as there
    server, _ = make_server()

    async def main() -> None:
        serving = asyncio.create_task(server.serve(input_fd=pipes.input_fd, output_fd=pipes.output_fd))
        pipes.send(line(1, "same_loop"))
        assert (await asyncio.wait_for(pipes.answer(), 60))["id"] == 1
        pipes.hang_up()
        await asyncio.wait_for(serving, 60)

    with asyncio.Runner(loop_factory=WithoutReaders) as runner:
        runner.run(main())
    assert caplog.records == []


@pytest.mark.parametrize("given", ["input_fd", "output_fd"])
def test_the_stream_that_is_not_given_is_the_process_own(given: str) -> None:
    code = f"""
import asyncio, os, sys
from linkspan import Server

server, (ours, theirs) = Server("half"), os.pipe()
if {given!r} == "input_fd":
    os.write(theirs, sys.stdin.buffer.readline())
    os.close(theirs)
    asyncio.run(server.serve(input_fd=ours))
else:
    asyncio.run(server.serve(output_fd=theirs))
    os.close(theirs)
    print(os.read(ours, 65536).decode(), file=sys.stderr)
"""
    ping = b'{"jsonrpc":"2.0","id":1,"method":"ping"}\n'
    done = subprocess.run([sys.executable, "-c", code], input=ping, capture_output=True, timeout=60, check=True)
    assert json.loads(done.stdout if given == "input_fd" else done.stderr) == {"jsonrpc": "2.0", "id": 1, "result": {}}


def test_a_transport_that_was_closed_ends_when_it_is_opened(pipes: Pipes) -> None:
    server, events = make_server()
    transport = StdioTransport(server, input_fd=pipes.input_fd, output_fd=pipes.output_fd, watch_parent=False)
    transport.close()
    assert transport.open() == 0
    assert "began" not in events


def test_timers_on_the_callers_loop_are_set_anew(pipes: Pipes, caplog: pytest.LogCaptureFixture) -> None:
    server = Server("timers")

    @server.tool(timeout=30.0)
    async def slow() -> str:
        await asyncio.sleep(0.01)
        return "done"

    async def main() -> None:
        serving = asyncio.create_task(server.serve(input_fd=pipes.input_fd, output_fd=pipes.output_fd))
        for number in range(3):
            pipes.send(line(number, "slow") + line(number + 10, "slow"))
            for _ in range(2):
                assert (await asyncio.wait_for(pipes.answer(), 60))["result"]["content"][0]["text"] == "done"
        pipes.hang_up()
        await asyncio.wait_for(serving, 60)

    asyncio.run(main())
    assert [each for each in caplog.records if each.name == "asyncio"] == []


def test_stdio_ends_when_its_task_is_cancelled(pipes: Pipes) -> None:
    server, events = make_server()

    async def main() -> None:
        serving = asyncio.create_task(server.serve(input_fd=pipes.input_fd, output_fd=pipes.output_fd))
        pipes.send(line(1, "in_thread"))
        await asyncio.wait_for(pipes.answer(), 60)
        pipes.send(line(2, "endless") + line(3, "same_loop"))
        await asyncio.wait_for(pipes.answer(), 60)
        serving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(serving, 60)
        assert events == ["enter", "began", "cancelled", "leave"]

    asyncio.run(main())


def ask(url: str, name: str) -> Any:
    headers = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
    with urlopen(Request(url, line(1, name), headers), timeout=60) as answer:
        return json.loads(answer.read())


def test_http_is_served_on_the_callers_loop_until_its_task_is_cancelled() -> None:
    pytest.importorskip("uvicorn", reason="uvicorn is not installed")
    server, events = make_server()

    async def main() -> None:
        url: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        serving = asyncio.create_task(server.serve("http", port=0, sessions=False, ready=url.set_result))
        address = await asyncio.wait_for(url, 60)
        assert events == ["enter"]
        for name in ("same_loop", "in_thread"):
            answer = await asyncio.to_thread(ask, address, name)
            assert answer["result"]["content"][0]["text"] == "true"
        serving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(serving, 60)
        assert events == ["enter", "leave"]
        with pytest.raises(OSError, match="refused"):
            await asyncio.to_thread(ask, address, "same_loop")

    asyncio.run(main())


@pytest.mark.parametrize("transport", ["stdio", "http"])
def test_a_lifespan_that_cannot_be_entered_is_raised(transport: Any, pipes: Pipes) -> None:
    server = Server("broken")

    @server.lifespan
    def live() -> Iterator[None]:
        raise ConnectionError("secret")
        yield

    server.define_tool("use", handler=lambda: "never")
    options: Any = {"port": 0} if transport == "http" else {"input_fd": pipes.input_fd, "output_fd": pipes.output_fd}
    if transport == "stdio":
        pipes.send(line(1, "use"))
        pipes.hang_up()
    with pytest.raises(LinkspanError, match="The server could not start"):
        asyncio.run(server.serve(transport, **options))


def test_run_names_serve_where_a_loop_runs() -> None:
    async def main() -> None:
        with pytest.raises(RuntimeError, match=r"write `await server.serve\(\)`"):
            Server().run()
        with pytest.raises(RuntimeError, match=r'write `await server.serve\("http", \.\.\.\)`'):
            Server().run("http", port=0)

    asyncio.run(main())


@pytest.mark.parametrize(
    ("transport", "options", "error", "problem"),
    [
        ("pigeon", {}, LinkspanError, "There is no transport 'pigeon'"),
        ("stdio", {"port": 1}, TypeError, r"serve\(\) serves stdio, which has no 'port': write serve\(\"http\", port="),
        ("stdio", {"watch_parent": True}, TypeError, r"serve\(\) has no 'watch_parent'"),
        ("http", {"workers": 2}, TypeError, "serves in this process only"),
    ],
)
def test_what_cannot_be_served_is_named(transport: Any, options: Any, error: type[Exception], problem: str) -> None:
    with pytest.raises(error, match=problem):
        asyncio.run(Server().serve(transport, **options))
