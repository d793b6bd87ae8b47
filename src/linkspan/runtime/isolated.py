"""Processes for tools that may crash, never return, or use up memory; `serve/isolated_main.py` is what runs in them.

Both sides write lines of JSON. A process has one call at a time, and stays for the next. One that exceeds its limits is killed,
and only its call fails.
"""

from __future__ import annotations

import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Final

import msgspec

from linkspan.errors import RequestCancelled, ToolError
from linkspan.runtime.channels import as_line
from linkspan.runtime.descriptors import read_some, write_all
from linkspan.runtime.forks import renew
from linkspan.runtime.process import signal_name, start_group
from linkspan.server.limits import Isolation, ProcessReply
from linkspan.wire.framing import LineReader

_TICK: Final = 0.05
"""Seconds between looks at whether the call was cancelled."""
_START: Final = 60.0
"""Seconds that a process may take to load the file of its function."""


class Start(msgspec.Struct):
    """What a process receives first."""

    isolation: Isolation
    path: list[str]


class ProcessCall(msgspec.Struct):
    """A call."""

    arguments: msgspec.Raw
    repair: bool


class ProcessPool:
    """The processes of one tool; any thread may call."""

    def __init__(self, isolation: Isolation) -> None:
        """Start nothing yet."""
        self._isolation = isolation
        self.start_afresh()
        renew(self)

    def start_afresh(self) -> None:
        """Begin without processes."""
        self._idle: list[_Process] = []
        self._room = threading.Semaphore(self._isolation.processes)

    def __call__(self, arguments: bytes, *, repair: bool, cancelled: Callable[[], bool]) -> ProcessReply:
        """Run a call and wait for it. Raises: ToolError if it exceeds a limit, or its process ends; RequestCancelled."""
        while not self._room.acquire(timeout=_TICK):
            if cancelled():
                raise RequestCancelled
        try:
            process = self._idle.pop() if self._idle else _Process(self._isolation)
            try:
                process.load(cancelled)
                reply = process.call(ProcessCall(msgspec.Raw(arguments), repair), cancelled)
            except BaseException:
                process.kill()
                raise
            self._idle.append(process)
            return reply
        finally:
            self._room.release()


class _Process:
    """One process, seen from here."""

    def __init__(self, isolation: Isolation) -> None:
        self._isolation = isolation
        self._process, self._group = start_group(
            [sys.executable, "-m", "linkspan.serve.isolated_main"],
            memory=isolation.memory,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
        )
        self._replies: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self._is_loaded = False
        try:
            threading.Thread(target=self._read, name="linkspan-isolated", daemon=True).start()
        except RuntimeError:
            self.kill()
            raise

    def _read(self) -> None:
        assert self._process.stdout is not None
        try:
            with self._process.stdout as output:
                for line in read_lines(output.fileno()):
                    self._replies.put(line)
        finally:  # a call that waits for its reply ends with this
            self._replies.put(b"")

    def load(self, cancelled: Callable[[], bool]) -> None:
        """Let it load the file of its function, if it has not done that. Raises: ToolError if it cannot; RequestCancelled."""
        if self._is_loaded:
            return
        self._send(Start(self._isolation, [os.getcwd() if each == "" else each for each in sys.path]))
        problem = self._receive(_START, cancelled, "did not start within")
        if problem != b"ready":
            raise RuntimeError(f"{self._isolation.tool} cannot start in a process of its own: {problem.decode()}")
        self._is_loaded = True

    def call(self, request: ProcessCall, cancelled: Callable[[], bool]) -> ProcessReply:
        """Run a call. Raises: ToolError if it takes too long, or if the process ends; RequestCancelled."""
        self._send(request)
        return _reply.decode(self._receive(self._isolation.timeout, cancelled, "was stopped after"))

    def _send(self, message: object) -> None:
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # `_receive` notices
            write_all(self._process.stdin.fileno(), as_line(msgspec.json.encode(message)))

    def _receive(self, timeout: float | None, cancelled: Callable[[], bool], overdue: str) -> bytes:
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            left = _TICK if deadline is None else min(_TICK, deadline - time.monotonic())
            try:
                line = self._replies.get(timeout=max(0.0, left))
            except queue.Empty:
                if cancelled():
                    raise RequestCancelled from None
                if deadline is not None and time.monotonic() >= deadline:
                    raise ToolError(f"{self._isolation.tool} {overdue} {timeout:g} s") from None
                continue
            if line:
                return line
            tool, memory = self._isolation.tool, self._isolation.memory
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(1.0)
            code = self._process.returncode
            if code == OUT_OF_MEMORY and memory is not None:
                raise ToolError(f"{tool} needed more than {memory} bytes of memory, and was stopped")
            raise ToolError(f"{tool} crashed ({signal_name(code) or f'exit status {code}'})")

    def kill(self) -> None:
        """End it, with whatever it has started."""
        process = self._process
        self._group.end()
        self._group.release()
        process.wait()
        if process.stdin is not None:
            process.stdin.close()


def read_lines(descriptor: int) -> Iterator[bytes]:
    """Wait for the lines of the other process, until its end; one that is cut off by that is left out."""
    reader = LineReader(sys.maxsize)
    while data := read_some(descriptor):
        for line in reader.receive_data(data):
            assert isinstance(line, bytes)
            yield line


_reply: Final = msgspec.json.Decoder(ProcessReply)
OUT_OF_MEMORY: Final = 97
"""The exit status of a process that has reached its limit of memory."""
