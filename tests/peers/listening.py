"""Other people's servers that listen on a port of this machine."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress

from ports import reserve_port

__all__ = ["listening"]

PATIENCE = 90.0


@contextmanager
def listening(command: Callable[[int], Sequence[str]], path: str = "/mcp") -> Iterator[str]:
    """Start a server on a free port, which its command and the variable PORT name; give its URL, and end it."""
    port = reserve_port()
    process = subprocess.Popen(
        command(port),
        env={**os.environ, "PORT": str(port)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        _wait_for(port, process)
        yield f"http://127.0.0.1:{port}{path}"
    finally:
        process.kill()
        process.wait()


def _wait_for(port: int, process: subprocess.Popen[bytes]) -> None:
    give_up = time.monotonic() + PATIENCE
    while time.monotonic() < give_up:
        assert process.poll() is None, f"it ended with status {process.returncode}"
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), 0.2):
            return
        time.sleep(0.02)
    raise AssertionError("it does not listen")
