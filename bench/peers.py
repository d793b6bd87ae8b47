"""The programs to measure against, put together once in a cache: interpreters with what users install, and other languages.

What has no toolchain here is left out.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

from runs import ROOT, SERVERS

__all__ = ["Peers"]

NEWER = "3.13"
"""The other Python, on which async functions begin where they are made: a figure of one version says little of the other."""
PINNED = ["mcp==2.3.0", "fastmcp==4.1.2", "uvicorn", "httptools", "uvloop"]


class Peers:
    """Commands, each in a directory of its own below `cache`."""

    def __init__(self, cache: Path, newer: str | None = None) -> None:
        """`newer` is an interpreter of `NEWER`, if one is not found by itself."""
        self._cache = cache
        project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
        needed, extra = project["dependencies"], project["optional-dependencies"]["http"]
        self.plain = self._python("plain", needed)
        self.http = self._python("http", [*needed, *extra])
        newer = newer or find_newer()
        self.newer = self._python("newer", [*needed, *extra], newer) if newer else None
        self.official = self._python("official", PINNED)
        self.typescript = self._built("typescript", "npm", ["npm", "install", "--silent"], ["node", "server.mjs"])
        self.go = self._built("go", "go", ["go", "build", "-mod=mod", "-o", "bench", "."], ["./bench"])
        self.rust = self._built("rust", "cargo", ["cargo", "build", "-q", "--release"], ["./target/release/bench"])

    def distributions(self, python: str) -> int:
        """Return how many distributions an interpreter has, ours counted, which a fresh one does not have."""
        code = "import importlib.metadata as m; print(*{d.name.lower() for d in m.distributions()} - {'pip', 'setuptools'})"
        return len(subprocess.run([python, "-c", code], capture_output=True, text=True, check=True).stdout.split()) + 1

    def _python(self, name: str, wanted: list[str], base: str = sys.executable) -> str:
        version = sys.version if base == sys.executable else base
        recipe = f"{version} {wanted}".encode()
        home = self._cache / f"{name}-{hashlib.sha256(recipe).hexdigest()[:12]}"
        if not (home / "ready").exists():
            print(f"preparing {home}", file=sys.stderr)
            shutil.rmtree(home, ignore_errors=True)
            subprocess.run([base, "-m", "venv", str(home)], check=True)
            subprocess.run([str(home / "bin/pip"), "install", "--quiet", *wanted], check=True)
            (home / "ready").touch()
        return str(home / "bin/python")

    def _built(self, name: str, tool: str, build: list[str], command: list[str]) -> list[str] | None:
        if shutil.which(tool) is None:
            print(f"{name} is left out: there is no {tool} here", file=sys.stderr)
            return None
        source = SERVERS / name
        content = b"".join(each.read_bytes() for each in sorted(source.rglob("*")) if each.is_file())
        home = self._cache / f"{name}-{hashlib.sha256(content).hexdigest()[:12]}"
        if not (home / "ready").exists():
            print(f"building {home}", file=sys.stderr)
            shutil.copytree(source, home, dirs_exist_ok=True)
            done = subprocess.run(build, cwd=home, env={**os.environ, "GOFLAGS": "-mod=mod"})
            if done.returncode:
                print(f"{name} is left out: it cannot be built here", file=sys.stderr)
                return None
            (home / "ready").touch()
        first, *rest = command
        program = str(home / first) if first.startswith("./") else str(shutil.which(first))
        return [program, *(str(home / each) for each in rest)]


def find_newer() -> str | None:
    """Return an interpreter of `NEWER`, of the system's or of pyenv's, if there is one."""
    for path in (shutil.which(f"python{NEWER}"), *Path.home().glob(f".pyenv/versions/{NEWER}.*/bin/python")):
        if path and subprocess.run([path, "-c", ""], stderr=subprocess.DEVNULL).returncode == 0:
            return str(path)
    print(f"there is no Python {NEWER} here", file=sys.stderr)
    return None
