"""`mcp.Client` of version 2: a client of a URL, a transport, or a server in this process."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import Any, Literal, Self

from linkspan_compat.client.memory import connects
from linkspan_compat.client.session import ClientSession
from linkspan_compat.keywords import check
from linkspan_compat.server.versions import HANDSHAKE_PROTOCOL_VERSIONS, MODERN_PROTOCOL_VERSIONS

__all__ = ["Client", "era_of"]


class Client:
    """A client: `async with Client(server) as client`. What a session has, it has, too."""

    def __init__(self, server: Any, *, mode: str = "auto", **options: Any) -> None:
        """Prepare a client; `mode` is `auto`, `legacy` for the handshake, or a revision."""
        self._server = server
        self._era: Literal["modern", "legacy"] | None = era_of(mode)
        self._options = {name: options.pop(name) for name in _CALLBACKS if name in options}
        check(
            "Client",
            options,
            "raise_exceptions prior_discover input_required_max_rounds cache extensions result_claims",
        )
        self._stack = AsyncExitStack()
        self._session: ClientSession | None = None

    async def __aenter__(self) -> Self:
        server = self._server
        if isinstance(server, str):
            from linkspan_compat.client.http import streamablehttp_client

            streams: Any = await self._stack.enter_async_context(streamablehttp_client(server))
        elif hasattr(server, "__aenter__"):
            streams = await self._stack.enter_async_context(server)
        else:
            from linkspan_compat.client.ends import ends

            streams = ends(connects(server), "memory")
        session = ClientSession(streams[0], streams[1], **self._options)
        session.era = self._era
        self._session = await self._stack.enter_async_context(session)
        await self._session.initialize()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._session = None
        await self._stack.aclose()

    @property
    def session(self) -> ClientSession:
        """The session. Raises: RuntimeError outside of the block."""
        if self._session is None:
            raise RuntimeError("Client must be used within an async context manager")
        return self._session

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self.session, name)


def era_of(mode: str) -> Literal["modern", "legacy"] | None:
    """Return how a connection is agreed. Raises: ValueError."""
    if mode == "auto":
        return None
    if mode == "legacy" or mode in HANDSHAKE_PROTOCOL_VERSIONS:
        return "legacy"
    if mode in MODERN_PROTOCOL_VERSIONS:
        return "modern"
    known = ", ".join(MODERN_PROTOCOL_VERSIONS)
    raise ValueError(f"mode must be 'auto', 'legacy' or one of {known}, got {mode!r}")


_CALLBACKS = (
    "read_timeout_seconds",
    "sampling_callback",
    "elicitation_callback",
    "list_roots_callback",
    "logging_callback",
    "message_handler",
    "client_info",
    "log_level",
    "sampling_capabilities",
)
