"""Files that only their owner can read: recordings and conversations."""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from typing import Final, TextIO

__all__ = ["open_private"]

_OWNER_ONLY: Final = 0o600


def open_private(path: str | os.PathLike[str], errors: str = "strict") -> TextIO:
    """Open a text file to be written anew, readable by its owner only, also if it was there before. Raises: OSError."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | getattr(os, "O_CLOEXEC", 0), _OWNER_ONLY)
    if hasattr(os, "fchmod") and stat.S_ISREG(os.fstat(descriptor).st_mode):
        with suppress(OSError):  # owned by another user, yet writable
            os.fchmod(descriptor, _OWNER_ONLY)
    return os.fdopen(descriptor, "w", encoding="utf-8", errors=errors)
