"""The client of the official SDK (`mcp`) talks to the examples over stdio, in both of its modes.

`mode="legacy"` shakes hands, `mode="auto"` probes with `server/discover`; a date adopts that revision without asking.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import sys
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from functools import wraps
from pathlib import Path
from typing import Any, TextIO

import mcp_types as types
import pytest
from mcp import Client, MCPError, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.subscriptions import ResourceUpdated, ToolsListChanged

pytestmark = [
    pytest.mark.timeout(60),
    pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning"),
]

EXAMPLES = Path(__file__).parents[2] / "examples"
CORNERS = Path(__file__).parent / "corners.py"
LINKSPAN = ["-m", "linkspan", "run"]
MODES = {"legacy": "legacy", "modern": "auto"}
REVISIONS = {"legacy": "2025-11-25", "modern": "2026-07-28"}
LOG_LEVEL = "io.modelcontextprotocol/logLevel"
DEPARTURES = "travel://departures"
PATIENCE = 20.0  # seconds that anything may take on a machine that has much else to do


def transport(file: Path, errlog: TextIO | None, launcher: list[str] = LINKSPAN) -> Any:
    """Return a transport that starts a server with this interpreter and environment."""
    parameters = StdioServerParameters(command=sys.executable, args=[*launcher, str(file)], env=dict(os.environ))
    assert errlog is not None
    return stdio_client(parameters, errlog)


class Heard:
    """What came in without being asked for, in order. Waiting for something has an end."""

    def __init__(self) -> None:
        self.items: list[Any] = []
        self._news = asyncio.Event()

    async def __call__(self, item: Any) -> None:
        self.items.append(item)
        self._news.set()

    async def wait_for(self, fits: Callable[[Any], bool]) -> Any:
        async with asyncio.timeout(PATIENCE):
            while True:
                for item in self.items:
                    if fits(item):
                        return item
                self._news.clear()
                await self._news.wait()


class Peer:
    """One official client with one server process, on an event loop in a thread of its own.

    The client is closed by the task that opened it; tests run in other tasks of the same loop.
    """

    client: Client

    def __init__(self, era: str, file: Path, stderr: Path) -> None:
        self.era = era
        self.file = file
        self.stderr = stderr
        self.answer: Any = None
        """What the user, the model or the host says next: a result, a function that is awaited for one, or a list of them."""
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), daemon=True)
        self._failure: BaseException | None = None

    def open(self) -> None:
        self._thread.start()
        assert self._ready.wait(PATIENCE), "the client did not connect"
        if self._failure is not None:
            raise AssertionError(self.stderr.read_text()) from self._failure

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._done.set)
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive(), "the client did not close"
        if self._failure is not None:
            raise self._failure

    def run(self, body: Coroutine[Any, Any, None]) -> None:
        """Run the body of a test on the client's loop."""
        self.answer = None
        for heard in (self.questions, self.logs, self.messages):
            heard.items.clear()
        asyncio.run_coroutine_threadsafe(asyncio.wait_for(body, 2 * PATIENCE), self._loop).result(3 * PATIENCE)

    async def _serve(self) -> None:
        self._loop, self._done = asyncio.get_running_loop(), asyncio.Event()
        self.questions, self.logs, self.messages = Heard(), Heard(), Heard()
        try:
            with self.stderr.open("w") as errlog:
                async with Client(
                    transport(self.file, errlog),
                    mode=MODES[self.era],
                    elicitation_callback=self._answer,
                    sampling_callback=self._answer,
                    list_roots_callback=self._answer,
                    logging_callback=self.logs,
                    message_handler=self.messages,
                ) as self.client:
                    self._ready.set()
                    await self._done.wait()
        except BaseException as error:
            self._failure = error
            self._ready.set()

    async def _answer(self, context: Any, params: Any = None) -> Any:
        await self.questions(params)
        answer = self.answer.pop(0) if isinstance(self.answer, list) else self.answer
        return await answer() if callable(answer) else answer

    async def text(self, tool: str, **arguments: Any) -> str:
        """Call a tool and return its one text."""
        result = await self.client.call_tool(tool, arguments)
        assert not result.is_error, result
        (block,) = result.content
        return block.text

    async def complaint(self, tool: str, **arguments: Any) -> str:
        """Call a tool that fails and return what the model reads about it."""
        result = await self.client.call_tool(tool, arguments)
        assert result.is_error, result
        return result.content[0].text


def connected(file: Path) -> Any:
    """Return a fixture: a peer for each era that serves a whole module."""

    @pytest.fixture(scope="module", params=MODES)
    def fixture(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Peer]:
        peer = Peer(request.param, file, tmp_path_factory.mktemp("peer") / "stderr")
        peer.open()
        yield peer
        peer.close()

    return fixture


peer = connected(EXAMPLES / "everything.py")
corners = connected(CORNERS)


