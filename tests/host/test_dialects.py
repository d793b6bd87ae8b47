"""The three wire formats as pure functions: whole values in, whole values out."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from providers import KINDS, Kind, check_anthropic, check_gemini, check_openai, message

from linkspan.host.dialects import Dialect
from linkspan.host.dialects.anthropic import AnthropicDialect
from linkspan.host.dialects.gemini import GeminiDialect
from linkspan.host.dialects.openai import OpenAIDialect
from linkspan.host.dialects.shared import ProviderNames, read_arguments, safe_name, short_id
from linkspan.host.messages import (
    AssistantMessage,
    Finished,
    ModelError,
    ModelEvent,
    ModelRequest,
    Opaque,
    Picture,
    Text,
    TextDelta,
    ThoughtDelta,
    ToolAnswer,
    ToolMessage,
    ToolSpec,
    ToolUse,
    Usage,
    UserMessage,
)

DIALECTS: dict[Kind, Dialect] = {
    "anthropic": AnthropicDialect(),
    "openai": OpenAIDialect(tokens_member="max_completion_tokens"),
    "gemini": GeminiDialect(),
}
every_kind = pytest.mark.parametrize("kind", KINDS)
SCHEMA = {"type": "object", "properties": {"sides": {"type": "integer"}}}
ROLL = ToolSpec("roll", "Roll dice.", SCHEMA)
NOW = ToolSpec("now", "Tell the time.", {"type": "object", "properties": {}})
NOTHING = ModelRequest([])


def talk(*, extra: Any = None) -> ModelRequest:
    """Return a conversation with everything in it."""
    return ModelRequest(
        [
            UserMessage([Text("What is this?"), Picture("AAAA", "image/png")]),
            AssistantMessage(
                [Text("I roll."), ToolUse("t1", "roll", {"sides": 6}, extra=extra), ToolUse("t2", "now", {})]
            ),
            ToolMessage([ToolAnswer("t1", "roll", "4"), ToolAnswer("t2", "now", "no clock", is_error=True)]),
        ],
        [ROLL, NOW],
        "Be brief.",
        64,
    )


def read(
    dialect: Dialect, events: list[Any], *, request: ModelRequest = NOTHING, done: bool = False
) -> list[ModelEvent]:
    decoder = dialect.decoder(request)
    return [*(each for event in events for each in decoder.feed(event)), *decoder.end(done=done)]


def test_a_request_in_anthropics_format() -> None:
    cache = {"type": "ephemeral"}
    assert AnthropicDialect().encode_request(talk(), "m") == {
        "model": "m",
        "max_tokens": 64,
        "stream": True,
        "system": "Be brief.",
        "tools": [
            {"name": "roll", "description": "Roll dice.", "input_schema": SCHEMA},
            {"name": "now", "description": "Tell the time.", "input_schema": NOW.schema, "cache_control": cache},
        ],
        "messages": [
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "What is this?"},
                    {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}},
                ],
            },
            {
                "role": "assistant",
                "content": [
                    {"type": "text", "text": "I roll."},
                    {"type": "tool_use", "id": "t1", "name": "roll", "input": {"sides": 6}},
                    {"type": "tool_use", "id": "t2", "name": "now", "input": {}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "text", "text": "4"}]},
                    {
                        "type": "tool_result",
                        "tool_use_id": "t2",
                        "content": [{"type": "text", "text": "no clock"}],
                        "is_error": True,
                        "cache_control": cache,
                    },
                ],
            },
        ],
    }


def test_a_request_in_openais_format() -> None:
    function = {"name": "roll", "description": "Roll dice.", "parameters": SCHEMA}
    clock = {"name": "now", "description": "Tell the time.", "parameters": NOW.schema}
    assert OpenAIDialect().encode_request(talk(), "m") == {
        "model": "m",
        "stream": True,
        "max_tokens": 64,
        "stream_options": {"include_usage": True},
        "tools": [{"type": "function", "function": function}, {"type": "function", "function": clock}],
        "messages": [
            {"role": "system", "content": "Be brief."},
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "What is this?"},
                    {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}},
                ],
            },
            {
                "role": "assistant",
                "content": "I roll.",
                "tool_calls": [
                    {"id": "t1", "type": "function", "function": {"name": "roll", "arguments": '{"sides":6}'}},
                    {"id": "t2", "type": "function", "function": {"name": "now", "arguments": "{}"}},
                ],
            },
            {"role": "tool", "tool_call_id": "t1", "content": "4"},
            {"role": "tool", "tool_call_id": "t2", "content": "Error: no clock"},
        ],
    }


def test_a_request_in_geminis_format() -> None:
    assert GeminiDialect().encode_request(talk(extra={"thoughtSignature": "c2ln"}), "m") == {
        "systemInstruction": {"parts": [{"text": "Be brief."}]},
        "tools": [
            {
                "functionDeclarations": [
                    {"name": "roll", "description": "Roll dice.", "parameters": SCHEMA},
                    {"name": "now", "description": "Tell the time."},
                ]
            }
        ],
        "contents": [
            {
                "role": "user",
                "parts": [{"text": "What is this?"}, {"inlineData": {"mimeType": "image/png", "data": "AAAA"}}],
            },
            {
                "role": "model",
                "parts": [
                    {"text": "I roll."},
                    {"functionCall": {"name": "roll", "args": {"sides": 6}, "id": "t1"}, "thoughtSignature": "c2ln"},
                    {"functionCall": {"name": "now", "args": {}, "id": "t2"}},
                ],
            },
            {
                "role": "user",
                "parts": [
                    {"functionResponse": {"name": "roll", "response": {"output": "4"}, "id": "t1"}},
                    {"functionResponse": {"name": "now", "response": {"error": "no clock"}, "id": "t2"}},
                ],
            },
        ],
        "generationConfig": {"maxOutputTokens": 64},
    }


@pytest.mark.parametrize(
    ("model", "signature"),
    [
        ("gemini-3-pro", "skip_thought_signature_validator"),
        ("gemini-flash-latest", "skip_thought_signature_validator"),
        ("gemini-2.5-flash", None),
        ("models/gemini-2.0-flash", None),
    ],
)
def test_calls_of_another_providers_model_are_signed_with_googles_word_for_that(model: str, signature: Any) -> None:
    said = GeminiDialect().encode_request(talk(), model)["contents"][1]["parts"]
    assert [part.get("thoughtSignature") for part in said] == [None, signature, None]


def test_openai_itself_wants_another_name_for_the_bound_and_mistral_short_ids() -> None:
    assert DIALECTS["openai"].encode_request(talk(), "m")["max_completion_tokens"] == 64
    mistral = OpenAIDialect(provider="mistral", asks_usage=False, short_ids=True)
    body = mistral.encode_request(talk(), "m")
    assert "stream_options" not in body
    ids = [call["id"] for call in body["messages"][2]["tool_calls"]]
    assert ids == [each["tool_call_id"] for each in body["messages"][3:]] == [short_id("t1"), short_id("t2")]
    assert [len(each) for each in ids] == [9, 9]
    assert short_id("D681PevKs") == "D681PevKs"


@every_kind
def test_messages_that_say_nothing_are_left_out_and_turns_alternate(kind: Kind) -> None:
    request = ModelRequest(
        [
            UserMessage([Text("a")]),
            AssistantMessage([]),
            UserMessage([Text("b")]),
            AssistantMessage([Text("c"), Opaque("somebody", {"part": {}, "from": 0, "to": 0})]),
            UserMessage([Text("d")]),
        ]
    )
    body = DIALECTS[kind].encode_request(request, "some-model")
    if kind == "openai":
        assert [each["content"] for each in body["messages"]] == ["a", "b", "c", "d"]
        assert [*check_openai(body, {}, "/v1/chat/completions")] == []
        return
    turns = body["messages"] if kind == "anthropic" else body["contents"]
    shown = [[part["text"] for part in turn["content" if kind == "anthropic" else "parts"]] for turn in turns]
    assert shown == [["a", "b"], ["c"], ["d"]]
    path = "/v1beta/models/some-model:streamGenerateContent?alt=sse"
    rules = check_anthropic(body, {"anthropic-version": "x"}, "/v1/messages")
    assert [*(rules if kind == "anthropic" else check_gemini(body, {}, path))] == []


def test_anthropic_is_told_of_tools_that_are_gone_when_none_is_left() -> None:
    request = ModelRequest([*talk().messages, AssistantMessage([ToolUse("t3", "roll", {})])])
    tools = AnthropicDialect().encode_request(request, "m")["tools"]
    assert [(tool["name"], tool["description"]) for tool in tools] == [
        ("roll", "This tool is gone. Do not call it."),
        ("now", "This tool is gone. Do not call it."),
    ]
    assert "tools" not in AnthropicDialect().encode_request(ModelRequest([UserMessage([Text("Hi")])]), "m")


@pytest.mark.parametrize(("kind", "name"), [("anthropic", "fällig"), ("gemini", "due-date")])
def test_a_tool_that_a_provider_would_refuse_is_left_out_and_takes_no_other_with_it(kind: Kind, name: str) -> None:
    refused = ToolSpec("plan", "Plan.", {"type": "object", "properties": {name: {}}, "required": [name]})
    tools, losses = DIALECTS[kind].encode_tools([ROLL, refused, NOW])
    assert [tool["name"] for tool in tools] == ["roll", "now"]
    assert losses == [f"plan: left out, for its required /{name} has a name that is refused"]
    alone = ModelRequest([UserMessage([Text("Hi")])], [refused])
    assert "tools" not in DIALECTS[kind].encode_request(alone, "m")


def test_an_error_without_words_still_says_something() -> None:
    silent = ToolAnswer("t", "roll", "", is_error=True)
    assert AnthropicDialect().encode_answer(silent)["content"] == [
        {"type": "text", "text": "It failed without an error message."}
    ]
    assert OpenAIDialect().encode_answer(silent)["content"] == "Error: it failed without an error message"
    assert AnthropicDialect().encode_answer(ToolAnswer("t", "roll", ""))["content"] == []


# Tool uses out of anybody's hands.

ANTHROPIC = {"type": "tool_use", "id": "t", "name": "admin_list", "input": {"a": 1}}
OPENAI = {"id": "t", "type": "function", "function": {"name": "admin_list", "arguments": '{"a":1}'}}
GEMINI = {"functionCall": {"id": "t", "name": "admin_list", "args": {"a": 1}}}


def an_object(value: Any) -> Any:
    """Return JSON as an SDK's objects."""
    return (
        SimpleNamespace(**{name: an_object(each) for name, each in value.items()}) if isinstance(value, dict) else value
    )


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("anthropic", ANTHROPIC),
        ("anthropic", an_object(ANTHROPIC)),
        ("openai", OPENAI),
        ("openai", an_object(OPENAI)),
        (
            "openai",
            {"type": "function_call", "call_id": "t", "id": "fc_1", "name": "admin_list", "arguments": '{"a":1}'},
        ),
        ("gemini", GEMINI),
        ("gemini", GEMINI["functionCall"]),
        ("gemini", SimpleNamespace(function_call=SimpleNamespace(id="t", name="admin_list", args={"a": 1}))),
    ],
)
def test_a_tool_use_is_read_from_json_and_from_objects(kind: Kind, value: Any) -> None:
    tools = [ToolSpec("admin.list", "", {})]
    assert DIALECTS[kind].read_tool_use(value, tools) == ToolUse("t", "admin.list", {"a": 1})


