"""Stop the store of a server with four workers for ten seconds, or cut its connections, under load; and look at who notices.

    python bench/soak_store.py                  # SIGSTOP to redis-server, then its connections cut by a proxy
    python bench/soak_store.py --store nats     # or postgresql, or sqlite, whose file another program locks
    python bench/soak_store.py --seconds 3

Calls of tools that do not need the store must all be answered, none in more than LONGEST seconds. A tool that uses the store must
fail within the store's deadline. Once the store is back, a listener of every worker must have heard what was announced, or that
it may have missed something, and hear what is announced from then on. Ends with status 1 if any of this is violated. Linux only.
`soak_tasks.py --partition` does the same with tasks.
"""

from __future__ import annotations

import argparse
import os
import queue
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress

from store_servers import STORES, StoreServer, running_store

from linkspan import Change, Server, SyncClient, ToolError
from linkspan.stores import StoreError

LONGEST = 2.0
DEADLINE = 8.0
"""Seconds: the time that an operation of the store has, and some more for a busy machine."""
THREADS = 8


def serve(url: str) -> None:
    server = Server("soak", capabilities={"tools": {"listChanged": True}}, store=url)

    @server.tool
    def add(a: int, b: int) -> int:
        return a + b

    @server.tool
    def announce() -> int:
        server.notify_tools_list_changed()
        return os.getpid()

    @server.tool
    def remember(value: str) -> str:
        try:
            server.store.put("remembered", value.encode())
        except StoreError as problem:
            raise ToolError(f"not now: {problem}") from None
        return "remembered"

    server.run("http", port=0, workers=4)


@contextmanager
def running(command: list[str], **options: object) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(command, text=True, **options)  # type: ignore[call-overload]
    try:
        yield process
    finally:
        process.terminate()
        process.wait(10)


class Load:
    """Calls a tool in several threads, with a new connection now and then, and keeps what is slow or fails."""

    def __init__(self, url: str, tool: str, arguments: dict[str, object], threads: int) -> None:
        self.outcomes: Counter[str] = Counter()
        self.slowest = 0.0
        self._stopped = threading.Event()
        arguments_of = (url, tool, arguments)
        self._threads = [threading.Thread(target=self._call, args=arguments_of, daemon=True) for _ in range(threads)]
        for each in self._threads:
            each.start()

    def _call(self, url: str, tool: str, arguments: dict[str, object]) -> None:
        while not self._stopped.is_set():
            with SyncClient(url) as client:
                for _ in range(20):
                    began = time.monotonic()
                    try:
                        result = client.call_tool(tool, arguments)
                        self.outcomes["refused" if result.is_error else "answered"] += 1
                    except Exception as error:
                        self.outcomes[repr(error)] += 1
                    self.slowest = max(self.slowest, time.monotonic() - began)
                    if self._stopped.wait(0.01):
                        return

    def stop(self) -> None:
        self._stopped.set()
        for each in self._threads:
            each.join(30)
            if each.is_alive():
                self.outcomes["stuck"] += 1


def drain(heard: queue.Queue[Change]) -> int:
    count = 0
    with suppress(queue.Empty):
        while heard.get_nowait():
            count += 1
    return count


def soak(how: str, seconds: float, store: StoreServer) -> bool:
    command = [sys.executable, __file__, "--serve", store.url]
    with running(command, stderr=subprocess.PIPE) as server, ExitStack() as stack:
        assert server.stderr is not None
        url = server.stderr.readline().split()[3].rstrip(",")
        threading.Thread(target=server.stderr.read, daemon=True).start()
        return soak_with([listen(stack, url) for _ in range(12)], how, seconds, url, store)


def listen(stack: ExitStack, url: str) -> queue.Queue[Change]:
    """Return what a client hears that listens until the end."""
    client, heard = stack.enter_context(SyncClient(url)), queue.Queue[Change]()
    changes = stack.enter_context(client.listen(tools=True))
    threading.Thread(target=lambda: [heard.put(each) for each in changes], daemon=True).start()
    return heard


def soak_with(
    listeners: list[queue.Queue[Change]],  # so many that every worker has one
    how: str,
    seconds: float,
    url: str,
    store: StoreServer,
) -> bool:
    loads = {
        "add": Load(url, "add", {"a": 1, "b": 2}, THREADS),
        "announce": Load(url, "announce", {}, 1),
        "remember": Load(url, "remember", {"value": "x"}, 2),
    }
    time.sleep(2)
    before = dict(loads["remember"].outcomes)
    with store.fault(how):
        time.sleep(seconds)
    during = Counter(loads["remember"].outcomes) - Counter(before)
    loads["announce"].stop()
    time.sleep(8)
    told = [drain(each) for each in listeners]
    with SyncClient(url) as client:
        client.call_tool("announce")
    time.sleep(2)
    told_after = [drain(each) for each in listeners]
    for each in loads.values():
        each.stop()
    print(f"\nthe store was {how} for {seconds:g} s")
    for name, load in loads.items():
        print(f"  {name}: {dict(load.outcomes)}, slowest {load.slowest:.2f} s")
    print(f"  remember, meanwhile: {dict(during)}")
    print(f"  changes that each listener heard: {told}; of one more: {told_after}")
    problems = [
        *(f"{name}: {load.outcomes}" for name, load in loads.items() if set(load.outcomes) - {"answered", "refused"}),
        *(f"{name} took {loads[name].slowest:.1f} s" for name in ("add", "announce") if loads[name].slowest > LONGEST),
        *(["remember took too long"] if loads["remember"].slowest > DEADLINE else []),
        *(["a listener heard nothing"] if not all(told) else []),
        *(["a listener does not hear what is announced now"] if not all(told_after) else []),
    ]
    for each in problems:
        print(f"  VIOLATED: {each}")
    return not problems


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--store", choices=[*STORES], default="redis")
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve(options.serve)
        return 0
    with running_store(options.store) as store:
        held = [soak(how, options.seconds, store) for how in store.faults]
    return 0 if all(held) else 1


if __name__ == "__main__":
    sys.exit(main())
