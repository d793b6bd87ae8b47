"""What passes between an era and the core: the peer, the request, the outcome. The same for every revision.

An era lifts a message of its wire into a `Request`, and steps the `Outcome` down to its wire again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from types import MappingProxyType
from typing import ClassVar, Final, Protocol, TypeAlias, cast

import msgspec
from msgspec import Raw

from linkspan.errors import (
    MISSING_CLIENT_CAPABILITY,
    RESOURCE_NOT_FOUND,
    UNSUPPORTED_PROTOCOL_VERSION,
    URL_ELICITATION_REQUIRED,
    RemoteProtocolError,
)
from linkspan.revisions import LATEST, Served
from linkspan.revisions.record import Revision
from linkspan.revisions.stepdown import knows_field
from linkspan.types.base import ABSENT, JSON, Implementation, Wire, is_array, is_object
from linkspan.types.messages import (
    CallToolParams,
    CreateMessageParams,
    ElicitParams,
    LoggingLevel,
    Params,
    ServerCapabilities,
)
from linkspan.wire.jsonrpc import RequestId
from linkspan.wire.values import Limits, from_builtins

ELICIT = "elicitation/create"
SAMPLE = "sampling/createMessage"
LIST_ROOTS = "roots/list"
PING = "ping"
PAGE_DONE = "notifications/elicitation/complete"
OWN_METHODS = frozenset({"initialize", "ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe"})
"""What a handshake session answers itself."""

ANSWERED_BY_CONNECTIONS = OWN_METHODS | {"server/discover", "subscriptions/listen"}
"""What a connection answers itself, with its session or without."""

NOTHING: Mapping[str, JSON] = MappingProxyType({})
"""An empty mapping that cannot be filled."""

NOTHING_REFUSED: Mapping[str, RemoteProtocolError] = MappingProxyType({})
"""No question was refused."""

NOTHING_SHOWN: frozenset[object] = frozenset()
"""Of the items that only some callers see, this one sees none."""


def read_only(value: JSON) -> JSON:
    """Return a JSON value of which nothing can be changed: handlers see facts that later requests share."""
    if is_object(value):
        return MappingProxyType({name: read_only(each) for name, each in value.items()})
    return tuple(map(read_only, value)) if is_array(value) else value


class Peer(msgspec.Struct, frozen=True):
    """Facts about the other side: never taken from an earlier request in the modern era (META-4)."""

    revision: Revision
    capabilities: Mapping[str, JSON] = msgspec.field(default_factory=lambda: NOTHING)
    info: Implementation | None = None

    def supports(self, capability: str, part: str | None = None) -> bool:
        """Return whether the peer declared a capability, or a part of it such as `("elicitation", "url")`.

        A bare `elicitation: {}` means the form mode (ELI-1). What its revision does not have it cannot declare (ELI-14).
        """
        declared = self.capabilities.get(capability)
        if not isinstance(declared, Mapping) or not _exists(self.revision, capability, part):
            return False
        if part is None:
            return True
        parts = cast("Mapping[str, JSON]", declared)
        if part in parts:
            return _is_declared(capability, parts[part])
        has_modes = _exists(self.revision, "elicitation", "url")
        by_mode = has_modes and _is_declared(capability, parts.get("url"))
        return capability == "elicitation" and part == "form" and not by_mode


_QUESTIONS = (ELICIT, SAMPLE, LIST_ROOTS)
_METHODS = {"elicitation": ELICIT, "sampling": SAMPLE, "roots": LIST_ROOTS}
_PARTS: dict[tuple[str, str | None], tuple[type[Wire], str]] = {
    ("elicitation", "url"): (ElicitParams, "url"),
    ("sampling", "tools"): (CreateMessageParams, "tools"),
}


def _is_declared(capability: str, value: JSON) -> bool:
    """Return whether the value of a part of a capability declares it: an object of settings, or for most `true`."""
    return isinstance(value, Mapping) or (value is True and capability != "extensions")


def _exists(revision: Revision, capability: str, part: str | None) -> bool:
    """Return whether a revision knows a capability of clients, by the method and the members that it is about."""
    method = _METHODS.get(capability)
    if method is not None and method not in revision.server_requests:
        return False
    field = _PARTS.get((capability, part))
    return field is None or knows_field(revision, *field)


class Grant(msgspec.Struct, frozen=True):
    """What a verified token allows, and to whom: `ctx.grant`. The token itself is not in it."""

    issuer: str
    """The authorization server that issued the token, as its URL."""
    subject: str | None = None
    """The user, as the issuer names them. Unique for the issuer only."""
    client_id: str | None = None
    """The client that acts for the user, or for itself."""
    scopes: frozenset[str] = frozenset()
    """What was granted, with the scopes that are implied (`Protected(implies=...)`)."""
    roles: frozenset[str] = frozenset()
    """Roles or groups, where the token has them in the place that its issuer is known to use."""
    claims: Mapping[str, JSON] = msgspec.field(default_factory=lambda: NOTHING)
    """All that the token, or the response to its introspection, contains."""
    expires: float | None = None
    """When it ends, in seconds since 1970."""
    thumbprint: str | None = None
    """The key that the token is bound to (RFC 9449), whose possession each request proves."""


class TokenAccess(Protocol):
    """What the transport can do with the token of a request, without showing it to the code that serves the request."""

    def holds(self) -> bool:
        """Return whether the token is still good, as far as that is known. Does not wait: it is found out now and then."""
        ...

    def challenge(self, scopes: Collection[str], description: str) -> str:
        """Return the challenge that asks for a token with these scopes (RFC 6750, section 3)."""
        ...

    def token_for(self, audience: str, scopes: Collection[str]) -> str | Awaitable[str]:
        """Exchange the token for one for another service: at once, or to be awaited where an event loop runs."""
        ...


CREDENTIALS: Final = ("authorization", "cookie", "proxy-authorization", "dpop")
"""HTTP headers by which a caller proves who it is."""


class TransportInfo(msgspec.Struct, frozen=True):
    """What the transport knows of a request. Empty on stdio and in memory."""

    headers: Mapping[str, str] = msgspec.field(default_factory=lambda: NOTHING)
    principal: str | None = None
    address: str | None = None
    """The IP address at the other end of the socket, which may be a proxy's."""
    grant: Grant | None = None
    """What the token of the request allows, where the server verifies tokens."""
    access: TokenAccess | None = None


