"""Tool schemas of foreign servers, brought down to what a provider of models accepts, with every loss said."""

from __future__ import annotations

from typing import Literal, TypeAlias

from linkspan.types.base import JSONObject

__all__ = ["Provider", "convert"]

Provider: TypeAlias = Literal["openai", "anthropic", "gemini"]
"""A wire format of models; "openai" also stands for all that speak its chat completions."""


def convert(schema: JSONObject, provider: Provider) -> tuple[JSONObject, list[str]]:
    """Return an input schema as the provider accepts it, and in plain words what it does not say any more."""
    return schema, []
