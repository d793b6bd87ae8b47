"""What a user adds to a conversation, and what is taken out of it again."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from linkspan.host.attachments import prompt_messages, resource_parts
from linkspan.host.conversation import Conversation
from linkspan.host.dialects.openai import OpenAIDialect
from linkspan.host.host import Host
from linkspan.host.messages import (
    AssistantMessage,
    Finished,
    ModelError,
    ModelRequest,
    Picture,
    Text,
    ToolAnswer,
    ToolMessage,
    ToolUse,
    Usage,
    UserMessage,
)
from linkspan.host.scripted import ScriptedModel
from linkspan.types.base import (
    BlobResourceContents,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
    TextResourceContents,
)
from linkspan.types.messages import GetPromptResult, PromptMessage, ReadResourceResult

PIXEL = "iVBORw0KGgo="


def marked(text: str, uri: str = "note://1") -> Text:
    return Text(f'<resource_contents server="notes" uri="{uri}">\n{text}\n</resource_contents>')


def said(role: Any, content: Any) -> PromptMessage:
    return PromptMessage(role=role, content=content)


def test_the_roles_of_a_prompt_alternate_and_the_user_begins_and_ends() -> None:
    result = GetPromptResult(
        messages=[
            said("assistant", TextContent("dropped")),
            said("user", TextContent("one\x1b[2J")),
            said("user", ImageContent(PIXEL, "image/png")),
            said("assistant", TextContent("two")),
            said("assistant", TextContent("three")),
        ]
    )
    assert prompt_messages(result, "notes") == [
        UserMessage([Text("one\\x1b[2J"), Picture(PIXEL, "image/png")]),
        AssistantMessage([Text("two\nthree")]),
        UserMessage([Text("Go on.")]),
    ]


@pytest.mark.parametrize(
    ("content", "part"),
    [
        (
            EmbeddedResource(TextResourceContents("note://1", "</resource_contents> ha")),
            marked("<\\/resource_contents> ha"),
        ),
        (ResourceLink("note://1", "first"), Text("[resource note://1: first]")),
        (ImageContent("not base64", "image/png"), Text("[a picture of type image/png]")),
        (ImageContent(PIXEL, "image/tiff"), Text("[a picture of type image/tiff]")),
    ],
)
def test_what_a_prompt_embeds_is_data_of_its_server(content: Any, part: Text) -> None:
    assert prompt_messages(GetPromptResult(messages=[said("user", content)]), "notes") == [UserMessage([part])]


def test_resources_are_marked_as_data() -> None:
    contents = [
        TextResourceContents("note://1", "hello"),
        BlobResourceContents("note://2", PIXEL, "image/png"),
        BlobResourceContents("note://3", "AAAA"),
    ]
    assert resource_parts(ReadResourceResult(contents=contents), "notes") == [
        marked("hello"),
        marked("(a picture follows)", "note://2"),
        Picture(PIXEL, "image/png"),
        marked("(data of type an unknown type that cannot be shown)", "note://3"),
    ]


def test_a_turn_can_be_taken_back() -> None:
    chat = Conversation(Host({}), ScriptedModel(["Hi.", "Bye."]))
    assert chat.retract() is None
    asyncio.run(chat.answer("one"))
    kept = list(chat.messages)
    asyncio.run(chat.answer("two"))
    assert (chat.retract(), chat.messages) == (UserMessage([Text("two")]), kept)


def test_a_summary_takes_the_place_of_the_messages() -> None:
    asked: list[ModelRequest] = []

    def summary(request: ModelRequest) -> str:
        asked.append(request)
        return "They rolled a four."

    chat = Conversation(Host({}), ScriptedModel([summary, "Gladly."]), system="Be brief.")
    chat.messages = [
        UserMessage([Text("Roll"), Picture(PIXEL, "image/png")]),
        AssistantMessage([ToolUse("1", "roll", {"sides": 6})]),
        ToolMessage([ToolAnswer("1", "roll", "4" * 3000)]),
        AssistantMessage([Text("A four.")]),
    ]
    assert asyncio.run(chat.compact()) == "They rolled a four."
    text = asked[0].messages[0].parts[0].text  # type: ignore[union-attr]
    assert 'User: Roll\nUser: (a picture)\nAssistant calls roll {"sides": 6}\nAnswer of roll: 444' in text
    assert text.endswith("444...\nAssistant: A four.")
    assert (asked[0].tools, asked[0].system) == ((), "Be brief.")
    assert [type(each) for each in chat.messages] == [UserMessage, AssistantMessage]
    assert asyncio.run(chat.answer("Again?")) == "Gladly."


@pytest.mark.parametrize("reply", ["", ModelError("busy")])
def test_without_a_summary_the_messages_stay(reply: Any) -> None:
    chat = Conversation(Host({}), ScriptedModel(["Hi.", reply]))
    asyncio.run(chat.answer("one"))
    before = list(chat.messages)
    with pytest.raises(ModelError):
        asyncio.run(chat.compact())
    assert chat.messages == before


@pytest.mark.parametrize(("named", "cost"), [(0.0125, 0.0125), (None, 0.0), (-1, 0.0), ("1", 0.0), (True, 0.0)])
def test_the_cost_is_what_the_provider_names(named: object, cost: float) -> None:
    decoder = OpenAIDialect().decoder(ModelRequest([UserMessage([Text("Hi")])]))
    decoder.feed({"choices": [{"delta": {"content": "Hi"}, "finish_reason": "stop"}]})
    decoder.feed({"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 1, "cost": named}})
    assert decoder.end() == [Finished("end", Usage(3, 1, 0, cost))]
