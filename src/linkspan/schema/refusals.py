"""What a provider of models refuses a whole list of tools for: the name of one tool, of one argument, or the shape of its schema.

Each finding has its code among the rules of `linkspan lint`. What a provider does is a fact of its date: see `Audience` there.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from linkspan.text import clip
from linkspan.types.base import JSON, JSONObject, is_array, is_object

MOST_PARTS: Final = 20_000
"""Members of one schema that are looked at."""
_NAME: Final = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-")
_MEMBER: Final = _NAME | {"."}
_LONGEST: Final = 64


def refusals(name: str, schema: JSON) -> Iterator[tuple[str, str]]:
    """Yield the codes and the words for what makes a tool with this name and input schema refused."""
    if not _may_be(name, _NAME):
        yield "L01", "its name has other characters, or more than 64"
    if not is_object(schema) or schema.get("type", "object") != "object":
        yield "L05", "its arguments are not an object"
        return
    for key in ("anyOf", "oneOf", "allOf"):
        if key in schema:
            yield "L03", f"its schema has {key} at its root"
    for path, part in parts(schema):
        where = ".".join(path)
        if not _may_be(path[-1], _MEMBER):
            yield "L02", f"argument {clip(where, 80)!r}: its name has other characters, or more than 64"
        kinds: JSON = part.get("type")
        is_list = kinds == "array" or (is_array(kinds) and "array" in kinds)
        if is_list and "items" not in part and "prefixItems" not in part:
            yield "L04", f"argument {where}: an array without items"


def _may_be(name: str, characters: frozenset[str]) -> bool:
    return 1 <= len(name) <= _LONGEST and characters.issuperset(name)


def parts(schema: JSONObject) -> Iterator[tuple[tuple[str, ...], JSONObject]]:
    """Yield the members of arguments with the names that lead to them, as far as they are written in their place."""
    waiting: list[tuple[tuple[str, ...], JSON]] = [((), schema)]
    for _ in range(MOST_PARTS):
        if not waiting:
            return
        path, part = waiting.pop()
        if not is_object(part):
            continue
        members: JSON = part.get("properties")
        if is_object(members):
            for key, each in members.items():
                if is_object(each):
                    yield (*path, key), each
                waiting.append(((*path, key), each))
        waiting += [(path, part[key]) for key in ("items", "additionalProperties") if is_object(part.get(key))]
        for key in ("anyOf", "oneOf", "allOf", "prefixItems"):
            arms: JSON = part.get(key)
            waiting += [(path, each) for each in arms] if is_array(arms) else []
