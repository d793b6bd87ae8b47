"""What a host remembers from one run to the next: what the user allowed for good, and how tools were defined.

One JSON file, readable by its owner only, written whole and then put in place. A file that is damaged is put aside, not lost.
Definitions of tools are pinned on first use: a server cannot change afterwards what its tool claims to do. Until the user has
accepted a change, the model is shown the definition that was pinned, never the new one.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import os
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, TypeAlias

import msgspec

from linkspan.flows.client_errors import ServerOrigin
from linkspan.runtime.shared_files import read_shared, replace_shared, wait_for_lock
from linkspan.types.base import JSON, JSONObject
from linkspan.types.messages import Tool
from linkspan.wire.redaction import is_secret_name, revealed
from linkspan.wire.values import to_builtins

_OWNER_ONLY: Final = 0o600
_DIRECTORY: Final = 0o700
_LONGEST_LOCK: Final = 10.0
"""Seconds after which another host, which needs it for one small file, has stopped in the middle."""


class _RememberedFile(msgspec.Struct):
    allowed: set[str] = msgspec.field(default_factory=set[str])
    pins: dict[str, JSONObject] = msgspec.field(default_factory=dict[str, JSONObject])


_Change: TypeAlias = Callable[[_RememberedFile], object]


class Memory:
    """What is remembered: in a file, or without a path as long as this object lives.

    Several hosts may share the file: each adds to what is there, under a lock, and sees what the others have added.
    """

    def __init__(self, path: str | Path | None = None) -> None:
        """Read the file, if it is there. That it cannot be read or written raises nothing: see `problem`."""
        self.path = Path(path) if path is not None else None
        self.problem = ""
        """Why the file does not have what is remembered; then it is remembered as long as this object lives."""
        self._kept = _RememberedFile()
        self._state: object = None
        self._unsaved: list[_Change] = []
        self._refresh()

    def allows(self, what: str) -> bool:
        """Return whether the person allowed the tool with this key for good."""
        self._refresh()
        return what in self._kept.allowed

    def allow(self, what: str) -> None:
        """Remember that the person allowed the tool with this key for good."""
        self._change(lambda kept: kept.allowed.add(what))

    def pinned(self, what: str) -> JSONObject | None:
        """Return the definition under which a tool was used first, or accepted last."""
        self._refresh()
        return self._kept.pins.get(what)

    def pin(self, what: str, definition: JSONObject) -> None:
        """Remember a tool's definition."""
        if self._kept.pins.get(what) != definition:
            self._change(lambda kept: kept.pins.update({what: definition}))

    def forget(self) -> None:
        """Forget everything."""

        def empty(kept: _RememberedFile) -> None:
            kept.allowed.clear()
            kept.pins.clear()

        self._change(empty)

    def _refresh(self) -> None:
        """Read the file if it was replaced; what could not be written still holds."""
        if self.path is None or (state := _state_of(self.path)) == self._state:
            return
        try:
            kept = _read(self.path)
        except OSError as error:
            self._complain(error)
            return
        for change in self._unsaved:
            change(kept)
        self._kept, self._state = kept, state

    def _change(self, change: _Change) -> None:
        """Change what is in the file, not what was in it when this object was made."""
        self._unsaved.append(change)
        if self.path is None:
            change(self._kept)
            self._unsaved.clear()
            return
        try:
            self.path.parent.mkdir(mode=_DIRECTORY, parents=True, exist_ok=True)
            with _locked(self.path.with_name(f"{self.path.name}.lock")):
                kept = _read(self.path)
                for each in self._unsaved:
                    each(kept)
                # A new file is renamed: who reads meanwhile, or dies, has one or the other.
                draft = self.path.with_name(f"{self.path.name}.{os.getpid()}")
                descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, _OWNER_ONLY)
                with os.fdopen(descriptor, "wb") as file:
                    file.write(msgspec.json.format(msgspec.json.encode(kept, order="sorted")))
                replace_shared(draft, self.path)
                self._kept, self._state = kept, _state_of(self.path)
            self._unsaved.clear()
            self.problem = ""
        except OSError as error:
            change(self._kept)
            self._complain(error)

    def _complain(self, error: OSError) -> None:
        self.problem = f"{self.path} cannot be used: {error.strerror or error}"


