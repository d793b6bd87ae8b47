"""Linkspan: the same sum as `def`, as `async def` and inline."""

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


@server.tool(inline=True)
def add_inline(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


if __name__ == "__main__":
    server.run()
