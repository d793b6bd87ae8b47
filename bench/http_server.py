"""Measure HTTP servers against each other, in one interleaved run on one machine. See README.md.

CPU is the server process's own. The client is the same raw socket loop for everybody: keep-alive connections, each with one
call at a time.
"""

from __future__ import annotations

import argparse
import json
import re
import selectors
import socket
import subprocess
import sys
import time
from pathlib import Path

from stdio import META, Row, show

HERE = Path(__file__).parent
SERVERS = HERE / "servers"
BOTH = "application/json, text/event-stream"
LEGACY = "2025-11-25"
MODERN = META["io.modelcontextprotocol/protocolVersion"]
LENGTH = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)


def http(body: dict, headers: dict[str, str], method: str = "POST") -> bytes:
    data = json.dumps(body, separators=(",", ":")).encode() if body else b""
    lines = [f"{method} /mcp HTTP/1.1", "host: 127.0.0.1:80", "content-type: application/json"]
    lines += [f"{name}: {value}" for name, value in headers.items()] + [f"content-length: {len(data)}", "", ""]
    return "\r\n".join(lines).encode() + data


class Connection:
    """A keep-alive connection that knows when an answer is complete."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.data = b""

    def send(self, request: bytes) -> None:
        self.data = b""
        self.socket.sendall(request)

    def receive(self) -> bool:
        """Read what is there; tell whether the answer is complete."""
        part = self.socket.recv(65536)
        if not part:
            raise ConnectionError(f"the server hung up after {self.data[:300]!r}")
        self.data += part
        head, _, body = self.data.partition(b"\r\n\r\n")
        if found := LENGTH.search(head):
            return len(body) >= int(found[1])
        return body.endswith(b"0\r\n\r\n")

    def ask(self, request: bytes) -> tuple[bytes, bytes]:
        self.send(request)
        while not self.receive():
            pass
        head, _, body = self.data.partition(b"\r\n\r\n")
        assert head.startswith((b"HTTP/1.1 200", b"HTTP/1.1 202")), self.data
        return head, body


class Server:
    """A running server, and how it is talked to."""

    def __init__(self, row: Row, kind: str) -> None:
        self.row, self.kind, self.sent = row, kind, 0
        with socket.create_server(("127.0.0.1", 0)) as probe:
            self.port = probe.getsockname()[1]
        command = [*row.command[:2], str(self.port), *row.command[2:]]
        env = {"PYTHONPATH": str(HERE.parent / "src")} if row.command[0] == sys.executable else {}
        self.process = subprocess.Popen(command, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        self.headers = self._headers()

    def cpu(self) -> float:
        return time.clock_gettime(((~self.process.pid) << 3) | 2)

    def memory(self) -> float:
        for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS"):
                return int(line.split()[1])
        return 0.0

    def connect(self) -> Connection:
        for _ in range(600):
            try:
                return Connection(self.port)
            except ConnectionRefusedError:
                time.sleep(0.05)
        raise TimeoutError(f"{self.row.name} does not listen")

    def _headers(self) -> dict[str, str]:
        accept = {"modern sse": "text/event-stream"}.get(self.kind, BOTH)
        if self.kind != "legacy":
            named = {"mcp-protocol-version": MODERN, "mcp-method": "tools/call", "mcp-name": self.row.tool}
            return {"accept": accept, **named}
        headers = {"accept": accept}
        head, _ = self.connect().ask(http(initialize(), headers))
        if found := re.search(rb"mcp-session-id: *(\S+)", head, re.IGNORECASE):
            headers["mcp-session-id"] = found[1].decode()
        headers["mcp-protocol-version"] = LEGACY
        self.connect().ask(http({"jsonrpc": "2.0", "method": "notifications/initialized"}, headers))
        return headers

    def request(self) -> bytes:
        self.sent += 1
        params = {"name": self.row.tool, "arguments": {"a": self.sent, "b": 2}}
        if self.kind != "legacy":
            params["_meta"] = META | ({"progressToken": "t"} if self.row.tool == "add_told" else {})
        return http({"jsonrpc": "2.0", "id": self.sent, "method": "tools/call", "params": params}, self.headers)

    def check(self) -> None:
        head, body = self.connect().ask(self.request())
        assert f'"text":"{self.sent + 2}"'.encode() in body.replace(b'": "', b'":"'), body
        assert (b"event-stream" in head) == (self.row.name.endswith("SSE")), (self.row.name, head)

    def load(self, calls: int, connections: int) -> tuple[float, float]:
        """Make calls over so many connections at once; return CPU and wall seconds per call."""
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
            figures = (self.cpu() - cpu) / calls, (time.monotonic() - start) / calls
        for each in pool:
            each.socket.close()
        return figures

    def close(self) -> None:
        self.process.terminate()
        self.process.wait()


def initialize() -> dict:
    info = META["io.modelcontextprotocol/clientInfo"]
    params = {"protocolVersion": LEGACY, "capabilities": {}, "clientInfo": info}
    return {"jsonrpc": "2.0", "id": "init", "method": "initialize", "params": params}


def measure_calls(servers: list[Server], calls: int, rounds: int) -> None:
    for server in servers:
        server.check()
        server.load(200, 16)
    for _ in range(rounds):
        for server in servers:
            for connections in (1, 16, 64):
                count = max(connections, int(calls * server.row.weight))
                cpu, wall = server.load(count, connections)
                server.row.note(f"cpu {connections}", cpu * 1e6)
                server.row.note(f"wall {connections}", wall * 1e6)


def measure_idle(server: Server, sessions: int, streams: int) -> None:
    """Tell what a session and a stream that nothing happens on cost, and how long a change takes to reach all of them."""
    before = server.memory()
    connection = server.connect()
    for _ in range(sessions):
        connection.ask(http(initialize(), {"accept": BOTH}))
    held = server.memory()
    print(f"{sessions} idle sessions: {(held - before) / sessions:.1f} KiB each")
    wanted = {"notifications": {"toolsListChanged": True}, "_meta": META}
    listen = {"jsonrpc": "2.0", "id": 1, "method": "subscriptions/listen", "params": wanted}
    headers = {"accept": BOTH, "mcp-protocol-version": MODERN, "mcp-method": "subscriptions/listen"}
    listeners = [server.connect() for _ in range(streams)]
    for each in listeners:
        each.send(http(listen, headers))
        while b"acknowledged" not in each.data:
            each.receive()
    print(f"{streams} listen streams: {(server.memory() - held) / streams:.1f} KiB each, connection and all")
    delays = []
    params = {"name": "touch", "arguments": {}, "_meta": META}
    touch = {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": params}
    for _ in range(5):
        for each in listeners:
            each.data = b""
        start = time.monotonic()
        connection.ask(http(touch, {**headers, "mcp-method": "tools/call", "mcp-name": "touch"}))
        for each in listeners:
            while b"list_changed" not in each.data:
                each.receive()
        delays.append(time.monotonic() - start)
    print(f"from a change to its last delivery to {streams} streams: {sorted(delays)[2] * 1e3:.1f} ms\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--official", metavar="PYTHON", help="an interpreter that has the official SDK and uvicorn")
    parser.add_argument("--calls", type=int, default=2000, help="calls per round and number of connections")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--sessions", type=int, default=1000)
    parser.add_argument("--streams", type=int, default=500)
    parser.add_argument("--only", nargs="+", metavar="WORD", help="only rows with one of these words in their name")
    options = parser.parse_args()

    ours = [sys.executable, str(SERVERS / "http_ours.py")]
    run = [*ours, "run"]
    floor = Row("bare ASGI app", [sys.executable, str(SERVERS / "http_floor.py")], "add")
    rows = [
        (floor, "modern"),
        (Row("run, modern, async", run), "modern"),
        (Row("run, modern, inline", run, "add_inline"), "modern"),
        (Row("run, modern, def", run, "add_def"), "modern"),
        (Row("run, modern, progress, SSE", run, "add_told"), "modern"),
        (Row("run, handshake session", run), "legacy"),
        (Row("asgi, modern, async", ours), "modern"),
        (Row("asgi, handshake session", ours), "legacy"),
    ]
    if options.official:
        official = [options.official, str(SERVERS / "http_official.py")]
        rows += [
            (Row("official modern JSON", [*official, "fastest"], weight=0.1), "modern"),
            (Row("official handshake stateless JSON", [*official, "fastest"], weight=0.1), "legacy"),
            (Row("official handshake session SSE", official, weight=0.1), "legacy"),
        ]
    named = [row for row in rows if row[0] is floor or any(word in row[0].name for word in options.only or [""])]
    servers = [Server(*row) for row in named]
    try:
        if not options.only:
            measure_idle(servers[1], options.sessions, options.streams)
        measure_calls(servers, options.calls, options.rounds)
    finally:
        for server in servers:
            server.close()
    print("Calls: medians, microseconds of the server's CPU per call, and times the bare app\n")
    columns = [(f"cpu {each}", f"{each} connection{'s' * (each > 1)}") for each in (1, 16, 64)]
    show([server.row for server in servers], columns, dict.fromkeys([what for what, _ in columns], floor))


if __name__ == "__main__":
    main()
