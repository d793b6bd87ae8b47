"""Who may talk to an HTTP endpoint, and how much: every bound by name, with its default."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

__all__ = ["LOOPBACK", "HttpPolicy"]

LOOPBACK: Final = ("127.0.0.1", "localhost", "[::1]")


class HttpPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """How an endpoint behaves. Raises: ValueError for a bound that is not above zero."""

    allowed_hosts: Sequence[str] | None = None
    """Values of the Host header, `name` (any port) or `name:port`. None: any, unless the server is bound to loopback."""

    allowed_origins: Sequence[str] | None = None
    """Origins of browsers, `https://name[:port]`. None: only the server's own, where hosts are checked."""

    cors: bool | Sequence[str] = False
    """Origins that may read answers in a browser: True for all, or a list. They are allowed origins too."""

    sessions: bool = True
    """Keep sessions for handshake clients. Without, each of their requests stands alone, and they cannot be asked."""

    require_session: bool = True
    """Refuse handshake requests without a session id, where there are sessions."""

    page: bool | None = None
    """Show a page to browsers. None: when the server is bound to loopback."""

    max_body_bytes: int = 4 * 1024 * 1024
    """The body of one request."""

    max_sessions: int = 1000
    """Sessions of handshake clients. At the bound the one that was idle longest goes."""

    session_idle: float = 1800.0
    """Seconds without a request or an open stream after which a session goes."""

    max_streams: int = 10_000
    """Streams that are open at the same time."""

    max_stored_events: int = 500
    """Messages of one stream that are kept for a client that comes back (Last-Event-ID)."""

    max_unsent_bytes: int = 4 * 1024 * 1024
    """Bytes that wait for a client that does not read; beyond, its stream ends."""

    body_timeout: float = 30.0
    """Seconds in which the body of a request must arrive."""

    send_timeout: float = 30.0
    """Seconds in which a client must take what it is sent."""

    silence: float = 15.0
    """Seconds without a message after which a stream gets a comment, so that nobody between us hangs up."""

    retry: int = 1000
    """Milliseconds after which a handshake client whose stream ended should come back."""

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if isinstance(value, int | float) and not isinstance(value, bool) and value <= 0:
                raise ValueError(f"{name} must be above 0, got {value!r}")
