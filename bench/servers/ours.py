"""Linkspan: `ours.py` over stdio, `ours.py http PORT` by `run("http")`, `ours.py asgi PORT` as an app of plain uvicorn."""

import sys

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
async def progress(a: int, b: int, ctx: Context) -> int:
    """Add two numbers, with one notice of progress."""
    ctx.progress(1, total=2)
    return a + b


@server.tool(inline=True)
def progress_inline(a: int, b: int, ctx: Context) -> int:
    """Add two numbers, with one notice of progress."""
    ctx.progress(1, total=2)
    return a + b


@server.tool(structured=False)
async def echo(text: str) -> str:
    """Return a text."""
    return text


@server.tool
async def echo_structured(text: str) -> str:
    """Return a text, also as structured content."""
    return text


@server.tool
async def touch() -> bool:
    """Notify everybody that the list of tools has changed."""
    return bool(server.notify_tools_list_changed())


if __name__ == "__main__":
    if len(sys.argv) < 2:
        server.run()
    options = {"path": "/mcp", "max_sessions": 5000}
    if sys.argv[1] == "http":
        server.run("http", port=int(sys.argv[2]), **options)
    import uvicorn

    settings = {"log_level": "error", "access_log": False, "timeout_keep_alive": 60}
    uvicorn.run(server.asgi(**options), port=int(sys.argv[2]), **settings)
