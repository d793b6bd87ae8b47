"""What a modern request says again in HTTP headers, so that those who route by them need not read the body.

Spec: https://modelcontextprotocol.io/specification/2026-07-28/basic/transports (checklist 4.7).
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from msgspec import Raw

from linkspan.revisions.agreement import Agreement
from linkspan.schema.document import header_paths
from linkspan.types.base import ABSENT, JSON
from linkspan.types.messages import Tool
from linkspan.wire.headers import encode_value, value_at

__all__ = ["header_plan", "mirrored"]


class _Named(msgspec.Struct):
    name: str | None = None
    uri: str | None = None
    arguments: Raw = ABSENT


_named = msgspec.json.Decoder(_Named)
_NAMED = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}


def mirrored(
    agreement: Agreement, method: str, params: bytes, plan: Mapping[tuple[str, ...], str] | None = None
) -> dict[str, str]:
    """Return the headers of one request, as they follow from its body (HDR-1, HDR-2); `plan` is its tool's."""
    headers = {"mcp-protocol-version": agreement.revision.date, "mcp-method": method}
    member = _NAMED.get(method)
    if member is None:
        return headers
    named = _named.decode(params)
    name: str = getattr(named, member) or ""
    headers["mcp-name"] = encode_value(name)
    if plan:
        arguments: JSON = msgspec.json.decode(named.arguments) if named.arguments is not ABSENT else {}
        for path, part in plan.items():
            if (value := value_at(arguments, path)) is not None:
                headers[f"mcp-param-{part.lower()}"] = encode_value(value)
    return headers


def header_plan(tool: Tool) -> Mapping[tuple[str, ...], str]:
    """Return which arguments of a tool go into which headers. Raises: RegistrationError for a tool that breaks the rules."""
    return header_paths(tool.input_schema, tool.name)
