"""The lowlevel `Server` of both versions: handlers by decorators (1.x) or by keywords (2.x)."""

from __future__ import annotations

import base64
import inspect
import json
import logging
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping, MutableMapping
from contextlib import asynccontextmanager
from typing import Any, Final, Generic, TypeAlias, TypeVar

from linkspan import RemoteProtocolError
from linkspan_compat.errors import MCPError
from linkspan_compat.flavours import sdk_version
from linkspan_compat.keywords import check
from linkspan_compat.protocol.current import TYPES
from linkspan_compat.server.requests import (
    PROTOCOL_METHODS,
    RequestContext,
    ServerSession,
    current_request,
    request_ctx,
)

__all__ = ["NotificationOptions", "ReadResourceContents", "Server", "lifespan", "request_ctx"]

logger = logging.getLogger("mcp.server.lowlevel.server")

LifespanResultT = TypeVar("LifespanResultT")
RequestT = TypeVar("RequestT")

Answer: TypeAlias = Callable[[RequestContext, dict[str, Any]], Awaitable[Any]]
"""Answers a method from its params: with a model, a mapping, or ready JSON."""

_REQUESTS: Final = {method: f"{name}Request" for method, name in PROTOCOL_METHODS.items()}
_PARAMS: Final = {
    method: "RequestParams"
    if method == "ping"
    else "PaginatedRequestParams"
    if method.endswith("/list")
    else f"{name}RequestParams"
    for method, name in PROTOCOL_METHODS.items()
}
_KEYWORDS: Final = {
    "on_list_tools": "tools/list",
    "on_call_tool": "tools/call",
    "on_list_resources": "resources/list",
    "on_list_resource_templates": "resources/templates/list",
    "on_read_resource": "resources/read",
    "on_subscribe_resource": "resources/subscribe",
    "on_unsubscribe_resource": "resources/unsubscribe",
    "on_list_prompts": "prompts/list",
    "on_get_prompt": "prompts/get",
    "on_completion": "completion/complete",
    "on_set_logging_level": "logging/setLevel",
    "on_ping": "ping",
}


class NotificationOptions:
    """Which lists announce their changes."""

    def __init__(
        self, prompts_changed: bool = False, resources_changed: bool = False, tools_changed: bool = False
    ) -> None:
        self.prompts_changed = prompts_changed
        self.resources_changed = resources_changed
        self.tools_changed = tools_changed


class ReadResourceContents:
    """What a read gives: text or bytes, and their type."""

    def __init__(self, content: str | bytes, mime_type: str | None = None, meta: dict[str, Any] | None = None) -> None:
        self.content = content
        self.mime_type = mime_type
        self.meta = meta


@asynccontextmanager
async def lifespan(_: Any) -> AsyncIterator[dict[str, Any]]:
    """The lifespan of a server that has none."""
    yield {}


