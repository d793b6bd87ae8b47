"""Names of things of several servers in one list: with the server's name in front, and as long as every provider takes."""

from __future__ import annotations

import re
import zlib
from typing import Final

MAX_NAME: Final = 64
"""Characters that every model provider takes in a tool's name."""


def prefixed(server: str, own: str) -> str:
    """Return `server_own`, in the characters and the length that every provider takes."""
    name = f"{re.sub(r'[^A-Za-z0-9_-]+', '_', server).strip('_') or 'server'}_{own}"
    return fitted(name, (server, own))


def fitted(name: str, key: tuple[str, str]) -> str:
    """Return a name that is short enough: a longer one is cut, and a mark made of `key` tells it from others."""
    return name if len(name) <= MAX_NAME else marked(name, key)


def marked(name: str, key: tuple[str, str]) -> str:
    """Return a name that differs from all that begin as it does: it ends with a mark made of `key`."""
    mark = f"_{zlib.crc32(repr(key).encode()):08x}"
    return name[: MAX_NAME - len(mark)] + mark
