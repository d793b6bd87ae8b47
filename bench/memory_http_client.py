"""Call a tool over HTTP many times through one client, and show that its memory stays flat.

python bench/memory_http_client.py [--calls 200000] [--era modern|legacy] [--principals N] [--in-flight 32]

The server is a process of its own. Prints the resident size of the client at ten points; ends with 1 if it grew by more than
`--growth` megabytes after the first two tenths, in which caches and pools fill. One call in a hundred is cancelled.
"""

# ruff: noqa: E402
from __future__ import annotations

import sys

sys.path[:] = [each for each in sys.path if not each.endswith("bench")]  # where `http` is another benchmark

import argparse
import asyncio
import gc
import os
import socket
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from linkspan import Client, Server, Timeouts

PARTS = 10


def serve(port: int) -> None:
    server = Server("memory")

    @server.tool
    async def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    @server.tool
    async def wait() -> None:
        """Wait to be cancelled."""
        await asyncio.sleep(60)

    server.run("http", port=port)


def megabytes() -> float:
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


async def call(client: Client, numbers: Any, principals: int) -> None:
    """Call until the numbers are used up."""
    for number in numbers:
        who = {"auth": f"principal{number % principals}"} if principals else {}
        if number % 100 == 99:
            given_up = asyncio.ensure_future(client.call_tool("wait", **who))
            await asyncio.sleep(0)
            given_up.cancel()
            with suppress(asyncio.CancelledError):
                await given_up
        else:
            assert (await client.call_tool("add", {"a": number, "b": 1}, **who)).structured == {"result": number + 1}


async def measure(url: str, given: argparse.Namespace) -> list[float]:
    sizes: list[float] = []
    async with Client(url, era=given.era, timeouts=Timeouts(close=0.5)) as client:
        for part in range(PARTS):
            numbers = iter(range(given.calls // PARTS))
            await asyncio.gather(*(call(client, numbers, given.principals) for _ in range(given.in_flight)))
            sizes.append(megabytes())
            print(f"{(part + 1) * (given.calls // PARTS):>9} calls  {sizes[-1]:7.1f} MB", flush=True)
    return sizes


def wait_for(port: int, process: subprocess.Popen[bytes]) -> None:
    give_up = time.monotonic() + 60
    while process.poll() is None and time.monotonic() < give_up:
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), 0.2):
            return
        time.sleep(0.05)
    raise RuntimeError("the server does not start")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=200_000)
    parser.add_argument("--era", choices=["modern", "legacy"])
    parser.add_argument("--principals", type=int, default=0)
    parser.add_argument("--in-flight", type=int, default=32)
    parser.add_argument("--growth", type=float, default=8.0)
    parser.add_argument("--serve", type=int, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.serve is not None:
        serve(given.serve)
        return 0
    reserved = socket.socket()  # stays bound while the server listens: no other process gets its port
    reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    reserved.bind(("127.0.0.1", 0))
    port = reserved.getsockname()[1]
    process = subprocess.Popen([sys.executable, __file__, "--serve", str(port)])
    try:
        wait_for(port, process)
        sizes = asyncio.run(measure(f"http://127.0.0.1:{port}/mcp", given))
    finally:
        process.kill()
        process.wait()
        reserved.close()
    grown = max(sizes) - sizes[1]
    print(f"grown by {grown:.1f} MB after the first two tenths")
    return int(grown > given.growth)


if __name__ == "__main__":
    sys.exit(main())
