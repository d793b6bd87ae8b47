"""The HTTP port over aiohttp, loaded when the first URL is opened. Why this library: docs/decisions/0006.

No redirect is followed here: whether one may be is for the caller to say.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import aiohttp

from linkspan.io.http_port import HttpFailure, HttpReply

if TYPE_CHECKING:
    from ssl import SSLContext

__all__ = ["AiohttpPort"]


class AiohttpPort:
    """A pool of connections. Make it on its loop."""

    def __init__(self, *, ssl: SSLContext | None, connect_timeout: float) -> None:
        """Use the system's proxies, and `ssl` or the system's certificates; `connect_timeout` in seconds."""
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, ssl=ssl if ssl is not None else True),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=connect_timeout),
            cookie_jar=aiohttp.DummyCookieJar(),
            trust_env=True,
            auto_decompress=True,
        )

    @asynccontextmanager
    async def send(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes
    ) -> AsyncGenerator[HttpReply, None]:
        """Send a request. Raises: HttpFailure."""
        try:
            response = await self._session.request(method, url, headers=headers, data=body, allow_redirects=False)
        except (aiohttp.ClientConnectorError, aiohttp.ServerTimeoutError, aiohttp.InvalidURL) as error:
            raise HttpFailure(_plain(error), sent=False) from None
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
            raise HttpFailure(_plain(error), sent=True) from None
        try:
            named = {name.lower(): value for name, value in response.headers.items()}
            yield HttpReply(response.status, named, self._chunks(response))
        finally:
            if response.content.at_eof():
                response.release()
            else:
                response.close()

    async def _chunks(self, response: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
        try:
            async for chunk in response.content.iter_any():
                yield chunk
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
            raise HttpFailure(_plain(error), sent=True) from None

    async def close(self) -> None:
        """Close all connections."""
        await self._session.close()


def _plain(error: Exception) -> str:
    if isinstance(error, aiohttp.ClientConnectorError):
        return f"the connection was refused or not possible ({error.os_error.strerror or error.os_error})"
    return str(error) or type(error).__name__
