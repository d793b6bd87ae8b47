"""Carries out a page as a reader does: writes its files, types its commands, and compares what the terminal shows.

In a page, the line before a block names a file, as in "Write this to `dice.py`:", and a block of the kind `console` is a
terminal: what follows `$ ` is typed at the shell, what follows the prompt of a program is typed there, and the rest is shown. A
line of `...` stands for any lines, and `...` in a line for any text. A command that serves is left running until the next one in
its terminal, which comes after a Ctrl-C. "In another terminal" before a block opens a second one.

    python tests/tutorials.py docs/tutorial-1-server.md          carries it out
    python tests/tutorials.py --write docs/tutorial-1-server.md  and writes what was shown into the page
"""

from __future__ import annotations

import argparse
import codecs
import fcntl
import os
import pty
import re
import select
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from ports import reserve_port

__all__ = ["carry_out"]

BLOCK = re.compile(r"(?P<before>[^\n]*)\n\n```(?P<kind>\w+)\n(?P<text>.*?)^```$", re.DOTALL | re.MULTILINE)
FILE = re.compile(r"`([\w./-]+)`:$")
PROMPT = "\x1e"
TYPED = re.compile(r"^(> |.*\[n\]o: |.*cancel\]: |  (?:value|seats): |How many seats\? )(\S.*)$")
"""A line that a program begins with its prompt, and the reader ends."""
SERVES = re.compile(r"^(linkspan run|uvicorn|gunicorn|python \w+\.py --serve)")
PREPARED = re.compile(r"^(cd |mkdir |python3 -m venv|source |pip |git clone|docker )")
"""Commands that the environment of the tests has replaced."""
VARIES = re.compile(r"\d+(\.\d+)?( ms| s|s)\b|(?<=incident )[0-9A-F]+")
"""Parts of what is shown that differ each time: a duration with its unit, which a slow machine changes, too."""
BIN, HOME = os.path.dirname(sys.executable), "/home/ada"
PORT = "8000"
"""The port of the pages; a free one takes its place."""
WIDTH, SECONDS = 100, 60.0


@dataclass
class Command:
    """One command of a page, with the lines that follow it there."""

    typed: str
    shown: list[str]


class Terminal:
    """A shell with a terminal of its own."""

    def __init__(self, folder: Path, home: Path) -> None:
        self._ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, WIDTH, 0, 0))
        environment = {
            "HOME": str(home),
            "LINKSPAN_HOME": str(home / ".linkspan"),
            "LANG": "C.UTF-8",
            "NO_COLOR": "1",
            "PATH": os.pathsep.join([BIN, "/usr/local/bin", "/usr/bin", "/bin"]),
            "PS1": PROMPT,
            "PS2": "",
            "TERM": "dumb",
        }
        self._shell = subprocess.Popen(
            ["bash", "--norc", "--noprofile", "--noediting", "-i"],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            cwd=folder,
            env=environment,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )
        os.close(theirs)
        self._seen, self._decoder = "", codecs.getincrementaldecoder("utf-8")("replace")
        self.serves = False
        self.read_to(PROMPT)

    def type(self, text: str) -> None:
        os.write(self._ours, text.encode())

    def read_to(self, *ends: str, pattern: re.Pattern[str] | None = None) -> str:
        """Return what is shown up to an end, or up to where a pattern matches all of it."""
        limit = time.monotonic() + SECONDS
        while True:
            clean = self._seen.replace("\r\n", "\n").replace("\r", "")
            for end in ends:
                if end in clean:
                    before, _, self._seen = clean.partition(end)
                    return before
            if pattern is not None and pattern.search(clean):
                self._seen = ""
                return clean
            if time.monotonic() > limit:
                raise TimeoutError(f"waited {SECONDS:g} s for {[*ends]!r}; shown was:\n{clean}")
            if select.select([self._ours], [], [], 0.2)[0]:
                self._seen += self._decoder.decode(os.read(self._ours, 65536))

    def close(self) -> None:
        os.close(self._ours)  # SIGHUP for all that runs there
        try:
            self._shell.wait(5)
        except subprocess.TimeoutExpired:
            os.killpg(self._shell.pid, signal.SIGKILL)
            self._shell.wait()


