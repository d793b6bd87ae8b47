"""Servers that ask another one for everything: a URL, a command, a configuration, a client."""

from __future__ import annotations

import asyncio
import base64
import inspect
import re
import secrets
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final, Self
from urllib.parse import quote

from linkspan_compat.errors import MCPError, ResourceError, ToolError
from linkspan_compat.fast.client import Client, ElicitResult
from linkspan_compat.fast.context import Context, current_context
from linkspan_compat.fast.prompts import Message, Prompt, PromptArgument, PromptResult
from linkspan_compat.fast.resources import Resource, ResourceContent, ResourceResult, matched, pattern_of
from linkspan_compat.fast.server import FastMCP
from linkspan_compat.fast.tools import Tool, ToolResult
from linkspan_compat.fast.transports import process_of
from linkspan_compat.protocol.current import TYPES
from linkspan_compat.server.questions import ask
from linkspan_compat.server.requests import plain
from linkspan_compat.server.versions import MODERN_PROTOCOL_VERSIONS

__all__ = ["FastMCPProxy", "ProxyClient", "clients_of"]

_METHOD_NOT_FOUND: Final = -32601


class ProxyClient(Client):
    """A client that passes what its server asks and tells on to the caller that it works for."""

    def __init__(self, transport: Any, **options: Any) -> None:
        self._own = {name for name in _RELAYS if options.get(name) is None}
        given: dict[str, Any] = {**options, **dict.fromkeys(self._own, _relay)}
        super().__init__(transport, **given)
        self._rebind()

    def _rebind(self) -> None:
        self._callers: list[Context] = []
        relays: Mapping[str, Any] = {
            "roots": self._relay_roots,
            "sampling_handler": self._relay_sample,
            "elicitation_handler": self._relay_elicit,
            "log_handler": self._relay_log,
        }
        members = {"roots": "_roots", "sampling_handler": "_sampling", "elicitation_handler": "_elicitation"}
        for name in self._own:
            setattr(self, members.get(name, "_logs"), relays[name])

    def new(self) -> ProxyClient:
        """Return a client of the same target with a connection and callers of its own."""
        made = super().new()
        assert isinstance(made, ProxyClient)
        made._rebind()
        return made

    async def __aenter__(self) -> Self:
        opened = await super().__aenter__()
        if (
            self._depth == 1
            and "log_handler" in self._own
            and self.session.protocol_version in MODERN_PROTOCOL_VERSIONS
        ):
            await self.set_logging_level("debug")  # without a handshake, a server sends none that are not asked for
        return opened

    @asynccontextmanager
    async def serving(self, caller: Context) -> AsyncIterator[None]:
        """Work for a caller until the block ends."""
        self._callers.append(caller)
        try:
            yield
        finally:
            self._callers.remove(caller)

    def _caller(self) -> Any:
        """Return whom the server asks. Raises: MCPError where several share the connection: no answer may be another's."""
        if len({_party(each) for each in self._callers}) != 1:
            raise MCPError(-32600, "The proxy cannot tell which of its callers is asked")
        return self._callers[-1].request_context

    async def _relay_roots(self, _: Any) -> Any:
        found = await ask(self._caller(), "roots/list", {})
        return TYPES["ListRootsResult"].model_validate(found).roots

    async def _relay_sample(self, _messages: Any, params: Any, _: Any) -> Any:
        found = await ask(self._caller(), "sampling/createMessage", plain(params))
        return TYPES["CreateMessageResult"].model_validate(found)

    async def _relay_elicit(self, _message: str, _kind: Any, params: Any, _: Any) -> Any:
        found = await ask(self._caller(), "elicitation/create", plain(params))
        return ElicitResult(found["action"], found.get("content"))

    async def _relay_log(self, message: Any) -> None:
        if len({_party(each) for each in self._callers}) == 1:
            await self._callers[-1].session.send_log_message(message.level, message.data, message.logger)


def _party(caller: Context) -> object:
    """Return what tells callers apart: the session; over HTTP without one, the request."""
    request = caller.request_context
    if request is None:
        return caller
    return request.session_id or (id(request) if request.headers else None)


_RELAYS: Final = ("roots", "sampling_handler", "elicitation_handler", "log_handler")
"""What is passed on unless the program does it by itself."""


def _relay(*_: Any) -> None:
    """Stand for a handler until it is bound."""


