"""One line on stderr for each call of a server over HTTP: when, what, how it ended, and how long it took."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Final

from linkspan.revisions.neutral import InputRequired, Outcome, Request
from linkspan.server.telemetry import Operation, failure_of
from linkspan.types.methods import NOUNS
from linkspan.wire.redaction import one_line

_VERBS: Final = {"tool": "call", "prompt": "prompt", "resource": "read"}


class CallLines:
    """Writes the lines. It is a telemetry: `server.watch(CallLines())`."""

    def __init__(self, write: Callable[[str], object] | None = None) -> None:
        """Write each line with `write`, by default to stderr."""
        self._write = write or sys.stderr.write

    def begin(self, request: Request, operation: Operation, ago: float = 0.0) -> _CallLine | None:
        """Begin the line of a request; None where it gets none."""
        verb = _VERBS.get(NOUNS.get(operation.method, ""))
        if verb is None:
            return None
        name = operation.tool or operation.prompt or getattr(request.params, "uri", None) or "(unknown)"
        return _CallLine(self._write, f"{verb:<6} {one_line(str(name), 80)}", time.monotonic() - ago)


class _CallLine:
    trace = None

    def __init__(self, write: Callable[[str], object], what: str, began: float) -> None:
        self._write = write
        self._what = what
        self._began = began

    def run(self, function: Callable[[], object]) -> object:
        """Run a function of the request."""
        return function()

    def repaired(self, count: int) -> None:
        """Say nothing of repaired arguments."""

    def end(self, request: Request, outcome: Outcome) -> None:
        """Write the line."""
        failure = failure_of(request, outcome)
        ended = "ok" if failure is None else {"tool_error": "error"}.get(failure.kind, failure.kind)
        if failure is not None and failure.code is not None:
            ended = f"error {failure.code}"
        if type(outcome) is InputRequired:
            ended = "asks"
        took = (time.monotonic() - self._began) * 1000
        self._write(f"{time.strftime('%H:%M:%S')} {self._what}: {ended}, {took:.0f} ms\n")
