"""The official client, in its modern mode."""

from __future__ import annotations

import asyncio
import sys
import time

from loop import orders
from mcp import Client
from mcp.client.stdio import StdioServerParameters, stdio_client


async def main() -> None:
    command, *arguments = sys.argv[1:]
    parameters = StdioServerParameters(command=command, args=arguments)
    target = command if command.startswith("http") else stdio_client(parameters)
    async with Client(target) as client:

        async def calls(numbers: list[int]) -> None:
            for number in numbers:
                result = await client.call_tool("add_async", {"a": number, "b": 2})
                assert result.structured_content["result"] == number + 2

        print("ready", flush=True)
        for many, window in orders():
            cpu, start = time.process_time(), time.monotonic()
            await asyncio.gather(*(calls(list(range(first, many, window))) for first in range(window)))
            print((time.process_time() - cpu) / many * 1e6, (time.monotonic() - start) / many * 1e6, flush=True)


asyncio.run(main())
