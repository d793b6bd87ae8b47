"""What every client of the benchmark does: wait for an order, make the calls, say what they cost this process."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable


def measure(run: Callable[[], object], calls: int) -> None:
    """Run, and print the CPU and wall microseconds per call. All threads of this process count, no other process."""
    cpu, start = time.process_time(), time.monotonic()
    run()
    print((time.process_time() - cpu) / calls * 1e6, (time.monotonic() - start) / calls * 1e6, flush=True)


def orders() -> list[tuple[int, int]]:
    """Read orders until there are none."""
    for line in sys.stdin:
        calls, window = map(int, line.split())
        yield calls, window


def serve(run: Callable[[int, int], object]) -> None:
    """Obey with a function of the number of calls and the number in flight."""
    print("ready", flush=True)
    for calls, window in orders():
        measure(lambda calls=calls, window=window: run(calls, window), calls)
