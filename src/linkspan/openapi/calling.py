"""Requests to an API elsewhere: over our own client, with the credentials of its author, bounded in size, time and number.

Law: nothing goes to another origin than that of the base URL, and nothing that follows a redirect carries credentials. An address
in a private network is contacted only where the author has written the URL.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from inspect import isawaitable
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias, cast
from urllib.parse import quote, urljoin, urlsplit

import msgspec

from linkspan.errors import LinkspanError, RegistrationError, ToolError, import_problem
from linkspan.openapi.answers import ApiReply
from linkspan.openapi.requests import ApiRequest
from linkspan.server.context import Context
from linkspan.wire.headers import is_loopback

if TYPE_CHECKING:
    from ssl import SSLContext

    from linkspan.client.transports.http_loops import LoopPool

__all__ = ["ApiAuth", "ApiClient", "ApiCredentials", "ApiKey", "ApiSender", "Bearer", "check_base_url"]

MAX_RESPONSE: Final = 8 * 1024 * 1024
TIMEOUT: Final = 30.0
CONCURRENCY: Final = 32
MAX_WAITING: Final = 1_000
MAX_REDIRECTS: Final = 3
_REDIRECTS: Final = (301, 302, 303, 307, 308)
_CONNECT: Final = 10.0


class Bearer(msgspec.Struct, frozen=True):
    """A token in a variable of the environment, for `Authorization: Bearer`. It is read for each call."""

    env: str


class ApiKey(msgspec.Struct, frozen=True):
    """A key in a variable of the environment, for a header, a parameter of the query, or a cookie. It is read for each call."""

    env: str
    header: str | None = None
    query: str | None = None
    cookie: str | None = None
    prefix: str = ""
    """What stands in front of the key."""


class ApiCredentials(msgspec.Struct, frozen=True):
    """What identifies one request."""

    headers: Mapping[str, str] = {}
    query: str = ""
    secrets: Sequence[str] = ()
    """What no text may show."""


_TokenOrHeaders: TypeAlias = "str | Mapping[str, str]"
_AuthFunction: TypeAlias = "Callable[[Context], _TokenOrHeaders | Awaitable[_TokenOrHeaders]]"
ApiAuth: TypeAlias = "str | Bearer | ApiKey | Sequence[Bearer | ApiKey] | _AuthFunction | None"
"""How requests are identified: a token, one of the environment, or a function that returns a token, or headers, for a caller."""


class ApiSender(Protocol):
    """What sends the requests of tools."""

    uri: str
    """What names the API in results."""

    async def send(self, request: ApiRequest, context: Context) -> tuple[ApiReply, Sequence[str]]:
        """Return the response, and what no text may show. Raises: ToolError."""
        ...


def check_auth(auth: ApiAuth) -> None:
    """Refuse credentials that cannot be there. Raises: RegistrationError."""
    given: Sequence[object] = cast("Sequence[object]", auth) if isinstance(auth, list | tuple) else [auth]
    for each in given:
        if isinstance(each, Bearer | ApiKey):
            if not os.environ.get(each.env):
                raise RegistrationError(f"{type(each).__name__}(env={each.env!r}): that variable is not set")
            if isinstance(each, ApiKey) and [each.header, each.query, each.cookie].count(None) != 2:
                raise RegistrationError(f"ApiKey(env={each.env!r}): give one of header=, query= and cookie=")
        elif each is not None and not isinstance(each, str) and not callable(each):
            raise RegistrationError(
                f"auth={each!r}: pass a token, Bearer(env=...), ApiKey(env=..., header=...), or a function of the Context"
            )


async def credentials_of(auth: ApiAuth, context: Context) -> ApiCredentials:
    """Return what identifies the requests of a call. Raises: ToolError; what the author's function raises."""
    if auth is None:
        return ApiCredentials()
    if callable(auth):
        given = auth(context)
        found = await given if isawaitable(given) else given
        if isinstance(found, Mapping):
            return ApiCredentials({name.lower(): value for name, value in found.items()}, "", list(found.values()))
        return ApiCredentials({"authorization": f"Bearer {found}"}, "", [str(found)])
    if isinstance(auth, str):
        return ApiCredentials({"authorization": f"Bearer {auth}"}, "", [auth])
    headers: dict[str, str] = {}
    query: list[str] = []
    secrets: list[str] = []
    for each in [auth] if isinstance(auth, Bearer | ApiKey) else auth:
        value = os.environ.get(each.env, "").strip()
        if not value:
            raise ToolError("this server has no credentials for the API")
        secrets.append(value)
        if isinstance(each, Bearer):
            headers["authorization"] = f"Bearer {value}"
        elif each.header is not None:
            headers[each.header.lower()] = each.prefix + value
        elif each.query is not None:
            query.append(f"{quote(each.query, safe='')}={quote(each.prefix + value, safe='')}")
        else:
            headers["cookie"] = "; ".join(filter(None, (headers.get("cookie"), f"{each.cookie}={each.prefix}{value}")))
    return ApiCredentials(headers, "&".join(query), secrets)


