"""A call, the ports of its connection, and the refusals of requests that never become one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Final, Protocol, TypeAlias

import msgspec

from linkspan.core.params import HasMeta
from linkspan.errors import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    LocalProtocolError,
    RemoteProtocolError,
    clipped,
)
from linkspan.revisions import supported_versions
from linkspan.revisions.neutral import Outcome, Peer, Request, ServerFacts
from linkspan.types.messages import DiscoverResult
from linkspan.wire.jsonrpc import RequestId, RpcRequest, encode_error

__all__ = [
    "BUSY",
    "CANCELLED",
    "NOTHING_TO_LISTEN_ON",
    "NOT_ASKABLE",
    "NO_PORTS",
    "Call",
    "Check",
    "ConnectionServer",
    "Delivery",
    "Failure",
    "HeaderPlan",
    "Ports",
    "encode_refusal",
    "method_not_found",
    "not_in_a_batch",
    "not_initialized",
]

HeaderPlan: TypeAlias = Callable[[str], Mapping[tuple[str, ...], str]]
"""Returns which arguments of a tool must be repeated in HTTP headers: paths, and the names of the headers."""

Check: TypeAlias = Callable[
    [RpcRequest, HasMeta | None, Peer | None, RemoteProtocolError | None, HeaderPlan], RemoteProtocolError | None
]
"""Returns what is wrong with a request for reasons that only its transport knows, None to go on.

Gets the request, its params if they could be read, who sent it if that is known, what is wrong already, and the plan of the
headers.
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


def _ignore() -> None:
    """Stand in for a driver that sends only after it has called the connection."""


class Ports(msgspec.Struct, frozen=True):
    """What a connection is connected to. It gets them when it is made, and they never change."""

    lock: AbstractContextManager[object] = nullcontext()
    """Guards the connection: the driver holds it around each method but `finish`, `fail` and `run_hook`."""
    on_output: Callable[[], object] = _ignore
    """Called without the lock, from any thread, after something was sent outside the driver's calls."""
    congested: Callable[[], bool] = bool
    """Whether so much is unsent that progress and logs are dropped."""
    send: Callable[[Delivery], object] | None = None
    """Sends each message where not all go the same way; without it they wait in `data_to_send`."""
    check: Check | None = None
    """The transport's own check of each request."""
    close_stream: Callable[[RequestId], bool] | None = None
    """Ends the stream on which a request would be answered; the client comes back for the response."""


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
        """Turn the function's value into an outcome. Raises: LocalProtocolError if the call has ended already."""
        raise NotImplementedError

    def fail(self, error: BaseException) -> Outcome:
        """Turn the function's exception into an outcome. Raises: LocalProtocolError if the call has ended already."""
        raise NotImplementedError

    def end(self) -> None:
        """Note that the call ends: hooks must not run twice. Raises: LocalProtocolError if it has ended already."""
        if self.ended:
            raise LocalProtocolError(f"the call for request {self.request.id!r} has ended already")
        self.ended = True


class ConnectionServer(ServerFacts, Protocol):
    """The server as its connections see it."""

    def begin(self, request: Request) -> Outcome | Call:
        """Serve a request, or return the function that must run for it. Never raises."""
        ...

    def custom_methods(self) -> Mapping[str, object]:
        """Return the methods that the author added."""
        ...

    def discover(self) -> DiscoverResult:
        """Describe the server to a modern client."""
        ...

    def header_plan(self, tool: str) -> Mapping[tuple[str, ...], str]:
        """Return which arguments of a tool must be repeated in HTTP headers: paths, and the names of the headers."""
        ...

    def unsendable(self, request: Request, error: Exception) -> RemoteProtocolError:
        """Report that an outcome could not be encoded, and return the error that the client receives instead."""
        ...

    def observe(self, method: str, error: RemoteProtocolError | None, duration: float) -> Callable[[], object] | None:
        """Return what tells the author of a request that a connection answered by itself, if there is anything to tell."""
        ...


class Failure(Call, kw_only=True):
    """Ends a request that failed in the machine itself."""

    server: ConnectionServer

    def finish(self, value: object) -> Outcome:
        """Report the exception, which is the value."""
        self.end()
        return self.server.unsendable(self.request, value if isinstance(value, Exception) else Exception(value))

    def fail(self, error: BaseException) -> Outcome:
        """Report the exception."""
        return self.finish(error)


# What a connection answers to a request that it does not serve.

CANCELLED: Final = RemoteProtocolError(INTERNAL_ERROR, "cancelled")
"""What an observer gets; a request that was cancelled has no response."""

BUSY: Final = RemoteProtocolError(
    INTERNAL_ERROR,
    "Too many requests run on this connection (max_running) or wait (max_held_bytes); try again when one has ended",
)

NOT_ASKABLE: Final = RemoteProtocolError(INTERNAL_ERROR, "The client cannot be asked here: there is no way back to it")

NOTHING_TO_LISTEN_ON: Final = RemoteProtocolError(
    INVALID_REQUEST,
    "Invalid Request: subscriptions/listen needs a connection that stays open; here one message gets one answer",
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


def not_initialized() -> RemoteProtocolError:
    """Name both ways to begin: the handshake and the envelope."""
    return RemoteProtocolError(
        INVALID_PARAMS,
        "Invalid params: send initialize first, or _meta io.modelcontextprotocol/protocolVersion and "
        "io.modelcontextprotocol/clientCapabilities with the request",
        {"supported": supported_versions()},
    )


def encode_refusal(request_id: RequestId, error: RemoteProtocolError, *, dispatched: bool) -> Delivery:
    """Encode an error response; without the error's `data` and text if the author put something into it that is not JSON."""
    try:
        data = encode_error(request_id, error.code, error.message, error.data)
    except Exception:  # the error itself must not be lost with its data
        data = encode_error(request_id, INTERNAL_ERROR, "Internal error")
    return Delivery(data, request_id, True, error.code, dispatched)
