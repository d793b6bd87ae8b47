"""Names that providers accept, and ids where they give none.

MCP allows dots and slashes in the names of tools, and 128 characters; a provider refuses the whole request for one such name.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable, Sequence
from typing import Final

from linkspan.host.messages import AssistantMessage, ModelRequest, ToolSpec

__all__ = ["Ids", "Names", "is_made_up", "short_id"]

_LONGEST: Final = 64
_UNSAFE: Final = re.compile(r"[^a-zA-Z0-9_-]")
_MADE_UP: Final = re.compile(r"ls\d{7}")
_SHORT: Final = re.compile(r"[a-zA-Z0-9]{9}")


class Names:
    """The tools' names as a provider accepts them, and back. Names that it accepts stay as they are."""

    def __init__(self, tools: Sequence[ToolSpec]) -> None:
        """Name these tools, in their order."""
        self._wire: dict[str, str] = {}
        self._own: dict[str, str] = {}
        for name in sorted((tool.name for tool in tools), key=lambda name: safe_name(name) != name):
            self._wire[name] = wire = self._free(safe_name(name))
            self._own[wire] = name

    def to_wire(self, name: str) -> str:
        """Return what the provider calls a tool; it may be one that is no longer offered."""
        return self._wire.get(name) or safe_name(name)

    def from_wire(self, name: str) -> str:
        """Return what we call a tool."""
        return self._own.get(name, name)

    def _free(self, wire: str) -> str:
        """Return a name that is not taken yet."""
        number, free = 1, wire
        while free in self._own:
            number += 1
            free = f"{wire[: _LONGEST - 1 - len(str(number))]}_{number}"
        return free


def safe_name(name: str) -> str:
    """Return a name that every provider accepts; long ones end in a checksum, so that two do not become the same."""
    safe = _UNSAFE.sub("_", name) or "_"
    if not (safe[0].isalpha() or safe[0] == "_"):
        safe = f"_{safe}"
    if len(safe) <= _LONGEST:
        return safe
    return f"{safe[: _LONGEST - 9]}_{zlib.crc32(name.encode('utf-8', 'replace')):08x}"


class Ids:
    """The ids of one message's calls: unique in the conversation, whatever the provider gives."""

    def __init__(self, request: ModelRequest) -> None:
        """Keep clear of the ids that were used before."""
        self._used = set(_ids(request))
        self._next = len(self._used)

    def take(self, given: str) -> str:
        """Return the provider's id, or one of our own if that is missing or was used before."""
        chosen = given
        while not chosen or chosen in self._used:
            self._next += 1
            chosen = f"ls{self._next:07d}"
        self._used.add(chosen)
        return chosen


def is_made_up(use_id: str) -> bool:
    """Tell whether an id is one of ours, which no provider has heard of."""
    return _MADE_UP.fullmatch(use_id) is not None


def short_id(use_id: str) -> str:
    """Return an id of nine letters and digits, which is what Mistral takes; another provider's id always gives the same."""
    if _SHORT.fullmatch(use_id):
        return use_id
    return f"x{zlib.crc32(use_id.encode('utf-8', 'replace')):08x}"


def _ids(request: ModelRequest) -> Iterable[str]:
    for message in request.messages:
        if isinstance(message, AssistantMessage):
            yield from (use.id for use in message.tool_uses)
