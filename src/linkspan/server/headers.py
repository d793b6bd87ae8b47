"""The HTTP headers that handlers see: those that carry a caller's credentials are left out.

A handler that logs its headers, or passes them on to another service, must not pass on who called
(https://modelcontextprotocol.io/specification/2026-07-28/basic/authorization: no token passthrough).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from msgspec import structs

from linkspan.revisions.neutral import NO_FACTS, Request

__all__ = ["SECRET_HEADERS", "SecretHeaders", "VisibleHeaders"]

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
        """Log, once, that a handler asked for a secret header: `get` gives it the default without a word."""
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
