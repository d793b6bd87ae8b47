"""The requests of a client as spans and durations of OpenTelemetry. Loaded only where the application has loaded its API.

A span is one request with all its attempts; each round of questions is a request of its own, as it is for the server.
Spec: https://github.com/open-telemetry/semantic-conventions-genai/blob/main/docs/gen-ai/mcp.md, SEP-414.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import msgspec
from msgspec import structs
from opentelemetry import propagate, trace
from opentelemetry.context import attach, get_current
from opentelemetry.trace import SpanKind

from linkspan.core.flow import RequestSpec
from linkspan.flows.client_errors import CallTimeout, ClientError, ServerError
from linkspan.flows.state import ClientState
from linkspan.runtime.otel import attributes_of, durations, record_failure, tracer
from linkspan.server.telemetry import Failure, Operation, operation
from linkspan.types.methods import NOUNS
from linkspan.wire.jsonrpc import ErrorResponse, Response, encode

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.metrics import Histogram
    from opentelemetry.trace import Span

_IS_ERROR: Final = b'"isError"'
_MOST_NAMES: Final = 4096
"""Names that were served and not listed."""
_NAMES: Final = ("gen_ai.tool.name", "gen_ai.prompt.name")


class _TracedTarget(msgspec.Struct):
    name: str | None = None
    uri: str | None = None


class _Result(msgspec.Struct, rename="camel"):
    is_error: bool = False


_read_target = msgspec.json.Decoder(_TracedTarget).decode
_read_result = msgspec.json.Decoder(_Result).decode


@lru_cache(1024)
def _server(url: str) -> dict[str, str | int]:
    """Return the attributes that name the server of a URL."""
    parts = urlsplit(url)
    try:
        port = parts.port or {"https": 443, "http": 80}.get(parts.scheme)
    except ValueError:
        port = None
    found = {"server.address": parts.hostname, "server.port": port}
    return {name: value for name, value in found.items() if value is not None}


def _target_of(spec: RequestSpec) -> _TracedTarget:
    try:
        return _read_target(spec.params)
    except (msgspec.DecodeError, RecursionError):  # params of a method of the application's own
        return _TracedTarget()


class _ServerNames:
    """The names of tools and prompts that servers have: a model can invent any number of others, and a series is for ever."""

    def __init__(self) -> None:
        self._known: set[tuple[str, str]] = set()

    def is_known(self, state: ClientState, purpose: Operation, failure: Failure | None) -> bool:
        """Return whether the name that a request is about names a series: the server has listed it, or served it."""
        name = purpose.tool or purpose.prompt
        if name is None:
            return True
        if failure is None and len(self._known) < _MOST_NAMES:
            self._known.add((purpose.method, name))
        catalogues = (state.own, *list(state.others.values()))
        return (purpose.method, name) in self._known or any(name in each.tools for each in catalogues)


class ClientTracing:
    """Makes a span of kind CLIENT of each request, and records its duration."""

    def __init__(self) -> None:
        """Use the providers of the application."""
        self._names = _ServerNames()
        self._tracer = tracer()
        self._durations = durations(
            "mcp.client.operation.duration",
            "The duration of the MCP request or notification as observed on the sender",
        )

    def begin(self, state: ClientState, spec: RequestSpec) -> _TracedRequest:
        """Begin the span of a request."""
        agreement = spec.agreement or state.agreement
        target, noun = _target_of(spec), NOUNS.get(spec.method)
        purpose = operation(
            spec.method,
            target.name if noun == "tool" else None,
            target.name if noun == "prompt" else None,
            agreement.revision.date if agreement is not None else None,
            state.origin.url is not None,
        )
        common = attributes_of(purpose)
        if state.origin.url is not None:
            common = common | _server(state.origin.url)
        attributes = common if target.uri is None else common | {"mcp.resource.uri": target.uri}
        span = self._tracer.start_span(purpose.title, None, SpanKind.CLIENT, attributes)
        context = trace.set_span_in_context(span)
        is_known = partial(self._names.is_known, state, purpose)
        return _TracedRequest(span, self._durations, common, context, is_known, _with_trace(spec, context))

    def carry(self, function: Callable[[], object]) -> Callable[[], object]:
        """Return the function so that in another thread it belongs to the trace of this one."""
        context = get_current()

        def run() -> None:
            attach(context)
            function()

        return run


def _with_trace(spec: RequestSpec, context: Context) -> RequestSpec:
    """Return a request with the trace in its `_meta`, unless the application has put one there."""
    carrier: dict[str, str] = {}
    propagate.inject(carrier, context)
    if not carrier or any(b'"%b"' % name.encode() in spec.meta for name in carrier):
        return spec
    members = encode(carrier)[1:-1]
    return structs.replace(spec, meta=b"%b,%b" % (spec.meta, members) if spec.meta else members)


class _TracedRequest:
    """The span of one request, and its duration."""

    __slots__ = ("_began", "_common", "_context", "_durations", "_is_known", "_span", "spec")

    def __init__(
        self,
        span: Span,
        durations: Histogram,
        common: dict[str, Any],
        context: Context,
        is_known: Callable[[Failure | None], bool],
        spec: RequestSpec,
    ) -> None:
        self._span = span
        self._durations = durations
        self._common = common
        self._context = context
        self._is_known = is_known
        self._began = time.perf_counter()
        self.spec = spec

    def end(self, outcome: Response | ErrorResponse | BaseException | None) -> None:
        """End the span, and record the duration."""
        span, attributes, failure = self._span, self._common, _failure_of(outcome)
        if isinstance(outcome, Response):
            span.set_attribute("jsonrpc.request.id", str(outcome.id))
        if not self._is_known(failure):
            attributes = {name: value for name, value in attributes.items() if name not in _NAMES}
        if failure is not None:
            attributes = attributes | record_failure(span, failure)
        self._durations.record(time.perf_counter() - self._began, attributes, self._context)
        span.end()


def _failure_of(outcome: Response | ErrorResponse | BaseException | None) -> Failure | None:
    match outcome:
        case Response():
            return Failure("tool_error") if _is_tool_error(bytes(outcome.result)) else None
        case ErrorResponse() | ServerError():
            return Failure(str(outcome.code), str(outcome.code), outcome.message)
        case CallTimeout():
            return Failure("timeout", None, outcome.problem)
        case ClientError():
            return Failure(type(outcome).__name__, None, outcome.problem)
        case Exception():
            return Failure(type(outcome).__name__)
        case _:
            return Failure("cancelled")


def _is_tool_error(result: bytes) -> bool:
    if _IS_ERROR not in result:
        return False
    try:
        return _read_result(result).is_error
    except (msgspec.DecodeError, RecursionError):
        return False
