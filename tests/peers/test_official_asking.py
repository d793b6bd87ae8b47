"""The official client is asked in the middle of a call, in both eras."""

from __future__ import annotations

from typing import Any

import mcp_types as types
import pytest
from mcp import MCPError
from official import Peer, accept, conversation

pytestmark = [
    pytest.mark.timeout(60),
    pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning"),
]


@conversation
async def test_the_user_fills_in_what_the_model_never_sees(peer: Peer) -> None:
    peer.answer = accept(seats=3)
    assert await peer.text("book", train="EC 7") == "3 seats on EC 7"
    (question,) = peer.questions.items
    assert question.message == "How many seats?"
    assert question.requested_schema["properties"]["seats"]["type"] == "integer"


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
    peer.answer = accept(stars=5)
    assert await peer.text("rate_us") == "asked once: 5 stars"


@conversation
async def test_a_client_may_drive_the_rounds_itself(peer: Peer) -> None:
    if peer.era == "legacy":
        pytest.skip("before 2026-07-28 the server asks in requests of its own, and there are no rounds to drive")
    session = peer.client.session
    asked = await session.call_tool("book", {"train": "EC 7"}, allow_input_required=True)
    assert isinstance(asked, types.InputRequiredResult)
    assert list(asked.input_requests or ()) == ["seats"]
    again = {"input_responses": {"seats": accept(seats=2)}, "request_state": asked.request_state}
    booked = await session.call_tool("book", {"train": "EC 7"}, allow_input_required=True, **again)
    assert booked.content[0].text == "2 seats on EC 7"
    with pytest.raises(MCPError):  # the state is bound to the arguments
        await session.call_tool("book", {"train": "EC 9"}, allow_input_required=True, **again)


@conversation
async def test_prompts_and_resources_may_ask_too(corners: Peer) -> None:
    corners.answer = accept(name="Ann", whose="Ann")
    got = await corners.client.get_prompt("greet", {"greeting": "Hello"})
    assert got.messages[0].content.text == "Hello Ann"
    read = await corners.client.read_resource("corner://diary")
    assert read.contents[0].text == "Ann's diary"
    assert [question.message for question in corners.questions.items] == ["Greet whom?", "Whose?"]


@conversation
async def test_several_questions_are_asked_before_the_tool_runs(corners: Peer) -> None:
    corners.answer = accept(left=4, right=4)
    compared = await corners.client.call_tool("compare")
    assert compared.structured_content == {"result": [4, 4]}
    assert sorted(question.message for question in corners.questions.items) == ["Left?", "Right?"]


@conversation
async def test_several_of_a_list_may_be_chosen(corners: Peer) -> None:
    corners.answer = accept(colours=["blue", "red"])
    assert await corners.text("choose") == "blue and red"
    assert corners.questions.items[0].requested_schema["properties"]["colours"]["type"] == "array"


@conversation
async def test_questions_of_every_kind_follow_each_other(corners: Peer) -> None:
    written = types.CreateMessageResult(role="assistant", content=types.TextContent(text="once"), model="test")
    again = written.model_copy(update={"content": types.TextContent(text="upon")})
    roots = types.ListRootsResult(roots=[types.Root(uri="file:///a")])
    corners.answer = [written, again, roots, accept(sure=True), types.ElicitResult(action="accept")]
    assert await corners.text("combine") == "once upon 1 True"
    assert len(corners.questions.items) == 5
