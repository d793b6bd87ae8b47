"""Prompts, and what they give.

Spec: https://modelcontextprotocol.io/specification/2026-07-28/server/prompts.
"""

from __future__ import annotations

from typing import Any

import msgspec

from linkspan.types.base import Meta, Wire
from linkspan.types.shared import Icon, Role

__all__ = ["GetPromptResult", "ListPromptsResult", "Prompt", "PromptArgument", "PromptMessage"]


class PromptArgument(Wire, frozen=True):
    """A parameter of a prompt; its values are texts."""

    name: str
    description: str | None = None
    required: bool | None = None
    title: str | None = None


class Prompt(Wire, frozen=True):
    """A prompt as a list shows it."""

    name: str
    title: str | None = None
    description: str | None = None
    arguments: list[PromptArgument] | None = None
    icons: list[Icon] | None = None
    meta: Meta | None = msgspec.field(default=None, name="_meta")


class PromptMessage(Wire, frozen=True):
    """A message of a prompt, with one content block."""

    role: Role
    content: Any


class ListPromptsResult(Wire, frozen=True):
    """One page of prompts."""

    prompts: list[Prompt]
    next_cursor: str | None = None
    ttl_ms: int | None = None
    cache_scope: str | None = None
    meta: Meta | None = msgspec.field(default=None, name="_meta")


class GetPromptResult(Wire, frozen=True):
    """The messages of a prompt."""

    messages: list[PromptMessage]
    description: str | None = None
    meta: Meta | None = msgspec.field(default=None, name="_meta")
