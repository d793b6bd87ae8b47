"""A server that is a command, started as hosts start it: a small environment, the root as its directory, and patience that ends.

It gets a handshake; no tool is called. Every process that it starts is ended.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from linkspan.checks.handshake import handshake
from linkspan.checks.lines import LineProcess
from linkspan.doctor.configs import SMALL_PATH
from linkspan.doctor.profiles import DoctorProfile
from linkspan.doctor.verdicts import Verdict, fault, skipped, warning
from linkspan.text import clip
from linkspan.types.base import JSON, JSONObject, is_object

OF_COMMANDS: Final = ("D26", "D28", "D29", "D30", "D31", "D33", "D34", "D35")
"""The faults that this module looks for."""

_HANDSHAKE: Final = handshake("linkspan-doctor")
_LONGEST_WAIT: Final = 20.0
"""Seconds for the first answer: longer than hosts that are in a hurry, shorter than a person's patience."""
_END: Final = 5.0
"""Seconds after the end of stdin in which a server ends."""
_AFTER_OUTPUT: Final = 2.0
"""Seconds in which a server ends that has closed its stdout."""
_MEASURED: Final = 1.0
"""Seconds for which the processor time of a server is measured that does not end."""
_BUSY: Final = 0.05
"""The part of a processor that an idle server does not use, on a machine with much to do, either."""
_PASSED: Final = (
    "HOME",
    "USER",
    "LOGNAME",
    "LANG",
    "TMPDIR",
    "SYSTEMROOT",
    "APPDATA",
    "USERPROFILE",
    "TEMP",
    "PATHEXT",
    "COMSPEC",
)
"""The variables that hosts pass on."""
_MOST_LINES: Final = 200
"""Lines of stdout that are kept."""
_MISSING_MODULE: Final = re.compile(r"(?:ModuleNotFoundError: )?No module named '?([\w.]+)'?|ImportError: (.{1,100})")
_LISTENS: Final = re.compile(r"(?i)(?:running|listening|serving|started)\b.{0,40}?https?://\S+|Uvicorn running on")
_MISSING_VARIABLE: Final = re.compile(
    r"KeyError: '([A-Z][A-Z0-9_]+)'|(?i:(?:environment variable|env var)\s+`?['\"]?)([A-Z][A-Z0-9_]+)"
    r"|\b([A-Z][A-Z0-9_]{3,})\b(?i: (?:is not set|is required|must be set|not set))"
)


class Seen(msgspec.Struct):
    """What one run of a server showed."""

    lines: list[str]
    """Lines of stdout before its answer that are no messages."""
    stderr: str
    answered: float | None
    """Seconds to its answer."""
    status: int | None
    """Its exit status, if it ended before it answered."""
    ended: float | None
    """Seconds from the end of stdin to its own end; None if it had to be killed."""
    cpu: float
    """Seconds of processor time a second after that, of one that went on."""
    problem: str = ""
    """Why it could not be started."""


def command(
    words: Sequence[str], hosts: Mapping[str, DoctorProfile], environment: Mapping[str, str], cwd: str | None = None
) -> Iterator[Verdict]:
    """Yield what hosts that start commands make of one; `environment` is what its entry sets."""
    hosts = {name: each for name, each in hosts.items() if "command" in each.reaches}
    small = shutil.which(words[0], path=SMALL_PATH)
    full = shutil.which(words[0])
    if full is None:
        yield fault("D26", f"there is no {words[0]!r}", "install it, or write its full path")
        yield from (skipped(id, "it cannot be started") for id in OF_COMMANDS[1:])
        return
    narrow = tuple(each.title for each in hosts.values() if each.path == "small")
    if small is None and "/" not in words[0] and narrow and os.name != "nt":
        yield fault("D26", f"{words[0]!r} is on the PATH of your shell only", f"write {full}", narrow)
    else:
        yield Verdict("D26", "ok")
    seen = run([full, *words[1:]], environment, cwd)
    yield from judged(seen, hosts)


def run(words: Sequence[str], environment: Mapping[str, str], cwd: str | None = None) -> Seen:
    """Start a server as hosts do, ask for its handshake, close its stdin, and end it."""
    passed = {key: os.environ[key] for key in _PASSED if key in os.environ}
    path = os.pathsep.join([os.path.dirname(words[0]), SMALL_PATH]) if os.name != "nt" else os.environ.get("PATH", "")
    found = Seen([], "", None, None, None, 0.0)
    try:
        process = LineProcess(
            words, {**passed, "PATH": path, **environment}, cwd or (os.sep if os.name != "nt" else None)
        )
    except (OSError, ValueError) as problem:
        found.problem = str(problem)
        return found
    try:
        _ask(process, found)
        _end(process, found)
    finally:
        process.close()
    found.stderr = process.stderr
    return found


