"""Let a server die, or a proxy misbehave, while many use our clients over HTTP; count what must never happen.

python bench/soak_http_client.py [--seconds 60] [--workers 32] [--only restart|proxy] [--face async|sync] [--seed N]

Violations: a call that takes longer than its deadline; a call that is not safe to repeat and arrives twice; an error that says
`not_sent` of a call that arrived; a success that did not arrive; an exception that is no ClientError; a client that does not
work when all is well again; memory that grows. Exits with 1 if there is any.
"""

# ruff: noqa: E402
from __future__ import annotations

import sys

sys.path[:] = [each for each in sys.path if not each.endswith("bench")]  # where `http` is another benchmark

import argparse
import asyncio
import gc
import os
import random
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from linkspan import Client, ClientError, Server, SyncClient, Timeouts

CALL, CONNECT, SLACK = 3.0, 3.0, 2.0
GROWTH = 24.0
"""Megabytes that the process may grow after the first third."""


# The server: it writes down what arrives, so that the count outlives it.


def serve(port: int, log: str) -> None:
    server = Server("soak", capabilities={"tools": {"listChanged": True}})
    book = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    @server.tool
    async def charge(key: str, seconds: float = 0.0) -> str:
        """Not safe to repeat."""
        os.write(book, f"{key}\n".encode())
        await asyncio.sleep(seconds)
        return key

    @server.tool(annotations={"read_only_hint": True})
    def look(key: str) -> str:
        """Safe to repeat."""
        os.write(book, f"{key}\n".encode())
        return key

    server.run("http", port=port)


