"""The official client reads resources, gets prompts, completes arguments and hears of changes, in both eras."""

from __future__ import annotations

import asyncio
import base64
import json
from typing import Any

import mcp_types as types
import pytest
from mcp import MCPError
from mcp.client.subscriptions import ResourceUpdated, ToolsListChanged
from official import PATIENCE, Peer, conversation, until

pytestmark = [
    pytest.mark.timeout(60),
    pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning"),
]

DEPARTURES = "travel://departures"


@conversation
async def test_texts_bytes_json_and_members_of_a_template_are_read(peer: Peer) -> None:
    async def read(uri: str) -> Any:
        (contents,) = (await peer.client.read_resource(uri, cache_mode="bypass")).contents
        assert contents.uri == uri
        return contents

    assert (await read("travel://terms")).text == "No refunds."
    logo = await read("travel://logo")
    assert (logo.mime_type, base64.b64decode(logo.blob)[:6]) == ("image/gif", b"GIF89a")
    assert json.loads((await read(DEPARTURES)).text)["EC 7"] == 0
    assert (await read("travel://cities/S%C3%A3o%20Paulo/2026")).text == "São Paulo in 2026: food, art and traffic."


@conversation
async def test_prompts_give_messages(peer: Peer) -> None:
    trip = await peer.client.get_prompt("trip", {"city": "Rome", "days": "5"})
    assert trip.description == "Plan a trip."
    assert [(each.role, each.content.text) for each in trip.messages] == [
        ("user", "Plan a relaxed trip to Rome for 5 days.")
    ]
    terms, read, question = (await peer.client.get_prompt("check_terms")).messages
    assert (terms.role, terms.content.resource.text) == ("user", "No refunds.")
    assert (read.role, read.content.text) == ("assistant", "I have read them.")
    assert (question.role, question.content.text) == ("user", "Are they fair?")


@conversation
async def test_arguments_are_completed(peer: Peer) -> None:
    trip = types.PromptReference(name="trip")
    cities = await peer.client.complete(trip, {"name": "city", "value": "p"})
    assert cities.completion.values == ["Paris", "Prague"]
    guide = types.ResourceTemplateReference(uri="travel://cities/{city}/{year}")
    for city, years in (("Rome", ["2025", "2026"]), ("Paris", ["2026"])):
        found = await peer.client.complete(guide, {"name": "year", "value": "20"}, {"city": city})
        assert found.completion.values == years
    nothing = await peer.client.complete(trip, {"name": "style", "value": ""})
    assert nothing.completion.values == []


@conversation
async def test_a_method_of_ones_own_is_called(peer: Peer) -> None:
    class Rate(types.Result):
        rate: float

    request = types.Request[dict[str, Any], str](method="travel/rate", params={"currency": "CZK"})
    assert (await peer.client.session.send_request(request, Rate)).rate == 25.0


@conversation
async def test_a_client_that_watches_a_resource_hears_of_its_changes(peer: Peer) -> None:
    async def told(minutes: int) -> str:
        return await peer.text("delay_train", number="EC 9", minutes=minutes)

    async def nobody_is_told() -> bool:
        return await told(7) == "0 told"

    assert await nobody_is_told()
    if peer.era == "legacy":
        await peer.client.subscribe_resource(DEPARTURES)
        assert await told(10) == "1 told"
        await peer.messages.wait_for(
            lambda message: isinstance(message, types.ResourceUpdatedNotification) and message.params.uri == DEPARTURES
        )
        await peer.client.unsubscribe_resource(DEPARTURES)
    else:
        async with peer.client.listen(resource_subscriptions=[DEPARTURES]) as subscription:
            assert subscription.honored == types.SubscriptionFilter(resource_subscriptions=[DEPARTURES])
            assert await told(10) == "1 told"
            async with asyncio.timeout(PATIENCE):
                assert await anext(subscription) == ResourceUpdated(uri=DEPARTURES)
    await until(nobody_is_told)
    read = await peer.client.read_resource(DEPARTURES, cache_mode="bypass")
    assert json.loads(read.contents[0].text)["EC 9"] == 7


@conversation
async def test_a_tool_that_is_added_is_announced_and_can_be_called(peer: Peer) -> None:
    if peer.era == "legacy":
        assert await peer.text("hire_guide", city="Rome") == "guide_rome"
        await peer.messages.wait_for(lambda message: isinstance(message, types.ToolListChangedNotification))
    else:
        async with peer.client.listen(tools_list_changed=True) as subscription:
            assert await peer.text("hire_guide", city="Rome") == "guide_rome"
            async with asyncio.timeout(PATIENCE):
                assert await anext(subscription) == ToolsListChanged()
    assert "guide_rome" in {tool.name for tool in (await peer.client.list_tools()).tools}
    assert await peer.text("guide_rome") == "Rome: turn left"


@conversation
async def test_nothing_is_promised_about_what_does_not_exist(peer: Peer) -> None:
    nowhere = "travel://nowhere"
    if peer.era == "legacy":
        with pytest.raises(MCPError):
            await peer.client.subscribe_resource(nowhere)
    else:
        async with peer.client.listen(resource_subscriptions=[nowhere, DEPARTURES]) as subscription:
            assert subscription.honored == types.SubscriptionFilter(resource_subscriptions=[DEPARTURES])


@conversation
async def test_a_client_may_listen_to_several_things_at_once(peer: Peer) -> None:
    if peer.era == "legacy":
        pytest.skip("the client refuses to listen before 2026-07-28")
    async with (
        peer.client.listen(tools_list_changed=True) as tools,
        peer.client.listen(resource_subscriptions=[DEPARTURES]) as departures,
    ):
        assert await peer.text("delay_train", number="EC 9", minutes=7) == "1 told"
        await peer.text("hire_guide", city="Paris")
        async with asyncio.timeout(PATIENCE):
            assert await anext(departures) == ResourceUpdated(uri=DEPARTURES)
            assert await anext(tools) == ToolsListChanged()
