"""Whether reading a value of a type runs code of the author: validators, constructors, factories of defaults.

Such code may be slow, or wait for something, so it must run where a handler may. What only msgspec and this package read cannot.
"""

from __future__ import annotations

import enum
import typing
from typing import Any

from linkspan.schema.foreign import is_foreign
from linkspan.schema.hints import class_hints, peel
from linkspan.schema.signatures import is_class

__all__ = ["runs_author_code"]

_HARMLESS: tuple[Any, ...] = (list, dict, set, frozenset, tuple, str, int, float, bool)


def runs_author_code(hint: Any, seen: frozenset[Any] = frozenset()) -> bool:
    """Return whether the author's code runs when a value of this type is read. When in doubt it does."""
    bare, notes = peel(hint)
    if is_foreign(bare, notes):
        return True
    target: Any = typing.get_origin(bare) or bare
    if any(runs_author_code(each, seen) for each in typing.get_args(bare) if not isinstance(each, str | int | list)):
        return True
    if not is_class(target) or target in seen or target.__module__ in ("builtins", "typing", "datetime"):
        return False
    if issubclass(target, enum.Enum):
        return "_missing_" in {name for each in target.__mro__[:-1] for name in vars(each) if each is not enum.Enum}
    if hasattr(target, "__attrs_attrs__") or hasattr(target, "__post_init__") or _makes_defaults(target):
        return True
    return any(runs_author_code(each, seen | {target}) for each in _members(target))


def _makes_defaults(target: Any) -> bool:
    """Return whether a class has a constructor of its own, or functions that make the defaults of its fields."""
    settings = getattr(target, "__dataclass_params__", None)
    if settings is not None and not settings.init:
        return True
    fields: Any = getattr(target, "__dataclass_fields__", {}).values()
    return any(callable(each.default_factory) and each.default_factory not in _HARMLESS for each in fields)


def _members(target: type) -> list[Any]:
    marks = ("__struct_config__", "__dataclass_fields__", "_field_defaults")
    if not typing.is_typeddict(target) and not any(hasattr(target, mark) for mark in marks):
        return []
    return list(class_hints(target).values())
