"""Programs in Rust, built when a test first wants them, in a cache that later runs find again."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from functools import cache
from pathlib import Path

import pytest

__all__ = ["rust_program"]

HERE = Path(__file__).parent
PATIENCE = 240.0
"""Seconds for a build; the next run goes on where it was ended."""


def rust_program(name: str) -> str:
    """Return the program of a folder beside this file; skip the test, with the reason, where it cannot be built."""
    found, problem = _built(name)
    if found is None:
        pytest.skip(problem)
    return found


@cache
def _built(name: str) -> tuple[str | None, str]:
    if shutil.which("cargo") is None:
        return None, "cargo is not installed"
    folder = HERE / name
    files = [folder / "Cargo.toml", folder / "Cargo.lock", *sorted((folder / "src").iterdir())]
    digest = hashlib.sha256(b"".join(each.read_bytes() for each in files)).hexdigest()[:16]
    cached = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "linkspan-tests"
    target = cached / f"cargo-{name}"
    program = cached / f"{name}-{digest}"
    if program.exists():
        return str(program), ""
    command = ["cargo", "build", "--quiet", "--locked", "--target-dir", str(target)]
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=PATIENCE, check=False)
    except subprocess.TimeoutExpired:
        return None, f"{' '.join(command)} took more than {PATIENCE:g} s"
    if done.returncode:
        return None, f"{' '.join(command)} failed:\n{done.stderr}"
    (made,) = (
        each
        for each in (target / "debug").iterdir()
        if each.stem.replace("-", "_") == name and each.suffix in ("", ".exe")
    )
    copy = program.with_name(f"{program.name}.{os.getpid()}")
    shutil.copy2(made, copy)
    copy.replace(program)
    return str(program), ""
