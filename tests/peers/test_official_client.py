"""The official client starts the examples over stdio, sees what they offer and calls their tools, in both eras."""

from __future__ import annotations

import asyncio
import base64
import json
import sys
from typing import Any

import mcp_types as types
import pytest
from mcp import Client, MCPError
from official import EXAMPLES, LINKSPAN, MODES, PATIENCE, REVISIONS, Peer, conversation, transport, until

pytestmark = [
    pytest.mark.timeout(60),
    pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning"),
]

LOG_LEVEL = "io.modelcontextprotocol/logLevel"


@pytest.mark.parametrize("launcher", [LINKSPAN, []], ids=["linkspan run", "python"])
@pytest.mark.parametrize("era", MODES)
def test_dice_are_rolled_however_they_are_started(
    era: str, launcher: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    async def talk() -> None:
        dice = transport(EXAMPLES / "dice.py", sys.__stderr__, launcher)
        async with asyncio.timeout(PATIENCE), Client(dice, mode=MODES[era]) as client:
            assert client.protocol_version == REVISIONS[era]
            assert client.server_info is not None
            assert (client.server_info.name, client.server_info.version) == ("dice", "1.0.0")
            assert client.instructions == "Roll dice. Ask before rolling more than 100."
            assert [tool.name for tool in (await client.list_tools()).tools] == ["roll"]
            rolled = await client.call_tool("roll", {"sides": 1, "count": 3})
            assert rolled.structured_content == {"result": [1, 1, 1]}
            read = await client.read_resource("dice://odds/20")
            assert "1 in 20" in read.contents[0].text
            got = await client.get_prompt("game", {"players": "three"})
            assert "three players" in got.messages[0].content.text

    asyncio.run(talk())
    assert capfd.readouterr().err == ""


def test_a_client_may_adopt_the_modern_revision_without_asking() -> None:
    async def talk() -> None:
        dice = transport(EXAMPLES / "dice.py", sys.__stderr__)
        async with asyncio.timeout(PATIENCE), Client(dice, mode=REVISIONS["modern"]) as client:
            rolled = await client.call_tool("roll", {"sides": 1})
            assert rolled.structured_content == {"result": [1]}

    asyncio.run(talk())


@pytest.mark.parametrize("era", MODES)
def test_a_client_that_cannot_ask_is_told_what_is_missing(era: str) -> None:
    async def talk() -> None:
        travel = transport(EXAMPLES / "everything.py", sys.__stderr__)
        async with asyncio.timeout(PATIENCE), Client(travel, mode=MODES[era]) as client:
            if era == "legacy":
                result = await client.call_tool("book", {"train": "EC 7"})
                assert result.is_error
                assert "elicitation" in result.content[0].text
                return
            with pytest.raises(MCPError) as caught:
                await client.call_tool("book", {"train": "EC 7"})
            assert caught.value.error.code == types.MISSING_REQUIRED_CLIENT_CAPABILITY
            assert caught.value.error.data == {"requiredCapabilities": {"elicitation": {}}}

    asyncio.run(talk())


@conversation
async def test_the_server_introduces_itself(peer: Peer) -> None:
    client = peer.client
    assert client.protocol_version == REVISIONS[peer.era]
    assert client.server_info is not None
    assert client.server_info.model_dump(exclude_none=True) == {
        "name": "travel",
        "title": "Travel agency",
        "version": "1.0.0",
        "description": "Shows each feature of a server once.",
        "website_url": "https://example.com/travel",
        "icons": [{"src": "https://example.com/train.svg", "mime_type": "image/svg+xml", "sizes": ["any"]}],
    }
    assert client.instructions == "Look for trains before booking one."
    offered = client.server_capabilities.model_dump(exclude_none=True)
    assert offered == {
        "logging": {},
        "completions": {},
        "prompts": {"list_changed": True},
        "resources": {"subscribe": True, "list_changed": True},
        "tools": {"list_changed": True},
    }


@conversation
async def test_tools_are_listed_with_all_that_was_said_of_them(peer: Peer) -> None:
    tools = {tool.name: tool for tool in (await peer.client.list_tools()).tools}
    assert {"convert_money", "opening_hours", "find_trains", "price", "book", "rate_us"} <= set(tools)
    assert all(tool.description for tool in tools.values())
    trains = tools["find_trains"]
    assert trains.title == "Find trains"
    assert trains.meta == {"example.com/section": "trains"}
    assert trains.icons is not None
    assert trains.icons[0].src == "https://example.com/train.svg"
    assert trains.annotations == types.ToolAnnotations(read_only_hint=True, idempotent_hint=True)
    assert trains.input_schema["required"] == ["city", "after"]
    assert trains.input_schema["properties"]["extras"]["items"]["enum"] == ["bar", "wifi"]
    assert trains.output_schema is not None
    assert set(tools["book"].input_schema["properties"]) == {"train"}


@conversation
async def test_resources_templates_and_prompts_are_listed(peer: Peer) -> None:
    resources = {each.uri: each.mime_type for each in (await peer.client.list_resources()).resources}
    assert resources == {
        "travel://terms": "text/plain",
        "travel://logo": "image/gif",
        "travel://departures": "application/json",
    }
    (template,) = (await peer.client.list_resource_templates()).resource_templates
    assert (template.uri_template, template.title) == ("travel://cities/{city}/{year}", "A year in a city")
    prompts = {each.name: each for each in (await peer.client.list_prompts()).prompts}
    assert set(prompts) == {"trip", "check_terms"}
    shown = [(each.name, each.description, each.required) for each in prompts["trip"].arguments or []]
    assert shown == [("city", "Where to.", True), ("days", "How long.", None), ("style", "What kind of trip.", None)]


@conversation
async def test_typed_arguments_arrive_and_structured_results_fit_their_schema(peer: Peer) -> None:
    await peer.client.list_tools()  # the client checks results against the output schemas that it has seen
    arguments = {"city": "Rome", "after": "2026-05-01T08:00:00Z", "extras": ["wifi"], "travel_class": 1}
    trains = await peer.client.call_tool("find_trains", arguments)
    expected = {
        "number": "EC 7",
        "stops": [
            {"city": "Vienna", "at": "2026-05-01T08:00:00Z"},
            {"city": "Rome", "at": "2026-05-01T12:00:00Z"},
        ],
        "extras": ["wifi"],
    }
    assert trains.structured_content == {"result": [expected]}
    assert json.loads(trains.content[0].text) == [expected]
    chartered = await peer.client.call_tool("charter", {"number": "X 1", "stops": expected["stops"][::-1]})
    assert chartered.structured_content == expected | {"number": "X 1", "extras": []}


@conversation
async def test_tools_of_every_make_are_called(peer: Peer) -> None:
    money = await peer.client.call_tool("convert_money", {"euros": 2, "currency": "CZK"})
    assert (money.content[0].text, money.structured_content) == ("50.00 CZK", {"amount": 50})
    assert await peer.text("opening_hours") == "9 to 5"
    assert await peer.text("price", km=100, return_ticket=True) == "24.0"
    assert await peer.text("plan_tour", cities=["Rome", "Paris"]) == "Rome - Paris"


@conversation
async def test_many_calls_at_once_each_get_their_own_answer(peer: Peer) -> None:
    tours = [[f"city {number}", "home"] for number in range(30)]
    texts = await asyncio.gather(*(peer.text("plan_tour", cities=tour) for tour in tours))
    assert list(texts) == [" - ".join(tour) for tour in tours]


@conversation
async def test_content_of_every_kind_arrives(peer: Peer) -> None:
    text, image, audio, resource, link = (await peer.client.call_tool("brochure")).content
    assert text == types.TextContent(text="Rome is lovely in May.")
    assert (image.type, image.mime_type, base64.b64decode(image.data)[:3]) == ("image", "image/gif", b"GIF")
    assert (audio.type, audio.mime_type, base64.b64decode(audio.data)) == ("audio", "audio/wav", b"RIFF")
    assert (resource.type, resource.resource.uri, resource.resource.text) == (
        "resource",
        "travel://terms",
        "No refunds.",
    )
    assert (link.type, link.uri, link.name) == ("resource_link", "travel://departures", "departures")


@conversation
async def test_failures_of_a_tool_are_results_that_a_model_can_read(peer: Peer) -> None:
    assert "try one of Paris" in await peer.complaint("find_trains", city="Atlantis", after="2026-05-01T08:00:00Z")
    wrong = await peer.complaint("find_trains", citty="Rome", after="tomorrow", extras=["pool"])
    assert all(each in wrong for each in ("citty", "after", "extras"))
    unexpected = await peer.complaint("lose_luggage")
    assert "incident" in unexpected
    assert "secret" not in unexpected


@conversation
async def test_what_does_not_exist_is_a_protocol_error(peer: Peer) -> None:
    for ask in (
        peer.client.call_tool("fly"),
        peer.client.get_prompt("fly"),
        peer.client.get_prompt("trip"),
        peer.client.read_resource("travel://nowhere"),
    ):
        with pytest.raises(MCPError) as caught:
            await ask
        expected = -32002 if peer.era == "legacy" and "nowhere" in caught.value.error.message else -32602
        assert caught.value.error.code == expected


@conversation
async def test_progress_reaches_the_callback_in_order(peer: Peer) -> None:
    told: list[Any] = []

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        told.append((progress, total, message))

    await peer.client.call_tool("plan_tour", {"cities": ["Rome", "Paris"]}, progress_callback=on_progress)

    async def all_told() -> bool:
        return len(told) == 2

    await until(all_told)
    assert told == [(1, 2, "Rome"), (2, 2, "Paris")]


@conversation
async def test_log_messages_come_if_they_are_wanted(peer: Peer) -> None:
    async def tour(city: str, level: str) -> None:
        if peer.era == "legacy":
            await peer.client.set_logging_level(level)
        meta = None if peer.era == "legacy" else {LOG_LEVEL: level}
        await peer.client.call_tool("plan_tour", {"cities": [city]}, meta=meta)

    await tour("Rome", "error")
    await tour("Paris", "info")
    params = await peer.logs.wait_for(lambda params: params.data == {"planned": ["Paris"]})
    assert params.level == "info"
    assert len(peer.logs.items) == 1


@conversation
async def test_a_ping_is_answered(peer: Peer) -> None:
    if peer.era == "modern":
        pytest.skip("2026-07-28 has no ping, so the client has none there")
    assert await peer.client.send_ping() == types.EmptyResult()


@conversation
async def test_a_list_is_read_page_by_page(corners: Peer) -> None:
    names: list[str] = []
    cursor = None
    while cursor or not names:
        page = await corners.client.list_tools(cursor=cursor)
        assert len(page.tools) <= 2
        names += [tool.name for tool in page.tools]
        cursor = page.next_cursor
    assert names == ["choose", "echo", "nothing", "compare", "combine"]


@conversation
async def test_a_large_text_in_any_script_comes_back_as_it_was(corners: Peer) -> None:
    text = 'Grüße, 世界 🎲\u2028\x00"\\' * 20_000
    assert await corners.text("echo", text=text) == text


@conversation
async def test_nothing_is_a_result(corners: Peer) -> None:
    result = await corners.client.call_tool("nothing")
    assert not result.is_error
