"""Models over real HTTP, in all three wire formats: messages, failures, deadlines, asking again, and keys that stay secret."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Callable, Coroutine
from contextlib import aclosing
from typing import Any

import pytest
from providers import KEY, KINDS, Answer, FakeProvider, Kind, message

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
    ToolAnswer,
    ToolMessage,
    ToolSpec,
    ToolUse,
    Usage,
    UserMessage,
)
from linkspan.host.models import Backoff, ModelTimeouts, OutOfCredit, Unreachable, open_model

every_kind = pytest.mark.parametrize("kind", KINDS)

ROLL = ToolSpec(
    "roll", "Roll dice.", {"type": "object", "properties": {"sides": {"type": "integer"}}, "required": ["sides"]}
)
DOTTED = ToolSpec("admin.tools/list", "List tools.", {"type": "object", "properties": {}})
PIXEL = Picture("iVBORw0KGgo=", "image/png")


def asked(text: str = "Roll two dice", *tools: ToolSpec) -> ModelRequest:
    return ModelRequest([UserMessage([Text(text)])], tools, "Be brief.", 100)


async def all_of(model: Any, request: ModelRequest, seen: list[ModelEvent] | None = None) -> list[ModelEvent]:
    """Return the events; `seen` has those that came before an error."""
    events = seen if seen is not None else []
    async for event in model.reply(request):
        events.append(event)
    return events


def said(events: list[ModelEvent]) -> AssistantMessage:
    """Put a message together as the loop does."""
    text = "".join(event.text for event in events if isinstance(event, TextDelta))
    return AssistantMessage(
        [*([Text(text)] if text else []), *(event for event in events if isinstance(event, ToolUse | Opaque))]
    )


def run(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(test())


class Pauses:
    """A clock that nobody waits for."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    async def __call__(self, seconds: float) -> None:
        self.seconds.append(seconds)


@every_kind
def test_a_question_is_answered_in_pieces_with_the_usage(kind: Kind) -> None:
    async def test() -> None:
        async with FakeProvider(kind, [["Hello there"]]).serving() as provider:
            assert await all_of(provider.open(), asked()) == [
                TextDelta("Hello"),
                TextDelta(" there"),
                Finished("end", Usage(12, 5, 3)),
            ]

    run(test)


@every_kind
def test_parallel_calls_an_error_and_a_picture_go_back_together_and_by_the_rules(kind: Kind) -> None:
    async def test() -> None:
        first = ["Let me see.", ("roll", {"sides": 6}), ("admin_tools_list", {}), ("roll", {"sides": 0})]
        async with FakeProvider(kind, [first, ["A four."]]).serving() as provider:
            model = provider.open()
            request = asked("Roll", ROLL, DOTTED)
            spoken = said(await all_of(model, request))
            assert spoken.text == "Let me see."
            assert [(use.name, use.arguments, use.problem) for use in spoken.tool_uses] == [
                ("roll", {"sides": 6}, ""),
                ("admin.tools/list", {}, ""),
                ("roll", {"sides": 0}, ""),
            ]
            assert len({use.id for use in spoken.tool_uses}) == 3
            six, listed, none = spoken.tool_uses
            answers = [
                ToolAnswer(six.id, six.name, "4", images=[PIXEL]),
                ToolAnswer(listed.id, listed.name, "nothing"),
                ToolAnswer(none.id, none.name, "A die has sides.", is_error=True),
            ]
            then = ModelRequest([*request.messages, spoken, ToolMessage(answers)], request.tools, request.system)
            assert said(await all_of(model, then)).text == "A four."
            assert PIXEL.data in str(provider.requests[1]), "the picture came along"

    run(test)


@every_kind
def test_a_message_is_the_same_in_pieces_of_any_size(kind: Kind) -> None:
    async def test() -> None:
        parts = ["Grüße — 🎲", ("roll", {"sides": 6, "note": "ö🎲"})]
        answers = [Answer(parts, pieces=size) for size in (1, 7, 100_000)]
        async with FakeProvider(kind, answers).serving() as provider:
            for _ in answers:
                spoken = said(await all_of(provider.open(), asked()))
                assert spoken.text == "Grüße — 🎲"
                assert [use.arguments for use in spoken.tool_uses] == [{"sides": 6, "note": "ö🎲"}]

    run(test)


