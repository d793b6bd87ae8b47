"""Spans and durations of OpenTelemetry, as a real SDK with exporters in memory sees them.

Checked against the conventions for MCP (docs/gen-ai/mcp.md of open-telemetry/semantic-conventions-genai) and SEP-414.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Annotated, Any

import pytest

from client.faces import ERAS, FACES, outcome, wait_until
from linkspan import Ask, Client, Context, Server, ServerError, SyncClient, Task, Tasks, ToolError
from over_http import serving

pytest.importorskip("opentelemetry.sdk", reason="opentelemetry-sdk is not installed")

from opentelemetry import metrics, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode


class Spans:
    """What was exported."""

    def __init__(self) -> None:
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))

    def __iter__(self) -> Iterator[ReadableSpan]:
        return iter(self.exporter.get_finished_spans())

    def of(self, name: str, kind: SpanKind = SpanKind.SERVER) -> list[ReadableSpan]:
        return [each for each in self if each.name == name and each.kind is kind]

    def one(self, name: str, kind: SpanKind = SpanKind.SERVER) -> ReadableSpan:
        wait_until(lambda: self.of(name, kind))
        (found,) = self.of(name, kind)
        return found


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Spans:
    """A provider of traces for the time of the test: the API lets an application set one only once."""
    found = Spans()
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", found.provider)
    return found


@pytest.fixture
def reader(monkeypatch: pytest.MonkeyPatch) -> InMemoryMetricReader:
    found = InMemoryMetricReader()
    monkeypatch.setattr(metrics._internal, "_METER_PROVIDER", MeterProvider([found]))
    return found


def points(reader: InMemoryMetricReader, metric: str) -> list[tuple[dict[str, Any], int]]:
    """Return the attributes and the count of each series of a histogram."""
    data = reader.get_metrics_data()
    assert data is not None
    found = [each for resource in data.resource_metrics for scope in resource.scope_metrics for each in scope.metrics]
    return [
        (dict(point.attributes), point.count)
        for each in found
        if each.name == metric
        for point in each.data.data_points
    ]


def dice(inner: Any = None) -> Server:
    server = Server("dice")

    @server.tool(inline=True)
    def quick(ctx: Context) -> str:
        return f"{trace.get_current_span().get_span_context().span_id:016x}"

    @server.tool
    def plain() -> str:
        return f"{trace.get_current_span().get_span_context().span_id:016x}"

    @server.tool
    async def coroutine() -> str:
        await asyncio.sleep(0)
        return f"{trace.get_current_span().get_span_context().span_id:016x}"

    @server.tool
    def nested() -> str:
        return SyncClient(inner).call_tool("deep").text

    @server.tool
    def refuses() -> str:
        raise ToolError("not today")

    @server.tool
    def breaks() -> str:
        raise ValueError("a secret")

    @server.tool
    def greet(name: Annotated[str, Ask("Who?")]) -> str:
        return f"Hello {name}"

    @server.resource("note://{name}")
    def note(name: str) -> str:
        return name

    @server.prompt
    def review(code: str) -> str:
        return code

    return server


def parent_of(span: ReadableSpan) -> int | None:
    return span.parent.span_id if span.parent is not None else None


@pytest.mark.parametrize("over", ["memory", "http"])
@pytest.mark.parametrize("face", FACES)
@pytest.mark.parametrize("era", ERAS)
def test_one_trace_goes_through_client_server_and_an_inner_client(spans: Spans, face: str, era: Any, over: str) -> None:
    inner = Server("inner")
    inner.tool(name="deep")(lambda: "deep")

    def call(target: Any) -> None:
        with trace.get_tracer("app").start_as_current_span("app"):
            outcome(face, target, lambda client: client.call_tool("nested"), era=era)

    if over == "memory":
        call(dice(inner))
    else:
        with serving(dice(inner).asgi()) as url:
            call(url)
    app = spans.one("app", SpanKind.INTERNAL)
    outer, served = spans.one("tools/call nested", SpanKind.CLIENT), spans.one("tools/call nested")
    inner_call, inner_served = spans.one("tools/call deep", SpanKind.CLIENT), spans.one("tools/call deep")
    chain = [app, outer, served, inner_call, inner_served]
    assert [parent_of(each) for each in chain[1:]] == [each.context.span_id for each in chain[:-1]]
    assert {each.context.trace_id for each in spans} == {app.context.trace_id}


@pytest.mark.parametrize("tool", ["quick", "plain", "coroutine"])
@pytest.mark.parametrize("how", ["memory", "http", "handle_json"])
def test_the_span_of_a_request_is_current_in_its_handler(spans: Spans, tool: str, how: str) -> None:
    server = dice()
    if how == "memory":
        seen = outcome("sync", server, lambda client: client.call_tool(tool)).text
    elif how == "http":
        with serving(server.asgi()) as url:
            seen = outcome("async", url, lambda client: client.call_tool(tool)).text
    else:
        request = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": tool, "arguments": {}}}
        seen = server.handle(request)["result"]["content"][0]["text"]
    assert seen == f"{spans.one(f'tools/call {tool}').context.span_id:016x}"
    assert not trace.get_current_span().get_span_context().is_valid


def test_spans_have_the_attributes_of_the_conventions(spans: Spans) -> None:
    with serving(dice().asgi()) as url, SyncClient(url) as client:
        client.call_tool("plain")
        client.read_resource("note://one")
        client.get_prompt("review", {"code": "x"})
        port = int(url.split(":")[2].split("/")[0])
    common = {"mcp.protocol.version": "2026-07-28", "network.transport": "tcp", "network.protocol.name": "http"}
    served = common | {"client.address": "127.0.0.1"}
    asked = common | {"server.address": "127.0.0.1", "server.port": port}
    tool = {"mcp.method.name": "tools/call", "gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "plain"}
    read = {"mcp.method.name": "resources/read", "mcp.resource.uri": "note://one"}
    prompt = {"mcp.method.name": "prompts/get", "gen_ai.prompt.name": "review"}
    names = {"tools/call plain": tool, "resources/read": read, "prompts/get review": prompt}
    for name, own in names.items():
        for kind, facts in ((SpanKind.SERVER, served), (SpanKind.CLIENT, asked)):
            attributes = dict(spans.one(name, kind).attributes or {})
            assert attributes.pop("jsonrpc.request.id").isdigit()
            assert attributes == facts | own


@pytest.mark.parametrize(
    ("call", "name", "kind", "message"),
    [
        (lambda client: client.call_tool("refuses"), "tools/call refuses", "tool_error", None),
        (lambda client: client.call_tool("breaks"), "tools/call breaks", "tool_error", None),
        (lambda client: client.read_resource("x://y"), "resources/read", "-32602", "Resource not found: x://y"),
        (lambda client: client.request("made-up-9"), "_OTHER", "-32601", "Method not found: made-up-9"),
    ],
)
def test_failures_are_marked_on_both_sides(
    spans: Spans, call: Callable[[Any], Any], name: str, kind: str, message: str | None
) -> None:
    with SyncClient(dice()) as client:
        try:
            call(client)
        except ServerError:
            assert kind != "tool_error"
    for each in (spans.one(name), spans.one(name.replace("_OTHER", "made-up-9"), SpanKind.CLIENT)):
        attributes = dict(each.attributes or {})
        assert attributes["error.type"] == kind
        assert attributes.get("rpc.response.status_code") == (kind if kind != "tool_error" else None)
        assert (each.status.status_code, each.status.description) == (StatusCode.ERROR, message)


def test_the_span_of_a_tool_of_a_mounted_server_has_its_outer_name_and_names_the_server(spans: Spans) -> None:
    outer = Server("casino")
    outer.mount(dice(), "d", name="the dice")
    with SyncClient(outer) as client:
        client.call_tool("d_breaks")
    attributes = dict(spans.one("tools/call d_breaks").attributes or {})
    assert (attributes["linkspan.server"], attributes["gen_ai.tool.name"]) == ("the dice", "d_breaks")


def test_the_span_of_an_internal_error_has_the_incident_and_the_exception(spans: Spans) -> None:
    with SyncClient(dice()) as client:
        text = client.call_tool("breaks").text
    span = spans.one("tools/call breaks")
    assert dict(span.attributes or {})["linkspan.incident"] in text
    assert [dict(each.attributes or {})["exception.type"] for each in span.events] == ["ValueError"]


def test_names_that_clients_invent_name_no_span(spans: Spans) -> None:
    server = dice()
    for params in ({"name": "x" * 50}, {"name": 5}, [], {"_meta": 5}):
        server.handle({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})
    server.handle({"jsonrpc": "2.0", "id": 2, "method": "y" * 50, "params": {}})
    wait_until(lambda: len([*spans]) == 5)
    assert {each.name for each in spans} == {"tools/call", "_OTHER"}
    assert not [each for each in spans if "gen_ai.tool.name" in (each.attributes or {})]


def test_a_call_that_becomes_a_task_is_one_server_span_and_its_run_is_linked_to_it(
    spans: Spans, reader: InMemoryMetricReader
) -> None:
    server = dice()

    @server.tool(task=True)
    def order(ctx: Context) -> str:
        return f"{ctx.ask('what', str, 'What?')} {trace.get_current_span().get_span_context().span_id:016x}"

    @server.tool(task=Task(after=60))
    def soon() -> str:
        return "soon"

    with SyncClient(server, extensions=[Tasks()], elicitation=lambda form: {"what": "tea"}) as client:
        text = client.call_tool("order").text
        assert client.call_tool("soon").text == "soon"
    call = spans.one("tools/call order")
    wait_until(lambda: len(spans.of("tools/call order", SpanKind.INTERNAL)) == 2)  # it has asked, so it ran twice
    runs = spans.of("tools/call order", SpanKind.INTERNAL)
    assert [[each.context.span_id for each in run.links] for run in runs] == [[call.context.span_id]] * 2
    assert {run.context.trace_id for run in runs} == {call.context.trace_id}
    assert text == f"tea {runs[-1].context.span_id:016x}"
    assert {dict(run.attributes or {})["linkspan.task.id"] for run in runs}
    assert spans.one("tools/call soon")
    assert spans.of("tools/call soon", SpanKind.INTERNAL) == []
    counted = {
        each["gen_ai.tool.name"]: count
        for each, count in points(reader, "mcp.server.operation.duration")
        if "gen_ai.tool.name" in each
    }
    assert counted == {"order": 1, "soon": 1}


def test_a_run_that_fails_fails_its_own_span(spans: Spans) -> None:
    server = dice()
    server.tool(task=True, name="later")(lambda: 1 / 0)
    with SyncClient(server, extensions=[Tasks()]) as client:
        assert client.call_tool("later").is_error
    run = spans.one("tools/call later", SpanKind.INTERNAL)
    assert dict(run.attributes or {})["error.type"] == "tool_error"
    assert "error.type" not in (spans.one("tools/call later").attributes or {})


def test_a_trace_that_cannot_be_read_is_ignored(spans: Spans) -> None:
    server = dice()
    for value in ("nonsense", 5, "00-" + "0" * 32 + "-" + "0" * 16 + "-01", {"a": 1}):
        params = {"name": "plain", "arguments": {}, "_meta": {"traceparent": value, "tracestate": [], "baggage": 1.5}}
        assert "result" in server.handle({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})
    assert [parent_of(each) for each in spans.of("tools/call plain")] == [None] * 4


def test_a_question_to_a_handshake_client_does_not_end_the_span(spans: Spans) -> None:
    asked: list[int] = []

    async def answer(_: Any) -> dict[str, str]:
        asked.append(len(spans.of("tools/call greet")))
        return {"name": "Ada"}

    assert outcome("async", dice(), lambda client: client.call_tool("greet"), era="legacy", elicitation=answer).text
    assert asked == [0]
    assert spans.one("tools/call greet").status.status_code is StatusCode.UNSET


def test_each_round_of_a_modern_client_is_a_request_with_a_span(spans: Spans) -> None:
    step = outcome("sync", dice(), lambda client: client.call_tool("greet"), elicitation=lambda _: {"name": "Ada"})
    assert step.text == "Hello Ada"
    for kind in (SpanKind.CLIENT, SpanKind.SERVER):
        assert [each.status.status_code for each in spans.of("tools/call greet", kind)] == [StatusCode.UNSET] * 2


def test_a_call_that_is_cancelled_has_one_span_with_that_kind(spans: Spans) -> None:
    server = Server()
    began = asyncio.Event()

    @server.tool
    async def forever() -> None:
        began.set()
        await asyncio.Event().wait()

    async def run() -> None:
        async with Client(server) as client:
            call = asyncio.create_task(client.call_tool("forever"))
            await began.wait()
            call.cancel()
            await asyncio.gather(call, return_exceptions=True)

    asyncio.run(run())
    for kind in (SpanKind.CLIENT, SpanKind.SERVER):
        assert dict(spans.one("tools/call forever", kind).attributes or {})["error.type"] == "cancelled"


def test_the_span_of_a_transport_is_linked_and_not_the_parent(spans: Spans) -> None:
    meta = {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-00f067aa0ba902b7-01", "baggage": "user=ada"}
    params = {"name": "plain", "arguments": {}, "_meta": meta}
    with trace.get_tracer("http").start_as_current_span("POST") as ambient:
        dice().handle({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})
    span = spans.one("tools/call plain")
    assert parent_of(span) == 0x00F067AA0BA902B7
    assert [each.context.span_id for each in span.links] == [ambient.get_span_context().span_id]


def test_without_a_trace_in_the_request_the_span_of_the_transport_is_the_parent(spans: Spans) -> None:
    with trace.get_tracer("http").start_as_current_span("POST") as ambient:
        dice().handle({"jsonrpc": "2.0", "id": 1, "method": "tools/list"})
    assert parent_of(spans.one("tools/list")) == ambient.get_span_context().span_id


def test_a_trace_that_the_application_sends_itself_is_left_alone(spans: Spans) -> None:
    mine = "00-0af7651916cd43dd8448eb211c80319c-00f067aa0ba902b7-01"
    server = Server()
    server.tool(name="meta")(lambda ctx: json.dumps(dict(ctx.meta)))
    with SyncClient(server, trace_context=lambda: {"traceparent": mine}) as client:
        assert json.loads(client.call_tool("meta").text)["traceparent"] == mine


def test_durations_are_recorded_with_few_attributes(reader: InMemoryMetricReader) -> None:
    with SyncClient(dice()) as client:
        client.list_tools()  # a name that only fails may be an invented one
        for _ in range(3):
            client.call_tool("plain")
        client.call_tool("refuses")
    common = {"mcp.method.name": "tools/call", "mcp.protocol.version": "2026-07-28", "network.transport": "pipe"}
    common |= {"gen_ai.operation.name": "execute_tool"}
    for side in ("server", "client"):
        found = points(reader, f"mcp.{side}.operation.duration")
        assert (common | {"gen_ai.tool.name": "plain"}, 3) in found
        assert (common | {"gen_ai.tool.name": "refuses", "error.type": "tool_error"}, 1) in found


def test_names_that_a_model_invents_make_no_series_of_a_client(reader: InMemoryMetricReader) -> None:
    server = dice()
    with SyncClient(server) as client:
        for number in range(20):
            with pytest.raises(ServerError):
                client.call_tool(f"invented-{number}")
            with pytest.raises(ServerError):
                client.get_prompt(f"invented-{number}")
        client.call_tool("plain")
        client.get_prompt("review", {"code": "x"})
        client.list_tools()
        client.call_tool("refuses")
    found = points(reader, "mcp.client.operation.duration")
    tools = {each.get("gen_ai.tool.name"): count for each, count in found if each["mcp.method.name"] == "tools/call"}
    prompts = {
        each.get("gen_ai.prompt.name"): count for each, count in found if each["mcp.method.name"] == "prompts/get"
    }
    assert (tools, prompts) == ({None: 20, "plain": 1, "refuses": 1}, {None: 20, "review": 1})


def test_a_provider_that_is_set_after_the_first_connection_is_found_by_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server, found = dice(), Spans()
    outcome("sync", server, lambda client: client.call_tool("plain"))
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", found.provider)
    outcome("sync", server, lambda client: client.call_tool("plain"))
    assert len(found.of("tools/call plain")) == 1


def test_nothing_is_traced_where_no_provider_is_set() -> None:
    code = """
import opentelemetry.trace, opentelemetry.metrics
from linkspan import Server, SyncClient
server = Server()
server.tool(name="meta")(lambda ctx: str(sorted(ctx.meta)))
with SyncClient(server) as client:
    assert "traceparent" not in client.call_tool("meta").text
assert not server._dispatcher._watchers
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_without_opentelemetry_nothing_of_it_is_loaded() -> None:
    code = """
import sys
from linkspan import Server, SyncClient
server = Server()
server.tool(name="add")(lambda: "1")
with SyncClient(server) as client:
    client.call_tool("add")
assert not {"linkspan.runtime.otel", "linkspan.client.tracing", "opentelemetry"} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", code], check=True)
