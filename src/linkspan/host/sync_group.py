"""`SyncClientGroup`: many servers through one door, for threads."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack

from linkspan.client.catalogue import Entry, UnknownName
from linkspan.client.errors import ClientError
from linkspan.client.results import ToolResult
from linkspan.host.members import Members
from linkspan.io.face import CallKeywords
from linkspan.io.forks import ForkedLock
from linkspan.io.sync_client import SyncClient
from linkspan.io.targets import ServerTarget
from linkspan.types.prompts import GetPromptResult, Prompt
from linkspan.types.resources import ReadResourceResult, Resource, ResourceTemplate
from linkspan.types.tools import Tool

__all__ = ["SyncClientGroup"]

T = TypeVar("T")


class SyncClientGroup(Members[SyncClient]):
    """Several servers, started at once. One that fails is left out, and tried again when it is needed.

        with SyncClientGroup({"dice": "dice.py", "files": ["npx", "-y", "some-server"]}) as group:
            for entry in group.list_tools():
                print(entry.name, "of", entry.server)
            group.call_tool("roll", {"sides": 20})

    Names stay as they are unless two servers use the same; then each gets its server's name in front: `dice_roll`.
    """

    _face = SyncClient

    def __init__(self, servers: Mapping[str, ServerTarget | SyncClient], **options: Any) -> None:
        """Name the servers; each is anything that a client takes, or a client. `options` are for all clients made here."""
        super().__init__(servers, **options)
        self._naming = ForkedLock()

    def connect(self) -> Self:
        """Start all servers at once. None of them failing raises anything: `status()` tells."""
        self._ask_all(lambda client: client.connect())
        return self

    def close(self) -> None:
        """End all servers at once."""
        self._ask_all(lambda client: client.close())

    def __enter__(self) -> Self:
        """Connect."""
        return self.connect()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Close."""
        self.close()

    def list_tools(self, *, only: Collection[str] | None = None) -> list[Entry[Tool]]:
        """Return the tools of all servers that can be reached, or `only` of some, by their names in the group."""
        found = self._ask_all(lambda client: client.list_tools(), only)
        with self._naming:
            return self._named(self._tools, found)

    def call_tool(
        self, name: str, arguments: Mapping[str, Any] | None = None, **options: Unpack[CallKeywords]
    ) -> ToolResult:
        """Call a tool by its name in the group; options as for `SyncClient.call_tool`. Raises: UnknownName, ClientError."""
        server, own = self._find(self._tools.find, name, self.list_tools)
        return self.client(server).call_tool(own, arguments, **options)

    def list_prompts(self) -> list[Entry[Prompt]]:
        """Return the prompts of all servers that can be reached, by their names in the group."""
        found = self._ask_all(lambda client: client.list_prompts())
        with self._naming:
            return self._named(self._prompts, found)

    def get_prompt(
        self, name: str, arguments: Mapping[str, str] | None = None, **options: Unpack[CallKeywords]
    ) -> GetPromptResult:
        """Get a prompt by its name in the group. Raises: UnknownName, ClientError."""
        server, own = self._find(self._prompts.find, name, self.list_prompts)
        return self.client(server).get_prompt(own, arguments, **options)

    def list_resources(self) -> list[Entry[Resource]]:
        """Return the resources of all servers that can be reached; they are called by their URIs."""
        return self._located(self._ask_all(lambda client: client.list_resources()))

    def list_resource_templates(self) -> list[Entry[ResourceTemplate]]:
        """Return the resource templates of all servers that can be reached."""
        return self._families(self._ask_all(lambda client: client.list_resource_templates()))

    def read_resource(
        self, uri: str, *, server: str | None = None, **options: Unpack[CallKeywords]
    ) -> ReadResourceResult:
        """Read a resource: of the server that lists it, or of `server` (for one that a template makes).

        Raises: UnknownName, ClientError.
        """
        owner = server if server is not None else self._find(self._owner, uri, self.list_resources)
        return self.client(owner).read_resource(uri, **options)

    def _find(self, find: Callable[[str], T], name: str, refresh: Callable[[], object]) -> T:
        """Look something up; if nobody is known to have it, ask everybody once."""
        try:
            return find(name)
        except UnknownName:
            refresh()
            return find(name)

    def _ask_all(self, ask: Callable[[SyncClient], T], only: Collection[str] | None = None) -> dict[str, T]:
        """Ask every server at once; return what came, by server, and remember who failed."""
        outcomes: dict[str, T | Exception] = {}

        def ask_one(server: str, client: SyncClient) -> None:
            try:
                outcomes[server] = ask(client)
            except Exception as error:
                outcomes[server] = error

        asked = {name: client for name, client in self.clients.items() if only is None or name in only}
        threads = [threading.Thread(target=ask_one, args=each, daemon=True) for each in asked.items()]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        found: dict[str, T] = {}
        for server in asked:
            outcome = outcomes[server]
            if isinstance(outcome, ClientError):
                self.note(server, outcome)
            elif isinstance(outcome, Exception):
                raise outcome
            else:
                self.note(server, None)
                found[server] = outcome
        return found
