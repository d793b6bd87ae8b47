"""`linkspan run --http --reload FILE`: a server in a process of its own, started anew when its source changes.

This process holds the socket and never lets go of it: who comes while there is no server waits for the next one.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from types import FrameType
from typing import Any, Final

from linkspan.cli.watching import Watch
from linkspan.errors import LinkspanError
from linkspan.io.http_server import DRAIN, PORT, listen

__all__ = ["serve_reloading_http"]

_POLL: Final = 0.3
_MORE_THAN_DRAIN: Final = 3.0
_OURS: Final = ("--reload", "--host", "--port", "--fd")


def serve_reloading_http(
    file: str, arguments: Sequence[str], *, host: str = "127.0.0.1", port: int = PORT, drain: float = DRAIN, **_: Any
) -> int:
    """Serve what `linkspan run` was given in `arguments`, whose source is `file`; return the exit status."""
    try:
        listener = listen(host, port)
    except LinkspanError as problem:
        print(f"linkspan run: {problem}", file=sys.stderr)
        return 2
    command = [sys.executable, "-m", "linkspan", "run", *_without(arguments), f"--fd={listener.fileno()}"]
    with listener:
        return _Reloading(command, listener.fileno(), Watch(file), drain + _MORE_THAN_DRAIN).serve()


class _Stop(Exception):
    """Somebody asks us to stop; the number is the signal."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number


class _Reloading:
    def __init__(self, command: Sequence[str], fd: int, watch: Watch, patience: float) -> None:
        self._command = command
        self._fd = fd
        self._watch = watch
        self._patience = patience
        self._child: subprocess.Popen[bytes] | None = None

    def serve(self) -> int:
        before = {number: signal.signal(number, _raise_stop) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            self._start()
            while True:
                time.sleep(_POLL)
                self._look()
        except _Stop as stop:
            return 130 if stop.number == signal.SIGINT else 0
        finally:
            for number in before:
                signal.signal(number, signal.SIG_IGN)  # the second Ctrl-C is for the server
            self._end()
            for number, handler in before.items():
                signal.signal(number, handler)

    def _look(self) -> None:
        changed = self._watch.changed()
        if changed is not None:
            _say(f"{changed} changed: starting again")
            self._end()
            self._start()
        elif self._child is not None and (status := self._child.poll()) is not None:
            self._child = None
            _say(f"the server ended with exit status {status}; a change to its source starts it again")

    def _start(self) -> None:
        self._child = subprocess.Popen(self._command, pass_fds=[self._fd], stdin=subprocess.DEVNULL)

    def _end(self) -> None:
        child, self._child = self._child, None
        if child is None:
            return
        child.terminate()
        try:
            child.wait(self._patience)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()


def _raise_stop(number: int, _frame: FrameType | None) -> None:
    raise _Stop(number)


def _without(arguments: Sequence[str]) -> list[str]:
    """Return the arguments without those that are about this process, or the socket that it holds."""
    kept: list[str] = []
    skip = False
    for each in arguments:
        if skip:
            skip = False
        elif each in _OURS:
            skip = each != "--reload"
        elif not each.startswith(tuple(f"{name}=" for name in _OURS)):
            kept.append(each)
    return kept


def _say(text: str) -> None:
    print(f"linkspan run: {text}", file=sys.stderr, flush=True)
