"""`ClientGroup`: many servers through one door, for asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack

from linkspan.client.catalogue import Entry, UnknownName
from linkspan.client.errors import ClientError
from linkspan.client.results import ToolResult
from linkspan.host.members import Members
from linkspan.io.client import Client
from linkspan.io.face import CallKeywords
from linkspan.types.prompts import GetPromptResult, Prompt
from linkspan.types.resources import ReadResourceResult, Resource, ResourceTemplate
from linkspan.types.tools import Tool

__all__ = ["ClientGroup"]

T = TypeVar("T")


class ClientGroup(Members[Client]):
    """Several servers, started at once. One that fails is left out, and tried again when it is needed.

        async with ClientGroup({"dice": "dice.py", "files": ["npx", "-y", "some-server"]}) as group:
            for entry in await group.list_tools():
                print(entry.name, "of", entry.server)
            await group.call_tool("roll", {"sides": 20})

    Names stay as they are unless two servers use the same; then each gets its server's name in front: `dice_roll`.
    """

    _face = Client

    async def connect(self) -> Self:
        """Start all servers at once. None of them failing raises anything: `status()` tells."""
        await self._ask_all(lambda client: client.connect())
        return self

    async def close(self) -> None:
        """End all servers at once."""
        await asyncio.gather(*(client.close() for client in self.clients.values()))

    async def __aenter__(self) -> Self:
        """Connect."""
        return await self.connect()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Close."""
        await self.close()

    async def list_tools(self, *, only: Collection[str] | None = None) -> list[Entry[Tool]]:
        """Return the tools of all servers that can be reached, or `only` of some, by their names in the group."""
        return self._named(self._tools, await self._ask_all(lambda client: client.list_tools(), only))

    async def call_tool(
        self, name: str, arguments: Mapping[str, Any] | None = None, **options: Unpack[CallKeywords]
    ) -> ToolResult:
        """Call a tool by its name in the group; options as for `Client.call_tool`. Raises: UnknownName, ClientError."""
        server, own = await self._find(self._tools.find, name, self.list_tools)
        return await self.client(server).call_tool(own, arguments, **options)

    async def list_prompts(self) -> list[Entry[Prompt]]:
        """Return the prompts of all servers that can be reached, by their names in the group."""
        return self._named(self._prompts, await self._ask_all(lambda client: client.list_prompts()))

    async def get_prompt(
        self, name: str, arguments: Mapping[str, str] | None = None, **options: Unpack[CallKeywords]
    ) -> GetPromptResult:
        """Get a prompt by its name in the group. Raises: UnknownName, ClientError."""
        server, own = await self._find(self._prompts.find, name, self.list_prompts)
        return await self.client(server).get_prompt(own, arguments, **options)

    async def list_resources(self) -> list[Entry[Resource]]:
        """Return the resources of all servers that can be reached; they are called by their URIs."""
        return self._located(await self._ask_all(lambda client: client.list_resources()))

    async def list_resource_templates(self) -> list[Entry[ResourceTemplate]]:
        """Return the resource templates of all servers that can be reached."""
        return self._families(await self._ask_all(lambda client: client.list_resource_templates()))

    async def read_resource(
        self, uri: str, *, server: str | None = None, **options: Unpack[CallKeywords]
    ) -> ReadResourceResult:
        """Read a resource: of the server that lists it, or of `server` (for one that a template makes).

        Raises: UnknownName, ClientError.
        """
        owner = server if server is not None else await self._find(self._owner, uri, self.list_resources)
        return await self.client(owner).read_resource(uri, **options)

    async def _find(self, find: Callable[[str], T], name: str, refresh: Callable[[], Awaitable[object]]) -> T:
        """Look something up; if nobody is known to have it, ask everybody once."""
        try:
            return find(name)
        except UnknownName:
            await refresh()
            return find(name)

    async def _ask_all(
        self, ask: Callable[[Client], Awaitable[T]], only: Collection[str] | None = None
    ) -> dict[str, T]:
        """Ask every server at once; return what came, by server, and remember who failed."""
        asked = {name: client for name, client in self.clients.items() if only is None or name in only}
        outcomes = await asyncio.gather(*(self._ask(client, ask) for client in asked.values()))
        found: dict[str, T] = {}
        for server, outcome in zip(asked, outcomes, strict=True):
            if isinstance(outcome, ClientError):
                self.note(server, outcome)
            else:
                self.note(server, None)
                found[server] = outcome
        return found

    async def _ask(self, client: Client, ask: Callable[[Client], Awaitable[T]]) -> T | ClientError:
        try:
            return await ask(client)
        except ClientError as error:
            return error
