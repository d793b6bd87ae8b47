"""`FastMCP.from_openapi` and `from_fastapi`: tools that call a server of `linkspan.openapi`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from linkspan import Client, Server
from linkspan_compat.errors import NotServed, ToolError
from linkspan_compat.fast.tools import Tool, ToolResult
from linkspan_compat.keywords import check
from linkspan_compat.names import line_instead

__all__ = ["app_tools", "spec_tools"]

_OF_HTTPX: Final = frozenset({"accept", "accept-encoding", "connection"})


class _ApiTool(Tool):
    """An operation of an API."""

    def __init__(self, server: Server, inner: str, **described: Any) -> None:
        super().__init__(output_schema=None, **described)
        self._server = server
        self._inner = inner

    async def run(self, arguments: dict[str, Any]) -> ToolResult:
        """Call the operation. Raises: ToolError."""
        from linkspan_compat.protocol.current import TYPES

        async with Client(self._server) as client:
            found: Any = await client.request("tools/call", {"name": self._inner, "arguments": arguments})
        if found.get("isError"):
            raise ToolError("\n".join(each["text"] for each in found["content"] if each["type"] == "text"))
        return ToolResult(TYPES["CallToolResult"].model_validate(found).content, found.get("structuredContent"))


def spec_tools(spec: Any, client: Any, options: dict[str, Any]) -> list[Tool]:
    """Return the operations of a document as tools, sent as an `httpx.AsyncClient` says. Raises: NotServed."""
    from linkspan.openapi import from_openapi, read_document

    names, tags = _taken(options, "from_openapi")
    document = read_document(spec)
    if client is None:
        return _tools(from_openapi(document, only=["*"]), document, names, tags)
    from linkspan_compat.client.http import check_client, tls_of

    check_client(client, "httpx.AsyncClient")
    for each in ("auth", "follow_redirects"):
        if getattr(client, each, None):
            raise _not_served(f"httpx.AsyncClient({each}=...)", "from_openapi(spec, auth=..., headers=...)")
    server = from_openapi(
        document,
        only=["*"],
        base_url=str(client.base_url).rstrip("/") or None,
        headers={
            name: value
            for name, value in client.headers.items()
            if name not in _OF_HTTPX and not value.startswith("python-httpx/")
        },
        ssl=tls_of(client),
        timeout=_seconds(client.timeout),
    )
    return _tools(server, document, names, tags)


def app_tools(app: Any, client_options: Mapping[str, Any], options: dict[str, Any]) -> list[Tool]:
    """Return the operations of an application as tools; its lifespan is not entered. Raises: NotServed."""
    from linkspan.openapi import from_app, read_document

    names, tags = _taken(options, "from_fastapi")
    if extra := sorted(client_options.keys() - {"base_url", "headers", "timeout"}):
        raise _not_served(f"httpx_client_kwargs={{{extra[0]!r}: ...}}", "from_app(app, only=['*'], headers=...)")
    document = read_document(app.openapi())
    server = from_app(
        app,
        document=document,
        only=["*"],
        base_url=str(client_options.get("base_url", "http://fastapi")),
        headers=dict(client_options.get("headers") or {}),
        lifespan=False,
        timeout=_seconds(client_options.get("timeout")),
    )
    return _tools(server, document, names, tags)


def _taken(options: dict[str, Any], what: str) -> tuple[Mapping[str, str], set[str]]:
    """Take the options of both out of those of the server."""
    for each in ("route_maps", "route_map_fn", "mcp_component_fn"):
        if options.pop(each, None):
            raise _not_served(f"FastMCP.{what}({each}=...)", line_instead(each))
    if what == "from_openapi":
        check(f"FastMCP.{what}", {"validate_output": options.pop("validate_output", None)}, "validate_output")
    return options.pop("mcp_names", None) or {}, set(options.pop("tags", None) or ())


def _tools(server: Server, document: Any, names: Mapping[str, str], tags: Iterable[str]) -> list[Tool]:
    return [
        _ApiTool(
            server,
            each.name,
            name=names.get(each.operation_id or "", each.name),
            parameters=dict(each.input_schema),
            description=each.description or each.title or None,
            tags={*each.tags, *tags},
        )
        for each in document.readable(document.keys)
    ]


def _seconds(given: Any) -> float:
    seconds = getattr(given, "read", given)
    return float(seconds) if isinstance(seconds, int | float) else 30.0


def _not_served(what: str, line: str) -> NotServed:
    return NotServed(f"{what} is not served by linkspan-compat; write for Linkspan: {line}")