NO_FACTS = TransportInfo()


class InputRequest(msgspec.Struct, frozen=True):
    """One question to the client: the method, and the params in the newest vocabulary.

    Raises: ValueError for a method that asks nothing (MRTR-S3).
    """

    method: str
    params: Wire | None = None

    def __post_init__(self) -> None:
        if self.method not in _QUESTIONS and self.method != PING:
            raise ValueError(f"a client can be asked {', '.join(_QUESTIONS)}; not {self.method!r}")


class InputRequired(msgspec.Struct, frozen=True):
    """An interim outcome: the request needs answers from the client before it can be served (MRTR-S2).

    `requests` maps a key to a question; `state` is what the next round brings back. At least one is given.
    """

    requests: Mapping[str, InputRequest] = msgspec.field(default_factory=dict[str, InputRequest])
    state: str | None = None
    holds: bool = False
    """The handler waits for the answers, and receives a refusal of the client as its answer."""


class Encoded(msgspec.Struct, frozen=True):
    """A result that is encoded for its request's revision already: a JSON object without `_meta` and `resultType`."""

    body: bytes


class EncodedToolResult(msgspec.Struct, frozen=True):
    """The commonest result of a tool, encoded once: one text, and perhaps structured content."""

    text: bytes
    """A JSON string."""
    structured: bytes | None = None
    """JSON, which the text repeats for clients that do not know structured content."""
    wrapped: bool = False
    """The structured content is an object with that as its `result`."""


Outcome: TypeAlias = Wire | Encoded | EncodedToolResult | Raw | InputRequired | RemoteProtocolError
"""A result (a shape, ready bytes, or the JSON value of a custom method), an interim result, or a JSON-RPC error."""


def _discard(_request: Request, _method: str, _params: Wire | Raw) -> None:
    """Where notifications go when there is no way to the client."""


class Observer(Protocol):
    """Notified when a request has ended."""

    def end(self, request: Request, outcome: Outcome) -> None:
        """Receive the outcome. Never raises."""
        ...


class Span(Observer, Protocol):
    """One request in a trace or in metrics, from its beginning to its end. Neither blocks nor raises."""

    @property
    def trace(self) -> str | None:
        """What links another span to this one, as a W3C `traceparent`; None where it is in no trace."""
        ...

    def run(self, function: Callable[[], object]) -> object:
        """Run a function of the request inside the span, and the awaitable that it may return. Raises: what it raises."""
        ...

    def repaired(self, count: int) -> None:
        """Note how many of its arguments were repaired."""
        ...


def stay() -> bool:
    """Stand in where no stream can be ended early."""
    return False


class Alias(msgspec.Struct, frozen=True):
    """What a caller calls an item that is edited, or of a server that is mounted in another one."""

    name: str
    """The name of a tool or a prompt, or a URI."""
    server: str | None = None
    """The name of the mounted server; None for the server that the caller knows."""
    renamed: Mapping[str, str] = NOTHING
    """What its caller calls arguments, by the names that they have in the server."""


