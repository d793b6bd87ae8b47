"""Texts that servers want from the host's model (SAM-1 to SAM-4, SAM-9, SAM-10)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from host.saying import Says, use
from linkspan import Context, Refused, Server
from linkspan.host.consent import Policy
from linkspan.host.host import Host
from linkspan.host.messages import AssistantMessage, Finished, ModelError, ModelRequest, Picture, Text, UserMessage
from linkspan.host.results import unmarked
from linkspan.host.sampling import sample_with, sampling_request
from linkspan.types.base import AudioContent, ImageContent, TextContent
from linkspan.types.messages import CreateMessageParams, CreateMessageResult, SamplingMessage

ASKED = CreateMessageParams([SamplingMessage("user", TextContent("Write."))], 50)


def test_what_a_server_wants_becomes_a_request_in_which_people_and_model_alternate() -> None:
    params = CreateMessageParams(
        [
            SamplingMessage("user", TextContent("Look:")),
            SamplingMessage("user", [ImageContent("AAAA", "image/png"), TextContent("What is it?")]),
            SamplingMessage("assistant", TextContent("A hat.")),
            SamplingMessage("user", TextContent("Sure?")),
        ],
        1_000_000,
        system_prompt="Be brief.",
    )
    assert sampling_request(params) == ModelRequest(
        [
            UserMessage([Text("Look:"), Picture("AAAA", "image/png"), Text("What is it?")]),
            AssistantMessage([Text("A hat.")]),
            UserMessage([Text("Sure?")]),
        ],
        system="Be brief.",
        max_tokens=4096,
    )


@pytest.mark.parametrize(
    "messages",
    [
        [],
        [SamplingMessage("assistant", TextContent("I begin."))],
        [SamplingMessage("user", AudioContent("AAAA", "audio/wav"))],
        [SamplingMessage("user", TextContent("x")), SamplingMessage("assistant", ImageContent("AAAA", "image/png"))],
    ],
)
def test_what_no_model_takes_is_refused(messages: Sequence[SamplingMessage]) -> None:
    with pytest.raises(Refused):
        sampling_request(CreateMessageParams(list(messages), 10))


@pytest.mark.parametrize(
    ("reason", "stop_reason"), [("end", "endTurn"), ("length", "maxTokens"), ("refused", "refusal")]
)
def test_the_answer_says_why_it_ended(reason: Any, stop_reason: str) -> None:
    sample = sample_with(Says(["Two lines.", Finished(reason)]), lambda server, params: True)
    answer = asyncio.run(_given(sample, ASKED))
    assert answer == CreateMessageResult("assistant", TextContent("Two lines."), "test:says", stop_reason)


@pytest.mark.parametrize(
    ("agrees", "sends", "reply", "asked"),
    [(False, True, "never", 0), (True, False, "secret", 1), (True, True, ModelError("key sk-123 is wrong"), 1)],
)
def test_without_the_persons_will_or_a_model_nothing_is_sent(
    agrees: bool, sends: bool, reply: str | Exception, asked: int
) -> None:
    model = Says(reply)
    sample = sample_with(model, lambda server, params: agrees, lambda server, text: sends)
    with pytest.raises(Refused) as refusal:
        asyncio.run(_given(sample, ASKED))
    assert "sk-123" not in str(refusal.value)
    assert len(model.requests) == asked


def test_a_server_gets_its_text_in_the_middle_of_a_call() -> None:
    server = Server("poet")

    @server.tool
    async def poem(ctx: Context) -> str:
        """Write a poem."""
        written = ctx.sample("Two lines about ferries", max_tokens=100)
        return f"Here: {written.content.text}"

    shown: list[tuple[str, int]] = []

    def approve(name: str, params: CreateMessageParams) -> bool:
        shown.append((name, params.max_tokens))
        return True

    async def work() -> None:
        sampling = sample_with(lambda: Says("They come, they go."), approve)
        async with Host({"poet": server}, policy=Policy(otherwise="allow"), sampling=sampling) as host:
            answer = await host.call(use("poem"))
            assert unmarked(answer.text) == "Here: They come, they go."
            assert shown == [("poet", 100)]

    asyncio.run(work())


async def _given(sample: Any, params: CreateMessageParams) -> CreateMessageResult:
    answer: CreateMessageResult = await sample("poet", params)
    return answer
