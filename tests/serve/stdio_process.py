"""A server process on pipes, and a client with deadlines for it."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

HERE = Path(__file__).parent
SOURCE = HERE.parent.parent / "src"
DEADLINE = 30.0
META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
    "io.modelcontextprotocol/clientInfo": {"name": "tests", "version": "1"},
}


class Process:
    """A child that serves on pipes. Every wait here ends."""

    def __init__(self, *command: str, env: dict[str, str] | None = None, **popen: object) -> None:
        inherited = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
        environment = {**inherited, "PYTHONPATH": f"{SOURCE}{os.pathsep}{HERE}", **(env or {})}
        popen = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **popen}
        self.popen = subprocess.Popen([sys.executable, *command], env=environment, bufsize=0, **popen)
        self.buffer = b""
        self.errors = b""
        self.ended = False
        self.noted = threading.Condition()
        self.drainer = threading.Thread(target=self._drain, daemon=True)
        self.drainer.start()

    def _drain(self) -> None:
        while self.popen.stderr is not None and (data := os.read(self.popen.stderr.fileno(), 65536)):
            with self.noted:
                self.errors += data
                self.noted.notify_all()
        with self.noted:
            self.ended = True
            self.noted.notify_all()

    def wait_for_error(self, text: str) -> None:
        """Wait until `text` is on stderr."""
        with self.noted:
            self.noted.wait_for(lambda: self.ended or text.encode() in self.errors, DEADLINE)
            assert text.encode() in self.errors, self.errors.decode()

    def write(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[os.write(self.popen.stdin.fileno(), view) :]

    def send(self, request_id: object, method: str, **params: object) -> None:
        self.write(request(request_id, method, **params))

    def call(self, request_id: object, name: str, **arguments: object) -> None:
        self.write(tool_call(request_id, name, **arguments))

    def cancel(self, request_id: object) -> None:
        self.write(line({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": request_id}}))

    def read(self) -> dict:
        """Return the next message."""
        deadline = time.monotonic() + DEADLINE
        while b"\n" not in self.buffer:
            assert select.select([self.popen.stdout], [], [], max(0.0, deadline - time.monotonic()))[0], "no answer"
            data = os.read(self.popen.stdout.fileno(), 65536)
            assert data, f"the server hung up: {self.errors.decode()}"
            self.buffer += data
        first, _, self.buffer = self.buffer.partition(b"\n")
        return json.loads(first)

    def result(self, request_id: object, name: str, **arguments: object) -> str:
        """Call a tool, wait for its answer and return its text."""
        self.call(request_id, name, **arguments)
        return said(self.read(), request_id)

    def close_input(self) -> None:
        self.popen.stdin.close()

    def rest(self) -> bytes:
        """Return all that is still written to stdout, up to its end."""
        while select.select([self.popen.stdout], [], [], DEADLINE)[0]:
            data = os.read(self.popen.stdout.fileno(), 65536)
            if not data:
                break
            self.buffer += data
        return self.buffer

    def exit_code(self) -> int:
        """Wait for the end and return the exit code."""
        code = self.popen.wait(DEADLINE)
        self.drainer.join(60)
        return code

    def seconds_to_exit(self) -> float:
        """Wait for the end; return how long it took, less the time for which the machine kept the process waiting."""
        start = time.monotonic()
        self.exit_code()
        return time.monotonic() - start

    def kill(self) -> None:
        if self.popen.poll() is None:
            self.popen.send_signal(signal.SIGKILL)
            self.popen.wait(DEADLINE)
        for stream in (self.popen.stdin, self.popen.stdout):
            if stream is not None:
                stream.close()
        self.drainer.join(60)
        if self.popen.stderr is not None and not self.drainer.is_alive():
            self.popen.stderr.close()


PATIENT = {"GRACE": "60"}
"""The environment of a server that answers what was asked before its input ended, however slow the machine is."""
HASTY = {"GRACE": "0.2"}
"""That of a server that soon gives up what runs at its end."""


def line(message: object) -> bytes:
    return json.dumps(message, separators=(",", ":")).encode() + b"\n"


def request(request_id: object, method: str, **params: object) -> bytes:
    return line({"jsonrpc": "2.0", "id": request_id, "method": method, "params": {**params, "_meta": META}})


def tool_call(request_id: object, name: str, **arguments: object) -> bytes:
    return request(request_id, "tools/call", name=name, arguments=arguments)


def ping(request_id: object) -> bytes:
    return line({"jsonrpc": "2.0", "id": request_id, "method": "ping"})


def said(message: dict, request_id: object) -> str:
    """Return the text of the answer to `request_id`."""
    assert message.get("id") == request_id, message
    return message["result"]["content"][0]["text"]
