"""Python packages that cannot be in the environment of the tests, each list of them in a virtual environment of its own.

It is made when a test first wants it, in a cache that later runs find again.
"""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

import pytest

__all__ = ["python_with"]

HERE = Path(__file__).parent
PATIENCE = 240.0
"""Seconds for an installation."""
NETWORK = re.compile(
    r"ConnectionError|Timeout|ProxyError|ConnectionReset|NameResolution|Max retries|Temporary failure|from versions: none"
)
"""Texts of pip that blame the package index, or the way there; an index that answers has versions of what is wanted."""


class Unable(Exception):
    """The packages cannot be had; the text says why."""


class Unreachable(Unable):
    """The package index could not be reached, or was too slow."""


def python_with(requirements: str) -> str:
    """Return a Python that has the packages of a file beside this one; skip the test, with the reason, where they cannot be had.

    With CI set, what cannot be installed from an index that answers is a failure.
    """
    found, problem = _environment(requirements)
    if found is not None:
        return found
    if os.environ.get("CI") and not isinstance(problem, Unreachable):
        pytest.fail(str(problem))
    pytest.skip(str(problem))


@cache  # problems too: one attempt is enough for all tests of a process
def _environment(requirements: str) -> tuple[str | None, Unable | None]:
    file = HERE / requirements
    digest = hashlib.sha256(f"{sys.version} {file.read_text()}".encode()).hexdigest()[:16]
    cached = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "linkspan-tests"
    folder = cached / f"{file.stem}-{digest}"
    try:
        if not folder.exists():
            _install(folder, file)
    except Unable as problem:
        return None, problem
    return str(folder / "bin" / "python"), None


def _install(folder: Path, requirements: Path) -> None:
    """Install beside the place, and move there: the folder appears at once and whole."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f"{folder.name}-") as made:
        place = Path(made) / "whole"
        _run(sys.executable, "-m", "venv", str(place))
        _run(str(place / "bin" / "python"), "-m", "pip", "install", "--quiet", "--requirement", str(requirements))
        if not folder.exists():  # another process was faster
            place.rename(folder)


def _run(*command: str) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    except subprocess.TimeoutExpired:
        raise Unreachable(f"{' '.join(command)} took more than {PATIENCE:g} s") from None
    if done.returncode != 0:
        kind = Unreachable if NETWORK.search(done.stderr) else Unable
        raise kind(f"{' '.join(command)} failed: {done.stderr.strip()[-1000:]}")
