"""One request on its way to a handler: what a connection is connected to, the call that runs, and how it ends."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Final, Protocol, TypeAlias, cast

import msgspec
from msgspec import Raw

from linkspan.core.params import AnyRequest, Decoders, HasMeta, ToolCall, read_meta
from linkspan.errors import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    Forbidden,
    LocalProtocolError,
    RemoteProtocolError,
    clipped,
)
from linkspan.revisions import LATEST, Served
from linkspan.revisions.modern import CAPABILITIES, PROTOCOL_VERSION, encode_answer, read_envelope
from linkspan.revisions.neutral import NO_FACTS, Outcome, Peer, Request, ServerFacts, TransportInfo, unsayable
from linkspan.revisions.record import Revision
from linkspan.types.messages import DiscoverResult
from linkspan.wire.jsonrpc import (
    RequestId,
    encode_error,
)

HeaderPlan: TypeAlias = Callable[[str], Mapping[tuple[str, ...], str]]
"""Returns which arguments of a tool must be repeated in HTTP headers: paths, and the names of the headers."""

Check: TypeAlias = Callable[
    [TransportInfo, AnyRequest, HasMeta | None, Peer | None, RemoteProtocolError | None, HeaderPlan],
    RemoteProtocolError | None,
]
"""Returns what is wrong with a request for reasons that only its transport knows, None to go on.

Gets what the transport knows, the request, its params if they could be read, who sent it if that is known, what is wrong
already, and the plan of the headers.
"""


class Delivery(msgspec.Struct, frozen=True):
    """A message on its way to the client, and what a transport needs to know to send it."""

    data: bytes | None
    """The message; None where the request that it is about ends without a response, or waits for the rest of its batch."""
    about: RequestId | None = None
    """The request that it belongs to, if it belongs to one."""
    final: bool = False
    """Nothing follows it for that request; without a request, it answers a message that was not a request."""
    error: int | None = None
    """The code of an error response."""
    dispatched: bool = True
    """The request got as far as the server behind the connection."""
    challenge: str | None = None
    """What a client needs that lacks the right to this: over HTTP, a response that is only this message is a 403 with it."""


def _ignore() -> None:
    """Stand in for a driver that sends only after it has called the connection."""


class Ports(msgspec.Struct, frozen=True):
    """What a connection is connected to. It gets them when it is made, and they never change."""

    lock: AbstractContextManager[object] = nullcontext()
    """Guards the connection: the driver holds it around what it calls but `finish` and `fail`; what the server calls takes it."""
    on_output: Callable[[], object] = _ignore
    """Called without the lock, from any thread, after something was sent outside the driver's calls."""
    congested: Callable[[], bool] = bool
    """Whether so much is unsent that progress and logs are dropped."""
    sending: Callable[[], bool] = bool
    """Whether earlier output is still being sent: until it is, of notifications of the same change one is kept."""
    send: Callable[[Delivery], object] | None = None
    """Sends each message where not all go the same way; without it they wait in `data_to_send`."""
    check: Check | None = None
    """The transport's own check of each request."""
    close_stream: Callable[[RequestId], bool] | None = None
    """Ends the stream on which a request would be answered; the client comes back for the response."""
    facts: TransportInfo = NO_FACTS
    """What the transport knows of all requests, where it does not bring facts of each."""
    session: str | None = None
    """Names the client for as long as it is connected, or has its session; None where each request stands alone."""
    question_prefix: str = ""
    """Begins the ids of requests to a handshake client, where the answers may come to another process."""


NO_PORTS: Final = Ports()


class Call(msgspec.Struct, eq=False):
    """A function, bound to the arguments of one request: the only thing that the server core cannot run itself.

    A driver runs it, and the connection receives its outcome.
    """

    request: Request
    run: Callable[[], object]
    """Runs the function: returns a value, or an awaitable of one, and raises whatever the author raises."""
    is_async: bool = False
    """It wants an event loop."""
    inline: bool = False
    """A thread would cost more than the call itself."""
    hooked: bool = False
    """The author's hooks run when it ends, which must not happen on an event loop."""
    ended: bool = False

    @property
    def cancelled(self) -> bool:
        """The client does not want the answer any more."""
        return self.request.cancelled

    def finish(self, value: object) -> Outcome:
        """Turn the function's value into an outcome. Raises: LocalProtocolError if the call has already ended."""
        raise NotImplementedError

    def fail(self, error: BaseException) -> Outcome:
        """Turn the function's exception into an outcome. Raises: LocalProtocolError if the call has already ended."""
        raise NotImplementedError

    def end(self) -> None:
        """Note that the call ends: hooks must not run twice. Raises: LocalProtocolError if it has already ended."""
        if self.ended:
            raise LocalProtocolError(f"the call for request {self.request.id!r} has already ended")
        self.ended = True


