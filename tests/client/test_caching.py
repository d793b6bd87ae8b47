"""Answers that are kept as their server allows (CACHE-C1 to CACHE-C7), and the trace context of requests."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest
from msgspec import Raw

from linkspan import Client, Context, Server, SyncClient
from linkspan.core.flow import RequestSpec
from linkspan.flows.state import ResponseCache


class World:
    """A cache, and its clock."""

    def __init__(self, max_bytes: int = 10_000) -> None:
        self.now = 100.0
        self.cache = ResponseCache(lambda: self.now, max_bytes=max_bytes)

    def keep(self, outgoing: RequestSpec, **result: Any) -> Raw:
        raw = Raw(msgspec.json.encode(result))
        self.cache.keep(outgoing, raw, self.cache.mark(outgoing))
        return raw


TOOLS = RequestSpec("tools/list", b"{}")
NOTE = RequestSpec("resources/read", b'{"uri":"note://a"}')


def test_an_answer_is_fresh_for_as_long_as_its_server_says() -> None:  # CACHE-C3
    world = World()
    raw = world.keep(TOOLS, tools=[], ttlMs=1500)
    assert world.cache.find(TOOLS) == raw
    world.now += 1.4
    assert world.cache.find(TOOLS) == raw
    world.now += 0.1
    assert world.cache.find(TOOLS) is None


@pytest.mark.parametrize(
    "result",
    [
        {},
        {"ttlMs": 0},
        {"ttlMs": -5},
        {"ttlMs": "long"},
        {"ttlMs": 1000, "resultType": "input_required"},
        {"ttlMs": 1000, "cacheScope": 7},
        {"ttlMs": 1000, "text": "x" * 20_000},
    ],
)
def test_what_may_not_be_kept_is_not(result: Mapping[str, Any]) -> None:  # CACHE-C6, CACHE-C7
    world = World()
    world.keep(NOTE, **result)
    assert world.cache.find(NOTE) is None


def test_only_the_very_same_question_is_answered() -> None:  # CACHE-C1
    world = World()
    world.keep(NOTE, contents=[], ttlMs=1000, cacheScope="public")
    assert world.cache.find(RequestSpec("resources/read", b'{"uri":"note://b"}')) is None
    assert world.cache.find(RequestSpec("tools/list", NOTE.params)) is None


@pytest.mark.parametrize(("scope", "shared"), [("public", True), ("private", False), ("new", False), (None, False)])
def test_what_is_private_is_kept_apart_for_everybody_who_asks(scope: str | None, shared: bool) -> None:  # CACHE-C2
    world = World()
    ours = RequestSpec("tools/list", headers={"authorization": "Bearer ours"})
    theirs = RequestSpec("tools/list", headers={"authorization": "Bearer theirs"})
    raw = world.keep(ours, tools=[], ttlMs=1000, **({"cacheScope": scope} if scope else {}))
    assert world.cache.find(ours) == raw
    assert world.cache.find(theirs) == (raw if shared else None)
    assert world.cache.find(TOOLS) == (raw if shared else None)


@pytest.mark.parametrize(
    ("method", "forgotten"),
    [
        ("notifications/tools/list_changed", {"tools/list"}),
        ("notifications/prompts/list_changed", {"prompts/list"}),
        ("notifications/resources/list_changed", {"resources/list", "resources/templates/list"}),
        ("notifications/message", set[str]()),
    ],
)
def test_a_change_is_the_end_of_what_was_kept_of_that(method: str, forgotten: set[str]) -> None:  # CACHE-C4
    world = World()
    lists = [RequestSpec(f"{name}/list") for name in ("tools", "prompts", "resources", "resources/templates")]
    pages = [RequestSpec(each.method, b'{"cursor":"2"}') for each in lists]
    for each in [*lists, *pages]:
        world.keep(each, ttlMs=1000)
    world.cache.receive(method, None)
    assert {each.method for each in lists if world.cache.find(each) is None} == forgotten
    assert {each.method for each in pages if world.cache.find(each) is None} == forgotten


def test_an_update_is_about_one_resource() -> None:  # CACHE-C4
    world = World()
    other = RequestSpec("resources/read", b'{"uri":"note://b"}')
    world.keep(NOTE, ttlMs=1000)
    kept = world.keep(other, ttlMs=1000)
    world.cache.receive("notifications/resources/updated", b'{"uri":"note://a","_meta":{}}')
    world.cache.receive("notifications/resources/updated", b'{"no":"uri"}')
    world.cache.receive("notifications/resources/updated", None)
    assert (world.cache.find(NOTE), world.cache.find(other)) == (None, kept)


def test_an_answer_that_a_change_overtook_is_not_kept() -> None:
    world = World()
    mark = world.cache.mark(TOOLS)
    world.cache.receive("notifications/tools/list_changed", None)
    world.cache.keep(TOOLS, Raw(b'{"tools":[],"ttlMs":1000}'), mark)
    assert world.cache.find(TOOLS) is None


def test_a_full_cache_begins_anew() -> None:
    world = World(max_bytes=100)
    world.keep(TOOLS, tools=["x" * 40], ttlMs=1000)
    raw = world.keep(NOTE, contents=["x" * 40], ttlMs=1000)
    assert (world.cache.find(TOOLS), world.cache.find(NOTE)) == (None, raw)


# Through clients.


class Counted(Server):
    """A server that counts what it is asked."""

    def __init__(self, **options: Any) -> None:
        super().__init__("counted", **options)
        self.asked: list[str] = []
        self.traces: list[object] = []

        def note(ctx: Context) -> str:
            self.asked.append("note")
            return "text"

        def see(ctx: Context) -> str:
            self.traces.append(
                {key: value for key, value in ctx.meta.items() if "/" not in key and key != "progressToken"}
            )
            return "seen"

        self.resource("note://a")(note)
        self.tool(see)


@pytest.mark.parametrize(
    ("ttl", "era", "max_bytes", "times"),
    [
        (60_000, "modern", 1_000_000, 1),
        (0, "modern", 1_000_000, 2),
        (60_000, "legacy", 1_000_000, 2),
        (60_000, "modern", 0, 2),
    ],
)
def test_a_resource_is_read_again_only_when_it_has_to_be(ttl: int, era: Any, max_bytes: int, times: int) -> None:
    server = Counted(ttl_ms=ttl)
    with SyncClient(server, era=era, max_cached_bytes=max_bytes) as client:
        first = client.read_resource("note://a")
        assert client.read_resource("note://a") == first
    assert len(server.asked) == times


def test_a_list_is_kept_until_the_server_says_that_it_changed() -> None:
    server = Counted(ttl_ms=60_000, auto_notify=True)

    async def run() -> list[list[str]]:
        changed = asyncio.Event()
        async with Client(server, on_change=lambda _: changed.set()) as client:
            lists = [[each.name for each in await client.list_tools()]]
            server.define_tool("more", handler=lambda: "x")
            await asyncio.wait_for(changed.wait(), 30)
            return [*lists, [each.name for each in await client.list_tools()]]

    assert asyncio.run(run()) == [["see"], ["see", "more"]]


def test_pages_that_were_kept_do_not_end_in_a_cursor_that_is_gone() -> None:  # CACHE-C5
    server = Server("pages", page_size=1, ttl_ms=60_000)
    for name in ("a", "b", "c"):
        server.define_tool(name, handler=lambda: "x")
    with SyncClient(server) as client:
        page = client.list_tools_page()
        assert [each.name for each in page.tools] == ["a"]
        server.remove_tool("b")
        server.remove_tool("c")  # the cursor of the page that was kept is gone now
        assert [each.name for each in client.list_tools()] == ["a"]


@pytest.mark.parametrize("era", ["modern", "legacy"])
def test_the_trace_context_goes_with_every_request(era: Any) -> None:
    server = Counted()
    trace = {"traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "baggage": "", "other": "x"}
    with SyncClient(server, era=era, trace_context=lambda: trace) as client:
        client.call_tool("see")
        client.call_tool("see", meta={"own": 1})
    assert server.traces == [
        {"traceparent": trace["traceparent"]},
        {"traceparent": trace["traceparent"], "own": 1},
    ]


def test_an_answer_that_takes_the_place_of_an_older_one_counts_once() -> None:
    world = World(max_bytes=100)
    for _ in range(5):
        world.now += 10
        kept = world.keep(TOOLS, tools=["x" * 40], ttlMs=5000)
    small = world.keep(NOTE, ttlMs=5000)
    assert (world.cache.find(TOOLS), world.cache.find(NOTE)) == (kept, small)
