"""A few seconds of `bench/soak_http_client.py`: a server that dies at random, and a bad proxy, under many callers."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).parents[2] / "bench"
SCRIPT = BENCH / "soak_http_client.py"


@pytest.mark.parametrize(("mode", "face"), [("restart", "async"), ("proxy", "sync")])
def test_nothing_hangs_and_nothing_unsafe_arrives_twice(mode: str, face: str) -> None:
    command = [sys.executable, str(SCRIPT), "--seconds", "3", "--only", mode, "--face", face, "--seed", "5"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("options", [[], ["--era", "legacy", "--principals", "3"]], ids=["modern", "legacy"])
def test_the_memory_of_a_client_stays_flat(options: list[str]) -> None:
    command = [sys.executable, str(BENCH / "memory_http_client.py"), "--calls", "4000", *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
