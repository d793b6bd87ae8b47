"""What every runner shares: rows, processes and their CPU, rounds that give each row a turn, ratios and their spread."""

from __future__ import annotations

import atexit
import os
import statistics
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parent
SERVERS = HERE / "servers"
CLIENTS = HERE / "clients"
MODERN, LEGACY = "2026-07-28", "2025-11-25"
INFO = {"name": "bench", "version": "1"}
META = {
    "io.modelcontextprotocol/protocolVersion": MODERN,
    "io.modelcontextprotocol/clientCapabilities": {},
    "io.modelcontextprotocol/clientInfo": INFO,
}
TIMEOUT = 60.0


@dataclass
class Row:
    """One program under one kind of load, and its figures: one for each round."""

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
        return statistics.median(self.figures[what]) if self.figures.get(what) else None

    def ratio(self, other: Row, what: str) -> tuple[float, float, float] | None:
        """Return the median of the ratios of each round, and the quarters around it."""
        pairs = [
            mine / theirs for mine, theirs in zip(self.figures.get(what, ()), other.figures.get(what, ()), strict=False)
        ]
        if not pairs:
            return None
        low, middle, high = statistics.quantiles(pairs, n=4) if len(pairs) > 1 else pairs * 3
        return middle, low, high


def environment(command: Sequence[str]) -> dict[str, str]:
    """Return an environment in which our sources are those of this checkout, and nothing of Python's is set."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    return (
        {**kept, "PYTHONPATH": str(ROOT / "src")}
        if any("ours" in each or each == "linkspan" for each in command)
        else kept
    )


class Process:
    """A running program."""

    def __init__(self, row: Row, command: Sequence[str], **options: object) -> None:
        self.row = row
        self.started = time.monotonic()
        self.process = subprocess.Popen(
            command, stderr=subprocess.DEVNULL, env=environment(command), bufsize=0, **options
        )

        atexit.register(self.process.kill)  # nothing of a run that failed stays behind

    def cpu(self) -> float:
        """Return the process's CPU seconds so far, user and system, all threads."""
        return time.clock_gettime(((~self.process.pid) << 3) | 2)

    def memory(self, what: str = "VmRSS") -> float:
        """Return the resident MiB, or with "VmHWM" the most that they ever were."""
        for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith(what):
                return int(line.split()[1]) / 1024
        return 0.0

    def close(self) -> None:
        if self.process.stdin is not None:
            self.process.stdin.close()
        else:
            self.process.terminate()
        try:
            self.process.wait(5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def rounds(count: int, turns: Sequence[Callable[[], object]]) -> None:
    """Give each its turn, in one order and then in the other: a busy neighbour hurts all of them."""
    for number in range(count):
        for turn in turns if number % 2 else reversed(turns):
            turn()
