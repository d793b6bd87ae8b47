"""Kill a stdio server at random while 32 tasks, then 32 threads, call it, and hold the client to what it promises.

No task of the host is cancelled, nothing hangs past its deadline, every failed call says its `delivery` and says it truly (the
server keeps a journal), no unsafe call is repeated, no process, descriptor or thread is left over, and memory stays flat. Ends
with status 1 if any of this is violated. Linux only.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import os
import random
import signal
import sys
import tempfile
import threading
import time
import traceback
from array import array
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from linkspan import CallStopped, CallTimeout, Client, ClientError, Connected, Stopper, SyncClient, Timeouts

SERVER = Path(__file__).parent / "servers" / "journal.py"
WORKERS = 32
TIMEOUTS = Timeouts(connect=10, probe=5, list=5, call=5, close=1)
LONGEST = TIMEOUTS.connect + TIMEOUTS.call
"""Seconds that the slowest call may take: it waits for a server, then for an answer."""
IMPATIENT = 0.1
MEGABYTES = 6
"""Growth that still counts as flat: an allocator's habits, not a leak."""
TOOLS = ("note", "note_slowly", "look", "hang", "stopped", "cancelled", "list")
SHARES = (40, 15, 25, 5, 5, 5, 5)


class Record:
    """What was seen. Used by many threads at once."""

    def __init__(self) -> None:
        self.violations: Counter[str] = Counter()
        self.outcomes: Counter[str] = Counter()
        self.done = array("q")  # numbers of keys: a record must not grow like a leak
        self.not_sent: set[str] = set()
        self.slowest = 0.0
        self.kills = 0
        self.megabytes: list[float] = []
        self.revisions: list[str] = []
        self.descriptors = 0
        self._keys = iter(range(10**9))
        self._lock = threading.Lock()

    def key(self) -> str:
        with self._lock:
            return f"k{next(self._keys)}"

    def violated(self, what: str) -> None:
        with self._lock:
            self.violations[what] += 1

    def answered(self, tool: str, key: str, text: str | None) -> None:
        if text not in (key, None):
            self.violated(f"{tool} was given the answer of somebody else")
        with self._lock:
            self.outcomes["answered"] += 1
            if tool.startswith("note"):
                self.done.append(int(key[1:]))

    def raised(self, tool: str, key: str, error: BaseException) -> None:
        expected = {"hang": CallTimeout, "stopped": CallStopped, "cancelled": TimeoutError}.get(tool, ())
        if not isinstance(error, (ClientError, *([expected] if expected else []))):
            self.violated(f"{tool} raised {''.join(traceback.format_exception(error))}")
            return
        delivery = getattr(error, "delivery", "none: cancelled by its own task")
        if isinstance(error, ClientError) and delivery not in ("not_sent", "maybe_sent"):
            self.violated(f"{tool}: {type(error).__name__} with delivery {delivery!r}: {error}")
        if isinstance(error, CallTimeout) and tool != "hang":
            self.violated(f"{tool} timed out, though its server was dead or well: {error}")
        with self._lock:
            self.outcomes[f"{type(error).__name__} ({delivery})"] += 1
            if delivery == "not_sent":
                self.not_sent.add(key)

    def heard(self, event: object) -> None:
        if isinstance(event, Connected):
            self.revisions.append(event.revision)
            if event.revision < max(self.revisions):
                self.violated(f"the server was modern, and is spoken to in {event.revision} now")

    def took(self, tool: str, seconds: float) -> None:
        with self._lock:
            self.slowest = max(self.slowest, seconds)
        if seconds > LONGEST:
            self.violated(f"{tool} took longer than {LONGEST:g} seconds")


class Killer(threading.Thread):
    """Ends the newest server again and again, and looks at our memory and descriptors."""

    def __init__(self, journal: Path, record: Record, chance: random.Random, until: float) -> None:
        super().__init__(name="killer")
        self._journal, self._record, self._chance, self._until = journal, record, chance, until

    def run(self) -> None:
        killed = 0
        while time.monotonic() < self._until:
            time.sleep(self._chance.uniform(0.0, 0.8))
            self._record.megabytes.append(resident_megabytes())
            self._record.descriptors = max(self._record.descriptors, count_descriptors())
            pid = newest_server(self._journal)
            if pid is not None and pid != killed and parent_of(pid) == os.getpid():
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    continue  # it ended meanwhile: the soak is over, and its client closes
                killed = pid
                self._record.kills += 1


