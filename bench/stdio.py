"""Servers over stdio. CPU is the server's own; the client is the same raw pipe loop for everybody and does not count."""

from __future__ import annotations

import json
import os
import select
import subprocess
import threading
import time
from functools import partial

from runs import INFO, LEGACY, META, TIMEOUT, Process, Row, rounds


class Server(Process):
    """A running server."""

    def __init__(self, row: Row) -> None:
        super().__init__(row, row.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.input, self.output = self.process.stdin.fileno(), self.process.stdout.fileno()
        self.sent = 0
        if not row.modern:
            params = {"protocolVersion": LEGACY, "capabilities": {}, "clientInfo": INFO}
            self.ask({"jsonrpc": "2.0", "id": "init", "method": "initialize", "params": params})
            os.write(self.input, b'{"jsonrpc":"2.0","method":"notifications/initialized"}\n')

    def read(self) -> bytes:
        if not select.select([self.output], [], [], TIMEOUT)[0]:
            raise TimeoutError(f"{self.row.name} does not answer")
        data = os.read(self.output, 1 << 20)
        if not data:
            raise ConnectionError(f"{self.row.name} hung up")
        return data

    def ask(self, message: dict) -> dict:
        """Send a message of any size; return its answer."""
        data = json.dumps(message, separators=(",", ":")).encode() + b"\n"
        writer = threading.Thread(target=self._write, args=(data,))
        writer.start()
        parts = [self.read()]
        while not parts[-1].endswith(b"\n"):
            parts.append(self.read())
        writer.join()
        return json.loads(b"".join(parts))

    def _write(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[os.write(self.input, view) :]

    def message(self, arguments: dict) -> dict:
        self.sent += 1
        params = {"name": self.row.tool, "arguments": arguments}
        if self.row.modern:
            params["_meta"] = META
        return {"jsonrpc": "2.0", "id": self.sent, "method": "tools/call", "params": params}

    def request(self) -> bytes:
        message = self.message({"a": self.sent + 1, "b": 2})
        return json.dumps(message, separators=(",", ":")).encode() + b"\n"

    def check(self) -> None:
        """Make sure that it adds."""
        answer = self.ask(self.message({"a": self.sent + 1, "b": 2}))
        assert answer["id"] == self.sent, answer
        assert str(self.sent + 2) in answer["result"]["content"][0]["text"], answer

    def load(self, calls: int, window: int) -> None:
        """Make `calls` calls with `window` in flight, and note the CPU and wall microseconds of each."""
        requests = [self.request() for _ in range(calls)]
        cpu, start = self.cpu(), time.monotonic()
        self._write(b"".join(requests[:window]))
        sent, answered = min(window, calls), 0
        while answered < calls:
            count = self.read().count(b"\n")
            answered += count
            if count and sent < calls:
                self._write(b"".join(requests[sent : sent + count]))
                sent += count
        self.row.note(f"cpu {window}", (self.cpu() - cpu) / calls * 1e6)
        self.row.note(f"wall {window}", (time.monotonic() - start) / calls * 1e6)


def measure_calls(rows: list[Row], calls: int, count: int) -> None:
    """Note `cpu 64`, `cpu 1` and their wall times."""
    servers = [Server(row) for row in rows]
    for server in servers:
        server.check()
        server.load(300, 64)
        server.row.figures.clear()
    turns = []
    for server in servers:
        many = max(64, int(calls * server.row.weight))
        turns += [partial(server.load, many, 64), partial(server.load, max(50, many // 10), 1)]
    rounds(count, turns)
    for server in servers:
        server.close()


def measure_starts(rows: list[Row], count: int) -> None:
    """Note `start cpu` and `start wall` up to the first answer, in milliseconds, and the `memory` at rest, in MiB."""

    def start(row: Row) -> None:
        server = Server(row)
        server.check()
        row.note("start wall", (time.monotonic() - server.started) * 1e3)
        row.note("start cpu", server.cpu() * 1e3)
        time.sleep(0.05)
        row.note("memory", server.memory())
        server.close()

    for row in rows:
        start(row)
        row.figures.clear()
    rounds(count, [partial(start, row) for row in rows])


def measure_large(rows: list[Row], size: int, calls: int, count: int) -> None:
    """Note the `cpu` milliseconds that a server takes to return a text of that size, and its `peak` of memory."""
    servers = [Server(row) for row in rows]
    text = ('{"a line": "of a file"}\n' + "x" * 76)[:100] * (size // 100)

    def echo(server: Server) -> None:
        cpu = server.cpu()
        for _ in range(calls):
            answer = server.ask(server.message({"text": text}))
            assert answer["result"]["content"][0]["text"] == text
        server.row.note("cpu", (server.cpu() - cpu) / calls * 1e3)
        server.row.note("peak", server.memory("VmHWM"))

    for server in servers:
        echo(server)
        server.row.figures.clear()
    rounds(count, [partial(echo, server) for server in servers])
    for server in servers:
        server.close()
