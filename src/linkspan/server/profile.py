"""What a server says of itself, where its time and chance come from, and which arguments appear in headers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

import msgspec
from msgspec import structs

from linkspan.revisions.modern import result_suffix
from linkspan.revisions.neutral import NO_FACTS, NOTHING, Request
from linkspan.revisions.record import Revision
from linkspan.types.base import Implementation
from linkspan.wire.values import DEFAULT_LIMITS, Limits

if TYPE_CHECKING:
    from linkspan.server.request_state import RequestStateKeys

__all__ = ["SECRET_HEADERS", "Profile", "SecretHeaders", "ServerContext", "System", "VisibleHeaders"]

SECRET_HEADERS: Final = (
    "authorization",
    "cookie",
    "proxy-authorization",
    "dpop",
    "x-forwarded-access-token",
    "cf-access-jwt-assertion",
    "x-amzn-oidc-*",
    "x-goog-iap-jwt-assertion",
)
"""What `Server(secret_headers=...)` replaces: credentials of the caller, and what proxies make of them."""


class SecretHeaders:
    """Which headers are left out: names in any case, and beginnings of names with a `*` behind them."""

    __slots__ = ("_beginnings", "_names", "_noted")

    def __init__(self, patterns: Sequence[str] = SECRET_HEADERS) -> None:
        """Take names and patterns. Raises: TypeError for anything else than a list of them, ValueError for a `*` elsewhere."""
        if isinstance(patterns, str) or not all(isinstance(each, str) for each in patterns):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"secret_headers must be a list of names, such as ['authorization'], got {patterns!r}")
        lowered = [each.lower() for each in patterns]
        if wrong := [each for each in lowered if "*" in each[:-1]]:
            raise ValueError(f"secret_headers takes names, and a * at the end of one only; got {wrong[0]!r}")
        self._names = frozenset(each for each in lowered if not each.endswith("*"))
        self._beginnings = tuple(each[:-1] for each in lowered if each.endswith("*"))
        self._noted = False

    def __contains__(self, name: str) -> bool:
        lowered = name.lower()
        return lowered in self._names or lowered.startswith(self._beginnings)

    def note(self, problem: str) -> None:
        """Log, once, that a handler asked for a secret header: `get` silently returns the default."""
        if not self._noted:
            from logging import getLogger

            self._noted = True
            getLogger("linkspan.server").warning("%s", problem)

    def hide(self, request: Request) -> None:
        """Leave secret headers out of what is known of a request, for all of the author's code that sees it."""
        facts = request.facts
        if facts is not NO_FACTS and type(facts.headers) is not VisibleHeaders:
            request.facts = structs.replace(facts, headers=VisibleHeaders(facts.headers, self))


class VisibleHeaders(Mapping[str, str]):
    """Headers without the secret ones. Raises: KeyError, which names the setting, for one that was sent and left out."""

    __slots__ = ("_headers", "_secret")

    def __init__(self, headers: Mapping[str, str], secret: SecretHeaders) -> None:
        """Show `headers` without those in `secret`."""
        self._headers = headers
        self._secret = secret

    def __getitem__(self, name: str) -> str:
        if name in self._secret:
            if name.lower() not in self._headers:
                raise KeyError(name)
            problem = (
                f"{name} is left out of the headers that handlers see; to read it, pass "
                "Server(secret_headers=[...]) a list without it"
            )
            self._secret.note(problem)
            raise KeyError(problem)
        return self._headers[name]

    def __iter__(self) -> Iterator[str]:
        return (name for name in self._headers if name not in self._secret)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __repr__(self) -> str:
        return f"VisibleHeaders({dict(self)!r})"


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
        """Await something in the background. It must not raise."""
        ...

    def share(self, awaitable: Awaitable[object]) -> Callable[[], Awaitable[object]]:
        """Start something on the running event loop that no request's cancellation ends; each call gives its outcome.

        Raises: RuntimeError where no event loop runs.
        """
        ...


class Profile(msgspec.Struct):
    """One server's facts. They may change while it serves; the next request sees the change."""

    implementation: Implementation
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
    result_suffix: bytes = b""
    """What ends every complete result of the newest revision."""

    def __post_init__(self) -> None:
        self.result_suffix = result_suffix(self.implementation)

    def rename(self, **changes: str) -> None:
        """Change the `name` or the `version`."""
        self.implementation = structs.replace(self.implementation, **changes)
        self.result_suffix = result_suffix(self.implementation)

    def context_of(self, request: Request) -> Mapping[str, Any]:
        """Return the server context for a request, and hide secret headers: the author's code sees both from now on.

        Raises whatever the author's function raises.
        """
        self.secret_headers.hide(request)
        source = self.server_context
        if source is None:
            return NOTHING
        return source(request) if callable(source) else source
