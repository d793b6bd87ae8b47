"""What the two kinds of group share: which servers there are, what they offer, and who is asked for what."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Generic, Self, TypeVar

from linkspan.client.catalogue import Entry, Names, ServerStatus, UnknownName
from linkspan.client.errors import ClientError
from linkspan.io.face import ClientFace
from linkspan.io.targets import ServerTarget, read_config
from linkspan.types.prompts import Prompt
from linkspan.types.resources import Resource, ResourceTemplate
from linkspan.types.tools import Tool

__all__ = ["Members"]

FaceT = TypeVar("FaceT", bound=ClientFace)
ItemT = TypeVar("ItemT", Tool, Prompt)


class Members(Generic[FaceT]):
    """The servers of a group, and its catalogue. The faces add the way to wait."""

    _face: type[FaceT]

    def __init__(self, servers: Mapping[str, ServerTarget | FaceT], **options: Any) -> None:
        """Name the servers; each is anything that a client takes, or a client. `options` are for all clients made here."""
        self.clients: dict[str, FaceT] = {
            name: target if isinstance(target, ClientFace) else self._face(target, name=name, **options)
            for name, target in servers.items()
        }
        self._errors: dict[str, ClientError] = {}
        self._tools = Names()
        self._prompts = Names()
        self._owner_of: dict[str, str] = {}

    @classmethod
    def from_config(cls, path: str | Path, **options: Any) -> Self:
        """Take the servers of an mcp.json. Raises: UnusableTarget, a ValueError."""
        return cls(read_config(path), **options)

    def status(self) -> list[ServerStatus]:
        """Say how each server is doing."""
        return [self._status(name, client) for name, client in self.clients.items()]

    def _status(self, name: str, client: FaceT) -> ServerStatus:
        if client.connected:
            return ServerStatus(name, "connected", client.protocol_version)
        error = self._errors.get(name)
        return ServerStatus(name, "failed" if error is not None else "idle", error=error)

    def client(self, server: str) -> FaceT:
        """Return the client of one server. Raises: UnknownName."""
        found = self.clients.get(server)
        if found is None:
            raise UnknownName(f"this group has no server {server!r}; it has {', '.join(self.clients) or 'none'}")
        return found

    def find_tool(self, name: str) -> tuple[str, str]:
        """Return whose tool that is, and what it is called there. Raises: UnknownName, with what is near."""
        return self._tools.find(name)

    def reserve_tool_names(self, names: Sequence[str]) -> None:
        """Keep names for tools of your own: a server that uses one gets its own name in front. Before any list comes."""
        self._tools.assign({"": names})

    def note(self, server: str, error: ClientError | None) -> None:
        """Take down how a server did, for `status`."""
        if error is None:
            self._errors.pop(server, None)
        else:
            self._errors[server] = error

    def _named(self, names: Names, found: Mapping[str, Sequence[ItemT]]) -> list[Entry[ItemT]]:
        names.assign({server: [each.name for each in items] for server, items in found.items()})
        entries: dict[tuple[str, str], Entry[ItemT]] = {}
        for server, items in found.items():
            for each in items:  # of two with one name, the first is called
                entries.setdefault((server, each.name), Entry(names.name(server, each.name), server, each))
        return list(entries.values())

    def _located(self, found: Mapping[str, Sequence[Resource]]) -> list[Entry[Resource]]:
        """Resources are called by their URI; of two servers with the same one, the first is asked."""
        for server, items in found.items():
            for each in items:
                self._owner_of.setdefault(each.uri, server)
        return [Entry(each.uri, server, each) for server, items in found.items() for each in items]

    def _owner(self, uri: str) -> str:
        """Return which server lists a resource. Raises: UnknownName."""
        owner = self._owner_of.get(uri)
        if owner is None:
            raise UnknownName(f"no server of this group lists {uri!r}; name the server that has it: server=...")
        return owner

    def _families(self, found: Mapping[str, Sequence[ResourceTemplate]]) -> list[Entry[ResourceTemplate]]:
        return [Entry(each.uri_template, server, each) for server, items in found.items() for each in items]
