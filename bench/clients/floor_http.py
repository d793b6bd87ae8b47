"""The floor over HTTP: bare aiohttp, with msgspec for the JSON. No retries, no errors, no deadlines."""

from __future__ import annotations

import asyncio
import sys
import time

import aiohttp
import msgspec
from loop import orders

VERSION = "2026-07-28"
META = {
    "io.modelcontextprotocol/protocolVersion": VERSION,
    "io.modelcontextprotocol/clientCapabilities": {},
    "io.modelcontextprotocol/clientInfo": {"name": "bench", "version": "1"},
}
HEADERS = {
    "accept": "application/json, text/event-stream",
    "content-type": "application/json",
    "mcp-protocol-version": VERSION,
    "mcp-method": "tools/call",
    "mcp-name": "add_async",
}


class Content(msgspec.Struct):
    text: str


class Result(msgspec.Struct, rename="camel"):
    content: list[Content]
    structured_content: dict[str, int]


class Response(msgspec.Struct):
    id: int
    result: Result


async def main() -> None:
    url = sys.argv[1]
    encode, decode = msgspec.json.Encoder().encode, msgspec.json.Decoder(Response).decode
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:

        async def calls(numbers: list[int]) -> None:
            for number in numbers:
                params = {"name": "add_async", "arguments": {"a": number, "b": 2}, "_meta": META}
                body = encode({"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params})
                async with session.post(url, data=body, headers=HEADERS) as reply:
                    response = decode(await reply.read())
                assert response.result.structured_content["result"] == number + 2

        print("ready", flush=True)
        for many, window in orders():
            cpu, start = time.process_time(), time.monotonic()
            await asyncio.gather(*(calls(list(range(first, many, window))) for first in range(window)))
            print((time.process_time() - cpu) / many * 1e6, (time.monotonic() - start) / many * 1e6, flush=True)


asyncio.run(main())
