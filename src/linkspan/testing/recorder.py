"""The transcript file, a conversation as text with one message a line, and what writes one while a conversation is held.

    # A comment.
    C: {"jsonrpc": "2.0", "id": 1, "method": "ping"}
    S: {"jsonrpc": "2.0", "id": 1, "result": {}}

`C:` went from the client to the server, `S:` from the server to the client. Members stand in the order in which they
were sent; `"jsonrpc"` may be left out. Secrets are hidden before a line is written.
Law: a line of the file is complete when it is written, so that a recording that was cut short can still be played.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from types import TracebackType
from typing import Final, Literal, TextIO, TypeAlias

import msgspec

from linkspan.runtime.forks import renew
from linkspan.runtime.system import open_private
from linkspan.types.base import JSON, is_object
from linkspan.wire.framing import LineReader, TooLong
from linkspan.wire.jsonrpc import encode
from linkspan.wire.redaction import Redactor, redact_json

Side: TypeAlias = Literal["client", "server"]

_MARKS: dict[Side, str] = {"client": "C", "server": "S"}
_SIDES: dict[str, Side] = {"C": "client", "S": "server"}


class RecordedLine(msgspec.Struct, frozen=True):
    """One line: who sent it, and the message (an array if it was a batch), as JSON builtins."""

    side: Side
    message: JSON


def format_entry(entry: RecordedLine, secrets: Iterable[str] = (), *, redacted: bool = True) -> str:
    """Return the line of an entry, newline included, without its secrets unless `redacted` is False.

    Raises: TypeError if the message cannot be encoded as JSON.
    """
    message = redact_json(entry.message, secrets) if redacted else entry.message
    return f"{_MARKS[entry.side]}: {msgspec.json.format(encode(message), indent=0).decode()}\n"


def parse_transcript(text: str, name: str = "transcript") -> list[RecordedLine]:
    """Read the lines of a transcript. Raises: ValueError that names the line, with `name` as its file."""
    entries: list[RecordedLine] = []
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip() or line.startswith("#"):
            continue
        mark, colon, body = line.partition(":")
        if not colon or mark not in _SIDES:
            raise ValueError(f"{name}:{number}: a line begins with `C:`, `S:` or `#`")
        try:
            message: JSON = msgspec.json.decode(body)
        except (msgspec.DecodeError, RecursionError) as error:
            raise ValueError(f"{name}:{number}: {error}") from None
        entries.append(RecordedLine(_SIDES[mark], {"jsonrpc": "2.0", **message} if is_object(message) else message))
    return entries


def read_transcript(path: str | os.PathLike[str]) -> list[RecordedLine]:
    """Read a transcript file. Raises: OSError; ValueError that names the line."""
    return parse_transcript(Path(path).read_text(encoding="utf-8"), os.fspath(path))


def write_transcript(
    path: str | os.PathLike[str], entries: Iterable[RecordedLine], secrets: Iterable[str] = ()
) -> None:
    """Write a transcript file, without secrets, for its owner only. Raises: OSError."""
    redactor = Redactor(secrets)
    lines = [format_entry(RecordedLine(each.side, redactor.message(each.message)), redacted=False) for each in entries]
    with open_private(path) as file:
        file.write("".join(lines))


_MAX_LINE: Final = 64 * 1024 * 1024
_SHOWN: Final = 200


class TranscriptWriter:
    """A transcript that grows; any thread may add to it.

    with TranscriptWriter("dice.transcript") as transcript:
        transcript.client(b'{"jsonrpc":"2.0","id":1,"method":"ping"}\\n')
        transcript.server(b'{"jsonrpc":"2.0","id":1,"result":{}}\\n')
    """

    def __init__(
        self, target: str | os.PathLike[str] | TextIO, *, secrets: Iterable[str] = (), redacted: bool = True
    ) -> None:
        """Begin a new file, which only its owner can read, or append to an open text stream, which stays open.

        `secrets` are hidden besides what looks like one; `redacted=False` hides nothing. Raises: OSError.
        """
        self._redactor = Redactor(secrets, on=redacted)
        self.start_afresh()
        renew(self)
        self._owned: AbstractContextManager[object] = nullcontext()
        if isinstance(target, str | os.PathLike):
            self._file: TextIO = open_private(target)
            self._owned = self._file
        else:
            self._file = target
        self._closed = False

    def __repr__(self) -> str:
        return (
            f"<TranscriptWriter to {getattr(self._file, 'name', 'a stream')}: {'closed' if self._closed else 'open'}>"
        )

    def start_afresh(self) -> None:
        """Begin with whole lines; in a forked child the rest of one that had begun is the parent's to write."""
        self._lock = threading.Lock()
        self._readers: dict[Side, LineReader] = {"client": LineReader(_MAX_LINE), "server": LineReader(_MAX_LINE)}

    def client(self, data: bytes) -> None:
        """Take what the client sent. Raises: OSError."""
        self._take("client", data)

    def server(self, data: bytes) -> None:
        """Take what the server sent. Raises: OSError."""
        self._take("server", data)

    def comment(self, text: str) -> None:
        """Add a comment. Raises: OSError."""
        with self._lock:
            self._write("".join(f"# {line}\n" for line in self._redactor.text(text).splitlines()))

    def close(self) -> None:
        """Write what is left of lines without an end, and close the file."""
        with self._lock:
            if self._closed:
                return
            for side, reader in self._readers.items():
                self._write("".join(self._line(side, line) for line in reader.receive_eof()))
            self._closed = True
            with self._owned:
                pass

    def __enter__(self) -> TranscriptWriter:
        """Return the writer."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Close the file."""
        self.close()

    def _take(self, side: Side, data: bytes) -> None:
        with self._lock:
            self._write("".join(self._line(side, line) for line in self._readers[side].receive_data(data)))

    def _write(self, text: str) -> None:
        if text and not self._closed:
            self._file.write(text)
            self._file.flush()

    def _line(self, side: Side, line: bytes | TooLong) -> str:
        if isinstance(line, TooLong):
            return f"# The {side} sent more than {_MAX_LINE} bytes in one line.\n"
        try:
            message: JSON = msgspec.json.decode(line)
            return format_entry(RecordedLine(side, self._redactor.message(message)), redacted=False)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            shown = self._redactor.text(line.decode("utf-8", "backslashreplace"))[:_SHOWN]
            return f"# The {side} sent what is no message: {shown!r}\n"
