"""The client between a host and one server: it starts the server, shakes hands, and speaks with it until it is closed.

Run it to see the tools of the dice server, and one call: `python examples/from_scratch/client.py`.
"""

import asyncio
import sys
from pathlib import Path

from linkspan import Client

SERVER = [sys.executable, str(Path(__file__).parent / "server.py")]


async def main() -> None:
    async with Client(SERVER) as client:  # initialization; at the end of the block, shutdown
        for tool in await client.list_tools():
            print(f"{tool.name}: {tool.description} {tool.input_schema['properties']}")
        result = await client.call_tool("dice", {"sides": 20})
        print(f"A die with 20 sides: {result.text}")


if __name__ == "__main__":
    asyncio.run(main())
