"""Linkspan over HTTP with uvicorn: the endpoint at PORT; `touch` tells everybody that the list of tools has changed."""

import sys

import uvicorn

from linkspan import Server

server = Server("bench")


@server.tool
async def add_async(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@server.tool
def add_def(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@server.tool
async def touch() -> int:
    """Tell everybody that the list of tools has changed."""
    return server.notify_tools_list_changed()


app = server.asgi(path="/mcp", max_sessions=5000)
if __name__ == "__main__":
    uvicorn.run(app, port=int(sys.argv[1]), log_level="error", access_log=False, timeout_keep_alive=60)
