"""From JSON to the type a caller wants: the same shapes that a server's parameters have. Loaded when it is first used."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Any

from linkspan.schema.build import build
from linkspan.schema.shapes import Shape, Walk
from linkspan.types.base import JSON, is_object


class Misfit(Exception):
    """The value is not of that type; the message gives the place."""


def decode_as(kind: object, values: Iterable[JSON]) -> Any:
    """Return the first of `values`, or what it wraps as `{"result": ...}`, that is a `kind`. Raises: Misfit."""
    shape = _shape(kind)
    last: str | None = None
    for value in values:
        wrapped = is_object(value) and set(value) == {"result"}
        for candidate in [value, value["result"]] if wrapped else [value]:
            walk = Walk(lenient=True)
            found = shape.convert(candidate, "", walk)
            if not walk.problems:
                return found
            last = "; ".join(f"{each.path or 'it'} {each.message}" for each in walk.problems)
    raise Misfit(last or "there is no value")


def _shape(kind: object) -> Shape:
    try:
        return _remembered(kind)
    except TypeError:  # a hint that cannot be hashed
        return build(kind, "the wanted type")


@lru_cache(maxsize=256)
def _remembered(kind: object) -> Shape:
    return build(kind, "the wanted type")
