"""`streamable_http_client`, `streamablehttp_client` and `sse_client`: servers at URLs."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import msgspec

from linkspan import Client, Timeouts
from linkspan_compat.client.auth import as_auth, as_httpx, unwrapped
from linkspan_compat.client.ends import ends
from linkspan_compat.flavours import sdk_version
from linkspan_compat.keywords import check, refusal

__all__ = [
    "StreamableHTTPTransport",
    "check_client",
    "connects_to",
    "create_mcp_http_client",
    "httpx_of",
    "over_sse",
    "own_headers",
    "seconds",
    "sse_client",
    "streamable_http_client",
    "streamablehttp_client",
    "tls_of",
]


def connects_to(
    url: str,
    headers: Mapping[str, str] | None = None,
    auth: Any = None,
    *,
    timeout: Any = None,
    http_client: Any = None,
    factory: Any = None,
) -> Any:
    """Return what connects to a URL: `http_client`, or what `factory` makes, says its headers, its login and its TLS context.

    Raises: NotServed for a client that does something else to requests.
    """
    if factory is not None:
        http_client = factory(headers=headers, timeout=timeout, auth=auth)
    more: dict[str, Any] = {}
    given = dict(headers or {})
    if http_client is not None:
        check_client(http_client, "httpx.AsyncClient")
        given = own_headers(http_client) | given
        auth = auth if auth is not None else unwrapped(getattr(http_client, "auth", None))
        if url.startswith("https:"):
            more["ssl"] = tls_of(http_client)

    def connect(**callbacks: Any) -> Client:
        if auth is not None:
            more["auth"] = as_auth(auth)
        if (wait := seconds(timeout)) is not None:
            callbacks["timeouts"] = msgspec.structs.replace(callbacks.get("timeouts", Timeouts()), connect=wait)
        return Client(url, headers=given, **more, **callbacks)

    if hasattr(auth, "prepare"):
        connect.prepare = auth.prepare  # type: ignore[attr-defined]
    return connect


def seconds(value: Any) -> float | None:
    """Return a time to wait: of a number, a timedelta, or a timeout of httpx."""
    value = getattr(value, "connect", value)
    found = value.total_seconds() if hasattr(value, "total_seconds") else value
    return float(found) if found else None


_OF_HTTPX = {"accept", "accept-encoding", "connection", "user-agent"}
_AGENTS = ("python-httpx/", "python-httpx2/")


def httpx_of(client: Any = None) -> Any:
    """Return the module of a client: httpx, or httpx2, which version 2 has; without a client, the one to make clients with."""
    if client is not None:
        for kind in type(client).__mro__:
            if (name := kind.__module__.partition(".")[0]) in ("httpx", "httpx2"):
                return import_module(name)
    names = ("httpx2", "httpx") if sdk_version() == "2" else ("httpx", "httpx2")
    return import_module(next((each for each in names if find_spec(each) is not None), names[0]))


def own_headers(http_client: Any) -> dict[str, str]:
    """Return the headers that a program has set on its client."""
    return {
        name: value
        for name, value in http_client.headers.items()
        if name.lower() not in _OF_HTTPX or (name.lower() == "user-agent" and not value.startswith(_AGENTS))
    }


def check_client(http_client: Any, owner: str) -> None:
    """Raises: NotServed for a client of httpx that does what is not served here to its requests."""
    if any(http_client.event_hooks.values()):
        raise refusal(owner, "event_hooks")
    for name in ("cookies", "params"):
        if getattr(http_client, name, None):
            raise refusal(owner, name)
    if type(getattr(http_client, "_transport", None)).__name__ != "AsyncHTTPTransport":
        raise refusal(owner, "transport")
    mounted, usual = (
        list(vars(each).get("_mounts", ())) for each in (http_client, httpx_of(http_client).AsyncClient(verify=False))
    )
    if mounted != usual:  # those of the variables of the environment are usual
        raise refusal(owner, "proxy")


def tls_of(http_client: Any) -> Any:
    """Return the TLS context of a client of httpx, which has its `verify` and its `cert`."""
    transport = vars(http_client).get("_transport")
    return getattr(getattr(transport, "_pool", None), "_ssl_context", None)


@asynccontextmanager
async def streamablehttp_client(
    url: str,
    headers: dict[str, str] | None = None,
    timeout: Any = None,
    sse_read_timeout: Any = None,
    terminate_on_close: bool = True,
    httpx_client_factory: Any = None,
    auth: Any = None,
) -> AsyncIterator[tuple[Any, Any, Any]]:
    """Yield the streams of a server at a URL, and a function for the id of the session."""
    given = {"sse_read_timeout": seconds(sse_read_timeout), "terminate_on_close": terminate_on_close}
    check("streamablehttp_client", given, "sse_read_timeout terminate_on_close")
    connect = connects_to(str(url), headers, auth, timeout=timeout, factory=httpx_client_factory)
    reader, writer = ends(connect, "streamablehttp_client")
    yield reader, writer, lambda: None


@asynccontextmanager
async def streamable_http_client(
    url: str, *, http_client: Any = None, headers: dict[str, str] | None = None, auth: Any = None, **more: Any
) -> AsyncIterator[Any]:
    """Yield the streams of a server at a URL; headers, login and TLS of `http_client` are used, not its connections."""
    check("streamable_http_client", more, "terminate_on_close max_sse_event_size")
    wait = getattr(http_client, "timeout", None)
    connect = connects_to(str(url), headers, auth, timeout=wait, http_client=http_client)
    reader, writer = ends(connect, "streamable_http_client")
    yield (reader, writer) if sdk_version() == "2" else (reader, writer, lambda: None)


@asynccontextmanager
async def sse_client(
    url: str,
    headers: dict[str, str] | None = None,
    timeout: Any = None,
    sse_read_timeout: Any = None,
    httpx_client_factory: Any = None,
    auth: Any = None,
    on_session_created: Any = None,
) -> AsyncIterator[tuple[Any, Any]]:
    """Yield the streams of a server that may know only the transport of 2024."""
    check("sse_client", {"on_session_created": on_session_created}, "on_session_created")
    yield ends(over_sse(str(url), headers, auth, timeout, sse_read_timeout, httpx_client_factory), "sse_client")


def over_sse(
    url: str,
    headers: Mapping[str, str] | None = None,
    auth: Any = None,
    timeout: Any = None,
    sse_read_timeout: Any = None,
    factory: Any = None,
    verify: Any = None,
) -> Any:
    """Return what connects to a stream of the transport of 2024, with requests of httpx. Raises: NotServed for `auth="oauth"`."""
    from linkspan_compat.client.sse import connects_over_sse

    def make() -> Any:
        httpx = httpx_of()
        wait = httpx.Timeout(seconds(timeout) or 5.0, read=seconds(sse_read_timeout) or 300.0)
        login = as_httpx(auth)
        if factory is not None:
            return factory(headers=dict(headers or {}), timeout=wait, auth=login)
        more = {"verify": verify} if verify is not None else {}
        return httpx.AsyncClient(headers=headers, timeout=wait, auth=login, follow_redirects=True, **more)

    return connects_over_sse(url, make)


def create_mcp_http_client(headers: dict[str, str] | None = None, timeout: Any = None, auth: Any = None) -> Any:
    """Return a client of httpx: its headers and its login are used, and requests of the program's own."""
    httpx = httpx_of()
    more: dict[str, Any] = {name: value for name, value in (("headers", headers), ("auth", auth)) if value is not None}
    return httpx.AsyncClient(follow_redirects=True, timeout=timeout or httpx.Timeout(30.0, read=300.0), **more)


class StreamableHTTPTransport:
    """A URL, for hints."""

    def __init__(self, url: str, **more: Any) -> None:
        check("StreamableHTTPTransport", more, "headers timeout sse_read_timeout auth")
        self.url = url
