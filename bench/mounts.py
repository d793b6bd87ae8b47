"""What mounts and edits add to a call: CPU time per call by `handle_json`, as ratios to a direct call, in interleaved rounds.

    python bench/mounts.py [ROUNDS] [CALLS]

`plain` needs nothing but its arguments; `context` has a `Context` parameter, so that it takes the ordinary way; `middleware` has
one around it, in its own server. FastMCP's own ratios, of a call in memory, come with it where it is installed.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

from linkspan import Call, Context, Edit, Server

META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
}


def look(call: Call) -> Iterator[None]:
    """A middleware."""
    return (yield)


def innermost(*, middleware: bool = False) -> Server:
    """Return a server with both tools."""
    server = Server("inner")

    @server.tool
    def plain(a: int, b: int) -> int:
        return a + b

    @server.tool
    def context(a: int, b: int, ctx: Context) -> int:
        return a + b

    if middleware:
        server.middleware(look)
    return server


def mounted(server: Server, times: int) -> Server:
    """Return a server around so many others."""
    for _ in range(times):
        outer = Server("outer")
        outer.mount(server, "m")
        server = outer
    return server


def edited() -> Server:
    """Return a server whose tool has an argument of another name."""
    server = innermost()
    server.edit("plain", Edit(rename={"b": "c"}))
    return server


def call(server: Server, tool: str, b: str = "b") -> Callable[[], object]:
    """Return what calls a tool once."""
    params = {"name": tool, "arguments": {"a": 1, b: 2}, "_meta": META}
    message = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})
    answer = json.loads(server.handle_json(message) or "")
    assert answer["result"]["structuredContent"] == {"result": 3}, answer
    return lambda: server.handle_json(message)


def variants() -> dict[str, list[Callable[[], object]]]:
    """Return the calls of each row: direct, through one mount, through three."""
    rows = {
        "plain": [call(mounted(innermost(), n), "m_" * n + "plain") for n in (0, 1, 3)],
        "context": [call(mounted(innermost(), n), "m_" * n + "context") for n in (0, 1, 3)],
        "middleware": [call(mounted(innermost(middleware=True), n), "m_" * n + "plain") for n in (0, 1, 3)],
    }
    rows["edited"] = [rows["plain"][0], call(edited(), "plain", "c")]
    return rows


def fastmcp() -> dict[str, list[Callable[[], object]]]:
    """Return the same of FastMCP, if it is there."""
    try:
        from fastmcp import Client, FastMCP
    except ImportError:
        return {}
    calls: list[Callable[[], object]] = []
    runner = asyncio.Runner()
    for times in (0, 1, 3):
        server: Any = FastMCP("inner")

        @server.tool
        def plain(a: int, b: int) -> int:
            return a + b

        for _ in range(times):
            outer = FastMCP("outer")
            outer.mount(server, "m")
            server = outer
        client = runner.run(Client(server).__aenter__())
        name = "m_" * times + "plain"
        calls.append(lambda client=client, name=name: runner.run(client.call_tool(name, {"a": 1, "b": 2})))
    return {"FastMCP": calls}


def main() -> None:
    """Print the table."""
    rounds, count = (int(each) for each in (*sys.argv[1:], *("11", "2000")[len(sys.argv) - 1 :]))
    rows = variants() | fastmcp()
    spent: dict[str, list[list[float]]] = {name: [[] for _ in calls] for name, calls in rows.items()}
    for _ in range(rounds):
        for name, calls in rows.items():
            times = count if name != "FastMCP" else max(1, count // 100)
            for place, run in enumerate(calls):
                began = time.process_time()
                for _ in range(times):
                    run()
                spent[name][place].append((time.process_time() - began) / times * 1e6)
    print(f"{'':12} {'direct, us':>10} {'1 mount':>8} {'3 mounts':>8}")
    for name, found in spent.items():
        direct, *others = (statistics.median(each) for each in found)
        print(f"{name:12} {direct:10.1f} " + " ".join(f"{each / direct:8.2f}" for each in others))


if __name__ == "__main__":
    main()
