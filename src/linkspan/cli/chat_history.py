"""What was typed in chats before: one line each in a file that only its owner can read.

Lines that begin with a blank, and lines that look as if they held a secret, are not kept.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from linkspan.wire.redaction import redact

__all__ = ["History"]

_KEPT: Final = 1000
_OWNER_ONLY: Final = 0o600
_DIRECTORY: Final = 0o700


class History:
    """The file. That it cannot be read or written is no reason not to chat."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def lines(self) -> Iterator[str]:
        """Return what was typed, oldest first."""
        with suppress(OSError):
            lines = self._path.read_text("utf-8", "replace").splitlines()
            if len(lines) > 2 * _KEPT:
                lines = lines[-_KEPT:]
                self._write("".join(f"{line}\n" for line in lines), os.O_TRUNC)
            yield from lines[-_KEPT:]

    def add(self, typed: str) -> bool:
        """Keep a line, if it may be kept, and tell whether it is."""
        line = " ".join(typed.splitlines())
        if not line.strip() or line[0].isspace() or redact(line) != line:
            return False
        with suppress(OSError):
            self._path.parent.mkdir(mode=_DIRECTORY, parents=True, exist_ok=True)
            self._write(f"{line}\n", os.O_APPEND)
        return True

    def _write(self, text: str, how: int) -> None:
        descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | how, _OWNER_ONLY)
        with os.fdopen(descriptor, "w", encoding="utf-8", errors="backslashreplace") as file:
            file.write(text)
