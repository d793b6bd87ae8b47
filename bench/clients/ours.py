"""Linkspan's clients: `ours.py async COMMAND...` or `ours.py sync COMMAND...`; the command may be a URL."""

from __future__ import annotations

import asyncio
import sys
import threading
import time

from loop import orders, serve

from linkspan import Client, SyncClient


async def use_async(target: list[str] | str, **options: object) -> None:
    async with Client(target, **options) as client:

        async def calls(numbers: list[int]) -> None:
            for number in numbers:
                result = await client.call_tool("add_async", {"a": number, "b": 2})
                assert result.structured["result"] == number + 2

        print("ready", flush=True)
        for many, window in orders():
            cpu, start = time.process_time(), time.monotonic()
            await asyncio.gather(*(calls(list(range(first, many, window))) for first in range(window)))
            print((time.process_time() - cpu) / many * 1e6, (time.monotonic() - start) / many * 1e6, flush=True)


def use_sync(target: list[str] | str, **options: object) -> None:
    with SyncClient(target, **options) as client:

        def calls(numbers: list[int]) -> None:
            for number in numbers:
                result = client.call_tool("add_async", {"a": number, "b": 2})
                assert result.structured["result"] == number + 2

        def run(many: int, window: int) -> None:
            if window == 1:
                calls(list(range(many)))
                return
            threads = [
                threading.Thread(target=calls, args=(list(range(each, many, window)),)) for each in range(window)
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()

        serve(run)


def main() -> None:
    face, *command = sys.argv[1:]
    target = command[0] if command[0].startswith("http") else command
    options = {"era": "legacy"} if face.endswith("-handshake") else {}
    if face.startswith("async"):
        asyncio.run(use_async(target, **options))
    else:
        use_sync(target, **options)


main()
