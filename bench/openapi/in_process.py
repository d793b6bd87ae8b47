"""What a call of an application in this process costs, beside httpx's ASGI transport: medians of one interleaved run.

python bench/openapi/in_process.py
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable
from typing import Any

import httpx
from fastapi import FastAPI

from linkspan import Client
from linkspan.openapi import ApiDocument, from_app
from linkspan.openapi.answers import read_reply
from linkspan.openapi.in_process import AppClient
from linkspan.openapi.requests import write_request

app = FastAPI()


@app.get("/add/{a}", operation_id="add")
async def add(a: int, b: int = 2) -> dict[str, int]:
    return {"sum": a + b}


class Caller:
    """Stands for the context of a call in memory."""

    address = None


async def main() -> None:
    operation = ApiDocument(app.openapi()).operation("add")
    ours = AppClient(app, "http://app", headers={}, forward=(), timeout=30, max_response=1_000_000)
    caller: Any = Caller()
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://app") as http, Client(from_app(app)) as client:

        async def by_us() -> object:
            request = write_request(operation, {"a": 1, "b": 3})
            reply, _ = await ours.send(request, caller)
            return read_reply(reply, request.method, request.path, "app:")

        async def by_httpx() -> object:
            return (await http.get("/add/1", params={"b": 3})).json()

        async def by_a_client() -> object:
            return await client.call_tool("add", {"a": 1, "b": 3})

        took: dict[str, list[float]] = {}
        for _ in range(40):
            for call in (by_us, by_httpx, by_a_client):
                took.setdefault(call.__name__, []).append(await seconds(call))
    base = statistics.median(took["by_httpx"])
    for name, each in took.items():
        print(f"{name:12} {statistics.median(each) * 1e6:7.0f} us  x{statistics.median(each) / base:.2f}")


async def seconds(call: Callable[[], Awaitable[object]], times: int = 50) -> float:
    began = time.perf_counter()
    for _ in range(times):
        await call()
    return (time.perf_counter() - began) / times


if __name__ == "__main__":
    asyncio.run(main())
