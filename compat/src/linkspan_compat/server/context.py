"""`Context` of the SDK's FastMCP and MCPServer: what a tool knows of its request and sends to its client."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from linkspan_compat.server.requests import RequestContext, ServerSession

if TYPE_CHECKING:
    from linkspan_compat.server.mcpserver import MCPServer

__all__ = ["Context"]


class _Subscriptable(type):
    """`Context[A]`, `Context[A, B]` and `Context[A, B, C]` are the class itself: no hint needs the difference."""

    def __getitem__(cls, _: object) -> type:
        return cls


class Context(metaclass=_Subscriptable):
    """The context of a request."""

    def __init__(
        self,
        *,
        request_context: RequestContext | None = None,
        fastmcp: MCPServer | None = None,
        mcp_server: MCPServer | None = None,
    ) -> None:
        self._request_context = request_context
        self._server = mcp_server or fastmcp

    @property
    def fastmcp(self) -> Any:
        """The server. Raises: ValueError outside of a request."""
        if self._server is None:
            raise ValueError("Context is not available outside of a request")
        return self._server

    @property
    def mcp_server(self) -> Any:
        """The server. Raises: ValueError outside of a request."""
        return self.fastmcp

    @property
    def request_context(self) -> RequestContext:
        """The request. Raises: ValueError outside of one."""
        if self._request_context is None:
            raise ValueError("Context is not available outside of a request")
        return self._request_context

    @property
    def session(self) -> ServerSession:
        """What sends to the client."""
        return self.request_context.session

    @property
    def request_id(self) -> str:
        """The id of the request."""
        return str(self.request_context.request_id)

    @property
    def client_id(self) -> str | None:
        """The `client_id` of the request's `_meta`."""
        found = self.request_context.required.meta.get("client_id")
        return str(found) if found is not None else None

    @property
    def headers(self) -> Any:
        """The HTTP headers; None on stdio."""
        return self.request_context.headers

    @property
    def protocol_version(self) -> str | None:
        """The revision of the request."""
        return self._request_context.protocol_version if self._request_context is not None else None

    @property
    def client_capabilities(self) -> Any:
        """What the client declared."""
        return self.request_context.client_capabilities

    @property
    def input_responses(self) -> Any:
        """The answers to an `InputRequiredResult`."""
        return self.request_context.input_responses

    @property
    def request_state(self) -> str | None:
        """The state that came back with them."""
        return self.request_context.request_state

    async def report_progress(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        """Report progress to a client that asked for it."""
        self.request_context.required.progress(progress, total, message)

    async def read_resource(self, uri: Any) -> Iterable[Any]:
        """Read a resource of this server."""
        found: Iterable[Any] = await self.fastmcp.read_resource(uri)
        return found

    async def elicit(self, message: str, schema: Any) -> Any:
        """Ask the user to fill in a form, which a pydantic model describes."""
        from linkspan_compat.server.elicitation import elicit_with_validation

        return await elicit_with_validation(self.session, message, schema)

    async def elicit_url(self, message: str, url: str, elicitation_id: str) -> Any:
        """Ask the user to open a page."""
        from linkspan_compat.server.elicitation import elicit_url

        return await elicit_url(self.session, message, url, elicitation_id)

    async def log(self, level: Any, message: Any = None, *, logger_name: str | None = None, **more: Any) -> None:
        """Send a log message."""
        data = message if message is not None else more.get("data")
        await self.request_context.session.send_log_message(
            level=level, data=data, logger=logger_name, related_request_id=self.request_id
        )

    async def debug(self, message: Any = None, **more: Any) -> None:
        """Send a log message of the level "debug"."""
        await self.log("debug", message, **more)

    async def info(self, message: Any = None, **more: Any) -> None:
        """Send a log message of the level "info"."""
        await self.log("info", message, **more)

    async def warning(self, message: Any = None, **more: Any) -> None:
        """Send a log message of the level "warning"."""
        await self.log("warning", message, **more)

    async def error(self, message: Any = None, **more: Any) -> None:
        """Send a log message of the level "error"."""
        await self.log("error", message, **more)

    async def close_sse_stream(self) -> None:
        """End the stream of this request: the client comes back for the answer."""
        self.request_context.required.close_stream()

    async def close_standalone_sse_stream(self) -> None:
        """End the stream of the session; here the client does that."""

    async def notify_tools_changed(self) -> None:
        """Announce that the list of tools has changed."""
        await self.session.send_tool_list_changed()

    async def notify_prompts_changed(self) -> None:
        """Announce that the list of prompts has changed."""
        await self.session.send_prompt_list_changed()

    async def notify_resources_changed(self) -> None:
        """Announce that the list of resources has changed."""
        await self.session.send_resource_list_changed()

    async def notify_resource_updated(self, uri: Any) -> None:
        """Announce that a resource has changed."""
        await self.session.send_resource_updated(uri)
