"""The floors: a bare msgspec loop over the pipes of a server (`floor.py loop COMMAND`), or the same on a loop (`asyncio`).

With so many requests in flight; no events, no errors.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time

import msgspec
from loop import orders, serve

META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
    "io.modelcontextprotocol/clientInfo": {"name": "bench", "version": "1"},
}


class Content(msgspec.Struct):
    text: str
    type: str = "text"


class Result(msgspec.Struct, rename="camel"):
    content: list[Content]
    structured_content: dict[str, int]


class Response(msgspec.Struct):
    id: int
    result: Result


encode, decode = msgspec.json.Encoder().encode, msgspec.json.Decoder(Response).decode


def request(number: int) -> bytes:
    params = {"name": "add_async", "arguments": {"a": number, "b": 2}, "_meta": META}
    return encode({"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}) + b"\n"


def loop(writes: int, reads: int) -> None:
    def run(calls: int, window: int) -> None:
        sent = answered = 0
        rest = b""
        while answered < calls:
            missing = min(window - (sent - answered), calls - sent)
            if missing:
                os.write(writes, b"".join(request(number) for number in range(sent, sent + missing)))
                sent += missing
            *lines, rest = (rest + os.read(reads, 65536)).split(b"\n")
            for line in lines:
                decode(line)
            answered += len(lines)

    serve(run)


async def on_a_loop(writes: int, reads: int) -> None:
    waiting: dict[int, asyncio.Future[Result]] = {}
    loop, rest = asyncio.get_running_loop(), b""

    def read() -> None:
        nonlocal rest
        *lines, rest = (rest + os.read(reads, 65536)).split(b"\n")
        for line in lines:
            response = decode(line)
            waiting.pop(response.id).set_result(response.result)

    async def calls(numbers: range) -> None:
        for number in numbers:
            future = waiting[number] = loop.create_future()
            os.write(writes, request(number))
            assert (await future).structured_content["result"] == number + 2

    loop.add_reader(reads, read)
    print("ready", flush=True)
    for many, window in orders():
        cpu, start = time.process_time(), time.monotonic()
        await asyncio.gather(*(calls(range(first, many, window)) for first in range(window)))
        print((time.process_time() - cpu) / many * 1e6, (time.monotonic() - start) / many * 1e6, flush=True)


kind, *command = sys.argv[1:]
server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
ends = server.stdin.fileno(), server.stdout.fileno()
loop(*ends) if kind == "loop" else asyncio.run(on_a_loop(*ends))
server.stdin.close()
server.wait()
