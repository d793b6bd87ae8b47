"""The HTTP port over aiohttp, loaded when the first URL is opened. Why this library: docs/decisions/0006.

No redirect is followed here: whether one may be is for the caller to say.
"""

from __future__ import annotations

import asyncio
from binascii import b2a_base64
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final
from urllib.request import getproxies, proxy_bypass

import aiohttp
import msgspec
from yarl import URL

from linkspan.client.transports.http_requests import HttpFailure, HttpReply

if TYPE_CHECKING:
    from ssl import SSLContext

__all__ = ["AiohttpPort"]

_CUT: Final = "the connection was cut in the middle of the answer"
_LONGEST_HEADERS: Final = 64 * 1024
_REFUSED: Final = "is the server running, and are host and port of the URL right?"
_TLS: Final = "is https right for this port? For a certificate of your own pass ssl=..., an SSLContext that knows it"


_MOST_URLS: Final = 64


class _Proxy(msgspec.Struct, frozen=True):
    """How to get somewhere; without a URL directly."""

    url: URL | None = None
    headers: Mapping[str, str] = msgspec.field(default_factory=dict[str, str])
    """What the proxy wants to see in a request that it reads."""
    tunnel_headers: Mapping[str, str] | None = None
    """The same, where it only opens a tunnel and sees no request."""


class AiohttpPort:
    """A pool of connections. Make it on its loop."""

    def __init__(self, *, ssl: SSLContext | None, connect_timeout: float) -> None:
        """Use the system's proxies, and `ssl` or the system's certificates; `connect_timeout` in seconds."""
        self._proxies: dict[str, _Proxy] = {}
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, ssl=ssl if ssl is not None else True),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=connect_timeout),
            cookie_jar=aiohttp.DummyCookieJar(),
            trust_env=False,  # it would look for proxies, and in ~/.netrc for passwords, in a thread at every request
            auto_decompress=True,
            max_line_size=_LONGEST_HEADERS,
            max_field_size=_LONGEST_HEADERS,
        )

    @asynccontextmanager
    async def send(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes
    ) -> AsyncGenerator[HttpReply, None]:
        """Send a request. Raises: HttpFailure."""
        try:
            proxy = self._proxies.get(url) or await self._find_proxy(url)
            response = await self._session.request(
                method,
                url,
                headers={**headers, **proxy.headers},
                data=body,
                allow_redirects=False,
                proxy=proxy.url,
                proxy_headers=proxy.tunnel_headers,
            )
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError, TypeError) as error:
            raise _failure(error) from None
        try:
            yield HttpReply(response.status, _combined(response.headers.items()), self._chunks(response))
        finally:
            if response.content.at_eof():
                response.release()
            else:
                response.close()

    async def _find_proxy(self, url: str) -> _Proxy:
        """Ask the system once for each URL, in a thread: on some systems that takes a while."""
        found = await asyncio.get_running_loop().run_in_executor(None, _proxy_of_system, url)
        if len(self._proxies) >= _MOST_URLS:
            self._proxies.clear()
        self._proxies[url] = found
        return found

    async def _chunks(self, response: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
        try:
            async for chunk in response.content.iter_any():
                yield chunk
        except aiohttp.ClientPayloadError as error:
            said = str(error).lower()
            if "content-encoding" in said or "decompress" in said:
                raise HttpFailure("its compressed body cannot be read", sent=True, garbled=True) from None
            raise HttpFailure(_CUT, sent=True) from None
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
            raise HttpFailure(f"{_CUT} ({_plain(error)})", sent=True) from None

    async def close(self) -> None:
        """Close all connections."""
        await self._session.close()


def _combined(headers: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return the headers by name in lower case; one that came with several values has them all (RFC 9110, section 5.3)."""
    found: dict[str, list[str]] = {}
    for name, value in headers:
        values = found.setdefault(name.lower(), [])
        if value not in values:
            values.append(value)
    return {name: ", ".join(values) for name, values in found.items()}


def _proxy_of_system(url: str) -> _Proxy:
    """Return the proxy that the environment, or the system's settings, name for a URL. Raises: ValueError for a bad one."""
    parts = URL(url)
    proxy = getproxies().get(parts.scheme)
    if not proxy or parts.host is None or proxy_bypass(parts.host):
        return _Proxy()
    whole = URL(proxy if "://" in proxy else f"http://{proxy}")
    who: dict[str, str] = {}
    if whole.user is not None:
        told = f"{whole.user}:{whole.password or ''}".encode()
        who["proxy-authorization"] = f"Basic {b2a_base64(told, newline=False).decode()}"
    return _Proxy(
        whole.with_user(None), who if parts.scheme == "http" else {}, who if parts.scheme == "https" else None
    )


def _failure(error: Exception) -> HttpFailure:
    """Return why a request was not answered, and whether it may have been sent."""
    match error:
        case aiohttp.InvalidURL():
            return HttpFailure("invalid URL", sent=False, ours=True, hint="a URL is like https://example.com/mcp")
        case aiohttp.ClientSSLError():
            return HttpFailure(f"no secure connection was possible: {_plain(error)}", sent=False, hint=_TLS)
        case aiohttp.ClientConnectorDNSError():
            return HttpFailure("it cannot be reached: there is no such host", sent=False, hint="is the URL right?")
        case aiohttp.ClientConnectorError():
            reason = f"it cannot be reached: the connection was refused or not possible ({_plain(error)})"
            return HttpFailure(reason, sent=False, hint=_REFUSED)
        case aiohttp.ServerTimeoutError():
            return HttpFailure("it cannot be reached: it did not answer in time", sent=False, hint=_REFUSED)
        case aiohttp.ClientHttpProxyError():
            reason = f"the proxy between us and it answered with status {error.status}"
            return HttpFailure(reason, sent=False, hint="see HTTP_PROXY, HTTPS_PROXY and NO_PROXY")
        case aiohttp.ClientResponseError():
            said = " ".join(error.message.split(":")[0].split())[:80]
            return HttpFailure(f"the response is not valid HTTP: {said}", sent=True, garbled=True, hint=_TLS_PORT)
        case aiohttp.ServerDisconnectedError():
            return HttpFailure("the server closed the connection before it answered", sent=True)
        case ValueError() | TypeError():
            return HttpFailure("the request cannot be sent", sent=False, ours=True, hint=_BAD_HEADERS)
        case _:
            return HttpFailure(f"the connection was lost before the answer came ({_plain(error)})", sent=True)


_TLS_PORT: Final = "does something else serve that port, or does it want https?"
_BAD_HEADERS: Final = "are the names and values of headers= text without line breaks?"


def _plain(error: Exception) -> str:
    certificate = getattr(error, "certificate_error", None)
    found = certificate or getattr(error, "os_error", None) or error
    text = getattr(found, "verify_message", None) or getattr(found, "strerror", None) or str(found)
    return " ".join(str(text or type(error).__name__).split())[:160]
