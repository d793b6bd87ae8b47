"""How calls end: once, and without holding up the connection."""

from __future__ import annotations

import json
import threading
from typing import Any

import pytest

from linkspan import Server
from linkspan.core.call import Call
from linkspan.core.connection import ServerConnection
from linkspan.errors import LocalProtocolError
from linkspan.serve.memory import MemoryTransport


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
            go_on.wait(5)

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
    with pytest.raises(LocalProtocolError, match="has ended already"):
        connection.finish(call, "twice")
    with pytest.raises(LocalProtocolError, match="has ended already"):
        connection.fail(call, ValueError())
    assert len(heard) == 1
    assert len(connection.messages_to_send()) == 1
