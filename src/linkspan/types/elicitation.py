"""Questions to the user.

Spec: https://modelcontextprotocol.io/specification/2026-07-28/client/elicitation.
"""

from __future__ import annotations

from typing import Literal

from linkspan.types.base import JSONObject, Wire

__all__ = ["ElicitParams", "ElicitResult"]


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
