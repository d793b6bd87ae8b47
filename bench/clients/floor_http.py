"""The floor over HTTP: a bare protocol of asyncio around llhttp, with msgspec for the JSON. No retries, errors or deadlines."""

from __future__ import annotations

import asyncio
import sys
import time
from urllib.parse import urlsplit

import httptools
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


class Connection(asyncio.Protocol):
    """One keep-alive connection, with one request at a time."""

    def connection_made(self, transport: asyncio.Transport) -> None:
        self.transport = transport
        self.parser = httptools.HttpResponseParser(self)

    def send(self, request: bytes) -> asyncio.Future[bytes]:
        self.body = b""
        self.answer = asyncio.get_running_loop().create_future()
        self.transport.write(request)
        return self.answer

    def data_received(self, data: bytes) -> None:
        self.parser.feed_data(data)

    def on_body(self, data: bytes) -> None:
        self.body += data

    def on_message_complete(self) -> None:
        assert self.parser.get_status_code() == 200
        self.answer.set_result(self.body)


async def main() -> None:
    url = urlsplit(sys.argv[1])
    lines = [
        f"POST {url.path} HTTP/1.1",
        f"host: {url.netloc}",
        *(f"{name}: {value}" for name, value in HEADERS.items()),
    ]
    head = "\r\n".join([*lines, "content-length: "]).encode()
    encode, decode = msgspec.json.Encoder().encode, msgspec.json.Decoder(Response).decode
    loop, pool = asyncio.get_running_loop(), []

    async def calls(numbers: range) -> None:
        connection = pool.pop() if pool else (await loop.create_connection(Connection, url.hostname, url.port))[1]
        for number in numbers:
            params = {"name": "add_async", "arguments": {"a": number, "b": 2}, "_meta": META}
            body = encode({"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params})
            response = decode(await connection.send(b"%b%d\r\n\r\n%b" % (head, len(body), body)))
            assert response.result.structured_content["result"] == number + 2
        pool.append(connection)

    print("ready", flush=True)
    for many, window in orders():
        cpu, start = time.process_time(), time.monotonic()
        await asyncio.gather(*(calls(range(first, many, window)) for first in range(window)))
        print((time.process_time() - cpu) / many * 1e6, (time.monotonic() - start) / many * 1e6, flush=True)


asyncio.run(main())
