"""The floor: read, decode, add, encode and write with msgspec, and nothing else.

`floor.py asyncio` imports asyncio first; `floor.py batched` writes the answers to one read together; `floor.py tasks` gives
each request a task of its own on an event loop.
"""

from __future__ import annotations

import os
import sys

import msgspec

if "asyncio" in sys.argv:
    import asyncio  # noqa: F401


class Arguments(msgspec.Struct):
    a: int
    b: int


class Params(msgspec.Struct):
    name: str
    arguments: Arguments


class Request(msgspec.Struct):
    id: int | str
    method: str
    params: Params


class Text(msgspec.Struct):
    text: str
    type: str = "text"


class Result(msgspec.Struct, rename="camel"):
    content: list[Text]
    structured_content: dict[str, int]
    is_error: bool = False


class Response(msgspec.Struct):
    id: int | str
    result: Result
    jsonrpc: str = "2.0"


def answer(line: bytes) -> bytes:
    request = decode(line)
    value = request.params.arguments.a + request.params.arguments.b
    return encode(Response(request.id, Result([Text(str(value))], {"result": value})))


def serve() -> None:
    for line in sys.stdin.buffer:
        os.write(1, answer(line) + b"\n")


def serve_batched() -> None:
    rest = b""
    while data := os.read(0, 65536):
        *lines, rest = (rest + data).split(b"\n")
        if lines:
            os.write(1, b"\n".join(map(answer, lines)) + b"\n")


def serve_tasks() -> None:
    import asyncio

    loop, tasks = asyncio.new_event_loop(), set()

    async def work(line: bytes) -> None:
        os.write(1, answer(line) + b"\n")

    rest = b""

    def read() -> None:
        nonlocal rest
        data = os.read(0, 65536)
        if not data:
            loop.stop()
        *lines, rest = (rest + data).split(b"\n")
        for line in lines:
            task = loop.create_task(work(line))
            tasks.add(task)
            task.add_done_callback(tasks.discard)

    loop.add_reader(0, read)
    loop.run_forever()


decode, encode = msgspec.json.Decoder(Request).decode, msgspec.json.Encoder().encode
{"batched": serve_batched, "tasks": serve_tasks}.get(sys.argv[-1], serve)()
