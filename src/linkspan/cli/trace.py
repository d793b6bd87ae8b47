"""`linkspan trace -- COMMAND ...`: stand between a client and a server on stdio, and show what they say to each other.

Law: nothing that happens to the trace or to the recording disturbs the two.
"""

from __future__ import annotations

import argparse
import os
import queue
import shlex
import sys
import threading
import time
from collections.abc import Sequence
from typing import Final, Literal, TypeAlias

from linkspan.cli.terminal import Style
from linkspan.cli.tracing import TraceView
from linkspan.io.child import signal_name
from linkspan.io.descriptors import Outlet, can_poll, write_all
from linkspan.io.relay import GRACE, relay
from linkspan.testing.recorder import TranscriptWriter
from linkspan.wire.redaction import is_secret_name, redact

__all__ = ["main"]

_NOT_FOUND: Final = 127
_BACKLOG: Final = 1 << 20
"""Bytes of the trace that wait for a reader of stderr. What comes beyond is not shown."""

_DRAIN: Final = 0.5
_TICK: Final = 0.02
_STDERR: Final = 2

Chunk: TypeAlias = tuple[Literal["client", "server", "stderr", "note", "end"], bytes, float]

_EXAMPLES = """example, in the configuration of a host:
  "command": "linkspan", "args": ["trace", "--out", "dice.transcript", "--", "python", "dice.py"]

The trace goes to stderr, which most hosts keep in a log. The recording is played by
  linkspan run dice.transcript"""


def main(arguments: Sequence[str]) -> int:
    """Return the exit status of the server, 2 for a wrong command line, 127 if there is no such command."""
    parser = argparse.ArgumentParser(
        prog="linkspan trace",
        usage="linkspan trace [options] -- COMMAND ...",
        description="Relay between a client and a server on stdio, and show on stderr what they say to each other.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--out", metavar="FILE", help="record the conversation, to be played by linkspan run")
    parser.add_argument(
        "--only", metavar="METHOD", action="append", default=[], help="show these methods only (tools/*)"
    )
    parser.add_argument("--hide", metavar="METHOD", action="append", default=[], help="do not show these methods")
    parser.add_argument("--json", action="store_true", help="write one JSON object per message")
    parser.add_argument("--no-redact", action="store_true", help="show and record secrets too")
    parser.add_argument("--grace", type=float, default=GRACE, help="seconds for the server to end (%(default)s)")
    parser.add_argument("command", nargs=argparse.REMAINDER, metavar="-- COMMAND ...", help="the server")
    options = parser.parse_args(list(arguments))
    command: list[str] = options.command[1:] if options.command[:1] == ["--"] else options.command
    if not command:
        parser.error("say which server to start: linkspan trace -- COMMAND ...")
    redacted = not options.no_redact
    secrets = [value for name, value in os.environ.items() if is_secret_name(name)]
    try:
        transcript = TranscriptWriter(options.out, secrets=secrets, redacted=redacted) if options.out else None
    except OSError as error:
        parser.error(f"cannot write {options.out}: {error.strerror or error}")
    colours = sys.stderr.isatty() and not os.environ.get("NO_COLOR") and not options.json
    view = TraceView(
        only=options.only,
        hide=options.hide,
        as_json=options.json,
        style=Style(on=colours),
        secrets=secrets,
        redacted=redacted,
    )
    shown = shlex.join(command)
    return _trace(command, redact(shown, secrets) if redacted else shown, _Scribe(view, transcript), options.grace)


def _trace(command: list[str], shown: str, scribe: _Scribe, grace: float) -> int:
    scribe.note(f"$ {shown}")
    try:
        status = relay(
            command,
            os.environ,
            on_client=scribe.client,
            on_server=scribe.server,
            on_stderr=scribe.stderr,
            grace=grace,
        )
    except OSError as error:
        scribe.note(f"cannot start {command[0]}: {error.strerror or error}")
        scribe.close()
        return _NOT_FOUND
    scribe.end(status)
    scribe.close()
    return status


