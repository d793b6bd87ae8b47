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
from collections.abc import Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from typing import Any, Final, Literal, TypeAlias

import msgspec

from linkspan.cli.relay import GRACE, relay
from linkspan.cli.terminal import Style, dump
from linkspan.runtime.descriptors import Outlet, can_poll, write_all
from linkspan.runtime.process import signal_name
from linkspan.testing.recorder import Side, TranscriptWriter
from linkspan.types.base import JSON, JSONObject, is_array, is_object
from linkspan.wire.framing import LineReader, TooLong
from linkspan.wire.redaction import Redactor, is_secret_name, neutral, redact

__all__ = ["TraceView", "main"]

_MAX_LINE: Final = 64 * 1024 * 1024
_SHOWN: Final = 240
_PREFIX: Final = "io.modelcontextprotocol/"
_ARROWS: dict[str, str] = {"client": "->", "server": "<-"}
_OTHER: dict[Side, Side] = {"client": "server", "server": "client"}


class _Asked(msgspec.Struct, frozen=True):
    method: str
    at: float


class TraceView:
    """Turns what the two sides send into lines. `at` is in seconds since the start."""

    def __init__(
        self,
        *,
        only: Sequence[str] = (),
        hide: Sequence[str] = (),
        as_json: bool = False,
        style: Style | None = None,
        secrets: Iterable[str] = (),
        redacted: bool = True,
    ) -> None:
        """Show the methods that match a pattern of `only` (all without) and none of `hide`, answers with their requests."""
        self._only = only
        self._hide = hide
        self._as_json = as_json
        self._style = style or Style(on=False)
        self._redactor = Redactor(secrets, on=redacted)
        self._readers: dict[str, LineReader] = {side: LineReader(_MAX_LINE) for side in ("client", "server", "stderr")}
        self._asked: dict[tuple[Side, Any], _Asked] = {}

    def receive(self, side: Side, data: bytes, at: float) -> str:
        """Return the lines for what one side has sent."""
        return "".join(self._line(side, line, at) for line in self._readers[side].receive_data(data))

    def receive_stderr(self, data: bytes, at: float) -> str:
        """Return the lines for what the server wrote to stderr."""
        return "".join(self._stderr_line(line, at) for line in self._readers["stderr"].receive_data(data))

    def receive_eof(self, at: float) -> str:
        """Return the lines for what had no end of line."""
        sides: tuple[Side, Side] = ("client", "server")
        rests = [self._line(side, line, at) for side in sides for line in self._readers[side].receive_eof()]
        rests += [self._stderr_line(line, at) for line in self._readers["stderr"].receive_eof()]
        return "".join(rests)

    def note(self, text: str, at: float, **members: JSON) -> str:
        """Return the line for something that happened to the processes."""
        if self._as_json:
            return self._object(at, members or {"note": text})
        return self._plain(at, self._style.dim("--"), self._style.dim(neutral(self._redactor.text(text))))

    # Lines that are messages, and lines that are not.

    def _line(self, side: Side, line: bytes | TooLong, at: float) -> str:
        if isinstance(line, TooLong):
            return self._junk(side, f"(more than {_MAX_LINE} bytes in one line)", at)
        try:
            value: JSON = msgspec.json.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return self._junk(side, line.decode("utf-8", "backslashreplace"), at)
        if is_array(value) and value:
            return "".join(self._message(side, each, at) for each in value)
        return self._message(side, value, at)

    def _junk(self, side: Side, text: str, at: float) -> str:
        if self._as_json:
            return self._object(at, {"from": side, "kind": "junk", "text": self._redactor.text(text)})
        shown = self._style.red("not a message: ") + neutral(_cut(self._redactor.text(text)))
        return self._plain(at, _ARROWS[side], shown)

    def _stderr_line(self, line: bytes | TooLong, at: float) -> str:
        text = "(a line that is too long)" if isinstance(line, TooLong) else line.decode("utf-8", "backslashreplace")
        text = self._redactor.text(text.rstrip("\r"))
        if self._as_json:
            return self._object(at, {"from": "server", "kind": "stderr", "text": text})
        return self._plain(at, "  ", self._style.dim("stderr| ") + neutral(text))

    def _message(self, side: Side, message: JSON, at: float) -> str:
        if not is_object(message) or not (
            isinstance(message.get("method"), str) or {"result", "error"} & message.keys()
        ):
            return self._junk(side, dump(message, None), at)
        method, request_id = message.get("method"), _key(message.get("id"))
        if isinstance(method, str):
            if request_id is not None:
                self._asked[side, request_id] = _Asked(method, at)
            kind, seconds = ("notification" if "id" not in message else "request"), None
        else:
            asked = self._asked.pop((_OTHER[side], request_id), None)
            method, seconds = (asked.method, at - asked.at) if asked is not None else ("", None)
            kind = "error" if "error" in message else "result"
        message = self._redactor.message(message)  # also of what is not shown: a form says which answers are secret
        if not self._wanted(method):
            return ""
        if self._as_json:
            facts: JSONObject = {"from": side, "kind": kind, "method": method}
            if seconds is not None:
                facts["milliseconds"] = round(seconds * 1000, 3)
            return self._object(at, {**facts, "message": message})
        return self._plain(at, _ARROWS[side], " ".join(filter(None, self._words(kind, method, seconds, message))))

    def _wanted(self, method: str) -> bool:
        """What nobody asked for is shown in any case."""
        if any(fnmatchcase(method, pattern) for pattern in self._hide):
            return False
        return not self._only or not method or any(fnmatchcase(method, pattern) for pattern in self._only)

    def _words(self, kind: str, method: str, seconds: float | None, message: JSONObject) -> Iterator[str]:
        style, name = self._style, neutral(method) or "an unknown request"
        took = "" if seconds is None else f"({_duration(seconds)})"
        if kind in ("request", "notification"):
            yield style.bold(name)
        elif kind == "result":
            failed = is_object(message["result"]) and message["result"].get("isError") is True
            yield f"{style.red('error result') if failed else 'result'} of {name} {style.dim(took)}".rstrip()
        else:
            yield f"{style.red('error')} of {name} {style.dim(took)}".rstrip()
        if message.get("id") is not None:
            yield style.dim(f"#{neutral(str(message['id']))}")
        body = message.get("params") if kind in ("request", "notification") else message.get(kind)
        body = _without_envelope(body)
        yield style.dim(_cut(dump(body, None))) if body else ""

    # How a line looks.

    def _plain(self, at: float, arrow: str, text: str) -> str:
        text = text.replace("\n", "\\n").replace("\t", " ")
        return f"{self._style.dim(f'{at:9.3f}')} {self._style.cyan(arrow)} {text}\n"

    def _object(self, at: float, members: JSONObject) -> str:
        return dump({"time": round(at, 6), **members}, None) + "\n"


def _key(request_id: JSON) -> Any:
    """An id with its type, since 7 is not "7"."""
    return (type(request_id), request_id) if isinstance(request_id, int | str) else None


def _without_envelope(body: JSON) -> JSON:
    """Leave out what every message of the modern era says again."""
    meta = body.get("_meta") if is_object(body) else None
    if not is_object(body) or not is_object(meta):
        return body
    kept = {name: value for name, value in meta.items() if not name.startswith(_PREFIX) or name.endswith("Id")}
    plain = {name: value for name, value in body.items() if name != "_meta"}
    return {**plain, "_meta": kept} if kept else plain


def _cut(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}... ({len(text):,} characters)"


def _duration(seconds: float) -> str:
    return (
        f"{seconds:.1f} s"
        if seconds >= 10
        else f"{seconds * 1000:.0f} ms"
        if seconds >= 0.01
        else f"{seconds * 1000:.1f} ms"
    )


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
