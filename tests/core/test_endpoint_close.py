"""What an HTTP endpoint does to requests that are open when it closes: each is cancelled, and its stream ends."""

from __future__ import annotations

import json
import os
from contextlib import nullcontext
from typing import Any

import pytest

from linkspan import Limits, Server
from linkspan.core.call import CallCancelled
from linkspan.core.http_checks import HttpPolicy
from linkspan.core.http_endpoint import Endpoint, Opened
from linkspan.core.http_sessions import HttpSession
from linkspan.revisions import LATEST_LEGACY
from linkspan.revisions.neutral import TransportInfo

HEADERS = {"accept": "application/json, text/event-stream", "content-type": "application/json"}
MODERN = HEADERS | {"mcp-protocol-version": "2026-07-28", "mcp-method": "tools/call", "mcp-name": "t"}
ENVELOPE = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
}


def post(endpoint: Endpoint, headers: dict[str, str], method: str, **params: Any) -> Opened:
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode()
    return endpoint.open("POST", "http://127.0.0.1/mcp", headers, body, TransportInfo(headers))


def modern(endpoint: Endpoint) -> Opened:
    return post(endpoint, MODERN, "tools/call", name="t", _meta=ENVELOPE)


def in_session(endpoint: Endpoint) -> Opened:
    info = {"name": "c", "version": "1"}
    hello = {"protocolVersion": LATEST_LEGACY.date, "capabilities": {}, "clientInfo": info}
    session = post(endpoint, HEADERS, "initialize", **hello).owner
    assert isinstance(session, HttpSession)
    return post(endpoint, HEADERS | {"mcp-session-id": session.id}, "tools/call", name="t")


def left_in_session(endpoint: Endpoint) -> Opened:
    opened = in_session(endpoint)
    endpoint.disconnect(opened)
    return opened


def alone(endpoint: Endpoint) -> Opened:
    return post(endpoint, HEADERS, "tools/call", name="t")


def orphaned(endpoint: Endpoint) -> Opened:
    opened = alone(endpoint)
    assert endpoint.disconnect(opened) == ()
    return opened


@pytest.mark.parametrize("begin", [modern, in_session, left_in_session, alone, orphaned])
def test_closing_cancels_the_calls_that_run(begin: Any) -> None:
    server = Server("closing")
    server.tool(name="t")(lambda: "ok")
    policy = HttpPolicy(require_session=False)
    endpoint = Endpoint(server, policy, limits=Limits(), clock=lambda: 0.0, random=os.urandom, lock=nullcontext)
    opened = begin(endpoint)
    (event,) = opened.events
    ended = [each for _, events in endpoint.close() for each in events]
    assert ended == [CallCancelled(event.call)]
    assert event.call.cancelled
    assert event.call.request.cancel_reason == "the server is closing"
    if begin not in (orphaned, left_in_session):
        assert opened.exchange.ended
