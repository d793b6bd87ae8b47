"""Watches the source of a server: the file, what it imports, and the folders that it loads.

Imports are read, not executed, so that a file with a syntax error, or one that is not there yet, is watched as well. Where a file
makes up at run time what it imports, all Python files beside it are watched. Installed packages are left out. How it waits:
docs/decisions/0011.
"""

from __future__ import annotations

import ast
import os
import sys
import sysconfig
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import lru_cache
from importlib.util import cache_from_source
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

import linkspan

_POLL: Final = 0.3
_NOTICE_TIMEOUT: Final = 1000
"""Milliseconds after which files are looked at, notified or not."""
_SETTLED: Final = 0.05
_AT_MOST: Final = 2000

Stamp: TypeAlias = tuple[int, int]
"""When a file was written, and its size."""


class Watch:
    """The files of one server. `wait`, then ask for what has `changed`, in one thread."""

    def __init__(self, file: str, more: Sequence[str] = ()) -> None:
        """Begin with what is there now. `more` are files to watch, too, and folders, whose files are."""
        self._file = Path(os.path.abspath(file))
        self._more = [Path(os.path.abspath(each)) for each in more]
        ours = Path(linkspan.__file__).parent.parent
        paths = [Path(os.path.abspath(path)) for path in sys.path if os.path.isdir(path)]
        standard = (sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib"))
        installed = {
            path
            for path in paths
            if {"site-packages", "dist-packages"} & {*path.parts} or any(map(path.is_relative_to, standard))
        }
        self._roots = [self._file.parent, *(path for path in paths if path != ours and path not in installed)]
        self._imported: set[Path] = set()
        self._loaded: set[Path] = set()
        self._open: set[Path] = set()
        """Folders in which any Python file may be imported."""
        self._seen: dict[Path, Stamp | None] = {}
        self._folders: set[Path] = set()
        self._notices: Iterator[object] = iter(())
        self._begin()

    def wait(self, stop: threading.Event) -> None:
        """Wait until a file may have changed, or `stop` is set: notified by watchfiles where it is installed, else for a moment.

        Returns every second at the latest, since some file systems notify of nothing.
        """
        try:
            import watchfiles
        except ImportError:
            stop.wait(_POLL)
            return
        folders = {path.parent for path in self._seen if path.parent.is_dir()}
        if folders != self._folders:
            self._folders = folders
            self._notices = watchfiles.watch(
                *folders,
                watch_filter=None,
                stop_event=stop,
                rust_timeout=_NOTICE_TIMEOUT,
                yield_on_timeout=True,
                recursive=False,
            )
        try:
            next(self._notices, None)
        except OSError:  # a folder was removed, or the system watches no more of them
            self._folders = set()
            stop.wait(_POLL)

    def changed(self) -> str | None:
        """Return the path of a file that has changed, once those who write are done; None if none has."""
        now = self._scan()
        if now == self._seen:
            return None
        before = self._seen
        while now != before:
            time.sleep(_SETTLED)
            before, now = now, self._scan()
        changed = sorted(path for path in now.keys() | self._seen.keys() if now.get(path) != self._seen.get(path))
        for path in changed:
            with suppress(OSError, NotImplementedError):  # Python takes a cache of the same second and size for fresh
                os.unlink(cache_from_source(os.fspath(path)))
        self._begin()
        if not changed:
            return None
        first, folder = changed[0], self._file.parent
        return os.fspath(first.relative_to(folder) if first.is_relative_to(folder) else first)

    def _begin(self) -> None:
        """Take what is there now for what the server will run: its files, and what they import from below the roots."""
        todo = deque([self._file, *self._gathered()])
        found: set[Path] = set()
        readable = True
        while todo and len(found) < _AT_MOST:
            path = todo.popleft()  # what is imported first is watched, even if the rest is too much
            if (stamp := _stamp(path)) is None:
                continue
            places: set[Path] = set()
            source = _source_of(path, stamp)
            readable = readable and source.is_readable
            if source.is_dynamic:
                self._open |= {path.parent, self._file.parent}
                places.update(each for folder in (path.parent, self._file.parent) for each in _python_in(folder))
            for folder in {base / each for base in (Path.cwd(), path.parent) for each in source.folders}:
                if folder.is_dir():
                    self._loaded.add(folder)
                    places.update(_python_below(folder))
            for level, names in source.imports:
                for folder in self._roots if not level else path.parents[level - 1 : level]:
                    for name in names:  # the last one may be that of a thing inside
                        places |= {folder / f"{name}.py", folder / name / "__init__.py"}
                        folder = folder / name
            todo += sorted(places - found)
            found |= places
        self._imported = found if readable else self._imported | found
        self._seen = self._scan()

    def _scan(self) -> dict[Path, Stamp | None]:
        return {path: _stamp(path) for path in {self._file, *self._gathered(), *self._imported, *_files_of(self._more)}}

    def _gathered(self) -> list[Path]:
        """Return the files of folders that are loaded whole, or of which any may be imported."""
        loaded = [path for folder in self._loaded for path in _python_below(folder)]
        return [*loaded, *(path for folder in self._open for path in _python_in(folder))]


def _files_of(paths: Sequence[Path]) -> Iterator[Path]:
    for path in paths:
        yield from (each for each in path.rglob("*") if each.is_file()) if path.is_dir() else (path,)


def _stamp(path: Path) -> Stamp | None:
    try:
        found = path.stat()
    except OSError:
        return None  # not there, or not yet
    return found.st_mtime_ns, found.st_size


Module: TypeAlias = tuple[int, tuple[str, ...]]
"""How many packages up to begin, 0 for the top, and the names from there."""


class WatchedSource(NamedTuple):
    """What a file names that is watched, too."""

    imports: Sequence[Module] = ()
    folders: Sequence[str] = ()
    """Texts in calls of methods `load`: those of `server.load` name a folder."""
    is_dynamic: bool = False
    """Whether it imports, or may run, files whose names its code makes up."""
    is_readable: bool = True


@lru_cache(_AT_MOST)
def _source_of(path: Path, stamp: Stamp) -> WatchedSource:
    """Return what a file imports and loads, as far as its text shows it."""
    try:
        tree = ast.parse(path.read_bytes())
    except (OSError, SyntaxError, ValueError, RecursionError):
        return WatchedSource(is_readable=False)
    modules: list[Module] = []
    texts: list[str] = []
    is_dynamic = False
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            modules += [(0, tuple(alias.name.split("."))) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            package = tuple(node.module.split(".")) if node.module else ()
            modules += [(node.level, (*package, alias.name)) for alias in node.names]
        elif isinstance(node, ast.Call):
            name = getattr(node.func, "attr", getattr(node.func, "id", ""))
            if name == "load" and isinstance(node.func, ast.Attribute):
                texts += _texts_in(node)
            elif name in _IMPORTERS:
                known = _module_in(node) if name in _BY_NAME else None
                modules += [known] if known is not None else []
                is_dynamic = is_dynamic or known is None
    return WatchedSource(modules, texts, is_dynamic)


_BY_NAME: Final = frozenset({"import_module", "__import__"})
_IMPORTERS: Final = _BY_NAME | {
    "exec", "run_path", "run_module", "iter_modules", "walk_packages", "spec_from_file_location", "SourceFileLoader",
}  # fmt: skip
"""Functions that import or run what they are given: modules by their names, or files."""


def _module_in(call: ast.Call) -> Module | None:
    """Return the module that a call such as `import_module("tools.fares")` names; None if its code makes the name up."""
    match call.args:
        case [ast.Constant(value=str(name))] if not name.startswith("."):
            return 0, tuple(name.split("."))
        case _:
            return None


def _texts_in(call: ast.Call) -> Iterator[str]:
    """Yield what may name a folder in a call such as `load("tools")` or `load(Path(__file__).with_name("tools"))`."""
    for argument in call.args[:1]:
        nodes = list(ast.walk(argument))
        if len(nodes) == 1 or any(isinstance(each, ast.Name) and each.id == "__file__" for each in nodes):
            texts = [each.value for each in nodes if isinstance(each, ast.Constant) and isinstance(each.value, str)]
            yield from (each for each in texts if Path(each).name not in ("", ".."))


def _python_in(folder: Path) -> Sequence[Path]:
    """Return the Python files of a folder, except hidden ones."""
    return [path for path in folder.glob("*.py") if not path.name.startswith((".", "#"))]


def _python_below(folder: Path) -> Sequence[Path]:
    """Return the Python files below a folder, except hidden ones."""
    found: list[Path] = []
    with suppress(OSError):  # it is removed at this moment
        for path in folder.rglob("*.py"):
            if not any(part.startswith((".", "#")) for part in path.relative_to(folder).parts):
                found.append(path)
    return found
