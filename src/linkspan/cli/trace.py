"""`linkspan trace -- COMMAND ...`: relay between a client and a server on stdio, and show their messages. Over HTTP: trace_http.

Law: a failure of the trace or of the recording does not affect the client and the server.
"""

from __future__ import annotations

import argparse
import os
import queue
import re
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import msgspec

from linkspan.cli.main import parser_for
from linkspan.cli.options import WrongUse, header
from linkspan.cli.relay import GRACE, relay
from linkspan.cli.terminal import Style, dump, milliseconds
from linkspan.runtime.command_lines import command_line
from linkspan.runtime.descriptors import Outbox
from linkspan.runtime.process import signal_name
from linkspan.testing.recorder import Side, TranscriptWriter
from linkspan.text import clip
from linkspan.types.base import JSON, META_PREFIX, JSONObject, is_array, is_object
from linkspan.wire.framing import LineReader, TooLong
from linkspan.wire.redaction import Redactor, is_secret_name, neutral, redact

if TYPE_CHECKING:
    from linkspan.cli.trace_http import TracedUrl

_MAX_LINE: Final = 64 * 1024 * 1024
_SHOWN: Final = 240
_ARROWS: dict[str, str] = {"client": "->", "server": "<-"}
_OTHER: dict[Side, Side] = {"client": "server", "server": "client"}


class TraceView:
    """Turns the traffic of the two sides into lines. `at` is in seconds since the start."""

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
        """Show the methods that match a pattern of `only` (default: all) and no pattern of `hide`, with their responses."""
        self._only = only
        self._hide = hide
        self._as_json = as_json
        self._style = style or Style(on=False)
        self._redactor = Redactor(secrets, on=redacted)
        self._readers: dict[str, LineReader] = {side: LineReader(_MAX_LINE) for side in ("client", "server", "stderr")}
        self._requests: dict[tuple[Side, Any], tuple[str, float]] = {}
        """The method and the time of each request without a response, by its sender and id."""

    def receive(self, side: Side, data: bytes, at: float) -> str:
        """Return the lines for bytes that one side has sent."""
        return "".join(self._line(side, line, at) for line in self._readers[side].receive_data(data))

    def receive_stderr(self, data: bytes, at: float) -> str:
        """Return the lines for bytes that the server wrote to stderr."""
        return "".join(self._stderr_line(line, at) for line in self._readers["stderr"].receive_data(data))

    def receive_eof(self, at: float) -> str:
        """Return the lines for the rest without an end of line."""
        sides: tuple[Side, Side] = ("client", "server")
        rests = [self._line(side, line, at) for side in sides for line in self._readers[side].receive_eof()]
        rests += [self._stderr_line(line, at) for line in self._readers["stderr"].receive_eof()]
        return "".join(rests)

    def note(self, text: str, at: float, **members: JSON) -> str:
        """Return the line for an event of the processes."""
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
        shown = self._style.red("not a message: ") + neutral(_clipped(self._redactor.text(text)))
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
        method, request_id = message.get("method"), message.get("id")
        # The type is part of an id: 7 is not "7".
        key = (type(request_id), request_id) if isinstance(request_id, int | str) else None
        if isinstance(method, str):
            if key is not None:
                self._requests[side, key] = method, at
            kind, seconds = ("notification" if "id" not in message else "request"), None
        else:
            method, since = self._requests.pop((_OTHER[side], key), ("", None))
            seconds = at - since if since is not None else None
            kind = "error" if "error" in message else "result"
        message = self._redactor.message(message)  # even if it is hidden: a form declares which answers are secret
        shown = not self._only or not method or any(fnmatchcase(method, pattern) for pattern in self._only)
        if not shown or any(fnmatchcase(method, pattern) for pattern in self._hide):
            return ""
        if self._as_json:
            facts: JSONObject = {"from": side, "kind": kind, "method": method}
            if seconds is not None:
                facts["milliseconds"] = round(seconds * 1000, 3)
            return self._object(at, {**facts, "message": message})
        return self._plain(at, _ARROWS[side], " ".join(filter(None, self._words(kind, method, seconds, message))))

    def _words(self, kind: str, method: str, seconds: float | None, message: JSONObject) -> Iterator[str]:
        style, name = self._style, neutral(method) or "an unknown request"
        took = "" if seconds is None else f"({milliseconds(seconds, below=10)})"
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
        meta = body.get("_meta") if is_object(body) else None
        if is_object(body) and is_object(meta):  # without what every message of the modern era repeats
            body = {name: value for name, value in body.items() if name != "_meta"}
            kept = {
                name: each for name, each in meta.items() if not name.startswith(META_PREFIX) or name.endswith("Id")
            }
            body |= {"_meta": kept} if kept else {}
        yield style.dim(_clipped(dump(body, None))) if body else ""

    # How a line looks.

    def _plain(self, at: float, arrow: str, text: str) -> str:
        text = text.replace("\n", "\\n").replace("\t", " ")
        return f"{self._style.dim(f'{at:9.3f}')} {self._style.cyan(arrow)} {text}\n"

    def _object(self, at: float, members: JSONObject) -> str:
        return dump({"time": round(at, 6), **members}, None) + "\n"


