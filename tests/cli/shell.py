"""A shell for tests: `linkspan ...` in this process, in one of its own, or at a terminal."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import select
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from linkspan.cli.main import main

EXAMPLES = Path(__file__).parent.parent.parent / "examples"
DICE = str(EXAMPLES / "dice.py")
TRAVEL = str(EXAMPLES / "everything.py")
ODD = [sys.executable, "-S", str(Path(__file__).parent / "odd_server.py")]
PATIENCE = 60.0


class Done(NamedTuple):
    status: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


class Shell:
    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, *arguments: str) -> Done:
        try:
            status = main(arguments)
        except SystemExit as left:
            status = int(left.code or 0)
        return Done(status, *self._capsys.readouterr())


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "linkspan", *arguments]


class AtTerminal:
    """A process whose three streams are one terminal."""

    def __init__(self, process: subprocess.Popen[bytes], master: int) -> None:
        self.process = process
        self.seen = ""
        self._master = master
        self._at = 0

    def expect(self, text: str) -> str:
        """Read until `text` comes, after what was expected before; return what came."""
        began, end = self._at, time.monotonic() + PATIENCE
        while text not in self.seen[self._at :]:
            assert self._read(end), f"{text!r} did not come: {self.seen[began:]!r}"
        self._at = self.seen.index(text, self._at) + len(text)
        return self.seen[began : self._at]

    def type(self, line: str) -> None:
        os.write(self._master, line.encode() + b"\n")

    def press(self, keys: str) -> None:
        """Press keys without Enter; \x03 is Ctrl-C."""
        os.write(self._master, keys.encode())

    def signal(self, number: int = signal.SIGINT) -> None:
        """Send a signal once the process waits; Ctrl-C comes from the terminal.

        Just before that, Python's readline would hear of it with the end of the line only.
        """
        quiet, end = 0, time.monotonic() + PATIENCE
        while quiet < 5 and time.monotonic() < end:
            state = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()[0]
            quiet = quiet + 1 if state == "S" else 0
            time.sleep(0.005)
        if number == signal.SIGINT:
            self.press("\x03")
        else:
            self.process.send_signal(number)

    def end(self) -> int:
        """Read the rest; return the exit status."""
        end = time.monotonic() + PATIENCE
        while self._read(end):
            pass
        return self.process.wait(PATIENCE)

    def _read(self, end: float) -> bool:
        ready, _, _ = select.select([self._master], [], [], max(0.0, end - time.monotonic()))
        try:
            data = os.read(self._master, 65536) if ready else b""
        except OSError:  # nobody has the terminal open any more
            data = b""
        self.seen += data.decode("utf-8", "replace")
        return bool(data)


@contextmanager
def at_terminal(*arguments: str, env: Mapping[str, str] | None = None) -> Iterator[AtTerminal]:
    master, slave = pty.openpty()
    surroundings = {**os.environ, "TERM": "xterm", "NO_COLOR": "1", **(env or {})}
    process = subprocess.Popen(
        command(*arguments),
        stdin=slave,
        stdout=slave,
        stderr=slave,
        env=surroundings,
        start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # so that Ctrl-C is a signal
    )
    os.close(slave)
    try:
        yield AtTerminal(process, master)
    finally:
        process.kill()
        process.wait()
        os.close(master)
