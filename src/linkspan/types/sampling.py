"""Texts that the client's model writes for the server.

Spec: https://modelcontextprotocol.io/specification/2026-07-28/client/sampling.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from linkspan.types.base import JSONObject, Meta, Wire
from linkspan.types.shared import Role
from linkspan.types.tools import Tool

__all__ = [
    "CreateMessageParams",
    "CreateMessageResult",
    "ModelHint",
    "ModelPreferences",
    "SamplingMessage",
    "ToolChoice",
]


class ModelHint(Wire, frozen=True):
    """Part of a model's name."""

    name: str | None = None


class ModelPreferences(Wire, frozen=True):
    """What matters in choosing a model; the priorities go from 0 to 1."""

    hints: list[ModelHint] | None = None
    cost_priority: float | None = None
    speed_priority: float | None = None
    intelligence_priority: float | None = None


class SamplingMessage(Wire, frozen=True):
    """A message: one content block, or a list of them."""

    role: Role
    content: Any
    meta: Meta | None = msgspec.field(default=None, name="_meta")


class ToolChoice(Wire, frozen=True):
    """Whether the model may, must or must not use tools."""

    mode: Literal["auto", "required", "none"] | None = None


class CreateMessageParams(Wire, frozen=True):
    """What the model should go on from, and how."""

    messages: list[SamplingMessage]
    max_tokens: int
    system_prompt: str | None = None
    model_preferences: ModelPreferences | None = None
    include_context: Literal["none", "thisServer", "allServers"] | None = None
    temperature: float | None = None
    stop_sequences: list[str] | None = None
    metadata: JSONObject | None = None
    tools: list[Tool] | None = None
    tool_choice: ToolChoice | None = None


class CreateMessageResult(Wire, frozen=True):
    """What the model wrote. `stop_reason` is an open set: endTurn, stopSequence, maxTokens, toolUse, ..."""

    role: Role
    content: Any
    model: str
    stop_reason: str | None = None
    meta: Meta | None = msgspec.field(default=None, name="_meta")
