"""The clients of a host as one: which server has what, by which name it is called, and when each one is connected."""

from __future__ import annotations

import threading
from abc import abstractmethod
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Literal, Self, TypeAlias, TypeVar, Unpack, cast

import msgspec

from linkspan.client.base import BaseClient, CallKeywords
from linkspan.client.targets import ServerTarget, read_config
from linkspan.core.extension import Extension, MakesExtension
from linkspan.flows.client_errors import ClientError
from linkspan.flows.tool_results import ToolResult
from linkspan.naming import marked, prefixed
from linkspan.runtime.forks import ForkedLock
from linkspan.text import did_you_mean
from linkspan.types.messages import GetPromptResult, Prompt, ReadResourceResult, Resource, ResourceTemplate, Tool

if TYPE_CHECKING:
    from linkspan.client.client import Client
    from linkspan.client.sync_client import SyncClient

EntryT = TypeVar("EntryT")
Key: TypeAlias = tuple[str, str]
"""A server's name, and the name of something of its own."""


State: TypeAlias = Literal["connected", "failed", "idle"]


class UnknownName(KeyError):
    """No server of the group has that; the message suggests similar names."""

    def __str__(self) -> str:
        return str(self.args[0])


class GroupEntry(msgspec.Struct, Generic[EntryT], frozen=True):
    """Something of one server, and the name that it has in the group."""

    name: str
    server: str
    item: EntryT


class ServerStatus(msgspec.Struct, frozen=True):
    """How one server of a group is doing."""

    server: str
    state: State
    """idle: not started yet, or not needed since it was lost."""
    protocol_version: str | None = None
    error: ClientError | None = None
    """Why it failed, the last time it was tried."""

    def __str__(self) -> str:
        if self.state == "connected":
            return f"{self.server}: connected ({self.protocol_version})"
        return str(self.error) if self.error is not None else f"{self.server}: {self.state}"


class GroupNames:
    """The names of one kind of things. They are given out when the lists come, and kept."""

    def __init__(self) -> None:
        self._name_of: dict[Key, str] = {}
        self._key_of: dict[str, Key] = {}

    def assign(self, found: Mapping[str, Iterable[str]]) -> None:
        """Give a name to everything that has none yet. `found`: what each server calls its things, by server."""
        given = ((server, own) for server, names in found.items() for own in names)
        new = dict.fromkeys(each for each in given if each not in self._name_of)  # a server may list one name twice
        times = Counter(own for _, own in new)
        for server, own in new:
            collides = times[own] > 1 or own in self._key_of
            name = prefixed(server, own) if collides else own
            if name in self._key_of:
                name = marked(name, (server, own))
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


T = TypeVar("T")
FaceT = TypeVar("FaceT", bound=BaseClient)
ItemT = TypeVar("ItemT", Tool, Prompt)


def check_servers(owner: str, servers: object) -> None:
    """Raise TypeError for anything but a mapping of servers."""
    if not isinstance(servers, Mapping):
        raise TypeError(
            f"{owner}() takes a mapping from names to servers, such as {{'shop': 'https://shop.example/mcp'}}, "
            f"not a {type(servers).__name__}"
        )


