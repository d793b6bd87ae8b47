"""What a server offers, as a file that is compared in a repository: `tools.lock`.

It is JSON lines: the server first, then an item a line, in the order of their names, so that a change of one item is a change of
one line. Members are in the order of their names; those of `properties` keep theirs, since models read them in it. Icons and
`_meta` are left out.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from linkspan.contract.tokens import tokens_of
from linkspan.types.base import JSON, JSONObject, is_array, is_object

FORMAT: Final = 1
"""The version of the file; another one is refused."""

KEYS: Final[Mapping[str, str]] = {"tool": "name", "prompt": "name", "template": "name", "resource": "uri"}
"""For each kind of item the member that names one."""

_LEFT_OUT: Final = ("icons", "_meta")
_SENT: Final = ("name", "description", "inputSchema")
"""What a model is sent of a tool."""


class InvalidLock(ValueError):
    """A file is not a lock; the message names the line and what is wrong with it."""


class Snapshot(msgspec.Struct, frozen=True):
    """What a server offered to one caller at one moment."""

    server: str
    """Its name."""
    revisions: tuple[str, ...] = ()
    """The revisions that it declares; of a server that declares none, the one in use."""
    capabilities: tuple[str, ...] = ()
    """What it announces: `tools`, `tools.listChanged`, and ids of extensions."""
    instructions: str | None = None
    caller: str | None = None
    """A name for the one who asked, where the lists depend on that."""
    items: Mapping[str, Mapping[str, JSONObject]] = {}
    """For each kind (`tool`, `prompt`, `template`, `resource`) the definitions, by name or URI."""

    def of(self, kind: str) -> Mapping[str, JSONObject]:
        """Return the definitions of a kind, by name or URI."""
        return self.items.get(kind, {})

    @property
    def tokens(self) -> int:
        """About how many tokens the tools take in a request to a model."""
        return sum(map(tool_tokens, self.of("tool").values()))


def tool_tokens(tool: Mapping[str, JSON]) -> int:
    """Return about how many tokens a tool takes in a request to a model."""
    return tokens_of({key: tool[key] for key in _SENT if key in tool})


def capability_names(capabilities: Mapping[str, JSON]) -> tuple[str, ...]:
    """Return the names of what a server announces: each capability, its switches that are on, and extensions by their ids."""
    found: list[str] = []
    settings: JSON
    for name, settings in capabilities.items():
        if name in ("extensions", "experimental"):
            found += [f"{name}.{each}" for each in settings or ()]
            continue
        found.append(name)
        switches: JSONObject = settings or {}
        found += [f"{name}.{key}" for key, value in switches.items() if value is True]
    return tuple(sorted(found))


def collected(kind: str, definitions: Iterable[Mapping[str, JSON]]) -> dict[str, JSONObject]:
    """Return definitions by their keys, without what is left out of a lock; the first of several with one key counts."""
    found: dict[str, JSONObject] = {}
    for each in definitions:
        found.setdefault(str(each[KEYS[kind]]), {key: value for key, value in each.items() if key not in _LEFT_OUT})
    return found


def written(snapshot: Snapshot) -> str:
    """Return the text of the lock."""
    head = {
        "lock": FORMAT,
        "server": snapshot.server,
        "revisions": list(snapshot.revisions),
        "capabilities": list(snapshot.capabilities),
        "instructions": snapshot.instructions,
        "caller": snapshot.caller,
    }
    lines: list[JSONObject] = [{key: value for key, value in head.items() if value is not None}]
    for kind in KEYS:
        lines += [{"kind": kind, **_ordered(each)} for _, each in sorted(snapshot.of(kind).items())]
    return "".join(json.dumps(each, ensure_ascii=False) + "\n" for each in lines)


def _ordered(value: JSON, *, named: bool = False) -> JSON:
    """Return a value with its members in the order of their names; with `named` they are members of arguments, and stay."""
    if is_array(value):
        return [_ordered(each) for each in value]
    if not is_object(value):
        return value
    return {key: _ordered(value[key], named=key == "properties") for key in (value if named else sorted(value))}


def read(text: str, name: str) -> Snapshot:
    """Return what a lock says; `name` is that of the file, for errors. Raises: InvalidLock."""
    lines = [(at, line) for at, line in enumerate(text.splitlines(), 1) if line.strip()]
    if not lines:
        raise InvalidLock(f"{name} is empty: write it with `linkspan lock`")
    head = _line(name, *lines[0])
    if head.get("lock") != FORMAT or not isinstance(head.get("server"), str):
        raise InvalidLock(f"{name} is not a lock of this version of Linkspan: write it anew with `linkspan lock`")
    items: dict[str, dict[str, JSONObject]] = {kind: {} for kind in KEYS}
    for at, line in lines[1:]:
        item = _line(name, at, line)
        kind: JSON = item.pop("kind", None)
        key: JSON = item.get(KEYS[kind]) if isinstance(kind, str) and kind in KEYS else None
        if not isinstance(key, str):
            raise InvalidLock(
                f"{name}, line {at}: a line is an item with a kind ({', '.join(KEYS)}) and its name or URI"
            )
        if key in items[kind]:
            raise InvalidLock(f"{name}, line {at}: the {kind} {key!r} is there twice")
        items[kind][key] = item
    try:
        found = msgspec.convert({key: head[key] for key in head if key != "lock"}, Snapshot, strict=True)
    except msgspec.ValidationError as problem:
        raise InvalidLock(f"{name}, line 1: {problem}") from None
    return msgspec.structs.replace(found, items=items)


def _line(name: str, at: int, line: str) -> JSONObject:
    try:
        found: JSON = json.loads(line)
    except (ValueError, RecursionError):
        hint = " (a merge left its marks here)" if line.startswith(("<<<<<<<", "=======", ">>>>>>>")) else ""
        raise InvalidLock(f"{name}, line {at} is not JSON{hint}: write the file anew with `linkspan lock`") from None
    if not is_object(found):
        raise InvalidLock(f"{name}, line {at} is not a JSON object: write the file anew with `linkspan lock`")
    return found
