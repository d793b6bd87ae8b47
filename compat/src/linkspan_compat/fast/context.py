"""`Context` of FastMCP: what a function knows of its request and sends to its client."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final

from linkspan_compat.keywords import check
from linkspan_compat.protocol.current import TYPES
from linkspan_compat.server.requests import RequestContext, ServerSession

if TYPE_CHECKING:
    from linkspan_compat.fast.server import FastMCP

__all__ = ["Context", "current_context"]

current_context: Final[ContextVar[Context]] = ContextVar("fastmcp_context")
"""The context of the request that is served."""


class Context:
    """The context of a request."""

    def __init__(self, fastmcp: FastMCP[Any], request: RequestContext | None = None, **more: Any) -> None:
        if more:
            check("Context", more, "session task_id origin_request_id")
        self._fastmcp = fastmcp
        self._request = request
        self._state: dict[str, Any] = {}
        self._tokens: list[Any] = []

    async def __aenter__(self) -> Context:
        self._tokens.append(current_context.set(self))
        return self

    async def __aexit__(self, *_: object) -> None:
        current_context.reset(self._tokens.pop())

    @property
    def fastmcp(self) -> FastMCP[Any]:
        """The server."""
        return self._fastmcp

    @property
    def request_context(self) -> RequestContext | None:
        """The request; None outside of one."""
        return self._request

    @property
    def _now(self) -> RequestContext:
        if self._request is None:
            raise RuntimeError("Context is not available outside of a request")
        return self._request

    @property
    def lifespan_context(self) -> Any:
        """What the lifespan yielded."""
        found = self._request.lifespan_context if self._request is not None else self._fastmcp.lifespan_result
        return {} if found is None else found

    @property
    def session(self) -> ServerSession:
        """What sends to the client."""
        return self._now.session

    @property
    def request_id(self) -> str:
        """The id of the request."""
        return str(self._now.request_id)

    @property
    def client_id(self) -> str | None:
        """The `client_id` of the request's `_meta`."""
        found = self._now.required.meta.get("client_id")
        return str(found) if found is not None else None

    @property
    def session_id(self) -> str:
        """The id of the session, or one for this process."""
        return self._now.session_id or self._fastmcp.process_id

    @property
    def transport(self) -> str | None:
        """How the client is connected: "stdio" or "streamable-http"."""
        if self._request is None:
            return None
        return "streamable-http" if self._request.headers else "stdio"

    @property
    def is_background_task(self) -> bool:
        """Whether this is a task."""
        return self.task_id is not None

    @property
    def task_id(self) -> str | None:
        """The id of the task; None in a call that is none."""
        return self._request.under.task_id if self._request is not None and self._request.under is not None else None

    @property
    def input_responses(self) -> Any:
        """The answers to an `InputRequiredResult`."""
        return self._request.input_responses if self._request is not None and self._request.under is not None else None

    @property
    def request_state(self) -> str | None:
        """The state that came back with them."""
        return self._request.request_state if self._request is not None and self._request.under is not None else None

    def client_supports_extension(self, extension_id: str) -> bool:
        """Return whether the client declared an extension."""
        return self._now.required.peer.supports("extensions", extension_id)

    # Telling.

    async def report_progress(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        """Report progress to a client that asked for it."""
        if self._request is not None and self._request.under is not None:
            self._request.under.progress(progress, total, message)

    async def log(
        self,
        message: str,
        level: Any = None,
        logger_name: str | None = None,
        extra: Mapping[str, Any] | None = None,
    ) -> None:
        """Send a log message."""
        if self._request is not None and self._request.under is not None:
            data = {"msg": message, "extra": dict(extra) if extra is not None else None}
            self._request.under.log(level or "info", data, logger_name)

    async def debug(self, message: str, logger_name: str | None = None, extra: Mapping[str, Any] | None = None) -> None:
        """Send a log message of the level "debug"."""
        await self.log(message, "debug", logger_name, extra)

    async def info(self, message: str, logger_name: str | None = None, extra: Mapping[str, Any] | None = None) -> None:
        """Send a log message of the level "info"."""
        await self.log(message, "info", logger_name, extra)

    async def warning(
        self, message: str, logger_name: str | None = None, extra: Mapping[str, Any] | None = None
    ) -> None:
        """Send a log message of the level "warning"."""
        await self.log(message, "warning", logger_name, extra)

    async def error(self, message: str, logger_name: str | None = None, extra: Mapping[str, Any] | None = None) -> None:
        """Send a log message of the level "error"."""
        await self.log(message, "error", logger_name, extra)

    async def send_notification(self, notification: Any) -> None:
        """Send a notification, given as a model."""
        await self.session.send_notification(notification)

    async def send_tool_list_changed(self) -> None:
        """Announce that the list of tools has changed."""
        await self.session.send_tool_list_changed()

    async def send_resource_list_changed(self) -> None:
        """Announce that the list of resources has changed."""
        await self.session.send_resource_list_changed()

    async def send_prompt_list_changed(self) -> None:
        """Announce that the list of prompts has changed."""
        await self.session.send_prompt_list_changed()

    async def close_sse_stream(self) -> None:
        """End the stream of this request: the client comes back for the answer."""
        self._now.required.close_stream()

    # The server's own.

    async def read_resource(self, uri: Any) -> Any:
        """Read a resource of this server."""
        return await self._fastmcp.read_resource(str(uri))

    async def list_resources(self) -> Any:
        """Return the resources of this server as models."""
        return [each.to_mcp_resource() for each in await self._fastmcp.list_resources()]

    async def list_prompts(self) -> Any:
        """Return the prompts of this server as models."""
        return [each.to_mcp_prompt() for each in await self._fastmcp.list_prompts()]

    async def get_prompt(self, name: str, arguments: dict[str, Any] | None = None) -> Any:
        """Get a prompt of this server."""
        return (await self._fastmcp.render_prompt(name, arguments)).to_mcp_prompt_result()

    async def enable_components(self, **chosen: Any) -> None:
        """Switch components on."""
        self._fastmcp.enable(**chosen)

    async def disable_components(self, **chosen: Any) -> None:
        """Switch components off."""
        self._fastmcp.disable(**chosen)

    # Asking.

    async def list_roots(self) -> Any:
        """Ask for the folders that the client offers."""
        return (await self.session.list_roots()).roots

    async def elicit(self, message: str, response_type: Any = None, **more: Any) -> Any:
        """Ask the user for a value of a type."""
        from linkspan_compat.fast.elicitation import Form
        from linkspan_compat.server.elicitation import outcome_of

        form = Form(more.get("schema", response_type))
        return outcome_of(await self.session.elicit_form(message, form.schema), form.read)

    async def elicit_url(self, message: str, url: str, elicitation_id: str | None = None) -> Any:
        """Ask the user to open a page."""
        from linkspan_compat.server.elicitation import elicit_url

        return await elicit_url(self.session, message, url, elicitation_id or uuid.uuid4().hex)

    async def sample(
        self,
        messages: Any,
        *,
        system_prompt: str | None = None,
        temperature: float | None = None,
        max_tokens: int | None = None,
        model_preferences: Any = None,
        result_type: Any = None,
        tools: Any = None,
        **more: Any,
    ) -> Any:
        """Let the model of the client write something; `.text` of the result is what it wrote."""
        check("ctx.sample", more, "mask_error_details tool_concurrency")
        if tools or result_type not in (None, str):
            from linkspan_compat.errors import NotServed

            raise NotServed(
                "ctx.sample(tools=..., result_type=...) is not served by linkspan-compat; write for Linkspan: "
                "ctx.sample('...') and a loop of your own"
            )
        if isinstance(model_preferences, str | list):
            names = [model_preferences] if isinstance(model_preferences, str) else model_preferences
            model_preferences = {"hints": [{"name": name} for name in names]}
        result = await self.session.create_message(
            _messages(messages),
            max_tokens=512 if max_tokens is None else max_tokens,
            system_prompt=system_prompt,
            temperature=temperature,
            model_preferences=model_preferences,
        )
        return SamplingResult(result)

    # State.

    async def set_state(self, key: str, value: Any, *, serializable: bool = True) -> None:
        """Keep a value for this session."""
        self._fastmcp.session_state(self._state_key())[key] = value

    async def get_state(self, key: str) -> Any:
        """Return a value that was kept; None without one."""
        return self._fastmcp.session_state(self._state_key()).get(key)

    async def delete_state(self, key: str) -> None:
        """Forget a value."""
        self._fastmcp.session_state(self._state_key()).pop(key, None)

    def _state_key(self) -> str:
        return self.session_id if self._request is not None and self._request.under is not None else ""


class SamplingResult:
    """What a model wrote: `text`, `result`, and the whole answer in `history`."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer
        blocks = answer.content if isinstance(answer.content, list) else [answer.content]
        texts = [each.text for each in blocks if each.type == "text"]
        self.text: str | None = "\n".join(texts) if texts else None
        self.result: Any = self.text
        self.history: list[Any] = [answer]

    def __str__(self) -> str:
        return self.text or ""


def _messages(messages: Any) -> list[Any]:
    listed = [messages] if isinstance(messages, str) or not isinstance(messages, list | tuple) else messages
    message = TYPES["SamplingMessage"]
    return [
        message.model_validate({"role": "user", "content": {"type": "text", "text": each}})
        if isinstance(each, str)
        else each
        for each in listed
    ]
