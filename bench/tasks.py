"""Tasks a second, and from creation to the end of one: on each store, beside FastMCP's on Redis.

    python bench/tasks.py                                   # three rounds; stores that are not installed are left out

A task runs a tool that returns at once. One server process and its Redis run on this machine. "a second" is 200 tasks made by 16
threads, polled until all have ended. "create to done" is the median of 40 tasks, one after the other, from sending the call to
receiving the result of a poll, with 2 ms between polls.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from soak_tasks import FINAL, Caller
from store_servers import STORES, running_store

LINKSPAN = """
import sys
from linkspan import Server, Task
server = Server("bench", store=sys.argv[2], max_tasks=64, max_tasks_per_principal=10_000)
@server.tool(task=Task(poll=0.05))
def {name}(number: int) -> str: return f"done {{number}}"
server.run("http", port=int(sys.argv[1]))
""".format(name="work")
ASYNC = LINKSPAN.replace("def work", "async def work")
FASTMCP = """
import os, sys
os.environ["FASTMCP_DOCKET_URL"] = sys.argv[2]
from datetime import timedelta
from fastmcp import FastMCP
from fastmcp.utilities.tasks import TaskConfig
from fastmcp_tasks import TasksExtension
server = FastMCP("bench")
@server.tool(task=TaskConfig(mode="optional", poll_interval=timedelta(milliseconds=50)))
async def work(number: int) -> str: return f"done {number}"
server.add_extension(TasksExtension(url=sys.argv[2]))
server.run("http", host="127.0.0.1", port=int(sys.argv[1]), show_banner=False, log_level="error", stateless_http=True)
"""


@contextlib.contextmanager
def running(code: str, port: int, store: str) -> Iterator[None]:
    """Serve in a process of its own."""
    with tempfile.NamedTemporaryFile("w", suffix=".py") as file:
        file.write(code)
        file.flush()
        process = subprocess.Popen([sys.executable, file.name, str(port), store], stderr=subprocess.DEVNULL)
        try:
            Caller(port).ask("server/discover")
            yield
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait()


def finish(caller: Caller, number: int) -> None:
    """Make a task, and poll it until it has ended."""
    answer = caller.ask("tools/call", name="work", arguments={"number": number})
    task: dict[str, Any] = answer["result"]
    while task["status"] not in FINAL:
        time.sleep(0.002)
        task = caller.ask("tasks/get", taskId=task["taskId"])["result"]
    text = task["result"]["content"][0]["text"] if "result" in task else ""
    assert f"{number}" in text or task["status"] == "completed", task


def per_second(port: int, count: int = 200, threads: int = 16) -> float:
    """Return how many tasks end in a second."""
    numbers = iter(range(count))
    lock = threading.Lock()

    def follow() -> None:
        caller = Caller(port)
        while True:
            with lock:
                number = next(numbers, None)
            if number is None:
                return
            finish(caller, number)

    workers = [threading.Thread(target=follow) for _ in range(threads)]
    began = time.perf_counter()
    for each in workers:
        each.start()
    for each in workers:
        each.join()
    return count / (time.perf_counter() - began)


def latency(port: int, count: int = 40) -> float:
    """Return the median of milliseconds from the call to the result."""
    caller, found = Caller(port), list[float]()
    for number in range(count):
        began = time.perf_counter()
        finish(caller, number)
        found.append((time.perf_counter() - began) * 1000)
    return statistics.median(found)


def main() -> None:
    """Measure all in interleaved rounds."""
    parser = argparse.ArgumentParser(description="Measure tasks.")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--port", type=int, default=8478)
    given = parser.parse_args()
    with contextlib.ExitStack() as stack:
        rows = {"memory, def": (LINKSPAN, "memory:"), "memory, async def": (ASYNC, "memory:")}
        for kind in STORES:
            try:
                url = stack.enter_context(running_store(kind)).direct
            except (ImportError, FileNotFoundError) as problem:
                print(f"{kind} is left out: {problem}")
                continue
            rows[f"{kind}, def"] = LINKSPAN, url
            rows[f"{kind}, async def"] = ASYNC, url
            if kind == "redis":
                with contextlib.suppress(ImportError):
                    import fastmcp_tasks  # type: ignore[import-not-found]

                    assert fastmcp_tasks
                    rows["FastMCP, redis, async def"] = FASTMCP, url.replace("/0", "/1")
        found: dict[str, list[tuple[float, float]]] = {name: [] for name in rows}
        for _ in range(given.rounds):
            for name, (code, store) in rows.items():
                with running(code, given.port, store):
                    found[name].append((per_second(given.port), latency(given.port)))
        print(f"{'':28} a second      x  create to done      x")
        speeds = {name: statistics.median(speed for speed, _ in values) for name, values in found.items()}
        times = {name: statistics.median(time for _, time in values) for name, values in found.items()}
        for name in found:  # each as a ratio to the store in memory
            speed, duration = speeds[name] / speeds["memory, def"], times[name] / times["memory, def"]
            print(f"{name:28} {speeds[name]:8.0f} {speed:6.2f} {times[name]:12.1f} ms {duration:6.2f}")


if __name__ == "__main__":
    os.environ.setdefault("PYTHONPATH", str(Path(__file__).parent.parent / "src"))
    main()
