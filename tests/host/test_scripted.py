"""A model that says what it was told to."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from linkspan.host.messages import (
    AssistantMessage,
    Finished,
    ModelError,
    ModelEvent,
    ModelRequest,
    Text,
    TextDelta,
    ThoughtDelta,
    ToolAnswer,
    ToolMessage,
    ToolUse,
    Usage,
    UserMessage,
)
from linkspan.host.scripted import Line, ScriptedCall, ScriptedModel, read_script, use


def asked(*texts: str) -> ModelRequest:
    return ModelRequest([UserMessage([Text(text)]) for text in texts])


def told(*answers: str) -> ModelRequest:
    return ModelRequest([ToolMessage([ToolAnswer("t", "roll", answer) for answer in answers])])


def reply(model: ScriptedModel, request: ModelRequest) -> list[ModelEvent]:
    async def run() -> list[ModelEvent]:
        return [event async for event in model.reply(request)]

    return asyncio.run(run())


def words(model: ScriptedModel, request: ModelRequest) -> str:
    return "".join(event.text for event in reply(model, request) if isinstance(event, TextDelta))


def test_replies_come_one_after_the_other_word_by_word_and_requests_are_kept() -> None:
    model = ScriptedModel(["Hello there", [use("roll", sides=6), "Rolling", use("now")]])
    first, second = asked("Hi"), asked("Roll")
    assert reply(model, first) == [TextDelta("Hello "), TextDelta("there"), Finished("end", Usage(0, 2))]
    assert reply(model, second) == [
        TextDelta("Rolling"),
        ToolUse("ls0000001", "roll", {"sides": 6}),
        ToolUse("ls0000002", "now", {}),
        Finished("tool_use", Usage(0, 1)),
    ]
    assert model.requests == [first, second]


def test_a_reply_may_be_a_function_of_the_request_or_an_error() -> None:
    model = ScriptedModel([lambda request: f"{len(request.messages)} messages", ModelError("out of tea")])
    assert words(model, asked("a", "b")) == "2 messages"
    with pytest.raises(ModelError, match="out of tea"):
        reply(model, asked("c"))


def test_ids_do_not_repeat_within_a_conversation() -> None:
    model = ScriptedModel([use("roll"), ToolUse("mine", "roll", {})])
    before = ModelRequest([AssistantMessage([ToolUse("ls0000001", "roll", {}), ToolUse("mine", "roll", {})])])
    ids = [event.id for _ in range(2) for event in reply(model, before) if isinstance(event, ToolUse)]
    assert len({"ls0000001", "mine", *ids}) == 3, "each is unlike those before it"


def test_a_script_at_its_end_says_so() -> None:
    model = ScriptedModel(["Hi", Line(say="A four", when="4")], name="scripted:x")
    reply(model, asked("Hi"))
    with pytest.raises(ModelError) as caught:
        reply(model, asked("Hi"))
    assert str(caught.value) == ("scripted:x: the script has no further reply: it gave 1, and none of the 1 left fits")


SCRIPT = """
# A script.
{"when": "dice", "think": "Two of them.", "say": "I roll.", "call": [{"name": "roll", "arguments": {"count": 2}}]}

{"when": "rolled", "say": "The dice say: {last}", "again": true}
{"call": {"name": "now"}}
"""


def test_a_file_is_read_line_by_line(tmp_path: Path) -> None:
    file = tmp_path / "dice.jsonl"
    file.write_text(SCRIPT)
    assert read_script(file) == [
        Line(when="dice", think="Two of them.", say="I roll.", call=[ScriptedCall("roll", {"count": 2})]),
        Line(when="rolled", say="The dice say: {last}", again=True),
        Line(call=[ScriptedCall("now")]),
    ]
    model = ScriptedModel(read_script(file))
    assert reply(model, asked("Roll two DICE"))[:3] == [
        ThoughtDelta("Two "),
        ThoughtDelta("of "),
        ThoughtDelta("them."),
    ]
    assert words(model, told("rolled 3", "and 4")) == "The dice say: rolled 3\nand 4"
    assert [type(event) for event in reply(model, asked("What time is it?"))] == [ToolUse, Finished]
    assert words(model, told("rolled 5")) == "The dice say: rolled 5"


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("{", "Input data was truncated"),
        ("[]", "Expected `object`, got `array`"),
        ('{"says": "x"}', "Object contains unknown field `says`"),
        ('{"call": [{"arguments": {}}]}', "Object missing required field `name` - at `$.call[0]`"),
        ('{"say": 7}', "Expected `str`, got `int` - at `$.say`"),
    ],
)
def test_an_invalid_line_is_named_by_its_number(tmp_path: Path, line: str, problem: str) -> None:
    file: Any = tmp_path / "bad.jsonl"
    file.write_text(f'# one\n{{"say": "x"}}\n{line}\n')
    with pytest.raises(ValueError) as caught:
        read_script(file)
    assert str(caught.value) == f"line 3 of {str(file)!r} is not a valid message: {problem}"
