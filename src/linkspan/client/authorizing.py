"""Who asks: a bearer token, or a function that returns the one that is valid now.

Spec: RFC 6750, section 2.1. How a token is got is not the business of this module.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

__all__ = ["Auth", "Principal", "bearer", "principal_of"]

Auth: TypeAlias = str | Callable[[], str]
"""A bearer token, or a plain function that returns it, called for each request."""

Principal: TypeAlias = tuple[tuple[str, str], ...]
"""Who asks, as the headers of one call say it; empty for the client itself."""

_ABOUT_THE_REQUEST: Final = frozenset(
    {"baggage", "idempotency-key", "traceparent", "tracestate", "x-correlation-id", "x-request-id"}
)
_TOKEN: Final = re.compile(r"[A-Za-z0-9\-._~+/]+=*")


def bearer(auth: Auth) -> Mapping[str, str]:
    """Return the header that says who asks. Raises: ValueError for what is no token, which it does not show."""
    token = auth() if callable(auth) else auth
    if type(token) is not str or not _TOKEN.fullmatch(token):
        raise ValueError("auth= must be a bearer token, or a function that returns one: letters, digits and -._~+/=")
    return {"authorization": f"Bearer {token}"}


def principal_of(headers: Mapping[str, str] | None) -> Principal:
    """Return who asks: all headers count but those that differ from request to request, whoever asks."""
    if not headers:
        return ()
    named = ((name.lower(), value) for name, value in headers.items())
    return tuple(sorted(each for each in named if each[0] not in _ABOUT_THE_REQUEST))
