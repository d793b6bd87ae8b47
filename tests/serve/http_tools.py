"""A server over HTTP, as its author would start it: `python http_tools.py '{"port": 0, "workers": 2}'`."""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Annotated

from linkspan import Ask, Context, Server

server = Server("tools", version="1", capabilities={"resources": {"subscribe": True}})


@server.tool(annotations={"readOnlyHint": True})
def pid() -> int:
    """Tell which process this is."""
    return os.getpid()


@server.tool
def book(seats: Annotated[int, Ask("How many seats?")]) -> str:
    """Book seats, and tell in which process."""
    return f"{seats} seats"


@server.tool
def sleep(seconds: float, ctx: Context) -> str:
    """Sleep, after telling so."""
    ctx.progress(0, total=1)
    time.sleep(seconds)
    return "awake"


@server.resource("seat://{number}")
def seat(number: int) -> str:
    """Return a seat."""
    return f"seat {number}"


@server.tool
def update(uri: str) -> int:
    """Announce a change of a resource, and tell in which process."""
    server.notify_resource_updated(uri)
    return os.getpid()


@server.tool
def die() -> str:
    """End this process at once."""
    os._exit(7)


if __name__ == "__main__":
    server.run("http", **json.loads(sys.argv[1]))
