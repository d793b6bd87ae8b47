"""A client over a WebSocket: `python client.py URL`. A function that opens a channel is all that a client needs.

It is called again for each new connection, so the client survives a restart of the server like any other.
"""

from __future__ import annotations

import asyncio
import sys

from websockets.asyncio.client import ClientConnection, connect
from websockets.sync.client import connect as connect_here

from linkspan import Client, SyncClient


async def ask(url: str) -> str:
    """Ask on an event loop."""

    async def open_channel() -> ClientConnection:
        return await connect(f"{url}?name=alice", subprotocols=["mcp"])

    async with Client(open_channel, name="harbour") as client:
        result = await client.call_tool("depth", {"berth": 2}, on_progress=lambda report: print(report.message))
        return result.text


def ask_here(url: str) -> str:
    """Do the same in threads."""
    with SyncClient(lambda: connect_here(url, subprotocols=["mcp"]), name="harbour") as client:
        return client.call_tool("depth", {"berth": 3}).text


if __name__ == "__main__":
    print(asyncio.run(ask(sys.argv[1])))
    print(ask_here(sys.argv[1]))
