"""Changes to a host's configuration file that leave the rest of its text alone: comments, order, indentation.

Every change is checked: the new text must read as the old document with just that entry changed.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from typing import Final

import msgspec

from linkspan.client.config import plain_json
from linkspan.types.base import JSON, JSONObject, is_object


class CannotEdit(ValueError):
    """The text cannot be changed safely; the message states why."""


class _Member(msgspec.Struct, frozen=True):
    key: str
    start: int
    """Where its key begins."""
    value: int
    end: int


def has_entry(text: str, section: str, name: str, *, toml: bool = False) -> bool:
    """Return whether the configuration has an entry. Raises: CannotEdit for a text that cannot be read."""
    entries = (_read_toml if toml else _read_json)(text).get(section)
    return is_object(entries) and name in entries


def with_entry(text: str, section: str, name: str, entry: Mapping[str, JSON], *, toml: bool = False) -> str:
    """Return the text of a configuration with an entry added or replaced. Raises: CannotEdit."""
    if toml:
        added = f"{_without_table(text, section, name).rstrip()}\n\n{_table((section, name), entry)}".lstrip()
        return _checked(text, added, section, name, entry, _read_toml)
    return _checked(text, _with_member(text or "{}\n", section, name, entry), section, name, entry, _read_json)


def without_entry(text: str, section: str, name: str, *, toml: bool = False) -> str:
    """Return the text of a configuration without an entry that it has. Raises: CannotEdit."""
    if toml:
        left = _without_table(text, section, name)
        return _checked(text, left, section, name, None, _read_toml)
    return _checked(text, _without_member(text, section, name), section, name, None, _read_json)


def _checked(
    old: str, new: str, section: str, name: str, entry: Mapping[str, JSON] | None, read: Callable[[str], JSONObject]
) -> str:
    """Return `new` if it is the document of `old` with this change. Raises: CannotEdit."""
    expected = read(old)
    entries: JSONObject = dict(expected.get(section) or {})
    if entry is None:
        entries.pop(name, None)
    else:
        entries[name] = dict(entry)
    expected[section] = entries
    try:
        found = read(new)
    except CannotEdit:
        found = {}
    found.setdefault(section, {})
    if found != expected:
        raise CannotEdit("its layout does not allow a safe change")
    return new


# JSON, with comments and trailing commas.


def _read_json(text: str) -> JSONObject:
    try:
        found: JSON = json.loads(plain_json(text)) if text.strip() else {}
    except (ValueError, RecursionError) as error:
        raise CannotEdit(f"it is not valid JSON: {error}") from None
    if not is_object(found):
        raise CannotEdit("it is not a JSON object")
    return found


_SPACE: Final = re.compile(r"\s*")
_decode: Final = json.JSONDecoder().raw_decode


def _members(plain: str, start: int) -> Iterator[_Member]:
    """Yield the members of the object that begins at `start` of a text without comments."""
    at = _skip(plain, start + 1)
    while plain[at] != "}":
        key, end = _decode(plain, at)
        value = _skip(plain, _skip(plain, end) + 1)
        _, end = _decode(plain, value)
        yield _Member(key, at, value, end)
        at = _skip(plain, end)
        if plain[at] == ",":
            at = _skip(plain, at + 1)


def _skip(plain: str, at: int) -> int:
    found = _SPACE.match(plain, at)
    return found.end() if found is not None else at


def _named(plain: str, start: int, key: str) -> _Member | None:
    """Return the member of that name; of several, the last, which is the one that counts."""
    return next((each for each in reversed([*_members(plain, start)]) if each.key == key), None)


def _with_member(text: str, section: str, name: str, entry: Mapping[str, JSON]) -> str:
    _read_json(text)
    plain = plain_json(text)
    root = _skip(plain, 0)
    found = _named(plain, root, section)
    indent = re.search(r'\n([ \t]+)"', text)
    unit = indent[1] if indent is not None else "  "
    if found is None:
        return _inserted(text, plain, root, 1, unit, section, {name: dict(entry)})
    if plain[found.value] != "{":
        raise CannotEdit(f"its {section!r} is not an object")
    present = _named(plain, found.value, name)
    if present is None:
        return _inserted(text, plain, found.value, 2, unit, name, dict(entry))
    return text[: present.value] + _written(entry, unit, 2, text) + text[present.end :]


def _inserted(text: str, plain: str, start: int, depth: int, unit: str, key: str, value: JSON) -> str:
    """Add a member at the end of the object that begins at `start`, behind the comments that stand there."""
    members = [*_members(plain, start)]
    end = members[-1].end if members else start + 1
    comma = _skip(plain_json(text, commas=True), end)
    has_comma = bool(members) and text[comma] == ","
    close = _decode(plain, start)[1] - 1
    tail = text[end:close].rstrip()
    line = "\r\n" if "\r\n" in text else "\n"
    rest = text[end + len(tail) :]
    member = f"{line}{unit * depth}{json.dumps(key, ensure_ascii=False)}: {_written(value, unit, depth, text)}"
    if "\n" not in rest[: close - end - len(tail)]:  # the object was written in one line
        member += f"{line}{unit * (depth - 1)}"
    return text[:end] + ("," if members and not has_comma else "") + tail + member + rest


def _written(value: object, unit: str, depth: int, text: str) -> str:
    lines = json.dumps(value, indent=unit, ensure_ascii=False).splitlines()
    return ("\r\n" if "\r\n" in text else "\n").join([lines[0], *(unit * depth + each for each in lines[1:])])


def _without_member(text: str, section: str, name: str) -> str:
    plain = plain_json(text)
    entries = _named(plain, _skip(plain, 0), section)
    assert entries is not None
    members = [*_members(plain, entries.value)]
    at = next(place for place, each in enumerate(members) if each.key == name)
    if at > 0:  # with the comma before it
        return text[: members[at - 1].end] + text[members[at].end :]
    if len(members) > 1:
        return text[: members[0].start] + text[members[1].start :]
    close = _decode(plain, entries.value)[1] - 1
    return text[: entries.value + 1] + text[close:]


# TOML, which is changed by lines.


def _read_toml(text: str) -> JSONObject:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise CannotEdit(f"it is not valid TOML: {error}") from None


def _without_table(text: str, section: str, name: str) -> str:
    """Leave out the lines of a table and of the tables in it."""
    kept: list[str] = []
    inside = False
    for line in text.splitlines(keepends=True):
        if line.lstrip().startswith("["):
            inside = _path(line)[:2] == (section, name)
        if not inside:
            kept.append(line)
    return "".join(kept)


def _path(line: str) -> tuple[str, ...]:
    """Return the keys in a header such as `[mcp_servers."my tools"]`; nothing for another line."""
    try:
        found: JSON = tomllib.loads(line)
    except tomllib.TOMLDecodeError:
        return ()
    keys: list[str] = []
    while is_object(found) and found:
        key, found = next(iter(found.items()))
        keys.append(key)
    return tuple(keys)


def _table(path: tuple[str, ...], members: Mapping[str, JSON]) -> str:
    """Write a table with texts and lists of texts, and the tables in it."""
    keys = [each if re.fullmatch(r"[A-Za-z0-9_-]+", each) else json.dumps(each) for each in path]
    lines = [f"[{'.'.join(keys)}]\n"]
    lines += [
        f"{key} = {json.dumps(value, ensure_ascii=False)}\n" for key, value in members.items() if not is_object(value)
    ]
    inner = [f"\n{_table((*path, key), value)}" for key, value in members.items() if is_object(value)]
    return "".join([*lines, *inner])
