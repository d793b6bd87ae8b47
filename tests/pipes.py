"""A `linkspan` process on three pipes, and a client with deadlines for it, on any system."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

PATIENCE = 60.0
ENDING = getattr(signal, "CTRL_BREAK_EVENT", signal.SIGTERM)
NEW_GROUP = getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0)
META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
    "io.modelcontextprotocol/clientInfo": {"name": "tests", "version": "1"},
}
HELLO = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "tests", "version": "1"}}


class Piped:
    """Every wait here ends. Use it as a context manager."""

    def __init__(self, *arguments: str, program: Sequence[str] = ("-m", "linkspan"), **popen: Any) -> None:
        self.popen = subprocess.Popen(
            [sys.executable, *program, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            creationflags=NEW_GROUP,  # so that it alone is interrupted
            **popen,
        )
        self._received = {"stdout": b"", "stderr": b""}
        self._ended = False
        self._noted = threading.Condition()
        streams = {"stdout": self.popen.stdout, "stderr": self.popen.stderr}
        self._readers = [threading.Thread(target=self._read_all, args=each, daemon=True) for each in streams.items()]
        for reader in self._readers:
            reader.start()

    def _read_all(self, name: str, stream: IO[bytes]) -> None:
        while data := stream.read(65536):
            with self._noted:
                self._received[name] += data
                self._noted.notify_all()
        with self._noted:
            self._ended = self._ended or name == "stdout"
            self._noted.notify_all()

    @property
    def errors(self) -> str:
        """What is on stderr by now."""
        return self._received["stderr"].decode("utf-8", "replace")

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
        with self._noted:
            self._noted.wait_for(lambda: self._ended or b"\n" in self._received["stdout"], PATIENCE)
            line, newline, self._received["stdout"] = self._received["stdout"].partition(b"\n")
        assert newline, f"no answer: {self.errors}"
        return line

    def read(self) -> Any:
        """Return the next message."""
        return json.loads(self.read_line())

    def rest(self) -> bytes:
        """Wait for the end of stdout; return what was not read of it."""
        with self._noted:
            assert self._noted.wait_for(lambda: self._ended, PATIENCE), self.errors
            rest, self._received["stdout"] = self._received["stdout"], b""
        return rest

    def call(self, request_id: object, name: str, **arguments: Any) -> str:
        """Call a tool; return the text that it answers."""
        self.ask(request_id, "tools/call", name=name, arguments=arguments)
        message = self.read()
        assert message["id"] == request_id, message
        text: str = message["result"]["content"][0]["text"]
        return text

    def interrupt(self) -> bool:
        """Ask the process to end; return whether it could be asked: on Windows that needs a console."""
        try:
            self.popen.send_signal(ENDING)
        except OSError:
            return False
        return True

    def hang_up(self) -> None:
        assert self.popen.stdin is not None
        self.popen.stdin.close()

    def end(self) -> int:
        """Wait for the end; return the exit status."""
        status = self.popen.wait(PATIENCE)
        for reader in self._readers:
            reader.join(PATIENCE)
        return status

    def __enter__(self) -> Piped:
        return self

    def __exit__(self, *_: object) -> None:
        if self.popen.poll() is None:
            self.popen.kill()
        self.end()
        for stream in (self.popen.stdin, self.popen.stdout, self.popen.stderr):
            assert stream is not None
            stream.close()


def gone(pid: int) -> bool:
    """Tell whether a process ends. Not for Windows, where to look with `os.kill` ends it."""
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
