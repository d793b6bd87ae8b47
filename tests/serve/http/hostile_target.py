"""A server with small bounds, for hostile clients: `python hostile_target.py SECONDS`, which is how long it waits for them."""

from __future__ import annotations

import sys
import threading

from linkspan import Context, Server
from linkspan.core.http_checks import HttpPolicy

server = Server("target", "1")
floods: list[str] = []
begun: list[bool] = []
let_go = threading.Event()


@server.tool
def add(a: int, b: int) -> int:
    return a + b


@server.tool
def wait(ctx: Context) -> str:
    """Work until `go_on` is called, unless nobody wants it any more."""
    begun.append(True)
    ctx.progress(0)
    while not let_go.wait(0.005) and not ctx.cancelled:
        pass
    return "cancelled" if ctx.cancelled else "done"


@server.tool
def waits() -> int:
    """Return how many calls of `wait` have begun."""
    return len(begun)


@server.tool
def go_on() -> int:
    """Let the calls of `wait` end, and all that come later."""
    let_go.set()
    return len(begun)


@server.tool
def flood(ctx: Context) -> str:
    """Say things until nobody listens."""
    floods.append("begun")
    told = 0
    while not ctx.cancelled:
        told += 1
        ctx.progress(told, message="x" * 10_000)
    floods.append("ended")
    return "never heard"


@server.tool
def flooded() -> list[str]:
    return floods


if __name__ == "__main__":
    seconds = float(sys.argv[1])
    policy = HttpPolicy(body_timeout=seconds, send_timeout=seconds, max_unsent_bytes=500_000, max_body_bytes=1_000_000)
    server.run("http", port=0, drain=1.0, policy=policy, head_timeout=seconds)