@every_kind
@pytest.mark.parametrize("value", [None, {}, {"type": "text", "text": "roll"}, 7])
def test_something_else_is_no_tool_use(kind: Kind, value: Any) -> None:
    with pytest.raises(ValueError, match="this is no"):
        DIALECTS[kind].read_tool_use(value)


def test_a_signature_of_an_sdk_is_bytes() -> None:
    part = SimpleNamespace(function_call=SimpleNamespace(name="roll", args=None), thought_signature=b"sig")
    assert GeminiDialect().read_tool_use(part) == ToolUse("roll", "roll", {}, extra={"thoughtSignature": "c2ln"})


AGAIN = "Call the tool again with one JSON object."


@pytest.mark.parametrize(
    ("found", "arguments", "problem"),
    [
        (None, {}, ""),
        ("", {}, ""),
        (" ", {}, ""),
        ("null", {}, ""),
        ({"a": 1}, {"a": 1}, ""),
        ('{"a": 1}', {"a": 1}, ""),
        ('"{\\"a\\": 1}"', {"a": 1}, ""),
        ("[1]", {}, "The arguments are of type array. Call the tool again with one JSON object."),
        ([1], {}, "The arguments are of type array. Call the tool again with one JSON object."),
        ("6", {}, "The arguments are of type integer. Call the tool again with one JSON object."),
        ("true", {}, "The arguments are of type boolean. Call the tool again with one JSON object."),
        ('"six"', {}, f"The arguments are not valid JSON: JSON is malformed: invalid character (byte 0). {AGAIN}"),
        ('{"a": ', {}, f"The arguments are not valid JSON: Input data was truncated. {AGAIN}"),
    ],
)  # fmt: skip
def test_arguments_become_an_object_or_a_problem_for_the_model(found: Any, arguments: Any, problem: str) -> None:
    assert read_arguments(found) == (arguments, problem)


