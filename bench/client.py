"""Measure clients against each other, over stdio or with --http over HTTP, in one interleaved run on one machine. See README.md.

CPU is the client process's own, of all its threads. The server is the same for everybody, and does not count.
"""

from __future__ import annotations

import argparse
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

from stdio import Row, show

HERE = Path(__file__).parent
CLIENTS = HERE / "clients"
SERVERS = HERE / "servers"


class Bench:
    """A client in a process of its own, which makes calls when it is told to."""

    def __init__(self, row: Row, target: list[str]) -> None:
        self.row = row
        kept = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
        paths = os.pathsep.join([str(HERE.parent / "src")] if row.command[0] == sys.executable else [])
        self.process = subprocess.Popen(
            [*row.command, *target],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**kept, "PYTHONPATH": paths},
            text=True,
        )
        assert self.process.stdout.readline() == "ready\n", row.name

    def run(self, calls: int, window: int) -> None:
        self.process.stdin.write(f"{calls} {window}\n")
        self.process.stdin.flush()
        cpu, wall = map(float, self.process.stdout.readline().split())
        self.row.note(f"cpu {window}", cpu)
        self.row.note(f"wall {window}", wall)

    def close(self) -> None:
        self.process.stdin.close()
        self.process.wait()


def start_http() -> tuple[subprocess.Popen, str]:
    """Start our server over HTTP; return its process and its URL."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    env = {"PYTHONPATH": str(HERE.parent / "src")}
    process = subprocess.Popen([sys.executable, str(SERVERS / "http_ours.py"), str(port)], env=env)
    while True:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return process, f"http://127.0.0.1:{port}/mcp"
        time.sleep(0.05)


def measure_commands(rows: list[Row], rounds: int) -> None:
    """Measure the wall time of whole commands."""
    for _ in range(rounds):
        for row in rows:
            start = time.monotonic()
            subprocess.run(row.command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
            row.note("command", (time.monotonic() - start) * 1e3)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--official", metavar="PYTHON", help="an interpreter that has the official SDK")
    parser.add_argument("--http", action="store_true", help="over HTTP instead of stdio")
    parser.add_argument("--calls", type=int, default=4000, help="calls per round with 64 in flight")
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()

    python = sys.executable
    floor = Row("floor (msgspec loop)", [python, str(CLIENTS / "floor.py")])
    server, target = None, [python, str(SERVERS / "ours.py")]
    if options.http:
        floor = Row("floor (bare aiohttp)", [python, str(CLIENTS / "floor_http.py")])
        server, url = start_http()
        target = [url]
    rows = [
        floor,
        Row("Client", [python, str(CLIENTS / "ours.py"), "async"]),
        Row("Client, handshake", [python, str(CLIENTS / "ours.py"), "async-handshake"]),
        Row("SyncClient, 64 threads", [python, str(CLIENTS / "ours.py"), "sync"]),
    ]
    if options.official:
        rows.append(Row("official", [options.official, str(CLIENTS / "official.py")], weight=0.1))
    clients = [Bench(row, target) for row in rows]
    for client in clients:
        client.run(300, 64)
        client.run(100, 1)
        client.row.figures.clear()
    for _ in range(options.rounds):
        for client in clients:
            many = max(64, int(options.calls * client.row.weight))
            client.run(many, 64)
            client.run(max(50, many // 4), 1)
    for client in clients:
        client.close()
    print("CPU and wall microseconds per call")
    columns = [
        ("cpu 64", "cpu, 64 in flight"),
        ("cpu 1", "cpu, one by one"),
        ("wall 64", "wall, 64"),
        ("wall 1", "wall, 1"),
    ]
    show(rows, columns, {what: floor for what, _ in columns})
    if server is not None:
        server.terminate()
        server.wait()
        return

    linkspan = str(Path(python).with_name("linkspan"))
    bare = Row("python -c pass", [python, "-c", "pass"])
    commands = [
        bare,
        Row("linkspan --help", [linkspan, "--help"]),
        Row(
            "linkspan call",
            [linkspan, "call", str(HERE.parent / "examples" / "dice.py"), "roll", "sides=20", "count=3"],
        ),
    ]
    measure_commands(commands, options.rounds)
    print("wall milliseconds of a command")
    show(commands, [("command", "wall")], {"command": bare})


if __name__ == "__main__":
    main()