class Readiness(Protocol):
    """What a call may have to wait for before it runs. Any thread."""

    @property
    def entered(self) -> bool:
        """Whether calls may run."""
        ...

    @property
    def refusal(self) -> str | None:
        """The error of every caller, if it could not be had."""
        ...

    def begin(self, user: object, loop: Callable[[], Any]) -> bool:
        """Open it for `user`, unless that was done. False if it needs the event loop of handlers, and `loop()` is None yet."""
        ...

    def then(self, go: Callable[[], object]) -> None:
        """Call `go` once it is there, or has failed: here and now, or in a thread that must not be held up."""
        ...

    def wait(self) -> None:
        """Wait here until it is there, or has failed."""
        ...

    def value_of(self, postponed: Postponed) -> Awaitable[object]:
        """Run a call that was postponed, and give its value: for a driver that only knows how to await."""
        ...


class Lifespan(Readiness, Protocol):
    """What a server opens before its first call and closes at its end, as drivers see it. Any thread."""

    @property
    def value(self) -> object:
        """What it opened. Raises: RuntimeError while it is not open."""
        ...

    def provided(self, kind: type) -> object:
        """What it opened under a class. Raises: RuntimeError while it is not open."""
        ...

    @property
    def closes_within(self) -> float:
        """Seconds that closing it may take; 0 if it is not open."""
        ...

    def attach(self, user: object) -> None:
        """Keep it open, once it is, until `user` closes it or is collected."""
        ...

    def begin_unasked(self, user: object, loop: Callable[[], Any]) -> None:
        """Do the same with the first request, where the framework should have done it; warn that it may not see the end."""
        ...

    async def opened(self) -> None:
        """Wait for the same on an event loop."""
        ...

    async def abegin(self, user: object) -> None:
        """Open it for `user` on this event loop, and wait for the same."""
        ...

    def close(self, user: object) -> None:
        """Close it if no other user is left, and wait here until that is done, or has taken too long.

        On the event loop on which it is open it is only asked to close, because waiting would block it: use `aclose` there.
        """
        ...

    async def aclose(self, user: object) -> None:
        """Do the same on an event loop."""
        ...


class Background(Protocol):
    """What a server does besides answering, where its calls run: its tasks. Any thread."""

    def attach(self, user: object, loop: Callable[[], Any]) -> None:
        """Work as long as `user` is there, and run async functions on `loop()` where that runs. Any number of times."""
        ...

    def drain(self, user: object) -> None:
        """Begin nothing more for `user`, which will leave."""
        ...

    def leave(self, user: object, within: float, cleanup: float) -> None:
        """Let `user` go. If it was the last, wait here up to `within` seconds for what runs, and cancel the rest.

        That has `cleanup` seconds to close what it opened.
        """
        ...


class Backgrounds(msgspec.Struct, frozen=True):
    """Several things that a server does besides answering, as one."""

    each: tuple[Background, ...]

    def attach(self, user: object, loop: Callable[[], Any]) -> None:
        """Attach `user` to all of them."""
        for background in self.each:
            background.attach(user, loop)

    def drain(self, user: object) -> None:
        """Begin nothing more for `user` in any of them."""
        for background in self.each:
            background.drain(user)

    def leave(self, user: object, within: float, cleanup: float) -> None:
        """Let `user` go from all of them, the last one first."""
        for background in reversed(self.each):
            background.leave(user, within, cleanup)


class Postponed:
    """Stands for the value of a call that came before what it needs was ready: `resume` the call then, and run it again."""

    __slots__ = ("call", "lifespan", "resume")

    def __init__(self, call: Call, lifespan: Readiness, resume: Callable[[], object]) -> None:
        """`resume` makes the call one that can run."""
        self.call = call
        self.lifespan = lifespan
        self.resume = resume

    def __await__(self) -> Generator[Any, Any, object]:
        return self.lifespan.value_of(self).__await__()


