"""Who speaks, and what both sides can do.

Spec: https://modelcontextprotocol.io/specification/2026-07-28/basic/lifecycle.
"""

from __future__ import annotations

import msgspec

from linkspan.types.base import JSONObject, Meta, Wire
from linkspan.types.shared import Implementation

__all__ = [
    "DiscoverResult",
    "InitializeResult",
    "ListChangedCapability",
    "ResourcesCapability",
    "ServerCapabilities",
]


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
