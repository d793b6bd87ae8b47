"""What is checked of an HTTP request before its body is read: host, origin, method, media types, size. And CORS.

Spec: https://modelcontextprotocol.io/specification/2026-07-28/basic/transports (H5-2, H5-11, SEC-1).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final
from urllib.parse import urlsplit

from linkspan.core.exchange import Header, ServerExchange
from linkspan.core.http_policy import HttpPolicy
from linkspan.errors import INVALID_REQUEST
from linkspan.wire.headers import accepts, media_type
from linkspan.wire.messages import encode_error

__all__ = ["Gate", "refusal_body"]

_METHODS: Final = ("POST", "GET", "DELETE", "OPTIONS")
_PORTS: Final = {"http": 80, "https": 443}
_REQUEST_HEADERS: Final = (
    "content-type, accept, authorization, dpop, mcp-protocol-version, mcp-session-id, mcp-method, mcp-name, "
    "last-event-id"
)
_EXPOSED: Final = "www-authenticate, dpop-nonce, mcp-session-id"


def refusal_body(code: int, message: str) -> bytes:
    """Return a JSON-RPC error that answers no message."""
    return encode_error(None, code, message)


class Gate:
    """Lets requests in, as a policy says."""

    def __init__(self, policy: HttpPolicy) -> None:
        """Check by `policy`. Raises: ValueError for an origin that is none, which would let in what is not meant."""
        self._policy = policy
        self._hosts = None if policy.allowed_hosts is None else [each.lower() for each in policy.allowed_hosts]
        listed = [] if isinstance(policy.cors, bool) else list(policy.cors)
        self._listed = {_named_origin("cors", each) for each in listed}
        named = policy.allowed_origins
        self._origins = None if named is None else {_named_origin("allowed_origins", each) for each in named}

    def admit(self, method: str, headers: Mapping[str, str], now: float) -> ServerExchange | None:
        """Return the refusal, or None."""
        exchange = ServerExchange(now=now)
        if (problem := self._wrong_host(headers)) is not None:
            return exchange.complain(421, problem)
        if (problem := self._wrong_origin(headers)) is not None:
            return exchange.complain(403, problem)
        if (problem := self._too_many(headers)) is not None:
            return exchange.refuse(431, refusal_body(INVALID_REQUEST, problem), [("connection", "close")])
        exchange.headers += self.cors_headers(headers)
        if method == "OPTIONS":
            return exchange.refuse(204, b"", self._preflight(headers))
        if method not in _METHODS:
            allowed: Sequence[Header] = [("allow", "POST, GET, DELETE")]
            return exchange.refuse(405, refusal_body(INVALID_REQUEST, f"{method[:20]} is not possible here"), allowed)
        return self._wrong_post(exchange, headers) if method == "POST" else None

    def _wrong_post(self, exchange: ServerExchange, headers: Mapping[str, str]) -> ServerExchange | None:
        kind = headers.get("content-type")
        if kind is not None and media_type(kind) != "application/json":
            problem = f"Unsupported media type {media_type(kind)[:60]!r}: send application/json"
            return exchange.refuse(415, refusal_body(INVALID_REQUEST, problem))
        accept = headers.get("accept")
        if not (accepts(accept, "application/json") or accepts(accept, "text/event-stream")):
            problem = "Not acceptable: accept application/json and text/event-stream"
            return exchange.refuse(406, refusal_body(INVALID_REQUEST, problem))
        return self.too_large(exchange) if self.is_too_long(headers.get("content-length", "")) else None

    def is_too_long(self, length: str) -> bool:
        """Tell whether a Content-Length says more than we take, however many digits it has."""
        return length.isascii() and length.isdigit() and (len(length) > 18 or int(length) > self._policy.max_body_bytes)

    def too_large(self, exchange: ServerExchange) -> ServerExchange:
        """Refuse a body that is too large."""
        problem = f"Larger than {self._policy.max_body_bytes} bytes (max_body_bytes)"
        return exchange.refuse(413, refusal_body(INVALID_REQUEST, problem), [("connection", "close")])

    def too_slow(self, exchange: ServerExchange) -> ServerExchange:
        """Refuse a body that does not come."""
        problem = f"The body did not arrive within {self._policy.body_timeout:g} seconds (body_timeout)"
        return exchange.refuse(408, refusal_body(INVALID_REQUEST, problem), [("connection", "close")])

    def too_many_bodies(self, exchange: ServerExchange, bound: str) -> ServerExchange:
        """Refuse a body because of all the others that are arriving; `bound` is the setting."""
        problem = f"Too many bodies are arriving ({bound}); try again later"
        headers: Sequence[Header] = [("retry-after", "5"), ("connection", "close")]
        return exchange.refuse(503, refusal_body(INVALID_REQUEST, problem), headers)

    def _too_many(self, headers: Mapping[str, str]) -> str | None:
        policy = self._policy
        if len(headers) > policy.max_headers:
            return f"More than {policy.max_headers} headers (max_headers)"
        if sum(map(len, headers.values())) + sum(map(len, headers)) > policy.max_header_bytes:
            return f"Headers of more than {policy.max_header_bytes} bytes (max_header_bytes)"
        return None

    # Host and Origin are compared as wholes, never by a prefix or a suffix.

    def _wrong_host(self, headers: Mapping[str, str]) -> str | None:
        if self._hosts is None:
            return None
        host = headers.get("host", "").lower()
        name = host if host.endswith("]") else host.rpartition(":")[0] or host
        if "," not in host and (host in self._hosts or name in self._hosts):
            return None
        shown = host[:100] or "nothing"
        return f"Host {shown!r} is not served here: add it to allowed_hosts if it is yours"

    def _wrong_origin(self, headers: Mapping[str, str]) -> str | None:
        origin = headers.get("origin")
        if origin is None or self._policy.cors is True:
            return None
        found = _origin(origin)
        if found in self._listed or (self._origins is not None and found in self._origins):
            return None
        if self._origins is None and (self._hosts is None or self._is_own(found)):
            return None
        return f"Origin {origin[:100]!r} is not allowed: add it to allowed_origins (or cors, if its pages read answers)"

    def _is_own(self, origin: tuple[str, str, int | None] | None) -> bool:
        """Tell whether a page of this very server asks, or of another one that is bound to loopback as we are."""
        if origin is None or self._hosts is None:
            return False
        name = f"[{origin[1]}]" if ":" in origin[1] else origin[1]
        return name in self._hosts or f"{name}:{origin[2]}" in self._hosts

    # CORS.

    def cors_headers(self, headers: Mapping[str, str]) -> list[Header]:
        """Return what lets a page of another origin read the answer."""
        origin = headers.get("origin")
        if origin is None or self._policy.cors is False:
            return []
        if self._policy.cors is not True and _origin(origin) not in self._listed:
            return []
        return [
            ("access-control-allow-origin", origin),
            ("access-control-expose-headers", _EXPOSED),
            ("vary", "origin"),
        ]

    def _preflight(self, headers: Mapping[str, str]) -> Sequence[Header]:
        if not self.cors_headers(headers):
            return [("allow", ", ".join(_METHODS))]
        wanted = headers.get("access-control-request-headers", "").lower()
        mirrored = [each.strip() for each in wanted.split(",") if each.strip().startswith("mcp-param-")]
        return [
            ("access-control-allow-methods", "POST, GET, DELETE, OPTIONS"),
            ("access-control-allow-headers", ", ".join([_REQUEST_HEADERS, *mirrored])),
            ("access-control-max-age", "600"),
        ]


def _named_origin(setting: str, text: str) -> tuple[str, str, int | None]:
    """Return an origin of a setting. Raises: ValueError, since one that is none would be like any other that is none."""
    found = _origin(text)
    if found is None:
        raise ValueError(f"{setting} must list origins such as https://app.example.com, without a path, got {text!r}")
    return found


def _origin(text: str) -> tuple[str, str, int | None] | None:
    """Return scheme, host and port of an origin; None for one that is none.

    `null` is that of a page without one, such as a file: it is let in where it is listed by that name.
    """
    if text == "null":
        return text, "", None
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        return None
    if not parts.scheme or not parts.hostname or parts.path not in ("", "/") or parts.query or parts.username:
        return None
    return parts.scheme, parts.hostname, port if port is not None else _PORTS.get(parts.scheme)