class _Group(Generic[FaceT]):
    """The servers of a group, and its catalogue. The subclasses add how to wait."""

    def __init__(
        self,
        servers: Mapping[str, ServerTarget | FaceT],
        *,
        extensions: Sequence[Extension | MakesExtension] = (),
        **options: Any,
    ) -> None:
        """Name the servers; each is anything that a client takes, or a client.

        `extensions`, such as `Tasks()`, and `options` are for all clients made here.
        """
        check_servers(type(self).__name__, servers)
        face = self._face()
        options["extensions"] = extensions
        self.clients: dict[str, FaceT] = {
            name: target if isinstance(target, face) else face(cast("ServerTarget", target), name=name, **options)
            for name, target in servers.items()
        }
        self._errors: dict[str, ClientError] = {}
        self._tools = GroupNames()
        self._prompts = GroupNames()
        self._owner_of: dict[str, str] = {}
        self._naming = ForkedLock()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {', '.join(self.clients) or 'no servers'}>"

    @classmethod
    @abstractmethod
    def _face(cls) -> type[FaceT]:
        """Return the class of the clients, which is imported for the first group."""

    @classmethod
    def from_config(cls, path: str | Path, **options: Any) -> Self:
        """Take the servers of an mcp.json. Raises: UnusableTarget, a ValueError."""
        return cls(read_config(path), **options)

    def status(self) -> list[ServerStatus]:
        """Return the state of each server."""
        found: list[ServerStatus] = []
        for name, client in self.clients.items():
            error = None if client.connected else self._errors.get(name)
            state: State = "connected" if client.connected else "failed" if error is not None else "idle"
            found.append(ServerStatus(name, state, client.protocol_version if client.connected else None, error))
        return found

    def client(self, server: str) -> FaceT:
        """Return the client of one server. Raises: UnknownName."""
        found = self.clients.get(server)
        if found is None:
            raise UnknownName(f"this group has no server {server!r}; it has {', '.join(self.clients) or 'none'}")
        return found

    def find_tool(self, name: str) -> tuple[str, str]:
        """Return the server of a tool, and the tool's name there. Raises: UnknownName, with what is near."""
        return self._tools.find(name)

    def reserve_tool_names(self, names: Sequence[str]) -> None:
        """Keep names for tools of your own: a server that uses one gets its own name in front. Before any list comes."""
        self._tools.assign({"": names})

    def note(self, server: str, error: ClientError | None) -> None:
        """Record the last error of a server, or its success, for `status`."""
        if error is None:
            self._errors.pop(server, None)
        else:
            self._errors[server] = error

    def _asked(self, only: Collection[str] | None) -> dict[str, FaceT]:
        return {name: client for name, client in self.clients.items() if only is None or name in only}

    def _collected(self, outcomes: Iterable[tuple[str, T | BaseException]]) -> dict[str, T]:
        """Return what came, by server, and note which servers failed. Raises: any other exception."""
        found: dict[str, T] = {}
        for server, outcome in outcomes:
            if isinstance(outcome, BaseException) and not isinstance(outcome, ClientError):
                raise outcome
            self.note(server, outcome if isinstance(outcome, ClientError) else None)
            if not isinstance(outcome, BaseException):
                found[server] = outcome
        return found

    def _named(self, names: GroupNames, found: Mapping[str, Sequence[ItemT]]) -> list[GroupEntry[ItemT]]:
        entries: dict[tuple[str, str], GroupEntry[ItemT]] = {}
        with self._naming:
            names.assign({server: [each.name for each in items] for server, items in found.items()})
            for server, items in found.items():
                for each in items:  # of two with one name, the first is called
                    entries.setdefault((server, each.name), GroupEntry(names.name(server, each.name), server, each))
        return list(entries.values())

    def _located(self, found: Mapping[str, Sequence[Resource]]) -> list[GroupEntry[Resource]]:
        """Resources are called by their URI; of two servers with the same one, the first is asked."""
        entries = [GroupEntry(each.uri, server, each) for server, items in found.items() for each in items]
        for entry in entries:
            self._owner_of.setdefault(entry.name, entry.server)
        return entries

    def _owner(self, uri: str) -> str:
        """Return which server lists a resource. Raises: UnknownName."""
        owner = self._owner_of.get(uri)
        if owner is None:
            raise UnknownName(f"no server of this group lists {uri!r}; name the server that has it: server=...")
        return owner

    def _families(self, found: Mapping[str, Sequence[ResourceTemplate]]) -> list[GroupEntry[ResourceTemplate]]:
        return [GroupEntry(each.uri_template, server, each) for server, items in found.items() for each in items]


