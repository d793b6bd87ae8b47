"""A server over WebSockets: `python server.py`, then `python client.py URL` with the URL that it prints.

A connection of the library `websockets` is a channel as it is: it has `send`, `close`, and gives messages when iterated over.
"""

from __future__ import annotations

import asyncio
import sys

from websockets.asyncio.server import ServerConnection, serve

from linkspan import Context, Server

server = Server("harbour")


@server.tool
async def depth(berth: int, ctx: Context) -> float:
    """Return the depth of the water at a berth, in metres."""
    await ctx.progress(1, total=1, message=f"sounding for {ctx.principal}")
    return 4.5 + berth


async def accept(socket: ServerConnection) -> None:
    """Serve one client. What identifies it is up to this function; here it is a query, `?name=...`."""
    assert socket.request is not None
    name = socket.request.path.partition("?name=")[2] or None
    await server.attach(socket, principal=name, address=socket.remote_address[0])


async def main(port: int) -> None:
    """Listen on this machine only."""
    async with serve(accept, "127.0.0.1", port, subprotocols=["mcp"]) as listening:
        host, port = next(iter(listening.sockets)).getsockname()[:2]
        print(f"ws://{host}:{port}", flush=True)
        await listening.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 0))
