"""A server elsewhere that is killed again and again: calls that may be repeated do not fail."""

from __future__ import annotations

import operator
import os
import signal
import sys
import threading
from pathlib import Path

import pytest

from linkspan import Server, SyncClient

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals")

PROGRAM = """
import os, sys
from linkspan import Server

server = Server("mortal")

@server.tool(annotations={"readOnlyHint": True})
def double(n: int) -> int:
    return 2 * n

if __name__ == "__main__":
    with open(sys.argv[1], "w") as file:
        file.write(str(os.getpid()))
    server.run()
"""
KILLS = 6


def test_no_call_that_only_reads_fails_while_the_server_is_killed_each_0_7_seconds(tmp_path: Path) -> None:
    program, written, over = tmp_path / "mortal.py", tmp_path / "pid", threading.Event()
    program.write_text(PROGRAM)
    server, problems, calls = Server("here"), list[str](), [0] * 4
    mounted = server.mount([sys.executable, str(program), str(written)], shared=True, list_timeout=60)

    def call(place: int) -> None:
        with SyncClient(server) as client:
            while not over.is_set():
                result = client.call_tool("double", {"n": calls[place]})
                if result.is_error or result.text != str(2 * calls[place]):
                    problems.append(result.text)
                calls[place] += 1

    callers = [threading.Thread(target=call, args=(place,)) for place in range(4)]
    killed: set[int] = set()
    before = [0] * 4
    try:
        for each in callers:
            each.start()
        while len(killed) < KILLS and any(each.is_alive() for each in callers):
            over.wait(0.7)
            pid = int(written.read_text() or 0) if written.exists() else 0
            if (
                pid and pid not in killed and all(map(operator.gt, calls, before))
            ):  # each has called since the last time
                killed.add(pid)
                before = [*calls]
                os.kill(pid, signal.SIGKILL)
    finally:
        over.set()
        for each in callers:
            each.join(60)
        mounted.remove()
    assert problems == []
    assert len(killed) == KILLS
    assert min(calls) > KILLS
