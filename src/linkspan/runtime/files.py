"""Files that are served: their types, and the way to them below a directory.

Law: nothing outside a directory is read, or named, through its path: no `..`, no link and no rename on the way leads out, and
what is hidden stays hidden. Where the platform can, each folder is opened from the one before it.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from typing import Final

import msgspec

_MORE_TYPES: Final = {
    ".flac": "audio/flac",
    ".ipynb": "application/x-ipynb+json",
    ".jsonl": "application/jsonl+json",
    ".m4a": "audio/mp4",
    ".md": "text/markdown",
    ".ogg": "audio/ogg",
    ".rst": "text/x-rst",
    ".toml": "application/toml",
    ".ts": "text/x-typescript",
    ".wav": "audio/wav",
    ".webp": "image/webp",
    ".yaml": "application/yaml",
    ".yml": "application/yaml",
}
"""Types that the table of the standard library lacks in some versions, or names otherwise."""

_FILE: Final = os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
"""Without waiting for the other end of a pipe."""
_NO_LINK: Final = getattr(os, "O_NOFOLLOW", 0)
_FOLDER: Final = getattr(os, "O_DIRECTORY", 0)
_STEPWISE: Final = os.open in os.supports_dir_fd and os.readlink in os.supports_dir_fd and bool(_NO_LINK and _FOLDER)
_MAX_LINKS: Final = 40
_NEVER: Final = "\0\\/:" if os.name == "nt" else "\0\\/"
"""Never part of a name: what some platform reads as more than a name."""
_HIDDEN_ON_WINDOWS: Final = getattr(stat, "FILE_ATTRIBUTE_HIDDEN", 2)
_ABSENT: Final = frozenset(
    {
        errno.EACCES, errno.EINVAL, errno.EISDIR, errno.ELOOP, errno.EMLINK, errno.ENAMETOOLONG, errno.ENODEV, errno.ENOENT,
        errno.ENOTDIR, errno.ENXIO, errno.EPERM,
    }
)  # fmt: skip
"""For a client there is no such file."""


def type_of_name(name: str) -> str:
    """Return the media type of a file, by the end of its name."""
    import mimetypes

    ending = os.path.splitext(name)[1].lower()
    return _MORE_TYPES.get(ending) or mimetypes.guess_type(f"file{ending}")[0] or "application/octet-stream"


class OneFile:
    """A file that its author chose, wherever it is."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Find the file. Raises: OSError if there is none."""
        self._path = os.path.abspath(path)
        if not stat.S_ISREG(os.stat(self._path).st_mode):
            raise OSError(errno.EINVAL, "not a regular file", self._path)
        self.mime_type = type_of_name(self._path)

    def read(self) -> bytes | None:
        """Return what is in it now; None where it is gone. Raises: OSError."""
        try:
            with open(self._path, "rb") as file:
                return file.read()
        except FileNotFoundError:
            return None


class FileFacts(msgspec.Struct, frozen=True):
    """What a list shows of a file. It differs where the file has changed."""

    size: int
    changed: int
    """Nanoseconds since 1970."""
    inode: int


