"""Whatever a handler returns or raises, its request is answered, and nothing escapes."""

from __future__ import annotations

import json
import logging
from collections import UserDict
from typing import Any

import pytest

from linkspan import Context, InputRequired, RemoteProtocolError, Server, TextContent, ToolError, ToolResponse
from linkspan.core.call import Ports
from linkspan.revisions import LATEST
from linkspan.revisions.neutral import ELICIT, InputRequest
from linkspan.types.messages import ElicitParams
from talk import connected, say

ENVELOPE = {
    "io.modelcontextprotocol/protocolVersion": LATEST.date,
    "io.modelcontextprotocol/clientCapabilities": {},
}
cycle: list[Any] = []
cycle.append(cycle)

RETURNED = [
    float("nan"),
    b"\xff",
    {1, 2},
    cycle,
    10**400,
    "\ud800",
    TextContent("\ud800"),
    ToolResponse("\udcff.txt", meta={"a": "\ud800"}),
    ToolResponse("x", meta={"a": object()}),
    (each for each in "abc"),
    object(),
    {1: 2},
    {"a": {"b": float("inf")}},
    ValueError("returned"),
]
RAISED = [
    GeneratorExit(),
    BaseException("base"),
    ToolError("\ud800"),
    RemoteProtocolError(-5, "\ud800", {"a": object()}),
]


@pytest.fixture(autouse=True)
def _quiet() -> Any:
    logging.disable()
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("modern", [False, True])
@pytest.mark.parametrize("value", [*RETURNED, *RAISED], ids=lambda value: repr(value)[:30].split(" at 0x")[0])
def test_a_call_is_answered_whatever_comes_of_it(value: object, modern: bool) -> None:
    server = Server()

    @server.define_tool(name="t")
    def t(**args: Any) -> object:
        if any(value is each for each in RAISED):
            raise value  # type: ignore[misc]
        return value

    params: dict[str, Any] = {"name": "t", "_meta": ENVELOPE if modern else {}}
    answer = server.handle({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})
    assert answer["id"] == 1
    assert ("result" in answer) != ("error" in answer)
    json.dumps(answer).encode()


def test_odd_file_names_reach_the_client_readable() -> None:
    server = Server()

    @server.tool
    def name() -> str:
        return "caf\udce9.txt 😀"

    request = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "name"}}
    assert server.handle(request)["result"]["content"][0]["text"] == "caf\ufffd.txt 😀"


def test_what_cannot_be_logged_is_the_authors_exception() -> None:
    server = Server()

    @server.tool
    def log(ctx: Context) -> str:
        ctx.log("error", object())
        return "not reached"

    connection = server.connect()
    (event,) = connection.receive_data(b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"log"}}\n')
    with pytest.raises(TypeError):
        event.call.run()


def test_progress_is_dropped_for_a_client_that_does_not_read_and_the_answer_is_not() -> None:
    server = Server()

    @server.tool
    def flood(ctx: Context) -> str:
        for n in range(100):
            ctx.progress(n)
        return "done"

    connection = server.connect(ports=Ports(congested=lambda: True))
    params = '{"name":"flood","_meta":{"progressToken":1}}'
    request = f'{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{params}}}\n'
    (event,) = connection.receive_data(request.encode())
    connection.finish(event.call, event.call.run())
    assert [json.loads(line)["id"] for line in connection.messages_to_send()] == [1]


def test_a_schema_made_of_other_mappings_than_dictionaries_is_listed() -> None:
    server = Server()

    @server.define_tool(name="t", input_schema=UserDict({"properties": UserDict({"a": UserDict({"type": "string"})})}))
    def t(a: str) -> str:
        return a

    request = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"_meta": ENVELOPE}}
    answer = server.handle_json(json.dumps(request))
    assert answer is not None
    schema = json.loads(answer)["result"]["tools"][0]["inputSchema"]
    assert schema == {"type": "object", "properties": {"a": {"type": "string"}}}


@pytest.mark.parametrize("modern", [False, True])
def test_a_question_that_cannot_be_sent_is_the_authors_exception(modern: bool) -> None:
    server = Server()

    @server.tool
    def asks() -> InputRequired:
        params = ElicitParams(message="m", mode="form", requested_schema={"properties": {"a": object()}})
        return InputRequired({"q": InputRequest(ELICIT, params)})

    asking = {"elicitation": {}}
    connection = server.connect() if modern else connected(server, capabilities=asking)
    meta = {**ENVELOPE, "io.modelcontextprotocol/clientCapabilities": asking} if modern else {}
    (answer,) = say(connection, "tools/call", 1, name="asks", _meta=meta)
    assert "Internal error occurred (incident " in json.dumps(answer)
    assert "result" in say(connection, "tools/list", 2, _meta=meta)[0], "it serves on"
