"""`ClientSession`: one connection to a server."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from datetime import timedelta
from types import TracebackType
from typing import Any, Final, Literal, Self

from linkspan import AuthorizationError, CallTimeout, ClientError, Refused, ServerError, Timeouts
from linkspan_compat.client.ends import End
from linkspan_compat.errors import MCPError, NotServed
from linkspan_compat.flavours import sdk_version
from linkspan_compat.keywords import check
from linkspan_compat.protocol.current import TYPES
from linkspan_compat.server.requests import plain

__all__ = ["ClientSession", "get_display_name"]


def get_display_name(obj: Any) -> str:
    """Return the name of a tool, prompt or resource for people."""
    title = getattr(obj, "title", None)
    annotations = getattr(obj, "annotations", None)
    if title is None and annotations is not None:
        title = getattr(annotations, "title", None)
    return str(title if title is not None else obj.name)


class _RequestContext:
    """What callbacks get beside the params: the session, and nothing of the request."""

    def __init__(self, session: Any) -> None:
        self.session = session
        self.request_id = 0
        self.meta = None
        self.lifespan_context = None


def seconds(value: Any) -> float | None:
    """Return a time of a number or a timedelta."""
    return value.total_seconds() if isinstance(value, timedelta) else value


class ClientSession(AbstractAsyncContextManager["ClientSession"]):
    """One connection to a server, over the streams of a transport."""

    def __init__(
        self,
        read_stream: Any,
        write_stream: Any = None,
        read_timeout_seconds: Any = None,
        sampling_callback: Any = None,
        elicitation_callback: Any = None,
        list_roots_callback: Any = None,
        logging_callback: Any = None,
        message_handler: Any = None,
        client_info: Any = None,
        log_level: Any = None,
        sampling_capabilities: Any = None,
        **more: Any,
    ) -> None:
        check(
            "ClientSession",
            more,
            "experimental_task_handlers extensions result_claims notification_bindings dispatcher",
        )
        self._log_level = log_level
        self._samples_tools = getattr(sampling_capabilities, "tools", None) is not None
        self._connect = read_stream.connect if isinstance(read_stream, End) else _over(read_stream, write_stream)
        self._timeout = seconds(read_timeout_seconds)
        self._sampling = sampling_callback
        self._elicitation = elicitation_callback
        self._roots = list_roots_callback
        self._logging = logging_callback
        self._messages = message_handler
        self._info = client_info
        self.era: Literal["modern", "legacy"] | None = "legacy"
        """How the connection is agreed: by the handshake, without one, or as the server can (None)."""
        self.follows_tasks = False
        """Whether servers may make tasks of calls, which `call_tool` follows to their ends."""
        self._client: Any = None
        self._initialized: Any = None

    async def __aenter__(self) -> Self:
        if (prepare := getattr(self._connect, "prepare", None)) is not None:
            await prepare()
        self._client = self._connect(**self._callbacks())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        client, self._client = self._client, None
        if client is not None:
            await asyncio.shield(client.close())

    # What the server asks and tells.

    def _callbacks(self) -> dict[str, Any]:
        found: dict[str, Any] = {"era": self.era, "check_output": "off", "retry": "never", "max_cached_bytes": 0}
        if self.follows_tasks:
            from linkspan import Tasks

            found["extensions"] = [Tasks()]
        if self._timeout is not None:
            found["timeouts"] = Timeouts(call=self._timeout, list=self._timeout)
        if self._sampling is not None:
            found["sampling"] = self._sample
            found["sampling_tools"] = self._samples_tools
        if self._elicitation is not None:
            found["elicitation"] = self._elicit
        if self._roots is not None:
            found["roots"] = self._list_roots
        if self._logging is not None or self._messages is not None:
            found["on_log"] = self._log
        if self._messages is not None:
            found["on_notification"] = self._notified
            found["on_change"] = self._changed
        if self._info is not None:
            from linkspan.types.base import Implementation

            found["info"] = Implementation(self._info.name, self._info.version)
        return found

    async def _asked(self, callback: Any, kind: str, params: Any) -> Any:
        """Ask the program; what it refuses with an `ErrorData` is refused."""
        answer = callback(_RequestContext(self), TYPES[kind].model_validate(_wire(params)))
        answer = await answer if inspect.isawaitable(answer) else answer
        if isinstance(answer, TYPES["ErrorData"]):
            raise Refused(answer.message)
        return answer

    async def _sample(self, params: Any) -> Any:
        from linkspan.types.messages import CreateMessageResult

        answer = await self._asked(self._sampling, "CreateMessageRequestParams", params)
        return _struct(answer, CreateMessageResult)

    async def _elicit(self, params: Any) -> Any:
        from linkspan.types.base import unknown_members
        from linkspan.types.messages import ElicitResult

        kind = "ElicitRequestURLParams" if getattr(params, "mode", None) == "url" else "ElicitRequestFormParams"
        asked = {**_wire(params), **unknown_members(params)}
        if kind == "ElicitRequestURLParams":
            asked.setdefault("elicitationId", "")  # the newest revision has none, and version 1 requires one
        answer = await self._asked(self._elicitation, kind, asked)
        return ElicitResult(answer.action, dict(answer.content) if answer.content else None)

    async def _list_roots(self) -> Any:
        from linkspan.types.messages import Root

        answer = self._roots(_RequestContext(self))
        answer = await answer if inspect.isawaitable(answer) else answer
        if isinstance(answer, TYPES["ErrorData"]):
            raise Refused(answer.message)
        return [Root(str(each.uri), each.name) for each in answer.roots]

    async def _log(self, params: Any) -> None:
        if self._logging is not None:
            found = self._logging(TYPES["LoggingMessageNotificationParams"].model_validate(_wire(params)))
            if inspect.isawaitable(found):
                await found
        await self._told("LoggingMessageNotification", "notifications/message", _wire(params))

    async def _notified(self, method: str, params: Any) -> None:
        kinds = {"notifications/progress": "ProgressNotification", "notifications/cancelled": "CancelledNotification"}
        if method in kinds:
            await self._told(kinds[method], method, plain(params))

    async def _changed(self, change: Any) -> None:
        kinds = {
            "tools": "ToolListChangedNotification",
            "prompts": "PromptListChangedNotification",
            "resources": "ResourceListChangedNotification",
        }
        if change.kind in kinds:
            await self._told(kinds[change.kind], f"notifications/{change.kind}/list_changed", None)
        else:
            await self._told("ResourceUpdatedNotification", "notifications/resources/updated", {"uri": change.uri})

    async def _told(self, kind: str, method: str, params: Any) -> None:
        if self._messages is None:
            return
        found = TYPES[kind].model_validate({"method": method, "params": params})
        if sdk_version() == "1":
            found = TYPES["ServerNotification"](found)
        answer = self._messages(found)
        if inspect.isawaitable(answer):
            await answer

    # The connection.

    @property
    def _open(self) -> Any:
        if self._client is None:
            raise RuntimeError("ClientSession is not open: use it with `async with`")
        return self._client

    async def initialize(self) -> Any:
        """Agree with the server, and return what it says of itself."""
        client = self._open
        await _translated(client.connect())
        if self._log_level is not None:
            await _translated(client.set_logging_level(self._log_level))
        info = client.server_info
        found = {
            "protocolVersion": client.protocol_version,
            "capabilities": _wire(client.server_capabilities) if client.server_capabilities is not None else {},
            "serverInfo": _wire(info) if info is not None else {"name": "", "version": ""},
        }
        if client.instructions is not None:
            found["instructions"] = client.instructions
        self._initialized = TYPES["InitializeResult"].model_validate(found)
        return self._initialized

    def get_server_capabilities(self) -> Any:
        """Return what the server offers; None before `initialize`."""
        return self._initialized.capabilities if self._initialized is not None else None

    @property
    def initialize_result(self) -> Any:
        """What `initialize` returned."""
        return self._initialized

    @property
    def server_capabilities(self) -> Any:
        """What the server offers; None before `initialize`."""
        return self.get_server_capabilities()

    @property
    def server_info(self) -> Any:
        """The server's name and version; None before `initialize`."""
        info = self._initialized
        return None if info is None else info.serverInfo if sdk_version() == "1" else info.server_info

    @property
    def instructions(self) -> str | None:
        """How a model should use the server."""
        return self._initialized.instructions if self._initialized is not None else None

    @property
    def protocol_version(self) -> str | None:
        """The revision that was agreed on."""
        return self._client.protocol_version if self._client is not None else None

    async def _request(self, method: str, params: Any, kind: str, more: Mapping[str, Any] | None = None) -> Any:
        check(method, more or {}, _OF_ROUNDS)
        given = {name: value for name, value in plain(params).items() if value is not None}
        found = await _translated(self._open.request(method, given))
        return TYPES[kind].model_validate(found)

    # Requests.

    async def send_request(
        self, request: Any, result_type: Any, request_read_timeout_seconds: Any = None, **more: Any
    ) -> Any:
        """Send a request, given as a model."""
        check("send_request", more, "metadata progress_callback")
        found = getattr(request, "root", request)
        params = plain(found.params) if found.params is not None else {}
        timeout = request_read_timeout_seconds
        options = {"timeout": seconds(timeout)} if timeout is not None else {}
        return result_type.model_validate(await _translated(self._open.request(found.method, params, **options)))

    async def send_notification(self, notification: Any, related_request_id: Any = None) -> None:
        """Take the notifications that Linkspan sends by itself. Raises: NotServed for any other."""
        method = getattr(notification, "root", notification).method
        if method == "notifications/roots/list_changed":
            await self.send_roots_list_changed()
        elif method not in ("notifications/initialized", "notifications/cancelled"):
            raise NotServed(f"ClientSession.send_notification({method!r}) is not served by linkspan-compat")

    async def send_ping(self, **more: Any) -> Any:
        """Ask whether the server is there."""
        check("send_ping", more, "meta")
        await _translated(self._open.ping())
        return TYPES["EmptyResult"]()

    async def send_progress_notification(self, *_: Any, **__: Any) -> None:
        """Refuse what is not served."""
        raise NotServed("ClientSession.send_progress_notification is not served by linkspan-compat")

    async def send_roots_list_changed(self) -> None:
        """Tell the server that the roots are others now."""
        self._open.notify_roots_changed()

    async def set_logging_level(self, level: str, **more: Any) -> Any:
        """Choose which log messages the server sends."""
        check("set_logging_level", more, "meta")
        await _translated(self._open.set_logging_level(level))
        return TYPES["EmptyResult"]()

    async def list_tools(self, cursor: str | None = None, *, params: Any = None) -> Any:
        """Return a page of tools."""
        return await self._request("tools/list", _page(cursor, params), "ListToolsResult")

    async def list_resources(self, cursor: Any = None, *, params: Any = None) -> Any:
        """Return a page of resources."""
        return await self._request("resources/list", _page(cursor, params), "ListResourcesResult")

    async def list_resource_templates(self, cursor: Any = None, *, params: Any = None) -> Any:
        """Return a page of templates."""
        return await self._request("resources/templates/list", _page(cursor, params), "ListResourceTemplatesResult")

    async def list_prompts(self, cursor: Any = None, *, params: Any = None) -> Any:
        """Return a page of prompts."""
        return await self._request("prompts/list", _page(cursor, params), "ListPromptsResult")

    async def call_tool(
        self,
        name: str,
        arguments: dict[str, Any] | None = None,
        read_timeout_seconds: Any = None,
        progress_callback: Any = None,
        *,
        meta: dict[str, Any] | None = None,
        **more: Any,
    ) -> Any:
        """Call a tool."""
        check("call_tool", more, _OF_ROUNDS)
        options = _call_options(read_timeout_seconds, progress_callback, meta)
        result = await _translated(self._open.call_tool(name, plain(arguments or {}), **options))
        return TYPES["CallToolResult"].model_validate_json(bytes(result.raw))

    async def start_tool(
        self, name: str, arguments: dict[str, Any] | None, timeout: Any = None, progress: Any = None, meta: Any = None
    ) -> Any:
        """Call a tool of which the server may make a task, and return the task of Linkspan at once."""
        options = _call_options(timeout, progress, meta)
        return await _translated(self._open.start_tool(name, plain(arguments or {}), **options))

    def task(self, task_id: str) -> Any:
        """Return a task of Linkspan by its id."""
        return self._open.task(task_id)

    async def read_resource(self, uri: Any, **more: Any) -> Any:
        """Read a resource."""
        return await self._request("resources/read", {"uri": str(uri)}, "ReadResourceResult", more)

    async def subscribe_resource(self, uri: Any, **more: Any) -> Any:
        """Hear of changes of a resource, through the message handler."""
        return await self._request("resources/subscribe", {"uri": str(uri)}, "EmptyResult", more)

    async def unsubscribe_resource(self, uri: Any, **more: Any) -> Any:
        """Hear of them no more."""
        return await self._request("resources/unsubscribe", {"uri": str(uri)}, "EmptyResult", more)

    async def get_prompt(self, name: str, arguments: dict[str, str] | None = None, **more: Any) -> Any:
        """Get a prompt."""
        return await self._request("prompts/get", {"name": name, "arguments": arguments}, "GetPromptResult", more)

    async def complete(
        self, ref: Any, argument: dict[str, str], context_arguments: dict[str, str] | None = None, **more: Any
    ) -> Any:
        """Complete an argument."""
        context = {"arguments": context_arguments} if context_arguments is not None else None
        params = {"ref": ref, "argument": argument, "context": context}
        return await self._request("completion/complete", params, "CompleteResult", more)