def soak_tasks(command: list[str], record: Record, seed: int, until: float) -> None:
    """Call with tasks of one loop."""

    async def work(client: Client, number: int) -> None:
        chance = random.Random(seed + number)
        while time.monotonic() < until:
            tool, key, began = chance.choices(TOOLS, SHARES)[0], record.key(), time.monotonic()
            try:
                record.answered(tool, key, await call(client, tool, key))
            except (Exception, asyncio.CancelledError) as error:
                record.raised(tool, key, error)
            record.took(tool, time.monotonic() - began)
            await asyncio.sleep(chance.uniform(0.0, 0.01))

    async def call(client: Client, tool: str, key: str) -> str | None:
        match tool:
            case "list":
                await client.list_tools()
                return None
            case "hang":
                return (await client.call_tool("hang", {"key": key}, timeout=IMPATIENT)).text
            case "stopped":
                stopper = Stopper()
                asyncio.get_running_loop().call_later(IMPATIENT, stopper.stop)
                return (await client.call_tool("hang", {"key": key}, stopper=stopper)).text
            case "cancelled":
                async with asyncio.timeout(IMPATIENT):
                    return (await client.call_tool("hang", {"key": key})).text
            case _:
                return (await client.call_tool(tool, {"key": key})).text

    async def run() -> None:
        bystander = asyncio.create_task(asyncio.Event().wait())
        async with Client(command, timeouts=TIMEOUTS, on_event=record.heard) as client:
            workers = [asyncio.create_task(work(client, number)) for number in range(WORKERS)]
            _, hanging = await asyncio.wait(workers, timeout=until - time.monotonic() + 2 * LONGEST)
        for worker in hanging:
            record.violated(f"a task hangs: {worker.get_stack(limit=1)}")
        for worker in set(workers) - hanging:
            if worker.cancelled():
                record.violated("a task of the host was cancelled")
            elif error := worker.exception():
                record.violated(f"a task of the host ended: {error!r}")
        if bystander.done():
            record.violated("a bystander was cancelled")
        bystander.cancel()

    asyncio.run(run())


def soak_threads(command: list[str], record: Record, seed: int, until: float) -> None:
    """Call with threads."""

    def work(client: SyncClient, number: int) -> None:
        chance = random.Random(seed + number)
        while time.monotonic() < until:
            tool, key, began = chance.choices(TOOLS, SHARES)[0], record.key(), time.monotonic()
            tool = "stopped" if tool == "cancelled" else tool  # threads cannot be cancelled
            try:
                record.answered(tool, key, call(client, tool, key))
            except Exception as error:
                record.raised(tool, key, error)
            record.took(tool, time.monotonic() - began)
            time.sleep(chance.uniform(0.0, 0.01))

    def call(client: SyncClient, tool: str, key: str) -> str | None:
        match tool:
            case "list":
                client.list_tools()
                return None
            case "hang":
                return client.call_tool("hang", {"key": key}, timeout=IMPATIENT).text
            case "stopped":
                stopper = Stopper()
                timer = threading.Timer(IMPATIENT, stopper.stop)
                timer.start()
                try:
                    return client.call_tool("hang", {"key": key}, stopper=stopper).text
                finally:
                    timer.join()
            case _:
                return client.call_tool(tool, {"key": key}).text

    with SyncClient(command, timeouts=TIMEOUTS, on_event=record.heard) as client:
        workers = [threading.Thread(target=work, args=(client, number)) for number in range(WORKERS)]
        for worker in workers:
            worker.daemon = True
            worker.start()
        for worker in workers:
            worker.join(max(0.1, until - time.monotonic() + 2 * LONGEST))
        for worker in workers:
            if worker.is_alive():
                record.violated(f"{worker.name} hangs")


FACES: dict[str, Callable[[list[str], Record, int, float], None]] = {"tasks": soak_tasks, "threads": soak_threads}


