"""A server for thousands of connections, in a process of its own: it answers every call but those of the tool `slow`.

It prints its port first. The standard library only, and little of it, so that what is measured is the client.
"""

from __future__ import annotations

import asyncio
import json

DISCOVERED = {"resultType": "complete", "supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}, "_meta": {}}
HI = {"resultType": "complete", "content": [{"type": "text", "text": "hi"}]}


class Quiet(asyncio.Protocol):
    """One connection."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.WriteTransport)
        self.transport = transport
        self.data = b""

    def data_received(self, data: bytes) -> None:
        self.data += data
        while True:
            head, found, rest = self.data.partition(b"\r\n\r\n")
            length = int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0] or 0)
            if not found or len(rest) < length:
                return
            self.data = rest[length:]
            self.answer(json.loads(rest[:length]))

    def answer(self, message: dict) -> None:
        if message["method"] == "tools/call" and message["params"]["name"] == "slow":
            return
        result = DISCOVERED if message["method"] == "server/discover" else HI
        body = json.dumps({"jsonrpc": "2.0", "id": message.get("id"), "result": result}).encode()
        head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body)
        self.transport.write(head + body)


async def main() -> None:
    server = await asyncio.get_running_loop().create_server(Quiet, "127.0.0.1", 0, backlog=4096)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