def _clipped(text: str) -> str:
    return clip(text, _SHOWN, f"... ({len(text):,} characters)")


_NOT_FOUND: Final = 127
_INTERRUPTED: Final = 130
_URL: Final = re.compile(r"https?://", re.IGNORECASE)
_BACKLOG: Final = 1 << 20
"""Bytes of the trace that wait for a reader of stderr. Further lines are counted instead of shown."""

_DRAIN: Final = 0.5
"""Seconds at the end to write the rest of the trace."""

_STDERR: Final = 2

_EXAMPLES = """example, in the configuration of a host:
  "command": "linkspan", "args": ["trace", "--out", "dice.transcript", "--", "python", "dice.py"]

of a server at a URL, by an address that clients use instead:
  linkspan trace https://example.com/mcp --header 'Authorization: Bearer ...'

The trace goes to stderr, which most hosts keep in a log. To play the recording:
  linkspan run dice.transcript"""


def _parser() -> argparse.ArgumentParser:
    usage = "linkspan trace [options] -- COMMAND ...\n       linkspan trace [options] URL"
    about = (
        "Relay between a client and a server, and show their messages on stderr. Of a server at a URL, the first line on"
        " stdout is the address for clients."
    )
    parser = parser_for("linkspan trace", about, _EXAMPLES, usage=usage)
    add: Any = parser.add_argument
    add("--out", metavar="FILE", help="record the conversation in a file that linkspan run can play")
    add("--only", metavar="METHOD", action="append", default=[], help="show these methods only, such as tools/*")
    add("--hide", metavar="METHOD", action="append", default=[], help="do not show these methods")
    add("--json", action="store_true", help="write one JSON object per message")
    add("--no-redact", action="store_true", help="show and record secrets too")
    add("--grace", type=float, default=GRACE, metavar="SECONDS", help=f"wait before SIGTERM ({GRACE})")
    over_http: Any = parser.add_argument_group("for a URL").add_argument
    over_http("--port", type=int, default=0, help="port of the address for clients (any that is free)")
    over_http("-H", "--header", metavar="NAME:VALUE", action="append", default=[], help="send this header (repeatable)")
    over_http("-v", "--verbose", action="store_true", help="show the requests over HTTP with their headers, too")
    add("command", nargs=argparse.REMAINDER, metavar="URL | -- COMMAND ...", help="the server")
    return parser


def main(arguments: Sequence[str]) -> int:
    """Return the exit status of the server, 2 for a wrong command line, 127 if the command does not exist."""
    parser = _parser()
    given = list(arguments)
    urls = [each for each in given[: given.index("--") if "--" in given else None] if _URL.match(each)]
    if urls:  # options may follow it, as with the other verbs
        given.remove(urls[0])
        given += ["--", urls[0]]
    options = parser.parse_args(given)
    command: list[str] = options.command[1:] if options.command[:1] == ["--"] else options.command
    if not command:
        parser.error("the server is missing: linkspan trace -- COMMAND ..., or linkspan trace URL")
    try:
        headers = dict(header(each) for each in options.header)
    except WrongUse as problem:
        parser.error(str(problem))
    if urls and len(command) > 1:
        parser.error(f"name one URL: {' '.join(command[:-1])} is too much")
    redacted = not options.no_redact
    secrets = [value for name, value in os.environ.items() if is_secret_name(name)]
    secrets += headers.values()
    try:
        transcript = TranscriptWriter(options.out, secrets=secrets, redacted=redacted) if options.out else None
    except OSError as error:
        parser.error(f"cannot write {options.out}: {error.strerror or error}")
    view = TraceView(
        only=options.only,
        hide=options.hide,
        as_json=options.json,
        style=Style(on=sys.stderr.isatty() and not os.environ.get("NO_COLOR") and not options.json),
        secrets=secrets,
        redacted=redacted,
    )
    if urls:
        from linkspan.cli.trace_http import TracedUrl

        url, writer = urls[0], _TraceWriter(view, transcript)
        try:
            traced = TracedUrl(
                url,
                writer,
                port=options.port,
                headers=headers,
                secrets=tuple(secrets),
                redacted=redacted,
                show_headers=options.verbose,
            )
        except (OSError, ValueError, OverflowError) as problem:
            writer.close()
            parser.error(str(getattr(problem, "strerror", None) or problem))
        return _trace_url(traced, writer, redact(url, secrets) if redacted else url)
    shown = command_line(command)
    return _trace(command, redact(shown, secrets) if redacted else shown, _TraceWriter(view, transcript), options.grace)


