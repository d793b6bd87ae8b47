"""What is checked in the headers of an HTTP request, the limits of an endpoint with their defaults, and CORS."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType
from typing import Final, Literal, TypeAlias

import msgspec

from linkspan.core.call import HeaderPlan
from linkspan.core.http_exchange import JSON_HEADERS, TEXT, Header, HttpResponse
from linkspan.core.params import AnyRequest, HasMeta
from linkspan.errors import (
    HEADER_MISMATCH,
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    UNSUPPORTED_PROTOCOL_VERSION,
    RemoteProtocolError,
)
from linkspan.keywords import Keywords
from linkspan.revisions import ALL, Served
from linkspan.revisions.modern import CAPABILITIES, PROTOCOL_VERSION
from linkspan.revisions.neutral import Peer, TransportInfo
from linkspan.types.base import ABSENT, JSON, is_object
from linkspan.types.messages import CallToolParams
from linkspan.types.methods import NAMED
from linkspan.wire.headers import (
    BadEncoding,
    Origin,
    accepts,
    agrees,
    decode_value,
    is_forwarded,
    is_loopback,
    join_lines,
    media_type,
    parse_authority,
    parse_origin,
    unknown_coding,
    value_at,
)
from linkspan.wire.jsonrpc import encode_error

VERSION_HEADER: Final = "mcp-protocol-version"
RawHeaders: TypeAlias = tuple[tuple[bytes, bytes], ...]
"""Names and values as they came, in Latin-1."""

_METHODS: Final = ("POST", "GET", "DELETE", "OPTIONS")
_WITHOUT_HOST: Final = ("1.0", "0.9")
"""Versions of HTTP in which a request need not name a host."""
_REQUEST_HEADERS: Final = (
    "content-type, accept, authorization, dpop, mcp-protocol-version, mcp-session-id, mcp-method, mcp-name, "
    "last-event-id"
)
_REMEMBERED: Final = 128
"""Different requests that are judged once: nearly all clients of an app send the same host, origin and media types."""
_HEADS: Final = 512
"""Heads that are read once. At the bound all are forgotten: cheaper, and safe in threads, where clients never repeat any."""
_SMALL_HEAD: Final = 4096
"""Bytes of names and values up to which a head is remembered."""
_DOUBLED: Final = HttpResponse(400, TEXT, b"Host or Origin is there twice")
_EXPOSED: Final = "www-authenticate, dpop-nonce, mcp-session-id"


def refusal_body(code: int, message: str) -> bytes:
    """Return a JSON-RPC error that answers no message."""
    return encode_error(None, code, message)


class Arrival(msgspec.Struct, frozen=True):
    """Where a request came in, as the transport knows it.

    `own` and `peer` are the two addresses of the socket, without ports: `own` may be the path of a Unix socket, or a name;
    None where they are unknown. `path` is that of the URL; `version` that of HTTP. `authority` is that of a target in absolute
    form, which counts instead of the Host header (RFC 9112, section 3.2.2).
    """

    own: str | None = None
    peer: str | None = None
    path: str = "/"
    version: str = "1.1"
    authority: str | None = None


def is_over_loopback(own: str | None, peer: str | None) -> bool:
    """Return whether a request came over loopback, by the two addresses of an `Arrival`.

    The peer's counts where ours is a name, unspecified or unknown.
    """
    if own is not None:
        if own.startswith(("/", "\0")):
            return False  # a Unix socket
        if (known := is_loopback(own)) is not None:
            return known
    return peer is not None and is_loopback(peer) is True


def is_small(raw: Iterable[tuple[bytes, bytes]]) -> bool:
    """Return whether a head may be remembered: a large one would be held for a client that never repeats it."""
    return sum(len(name) + len(value) for name, value in raw) <= _SMALL_HEAD


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
        self._wrong_host = lru_cache(_REMEMBERED)(self._judge_host)
        self._wrong_origin = lru_cache(_REMEMBERED)(self._judge_origin)
        self._cors_of = lru_cache(_REMEMBERED)(self._judge_reader)
        self._heads: dict[tuple[object, ...], Mapping[str, str] | HttpResponse] = {}

    def read(self, method: str, raw: RawHeaders, arrival: Arrival) -> Mapping[str, str] | HttpResponse:
        """Return the headers of a request that is let in, by name in lower case, or its refusal.

        A client repeats its headers, so the last different heads are remembered together with the decision.
        """
        local = is_over_loopback(arrival.own, arrival.peer)
        key = (raw, method, arrival.path, arrival.version, arrival.authority, local)
        found = self._heads.get(key)
        if found is None:
            headers = _by_name(raw)
            found = _DOUBLED if headers is None else self.admit(method, MappingProxyType(headers), arrival, len(raw))
            if is_small(raw):
                if len(self._heads) >= _HEADS:
                    self._heads.clear()
                self._heads[key] = found
        return found

    def admit(
        self, method: str, headers: Mapping[str, str], arrival: Arrival, lines: int | None = None
    ) -> Mapping[str, str] | HttpResponse:
        """Return the headers of a request that is let in, with the host that counts, or its refusal.

        `lines` is how many lines the headers came in, where that is known.
        """
        refused = self._refusal(method, headers, arrival, lines or len(headers))
        if refused is None and arrival.authority is not None:
            return MappingProxyType({**headers, "host": arrival.authority})
        return refused or headers

    def _refusal(self, method: str, headers: Mapping[str, str], arrival: Arrival, lines: int) -> HttpResponse | None:
        named = headers.get("host") or None  # granian adds an empty one where it is missing
        local, host = is_over_loopback(arrival.own, arrival.peer), arrival.authority or named
        origin = headers.get("origin")
        refused = self._wrong_host(named, arrival.authority, local, arrival.version)
        if refused is None and origin is not None:
            refused = self._wrong_origin(origin, host, local)
        elif refused is None and headers.get("sec-fetch-site") == "cross-site":
            refused = self._wrong_site(method, headers, arrival.path)
        if refused is not None:
            return refused
        policy = self._policy
        if lines > policy.max_headers:
            problem = f"More than {policy.max_headers} headers (max_headers) [LS-504]"
            return self.refuse(431, problem, headers, closes=True)
        if sum(map(len, headers.values())) + sum(map(len, headers)) > policy.max_header_bytes:
            problem = f"The headers are larger than {policy.max_header_bytes} bytes (max_header_bytes) [LS-504]"
            return self.refuse(431, problem, headers, closes=True)
        if (coding := unknown_coding(headers.get("transfer-encoding", ""))) is not None:
            return self.unreadable(coding, headers)
        if method == "POST":
            wrong = _wrong_media(headers.get("content-type"), headers.get("accept"))
            if wrong is not None:
                return self.refuse(*wrong, headers)
            length = headers.get("content-length")
            return self.too_large(headers) if length is not None and self.is_too_long(length) else None
        if method == "OPTIONS":
            return HttpResponse(204, (*self.cors_headers(headers), *self._preflight(headers)))
        if method not in _METHODS:
            return self.refuse(405, f"{method[:20]} is not supported here", headers, (("allow", "POST, GET, DELETE"),))
        return None

    def is_too_long(self, length: str) -> bool:
        """Return whether a Content-Length is more than we take, however many digits it has."""
        return length.isascii() and length.isdigit() and (len(length) > 18 or int(length) > self._policy.max_body_bytes)

    def shows_page(self, headers: Mapping[str, str]) -> bool:
        """Return whether a browser with these headers gets the page for people."""
        page = self._policy.page
        return page is True or (page == "direct" and not is_forwarded(headers))

    # Refusals. All but those of a foreign host or origin can be read by the pages that may read answers.

    def refuse(
        self,
        status: int,
        problem: str,
        headers: Mapping[str, str],
        extra: tuple[Header, ...] = (),
        *,
        code: int = INVALID_REQUEST,
        closes: bool = False,
    ) -> HttpResponse:
        """Return a refusal of the request with these headers."""
        shown = (*self.cors_headers(headers), *extra, *JSON_HEADERS)
        return HttpResponse(status, shown, refusal_body(code, problem), closes=closes)

    def unreadable(self, coding: str, headers: Mapping[str, str]) -> HttpResponse:
        """Refuse a body in this transfer coding (RFC 9112, section 6.1)."""
        problem = f"Transfer coding {coding[:60]!r} is not supported: send the body without it"
        return self.refuse(501, problem, headers, closes=True)

    def too_large(self, headers: Mapping[str, str]) -> HttpResponse:
        """Refuse a body that is too large."""
        problem = f"The body is larger than {self._policy.max_body_bytes} bytes (max_body_bytes) [LS-504]"
        return self.refuse(413, problem, headers, closes=True)

    def too_slow(self, headers: Mapping[str, str]) -> HttpResponse:
        """Refuse a body that does not arrive in time."""
        problem = f"The body did not arrive within {self._policy.body_timeout:g} seconds (body_timeout)"
        return self.refuse(408, problem, headers, closes=True)

    def too_short(self, headers: Mapping[str, str]) -> HttpResponse:
        """Refuse a body of which the end is missing."""
        return self.refuse(400, "The body is shorter than Content-Length", headers, closes=True)

    def unidentified(self, headers: Mapping[str, str]) -> HttpResponse:
        """Refuse a request whose sender cannot be distinguished from others."""
        problem = "Internal error: the sender of this request is unknown; see the log of the server"
        return self.refuse(500, problem, headers, code=INTERNAL_ERROR)

    def too_many_bodies(self, headers: Mapping[str, str], bound: str) -> HttpResponse:
        """Refuse a body because of all the others that are arriving; `bound` is the setting."""
        problem = f"Too many bodies are arriving ({bound}); try again later [LS-505]"
        return self.refuse(503, problem, headers, (("retry-after", "5"),), closes=True)

    # Host and Origin: pure functions of what nearly all clients of an app share, so each gate remembers what it decided.

    def _judge_host(self, host: str | None, authority: str | None, local: bool, version: str) -> HttpResponse | None:
        """Refuse a Host that is missing or invalid, and a host that is not listed or, over loopback, not this machine's.

        The `authority` of the target counts instead of a Host that is valid.
        """
        if host is None and version not in _WITHOUT_HOST:
            return _refusal(400, "Host is missing")
        if any(each is not None and parse_authority(each) is None for each in (host, authority)):
            return _refusal(400, "Host is not a valid name[:port]")
        host = authority or host
        named = parse_authority(host) if host is not None else None
        if named is not None:
            listed = self._hosts is not None and not self._hosts.isdisjoint(
                ((named.name, None), (named.name, named.port))
            )
            if listed or (local and named.loopback):
                return None
        if not local and self._hosts is None:
            return None
        name = named.name[:100] if named is not None else "mcp.example.com"
        problem = (
            f"Host {(host or 'nothing')[:100]!r} is not served here: add it to allowed_hosts if it is yours; "
            f"behind a reverse proxy write allowed_hosts={[name]!r} (linkspan run: --allow-host {name}) [LS-501]"
        )
        return _refusal(421, problem, logged=True)

    def _judge_origin(self, origin: str, host: str | None, local: bool) -> HttpResponse | None:
        """Refuse a page that is neither listed, nor our own, nor one of this machine on loopback."""
        if self._policy.cors is True:
            return None
        found = parse_origin(origin)
        if found in self._origins:
            return None
        named = parse_authority(host) if host is not None else None
        if found is not None and named is not None and found.default_port is not None:
            if not self._lists_origins and local and named.loopback and found.loopback:
                return None
            # Without a check of the host, any site can take its name (DNS rebinding): where allowed_origins is set, a page
            # is not our own by the name alone.
            trusted = local or self._hosts is not None or not self._lists_origins
            port = named.port if named.port is not None else found.default_port
            # Schemes are not compared: TLS may end in front of us.
            if trusted and found.name == named.name and found.port == port:
                return None
        problem = (
            f"Origin {origin[:100]!r} is not allowed: add it to allowed_origins "
            "(or cors, if its pages read responses) [LS-502]"
        )
        return _refusal(403, problem, logged=True)

    def _wrong_site(self, method: str, headers: Mapping[str, str], path: str) -> HttpResponse | None:
        """Refuse what a page of another site makes a browser load, as an image for example: it has no Origin."""
        if method == "GET" and self.shows_page(headers) and headers.get("sec-fetch-mode") == "navigate":
            return None
        if method in ("GET", "HEAD") and path.startswith("/.well-known/"):
            return None
        return _refusal(403, "A page of another site sent this request without an Origin, which is refused [LS-502]")

    # CORS.

    def cors_headers(self, headers: Mapping[str, str]) -> tuple[Header, ...]:
        """Return what lets a page of another origin read the answer."""
        origin = headers.get("origin")
        return self._cors_of(origin) if origin is not None else ()

    def _judge_reader(self, origin: str) -> tuple[Header, ...]:
        if self._policy.cors is False or (self._policy.cors is not True and parse_origin(origin) not in self._readers):
            return ()
        return (
            ("access-control-allow-origin", origin),
            ("access-control-expose-headers", _EXPOSED),
            ("vary", "origin"),
        )

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


def _refusal(status: int, problem: str, headers: tuple[Header, ...] = (), *, logged: bool = False) -> HttpResponse:
    """Refuse a request. `logged`: the operator of the server may want to allow it, and the text names the setting."""
    body = refusal_body(INVALID_REQUEST, problem)
    return HttpResponse(status, (*headers, *JSON_HEADERS), body, problem if logged else None)


@lru_cache(_REMEMBERED)
def _wrong_media(kind: str | None, accept: str | None) -> tuple[int, str] | None:
    """Refuse a POST that does not send JSON, or takes neither JSON nor events."""
    if kind is None:  # a page of any origin can send that without asking first, as it can a form
        return (415, "Content-Type is missing: send application/json [LS-503]")
    if media_type(kind) != "application/json":
        return (415, f"Unsupported media type {media_type(kind)[:60]!r}: send application/json [LS-503]")
    if not (accepts(accept, "application/json") or accepts(accept, "text/event-stream")):
        return (406, "Not acceptable: accept application/json and text/event-stream [LS-503]")
    return None


def _by_name(raw: RawHeaders) -> dict[str, str] | None:
    """Return headers by name; None if one that safety depends on is there twice."""
    lines = [(name.decode("latin-1").lower(), value.decode("latin-1").strip()) for name, value in raw]
    found = dict(lines)
    if len(found) == len(lines):  # none came twice, as nearly always
        return found
    names = [name for name, _ in lines]
    return None if names.count("host") > 1 or names.count("origin") > 1 else join_lines(lines)


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


# Headers against the body (H5-8). The conformance suite expects the checks in this order.


def compare_headers(
    facts: TransportInfo,
    rpc: AnyRequest,
    params: HasMeta | None,
    peer: Peer | None,
    error: RemoteProtocolError | None,
    header_plan: HeaderPlan,
    served: Served = ALL,
) -> RemoteProtocolError | None:
    """Return what is wrong with a modern request; None to go on (or to keep `error`, which was found already).

    `served` are the revisions of the server. Without `params`, only what comes before `error` is checked.
    """
    headers = facts.headers
    version = headers.get(VERSION_HEADER)
    if peer is None and error is None:
        missing = f"Invalid params: _meta lacks {PROTOCOL_VERSION}, {CAPABILITIES}"
        return RemoteProtocolError(INVALID_PARAMS, missing, {"supported": served.versions})
    if version is None:
        return _mismatch("MCP-Protocol-Version is missing")
    if peer is not None:
        claimed = peer.revision.date
    elif error is not None and error.code == UNSUPPORTED_PROTOCOL_VERSION and is_object(error.data):
        claimed = str(error.data.get("requested"))
    else:
        return None
    if version != claimed:
        return _mismatch(f"MCP-Protocol-Version is {version[:40]!r}, but _meta has {claimed[:40]!r}")
    if peer is None:
        return None
    method = headers.get("mcp-method")
    if method != rpc.method:
        return _mismatch(
            "Mcp-Method is missing" if method is None else "Mcp-Method does not match the method in the body"
        )
    if error is not None or params is None or (member := params.named_by) is None:
        return None
    name: str = getattr(params, member)
    found = headers.get("mcp-name")
    if found != name and (problem := _wrong_name(found, name, rpc.method)) is not None:
        return problem
    if isinstance(params, CallToolParams) and (plan := header_plan(name)):
        return compare_parameters(headers, plan, params)
    return None


def _wrong_name(found: str | None, name: str, method: str) -> RemoteProtocolError | None:
    if found is None:  # clients in use leave it out of methods of extensions
        return _mismatch("Mcp-Name is missing") if method in NAMED else None
    try:
        return None if decode_value(found) == name else _mismatch("Mcp-Name does not match the name in the body")
    except BadEncoding as problem:
        return _mismatch(f"Mcp-Name {problem}")


def compare_parameters(
    headers: Mapping[str, str], plan: Mapping[tuple[str, ...], str], params: CallToolParams
) -> RemoteProtocolError | None:
    """Return what is wrong with the headers that repeat arguments of a tool."""
    try:
        arguments: JSON = msgspec.json.decode(params.arguments) if params.arguments is not ABSENT else {}
    except (msgspec.DecodeError, RecursionError):
        return None  # reading the arguments will explain what is wrong with them
    for path, name in plan.items():
        problem = _wrong_parameter(f"Mcp-Param-{name}", headers, value_at(arguments, path))
        if problem is not None:
            return problem
    return None


def _wrong_parameter(name: str, headers: Mapping[str, str], value: JSON) -> RemoteProtocolError | None:
    header = headers.get(name.lower())
    if header is None:
        return None if value is None else _mismatch(f"{name} is missing, but the body has a value")
    if value is None:
        return _mismatch(f"{name} is present, but the body has no value")
    try:
        return (
            None if agrees(decode_value(header), value) else _mismatch(f"{name} does not match the value in the body")
        )
    except BadEncoding as problem:
        return _mismatch(f"{name} {problem}")


def _mismatch(problem: str) -> RemoteProtocolError:
    return RemoteProtocolError(HEADER_MISMATCH, f"Header mismatch: {problem} [LS-507]")


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

    page: bool | Literal["direct"] | None = None
    """Show a page to browsers; "direct": unless their requests have headers of a proxy. None: "direct" when bound to loopback."""

    http_sse: str | None = None
    """The path of the HTTP+SSE transport of the first revision, such as "/sse", for clients that know no other. It is served
    beside the rest; a path prefix under which the endpoint is mounted comes before it. None: not served."""

    max_body_bytes: int = 4 * 1024 * 1024
    """The body of one request. A larger one is answered 413."""

    max_incoming_bytes: int = 64 * 1024 * 1024
    """All bodies that are arriving, together (ASGI: in one event loop). If they are larger, the largest is answered 503,
    but a single one never is. WSGI counts whole bodies from their beginning, and refuses the newest."""

    max_headers: int = 100
    """Lines of headers in one request. More are answered 431. Under WSGI, lines of one name count once: the server joins them."""

    max_header_bytes: int = 32 * 1024
    """Names and values of the headers of one request, together. More are answered 431."""

    max_sessions: int = 1000
    """Sessions of handshake clients. One more ends the session that was quiet for longest; one without an open stream
    goes first. If calls run in all of them, the new one is answered 503."""

    max_sessions_per_principal: int = 100
    """Of these, for one principal; at the bound one of its own goes in the same way, or 429."""

    session_idle: float = 1800.0
    """Seconds without a request or an open stream after which a session goes."""

    max_streams: int = 10_000
    """Responses that are open at the same time: streams, and calls and notifications at work. More are answered 503. As
    many more requests may be arriving."""

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

    cleanup: float = 2.0
    """Seconds in which cancelled functions must close what they opened, once the process is asked to stop. Then the lifespan is
    left, and the log names what is still open."""

    silence: float = 15.0
    """Seconds without a message after which a stream gets a comment, so that no proxy between us closes it."""

    retry: int = 1000
    """Milliseconds after which a handshake client whose stream ended should come back."""

    @property
    def share(self) -> int:
        """Plain functions of one client that run at the same time."""
        return self.max_workers_per_client or max(1, self.max_workers * 3 // 4)

    def __post_init__(self) -> None:
        if self.page not in (True, False, "direct", None):
            raise ValueError(f"page must be True, False, 'direct' or None, got {self.page!r}")
        path = self.http_sse
        if path is not None and not (isinstance(path, str) and path.strip("/")):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ValueError(f"http_sse must be a path such as '/sse', got {path!r}")
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if isinstance(value, str) and name not in ("http_sse", "page"):
                raise ValueError(f"{name} must be a list, such as [{value!r}], got a string")
            if isinstance(value, int | float) and not isinstance(value, bool) and value <= 0:
                raise ValueError(f"{name} must be above 0, got {value!r}")


class HttpKeywords(Keywords, total=False):
    """The fields of `HttpPolicy` once more, in its order, as `asgi`, `wsgi` and `run("http")` take them by name."""

    allowed_hosts: Sequence[str] | None
    allowed_origins: Sequence[str] | None
    cors: bool | Sequence[str]
    sessions: bool
    require_session: bool
    page: bool | Literal["direct"] | None
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
    cleanup: float
    silence: float
    retry: int
