"""Notices when the source of a server changes: its file, the Python files beside it, and what these import.

Imports are read, not run, so that a file that does not even parse is watched as well as any. What is installed is left out.
"""

from __future__ import annotations

import ast
import os
import sys
import sysconfig
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import lru_cache
from importlib.util import cache_from_source
from pathlib import Path
from typing import Final, TypeAlias

import linkspan

__all__ = ["Watch"]

_SETTLED: Final = 0.05
_AT_MOST: Final = 2000

Stamp: TypeAlias = tuple[int, int]
"""When a file was written, and its size."""


class Watch:
    """The files of one server. Poll `changed`; there is nothing to install and nothing to close."""

    def __init__(self, file: str) -> None:
        """Begin with what is there now."""
        self._file = Path(os.path.abspath(file))
        self._roots = [self._file.parent, *_own_roots()]
        self._imported: set[Path] = set()
        self._seen: dict[Path, Stamp | None] = {}
        self._begin()

    def changed(self) -> str | None:
        """Return the path of a file that has changed, once those who write are done; None if none has."""
        now = self._look()
        if now == self._seen:
            return None
        while (then := self._settle()) != now:
            now = then
        changed = sorted(path for path in now.keys() | self._seen.keys() if now.get(path) != self._seen.get(path))
        for path in changed:
            with suppress(OSError, NotImplementedError):  # Python takes a cache of the same second and size for fresh
                os.unlink(cache_from_source(os.fspath(path)))
        self._begin()
        return self._name(changed[0]) if changed else None

    def _begin(self) -> None:
        """Take what is there now for what the server will run."""
        self._imported |= _imports([self._file, *self._beside()], self._roots)
        self._seen = self._look()

    def _settle(self) -> dict[Path, Stamp | None]:
        time.sleep(_SETTLED)
        return self._look()

    def _look(self) -> dict[Path, Stamp | None]:
        return {path: _stamp(path) for path in {self._file, *self._beside(), *self._imported}}

    def _name(self, path: Path) -> str:
        folder = self._file.parent
        return os.fspath(path.relative_to(folder) if path.is_relative_to(folder) else path)

    def _beside(self) -> list[Path]:
        return [path for path in self._file.parent.glob("*.py") if not path.name.startswith((".", "#"))]


def _stamp(path: Path) -> Stamp | None:
    try:
        found = path.stat()
    except OSError:
        return None  # not there, or not yet
    return found.st_mtime_ns, found.st_size


def _own_roots() -> list[Path]:
    """Return from where Python imports what is not installed: a project that is being worked on."""
    ours = Path(linkspan.__file__).parent.parent
    paths = [Path(os.path.abspath(path)) for path in sys.path if os.path.isdir(path)]
    return [path for path in paths if path != ours and not _is_installed(path)]


def _is_installed(folder: Path) -> bool:
    standard = (sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib"))
    return bool({"site-packages", "dist-packages"} & {*folder.parts}) or any(map(folder.is_relative_to, standard))


def _imports(files: Sequence[Path], roots: Sequence[Path]) -> set[Path]:
    """Return where the modules are, or would be, that `files` import from below `roots`, and those that these import."""
    found: set[Path] = set()
    todo = list(files)
    while todo and len(found) < _AT_MOST:
        path = todo.pop()
        if (stamp := _stamp(path)) is None:
            continue
        places = {place for module in _imported_by(path, stamp) for place in _places(path, module, roots)}
        todo += places - found
        found |= places
    return found


Module: TypeAlias = tuple[int, tuple[str, ...]]
"""How many packages up to begin, 0 for the top, and the names from there."""


@lru_cache(_AT_MOST)
def _imported_by(path: Path, stamp: Stamp) -> Sequence[Module]:
    """Return what a file imports. What its code makes up while it runs is not known."""
    try:
        tree = ast.parse(path.read_bytes())
    except (OSError, SyntaxError, ValueError, RecursionError):
        return ()
    modules: list[Module] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            modules += [(0, tuple(alias.name.split("."))) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            package = tuple(node.module.split(".")) if node.module else ()
            modules += [(node.level, (*package, alias.name)) for alias in node.names]
    return modules


def _places(importer: Path, module: Module, roots: Sequence[Path]) -> Iterator[Path]:
    """Where a module and the packages around it would be. The last name may be that of a thing inside."""
    level, names = module
    for start in roots if not level else importer.parents[level - 1 : level]:
        folder = start
        for name in names:
            yield folder / f"{name}.py"
            folder = folder / name
            yield folder / "__init__.py"
