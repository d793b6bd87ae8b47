"""How calls end: once, and without holding up the connection."""

from __future__ import annotations

import json
import threading
from typing import Any

import pytest

from linkspan import Server
from linkspan.core.call import Call
from linkspan.core.connection import ServerConnection
from linkspan.core.params import read_call, read_params
from linkspan.errors import LocalProtocolError
from linkspan.serve.memory import MemoryTransport
from linkspan.wire.jsonrpc import RpcRequest, decode


def line(method: str, number: int = 1, **params: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params}).encode() + b"\n"


def begin(connection: ServerConnection, data: bytes) -> Call:
    (event,) = connection.receive_data(data)
    return event.call


def test_nobody_waits_for_a_hook_that_hears_of_a_call() -> None:
    heard, go_on = threading.Event(), threading.Event()

    def hook(data: Any) -> None:
        if data["method"] == "tools/call":
            heard.set()
            go_on.wait(60)

    server = Server(instrumentation_callback=hook)
    server.tool(name="t")(lambda: "ok")
    with MemoryTransport(server) as pipe:
        pipe.send(line("tools/call", 1, name="t"))
        assert heard.wait(30)
        pipe.send(line("ping", 2))
        assert json.loads(pipe.receive(30))["id"] == 2
        go_on.set()
        assert json.loads(pipe.receive(30))["id"] == 1


def test_a_call_that_ends_twice_is_heard_of_once() -> None:
    heard: list[Any] = []
    server = Server(instrumentation_callback=heard.append)
    server.tool(name="t")(lambda: "ok")
    connection = server.connect()
    call = begin(connection, line("tools/call", name="t"))
    connection.finish(call, "once")
    with pytest.raises(LocalProtocolError, match="has already ended"):
        connection.finish(call, "twice")
    with pytest.raises(LocalProtocolError, match="has already ended"):
        connection.fail(call, ValueError())
    assert len(heard) == 1
    assert len(connection.messages_to_send()) == 1


CALL = {"name": "add", "arguments": {"a": 1, "t": 'a "b" {'}, "_meta": {"k": "v"}}
READ_IN_ONE_PASS = [
    {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": CALL},
    {"method": "tools/call", "params": CALL, "jsonrpc": "2.0", "id": "seven and more"},
    {"jsonrpc": "2.0", "id": 12345678901, "method": "tools/call", "params": CALL | {"name": "größer"}},
]
READ_AGAIN = [
    {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "add", "arguments": {}}},
    {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": CALL | {"inputResponses": {}, "requestState": "s"}},
    {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": CALL, "result": {}},
    {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": CALL, "extra": 1},
    {"jsonrpc": "1.0", "id": 1, "method": "tools/call", "params": CALL},
    {"jsonrpc": "2.0", "id": None, "method": "tools/call", "params": CALL},
    {"jsonrpc": "2.0", "method": "tools/call", "params": CALL},
    {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": CALL},
    {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": [CALL]},
    {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": CALL | {"arguments": [[[[[[]]]]]]}},
]
SEPARATORS = [(",", ":"), (", ", ": "), (" ,\t", " :  ")]


@pytest.mark.parametrize("separators", SEPARATORS)
@pytest.mark.parametrize("message", READ_IN_ONE_PASS)
def test_a_call_that_is_read_in_one_pass_is_what_the_long_way_reads(
    message: dict[str, object], separators: tuple[str, str]
) -> None:
    data = json.dumps(message, separators=separators, ensure_ascii=False).encode()
    call, rpc = read_call(data, 5), decode(data)
    assert call is not None
    assert isinstance(rpc, RpcRequest)
    assert (call.id, call.method) == (rpc.id, rpc.method)
    assert call.params == read_params(rpc.method, rpc.params)


@pytest.mark.parametrize("separators", SEPARATORS)
@pytest.mark.parametrize("message", READ_AGAIN)
def test_whatever_else_comes_is_left_to_the_long_way(message: dict[str, object], separators: tuple[str, str]) -> None:
    assert read_call(json.dumps(message, separators=separators).encode(), 5 if "[[" not in str(message) else 2) is None


@pytest.mark.parametrize(
    "again", [b'"id":1,', b'"id": 1,', b'"jsonrpc":"2.0",', b'"method":"tools/call",', b'"\\u0069d":1,']
)
@pytest.mark.parametrize("separators", SEPARATORS)
def test_a_message_with_a_member_twice_is_not_read_in_one_pass(again: bytes, separators: tuple[str, str]) -> None:
    data = json.dumps(READ_IN_ONE_PASS[0], separators=separators).encode()
    assert read_call(b"{" + again + data[1:], 5) is None
    inside = data.replace(b'"name"', b'"name":"sub","name"')
    assert read_call(inside, 5) is None


@pytest.mark.parametrize("broken", [b"\xff", b"\xed\xa0\x80", b'"'])
def test_a_message_with_a_damaged_text_is_not_read_in_one_pass(broken: bytes) -> None:
    data = json.dumps(READ_IN_ONE_PASS[0]).encode()
    assert read_call(data.replace(b"a \\", broken), 5) is None
