"""Resources and resource templates.

Spec: https://modelcontextprotocol.io/specification/2026-07-28/server/resources.
"""

from __future__ import annotations

from typing import Any

import msgspec

from linkspan.types.base import Meta, Wire
from linkspan.types.content import BlobResourceContents, ResourceContents, TextResourceContents
from linkspan.types.shared import Annotations, Icon

__all__ = [
    "BlobResourceContents",
    "ListResourceTemplatesResult",
    "ListResourcesResult",
    "ReadResourceResult",
    "Resource",
    "ResourceContents",
    "ResourceTemplate",
    "TextResourceContents",
]


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
