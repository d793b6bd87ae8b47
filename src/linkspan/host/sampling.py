"""Texts that a server wants from the host's model: given by the model of the conversation, if the person agrees.

Spec: https://modelcontextprotocol.io/specification/2026-07-28/client/sampling (SAM-1 to SAM-10).
Tools are not declared, so no server offers any.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import aclosing
from typing import Any, Final, TypeAlias

from linkspan.flows.answers import Refused
from linkspan.host.consent import settled
from linkspan.host.messages import (
    AssistantMessage,
    Finished,
    Message,
    Model,
    ModelError,
    ModelRequest,
    Picture,
    Text,
    TextDelta,
    UserMessage,
)
from linkspan.types.base import ImageContent, TextContent, is_array
from linkspan.types.messages import CreateMessageParams, CreateMessageResult

SamplingApprover: TypeAlias = Callable[[str, CreateMessageParams], bool | Awaitable[bool]]
"""Is given the server's name and what it wants; True lets the model answer."""

_MOST_TOKENS: Final = 4096
"""Of one answer, whatever the server wants: the person pays for it."""
_STOP_REASONS: Final = {"end": "endTurn", "tool_use": "endTurn", "length": "maxTokens", "refused": "refusal"}


def sample_with(
    model: Model | Callable[[], Model],
    approve: SamplingApprover,
    review: Callable[[str, str], bool | Awaitable[bool]] | None = None,
) -> Callable[[str, CreateMessageParams], Awaitable[CreateMessageResult]]:
    """Return what a `Host` takes as `sampling=`: after `approve`, the model writes the text that a server wants.

    `model` may be a function, where the model changes from time to time. `review` is given the server's name and the text that
    was written; True sends it.
    """

    async def sample(server: str, params: CreateMessageParams) -> CreateMessageResult:
        request = sampling_request(params)
        if not await settled(approve(server, params)):
            raise Refused
        chosen: Model = model() if callable(model) else model
        try:
            text, finished = "", None
            async with aclosing(chosen.reply(request)) as events:
                async for event in events:
                    if isinstance(event, TextDelta):
                        text += event.text
                    elif isinstance(event, Finished):
                        finished = event
        except ModelError:
            raise Refused("the model gave no answer") from None  # the reason is for the user only
        if finished is None:
            raise Refused("the model gave no answer")
        if review is not None and not await settled(review(server, text)):
            raise Refused
        return CreateMessageResult("assistant", TextContent(text), chosen.name, _STOP_REASONS[finished.reason])

    return sample


def sampling_request(params: CreateMessageParams) -> ModelRequest:
    """Return what a server wants as a request to a model. Raises: Refused for content that models here do not take."""
    messages: list[Message] = []
    for message in params.messages:
        content: Any = message.content
        parts: list[Text | Picture] = []
        for block in content if is_array(content) else [content]:
            match block:
                case TextContent():
                    parts.append(Text(block.text))
                case ImageContent():
                    parts.append(Picture(block.data, block.mime_type))
                case _:
                    raise Refused("only texts and pictures can be shown to this model")
        texts = [part for part in parts if isinstance(part, Text)]
        if message.role != "user" and len(texts) < len(parts):
            raise Refused("only the user can show pictures")
        made = UserMessage(parts) if message.role == "user" else AssistantMessage(texts)
        last = messages[-1] if messages else None
        if isinstance(last, UserMessage) and isinstance(made, UserMessage):
            messages[-1] = UserMessage([*last.parts, *made.parts])
        elif isinstance(last, AssistantMessage) and isinstance(made, AssistantMessage):
            messages[-1] = AssistantMessage([*last.parts, *made.parts])
        else:
            messages.append(made)
    if not messages or isinstance(messages[0], AssistantMessage):
        raise Refused("the messages must begin with one of the user")
    return ModelRequest(messages, system=params.system_prompt, max_tokens=max(1, min(params.max_tokens, _MOST_TOKENS)))