class Request(msgspec.Struct, eq=False):
    """One request of a client, whichever era it came from. A Struct because one is made for every message."""

    is_run: ClassVar[bool] = False
    """It serves a run of a task: what was decided about the call that made the task holds for it."""

    id: RequestId
    method: str
    params: object
    """The params, typed by the method; raw for a custom method."""
    peer: Peer
    meta: Raw = ABSENT
    progress_token: RequestId | None = None
    progress: float | None = None
    """The last value that was reported; a request that is issued again goes on from there (PROG-3)."""
    log_level: LoggingLevel | None = None
    """The least level the client wants to see; None for no messages."""
    input_responses: Raw = ABSENT
    request_state: str | None = None
    facts: TransportInfo = NO_FACTS
    emit: Callable[[Request, str, Wire | Raw], None] = _discard
    """Send a notification that belongs to the request it is given, this one; it comes before the response."""
    close_stream: Callable[[], bool] = stay
    """End the stream on which the answer would go; the client comes back for it. False where that is not possible."""
    session: str | None = None
    """Names the connection, or the handshake session over HTTP, that it came in; None over HTTP without a session."""
    is_notification: bool = False
    """No response is sent: a custom method came without an id."""
    cancelled: bool = False
    cancel_reason: str | None = None
    stopped: bool = False
    """The time of its handler is over, and the client has the answer."""
    observer: Observer | None = None
    """Notified of the end while no call of the request runs: it waits for a handshake client's answers."""
    waiting: Observer | None = None
    """The same, for a call that waits for these answers."""
    refusals: Mapping[str, RemoteProtocolError] = NOTHING_REFUSED
    """What a handshake client answered to questions of a call that waits, where it refused them."""
    spans: list[Span] | None = None
    """Those that have not ended, where requests are watched."""
    trace: str | None = None
    """For a run of a task: the span of the call that made it, as a W3C `traceparent`."""
    incident: str | None = None
    """The id under which its failure was logged."""
    failure: BaseException | None = None
    """What the author's function, or the encoding of its value, raised."""
    round: object = None
    """The round of questions that is open for it already, if middleware surrounds its handler."""
    held: list[str] | None = None
    """The dependencies of its handler that are open, by name."""
    shown: frozenset[object] = NOTHING_SHOWN
    """The conditions that hold for its caller, of those that it concerns: what depends on others does not exist for it."""
    alias: Alias | None = None
    """What its caller calls the item that it is about, while a mounted server serves it, whose own name is in the params."""
    on_stop: Callable[[str | None], object] | None = None
    """Called with the reason when the request is cancelled or its time is over: with a lock held, so it must not block."""

    @property
    def target(self) -> str | None:
        """What its caller calls the item that it is about; None for a request about none."""
        if self.alias is not None:
            return self.alias.name
        return self.params.target if isinstance(self.params, Params) else None

    @property
    def label(self) -> str:
        """What people read: the method, and what it names."""
        target = self.target
        return self.method if target is None else f"{self.method} of {target!r}"

    def cancel(self, reason: str | None) -> None:
        """Note that the client does not want the answer any more."""
        self.cancelled = True
        self.cancel_reason = reason
        if self.on_stop is not None:
            self.on_stop(reason)

    def stop(self) -> None:
        """Note that the time of the handler is over."""
        self.stopped = True
        if self.on_stop is not None:
            self.on_stop("timed out")

    def take_spans(self) -> list[Span]:
        """Return the spans that have not ended, once: a cancellation and the end of the handler may come at the same time."""
        taken: list[Span] = []
        while self.spans:
            try:
                taken.append(self.spans.pop())
            except IndexError:  # the other thread was faster
                break
        return taken

    def take_observers(self) -> Sequence[Observer]:
        """Return those who still wait for the end of the request, once."""
        observers, self.observer, self.waiting = (self.waiting, self.observer), None, None
        return (*(each for each in observers if each is not None), *self.take_spans())


def log_facts(request: Request | None = None) -> dict[str, object]:
    """Return what each log record of a server carries in `extra`; the values are None where they do not apply."""
    if request is None:
        return {"method": None, "tool": None, "server": None, "request_id": None, "incident": None}
    tool = request.target if isinstance(request.params, CallToolParams) else None
    server = request.alias.server if request.alias is not None else None
    return {
        "method": request.method,
        "tool": tool,
        "server": server,
        "request_id": request.id,
        "incident": request.incident,
    }


