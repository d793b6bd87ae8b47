"""Completion of prompt arguments and template variables.

Spec: https://modelcontextprotocol.io/specification/2026-07-28/server/utilities/completion.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import cast

from linkspan.schema.problems import describe_value
from linkspan.server.content import changed, checked
from linkspan.types.base import is_mapping
from linkspan.types.messages import CompleteResult, Completion
from linkspan.wire.values import from_builtins

__all__ = ["MAX_VALUES", "completion_of"]

MAX_VALUES = 100


def completion_of(value: object, typed: str) -> CompleteResult:
    """Turn what a completer returned into a result of at most 100 values (CMP-2).

    A list of texts, numbers or Enum members is filtered by what the user has typed already; a `Completion` or a mapping in
    wire form is taken as it is. None means nothing to suggest (CMP-3). Raises: TypeError, ValueError for anything else.
    """
    if isinstance(value, CompleteResult):
        return checked(changed(value, completion=_capped(value.completion)))
    if is_mapping(value):
        value = from_builtins(value.get("completion", value), Completion)
    if isinstance(value, Completion):
        return checked(CompleteResult(completion=_capped(value)))
    if value is None:
        return CompleteResult(completion=Completion(values=[]))
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise TypeError(f"a completer returns a list of texts, not {type(value).__name__}")
    texts = [_text(each) for each in cast("Iterable[object]", value)]
    fitting = [text for text in texts if text.lower().startswith(typed.lower())]
    return CompleteResult(completion=_capped(Completion(values=fitting)))


def _text(value: object) -> str:
    """Return a suggestion as a text; a value that is none by nature was hardly meant to be suggested."""
    if not isinstance(value, str | int | float):
        value = getattr(value, "value", value)  # a member of an Enum
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise TypeError(f"a completer suggests texts, not {describe_value(value)}")
    return str.__str__(value) if isinstance(value, str) else str(value)


def _capped(found: Completion) -> Completion:
    if len(found.values) <= MAX_VALUES:
        return found
    return changed(found, values=list(found.values[:MAX_VALUES]), total=found.total or len(found.values), has_more=True)