_OF_ROUNDS: Final = "meta input_responses request_state allow_input_required allow_claimed"
"""Keywords of requests that version 2 has for several rounds."""


def _call_options(timeout: Any, progress: Any, meta: dict[str, Any] | None) -> dict[str, Any]:
    """Return the options of a call for a client of Linkspan."""
    found: dict[str, Any] = {}
    if timeout is not None:
        found["timeout"] = seconds(timeout)
    if progress is not None:
        found["on_progress"] = lambda seen: progress(seen.progress, seen.total, seen.message)
    if meta:
        found["meta"] = meta
    return found


def _page(cursor: Any, params: Any) -> dict[str, Any]:
    found = getattr(params, "cursor", None) if params is not None else cursor
    return {"cursor": found} if found is not None else {}


def _wire(value: Any) -> Any:
    """Return a value of Linkspan by the names of the wire."""
    import msgspec

    return msgspec.to_builtins(value)


def _struct(model: Any, kind: Any) -> Any:
    import msgspec

    return msgspec.convert(plain(model), kind)


async def _translated(awaitable: Any) -> Any:
    """Await, and raise what the SDK raises. Raises: McpError."""
    try:
        return await awaitable
    except ServerError as error:
        raise MCPError(error.code, error.message, error.data) from error
    except CallTimeout as error:
        raise MCPError(408 if sdk_version() == "1" else -32001, str(error)) from error
    except AuthorizationError:
        raise
    except ClientError as error:
        raise MCPError(-32000, f"Connection closed: {error}") from error


def _over(reader: Any, writer: Any) -> Any:
    """Connect over streams of `SessionMessage` of the program's own."""

    def connect(**callbacks: Any) -> Any:
        from linkspan import Client
        from linkspan_compat.server.streams import StreamChannel

        return Client(lambda: StreamChannel(reader, writer), **callbacks)

    return connect
