"""FastMCP over HTTP."""

from __future__ import annotations

import socket
from typing import Any

from linkspan_compat.fast.settings import settings
from linkspan_compat.keywords import check, refusal
from linkspan_compat.server.http import HttpApp, TransportSecuritySettings, local_url, make_app, run_app

__all__ = ["app_of", "create_sse_app", "create_streamable_http_app", "find_available_port", "serve_http"]


def app_of(
    server: Any,
    path: str | None = None,
    middleware: Any = None,
    transport: str = "http",
    stateless_http: bool | None = None,
    allowed_hosts: list[str] | None = None,
    allowed_origins: list[str] | None = None,
    local: tuple[str, int] | None = None,
    **more: Any,
) -> HttpApp:
    """Return the application of a server. Raises: NotServed for a server that issues tokens."""
    given = server._http_settings
    sse = transport == "sse"
    stateless = stateless_http if stateless_http is not None else given.get("stateless_http", settings.stateless_http)
    security = None
    if allowed_hosts is not None or allowed_origins is not None:
        security = TransportSecuritySettings(True, allowed_hosts, allowed_origins)
    usual = given.get("streamable_http_path", settings.streamable_http_path)
    place = usual if sse or path is None else path
    url = local_url(*local, place) if local is not None else None
    app = make_app(
        server._mcp_server,
        server._custom_routes,
        path=place,
        sse=sse,
        sse_path=path or given.get("sse_path", settings.sse_path),
        stateless=bool(stateless),
        security=security,
        auth=server.auth.protection(place, url) if server.auth is not None else None,
        given={"json_response": given.get("json_response"), "message_path": given.get("message_path"), **more},
    )
    app.state.fastmcp_server = server
    app.state.path = path or (given.get("sse_path", settings.sse_path) if sse else place)
    for each in reversed(list(middleware or ())):
        app.add_middleware(each.cls, *getattr(each, "args", ()), **getattr(each, "kwargs", {}))
    return app


async def serve_http(
    server: Any,
    transport: str = "http",
    host: str | None = None,
    port: int | None = None,
    log_level: str | None = None,
    path: str | None = None,
    uvicorn_config: dict[str, Any] | None = None,
    middleware: Any = None,
    **options: Any,
) -> None:
    """Serve until the process is asked to stop."""
    given = server._http_settings
    place: tuple[str, int] = (
        host or given.get("host") or settings.host,
        port or given.get("port") or settings.port,
    )
    app = app_of(server, path, middleware, transport, local=place, **options)
    await run_app(
        app,
        *place,
        log_level or settings.log_level,
        **(uvicorn_config or {}),
    )


def create_streamable_http_app(server: Any, streamable_http_path: str = "/mcp", **options: Any) -> HttpApp:
    """Return the application of a server."""
    _check_other(server, options)
    return app_of(server, streamable_http_path, **options)


def create_sse_app(server: Any, message_path: str = "/messages/", sse_path: str = "/sse", **options: Any) -> HttpApp:
    """Return the application of a server for the transport of 2024."""
    _check_other(server, options)
    return app_of(server, sse_path, transport="sse", message_path=message_path, **options)


def _check_other(server: Any, options: dict[str, Any]) -> None:
    """Take what the application has from its server. Raises: NotServed for another login, and for more routes."""
    if options.pop("auth", None) not in (None, server.auth):
        raise refusal("create_streamable_http_app", "auth")
    check("create_streamable_http_app", {"routes": options.pop("routes", None)}, "routes")


def find_available_port() -> int:
    """Return a port of loopback that is free now."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port
