"""The numbers of the servers of this process, for Prometheus: requests, failures, durations, sessions, streams, repairs.

They are in the registry of `prometheus_client`, beside what the application and the client library count there. Where several
processes serve one address, each writes its numbers into files of one directory, and whichever is asked adds them up: the
multiprocess mode of the client library.
Spec: https://prometheus.io/docs/instrumenting/exposition_formats/
"""

from __future__ import annotations

import atexit
import os
import sys
import time
import weakref
from collections import Counter as Tally
from collections.abc import Callable, Mapping
from functools import cache
from shutil import rmtree
from tempfile import mkdtemp
from typing import TYPE_CHECKING, Any, Final

import msgspec

from linkspan.core.http_exchange import TEXT, HttpResponse
from linkspan.errors import LinkspanError, import_problem
from linkspan.revisions.neutral import Outcome, Request
from linkspan.server.telemetry import BUCKETS, Operation, failure_of

if TYPE_CHECKING:
    from prometheus_client import Counter, Gauge, Histogram

    from linkspan.core.http_endpoint import Endpoint
    from linkspan.server.registration import BaseServer
    from linkspan.upstreams.mounting import Upstream

_DIRECTORY: Final = "PROMETHEUS_MULTIPROC_DIR"
_LABELS: Final = ("mcp_method_name", "gen_ai_tool_name", "gen_ai_prompt_name", "error_type")


class _Instruments(msgspec.Struct, frozen=True):
    durations: Histogram
    running: Gauge
    sessions: Gauge
    streams: Gauge
    repaired: Counter
    upstreams: Histogram
    callers: Gauge
    under_way: Gauge


@cache
def _instruments() -> _Instruments:
    """Return the instruments of this process. Raises: LinkspanError where prometheus-client is missing."""
    try:
        from prometheus_client import Counter, Gauge, Histogram
    except ImportError as error:
        raise LinkspanError(import_problem("metrics need prometheus-client", "metrics", error)) from None
    live: dict[str, Any] = {"multiprocess_mode": "livesum"}
    return _Instruments(
        Histogram(
            "mcp_server_operation_duration_seconds",
            "Duration of MCP requests and notifications; the count of each series is that of calls",
            _LABELS,
            buckets=BUCKETS,
        ),
        Gauge("linkspan_server_requests_in_flight", "Requests that run or wait for the user", **live),
        Gauge("linkspan_server_sessions", "Sessions of handshake clients", **live),
        Gauge("linkspan_server_streams", "Responses that are open", **live),
        Counter("linkspan_server_repaired_arguments", "Arguments of models that were repaired"),
        Histogram(
            "linkspan_upstream_duration_seconds",
            "Duration of requests to servers elsewhere; the count of each series is that of requests",
            ("upstream", "mcp_method_name", "error_type"),
            buckets=BUCKETS,
        ),
        Gauge("linkspan_upstream_callers", "Callers that have a client at a server elsewhere", ("upstream",), **live),
        Gauge("linkspan_upstream_requests_in_flight", "Requests that wait for it", ("upstream",), **live),
    )


class _MetricsSpan(msgspec.Struct, eq=False):
    """One request in the numbers."""

    _instruments: _Instruments
    _operation: Operation
    _began: float

    @property
    def trace(self) -> None:
        """Numbers are in no trace."""

    def run(self, function: Callable[[], object]) -> object:
        """Run a function."""
        return function()

    def repaired(self, count: int) -> None:
        """Count repaired arguments."""
        self._instruments.repaired.inc(count)

    def end(self, request: Request, outcome: Outcome) -> None:
        """Count the request."""
        failure, operation = failure_of(request, outcome), self._operation
        self._instruments.running.dec()
        self._instruments.durations.labels(
            operation.method, operation.tool or "", operation.prompt or "", failure.kind if failure is not None else ""
        ).observe(time.perf_counter() - self._began)


