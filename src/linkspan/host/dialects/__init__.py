"""How each provider writes what `host.messages` describes. Pure functions and machines: no I/O, no clock, no keys.

A dialect encodes a request and reads the response; `HttpModel` and `SdkModel` carry the bytes. `native_tools`, `read_tool_use`
and `answer_block` serve loops that call the provider themselves.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Protocol

import msgspec

from linkspan.host.dialects.anthropic import AnthropicDialect
from linkspan.host.dialects.gemini import GeminiDialect
from linkspan.host.dialects.openai import OpenAIDialect
from linkspan.host.dialects.shared import member
from linkspan.host.messages import ModelEvent, ModelRequest, ToolAnswer, ToolSpec, ToolUse
from linkspan.schema.provider_schemas import Provider
from linkspan.types.base import JSON, JSONObject

__all__ = ["Dialect", "StreamDecoder", "Tools", "answer_block", "native_tools", "provider_of", "read_tool_use"]


class StreamDecoder(Protocol):
    """Reads one message as it comes."""

    @property
    def complete(self) -> bool:
        """Return whether the provider has ended the message."""
        ...

    def feed(self, event: JSON) -> list[ModelEvent]:
        """Take one event of the stream, or a whole answer; return what it adds. Raises: ModelError."""
        ...

    def end(self, *, done: bool = False) -> list[ModelEvent]:
        """Return the last events: tool uses and what is opaque, in their order, then `Finished`.

        `done`: the transport knows that the stream was not cut off. Raises: ModelError if it was.
        """
        ...


class Dialect(Protocol):
    """One wire format."""

    @property
    def provider(self) -> str:
        """Whose opaque parts go back to it."""
        ...

    def path(self, model: str) -> str:
        """Return where to POST, below the base URL."""
        ...

    def headers(self, key: str | None) -> Mapping[str, str]:
        """Return the headers that carry the key, and those that the provider demands."""
        ...

    def encode_request(self, request: ModelRequest, model: str) -> JSONObject:
        """Return the whole body, for an answer that streams."""
        ...

    def encode_tools(self, tools: Sequence[ToolSpec]) -> tuple[list[JSONObject], list[str]]:
        """Return tools as the provider wants them, and in words what their schemas lost."""
        ...

    def encode_answer(self, answer: ToolAnswer) -> JSONObject:
        """Return the answer to one call in the provider's format."""
        ...

    def read_tool_use(self, value: object, tools: Sequence[ToolSpec] = ()) -> ToolUse:
        """Read a tool use from the provider's JSON or its SDK's object. `tools` are those that the model was shown.

        Raises: ValueError for something else.
        """
        ...

    def decoder(self, request: ModelRequest) -> StreamDecoder:
        """Return what reads the answer to this request."""
        ...


_DIALECTS: Final[Mapping[Provider, Dialect]] = {
    "anthropic": AnthropicDialect(),
    "openai": OpenAIDialect(),
    "gemini": GeminiDialect(),
}


class Tools(list[JSONObject]):
    """Tools in a provider's format; `losses` lists in words what the provider's format cannot express."""

    def __init__(self, tools: Iterable[JSONObject] = (), losses: Sequence[str] = ()) -> None:
        super().__init__(tools)
        self.losses = list(losses)


def native_tools(specs: Sequence[ToolSpec], provider: Provider) -> Tools:
    """Return tools as the provider wants them. Raises: ValueError for an unknown provider."""
    if provider not in _DIALECTS:
        raise ValueError(f"there is no provider {provider!r}: use one of {', '.join(_DIALECTS)}")
    return Tools(*_DIALECTS[provider].encode_tools(specs))


def provider_of(value: object) -> Provider:
    """Return whose tool use that is, from its shape. Raises: ValueError for something else."""
    if member(value, "type") == "tool_use":
        return "anthropic"
    if member(value, "function") is not None or member(value, "type") == "function_call":
        return "openai"
    if isinstance(member(member(value, "functionCall", "function_call") or value, "name"), str):
        return "gemini"
    raise ValueError(
        "this is not a tool use: pass Anthropic's content block, OpenAI's tool call or Gemini's function call"
    )


def read_tool_use(value: object, specs: Sequence[ToolSpec]) -> ToolUse:
    """Read a provider's tool use, as JSON or as its SDK's object. Raises: ValueError for something else."""
    return _DIALECTS[provider_of(value)].read_tool_use(value, specs)


def answer_block(answer: ToolAnswer, provider: Provider) -> JSONObject:
    """Return an answer as the provider wants it. Only Anthropic takes pictures with it; the text mentions the others'."""
    kept = answer if provider == "anthropic" else msgspec.structs.replace(answer, images=())
    return _DIALECTS[provider].encode_answer(kept)
