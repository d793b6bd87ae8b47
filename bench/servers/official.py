"""The official SDK as its users write it: MCPServer, one tool."""

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


if __name__ == "__main__":
    server.run()
