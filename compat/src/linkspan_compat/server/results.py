"""Results of tools as content, for the SDK's FastMCP and MCPServer."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from linkspan_compat.protocol.current import TYPES

__all__ = ["content_of", "typed"]


def content_of(result: Any) -> list[Any]:
    """Return a result as content: ready blocks as they are, texts, and anything else as JSON."""
    if result is None:
        return []
    if isinstance(result, str):
        return [{"type": "text", "text": result}]
    if is_block(result):
        return [result]
    if hasattr(result, "to_image_content"):
        return [result.to_image_content()]
    if hasattr(result, "to_audio_content"):
        return [result.to_audio_content()]
    if isinstance(result, list | tuple):
        return [block for each in result for block in content_of(each)]
    return [{"type": "text", "text": indented(result)}]


def indented(value: Any) -> str:
    """Return a value as JSON in lines; what JSON has no form for becomes text."""
    import pydantic_core

    return pydantic_core.to_json(value, fallback=str, indent=2).decode()


def is_block(value: Any) -> bool:
    """Return whether a value is a content block: only then are the types of the protocol loaded."""
    if not hasattr(type(value), "model_fields"):
        return False
    return isinstance(value, TYPES["ContentBlock"])


def typed(blocks: Iterable[Any]) -> list[Any]:
    """Return blocks as models."""
    return [TYPES["TextContent"](type="text", text=each["text"]) if isinstance(each, dict) else each for each in blocks]
