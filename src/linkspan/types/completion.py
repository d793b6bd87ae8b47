"""Completion of prompt arguments and template variables.

Spec: https://modelcontextprotocol.io/specification/2026-07-28/server/utilities/completion.
"""

from __future__ import annotations

import msgspec

from linkspan.types.base import Meta, Wire

__all__ = [
    "CompleteResult",
    "Completion",
    "CompletionArgument",
    "CompletionContext",
    "PromptReference",
    "ResourceTemplateReference",
]


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
