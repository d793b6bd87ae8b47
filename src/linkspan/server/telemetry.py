"""Watches requests from their beginning to their end, for whatever makes traces or metrics of them: `Telemetry`.

A server that is not watched runs nothing of this.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import Final, Protocol

import msgspec

from linkspan.core.call import NO_REQUEST, Call, Hook
from linkspan.errors import RemoteProtocolError
from linkspan.revisions.neutral import NO_FACTS, InputRequired, Outcome, Request, Span
from linkspan.types.messages import CallToolParams, CallToolResult, GetPromptParams

BUCKETS: Final = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 120, 300)
"""Bounds of the histograms of durations, in seconds, as the conventions of OpenTelemetry want them."""
_UNKNOWN_METHOD: Final = "_OTHER"


class Operation(msgspec.Struct, frozen=True, eq=False):
    """What a request is for, in values of which there are few, although clients can invent more: they name series of metrics."""

    method: str
    tool: str | None
    prompt: str | None
    revision: str | None
    """None where a request was refused before that was known."""
    over_http: bool
    title: str
    """The method, and the tool or the prompt that it is about."""


@lru_cache(4096)
def operation(method: str, tool: str | None, prompt: str | None, revision: str | None, over_http: bool) -> Operation:
    """Return an operation, the same for the same values: what is derived from it is derived once."""
    target = tool or prompt
    return Operation(method, tool, prompt, revision, over_http, f"{method} {target}" if target is not None else method)


class Has(Protocol):
    """A collection that knows whether it has a name."""

    def __contains__(self, name: str, /) -> bool: ...


class KnownNames(Protocol):
    """What a server offers, by name."""

    @property
    def tools(self) -> Has: ...
    @property
    def prompts(self) -> Has: ...
    def knows_method(self, method: str) -> bool: ...


class Telemetry(Protocol):
    """Makes a trace or metrics of requests. Neither blocks nor raises."""

    def begin(self, request: Request, operation: Operation, ago: float = 0.0) -> Span | None:
        """Begin the span of a request that came `ago` seconds ago; None where it makes nothing of that request."""
        ...


class Failure(msgspec.Struct, frozen=True):
    """How a request failed."""

    kind: str
    """The code of a JSON-RPC error as text, "tool_error" or "cancelled"."""
    code: str | None = None
    message: str | None = None


_CANCELLED: Final = Failure("cancelled")
_TOOL_ERROR: Final = Failure("tool_error")


def failure_of(request: Request, outcome: Outcome) -> Failure | None:
    """Return how a request failed, or None."""
    if request.cancelled:
        return _CANCELLED
    if isinstance(outcome, RemoteProtocolError):
        code = str(getattr(outcome, "code", None))  # an author's own class may have anything there, or nothing
        return Failure(code, code, str(getattr(outcome, "message", "")))
    if type(outcome) is CallToolResult and outcome.is_error:
        return _TOOL_ERROR
    return None


def operation_of(names: KnownNames, request: Request) -> Operation:
    """Return what a request is for."""
    method, params = request.method, request.params
    tool = prompt = None
    if type(params) is CallToolParams:
        tool = params.name if params.name in names.tools else None
    elif type(params) is GetPromptParams:
        prompt = params.name if params.name in names.prompts else None
    if not names.knows_method(method):
        method = _UNKNOWN_METHOD
    peer = request.peer
    revision = peer.revision.date if peer is not NO_REQUEST.peer else None
    return operation(method, tool, prompt, revision, request.facts is not NO_FACTS)


class WatchedCall(Call, kw_only=True):
    """A call of which spans see the run and the end."""

    inner: Call

    def finish(self, value: object) -> Outcome:
        """Turn the function's value into an outcome."""
        return self._ended(self.inner.finish(value))

    def fail(self, error: BaseException) -> Outcome:
        """Turn the function's exception into an outcome."""
        return self._ended(self.inner.fail(error))

    def _ended(self, outcome: Outcome) -> Outcome:
        request = self.request
        if type(outcome) is not InputRequired or request.peer.revision.asks_in_results:
            for span in request.take_spans():
                span.end(request, outcome)
        return outcome


def begin_watched(
    begin: Callable[[Request], Outcome | Call],
    names: KnownNames,
    watchers: Sequence[Telemetry],
    request: Request,
) -> Call:
    """Begin a request, and its spans unless it is issued again. What ends at once is a call, too: spans end without the lock."""
    spans = request.spans
    if spans is None:
        purpose = operation_of(names, request)
        begun = [each.begin(request, purpose) for each in watchers]
        request.spans = spans = [each for each in begun if each is not None]
    step = begin(request)
    inner = step if isinstance(step, Call) else Hook(request, lambda: step, inline=True)
    run = inner.run
    for span in spans:
        run = partial(span.run, run)
    return WatchedCall(request, run, inner.is_async, inner.inline, inner.hooked, inner=inner)


def watch_answered(
    watchers: Sequence[Telemetry],
    names: KnownNames,
    request: Request,
    error: RemoteProtocolError | None,
    duration: float,
) -> None:
    """Make the spans of a request that its connection has answered."""
    purpose = operation_of(names, request)
    for each in watchers:
        if (span := each.begin(request, purpose, duration)) is not None:
            span.end(request, error or _NOTHING)


_NOTHING: Final = msgspec.Raw()
