"""A server that several machines serve as one: its state is in the store that STORE names, and MACHINE says where it runs."""

from __future__ import annotations

import os
import sys
import time

from linkspan import Context, Server, Task

server = Server("shared", store=os.environ["STORE"])
MACHINE = os.environ["MACHINE"]


@server.tool(annotations={"read_only_hint": True})
def where() -> str:
    """Return the machine that serves this call."""
    return MACHINE


@server.tool
def greet(ctx: Context) -> str:
    """Ask for a name in the middle of the call."""
    return f"hello {ctx.ask('name', str, 'Your name?')}"


@server.tool
def change() -> str:
    """Notify all clients that a list has changed."""
    server.notify_tools_list_changed()
    return MACHINE


@server.tool(task=Task(ttl=600.0, restart="always", attempts=10), annotations={"read_only_hint": True})
def count(to: int, seconds: float, ctx: Context) -> str:
    """Count slowly; each beginning is noted in a file that outlives the process."""
    with open(os.environ["BEGUN"], "a") as begun:
        begun.write(f"{MACHINE} {to}\n")
    for number in range(to):
        if ctx.cancelled:
            break
        time.sleep(seconds / to)
        ctx.progress(number + 1, total=to)
    return f"{to} by {MACHINE}"


if __name__ == "__main__":
    server.run("http", host=sys.argv[1], port=int(sys.argv[2]))
