"""What a client knows: its options, deadlines and credentials, the results it keeps, and what it has learned of its server.

A kept result (`ttlMs`, `cacheScope`) is used while it is fresh, and dropped as soon as the server announces a change. Private
results are kept for each principal: two calls with other headers are two principals. Spec: RFC 6750, section 2.1, and
https://modelcontextprotocol.io/specification/2026-07-28/server/utilities/caching (CACHE-C1 to CACHE-C7).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, Literal, Protocol, TypeAlias, TypeVar

import msgspec
from msgspec import Raw

from linkspan.core.flow import ITSELF, Flow, Principal, ProgressCallback, RequestSpec, ResultFlow, Stopper
from linkspan.flows.client_errors import ServerOrigin
from linkspan.revisions.agreement import Agreement, ClientProfile
from linkspan.revisions.record import Era, Revision
from linkspan.types.base import JSON
from linkspan.types.messages import Tool
from linkspan.types.methods import COMPLETE, LIST_CHANGED, LISTS, RESOURCE_READ
from linkspan.wire.jsonrpc import ErrorResponse, Response, encode
from linkspan.wire.values import Limits


class Timeouts(msgspec.Struct, frozen=True, kw_only=True):
    """How long a client waits. Raises: ValueError for a bound that is not above zero: no call may wait for ever."""

    connect: float = 30.0
    """From starting the server to the end of the negotiation."""

    probe: float = 5.0
    """For the first question in the modern era, before the handshake is tried; over HTTP beside it, while that stays open."""

    list: float = 30.0
    """For one page of a list, a completion, a ping, and other short requests."""

    call: float = 60.0
    """For a tool, a prompt or a resource: without an answer or a sign of progress."""

    total: float = 900.0
    """For one call in all: progress, attempts, rounds and pauses. What our handlers take does not count, up to `input`."""

    input: float = 600.0
    """For our handlers to answer the questions of one call, in all; those that overlap count once."""

    login: float = 300.0
    """For a person to log in. Meanwhile the deadlines of the calls that wait for it stand still."""

    close: float = 2.0
    """For a server process to end by itself once it was asked to; after that it is terminated."""

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            if not getattr(self, name) > 0:
                raise ValueError(f"timeouts.{name} must be above 0 seconds, got {getattr(self, name)!r}")


DEFAULT_TIMEOUTS = Timeouts()

CLIENT_LIMITS = Limits(max_line_bytes=64 * 1024 * 1024)
"""The client chose its server and its requests, so a message may be larger than a server accepts from unknown peers."""


Auth: TypeAlias = str | Callable[[], str]
"""A bearer token, or a plain function that returns it, called for each request."""


_ABOUT_THE_REQUEST: Final = frozenset(
    {"baggage", "idempotency-key", "traceparent", "tracestate", "x-correlation-id", "x-request-id"}
)
_TOKEN: Final = r"[A-Za-z0-9\-._~+/]+=*"


def bearer(auth: Auth) -> Mapping[str, str]:
    """Return the header that identifies the principal.

    Raises: ValueError for an invalid token; the error does not show it.
    """
    token = auth() if callable(auth) else auth
    if type(token) is not str or not re.fullmatch(_TOKEN, token):
        raise ValueError("auth= must be a bearer token, or a function that returns one: letters, digits and -._~+/=")
    return {"authorization": f"Bearer {token}"}


def has_authorization(headers: Mapping[str, str] | None) -> bool:
    """Return whether headers have an Authorization header, which counts before any other token."""
    return any(name.lower() == "authorization" for name in headers or ())


def principal_of(headers: Mapping[str, str] | None, identity: Hashable = None) -> Principal:
    """Return the principal of requests with these headers and this identity.

    All headers count except those that differ between requests of the same principal.
    """
    if not headers and identity is None:
        return ITSELF
    named = ((name.lower(), value) for name, value in (headers or {}).items())
    who = tuple(sorted(each for each in named if each[0] not in _ABOUT_THE_REQUEST))
    return Principal(who, identity) if who or identity is not None else ITSELF


_UPDATED: Final = "notifications/resources/updated"
_KIND_OF: Final = {method: each.capability for method, each in LISTS.items()} | {RESOURCE_READ.name: "contents"}
"""What a result that is kept belongs to, by its method."""
_CHANGED_BY: Final = {**LIST_CHANGED} | {_UPDATED: "contents"}
"""What a notification says has changed."""
_MARKER: Final = b'"ttlMs"'


def _kind_of(method: str) -> str:
    return _KIND_OF.get(method) or method.removesuffix("/list")


def _list_of_extension(method: str) -> str | None:
    """Return which list of an extension a notification is about, if it is about one."""
    kind = method.removeprefix("notifications/").removesuffix("/list_changed")
    return kind if method == f"notifications/{kind}/list_changed" else None


Key: TypeAlias = tuple[str, bytes, Principal | None]
"""Method, params, and the principal to which the entry belongs; None: any principal."""


class _Hints(msgspec.Struct, rename="camel"):
    ttl_ms: float = 0
    cache_scope: str = "private"
    result_type: str = "complete"


class _CachedResponse(msgspec.Struct, frozen=True):
    raw: Raw
    until: float


class _Updated(msgspec.Struct):
    uri: str


_read_hints = msgspec.json.Decoder(_Hints).decode
_read_updated = msgspec.json.Decoder(_Updated).decode


class ResponseCache:
    """One client's answers. Any thread: each step is one operation on a dictionary."""

    def __init__(self, clock: Callable[[], float], *, max_bytes: int) -> None:
        """Keep at most `max_bytes`; 0 keeps nothing. `clock` gives seconds that never go back."""
        self._clock = clock
        self._max_bytes = max_bytes
        self._kept: dict[Key, _CachedResponse] = {}
        self._bytes = 0
        self._changes: Counter[str] = Counter()

    def find(self, spec: RequestSpec) -> Raw | None:
        """Return the answer to a request, if it is here and fresh."""
        if not self._kept:
            return None
        for whose in (None, principal_of(spec.headers, spec.identity)):
            kept = self._kept.get((spec.method, spec.params, whose))
            if kept is not None and self._clock() < kept.until:
                return kept.raw
        return None

    def mark(self, spec: RequestSpec) -> int:
        """Return where we are before a request goes out, for `keep`."""
        return self._changes[_kind_of(spec.method)]

    def keep(self, spec: RequestSpec, raw: Raw, mark: int) -> None:
        """Keep an answer as its server allows, unless what it tells of has changed since it was asked for."""
        data = bytes(raw)
        if _MARKER not in data or mark != self.mark(spec):
            return
        try:
            hints = _read_hints(raw)
        except (msgspec.DecodeError, RecursionError):
            return
        size = len(data)
        if hints.ttl_ms <= 0 or hints.result_type != "complete" or size > self._max_bytes:
            return
        if self._bytes + size > self._max_bytes:  # a full cache begins anew
            self.clear()
        whose = None if hints.cache_scope == "public" else principal_of(spec.headers, spec.identity)
        key = (spec.method, spec.params, whose)
        self._drop(key)
        self._kept[key] = _CachedResponse(raw, self._clock() + hints.ttl_ms / 1000)
        self._bytes += size

    def receive(self, method: str, params: bytes | Raw | None) -> None:
        """Forget what a notification says has changed."""
        kind = _CHANGED_BY.get(method) or _list_of_extension(method)
        if kind is None:
            return
        about: bytes | None = None
        if method == _UPDATED:
            try:
                about = b'{"uri":%b}' % encode(_read_updated(params or b"{}").uri)
            except (msgspec.DecodeError, RecursionError):
                return
        self._forget(kind, about)

    def forget_list(self, method: str) -> None:
        """Forget all pages of a list."""
        self._forget(_kind_of(method), None)

    def clear(self) -> None:
        """Forget everything."""
        self._kept = {}
        self._bytes = 0

    def _forget(self, kind: str, about: bytes | None) -> None:
        self._changes[kind] += 1
        for key in list(self._kept):
            if _kind_of(key[0]) == kind and about in (None, key[1]):
                self._drop(key)

    def _drop(self, key: Key) -> None:
        gone = self._kept.pop(key, None)
        self._bytes -= len(memoryview(gone.raw)) if gone is not None else 0


