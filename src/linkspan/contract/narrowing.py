"""What a change of a JSON Schema means for values: which of the old ones are refused now, and which are new.

Law: where `narrowed` says "equal" or "wider", no value that the old schema accepts is refused by the new one; what cannot be
decided is said to be unknown. References stay inside the document, and nothing is fetched.

Spec: https://json-schema.org/draft/2020-12
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, Literal, TypeAlias

import msgspec

from linkspan.schema.plain_schemas import Losses, PlainSchemas
from linkspan.types.base import JSON, JSONObject, is_array, is_number, is_object, json_type

Effect: TypeAlias = Literal["wider", "narrower", "unknown", "none"]
"""What a difference does to the values that are accepted; texts and defaults do nothing."""

Verdict: TypeAlias = Literal["equal", "wider", "narrower", "unknown"]

Kind: TypeAlias = Literal[
    "added", "removed", "ignored", "required", "optional", "closed", "opened", "pattern", "format", "values", "default", "text",
    "order", "undecided",
]  # fmt: skip
"""What has changed.

`added` and `removed` are members. One that is `ignored` is not described any more, and accepted as any other unknown member.
`closed` and `opened` concern members without a name. `values` are types, choices and bounds.
"""

_ANNOTATIONS: Final = ("title", "description", "default", "examples", "$comment", "deprecated")
_TEXTS: Final = ("title", "description")
_ATOMS: Final[Mapping[str, tuple[str, ...]]] = {"number": ("integer", "fraction")}
_EVERY_TYPE: Final = ("string", "number", "boolean", "array", "object", "null")
_LEAST: Final = ("minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties")
_MOST: Final = ("maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties")
_OPAQUE: Final = (
    *("not", "if", "then", "else", "contains", "minContains", "maxContains", "propertyNames", "patternProperties"),
    *("dependentSchemas", "dependentRequired", "oneOf", "allOf", "$ref"),
)
"""Keywords that are compared as a whole: a change of one is not decided."""

_DEEPEST: Final = 40


class Difference(msgspec.Struct, frozen=True):
    """One thing that two schemas say differently about the same place."""

    path: tuple[str, ...]
    """The names of the members that lead to it; `[]` stands for the items of an array."""
    kind: Kind
    effect: Effect
    words: str
    """What has changed there, such as `10 characters at most became 5`."""


def narrowed(old: JSON, new: JSON) -> Verdict:
    """Return what the values of an object became when its schema changed.

    `wider`: every old value is still good. `narrower`: every new value was good before, and an old one may be refused now.
    """
    effects: list[Verdict] = [each.effect for each in differences(old, new) if each.effect != "none"]
    if not effects:
        return "equal"
    only = effects[0]
    return only if all(each == only for each in effects) else "unknown"


def differences(old: JSON, new: JSON) -> list[Difference]:
    """Return what two schemas of an object say differently, in the order of the old one; an empty list if they say the same."""
    lost, lost_later = Losses(), Losses()
    try:
        before, after = PlainSchemas(old, lost).arguments(), PlainSchemas(new, lost_later).arguments()
        found = list(_compare(before, after, ()))
        if _names(before, after) != _names(after, before):
            found.append(Difference((), "order", "none", "the order of its members changed"))
        is_same = _same(_bare(old), _bare(new))
    except RecursionError:
        return [Difference((), "undecided", "unknown", "the schema is nested too deeply to be compared")]
    if is_same:
        return [each for each in found if each.effect == "none"]
    unread = list(dict.fromkeys([*lost.listed(), *lost_later.listed()]))
    if unread or not any(each.effect != "none" for each in found):
        reason = unread[0] if unread else "the schemas differ in what is not compared"
        found.append(Difference((), "undecided", "unknown", f"not all of the schema can be compared: {reason}"))
    return found


def _names(schema: Mapping[str, JSON], other: Mapping[str, JSON]) -> list[str]:
    """Return the names of members that two schemas share, in the order of the first."""
    return [name for name in schema["properties"] if name in other["properties"]]


def shown(path: Sequence[str]) -> str:
    """Return a place as people write it: `filter.kinds[]`."""
    return ".".join(path).replace(".[]", "[]")


# Values of JSON, where true is not 1 and the order of members does not count.


def _same(one: JSON, other: JSON) -> bool:
    if is_object(one) and is_object(other):
        return one.keys() == other.keys() and all(_same(one[key], other[key]) for key in one)
    if is_array(one) and is_array(other):
        return len(one) == len(other) and all(map(_same, one, other))
    return isinstance(one, bool) == isinstance(other, bool) and one == other


def _without(values: Sequence[JSON], others: Sequence[JSON]) -> list[JSON]:
    return [each for each in values if not any(_same(each, other) for other in others)]


def _bare(schema: JSON) -> JSON:
    """Return a schema without what says nothing about values: names of members stay, whatever they are called."""
    if is_array(schema):
        return [_bare(each) for each in schema]
    if not is_object(schema):
        return schema
    found: JSONObject = {}
    for key, value in schema.items():
        if key in ("enum", "const", "required"):
            found[key] = value
        elif key in ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas") and is_object(
            value
        ):
            found[key] = {name: _bare(each) for name, each in value.items()}
        elif key not in _ANNOTATIONS:
            found[key] = _bare(value)
    return found


# Schemas.


def _compare(old: JSON, new: JSON, path: tuple[str, ...]) -> Iterator[Difference]:
    """Yield what the new schema says differently at a place."""
    old, new = _plain(old), _plain(new)
    if _same(old, new):
        return
    if len(path) > _DEEPEST:
        yield Difference(path, "undecided", "unknown", "is nested too deeply to be compared")
        return
    if old is False or new is False:
        yield Difference(
            path, "values", *(("wider", "is possible now") if old is False else ("narrower", "is no longer possible"))
        )
        return
    yield from _annotations(old, new, path)
    if "anyOf" in old or "anyOf" in new:
        yield from _alternatives(old, new, path)
        return
    before, after = _types(old), _types(new)
    yield from _sets(before, after, path, _type_words(old), _type_words(new))
    if set(before) & set(after):
        yield from _values(old, new, path)
        yield from _bounds(old, new, path)
        yield from _members(old, new, path)
        yield from _items(old, new, path)


def _plain(schema: JSON) -> JSON:
    return {} if schema is True or schema is None else schema


def _is_open(schema: JSON) -> bool:
    """Whether a schema accepts everything."""
    return schema is not False and not [key for key in _plain(schema) if key not in _ANNOTATIONS]


def _annotations(old: Mapping[str, JSON], new: Mapping[str, JSON], path: tuple[str, ...]) -> Iterator[Difference]:
    for key in _TEXTS:
        before, after = (_text(each, key, path[-1] if path else None) for each in (old, new))
        if not _same(before, after):
            yield Difference(path, "text", "none", changed(key, before, after))
    if not _same(old.get("default"), new.get("default")) or ("default" in old) != ("default" in new):
        yield Difference(path, "default", "none", f"{_default(old)} became {_default(new)}")


def _text(schema: Mapping[str, JSON], key: str, name: str | None) -> JSON:
    """Return a text of a member; None for a title that repeats its name, or is that of all members, a name of a class."""
    found: JSON = schema.get(key)
    return None if key == "title" and (name is None or is_repeated(found, name)) else found


def is_repeated(title: JSON, name: JSON) -> bool:
    """Return whether a title has the letters of a name, as generators of schemas write it: `Port Name` for `port_name`."""
    one, other = ("".join(filter(str.isalnum, each)) if isinstance(each, str) else "" for each in (title, name))
    return one != "" and one.casefold() == other.casefold()


def changed(key: str, before: JSON, after: JSON) -> str:
    """Return how a text changed."""
    return f"its {key} {'is new' if before is None else 'is gone' if after is None else 'changed'}"


def _default(schema: Mapping[str, JSON]) -> str:
    return f"the default {_json(schema['default'])}" if "default" in schema else "no default"


def _alternatives(old: Mapping[str, JSON], new: Mapping[str, JSON], path: tuple[str, ...]) -> Iterator[Difference]:
    """Compare the arms of `anyOf`; a schema without it is its only arm."""
    are_unions = "anyOf" in old and "anyOf" in new
    beside = _rest(old) if "anyOf" in old else _rest(new)
    if not _same(_rest(old), _rest(new)) and (are_unions or beside):
        yield Difference(path, "undecided", "unknown", f"{_type_words(old)} became {_type_words(new)}")
        return
    before, after = _arms(old), _arms(new)
    lost = [each for each in before if not any(_covers(other, each) for other in after)]
    gained = [each for each in after if not any(_covers(other, each) for other in before)]
    if len(lost) == len(gained) == 1 and set(_types(lost[0])) & set(_types(gained[0])):
        yield from (each for each in _compare(lost[0], gained[0], path) if each.effect != "none")
        return
    fewer = [_of_arms(arm, _alike(arm, after), path, "narrower") for arm in lost]
    more = [_of_arms(_alike(arm, before), arm, path, "wider") for arm in gained]
    known = dict.fromkeys(each for found in fewer for each in found)
    yield from known
    if gone := [arm for arm, found in zip(lost, fewer, strict=True) if not found]:
        yield Difference(path, "values", "narrower", f"no longer accepts {_listed(gone)}")
    unsure = [found for found in more if found and all(each.effect == "unknown" for each in found)]
    yield from dict.fromkeys(each for found in unsure for each in found if each not in known)
    if fresh := [arm for arm, found in zip(gained, more, strict=True) if found not in unsure]:
        yield Difference(path, "values", "wider", f"accepts {_listed(fresh)}, too")


def _alike(arm: JSON, others: Sequence[JSON]) -> JSON:
    """Return the only one of other arms that has a type of this one; None if there is none, or several."""
    found = [each for each in others if set(_types(arm)) & set(_types(each))]
    return found[0] if len(found) == 1 else None


def _of_arms(old: JSON, new: JSON, path: tuple[str, ...], effect: Effect) -> list[Difference]:
    """Return what two arms say differently with an effect, or with one that is not known; nothing if one is None."""
    if old is None or new is None:
        return []
    return [each for each in _compare(old, new, path) if each.effect in (effect, "unknown")]


def _rest(schema: Mapping[str, JSON]) -> JSONObject:
    return {key: each for key, each in schema.items() if key != "anyOf" and key not in _ANNOTATIONS}


def _arms(schema: Mapping[str, JSON]) -> Sequence[JSON]:
    return schema["anyOf"] if "anyOf" in schema else [_rest(schema)]


def _covers(new: JSON, old: JSON) -> bool:
    """Return whether it is sure that a schema accepts every value of another."""
    return _is_open(new) or all(each.effect in ("wider", "none") for each in _compare(old, new, ()))


def _listed(schemas: Sequence[JSON]) -> str:
    return " or ".join(map(_type_words, schemas))


# What a single schema says.


def _types(schema: JSON) -> list[str]:
    """Return the types of the values that a schema accepts; `integer` and `fraction` are those of numbers."""
    schema = _plain(schema)
    if not is_object(schema):
        return []
    named: JSON = schema.get("type", _EVERY_TYPE)
    kinds = [named] if isinstance(named, str) else list(named)
    found = [atom for kind in kinds for atom in _ATOMS.get(kind, (kind,))]
    values = _choices(schema)
    if values is not None:
        present = {atom for each in values for atom in _atoms_of(each)}
        found = [each for each in found if each in present]
    return found


def _atoms_of(value: JSON) -> tuple[str, ...]:
    kind = json_type(value)
    if kind not in ("number", "integer"):
        return (kind,)
    return ("integer",) if value == int(value) else ("fraction",)


def _choices(schema: Mapping[str, JSON]) -> list[JSON] | None:
    """Return the only values that a schema accepts, if it names them."""
    values: JSON = schema.get("enum")
    found = list(values) if is_array(values) else None
    if "const" in schema:
        found = [schema["const"]] if found is None else [each for each in found if _same(each, schema["const"])]
    return found


def _type_words(schema: JSON) -> str:
    from linkspan.schema.summary import type_words

    return "nothing" if schema is False else type_words(schema, schema)


def _json(value: JSON) -> str:
    from json import dumps

    return dumps(value, ensure_ascii=False)


def _sets(old: Sequence[str], new: Sequence[str], path: tuple[str, ...], was: str, now: str) -> Iterator[Difference]:
    words = f"{was} became {now}"
    if _without(old, new):
        yield Difference(path, "values", "narrower", words)
    if _without(new, old):
        yield Difference(path, "values", "wider", words)


def _values(old: Mapping[str, JSON], new: Mapping[str, JSON], path: tuple[str, ...]) -> Iterator[Difference]:
    before, after = _choices(old), _choices(new)
    if before is None and after is not None:
        yield Difference(path, "values", "narrower", f"accepts only {_several(after)}")
    elif before is not None and after is None:
        yield Difference(path, "values", "wider", f"is no longer one of {_several(before)}")
    elif before is not None and after is not None:
        if lost := _without(before, after):
            yield Difference(path, "values", "narrower", f"no longer accepts {_several(lost)}")
        if gained := _without(after, before):
            yield Difference(path, "values", "wider", f"accepts {_several(gained)}, too")


def _several(values: Sequence[JSON]) -> str:
    from linkspan.text import clip

    return clip(", ".join(map(_json, values)) or "nothing", 200, "...")


def _bounds(old: Mapping[str, JSON], new: Mapping[str, JSON], path: tuple[str, ...]) -> Iterator[Difference]:
    for key in (*_LEAST, *_MOST):
        before, after = old.get(key), new.get(key)
        if before == after:
            continue
        looser = after is None or (before is not None and ((after < before) if key in _LEAST else (after > before)))
        yield Difference(path, "values", "wider" if looser else "narrower", _became(key, before, after))
    before, after = old.get("multipleOf"), new.get("multipleOf")
    if before != after:
        yield Difference(path, "values", _step(before, after), _became("multipleOf", before, after))
    if (old.get("uniqueItems") is True) != (new.get("uniqueItems") is True):
        words = "its items need not differ any more" if old.get("uniqueItems") else "its items must differ"
        yield Difference(path, "values", "wider" if old.get("uniqueItems") else "narrower", words)
    if old.get("pattern") != new.get("pattern"):
        effect: Effect = "wider" if "pattern" not in new else "narrower" if "pattern" not in old else "unknown"
        yield Difference(path, "pattern", effect, _became("pattern", old.get("pattern"), new.get("pattern")))
    if old.get("format") != new.get("format"):
        effect = "wider" if "format" not in new else "unknown"
        yield Difference(path, "format", effect, _became("format", old.get("format"), new.get("format")))
    for key in _OPAQUE:
        if not _same(old.get(key), new.get(key)):
            yield Difference(path, "undecided", "unknown", f"its {key} changed")


def _step(before: JSON, after: JSON) -> Effect:
    """Return what another step between numbers does."""
    if after is None or before is None:
        return "wider" if after is None else "narrower"
    whole = all(is_number(each) and each == int(each) for each in (before, after))
    if whole and int(before) % int(after) == 0:
        return "wider"
    return "narrower" if whole and int(after) % int(before) == 0 else "unknown"


def _became(key: str, before: JSON, after: JSON) -> str:
    if before is None:
        return f"{key} {_json(after)} is new"
    return f"{key} {_json(before)} is gone" if after is None else f"{key} {_json(before)} became {_json(after)}"


# Members and items.


def _members(old: Mapping[str, JSON], new: Mapping[str, JSON], path: tuple[str, ...]) -> Iterator[Difference]:
    before: Mapping[str, JSON] = old.get("properties") or {}
    after: Mapping[str, JSON] = new.get("properties") or {}
    others, others_now = old.get("additionalProperties", True), new.get("additionalProperties", True)
    by_pattern = bool(old.get("patternProperties") or new.get("patternProperties"))
    for name in (*before, *(each for each in after if each not in before)):
        inner = (*path, name)
        if name in before and name in after:
            yield from _compare(before[name], after[name], inner)
        elif by_pattern:
            yield Difference(inner, "undecided", "unknown", "a pattern may describe it, too")
        elif name in after:
            is_needed = name in _without(new.get("required") or [], old.get("required") or [])
            if not is_needed or not (others is False or _is_open(others)):  # else that says enough
                yield from _new_member(others, after[name], inner)
        elif others_now is False:
            yield Difference(inner, "removed", "narrower", "is gone")
        elif _is_open(others_now):
            yield Difference(inner, "ignored", "wider", "is gone, and ignored where it is sent")
        else:
            yield from _compare(before[name], others_now, inner)
    yield from _required(old, new, path)
    yield from _other_members(others, others_now, path)


def _new_member(others: JSON, schema: JSON, path: tuple[str, ...]) -> Iterator[Difference]:
    """Compare a member that had no name before: `others` is what such members had to be."""
    if others is False:
        yield Difference(path, "added", "wider", "is new")
    elif _is_open(others):  # a value that was sent without having a name may be refused now
        yield Difference(path, "added", "none" if _is_open(schema) else "unknown", "is new")
    else:
        yield from _compare(others, schema, path)


def _required(old: Mapping[str, JSON], new: Mapping[str, JSON], path: tuple[str, ...]) -> Iterator[Difference]:
    before: list[JSON] = old.get("required") or []
    after: list[JSON] = new.get("required") or []
    known: Mapping[str, JSON] = old.get("properties") or {}
    is_closed = old.get("additionalProperties") is False
    for name in _without(after, before):
        words = "became required" if name in known else "is new and required"
        # where members without a name were refused, those with this one are values that were not good before
        effect: Effect = "unknown" if is_closed and name not in known else "narrower"
        yield Difference((*path, name), "required", effect, words)
    for name in _without(before, after):
        yield Difference((*path, name), "optional", "wider", "may be left out")


def _other_members(old: JSON, new: JSON, path: tuple[str, ...]) -> Iterator[Difference]:
    if old is False and new is not False:
        yield Difference(path, "opened", "wider", "accepts members without a name here")
    elif new is False and old is not False:
        yield Difference(path, "closed", "narrower", "refuses members without a name here")
    else:
        yield from _compare(old, new, (*path, "*"))


def _items(old: Mapping[str, JSON], new: Mapping[str, JSON], path: tuple[str, ...]) -> Iterator[Difference]:
    before: Sequence[JSON] = old.get("prefixItems") or []
    after: Sequence[JSON] = new.get("prefixItems") or []
    rest, rest_now = old.get("items", True), new.get("items", True)
    for at in range(max(len(before), len(after))):
        one = before[at] if at < len(before) else rest
        other = after[at] if at < len(after) else rest_now
        yield from _compare(one, other, (*path, f"[{at}]"))
    yield from _compare(rest, rest_now, (*path, "[]"))