def carry_out(page: Path, folder: Path, earlier: Iterable[Path] = (), write: bool = False) -> None:
    """Carry out a page in an empty folder, which has the files of earlier pages.

    Raises AssertionError at the first difference to what is shown, or writes that into the page.
    """
    project, home, port = folder / "ferries", folder / "home", str(reserve_port())
    for made in (project, home):
        made.mkdir()
    environment = f"{HOME}/linkspan/.venv/bin"
    # What `python3` is called where `python3.11 -m venv` was typed, and in environments of other makers.
    names = (f"python3.{sys.version_info.minor}", "python")
    machine = {port: PORT, str(project): f"{HOME}/ferries", str(home): HOME}
    machine |= {f'"{BIN}/{name}"': f'"{environment}/python3"' for name in names} | {BIN: environment}
    for text in [each.read_text() for each in earlier]:
        for block in BLOCK.finditer(text):
            write_file(block, project, port)
    text, done, terminals = page.read_text(), 0, dict[bool, Terminal]()
    pieces: list[str] = []
    with ExitStack() as opened:
        for block in BLOCK.finditer(text):
            if block["kind"] != "console":
                write_file(block, project, port)
                continue
            second = "another terminal" in block["before"]
            if second not in terminals:
                terminals[second] = opened.enter_context(terminal(project, home))
            shown = "".join(compared(each, terminals[second], machine, write) for each in commands(block["text"]))
            pieces += [text[done : block.start("text")], shown]
            done = block.end("text")
    if write:
        page.write_text("".join([*pieces, text[done:]]))


def write_file(block: re.Match[str], project: Path, port: str) -> None:
    """Write the file that a block is, if the line before it names one."""
    if file := FILE.search(block["before"]):
        path = project / file[1]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(block["text"].replace(PORT, port))


def compared(command: Command, terminal: Terminal, machine: dict[str, str], write: bool) -> str:
    """Run a command. Returns its text for the page, which is that of the page unless something else was shown."""
    expected = "".join(f"{line}\n" for line in command.shown)
    typed = f"$ {command.typed}\n"
    if PREPARED.match(command.typed):
        return typed + expected
    port = next(iter(machine))
    shown = run(terminal, command, port)
    for here, there in machine.items():
        shown = shown.replace(here, there)
    if re.fullmatch(pattern_of(command.shown), VARIES.sub("N", shown)):
        return typed + expected
    if not write:
        advice = "if that is right: python tests/tutorials.py --write docs/tutorial-*.md"
        raise AssertionError(f"{typed}--- the page has\n{expected}\n--- but shown was\n{shown}\n{advice}")
    return typed + shown


@contextmanager
def terminal(folder: Path, home: Path) -> Iterator[Terminal]:
    opened = Terminal(folder, home)
    try:
        yield opened
    finally:
        opened.close()


def commands(block: str) -> Iterator[Command]:
    """Yield the commands of a block."""
    for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
        typed, *shown = part.rstrip("\n").split("\n")
        while typed.endswith("\\"):
            typed += "\n" + shown.pop(0)
        yield Command(typed, shown)


def pattern_of(lines: list[str]) -> str:
    """Return a regular expression for the shown text, with `...` for what may differ."""
    parts = (".*?".join(map(re.escape, VARIES.sub("N", line).split("..."))) + r"\n" for line in lines)
    return "".join(r"(?:.*\n)*?" if part == r".*?\n" else part for part in parts)


def run(terminal: Terminal, command: Command, port: str) -> str:
    """Type a command, and what its programs ask for. Returns what is shown."""
    if terminal.serves:
        terminal.type("\x03")
        terminal.read_to(PROMPT)
    typed, terminal.serves = command.typed.replace(PORT, port), SERVES.match(command.typed) is not None
    typed = typed.replace("linkspan run --http", f"linkspan run --http --port {port}")  # which is PORT without it
    terminal.type(typed + "\n")
    terminal.read_to(typed + "\n")
    if terminal.serves:
        if not command.shown:
            wait_for_port(int(port))
            return ""
        last = command.shown[-1]
        return terminal.read_to(pattern=re.compile(pattern_of([last]).replace(PORT, port)))
    shown = ""
    for found in filter(None, map(TYPED.match, command.shown)):
        shown += terminal.read_to(pattern=re.compile(rf"(?:\A|\n){re.escape(found[1])}\Z"))
        terminal.type(found[2] + "\n")
    return shown + terminal.read_to(PROMPT)


def wait_for_port(port: int) -> None:
    """Wait until a server listens that shows nothing."""
    limit = time.monotonic() + SECONDS
    while time.monotonic() < limit:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            time.sleep(0.05)
        else:
            return
    raise TimeoutError(f"nothing listens on {port} after {SECONDS:g} s")


def main() -> None:
    line = argparse.ArgumentParser(
        description="Carry out pages as a reader does, each after the files of those before it."
    )
    line.add_argument("--write", action="store_true", help="write what was shown into the page")
    line.add_argument("pages", nargs="+", type=Path)
    chosen = line.parse_args()
    for number, page in enumerate(chosen.pages):
        with tempfile.TemporaryDirectory() as folder:
            carry_out(page, Path(folder), chosen.pages[:number], chosen.write)


if __name__ == "__main__":
    main()