class _Scribe:
    """Writes down what the relay hears, in a thread of its own, so that the relay never waits for a disk or a terminal."""

    def __init__(self, view: TraceView, transcript: TranscriptWriter | None) -> None:
        self._view = view
        self._transcript = transcript
        self._chunks: queue.SimpleQueue[Chunk | None] = queue.SimpleQueue()
        self._start = time.monotonic()
        self._sink = _Sink()
        self._thread = threading.Thread(target=self._work, name="linkspan-trace", daemon=True)
        self._thread.start()

    def client(self, data: bytes) -> None:
        self._chunks.put(("client", data, time.monotonic()))

    def server(self, data: bytes) -> None:
        self._chunks.put(("server", data, time.monotonic()))

    def stderr(self, data: bytes) -> None:
        self._chunks.put(("stderr", data, time.monotonic()))

    def note(self, text: str) -> None:
        self._chunks.put(("note", text.encode(), time.monotonic()))

    def end(self, status: int) -> None:
        self._chunks.put(("end", b"%d" % status, time.monotonic()))

    def close(self) -> None:
        """Write what is left, within reason."""
        self._chunks.put(None)
        self._thread.join(5.0)

    def _work(self) -> None:
        while (chunk := self._next()) is not None:
            source, data, moment = chunk
            self._record(source, data)
            self._sink.write(self._show(source, data, moment - self._start))
        if self._transcript is not None:
            self._transcript.close()
        self._sink.drain(_DRAIN)

    def _next(self) -> Chunk | None:
        while True:
            try:
                return self._chunks.get(timeout=_TICK if self._sink.waiting else None)
            except queue.Empty:
                self._sink.write("")

    def _record(self, source: str, data: bytes) -> None:
        if self._transcript is None:
            return
        try:
            if source == "client":
                self._transcript.client(data)
            elif source == "server":
                self._transcript.server(data)
        except OSError as error:
            self._transcript = None
            self.note(f"the recording ends here: {error.strerror or error}")

    def _show(self, source: str, data: bytes, at: float) -> str:
        match source:
            case "client" | "server":
                return self._view.receive("client" if source == "client" else "server", data, at)
            case "stderr":
                return self._view.receive_stderr(data, at)
            case "end":
                return self._view.receive_eof(at) + self._view.note(*_ending(int(data), at), exit=int(data))
            case _:
                return self._view.note(data.decode(), at)


def _ending(status: int, at: float) -> tuple[str, float]:
    name = signal_name(128 - status) if status > 128 else None
    return f"the server ended with exit status {status}" + (f" ({name})" if name else ""), at


class _Sink:
    """Stderr, for as long as somebody reads it."""

    def __init__(self) -> None:
        self._outlet = Outlet(_STDERR)
        self._pending = b""
        self._lost = 0

    @property
    def waiting(self) -> bool:
        """Whether something is still to be written."""
        return bool(self._pending)

    def write(self, text: str) -> None:
        """Write what goes out without blocking, and keep the rest for the next time."""
        if len(self._pending) > _BACKLOG:
            self._lost += text.count("\n")
        else:
            self._pending += text.encode("utf-8", "backslashreplace")
        try:
            self._pending = self._write_some(self._pending)
        except OSError:
            self._pending = b""
        if self._lost and not self._pending:
            lost, self._lost = self._lost, 0
            self.write(f"          -- {lost} lines are not shown: nobody read them\n")

    def drain(self, seconds: float) -> None:
        """Wait for a reader."""
        give_up = time.monotonic() + seconds
        while self._pending and time.monotonic() < give_up:
            time.sleep(_TICK)
            self.write("")

    def _write_some(self, data: bytes) -> bytes:
        if can_poll:
            return self._outlet.write_some(data)
        write_all(_STDERR, data)
        return b""
