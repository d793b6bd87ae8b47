"""Clients over stdio and HTTP, and whole commands. CPU is the client's own; the server is the same for everybody."""

from __future__ import annotations

import os
import resource
import subprocess
from functools import partial

from runs import Process, Row, environment, rounds


class Client(Process):
    """A client in a process of its own, which makes calls when it is told to."""

    def __init__(self, row: Row, target: list[str]) -> None:
        super().__init__(row, [*row.command, *target], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self.process.stdout.readline() == b"ready\n", row.name

    def run(self, calls: int, window: int) -> None:
        os.write(self.process.stdin.fileno(), f"{calls} {window}\n".encode())
        cpu, wall = map(float, self.process.stdout.readline().split())
        self.row.note(f"cpu {window}", cpu)
        self.row.note(f"wall {window}", wall)


def measure_calls(rows: list[Row], target: list[str], calls: int, count: int) -> None:
    """Note `cpu 64` and `cpu 1`, and the wall times, in microseconds per call."""
    clients = [Client(row, target) for row in rows]
    for client in clients:
        client.run(300, 64)
        client.run(100, 1)
        client.row.figures.clear()
    turns = []
    for client in clients:
        many = max(64, int(calls * client.row.weight))
        turns += [partial(client.run, many, 64), partial(client.run, max(50, many // 4), 1)]
    rounds(count, turns)
    for client in clients:
        client.close()


def measure_commands(rows: list[Row], count: int) -> None:
    """Note the `command cpu` of whole commands, and of the processes that they start, in milliseconds."""

    def run(row: Row) -> None:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(row.command, env=environment(row.command), stdout=subprocess.DEVNULL, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        row.note("command cpu", (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) * 1e3)

    for row in rows:
        run(row)
        row.figures.clear()
    rounds(count, [partial(run, row) for row in rows])
