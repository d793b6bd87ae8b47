"""A server with small bounds, for hostile clients: `python hostile_target.py`."""

from __future__ import annotations

import time

from linkspan import Context, Server
from linkspan.core.http_checks import HttpPolicy

server = Server("target", "1")
floods: list[str] = []
begun: list[float] = []


@server.tool
def add(a: int, b: int) -> int:
    return a + b


@server.tool
def wait(seconds: float, ctx: Context) -> str:
    """Work for a while, unless nobody wants it any more."""
    begun.append(seconds)
    ctx.progress(0)
    until = time.monotonic() + seconds
    while time.monotonic() < until and not ctx.cancelled:
        time.sleep(0.005)
    return "cancelled" if ctx.cancelled else "done"


@server.tool
def waits() -> int:
    """Return how many calls of `wait` have begun."""
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
    policy = HttpPolicy(body_timeout=1.0, send_timeout=0.5, max_unsent_bytes=500_000, max_body_bytes=1_000_000)
    server.run("http", port=0, drain=1.0, policy=policy, head_timeout=2.0)
