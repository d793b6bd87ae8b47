"""Other people's clients at a server that is mounted in one that is mounted in one that is mounted: nothing gets lost."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Annotated, Any

import mcp_types as types
import pytest
from mcp import Client
from mcp.client.subscriptions import ResourceUpdated, listen
from official import MODES, PATIENCE, Heard

from linkspan import Context, Header, Server, Task
from over_http import serving

fastmcp: Any = pytest.importorskip("fastmcp", reason="FastMCP is not installed: pip install '.[peers]'")
tasks: Any = pytest.importorskip("fastmcp_tasks", reason="fastmcp[tasks] is not installed: pip install '.[peers]'")

pytestmark = [
    pytest.mark.timeout(60),
    pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning"),
]

PREFIX = "c_b_a_"
NEWS = "news://today"
GUIDE = "news://{city}/{year}"


def make_server() -> Server:
    """Return a server with three levels of others inside it."""
    inner = Server("inner")

    @inner.tool
    def walk(steps: int, ctx: Context) -> str:
        for step in range(steps):
            ctx.progress(step + 1, total=steps, message=f"step {step + 1}")
        return f"walked {steps}"

    @inner.tool
    def route(region: Annotated[str, Header("Region")], ctx: Context) -> str:
        return f"{region}, by the header {ctx.headers.get('mcp-param-region')}"

    @inner.tool
    def publish() -> str:
        return f"{inner.notify_resource_updated(NEWS)} told"

    @inner.tool(task=Task(poll=0.05))
    def print_all(ctx: Context) -> str:
        return f"printed by {ctx.ask('name', str, 'Your name?')}"

    @inner.prompt
    def headline(city: str) -> str:
        return f"Write a headline about {city}."

    @inner.resource(NEWS)
    def today() -> str:
        return "all is well"

    @inner.resource(GUIDE)
    def guide(city: str, year: str) -> str:
        return f"{city} in {year}"

    @inner.completion(GUIDE, "year")
    def years(value: str) -> list[str]:
        return [each for each in ("2025", "2026") if each.startswith(value)]

    server = inner
    for prefix in ("a", "b", "c"):
        outer = Server(f"around {prefix}")
        outer.mount(server, prefix)
        server = outer
    return server


@pytest.fixture
def url() -> Iterator[str]:
    with serving(make_server().asgi()) as url:
        yield url


async def hears_of_news(session: Any, heard: Heard, era: str) -> None:
    """Subscribe to a resource, let it change, and wait for the notification."""

    async def publish() -> None:
        result = await session.call_tool(PREFIX + "publish", {})
        assert result.content[0].text == "1 told"

    if era == "legacy":
        await session.subscribe_resource(NEWS)
        await publish()
        await heard.wait_for(
            lambda each: isinstance(each, types.ResourceUpdatedNotification) and each.params.uri == NEWS
        )
        return
    async with listen(session, resource_subscriptions=[NEWS]) as subscription:
        assert subscription.honored == types.SubscriptionFilter(resource_subscriptions=[NEWS])
        await publish()
        assert await anext(subscription) == ResourceUpdated(uri=NEWS)


@pytest.mark.parametrize("era", MODES)
def test_the_official_client_reaches_all_of_the_third_level(url: str, era: str) -> None:
    told: list[Any] = []
    all_told = asyncio.Event()

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        told.append((progress, total, message))
        if len(told) == 2:
            all_told.set()

    async def name(context: Any, params: Any) -> types.ElicitResult:
        return types.ElicitResult(action="accept", content={"name": "Ada"})

    async def talk() -> None:
        heard = Heard()
        async with (
            asyncio.timeout(PATIENCE),
            Client(url, mode=MODES[era], elicitation_callback=name, message_handler=heard) as client,
        ):
            names = [tool.name for tool in (await client.list_tools()).tools]
            assert names == [PREFIX + each for each in ("walk", "route", "publish", "print_all")]
            walked = await client.call_tool(PREFIX + "walk", {"steps": 2}, progress_callback=on_progress)
            assert walked.content[0].text == "walked 2"
            await all_told.wait()
            assert told == [(1, 2, "step 1"), (2, 2, "step 2")]
            routed = await client.call_tool(PREFIX + "route", {"region": "north"})
            by = "north" if era == "modern" else "None"
            assert routed.content[0].text == f"north, by the header {by}"
            printed = await client.call_tool(PREFIX + "print_all", {})
            assert printed.content[0].text == "printed by Ada"
            got = await client.get_prompt(PREFIX + "headline", {"city": "Rome"})
            assert got.messages[0].content.text == "Write a headline about Rome."
            reference = types.ResourceTemplateReference(uri=GUIDE)
            found = await client.complete(reference, {"name": "year", "value": "20"}, {"city": "Rome"})
            assert found.completion.values == ["2025", "2026"]
            assert (await client.read_resource("news://Rome/2026")).contents[0].text == "Rome in 2026"
            await hears_of_news(client.session, heard, era)

    asyncio.run(talk())


@pytest.mark.parametrize("era", MODES)
def test_the_client_of_fastmcp_reaches_all_of_the_third_level(url: str, era: str) -> None:
    told: list[Any] = []
    all_told = asyncio.Event()

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        told.append((progress, total, message))
        if len(told) == 2:
            all_told.set()

    async def name(message: str, kind: Any, params: Any, context: Any) -> dict[str, str]:
        return {"name": "Ada"}

    async def talk() -> None:
        heard = Heard()
        async with (
            asyncio.timeout(PATIENCE),
            fastmcp.Client(url, elicitation_handler=name, message_handler=heard, mode=MODES[era]) as client,
        ):
            await client.list_tools()
            walked = await client.call_tool(PREFIX + "walk", {"steps": 2}, progress_handler=on_progress)
            assert walked.data == "walked 2"
            await all_told.wait()
            assert told == [(1, 2, "step 1"), (2, 2, "step 2")]
            routed = await client.call_tool(PREFIX + "route", {"region": "north"})
            by = "north" if era == "modern" else "None"
            assert routed.data == f"north, by the header {by}"
            got = await client.get_prompt(PREFIX + "headline", {"city": "Rome"})
            assert got.messages[0].content.text == "Write a headline about Rome."
            reference = types.ResourceTemplateReference(uri=GUIDE)
            found = await client.complete(reference, {"name": "year", "value": "20"})
            assert found.values == ["2025", "2026"]
            assert (await client.call_tool(PREFIX + "print_all")).data == "printed by Ada"
            if era == "modern":
                task = await tasks.call_tool_task(client, PREFIX + "print_all")
                asks = await task.wait(state="input_required", timeout=PATIENCE)
                assert {key: each["method"] for key, each in asks.input_requests.items()} == {
                    "name": "elicitation/create"
                }
                assert (await task.result()).data == "printed by Ada"
            await hears_of_news(client.session, heard, era)

    asyncio.run(talk())
