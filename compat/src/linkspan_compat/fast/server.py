"""`FastMCP`: a server of decorated functions, versions 2 to 4."""

from __future__ import annotations

import asyncio
import inspect
import logging
import secrets
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, Generic, TypeVar

from linkspan_compat.errors import (
    DisabledError,
    FastMCPError,
    MCPError,
    NotFoundError,
    NotServed,
    PromptError,
    ResourceError,
    ToolError,
    ValidationError,
)
from linkspan_compat.fast.context import Context, current_context
from linkspan_compat.fast.middleware import MiddlewareContext
from linkspan_compat.fast.prompts import FunctionPrompt, Prompt
from linkspan_compat.fast.resources import Resource, ResourceTemplate, of_function
from linkspan_compat.fast.settings import settings
from linkspan_compat.fast.tasks import TasksExtension
from linkspan_compat.fast.tools import BodyError, FunctionTool, Marked, Tool, ToolResult
from linkspan_compat.flavours import fast_version
from linkspan_compat.keywords import check
from linkspan_compat.names import SDK_VERSIONS
from linkspan_compat.placeholders import Record
from linkspan_compat.server import lowlevel
from linkspan_compat.server.lowlevel import failure
from linkspan_compat.server.requests import RequestContext

__all__ = ["FastMCP", "create_proxy", "default_lifespan"]

logger = logging.getLogger("fastmcp.server")

LifespanT = TypeVar("LifespanT")

_KINDS = {"tools": "tool", "resources": "resource", "templates": "template", "prompts": "prompt"}


@asynccontextmanager
async def default_lifespan(_: Any) -> AsyncIterator[Any]:
    """The lifespan of a server that has none."""
    yield {}


class _Mount:
    """Another server inside of one, under a prefix."""

    def __init__(self, server: FastMCP[Any], prefix: str | None, renamed: dict[str, str] | None) -> None:
        self.server = server
        self.prefix = prefix
        self.renamed = dict(renamed or {})

    def outer(self, kind: str, key: str) -> str:
        """Return the name that a component of the other server has here."""
        if kind == "tools" and key in self.renamed:
            return self.renamed[key]
        if not self.prefix:
            return key
        if kind in ("tools", "prompts"):
            return f"{self.prefix}_{key}"
        scheme, colon, rest = key.partition("://")
        return f"{scheme}://{self.prefix}/{rest}" if colon else key

    def inner(self, kind: str, key: str) -> str | None:
        """Return the name that a component has there; None for one of another server."""
        for there, here in self.renamed.items():
            if kind == "tools" and here == key:
                return there
        if not self.prefix:
            return key
        if kind in ("tools", "prompts"):
            return key.removeprefix(f"{self.prefix}_") if key.startswith(f"{self.prefix}_") else None
        scheme, colon, rest = key.partition("://")
        return (
            f"{scheme}://{rest.removeprefix(f'{self.prefix}/')}"
            if colon and rest.startswith(f"{self.prefix}/")
            else None
        )