def _trace_url(traced: TracedUrl, writer: _TraceWriter, shown: str) -> int:
    """Serve until Ctrl-C; return the exit status."""
    try:
        print(traced.url, flush=True)
        writer.note(f"{traced.url} passes on to {shown}")
        threading.Event().wait()
    except KeyboardInterrupt:
        pass
    finally:
        traced.close()
        writer.close()
    return _INTERRUPTED


def _trace(command: list[str], shown: str, writer: _TraceWriter, grace: float) -> int:
    """Run the relay; return the exit status."""
    writer.note(f"$ {shown}")
    try:
        status = relay(
            command,
            os.environ,
            on_client=partial(writer.receive, "client"),
            on_server=partial(writer.receive, "server"),
            on_stderr=writer.receive_stderr,
            grace=grace,
        )
    except OSError as error:
        writer.note(f"cannot start {command[0]}: {error.strerror or error}")
        writer.close()
        return _NOT_FOUND
    name = signal_name(128 - status) if status > 128 else None
    writer.receive_eof()
    writer.note(f"the server ended with exit status {status}" + (f" ({name})" if name else ""), exit=status)
    writer.close()
    return status


class _TraceWriter:
    """Writes the trace and the recording in a thread of its own, so that the relay never waits for a disk or a terminal."""

    def __init__(self, view: TraceView, transcript: TranscriptWriter | None) -> None:
        self._view = view
        self._transcript = transcript
        self._start = time.monotonic()
        self._tasks: queue.SimpleQueue[tuple[Callable[[float], str], float] | None] = queue.SimpleQueue()
        """Functions that return lines, each with the moment that it is passed."""
        self._lost = 0
        self._outbox = Outbox(_STDERR, room=_BACKLOG)
        self._thread = threading.Thread(target=self._work, name="linkspan-trace", daemon=True)
        self._thread.start()

    def receive(self, side: Side, data: bytes) -> None:
        """Record and show what one side has sent."""
        self._later(partial(self._recorded, side, data))

    def receive_stderr(self, data: bytes) -> None:
        """Show what the server wrote to stderr."""
        self._later(partial(self._view.receive_stderr, data))

    def receive_eof(self) -> None:
        """Show the rest without an end of line."""
        self._later(self._view.receive_eof)

    def note(self, text: str, **members: JSON) -> None:
        """Show an event of the processes."""
        self._later(partial(self._view.note, text, **members))

    def close(self) -> None:
        """Write the rest, for a few seconds at most."""
        self._tasks.put(None)
        self._thread.join(5.0)

    def _later(self, lines: Callable[[float], str]) -> None:
        self._tasks.put((lines, time.monotonic() - self._start))

    def _recorded(self, side: Side, data: bytes, at: float) -> str:
        try:
            if self._transcript is not None:
                (self._transcript.client if side == "client" else self._transcript.server)(data)
        except OSError as error:
            self._transcript = None
            self.note(f"the recording ends here: {error.strerror or error}")
        return self._view.receive(side, data, at)

    def _work(self) -> None:
        while (task := self._tasks.get()) is not None:
            lines, at = task
            text = lines(at)
            if self._outbox.full:
                self._lost += text.count("\n")
            else:
                self._write(text)
        if self._transcript is not None:
            self._transcript.close()
        self._write("")
        self._outbox.end()
        self._outbox.thread.join(_DRAIN)

    def _write(self, text: str) -> None:
        if self._lost:
            text = f"          -- {self._lost} lines are not shown: stderr was not read in time\n{text}"
            self._lost = 0
        if text:
            self._outbox.put(text.encode("utf-8", "backslashreplace"))
