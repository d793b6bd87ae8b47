"""What clients may ask of a server, feature by feature: facts that both sides read. What a side does is written on that side.

Which of it exists, and in which form, is a matter of the revisions; nothing here depends on one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Generic, TypeVar

import msgspec

from linkspan.types.base import JSONObject, Wire
from linkspan.types.messages import (
    CallToolParams,
    CallToolResult,
    CancelledParams,
    CompleteParams,
    CompleteResult,
    GetPromptParams,
    GetPromptResult,
    InitializeParams,
    InputParams,
    ListChangedCapability,
    ListenParams,
    ListParams,
    ListPromptsResult,
    ListResourcesResult,
    ListResourceTemplatesResult,
    ListToolsResult,
    Params,
    Prompt,
    ReadResourceParams,
    ReadResourceResult,
    Resource,
    ResourcesCapability,
    ResourceTemplate,
    SetLevelParams,
    SubscribeParams,
    Tool,
)

ItemT = TypeVar("ItemT", bound=Wire)
PageT = TypeVar("PageT", bound=Wire)


class ListSpec(msgspec.Struct, Generic[ItemT, PageT], frozen=True, kw_only=True):
    """A list that comes in pages."""

    method: str
    noun: str
    """What messages and `disable(kind=...)` call an item."""
    long_noun: str | None = None
    key: str
    """The member of an item that no other item shares, as Python spells it."""
    capability: str
    """The capability, or what an extension calls the list: `notifications/{capability}/list_changed` announces changes."""
    item: type[ItemT]
    result: type[PageT]
    """The shape of a page: its first member has the items, the next ones are `next_cursor`, `ttl_ms` and `cache_scope`."""

    @property
    def items(self) -> str:
        """The member of a page that has the items, as Python spells it."""
        return self.result.__struct_fields__[0]

    @property
    def words(self) -> str:
        """What sentences call an item."""
        return self.long_noun or self.noun

    @property
    def member(self) -> str:
        """The same on the wire."""
        return self.result.__struct_encode_fields__[0]


class MethodSpec(msgspec.Struct, frozen=True):
    """One method, or a notification of clients."""

    name: str
    params: type[Params] = Params
    result: type[Wire] | None = None
    """The shape of its result, where that has members of its own."""
    about: ListSpec[Any, Any] | None = None
    """The list that has what its params name."""
    fails_in_result: bool = False
    """A failure is a result with `isError`, for a model to read, and not an error of the protocol."""
    needs_offer: bool = True
    """It does not exist where the server does not offer the capability of its feature."""

    @property
    def may_ask(self) -> bool:
        """Whether its result may ask the user something, so that it comes again with the answers."""
        return issubclass(self.params, InputParams)


class FeatureSpec(msgspec.Struct, frozen=True, kw_only=True):
    """What belongs to one capability."""

    capability: str
    announced: Wire | JSONObject
    """What a server that offers it says of it."""
    lists: tuple[ListSpec[Any, Any], ...] = ()
    methods: tuple[MethodSpec, ...] = ()


TOOL_LIST: Final = ListSpec(
    method="tools/list", noun="tool", key="name", capability="tools", item=Tool, result=ListToolsResult
)
RESOURCE_LIST: Final = ListSpec(
    method="resources/list",
    noun="resource",
    key="uri",
    capability="resources",
    item=Resource,
    result=ListResourcesResult,
)
TEMPLATE_LIST: Final = ListSpec(
    method="resources/templates/list",
    noun="template",
    long_noun="resource template",
    key="uri_template",
    capability="resources",
    item=ResourceTemplate,
    result=ListResourceTemplatesResult,
)
PROMPT_LIST: Final = ListSpec(
    method="prompts/list", noun="prompt", key="name", capability="prompts", item=Prompt, result=ListPromptsResult
)

TOOL_CALL: Final = MethodSpec("tools/call", CallToolParams, CallToolResult, TOOL_LIST, fails_in_result=True)
RESOURCE_READ: Final = MethodSpec("resources/read", ReadResourceParams, ReadResourceResult, RESOURCE_LIST)
PROMPT_GET: Final = MethodSpec("prompts/get", GetPromptParams, GetPromptResult, PROMPT_LIST)
COMPLETE: Final = MethodSpec("completion/complete", CompleteParams, CompleteResult, needs_offer=False)

FEATURES: Final = (
    FeatureSpec(
        capability="tools", announced=ListChangedCapability(list_changed=True), lists=(TOOL_LIST,), methods=(TOOL_CALL,)
    ),
    FeatureSpec(
        capability="resources",
        announced=ResourcesCapability(subscribe=True, list_changed=True),
        lists=(RESOURCE_LIST, TEMPLATE_LIST),
        methods=(RESOURCE_READ,),
    ),
    FeatureSpec(
        capability="prompts",
        announced=ListChangedCapability(list_changed=True),
        lists=(PROMPT_LIST,),
        methods=(PROMPT_GET,),
    ),
    FeatureSpec(capability="completions", announced={}, methods=(COMPLETE,)),
    FeatureSpec(capability="logging", announced={}),
)
"""Those of servers, in the order in which people see them."""

_OF_CONNECTIONS: Final = (
    MethodSpec("initialize", InitializeParams),
    MethodSpec("logging/setLevel", SetLevelParams),
    MethodSpec("resources/subscribe", SubscribeParams),
    MethodSpec("resources/unsubscribe", SubscribeParams),
    MethodSpec("subscriptions/listen", ListenParams),
    MethodSpec("notifications/cancelled", CancelledParams),
)
"""What connections answer themselves, and read."""

LISTS: Final[Mapping[str, ListSpec[Any, Any]]] = {each.method: each for feature in FEATURES for each in feature.lists}
"""By method."""
LISTED: Final = tuple(feature.capability for feature in FEATURES if feature.lists)
"""The capabilities that have lists, which are also what `subscriptions/listen` and `list_changed` distinguish."""
LIST_CHANGED: Final[Mapping[str, str]] = {f"notifications/{each}/list_changed": each for each in LISTED}
"""Which of them a notification is about."""
METHODS: Final[Mapping[str, MethodSpec]] = {
    each.name: each
    for each in (
        *(method for feature in FEATURES for method in feature.methods),
        *(MethodSpec(method, ListParams) for method in LISTS),
        *_OF_CONNECTIONS,
    )
}
"""By name: those whose params have members of their own."""
NOUNS: Final[Mapping[str, str]] = {
    each.name: each.about.noun for feature in FEATURES for each in feature.methods if each.about is not None
}
"""What messages call that which a method is about, by method."""
ITEM_METHODS: Final[Mapping[str, MethodSpec]] = {
    each.about.noun: each for feature in FEATURES for each in reversed(feature.methods) if each.about is not None
}
"""The method that uses an item, by what messages call that: "tool", "resource", "prompt". The first one of its feature."""
METHOD_OF: Final[Mapping[type[Params], MethodSpec]] = {
    each.params: each for feature in FEATURES for each in feature.methods
}
"""The method that takes params of a shape."""
NAMED: Final[Mapping[str, str]] = {
    name: each.params.named_by for name, each in METHODS.items() if each.params.named_by is not None
}
"""The member that names what a request is about, by method."""
MAY_ASK: Final = frozenset(name for name, each in METHODS.items() if each.may_ask)
"""The methods whose results may ask the user something."""
FAIL_IN_RESULT: Final = frozenset(name for name, each in METHODS.items() if each.fails_in_result)
"""The methods whose failures are results."""
OFFERED_WITH: Final[Mapping[str, str]] = {
    each.name: feature.capability for feature in FEATURES for each in feature.methods if each.needs_offer
}
"""The capability without which a method does not exist."""
