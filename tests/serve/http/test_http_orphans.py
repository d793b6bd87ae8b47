"""Calls of handshake clients without a session, whose clients have gone: they go on (HL-3), but not without bound."""

from __future__ import annotations

import json

from linkspan import HttpPolicy, Server
from linkspan.core.call import CallReady
from linkspan.core.http_endpoint import Endpoint, Opened
from linkspan.revisions.neutral import NO_FACTS
from linkspan.serve.http import make_endpoint


def call(endpoint: Endpoint) -> Opened:
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "work", "arguments": {}}}
    headers = {"accept": "application/json, text/event-stream"}
    return endpoint.open("POST", "http://here/mcp", headers, json.dumps(body).encode(), NO_FACTS)


def status(opened: Opened) -> object:
    return getattr(opened.exchange.events()[0], "status", None)


def test_calls_whose_clients_have_gone_take_room_until_they_end() -> None:
    server = Server("worker")
    server.define_tool("work", handler=lambda: "done")
    endpoint = make_endpoint(server, HttpPolicy(sessions=False, max_streams=2))
    gone = [call(endpoint), call(endpoint)]
    for opened in gone:
        assert endpoint.disconnect(opened) == ()  # nothing is cancelled by that
    assert (status(call(endpoint)), len(endpoint.streams)) == (503, 2)
    ready = gone[0].events[0]
    assert isinstance(ready, CallReady)
    assert gone[0].connection is not None
    gone[0].connection.finish(ready.call, "done")
    assert call(endpoint).events
    endpoint.tick(0.0)
    assert len(endpoint.streams) == 2


def test_calls_whose_clients_have_gone_end_with_the_server() -> None:
    server = Server("worker")
    server.define_tool("work", handler=lambda: "done")
    endpoint = make_endpoint(server, HttpPolicy(sessions=False))
    opened = call(endpoint)
    endpoint.disconnect(opened)
    assert [connection for connection, events in endpoint.close() if events] == [opened.connection]
