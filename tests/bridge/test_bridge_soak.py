"""The soak of `bench/soak_bridge.py`, in short: of two principals behind one bridge, nothing crosses."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SOAK = Path(__file__).parents[2] / "bench" / "soak_bridge.py"


@pytest.mark.parametrize(("there", "here"), [("modern", "legacy"), ("legacy", "modern")])
def test_nothing_of_one_principal_reaches_the_other(there: str, here: str) -> None:
    pytest.importorskip("uvicorn")
    pytest.importorskip("cryptography")
    command = [sys.executable, str(SOAK), "--calls", "20", "--pair", there, here]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    assert done.stdout.startswith(f"{there} behind, {here} callers: 0 problems")