def conversation(body: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Turn a coroutine into a test that runs on the loop of its peer."""

    @wraps(body)
    def test(**peers: Peer) -> None:
        (peer,) = peers.values()
        peer.run(body(peer))

    return test


async def until(true: Callable[[], Awaitable[bool]]) -> None:
    """Wait for what can only be looked at again and again."""
    async with asyncio.timeout(PATIENCE):
        while not await true():
            await asyncio.sleep(0.01)


def accept(**content: Any) -> types.ElicitResult:
    return types.ElicitResult(action="accept", content=content)


# The dice: every way to start a server, every way to begin a conversation.


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


# Everything: what is there.


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
        DEPARTURES: "application/json",
    }
    (template,) = (await peer.client.list_resource_templates()).resource_templates
    assert (template.uri_template, template.title) == ("travel://cities/{city}/{year}", "A year in a city")
    prompts = {each.name: each for each in (await peer.client.list_prompts()).prompts}
    assert set(prompts) == {"trip", "check_terms"}
    shown = [(each.name, each.description, each.required) for each in prompts["trip"].arguments or []]
    assert shown == [("city", "Where to.", True), ("days", "How long.", None), ("style", "What kind of trip.", None)]


# Everything: calls.


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
    assert (link.type, link.uri, link.name) == ("resource_link", DEPARTURES, "departures")


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


# Everything: cancellation.


def count_waits(peer: Peer) -> int:
    """Return how many calls of the slow tool have ended; the server notes each one on stderr."""
    return peer.stderr.read_text().count("tools/call wait_for_train took")


async def until_a_wait_ends(peer: Peer, before: int) -> None:
    async with asyncio.timeout(PATIENCE):
        while count_waits(peer) == before:
            await asyncio.sleep(0.01)


@conversation
async def test_a_cancelled_call_ends_on_the_server_and_the_next_one_works(peer: Peer) -> None:
    before, begun = count_waits(peer), asyncio.Event()

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        begun.set()

    wait = peer.client.call_tool("wait_for_train", {"seconds": 600}, progress_callback=on_progress)
    call = asyncio.create_task(wait)
    async with asyncio.timeout(PATIENCE):
        await begun.wait()
    call.cancel()
    await asyncio.wait([call], timeout=PATIENCE)
    assert call.cancelled()
    await until_a_wait_ends(peer, before)
    assert await peer.text("opening_hours") == "9 to 5"


@conversation
async def test_a_call_that_takes_too_long_for_the_client_ends_on_the_server_too(peer: Peer) -> None:
    before = count_waits(peer)
    with pytest.raises(MCPError):
        await peer.client.call_tool("wait_for_train", {"seconds": 600}, read_timeout_seconds=0.3)
    await until_a_wait_ends(peer, before)
    assert await peer.text("opening_hours") == "9 to 5"


@conversation
async def test_a_call_is_cancelled_while_the_user_still_thinks(peer: Peer) -> None:
    thinking, interrupted = asyncio.Event(), asyncio.Event()

    async def think() -> None:
        thinking.set()
        try:
            await asyncio.Event().wait()
        finally:
            interrupted.set()

    peer.answer = think
    call = asyncio.create_task(peer.client.call_tool("book", {"train": "EC 7"}))
    async with asyncio.timeout(PATIENCE):
        await thinking.wait()
        call.cancel()
        await interrupted.wait()
    peer.answer = accept(value=1)
    assert await peer.text("book", train="EC 9") == "1 seats on EC 9"


# Everything: asking.


@conversation
async def test_the_user_fills_in_what_the_model_never_sees(peer: Peer) -> None:
    peer.answer = accept(value=3)
    assert await peer.text("book", train="EC 7") == "3 seats on EC 7"
    (question,) = peer.questions.items
    assert question.message == "How many seats?"
    assert question.requested_schema["properties"]["value"]["type"] == "integer"


@conversation
async def test_a_form_of_several_fields_is_answered(peer: Peer) -> None:
    peer.answer = accept(name="Ann", born="1990-02-03", seat="aisle")
    assert await peer.text("check_in", train="EC 7") == "Ann, born in 1990, at the aisle on EC 7"
    (question,) = peer.questions.items
    assert question.requested_schema["properties"]["seat"] == {
        "type": "string",
        "enum": ["aisle", "window"],
        "default": "window",
    }


@conversation
async def test_an_answer_that_does_not_fit_is_asked_for_again(peer: Peer) -> None:
    peer.answer = [accept(name="Ann", born="yesterday"), accept(name="Ann", born="1990-02-03")]
    assert await peer.text("check_in", train="EC 7") == "Ann, born in 1990, at the window on EC 7"
    again = peer.questions.items[1]
    assert again.message.startswith("Who travels? (born")


@pytest.mark.parametrize(("action", "said"), [("decline", "declined"), ("cancel", "dismissed")])
def test_a_user_may_say_no(peer: Peer, action: Any, said: str) -> None:
    async def talk() -> None:
        peer.answer = types.ElicitResult(action=action)
        assert await peer.text("check_in", train="EC 7") == "Nobody checked in"
        assert said in await peer.complaint("book", train="EC 7")
        assert said in await peer.complaint("pay")

    peer.run(talk())


@conversation
async def test_the_user_is_sent_to_a_page(peer: Peer) -> None:
    peer.answer = types.ElicitResult(action="accept")
    assert await peer.text("pay") == "Thank you"
    (question,) = peer.questions.items
    assert (question.mode, question.url) == ("url", "https://example.com/pay")


@conversation
async def test_the_model_of_the_client_writes(peer: Peer) -> None:
    said = types.TextContent(text="Rome shines.")
    peer.answer = types.CreateMessageResult(role="assistant", content=said, model="test")
    assert await peer.text("praise", city="Rome") == "Rome shines."
    (question,) = peer.questions.items
    assert question.max_tokens == 100
    assert question.messages[0].content.text == "Praise Rome in one sentence"


@conversation
async def test_a_client_that_refuses_to_answer_is_not_asked_for_ever(peer: Peer) -> None:
    peer.answer = types.ErrorData(code=-1, message="User rejected sampling request")
    if peer.era == "legacy":
        assert "User rejected sampling request" in await peer.complaint("praise", city="Rome")
    else:
        with pytest.raises(MCPError, match="User rejected"):
            await peer.client.call_tool("praise", {"city": "Rome"})
    assert len(peer.questions.items) == 1


@conversation
async def test_the_roots_of_the_client_are_listed(peer: Peer) -> None:
    peer.answer = types.ListRootsResult(roots=[types.Root(uri="file:///home/ann", name="home")])
    result = await peer.client.call_tool("where_to_save")
    assert result.structured_content == {"result": ["file:///home/ann"]}


@conversation
async def test_a_tool_may_keep_the_questions_and_the_state_itself(peer: Peer) -> None:
    peer.answer = accept(value=5)
    assert await peer.text("rate_us") == "asked once: 5 stars"


@conversation
async def test_a_client_may_drive_the_rounds_itself(peer: Peer) -> None:
    if peer.era == "legacy":
        pytest.skip("before 2026-07-28 the server asks in requests of its own, and there are no rounds to drive")
    session = peer.client.session
    asked = await session.call_tool("book", {"train": "EC 7"}, allow_input_required=True)
    assert isinstance(asked, types.InputRequiredResult)
    assert list(asked.input_requests or ()) == ["seats"]
    again = {"input_responses": {"seats": accept(value=2)}, "request_state": asked.request_state}
    booked = await session.call_tool("book", {"train": "EC 7"}, allow_input_required=True, **again)
    assert booked.content[0].text == "2 seats on EC 7"
    with pytest.raises(MCPError):  # the state is bound to the arguments
        await session.call_tool("book", {"train": "EC 9"}, allow_input_required=True, **again)


# Everything: resources, prompts, completion, methods of one's own.


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
async def test_a_ping_is_answered(peer: Peer) -> None:
    if peer.era == "modern":
        pytest.skip("2026-07-28 has no ping, so the client has none there")
    assert await peer.client.send_ping() == types.EmptyResult()


# Everything: changes.


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


# Corners: what no example shows.


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
async def test_prompts_and_resources_may_ask_too(corners: Peer) -> None:
    corners.answer = accept(value="Ann")
    got = await corners.client.get_prompt("greet", {"greeting": "Hello"})
    assert got.messages[0].content.text == "Hello Ann"
    read = await corners.client.read_resource("corner://diary")
    assert read.contents[0].text == "Ann's diary"
    assert [question.message for question in corners.questions.items] == ["Greet whom?", "Whose?"]


@conversation
async def test_several_questions_are_asked_before_the_tool_runs(corners: Peer) -> None:
    corners.answer = accept(value=4)
    compared = await corners.client.call_tool("compare")
    assert compared.structured_content == {"result": [4, 4]}
    assert sorted(question.message for question in corners.questions.items) == ["Left?", "Right?"]


@conversation
async def test_several_of_a_list_may_be_chosen(corners: Peer) -> None:
    corners.answer = accept(value=["blue", "red"])
    assert await corners.text("choose") == "blue and red"
    assert corners.questions.items[0].requested_schema["properties"]["value"]["type"] == "array"


@conversation
async def test_questions_of_every_kind_follow_each_other(corners: Peer) -> None:
    written = types.CreateMessageResult(role="assistant", content=types.TextContent(text="once"), model="test")
    again = written.model_copy(update={"content": types.TextContent(text="upon")})
    roots = types.ListRootsResult(roots=[types.Root(uri="file:///a")])
    corners.answer = [written, again, roots, accept(value=True), types.ElicitResult(action="accept")]
    assert await corners.text("combine") == "once upon 1 True"
    assert len(corners.questions.items) == 5


@conversation
async def test_a_large_text_in_any_script_comes_back_as_it_was(corners: Peer) -> None:
    text = 'Grüße, 世界 🎲\u2028\x00"\\' * 20_000
    assert await corners.text("echo", text=text) == text


@conversation
async def test_nothing_is_a_result(corners: Peer) -> None:
    result = await corners.client.call_tool("nothing")
    assert not result.is_error
