"""One message in, one answer out: `handle` and `handle_json`."""

from __future__ import annotations

import json
import logging
from collections import UserDict
from collections.abc import Iterator
from types import MappingProxyType
from typing import Any

import pytest

from linkspan import Configuration, Context, Limits, Server, ToolError, ToolResponse
from linkspan.revisions import LATEST

ENVELOPE = {
    "io.modelcontextprotocol/protocolVersion": LATEST.date,
    "io.modelcontextprotocol/clientCapabilities": {},
}


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    logging.disable()
    yield
    logging.disable(logging.NOTSET)


def request(method: str, number: int = 1, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": number, "method": method, "params": params}


def test_the_answer_is_the_response_whatever_was_told_before_it() -> None:
    server = Server()

    @server.tool
    def count(ctx: Context) -> str:
        ctx.progress(1)
        return "done"

    answer = server.handle(request("tools/call", name="count", _meta=ENVELOPE | {"progressToken": "t"}))
    assert answer["id"] == 1
    assert answer["result"]["content"] == [{"type": "text", "text": "done"}]


def handled(server: Server, message: Any) -> Any:
    return server.handle(message)


def handled_as_json(server: Server, message: Any) -> Any:
    return json.loads(server.handle_json(json.dumps(message)) or "null")


either_way = pytest.mark.parametrize("answered", [handled, handled_as_json])


@either_way
def test_a_listen_is_refused_where_nothing_can_be_told_later(answered: Any) -> None:
    server = Server()
    server.tool(name="t")(lambda: "ok")
    listen = request("subscriptions/listen", notifications={"toolsListChanged": True}, _meta=ENVELOPE)
    answer = answered(server, listen)
    assert answer["id"] == 1
    assert answer["error"]["code"] == -32600
    assert "needs a connection that stays open" in answer["error"]["message"]


@either_way
def test_modern_requests_in_a_batch_are_refused_one_by_one(answered: Any) -> None:
    batch = [request("ping", 1), request("server/discover", 2, _meta=ENVELOPE)]
    first, second = answered(Server(), batch)
    assert (first["id"], first["result"]) == (1, {})
    assert (second["id"], second["error"]["code"]) == (2, -32600)


def leave() -> None:
    raise SystemExit(3)


def interrupt() -> None:
    raise KeyboardInterrupt


async def leave_async() -> None:
    raise SystemExit(3)


def leave_late() -> Iterator[str]:
    yield "hello"
    raise SystemExit(3)


@pytest.mark.parametrize("function", [leave, interrupt, leave_async])
def test_what_ends_a_process_is_for_the_caller(function: Any) -> None:
    server = Server()
    server.tool(name="t")(function)
    with pytest.raises(KeyboardInterrupt if function is interrupt else SystemExit):
        server.handle_json(json.dumps(request("tools/call", name="t")))


def test_a_generator_that_ends_the_process_is_for_the_caller_too() -> None:
    server = Server()
    server.prompt(name="p")(leave_late)
    with pytest.raises(SystemExit):
        server.handle(request("prompts/get", name="p"))


def bad_value() -> dict[str, Any]:
    return {"a": object()}


def bad_meta() -> ToolResponse:
    return ToolResponse("fine", meta={"a": object()})


def bad_text() -> str:
    raise ToolError("no")


def no_json() -> dict[str, Any]:
    return {"a": 1}


@pytest.mark.parametrize(
    ("function", "options", "error"),
    [
        (bad_value, {}, TypeError),
        (bad_meta, {}, TypeError),
        (bad_text, {}, ToolError),
        (no_json, {"output_schema": {"type": "object", "required": ["b"]}}, ValueError),
    ],
)
def test_failures_of_a_value_are_raised_where_exceptions_are_wanted(function: Any, options: Any, error: Any) -> None:
    server = Server(configuration=Configuration(validate_tool_call_results=True))
    server.tool(name="t", **options)(function)
    assert server.handle(request("tools/call", name="t"))["id"] == 1
    with pytest.raises(error):
        server.handle(request("tools/call", name="t"), raise_exceptions=True)


def test_a_custom_result_that_is_no_json_is_raised_where_exceptions_are_wanted() -> None:
    server = Server()
    server.define_custom_method("odd", lambda params: {"a": object()})
    with pytest.raises(TypeError):
        server.handle(request("odd"), raise_exceptions=True)


def test_a_message_that_is_too_long_is_refused() -> None:
    server = Server(limits=Limits(max_line_bytes=100))
    answer = json.loads(server.handle_json(json.dumps(request("ping", text="x" * 100))) or "")
    assert answer["error"]["code"] == -32700
    assert "max_line_bytes" in answer["error"]["message"]
    assert server.handle(request("ping"))["result"] == {}


@pytest.mark.parametrize("data", [5, None, 1.5, {"jsonrpc": "2.0"}, ["x"]])
def test_what_is_neither_text_nor_bytes_is_the_callers_mistake(data: Any) -> None:
    with pytest.raises(TypeError, match="is a str, bytes, bytearray or memoryview, not "):
        Server().handle_json(data)


@pytest.mark.parametrize("kind", [str, bytes, bytearray, memoryview])
def test_text_and_bytes_of_every_kind_are_read(kind: Any) -> None:
    text = json.dumps(request("ping"))
    data = text if kind is str else kind(text.encode())
    assert json.loads(Server().handle_json(data) or "")["result"] == {}


@pytest.mark.parametrize("kind", [dict, MappingProxyType, UserDict])
def test_mappings_of_every_kind_are_messages(kind: Any) -> None:
    server = Server()
    server.tool(name="add")(lambda a, b: a + b)
    message = kind(request("tools/call") | {"params": kind({"name": "add", "arguments": kind({"a": 1, "b": 2})})})
    assert server.handle(message)["result"]["content"][0]["text"] == "3"
    assert server.handle([message])[0]["id"] == 1


@pytest.mark.parametrize("value", [object(), {"a": {1, object()}}, MappingProxyType({"a": object()})])
def test_what_is_no_json_gets_an_error(value: Any) -> None:
    assert server_error(value) == -32600


def server_error(value: Any) -> int:
    return int(Server().handle(value)["error"]["code"])
