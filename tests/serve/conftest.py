"""Server processes for the tests of the drivers."""

from __future__ import annotations

import pytest
from stdio_process import HERE, Process


@pytest.fixture
def spawn():
    """Start processes that are gone after the test."""
    processes = []

    def start(*command: str, **options: object) -> Process:
        processes.append(Process(*command, **options))
        return processes[-1]

    yield start
    for process in processes:
        process.kill()


@pytest.fixture
def serve(spawn):
    """Start the server with the tools."""
    return lambda **options: spawn(str(HERE / "tool_server.py"), **options)