class _Counting:
    """Counts each request."""

    def __init__(self) -> None:
        self._instruments = _instruments()

    def begin(self, request: Request, operation: Operation, ago: float = 0.0) -> _MetricsSpan | None:
        """Begin to count a request. The run of a task was counted when its call was answered."""
        if request.is_run:
            return None
        self._instruments.running.inc()
        return _MetricsSpan(self._instruments, operation, time.perf_counter() - ago)


class _UpstreamCounting:
    """Counts each request to a server elsewhere."""

    def ended(self, upstream: str, method: str, seconds: float, failure: str) -> None:
        """Count a request."""
        _instruments().upstreams.labels(upstream, method, failure).observe(seconds)


_counting = cache(_Counting)
_upstream_counting = cache(_UpstreamCounting)
_endpoints: weakref.WeakSet[Endpoint] = weakref.WeakSet()
_servers: weakref.WeakSet[BaseServer] = weakref.WeakSet()


def _upstreams() -> list[Upstream]:
    """Return the servers elsewhere that are mounted in servers of this process."""
    if (module := sys.modules.get("linkspan.upstreams.mounting")) is None:
        return []  # there are none
    kind: type[Upstream] = module.Upstream
    sources = [source for each in _servers for source in each.site.catalogue.item_sources]
    return [each for each in sources if isinstance(each, kind)]


class MetricsPage:
    """What one endpoint answers at the path of its metrics: the numbers of the whole process."""

    def __init__(self, path: str, server: BaseServer, endpoint: Endpoint) -> None:
        """Count the requests of `server` from now on. Raises: LinkspanError where prometheus-client is missing."""
        self.path = path.rstrip("/")
        server.watch(_counting())
        _endpoints.add(endpoint)
        _servers.add(server)
        self.refresh()

    def refresh(self) -> None:
        """Count sessions, streams and the callers of servers elsewhere anew."""
        callers: Tally[str] = Tally()
        under_way: Tally[str] = Tally()
        for each in _upstreams():
            each.counts.watcher = _upstream_counting()
            callers[each.name] += len(each.callers)
            under_way[each.name] += sum(len(caller.under_way) for caller in each.callers)
        for name in callers:
            _instruments().callers.labels(name).set(callers[name])
            _instruments().under_way.labels(name).set(under_way[name])
        endpoints = list(_endpoints)
        _instruments().sessions.set(sum(len(each.sessions) for each in endpoints))
        _instruments().streams.set(sum(len(each.streams) for each in endpoints))

    def response(self, method: str, headers: Mapping[str, str]) -> HttpResponse:
        """Return the numbers, in the format that the scraper accepts."""
        if method != "GET":
            return HttpResponse(405, (("allow", "GET"), *TEXT), b"Metrics are read with GET")
        from prometheus_client import REGISTRY, CollectorRegistry
        from prometheus_client.exposition import choose_encoder

        self.refresh()
        registry: Any = REGISTRY
        if _DIRECTORY in os.environ:
            from prometheus_client import multiprocess

            registry = CollectorRegistry()
            untyped: Any = multiprocess
            untyped.MultiProcessCollector(registry)
        encode, content_type = choose_encoder(headers.get("accept", ""))
        return HttpResponse(200, (("content-type", content_type),), encode(registry))


# Several processes.


def count_together() -> None:
    """Let the processes that this one starts add up their numbers. Call it before anything imports prometheus_client.

    Raises: LinkspanError if that has happened: it decides at import where numbers are kept.
    """
    if _DIRECTORY in os.environ:
        return
    if "prometheus_client" in sys.modules:
        raise LinkspanError(
            f"prometheus_client was imported before the workers were started: set {_DIRECTORY} to an empty directory "
            "before the process starts, so that their numbers can be added up"
        )
    os.environ[_DIRECTORY] = directory = mkdtemp(prefix="linkspan-metrics-")
    atexit.register(_remove, directory, os.getpid())


def _remove(directory: str, pid: int) -> None:
    if os.getpid() == pid:
        rmtree(directory, ignore_errors=True)


def forget_worker(pid: int) -> None:
    """Let what a worker had open count no longer: it has ended."""
    from prometheus_client import multiprocess

    untyped: Any = multiprocess
    untyped.mark_process_dead(pid)
