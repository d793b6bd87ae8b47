"""Folders that the client offers.

Spec: https://modelcontextprotocol.io/specification/2026-07-28/client/roots.
"""

from __future__ import annotations

import msgspec

from linkspan.types.base import Meta, Wire

__all__ = ["ListRootsResult", "Root"]


class Root(Wire, frozen=True):
    """A folder, as a file: URI."""

    uri: str
    name: str | None = None
    meta: Meta | None = msgspec.field(default=None, name="_meta")


class ListRootsResult(Wire, frozen=True):
    """The folders."""

    roots: list[Root]
    meta: Meta | None = msgspec.field(default=None, name="_meta")