class FastMCP(Generic[LifespanT]):
    """A server of decorated functions."""

    def __init__(
        self,
        name: str | None = None,
        instructions: str | None = None,
        *,
        version: str | float | None = None,
        website_url: str | None = None,
        icons: Any = None,
        auth: Any = None,
        middleware: Sequence[Any] | None = None,
        lifespan: Any = None,
        tools: Sequence[Any] | None = None,
        on_duplicate: str | None = None,
        mask_error_details: bool | None = None,
        strict_input_validation: bool | None = None,
        include_tags: Any = None,
        exclude_tags: Any = None,
        **more: Any,
    ) -> None:
        from linkspan_compat.auth import check_fast_auth

        self.auth = check_fast_auth(auth)
        self._http_settings = {name: more.pop(name) for name in _HTTP_SETTINGS if name in more}
        self._serializer = more.pop("tool_serializer", None)
        self._on_duplicate = {
            kind: more.pop(f"on_duplicate_{kind}", None) or on_duplicate or "warn" for kind in _OF_OLD
        }
        self._experimental = more.pop("experimental_capabilities", None) or {}
        if (level := more.pop("log_level", None)) is not None:
            logging.getLogger("fastmcp").setLevel(level)
        self._tasks_by_default = bool(more.pop("tasks", None))
        self._task_options: dict[str, Any] = {}
        check("FastMCP", more, _UNREAD)
        self._strict = settings.strict_input_validation if strict_input_validation is None else strict_input_validation
        self._mask = settings.mask_error_details if mask_error_details is None else mask_error_details
        self.middleware: list[Any] = list(middleware or ())
        self._tools: dict[str, Tool] = {}
        self._resources: dict[str, Resource] = {}
        self._templates: dict[str, ResourceTemplate] = {}
        self._prompts: dict[str, Prompt] = {}
        self._mounts: list[_Mount] = []
        self._rules: list[tuple[bool, Callable[[str, Any], bool]]] = []
        self._custom_routes: list[Any] = []
        self._states: dict[str, dict[str, Any]] = {}
        self._completer: Any = None
        self.process_id = secrets.token_hex(16)
        self.lifespan_result: Any = None
        self._user_lifespan = lifespan
        self._mcp_server = lowlevel.Server[Any, Any](
            name or f"FastMCP-{secrets.token_hex(2)}",
            str(version) if version is not None else None,
            instructions,
            website_url,
            icons,
            self._lifespan,
        )
        self._mcp_server.shown_version = self._shown_version  # type: ignore[method-assign]
        self._mcp_server.capabilities = self._capabilities  # type: ignore[method-assign, assignment]
        self._mcp_server.failed = self._failed  # type: ignore[method-assign]
        self._mcp_server.task_tools = self._task_tools  # type: ignore[method-assign]
        self._register()
        for each in tools or ():
            self.add_tool(each)
        if include_tags:
            self.enable(tags=set(include_tags), only=True)
        if exclude_tags:
            self.disable(tags=set(exclude_tags))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"

    # Facts.

    @property
    def name(self) -> str:
        """The name."""
        return self._mcp_server.name

    @property
    def version(self) -> str | None:
        """The version."""
        return self._mcp_server.version

    @property
    def instructions(self) -> str | None:
        """How a model should use the server."""
        return self._mcp_server.instructions

    @instructions.setter
    def instructions(self, value: str | None) -> None:
        self._mcp_server.instructions = value

    @property
    def icons(self) -> Any:
        """The icons."""
        return self._mcp_server.icons or []

    @property
    def website_url(self) -> str | None:
        """The website."""
        return self._mcp_server.website_url

    @property
    def settings(self) -> Any:
        """The settings of this process, with those of this server."""
        return Record(**{**vars(settings), **self._http_settings})

    def _shown_version(self) -> str:
        return self.version or SDK_VERSIONS[f"fastmcp {fast_version()}"]

    def _capabilities(self, *_: Any) -> dict[str, Any]:
        is_four = fast_version() == "4"
        found: dict[str, Any] = {} if is_four and not self._experimental else {"experimental": dict(self._experimental)}
        found["logging"] = {}
        found["prompts"] = {"listChanged": is_four}
        found["resources"] = {"subscribe": False, "listChanged": is_four}
        found["tools"] = {"listChanged": True}
        if self._completer is not None:
            found["completions"] = {}
        return found

    def session_state(self, key: str) -> dict[str, Any]:
        """Return what functions keep for a session."""
        while len(self._states) > 10_000:
            self._states.pop(next(iter(self._states)))
        return self._states.setdefault(key, {})

    # The lifespan, and those of mounted servers.

    @asynccontextmanager
    async def _lifespan(self, _: Any) -> AsyncIterator[Any]:
        from contextlib import AsyncExitStack

        async with AsyncExitStack() as stack:
            made = self._user_lifespan
            if made is not None:
                made = asynccontextmanager(made) if inspect.isasyncgenfunction(made) else made
                self.lifespan_result = await stack.enter_async_context(made(self))
            for mount in self._mounts:
                await stack.enter_async_context(mount.server._lifespan(None))
            yield self.lifespan_result

    # Registration.

    def _add(self, kind: str, component: Any) -> Any:
        kept: dict[str, Any] = getattr(self, f"_{kind}")
        key = component.key
        if key in kept:
            match self._on_duplicate["resources" if kind == "templates" else kind]:
                case "error":
                    raise ValueError(f"Component already exists: {_KINDS[kind]}:{key}@")
                case "ignore":
                    return kept[key]
                case "warn":
                    logger.warning("Component already exists: %s:%s", _KINDS[kind], key)
                case _:
                    pass
        kept[key] = component
        return component

    def add_tool(self, tool: Any) -> Any:
        """Offer a tool, or a function as one."""
        if not isinstance(tool, Tool):
            marked = getattr(getattr(tool, "__func__", tool), "__fastmcp__", None)
            described = marked.described if isinstance(marked, Marked) and marked.kind == "tool" else {}
            tool = self._made_tool(tool, **described)
        return self._add("tools", tool)

    def _made_tool(self, function: Any, **described: Any) -> FunctionTool:
        if self._serializer is not None:
            described.setdefault("serializer", self._serializer)
        if described.get("task") is None and self._tasks_by_default:
            described["task"] = True
        return FunctionTool(function, **described)

    def tool(self, name_or_fn: Any = None, *, name: str | None = None, **described: Any) -> Any:
        """Offer a function as a tool: with or without parentheses, with a name first or as a keyword.

        Raises: TypeError for a class method, and for a name given twice.
        """
        if isinstance(name_or_fn, classmethod):
            raise TypeError("To decorate a classmethod, use @classmethod above @tool.")
        if isinstance(name_or_fn, str) and name is not None:
            raise TypeError("Cannot specify both a name as first argument and as keyword argument.")
        chosen = name_or_fn if isinstance(name_or_fn, str) else name

        def register(function: Any) -> Any:
            made = self.add_tool(self._made_tool(function, name=chosen, **described))
            return made if fast_version() == "2" else function

        if name_or_fn is not None and not isinstance(name_or_fn, str):
            if not callable(name_or_fn):
                raise TypeError(f"Invalid first argument: {type(name_or_fn)}")
            return register(name_or_fn)
        return register

    def remove_tool(self, name: str, version: str | None = None) -> None:
        """Take a tool away. Raises: NotFoundError."""
        check("remove_tool", {"version": version}, "version")
        if self._tools.pop(name, None) is None:
            raise NotFoundError(f"Unknown tool: {name!r}")

    def add_resource(self, resource: Any) -> Any:
        """Offer a resource, or a marked function as one."""
        marked = getattr(resource, "__fastmcp__", None)
        if isinstance(marked, Marked):
            described = dict(marked.described)
            resource = of_function(resource, described.pop("uri"), described)
        return self._add("templates" if isinstance(resource, ResourceTemplate) else "resources", resource)

    def add_template(self, template: Any) -> Any:
        """Offer a template."""
        return self._add("templates", template)

    def add_resource_fn(self, fn: Any, uri: str, **described: Any) -> None:
        """Offer a function as a resource or template."""
        self.add_resource(of_function(fn, uri, described))

    def resource(self, uri: str, *, name: str | None = None, **described: Any) -> Any:
        """Offer the function below as a resource, or as a template. Raises: TypeError without a URI."""
        if inspect.isroutine(uri):
            raise TypeError(
                "The @resource decorator was used incorrectly. "
                "Did you forget to call it? Use @resource('uri') instead of @resource"
            )

        def register(function: Any) -> Any:
            made = self.add_resource(of_function(function, uri, {"name": name, **described}))
            return made if fast_version() == "2" else function

        return register

    def add_prompt(self, prompt: Any) -> Any:
        """Offer a prompt, or a function as one."""
        if not isinstance(prompt, Prompt):
            marked = getattr(prompt, "__fastmcp__", None)
            prompt = FunctionPrompt(prompt, **(marked.described if isinstance(marked, Marked) else {}))
        return self._add("prompts", prompt)

    def prompt(self, name_or_fn: Any = None, *, name: str | None = None, **described: Any) -> Any:
        """Offer a function as a prompt, with or without parentheses."""
        chosen = name_or_fn if isinstance(name_or_fn, str) else name

        def register(function: Any) -> Any:
            made = self.add_prompt(FunctionPrompt(function, name=chosen, **described))
            return made if fast_version() == "2" else function

        return register(name_or_fn) if callable(name_or_fn) else register

    def add_middleware(self, middleware: Any) -> None:
        """Surround requests, inside of what was added before."""
        self.middleware.append(middleware)

    def add_completion_handler(self, handler: Any) -> None:
        """Complete arguments with a function of the reference, the argument and the context."""
        self._completer = handler
        self._mcp_server.methods["completion/complete"] = self._complete

    def completion(self, handler: Any = None) -> Any:
        """Complete arguments with the function below."""

        def register(function: Any) -> Any:
            self.add_completion_handler(function)
            return function

        return register(handler) if handler is not None else register

    def custom_route(
        self, path: str, methods: list[str], name: str | None = None, include_in_schema: bool = True
    ) -> Any:
        """Serve a path of the HTTP application with the function below: it takes a request of Starlette's."""

        def register(function: Any) -> Any:
            self._custom_routes.append((path, function, methods, name))
            return function

        return register

    def mount(
        self,
        server: Any = None,
        namespace: str | None = None,
        tool_names: dict[str, str] | None = None,
        *,
        prefix: str | None = None,
        **more: Any,
    ) -> None:
        """Offer what another server offers, under a prefix. Raises: ValueError for the server itself."""
        check("mount", more, "as_proxy resource_separator tool_separator prompt_separator")
        if isinstance(server, str):  # the order of version 2.2
            server, namespace = namespace, server
        if server is self:
            raise ValueError("Cannot mount a server onto itself")
        self._mounts.append(_Mount(server, namespace or prefix, tool_names))

    async def import_server(self, server: Any, prefix: str | None = None, **more: Any) -> None:
        """Copy what another server offers now."""
        check("import_server", more, "resource_separator tool_separator prompt_separator")
        mount = _Mount(server, prefix, None)
        for kind in _KINDS:
            for component in await server._all(kind, None):
                self._add(kind, _renamed(mount, kind, component))

    @classmethod
    def as_proxy(cls, backend: Any, **options: Any) -> Any:
        """Return a server that asks another one for everything."""
        return create_proxy(backend, **options)

    def add_extension(self, extension: Any) -> None:
        """Serve tasks, where the extension is that of tasks. Raises: NotServed for any other."""
        if not isinstance(extension, TasksExtension):
            raise NotServed(
                f"add_extension({type(extension).__name__}) is not served by linkspan-compat; write for Linkspan: "
                "Server(name, extensions=[...])"
            )
        self._task_options = extension.options()

    def _task_tools(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the tools that may run as tasks with their settings, and what a server of Linkspan needs for them."""
        found = {each.key: each.task_config.settings() for each in self._tools.values() if _may_be_task(each)}
        for mount in self._mounts:
            inner, _ = mount.server._task_tools()
            found |= {mount.outer("tools", name): settings for name, settings in inner.items()}
        return found, self._task_options if found else {}

    def add_provider(self, provider: Any, namespace: str = "") -> None:
        """Refuse what is written otherwise here."""
        raise NotServed("add_provider is not served by linkspan-compat; write for Linkspan: server.mount(other)")

    def add_transform(self, transform: Any) -> None:
        """Refuse what is written otherwise here."""
        raise NotServed(
            "add_transform is not served by linkspan-compat; write for Linkspan: server.edit(name, Edit(...))"
        )

    @classmethod
    def from_openapi(
        cls, openapi_spec: dict[str, Any], client: Any = None, name: str = "OpenAPI Server", **options: Any
    ) -> Any:
        """Return a server of the operations of an OpenAPI document. Raises: NotServed for some options."""
        from linkspan_compat.fast.openapi import spec_tools

        tools = spec_tools(openapi_spec, client, options)
        return cls(name, tools=tools, **options)

    @classmethod
    def from_fastapi(
        cls, app: Any, name: str | None = None, *, httpx_client_kwargs: dict[str, Any] | None = None, **options: Any
    ) -> Any:
        """Return a server of the operations of an application. Raises: NotServed for some options."""
        from linkspan_compat.fast.openapi import app_tools

        tools = app_tools(app, httpx_client_kwargs or {}, options)
        return cls(name or app.title, tools=tools, **options)

    # What is switched on and off.

    def enable(self, *, only: bool = False, **chosen: Any) -> FastMCP[LifespanT]:
        """Switch components on, by names, keys, tags and kinds; with `only`, all others off."""
        if only:
            self._rules.append((False, lambda _kind, _component: True))
        self._rules.append((True, _rule(chosen)))
        return self

    def disable(self, **chosen: Any) -> FastMCP[LifespanT]:
        """Switch components off, by names, keys, tags and kinds."""
        self._rules.append((False, _rule(chosen)))
        return self

    def _is_on(self, kind: str, component: Any) -> bool:
        on = component.enabled
        for switched, holds in self._rules:
            if holds(kind, component):
                on = switched
        return bool(on)

    # Finding: the server's own, then those of mounted servers.

    async def _all(self, kind: str, context: Context | None) -> list[Any]:
        found: dict[str, Any] = {each.key: each for each in getattr(self, f"_{kind}").values()}
        for mount in self._mounts:
            for component in await mount.server._listed(kind, context):
                made = _renamed(mount, kind, component)
                found.setdefault(made.key, made)
        return [each for each in found.values() if self._is_on(kind, each)]

    async def _listed(self, kind: str, context: Context | None) -> list[Any]:
        """Return the components of a kind through the middleware."""
        method = {"templates": "resources/templates/list"}.get(kind, f"{kind}/list")
        if not self.middleware:
            return await self._all(kind, context)
        message = Record(method=method, params=None)
        listed: list[Any] = await self._through(method, message, context, lambda _: self._all(kind, context))
        return listed

    async def _find(self, kind: str, key: str) -> Any:
        kept = getattr(self, f"_{kind}").get(key)
        if kept is not None:
            return kept if self._is_on(kind, kept) else None
        for mount in self._mounts:
            inner = mount.inner(kind, key)
            found = await mount.server._find(kind, inner) if inner is not None else None
            if found is not None:
                made = _renamed(mount, kind, found)
                return made if self._is_on(kind, made) else None
        return None

    async def _through(self, method: str, message: Any, context: Context | None, inside: Callable[[Any], Any]) -> Any:
        call: Any = inside
        for each in reversed(self.middleware):
            call = _layer(each, call)
        return await call(MiddlewareContext(message, context, method=method))

    # What programs ask of the object.

    async def list_tools(self, *, run_middleware: bool = True) -> list[Any]:
        """Return the tools."""
        return await (self._listed if run_middleware else self._all)("tools", current_context.get(None))

    async def list_resources(self, *, run_middleware: bool = True) -> list[Any]:
        """Return the resources."""
        return await (self._listed if run_middleware else self._all)("resources", current_context.get(None))

    async def list_resource_templates(self, *, run_middleware: bool = True) -> list[Any]:
        """Return the templates."""
        return await (self._listed if run_middleware else self._all)("templates", current_context.get(None))

    async def list_prompts(self, *, run_middleware: bool = True) -> list[Any]:
        """Return the prompts."""
        return await (self._listed if run_middleware else self._all)("prompts", current_context.get(None))

    async def get_tools(self) -> dict[str, Any]:
        """Return the tools by their names."""
        return {each.key: each for each in await self._all("tools", None)}

    async def get_resources(self) -> dict[str, Any]:
        """Return the resources by their URIs."""
        return {each.key: each for each in await self._all("resources", None)}

    async def get_resource_templates(self) -> dict[str, Any]:
        """Return the templates by their patterns."""
        return {each.key: each for each in await self._all("templates", None)}

    async def get_prompts(self) -> dict[str, Any]:
        """Return the prompts by their names."""
        return {each.key: each for each in await self._all("prompts", None)}

    async def get_tool(self, name: str, version: Any = None) -> Any:
        """Return a tool; None without it, in version 2 NotFoundError."""
        check("get_tool", {"version": version}, "version")
        return self._found(await self._find("tools", name), "tool", name)

    async def get_resource(self, uri: Any, version: Any = None) -> Any:
        """Return a resource."""
        check("get_resource", {"version": version}, "version")
        from linkspan_compat.fast.resources import normal_uri

        return self._found(await self._find("resources", normal_uri(uri)), "resource", uri)

    async def get_prompt(self, name: str, version: Any = None) -> Any:
        """Return a prompt."""
        check("get_prompt", {"version": version}, "version")
        return self._found(await self._find("prompts", name), "prompt", name)

    def _found(self, component: Any, noun: str, key: Any) -> Any:
        if component is None and fast_version() == "2":
            raise NotFoundError(f"Unknown {noun}: {key!r}")
        return component

    async def call_tool(
        self, name: str, arguments: dict[str, Any] | None = None, *, run_middleware: bool = True, **more: Any
    ) -> ToolResult:
        """Call a tool. Raises: NotFoundError, ToolError, ValidationError."""
        check("call_tool", more, "version task_meta")
        async with self._context() as context:
            given = arguments or {}
            return await (self._called(name, given, context) if run_middleware else self._call(name, given))

    async def read_resource(self, uri: Any, *, run_middleware: bool = True, **more: Any) -> Any:
        """Read a resource. Raises: NotFoundError, ResourceError."""
        check("read_resource", more, "version task_meta")
        async with self._context() as context:
            return await (self._read(str(uri), context) if run_middleware else self._read_inside(str(uri)))

    async def render_prompt(
        self, name: str, arguments: dict[str, Any] | None = None, *, run_middleware: bool = True, **more: Any
    ) -> Any:
        """Render a prompt. Raises: NotFoundError, PromptError."""
        check("render_prompt", more, "version task_meta")
        async with self._context() as context:
            return await (self._rendered(name, arguments, context) if run_middleware else self._render(name, arguments))

    @asynccontextmanager
    async def _context(self) -> AsyncIterator[Context]:
        found = current_context.get(None)
        if found is not None:
            yield found
            return
        async with Context(self) as made:
            yield made

    # Calls, through the middleware.

    async def _called(self, name: str, arguments: dict[str, Any], context: Context) -> ToolResult:
        if not self.middleware:
            return await self._call(name, arguments)
        message = Record(name=name, arguments=arguments, method="tools/call")

        async def inside(changed: Any) -> ToolResult:
            return await self._call(changed.message.name, changed.message.arguments or {})

        found: ToolResult = await self._through("tools/call", message, context, inside)
        return found

    async def _call(self, name: str, arguments: dict[str, Any]) -> ToolResult:
        for mount in self._mounts:
            inner = mount.inner("tools", name) if name not in self._tools else None
            if inner is not None and await mount.server._find("tools", inner) is not None:
                if await self._find("tools", name) is None:
                    break
                found: ToolResult = await mount.server._called(inner, arguments, current_context.get())
                return found
        tool = await self._find("tools", name)
        if tool is None:
            raise NotFoundError(f"Unknown tool: {name!r}")
        if self._strict:
            from linkspan_compat.server.checking import problem_of

            if (problem := problem_of(arguments, tool.parameters)) is not None:
                raise ToolError(f"Input validation error: {problem}")
        from pydantic import ValidationError as PydanticValidationError

        try:
            result: ToolResult = await tool.run(arguments)
        except (ValidationError, PydanticValidationError) as error:
            logger.warning("Invalid arguments for tool %r", name)
            if isinstance(error, PydanticValidationError) and fast_version() == "2":
                raise ToolError(f"Error calling tool {name!r}: {error}") from error
            raise
        except FastMCPError as error:
            logger.log(error.log_level, "Error calling tool %r: %s", name, error)
            raise
        except asyncio.CancelledError:
            raise
        except Exception as error:
            if isinstance(error, MCPError) and error.code == -32021:
                raise
            logger.error("Error calling tool %r", name, exc_info=True)
            shown = error.__cause__ if isinstance(error, BodyError) else error
            if self._mask:
                raise ToolError(f"Error calling tool {name!r}") from shown
            raise ToolError(f"Error calling tool {name!r}: {shown}") from shown
        return result

    async def _read(self, uri: str, context: Context) -> Any:
        if not self.middleware:
            return await self._read_inside(uri)
        message = Record(uri=uri, method="resources/read")
        return await self._through(
            "resources/read", message, context, lambda changed: self._read_inside(str(changed.message.uri))
        )

    async def _read_inside(self, uri: str) -> Any:
        found = await self._find("resources", uri)
        variables: dict[str, Any] | None = None
        if found is None:
            for template in await self._all("templates", None):
                variables = template.matches(uri)
                if variables is not None:
                    found = template
                    break
        if found is None:
            raise NotFoundError(f"Unknown resource: {uri!r}")
        if variables is not None and fast_version() == "4":
            from linkspan_compat.server.components import escapes

            if any(escapes(value) for value in variables.values() if isinstance(value, str)):
                raise NotFoundError(f"Unknown resource: {uri!r}")
        try:
            return await (found.result() if variables is None else found.read_with(variables))
        except (FastMCPError, MCPError) as error:
            logger.exception("Error reading resource %r", uri, exc_info=error)
            raise
        except Exception as error:
            logger.exception("Error reading resource %r", uri)
            if self._mask:
                raise ResourceError(f"Error reading resource {uri!r}") from error
            raise ResourceError(f"Error reading resource {uri!r}: {error}") from error

    async def _rendered(self, name: str, arguments: dict[str, Any] | None, context: Context) -> Any:
        if not self.middleware:
            return await self._render(name, arguments)
        message = Record(name=name, arguments=arguments, method="prompts/get")
        return await self._through(
            "prompts/get",
            message,
            context,
            lambda changed: self._render(changed.message.name, changed.message.arguments),
        )

    async def _render(self, name: str, arguments: dict[str, Any] | None) -> Any:
        prompt = await self._find("prompts", name)
        if prompt is None:
            raise NotFoundError(f"Unknown prompt: {name!r}")
        try:
            return prompt.convert_result(await prompt.render(arguments))
        except (FastMCPError, MCPError):
            raise
        except Exception as error:
            logger.exception("Error rendering prompt %r", name)
            if self._mask:
                raise PromptError(f"Error rendering prompt {name!r}") from error
            raise PromptError(f"Error rendering prompt {name!r}: {error}") from error

    # What answers clients.

    def _register(self) -> None:
        for kind in _KINDS:
            method = {"templates": "resources/templates/list"}.get(kind, f"{kind}/list")
            self._mcp_server.methods[method] = self._answers_list(kind)
        self._mcp_server.methods |= {
            "tools/call": self._answer_call,
            "resources/read": self._answer_read,
            "prompts/get": self._answer_prompt,
            "logging/setLevel": self._answer_level,
        }

    def _answers_list(self, kind: str) -> Any:
        member = {"templates": "resourceTemplates"}.get(kind, kind)

        async def answer(request: RequestContext, params: dict[str, Any]) -> Any:
            async with Context(self, request) as context:
                found = await self._listed(kind, context)
                return {member: [each.listed() for each in found]}

        return answer

    async def _answer_call(self, request: RequestContext, params: dict[str, Any]) -> Any:
        name = params["name"]
        from pydantic import ValidationError as PydanticValidationError

        async with Context(self, request) as context:
            try:
                return (await self._called(name, params.get("arguments") or {}, context)).sent()
            except (NotFoundError, DisabledError):
                return failure(f"Unknown tool: {name!r}")
            except (FastMCPError, PydanticValidationError) as error:
                return failure(str(error))
            except MCPError as error:
                if fast_version() == "4" or error.code == -32042:
                    raise
                return failure(str(error))

    async def _answer_read(self, request: RequestContext, params: dict[str, Any]) -> Any:
        from linkspan_compat.fast.resources import normal_uri

        uri = params["uri"] if fast_version() == "4" else normal_uri(params["uri"])
        async with Context(self, request) as context:
            try:
                return (await self._read(uri, context)).sent(uri)
            except (NotFoundError, DisabledError) as error:
                code = -32602 if fast_version() == "4" else -32002
                raise MCPError(
                    code, f"Resource not found: {uri!r}", {"uri": uri} if fast_version() == "4" else None
                ) from error
            except FastMCPError as error:
                raise _as_mcp_error(error) from error

    async def _answer_prompt(self, request: RequestContext, params: dict[str, Any]) -> Any:
        name = params["name"]
        async with Context(self, request) as context:
            try:
                return (await self._rendered(name, params.get("arguments"), context)).sent()
            except (NotFoundError, DisabledError) as error:
                raise MCPError(-32602, f"Unknown prompt: {name!r}") from error
            except FastMCPError as error:
                raise _as_mcp_error(error) from error

    async def _answer_level(self, request: RequestContext, params: dict[str, Any]) -> Any:
        return {}

    async def _complete(self, request: RequestContext, params: dict[str, Any]) -> Any:
        from linkspan_compat.protocol.current import TYPES

        asked = TYPES["CompleteRequestParams"].model_validate(params)
        async with Context(self, request):
            found = self._completer(asked.ref, asked.argument, asked.context)
            found = await found if inspect.isawaitable(found) else found
        if found is None or isinstance(found, list | tuple):
            return {"completion": {"values": list(found or ())[:100]}}
        return {"completion": found}

    def _failed(self, error: Exception) -> Any:
        return lowlevel.Server.failed(self._mcp_server, error)

    # Serving.

    def run(self, transport: str | None = None, show_banner: bool | None = None, **options: Any) -> None:
        """Serve until the client goes away or the process is asked to stop. Raises: ValueError for another transport."""
        asyncio.run(self.run_async(transport, show_banner, **options))

    async def run_async(self, transport: str | None = None, show_banner: bool | None = None, **options: Any) -> None:
        """Serve on this event loop."""
        match transport or "stdio":
            case "stdio":
                await self.run_stdio_async(show_banner, **options)
            case "http" | "streamable-http" | "sse" as kind:
                await self.run_http_async(show_banner, kind, **options)
            case other:
                raise ValueError(f"Unknown transport: {other}")

    async def run_stdio_async(
        self, show_banner: bool | None = None, log_level: str | None = None, stateless: bool = False
    ) -> None:
        """Serve stdio."""
        check("run", {"show_banner": show_banner, "stateless": stateless}, "show_banner stateless")
        if log_level is not None:
            logging.getLogger("fastmcp").setLevel(log_level.upper())
        from linkspan_compat.server.serving import Served

        await Served(self._mcp_server).stdio()

    async def run_http_async(self, show_banner: bool | None = None, transport: str = "http", **options: Any) -> None:
        """Serve HTTP."""
        check("run", {"show_banner": show_banner}, "show_banner")
        from linkspan_compat.fast.http import serve_http

        await serve_http(self, transport, **options)

    async def run_sse_async(self, **options: Any) -> None:
        """Serve HTTP with the transport of 2024."""
        await self.run_http_async(transport="sse", **options)

    async def run_streamable_http_async(self, **options: Any) -> None:
        """Serve Streamable HTTP."""
        await self.run_http_async(transport="http", **options)

    def http_app(self, path: str | None = None, middleware: Any = None, transport: str = "http", **options: Any) -> Any:
        """Return an ASGI application, with a `lifespan` for the one that it is mounted in."""
        from linkspan_compat.fast.http import app_of

        return app_of(self, path, middleware, transport, **options)

    def streamable_http_app(self, path: str | None = None, middleware: Any = None) -> Any:
        """Return an ASGI application that serves Streamable HTTP."""
        return self.http_app(path, middleware)

    def sse_app(self, path: str | None = None, message_path: str | None = None, middleware: Any = None) -> Any:
        """Return an ASGI application that serves the transport of 2024."""
        check("sse_app", {"message_path": message_path}, "message_path")
        return self.http_app(path, middleware, "sse")


_OF_OLD = ("tools", "resources", "prompts")
"""What version 2 had a rule of its own for, where a name is there twice."""
_UNREAD = (
    "providers transforms dereference_schemas list_page_size tool_transformations include_fastmcp_meta debug "
    "sampling_handler sampling_handler_behavior session_state_store client_log_level resource_security "
    "request_state_security cache_ttl cache_scope"
)
"""Keywords that are refused, or have no effect."""
_HTTP_SETTINGS = ("host", "port", "sse_path", "message_path", "streamable_http_path", "json_response", "stateless_http")


def _may_be_task(tool: Tool) -> bool:
    return tool.task_config.supports_tasks()


def _renamed(mount: _Mount, kind: str, component: Any) -> Any:
    """Return a component of a mounted server under the name that it has here."""
    name = mount.outer(kind, component.key)
    if name == component.key and kind in ("tools", "prompts"):
        return component
    made = component.copy()
    if kind in ("tools", "prompts"):
        made.name = name
    elif kind == "resources":
        made.uri = name
    else:
        return _MountedTemplate(component, name, mount)
    return made


class _MountedTemplate:
    """A template of a mounted server, under the pattern that it has here."""

    noun = "resource template"

    def __init__(self, template: Any, uri_template: str, mount: _Mount) -> None:
        self._template = template
        self._mount = mount
        self.uri_template = self.key = uri_template

    def __getattr__(self, name: str) -> Any:
        return getattr(self._template, name)

    def copy(self) -> _MountedTemplate:
        """Return a copy."""
        return _MountedTemplate(self._template, self.uri_template, self._mount)

    def listed(self) -> dict[str, Any]:
        """Return the template as it is listed."""
        return {**self._template.listed(), "uriTemplate": self.uri_template}

    def matches(self, uri: str) -> dict[str, Any] | None:
        """Return the variables of a URI, None for another one."""
        inner = self._mount.inner("templates", uri)
        found: dict[str, Any] | None = self._template.matches(inner) if inner is not None else None
        return found


def _rule(chosen: dict[str, Any]) -> Callable[[str, Any], bool]:
    """Return whether a component is meant. Raises: TypeError for what chooses by nothing that is known."""
    if unknown := chosen.keys() - {"names", "keys", "tags", "components", "version"}:
        raise TypeError(
            f"enable and disable choose by names, keys, tags and components, not by {', '.join(sorted(unknown))}"
        )
    names, keys, tags, kinds = (chosen.get(each) for each in ("names", "keys", "tags", "components"))

    def holds(kind: str, component: Any) -> bool:
        noun = _KINDS[kind]
        if names is not None and component.key not in names and component.name not in names:
            return False
        if keys is not None and not any(each.partition("@")[0] == f"{noun}:{component.key}" for each in keys):
            return False
        if tags is not None and not set(tags) & component.tags:
            return False
        return kinds is None or noun in kinds

    return holds


def _layer(middleware: Any, call: Any) -> Any:
    async def surrounded(context: Any) -> Any:
        return await middleware(context, call)

    return surrounded


def _as_mcp_error(error: FastMCPError) -> MCPError:
    if fast_version() != "4":
        return MCPError(0, str(error))
    return MCPError(-32602 if isinstance(error, ValidationError) else -32603, str(error))


def create_proxy(target: Any, **settings: Any) -> Any:
    """Return a server that asks another one for everything; one in this process is mounted.

    `target` is a URL, a configuration, a client, a transport, a file or a server.
    """
    if isinstance(target, FastMCP):
        made: FastMCP[Any] = FastMCP(settings.pop("name", None) or target.name, **settings)
        made.mount(target)
        return made
    from linkspan_compat.fast.proxy import FastMCPProxy, clients_of

    return FastMCPProxy(client_factory=clients_of(target), **settings)