class ServerProfile(Protocol):
    """What an author decides once for all connections. Read it each time: it may change."""

    @property
    def implementation(self) -> Implementation:
        """The server's name and version."""
        ...

    @property
    def instructions(self) -> str | None:
        """How a model should use the server."""
        ...

    @property
    def pinned(self) -> Revision | None:
        """The revision that the author proposes in place of the newest, if any."""
        ...

    @property
    def served(self) -> Served:
        """The revisions that the server speaks."""
        ...

    @property
    def limits(self) -> Limits:
        """The bounds on each connection."""
        ...

    @property
    def require_initialized(self) -> bool:
        """Whether requests before the handshake and without an envelope are refused."""
        ...

    @property
    def result_suffix(self) -> bytes:
        """The members that end every complete result of the newest revision."""
        ...


class ServerFacts(Protocol):
    """What an era needs to know about its server."""

    @property
    def profile(self) -> ServerProfile:
        """What the author decided."""
        ...

    def capabilities(self, revision: Revision = LATEST) -> ServerCapabilities:
        """Return what the server offers now to clients of a revision."""
        ...

    def knows_resource(self, uri: str, shown: frozenset[object]) -> bool:
        """Return whether a read of `uri` could be answered for a caller; see `Request.shown`."""
        ...

    def added_lists(self, revision: Revision) -> Sequence[str]:
        """Return the lists of extensions whose changes a client of a revision receives without asking for them."""
        ...


def read_implementation(value: JSON) -> Implementation | None:
    """Return the name and version that a peer gave. They are only displayed, so an invalid one is dropped (META-5)."""
    try:
        return from_builtins(value, Implementation) if value is not None else None
    except msgspec.ValidationError:
        return None


def missing_capability(peer: Peer, request: InputRequest) -> dict[str, JSON] | None:
    """Return the ClientCapabilities that `request` needs and `peer` did not declare, or None (MRTR-S4, MSG-45)."""
    if request.method == PING:
        return None
    if request.method == LIST_ROOTS:
        return None if peer.supports("roots") else {"roots": {}}
    if request.method == SAMPLE:
        if not peer.supports("sampling"):
            return {"sampling": {}}
        wants_tools = getattr(request.params, "tools", None) or getattr(request.params, "tool_choice", None)
        return {"sampling": {"tools": {}}} if wants_tools and not peer.supports("sampling", "tools") else None
    if getattr(request.params, "mode", None) == "url":
        return None if peer.supports("elicitation", "url") else {"elicitation": {"url": {}}}
    return None if peer.supports("elicitation", "form") else {"elicitation": {}}


def unsayable(revision: Revision, error: RemoteProtocolError) -> Exception | None:
    """Return what is wrong with an error that an author made, if it must not be sent in `revision` (MSG-41)."""
    code, message = getattr(error, "code", None), getattr(error, "message", None)
    problem: Exception | None = None
    if type(code) is bool or not isinstance(code, int):
        problem = TypeError(f"the code of a JSON-RPC error is an integer, not {code!r}")
    elif not isinstance(message, str):
        problem = TypeError(f"the message of a JSON-RPC error is a string, not {message!r}")
    elif (code in _RESERVED or code == RESOURCE_NOT_FOUND) and code not in revision.error_codes:
        problem = ValueError(
            f"{code} is not an error code of revision {revision.date}; yours lie outside -32768 ... -32000"
        )
    elif (needed := _DATA.get(code)) is not None and not _has_data(error, *needed):
        problem = ValueError(f"an error {code} needs data, such as {needed[1]}; raise another one, or pass that data")
    if problem is not None:
        problem.__cause__ = error  # so that the log shows where it was made
    return problem


_RESERVED = range(-32099, -32019)
_DATA: Mapping[int, tuple[str, Mapping[str, JSON]]] = {
    MISSING_CLIENT_CAPABILITY: ("requiredCapabilities", {"requiredCapabilities": {"elicitation": {}}}),
    UNSUPPORTED_PROTOCOL_VERSION: ("supported", {"supported": ["<revision>"], "requested": "<revision>"}),
    URL_ELICITATION_REQUIRED: (
        "elicitations",
        {"elicitations": [{"mode": "url", "elicitationId": "1", "url": "https://...", "message": "..."}]},
    ),
}
"""The codes without a meaning unless their data has a member, and an example (MSG-45, MSG-46)."""


def _has_data(error: RemoteProtocolError, member: str, example: Mapping[str, JSON]) -> bool:
    """Return whether the data of an error holds a member, filled as in the example and in what is in it."""
    data: JSON = getattr(error, "data", None)
    found = data.get(member) if is_object(data) else None
    if is_object(example[member]):
        return is_object(found) and bool(found) and all(is_object(each) for each in found.values())
    return is_array(found) and bool(found) and all(type(each) is type(example[member][0]) for each in found)
