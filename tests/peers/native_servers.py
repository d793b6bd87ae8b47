"""Servers of the SDKs for Go and Rust, those of bench/servers, built when they are first wanted into a cache."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

__all__ = ["BUILDING", "native_server"]

SOURCES = Path(__file__).parents[2] / "bench" / "servers"
BUILDS = {
    "go": (["go", "build", "-mod=mod", "-o", "bench", "."], "bench"),
    "rust": (["cargo", "build", "-q"], "target/debug/bench"),
}
PATIENCE = 1200.0
BUILDING = pytest.mark.timeout(PATIENCE + 300)
"""For tests that may be the first to want one: of Rust, 150 crates are compiled."""


def native_server(name: str) -> str:
    """Return the program of the server for `go` or `rust`; skip the test, with the reason, where it cannot be built.

    It speaks over stdio, or over HTTP on the port that is its argument.
    """
    tool = BUILDS[name][0][0]
    if shutil.which(tool) is None:
        pytest.skip(f"there is no {tool}: install {name.capitalize()}")
    program, problem = _built(name)
    if program is None:
        pytest.skip(f"the server for {name} cannot be built: {problem}")
    return program


@cache
def _built(name: str) -> tuple[str | None, str]:
    source, (command, program) = SOURCES / name, BUILDS[name]
    content = b"".join(each.read_bytes() for each in sorted(source.rglob("*")) if each.is_file())
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "linkspan-tests"
    home = cache / f"{name}-{hashlib.sha256(content).hexdigest()[:16]}"
    kept = home / Path(program).name
    if kept.exists():
        return str(kept), ""
    home.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=home) as folder:
        work = Path(folder, "work")
        shutil.copytree(source, work)
        try:
            done = subprocess.run(command, cwd=work, capture_output=True, text=True, timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            return None, f"it took longer than {PATIENCE:.0f} s"
        if done.returncode:
            return None, (done.stderr.strip().splitlines() or ["no reason was given"])[-1]
        os.replace(work / program, kept)  # whole, or not there
    return str(kept), ""
