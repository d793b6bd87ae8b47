"""The names of the tools, resources and prompts of many servers: which server has what, and by which name it is called.

A name that only one server has stays as it is. Where names collide, each gets its server's name in front. A name that was
given out is never given to anything else, so that what a model has learned stays true (CLI-8).
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable, Mapping
from typing import Generic, Literal, TypeAlias, TypeVar

import msgspec

from linkspan.flows.client_errors import ClientError
from linkspan.text import did_you_mean

__all__ = [
    "MAX_NAME",
    "Entry",
    "Names",
    "ServerStatus",
    "UnknownName",
]


MAX_NAME = 64
"""Characters that every model provider takes in a tool's name."""

ItemT = TypeVar("ItemT")
Key: TypeAlias = tuple[str, str]
"""A server's name, and the name of something of its own."""


class UnknownName(KeyError):
    """No server of the group has that; the message suggests similar names."""

    def __str__(self) -> str:
        return str(self.args[0])


class Entry(msgspec.Struct, Generic[ItemT], frozen=True):
    """Something of one server, and the name that it has in the group."""

    name: str
    server: str
    item: ItemT


class ServerStatus(msgspec.Struct, frozen=True):
    """How one server of a group is doing."""

    server: str
    state: Literal["connected", "failed", "idle"]
    """idle: not started yet, or not needed since it was lost."""
    protocol_version: str | None = None
    error: ClientError | None = None
    """Why it failed, the last time it was tried."""

    def __str__(self) -> str:
        if self.state == "connected":
            return f"{self.server}: connected ({self.protocol_version})"
        return str(self.error) if self.error is not None else f"{self.server}: {self.state}"


class Names:
    """The names of one kind of things. They are given out when the lists come, and kept."""

    def __init__(self) -> None:
        self._name_of: dict[Key, str] = {}
        self._key_of: dict[str, Key] = {}

    def assign(self, found: Mapping[str, Iterable[str]]) -> None:
        """Give a name to everything that has none yet. `found`: what each server calls its things, by server."""
        given = ((server, own) for server, names in found.items() for own in names)
        new = dict.fromkeys(each for each in given if each not in self._name_of)  # a server may list one name twice
        for server, own in new:
            collides = sum(1 for _, other in new if other == own) > 1 or own in self._key_of
            name = self._free(prefixed(server, own) if collides else own, (server, own))
            self._name_of[server, own] = name
            self._key_of[name] = (server, own)

    def name(self, server: str, own: str) -> str:
        """Return the name in the group of something that was assigned."""
        return self._name_of[server, own]

    def find(self, name: str) -> Key:
        """Return whose it is and what it is called there. Raises: UnknownName."""
        key = self._key_of.get(name)
        if key is None:
            raise UnknownName(f"no server of this group has {name!r}{did_you_mean(name, self._key_of)}")
        return key

    def _free(self, name: str, key: Key) -> str:
        """Return `name`, or one made from it if it is already taken."""
        return name if name not in self._key_of else _shortened(name, key)


def prefixed(server: str, own: str) -> str:
    """Return `server_own`, in the characters and the length that every provider takes."""
    name = f"{re.sub(r'[^A-Za-z0-9_-]+', '_', server).strip('_') or 'server'}_{own}"
    return name if len(name) <= MAX_NAME else _shortened(name, (server, own))


def _shortened(name: str, key: Key) -> str:
    mark = f"_{zlib.crc32(repr(key).encode()):08x}"
    return name[: MAX_NAME - len(mark)] + mark