@every_kind
def test_a_stream_that_is_cut_is_an_error_and_no_message(kind: Kind) -> None:
    async def test() -> None:
        whole = message(kind, ["Hello there"])
        cut = whole[: {"anthropic": 4, "openai": 2, "gemini": 1}[kind]]
        async with FakeProvider(kind, [Answer(events=cut)]).serving() as provider:
            events: list[ModelEvent] = []
            with pytest.raises(ModelError, match="was cut off: ask again"):
                await all_of(provider.open(), asked(), events)
            assert events == [TextDelta("Hello")]
            assert len(provider.requests) == 1, "what was begun is not asked again"

    run(test)


BUSY = {"error": {"type": "rate_limit_error", "message": "slow down"}}


@every_kind
@pytest.mark.parametrize("status", [429, 500, 502, 503, 504, 529])
def test_what_passes_is_asked_again_with_longer_and_longer_pauses(kind: Kind, status: int) -> None:
    async def test() -> None:
        busy = [Answer(status=status, body=BUSY)] * 3
        pauses = Pauses()
        async with FakeProvider(kind, [*busy, ["Hello"]]).serving() as provider:
            model = provider.open(sleep=pauses, chance=lambda: 1.0)
            assert said(await all_of(model, asked())).text == "Hello"
            assert pauses.seconds == [1.0, 2.0, 4.0]
            assert provider.requests[0] == provider.requests[3]

    run(test)


def test_retry_after_is_honoured_and_one_that_is_too_long_is_told() -> None:
    async def test() -> None:
        def busy(after: str) -> Answer:
            return Answer(status=429, body=BUSY, headers={"Retry-After": after})

        pauses = Pauses()
        async with FakeProvider("anthropic", [busy("7"), ["Hello"], busy("3600")]).serving() as provider:
            model = provider.open(sleep=pauses)
            assert said(await all_of(model, asked())).text == "Hello"
            assert pauses.seconds == [7.0]
            with pytest.raises(ModelError) as caught:
                await all_of(model, asked())
            assert (caught.value.status, caught.value.retry_after) == (429, 3600.0)
            assert str(caught.value) == (
                "anthropic:some-model: the limit of requests is reached: wait a little, or ask the provider for more "
                "(slow down)"
            )

    run(test)


def test_asking_again_has_an_end() -> None:
    async def test() -> None:
        pauses = Pauses()
        async with FakeProvider("openai", [Answer(status=500, body={})] * 5).serving() as provider:
            with pytest.raises(ModelError, match="the provider failed"):
                await all_of(provider.open(sleep=pauses, chance=lambda: 0.0), asked())
            assert pauses.seconds == [0.5, 1.0, 2.0, 4.0]
            assert provider.answers == []

    run(test)


OVERLOADED = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}


def test_an_error_in_the_stream_is_asked_again_only_while_nothing_was_said() -> None:
    async def test() -> None:
        begun = message("anthropic", ["Hello there"])[:5]
        answers = [Answer(events=[OVERLOADED]), Answer(events=[*begun, OVERLOADED])]
        async with FakeProvider("anthropic", answers).serving() as provider:
            pauses = Pauses()
            events: list[ModelEvent] = []
            with pytest.raises(ModelError, match=r"reported an error: Overloaded$") as caught:
                await all_of(provider.open(sleep=pauses), asked(), events)
            assert caught.value.status == 529
            assert events == [TextDelta("Hello"), TextDelta(" there")]
            assert len(pauses.seconds) == 1

    run(test)


NO_KEY = {"error": {"message": "API key not valid.", "details": [{"reason": "API_KEY_INVALID"}]}}
ESCAPES = {"error": {"message": "bad\x1b[31m schema " + "x" * 900}}
ECHO = {"error": {"message": f"Incorrect API key provided: {KEY}"}}
REFUSALS: list[tuple[Kind, int, Any, str]] = [
    ("anthropic", 401, {"error": {"message": "bad"}}, "the key in ANTHROPIC_API_KEY was refused (bad)"),
    ("openai", 401, ECHO, "the key in OPENAI_API_KEY was refused (Incorrect API key provided: [redacted])"),
    ("gemini", 400, NO_KEY, "the key in GEMINI_API_KEY was refused (API key not valid.)"),
    ("openai", 403, {"error": "no"}, "the key in OPENAI_API_KEY does not permit this (no)"),
    ("openai", 400, ESCAPES, r"the provider refused the request (status 400) (bad\x1b[31m schema "),
    ("openai", 418, "<html>teapot</html>", "the provider refused the request (status 418)"),
    ("openai", 302, "", "answered with status 302, so it may not be the URL of a model: check it"),
]


