"""`FastMCP` of version 1 and `MCPServer` of version 2: a server of decorated functions."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any, TypeVar

from linkspan_compat.errors import (
    MCPError,
    ResourceError,
    ResourceNotFoundError,
    ToolError,
    UnexpectedResourceError,
    UnexpectedToolError,
)
from linkspan_compat.flavours import sdk_version
from linkspan_compat.keywords import check
from linkspan_compat.protocol.current import TYPES
from linkspan_compat.server import lowlevel
from linkspan_compat.server.components import (
    FunctionResource,
    Prompt,
    PromptManager,
    ResourceManager,
    ToolManager,
    present,
    variables_of,
)
from linkspan_compat.server.context import Context
from linkspan_compat.server.lowlevel import ReadResourceContents, contents_of, failure
from linkspan_compat.server.requests import RequestContext, request_ctx

__all__ = ["FastMCP", "MCPServer"]

logger = logging.getLogger("mcp.server.mcpserver")

F = TypeVar("F", bound=Callable[..., Any])


class _Generic(type):
    """`FastMCP[State]` is the class itself."""

    def __getitem__(cls, _: object) -> type:
        return cls


class MCPServer(metaclass=_Generic):
    """A server of decorated functions, version 2."""

    _default_name = "mcp-server"

    def __init__(
        self,
        name: str | None = None,
        title: str | None = None,
        description: str | None = None,
        instructions: str | None = None,
        website_url: str | None = None,
        icons: Any = None,
        version: str = "",
        auth_server_provider: Any = None,
        token_verifier: Any = None,
        *,
        tools: Any = None,
        resources: Any = None,
        debug: bool = False,
        log_level: str = "INFO",
        warn_on_duplicate_resources: bool = True,
        warn_on_duplicate_tools: bool = True,
        warn_on_duplicate_prompts: bool = True,
        dependencies: Iterable[str] | None = None,
        lifespan: Any = None,
        auth: Any = None,
        middleware: Any = None,
        **more: Any,
    ) -> None:
        self.settings = SimpleNamespace(
            debug=debug,
            log_level=log_level,
            warn_on_duplicate_resources=warn_on_duplicate_resources,
            warn_on_duplicate_tools=warn_on_duplicate_tools,
            warn_on_duplicate_prompts=warn_on_duplicate_prompts,
            dependencies=list(dependencies or ()),
            lifespan=lifespan,
            auth=auth,
            **self._settings(more),
        )
        check(type(self).__name__, more, self._unread)
        self.dependencies = self.settings.dependencies
        _check_auth(auth, auth_server_provider, token_verifier)
        self._auth_server_provider = auth_server_provider
        self._token_verifier = token_verifier
        self._tool_manager = ToolManager(warn_on_duplicate_tools, tools=tools)
        self._resource_manager = ResourceManager(warn_on_duplicate_resources, resources=resources)
        self._prompt_manager = PromptManager(warn_on_duplicate_prompts)
        self._custom_routes: list[Any] = []
        self._lowlevel_server = lowlevel.Server[Any, Any](
            name or self._default_name,
            version or None,
            instructions,
            website_url,
            icons,
            _lifespan_of(self, lifespan) if lifespan is not None else lowlevel.lifespan,
            title=title,
            description=description,
        )
        self._lowlevel_server.middleware.extend(middleware or ())
        self._lowlevel_server.failed = self._failed  # type: ignore[method-assign]
        self._register()
        logging.basicConfig(format="%(message)s", level=str(log_level).upper())

    _unread = "extensions resource_security request_state_security cache_hints subscriptions"
    """Keywords that are refused, or have no effect."""

    def _settings(self, more: dict[str, Any]) -> dict[str, Any]:
        return {}

    def _register(self) -> None:
        methods = {
            "tools/list": self._answer_list_tools,
            "tools/call": self._answer_call_tool,
            "resources/list": self._answer_list_resources,
            "resources/templates/list": self._answer_list_templates,
            "resources/read": self._answer_read_resource,
            "prompts/list": self._answer_list_prompts,
            "prompts/get": self._answer_get_prompt,
        }
        for method, answer in methods.items():
            self._lowlevel_server.methods[method] = self._surrounded(method, answer)

    def _surrounded(self, method: str, answer: Any) -> Any:
        """Pass a request through the middleware of version 2, if there is any."""
        server = self._lowlevel_server

        async def surrounded(request: RequestContext, params: dict[str, Any]) -> Any:
            if not server.middleware:
                return await answer(request, params)
            call: Any = lambda ctx: answer(ctx, params)  # noqa: E731
            for each in reversed(server.middleware):
                call = lowlevel.layered(each, call)
            return await call(request)

        return surrounded

    def _failed(self, error: Exception) -> Any:
        return lowlevel.Server.failed(self._lowlevel_server, error)

    # Facts.

    @property
    def _mcp_server(self) -> Any:
        return self._lowlevel_server

    @property
    def name(self) -> str:
        """The name."""
        return self._lowlevel_server.name

    @property
    def title(self) -> str | None:
        """The title."""
        return self._lowlevel_server.title

    @property
    def description(self) -> str | None:
        """The description."""
        return self._lowlevel_server.description

    @property
    def instructions(self) -> str | None:
        """How a model should use the server."""
        return self._lowlevel_server.instructions

    @property
    def website_url(self) -> str | None:
        """The website."""
        return self._lowlevel_server.website_url

    @property
    def icons(self) -> Any:
        """The icons."""
        return self._lowlevel_server.icons

    @property
    def version(self) -> str:
        """The version."""
        return self._lowlevel_server.shown_version()

    @property
    def middleware(self) -> list[Any]:
        """What surrounds requests: `async (ctx, call_next)`, the outermost first."""
        return self._lowlevel_server.middleware

    @property
    def session_manager(self) -> Any:
        """What runs the HTTP application in a lifespan of the author's: `async with mcp.session_manager.run()`."""
        from linkspan_compat.server.http import session_manager_of

        return session_manager_of(self)

    # Registration.

    def add_tool(self, fn: Any, name: str | None = None, **more: Any) -> Any:
        """Offer a function as a tool."""
        return self._tool_manager.add_tool(fn, name, **more)

    def remove_tool(self, name: str) -> None:
        """Take a tool away. Raises: ToolError."""
        self._tool_manager.remove_tool(name)

    def tool(
        self,
        name: str | None = None,
        title: str | None = None,
        description: str | None = None,
        annotations: Any = None,
        icons: Any = None,
        meta: dict[str, Any] | None = None,
        structured_output: bool | None = None,
    ) -> Callable[[F], F]:
        """Offer the function below as a tool. Raises: TypeError without parentheses."""
        _check_called(name, "tool", "")

        def register(fn: F) -> F:
            self.add_tool(
                fn,
                name=name,
                title=title,
                description=description,
                annotations=annotations,
                icons=icons,
                meta=meta,
                structured_output=structured_output,
            )
            return fn

        return register

    def add_resource(self, resource: Any) -> None:
        """Offer a resource."""
        self._resource_manager.add_resource(resource)

    def resource(
        self,
        uri: str,
        *,
        name: str | None = None,
        title: str | None = None,
        description: str | None = None,
        mime_type: str | None = None,
        icons: Any = None,
        annotations: Any = None,
        meta: dict[str, Any] | None = None,
        **more: Any,
    ) -> Callable[[F], F]:
        """Offer the function below as a resource, or as a template. Raises: TypeError; ValueError for other variables."""
        _check_called(uri, "resource", "'uri'")
        check("resource", more, "security")
        described: dict[str, Any] = {
            "name": name,
            "title": title,
            "description": description,
            "mime_type": mime_type,
            "icons": icons,
            "annotations": annotations,
            "meta": meta,
        }

        def register(fn: F) -> F:
            parameters = inspect.signature(fn).parameters
            if "{" not in uri and not parameters:
                self.add_resource(FunctionResource(uri, fn, **described))
                return fn
            from linkspan_compat.server.plain_signatures import find_context_parameter

            context = find_context_parameter(fn)
            path, query = variables_of(uri)
            wanted = path | query
            given = {each for each in parameters if each != context}
            if sdk_version() == "2" and not wanted and not given:  # only a context
                self.add_resource(FunctionResource(uri, fn, **described))
                return fn
            if wanted != given:
                raise ValueError(f"Mismatch between URI parameters {wanted} and function parameters {given}")
            self._resource_manager.add_template(fn, uri, **described)
            return fn

        return register

    def add_prompt(self, prompt: Prompt) -> None:
        """Offer a prompt."""
        self._prompt_manager.add_prompt(prompt)

    def prompt(
        self, name: str | None = None, title: str | None = None, description: str | None = None, icons: Any = None
    ) -> Callable[[F], F]:
        """Offer the function below as a prompt. Raises: TypeError without parentheses."""
        _check_called(name, "prompt", "")

        def register(fn: F) -> F:
            self.add_prompt(Prompt(fn, name, title, description, icons))
            return fn

        return register

    def completion(self) -> Any:
        """Register what completes arguments."""
        return self._lowlevel_server.completion()

    def custom_route(
        self, path: str, methods: list[str], name: str | None = None, include_in_schema: bool = True
    ) -> Callable[[F], F]:
        """Serve a path of the HTTP application with the function below: it takes a request of Starlette's."""

        def register(fn: F) -> F:
            self._custom_routes.append((path, fn, methods, name))
            return fn

        return register

    # What clients ask, for programs that ask it of the object.

    def get_context(self) -> Context:
        """Return the context of the request that is served."""
        return Context(request_context=request_ctx.get(None), mcp_server=self)

    async def list_tools(self) -> Any:
        """Return the tools as models."""
        return [TYPES["Tool"].model_validate(_plain(each.listed())) for each in self._tool_manager.list_tools()]

    async def call_tool(self, name: str, arguments: dict[str, Any], context: Context | None = None) -> Any:
        """Call a tool. Raises: ToolError."""
        return await self._tool_manager.call_tool(name, arguments, context or self.get_context(), convert_result=True)

    async def list_resources(self) -> Any:
        """Return the resources as models."""
        found = self._resource_manager.list_resources()
        return [TYPES["Resource"].model_validate(_plain(_listed_resource(each))) for each in found]

    async def list_resource_templates(self) -> Any:
        """Return the templates as models."""
        found = self._resource_manager.list_templates()
        return [TYPES["ResourceTemplate"].model_validate(_plain(each.listed())) for each in found]

    async def read_resource(self, uri: Any, context: Context | None = None) -> Any:
        """Read a resource. Raises: ResourceError."""
        context = context or self.get_context()
        resource: Any = None
        if sdk_version() == "1":
            resource = await self._resource_manager.get_resource(uri, context)
        try:
            resource = resource or await self._resource_manager.get_resource(uri, context)
            content = await resource.read()
        except (MCPError, ResourceError):
            raise
        except Exception as error:
            if sdk_version() == "2":
                raise UnexpectedResourceError(f"Error reading resource {uri}") from error
            logger.exception("Error reading resource %s", uri)
            raise ResourceError(str(error)) from error
        return [ReadResourceContents(content, resource.mime_type, resource.meta)]

    async def list_prompts(self) -> Any:
        """Return the prompts as models."""
        return [TYPES["Prompt"].model_validate(_plain(each.listed())) for each in self._prompt_manager.list_prompts()]

    async def get_prompt(self, name: str, arguments: dict[str, Any] | None = None, context: Any = None) -> Any:
        """Render a prompt. Raises: ValueError."""
        return TYPES["GetPromptResult"].model_validate(
            await self._prompt(name, arguments, context or self.get_context())
        )

    async def _prompt(self, name: str, arguments: dict[str, Any] | None, context: Context) -> dict[str, Any]:
        prompt = self._prompt_manager.get_prompt(name)
        if prompt is None:
            raise ValueError(f"Unknown prompt: {name}")
        try:
            messages = await prompt.render(arguments, context)
        except MCPError:
            raise
        except Exception as error:
            logger.exception("Error getting prompt %s", name)
            raise ValueError(str(error)) from error
        if not isinstance(messages, list):
            return messages  # type: ignore[no-any-return]
        return present(
            {
                "description": prompt.description,
                "messages": [{"role": each.role, "content": _plain(each.content)} for each in messages],
            }
        )

    # What answers clients. A method that a subclass has replaced is asked instead.

    def _is_own(self, name: str) -> bool:
        return getattr(type(self), name) in (getattr(MCPServer, name), getattr(FastMCP, name)) and name not in vars(
            self
        )

    async def _answer_list_tools(self, request: RequestContext, params: dict[str, Any]) -> Any:
        if not self._is_own("list_tools"):
            return {"tools": list(await self.list_tools())}
        return {"tools": [each.listed() for each in self._tool_manager.list_tools()]}

    async def _answer_call_tool(self, request: RequestContext, params: dict[str, Any]) -> Any:
        name, arguments = params["name"], params.get("arguments") or {}
        context = Context(request_context=request, mcp_server=self)
        try:
            if not self._is_own("call_tool"):
                return _sent(await self.call_tool(name, arguments))
            tool = self._tool_manager.get_tool(name)
            if tool is None:
                raise ToolError(f"Unknown tool: {name}")
            if "run" in vars(tool):
                return _sent(await tool.run(arguments, context=context, convert_result=True))
            return await tool.answer(arguments, context)
        except MCPError as error:
            if sdk_version() == "2" or error.code == -32042:
                raise
            return failure(str(error))
        except Exception as error:
            if isinstance(error, UnexpectedToolError) or not isinstance(error, ToolError):
                logger.exception("Tool %r raised an unexpected exception", name)
            return failure(str(error))

    async def _answer_list_resources(self, request: RequestContext, params: dict[str, Any]) -> Any:
        if not self._is_own("list_resources"):
            return {"resources": list(await self.list_resources())}
        return {"resources": [_listed_resource(each) for each in self._resource_manager.list_resources()]}

    async def _answer_list_templates(self, request: RequestContext, params: dict[str, Any]) -> Any:
        if not self._is_own("list_resource_templates"):
            return {"resourceTemplates": list(await self.list_resource_templates())}
        return {"resourceTemplates": [each.listed() for each in self._resource_manager.list_templates()]}

    async def _answer_read_resource(self, request: RequestContext, params: dict[str, Any]) -> Any:
        uri = params["uri"]
        try:
            if sdk_version() == "1":
                return {"contents": [contents_of(_uri(uri), each) for each in await self.read_resource(_uri(uri))]}
            found = await self.read_resource(uri, Context(request_context=request, mcp_server=self))
        except ResourceError as error:
            if sdk_version() == "1":
                raise
            code = -32602 if isinstance(error, ResourceNotFoundError) else -32603
            if isinstance(error, UnexpectedResourceError):
                logger.exception("Resource %r raised an unexpected exception", uri)
            raise MCPError(code, str(error), {"uri": uri}) from error
        return {"contents": [contents_of(uri, each) for each in found]}

    async def _answer_list_prompts(self, request: RequestContext, params: dict[str, Any]) -> Any:
        if not self._is_own("list_prompts"):
            return {"prompts": list(await self.list_prompts())}
        return {"prompts": [each.listed() for each in self._prompt_manager.list_prompts()]}

    async def _answer_get_prompt(self, request: RequestContext, params: dict[str, Any]) -> Any:
        name, arguments = params["name"], params.get("arguments")
        if not self._is_own("get_prompt"):
            return await self.get_prompt(name, arguments)
        return await self._prompt(name, arguments, Context(request_context=request, mcp_server=self))

    # Serving.

    def run(self, transport: str = "stdio", mount_path: str | None = None, **options: Any) -> None:
        """Serve until the client goes away or the process is asked to stop. Raises: ValueError for another transport."""
        if transport not in ("stdio", "sse", "streamable-http"):
            raise ValueError(f"Unknown transport: {transport}")
        match transport:
            case "stdio":
                asyncio.run(self.run_stdio_async())
            case "sse":
                asyncio.run(self.run_sse_async(mount_path, **options))
            case _:
                asyncio.run(self.run_streamable_http_async(**options))

    async def run_stdio_async(self) -> None:
        """Serve stdio."""
        from linkspan_compat.server.serving import Served

        await Served(self._lowlevel_server).stdio()

    async def run_sse_async(self, mount_path: str | None = None, **options: Any) -> None:
        """Serve HTTP with the transport of 2024."""
        from linkspan_compat.server.http import serve_http

        await serve_http(self, sse=True, **options)

    async def run_streamable_http_async(self, **options: Any) -> None:
        """Serve Streamable HTTP."""
        from linkspan_compat.server.http import serve_http

        await serve_http(self, **options)

    def streamable_http_app(self, **options: Any) -> Any:
        """Return an ASGI application that serves Streamable HTTP."""
        from linkspan_compat.server.http import app_of

        return app_of(self, **options)

    def sse_app(self, mount_path: str | None = None, **options: Any) -> Any:
        """Return an ASGI application that serves the transport of 2024."""
        from linkspan_compat.server.http import app_of

        return app_of(self, sse=True, **options)


