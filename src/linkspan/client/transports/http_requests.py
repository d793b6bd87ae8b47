"""The HTTP requests of one connection, as flows: with the caller's headers, redirected within the origin only, and bounded.

What a flow yields is done in the thread that waits, in one of its own, or on the caller's loop.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Generator, Hashable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from functools import lru_cache, partial
from typing import Any, Final, Protocol, TypeAlias, TypeVar, cast
from urllib.parse import urljoin, urlsplit

import msgspec

from linkspan.core.flow import Sleep
from linkspan.flows.client_errors import InvalidResponse
from linkspan.flows.http_messages import HttpHop, http_error, secrets_in, shown_headers, shown_url
from linkspan.flows.state import Auth, ClientState, bearer, has_authorization
from linkspan.wire.headers import is_loopback
from linkspan.wire.jsonrpc import RequestId
from linkspan.wire.redaction import redact

T = TypeVar("T")


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
    """A response whose body is still to come. `chunks` may raise HttpFailure."""

    status: int
    headers: Mapping[str, str]
    """Names in lower case. A header that came more than once has its values joined by commas."""
    chunks: AsyncIterator[bytes]


class HttpPort(Protocol):
    """A pool of connections on one event loop, for those who await it."""

    def send(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes
    ) -> AbstractAsyncContextManager[HttpReply]:
        """Send a request. Entering raises HttpFailure; leaving gives the connection back, or closes it if unread."""
        ...

    async def close(self) -> None:
        """Close all connections."""
        ...


class Reply(Protocol):
    """What a flow knows of a response whose body is still to come."""

    @property
    def status(self) -> int:
        """The status."""
        ...

    @property
    def headers(self) -> Mapping[str, str]:
        """Names in lower case. A header that came more than once has its values joined by commas."""
        ...

    @property
    def peer(self) -> str:
        """The address at the other end; empty if it is not known."""
        ...

    def take(self) -> bytes | None:
        """Return the part of the body that has come: empty at its end, None if there is nothing yet. Raises: HttpFailure."""
        ...

    def give_back(self) -> None:
        """Let go of it: its connection is kept for the next request, or closed if it was not read to its end."""
        ...


class Open(msgspec.Struct, frozen=True):
    """Send a request; the outcome is a `Reply`, which must be given back. Raises: HttpFailure."""

    method: str
    url: str
    headers: Mapping[str, str]
    body: bytes


class ReadBody(msgspec.Struct, frozen=True):
    """Wait for a piece of a body; the outcome is empty at its end. Raises: HttpFailure."""

    reply: Reply


class Wait(msgspec.Struct, frozen=True):
    """Wait for work that is done elsewhere, such as a login; the outcome is None."""

    until: Callable[[Callable[[], object]], object]
    """Takes a function that is called once when the work is done, in any thread; at once if it is done already."""


HttpEffect: TypeAlias = Open | ReadBody | Sleep | Wait
HttpFlow: TypeAlias = Generator[HttpEffect, Any, T]
"""Is closed where it stands when its work is cancelled."""


_REDIRECTS: Final = 4
_KEPT: Final = (307, 308)
"""Redirects after which a request is the same as before."""
_ALL: Final = (301, 302, 303, *_KEPT)
_PORTS: Final = {"http": 80, "https": 443}


PersonWaits: TypeAlias = Callable[[bool], object]
"""Is called when a person begins to be waited for, and when that ends."""


class RequestAccess(Protocol):
    """What identifies requests by an authorization server's tokens: see `linkspan.client.authorizing`."""

    def send(
        self, request: Open, body_of: str, person_waits: PersonWaits | None = None, refused: Reply | None = None
    ) -> HttpFlow[Reply]:
        """Send a request with what identifies it, again after each refusal that could be settled."""
        ...

    def secrets(self) -> list[str]:
        """Return what no text may show."""
        ...


