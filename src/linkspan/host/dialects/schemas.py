"""Schemas as a provider accepts them."""

from __future__ import annotations

from typing import Literal

from linkspan.types.base import JSONObject

__all__ = ["convert"]


def convert(schema: JSONObject, provider: Literal["openai", "anthropic", "gemini"]) -> tuple[JSONObject, list[str]]:
    """Return the schema as it is, and no losses."""
    return schema, []
