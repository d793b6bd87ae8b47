"""`ctx.info(...)` and `ctx.progress(...)` are done when they return; authors who know other SDKs await them."""

from __future__ import annotations

import enum
import gc
import inspect
import json
import warnings
from dataclasses import dataclass
from typing import Any

import pytest

from linkspan import Context, Server, SyncClient
from linkspan.types.base import ImageContent, TextContent
from linkspan.types.messages import CreateMessageParams, CreateMessageResult
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


class Level(enum.Enum):
    LOW = "low"


@dataclass
class Guest:
    name: str


ASKED = Server()


@ASKED.tool
async def awaits(ctx: Context) -> list[object]:
    """Ask as other SDKs do."""
    sure = await ctx.ask("sure", bool, "Sure?")  # type: ignore[misc]
    again = ctx.ask("sure", bool, "Sure?")
    level = await ctx.ask("level", Level, message="How loud?")  # type: ignore[misc]
    guest = await ctx.ask(*("guest", Guest), message="Who?")  # type: ignore[misc]
    await ctx.ask_url("pay", "https://pay.example", "Pay")
    written = await ctx.sample("hi")  # type: ignore[misc]
    roots = await ctx.roots()  # type: ignore[misc]
    await ctx.info("said", logger_name="hotel")
    return [sure, again, level.value, guest.name, written.text, len(roots)]


def test_answers_may_be_awaited_and_need_not_be() -> None:
    answers = {"sure": False, "level": "low", "name": "Ann"}
    seen: list[CreateMessageParams] = []

    def sample(params: CreateMessageParams) -> str:
        seen.append(params)
        return "hello"

    logged: list[str | None] = []
    with SyncClient(
        ASKED,
        elicitation=lambda form: {name: answers[name] for name in (form.requested_schema or {}).get("properties", {})},
        sampling=sample,
        roots=["/"],
        on_log=lambda message: logged.append(message.logger),
    ) as client:
        client.set_logging_level("info")
        assert client.call_tool("awaits").structured["result"] == [False, False, "low", "Ann", "hello", 1]
    assert [each.max_tokens for each in seen] == [1024]
    assert "hotel" in logged


def test_a_text_of_a_model_is_all_its_texts() -> None:
    blocks = [TextContent("a"), ImageContent("AA==", "image/png"), TextContent("b")]
    assert CreateMessageResult("assistant", blocks, "m").text == "a\nb"
    assert CreateMessageResult("assistant", TextContent("a"), "m").text == "a"
