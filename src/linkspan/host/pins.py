"""Definitions of tools, pinned on first use: a server cannot change afterwards what a tool says it does.

Until the person has accepted a change, the model is shown the definition that was pinned, never the new one.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping

import msgspec

from linkspan.host.memory import Memory
from linkspan.types.base import JSON, JSONObject
from linkspan.types.tools import Tool
from linkspan.wire.plain import revealed
from linkspan.wire.values import to_builtins

__all__ = ["Definition", "Pins"]

_SAID = ("title", "description", "inputSchema", "outputSchema", "annotations")
"""What a model or a person decides by. Icons and `_meta` may change without a question."""


class Definition(msgspec.Struct, frozen=True):
    """A tool as it may be shown, and how its server's present definition differs from that."""

    tool: Tool
    change: str = ""
    """A diff to read: lines that went begin with `-`, new ones with `+`. Empty if nothing changed."""


class Pins:
    """The definitions that a person has used, by the keys of tools: see `linkspan.host.identity`."""

    def __init__(self, memory: Memory) -> None:
        """Keep them in `memory`."""
        self._memory = memory

    def definition(self, key: str, tool: Tool) -> Definition:
        """Return how a tool may be shown."""
        pinned = self._memory.pinned(key)
        said = _said(tool)
        if pinned is None or pinned == said:
            return Definition(tool)
        try:
            shown = msgspec.convert({**pinned, "name": tool.name}, Tool)
        except msgspec.ValidationError:  # somebody wrote into the file
            shown = tool
        return Definition(shown, _difference(pinned, said))

    def pin(self, key: str, tool: Tool) -> None:
        """Pin a tool as its server defines it now."""
        self._memory.pin(key, _said(tool))


def _said(tool: Tool) -> JSONObject:
    whole: Mapping[str, JSON] = to_builtins(tool)
    return {key: whole[key] for key in _SAID if key in whole}


def _difference(before: JSONObject, after: JSONObject) -> str:
    lines = difflib.unified_diff(_lines(before), _lines(after), n=1, lineterm="")
    return "\n".join(line for line in lines if not line.startswith(("---", "+++", "@@")))


def _lines(definition: JSONObject) -> list[str]:
    """One line for each line of the description, and each member of a schema: what changed is then one line."""
    found: list[str] = []
    for key in _SAID:
        value: JSON = definition.get(key)
        if isinstance(value, str):
            found += [f"{key}: {line}" for line in revealed(value).splitlines()]
        elif value is not None:
            found += [f"{key} {line}" for line in json.dumps(value, indent=1, sort_keys=True).splitlines()]
    return found
