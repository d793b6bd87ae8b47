"""The servers of package.json, installed when they are first wanted, into a cache that later runs find again."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path

import pytest

__all__ = ["modern_node", "node_modules"]

HERE = Path(__file__).parent
FILES = ("package.json", "package-lock.json")


def node_modules() -> Path:
    """Return the folder with the packages; skip the test, with the reason, where they cannot be had.

    With CI set, packages that cannot be installed though there is an npm are a failure.
    """
    npm = shutil.which("npm")
    if npm is None or shutil.which("node") is None:
        pytest.skip("node and npm are not installed")
    digest = hashlib.sha256(b"".join((HERE / name).read_bytes() for name in FILES)).hexdigest()[:16]
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "linkspan-tests"
    home = cache / f"npm-{digest}"
    if not home.exists():
        problem = _install(npm, cache, home)
        if problem is not None and os.environ.get("CI"):
            pytest.fail(problem)
        if problem is not None:
            pytest.skip(problem)
    return home / "node_modules"


def _install(npm: str, cache: Path, home: Path) -> str | None:
    """Install beside the place and move there, so that nobody finds half of it. Return what went wrong, or None."""
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache) as folder:
        for name in FILES:
            shutil.copy(HERE / name, folder)
        command = [npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund"]
        try:
            done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120, check=False)
        except subprocess.TimeoutExpired:
            return "npm ci took more than two minutes"
        if done.returncode:
            return f"npm ci failed: {done.stderr.strip()[-500:]}"
        try:
            os.rename(folder, home)
        except OSError:
            return None if home.exists() else "the cache cannot be written"  # another run was quicker
        os.mkdir(folder)  # for the one who tidies up
    return None


def modern_node() -> str:
    """Return a node that the newest packages run on: that of the conformance suite, installed if there is none."""
    file = HERE.parents[1] / "conformance" / "run"
    loader = SourceFileLoader("conformance_run_for_peers", str(file))
    spec = spec_from_loader(loader.name, loader)
    assert spec is not None
    run = module_from_spec(spec)
    sys.modules[loader.name] = run
    sys.path.append(str(file.parent))  # for what it imports from beside it
    try:
        loader.exec_module(run)
    finally:
        sys.path.remove(str(file.parent))
    try:
        return str(run.node())
    except run.Unable as problem:
        if os.environ.get("CI"):
            pytest.fail(str(problem))
        pytest.skip(str(problem))
