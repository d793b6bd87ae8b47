"""The HTTP requests of one connection, and the port through which an HTTP library sends them.

Requests carry the caller's headers, follow redirects within the origin only, and read bounded responses."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import lru_cache
from typing import Final, Protocol
from urllib.parse import urljoin, urlsplit

import msgspec

from linkspan.flows.client_errors import InvalidResponse
from linkspan.flows.http_messages import http_error, secrets_in, shown_url
from linkspan.flows.state import Auth, ClientState, bearer
from linkspan.wire.headers import is_loopback
from linkspan.wire.redaction import redact

__all__ = ["HttpFailure", "HttpPort", "HttpReply", "HttpRequests", "may_send_to"]


class HttpFailure(Exception):
    """There is no response. `sent`: the server may have received the request. The text is for people.

    `garbled`: what came was not valid HTTP. `ours`: the request cannot be sent at all, so a retry will not help.
    `hint` is what a person can do.
    """

    def __init__(
        self, message: str, *, sent: bool, garbled: bool = False, ours: bool = False, hint: str | None = None
    ) -> None:
        super().__init__(message)
        self.sent = sent
        self.garbled = garbled
        self.ours = ours
        self.hint = hint


class HttpReply(msgspec.Struct):
    """An answer whose body is still to come. `chunks` may raise HttpFailure."""

    status: int
    headers: Mapping[str, str]
    """Names in lower case. A header that came more than once has its values joined by commas."""
    chunks: AsyncIterator[bytes]


class HttpPort(Protocol):
    """A pool of connections on one event loop."""

    def send(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes
    ) -> AbstractAsyncContextManager[HttpReply]:
        """Send a request. Entering raises HttpFailure; leaving gives the connection back, or closes it if unread."""
        ...

    async def close(self) -> None:
        """Close all connections."""
        ...


_REDIRECTS: Final = 4
_KEPT: Final = (307, 308)
"""Redirects after which a request is the same as before."""
_ALL: Final = (301, 302, 303, *_KEPT)
_PORTS: Final = {"http": 80, "https": 443}


class HttpRequests:
    """Sends requests on the loop that calls it. The pool is opened by the first of them."""

    def __init__(
        self,
        state: ClientState,
        headers: Mapping[str, str],
        open_port: Callable[[], HttpPort],
        auth: Auth | None = None,
        hidden: Sequence[str] = (),
    ) -> None:
        """Send `headers` with every request, and the token of `auth` unless the request has an Authorization header.

        `open_port` opens the pool, and may raise HttpFailure. `hidden` are secrets of the URL, which no text may show.
        """
        self._hidden = hidden
        self._auth = auth
        self._in_the_clear = _is_in_the_clear(state.origin.url or "")
        self._token: Mapping[str, str] = {}
        self._state = state
        self._own = {name.lower(): value for name, value in headers.items()}
        self._open_port = open_port
        self._port: HttpPort | None = None
        self._closed = False

    @asynccontextmanager
    async def send(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes = b"", *, what: str = "a message"
    ) -> AsyncGenerator[HttpReply, None]:
        """Send a request, and again where it is redirected to. Raises: HttpFailure, HttpError for a bad redirect."""
        first, status = url, 0
        headers = {**self._who_asks(headers), **headers}
        if self._in_the_clear and "authorization" in headers:
            _warn_of_plain_http(shown_url(url))
        for _ in range(_REDIRECTS):
            async with self._opened().send(method, url, headers, body) as reply:
                if reply.status not in _ALL:
                    yield reply
                    return
                url, status = self._redirected(method, url, reply, what), reply.status
        raise http_error(self._state.origin, what, status, b"", hint=f"it redirects {self._shown(first)} without end")

    def secrets(self, more: Mapping[str, str] | None = None) -> list[str]:
        """Return what must not be shown of the caller's headers, and of those that go with one request."""
        return [*secrets_in({**self._own, **self._token, **(more or {})}), *self._hidden]

    def _shown(self, url: str) -> str:
        return redact(shown_url(url), self._hidden)

    def headers(self, first: Mapping[str, str], last: Mapping[str, str]) -> dict[str, str]:
        """Return the headers of a request: what it needs, what the caller wants with every one, and what counts most."""
        return {**first, **self._own, **last}

    async def whole(self, reply: HttpReply, bound: int, *, cut: bool = False) -> bytes:
        """Read a body. Raises: HttpFailure; InvalidResponse for one that is larger than `bound`, unless it may be cut."""
        parts: list[bytes] = []
        size = 0
        async for chunk in reply.chunks:
            parts.append(chunk)
            size += len(chunk)
            if size > bound:
                if cut:
                    break
                problem = f"an answer larger than {bound} bytes (max_line_bytes)"
                raise InvalidResponse(problem, self._state.origin, delivery="answered")
        return parts[0] if len(parts) == 1 and not cut else b"".join(parts)[:bound]

    async def close(self) -> None:
        """Close all connections."""
        self._closed = True
        port, self._port = self._port, None
        if port is not None:
            await port.close()

    def _who_asks(self, headers: Mapping[str, str]) -> Mapping[str, str]:
        """Return the token of now, unless the request has one of its own. Raises: HttpFailure if there is none to be had."""
        if self._auth is None or "authorization" in headers:
            return {}
        try:
            self._token = bearer(self._auth)
        except Exception as problem:  # the application's own function
            ours = str(problem) if isinstance(problem, ValueError) else f"it raised {type(problem).__name__}"
            raise HttpFailure("auth= gave no token", sent=False, ours=True, hint=ours) from problem
        return self._token

    def _opened(self) -> HttpPort:
        if self._closed:
            raise HttpFailure("the connection was closed", sent=False)
        if self._port is None:
            self._port = self._open_port()
        return self._port

    def _redirected(self, method: str, url: str, reply: HttpReply, what: str) -> str:
        """Return where to go; never to another origin, which should get neither our message nor our headers."""
        location = reply.headers.get("location", "")
        try:
            target = urljoin(url, location)
        except ValueError:
            location = target = ""
        if location and may_send_to(target, url) and (method == "GET" or reply.status in _KEPT):
            return target
        hint = f"it redirects to {self._shown(target)}: if that is right, use that URL"
        if not location:
            hint = "it redirects to nowhere"
        elif _origin(target) == _origin(url) and _credentials(target) not in ("", _credentials(url)):
            hint = f"it redirects to {shown_url(target)} with a user name or password, which only you may give"
        raise http_error(self._state.origin, what, reply.status, b"", hint=hint)


def _is_in_the_clear(url: str) -> bool:
    """Return whether others on the way can read what is sent to a URL."""
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
    except ValueError:
        return False
    return parts.scheme == "http" and host != "localhost" and not host.endswith(".localhost") and not is_loopback(host)


@lru_cache(maxsize=256)
def _warn_of_plain_http(url: str) -> None:
    """Warn once for each URL; the oldest of many may be named again."""
    import logging

    logging.getLogger("linkspan").warning(
        "auth= sends its token to %s unencrypted, and everybody on the way can read it: use https", url
    )


def may_send_to(target: str, url: str) -> bool:
    """Return whether the server at `url` may send us to `target`: on its own origin, with no credentials but our own."""
    return _origin(target) == _origin(url) is not None and _credentials(target) in ("", _credentials(url))


def _credentials(url: str) -> str:
    return urlsplit(url).netloc.rpartition("@")[0]


def _origin(url: str) -> tuple[str, str | None, int | None] | None:
    try:
        parts = urlsplit(url)
        return parts.scheme, parts.hostname, parts.port or _PORTS.get(parts.scheme)
    except ValueError:
        return None