class Directory:
    """The files below a directory, by their paths from there with slashes."""

    def __init__(self, root: str | os.PathLike[str]) -> None:
        """Find the directory. Raises: OSError if there is none."""
        self.root = os.path.realpath(root, strict=True)
        if not os.path.isdir(self.root):
            raise NotADirectoryError(errno.ENOTDIR, "not a directory", self.root)

    def read(self, path: str, most: int) -> bytes | None:
        """Return up to `most` bytes of a file; None where there is none that may be read. Raises: OSError."""
        parts = path.split("/")
        if not all(map(_may_be_named, parts)):
            return None
        try:
            descriptor = self._open(parts) if _STEPWISE else self._open_checked(parts)
        except OSError as error:
            if error.errno in _ABSENT:
                return None
            raise
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            return None
        with os.fdopen(descriptor, "rb") as file:
            return file.read(most)

    def _open(self, parts: list[str]) -> int:
        """Open a file by one step for each part of its path, so that nothing changes the way that was checked."""
        way = [os.open(self.root, _FILE | _FOLDER)]
        todo, links = parts[::-1], 0
        try:
            while todo:
                part = todo.pop()
                if part == "..":  # only links have these
                    if len(way) == 1:
                        raise OSError(errno.EACCES, "a link leads out")
                    os.close(way.pop())
                    continue
                try:
                    way.append(os.open(part, _FILE | _NO_LINK | (_FOLDER if todo else 0), dir_fd=way[-1]))
                except OSError:
                    todo += _steps_of_link(part, way[-1])
                    links += 1
                    if links > _MAX_LINKS:
                        raise
            return way.pop()
        finally:
            for each in way:
                os.close(each)

    def _open_checked(self, parts: list[str]) -> int:
        """Open a file where folders cannot be opened, and make sure afterwards that it is where it should be."""
        path = os.path.join(self.root, *parts)
        if not self._is_inside(path):
            raise OSError(errno.EACCES, "it leads out")
        descriptor = os.open(path, _FILE)
        real = os.path.realpath(path)
        if self._is_inside(real) and os.path.samestat(os.stat(real), os.fstat(descriptor)):
            return descriptor
        os.close(descriptor)
        raise OSError(errno.EACCES, "it was moved")

    def _is_inside(self, path: str) -> bool:
        """Return whether a path leads to something below the root that is not hidden."""
        real = os.path.realpath(path)
        inside = real.startswith(os.path.join(self.root, ""))
        return inside and all(map(_may_be_named, os.path.relpath(real, self.root).split(os.sep)))

    def scan(self, most: int) -> dict[str, FileFacts]:
        """Return up to `most` files, folder by folder, in the order of their names; folders that links lead to are left out."""
        found: dict[str, FileFacts] = {}
        for entry in self._entries(10 * most):
            with suppress(OSError):  # it is gone meanwhile
                status = entry.stat()
                if stat.S_ISREG(status.st_mode) and (not entry.is_symlink() or self._is_inside(entry.path)):
                    path = os.path.relpath(entry.path, self.root).replace(os.sep, "/")
                    found[path] = FileFacts(status.st_size, status.st_mtime_ns, status.st_ino)
            if len(found) >= most:
                break
        return found

    def _entries(self, most: int) -> Iterator[os.DirEntry[str]]:
        """Return what is not a folder, looking at up to `most` entries."""
        folders = [self.root]
        while folders:
            folder = folders.pop()
            try:
                with os.scandir(folder) as listing:
                    entries = sorted((each for each in listing if _is_shown(each)), key=lambda entry: entry.name)
            except OSError:
                continue
            below: list[str] = []
            for entry in entries:
                most -= 1
                if most < 0:
                    return
                if entry.is_dir(follow_symlinks=False):
                    below.append(entry.path)
                else:
                    yield entry
            folders += below[::-1]


def _steps_of_link(part: str, folder: int) -> list[str]:
    """Return the parts of where a link in a folder leads, the last one first. Raises: OSError for one that may lead out."""
    target = os.readlink(part, dir_fd=folder)
    steps = [each for each in target.split("/") if each not in ("", ".")]
    if target.startswith("/") or not all(each == ".." or _may_be_named(each) for each in steps):
        raise OSError(errno.EACCES, "a link leads out")
    return steps[::-1]


def _may_be_named(part: str) -> bool:
    """Return whether a part of a path may be asked for: no hidden one, and nothing that leads elsewhere."""
    return bool(part) and part[0] != "." and not any(each in part for each in _NEVER)


def _is_shown(entry: os.DirEntry[str]) -> bool:
    try:
        entry.name.encode()
    except UnicodeEncodeError:  # no URI can name it
        return False
    if os.name == "nt" and getattr(entry.stat(follow_symlinks=False), "st_file_attributes", 0) & _HIDDEN_ON_WINDOWS:
        return False
    return _may_be_named(entry.name)