class Backend:
    """Where a proxy gets everything: a client for each request, and one for all where that is a process."""

    def __init__(self, factory: Callable[[], Any]) -> None:
        self._factory = factory
        self._kept: Client | None = None
        self._lock = asyncio.Lock()
        self._known: dict[str, dict[str, Any]] = {}

    @asynccontextmanager
    async def client(self) -> AsyncIterator[Client]:
        """Yield a client that is connected, and works for the request that is served."""
        client = await self._chosen()
        caller = current_context.get(None)
        async with client:
            if isinstance(client, ProxyClient) and caller is not None and caller.request_context is not None:
                async with client.serving(caller):
                    yield client
            else:
                yield client

    async def _chosen(self) -> Client:
        if self._kept is not None and self._kept.is_connected():
            return self._kept
        made = self._factory()
        client: Client = await made if inspect.isawaitable(made) else made
        if client.is_connected() or process_of(client.transport) is None:
            return client
        async with self._lock:
            if self._kept is None:
                await client.__aenter__()
                self._kept = client
            return self._kept

    async def close(self) -> None:
        """End the process that was kept."""
        kept, self._kept = self._kept, None
        if kept is not None:
            await kept.close()

    async def forget(self, client: Client) -> None:
        """Keep a process no longer whose connection is lost."""
        if client is self._kept:
            await self.close()

    async def components(self, kind: str) -> dict[str, Any]:
        """Return all components of a kind by what names them."""
        make, ask_for = _KINDS[kind]
        try:
            async with self.client() as client:
                found = [make(self, each) for each in await ask_for(client)]
        except MCPError as error:
            if error.code != _METHOD_NOT_FOUND:
                raise
            found = []
        self._known[kind] = {each.key: each for each in found}
        return dict(self._known[kind])

    async def find(self, kind: str, key: str) -> Any:
        """Return a component; one that is not known yet is looked for once more."""
        if (found := self._known.get(kind, {}).get(key)) is not None:
            return found
        return (await self.components(kind)).get(key)


def _described(definition: Any) -> dict[str, Any]:
    """Return what a server says of a component."""
    meta = dict(definition.meta or {})
    own = meta.get("fastmcp") or meta.get("_fastmcp") or {}
    return {
        "title": definition.title,
        "description": definition.description,
        "annotations": getattr(definition, "annotations", None),
        "icons": definition.icons,
        "meta": meta or None,
        "tags": own.get("tags") or (),
    }


class ProxyTool(Tool):
    """A tool of another server."""

    def __init__(self, backend: Backend, definition: Any) -> None:
        self.output_schema = definition.output_schema
        super().__init__(
            definition.name,
            definition.input_schema,
            output_schema=definition.output_schema,
            **_described(definition),
        )
        self._backend, self._there = backend, definition.name

    async def run(self, arguments: dict[str, Any]) -> ToolResult:
        """Call it there. Raises: ToolError with the text of a failure."""
        caller = current_context.get(None)
        request = caller.request_context if caller is not None else None
        progress = caller.report_progress if caller is not None and request is not None else None
        meta = dict(request.required.meta) if request is not None else {}
        passed = {name: value for name, value in meta.items() if _may_pass(name)}
        async with self._backend.client() as client:
            try:
                found = await client.call_tool_mcp(self._there, arguments, progress, meta=passed or None)
            except MCPError as error:
                if "Connection closed" in error.message:
                    await self._backend.forget(client)
                raise
        if found.is_error:
            texts = [each.text for each in found.content if each.type == "text"]
            raise ToolError(texts[0] if texts else "")
        return ToolResult(found.content, found.structured_content, found.meta)


def _may_pass(name: str) -> bool:
    """Return whether a member of `_meta` is the caller's own, and says nothing of its connection."""
    return name != "progressToken" and not name.startswith("io.modelcontextprotocol/")


class ProxyResource(Resource):
    """A resource of another server."""

    def __init__(self, backend: Backend, definition: Any) -> None:
        super().__init__(definition.uri, definition.name, definition.mime_type, **_described(definition))
        self._backend, self._there = backend, str(definition.uri)

    async def read(self) -> ResourceResult:
        """Read it there."""
        return await _read(self._backend, self._there)


