"""A JSON Schema error in our own plain words, whichever library found it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import msgspec

from linkspan.schema.kinds import TYPE_WORDS, is_array, is_object
from linkspan.schema.problems import Problem, at, describe_value, join_choices, join_words, quote, unknown_words
from linkspan.schema.repair import local_target, types_of
from linkspan.types.base import JSON

__all__ = ["holder", "told"]


def told(
    keyword: str,
    schema: Mapping[str, JSON],
    root: Mapping[str, JSON],
    value: JSON,
    path: str,
    message: str,
    *,
    is_arguments: bool = True,
) -> Iterator[Problem]:
    """Yield problems for one error: the keyword that failed, the schema that holds it, and the value at `path`."""
    limit: JSON = schema.get(keyword)
    if keyword == "required" and is_object(value) and is_array(limit):
        names: list[str] = limit
        yield from (Problem(at(path, name), "is missing") for name in names if name not in value)
    elif keyword in ("additionalProperties", "unevaluatedProperties") and is_object(value) and limit is False:
        properties: Mapping[str, JSON] = schema.get("properties") or {}
        members: Mapping[str, JSON] = value
        strays = [key for key in members if key not in properties and _is_spelled_in(key, message)]
        yield from (Problem(path, unknown_words(key, properties, root=is_arguments and not path)) for key in strays)
    elif keyword in _WORDS and limit is not None:
        yield Problem(path, f"must {_WORDS[keyword](limit)}, got {_got(keyword, value)}")
    elif keyword in ("anyOf", "oneOf") and is_array(limit):
        yield Problem(path, _refused_by_all(keyword, limit, value, root))
    elif keyword == "dependentRequired" and is_object(limit) and is_object(value):
        wanted = [(name, key) for key, names in limit.items() if key in value for name in names if name not in value]
        yield from (Problem(at(path, name), f"is missing (it goes with {key})") for name, key in wanted)
    else:
        yield Problem(path, f"{_OTHERS.get(keyword, 'does not fit the schema')}, got {describe_value(value)}")


def _refused_by_all(keyword: str, arms: Sequence[JSON], value: JSON, root: Mapping[str, JSON]) -> str:
    """Name the types of the arms of a union, unless it is not the type that is wrong."""
    if keyword == "anyOf" and not _has_type(value, types_of({"anyOf": list(arms)}, root)):
        return f"must be {_arms(arms, root)}, got {describe_value(value)}"
    number = "exactly one" if keyword == "oneOf" else "at least one"
    return f"must fit {number} of the kinds in the schema ({_arms(arms, root)}), got {describe_value(value)}"


def _has_type(value: JSON, types: frozenset[str]) -> bool:
    if is_object(value):
        return "object" in types
    if is_array(value):
        return "array" in types
    if value is None or isinstance(value, bool):
        return ("null" if value is None else "boolean") in types
    return bool(types & ({"string"} if isinstance(value, str) else {"integer", "number"}))


def holder(root: Mapping[str, JSON], place: Sequence[str | int]) -> Mapping[str, JSON]:
    """Return the schema that holds the failed keyword, by its path; references are followed."""
    found: JSON = root
    for step in place[:-1]:
        found = _step(found, step, root)
    return found if is_object(found) else {}


def _step(found: JSON, step: str | int, root: Mapping[str, JSON]) -> JSON:
    if step == "$ref" and is_object(found):
        return local_target(found.get("$ref"), root)
    if is_object(found):
        members: Mapping[str, JSON] = found
        return members.get(str(step))
    if is_array(found) and str(step).isdigit():
        items: list[JSON] = found
        return items[int(step)] if int(step) < len(items) else None
    return None


def _is_spelled_in(key: str, message: str) -> bool:
    """Tell whether a library's message names a key: patterns and other schemas may have allowed it."""
    return repr(key) in message or quote(key) in message or f"'{key}'" in message


def _type(limit: JSON) -> str:
    names: list[str] = limit if is_array(limit) else [limit]
    return f"be {join_words([TYPE_WORDS.get(each, each) for each in names])}"


def _choices(limit: JSON) -> str:
    values: list[JSON] = limit
    return f"be {join_choices([_spell(each) for each in values])}"


def _spell(value: JSON) -> str:
    return quote(value) if isinstance(value, str) else msgspec.json.encode(value).decode()[:60]


_OTHERS: Mapping[str, str] = {
    "falseSchema": "is not allowed",
    "not": "is a value that the schema rules out",
    "contains": "must have an item that the schema asks for",
    "propertyNames": "has a name that is not allowed",
    "unevaluatedItems": "has items that are not allowed",
    "items": "has more items than are allowed",
}


def _counted(words: str, unit: str) -> Callable[[JSON], str]:
    return lambda limit: f"have {words} {limit} {unit if limit == 1 else unit + 's'}"


_WORDS: Mapping[str, Callable[[JSON], str]] = {
    "type": _type,
    "enum": _choices,
    "const": lambda limit: f"be {_spell(limit)}",
    "minimum": lambda limit: f"be at least {limit}",
    "exclusiveMinimum": lambda limit: f"be more than {limit}",
    "maximum": lambda limit: f"be at most {limit}",
    "exclusiveMaximum": lambda limit: f"be less than {limit}",
    "multipleOf": lambda limit: f"be a multiple of {limit}",
    "minLength": _counted("at least", "character"),
    "maxLength": _counted("at most", "character"),
    "minItems": _counted("at least", "item"),
    "maxItems": _counted("at most", "item"),
    "minProperties": _counted("at least", "member"),
    "maxProperties": _counted("at most", "member"),
    "pattern": lambda limit: f"match the pattern {quote(str(limit))}",
    "format": lambda limit: f"be a text of the format {limit}",
    "uniqueItems": lambda limit: "have no item twice",
}


def _got(keyword: str, value: JSON) -> str:
    if keyword.startswith(("min", "max")) and (isinstance(value, str) or is_array(value) or is_object(value)):
        return str(len(value))
    found = describe_value(value)
    return found.removeprefix("the number ") if keyword in _OF_NUMBERS else found


_OF_NUMBERS = ("minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum", "multipleOf")


def _arms(arms: Sequence[JSON], root: Mapping[str, JSON]) -> str:
    words: list[str] = []
    for each in arms:
        target = each
        if is_object(each) and "$ref" in each:
            target = local_target(each["$ref"], root)
        if not is_object(target):
            continue
        members: Mapping[str, JSON] = target
        for keyword in ("enum", "const", "type"):
            if keyword in members:
                words.append(_WORDS[keyword](members[keyword]).removeprefix("be "))
                break
    return join_words(list(dict.fromkeys(words))) or "one of the kinds that the schema names"