class Server(Generic[LifespanResultT, RequestT]):
    """A server that answers methods with functions of the author's. Generic in one type in version 2, in two in version 1."""

    def __class_getitem__(cls, types: Any) -> Any:
        given = types if isinstance(types, tuple) else (types,)
        return super().__class_getitem__((*given, Any)[:2])  # type: ignore[misc]

    def __init__(
        self,
        name: str,
        version: str | None = None,
        instructions: str | None = None,
        website_url: str | None = None,
        icons: Any = None,
        lifespan: Callable[[Any], Any] = lifespan,
        *,
        title: str | None = None,
        description: str | None = None,
        **more: Any,
    ) -> None:
        handlers = {name: more.pop(name) for name in list(more) if name in _KEYWORDS}
        check(
            "Server",
            more,
            "cache_hints get_tool_input_schema on_roots_list_changed on_progress on_subscriptions_listen",
        )
        self.name = name
        self.version = version
        self.title = title
        self.description = description
        self.instructions = instructions
        self.website_url = website_url
        self.icons = icons
        self.lifespan = lifespan
        self.methods: dict[str, Answer] = {}
        """What answers each method."""
        self.extensions: dict[str, dict[str, Any]] = {}
        self.middleware: list[Any] = []
        self.request_handlers: MutableMapping[Any, Any] = _RequestHandlers(self)
        self.notification_handlers: MutableMapping[Any, Any] = _Unheard()
        self._tool_cache: dict[str, Any] = {}
        for keyword, handler in handlers.items():
            if handler is not None:
                self.add_request_handler(_KEYWORDS[keyword], None, handler)

    # What version 2 has.

    def add_request_handler(self, method: str, params_type: Any, handler: Any) -> None:
        """Answer a method with `await handler(ctx, params)`."""
        named = _PARAMS.get(method)

        async def answer(request: RequestContext, params: dict[str, Any]) -> Any:
            kind = params_type or (TYPES[named] if named is not None else None)
            given = kind.model_validate(params) if kind is not None else params
            return await self._through_middleware(request, given, handler)

        self.methods[method] = answer

    def get_request_handler(self, method: str) -> Any:
        """Return what answers a method; None if nothing does."""
        return self.methods.get(method)

    def add_notification_handler(self, method: str, params_type: Any, handler: Any) -> None:
        """Say that what clients announce is not passed on."""
        self.notification_handlers[method] = handler

    async def _through_middleware(self, request: RequestContext, params: Any, handler: Any) -> Any:
        call: Any = lambda ctx: handler(ctx, params)  # noqa: E731
        for each in reversed(self.middleware):
            call = layered(each, call)
        return await call(request)

    # What version 1 has.

    @property
    def request_context(self) -> RequestContext:
        """The request that is served. Raises: LookupError outside of one."""
        return request_ctx.get()

    def list_tools(self) -> Any:
        """Register what lists the tools."""
        return self._lister("tools/list", "ListToolsResult", "tools", self._remember_tools)

    def list_prompts(self) -> Any:
        """Register what lists the prompts."""
        return self._lister("prompts/list", "ListPromptsResult", "prompts")

    def list_resources(self) -> Any:
        """Register what lists the resources."""
        return self._lister("resources/list", "ListResourcesResult", "resources")

    def list_resource_templates(self) -> Any:
        """Register what lists the templates of resources."""
        return self._lister("resources/templates/list", "ListResourceTemplatesResult", "resourceTemplates")

    def _remember_tools(self, tools: Iterable[Any]) -> None:
        self._tool_cache = {tool.name: tool for tool in tools}

    def _lister(self, method: str, result: str, member: str, note: Callable[[Any], None] | None = None) -> Any:
        def register(function: Any) -> Any:
            wants_request = _wants_request(function)

            async def answer(request: RequestContext, params: dict[str, Any]) -> Any:
                asked = TYPES[_REQUESTS[method]].model_validate({"method": method, "params": params or None})
                found = await (function(asked) if wants_request else function())
                if hasattr(found, "model_dump"):
                    if note is not None:
                        note(getattr(found, member))
                    return found
                if note is not None:
                    note(found)
                return {member: list(found)}

            self.methods[method] = answer
            return function

        return register

    def call_tool(self, *, validate_input: bool = True) -> Any:
        """Register what calls tools, with a name and arguments."""

        def register(function: Any) -> Any:
            async def answer(request: RequestContext, params: dict[str, Any]) -> Any:
                try:
                    return await self._called(function, params, validate_input)
                except MCPError as error:
                    if error.code == -32042:
                        raise
                    return failure(str(error))
                except Exception as error:
                    return failure(str(error))

            self.methods["tools/call"] = answer
            return function

        return register

    async def _called(self, function: Any, params: dict[str, Any], validates: bool) -> Any:
        name, arguments = params["name"], params.get("arguments") or {}
        tool = await self._tool(name)
        if validates and tool is not None:
            from linkspan_compat.server.checking import problem_of

            if (problem := problem_of(arguments, tool.inputSchema)) is not None:
                return failure(f"Input validation error: {problem}")
        found = await function(name, arguments)
        structured: Any = None
        if hasattr(found, "model_dump"):
            return found
        if isinstance(found, tuple) and len(found) == 2:
            content, structured = found
        elif isinstance(found, dict):
            content, structured = [{"type": "text", "text": json.dumps(found, indent=2)}], found
        elif hasattr(found, "__iter__"):
            content = found
        else:
            return failure(f"Unexpected return type from tool: {type(found).__name__}")
        if tool is not None and tool.outputSchema is not None:
            if structured is None:
                return failure("Output validation error: outputSchema defined but no structured output returned")
            from linkspan_compat.server.checking import problem_of

            if (problem := problem_of(structured, tool.outputSchema)) is not None:
                return failure(f"Output validation error: {problem}")
        result = {"content": list(content), "isError": False}
        return result if structured is None else {**result, "structuredContent": structured}

    async def _tool(self, name: str) -> Any:
        if name not in self._tool_cache and (lister := self.methods.get("tools/list")) is not None:
            await lister(current_request() or RequestContext(), {})
        return self._tool_cache.get(name)

    def get_prompt(self) -> Any:
        """Register what gets a prompt, with its name and arguments."""
        return self._plain("prompts/get", lambda params: (params.name, params.arguments))

    def read_resource(self) -> Any:
        """Register what reads a resource, with its URI."""

        def register(function: Any) -> Any:
            async def answer(request: RequestContext, params: dict[str, Any]) -> Any:
                uri = TYPES["ReadResourceRequestParams"].model_validate(params).uri
                found = await function(uri)
                if isinstance(found, str | bytes):
                    warnings.warn(
                        "Returning str or bytes from read_resource is deprecated. Use Iterable[ReadResourceContents] instead.",
                        DeprecationWarning,
                        stacklevel=2,
                    )
                    found = [ReadResourceContents(found)]
                if hasattr(found, "model_dump"):
                    return found
                return {"contents": [contents_of(str(uri), each) for each in found]}

            self.methods["resources/read"] = answer
            return function

        return register

    def set_logging_level(self) -> Any:
        """Register what takes the level of log messages."""
        return self._plain("logging/setLevel", lambda params: (params.level,))

    def subscribe_resource(self) -> Any:
        """Register what takes subscriptions."""
        return self._plain("resources/subscribe", lambda params: (params.uri,))

    def unsubscribe_resource(self) -> Any:
        """Register what ends subscriptions."""
        return self._plain("resources/unsubscribe", lambda params: (params.uri,))

    def completion(self) -> Any:
        """Register what completes arguments."""
        return self._plain("completion/complete", lambda params: (params.ref, params.argument, params.context))

    def progress_notification(self) -> Any:
        """Register what receives progress of the client."""

        def register(function: Any) -> Any:
            self.notification_handlers["notifications/progress"] = function
            return function

        return register

    def _plain(self, method: str, arguments: Callable[[Any], tuple[Any, ...]]) -> Any:
        def register(function: Any) -> Any:
            async def answer(request: RequestContext, params: dict[str, Any]) -> Any:
                found = await function(*arguments(TYPES[_PARAMS[method]].model_validate(params)))
                if method == "completion/complete":
                    return {"completion": found if found is not None else {"values": []}}
                return found if found is not None else {}

            self.methods[method] = answer
            return function

        return register

    # How it is served.

    def shown_version(self) -> str:
        """Return the version that clients see."""
        from linkspan_compat.names import SDK_VERSIONS

        if self.version or sdk_version() == "2":
            return self.version or ""
        return SDK_VERSIONS["mcp 1"]

    def task_tools(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the tools that may run as tasks with their settings, and what a server of Linkspan needs for them: none here."""
        return {}, {}

    def failed(self, error: Exception) -> RemoteProtocolError:
        """Return the answer to a request whose handler failed."""
        logger.exception("a handler failed", exc_info=error)
        if sdk_version() == "1":
            return RemoteProtocolError(0, str(error))
        return RemoteProtocolError(-32603, "Internal server error")

    def capabilities(
        self, notification_options: NotificationOptions | None = None, experimental: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """Return what the server declares, by the names of the wire."""
        changes, found = notification_options or NotificationOptions(), dict[str, Any]()
        if sdk_version() == "1":
            found["experimental"] = dict(experimental or {})
        elif experimental:
            found["experimental"] = dict(experimental)
        if "prompts/list" in self.methods:
            found["prompts"] = {"listChanged": changes.prompts_changed}
        if "resources/list" in self.methods:
            subscribes = sdk_version() == "2" and "resources/subscribe" in self.methods
            found["resources"] = {"subscribe": subscribes, "listChanged": changes.resources_changed}
        if "tools/list" in self.methods:
            found["tools"] = {"listChanged": changes.tools_changed}
        if "logging/setLevel" in self.methods:
            found["logging"] = {}
        if "completion/complete" in self.methods:
            found["completions"] = {}
        if self.extensions:
            found["extensions"] = self.extensions
        return found

    def get_capabilities(
        self,
        notification_options: NotificationOptions | None = None,
        experimental_capabilities: dict[str, dict[str, Any]] | None = None,
    ) -> Any:
        """Return what the server declares."""
        found = self.capabilities(notification_options, experimental_capabilities)
        return TYPES["ServerCapabilities"].model_validate(found)

    def create_initialization_options(
        self,
        notification_options: NotificationOptions | None = None,
        experimental_capabilities: dict[str, dict[str, Any]] | None = None,
        extensions: dict[str, dict[str, Any]] | None = None,
    ) -> Any:
        """Return what `run` takes."""
        from linkspan_compat.server.models import InitializationOptions

        declared = self.capabilities(notification_options, experimental_capabilities)
        if extensions:
            declared["extensions"] = {**declared.get("extensions", {}), **extensions}

        return InitializationOptions(
            server_name=self.name,
            server_version=self.shown_version(),
            capabilities=LazyCapabilities(declared),
            instructions=self.instructions,
            website_url=self.website_url,
            icons=self.icons,
        )

    async def run(
        self,
        read_stream: Any,
        write_stream: Any,
        initialization_options: Any = None,
        raise_exceptions: bool = False,
        stateless: bool = False,
    ) -> None:
        """Serve one client over a pair of streams."""
        check(
            "Server.run", {"raise_exceptions": raise_exceptions, "stateless": stateless}, "raise_exceptions stateless"
        )
        from linkspan_compat.server.serving import Served
        from linkspan_compat.server.streams import serve_streams

        await serve_streams(Served(self, initialization_options), read_stream, write_stream)

    def streamable_http_app(self, **options: Any) -> Any:
        """Return an ASGI application that serves Streamable HTTP."""
        from linkspan_compat.server.http import streamable_http_app

        return streamable_http_app(self, **options)


class LazyCapabilities:
    """`ServerCapabilities` that becomes a model when somebody looks into it."""

    def __init__(self, members: dict[str, Any]) -> None:
        self._members = members

    def model_dump(self, **options: Any) -> dict[str, Any]:
        """Return the members; as the model would, if it is asked for anything but what is sent."""
        if options.get("by_alias") and options.get("exclude_none"):
            return self._members
        found: dict[str, Any] = self._model().model_dump(**options)
        return found

    def _model(self) -> Any:
        return TYPES["ServerCapabilities"].model_validate(self._members)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model(), name)


class _Unheard(dict[Any, Any]):
    """`server.notification_handlers`: what is put into it is not called, and a warning says so."""

    def __setitem__(self, kind: Any, handler: Any) -> None:
        check("Server", {"on_notification": handler}, "on_notification")
        super().__setitem__(kind, handler)


class _RequestHandlers(MutableMapping[Any, Any]):
    """`server.request_handlers` of version 1: functions of a request, by its class."""

    def __init__(self, server: Server[Any, Any]) -> None:
        self._server = server

    def __getitem__(self, kind: Any) -> Any:
        answer = self._server.methods[method_of(kind)]
        result_of = TYPES["ServerResult"] if sdk_version() == "1" else None

        async def handler(request: Any = None) -> Any:
            params = request.params if request is not None else None
            given = params.model_dump(by_alias=True, mode="json", exclude_none=True) if params is not None else {}
            found = await answer(current_request() or RequestContext(), given)
            if result_of is None:
                return found
            return found if isinstance(found, result_of) else result_of.model_validate(_as_dict(found))

        return handler

    def __setitem__(self, kind: Any, handler: Any) -> None:
        method = method_of(kind)

        async def answer(request: RequestContext, params: dict[str, Any]) -> Any:
            found = await handler(kind.model_validate({"method": method, "params": params or None}))
            return getattr(found, "root", found)

        self._server.methods[method] = answer

    def __delitem__(self, kind: Any) -> None:
        del self._server.methods[method_of(kind)]

    def __contains__(self, kind: object) -> bool:
        return method_of(kind) in self._server.methods

    def __iter__(self) -> Iterator[Any]:
        return (TYPES[_REQUESTS[method]] for method in self._server.methods if method in _REQUESTS)

    def __len__(self) -> int:
        return len(self._server.methods)


def _as_dict(value: Any) -> Any:
    import msgspec

    from linkspan_compat.server.serving import encoded

    return msgspec.json.decode(encoded(value))


def method_of(kind: Any) -> str:
    """Return the method of a class of requests."""
    found: str = kind.model_fields["method"].default
    return found


def failure(text: str) -> dict[str, Any]:
    """Return the result of a tool that failed."""
    return {"content": [{"type": "text", "text": text}], "isError": True}


def contents_of(uri: str, found: Any) -> Any:
    """Return what was read as one item of `contents`."""
    if hasattr(found, "model_dump"):
        return found
    content, mime_type, meta = found.content, found.mime_type, getattr(found, "meta", None)
    more = {"_meta": meta} if meta is not None else {}
    if isinstance(content, bytes):
        encoded = base64.b64encode(content).decode()
        return {"uri": uri, "mimeType": mime_type or "application/octet-stream", "blob": encoded, **more}
    return {"uri": uri, "mimeType": mime_type or "text/plain", "text": content, **more}


def _wants_request(function: Any) -> bool:
    """Return whether a lister takes the request: it has one parameter without a default."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return False
    return any(
        each.default is each.empty and each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)
        for each in parameters
    )


def layered(middleware: Any, call: Any) -> Any:
    async def surrounded(ctx: Any) -> Any:
        return await middleware(ctx, call)

    return surrounded


Session = ServerSession