class ClientGroup(_Group["Client"]):
    """Several servers, started at once. One that fails is left out, and tried again when it is needed.

        async with ClientGroup({"dice": "dice.py", "files": ["npx", "-y", "some-server"]}) as group:
            for entry in await group.list_tools():
                print(entry.name, "of", entry.server)
            await group.call_tool("roll", {"sides": 20})

    Names stay as they are unless two servers use the same; then each gets its server's name in front: `dice_roll`.
    """

    @classmethod
    def _face(cls) -> type[Client]:
        from linkspan.client.client import Client

        return Client

    async def connect(self) -> Self:
        """Start all servers at once. A server that fails raises nothing: see `status()`."""
        await self._ask_all(lambda client: client.connect())
        return self

    async def close(self) -> None:
        """End all servers at once."""
        import asyncio

        await asyncio.gather(*(client.close() for client in self.clients.values()))

    async def __aenter__(self) -> Self:
        """Connect."""
        return await self.connect()

    async def __aexit__(self, *_: object) -> None:
        """Close."""
        await self.close()

    async def list_tools(self, *, only: Collection[str] | None = None) -> list[GroupEntry[Tool]]:
        """Return the tools of all servers that can be reached, or `only` of some, by their names in the group."""
        return self._named(self._tools, await self._ask_all(lambda client: client.list_tools(), only))

    async def call_tool(
        self, name: str, arguments: Mapping[str, Any] | None = None, **options: Unpack[CallKeywords]
    ) -> ToolResult:
        """Call a tool by its name in the group; options as for `Client.call_tool`. Raises: UnknownName, ClientError."""
        server, own = await self._find(self._tools.find, name, self.list_tools)
        return await self.client(server).call_tool(own, arguments, **options)

    async def list_prompts(self, *, only: Collection[str] | None = None) -> list[GroupEntry[Prompt]]:
        """Return the prompts of all servers that can be reached, or `only` of some, by their names in the group."""
        return self._named(self._prompts, await self._ask_all(lambda client: client.list_prompts(), only))

    async def get_prompt(
        self, name: str, arguments: Mapping[str, str] | None = None, **options: Unpack[CallKeywords]
    ) -> GetPromptResult:
        """Get a prompt by its name in the group. Raises: UnknownName, ClientError."""
        server, own = await self._find(self._prompts.find, name, self.list_prompts)
        return await self.client(server).get_prompt(own, arguments, **options)

    async def list_resources(self, *, only: Collection[str] | None = None) -> list[GroupEntry[Resource]]:
        """Return the resources of all servers that can be reached, or `only` of some, by their URIs."""
        return self._located(await self._ask_all(lambda client: client.list_resources(), only))

    async def list_resource_templates(
        self, *, only: Collection[str] | None = None
    ) -> list[GroupEntry[ResourceTemplate]]:
        """Return the resource templates of all servers that can be reached, or `only` of some."""
        return self._families(await self._ask_all(lambda client: client.list_resource_templates(), only))

    async def read_resource(
        self, uri: str, *, server: str | None = None, **options: Unpack[CallKeywords]
    ) -> ReadResourceResult:
        """Read a resource: of the server that lists it, or of `server` (for one that a template makes).

        Raises: UnknownName, ClientError.
        """
        owner = server if server is not None else await self._find(self._owner, uri, self.list_resources)
        return await self.client(owner).read_resource(uri, **options)

    async def _find(self, find: Callable[[str], T], name: str, refresh: Callable[[], Awaitable[object]]) -> T:
        """Look something up; if no server is known to have it, refresh the lists once."""
        try:
            return find(name)
        except UnknownName:
            await refresh()
            return find(name)

    async def _ask_all(
        self, ask: Callable[[Client], Awaitable[T]], only: Collection[str] | None = None
    ) -> dict[str, T]:
        """Ask every server at once."""
        import asyncio

        asked = self._asked(only)
        outcomes = await asyncio.gather(*(ask(client) for client in asked.values()), return_exceptions=True)
        return self._collected(zip(asked, outcomes, strict=True))


