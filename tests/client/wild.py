"""Servers that misbehave on purpose: a plan says what `wild_server.py` does for each message.

    wild({"tools/call": [result("what?")]})
    wild({"server/discover": [{"exit": 1}], "tools/call die": [{"stderr": "oh"}, {"exit": 3}]})

A plan maps a method, or `tools/call` and a tool's name, to steps; "start" is before the first message, "answer" is for answers
of the client, "end" is after the last. A step is a line for stdout, in which $ID stands for the id of the request, or one of
{"exit": STATUS} {"kill": SIGNAL} {"stderr": TEXT} {"flood": KILOBYTES} {"sleep": SECONDS} {"deaf": 1} {"large": MEGABYTES}
{"deep": LEVELS} {"bytes": HEX} {"child": SECONDS} {"orphan": STATUS} {"close": FD} {"once": STEP}.
After `orphan` the process has ended, and a child of it takes the rest of the steps.
What a plan does not mention is answered as a good server does, in both eras; the tool `hang` is never
answered, and only the tool `again` is marked read-only.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

__all__ = ["LEGACY_ONLY", "alive", "descendants", "error", "raw", "result", "wild"]

SCRIPT = Path(__file__).parent / "wild_server.py"
MARK = f"tests={os.environ.get('PYTEST_XDIST_TESTRUNUID', '')}{os.environ.get('PYTEST_XDIST_WORKER', 'alone')}"
"""Tells the servers of this process and its children from those of tests that run beside it."""


def wild(plan: Mapping[str, Sequence[Any]] | None = None) -> list[str]:
    """Return the command of a server that follows `plan`."""
    return [sys.executable, "-I", "-S", "-X", MARK, str(SCRIPT), json.dumps(plan or {})]


def raw(**members: Any) -> str:
    """Return a message as a line."""
    return json.dumps({"jsonrpc": "2.0", **members}).replace('"$ID"', "$ID")


def result(value: Any) -> str:
    """Return the line of a response."""
    return raw(id="$ID", result=value)


def error(code: int, message: str = "no", data: Any = None) -> str:
    """Return the line of an error response."""
    return raw(id="$ID", error={"code": code, "message": message} | ({"data": data} if data is not None else {}))


LEGACY_ONLY = {"server/discover": [error(-32601, "Method not found")]}


def processes() -> Iterator[tuple[int, int, str]]:
    """Return the number, the parent's number and the command of every process that is not a zombie of others (Linux)."""
    for each in Path("/proc").glob("[0-9]*"):
        try:
            after_name = (each / "stat").read_text().rpartition(")")[2].split()
            command = (each / "cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
        except OSError:
            continue
        yield int(each.name), int(after_name[1]), command


def descendants() -> dict[int, str]:
    """Return our children, and every wild server of ours wherever it has got to."""
    return {
        pid: command
        for pid, parent, command in processes()
        if parent == os.getpid() or (pid != os.getpid() and f" {MARK} {SCRIPT} " in command)
    }


def gone(pids: set[int], patience: float = 30.0) -> bool:
    """Wait until none of these is left; the system has no event for processes that are not our children."""
    give_up = time.monotonic() + patience
    while any(alive(pid) for pid in pids):
        if time.monotonic() > give_up:
            return False
        time.sleep(0.01)
    return True


def alive(pid: int) -> bool:
    """Tell whether there is such a process, if only as a zombie of ours."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
