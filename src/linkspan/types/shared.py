"""Shapes that many others contain.

Spec: https://modelcontextprotocol.io/specification/2026-07-28/basic
"""

from __future__ import annotations

from typing import Literal, TypeAlias

from linkspan.types.base import Wire

__all__ = ["Annotations", "Icon", "Implementation", "RequestId", "Role"]

Role: TypeAlias = Literal["user", "assistant"]
RequestId: TypeAlias = int | str


class Annotations(Wire, frozen=True):
    """Hints for clients: for whom something is, how much it matters (0 to 1), when it changed (ISO 8601)."""

    audience: list[Role] | None = None
    priority: float | None = None
    last_modified: str | None = None


class Icon(Wire, frozen=True):
    """An image that stands for something. `src` is an https: or data: URI, `sizes` are like "48x48" or "any"."""

    src: str
    mime_type: str | None = None
    sizes: list[str] | None = None
    theme: Literal["light", "dark"] | None = None


class Implementation(Wire, frozen=True):
    """The name and version of a server or a client, for display."""

    name: str
    version: str
    title: str | None = None
    description: str | None = None
    website_url: str | None = None
    icons: list[Icon] | None = None
