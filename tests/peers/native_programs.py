"""Programs for the SDKs of Go and Rust, in a cache that later runs find again.

A build takes minutes of all processors, so it begins with LINKSPAN_NATIVE=all only.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple

import pytest

__all__ = ["BUILDING", "native_program"]

HERE: Final = Path(__file__).parent
SERVERS: Final = HERE.parents[1] / "bench" / "servers"
PATIENCE: Final = 1200.0
"""Seconds for a build: of Rust, 150 crates are compiled."""
BUILDING: Final = pytest.mark.timeout(PATIENCE + 300)
"""For tests that may be the first to want a program."""


class _Build(NamedTuple):
    sources: Path
    command: list[str]
    program: str


_BUILDS: Final = {
    "go": _Build(SERVERS / "go", ["go", "build", "-mod=mod", "-o", "bench", "."], "bench"),
    "rust": _Build(SERVERS / "rust", ["cargo", "build", "--quiet"], "target/debug/bench"),
    "skills_rmcp": _Build(HERE / "skills_rmcp", ["cargo", "build", "--quiet", "--locked"], "target/debug/skills-rmcp"),
}


def native_program(name: str) -> str:
    """Return a program: a server of the benchmarks for `go` or `rust`, or the one with skills of rmcp.

    The servers speak over stdio, or over HTTP on the port that is their argument. Skips the test, with the reason, where there is
    none and none can be built.
    """
    found, problem = _had(name)
    if found is None:
        pytest.skip(problem)
    return found


@cache  # problems too: one attempt is enough for all tests of a process
def _had(name: str) -> tuple[str | None, str]:
    sources, command, program = _BUILDS[name]
    content = b"".join(each.read_bytes() for each in sorted(sources.rglob("*")) if each.is_file())
    cached = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "linkspan-tests"
    kept = cached / f"{name}-{hashlib.sha256(content).hexdigest()[:16]}" / Path(program).name
    if kept.exists():
        return str(kept), ""
    if os.environ.get("LINKSPAN_NATIVE") != "all":
        return None, f"the program for {name} is not built: set LINKSPAN_NATIVE=all, its build takes minutes"
    if shutil.which(command[0]) is None:
        return None, f"there is no {command[0]} to build the program for {name} with"
    kept.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=kept.parent) as folder:
        work = Path(folder, "work")
        shutil.copytree(sources, work)
        try:
            done = subprocess.run(command, cwd=work, capture_output=True, text=True, timeout=PATIENCE, check=False)
        except subprocess.TimeoutExpired:
            return None, f"{' '.join(command)} took more than {PATIENCE:g} s"
        if done.returncode != 0:
            return None, f"{' '.join(command)} failed: {done.stderr.strip()[-1000:]}"
        os.replace(work / program, kept)  # whole, or not there
    return str(kept), ""
