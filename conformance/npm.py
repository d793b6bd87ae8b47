"""Install packages from npm into a cache folder: once, even if several processes want them at the same moment."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO

__all__ = ["Unable", "Unreachable", "install", "package"]

PATIENCE = 240.0
"""Seconds for all attempts together."""
ATTEMPTS = 3
NETWORK = re.compile(
    r"code (E5\d\d|E429|ECONN\w+|ETIMEDOUT|ENOTFOUND|EAI_AGAIN|EIDLETIMEOUT|\w*SOCKET_TIMEOUT)\b|network"
)
"""Texts of npm that blame the registry, or the way there."""


class Unable(Exception):
    """The suite, or a package, cannot be had; the text says why."""


class Unreachable(Unable):
    """The registry could not be reached, or was too slow."""


def package(folder: Path, name: str, wanted: str) -> Path:
    """Install a package into a folder of its own, and return a file of it. Raises: Unable."""
    install(folder, {"package.json": b'{"private": true}'}, "install", name)
    path = folder / "node_modules" / wanted
    if not path.exists():
        raise Unable(f"{name} in {folder} has no {wanted}: remove that folder")
    return path


def install(folder: Path, files: Mapping[str, bytes], *command: str) -> None:
    """Run an npm command on files in `folder`, unless that exists. It appears at once and whole. Raises: Unable."""
    if folder.exists():
        return
    npm = shutil.which("npm")
    if npm is None:
        raise Unable("npm is missing: install Node.js, any version that brings npm")
    with _alone(folder) as note:
        if folder.exists():
            return
        if problem := note.read():  # of the process that this one has waited for
            raise Unreachable(problem)
        try:
            _install(npm, folder, files, command)
        except Unreachable as problem:
            note.write(str(problem))
            raise


@contextmanager
def _alone(folder: Path) -> Iterator[IO[str]]:
    """Let one process at a time install a folder. The file is what the one before, if this one had to wait, has written."""
    import fcntl  # not on Windows

    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_name(f"{folder.name}.lock").open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            file.truncate(0)
        except BlockingIOError:
            fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        yield file


def _install(npm: str, folder: Path, files: Mapping[str, bytes], command: tuple[str, ...]) -> None:
    """Install beside the place, and move there."""
    print(f"npm {' '.join(command)} in {folder}", file=sys.stderr, flush=True)
    options = ["--no-audit", "--no-fund", "--loglevel=error", "--fetch-retries=5", "--fetch-timeout=60000"]
    give_up, problem = time.monotonic() + PATIENCE, ""
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f"{folder.name}-") as made:
        place = Path(made) / "whole"
        place.mkdir()
        for name, data in files.items():
            (place / name).write_bytes(data)
        for _ in range(ATTEMPTS):
            left = max(1.0, give_up - time.monotonic())
            try:
                done = subprocess.run(
                    [npm, *command, *options], cwd=place, capture_output=True, text=True, timeout=left, check=False
                )
            except subprocess.TimeoutExpired:
                raise Unreachable(f"npm took more than {PATIENCE:g} s for {folder.name}") from None
            if done.returncode == 0:
                place.rename(folder)
                return
            problem = f"npm {' '.join(command)} failed for {folder.name}: {done.stderr.strip()[-1000:]}"
            if not NETWORK.search(done.stderr):
                raise Unable(problem)
        raise Unreachable(problem)
