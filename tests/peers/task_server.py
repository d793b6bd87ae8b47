"""Tools that run as tasks, for other people's clients. Run it as a script, and it serves over stdio."""

from __future__ import annotations

import threading
from typing import Annotated

from linkspan import Ask, Context, RemoteProtocolError, Server, Task

__all__ = ["make_server"]

SOON = Task(poll=0.05)


def make_server(going: threading.Event) -> Server:
    """Return the server; its endless tool ends when it is cancelled, or when `going` is set."""
    server = Server("peer")

    @server.tool(task=SOON)
    def slow(ctx: Context) -> int:
        ctx.progress(1, total=2, message="half")
        return 12

    @server.tool(task=SOON)
    def greet(ctx: Context) -> str:
        return f"hello {ctx.ask('name', str, 'Your name?')}"

    @server.tool(task=SOON)
    def invite(name: Annotated[str, Ask("Your name?")]) -> str:
        return f"come, {name}"

    @server.tool(task=SOON)
    def broken() -> str:
        raise ValueError("a secret")

    @server.tool(task=SOON)
    def refused() -> str:
        raise RemoteProtocolError(-50, "no ferries today")

    @server.tool(task=Task(poll=0.05, required=True))
    def required() -> str:
        return "only as a task"

    @server.tool(task=Task(after=20.0))
    def quick() -> str:
        return "at once"

    @server.tool(task=SOON)
    def endless(ctx: Context) -> str:
        ctx.progress(1, message="under way")
        while not going.wait(0.01):
            ctx.raise_if_cancelled()
        return "over"

    return server


if __name__ == "__main__":
    make_server(threading.Event()).run()