def check_base_url(url: str, *, written: bool) -> str:
    """Return a base URL without a slash at its end. `written`: the author has, not the document. Raises: RegistrationError."""
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        raise RegistrationError(f"base_url={url!r} is not a valid URL") from None
    if parts.scheme not in ("http", "https") or not host or "{" in url or not url.isprintable() or " " in url:
        said = "" if written else "the first server of the document is "
        raise RegistrationError(f"{said}{url!r}: write base_url='https://...', the URL that the paths are below")
    if "@" in parts.netloc or "\\" in url or parts.query or parts.fragment or url.endswith(("?", "#")):
        raise RegistrationError(
            f"{url!r} has a user name, a query or a fragment: write base_url= without them, and auth="
        )
    if any(each in (".", "..") for each in parts.path.lower().replace("%2e", ".").split("/")):
        raise RegistrationError(f"{url!r} has a segment of dots: write base_url= without it")
    if parts.scheme == "http" and not written:
        raise RegistrationError(
            f"the first server of the document is {url!r}, whose requests others can read: write base_url={url!r} if it is right"
        )
    return url.rstrip("/")


class ApiClient:
    """Sends requests below one base URL, for calls on any event loop."""

    def __init__(
        self,
        base_url: str,
        auth: ApiAuth = None,
        *,
        written: bool,
        headers: Mapping[str, str],
        forward: Sequence[str] = (),
        ssl: SSLContext | None = None,
        timeout: float = TIMEOUT,
        max_response: int = MAX_RESPONSE,
        concurrency: int = CONCURRENCY,
    ) -> None:
        """Open nothing yet. `written`: the author has written the URL, which may be in a private network then.

        `headers` go with each request, and so do those of the caller that `forward` names.
        Raises: RegistrationError, or LinkspanError if httptools is not installed.
        """
        self.uri = self._base = check_base_url(base_url, written=written)
        check_auth(auth)
        self._auth = auth
        self._written = written
        self._headers = {name.lower(): value for name, value in headers.items()}
        self._forward = tuple(each.lower() for each in forward)
        self._ssl = ssl
        self._timeout = timeout
        self._max_response = max_response
        self._concurrency = concurrency
        try:
            import_module("httptools")  # missing ones are named when the server starts
        except ImportError as error:
            raise LinkspanError(import_problem("calling an API needs httptools", "http", error)) from None
        self._pools: dict[asyncio.AbstractEventLoop, tuple[LoopPool, asyncio.Semaphore]] = {}
        self._waiting = 0
        if (base := urlsplit(self._base)).scheme == "http" and auth is not None and not _is_here(base.hostname or ""):
            from linkspan.server.observation import warn

            warn(
                f"auth= sends its credentials to {self._base} unencrypted, where anyone on the way can read them: use https"
            )

    def __repr__(self) -> str:
        return f"<ApiClient of {self._base}>"

    async def send(self, request: ApiRequest, context: Context) -> tuple[ApiReply, Sequence[str]]:
        """Return the response, and what no text may show. Raises: ToolError."""
        credentials = await credentials_of(self._auth, context)
        headers = {**request.headers, **self._headers}
        headers |= {each: context.headers[each] for each in self._forward if each in context.headers}
        cookies = [each["cookie"] for each in (headers, credentials.headers) if "cookie" in each]
        headers = {**headers, **credentials.headers} | ({"cookie": "; ".join(cookies)} if cookies else {})
        query = "&".join(filter(None, (request.query, credentials.query)))
        url = self._base + request.path + (f"?{query}" if query else "")
        pool, slots = self._pool()
        if slots.locked() and self._waiting >= MAX_WAITING:
            raise ToolError("too many calls wait for this API", retry_after=self._timeout)
        self._waiting += 1
        try:
            await slots.acquire()
        finally:
            self._waiting -= 1
        try:
            async with asyncio.timeout(self._timeout):
                return await self._through_redirects(pool, request, url, headers), credentials.secrets
        except TimeoutError:
            raise ToolError(_unknown_end(request, f"no response within {self._timeout:g} s")) from None
        finally:
            slots.release()

    async def _through_redirects(
        self, pool: LoopPool, request: ApiRequest, url: str, headers: dict[str, str]
    ) -> ApiReply:
        from linkspan.client.transports.http_requests import HttpFailure

        for hop in range(MAX_REDIRECTS + 1):
            try:
                reply = await self._once(pool, request, url, headers)
            except HttpFailure as failure:
                text = f"{failure}; {failure.hint}" if failure.hint and failure.ours else str(failure)
                raise ToolError(_unknown_end(request, text) if failure.sent else f"{request.method}: {text}") from None
            onward = self._onward(url, reply) if request.method in ("GET", "HEAD") and hop < MAX_REDIRECTS else None
            if onward is None:
                return reply
            url, headers = onward, {"accept": headers["accept"]}
        raise AssertionError("unreachable")

    async def _once(self, pool: LoopPool, request: ApiRequest, url: str, headers: Mapping[str, str]) -> ApiReply:
        async with pool.send(request.method, url, headers, request.body) as reply:
            parts: list[bytes] = []
            size = 0
            if request.method != "HEAD":  # whose response has the length of a body that never comes
                async for chunk in reply.chunks:
                    size += len(chunk)
                    if size > self._max_response:
                        raise ToolError(f"the response has more than {self._max_response} bytes: ask for less")
                    parts.append(chunk)
            return ApiReply(reply.status, reply.headers, b"".join(parts))

    def _onward(self, url: str, reply: ApiReply) -> str | None:
        """Return where a response redirects to: below the base URL, or it is not followed."""
        if reply.status not in _REDIRECTS:
            return None
        with suppress(ValueError):
            target = urljoin(url, reply.headers.get("location", ""))
            path = urlsplit(target).path.lower().replace("%2e", ".")
            if target.startswith(f"{self._base}/") and not {".", ".."} & {*path.split("/")} and target.isprintable():
                return target
        return None

    def _pool(self) -> tuple[LoopPool, asyncio.Semaphore]:
        loop = asyncio.get_running_loop()
        found = self._pools.get(loop)
        if found is None:
            from linkspan.client.transports.http_loops import LoopPool
            from linkspan.openapi.routes import ApiRoutes

            pools = {each: kept for each, kept in self._pools.items() if not each.is_closed()}
            routes = ApiRoutes(self._ssl, _CONNECT, named=self._written)
            found = LoopPool(routes, loop), asyncio.Semaphore(self._concurrency)
            self._pools = {**pools, loop: found}
        return found


def _is_here(host: str) -> bool:
    return host == "localhost" or is_loopback(host) is True


def _unknown_end(request: ApiRequest, problem: str) -> str:
    """Return the text of a failure after which it is unknown whether the request was carried out."""
    known = "" if request.method in ("GET", "HEAD") else "; it may have been carried out all the same"
    return f"{request.method} {request.path}: {problem}{known}"
