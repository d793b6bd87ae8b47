"""Results as texts that are compared from run to run: JSON with what differs each time masked, and without secrets."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Sequence
from typing import Final, cast

import msgspec

from linkspan.flows.tool_results import ToolResult
from linkspan.types.base import JSON, is_array, is_object
from linkspan.wire.redaction import redact_json
from linkspan.wire.values import to_builtins

_MASKED: Final = (
    (re.compile(r"\b[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}\b"), "<uuid>"),
    (re.compile(r"\b\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:Z|[+-]\d\d:?\d\d)?"), "<time>"),
    (re.compile(r"\b(?:[0-9a-f]{64}|[0-9a-f]{40}|[0-9a-f]{32})\b"), "<digest>"),
    (re.compile(r"\(incident [0-9A-F]{6}\)"), "(incident <id>)"),
    (re.compile(r"\b(?:localhost|127\.0\.0\.1):\d{2,5}\b"), "<loopback>"),
)
_NAMES: Final = ("requestState", "taskId", "sessionId", "nextCursor", "ttlMs", "createdAt", "lastUpdatedAt")
"""Members that have another value each time."""


def shown(result: object) -> str:
    """Return a result as text: one of a client, a list of them, or JSON. Raises: TypeError for another value."""
    whole: JSON = redact_json(to_builtins(_plain(result)))
    return json.dumps(_masked(whole), ensure_ascii=False, indent=2) + "\n"


def _plain(result: object) -> object:
    if isinstance(result, ToolResult):
        return msgspec.json.decode(result.raw)
    if isinstance(result, list | tuple):
        return [_plain(each) for each in cast("Sequence[object]", result)]
    if result is None or isinstance(result, msgspec.Struct | str | int | float) or is_object(result):
        return result
    raise TypeError(f"mcp_snapshot() takes a result of a client, or JSON, got {type(result).__name__}")


def _masked(value: JSON) -> JSON:
    if isinstance(value, str):
        for pattern, mark in _MASKED:
            value = pattern.sub(mark, value)
        return value
    if is_array(value):
        return [_masked(each) for each in value]
    if is_object(value):
        return {key: f"<{key}>" if key in _NAMES else _masked(each) for key, each in value.items()}
    return value


def difference(kept: str, now: str) -> list[str]:
    """Return the lines that two texts do not share, with some around them."""
    lines = difflib.unified_diff(kept.splitlines(), now.splitlines(), "kept", "now", lineterm="", n=2)
    return list(lines)