Retry: TypeAlias = Literal["never", "safe", "always"]
"""When a call is repeated by itself after its server was lost: never; where it cannot do harm (it was not sent, it only
reads, or its tool is marked read-only or idempotent); always."""
OutputPolicy: TypeAlias = Literal["strict", "lenient", "off"]
"""What to do with structured output that does not fit the tool's schema: raise, note it in `result.problems`, nothing."""


NO_RESULTS: Final[Mapping[str, ResultFlow]] = MappingProxyType({})
NO_NAMES: Final[Mapping[str, str]] = MappingProxyType({})
OutputCheck: TypeAlias = Callable[[JSON], Sequence[object]]
"""Returns what is wrong with a tool's structured output."""


class ClientOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What the caller wants."""

    profile: ClientProfile
    era: Era | None = None
    """None: find out."""
    revision: Revision | None = None
    """The only revision to speak; None: the newest that both know."""
    timeouts: Timeouts = DEFAULT_TIMEOUTS
    limits: Limits = CLIENT_LIMITS
    retry: Retry = "safe"
    attempts: int = 3
    """How often a request is sent at most."""
    max_pages: int = 1000
    stored_login: bool = True
    """Whether the login of this user that is stored for the URL is used, where no other one is given."""
    check_output: OutputPolicy = "lenient"
    trace_context: Callable[[], Mapping[str, str]] | None = None
    """Returns what goes into each request's `_meta` to join our trace with the server's."""
    results: Mapping[str, ResultFlow] = NO_RESULTS
    """What is made of results of `tools/call` whose types extensions define."""
    named_by: Mapping[str, str] = NO_NAMES
    """The member that `Mcp-Name` repeats, of the methods of extensions."""


class CallOptions(msgspec.Struct, frozen=True):
    """What one call wants different from the client's defaults; seconds."""

    timeout: float | None = None
    total: float | None = None
    on_progress: ProgressCallback | None = None
    stopper: Stopper | None = None
    meta: Mapping[str, JSON] | None = None
    headers: Mapping[str, str] | None = None
    identity: Hashable = None
    """Who asks, as one of the values of `linkspan.auth`; never beside an Authorization header."""
    surrounded: bool = False
    """It has passed through the client's middleware."""
    results: Mapping[str, ResultFlow] = NO_RESULTS
    """What is made of results of further types, in place of what the client makes of them."""

    def about_the_caller(self) -> CallOptions:
        """Return the headers and the identity alone: for further requests in the same name."""
        if not self.headers and self.identity is None:
            return DEFAULT_CALL
        return CallOptions(headers=self.headers, identity=self.identity)


