"""FastMCP as its users write it: over stdio, or over HTTP at a PORT, stateless and in JSON."""

import sys

from fastmcp import FastMCP

server = FastMCP("bench")


@server.tool
async def add_async(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


if __name__ == "__main__":
    if len(sys.argv) < 2:
        server.run(show_banner=False)
        sys.exit()
    import uvicorn

    app = server.http_app(path="/mcp", stateless_http=True, json_response=True)
    uvicorn.run(app, port=int(sys.argv[1]), log_level="error", access_log=False, timeout_keep_alive=60)
