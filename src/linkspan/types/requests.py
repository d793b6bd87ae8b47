"""The params of requests and notifications that a server gets. What is typed later stays raw: arguments, `_meta`, answers.

Spec: https://modelcontextprotocol.io/specification/2026-07-28/schema.
"""

from __future__ import annotations

import msgspec
from msgspec import Raw

from linkspan.types.base import ABSENT, JSONObject
from linkspan.types.completion import (
    CompletionArgument,
    CompletionContext,
    PromptReference,
    ResourceTemplateReference,
)
from linkspan.types.shared import RequestId

__all__ = [
    "CallToolParams",
    "CancelledParams",
    "CompleteParams",
    "GetPromptParams",
    "InitializeParams",
    "InputParams",
    "ListParams",
    "ListenParams",
    "Params",
    "ReadResourceParams",
    "SetLevelParams",
    "SubscribeParams",
    "SubscriptionFilter",
]


class Params(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """Params of which only `_meta` is known."""

    meta: Raw = msgspec.field(default=ABSENT, name="_meta")


class InputParams(Params, frozen=True, kw_only=True):
    """Params of a request that may come again with the user's answers."""

    input_responses: Raw = ABSENT
    request_state: str | None = None


class InitializeParams(Params, frozen=True, kw_only=True):
    """The client's side of the handshake. Members that are required are asked for gently (C13)."""

    protocol_version: str
    capabilities: JSONObject | None = None
    client_info: JSONObject | None = None


class ListParams(Params, frozen=True, kw_only=True):
    """Which page."""

    cursor: str | None = None


class CallToolParams(InputParams, frozen=True, kw_only=True):
    """Which tool, with which arguments."""

    name: str
    arguments: Raw = ABSENT


class GetPromptParams(InputParams, frozen=True, kw_only=True):
    """Which prompt, with which arguments."""

    name: str
    arguments: dict[str, str] | None = None


class ReadResourceParams(InputParams, frozen=True, kw_only=True):
    """Which resource."""

    uri: str


class SubscribeParams(Params, frozen=True, kw_only=True):
    """Which resource to watch."""

    uri: str


class CompleteParams(Params, frozen=True, kw_only=True):
    """What to complete."""

    ref: PromptReference | ResourceTemplateReference
    argument: CompletionArgument
    context: CompletionContext | None = None


class SetLevelParams(Params, frozen=True, kw_only=True):
    """Which log messages the client wants."""

    level: str


class SubscriptionFilter(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """What a client wants to hear of."""

    tools_list_changed: bool | None = None
    prompts_list_changed: bool | None = None
    resources_list_changed: bool | None = None
    resource_subscriptions: list[str] | None = None


class ListenParams(Params, frozen=True, kw_only=True):
    """A subscription."""

    notifications: SubscriptionFilter


class CancelledParams(Params, frozen=True, kw_only=True):
    """Which request is not wanted any more, and why."""

    request_id: RequestId | None = None
    reason: str | None = None