DEFAULT_CALL: Final = CallOptions()


class ClientCall(msgspec.Struct, frozen=True):
    """One operation of a client, as its middleware sees it."""

    method: str
    """What is called, such as "tools/call"; a list is one call for each page."""
    name: str | None
    """The name of the tool or prompt, or the URI of the resource; None for lists and for methods without a name here."""
    arguments: Mapping[str, Any]
    """The arguments of a tool or prompt, or the params of a method of one's own."""
    options: CallOptions

    @property
    def headers(self) -> Mapping[str, str]:
        """The HTTP headers of this call, beside those of the client."""
        return self.options.headers or {}

    @property
    def meta(self) -> Mapping[str, JSON]:
        """What goes into the request's `_meta`."""
        return self.options.meta or {}

    def replace(
        self,
        *,
        arguments: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        meta: Mapping[str, JSON] | None = None,
        timeout: float | None = None,
    ) -> ClientCall:
        """Return this call with something else, to be yielded. Raises: TypeError for arguments of a method without any."""
        if arguments is not None and (self.method in _WITHOUT_ARGUMENTS or self.method.endswith("/list")):
            raise TypeError(f"{self.method} has no arguments to replace")
        given = {"headers": headers, "meta": meta, "timeout": timeout}
        changed: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
        if has_authorization(headers):
            changed["identity"] = None
        options = msgspec.structs.replace(self.options, **changed)
        return msgspec.structs.replace(
            self, arguments=self.arguments if arguments is None else arguments, options=options
        )


_WITHOUT_ARGUMENTS: Final = frozenset({COMPLETE.name, RESOURCE_READ.name, "ping", "server/discover"})
ResultT = TypeVar("ResultT")
Inside: TypeAlias = Callable[[ClientCall], Flow[ResultT]]
"""Runs an operation without its middleware."""


