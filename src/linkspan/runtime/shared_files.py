"""Files that several processes read, replace and lock, on every system.

On Windows a file cannot be replaced or removed while another process reads it, and not be read while it is replaced. Who comes in
such a moment waits for its end.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final, TypeVar

from linkspan.runtime.system import open_private

_T = TypeVar("_T")
_OWNERS_FOLDER: Final = 0o700
_POLL: Final = 0.02
_LONGEST_MOMENT: Final = 2.0
"""Seconds after which a file is not only in use just now: it may not be changed."""


def read_shared(path: Path) -> bytes:
    """Return what is in a file that others replace. Raises: OSError."""
    return _patiently(path.read_bytes)


def write_private(path: Path, parts: Iterable[str]) -> None:
    """Write a text file that its owner alone can read, in a folder of the same kind, beside it first. Raises: OSError."""
    path.parent.mkdir(_OWNERS_FOLDER, parents=True, exist_ok=True)
    draft = path.with_name(f"{path.name}.{os.getpid()}")
    with open_private(draft) as file:
        file.writelines(parts)
    replace_shared(draft, path)


def replace_shared(draft: Path, path: Path) -> None:
    """Put `draft` in the place of a file that others read. Raises: OSError."""
    _patiently(lambda: os.replace(draft, path))


def remove_shared(path: Path) -> None:
    """Remove a file that others read, if it is there. Raises: OSError."""
    _patiently(lambda: path.unlink(missing_ok=True))


def _patiently(step: Callable[[], _T]) -> _T:
    give_up = time.monotonic() + _LONGEST_MOMENT
    while True:
        try:
            return step()
        except PermissionError:
            if os.name != "nt" or time.monotonic() > give_up:
                raise
            time.sleep(_POLL)


def wait_for_lock(fd: int, patience: float) -> None:
    """Lock a file for as long as `fd` is open, across threads and processes. Raises: TimeoutError after `patience` seconds."""
    give_up = time.monotonic() + patience
    while not _try_lock(fd):
        if time.monotonic() > give_up:
            raise TimeoutError("another process held the lock for too long")
        time.sleep(_POLL)


def unlock(fd: int) -> None:
    """Give back what `wait_for_lock` has locked, whatever copies of `fd` there are."""
    with suppress(OSError):  # a file system without locks
        _release(fd)


if sys.platform == "win32":
    import msvcrt

    def _try_lock(fd: int) -> bool:
        try:
            msvcrt.locking(fd, msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True

    def _release(fd: int) -> None:
        msvcrt.locking(fd, msvcrt.LK_UNLCK, 1)

else:

    def _try_lock(fd: int) -> bool:
        import fcntl

        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError:  # a file system without locks
            return True
        return True

    def _release(fd: int) -> None:
        import fcntl

        fcntl.flock(fd, fcntl.LOCK_UN)
