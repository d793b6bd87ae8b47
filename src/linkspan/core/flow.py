"""Conversations with decisions, as generators: a flow yields effects, is sent their outcomes, and returns a value.

Law: a flow does nothing by itself. Bytes, time, people and randomness are effects or arguments, so one flow serves threads
and event loops alike, and a test drives it with a list.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Hashable, Mapping
from typing import Any, Final, Literal, Protocol, TypeAlias, TypeVar

import msgspec

from linkspan.revisions.agreement import Agreement
from linkspan.revisions.neutral import InputRequest
from linkspan.types.base import JSON
from linkspan.types.messages import ProgressParams

ResultT = TypeVar("ResultT")
ProgressCallback: TypeAlias = Callable[[ProgressParams], Any]
"""Is called with each progress report; may be a coroutine function."""


class Stopper:
    """Stops calls from elsewhere: `stopper.stop()` in any task or thread ends every call that was given it.

    The server is notified, and the calls raise `CallStopped`.
    """

    __slots__ = ("_callbacks", "reason", "stopped")

    def __init__(self) -> None:
        self.stopped = False
        self.reason: str | None = None
        self._callbacks: dict[Callable[[], object], None] = {}

    def __repr__(self) -> str:
        return f"<Stopper: {self.reason or 'stopped' if self.stopped else 'not stopped'}>"

    def stop(self, reason: str | None = None) -> None:
        """End the calls; `reason` goes to the server. A second time does nothing."""
        if self.stopped:
            return
        self.reason = reason
        self.stopped = True
        for callback in list(self._callbacks):
            callback()

    def attach(self, callback: Callable[[], object]) -> None:
        """Call `callback` when this is stopped; at once if it is already."""
        self._callbacks[callback] = None
        if self.stopped:
            callback()

    def detach(self, callback: Callable[[], object]) -> None:
        """Forget `callback`."""
        self._callbacks.pop(callback, None)


class Principal(msgspec.Struct, frozen=True):
    """Who asks: the headers of one call that say it, and the identity whose token is made anew for each attempt."""

    headers: tuple[tuple[str, str], ...] = ()
    identity: Hashable = None


ITSELF: Final = Principal()
"""The client itself."""


class RequestSpec(msgspec.Struct, frozen=True):
    """A request to be sent, as far as it does not depend on what was agreed with the server."""

    method: str
    params: bytes = b"{}"
    """The params without `_meta`: an encoded object."""
    phase: Literal["negotiate", "list", "call"] = "call"
    """What the client is doing, for error messages."""
    timeout: float | None = None
    """Seconds to wait for the answer or the next sign of progress."""
    total: float | None = None
    """Seconds to wait in all, whatever progress there is: for every attempt and every round of questions together."""
    on_progress: ProgressCallback | None = None
    stopper: Stopper | None = None
    meta: bytes = b""
    """Members for `_meta`, encoded, without braces."""
    headers: Mapping[str, str] | None = None
    """More HTTP headers, for this request only."""
    identity: Hashable = None
    """One of the values of `linkspan.auth`, whose token this request gets over HTTP; never beside an Authorization header."""
    agreement: Agreement | None = None
    """How to speak, if not by what was agreed: only before there is an agreement."""
    envelope: bytes | None = None
    """The members of `_meta` that this request carries in the place of those that were agreed on; see `Agreement.speaking`."""
    cancellable: bool = True
    principal: Principal = ITSELF
    """Who asks, where this request names another principal than its client."""
    header_plan: Mapping[tuple[str, ...], str] | None = None
    """Over HTTP, which arguments go into which headers."""
    left: float | None = None
    """Seconds that are left of `total`, if this is not the first attempt or round."""


class Send(msgspec.Struct, frozen=True):
    """Send a request and wait for its answer: a `Response` or an `ErrorResponse`. Raises: ClientError.

    After `after` seconds of silence `beside` is sent too, if there is one. If that gets a `Response` first, the outcome is
    None; sending `beside` again then returns that response instead of asking twice.
    """

    spec: RequestSpec
    beside: RequestSpec | None = None
    after: float = 0.0


class Notify(msgspec.Struct, frozen=True):
    """Send a notification."""

    method: str
    params: bytes | None = None
    agreement: Agreement | None = None
    """How to speak from now on, if that has just been found out."""


class Reopen(msgspec.Struct, frozen=True):
    """Open the transport anew, because the server did not survive what it was sent. Raises: ClientError."""


class FallBack(msgspec.Struct, frozen=True):
    """Use the older of two transports from now on. Raises: `reason`, a ClientError, if there is none."""

    reason: Exception


class Sleep(msgspec.Struct, frozen=True):
    """Let some seconds pass."""

    seconds: float


class AskUser(msgspec.Struct, frozen=True):
    """Put the server's questions to the client's handlers; the outcome maps each key to an encoded answer.

    Raises: ClientError if one of them cannot be answered.
    """

    requests: Mapping[str, InputRequest]
    seconds: float
    """For how long the handlers may take."""


class ValueReader(Protocol):
    """What a server reports on one subscription to values that an extension defines."""

    @property
    def acknowledged(self) -> Mapping[str, JSON]:
        """What the server acknowledged of the filter; empty until it did."""
        ...

    def close(self) -> None:
        """Listen no more."""
        ...


class ListenFor(msgspec.Struct, frozen=True):
    """Listen for values of members that an extension adds to the filter; the outcome is a `ValueReader`, at once."""

    wanted: Mapping[str, tuple[str, ...]]


class Receive(msgspec.Struct, frozen=True):
    """Wait for what a reader receives, for so many seconds, or until the stopper is used.

    The outcome is a `Notification`, a `ClientError` where the subscription ended, and otherwise None.
    """

    seconds: float
    reader: ValueReader | None = None
    stopper: Stopper | None = None


class Await(msgspec.Struct, frozen=True):
    """Await what a coroutine function of the application returns; only `Client` can."""

    start: Callable[[Callable[[Flow[Any]], Awaitable[Any]]], Awaitable[Any]]
    """Begins it; takes what runs a flow."""


Effect: TypeAlias = Await | Send | Notify | Reopen | FallBack | Sleep | AskUser | ListenFor | Receive
Flow: TypeAlias = Generator[Effect, Any, ResultT]
ResultFlow: TypeAlias = Callable[..., Flow[Any]]
"""`(state, spec, result, began, options)`: turns a result of `tools/call` of an extension's type into the final one.

`state` is that of the client, `spec` the request, `began` when the call began by the client's clock, `options` those of the call.
"""