class SyncClientGroup(_Group["SyncClient"]):
    """Several servers, started at once. One that fails is left out, and tried again when it is needed.

        with SyncClientGroup({"dice": "dice.py", "files": ["npx", "-y", "some-server"]}) as group:
            for entry in group.list_tools():
                print(entry.name, "of", entry.server)
            group.call_tool("roll", {"sides": 20})

    Names stay as they are unless two servers use the same; then each gets its server's name in front: `dice_roll`.
    """

    @classmethod
    def _face(cls) -> type[SyncClient]:
        from linkspan.client.sync_client import SyncClient

        return SyncClient

    def connect(self) -> Self:
        """Start all servers at once. A server that fails raises nothing: see `status()`."""
        self._ask_all(lambda client: client.connect())
        return self

    def close(self) -> None:
        """End all servers at once."""
        self._ask_all(lambda client: client.close())

    def __enter__(self) -> Self:
        """Connect."""
        return self.connect()

    def __exit__(self, *_: object) -> None:
        """Close."""
        self.close()

    def list_tools(self, *, only: Collection[str] | None = None) -> list[GroupEntry[Tool]]:
        """Return the tools of all servers that can be reached, or `only` of some, by their names in the group."""
        return self._named(self._tools, self._ask_all(lambda client: client.list_tools(), only))

    def call_tool(
        self, name: str, arguments: Mapping[str, Any] | None = None, **options: Unpack[CallKeywords]
    ) -> ToolResult:
        """Call a tool by its name in the group; options as for `SyncClient.call_tool`. Raises: UnknownName, ClientError."""
        server, own = self._find(self._tools.find, name, self.list_tools)
        return self.client(server).call_tool(own, arguments, **options)

    def list_prompts(self, *, only: Collection[str] | None = None) -> list[GroupEntry[Prompt]]:
        """Return the prompts of all servers that can be reached, or `only` of some, by their names in the group."""
        return self._named(self._prompts, self._ask_all(lambda client: client.list_prompts(), only))

    def get_prompt(
        self, name: str, arguments: Mapping[str, str] | None = None, **options: Unpack[CallKeywords]
    ) -> GetPromptResult:
        """Get a prompt by its name in the group. Raises: UnknownName, ClientError."""
        server, own = self._find(self._prompts.find, name, self.list_prompts)
        return self.client(server).get_prompt(own, arguments, **options)

    def list_resources(self, *, only: Collection[str] | None = None) -> list[GroupEntry[Resource]]:
        """Return the resources of all servers that can be reached, or `only` of some, by their URIs."""
        return self._located(self._ask_all(lambda client: client.list_resources(), only))

    def list_resource_templates(self, *, only: Collection[str] | None = None) -> list[GroupEntry[ResourceTemplate]]:
        """Return the resource templates of all servers that can be reached, or `only` of some."""
        return self._families(self._ask_all(lambda client: client.list_resource_templates(), only))

    def read_resource(
        self, uri: str, *, server: str | None = None, **options: Unpack[CallKeywords]
    ) -> ReadResourceResult:
        """Read a resource: of the server that lists it, or of `server` (for one that a template makes).

        Raises: UnknownName, ClientError.
        """
        owner = server if server is not None else self._find(self._owner, uri, self.list_resources)
        return self.client(owner).read_resource(uri, **options)

    def _find(self, find: Callable[[str], T], name: str, refresh: Callable[[], object]) -> T:
        """Look something up; if no server is known to have it, refresh the lists once."""
        try:
            return find(name)
        except UnknownName:
            refresh()
            return find(name)

    def _ask_all(self, ask: Callable[[SyncClient], T], only: Collection[str] | None = None) -> dict[str, T]:
        """Ask every server at once."""
        outcomes: dict[str, T | Exception] = {}

        def ask_one(server: str, client: SyncClient) -> None:
            try:
                outcomes[server] = ask(client)
            except Exception as error:
                outcomes[server] = error

        asked = self._asked(only)
        threads = [threading.Thread(target=ask_one, args=each, daemon=True) for each in asked.items()]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return self._collected((server, outcomes[server]) for server in asked)
