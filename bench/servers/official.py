"""The official SDK as its users write it: over stdio, or over HTTP at a PORT, stateless and in JSON, as its documents advise."""

import sys

from mcp.server import MCPServer

server = MCPServer("bench", log_level="ERROR")


@server.tool()
async def add_async(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@server.tool()
def add_def(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@server.tool(structured_output=False)
async def echo(text: str) -> str:
    """Return a text."""
    return text


@server.tool()
async def echo_structured(text: str) -> str:
    """Return a text, also as structured content."""
    return text


if __name__ == "__main__":
    if len(sys.argv) < 2:
        server.run()
        sys.exit()
    import uvicorn

    stateless = "sessions" not in sys.argv
    app = server.streamable_http_app(json_response=stateless, stateless_http=stateless)
    uvicorn.run(app, port=int(sys.argv[1]), log_level="error", access_log=False, timeout_keep_alive=60)
