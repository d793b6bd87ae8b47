"""What the tests of the command line share."""

from __future__ import annotations

import pytest
from shell import Shell


@pytest.fixture
def linkspan(capsys: pytest.CaptureFixture[str]) -> Shell:
    """`linkspan("call", ...)` returns the exit status and what was written."""
    return Shell(capsys)
