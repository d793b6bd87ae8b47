"""The official SDK over HTTP: `http_official.py PORT fastest` is stateless and answers in JSON, as its documents advise."""

import sys

import uvicorn
from mcp.server import MCPServer

server = MCPServer("bench", log_level="ERROR")


@server.tool()
async def add_async(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


fastest = sys.argv[2:] == ["fastest"]
app = server.streamable_http_app(json_response=fastest, stateless_http=fastest)
if __name__ == "__main__":
    uvicorn.run(app, port=int(sys.argv[1]), log_level="error", access_log=False, timeout_keep_alive=60)