class ConnectionServer(ServerFacts, Protocol):
    """The server as its connections see it."""

    @property
    def lifespan(self) -> Lifespan | None:
        """What it opens before its first call, if there is anything."""
        ...

    @property
    def background(self) -> Background | None:
        """What it does besides answering, if there is anything."""
        ...

    def begin(self, request: Request, /) -> Outcome | Call:
        """Serve a request, or return the function that must run for it. Never raises."""
        ...

    def before(self, request: Request) -> Call | None:
        """Return what must run before the connection answers a request itself, if anything; it ends with `OWN_ANSWER`."""
        ...

    def custom_methods(self) -> Mapping[str, object]:
        """Return the methods that the author added."""
        ...

    def adds(self, method: str, revision: Revision) -> bool:
        """Return whether a method that a revision does not define is served: the author's, or an extension's."""
        ...

    @property
    def decoders(self) -> Decoders:
        """What reads the params that extensions add."""
        ...

    def discover(self) -> DiscoverResult:
        """Describe the server to a modern client."""
        ...

    def header_plan(self, tool: str) -> Mapping[tuple[str, ...], str]:
        """Return which arguments of a tool must be repeated in HTTP headers: paths, and the names of the headers."""
        ...

    def session_ended(self, session: str) -> Callable[[], object] | None:
        """Return what clears up after a session, or a connection, that has ended here, if there is anything."""
        ...

    def unsendable(self, request: Request, error: Exception) -> RemoteProtocolError:
        """Report that an outcome could not be encoded, and return the error that the client receives instead."""
        ...

    def observe(
        self, request: Request, error: RemoteProtocolError | None, duration: float
    ) -> Callable[[], object] | None:
        """Return what reports a request that a connection answered by itself, if there is anything that wants the report.

        A request that was refused before its params were read has the peer of `NO_REQUEST`.
        """
        ...


class Hook(Call):
    """Runs a hook of the author's, which must not run under the lock. Its value, if any client waits for it, is the outcome."""

    def finish(self, value: object) -> Outcome:
        """Take the outcome."""
        self.end()
        return cast("Outcome", value)

    def fail(self, error: BaseException) -> Outcome:
        """Give a fixed error: hooks report their own failures."""
        self.end()
        return RemoteProtocolError(INTERNAL_ERROR, "Internal error")


NO_REQUEST: Final = Request(0, "", None, Peer(LATEST), is_notification=True)
"""Stands for the request of a hook for which no client waits."""


OWN_ANSWER: Final[Outcome] = Raw(b"{}")
"""The outcome, by identity, of a call after which the connection itself answers the request."""


# What a connection answers to a request that it does not serve.

CANCELLED: Final = RemoteProtocolError(INTERNAL_ERROR, "cancelled")
"""What an observer gets; a request that was cancelled has no response."""

BUSY: Final = RemoteProtocolError(
    INTERNAL_ERROR,
    "Too many requests are running (max_running) or waiting (max_held_bytes) on this connection; try again later [LS-505]",
)

NOT_ASKABLE: Final = RemoteProtocolError(
    INTERNAL_ERROR, "The client cannot be asked here: this transport has no way back to it"
)

NOTHING_TO_LISTEN_ON: Final = RemoteProtocolError(
    INVALID_REQUEST,
    "Invalid Request: subscriptions/listen needs a connection that stays open; here each message gets one response",
)


def method_not_found(method: str) -> RemoteProtocolError:
    """Name the method that neither the revision nor the author has."""
    shown = clipped(method)
    return RemoteProtocolError(METHOD_NOT_FOUND, f"Method not found: {shown}", shown)


def not_in_a_batch(peer: Peer) -> RemoteProtocolError:
    """Refuse a modern request in a batch, which an older revision may have allowed (MSG-33, MSG-34)."""
    return RemoteProtocolError(
        INVALID_REQUEST,
        f"Invalid Request: revision {peer.revision.date} has no batches; send this request by itself",
    )


