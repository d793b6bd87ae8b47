"""The floor: a bare msgspec loop over the pipes of a server, with so many requests in flight. No events, no errors."""

from __future__ import annotations

import os
import subprocess
import sys

import msgspec
from loop import serve

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


def main() -> None:
    server = subprocess.Popen(sys.argv[1:], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
    writes, reads = server.stdin.fileno(), server.stdout.fileno()
    encode, decode = msgspec.json.Encoder().encode, msgspec.json.Decoder(Response).decode

    def request(number: int) -> bytes:
        params = {"name": "add_async", "arguments": {"a": number, "b": 2}, "_meta": META}
        return encode({"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}) + b"\n"

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
    server.stdin.close()
    server.wait()


main()