class HttpRequests:
    """How the requests of one connection are sent and read."""

    def __init__(
        self,
        state: ClientState,
        headers: Mapping[str, str],
        auth: Auth | None = None,
        hidden: Sequence[str] = (),
        access: RequestAccess | None = None,
        access_to: Callable[[object], RequestAccess] | None = None,
        *,
        finds_login: bool = False,
        person_waits: Callable[[RequestId, bool], object] | None = None,
        on_hop: Callable[[HttpHop], object] | None = None,
    ) -> None:
        """Send `headers` with every request, and the token of `auth` unless the request has an Authorization header.

        `hidden` are secrets of the URL, which no text may show. `access` identifies requests instead of a token; `access_to`
        finds that of an identity that only some requests have, and with `finds_login` that of a stored login, for None, once the
        server asks for one.
        `on_hop` is called with each request that got a response, or failed.
        """
        self._hidden = hidden
        self._auth = auth
        self._access = access
        self._access_to = access_to
        self._finds_login = finds_login
        self._person_waits = person_waits
        self._on_hop = on_hop
        self._in_the_clear = _is_in_the_clear(state.origin.url or "")
        self._token: Mapping[str, str] = {}
        self._state = state
        self._own = {name.lower(): value for name, value in headers.items()}

    def send(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str],
        body: bytes = b"",
        *,
        what: str = "a message",
        request_id: RequestId | None = None,
        identity: Hashable = None,
    ) -> HttpFlow[Reply]:
        """Send a request, and again where it is redirected to, or was refused and can be settled; return what must be given back.

        Raises: HttpFailure, HttpError for a bad redirect, ClientError.
        """
        flow = self._send(method, url, headers, body, what, request_id, identity)
        return flow if self._on_hop is None else self._watched(flow, self._on_hop)

    def _watched(self, flow: HttpFlow[T], on_hop: Callable[[HttpHop], object]) -> HttpFlow[T]:
        """Report what a flow sends and gets."""
        try:
            effect = next(flow)
            while True:
                began = self._state.clock()
                outcome: Any = None
                try:
                    outcome = yield effect
                except BaseException as error:
                    self._report(on_hop, effect, began, problem=str(error))
                    effect = flow.throw(error)
                else:
                    self._report(on_hop, effect, began, outcome)
                    effect = flow.send(outcome)
        except StopIteration as stop:
            return cast("T", stop.value)
        finally:
            flow.close()

    def _report(
        self,
        on_hop: Callable[[HttpHop], object],
        effect: HttpEffect,
        began: float,
        reply: Any = None,
        problem: str = "",
    ) -> None:
        if not isinstance(effect, Open):
            return
        secrets, took = self.secrets(), self._state.clock() - began
        sent = shown_headers(effect.headers, self._own, secrets)
        hop = HttpHop(effect.method, self._shown(effect.url), sent, seconds=took, problem=redact(problem, secrets))
        if reply is not None:
            received = shown_headers(reply.headers, (), secrets)
            hop = msgspec.structs.replace(hop, status=reply.status, received=received)
        on_hop(hop)

    def _send(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str],
        body: bytes,
        what: str,
        request_id: RequestId | None,
        identity: Hashable,
    ) -> HttpFlow[Reply]:
        first, status = url, 0
        access: RequestAccess | None = self._access
        find_login: Callable[[object], RequestAccess] | None = None
        if identity is not None and self._access_to is not None:
            access = self._access_to(identity)
            headers = {name: value for name, value in headers.items() if name != "authorization"}
        elif "authorization" in headers:
            access = None
        elif self._auth is not None:
            headers = {**self._who_asks(self._auth), **headers}
        elif access is None and self._finds_login:
            find_login = self._access_to
        if self._in_the_clear and "authorization" in headers:
            _warn_of_plain_http(shown_url(url))
        for _ in range(_REDIRECTS):
            request = Open(method, url, headers, body)
            if access is None:
                reply: Reply = yield request
                if find_login is not None and reply.status == 401 and method != "DELETE":
                    access = self._access = find_login(None)
                    again = access.send(request, what, self._waits(request_id), reply)
                    settled: Any = yield from again  # pyright: ignore[reportUnknownVariableType]
                    reply = cast("Reply", settled)
            else:
                reply = yield from access.send(request, what, self._waits(request_id))
            if reply.status not in _ALL:
                return reply
            try:
                url, status = self._redirected(method, url, reply, what), reply.status
            finally:
                reply.give_back()
        raise http_error(
            self._state.origin, what, status, b"", hint=f"{self._shown(first)} redirects too many times [LS-210]"
        )

    def _waits(self, request_id: RequestId | None) -> PersonWaits | None:
        waits = self._person_waits
        return partial(waits, request_id) if waits is not None and request_id is not None else None

    def secrets(self, more: Mapping[str, str] | None = None, identity: Hashable = None) -> list[str]:
        """Return what must not be shown of the caller's headers, and of those and the identity that go with one request."""
        found = [*secrets_in({**self._own, **self._token, **(more or {})}), *self._hidden]
        if identity is not None and self._access_to is not None:
            found += self._access_to(identity).secrets()
        return [*found, *self._access.secrets()] if self._access is not None else found

    def sends_credentials(self, url: str, more: Mapping[str, str] | None, identity: Hashable) -> bool:
        """Return whether a request with these headers of the caller's carries a token, or the password of the URL."""
        if identity is not None:
            return False
        return (
            has_authorization(more) or "authorization" in self._own or self._auth is not None or bool(_credentials(url))
        )

    def _shown(self, url: str) -> str:
        return redact(shown_url(url), self._hidden)

    def headers(self, first: Mapping[str, str], last: Mapping[str, str]) -> dict[str, str]:
        """Return the headers of a request: what it needs, what the caller wants with every one, and what counts most."""
        return {**first, **self._own, **last}

    def whole(self, reply: Reply, bound: int, *, cut: bool = False) -> HttpFlow[bytes]:
        """Read a body. Raises: HttpFailure; InvalidResponse for one that is larger than `bound`, unless it may be cut."""
        parts: list[bytes] = []
        size = 0
        while True:
            chunk = reply.take()  # most bodies have come with their heads, and need no effect
            if chunk is None:
                chunk = yield ReadBody(reply)
            if not chunk:
                break
            parts.append(chunk)
            size += len(chunk)
            if size > bound:
                if cut:
                    break
                problem = f"a response larger than {bound} bytes (max_line_bytes)"
                raise InvalidResponse(problem, self._state.origin, delivery="answered")
        return parts[0] if len(parts) == 1 and not cut else b"".join(parts)[:bound]

    def _who_asks(self, auth: Auth) -> Mapping[str, str]:
        """Return the token of now. Raises: HttpFailure if there is none to be had."""
        try:
            self._token = bearer(auth)
        except Exception as problem:  # the application's own function
            ours = str(problem) if isinstance(problem, ValueError) else f"it raised {type(problem).__name__}"
            raise HttpFailure("auth= returned no token", sent=False, ours=True, hint=ours) from problem
        return self._token

    def _redirected(self, method: str, url: str, reply: Reply, what: str) -> str:
        """Return where to go; never to another origin, which should get neither our message nor our headers."""
        location = reply.headers.get("location", "")
        try:
            target = urljoin(url, location)
        except ValueError:
            location = target = ""
        if location and may_send_to(target, url) and (method == "GET" or reply.status in _KEPT):
            return target
        hint = f"it redirects to {self._shown(target)}: if that is the server, use that URL [LS-210]"
        if not location:
            hint = "it redirects without naming a URL [LS-210]"
        elif _origin(target) == _origin(url) and _credentials(target) not in ("", _credentials(url)):
            hint = f"it redirects to {shown_url(target)} with a user name or password, which only the caller may set [LS-210]"
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
        "auth= sends its token to %s unencrypted, where anyone on the way can read it: use https", url
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