class Surround(Protocol):
    """Runs an operation through the middleware of a client."""

    def __call__(
        self, method: str, name: str | None, arguments: Mapping[str, Any], options: CallOptions, inside: Inside[ResultT]
    ) -> Flow[ResultT]: ...


class ClientSpan(Protocol):
    """One request in a trace and in metrics, with all its attempts. Neither blocks nor raises."""

    @property
    def spec(self) -> RequestSpec:
        """The request, with the trace in its `_meta`."""
        ...

    def end(self, outcome: Response | ErrorResponse | BaseException | None) -> None:
        """Receive what the caller gets; None where no caller waits any more."""
        ...


class ClientTelemetry(Protocol):
    """Makes a trace and metrics of the requests of clients."""

    def begin(self, state: ClientState, spec: RequestSpec) -> ClientSpan:
        """Begin the span of a request."""
        ...

    def carry(self, function: Callable[[], object]) -> Callable[[], object]:
        """Return the function so that in another thread it belongs to the trace of this one."""
        ...


def _no_telemetry() -> None:
    """Stand in for a client that nothing observes."""


class ShownTools(msgspec.Struct, eq=False):
    """The tools that one principal was shown: a server may show others to the next one."""

    tools: dict[str, Tool] = msgspec.field(default_factory=dict[str, Tool])
    """The tools that were listed, by name, until the server reports that they changed."""
    tools_are_complete: bool = False
    header_plans: dict[str, Mapping[tuple[str, ...], str]] = msgspec.field(
        default_factory=dict[str, Mapping[tuple[str, ...], str]]
    )
    """Over HTTP, which arguments of each listed tool go into which headers. Survives `forget` (HDR-7)."""
    dropped_tools: dict[str, str] = msgspec.field(default_factory=dict[str, str])
    """Tools that were left out of a list because they break the rules for headers, and why (HDR-5)."""
    output_checks: dict[str, OutputCheck] = msgspec.field(default_factory=dict[str, OutputCheck])

    def forget(self) -> None:
        """Drop what was listed."""
        self.tools = {}
        self.output_checks = {}
        self.tools_are_complete = False


class ClientState(msgspec.Struct):
    """One client's memory; it outlives the connections."""

    origin: ServerOrigin
    options: ClientOptions
    random: Callable[[], float]
    """A number from 0 to 1, for jitter."""
    cache: ResponseCache
    clock: Callable[[], float]
    """Seconds that never go back: a request that is sent again has no more time than one that is sent once. From the first
    login that is waited for, it is a clock that stands still meanwhile."""
    who_asks: Callable[[], Mapping[str, str]] | None = None
    """Returns the header that identifies the principal, where the next request may be for another principal."""
    surround: Surround | None = None
    """The middleware of the client."""
    agreement: Agreement | None = None
    """What was agreed last; it may be of a connection that is gone."""
    era: Era | None = None
    """The server's era, remembered for the next connection (ERA-2)."""
    telemetry: ClientTelemetry | None = None
    """Sees each request, if the application traces or measures."""
    find_telemetry: Callable[[], ClientTelemetry | None] = _no_telemetry
    """Looks whether it does, before each connection."""
    principal: Principal = ITSELF
    """Whose connection this is, if a call has named another principal than the client itself."""
    own: ShownTools = msgspec.field(default_factory=ShownTools)
    """What the client itself was shown."""
    listening: int = 0
    """The tasks that it listens to."""
    others: dict[Principal, ShownTools] = msgspec.field(default_factory=dict[Principal, ShownTools])
    """What was shown to others in whose name it has called; `limits.max_principals` of them, the oldest go first."""

    def catalogue(self, principal: Principal) -> ShownTools:
        """Return what a principal was shown."""
        if principal is ITSELF or self.origin.url is None:
            return self.own
        found = self.others.get(principal)
        if found is None:
            for oldest in list(self.others)[: len(self.others) - self.options.limits.max_principals + 1]:
                self.others.pop(oldest, None)
            found = self.others.setdefault(principal, ShownTools())
        return found

    def forget_tools(self) -> None:
        """Drop what was listed on this connection: of its principal, or of all."""
        for each in (
            [self.own, *list(self.others.values())] if self.principal is ITSELF else [self.catalogue(self.principal)]
        ):
            each.forget()