@pytest.mark.parametrize(("kind", "status", "body", "text"), REFUSALS)
def test_a_refusal_says_what_to_do_and_is_not_repeated(kind: Kind, status: int, body: Any, text: str) -> None:
    async def test() -> None:
        async with FakeProvider(kind, [Answer(status=status, body=body)]).serving() as provider:
            with pytest.raises(ModelError) as caught:
                await all_of(provider.open(), asked())
            assert str(caught.value).startswith(f"{kind}:some-model: ")
            assert text in str(caught.value)
            assert len(str(caught.value)) < 400
            assert caught.value.status == status

    run(test)


def test_a_model_that_does_not_exist_is_named() -> None:
    async def test() -> None:
        gone = {"error": {"message": "model 'some-model' not found"}}
        async with FakeProvider("openai", [Answer(status=404, body=gone)] * 2).serving() as provider:
            with pytest.raises(ModelError) as caught:
                await all_of(open_model("ollama:some-model", environ={"OLLAMA_HOST": provider.url}), asked())
            assert str(caught.value) == (
                f"ollama:some-model: there is no model 'some-model' at {provider.url}/v1: get it with "
                "`ollama pull some-model` (model 'some-model' not found)"
            )
            assert "authorization" not in provider.headers[0]

    run(test)


def test_an_account_without_credit_is_not_asked_again() -> None:
    async def test() -> None:
        broke = {"error": {"message": "You exceeded your quota", "code": "insufficient_quota"}}
        async with FakeProvider("openai", [Answer(status=429, body=broke)]).serving() as provider:
            with pytest.raises(OutOfCredit, match="no credit left"):
                await all_of(provider.open(), asked())

    run(test)


def test_nobody_listening_is_said_after_few_tries() -> None:
    async def test() -> None:
        pauses = Pauses()
        model = open_model("ollama:some-model", environ={"OLLAMA_HOST": "127.0.0.1:1"}, sleep=pauses)
        with pytest.raises(Unreachable) as caught:
            await all_of(model, asked())
        assert str(caught.value) == ("ollama:some-model: nothing listens at http://127.0.0.1:1/v1: is Ollama running?")
        assert len(pauses.seconds) == 2

    run(test)


def test_a_connection_that_breaks_before_the_first_word_is_made_again() -> None:
    async def test() -> None:
        broken = Answer(events=[], cut=True)
        async with FakeProvider("openai", [broken, ["Hello"]]).serving() as provider:
            assert said(await all_of(provider.open(sleep=Pauses()), asked())).text == "Hello"

    run(test)


@pytest.mark.parametrize("events", [0, 4])
def test_silence_ends_at_a_deadline(events: int) -> None:
    async def test() -> None:
        begun = message("anthropic", ["Hello there"])[:events]
        async with FakeProvider("anthropic", [Answer(events=begun, hangs=True)]).serving() as provider:
            model = provider.open(timeouts=ModelTimeouts(first=0.05, idle=0.05))
            with pytest.raises(ModelError, match="sent nothing for too long"):
                await all_of(model, asked())

    run(test)


@pytest.mark.parametrize("kind", ["anthropic", "openai"])
def test_a_message_ends_where_the_provider_says_even_if_the_connection_stays(kind: Kind) -> None:
    async def test() -> None:
        async with FakeProvider(kind, [Answer(["Hello"], hangs=True)]).serving() as provider:
            model = provider.open(timeouts=ModelTimeouts(idle=10.0))
            assert said(await all_of(model, asked())).text == "Hello"

    run(test)


def test_leaving_early_ends_the_request() -> None:
    async def test() -> None:
        begun = message("openai", ["Hello there"])[:2]
        async with FakeProvider("openai", [Answer(events=begun, hangs=True)]).serving() as provider:
            async with aclosing(provider.open().reply(asked())) as events:
                assert await anext(events) == TextDelta("Hello")
            for _ in range(100):
                if all(transport.is_closing() for transport in provider.connections):
                    return
                await asyncio.sleep(0.01)
            pytest.fail("the connection is still open")

    run(test)


