"""Measure stdio servers against each other, in one interleaved run on one machine. See README.md.

CPU is the server process's own, of all its threads, from the operating system's clock of that process. The client is
the same raw pipe loop for everybody and does not count.
"""

from __future__ import annotations

import argparse
import json
import os
import select
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).parent
SERVERS = HERE / "servers"
META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
    "io.modelcontextprotocol/clientInfo": {"name": "bench", "version": "1"},
}
TIMEOUT = 60.0


@dataclass
class Row:
    """One server under one kind of load."""

    name: str
    command: list[str]
    tool: str = "add_async"
    modern: bool = True
    weight: float = 1.0
    """How many of the calls are enough for this one."""
    figures: dict[str, list[float]] = field(default_factory=dict)

    def note(self, what: str, figure: float) -> None:
        self.figures.setdefault(what, []).append(figure)

    def median(self, what: str) -> float | None:
        return statistics.median(self.figures[what]) if what in self.figures else None


class Server:
    """A running server."""

    def __init__(self, row: Row) -> None:
        self.row = row
        paths = [str(HERE.parent / "src")] if row.command[0] == sys.executable else []
        kept = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
        environment = {**kept, "PYTHONPATH": os.pathsep.join(paths)}
        self.started = time.monotonic()
        self.process = subprocess.Popen(
            row.command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment,
            bufsize=0,
        )
        self.input, self.output = self.process.stdin.fileno(), self.process.stdout.fileno()
        self.sent = 0

    def cpu(self) -> float:
        """Return the process's CPU seconds so far, user and system, all threads."""
        return time.clock_gettime(((~self.process.pid) << 3) | 2)

    def memory(self) -> float:
        """Return the resident MiB."""
        for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS"):
                return int(line.split()[1]) / 1024
        return 0.0

    def read(self) -> bytes:
        if not select.select([self.output], [], [], TIMEOUT)[0]:
            raise TimeoutError(f"{self.row.name} does not answer")
        data = os.read(self.output, 65536)
        if not data:
            raise ConnectionError(f"{self.row.name} hung up")
        return data

    def ask(self, message: dict) -> dict:
        os.write(self.input, json.dumps(message).encode() + b"\n")
        data = b""
        while not data.endswith(b"\n"):
            data += self.read()
        return json.loads(data)

    def handshake(self) -> None:
        if self.row.modern:
            return
        info = {
            "protocolVersion": "2025-11-25",
            "capabilities": {},
            "clientInfo": META["io.modelcontextprotocol/clientInfo"],
        }
        self.ask({"jsonrpc": "2.0", "id": "init", "method": "initialize", "params": info})
        os.write(self.input, b'{"jsonrpc":"2.0","method":"notifications/initialized"}\n')

    def request(self) -> bytes:
        self.sent += 1
        params = {"name": self.row.tool, "arguments": {"a": self.sent, "b": 2}}
        if self.row.modern:
            params["_meta"] = META
        message = {"jsonrpc": "2.0", "id": self.sent, "method": "tools/call", "params": params}
        return json.dumps(message, separators=(",", ":")).encode() + b"\n"

    def check(self) -> None:
        """Make sure that it adds."""
        answer = self.ask(json.loads(self.request()))
        assert answer["id"] == self.sent, answer
        assert answer["result"]["content"][0]["text"] == str(self.sent + 2), answer

    def load(self, calls: int, window: int) -> tuple[float, float]:
        """Make `calls` calls with `window` in flight; return CPU and wall seconds per call."""
        requests = [self.request() for _ in range(calls)]
        cpu, start = self.cpu(), time.monotonic()
        os.write(self.input, b"".join(requests[:window]))
        sent, answered = min(window, calls), 0
        while answered < calls:
            count = self.read().count(b"\n")
            answered += count
            if count and sent < calls:
                os.write(self.input, b"".join(requests[sent : sent + count]))
                sent += count
        return (self.cpu() - cpu) / calls, (time.monotonic() - start) / calls

    def close(self) -> None:
        self.process.stdin.close()
        try:
            self.process.wait(5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()


def measure_calls(rows: list[Row], calls: int, rounds: int) -> None:
    servers = [Server(row) for row in rows]
    for server in servers:
        server.handshake()
        server.check()
        server.load(300, 64)
    for _ in range(rounds):
        for server in servers:
            row = server.row
            many = max(64, int(calls * row.weight))
            for what, count, window in (("64", many, 64), ("1", max(50, many // 10), 1)):
                cpu, wall = server.load(count, window)
                row.note(f"cpu {what}", cpu * 1e6)
                row.note(f"wall {what}", wall * 1e6)
    for server in servers:
        server.close()


def measure_starts(rows: list[Row], rounds: int) -> None:
    for _ in range(rounds):
        for row in rows:
            server = Server(row)
            server.handshake()
            server.check()
            row.note("start wall", (time.monotonic() - server.started) * 1e3)
            row.note("start cpu", server.cpu() * 1e3)
            time.sleep(0.1)
            row.note("memory", server.memory())
            server.close()


def show(rows: list[Row], columns: list[tuple[str, str]], floors: dict[str, Row]) -> None:
    print(f"{'':34}" + "".join(f"{title:>24}" for _, title in columns))
    for row in rows:
        line = f"{row.name:34}"
        for what, _ in columns:
            figure, floor = row.median(what), floors[what].median(what)
            line += f"{figure:12.1f} {figure / floor:6.2f}x    " if figure is not None and floor else f"{'-':>24}"
        print(line)
    print()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--official", metavar="PYTHON", help="an interpreter that has the official SDK")
    parser.add_argument("--calls", type=int, default=6000, help="calls per round with 64 in flight")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--starts", type=int, default=9)
    options = parser.parse_args()

    python = sys.executable
    floor = Row("floor (msgspec loop)", [python, str(SERVERS / "floor.py")])
    batched = Row("floor, answers written together", [python, str(SERVERS / "floor.py"), "batched"])
    tasks = Row("floor, a task for each request", [python, str(SERVERS / "floor.py"), "tasks"])
    floor_asyncio = Row("floor and asyncio imported", [python, str(SERVERS / "floor.py"), "asyncio"])
    ours_command = [python, str(SERVERS / "ours.py")]
    ours = [
        Row("linkspan async def", ours_command, "add_async"),
        Row("linkspan def (worker thread)", ours_command, "add_def"),
        Row("linkspan inline", ours_command, "add_inline"),
        Row("linkspan async def, legacy", ours_command, "add_async", modern=False),
    ]
    official = []
    if options.official:
        high, low = ([options.official, str(SERVERS / name)] for name in ("official.py", "official_low.py"))
        official = [
            Row("official async def", high, "add_async", weight=0.05),
            Row("official def", high, "add_def", weight=0.05),
            Row("official async def, legacy", high, "add_async", modern=False, weight=0.05),
            Row("official low-level", low, "add_async", weight=0.05),
        ]
    rows = [floor, batched, tasks, *ours, *official]
    measure_calls(rows, options.calls, options.rounds)
    print("Calls: medians, microseconds per call, and times the floor\n")
    columns = [
        ("cpu 64", "CPU, 64 in flight"),
        ("cpu 1", "CPU, one at a time"),
        ("wall 64", "wall, 64"),
        ("wall 1", "wall, 1"),
    ]
    show(rows, columns, dict.fromkeys([what for what, _ in columns], floor))

    starts = [floor, floor_asyncio, ours[2], ours[1], ours[0], *official[:1], *official[3:]]
    measure_starts(starts, options.starts)
    print(
        "Start to first answer of tools/call (ms), memory at rest (MiB): medians, and times the floor without asyncio\n"
    )
    columns = [("start cpu", "CPU"), ("start wall", "wall"), ("memory", "memory")]
    show(starts, columns, dict.fromkeys([what for what, _ in columns], floor))


if __name__ == "__main__":
    main()
