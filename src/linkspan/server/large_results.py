"""Results that are too large for an answer: they are kept for a while; the answer has their beginning, and a link to all."""

from __future__ import annotations

import re
from collections.abc import Generator, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from msgspec import structs

from linkspan.revisions.neutral import Outcome
from linkspan.server.context import Context
from linkspan.server.middleware import Call
from linkspan.types.base import (
    JSON,
    UNSET,
    AudioContent,
    BlobResourceContents,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
    TextResourceContents,
    Wire,
    is_object,
)
from linkspan.types.messages import CallToolResult
from linkspan.wire.jsonrpc import encode

if TYPE_CHECKING:
    from linkspan.server.ports import System

MAX_KEPT: Final = 64 * 1024 * 1024
"""Bytes of results that are kept; the oldest go first."""
TTL: Final = 600.0
"""Seconds for which a result is kept."""


class _KeptResult(NamedTuple):
    contents: list[Wire]
    size: int
    principal: str | None
    until: float


class LargeResults:
    """Middleware that keeps large results, and what reads them: `Server(max_result=...)`."""

    def __init__(self, most: int, system: System, server: str) -> None:
        """Keep results of more than `most` bytes, in this process. Raises: ValueError for a bound below one byte.

        The name of the `server` is in the URIs, so that those of servers that are mounted in one another differ.
        """
        if most < 1:
            raise ValueError(f"max_result={most!r} leaves no room for any result: write bytes, or None for no limit")
        self._most = most
        self._system = system
        self._lock = system.lock()
        self._kept: dict[str, _KeptResult] = {}
        self._uris = f"result://{re.sub(r'[^a-z0-9.-]+', '-', server.lower()).strip('-') or 'server'}/"
        self.template = f"{self._uris}{{id}}"

    def surround(self, call: Call) -> Generator[None, Outcome, Outcome | None]:
        """Answer with the beginning of a result that is too large, and a link to all of it."""
        outcome = yield
        if not isinstance(outcome, CallToolResult) or (size := bytes_of(outcome)) <= self._most:
            return None
        if size > MAX_KEPT:
            return CallToolResult(content=[TextContent(f"The result has {size} bytes: ask for less")], is_error=True)
        schema = call.tool.output_schema if call.tool is not None else None
        is_text = _is_text(schema)
        mime_type = "text/plain" if outcome.structured_content is UNSET or is_text else "application/json"
        uri = f"{self._uris}{self._system.random(16).hex()}"
        contents = [_contents(block, uri, mime_type) for block in outcome.content]
        self._keep(uri, _KeptResult(contents, size, call.context.principal, self._system.clock() + TTL))
        head = head_of(outcome.content, self._most)
        begins = f"{sum(map(size_of, head))} of them follow" if head else "none of which can be shown here"
        note = (
            f"The result has {size} bytes; {begins}. Read all of it as the resource {uri} within {TTL / 60:g} minutes."
        )
        content = [TextContent(note), ResourceLink(uri, call.name or "result", mime_type=mime_type, size=size), *head]
        if schema is None or outcome.is_error:
            return structs.replace(outcome, content=content, structured_content=UNSET)
        if is_text:
            texts = [note, *(each.text for each in head if isinstance(each, TextContent))]
            return structs.replace(outcome, content=content, structured_content={"result": "\n\n".join(texts)})
        return CallToolResult(content=content, is_error=True)  # a success would have to have what the tool promises

    def read(self, id: str, ctx: Context) -> list[Wire] | None:
        """Return what was kept for the caller; None for what is gone, or was kept for another one."""
        with self._lock:
            found = self._kept.get(f"{self._uris}{id}")
        if found is None or found.principal != ctx.principal or found.until < self._system.clock():
            return None
        return found.contents

    def _keep(self, uri: str, result: _KeptResult) -> None:
        with self._lock:
            self._kept[uri] = result
            total, now = sum(each.size for each in self._kept.values()), self._system.clock()
            for each, kept in list(self._kept.items()):
                if total <= MAX_KEPT and kept.until >= now:
                    break
                total -= self._kept.pop(each).size


def size_of(block: Wire) -> int:
    """Return how many bytes of a content block a model reads."""
    return len(block.text.encode()) if isinstance(block, TextContent) else len(encode(block))


def bytes_of(result: CallToolResult) -> int:
    """Return how many bytes of a result a model reads: its content, or its structured content if that is larger."""
    total = sum(map(size_of, result.content))
    structured = result.structured_content
    return total if structured is UNSET else max(total, len(encode(structured)))


def head_of(content: Sequence[Wire], room: int) -> list[Wire]:
    """Return the blocks that `room` bytes hold, in order; of a text that does not fit, its beginning."""
    kept: list[Wire] = []
    for block in content:
        size = size_of(block)
        if size <= room:
            kept.append(block)
        elif isinstance(block, TextContent) and room:
            kept.append(structs.replace(block, text=block.text.encode()[:room].decode(errors="ignore")))
        room = max(0, room - size)
    return kept


def _is_text(schema: Mapping[str, JSON] | None) -> bool:
    """Return whether an output schema is that of a plain text."""
    properties: JSON = schema.get("properties") if schema is not None else None
    return is_object(properties) and properties.get("result") == {"type": "string"}


def _contents(block: Wire, uri: str, mime_type: str) -> Wire:
    """Return the contents of a resource for a content block."""
    match block:
        case TextContent():
            return TextResourceContents(uri, block.text, mime_type=mime_type)
        case ImageContent() | AudioContent():
            return BlobResourceContents(uri, block.data, mime_type=block.mime_type)
        case EmbeddedResource():
            found: Wire = block.resource
            return found
        case _:
            return TextResourceContents(uri, encode(block).decode(), mime_type="application/json")