class FastMCP(MCPServer):
    """A server of decorated functions, version 1."""

    _default_name = "FastMCP"
    _unread = ""

    def __init__(
        self,
        name: str | None = None,
        instructions: str | None = None,
        website_url: str | None = None,
        icons: Any = None,
        auth_server_provider: Any = None,
        token_verifier: Any = None,
        **more: Any,
    ) -> None:
        super().__init__(
            name,
            instructions=instructions,
            website_url=website_url,
            icons=icons,
            auth_server_provider=auth_server_provider,
            token_verifier=token_verifier,
            **more,
        )

    def _settings(self, more: dict[str, Any]) -> dict[str, Any]:
        """Take the settings of HTTP, which environment variables may set, too."""
        import os

        usual: dict[str, Any] = {
            "host": "127.0.0.1",
            "port": 8000,
            "mount_path": "/",
            "sse_path": "/sse",
            "message_path": "/messages/",
            "streamable_http_path": "/mcp",
            "json_response": False,
            "stateless_http": False,
            "max_request_body_size": 4 * 1024 * 1024,
            "session_idle_timeout": None,
            "max_sessions": None,
            "transport_security": None,
            "event_store": None,
            "retry_interval": None,
        }
        found = {name: more.pop(name, _from_environment(os.environ, name, value)) for name, value in usual.items()}
        if found["transport_security"] is None:
            from linkspan_compat.server.http import on_loopback

            found["transport_security"] = on_loopback(found["host"])
        return found


