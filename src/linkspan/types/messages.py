"""Params and results, method by method: the handshake, tools, resources, prompts, completion, logging, and the client's offers.

Params of requests that a server receives come last. What is typed later stays raw in them: arguments, `_meta`, answers.
Spec: https://modelcontextprotocol.io/specification/2026-07-28/schema.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar, Final, Literal, TypeAlias

import msgspec
from msgspec import Raw

from linkspan.types.base import (
    ABSENT,
    JSON,
    UNSET,
    Annotations,
    Icon,
    Implementation,
    JSONObject,
    Meta,
    RequestId,
    Role,
    TextContent,
    UnsetType,
    Wire,
    is_array,
)


class ListChangedCapability(Wire, frozen=True):
    """Whether changes of a list are announced."""

    list_changed: bool | None = None


class ResourcesCapability(Wire, frozen=True):
    """Whether single resources can be watched, and changes of the list are announced."""

    subscribe: bool | None = None
    list_changed: bool | None = None


class ServerCapabilities(Wire, frozen=True):
    """What a server offers. Not a closed set (MSG-51)."""

    tools: ListChangedCapability | None = None
    prompts: ListChangedCapability | None = None
    resources: ResourcesCapability | None = None
    completions: JSONObject | None = None
    logging: JSONObject | None = None
    experimental: JSONObject | None = None
    extensions: JSONObject | None = None


class InitializeResult(Wire, frozen=True):
    """The answer to a handshake."""

    protocol_version: str
    capabilities: ServerCapabilities
    server_info: Implementation
    instructions: str | None = None
    meta: Meta | None = msgspec.field(default=None, name="_meta")


class DiscoverResult(Wire, frozen=True):
    """What a modern server says of itself."""

    supported_versions: list[str]
    capabilities: ServerCapabilities
    instructions: str | None = None
    ttl_ms: int | None = None
    cache_scope: str | None = None
    meta: Meta | None = msgspec.field(default=None, name="_meta")


class ToolAnnotations(Wire, frozen=True):
    """Hints about a tool, never promises. What is not said means: not read-only, destructive, not idempotent, open world."""

    title: str | None = None
    read_only_hint: bool | None = None
    destructive_hint: bool | None = None
    idempotent_hint: bool | None = None
    open_world_hint: bool | None = None

    @property
    def is_repeatable(self) -> bool:
        """Whether a call may be repeated: the tool only reads, or a second call changes nothing more."""
        return bool(self.read_only_hint or self.idempotent_hint)


class Tool(Wire, frozen=True):
    """A tool as a list shows it. The schemas go out verbatim (MSG-55)."""

    name: str
    input_schema: JSONObject
    title: str | None = None
    description: str | None = None
    output_schema: JSONObject | None = None
    annotations: ToolAnnotations | None = None
    icons: list[Icon] | None = None
    meta: Meta | None = msgspec.field(default=None, name="_meta")


class ListToolsResult(Wire, frozen=True):
    """One page of tools."""

    tools: list[Tool]
    next_cursor: str | None = None
    ttl_ms: int | None = None
    cache_scope: str | None = None
    meta: Meta | None = msgspec.field(default=None, name="_meta")


class CallToolResult(Wire, frozen=True):
    """What a tool answered: content blocks, and perhaps a JSON value (which may be null, so UNSET means absent)."""

    content: list[Any]
    structured_content: JSON | UnsetType = UNSET
    is_error: bool | None = None
    meta: Meta | None = msgspec.field(default=None, name="_meta")


class StandsForResult:
    """A value that stands for what a tool answered, such as what a client received. A tool may return one."""

    __slots__ = ()

    def as_result(self) -> CallToolResult:
        """Return all of it, as a server sends it."""
        raise NotImplementedError


class Resource(Wire, frozen=True):
    """A resource as a list shows it; `size` is in bytes."""

    uri: str
    name: str
    title: str | None = None
    description: str | None = None
    mime_type: str | None = None
    size: int | None = None
    annotations: Annotations | None = None
    icons: list[Icon] | None = None
    meta: Meta | None = msgspec.field(default=None, name="_meta")


class ResourceTemplate(Wire, frozen=True):
    """A family of resources, by an RFC 6570 template."""

    uri_template: str
    name: str
    title: str | None = None
    description: str | None = None
    mime_type: str | None = None
    annotations: Annotations | None = None
    icons: list[Icon] | None = None
    meta: Meta | None = msgspec.field(default=None, name="_meta")


class ListResourcesResult(Wire, frozen=True):
    """One page of resources."""

    resources: list[Resource]
    next_cursor: str | None = None
    ttl_ms: int | None = None
    cache_scope: str | None = None
    meta: Meta | None = msgspec.field(default=None, name="_meta")


class ListResourceTemplatesResult(Wire, frozen=True):
    """One page of templates."""

    resource_templates: list[ResourceTemplate]
    next_cursor: str | None = None
    ttl_ms: int | None = None
    cache_scope: str | None = None
    meta: Meta | None = msgspec.field(default=None, name="_meta")


class ReadResourceResult(Wire, frozen=True):
    """The contents of a resource."""

    contents: list[Any]
    ttl_ms: int | None = None
    cache_scope: str | None = None
    meta: Meta | None = msgspec.field(default=None, name="_meta")


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


class PromptReference(Wire, frozen=True, tag_field="type", tag="ref/prompt"):
    """Names a prompt."""

    name: str
    title: str | None = None


class ResourceTemplateReference(Wire, frozen=True, tag_field="type", tag="ref/resource"):
    """Names a resource or a template."""

    uri: str


class CompletionArgument(Wire, frozen=True):
    """The argument to complete, and what the user has typed of it."""

    name: str
    value: str


class CompletionContext(Wire, frozen=True):
    """What is filled in already."""

    arguments: dict[str, str] | None = None


class Completion(Wire, frozen=True):
    """At most 100 values; `total` may be more."""

    values: list[str]
    total: int | None = None
    has_more: bool | None = None


class CompleteResult(Wire, frozen=True):
    """Suggestions."""

    completion: Completion
    meta: Meta | None = msgspec.field(default=None, name="_meta")


LoggingLevel: TypeAlias = Literal["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"]
LOG_LEVELS: Final[tuple[LoggingLevel, ...]] = (
    "debug",
    "info",
    "notice",
    "warning",
    "error",
    "critical",
    "alert",
    "emergency",
)
"""From the least to the most severe (RFC 5424)."""


class LoggingMessageParams(Wire, frozen=True):
    """A log message; `data` is any JSON."""

    level: LoggingLevel
    data: JSON
    logger: str | None = None
    meta: Meta | None = msgspec.field(default=None, name="_meta")


class ProgressParams(Wire, frozen=True):
    """How far a request has come; `progress` grows with every message."""

    progress_token: RequestId
    progress: float
    total: float | None = None
    message: str | None = None
    meta: Meta | None = msgspec.field(default=None, name="_meta")


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

    @property
    def text(self) -> str:
        """All the texts in the content, with a newline between them."""
        blocks = self.content if is_array(self.content) else [self.content]
        return "\n".join(each.text for each in blocks if isinstance(each, TextContent))


class ElicitParams(Wire, frozen=True):
    """A form (`requested_schema`: a flat object of primitives) or a page to open (`url`)."""

    message: str
    mode: Literal["form", "url"] | None = None
    requested_schema: JSONObject | None = None
    url: str | None = None


class ElicitResult(Wire, frozen=True):
    """What the user did, and for an accepted form what they filled in."""

    action: Literal["accept", "decline", "cancel"]
    content: JSONObject | None = None


class Root(Wire, frozen=True):
    """A folder, as a file: URI."""

    uri: str
    name: str | None = None
    meta: Meta | None = msgspec.field(default=None, name="_meta")


class ListRootsResult(Wire, frozen=True):
    """The folders."""

    roots: list[Root]
    meta: Meta | None = msgspec.field(default=None, name="_meta")


class Params(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """Params of which only `_meta` is known."""

    named_by: ClassVar[str | None] = None
    """The field that names what the request is about; over HTTP a header repeats it."""
    meta: Raw = msgspec.field(default=ABSENT, name="_meta")

    @property
    def target(self) -> str | None:
        """What the request is about: a name or a URI."""
        return getattr(self, self.named_by) if self.named_by is not None else None


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

    named_by: ClassVar[str | None] = "name"
    name: str
    arguments: Raw = ABSENT


class GetPromptParams(InputParams, frozen=True, kw_only=True):
    """Which prompt, with which arguments."""

    named_by: ClassVar[str | None] = "name"
    name: str
    arguments: dict[str, str] | None = None


class ReadResourceParams(InputParams, frozen=True, kw_only=True):
    """Which resource."""

    named_by: ClassVar[str | None] = "uri"
    uri: str


class SubscribeParams(Params, frozen=True, kw_only=True):
    """Which resource to watch."""

    uri: str


class CompleteParams(Params, frozen=True, kw_only=True):
    """What to complete."""

    ref: PromptReference | ResourceTemplateReference
    argument: CompletionArgument
    context: CompletionContext | None = None

    @property
    def target(self) -> str:
        """The name of the prompt, or the URI of the template."""
        return self.ref.name if isinstance(self.ref, PromptReference) else self.ref.uri


class SetLevelParams(Params, frozen=True, kw_only=True):
    """Which log messages the client wants."""

    level: str


class SubscriptionFilter(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """What a client subscribes to."""

    tools_list_changed: bool | None = None
    prompts_list_changed: bool | None = None
    resources_list_changed: bool | None = None
    resource_subscriptions: list[str] | None = None


class ListenParams(Params, frozen=True, kw_only=True):
    """A subscription."""

    notifications: SubscriptionFilter


def listen_params(members: Iterable[str]) -> type[ListenParams]:
    """Return the shape of the params where the filter has further members, which extensions add."""
    added = [(f"added_{number}", JSON, msgspec.field(default=None, name=each)) for number, each in enumerate(members)]
    wanted = msgspec.defstruct("SubscriptionFilter", added, bases=(SubscriptionFilter,), frozen=True)
    made = msgspec.defstruct(
        "ListenParams", [("notifications", wanted)], bases=(ListenParams,), frozen=True, kw_only=True
    )
    assert issubclass(made, ListenParams)
    return made


def added_members(wanted: SubscriptionFilter) -> dict[str, tuple[str, JSON]]:
    """Return what a filter asks of the members that extensions add: by its name on the wire the field, and the value."""
    names = zip(wanted.__struct_encode_fields__, wanted.__struct_fields__, strict=True)
    own = SubscriptionFilter.__struct_fields__
    return {name: (field, value) for name, field in names if field not in own and (value := getattr(wanted, field))}


class CancelledParams(Params, frozen=True, kw_only=True):
    """Which request is not wanted any more, and why."""

    request_id: RequestId | None = None
    reason: str | None = None
