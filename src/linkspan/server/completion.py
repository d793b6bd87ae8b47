"""Completion of prompt arguments and template variables.

Spec: https://modelcontextprotocol.io/specification/2026-07-28/server/utilities/completion.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from linkspan.types.completion import CompleteResult, Completion

__all__ = ["MAX_VALUES", "completion_of"]

MAX_VALUES = 100


def completion_of(value: object, typed: str) -> CompleteResult:
    """Turn what a completer returned into a result of at most 100 values (CMP-2).

    A list or an Enum-like iterable of texts is filtered by what the user has typed already; a `Completion` or a mapping in
    wire form is taken as it is. None means nothing to suggest (CMP-3). Raises: TypeError for anything else.
    """
    if isinstance(value, CompleteResult):
        return value
    if isinstance(value, Mapping):
        return _from_mapping(value)  # pyright: ignore[reportUnknownArgumentType]
    if isinstance(value, Completion):
        return _capped(value.values, value.total, value.has_more)
    if value is None:
        return CompleteResult(completion=Completion(values=[]))
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise TypeError(f"a completer returns a list of texts, not {type(value).__name__}")
    texts = [str(each) for each in value]  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
    return _capped([text for text in texts if text.lower().startswith(typed.lower())], None, None)


def _from_mapping(value: Mapping[str, Any]) -> CompleteResult:
    body: Mapping[str, Any] = value.get("completion", value)
    return _capped(body.get("values", ()), body.get("total"), body.get("hasMore"))


def _capped(values: Sequence[str], total: int | None, has_more: bool | None) -> CompleteResult:
    shown = list(values[:MAX_VALUES])
    if len(values) > MAX_VALUES:
        total, has_more = total or len(values), True
    return CompleteResult(completion=Completion(values=shown, total=total, has_more=has_more))
