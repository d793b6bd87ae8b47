"""Traces and metrics by OpenTelemetry, for servers and clients. Loaded only where the application has loaded its API.

There are spans and durations as soon as the application has set a provider. The trace goes with each request in `_meta`, in the
format of the application's propagators: W3C Trace Context and Baggage by default.
Spec: https://github.com/open-telemetry/semantic-conventions-genai/blob/main/docs/gen-ai/mcp.md, SEP-414.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Generator
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, cast

import msgspec
from opentelemetry import metrics, propagate, trace
from opentelemetry.context import attach, detach
from opentelemetry.trace import Link, SpanKind, Status, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from linkspan._version import __version__
from linkspan.core.http_sessions import SESSION_HEADER
from linkspan.core.params import read_meta
from linkspan.revisions.neutral import Outcome, Request
from linkspan.server.telemetry import BUCKETS, Failure, Operation, failure_of
from linkspan.types.base import ABSENT
from linkspan.types.messages import ReadResourceParams
from linkspan.types.methods import NOUNS

if TYPE_CHECKING:
    from msgspec import Raw
    from opentelemetry.context import Context
    from opentelemetry.metrics import Histogram
    from opentelemetry.trace import Span, Tracer

_NAME: Final = "linkspan"
_TRACEPARENT: Final = "traceparent"
_read_members = msgspec.json.Decoder(dict[str, Any]).decode


def is_provided() -> bool:
    """Return whether the application has set a provider of traces or of metrics."""
    found = (
        (trace.get_tracer_provider(), "opentelemetry.trace"),
        (metrics.get_meter_provider(), "opentelemetry.metrics"),
    )
    return any(not type(provider).__module__.startswith(api) for provider, api in found)  # the API's own do nothing


def tracer() -> Tracer:
    """Return what makes our spans."""
    return trace.get_tracer(_NAME, __version__)


def durations(name: str, description: str) -> Histogram:
    """Return the histogram of a metric, in seconds."""
    meter = metrics.get_meter(_NAME, __version__)
    return meter.create_histogram(name, "s", description, explicit_bucket_boundaries_advisory=BUCKETS)


@lru_cache(1024)
def attributes_of(operation: Operation) -> dict[str, Any]:
    """Return the attributes that spans and durations of an operation have in common. Do not change them."""
    found = {
        "mcp.method.name": operation.method,
        "mcp.protocol.version": operation.revision,
        "network.transport": "tcp" if operation.over_http else "pipe",
        "network.protocol.name": "http" if operation.over_http else None,
        "gen_ai.operation.name": "execute_tool" if NOUNS.get(operation.method) == "tool" else None,
        "gen_ai.tool.name": operation.tool,
        "gen_ai.prompt.name": operation.prompt,
    }
    return {name: value for name, value in found.items() if value is not None}


class ServerTelemetry:
    """Makes a span of kind SERVER of each request, and records its duration; one of kind INTERNAL of each run of a task."""

    def __init__(self) -> None:
        """Use the providers of the application."""
        self._tracer = tracer()
        self._durations = durations(
            "mcp.server.operation.duration",
            "MCP request or notification duration as observed on the receiver, until the result or ack is sent",
        )
        self._fields = tuple(each.encode() for each in propagate.get_global_textmap().fields)

    def begin(self, request: Request, operation: Operation, ago: float = 0.0) -> _ServerSpan:
        """Begin the span of a request that came `ago` seconds ago; that of a run of a task is linked to the span of its call."""
        common = attributes_of(operation)
        is_run = request.is_run
        id_name = "linkspan.task.id" if is_run else "jsonrpc.request.id"
        attributes: dict[str, Any] = {**common, id_name: str(request.id)}
        if operation.over_http:
            attributes["client.address"] = request.facts.address or ""
            if (session := request.facts.headers.get(SESSION_HEADER)) is not None:
                attributes["mcp.session.id"] = session
        if type(request.params) is ReadResourceParams:
            attributes["mcp.resource.uri"] = request.params.uri
        context, links = self._parent(request)
        links = _links_to(request.trace) if is_run else links
        kind = SpanKind.INTERNAL if is_run else SpanKind.SERVER
        start = time.time_ns() - int(ago * 1e9) if ago else None
        span = self._tracer.start_span(operation.title, context, kind, attributes, links, start)
        context = trace.set_span_in_context(span, context)
        return _ServerSpan(span, context, None if is_run else self._durations, common, time.perf_counter() - ago)

    def _parent(self, request: Request) -> tuple[Context | None, list[Link] | None]:
        """Return the context that the client sent, None for ours; a current span that is not the parent is linked."""
        meta = bytes(_meta_of(request) if request.meta is ABSENT else request.meta)
        for field in self._fields:
            if field in meta:
                break
        else:
            return None, None
        try:
            carrier = {name: value for name, value in _read_members(meta).items() if type(value) is str}
        except (msgspec.DecodeError, RecursionError):  # of a request that is refused for it
            return None, None
        context = propagate.extract(carrier)
        ambient = trace.get_current_span().get_span_context()
        parent = trace.get_current_span(context).get_span_context()
        return context, [Link(ambient)] if ambient.is_valid and ambient.span_id != parent.span_id else None


def _links_to(traceparent: str | None) -> list[Link]:
    """Return the links to a span."""
    if traceparent is None:
        return []
    context = TraceContextTextMapPropagator().extract({_TRACEPARENT: traceparent})
    return [Link(trace.get_current_span(context).get_span_context())]


def _meta_of(request: Request) -> Raw:
    """Return the `_meta` of a request that was refused before it was read further."""
    params = request.params
    return read_meta(params) if isinstance(params, msgspec.Raw) else getattr(params, "meta", ABSENT)


class _ServerSpan(msgspec.Struct, eq=False):
    """The span of one request, and its duration."""

    _span: Span
    _context: Context
    _durations: Histogram | None
    """None for a run of a task: its call was counted."""
    _common: dict[str, Any]
    _began: float

    @property
    def trace(self) -> str | None:
        """What links another span to this one."""
        carrier: dict[str, str] = {}
        TraceContextTextMapPropagator().inject(carrier, self._context)
        return carrier.get(_TRACEPARENT)

    def run(self, function: Callable[[], object]) -> object:
        """Run a function with the span as the current one, and the awaitable that it may return."""
        token = attach(self._context)
        try:
            value = function()
        finally:
            detach(token)
        return (
            _InContext(cast("Awaitable[object]", value), self._context) if hasattr(type(value), "__await__") else value
        )

    def repaired(self, count: int) -> None:
        """Note how many arguments were repaired."""
        self._span.set_attribute("linkspan.repaired_arguments", count)

    def end(self, request: Request, outcome: Outcome) -> None:
        """End the span, and record the duration."""
        span, attributes, failure = self._span, self._common, failure_of(request, outcome)
        if failure is not None:
            attributes = attributes | record_failure(span, failure)
        if request.incident is not None and request.failure is not None:
            span.set_attribute("linkspan.incident", request.incident)
            span.record_exception(request.failure)
        if request.alias is not None and request.alias.server is not None:
            span.set_attribute("linkspan.server", request.alias.server)
        if self._durations is not None:
            self._durations.record(time.perf_counter() - self._began, attributes, self._context)
        span.end()


def record_failure(span: Span, failure: Failure) -> dict[str, Any]:
    """Mark a span as failed; return the attributes of the failure."""
    facts: dict[str, Any] = {"error.type": failure.kind}
    if failure.code is not None:
        facts["rpc.response.status_code"] = failure.code
    span.set_attributes(facts)
    span.set_status(Status(StatusCode.ERROR, failure.message))
    return facts


class _InContext:
    """An awaitable that runs with a context. One that is never awaited is closed as a coroutine is."""

    __slots__ = ("_awaitable", "_context")

    def __init__(self, awaitable: Awaitable[object], context: Context) -> None:
        self._awaitable = awaitable
        self._context = context

    def __await__(self) -> Generator[Any, Any, object]:
        token = attach(self._context)
        try:
            value = yield from self._awaitable.__await__()
        except GeneratorExit:  # closed from elsewhere, where the token is not valid
            raise
        except BaseException:
            detach(token)
            raise
        detach(token)
        return value

    def close(self) -> None:
        """Close the awaitable."""
        getattr(self._awaitable, "close", bool)()
