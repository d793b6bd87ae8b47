"""The servers of package.json, installed when they are first wanted, into a cache that later runs find again."""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
from collections.abc import Callable
from functools import cache
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from typing import Any

import pytest

__all__ = ["INSTALLING", "apps_script", "axe_script", "modern_node", "node_modules"]

HERE = Path(__file__).parent
FILES = ("package.json", "package-lock.json")
APPS = "2.0.4"
AXE = "4.14.1"
INSTALLING = pytest.mark.timeout(600)
"""For tests that may be the first to want packages: node and the servers, 240 s at most for each."""


def node_modules() -> Path:
    """Return the folder with the packages; skip the test, with the reason, where they cannot be had."""
    if shutil.which("npm") is None or shutil.which("node") is None:
        pytest.skip("node and npm are not installed")
    return Path(_had(_packages))


def modern_node() -> str:
    """Return a node that the newest packages run on: that of the conformance suite, installed if there is none."""
    return _had(_node)


def apps_script() -> str:
    """Return the script with which views of the package `@modelcontextprotocol/ext-apps` talk to their host."""
    return Path(_had(_apps)).read_text()


def axe_script() -> str:
    """Return the script that judges whether everybody can use a page."""
    return Path(_had(_axe)).read_text(encoding="utf-8")


def _had(install: Callable[[], tuple[str | None, Exception | None]]) -> str:
    """Return what is installed. With CI set, what cannot be installed from a registry that answers is a failure."""
    found, problem = install()
    if found is not None:
        return found
    is_missing = shutil.which("npm") is None or isinstance(problem, _conformance_run().npm.Unreachable)
    if os.environ.get("CI") and not is_missing:
        pytest.fail(str(problem))
    pytest.skip(str(problem))


@cache  # problems too: one attempt is enough for all tests of a process
def _packages() -> tuple[str | None, Exception | None]:
    files = {name: (HERE / name).read_bytes() for name in FILES}
    digest = hashlib.sha256(b"".join(files.values())).hexdigest()[:16]
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "linkspan-tests" / f"npm-{digest}"
    run = _conformance_run()
    try:
        run.npm.install(home, files, "ci", "--ignore-scripts")
    except run.Unable as problem:
        return None, problem
    return str(home / "node_modules"), None


@cache
def _node() -> tuple[str | None, Exception | None]:
    run = _conformance_run()
    try:
        return str(run.node()), None
    except run.Unable as problem:
        return None, problem


@cache
def _conformance_run() -> Any:
    file = HERE.parents[1] / "conformance" / "run"
    loader = SourceFileLoader("conformance_run_for_peers", str(file))
    spec = spec_from_loader(loader.name, loader)
    assert spec is not None
    run = module_from_spec(spec)
    sys.modules[loader.name] = run
    loader.exec_module(run)
    sys.path.remove(str(file.parent))  # which it has put there for what it imports from beside it
    return run


@cache
def _apps() -> tuple[str | None, Exception | None]:
    return _file_of("@modelcontextprotocol/ext-apps", APPS, "dist/src/app-with-deps.js")


@cache
def _axe() -> tuple[str | None, Exception | None]:
    return _file_of("axe-core", AXE, "axe.min.js")


def _file_of(name: str, version: str, path: str) -> tuple[str | None, Exception | None]:
    run = _conformance_run()
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "linkspan-tests"
    try:
        home = cache / f"{name.rpartition('/')[2]}-{version}"
        return str(run.npm.package(home, f"{name}@{version}", f"{name}/{path}")), None
    except run.Unable as problem:
        return None, problem
