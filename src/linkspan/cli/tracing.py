"""What went over the wire, in words: chunks of bytes in, lines of a trace out. Knows no clock and no descriptors."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from typing import Any, Final

import msgspec

from linkspan.cli.terminal import Style, dump
from linkspan.testing.transcripts import Side
from linkspan.types.base import JSON, JSONObject, is_array, is_object
from linkspan.wire.framing import LineReader, TooLong
from linkspan.wire.plain import neutral
from linkspan.wire.redaction import Redactor

__all__ = ["TraceView"]

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
