"""Linkspan over HTTP with uvicorn: `http_ours.py PORT` as an ASGI app, `http_ours.py PORT run` with `run("http")`.

`touch` announces to every client that the list of tools has changed.
"""

import sys

import uvicorn

from linkspan import Context, Server

server = Server("bench")


@server.tool
async def add_async(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@server.tool
def add_def(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@server.tool(inline=True)
def add_inline(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@server.tool
async def add_told(a: int, b: int, ctx: Context) -> int:
    """Add two numbers, after a progress notification."""
    ctx.progress(1, total=1)
    return a + b


@server.tool
async def touch() -> int:
    """Tell everybody that the list of tools has changed."""
    return server.notify_tools_list_changed()


app = server.asgi(path="/mcp", max_sessions=5000)
if __name__ == "__main__":
    if sys.argv[2:] == ["run"]:
        server.run("http", port=int(sys.argv[1]), max_sessions=5000)
    uvicorn.run(app, port=int(sys.argv[1]), log_level="error", access_log=False, timeout_keep_alive=60)
