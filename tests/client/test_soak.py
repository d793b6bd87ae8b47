"""The soak, in short: a server that is killed again and again costs calls, and nothing else."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SOAK = Path(__file__).parents[2] / "bench" / "soak_client.py"


@pytest.mark.skipif(sys.platform != "linux", reason="the soak looks at /proc")
def test_a_server_that_is_killed_at_random_costs_its_calls_and_nothing_else() -> None:
    command = [sys.executable, str(SOAK), "--seconds", "1.5"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    assert "32 tasks" in done.stdout
    assert "32 threads" in done.stdout
