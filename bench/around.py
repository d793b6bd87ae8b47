"""What a middleware and a dependency add to a call: CPU time per call, as ratios, in interleaved rounds.

    python bench/around.py [ROUNDS] [CALLS] [--json]

Each row is a server in this process whose bytes pass through its driver, without a transport, 64 calls in one write:
`inline=True` functions, and plain functions in worker threads. `shortcut` is the way of a tool that needs nothing but its
arguments; `context` has a `Context` parameter, so that it takes the ordinary way. The last columns are ratios to these two.
"""

from __future__ import annotations

import json
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Annotated

from linkspan import Call, Context, Depends, Server
from linkspan.runtime.calls import Driver

META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": {"name": "bench", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}
IN_FLIGHT = 64


def one() -> int:
    """A dependency."""
    return 1


def look(call: Call) -> Iterator[None]:
    """A middleware."""
    return (yield)


def plain(a: int, b: int) -> int:
    """Needs nothing but its arguments."""
    return a + b


def with_context(a: int, b: int, ctx: Context) -> int:
    """Takes the ordinary way."""
    return a + b


def with_dependency(a: int, b: int, c: Annotated[int, Depends(one)]) -> int:
    """Has a dependency."""
    return a + b


VARIANTS: dict[str, tuple[Callable[..., int], int]] = {
    "shortcut": (plain, 0),
    "context": (with_context, 0),
    "dependency": (with_dependency, 0),
    "middleware": (plain, 1),
    "two middlewares": (plain, 2),
    "middleware and dependency": (with_dependency, 1),
}
"""What runs, inside how many middlewares."""


class Row:
    """One server, and the bytes of a call."""

    def __init__(self, function: Callable[..., int], *, layers: int, inline: bool) -> None:
        """Make the server."""
        server = Server("bench")
        server.tool(name="add", inline=inline)(function)
        for _ in range(layers):
            server.middleware(only=["tools/call"])(partial(look))
        self.answered = threading.Semaphore(0)
        self.driver = Driver(server.connect, lambda: None, self.flush)
        self.times: list[float] = []

    def flush(self) -> None:
        """Take what was answered."""
        with self.driver.lock:
            data = self.driver.connection.data_to_send()
        for _ in range(data.count(b"\n")):
            self.answered.release()

    def measure(self, calls: int) -> None:
        """Make as many calls, and note the CPU time of each in microseconds."""
        params = {"name": "add", "arguments": {"a": 1, "b": 2}, "_meta": META}
        lines = [
            json.dumps({"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}).encode() + b"\n"
            for number in range(IN_FLIGHT)
        ]
        batch = b"".join(lines)
        began = time.process_time()
        for _ in range(calls // IN_FLIGHT):
            self.driver.receive_data(batch)
            self.flush()
            for _ in lines:
                self.answered.acquire()
        self.times.append((time.process_time() - began) / (calls // IN_FLIGHT * IN_FLIGHT) * 1e6)


def measured(rounds: int, calls: int, *, inline: bool) -> dict[str, list[float]]:
    """Measure all rows in turn, and return the microseconds of each round."""
    rows = {name: Row(function, layers=layers, inline=inline) for name, (function, layers) in VARIANTS.items()}
    for number in range(rounds + 1):
        for row in rows.values() if number % 2 else reversed(rows.values()):
            row.measure(calls)
    return {name: row.times[1:] for name, row in rows.items()}


def main(rounds: int, calls: int) -> None:
    """Measure all rows, and print the medians."""
    for inline in (True, False):
        medians = {name: statistics.median(times) for name, times in measured(rounds, calls, inline=inline).items()}
        print(f"{'inline' if inline else 'def':28}{'us':>8}{'x shortcut':>12}{'x context':>12}")
        for name, found in medians.items():
            print(f"{name:28}{found:8.1f}{found / medians['shortcut']:12.2f}{found / medians['context']:12.2f}")


if __name__ == "__main__":
    numbers = [int(each) for each in sys.argv[1:] if each != "--json"]
    chosen = (*numbers, *(7, 6400)[len(numbers) :])
    if "--json" in sys.argv:
        print(json.dumps({kind: measured(*chosen, inline=kind == "inline") for kind in ("inline", "def")}))
    else:
        main(*chosen)
