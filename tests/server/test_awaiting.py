"""`ctx.info(...)` and `ctx.progress(...)` are done when they return; authors who know other SDKs await them."""

from __future__ import annotations

import gc
import inspect
import json
import warnings
from typing import Any

import pytest

from linkspan import Context, Server
from test_transcripts import feed

CALLS = ("log", "debug", "info", "warning", "error", "progress")
ENVELOPE = {
    "progressToken": 1,
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
    "io.modelcontextprotocol/logLevel": "debug",
}


def tell(ctx: Context, how: str) -> Any:
    if how == "progress":
        return ctx.progress(1)
    return ctx.log("info", "x") if how == "log" else getattr(ctx, how)("x")


SERVER = Server()


@SERVER.tool
async def awaiting(how: str, ctx: Context) -> str:
    assert await tell(ctx, how) is None
    return "done"


@SERVER.tool
async def going_on(how: str, ctx: Context) -> str:
    tell(ctx, how)
    return "done"


@SERVER.tool
def plain(how: str, ctx: Context) -> str:
    tell(ctx, how)
    return "done"


@pytest.mark.parametrize("how", CALLS)
@pytest.mark.parametrize("tool", ["awaiting", "going_on", "plain"])
def test_what_is_told_may_be_awaited_and_need_not_be(tool: str, how: str) -> None:
    connection = SERVER.connect()
    params = {"name": tool, "arguments": {"how": how}, "_meta": ENVELOPE}
    request = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        feed(connection, json.dumps(request).encode() + b"\n", None)
        gc.collect()
    notification, answer = [json.loads(each) for each in connection.messages_to_send()]
    assert notification["method"] == ("notifications/progress" if how == "progress" else "notifications/message")
    assert answer["result"]["structuredContent"] == {"result": "done"}


def test_it_is_one_object_and_no_coroutine() -> None:
    found: list[object] = []
    server = Server()

    @server.tool
    def t(ctx: Context) -> None:
        found.extend(tell(ctx, how) for how in CALLS)

    server.handle({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "t"}})
    assert len(found) == len(CALLS)
    assert len({id(each) for each in found}) == 1
    assert not inspect.iscoroutine(found[0])
