"""Who may talk to an HTTP endpoint, and how much: every bound by name, with its default."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypedDict

import msgspec

__all__ = ["LOOPBACK", "HttpKeywords", "HttpPolicy"]

LOOPBACK: Final = ("127.0.0.1", "localhost", "[::1]")


class HttpPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """How an endpoint behaves. Raises: ValueError for a bound that is not above zero, and for a text instead of a list."""

    allowed_hosts: Sequence[str] | None = None
    """Values of the Host header, `name` (any port) or `name:port`. None: any. Over loopback only these and the names of
    loopback are served, whether this is set or not."""

    allowed_origins: Sequence[str] | None = None
    """Origins of browsers, `https://name[:port]`, besides that of the Host. None: on loopback, those of any loopback port too."""

    cors: bool | Sequence[str] = False
    """Origins that may read answers in a browser: True for all, or a list. They are allowed origins too."""

    sessions: bool = True
    """Keep sessions for handshake clients. Without, each of their requests stands alone, and they cannot be asked."""

    require_session: bool = True
    """Refuse handshake requests without a session id, where there are sessions."""

    page: bool | None = None
    """Show a page to browsers. None: when the server is bound to loopback."""

    http_sse: str | None = None
    """The path of the HTTP+SSE transport of the first revision, such as "/sse", for clients that know no other. It is served
    beside the rest; a path prefix under which the endpoint is mounted comes before it. None: not served."""

    max_body_bytes: int = 4 * 1024 * 1024
    """The body of one request. A larger one is answered 413."""

    max_incoming_bytes: int = 64 * 1024 * 1024
    """Bodies that have not arrived completely, of all requests together (ASGI: of one event loop); never less than one body.
    Beyond, the largest of them is answered 503; under WSGI the newest, and each counts as a whole from its beginning."""

    max_headers: int = 100
    """Headers of one request, by name. More are answered 431."""

    max_header_bytes: int = 32 * 1024
    """Names and values of the headers of one request, together. More are answered 431."""

    max_sessions: int = 1000
    """Sessions of handshake clients. At the bound the one without a request for longest goes: first of those without a stream,
    then of those whose client only listens. If calls run in all of them, 503."""

    max_sessions_per_principal: int = 100
    """Of these, for one principal; at the bound one of its own goes in the same way, or 429."""

    session_idle: float = 1800.0
    """Seconds without a request or an open stream after which a session goes."""

    max_streams: int = 10_000
    """Responses that are open at the same time: streams, and calls and notifications that have not ended. Beyond, 503. As many
    more requests may be on their way here."""

    max_stored_events: int = 500
    """Messages of one session that are kept for a client that comes back (Last-Event-ID). The oldest go first."""

    max_stored_bytes: int = 1024 * 1024
    """Bytes of those messages."""

    max_unsent_bytes: int = 4 * 1024 * 1024
    """Bytes that wait for a client that does not read its stream; beyond, the stream ends."""

    body_timeout: float = 30.0
    """Seconds in which the whole body of a request must arrive; then 408. Under WSGI the server reads bodies: see its options."""

    send_timeout: float = 30.0
    """Seconds in which a client must take what its stream sends; then the stream ends. Under WSGI: see the server's options."""

    max_workers: int = 64
    """Plain functions that run at the same time. One whose call was given up runs on, and is not counted: there are at most twice
    as many threads."""

    max_workers_per_client: int | None = None
    """Of these, for one client: a principal, or without one an address. Given-up calls are counted. None: three quarters."""

    silence: float = 15.0
    """Seconds without a message after which a stream gets a comment, so that nobody between us hangs up."""

    retry: int = 1000
    """Milliseconds after which a handshake client whose stream ended should come back."""

    @property
    def share(self) -> int:
        """Plain functions of one client that run at the same time."""
        return self.max_workers_per_client or max(1, self.max_workers * 3 // 4)

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if isinstance(value, str) and name != "http_sse":
                raise ValueError(f"{name} must be a list, such as [{value!r}], got a text")
            if isinstance(value, int | float) and not isinstance(value, bool) and value <= 0:
                raise ValueError(f"{name} must be above 0, got {value!r}")


class HttpKeywords(TypedDict, total=False):
    """The fields of `HttpPolicy` once more, in its order, as `asgi`, `wsgi` and `run("http")` take them by name."""

    allowed_hosts: Sequence[str] | None
    allowed_origins: Sequence[str] | None
    cors: bool | Sequence[str]
    sessions: bool
    require_session: bool
    page: bool | None
    http_sse: str | None
    max_body_bytes: int
    max_incoming_bytes: int
    max_headers: int
    max_header_bytes: int
    max_sessions: int
    max_sessions_per_principal: int
    session_idle: float
    max_streams: int
    max_stored_events: int
    max_stored_bytes: int
    max_unsent_bytes: int
    body_timeout: float
    send_timeout: float
    max_workers: int
    max_workers_per_client: int | None
    silence: float
    retry: int