def test_arguments_without_bottom_are_a_problem_too() -> None:
    arguments, problem = read_arguments("[" * 200_000)
    assert (arguments, problem.startswith("The arguments are not valid JSON")) == ({}, True)


def test_arguments_that_the_bound_cut_say_so() -> None:
    use = {"index": 0, "id": "t", "function": {"name": "roll", "arguments": '{"sid'}}
    chunk = {"choices": [{"delta": {"tool_calls": [use]}, "finish_reason": "length"}]}
    problem = "The arguments are not valid JSON: they were cut off, because the message became too long."
    assert read(OpenAIDialect(), [chunk]) == [
        ToolUse("t", "roll", {}, f"{problem} Call the tool again with one JSON object."),
        Finished("length"),
    ]


# Streams.


def anthropic(*blocks: tuple[Any, list[Any]], reason: str = "end_turn") -> list[Any]:
    events: list[Any] = []
    for index, (block, deltas) in enumerate(blocks):
        events.append({"type": "content_block_start", "index": index, "content_block": block})
        events += [{"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas]
        events.append({"type": "content_block_stop", "index": index})
    return [*events, {"type": "message_delta", "delta": {"stop_reason": reason}}, {"type": "message_stop"}]


THINKING = {"type": "thinking", "thinking": "Dice.", "signature": "c2ln"}
REDACTED = {"type": "redacted_thinking", "data": "xyz"}


def test_thinking_goes_back_as_it_came_and_where_it_stood() -> None:
    thought = [
        {"type": "thinking_delta", "thinking": "Di"},
        {"type": "thinking_delta", "thinking": "ce."},
        {"type": "signature_delta", "signature": "c2ln"},
    ]
    events = anthropic(
        ({"type": "thinking", "thinking": "", "signature": ""}, thought),
        ({"type": "text", "text": ""}, [{"type": "text_delta", "text": "I roll. "}]),
        (REDACTED, []),
        ({"type": "text", "text": ""}, [{"type": "text_delta", "text": "Now."}]),
        ({"type": "tool_use", "id": "t", "name": "roll", "input": {}}, []),
        reason="tool_use",
    )
    came = read(AnthropicDialect(), events)
    assert came == [
        ThoughtDelta("Di"),
        ThoughtDelta("ce."),
        TextDelta("I roll. "),
        TextDelta("Now."),
        Opaque("anthropic", {"part": THINKING, "from": 0, "to": 0}),
        Opaque("anthropic", {"part": REDACTED, "from": 8, "to": 8}),
        ToolUse("t", "roll", {}),
        Finished("tool_use"),
    ]
    spoken = AssistantMessage([Text("I roll. Now."), *(each for each in came if isinstance(each, Opaque | ToolUse))])
    request = ModelRequest([UserMessage([Text("x")]), spoken])
    assert AnthropicDialect().encode_request(request, "m")["messages"][1]["content"][:-1] == [
        THINKING,
        {"type": "text", "text": "I roll. "},
        REDACTED,
        {"type": "text", "text": "Now."},
    ]
    for other in (OpenAIDialect(), GeminiDialect()):
        assert "c2ln" not in str(other.encode_request(request, "m")), "not to anybody else"


def test_thinking_without_a_signature_is_not_kept() -> None:
    thought = [{"type": "thinking_delta", "thinking": "Hm"}]
    assert read(AnthropicDialect(), anthropic(({"type": "thinking", "thinking": ""}, thought))) == [
        ThoughtDelta("Hm"),
        Finished("end"),
    ]


def test_what_a_text_was_signed_with_goes_back_with_that_text() -> None:
    parts = [
        {"text": "Hm", "thought": True},
        {"text": "A "},
        {"text": "four", "thoughtSignature": "c2ln"},
        {"text": "."},
    ]
    content = [{"candidates": [{"content": {"parts": parts}, "finishReason": "STOP"}]}]
    came = read(GeminiDialect(), content)
    kept = Opaque("gemini", {"part": {"text": "four", "thoughtSignature": "c2ln"}, "from": 2, "to": 6})
    assert came == [ThoughtDelta("Hm"), TextDelta("A "), TextDelta("four"), TextDelta("."), kept, Finished("end")]
    request = ModelRequest([AssistantMessage([Text("A four."), kept])])
    assert GeminiDialect().encode_request(request, "m")["contents"][0]["parts"] == [
        {"text": "A "},
        {"text": "four", "thoughtSignature": "c2ln"},
        {"text": "."},
    ]


def test_reasoning_goes_back_with_calls_to_the_same_provider_only() -> None:
    deepseek, mistral = OpenAIDialect(provider="api.deepseek.com"), OpenAIDialect(provider="mistral")
    use = {"index": 0, "id": "t", "function": {"name": "roll", "arguments": "{}"}}
    chunks = [
        {"choices": [{"delta": {"reasoning_content": "Di"}}]},
        {"choices": [{"delta": {"reasoning_content": "ce."}}]},
        {"choices": [{"delta": {"tool_calls": [use]}, "finish_reason": "tool_calls"}]},
    ]
    *thoughts, called, kept, finished = read(deepseek, chunks)
    assert (thoughts, finished) == ([ThoughtDelta("Di"), ThoughtDelta("ce.")], Finished("tool_use"))
    spoken = AssistantMessage([called, kept])  # type: ignore[list-item]
    request = ModelRequest([spoken, ToolMessage([ToolAnswer("t", "roll", "4")])])
    assert deepseek.encode_request(request, "m")["messages"][0]["reasoning_content"] == "Dice."
    assert "reasoning_content" not in mistral.encode_request(request, "m")["messages"][0]


def test_mistral_thinks_in_a_list() -> None:
    thinking = {"type": "thinking", "thinking": [{"type": "text", "text": "Hm"}]}
    chunks = [
        {"choices": [{"delta": {"content": [thinking, {"type": "text", "text": "Hi"}]}, "finish_reason": "stop"}]},
    ]
    assert read(OpenAIDialect(), chunks) == [ThoughtDelta("Hm"), TextDelta("Hi"), Finished("end")]


def openai_calls(*pieces: Any) -> list[Any]:
    return [
        *({"choices": [{"delta": {"tool_calls": [piece]}, "finish_reason": None}]} for piece in pieces),
        {"choices": [{"delta": {}, "finish_reason": "stop"}]},
    ]


def piece(name: str | None, arguments: Any, **members: Any) -> Any:
    return {"function": {"name": name, "arguments": arguments}, **members}


TWO = [("roll", {"sides": 6}), ("roll", {"sides": 8})]


@pytest.mark.parametrize(
    "pieces",
    [
        pytest.param(
            [piece("roll", "", id="a", index=0), piece(None, '{"sides":6}', index=0),
             piece("roll", '{"sides"', id="b", index=1), piece(None, ":8}", index=1)],
            id="openai",
        ),
        pytest.param(
            [piece("roll", '{"sides"', id="a", index=0), piece("roll", '{"sides"', id="b", index=1),
             piece(None, ":6}", index=0), piece(None, ":8}", index=1)],
            id="interleaved",
        ),
        pytest.param(
            [piece("roll", '{"sides":6}', id="a", index=0), piece("roll", '{"sides":8}', id="b", index=0)],
            id="all have the index 0",
        ),
        pytest.param([piece("roll", '{"sides":6}', id="a"), piece("roll", '{"sides":8}', id="b")], id="no index"),
        pytest.param([piece("roll", '{"sides":6}'), piece("roll", '{"sides":8}')], id="neither index nor id"),
        pytest.param([piece("roll", {"sides": 6}), piece("roll", {"sides": 8})], id="objects"),
        pytest.param(
            [piece("roll", '{"sides"', id="a"), piece(None, ":6}", id="a"),
             piece("roll", '{"sides"', id="b"), piece(None, ":8}")],
            id="ids in place of indices",
        ),
        pytest.param(
            [piece("roll", '{"sides"', id="a", index=0), piece("roll", ":6}", id="a", index=0),
             piece("roll", '{"sides":8}', id="b", index=1)],
            id="everything repeated",
        ),
        pytest.param(
            [piece("roll", '{"sides":6}', id="", index=0), piece("roll", '{"sides":8}', id="", index=1)],
            id="empty ids",
        ),
        pytest.param(
            [piece("roll", '{"sides":6}', id="same", index=0), piece("roll", '{"sides":8}', id="same", index=1)],
            id="one id for all",
        ),
    ],
)  # fmt: skip
def test_calls_are_put_together_however_a_server_cuts_them(pieces: list[Any]) -> None:
    *uses, finished = read(OpenAIDialect(), openai_calls(*pieces))
    assert [(use.name, use.arguments) for use in uses if isinstance(use, ToolUse)] == TWO
    assert len({use.id for use in uses if isinstance(use, ToolUse)}) == 2
    assert finished == Finished("tool_use"), "some say stop"


def test_made_up_ids_are_unlike_those_in_the_conversation() -> None:
    before = ModelRequest([AssistantMessage([ToolUse("call_0", "roll", {}), ToolUse("ls0000003", "roll", {})])])
    pieces = openai_calls(piece("roll", "{}", id="call_0", index=0), piece("roll", "{}", index=1))
    uses = [each for each in read(OpenAIDialect(), pieces, request=before) if isinstance(each, ToolUse)]
    assert [use.id for use in uses] == ["ls0000004", "ls0000005"]


@pytest.mark.parametrize(
    ("kind", "events", "finished"),
    [
        ("anthropic", anthropic(reason="max_tokens"), Finished("length")),
        ("anthropic", anthropic(reason="model_context_window_exceeded"), Finished("length")),
        ("anthropic", anthropic(reason="refusal"), Finished("refused")),
        ("anthropic", anthropic(reason="pause_turn"), Finished("end")),
        ("anthropic", anthropic(reason="stop_sequence"), Finished("end")),
        ("openai", [{"choices": [{"delta": {}, "finish_reason": "content_filter"}]}], Finished("refused")),
        ("openai", [{"choices": [{"delta": {}, "finish_reason": "length"}]}], Finished("length")),
        ("openai", [{"choices": [{"delta": {"content": None}, "finish_reason": "eos"}]}], Finished("end")),
        ("gemini", [{"candidates": [{"finishReason": "MAX_TOKENS"}]}], Finished("length")),
        ("gemini", [{"candidates": [{"finishReason": "SAFETY"}]}], Finished("refused")),
        ("gemini", [{"promptFeedback": {"blockReason": "OTHER"}}], Finished("refused")),
        (
            "openai",
            [
                {"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 2, "prompt_cache_hit_tokens": 4}},
                {"choices": [{"delta": {}, "finish_reason": "stop"}], "usage": None},
            ],
            Finished("end", Usage(9, 2, 4)),
        ),
    ],
)
def test_why_a_message_ended(kind: Kind, events: list[Any], finished: Finished) -> None:
    assert read(DIALECTS[kind], events) == [finished]


def test_a_refusal_in_words_is_shown() -> None:
    chunks = [{"choices": [{"delta": {"refusal": "I can't."}}]}, {"choices": [{"delta": {}, "finish_reason": "stop"}]}]
    assert read(OpenAIDialect(), chunks) == [TextDelta("I can't."), Finished("refused")]


@pytest.mark.parametrize(
    ("kind", "event", "status", "text"),
    [
        (
            "anthropic",
            {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}},
            529,
            "Overloaded",
        ),
        ("openai", {"error": {"message": "boom", "type": "server_error"}}, 500, "boom"),
        ("openai", {"error": {"message": "slow", "code": 429}}, 429, "slow"),
        ("openai", {"error": "no memory"}, None, "no memory"),
        ("openai", {"object": "error", "message": "bad", "code": 400}, 400, "bad"),
        ("gemini", {"error": {"code": 503, "message": "busy", "status": "UNAVAILABLE"}}, 503, "busy"),
        ("gemini", [{"error": {"status": "RESOURCE_EXHAUSTED"}}], 429, "RESOURCE_EXHAUSTED"),
    ],
)
def test_an_error_in_the_stream_is_raised(kind: Kind, event: Any, status: int | None, text: str) -> None:
    with pytest.raises(ModelError) as caught:
        DIALECTS[kind].decoder(NOTHING).feed(event)
    assert (str(caught.value), caught.value.status) == (f"the provider reported an error: {text}", status)


def test_a_call_that_gemini_itself_calls_malformed_is_an_error() -> None:
    with pytest.raises(ModelError, match="produced a malformed function call"):
        read(GeminiDialect(), [{"candidates": [{"finishReason": "MALFORMED_FUNCTION_CALL"}]}])


SILENT: list[Any] = [
    None, 7, "x", [], {}, {"type": None}, {"choices": None}, {"choices": [None]}, {"candidates": [{}]},
    {"type": "content_block_delta"}, {"type": "content_block_start"}, {"type": "message_start", "message": []},
]  # fmt: skip


@every_kind
@pytest.mark.parametrize("event", SILENT)
def test_events_that_say_nothing_say_nothing(kind: Kind, event: Any) -> None:
    decoder = DIALECTS[kind].decoder(NOTHING)
    assert decoder.feed(event) == []
    with pytest.raises(ModelError, match=r"cut off|reported an error"):
        decoder.end()
    assert decoder.end(done=True) == [Finished("end")]


@every_kind
def test_a_message_goes_back_and_forth_unchanged(kind: Kind) -> None:
    """What a provider said is sent back to it as it said it, ids and signatures included."""
    dialect = DIALECTS[kind]
    events = [each for each in message(kind, ["I roll.", ("roll", {"sides": 6})]) if each != "[DONE]"]
    came = read(dialect, events)
    parts = [Text("I roll."), *(each for each in came if isinstance(each, ToolUse | Opaque))]
    again = ModelRequest([UserMessage([Text("x")]), AssistantMessage(parts)])
    sent = str(dialect.encode_request(again, "m"))
    wanted = {"anthropic": "toolu_", "openai": "call_", "gemini": "'thoughtSignature': 'c2lnbmVk'"}[kind]
    assert wanted in sent
    assert ("ls0" in sent) is False, "an id of ours is not for Gemini"


ODD: list[Any] = [None, 7, -1, 1.5, True, "x", [], {}, [None], [7], {"type": 7}, {"text": []}]


def with_one_odd_value(value: Any) -> Iterator[Any]:
    """Return every variant of a JSON value in which one value within it is another."""
    yield from ODD
    if isinstance(value, dict):
        for name, each in value.items():
            yield from (value | {name: odd} for odd in with_one_odd_value(each))
    elif isinstance(value, list):
        for place, each in enumerate(value):
            yield from ([*value[:place], odd, *value[place + 1 :]] for odd in with_one_odd_value(each))


@every_kind
def test_no_event_breaks_a_decoder(kind: Kind) -> None:
    events = [each for each in message(kind, ["Hi there", ("roll", {"sides": 6})]) if each != "[DONE]"]
    if kind == "anthropic":
        events += anthropic((THINKING, [{"type": "signature_delta", "signature": "x"}]))
    if kind == "openai":
        details = {
            "reasoning_details": [{"type": "x"}],
            "reasoning_content": "Hm",
            "content": [{"thinking": [{"text": "x"}]}],
        }
        events += [{"choices": [{"delta": details}]}]
    for place, event in enumerate(events):
        for odd in with_one_odd_value(event):
            try:
                *_, finished = read(DIALECTS[kind], [*events[:place], odd, *events[place + 1 :]], done=True)
            except ModelError:
                continue
            assert isinstance(finished, Finished), odd


# Names.


def test_names_that_providers_refuse_are_replaced_and_found_again() -> None:
    long = "a" * 100
    tools = [ToolSpec(name, "", {}) for name in ("a.b", "a/b", "a_b", "7up", long, long + "b", "größe", "")]
    names = ProviderNames(tools)
    wire = [names.to_wire(tool.name) for tool in tools]
    assert wire[:4] == ["a_b_2", "a_b_3", "a_b", "_7up"]
    assert len(set(wire)) == len(tools)
    assert all(len(name) <= 64 for name in wire)
    assert [names.from_wire(name) for name in wire] == [tool.name for tool in tools]
    assert names.to_wire("gone.tool") == safe_name("gone.tool") == "gone_tool"
    assert names.from_wire("unheard_of") == "unheard_of"
