"""A `linkspan` process on three pipes, and a client with deadlines for it."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

PATIENCE = 60.0
META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
    "io.modelcontextprotocol/clientInfo": {"name": "tests", "version": "1"},
}
HELLO = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "tests", "version": "1"}}


class Piped:
    """Every wait here ends. Use it as a context manager."""

    def __init__(self, *arguments: str, **popen: Any) -> None:
        self.popen = subprocess.Popen(
            [sys.executable, "-m", "linkspan", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            **popen,
        )
        self.errors = ""
        self._buffer = b""
        self._noted = threading.Condition()
        self._drainer = threading.Thread(target=self._drain, daemon=True)
        self._drainer.start()

    def _drain(self) -> None:
        assert self.popen.stderr is not None
        while data := self.popen.stderr.read(65536):
            with self._noted:
                self.errors += data.decode("utf-8", "replace")
                self._noted.notify_all()

    def wait_for_error(self, text: str) -> None:
        """Wait until `text` is on stderr."""
        with self._noted:
            assert self._noted.wait_for(lambda: text in self.errors, PATIENCE), self.errors

    def write(self, data: bytes) -> None:
        assert self.popen.stdin is not None
        self.popen.stdin.write(data)

    def send(self, **message: Any) -> None:
        self.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")

    def ask(self, request_id: object, method: str, **params: Any) -> None:
        """Send a request of the modern era."""
        self.send(id=request_id, method=method, params={**params, "_meta": META})

    def shake_hands(self) -> None:
        self.send(id="hello", method="initialize", params=HELLO)
        assert self.read()["id"] == "hello"
        self.send(method="notifications/initialized")

    def read_line(self) -> bytes:
        assert self.popen.stdout is not None
        end = time.monotonic() + PATIENCE
        while b"\n" not in self._buffer:
            ready, _, _ = select.select([self.popen.stdout], [], [], max(0.0, end - time.monotonic()))
            data = os.read(self.popen.stdout.fileno(), 65536) if ready else b""
            assert data, f"no answer: {self.errors}"
            self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line

    def read(self) -> Any:
        """Return the next message."""
        return json.loads(self.read_line())

    def call(self, request_id: object, name: str, **arguments: Any) -> str:
        """Call a tool; return the text that it answers."""
        self.ask(request_id, "tools/call", name=name, arguments=arguments)
        message = self.read()
        assert message["id"] == request_id, message
        text: str = message["result"]["content"][0]["text"]
        return text

    def hang_up(self) -> None:
        assert self.popen.stdin is not None
        self.popen.stdin.close()

    def end(self) -> int:
        """Wait for the end; return the exit status."""
        status = self.popen.wait(PATIENCE)
        self._drainer.join(PATIENCE)
        return status

    def __enter__(self) -> Piped:
        return self

    def __exit__(self, *_: object) -> None:
        if self.popen.poll() is None:
            self.popen.kill()
        self.popen.wait(PATIENCE)
        self._drainer.join(PATIENCE)
        for stream in (self.popen.stdin, self.popen.stdout, self.popen.stderr):
            assert stream is not None
            stream.close()


def gone(pid: int) -> bool:
    """Tell whether a process ends."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        try:
            os.kill(pid, 0)
            if Path(f"/proc/{pid}/stat").read_text().split(")")[-1].split()[0] == "Z":
                return True  # nobody has collected it yet
        except (ProcessLookupError, FileNotFoundError):
            return True
        time.sleep(0.01)
    return False