def test_connections_are_kept_inside_a_block_only() -> None:
    async def test() -> None:
        async with FakeProvider("openai", [["a"], ["b"], ["c"], ["d"]]).serving() as provider:
            async with provider.open() as model:
                await all_of(model, asked())
                await all_of(model, asked())
            assert len(provider.connections) == 1
            await all_of(model, asked())
            await all_of(model, asked())
            assert len(provider.connections) == 3

    run(test)


WHOLE = {
    "anthropic": {
        "type": "message",
        "content": [{"type": "text", "text": "Hi"}, {"type": "tool_use", "id": "t1", "name": "roll", "input": {"sides": 6}}],
        "stop_reason": "tool_use",
        "usage": {"input_tokens": 12, "output_tokens": 5},
    },
    "openai": {
        "choices": [
            {
                "message": {
                    "content": "Hi",
                    "tool_calls": [{"id": "t1", "function": {"name": "roll", "arguments": {"sides": 6}}}],
                },
                "finish_reason": "stop",
            }
        ],
        "usage": {"prompt_tokens": 12, "completion_tokens": 5},
    },
    "gemini": [
        {
            "candidates": [
                {
                    "content": {
                        "parts": [{"text": "Hi"}, {"functionCall": {"id": "t1", "name": "roll", "args": {"sides": 6}}}]
                    },
                    "finishReason": "STOP",
                }
            ],
            "usageMetadata": {"promptTokenCount": 12, "candidatesTokenCount": 5},
        }
    ],
}  # fmt: skip


@every_kind
def test_an_answer_that_does_not_stream_is_read_too(kind: Kind) -> None:
    async def test() -> None:
        async with FakeProvider(kind, [Answer(body=WHOLE[kind])]).serving() as provider:
            assert await all_of(provider.open(), asked()) == [
                TextDelta("Hi"),
                ToolUse("t1", "roll", {"sides": 6}),
                Finished("tool_use", Usage(12, 5)),
            ]

    run(test)


@every_kind
def test_an_answer_that_is_a_page_is_no_model(kind: Kind) -> None:
    async def test() -> None:
        async with FakeProvider(kind, [Answer(body="<html>Hello</html>")]).serving() as provider:
            with pytest.raises(
                ModelError, match=r"text/html and no events: check that http://\S+ is the URL of a model"
            ):
                await all_of(provider.open(), asked())

    run(test)


def test_halves_of_characters_do_not_stop_a_request() -> None:
    async def test() -> None:
        async with FakeProvider("openai", [["Hello"]]).serving() as provider:
            assert said(await all_of(provider.open(), asked("a\ud83d b"))).text == "Hello"
            assert provider.requests[0]["messages"][-1] == {"role": "user", "content": "a? b"}

    run(test)


def test_options_and_headers_of_the_user_come_along() -> None:
    async def test() -> None:
        async with FakeProvider("anthropic", [["Hello"]]).serving() as provider:
            await all_of(provider.open(options={"temperature": 0}, headers={"X-Team": "dice"}), asked())
            assert provider.requests[0]["temperature"] == 0
            assert provider.headers[0]["x-team"] == "dice"

    run(test)


@every_kind
def test_the_key_goes_to_the_provider_and_nowhere_else(kind: Kind) -> None:
    async def test() -> None:
        echo = {"error": {"message": f"no: {KEY}", "type": KEY}}
        streamed = {"type": "error", "error": {"type": "invalid_request_error", "message": f"your key is {KEY}"}}
        answers = [Answer(status=400, body=echo), Answer(status=500, body=f"key {KEY}"), Answer(events=[streamed])]
        async with FakeProvider(kind, answers).serving() as provider:
            model = provider.open(backoff=Backoff(attempts=1))
            assert KEY not in repr(model) + repr(model.address) + model.name + repr(model.dialect)
            for number in range(3):
                with pytest.raises(ModelError) as caught:
                    await all_of(model, asked())
                shown = "".join(traceback.format_exception(caught.value))
                assert KEY not in shown
                assert KEY in str(provider.headers[number]), "the provider gets it in a header"
            assert KEY not in "".join(provider.paths), "a URL is written into logs"

    run(test)
