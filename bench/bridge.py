"""What a bridge adds: to a call, to the slowest of many calls at once, to lists, and before the first answer.

    python bench/bridge.py [ROUNDS] [CALLS]

Ratios are those of one interleaved run to the same server without a bridge: calls one after the other in memory, over stdio to
stdio, and over HTTP to HTTP; and the 99th percentile of 100 callers at once over HTTP. In memory it is CPU time, otherwise what a
clock shows, which says little on a machine that is busy. Bars: 3.0 in memory, 2.2 over HTTP and stdio, 3 for the percentile; 20
servers of 50 tools listed in 5 ms; the first answer within 0.3 s.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from linkspan import Server, SyncClient

PROGRAM = """
from linkspan import Server

server = Server("adder")


@server.tool(annotations={"readOnlyHint": True})
def add(a: int, b: int) -> int:
    return a + b


if __name__ == "__main__":
    server.run()
"""
ARGUMENTS = {"a": 1, "b": 2}


class Elsewhere:
    """Hides what a server is, so that it is mounted as one that is elsewhere."""

    def __init__(self, server: Server) -> None:
        self.name, self._server = server.name, server

    def connect(self, *, ports: Any) -> Any:
        """Open a connection."""
        return self._server.connect(ports=ports)


def make_server(tools: int = 1) -> Server:
    """Return a server with tools."""
    server = Server("adder")
    for number in range(tools):

        @server.tool(name="add" if number == 0 else f"add_{number}")
        def add(a: int, b: int) -> int:
            return a + b

    return server


@contextmanager
def listening(command: list[str], home: str) -> Iterator[str]:
    """Start a command that prints its URL; end it afterwards."""
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=os.environ | {"XDG_STATE_HOME": home},
    )
    try:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
    finally:
        process.terminate()
        process.wait(10)


def seconds_of(client: SyncClient, calls: int, clock: Callable[[], float]) -> float:
    """Return how long a call takes, of so many one after the other."""
    began = clock()
    for _ in range(calls):
        client.call_tool("add", ARGUMENTS)
    return (clock() - began) / calls


def compare(what: str, direct: SyncClient, bridged: SyncClient, rounds: int, calls: int) -> None:
    """Print what a bridge adds to a call, as the median of interleaved rounds."""
    clock = time.process_time if what == "memory" else time.perf_counter
    for each in (direct, bridged):
        seconds_of(each, 20, clock)
    pairs = [(seconds_of(direct, calls, clock), seconds_of(bridged, calls, clock)) for _ in range(rounds)]
    ratio = statistics.median(there / here for here, there in pairs)
    here, there = (statistics.median(each) * 1e6 for each in zip(*pairs, strict=True))
    print(f"{what}: {ratio:.2f} ({here:.0f} us, {there:.0f} us)", flush=True)


def percentile_of(url: str, callers: int, calls: int) -> float:
    """Return the 99th percentile of the time of a call, of callers who all call at once."""
    times: list[float] = []

    def call() -> None:
        with SyncClient(url) as client:
            client.call_tool("add", ARGUMENTS)
            ready.wait()
            for _ in range(calls):
                began = time.perf_counter()
                client.call_tool("add", ARGUMENTS)
                times.append(time.perf_counter() - began)

    ready = threading.Barrier(callers)
    threads = [threading.Thread(target=call) for _ in range(callers)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    return sorted(times)[int(len(times) * 0.99)]


def list_many() -> None:
    """Print how long the list of 20 servers takes, one of which hangs."""
    server = Server("many")
    for number in range(19):
        server.mount(Elsewhere(make_server(50)), f"s{number}")
    hung = server.mount(["sleep", "60"], "hung")
    with SyncClient(server, max_cached_bytes=0) as client:
        times: list[float] = []
        for _ in range(21):
            began = time.perf_counter()
            found = len(client.list_tools())
            times.append(time.perf_counter() - began)
    hung.remove()
    first, later = times[0], statistics.median(times[1:])
    print(
        f"list of {found} tools of 20 servers: first {first:.2f} s, then {later * 1000:.1f} ms in the client",
        flush=True,
    )
    request = b'{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":%s}}'
    meta = b'{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}'
    server.handle_json(request % meta)
    pages = [_timed(lambda: server.handle_json(request % meta)) for _ in range(21)]
    print(f"the first page of it: {statistics.median(pages) * 1000:.2f} ms", flush=True)


def _timed(run: Callable[[], object]) -> float:
    began = time.perf_counter()
    run()
    return time.perf_counter() - began


def first_answer(program: str, home: str, rounds: int) -> None:
    """Print the time from the start of a bridge to its first answer, and that of the server itself."""
    greeting = (
        '{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},'
        '"clientInfo":{"name":"host","version":"1"}}}\n'
    )

    def start(command: list[str]) -> float:
        began = time.perf_counter()
        with subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=os.environ | {"XDG_STATE_HOME": home},
        ) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(greeting)
            process.stdin.flush()
            process.stdout.readline()
            taken = time.perf_counter() - began
            time.sleep(0.5)  # a bridge remembers what the server offers by now
            process.stdin.close()
        return taken

    bridged, direct = [sys.executable, "-m", "linkspan", "bridge", program], [sys.executable, program]
    start(bridged)
    pairs = [(start(direct), start(bridged)) for _ in range(rounds)]
    here, there = (statistics.median(each) for each in zip(*pairs, strict=True))
    print(f"first answer: {there:.3f} s; of the server itself {here:.3f} s", flush=True)


def main() -> None:
    """Print all figures."""
    rounds, calls = [*map(int, sys.argv[1:]), *(7, 300)[len(sys.argv) - 1 :]]
    with tempfile.TemporaryDirectory() as home, ExitStack() as stack:
        program = str(Path(home) / "adder.py")
        Path(program).write_text(PROGRAM)
        server = Server("here")
        server.mount(Elsewhere(make_server()))
        direct, bridged = (stack.enter_context(SyncClient(each)) for each in (make_server(), server))
        compare("memory", direct, bridged, rounds, calls)
        linkspan = [sys.executable, "-m", "linkspan"]
        bridge = [*linkspan, "bridge"]
        direct, bridged = (
            stack.enter_context(SyncClient(each, env={"XDG_STATE_HOME": home}))
            for each in ([sys.executable, program], [*bridge, program])
        )
        compare("stdio to stdio", direct, bridged, rounds, calls)
        url = stack.enter_context(listening([*linkspan, "run", program, "--http", "--port", "0"], home))
        over = stack.enter_context(listening([*bridge, url, "--http", "--port", "0", "--open", "--shared"], home))
        direct, bridged = (stack.enter_context(SyncClient(each)) for each in (url, over))
        compare("HTTP to HTTP", direct, bridged, rounds, calls)
        pairs = [(percentile_of(url, 100, 10), percentile_of(over, 100, 10)) for _ in range(3)]
        ratio = statistics.median(there / here for here, there in pairs)
        here, there = (statistics.median(each) * 1000 for each in zip(*pairs, strict=True))
        print(f"99th percentile of 100 callers: {ratio:.2f} ({here:.0f} ms, {there:.0f} ms)", flush=True)
        list_many()
        first_answer(program, home, rounds)


if __name__ == "__main__":
    main()