class ProxyTemplate(Resource):
    """A template of another server."""

    noun = "resource template"

    def __init__(self, backend: Backend, definition: Any) -> None:
        super().__init__(None, definition.name, definition.mime_type, **_described(definition))
        self.uri_template: str = definition.uri_template
        self._pattern = re.compile(pattern_of(self.uri_template))
        self._backend = backend

    @property
    def key(self) -> str:
        """The template."""
        return self.uri_template

    def listed(self) -> dict[str, Any]:
        """Return the template as it is listed."""
        found = super().listed()
        del found["uri"]
        return {"uriTemplate": self.uri_template, **found}

    def to_mcp_template(self, **overrides: Any) -> Any:
        """Return it as a model."""
        return TYPES["ResourceTemplate"].model_validate({**plain(self.listed()), **overrides})

    def matches(self, uri: str) -> dict[str, Any] | None:
        """Return the variables of a URI, None for another one."""
        return matched(self.uri_template, self._pattern, uri)

    async def read_with(self, variables: dict[str, Any]) -> ResourceResult:
        """Read the resource of some variables there."""

        def expanded(part: re.Match[str]) -> str:
            name = part[1]
            if name.startswith("?"):
                asked = [each.strip() for each in name[1:].split(",")]
                query = "&".join(
                    f"{each}={quote(str(variables[each]), safe='')}" for each in asked if each in variables
                )
                return f"?{query}" if query else ""
            return quote(str(variables[name.rstrip("*")]), safe="/" if name.endswith("*") else "")

        return await _read(self._backend, re.sub(r"\{([^}]*)\}", expanded, self.uri_template))


async def _read(backend: Backend, uri: str) -> ResourceResult:
    async with backend.client() as client:
        found = await client.read_resource(uri)
    if not found:
        raise ResourceError(f"Remote server returned empty content for {uri}")
    return ResourceResult([ResourceContent(_content(each), each.mime_type, each.meta) for each in found])


def _content(item: Any) -> str | bytes:
    blob = getattr(item, "blob", None)
    return base64.b64decode(blob) if blob is not None else str(item.text)


class ProxyPrompt(Prompt):
    """A prompt of another server."""

    def __init__(self, backend: Backend, definition: Any) -> None:
        arguments = [
            PromptArgument(each.name, each.description, bool(each.required)) for each in definition.arguments or ()
        ]
        super().__init__(definition.name, arguments, **_described(definition))
        self._backend, self._there = backend, definition.name

    async def render(self, arguments: dict[str, Any] | None = None) -> PromptResult:
        """Get it there."""
        async with self._backend.client() as client:
            found = await client.get_prompt(self._there, arguments)
        messages = [Message(each.content, each.role) for each in found.messages]
        return PromptResult(messages, found.description, found.meta)


_KINDS: Final[Mapping[str, tuple[Any, Any]]] = {
    "tools": (ProxyTool, Client.list_tools),
    "resources": (ProxyResource, Client.list_resources),
    "templates": (ProxyTemplate, Client.list_resource_templates),
    "prompts": (ProxyPrompt, Client.list_prompts),
}


class FastMCPProxy(FastMCP[Any]):
    """A server that asks another one for everything, beside what is registered on it."""

    def __init__(self, client: Any = None, *, client_factory: Any = None, **settings: Any) -> None:
        """`client_factory` returns a client for a request; `client` is what version 2 took instead."""
        if client_factory is None:
            if client is None:
                raise ValueError("Must provide 'client_factory'")
            client_factory = client.new
        name = settings.pop("name", None) or f"{type(self).__name__}-{secrets.token_hex(2)}"
        super().__init__(name, **settings)
        self.client_factory = client_factory
        self._backend = Backend(client_factory)

    @asynccontextmanager
    async def _lifespan(self, _: Any) -> AsyncIterator[Any]:
        async with super()._lifespan(_) as value:
            try:
                yield value
            finally:
                await self._backend.close()

    async def _all(self, kind: str, context: Context | None) -> list[Any]:
        own = await super()._all(kind, context)
        keys = {each.key for each in own}
        there = await self._backend.components(kind)
        return own + [each for key, each in there.items() if key not in keys and self._is_on(kind, each)]

    async def _find(self, kind: str, key: str) -> Any:
        found = await super()._find(kind, key)
        if found is not None or key in getattr(self, f"_{kind}"):
            return found
        there = await self._backend.find(kind, key)
        return there if there is not None and self._is_on(kind, there) else None


def clients_of(target: Any) -> Callable[[], Any]:
    """Return what makes a client of a target for each request; a client that is connected serves all of them."""
    if isinstance(target, Client):
        return (lambda: target) if target.is_connected() else target.new
    return ProxyClient(target).new
