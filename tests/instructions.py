"""Counts the instructions of a function, those inside C code too, with valgrind: no load of the machine changes them.

    with Instructions("hostile_inputs") as instructions: instructions.count("challenges", "a=", 8192)

A table is imported once, in a process under valgrind. For each count that forks a child, which ends after its work: what it
has executed is the work, and a constant. Run as a program, this is that process.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Self

__all__ = ["Instructions", "TooLong", "is_available"]

LONGEST = 60
"""Seconds that one count may take."""
_TOTALS = re.compile(r"Total instructions: (\d+)\n.*Total reps: (\d+)")
"""An instruction that repeats itself to copy memory counts once; its repetitions, a byte or a word each, are named beside it."""
_AT_ONCE = 32
"""Repetitions that take the time of an instruction."""


class TooLong(Exception):
    """A count took longer than it may."""


def is_available() -> bool:
    """Return whether this machine can count."""
    return shutil.which("valgrind") is not None


class Instructions:
    """The process that counts. `table` is a module with mappings `CASES` and `SQUARE`, of names to a `Case`."""

    def __init__(self, table: str) -> None:
        self._folder = tempfile.TemporaryDirectory()
        files = [f"--log-file={self._folder.name}/%p.log", f"--bb-out-file={self._folder.name}/%p.blocks"]
        self._process = subprocess.Popen(
            ["valgrind", "--tool=exp-bbv", "--instr-count-only=yes", *files, sys.executable, __file__, table],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONHASHSEED": "0", "PYTHONPATH": os.pathsep.join(each for each in sys.path if each)},
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()
        self._folder.cleanup()

    def count(self, case: str, shape: str, size: int, longest: int = LONGEST) -> int:
        """Return how many instructions a case takes for an input of this shape and size, and a constant. Raises: TooLong."""
        stdin: Any = self._process.stdin
        stdout: Any = self._process.stdout
        stdin.write(json.dumps([case, shape, size, longest]) + "\n")
        stdin.flush()
        pid, status = map(int, stdout.readline().split())
        if status == -signal.SIGALRM:
            raise TooLong(f"{case}, {shape}, {size}: more than {longest} s")
        assert status == 0, f"{case}, {shape}, {size} ended with {status}"
        found = _TOTALS.search(Path(self._folder.name, f"{pid}.log").read_text())
        assert found is not None
        return int(found[1]) + int(found[2]) // _AT_ONCE


def _serve(table: str) -> None:
    module = importlib.import_module(table)
    cases = {**module.CASES, **module.SQUARE}
    gc.collect()
    gc.disable()  # its work depends on what else there is
    warm: set[str] = set()
    for line in sys.stdin:
        case, shape, size, longest = json.loads(line)
        if case not in warm:  # what is made once, such as patterns, is no part of the work
            warm.add(case)
            cases[case].run(shape, 1)
        pid = os.fork()
        if not pid:
            signal.alarm(longest)
            cases[case].run(shape, size)
            os._exit(0)
        print(pid, os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)


if __name__ == "__main__":
    _serve(sys.argv[1])
