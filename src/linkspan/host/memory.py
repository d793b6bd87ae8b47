"""What a host remembers from one run to the next: what the person allowed for good, and how tools were defined.

One JSON file, readable by its owner only, written whole and then put in place. A file that is damaged is put aside, not lost.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from linkspan.types.base import JSONObject

__all__ = ["Memory"]

_OWNER_ONLY: Final = 0o600
_DIRECTORY: Final = 0o700


class _Kept(msgspec.Struct):
    allowed: set[str] = msgspec.field(default_factory=set[str])
    pins: dict[str, JSONObject] = msgspec.field(default_factory=dict[str, JSONObject])


class Memory:
    """What is remembered: in a file, or without a path as long as this object lives."""

    def __init__(self, path: str | Path | None = None) -> None:
        """Read the file, if it is there. That it cannot be read or written raises nothing: `problem` says so."""
        self.path = Path(path) if path is not None else None
        self.problem = ""
        """Why the file does not have what is remembered; then it is remembered as long as this object lives."""
        self._kept = self._read()

    def allows(self, what: str) -> bool:
        """Tell whether the person allowed the tool with this key for good."""
        return what in self._kept.allowed

    def allow(self, what: str) -> None:
        """Remember that the person allowed the tool with this key for good."""
        self._kept.allowed.add(what)
        self._write()

    def pinned(self, what: str) -> JSONObject | None:
        """Return the definition under which a tool was used first, or accepted last."""
        return self._kept.pins.get(what)

    def pin(self, what: str, definition: JSONObject) -> None:
        """Remember a tool's definition."""
        if self._kept.pins.get(what) != definition:
            self._kept.pins[what] = definition
            self._write()

    def forget(self) -> None:
        """Forget everything."""
        self._kept = _Kept()
        self._write()

    def _read(self) -> _Kept:
        if self.path is None:
            return _Kept()
        try:
            return msgspec.json.decode(self.path.read_bytes(), type=_Kept)
        except FileNotFoundError:
            return _Kept()
        except OSError as error:
            self._complain(error)
            return _Kept()
        except msgspec.DecodeError:
            with suppress(OSError):
                self.path.replace(self.path.with_suffix(".damaged"))
            return _Kept()

    def _write(self) -> None:
        if self.path is None:
            return
        try:
            self._put(self.path)
        except OSError as error:
            self._complain(error)

    def _complain(self, error: OSError) -> None:
        self.problem = f"{self.path} cannot be used: {error.strerror or error}"

    def _put(self, path: Path) -> None:
        path.parent.mkdir(mode=_DIRECTORY, parents=True, exist_ok=True)
        draft = path.with_name(f"{path.name}.{os.getpid()}")
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, _OWNER_ONLY)
        with os.fdopen(descriptor, "wb") as file:
            file.write(msgspec.json.format(msgspec.json.encode(self._kept, order="sorted")))
        draft.replace(path)