def not_initialized(served: Served) -> RemoteProtocolError:
    """Name the ways to begin that there are: the handshake and the envelope."""
    ways = (
        ("initialize first", served.with_handshake),
        (f"_meta {PROTOCOL_VERSION} and {CAPABILITIES} with the request", served.with_envelope),
    )
    listed = ", or ".join(way for way, dates in ways if dates)
    return RemoteProtocolError(INVALID_PARAMS, f"Invalid params: send {listed}", {"supported": served.versions})


def most_urgent(
    rpc: AnyRequest,
    error: RemoteProtocolError,
    server: ConnectionServer,
    check: Check | None,
    facts: TransportInfo,
) -> tuple[Peer | None, RemoteProtocolError]:
    """Return who sent a wrong request, if that can be read, and its error: what is wrong with its envelope comes first."""
    peer: Peer | None = None
    try:
        meta = rpc.params.meta if isinstance(rpc, ToolCall) else read_meta(rpc.params)
        peer = read_envelope(meta, server.profile.served).peer
    except RemoteProtocolError as earlier:
        error = earlier
    if peer is not None and rpc.method not in peer.revision.requests and not server.adds(rpc.method, peer.revision):
        error = method_not_found(rpc.method)
    if check is not None:
        error = check(facts, rpc, None, peer, error, server.header_plan) or error
    return peer, error


def encode_refusal(request_id: RequestId, error: RemoteProtocolError, *, dispatched: bool) -> Delivery:
    """Encode an error response; without the error's `data` and text if the author put something into it that is not JSON."""
    try:
        data = encode_error(request_id, error.code, error.message, error.data)
    except Exception:  # the error itself must not be lost with its data
        data = encode_error(request_id, INTERNAL_ERROR, "Internal error")
    return Delivery(data, request_id, True, error.code, dispatched)


def respond(server: ConnectionServer, request: Request, outcome: Outcome, *, dispatched: bool = True) -> Delivery:
    """Encode the response to a request, or what the client receives instead if that cannot be encoded."""
    if not isinstance(outcome, RemoteProtocolError):
        try:
            data = encode_answer(request, outcome, server.profile.result_suffix)
            return Delivery(data, request.id, True, None, dispatched)
        except Exception as error:  # the author's result contains a value that cannot be encoded as JSON
            problem: Exception | None = error
    else:
        problem = unsayable(request.peer.revision, outcome)
    if problem is not None:
        outcome = server.unsendable(request, problem)
    assert isinstance(outcome, RemoteProtocolError)
    refusal = encode_refusal(request.id, outcome, dispatched=dispatched)
    if isinstance(outcome, Forbidden):
        access = request.facts.access
        challenge = access.challenge(outcome.scopes, outcome.description) if access is not None else ""
        refusal = msgspec.structs.replace(refusal, challenge=challenge)
    return refusal


class CallReady(msgspec.Struct, frozen=True):
    """Run this call, then hand its value to `finish` or its exception to `fail`."""

    call: Call


class CallCancelled(msgspec.Struct, frozen=True):
    """Stop this call if it can be stopped. Its result is discarded."""

    call: Call


Event: TypeAlias = CallReady | CallCancelled


class RunsCalls(Protocol):
    """What a runner does with a connection: `ServerConnection` documents each method."""

    def finish(self, call: Call, value: object) -> list[Event]: ...
    def fail(self, call: Call, error: BaseException) -> list[Event]: ...
    def __hash__(self) -> int: ...


LATER: Final = object()
"""Stands for a value that is awaited elsewhere."""


def run_call(
    connection: RunsCalls,
    call: Call,
    wait: Callable[[RunsCalls, Call, Awaitable[object]], object],
    passing: tuple[type[BaseException], ...] = (),
) -> list[Event]:
    """Run a call here and now, and return what its end asks for.

    `wait` gets a value that may be awaited, and returns its result, or `LATER` if it hands that in itself. Raises: the
    exceptions of the types in `passing`, which are not the call's.
    """
    try:
        value = call.run()
        if hasattr(type(value), "__await__"):
            value = wait(connection, call, cast("Awaitable[object]", value))
            if value is LATER:
                return []
    except BaseException as error:
        if isinstance(error, passing):
            raise
        return connection.fail(call, error)
    return connection.finish(call, value)