def soak(face: str, seconds: float, seed: int) -> Record:
    """Let one face suffer, and look at what is left."""
    record = Record()
    gc.collect()
    descriptors, threads = count_descriptors(), threading.active_count()
    with tempfile.TemporaryDirectory() as directory:
        journal = Path(directory, "journal")
        until = time.monotonic() + seconds
        killer = Killer(journal, record, random.Random(seed), until)
        killer.start()
        FACES[face]([sys.executable, str(SERVER), str(journal)], record, seed, until)
        killer.join()
        check_journal(journal, record)
    if not wait_until(lambda: threading.active_count() <= threads + 1):  # the reactor stays
        record.violated(f"threads are left: {[each.name for each in threading.enumerate()]}")
    if not wait_until(lambda: count_descriptors() <= descriptors + 2):  # and its pipe
        record.violated(f"{count_descriptors() - descriptors} descriptors are left")
    if children := [pid for pid in every_process() if parent_of(pid) == os.getpid()]:
        record.violated(f"children are left: {children}")
    settled = record.megabytes[len(record.megabytes) // 3 :]
    if settled and max(settled) - settled[0] > MEGABYTES:
        record.violated(f"memory grew from {settled[0]:.1f} to {max(settled):.1f} MB")
    return record


def check_journal(journal: Path, record: Record) -> None:
    """Compare what the servers did with what their client said about it."""
    lines = [line.split() for line in journal.read_text().splitlines()]
    noted = Counter(key for word, key, *_ in lines if word == "note")
    for key, times in noted.items():
        if times > 1:
            record.violated(f"an unsafe call was made {times} times")
        if key in record.not_sent:
            record.violated("a call was said to be not_sent, but the server had it")
    for number in record.done:
        if not noted[f"k{number}"]:
            record.violated("a call was answered that never reached the server")
    pids = {int(pid) for word, *pids in lines if word == "start" for pid in pids}
    if not wait_until(lambda: not any(map(alive, pids))):
        record.violated(f"processes are left: {[pid for pid in pids if alive(pid)]}")


def newest_server(journal: Path) -> int | None:
    """Return the process of the last server that started."""
    try:
        lines = journal.read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) for line in reversed(lines) if line.startswith("start")), None)


def wait_until(true: Callable[[], bool], patience: float = 5.0) -> bool:
    give_up = time.monotonic() + patience
    while not true():
        if time.monotonic() > give_up:
            return False
        time.sleep(0.02)
    return True


def every_process() -> list[int]:
    return [int(each) for each in os.listdir("/proc") if each.isdigit()]


def parent_of(pid: int) -> int | None:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return None


def alive(pid: int) -> bool:
    """Tell whether a process runs; one that is dead and waits for its parent, who is not us, does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def count_descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def resident_megabytes() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE") / 1e6


def show(face: str, record: Record) -> None:
    memory: Any = record.megabytes or [0.0]
    calls = sum(record.outcomes.values())
    print(f"32 {face}: {calls} calls, {record.kills} kills, the slowest call took {record.slowest:.2f} s")
    for outcome, count in record.outcomes.most_common():
        print(f"  {count:8} {outcome}")
    print(f"  {len(record.revisions)} connections, in {' and '.join(sorted(set(record.revisions)))}")
    print(f"  memory {memory[0]:.1f} .. {memory[-1]:.1f} MB, at most {record.descriptors} descriptors")
    for violation, count in record.violations.most_common(10):
        print(f"  VIOLATED {count} times: {violation}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0, help="for each of tasks and threads")
    parser.add_argument("--seed", type=int, default=None, help="the same kills and calls again, as far as time allows")
    parser.add_argument("--face", choices=FACES, help="only one of them")
    chosen = parser.parse_args()
    seed = chosen.seed if chosen.seed is not None else random.randrange(10**6)
    print(f"seed {seed}")
    violated = False
    for face in [chosen.face] if chosen.face else FACES:
        record = soak(face, chosen.seconds, seed)
        show(face, record)
        violated = violated or bool(record.violations) or not record.kills
    sys.exit(1 if violated else 0)


if __name__ == "__main__":
    main()
