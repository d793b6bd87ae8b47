"""One running call, the ports of its connection, and the batches that responses may wait for (MSG-32)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Final, Protocol, TypeAlias

import msgspec
from msgspec import Raw

from linkspan.core.params import HasMeta
from linkspan.errors import INTERNAL_ERROR, LocalProtocolError, RemoteProtocolError
from linkspan.revisions.neutral import InputRequired, Outcome, Peer, Request, ServerFacts
from linkspan.types.messages import DiscoverResult
from linkspan.wire.jsonrpc import RequestId, RpcRequest, encode_batch

__all__ = [
    "NO_PORTS",
    "Batches",
    "Call",
    "Check",
    "Conclusion",
    "ConnectionServer",
    "Delivery",
    "Failure",
    "HeaderPlan",
    "Hook",
    "Ports",
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
    """Nothing comes after it for that request; without a request, it answers what was no request."""
    error: int | None = None
    """The code of an error response."""
    dispatched: bool = True
    """The request got as far as the server behind the connection."""


Conclusion: TypeAlias = Delivery | InputRequired
"""What comes of a call: the response, encoded, or questions to a handshake client."""


def _ignore() -> None:
    """Stand in for a driver that sends only after it has called the connection."""


class Ports(msgspec.Struct, frozen=True):
    """What a connection is connected to. It gets them when it is made, and they never change."""

    lock: AbstractContextManager[object] = nullcontext()
    """Guards the connection: the driver holds it around each method but `conclude` and `conclude_failure`."""
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

    A driver runs it, and the connection gets what came of it.
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


_NO_OUTCOME: Final = Raw(b"{}")


class Hook(Call):
    """A hook of the author's, for which no client waits. It sees to its own exceptions."""

    def finish(self, value: object) -> Outcome:
        """Conclude nothing."""
        self.end()
        return _NO_OUTCOME

    def fail(self, error: BaseException) -> Outcome:
        """Conclude nothing."""
        self.end()
        return _NO_OUTCOME


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
        """Report that an outcome could not be encoded, and say what the client is told instead."""
        ...

    def observe(self, method: str, error: RemoteProtocolError | None, duration: float) -> Callable[[], object] | None:
        """Return what tells the author of a request that a connection answered by itself, if there is anything to tell."""
        ...


class Failure(Call, kw_only=True):
    """Ends a request that failed in the machine itself."""

    server: ConnectionServer

    def finish(self, value: object) -> Outcome:
        """There is no value."""
        self.end()
        return RemoteProtocolError(INTERNAL_ERROR, "Internal error")

    def fail(self, error: BaseException) -> Outcome:
        """Report the exception."""
        self.end()
        return self.server.unsendable(self.request, error if isinstance(error, Exception) else Exception(error))


class _Batch(msgspec.Struct, eq=False):
    waiting: set[RequestId] = msgspec.field(default_factory=set[RequestId])
    responses: list[bytes] = msgspec.field(default_factory=list[bytes])
    error: int | None = None
    dispatched: bool = False

    def add(self, response: Delivery) -> None:
        """Collect a response. What concerns the whole batch: its last error, and whether any request was dispatched."""
        if response.data is not None:
            self.responses.append(response.data)
            self.error = response.error or self.error
            self.dispatched = self.dispatched or response.dispatched

    def whole(self, about: RequestId | None) -> Delivery:
        """Return all responses, if none is waited for."""
        data = encode_batch(self.responses) if self.responses and not self.waiting else None
        return Delivery(data, about, True, self.error, self.dispatched)


class Batches:
    """The batches of one connection that are being received, or wait for responses."""

    def __init__(self) -> None:
        """Begin without any."""
        self._of: dict[RequestId, _Batch] = {}
        self._open: _Batch | None = None

    @property
    def receiving(self) -> bool:
        """Whether the message at hand is part of a batch."""
        return self._open is not None

    def begin(self) -> None:
        """Take what is received and answered from now on as one batch."""
        self._open = _Batch()

    def end(self) -> Delivery:
        """Note that all of the batch has been received; return its responses if they are complete."""
        batch, self._open = self._open or _Batch(), None
        return batch.whole(None)

    def expect(self, request_id: RequestId) -> None:
        """Let the batch that is being received, if any, wait for the response to this request."""
        if self._open is not None:
            self._of[request_id] = self._open
            self._open.waiting.add(request_id)

    def collect(self, response: Delivery) -> Delivery:
        """Take a response, or the end without one; return what can be sent now: itself if it is not part of a batch."""
        about = response.about
        if about is None:  # an error about something that was no request
            if self._open is None:
                return response
            self._open.add(response)
            return Delivery(None, final=True)
        batch = self._of.pop(about, None)
        if batch is None:
            return response
        batch.waiting.discard(about)
        batch.add(response)
        return Delivery(None, about, True) if batch is self._open else batch.whole(about)
