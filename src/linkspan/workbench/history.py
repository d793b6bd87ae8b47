"""The calls of earlier days: one file for each target, for its owner only, bounded, and without secrets."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from linkspan.runtime.shared_files import write_private
from linkspan.types.base import JSONObject, is_object
from linkspan.wire.jsonrpc import encode
from linkspan.wire.redaction import Redactor

_MOST: Final = 200
_MOST_BYTES: Final = 2 * 1024 * 1024


class CallHistory:
    """A file of exchanges, the oldest first. Without a path nothing is kept. Calls that end at once may write at once."""

    def __init__(self, path: Path | None, redactor: Redactor) -> None:
        self._path = path
        self._redactor = redactor
        self._lock = threading.Lock()
        self._problem: str | None = None

    def read(self) -> list[JSONObject]:
        """Return what was kept; nothing where that cannot be read."""
        found: list[JSONObject] = []
        if self._path is None:
            return found
        with suppress(OSError):
            for line in self._path.read_bytes()[-2 * _MOST_BYTES :].splitlines():
                with suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                    each = msgspec.json.decode(line)
                    found += [each] if is_object(each) and isinstance(each.get("name"), str) else []
        return found[-_MOST:]

    def write(self, shown: Callable[[], Iterable[JSONObject]]) -> str | None:
        """Write the file anew, with the latest of the exchanges of now. Return what fails, unless it failed the last time too."""
        if self._path is None:
            return None
        with self._lock:
            before, self._problem = self._problem, None
            try:
                write_private(self._path, self._lines(shown()))
            except OSError as error:
                self._problem = f"the history is not kept: {error.strerror or error}"
            return self._problem if self._problem != before else None

    def _lines(self, exchanges: Iterable[JSONObject]) -> list[str]:
        kept: list[str] = []
        size = 0
        for each in reversed([*exchanges][-_MOST:]):
            line = encode(self._redactor.message(each)).decode() + "\n"
            size += len(line)
            if size > _MOST_BYTES:
                break
            kept.append(line)
        return kept[::-1]

    def forget(self) -> None:
        """Remove the file."""
        if self._path is not None:
            with suppress(OSError):
                self._path.unlink()


def history_path(folder: Path, target: str) -> Path:
    """Return the file for a target, whose name says nothing of it."""
    return folder / f"{hashlib.sha256(target.encode('utf-8', 'replace')).hexdigest()[:24]}.jsonl"
