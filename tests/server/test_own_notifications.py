"""Notifications of an author's own, from a handler to the client of its request."""

from __future__ import annotations

import json
import threading
from typing import Any

import pytest

import mounts
from linkspan import Context, Server, SyncClient
from linkspan.core.call import CallReady
from linkspan.revisions import MODERN
from linkspan.revisions.modern import CAPABILITIES, PROTOCOL_VERSION
from over_http import serving

way = mounts.way


@pytest.fixture
def server() -> Server:
    server = Server("shop")

    @server.tool
    def plain(ctx: Context) -> str:
        for step in range(3):
            ctx.notify("notifications/acme/step", {"step": step})
        ctx.notify("acme/done")
        return "done"

    @server.tool(name="async")
    async def later(ctx: Context) -> str:
        for step in range(3):
            await ctx.notify("notifications/acme/step", {"step": step})
        await ctx.notify("acme/done")
        return "done"

    return server


EXPECTED = [("notifications/acme/step", {"step": step}) for step in range(3)] + [("acme/done", {})]


@pytest.mark.parametrize("era", ["modern", "legacy"])
@pytest.mark.parametrize("tool", ["plain", "async"])
@pytest.mark.parametrize("over_http", [False, True])
def test_they_reach_the_client_in_order(server: Server, era: Any, tool: str, over_http: bool) -> None:
    heard: list[tuple[str, Any]] = []
    complete = threading.Event()

    def hear(method: str, params: Any) -> None:
        heard.append((method, params))
        if method == "acme/done":
            complete.set()

    def call(target: Any) -> None:
        with SyncClient(target, era=era, on_notification=hear) as client:
            assert client.call_tool(tool).text == "done"
            assert complete.wait(30)

    if over_http:
        with serving(server.asgi()) as url:
            call(url)
    else:
        call(server)
    without_meta = [
        (method, {name: each for name, each in (params or {}).items() if name != "_meta"}) for method, params in heard
    ]
    assert without_meta == EXPECTED


def test_those_of_the_protocol_are_refused(server: Server) -> None:
    problems: list[BaseException] = []
    server = Server("shop", exception_reporter=lambda error, _: problems.append(error))

    @server.tool
    def mistaken(ctx: Context) -> None:
        ctx.notify("notifications/progress", {"progress": 1})

    with SyncClient(server) as client:
        assert client.call_tool("mistaken").is_error
    assert "is the protocol's own: use ctx.progress" in str(problems[0])


@pytest.mark.parametrize(("era", "is_told"), [("2025-11-25", True), ("2025-06-18", False), ("2026-07-28", False)])
def test_the_end_of_a_page_is_announced_where_the_revision_has_it(era: str, is_told: bool) -> None:
    server = Server("shop")

    @server.tool
    def pay(ctx: Context) -> str:
        ctx.notify("notifications/elicitation/complete", {"elicitationId": "one"})
        return "paid"

    names = [message.get("method") for message in told(server, era)]
    assert ("notifications/elicitation/complete" in names) is is_told


def told(server: Server, version: str) -> list[dict[str, Any]]:
    """Call the tool of a server in a revision, and return what the server sends."""
    connection = server.connect()
    meta = {}
    if version in MODERN:
        meta = {"_meta": {PROTOCOL_VERSION: version, CAPABILITIES: {}}}
    else:
        hello = {"protocolVersion": version, "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}
        connection.receive_message(
            json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello}).encode()
        )
    params = {"name": "pay", "arguments": {}, **meta}
    call = {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": params}
    for event in connection.receive_message(json.dumps(call).encode()):
        assert isinstance(event, CallReady)
        connection.finish(event.call, event.call.run())
    return [json.loads(each) for each in connection.messages_to_send()]
