"""`ClientSessionGroup`: several servers, and what they offer together."""

from __future__ import annotations

from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any

from linkspan_compat.client.http import sse_client, streamablehttp_client
from linkspan_compat.client.session import ClientSession
from linkspan_compat.client.stdio import StdioServerParameters, stdio_client
from linkspan_compat.errors import MCPError

__all__ = ["ClientSessionGroup", "ClientSessionParameters", "SseServerParameters", "StreamableHttpParameters"]


@dataclass
class SseServerParameters:
    """A server of the transport of 2024."""

    url: str
    headers: dict[str, Any] | None = None
    timeout: Any = 5
    sse_read_timeout: Any = 300


@dataclass
class StreamableHttpParameters:
    """A server of Streamable HTTP."""

    url: str
    headers: dict[str, Any] | None = None
    timeout: Any = 30
    sse_read_timeout: Any = 300
    terminate_on_close: bool = True


@dataclass
class ClientSessionParameters:
    """What a session of the group gets."""

    read_timeout_seconds: Any = None
    sampling_callback: Any = None
    elicitation_callback: Any = None
    list_roots_callback: Any = None
    logging_callback: Any = None
    message_handler: Any = None
    client_info: Any = None


@dataclass
class _Connected:
    stack: AsyncExitStack
    tools: dict[str, Any] = field(default_factory=dict[str, Any])
    prompts: dict[str, Any] = field(default_factory=dict[str, Any])
    resources: dict[str, Any] = field(default_factory=dict[str, Any])


def _streams(connect: Any, server: SseServerParameters | StreamableHttpParameters) -> Any:
    return connect(**vars(server))


class ClientSessionGroup:
    """Several servers. A name that two of them have is refused, unless `component_name_hook` makes others."""

    def __init__(self, exit_stack: AsyncExitStack | None = None, component_name_hook: Any = None) -> None:
        if exit_stack is not None:
            exit_stack.push_async_exit(self)
        self._name = component_name_hook or (lambda name, info: name)
        self._sessions: dict[ClientSession, _Connected] = {}
        self._owners: dict[str, tuple[ClientSession, str]] = {}

    async def __aenter__(self) -> ClientSessionGroup:
        return self

    async def __aexit__(self, *_: object) -> None:
        for session in list(self._sessions):
            await self.disconnect_from_server(session)

    @property
    def sessions(self) -> list[ClientSession]:
        """The sessions."""
        return list(self._sessions)

    def _joined(self, kind: str) -> dict[str, Any]:
        return {name: each for found in self._sessions.values() for name, each in getattr(found, kind).items()}

    @property
    def tools(self) -> dict[str, Any]:
        """All tools by their names here."""
        return self._joined("tools")

    @property
    def prompts(self) -> dict[str, Any]:
        """All prompts by their names here."""
        return self._joined("prompts")

    @property
    def resources(self) -> dict[str, Any]:
        """All resources by their names here."""
        return self._joined("resources")

    async def connect_to_server(
        self, server_params: Any, session_params: ClientSessionParameters | None = None
    ) -> ClientSession:
        """Connect to a server. Raises: McpError for a name that is taken."""
        stack = AsyncExitStack()
        if isinstance(server_params, StdioServerParameters):
            streams: Any = await stack.enter_async_context(stdio_client(server_params))
        elif isinstance(server_params, SseServerParameters):
            streams = await stack.enter_async_context(_streams(sse_client, server_params))
        else:
            streams = await stack.enter_async_context(_streams(streamablehttp_client, server_params))
        session = ClientSession(streams[0], streams[1], **vars(session_params or ClientSessionParameters()))
        try:
            await stack.enter_async_context(session)
            info = await session.initialize()
            await self.connect_with_session(info.server_info, session, stack)
        except BaseException:
            await stack.aclose()
            raise
        return session

    async def connect_with_session(self, server_info: Any, session: ClientSession, stack: Any = None) -> ClientSession:
        """Take a session that is open already."""
        found = _Connected(stack or AsyncExitStack())
        capabilities = session.get_server_capabilities()
        for kind, ask in (("tools", "list_tools"), ("prompts", "list_prompts"), ("resources", "list_resources")):
            if capabilities is not None and getattr(capabilities, kind) is None:
                continue
            for each in getattr(await getattr(session, ask)(), kind):
                name = self._name(each.name, server_info)
                if name in self._joined(kind):
                    raise MCPError(-32602, f"{name} already exists in group {kind}.")
                getattr(found, kind)[name] = each
                if kind == "tools":
                    self._owners[name] = (session, each.name)
        self._sessions[session] = found
        return session

    async def disconnect_from_server(self, session: ClientSession) -> None:
        """Let a server go. Raises: McpError for one that is not in the group."""
        found = self._sessions.pop(session, None)
        if found is None:
            raise MCPError(-32602, "Provided session is not managed or already disconnected.")
        for name in found.tools:
            self._owners.pop(name, None)
        await found.stack.aclose()

    async def call_tool(self, name: str, arguments: dict[str, Any] | None = None, *args: Any, **options: Any) -> Any:
        """Call a tool by its name here."""
        session, own = self._owners[name]
        return await session.call_tool(own, arguments or options.pop("args", None), *args, **options)
