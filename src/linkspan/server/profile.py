"""What a server says of itself, and how it serves: plain facts that its author sets."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import msgspec

from linkspan.revisions.neutral import NOTHING, Request
from linkspan.revisions.record import Revision
from linkspan.server.headers import SecretHeaders
from linkspan.types.base import Icon, Implementation
from linkspan.wire.limits import DEFAULT_LIMITS, Limits

if TYPE_CHECKING:
    from linkspan.server.request_state import RequestStateKeys

__all__ = ["Profile", "ServerContext", "System"]

ServerContext: TypeAlias = Mapping[str, Any] | Callable[[Request], Mapping[str, Any]] | None
"""What handlers get as their context: a mapping, or a function that makes one for each request."""


class System(Protocol):
    """Where time and chance come from: nothing below io/ has any of its own."""

    @property
    def clock(self) -> Callable[[], float]:
        """Seconds that never go back."""
        ...

    @property
    def wall_clock(self) -> Callable[[], float]:
        """Seconds since 1970."""
        ...

    @property
    def random(self) -> Callable[[int], bytes]:
        """Unguessable bytes, as many as asked for."""
        ...

    @property
    def lock(self) -> Callable[[], AbstractContextManager[object]]:
        """A new lock between threads, which its owner may take again."""
        ...

    def off_the_loop(self, run: Callable[[], object]) -> None:
        """Run an author's hook that does not raise: here, or in a thread of its own where an event loop would wait for it."""
        ...

    @property
    def forks(self) -> Callable[[], int]:
        """How many forks led to this process: the connections of another number are the parent's."""
        ...

    def later(self, awaitable: Awaitable[object]) -> None:
        """Await something that nobody waits for and that does not raise."""
        ...

    def share(self, awaitable: Awaitable[object]) -> Callable[[], Awaitable[object]]:
        """Start something on the running event loop that no request's cancellation ends; each call gives its outcome.

        Raises: RuntimeError where no event loop runs.
        """
        ...


class Profile(msgspec.Struct):
    """One server's facts. They may change while it serves; the next request sees the change."""

    name: str
    version: str
    title: str | None = None
    description: str | None = None
    website_url: str | None = None
    icons: Sequence[Icon] | None = None
    instructions: str | None = None
    pinned: Revision | None = None
    server_context: ServerContext = None
    page_size: int | None = None
    ttl_ms: int = 0
    cache_scope: str = "private"
    require_initialized: bool = False
    limits: Limits = DEFAULT_LIMITS
    request_state_keys: RequestStateKeys | None = None
    request_state_ttl: float = 3600.0
    """Seconds that a user may take to answer."""
    secret_headers: SecretHeaders = SecretHeaders()
    """HTTP headers that the author's code does not see."""
    _shown: tuple[tuple[object, ...], Implementation] | None = None

    @property
    def implementation(self) -> Implementation:
        """The `Implementation` shape; the same object until one of the facts in it changes."""
        facts = (self.name, self.version, self.title, self.description, self.website_url, self.icons)
        if self._shown is None or self._shown[0] != facts:
            icons = list(self.icons) if self.icons is not None else None
            shape = Implementation(
                name=self.name,
                version=self.version,
                title=self.title,
                description=self.description,
                website_url=self.website_url,
                icons=icons,
            )
            self._shown = (facts, shape)
        return self._shown[1]

    def context_of(self, request: Request) -> Mapping[str, Any]:
        """Return the server context for a request, and hide secret headers: the author's code sees both from now on.

        Raises whatever the author's function raises.
        """
        self.secret_headers.hide(request)
        source = self.server_context
        if source is None:
            return NOTHING
        return source(request) if callable(source) else source
