"""Write a conversation to a transcript while it is held. Takes the raw bytes of both directions, in any chunks.

Law: a line of the file is complete when it is written, so that a recording that was cut short can still be played.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from types import TracebackType
from typing import Final, TextIO

import msgspec

from linkspan.io.forks import renew
from linkspan.io.private import open_private
from linkspan.testing.transcripts import Entry, Side, format_entry
from linkspan.types.base import JSON
from linkspan.wire.framing import LineReader, TooLong
from linkspan.wire.redaction import Redactor

__all__ = ["TranscriptWriter"]

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
            return format_entry(Entry(side, self._redactor.message(message)), redacted=False)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            shown = self._redactor.text(line.decode("utf-8", "backslashreplace"))[:_SHOWN]
            return f"# The {side} sent what is no message: {shown!r}\n"
