"""Which JSON type a value has, for readers and for type checkers."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final, TypeGuard

from linkspan.types.base import JSON, is_array
from linkspan.types.base import is_mapping as is_object

__all__ = ["TYPE_WORDS", "is_array", "is_collection", "is_items", "is_object"]

TYPE_WORDS: Final[Mapping[str, str]] = {
    "string": "a string",
    "integer": "an integer",
    "number": "a number",
    "boolean": "true or false",
    "null": "null",
    "array": "an array",
    "object": "an object",
}
"""The types of JSON Schema, as error texts name them."""


def is_items(value: JSON) -> TypeGuard[Sequence[Any]]:
    """Tell whether a value is an array, or what a caller in this process may give instead of one."""
    return isinstance(value, list | tuple)


def is_collection(value: Any) -> TypeGuard[Collection[Any]]:
    """Tell whether a value is a list, a tuple or a set."""
    return isinstance(value, list | tuple | set | frozenset)
