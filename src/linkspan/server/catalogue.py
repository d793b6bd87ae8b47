"""Everything that one server offers, and the capabilities that follow from it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from linkspan.errors import RegistrationError
from linkspan.server.handlers import Handler
from linkspan.server.registry import Registry
from linkspan.server.resources import BoundResource, BoundTemplate
from linkspan.server.tools import BoundTool
from linkspan.types.base import JSON, is_mapping
from linkspan.types.messages import (
    ListChangedCapability,
    ResourcesCapability,
    ServerCapabilities,
)
from linkspan.wire.messages import encode
from linkspan.wire.values import from_builtins, to_builtins

if TYPE_CHECKING:
    from linkspan.server.prompts import BoundPrompt

__all__ = ["Catalogue"]

_LISTS = ("tools", "prompts", "resources")


class Catalogue:
    """The registries of one server."""

    def __init__(self) -> None:
        """Begin empty."""
        self.tools: Registry[BoundTool] = Registry("tool", "tools")
        self.prompts: Registry[BoundPrompt] = Registry("prompt", "prompts")
        self.resources: Registry[BoundResource] = Registry("resource", "resources")
        self.templates: Registry[BoundTemplate] = Registry("resource template", "resourceTemplates")
        self.custom_methods: dict[str, Handler] = {}
        self.read_handler: Handler | None = None
        self.completers: dict[tuple[str, str], Handler] = {}
        self.completion_handler: Handler | None = None
        self.declared: Mapping[str, JSON] | ServerCapabilities | None = None
        self._promised: set[str] = set()  # the lists that a client was told of stay, even when they are empty

    def declare(self, capabilities: object) -> None:
        """Take what the author declares instead of, or besides, what is registered. Raises: RegistrationError."""
        self.declared = _checked(capabilities) if capabilities is not None else None

    def find_resource(self, uri: str) -> tuple[BoundResource | BoundTemplate, dict[str, str]] | None:
        """Return what answers `uri`, and the variables in it: an exact resource first, then templates in their order."""
        exact = self.resources.get(uri)
        if exact is not None:
            return exact, {}
        for template in self.templates:
            variables = template.template.match(uri)
            if variables is not None:
                return template, variables
        return None

    def knows_resource(self, uri: str) -> bool:
        """Tell whether a read of `uri` could be answered."""
        return self.read_handler is not None or self.find_resource(uri) is not None

    def completes(self) -> bool:
        """Tell whether there is anything to complete."""
        return bool(self.completers or self.completion_handler) or any(
            _has_choices(prompt.handler.parameters.json_schema) for prompt in self.prompts
        )

    def offers(self, kind: str) -> bool:
        """Return whether a capability such as "tools" is offered: what is declared is what is served (SRV-3).

        A server without anything in any list may get something later, and so offers all lists unless its author declared one.
        """
        if isinstance(self.declared, ServerCapabilities):
            return getattr(self.declared, kind) is not None
        if self.declared is not None and kind in self.declared:
            return self.declared[kind] is not None
        if kind in _LISTS:
            return self._has(kind) or kind in self._promised or self._is_empty()
        return self.completes() if kind == "completions" else True

    def _is_empty(self) -> bool:
        """Return whether nothing is registered in any list, and none was declared."""
        said = self.declared if self.declared is not None and is_mapping(self.declared) else ()
        return not any(kind in said or self._has(kind) for kind in _LISTS)

    def _has(self, kind: str) -> bool:
        match kind:
            case "tools":
                return len(self.tools) > 0
            case "prompts":
                return len(self.prompts) > 0
            case _:
                return bool(len(self.resources) or len(self.templates) or self.read_handler is not None)

    def capabilities(self) -> ServerCapabilities:
        """Return what is offered now, and what the author declared besides (SRV-1, SRV-3).

        A list that is offered once stays offered: clients keep what they are told here.
        """
        self._promised.update([kind for kind in _LISTS if self.offers(kind)])
        derived = ServerCapabilities(
            tools=ListChangedCapability(list_changed=True) if self.offers("tools") else None,
            prompts=ListChangedCapability(list_changed=True) if self.offers("prompts") else None,
            resources=ResourcesCapability(subscribe=True, list_changed=True) if self.offers("resources") else None,
            completions={} if self.offers("completions") else None,
            logging={},
        )
        if self.declared is None:
            return derived
        if isinstance(self.declared, ServerCapabilities):
            return self.declared
        merged: dict[str, Any] = to_builtins(derived)
        for name, value in self.declared.items():
            if value is None:
                merged.pop(name, None)
            else:
                merged[name] = value
        return from_builtins(merged, ServerCapabilities)


def _checked(capabilities: object) -> Mapping[str, JSON] | ServerCapabilities:
    """Hold a declaration to its shape now: every handshake and every list would fail over it later."""
    if not isinstance(capabilities, ServerCapabilities) and not is_mapping(capabilities):
        raise RegistrationError(f"capabilities are a mapping or ServerCapabilities, not {type(capabilities).__name__}")
    given: JSON = to_builtins(capabilities)
    try:
        encode(given)
        from_builtins({name: value for name, value in given.items() if value is not None}, ServerCapabilities)
    except (msgspec.MsgspecError, TypeError, ValueError) as problem:
        raise RegistrationError(
            f"capabilities: {problem}; write an object for each one, such as {{'tools': {{'listChanged': True}}}}"
        ) from None
    return capabilities if isinstance(capabilities, ServerCapabilities) else given


def _has_choices(schema: Mapping[str, JSON]) -> bool:
    properties: Mapping[str, JSON] = schema.get("properties") or {}
    return any("enum" in each for each in properties.values())
