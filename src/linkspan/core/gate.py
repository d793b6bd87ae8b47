"""What is checked of an HTTP request before its body is read: host, origin, method, media types, size. And CORS.

Spec: https://modelcontextprotocol.io/specification/2026-07-28/basic/transports (H5-2, H5-11, SEC-1).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from linkspan.core.exchange import Header, ServerExchange
from linkspan.core.http_policy import HttpPolicy
from linkspan.errors import INTERNAL_ERROR, INVALID_REQUEST
from linkspan.wire.headers import Authority, Origin, accepts, is_loopback, media_type, parse_authority, parse_origin
from linkspan.wire.messages import encode_error

__all__ = ["Arrival", "Gate", "refusal_body"]

_METHODS: Final = ("POST", "GET", "DELETE", "OPTIONS")
_WITHOUT_HOST: Final = ("1.0", "0.9")
"""Versions of HTTP in which a request need not name a host."""
_REQUEST_HEADERS: Final = (
    "content-type, accept, authorization, dpop, mcp-protocol-version, mcp-session-id, mcp-method, mcp-name, "
    "last-event-id"
)
_EXPOSED: Final = "www-authenticate, dpop-nonce, mcp-session-id"
_CLOSE: Final[Sequence[Header]] = (("connection", "close"),)


def refusal_body(code: int, message: str) -> bytes:
    """Return a JSON-RPC error that answers no message."""
    return encode_error(None, code, message)


class Arrival(msgspec.Struct, frozen=True):
    """Where a request came in, as the transport knows it.

    `own` and `peer` are the two addresses of the socket, without ports: `own` may be the path of a Unix socket, or a name;
    None where they are unknown. `path` is that of the URL; `version` that of HTTP.
    """

    own: str | None = None
    peer: str | None = None
    path: str = "/"
    version: str = "1.1"

    @property
    def over_loopback(self) -> bool:
        """Whether it came over loopback: by our own address, or by the peer's where ours is a name, unspecified or unknown."""
        if self.own is not None:
            if self.own.startswith(("/", "\0")):
                return False  # a Unix socket
            if (known := is_loopback(self.own)) is not None:
                return known
        return self.peer is not None and is_loopback(self.peer) is True