class Victim:
    """The server's process."""

    def __init__(self, port: int, log: Path) -> None:
        self._command = [sys.executable, __file__, "--serve", str(port), "--log", str(log)]
        self._port = port
        self._process: subprocess.Popen[bytes] | None = None
        self.restarts = -1

    def start(self) -> None:
        self._process = subprocess.Popen(self._command, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        give_up = time.monotonic() + 15
        while time.monotonic() < give_up:
            with suppress(OSError), socket.create_connection(("127.0.0.1", self._port), 0.2):
                self.restarts += 1
                return
            time.sleep(0.02)
        raise RuntimeError("the server does not start")

    def end(self, signal_number: int) -> None:
        assert self._process is not None
        self._process.send_signal(signal_number)
        try:
            self._process.wait(8)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def keep_dying(self, until: float, chance: random.Random) -> None:
        while time.monotonic() < until:
            time.sleep(chance.uniform(0.3, 2.0))
            self.end(chance.choice([signal.SIGKILL, signal.SIGKILL, signal.SIGTERM]))
            time.sleep(chance.uniform(0.0, 0.5))
            self.start()


# The proxy.


class BadProxy:
    """Passes connections on, badly: cuts, waits, splits, swaps pieces, and answers 502, before or after passing it on."""

    def __init__(self, target: int, chance: random.Random) -> None:
        self._target = target
        self._chance = chance
        self._bad = True
        self.done: Counter[str] = Counter()
        self._loop = asyncio.new_event_loop()
        self._started = threading.Event()
        self.port = 0
        threading.Thread(target=self._run, daemon=True).start()
        self._started.wait(10)

    def behave(self) -> None:
        """Pass everything on as it is, from now on."""
        self._bad = False

    def _run(self) -> None:
        async def begin() -> None:
            listening = await asyncio.start_server(self._connected, "127.0.0.1", 0)
            self.port = listening.sockets[0].getsockname()[1]
            self._started.set()

        self._loop.create_task(begin())
        self._loop.run_forever()

    def _does(self, what: str, one_in: int) -> bool:
        if not self._bad or self._chance.randrange(one_in):
            return False
        self.done[what] += 1
        return True

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.CancelledError):
            server_reader, server_writer = await asyncio.open_connection("127.0.0.1", self._target)
            ways = [
                asyncio.ensure_future(self._pass_on(reader, server_writer, writer)),
                asyncio.ensure_future(self._pass_on(server_reader, writer, None)),
            ]
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            for each in ways:
                each.cancel()
            server_writer.close()
        writer.close()

    async def _pass_on(
        self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, back: asyncio.StreamWriter | None
    ) -> None:
        """One direction; `back` leads to the client where requests are passed on."""
        with suppress(OSError):
            while data := await source.read(65536):
                if self._does("cut", 40):
                    sink.write(data[: self._chance.randrange(len(data))])
                    return
                if back is not None and self._does("502 before", 40):
                    await self._refuse(back)
                    return
                if back is not None and self._does("502 after", 40):
                    sink.write(data)
                    await sink.drain()
                    await asyncio.sleep(0.05)
                    await self._refuse(back)
                    return
                if self._does("delay", 15):
                    await asyncio.sleep(self._chance.uniform(0.0, 0.5))
                if self._does("silence", 300):
                    await asyncio.sleep(60)
                pieces = [data]
                if self._does("split", 5):
                    at = self._chance.randrange(len(data))
                    pieces = [data[:at], data[at:]]
                    if back is None and self._does("swap", 10):
                        pieces.reverse()
                for piece in pieces:
                    sink.write(piece)
                    await sink.drain()
                    await asyncio.sleep(0.002 * (len(pieces) > 1))

    async def _refuse(self, back: asyncio.StreamWriter) -> None:
        back.write(b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 3\r\nConnection: close\r\n\r\nbad")
        await back.drain()


# Those who call.


class Account:
    """What the callers have seen. Any thread."""

    def __init__(self) -> None:
        self.outcomes: Counter[str] = Counter()
        self.violations: list[str] = []
        self.ok: set[str] = set()
        self.not_sent: set[str] = set()
        self.slowest = 0.0
        self._lock = threading.Lock()
        self._count = 0

    def key(self, kind: str) -> str:
        with self._lock:
            self._count += 1
            return f"{kind}-{self._count}"

    def note(self, key: str, began: float, error: BaseException | None) -> None:
        seconds = time.monotonic() - began
        with self._lock:
            self.slowest = max(self.slowest, seconds)
            self.outcomes[type(error).__name__ if error else "ok"] += 1
            if seconds > CALL + CONNECT + SLACK:
                self.violations.append(f"{key} took {seconds:.1f} s and ended with {error!r}")
            if error is None:
                self.ok.add(key)
            elif not isinstance(error, ClientError):
                self.violations.append(f"{key} ended with {error!r}")
            elif error.delivery == "not_sent":
                self.not_sent.add(key)

    def check(self, arrived: Counter[str]) -> None:
        """Compare with what the server has seen."""
        twice = [key for key, times in arrived.items() if times > 1 and key.startswith("charge")]
        self.violations += [f"{key} arrived {arrived[key]} times" for key in twice]
        lies = [key for key in self.not_sent if arrived[key]]
        self.violations += [f"{key} was said to be not sent, and arrived" for key in lies]
        self.violations += [f"{key} was said to have succeeded, and never arrived" for key in self.ok - arrived.keys()]


def draw(account: Account, chance: random.Random) -> tuple[str, dict[str, Any]]:
    kind = chance.choice(["charge", "look"])
    arguments: dict[str, Any] = {"key": account.key(kind)}
    if kind == "charge" and chance.random() < 0.3:
        arguments["seconds"] = chance.uniform(0, 0.5)
    return kind, arguments


async def use(client: Client, account: Account, until: float, chance: random.Random) -> None:
    while time.monotonic() < until:
        kind, arguments = draw(account, chance)
        began, error = time.monotonic(), None
        try:
            result = await client.call_tool(kind, arguments, timeout=CALL)
            assert result.text == arguments["key"], result
        except (Exception, asyncio.CancelledError) as caught:
            error = caught
        account.note(arguments["key"], began, error)
        await asyncio.sleep(chance.uniform(0, 0.02))


def use_sync(client: SyncClient, account: Account, until: float, chance: random.Random) -> None:
    while time.monotonic() < until:
        kind, arguments = draw(account, chance)
        began, error = time.monotonic(), None
        try:
            result = client.call_tool(kind, arguments, timeout=CALL)
            assert result.text == arguments["key"], result
        except Exception as caught:
            error = caught
        account.note(arguments["key"], began, error)
        time.sleep(chance.uniform(0, 0.02))


def options(era: Any) -> dict[str, Any]:
    return {"era": era, "timeouts": Timeouts(connect=CONNECT, probe=1, list=CALL, close=1), "name": f"soak {era}"}


def run_async(url: str, account: Account, until: float, workers: int, seed: int) -> list[str]:
    async def run() -> list[str]:
        clients = [Client(url, **options(era)) for era in ("modern", "legacy")]
        await asyncio.gather(
            *(use(clients[each % 2], account, until, random.Random(seed + each)) for each in range(workers))
        )
        after = [await _works(client) for client in clients]
        for client in clients:
            await client.close()
        return [each for each in after if each]

    return asyncio.run(run())


async def _works(client: Client) -> str | None:
    for _ in range(3):
        with suppress(ClientError):
            await client.call_tool("look", {"key": "after"}, timeout=CALL)
            return None
    return f"{client.name} does not work afterwards"


def run_sync(url: str, account: Account, until: float, workers: int, seed: int) -> list[str]:
    clients = [SyncClient(url, **options(era)) for era in ("modern", "legacy")]
    threads = [
        threading.Thread(target=use_sync, args=(clients[each % 2], account, until, random.Random(seed + each)))
        for each in range(workers)
    ]
    for each in threads:
        each.start()
    for each in threads:
        each.join(max(0.0, until - time.monotonic()) + CALL + CONNECT + 10)
    after = [f"{each.name} hangs" for each in threads if each.is_alive()]
    for client in clients:
        works = False
        for _ in range(3):
            with suppress(ClientError):
                client.call_tool("look", {"key": "after"}, timeout=CALL)
                works = True
                break
        if not works:
            after.append(f"{client.name} does not work afterwards")
        client.close()
    return after


# Putting it together.


def resident() -> float:
    """Return the megabytes that this process holds."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


@contextmanager
def watching_memory(seconds: float, violations: list[str], said: dict[str, str]) -> Iterator[None]:
    samples: list[float] = []
    over = threading.Event()

    def watch() -> None:
        while not over.wait(0.25):
            samples.append(resident())

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        gc.collect()
        first = max(samples[: max(1, len(samples) // 3)])
        last = resident()
        said["memory"] = f"{first:.0f} MB at most in the first third, {last:.0f} MB at the end"
        if last - first > GROWTH:
            violations.append(f"memory grew from {first:.0f} to {last:.0f} MB")


def soak(mode: str, face: str, seconds: float, workers: int, seed: int) -> bool:
    """Run one combination; print what came of it; tell whether all went well."""
    with tempfile.TemporaryDirectory() as folder, socket.socket() as reserved:
        log = Path(folder, "log")
        reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        reserved.bind(
            ("127.0.0.1", 0)
        )  # and it stays so while servers listen and die: no other process gets their port
        port = reserved.getsockname()[1]
        victim = Victim(port, log)
        victim.start()
        account, said = Account(), dict[str, str]()
        until = time.monotonic() + seconds
        proxy = BadProxy(port, random.Random(seed)) if mode == "proxy" else None
        killer = threading.Thread(target=victim.keep_dying, args=(until - 1.0, random.Random(seed)))
        if proxy is None:
            killer.start()
        else:
            calm = threading.Timer(seconds, proxy.behave)
            calm.daemon = True
            calm.start()
        url = f"http://127.0.0.1:{proxy.port if proxy is not None else port}/mcp"
        run = run_async if face == "async" else run_sync
        try:
            with watching_memory(seconds, account.violations, said):
                account.violations += run(url, account, until, workers, seed)
        finally:
            if killer.is_alive():
                killer.join()
            victim.end(signal.SIGKILL)
        arrived = Counter(log.read_text().split()) if log.exists() else Counter[str]()
        arrived.pop("after", None)
        account.check(arrived)
    if account.outcomes["ok"] < seconds * 5:
        account.violations.append(f"only {account.outcomes['ok']} calls succeeded")
    repeated = sum(1 for key, times in arrived.items() if times > 1 and key.startswith("look"))
    print(f"{mode}, {workers} {'tasks' if face == 'async' else 'threads'}, {seconds:g} s, seed {seed}")
    print(f"  calls: {dict(account.outcomes.most_common())}; slowest {account.slowest:.1f} s")
    print(f"  arrived: {sum(arrived.values())}; read-only calls that arrived twice: {repeated}; {said['memory']}")
    print(f"  {f'restarts: {victim.restarts}' if proxy is None else f'proxy: {dict(proxy.done.most_common())}'}")
    for each in account.violations[:20]:
        print(f"  VIOLATION {each}")
    print(f"  {'ok' if not account.violations else f'{len(account.violations)} violations'}", flush=True)
    return not account.violations


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--workers", type=int, default=32)
    parser.add_argument("--only", choices=("restart", "proxy"))
    parser.add_argument("--face", choices=("async", "sync"))
    parser.add_argument("--seed", type=int, default=random.randrange(1_000_000))
    parser.add_argument("--serve", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--log", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.serve is not None:
        serve(given.serve, given.log)
        return 0
    modes = [given.only] if given.only else ["restart", "proxy"]
    faces = [given.face] if given.face else ["async", "sync"]
    fine = [soak(mode, face, given.seconds, given.workers, given.seed) for mode in modes for face in faces]
    return 0 if all(fine) else 1


if __name__ == "__main__":
    sys.exit(main())
