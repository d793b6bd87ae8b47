"""A model for tests that says what it is told to, and can be held in the middle of a word."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Any, TypeAlias

from linkspan.host.conversation import ChatEvent, Conversation
from linkspan.host.messages import (
    AssistantMessage,
    Finished,
    Message,
    ModelEvent,
    ModelRequest,
    TextDelta,
    ToolMessage,
    ToolUse,
    Usage,
    UserMessage,
)

Part: TypeAlias = str | ToolUse | asyncio.Event | ModelEvent
Reply: TypeAlias = str | Exception | Sequence[Part]


class Says:
    """Gives these replies, one after the other; a function is given the request. At an Event it waits."""

    name = "test:says"

    def __init__(self, *replies: Reply | Callable[[ModelRequest], Reply], tokens: int = 0) -> None:
        self._replies = list(replies)
        self._tokens = tokens
        self.requests: list[ModelRequest] = []
        self.closed = 0

    async def reply(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        self.requests.append(request)
        reply = self._replies.pop(0)
        found = reply(request) if callable(reply) else reply
        if isinstance(found, Exception):
            raise found
        parts: Sequence[Part] = [found] if isinstance(found, str) else found
        try:
            for part in parts:
                if isinstance(part, asyncio.Event):
                    await part.wait()
                elif isinstance(part, str):
                    for word in part.split(" "):
                        yield TextDelta(f"{word} " if word != part.split(" ")[-1] else word)
                elif not isinstance(part, ToolUse):
                    yield part
        finally:
            self.closed += 1
        uses = [part for part in parts if isinstance(part, ToolUse)]
        for use in uses:
            yield use
        if not any(isinstance(part, Finished) for part in parts):
            yield Finished("tool_use" if uses else "end", Usage(self._tokens, 0))

    def told(self) -> list[str]:
        """Return what the tools answered, as the last request has it."""
        last = self.requests[-1].messages[-1]
        assert isinstance(last, ToolMessage)
        return [answer.text for answer in last.answers]


_count = iter(range(1, 100_000))


def use(name: str, /, **arguments: Any) -> ToolUse:
    return ToolUse(f"u{next(_count)}", name, arguments)


async def turn(chat: Conversation, said: str = "Go on") -> list[ChatEvent]:
    """Take a turn; return its events."""
    return [event async for event in chat.ask(said)]


def sendable(messages: Sequence[Message]) -> bool:
    """Tell whether every provider would take these messages, with something of the person's after them."""
    expected: type[Message] = UserMessage
    wanted: list[str] = []
    for message in messages:
        if isinstance(message, AssistantMessage):
            if expected is not AssistantMessage or not message.parts:
                return False
            wanted = [each.id for each in message.tool_uses]
            expected = ToolMessage if wanted else UserMessage
        elif not isinstance(message, expected):
            return False
        else:
            if isinstance(message, ToolMessage) and [each.id for each in message.answers] != wanted:
                return False
            expected = AssistantMessage
    return expected is UserMessage
