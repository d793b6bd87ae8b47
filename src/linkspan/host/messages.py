"""The messages between a user, a model and tools, independent of any wire format. Values without behaviour.

A conversation alternates: a `UserMessage` or a `ToolMessage`, then an `AssistantMessage`. All answers to the tool calls of one
assistant message go back together, in one `ToolMessage`: providers refuse a call that is left without its answer.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from typing import Final, Literal, Protocol, TypeAlias

import msgspec

from linkspan.errors import LinkspanError
from linkspan.types.base import JSON, JSONObject

CHARACTERS_OF_A_TOKEN: Final = 4
"""What budgets count with, where no provider does: about right for most texts and models."""


class Text(msgspec.Struct, frozen=True, tag="text"):
    """Words."""

    text: str


class Picture(msgspec.Struct, frozen=True, tag="image"):
    """A picture, base64, for models that see."""

    data: str
    mime_type: str


class ToolUse(msgspec.Struct, frozen=True, tag="tool_use"):
    """The model wants a tool to be called."""

    id: str
    """As the provider gave it, or made up where a provider gives none; unique within the conversation."""
    name: str
    """The tool's name in the catalogue that the model was shown."""
    arguments: JSONObject
    problem: str = ""
    """What is wrong with the arguments, if they were not a JSON object; for the model, which may correct it."""
    extra: JSON = None
    """What the provider wants back with this call, as it came (a signature of its thoughts)."""


class Opaque(msgspec.Struct, frozen=True, tag="opaque"):
    """Something of the provider's own (a signed thought), which goes back to that provider as it came, and to no other."""

    provider: str
    data: JSON


class ToolAnswer(msgspec.Struct, frozen=True):
    """The answer to a tool call, as the model receives it."""

    id: str
    """Of the `ToolUse`."""
    name: str
    text: str
    is_error: bool = False
    images: Sequence[Picture] = ()


class UserMessage(msgspec.Struct, frozen=True, tag="user"):
    """The person speaks."""

    parts: Sequence[Text | Picture]


class AssistantMessage(msgspec.Struct, frozen=True, tag="assistant"):
    """The model speaks, and wants tools to be called. Parts are in the order in which they came."""

    parts: Sequence[Text | ToolUse | Opaque]

    @property
    def text(self) -> str:
        """The words."""
        return "".join(part.text for part in self.parts if isinstance(part, Text))

    @property
    def tool_uses(self) -> list[ToolUse]:
        """The calls."""
        return [part for part in self.parts if isinstance(part, ToolUse)]


class ToolMessage(msgspec.Struct, frozen=True, tag="tools"):
    """The answers to all calls of one assistant message, in their order."""

    answers: Sequence[ToolAnswer]


Message: TypeAlias = UserMessage | AssistantMessage | ToolMessage
"""One message of a conversation."""


class ToolSpec(msgspec.Struct, frozen=True):
    """A tool as a model receives it, with its server's schema."""

    name: str
    description: str
    schema: JSONObject


class ModelRequest(msgspec.Struct, frozen=True):
    """Everything that a model needs for its next message."""

    messages: Sequence[Message]
    tools: Sequence[ToolSpec] = ()
    system: str | None = None
    max_tokens: int = 4096


# What comes while a model speaks. Then follow, once each and at the end: ToolUse, Opaque (in their order), Finished.


class TextDelta(msgspec.Struct, frozen=True):
    """Some more words."""

    text: str


class ThoughtDelta(msgspec.Struct, frozen=True):
    """Some more of what the model thinks, where the provider tells; it is not part of the answer."""

    text: str


class Usage(msgspec.Struct, frozen=True):
    """Tokens of one message, as the provider counts them; 0 where it does not say."""

    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    """Those of `input_tokens` that the provider had kept from an earlier request."""
    cost: float = 0.0
    """In US dollars, where the provider names it."""


class Finished(msgspec.Struct, frozen=True):
    """The message is complete. `length`: it was cut at `max_tokens`; `refused`: the provider held it back."""

    reason: Literal["end", "tool_use", "length", "refused"]
    usage: Usage = Usage()


ModelEvent: TypeAlias = TextDelta | ThoughtDelta | ToolUse | Opaque | Finished
"""One part of a reply, as `Model.stream` yields it. The last one is `Finished`."""


class Model(Protocol):
    """A language model: anything with these two."""

    @property
    def name(self) -> str:
        """What people call it, for example "anthropic:claude-sonnet-4-5"."""
        ...

    def reply(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """Return the next message as it comes; the last event is `Finished`. Raises: ModelError.

        Closing the generator early ends the request.
        """
        ...


class ModelError(LinkspanError):
    """The provider gave no answer. The text is for people: whose fault, and what to do."""

    def __init__(self, message: str, *, status: int | None = None, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.status = status
        """The HTTP status, where there was one."""
        self.retry_after = retry_after
        """Seconds to wait before the next request, if the provider named them."""