def _state_of(path: Path) -> object:
    """Return what changes whenever another file is put there."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size


def _read(path: Path) -> _RememberedFile:
    """Read what is kept; a damaged file is put aside. Raises: OSError."""
    try:
        return msgspec.json.decode(read_shared(path), type=_RememberedFile)
    except FileNotFoundError:
        return _RememberedFile()
    except msgspec.DecodeError:
        with suppress(OSError):
            replace_shared(path, path.with_suffix(".damaged"))
        return _RememberedFile()


@contextmanager
def _locked(path: Path) -> Generator[None]:
    """Hold the lock, which is a file of its own, since that which it protects is replaced. Raises: OSError."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, _OWNER_ONLY)
    try:
        wait_for_lock(descriptor, _LONGEST_LOCK)
        yield
    finally:
        os.close(descriptor)


_DIGITS = 16


def tool_key(origin: ServerOrigin, directory: str | None, environment: Mapping[str, str], tool: str) -> str:
    """Return a key for a tool. Another command or URL under the same name is another server.

    So is the same command in another directory, where `python server.py` may be anything, or with other variables, such as
    a path to load from. What a variable holds that is a secret does not count: tokens change, and have no place in a file.
    """
    variables = {name: None if is_secret_name(name) else value for name, value in sorted(environment.items())}
    where = json.dumps([origin.command, origin.url, directory, *([variables] if variables else [])])
    mark = hashlib.sha256(where.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGITS]
    return f"{origin.server} {mark}/{tool}"


_SAID = ("title", "description", "inputSchema", "outputSchema", "annotations")
"""What a model or a person decides by. Icons and `_meta` may change without a question."""


class Definition(msgspec.Struct, frozen=True):
    """A tool as it may be shown, and how its server's present definition differs from that."""

    tool: Tool
    change: str = ""
    """A diff to read: lines that went begin with `-`, new ones with `+`. Empty if nothing changed."""


class Pins:
    """The definitions that a person has used, by the keys of tools: see `tool_key`."""

    def __init__(self, memory: Memory) -> None:
        """Keep them in `memory`."""
        self._memory = memory

    def definition(self, key: str, tool: Tool) -> Definition:
        """Return how a tool may be shown."""
        pinned = self._memory.pinned(key)
        said = _said(tool)
        if pinned is None or pinned == said:
            return Definition(tool)
        try:
            shown = msgspec.convert({**pinned, "name": tool.name}, Tool)
        except msgspec.ValidationError:  # the file was edited
            shown = tool
        return Definition(shown, difference(pinned, said))

    def pin(self, key: str, tool: Tool) -> None:
        """Pin a tool as its server defines it now."""
        self._memory.pin(key, _said(tool))


def _said(tool: Tool) -> JSONObject:
    whole: Mapping[str, JSON] = to_builtins(tool)
    return {key: whole[key] for key in _SAID if key in whole}


def difference(pinned: JSONObject, said: JSONObject) -> str:
    """Return the lines that two definitions of a tool do not share."""
    lines = difflib.unified_diff(_lines(pinned), _lines(said), n=1, lineterm="")
    return "\n".join(each for each in lines if not each.startswith(("---", "+++", "@@")))


def _lines(definition: JSONObject) -> list[str]:
    """One line for each line of the description, and each member of a schema: what changed is then one line."""
    found: list[str] = []
    for key in _SAID:
        value: JSON = definition.get(key)
        if isinstance(value, str):
            found += [f"{key}: {line}" for line in revealed(value).splitlines()]
        elif value is not None:
            found += [f"{key} {line}" for line in json.dumps(value, indent=1, sort_keys=True).splitlines()]
    return found
