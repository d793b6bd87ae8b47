"""Streamable HTTP and the transport of 2024 for servers of the SDKs: ASGI applications, and serving."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from linkspan_compat.keywords import check
from linkspan_compat.server.serving import Served

if TYPE_CHECKING:
    from linkspan_compat.server.lowlevel import Server

__all__ = [
    "EventStore",
    "HttpApp",
    "SseServerTransport",
    "StreamableHTTPSessionManager",
    "TransportSecuritySettings",
    "app_of",
    "make_app",
    "serve_http",
    "session_manager_of",
    "streamable_http_app",
]

logger = logging.getLogger("mcp.server.http")


class TransportSecuritySettings:
    """Which hosts and origins may be named: `allowed_hosts`, `allowed_origins`; both are checked by Linkspan."""

    def __init__(
        self,
        enable_dns_rebinding_protection: bool = True,
        allowed_hosts: list[str] | None = None,
        allowed_origins: list[str] | None = None,
    ) -> None:
        self.enable_dns_rebinding_protection = enable_dns_rebinding_protection
        self.allowed_hosts = list(allowed_hosts or ())
        self.allowed_origins = list(allowed_origins or ())

    def model_dump(self, **_: Any) -> dict[str, Any]:
        """Return the members."""
        return dict(vars(self))


class EventStore:
    """Base of stores of events; Linkspan keeps them by itself (`max_stored_events`), so its methods are not called."""


def policy_of(security: TransportSecuritySettings | None) -> dict[str, Any]:
    """Return the checks of hosts and origins. A pattern `host:*` means any port. Without settings, those of Linkspan.

    Where the settings switch protection off, requests to an address that is not loopback are not checked; over loopback Linkspan
    always checks.
    """
    if security is None or not security.enable_dns_rebinding_protection:
        return {}
    hosts = [each.removesuffix(":*") for each in security.allowed_hosts]
    origins = [_origin(each) for each in security.allowed_origins]
    return {"allowed_hosts": hosts, "allowed_origins": [each for each in origins if each]}


def _origin(text: str) -> str:
    """Return an origin without a pattern for its port; those of loopback need none."""
    plain = text.removesuffix(":*")
    if plain == text:
        return text
    host = plain.partition("://")[2]
    if host in ("localhost", "127.0.0.1", "[::1]"):
        return ""
    logger.warning("allowed_origins: %r is taken as %r, for a pattern of ports is not served", text, plain)
    return plain


class HttpApp:
    """An ASGI application, with what programs do to Starlette's: `add_middleware`, `add_route`, `mount`, `routes`, `state`."""

    def __init__(
        self, served: Served, path: str, routes: list[Any], policy: dict[str, Any], *, asks_token_first: bool = False
    ) -> None:
        """`asks_token_first`: a request that has neither a token nor a Host that is served is answered 401, not 421."""
        self.served = served
        self._host: str = next(iter(policy.get("allowed_hosts") or ()), "localhost")
        self.state = SimpleNamespace()
        self.path = path
        self._custom = list(routes)
        self._mounted: list[tuple[str, Any]] = []
        self._middleware: list[tuple[Any, tuple[Any, ...], dict[str, Any]]] = []
        self._core = served.under.asgi(path=path, otherwise=self._others, **policy)
        self._inside = self._token_first if asks_token_first else self._core
        if policy.get("http_sse") == _SSE_OF_ROOT:
            self._inside = self._from_root(self._inside)
        self._stack: Any = None
        self._routes: list[Any] | None = None

    @property
    def routes(self) -> list[Any]:
        """The routes as Starlette's: that of the protocol, and the author's, to which others may be appended."""
        if self._routes is None:
            from starlette.routing import Route

            own = Route(self.path, self._inside)
            self._routes = [own, *(Route(path, fn, methods=to, name=name) for path, fn, to, name in self._custom)]
        return self._routes

    @property
    def router(self) -> Any:
        """What programs read of the router: the lifespan and the routes."""
        return SimpleNamespace(lifespan_context=self.lifespan, routes=self.routes)

    @property
    def lifespan(self) -> Any:
        """The lifespan, for the application that this one is mounted in."""

        @asynccontextmanager
        async def opened(app: Any = None) -> AsyncIterator[None]:
            async with self.served.under.lifespan_of(self._core)(app):
                yield

        return opened

    def add_middleware(self, middleware: Any, *args: Any, **options: Any) -> None:
        """Put an ASGI middleware around everything, outside of those that were added before."""
        self._middleware.append((middleware, args, options))
        self._stack = None

    def add_route(
        self, path: str, route: Any, methods: list[str] | None = None, name: str | None = None, **more: Any
    ) -> None:
        """Serve a path with a function of a request of Starlette's."""
        check("add_route", more, "include_in_schema")
        from starlette.routing import Route

        self.routes.append(Route(path, route, methods=methods or ["GET"], name=name))

    def mount(self, path: str, app: Any, name: str | None = None) -> None:
        """Serve what is below a path with another ASGI application."""
        self._mounted.append((path.rstrip("/"), app))

    def _from_root(self, inside: Any) -> Any:
        """Return an application whose stream of 2024 is at the root, which is no path for Linkspan."""

        async def app(scope: Any, receive: Any, send: Any) -> None:
            root = scope.get("root_path", "").rstrip("/")
            if scope["type"] == "http" and scope["path"].removeprefix(root) in ("", "/"):
                scope = {**scope, "path": root + _SSE_OF_ROOT}
            await inside(scope, receive, send)

        return app

    async def _others(self, scope: Any, receive: Any, send: Any) -> None:
        """Serve the paths that are not the protocol's."""
        for prefix, app in self._mounted:
            if scope["type"] in ("http", "websocket") and (scope["path"] + "/").startswith(prefix + "/"):
                await app({**scope, "root_path": scope.get("root_path", "") + prefix}, receive, send)
                return
        if self._custom or self._routes is not None:
            from starlette.routing import Router

            await Router(self.routes[1:])(scope, receive, send)
            return
        await send({"type": "http.response.start", "status": 404, "headers": [(b"content-type", b"text/plain")]})
        await send({"type": "http.response.body", "body": b"Not Found"})

    async def _token_first(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer what is refused for its Host as the SDKs do, which look at the token before."""
        is_answered = False

        async def pass_on(event: Any) -> None:
            nonlocal is_answered
            if event["type"] == "http.response.start" and event["status"] == 421:
                for each in await self._refusal_of_token(scope):
                    is_answered = True
                    await send(each)
            if not is_answered:
                await send(event)

        await self._core(scope, receive, pass_on)

    async def _refusal_of_token(self, scope: Any) -> list[Any]:
        """Return the answer to the same request with a Host that is served; nothing where its token is good."""
        sent: list[Any] = []

        async def receive() -> Any:
            return {"type": "http.request", "body": b"", "more_body": False}

        async def send(event: Any) -> None:
            sent.append(event)

        left_out = (b"host", b"content-length", b"transfer-encoding")
        headers = [(name, value) for name, value in scope["headers"] if name.lower() not in left_out]
        headers += [(b"host", self._host.encode()), (b"content-length", b"0")]
        # Without a body, nothing is done with a good token.
        await self._core({**scope, "method": "POST", "headers": headers}, receive, send)
        return sent if sent[0]["status"] in (401, 403) else []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Serve a request, or a lifespan."""
        if self._stack is None:
            app: Any = self._inside
            for middleware, args, options in self._middleware:
                app = middleware(app, *args, **options)
            self._stack = app
        await self._stack(scope, receive, send)


def make_app(
    server: Server[Any, Any],
    routes: list[Any],
    *,
    path: str,
    sse: bool = False,
    sse_path: str = "/sse",
    stateless: bool = False,
    security: TransportSecuritySettings | None = None,
    auth: Any = None,
    given: dict[str, Any] | None = None,
) -> HttpApp:
    """Return the application of a server; `given` are keywords of the SDKs that bound it. Raises: NotServed for others."""
    policy = {**policy_of(security), **_bounds(dict(given or {}))}
    if sse:
        policy["http_sse"] = sse_path if sse_path.strip("/") else _SSE_OF_ROOT
    if stateless:
        policy["sessions"] = False
    first = auth is not None and security is not None
    return HttpApp(Served(server, auth=auth, lifespan=True), path, routes, policy, asks_token_first=first)


_SSE_OF_ROOT = "/.sse-of-the-root"
"""Where the stream of 2024 is inside of an application that has it at "/"."""
_BOUNDS = {
    "max_request_body_size": "max_body_bytes",
    "max_sessions": "max_sessions",
    "retry_interval": "retry",
    "session_idle_timeout": "session_idle",
}
"""Keywords of the SDKs, and those of Linkspan."""


def _bounds(given: dict[str, Any]) -> dict[str, Any]:
    found = {_BOUNDS[name]: given.pop(name) for name in list(given) if name in _BOUNDS}
    given = {name: value for name, value in given.items() if (name, value) != ("message_path", "/messages/")}
    check("streamable_http_app", given, "json_response message_path event_store debug host_origin_protection stateless")
    return {name: value for name, value in found.items() if value is not None}


def on_loopback(host: str) -> TransportSecuritySettings | None:
    """Return the settings of a server on loopback; None for one elsewhere."""
    if host not in ("127.0.0.1", "localhost", "::1"):
        return None
    return TransportSecuritySettings(
        allowed_hosts=["127.0.0.1:*", "localhost:*", "[::1]:*"],
        allowed_origins=["http://127.0.0.1:*", "http://localhost:*", "http://[::1]:*"],
    )


def local_url(host: str, port: int, path: str) -> str | None:
    """Return the URL of a server on loopback; None for one elsewhere, which has to say how it is called."""
    return f"http://{host}:{port}{path}" if host in ("127.0.0.1", "localhost") else None


_OF_AUTH = ("auth", "auth_server_provider", "token_verifier", "custom_starlette_routes")
"""Keywords of a lowlevel server's application that are read beside its options."""


def _options(server: Any, sse: bool, given: dict[str, Any]) -> dict[str, Any]:
    """Return what `make_app` takes, from the keywords of a call and the settings of the server."""
    from linkspan_compat.auth import protection

    settings = server.settings
    named: Callable[[str, Any], Any] = lambda name, usual: given.get(name, getattr(settings, name, usual))  # noqa: E731
    host, security = named("host", "127.0.0.1"), named("transport_security", None)
    security = security if security is not None else on_loopback(host)
    path = named("streamable_http_path", "/mcp")
    bounds = {name: named(name, None) for name in (*_BOUNDS, "event_store", "json_response")}
    read = ("host", "port", "transport_security", "streamable_http_path", "sse_path", "stateless_http")
    not_read = {name: value for name, value in given.items() if name not in (*read, *_OF_AUTH)}
    return {
        "path": path,
        "sse": sse,
        "sse_path": named("sse_path", "/sse"),
        "stateless": bool(named("stateless_http", False)),
        "security": security,
        "auth": protection(server, local_url(host, given.get("port", getattr(settings, "port", 8000)), path)),
        "given": {**bounds, **not_read},
    }


def app_of(server: Any, *, sse: bool = False, **given: Any) -> HttpApp:
    """Return the application of a FastMCP 1 or an MCPServer. Raises: NotServed for a server that issues tokens."""
    app = make_app(server._lowlevel_server, server._custom_routes, **_options(server, sse, given))
    server._http_app = app
    return app


def streamable_http_app(server: Server[Any, Any], **given: Any) -> HttpApp:
    """Return the application of a lowlevel server. Raises: NotServed with `auth=`."""
    holder = SimpleNamespace(
        settings=SimpleNamespace(auth=given.get("auth")),
        _auth_server_provider=given.get("auth_server_provider"),
        _token_verifier=given.get("token_verifier"),
    )
    return make_app(server, list(given.get("custom_starlette_routes") or ()), **_options(holder, False, given))


async def run_app(app: Any, host: str, port: int, log_level: str = "info", **more: Any) -> None:
    """Serve an application with uvicorn, until the process is asked to stop. Raises: NotServed where uvicorn is missing."""
    try:
        import uvicorn
    except ImportError:
        from linkspan_compat.errors import NotServed

        raise NotServed("serving HTTP needs uvicorn: install the extra linkspan[http] beside linkspan-compat") from None
    config = uvicorn.Config(app, host=host, port=port, log_level=log_level.lower(), **more)
    await uvicorn.Server(config).serve()


async def serve_http(server: Any, *, sse: bool = False, **given: Any) -> None:
    """Serve a FastMCP 1 or an MCPServer over HTTP."""
    settings = server.settings
    host = given.get("host", getattr(settings, "host", "127.0.0.1"))
    port = given.get("port", getattr(settings, "port", 8000))
    build = server.sse_app if sse else server.streamable_http_app
    app = build(**given)
    await run_app(app, host, port, settings.log_level)


def session_manager_of(server: Any) -> Any:
    """Return what runs the application of a server. Raises: RuntimeError before there is one."""
    app = getattr(server, "_http_app", None)
    if app is None:
        raise RuntimeError(
            "Session manager can only be accessed after calling streamable_http_app(). "
            "The session manager is created lazily to avoid unnecessary initialization."
        )
    return _Manager(app)


class _Manager:
    """Runs an application in a lifespan of the author's."""

    def __init__(self, app: HttpApp) -> None:
        self._app = app

    def run(self) -> Any:
        """Hold it open: `async with manager.run()`."""
        return self._app.lifespan(self._app)

    async def handle_request(self, scope: Any, receive: Any, send: Any) -> None:
        """Serve a request, at any path."""
        await self._app({**scope, "path": self._app.path, "root_path": ""}, receive, send)


class StreamableHTTPSessionManager(_Manager):
    """Serves a lowlevel server at whatever path the author gives it."""

    def __init__(
        self,
        app: Any,
        event_store: Any = None,
        json_response: bool = False,
        stateless: bool = False,
        security_settings: TransportSecuritySettings | None = None,
        **bounds: Any,
    ) -> None:
        given = {"event_store": event_store, "json_response": json_response, **bounds}
        super().__init__(make_app(app, [], path="/", stateless=stateless, security=security_settings, given=given))


class SseServerTransport:
    """The transport of 2024, driven by the author: `connect_sse` and `handle_post_message`."""

    def __init__(
        self,
        endpoint: str,
        security_settings: TransportSecuritySettings | None = None,
        max_request_body_size: int | None = None,
    ) -> None:
        self.endpoint = endpoint
        self.bounds = _bounds({"max_request_body_size": max_request_body_size})
        self.security = security_settings
        self.app: HttpApp | None = None

    @asynccontextmanager
    async def connect_sse(self, scope: Any, receive: Any, send: Any) -> AsyncIterator[tuple[Any, Any]]:
        """Yield what `server.run` takes to serve this stream."""
        connection = SseConnection(self, scope, receive, send)
        yield connection, connection

    async def handle_post_message(self, scope: Any, receive: Any, send: Any) -> None:
        """Take a message of a client, which knows the address of its session."""
        if self.app is None:
            await send({"type": "http.response.start", "status": 404, "headers": []})
            await send({"type": "http.response.body", "body": b"there is no session"})
            return
        await self.app({**scope, "path": _SSE, "root_path": ""}, receive, send)


_SSE = "/sse"
"""Where the endpoint of Linkspan is inside of the program's routes, which have paths of their own."""


class SseConnection:
    """One stream of the transport of 2024, before it is served."""

    def __init__(self, transport: SseServerTransport, scope: Any, receive: Any, send: Any) -> None:
        self.transport = transport
        self.scope, self.receive, self.send = scope, receive, send

    async def serve(self, served: Served) -> None:
        """Serve it with the endpoint of Linkspan, which all streams of the transport share."""
        transport = self.transport
        if transport.app is None:
            policy = {**policy_of(transport.security), **transport.bounds, "http_sse": _SSE}
            transport.app = HttpApp(served, "/mcp", [], policy)
        root = self.scope.get("root_path", "").rstrip("/")
        place = f"data: {root}/{transport.endpoint.lstrip('/')}?".encode()
        is_named = False

        async def send(event: Any) -> None:
            nonlocal is_named
            if not is_named and (body := event.get("body")):
                is_named = True  # the first event names where the client posts to: a route of the program's
                event = {**event, "body": body.replace(b"data: ?", place, 1)}
            await self.send(event)

        await transport.app({**self.scope, "path": _SSE, "root_path": ""}, self.receive, send)