class Gate:
    """Lets requests in, as a policy says."""

    def __init__(self, policy: HttpPolicy) -> None:
        """Check by `policy`. Raises: ValueError for an invalid host or origin in it, which would match nothing."""
        self._policy = policy
        hosts = policy.allowed_hosts
        self._hosts = None if hosts is None else {_named_host(each) for each in hosts}
        listed = [] if isinstance(policy.cors, bool) else list(policy.cors)
        self._readers = {_named_origin("cors", each) for each in listed}
        allowed = policy.allowed_origins
        self._lists_origins = allowed is not None
        self._origins = self._readers | {_named_origin("allowed_origins", each) for each in allowed or ()}

    def admit(self, method: str, headers: Mapping[str, str], arrival: Arrival) -> ServerExchange | None:
        """Return the refusal, or None."""
        host = headers.get("host")
        named = parse_authority(host) if host is not None else None
        local = arrival.over_loopback
        if (refusal := self._wrong_host(host, named, local, arrival.version)) is not None:
            return refusal
        origin = headers.get("origin")
        if origin is None:
            refusal = self._wrong_site(method, headers, arrival.path)
        elif self._policy.cors is not True:
            refusal = self._wrong_origin(origin, named, local)
        if refusal is not None:
            return refusal
        if (problem := self._too_many(headers)) is not None:
            return self.refuse(431, problem, headers, _CLOSE)
        if method == "POST":
            return self._wrong_post(headers)
        if method == "OPTIONS":
            return ServerExchange(now=0.0, headers=self.cors_headers(headers)).refuse(
                204, b"", self._preflight(headers)
            )
        if method not in _METHODS:
            return self.refuse(405, f"{method[:20]} is not possible here", headers, [("allow", "POST, GET, DELETE")])
        return None

    def _wrong_post(self, headers: Mapping[str, str]) -> ServerExchange | None:
        kind = headers.get("content-type")
        if kind is None:  # which a page of any origin can send without asking first, as it can a form
            return self.refuse(415, "Content-Type is missing: send application/json", headers)
        if media_type(kind) != "application/json":
            problem = f"Unsupported media type {media_type(kind)[:60]!r}: send application/json"
            return self.refuse(415, problem, headers)
        accept = headers.get("accept")
        if not (accepts(accept, "application/json") or accepts(accept, "text/event-stream")):
            return self.refuse(406, "Not acceptable: accept application/json and text/event-stream", headers)
        return self.too_large(headers) if self.is_too_long(headers.get("content-length", "")) else None

    def is_too_long(self, length: str) -> bool:
        """Return whether a Content-Length is more than we take, however many digits it has."""
        return length.isascii() and length.isdigit() and (len(length) > 18 or int(length) > self._policy.max_body_bytes)

    def _too_many(self, headers: Mapping[str, str]) -> str | None:
        policy = self._policy
        if len(headers) > policy.max_headers:
            return f"More than {policy.max_headers} headers (max_headers)"
        if sum(map(len, headers.values())) + sum(map(len, headers)) > policy.max_header_bytes:
            return f"Headers of more than {policy.max_header_bytes} bytes (max_header_bytes)"
        return None

    # Refusals. All but those of a foreign host or origin can be read by the pages that may read answers.

    def refuse(
        self,
        status: int,
        problem: str,
        headers: Mapping[str, str],
        extra: Sequence[Header] = (),
        *,
        code: int = INVALID_REQUEST,
    ) -> ServerExchange:
        """Return a refusal of the request with these headers."""
        exchange = ServerExchange(now=0.0, headers=self.cors_headers(headers))
        return exchange.refuse(status, refusal_body(code, problem), extra)

    def too_large(self, headers: Mapping[str, str]) -> ServerExchange:
        """Refuse a body that is too large."""
        return self.refuse(413, f"Larger than {self._policy.max_body_bytes} bytes (max_body_bytes)", headers, _CLOSE)

    def too_slow(self, headers: Mapping[str, str]) -> ServerExchange:
        """Refuse a body that does not arrive in time."""
        problem = f"The body did not arrive within {self._policy.body_timeout:g} seconds (body_timeout)"
        return self.refuse(408, problem, headers, _CLOSE)

    def too_short(self, headers: Mapping[str, str]) -> ServerExchange:
        """Refuse a body of which the end is missing."""
        return self.refuse(400, "The body is shorter than Content-Length", headers, _CLOSE)

    def unidentified(self, headers: Mapping[str, str]) -> ServerExchange:
        """Refuse a request whose sender cannot be told apart from others."""
        problem = "Internal error: who sent this request is not known; the log of the server says why"
        return self.refuse(500, problem, headers, code=INTERNAL_ERROR)

    def too_many_bodies(self, headers: Mapping[str, str], bound: str) -> ServerExchange:
        """Refuse a body because of all the others that are arriving; `bound` is the setting."""
        problem = f"Too many bodies are arriving ({bound}); try again later"
        return self.refuse(503, problem, headers, [("retry-after", "5"), *_CLOSE])

    # Host and Origin.

    def _wrong_host(
        self, host: str | None, named: Authority | None, local: bool, version: str
    ) -> ServerExchange | None:
        """Return the refusal of a Host that is missing, not listed or, over loopback, not this machine's."""
        if host is None and version not in _WITHOUT_HOST:
            return _refusal(400, "Host is missing")
        if named is None and host is not None and not local and self._hosts is None:
            return _refusal(400, "Host is not a valid name[:port]")
        if named is not None and (self._lists(named) or (local and named.loopback)):
            return None
        if not local and self._hosts is None:
            return None
        name = named.name[:100] if named is not None else "mcp.example.com"
        problem = (
            f"Host {(host or 'nothing')[:100]!r} is not served here: add it to allowed_hosts if it is yours; "
            f"behind a reverse proxy write allowed_hosts={[name]!r} (linkspan run: --allow-host {name})"
        )
        return ServerExchange(now=0.0).complain(421, problem)

    def _lists(self, host: Authority) -> bool:
        return self._hosts is not None and ((host.name, None) in self._hosts or (host.name, host.port) in self._hosts)

    def _wrong_origin(self, origin: str, host: Authority | None, local: bool) -> ServerExchange | None:
        """Return the refusal of a page that is neither listed, nor our own, nor one of this machine on loopback."""
        found = parse_origin(origin)
        if found in self._origins:
            return None
        if found is not None and host is not None and found.default_port is not None:
            if not self._lists_origins and local and host.loopback and found.loopback:
                return None
            # Without a check of the host, any site can take its name (DNS rebinding): no page is our own by the name alone
            # where somebody has listed those that are allowed.
            trusted = local or self._hosts is not None or not self._lists_origins
            if trusted and _same_server(found, host):
                return None
        problem = (
            f"Origin {origin[:100]!r} is not allowed: add it to allowed_origins (or cors, if its pages read answers)"
        )
        return ServerExchange(now=0.0).complain(403, problem)

    def _wrong_site(self, method: str, headers: Mapping[str, str], path: str) -> ServerExchange | None:
        """Return the refusal of what a page of another site makes a browser load, as an image for example: it has no Origin."""
        if headers.get("sec-fetch-site") != "cross-site":
            return None
        if method == "GET" and self._policy.page and headers.get("sec-fetch-mode") == "navigate":
            return None
        if method in ("GET", "HEAD") and path.startswith("/.well-known/"):
            return None
        return _refusal(403, "A page of another site sent this request without an Origin: such requests are refused")

    # CORS.

    def cors_headers(self, headers: Mapping[str, str]) -> list[Header]:
        """Return what lets a page of another origin read the answer."""
        origin = headers.get("origin")
        if origin is None or self._policy.cors is False:
            return []
        if self._policy.cors is not True and parse_origin(origin) not in self._readers:
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


def _refusal(status: int, problem: str) -> ServerExchange:
    return ServerExchange(now=0.0).refuse(status, refusal_body(INVALID_REQUEST, problem))


def _same_server(origin: Origin, host: Authority) -> bool:
    """Return whether a page came from this very server. Schemes are not compared: TLS may end in front of us."""
    port = host.port if host.port is not None else origin.default_port
    return origin.name == host.name and origin.port == port


def _named_host(text: str) -> tuple[str, int | None]:
    """Return a host of a setting. Raises: ValueError, since an invalid one would match nothing."""
    found = parse_authority(text)
    if found is None or "*" in text:
        raise ValueError(
            f"allowed_hosts must list hosts such as mcp.example.com, mcp.example.com:8443 or [::1], got {text!r}"
        )
    return found.name, found.port


def _named_origin(setting: str, text: str) -> Origin:
    """Return an origin of a setting. Raises: ValueError, since an invalid one would be equal to any other invalid one."""
    found = parse_origin(text)
    if found is None:
        raise ValueError(f"{setting} must list origins such as https://app.example.com, without a path, got {text!r}")
    return found
