"""Servers over HTTP. CPU is the server's own; the client is the same raw socket loop for everybody and does not count.

Each keep-alive connection has one call at a time.
"""

from __future__ import annotations

import json
import re
import selectors
import socket
import subprocess
import time
from functools import partial

from runs import INFO, LEGACY, META, MODERN, Process, Row, rounds

BOTH = "application/json, text/event-stream"
LENGTH = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)
INITIALIZE = {
    "jsonrpc": "2.0",
    "id": "init",
    "method": "initialize",
    "params": {"protocolVersion": LEGACY, "capabilities": {}, "clientInfo": INFO},
}


def http(body: dict, headers: dict[str, str]) -> bytes:
    data = json.dumps(body, separators=(",", ":")).encode()
    lines = ["POST /mcp HTTP/1.1", "host: 127.0.0.1:80", "content-type: application/json"]
    lines += [f"{name}: {value}" for name, value in headers.items()] + [f"content-length: {len(data)}", "", ""]
    return "\r\n".join(lines).encode() + data


class Connection:
    """A keep-alive connection that knows when an answer is complete."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.data = bytearray()
        self.needed: int | None = None

    def send(self, request: bytes) -> None:
        self.data, self.needed = bytearray(), None
        self.socket.sendall(request)

    def receive(self) -> bool:
        """Read what is there; return whether the answer is complete."""
        part = self.socket.recv(1 << 20)
        if not part:
            raise ConnectionError(f"the server hung up after {bytes(self.data[:300])!r}")
        self.data += part
        if self.needed is None and (end := self.data.find(b"\r\n\r\n")) >= 0:
            found = LENGTH.search(self.data, 0, end + 2)
            self.needed = end + 4 + int(found[1]) if found else -1
        if self.needed is None or self.needed < 0:
            return self.needed is not None and self.data.endswith(b"0\r\n\r\n")
        return len(self.data) >= self.needed

    def ask(self, request: bytes) -> tuple[bytes, bytes]:
        self.send(request)
        while not self.receive():
            pass
        head, _, body = bytes(self.data).partition(b"\r\n\r\n")
        assert head.startswith((b"HTTP/1.1 200", b"HTTP/1.1 202")), bytes(self.data[:1000])
        return head, body


class Server(Process):
    """A running server, and how it is talked to."""

    def __init__(self, row: Row) -> None:
        with socket.create_server(("127.0.0.1", 0)) as probe:
            self.port = probe.getsockname()[1]
        command = [each.replace("PORT", str(self.port)) for each in row.command]
        super().__init__(row, command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        self.sent = 0
        self.headers = {"accept": BOTH}
        if row.modern:
            self.headers |= {"mcp-protocol-version": MODERN, "mcp-method": "tools/call", "mcp-name": row.tool}
            return
        head, _ = self.connect().ask(http(INITIALIZE, self.headers))
        if found := re.search(rb"mcp-session-id: *(\S+)", head, re.IGNORECASE):
            self.headers["mcp-session-id"] = found[1].decode()
        self.headers["mcp-protocol-version"] = LEGACY
        self.connect().ask(http({"jsonrpc": "2.0", "method": "notifications/initialized"}, self.headers))

    def connect(self) -> Connection:
        for _ in range(600):
            try:
                return Connection(self.port)
            except ConnectionRefusedError:
                time.sleep(0.05)
        raise TimeoutError(f"{self.row.name} does not listen")

    def request(self, **arguments: object) -> bytes:
        self.sent += 1
        meta = {"progressToken": self.sent} if self.row.tool.startswith("progress") else {}
        params = {"name": self.row.tool, "arguments": arguments or {"a": self.sent, "b": 2}}
        if self.row.modern or meta:
            params["_meta"] = {**(META if self.row.modern else {}), **meta}
        return http({"jsonrpc": "2.0", "id": self.sent, "method": "tools/call", "params": params}, self.headers)

    def check(self) -> None:
        head, body = self.connect().ask(self.request())
        assert str(self.sent + 2).encode() in body, body
        assert (b"event-stream" in head) == (self.row.tool.startswith("progress") or "SSE" in self.row.name), (
            self.row,
            head,
        )

    def load(self, calls: int, connections: int) -> None:
        """Make calls over so many connections at once, and note the CPU and wall microseconds of each."""
        pool = [self.connect() for _ in range(connections)]
        requests = [self.request() for _ in range(calls)]
        with selectors.DefaultSelector() as selector:
            for each in pool:
                selector.register(each.socket, selectors.EVENT_READ, each)
            cpu, start = self.cpu(), time.monotonic()
            for each in pool:
                each.send(requests.pop())
            left = calls
            while left:
                for key, _ in selector.select():
                    if key.data.receive():
                        left -= 1
                        if requests:
                            key.data.send(requests.pop())
            self.row.note(f"cpu {connections}", (self.cpu() - cpu) / calls * 1e6)
            self.row.note(f"wall {connections}", (time.monotonic() - start) / calls * 1e6)
        for each in pool:
            each.socket.close()


def measure_calls(rows: list[Row], calls: int, count: int) -> None:
    """Note `cpu 1`, `cpu 16` and `cpu 64`, by the number of connections, and the wall times."""
    servers = [Server(row) for row in rows]
    try:
        for server in servers:
            server.check()
            server.load(200, 16)
            server.row.figures.clear()
        turns = [
            partial(server.load, max(connections, int(calls * server.row.weight)), connections)
            for server in servers
            for connections in (1, 16, 64)
        ]
        rounds(count, turns)
    finally:
        for server in servers:
            server.close()


def measure_large(rows: list[Row], size: int, calls: int, count: int) -> None:
    """Note the `cpu` milliseconds that a server takes to return a text of that size, and its `peak` of memory."""
    servers = [Server(row) for row in rows]
    text = ('{"a line": "of a file"}\n' + "x" * 76)[:100] * (size // 100)

    def echo(server: Server) -> None:
        connection = server.connect()
        cpu = server.cpu()
        for _ in range(calls):
            _, body = connection.ask(server.request(text=text))
            assert len(body) > size
        server.row.note("cpu", (server.cpu() - cpu) / calls * 1e3)
        server.row.note("peak", server.memory("VmHWM"))
        connection.socket.close()

    try:
        for server in servers:
            echo(server)
            server.row.figures.clear()
        rounds(count, [partial(echo, server) for server in servers])
    finally:
        for server in servers:
            server.close()


def measure_idle(row: Row, sessions: int, streams: int) -> None:
    """Note the KiB of an idle `session` and `stream`, and the milliseconds of a `change` until all streams have it."""
    server = Server(row)
    connection = server.connect()
    connection.ask(server.request())
    before = server.memory()
    for _ in range(sessions):
        connection.ask(http(INITIALIZE, {"accept": BOTH}))
    held = server.memory()
    row.note("session", (held - before) / sessions * 1024)
    wanted = {"notifications": {"toolsListChanged": True}, "_meta": META}
    listen = {"jsonrpc": "2.0", "id": 1, "method": "subscriptions/listen", "params": wanted}
    headers = {"accept": BOTH, "mcp-protocol-version": MODERN, "mcp-method": "subscriptions/listen"}
    listeners = [server.connect() for _ in range(streams)]
    for each in listeners:
        each.send(http(listen, headers))
        while b"acknowledged" not in each.data:
            each.receive()
    row.note("stream", (server.memory() - held) / streams * 1024)
    params = {"name": "touch", "arguments": {}, "_meta": META}
    touch = {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": params}
    for _ in range(5):
        for each in listeners:
            each.data = bytearray()
        start = time.monotonic()
        connection.ask(http(touch, {**headers, "mcp-method": "tools/call", "mcp-name": "touch"}))
        for each in listeners:
            while b"list_changed" not in each.data:
                each.receive()
        row.note("change", (time.monotonic() - start) * 1e3)
    server.close()
