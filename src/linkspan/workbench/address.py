"""The address of a workbench, kept for its next run: a window that is still open goes on there.

The port and the key are in a file that its owner alone can read, beside the history. The page sends the key to no program that
has not proven that it knows it, so that another one, which has taken the port over meanwhile, learns nothing.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import stat
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from linkspan.runtime.shared_files import write_private

_LARGEST: Final = 4096
_AGE: Final = 7 * 24 * 3600.0
"""Seconds after which an address that was not used is forgotten."""


class BenchAddress(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A port of this machine, and the key of the page there."""

    port: int
    token: str


def read_address(path: Path | None) -> BenchAddress | None:
    """Return the address of the last run; None if there is none, it is old, or others can read it."""
    if path is None:
        return None
    try:
        with open(path, "rb") as file:
            status = os.fstat(file.fileno())
            if sys.platform != "win32" and (status.st_uid != os.getuid() or stat.S_IMODE(status.st_mode) & 0o077):
                return None
            found = msgspec.json.decode(file.read(_LARGEST), type=BenchAddress)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return None
    is_usable = 0 < found.port < 65536 and len(found.token) >= 32 and found.token.isascii()
    return found if is_usable and abs(time.time() - status.st_mtime) < _AGE else None


def keep_address(path: Path | None, address: BenchAddress) -> None:
    """Keep the address of this run for the next one. Where that fails, the next one has another."""
    if path is None:
        return
    with suppress(OSError):
        write_private(path, [msgspec.json.encode(address).decode()])


def proof_of(token: str, nonce: str, host: str) -> str:
    """Return what proves to a page at `host`, which made the nonce up, that the token is known here."""
    return hmac.new(token.encode(), f"{nonce} {host}".encode(), hashlib.sha256).hexdigest()