def _check_called(first: Any, decorator: str, argument: str) -> None:
    """Refuse a decorator without parentheses, which gets the function first. Raises: TypeError."""
    if callable(first):
        raise TypeError(
            f"The @{decorator} decorator was used incorrectly. "
            f"Did you forget to call it? Use @{decorator}({argument}) instead of @{decorator}"
        )


def _from_environment(environ: Any, name: str, usual: Any) -> Any:
    """Return a setting from `FASTMCP_NAME`, or the usual value."""
    text = environ.get(f"FASTMCP_{name.upper()}")
    if text is None or usual is None:
        return usual
    if isinstance(usual, bool):
        return text.lower() in ("1", "true", "yes", "on")
    return type(usual)(text)


def _check_auth(auth: Any, provider: Any, verifier: Any) -> None:
    if auth is not None:
        if provider and verifier:
            raise ValueError("Cannot specify both auth_server_provider and token_verifier")
        if not provider and not verifier:
            raise ValueError("Must specify either auth_server_provider or token_verifier when auth is enabled")
    elif provider or verifier:
        raise ValueError("Cannot specify auth_server_provider or token_verifier without auth settings")


def _lifespan_of(server: Any, lifespan: Any) -> Any:
    """Give a lifespan the server that the author knows."""

    @asynccontextmanager
    async def opened(_: Any) -> AsyncIterator[Any]:
        async with lifespan(server) as value:
            yield value

    return opened


def _plain(value: Any) -> Any:
    from linkspan_compat.server.requests import plain

    return plain(value)


def _sent(found: Any) -> Any:
    """Return what `call_tool` of the author's gave as a result."""
    if hasattr(found, "model_dump"):
        return found
    if isinstance(found, tuple) and len(found) == 2:
        return {"content": list(found[0]), "structuredContent": found[1], "isError": False}
    if isinstance(found, dict):
        import json

        return {
            "content": [{"type": "text", "text": json.dumps(found, indent=2)}],
            "structuredContent": found,
            "isError": False,
        }
    return {"content": list(found), "isError": False}


def _uri(uri: Any) -> str:
    """Return a URI as version 1 writes it."""
    if sdk_version() == "2":
        return str(uri)
    from pydantic import AnyUrl

    return str(AnyUrl(str(uri)))


def _listed_resource(resource: Any) -> dict[str, Any]:
    return present(
        {
            "uri": _uri(resource.uri),
            "name": resource.name or "",
            "title": resource.title,
            "description": resource.description,
            "mimeType": resource.mime_type,
            "icons": resource.icons,
            "annotations": resource.annotations,
            "_meta": resource.meta,
        }
    )
