"""Tools, tool uses and answers as a provider writes them, for loops that speak to the provider themselves. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from linkspan.host.dialects import Dialect
from linkspan.host.dialects.anthropic import AnthropicDialect
from linkspan.host.dialects.gemini import GeminiDialect
from linkspan.host.dialects.openai import OpenAIDialect
from linkspan.host.dialects.reading import member
from linkspan.host.messages import ToolAnswer, ToolSpec, ToolUse
from linkspan.schema.providers import Provider
from linkspan.types.base import JSONObject

__all__ = ["Tools", "answer_block", "native_tools", "provider_of", "read_tool_use"]

_DIALECTS: Final[Mapping[Provider, Dialect]] = {
    "anthropic": AnthropicDialect(),
    "openai": OpenAIDialect(),
    "gemini": GeminiDialect(),
}


class Tools(list[JSONObject]):
    """Tools in a provider's format; `losses` says in words what the provider cannot be told of them."""

    def __init__(self, tools: Iterable[JSONObject] = (), losses: Sequence[str] = ()) -> None:
        super().__init__(tools)
        self.losses = list(losses)


def native_tools(specs: Sequence[ToolSpec], provider: Provider) -> Tools:
    """Return tools as the provider wants them. Raises: ValueError for a provider that nobody knows."""
    if provider not in _DIALECTS:
        raise ValueError(f"there is no provider {provider!r}: take one of {', '.join(_DIALECTS)}")
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
        "this is not a tool use: give Anthropic's content block, OpenAI's tool call or Gemini's function call"
    )


def read_tool_use(value: object, specs: Sequence[ToolSpec]) -> ToolUse:
    """Read a provider's tool use, as JSON or as its SDK's object. Raises: ValueError for something else."""
    return _DIALECTS[provider_of(value)].read_tool_use(value, specs)


def answer_block(answer: ToolAnswer, provider: Provider) -> JSONObject:
    """Return an answer as the provider wants it. Only Anthropic takes pictures with it; the text tells of the others'."""
    kept = answer if provider == "anthropic" else msgspec.structs.replace(answer, images=())
    return _DIALECTS[provider].encode_answer(kept)
