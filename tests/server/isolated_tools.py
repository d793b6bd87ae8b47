"""Tools that run in processes of their own, as an author writes them in a file."""

from __future__ import annotations

import ctypes
import os
import sys
import time
from dataclasses import dataclass
from typing import Annotated

from linkspan import Depends, Server, ToolError

server = Server("workshop")


@dataclass
class Point:
    x: int
    y: int


@server.tool(isolated=True)
def add(a: int, b: int = 1) -> int:
    """Add two numbers."""
    return a + b


@server.tool(isolated=True)
async def swap(point: Point) -> Point:
    return Point(point.y, point.x)


@server.tool(isolated=True)
def process() -> int:
    return os.getpid()


@server.tool(isolated=True)
def prints() -> str:
    print("printed by the tool")
    os.write(1, b"written by the tool\n")
    return repr(sys.stdin.read())


@server.tool(isolated=True)
def crash() -> int:
    return ctypes.string_at(0)[0]


@server.tool(isolated=True, timeout=1)
def spin() -> int:
    return sum(range(10**13))


@server.tool(isolated=True, memory=1 << 30)
def eat() -> int:
    return len(bytearray(1 << 32))


@server.tool(isolated=True)
def refuse() -> None:
    raise ToolError("not like this")


@server.tool(isolated=True)
def fail() -> None:
    raise ValueError("secret")


@server.tool(isolated=True)
def leave() -> None:
    os._exit(3)


@server.tool(isolated=True, processes=2)
def wait(seconds: float) -> int:
    time.sleep(seconds)
    return os.getpid()


def expensive() -> list[int]:
    return [os.getpid()]


@server.tool(isolated=True)
def counts(calls: Annotated[list[int], Depends(expensive)]) -> int:
    calls.append(0)
    return len(calls)


if __name__ == "__main__":
    server.run()
