"""A process that is spoken to in lines: no wait is without an end, and what it says is kept up to a bound."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Final

from linkspan.runtime.process import Child

_TICK: Final = 0.01
_LEFT: Final = 1.0
"""Seconds for the pipes of a process that was ended: one that has left its group may hold them."""
_LONGEST_LINE: Final = 20_000_000
"""Bytes of a line of stdout."""
_MOST_WAITING: Final = 50_000_000
"""Bytes of stdout that wait to be read; further lines are dropped."""
_MOST_ERRORS: Final = 200_000
"""Bytes of stderr that are kept, the last ones."""


class LineProcess:
    """A process, its lines of stdout, and the end of its stderr."""

    def __init__(self, words: Sequence[str], environment: Mapping[str, str], cwd: str | None) -> None:
        """Start it. Raises: OSError or ValueError if that is not possible."""
        self.child: Final = Child(words, environment, cwd)
        self.full = False
        """Whether it did not read a line in time: nothing more can be written."""
        self._lines: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._waiting = 0
        self._errors = b""
        self._threads = [threading.Thread(target=each, daemon=True) for each in (self._read, self._read_errors)]
        for each in self._threads:
            each.start()

    def _read(self) -> None:
        with open(self.child.stdout, "rb", closefd=False) as stream, suppress(OSError):
            while line := stream.readline(_LONGEST_LINE):
                with self._lock:
                    kept = self._waiting + len(line) <= _MOST_WAITING
                    self._waiting += len(line) if kept else 0
                if kept:
                    self._lines.put(line)
        self._lines.put(None)

    def _read_errors(self) -> None:
        with open(self.child.stderr, "rb", closefd=False) as stream, suppress(OSError):
            while part := stream.read1(65_536):
                self._errors = (self._errors + part)[-_MOST_ERRORS:]

    @property
    def stderr(self) -> str:
        """The end of its stderr."""
        return self._errors.decode("utf-8", "replace")

    def write(self, line: bytes, seconds: float) -> None:
        """Write a line. Raises: TimeoutError if it is not read within some seconds, or OSError if the process has ended."""
        if self.full:
            raise TimeoutError
        problems: list[OSError] = []
        thread = threading.Thread(target=self._write, args=(line + b"\n", problems), daemon=True)
        thread.start()
        thread.join(seconds)
        if thread.is_alive():
            self.full = True
            self._threads.append(thread)
            raise TimeoutError
        for each in problems:
            raise each

    def _write(self, data: bytes, problems: list[OSError]) -> None:
        try:
            with open(self.child.stdin, "wb", closefd=False) as stream:
                stream.write(data)
        except OSError as problem:
            problems.append(problem)

    def read(self, seconds: float) -> bytes | None:
        """Return the next line of stdout, or None at its end. Raises: TimeoutError if none came within some seconds."""
        try:
            line = self._lines.get(timeout=max(0.0, seconds))
        except queue.Empty:
            raise TimeoutError from None
        if line is None:
            self._lines.put(None)
        else:
            with self._lock:
                self._waiting -= len(line)
        return line

    def exit_status(self, seconds: float) -> int | None:
        """Return how it ended, within some seconds; None for one that runs on."""
        deadline = time.monotonic() + seconds
        while (code := self.child.exit_code()) is None and time.monotonic() < deadline:
            time.sleep(_TICK)
        return code

    def close(self) -> None:
        """End it and whatever it has started."""
        self.child.reap()
        deadline = time.monotonic() + _LEFT
        for each in self._threads:
            each.join(max(0.0, deadline - time.monotonic()))
        if not any(each.is_alive() for each in self._threads):
            self.child.close_pipes()