def _ask(process: LineProcess, found: Seen) -> None:
    """Send the handshake and wait for its answer."""
    began = time.monotonic()
    with suppress(OSError):
        process.write(json.dumps(_HANDSHAKE).encode(), _LONGEST_WAIT)
    while (left := _LONGEST_WAIT - (time.monotonic() - began)) > 0:
        try:
            line = process.read(left)
        except TimeoutError:
            return
        if line is None:
            found.status = process.exit_status(_AFTER_OUTPUT)
            return
        text = line.decode("utf-8", "replace").rstrip("\r\n")
        message = _message(text)
        if message is not None and message.get("id") == 1:
            found.answered = time.monotonic() - began
            return
        if message is None and len(found.lines) < _MOST_LINES:
            found.lines.append(clip(text, 500))


def _message(line: str) -> JSONObject | None:
    try:
        found: JSON = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return found if is_object(found) and found.get("jsonrpc") == "2.0" else None


def _end(process: LineProcess, found: Seen) -> None:
    """Close its stdin, and see whether it ends."""
    began = time.monotonic()
    process.child.close_stdin()
    if process.exit_status(_END) is not None:
        found.ended = time.monotonic() - began
        return
    before = _processor_time(process.child.pid)
    time.sleep(_MEASURED)
    found.cpu = (_processor_time(process.child.pid) - before) / _MEASURED


def _processor_time(pid: int) -> float:
    """Return the seconds of processor time of a process; 0 where there is no /proc."""
    if sys.platform == "win32":
        return 0.0
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def judged(seen: Seen, hosts: Mapping[str, DoctorProfile]) -> Iterator[Verdict]:
    """Yield what a run showed."""
    said = seen.stderr + "\n".join(seen.lines)
    if seen.answered is None:
        yield from _unanswered(seen, said, hosts)
        return
    yield from (Verdict(id, "ok") for id in ("D33", "D34", "D35"))
    if seen.lines:
        cure = "print to stderr: print(..., file=sys.stderr), logging does so"
        yield fault("D28", f"before its answer, stdout had {clip(seen.lines[0], 120)!r}", cure)
    else:
        yield Verdict("D28", "ok")
    late = [each.title for each in hosts.values() if seen.answered > each.first_answer]
    words = f"its first answer came after {seen.answered:.1f} s"
    if late:
        yield fault("D29", words, "import what is slow where it is used", late)
    elif seen.answered > 1.5:
        yield warning(
            "D29",
            words,
            "import what is slow where it is used",
            ("Cline: 1.5 s", "Codex: 10 s")[: 1 + (seen.answered > 10)],
        )
    else:
        yield Verdict("D29", "ok")
    yield from _endings(seen)


def _endings(seen: Seen) -> Iterator[Verdict]:
    if seen.ended is not None:
        yield from (Verdict(id, "ok") for id in ("D30", "D31"))
        return
    words = f"it ran on {_END:.0f} s after its stdin had ended"
    if seen.cpu > _BUSY:
        busy = f"{words}, and used {seen.cpu:.0%} of a processor"
        yield fault("D31", busy, "end the process when a read of stdin returns nothing")
        yield skipped("D30", "it is busy: see D31")
    else:
        yield fault("D30", words, "end the process when stdin ends")
        yield Verdict("D31", "ok")


def _unanswered(seen: Seen, said: str, hosts: Mapping[str, DoctorProfile]) -> Iterator[Verdict]:
    """Yield why a server did not answer, by what it printed."""
    known = False
    if module := _MISSING_MODULE.search(said):
        known = True
        what = module[1] or module[2]
        yield fault(
            "D34",
            f"it ended with {clip(module[0], 120)!r}",
            f"install {what} into the Python of the command, or name another one",
        )
    if variable := _MISSING_VARIABLE.search(said):
        known = True
        name = next(each for each in variable.groups() if each)
        yield fault(
            "D33",
            f"it says {clip(variable[0], 120)!r}, and hosts pass no variable of your shell on",
            f'"env": {{"{name}": "..."}}',
        )
    if listens := _LISTENS.search(said):
        known = True
        yield fault("D35", f"it serves HTTP: {clip(listens[0], 120)!r}", "run it by stdio, or write its URL as url")
    if known:
        return
    if seen.problem or seen.status is not None:
        last = clip(" ".join(seen.stderr.split())[-200:], 200) or "it said nothing"
        words = seen.problem or f"it ended with exit status {seen.status} before it answered: {last}"
        yield fault(
            "D34", words, "start it in a terminal with a small PATH, in the root directory, and mend what it says"
        )
        return
    late = [each.title for each in hosts.values() if each.first_answer <= _LONGEST_WAIT]
    words = f"it did not answer within {_LONGEST_WAIT:.0f} s"
    yield fault("D29", words, "start it in a terminal and send it an initialize request", late)
