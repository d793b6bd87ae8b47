"""Clients of the providers' own SDKs, by objects of their shapes."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator
from typing import Any

import pytest
from providers import KEY, KINDS, Kind, message

from linkspan.host.messages import (
    AssistantMessage,
    Finished,
    ModelError,
    ModelEvent,
    ModelRequest,
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
from linkspan.host.models import SdkModel, Unreachable

every_kind = pytest.mark.parametrize("kind", KINDS)
ROLL = ToolSpec("roll", "Roll dice.", {"type": "object", "properties": {"sides": {"type": "integer"}}})


class Event:
    """An event as the SDKs give it: a model of pydantic's."""

    def __init__(self, value: Any) -> None:
        self._value = value

    def model_dump(self, *, mode: str, by_alias: bool, exclude_none: bool) -> Any:
        assert (mode, by_alias, exclude_none) == ("json", True, True)
        return self._value


class Stream:
    """A stream that notes that it was closed."""

    def __init__(self, events: list[Any], error: Exception | None) -> None:
        self._events, self._error = events, error
        self.closed = False

    async def __aiter__(self) -> AsyncIterator[Any]:
        for event in self._events:
            yield Event(event)
        if self._error is not None:
            raise self._error

    async def close(self) -> None:
        self.closed = True


class Client:
    """What the three clients have in common, and where each of them has it."""

    def __init__(self, kind: Kind, events: list[Any] = [], error: Exception | None = None) -> None:  # noqa: B006
        self.api_key = KEY
        self.asked: list[Any] = []
        self.stream = Stream([each for each in events if each != "[DONE]"], error)
        self.create = self.generate_content_stream = self._answer
        if kind == "openai":
            self.chat = self.completions = self
        elif kind == "anthropic":
            self.messages = self
        else:
            self.aio = self.models = self

    async def _answer(self, **arguments: Any) -> Stream:
        self.asked.append(arguments)
        if not self.stream._events and self.stream._error is not None:
            raise self.stream._error
        return self.stream


def reply(model: SdkModel, request: ModelRequest) -> list[ModelEvent]:
    async def run() -> list[ModelEvent]:
        return [event async for event in model.reply(request)]

    return asyncio.run(run())


def asked() -> ModelRequest:
    return ModelRequest([UserMessage([Text("Roll"), Picture("AAAA", "image/png")])], [ROLL], "Be brief.", 64)


@every_kind
def test_a_clients_stream_is_read_in_its_dialect_and_closed(kind: Kind) -> None:
    client = Client(kind, message(kind, ["I roll.", ("roll", {"sides": 6})]))
    model = SdkModel(client, "some-model")
    *said, use, finished = reply(model, asked())
    assert said == [TextDelta("I r"), TextDelta("oll.")]
    assert isinstance(use, ToolUse)
    assert (use.name, use.arguments) == ("roll", {"sides": 6})
    assert finished == Finished("tool_use", Usage(12, 5, 3))
    assert client.stream.closed
    assert model.name == f"{kind}:some-model"


def test_openai_and_anthropic_are_given_what_goes_over_the_wire() -> None:
    for kind in ("openai", "anthropic"):
        client = Client(kind, message(kind, ["Hi"]))
        model = SdkModel(client, "some-model", options={"temperature": 0})
        reply(model, asked())
        assert client.asked == [model.dialect.encode_request(asked(), "some-model") | {"temperature": 0}]


def test_google_is_given_contents_and_a_config_with_bytes_where_it_wants_them() -> None:
    client = Client("gemini", message("gemini", ["Hi"]))
    use = ToolUse("t", "roll", {"data": "AAAA"}, extra={"thoughtSignature": "-_-_"})
    request = asked()
    request = ModelRequest(
        [*request.messages, AssistantMessage([use]), ToolMessage([ToolAnswer("t", "roll", "4")])], (), "Be brief.", 64
    )
    reply(SdkModel(client, "some-model", options={"temperature": 0}), request)
    call = {"name": "roll", "args": {"data": "AAAA"}, "id": "t"}
    answer = {"name": "roll", "response": {"output": "4"}, "id": "t"}
    assert client.asked == [
        {
            "model": "some-model",
            "contents": [
                {
                    "role": "user",
                    "parts": [{"text": "Roll"}, {"inlineData": {"mimeType": "image/png", "data": b"\0\0\0"}}],
                },
                {
                    "role": "model",
                    "parts": [{"functionCall": call, "thoughtSignature": base64.urlsafe_b64decode("-_-_")}],
                },
                {"role": "user", "parts": [{"functionResponse": answer}]},
            ],
            "config": {
                "systemInstruction": {"parts": [{"text": "Be brief."}]},
                "automaticFunctionCalling": {"disable": True},
                "maxOutputTokens": 64,
                "temperature": 0,
            },
        }
    ]


class APIStatusError(Exception):
    def __init__(self, status: int, body: Any) -> None:
        super().__init__(f"Error code: {status} - {body}")
        self.status_code = status
        self.body = body


@every_kind
def test_an_sdks_error_becomes_one_of_ours_without_the_key(kind: Kind) -> None:
    refused = Client(kind, error=APIStatusError(401, {"error": {"message": f"bad key {KEY}"}}))
    with pytest.raises(ModelError) as caught:
        reply(SdkModel(refused, "m"), asked())
    assert (str(caught.value), caught.value.status) == (f"{kind}:m: the key was refused (bad key [redacted])", 401)
    assert caught.value.__cause__ is None
    assert KEY not in repr(SdkModel(refused, "m"))


@every_kind
def test_a_stream_that_breaks_is_an_error(kind: Kind) -> None:
    broken = Client(kind, message(kind, ["Hello there"])[:1], ConnectionError("gone"))
    with pytest.raises(Unreachable, match=f"{kind}:m: the SDK failed with ConnectionError: gone"):
        reply(SdkModel(broken, "m"), asked())
    assert broken.stream.closed


@pytest.mark.parametrize("kind", ["anthropic", "gemini"])
def test_a_stream_that_ends_in_the_middle_of_a_message_is_no_answer(kind: Kind) -> None:
    cut = Client(kind, message(kind, ["Hello there"])[: 3 if kind == "anthropic" else 1])
    with pytest.raises(ModelError, match=f"{kind}:m: the response of the provider was cut off: ask again"):
        reply(SdkModel(cut, "m"), asked())


def test_clients_that_block_and_other_things_are_refused() -> None:
    class SyncAPIClient:
        pass

    class OpenAI(SyncAPIClient):
        pass

    with pytest.raises(TypeError, match="OpenAI is synchronous: pass the asynchronous client, AsyncOpenAI"):
        SdkModel(OpenAI(), "m")
    with pytest.raises(TypeError, match="is not a model client"):
        SdkModel(object(), "m")
