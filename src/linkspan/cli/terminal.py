"""What reaches the terminal. Law: nothing that comes from a server may command it; control characters are shown, not obeyed.

Stdout has the result and nothing else; everything else is said on stderr.
"""

from __future__ import annotations

import json
import os
import sys
from contextlib import suppress
from typing import Any, TextIO

from linkspan.types.base import JSON
from linkspan.wire.plain import HIDDEN, belongs

__all__ = ["Console", "Style", "dump"]


def dump(value: JSON, indent: int | None = 2, *, reveal: bool = False) -> str:
    """Return JSON to read: the very value, and nothing for a terminal to obey. `reveal` leaves nothing unseen: see `revealed`."""
    text = json.dumps(value, indent=indent, ensure_ascii=False)
    return HIDDEN.sub(
        lambda found: found[0] if not reveal and belongs(text, found.start()) else _json_escape(found[0]), text
    )


def _json_escape(letter: str) -> str:
    """JSON itself leaves DEL and C1 as they are; what is beyond 16 bits takes two escapes."""
    number = ord(letter)
    return f"\\u{number:04x}" if number <= 0xFFFF else json.dumps(letter)[1:-1]


class Style:
    """Colours, or none."""

    def __init__(self, *, on: bool) -> None:
        self._on = on

    def bold(self, text: str) -> str:
        """For names."""
        return self._paint("1", text)

    def dim(self, text: str) -> str:
        """For what is beside the point."""
        return self._paint("2", text)

    def red(self, text: str) -> str:
        """For failures."""
        return self._paint("31", text)

    def yellow(self, text: str) -> str:
        """For warnings."""
        return self._paint("33", text)

    def cyan(self, text: str) -> str:
        """For headings."""
        return self._paint("36", text)

    def _paint(self, code: str, text: str) -> str:
        return f"\x1b[{code}m{text}\x1b[0m" if self._on and text else text


class Console:
    """Both streams of this command. For one thread: the main one."""

    def __init__(self, *, quiet: bool = False, verbose: bool = False, color: bool = True) -> None:
        for name in ("stdout", "stderr"):
            _make_usable(name)
        color = color and not os.environ.get("NO_COLOR")
        self.quiet = quiet
        self.verbose = verbose and not quiet
        self.terminal = sys.stderr.isatty()
        """Whether somebody reads stderr as it comes."""
        self.interactive = self.terminal and sys.stdin is not None and sys.stdin.isatty()
        """Whether somebody can be asked."""
        self.out = Style(on=color and sys.stdout.isatty())
        self.err = Style(on=color and self.terminal)
        self._moving = self.terminal and os.environ.get("TERM") != "dumb"
        self._status = ""

    def emit(self, text: str) -> None:
        """Write the result. That nobody reads any more is no failure."""
        self.status("")
        _write(sys.stdout, text if text.endswith("\n") or not text else f"{text}\n")

    def stream(self, text: str) -> None:
        """Write a piece of the result, as it comes."""
        self.status("")
        _write(sys.stdout, text)

    def mutter(self, text: str) -> None:
        """Write a piece of what is beside the point, as it comes."""
        self.status("")
        _write(sys.stderr, text)

    def emit_bytes(self, data: bytes) -> None:
        """Write a result that is no text."""
        self.status("")
        try:
            sys.stdout.buffer.write(data)
            sys.stdout.buffer.flush()
        except BrokenPipeError:
            _silence(sys.stdout)

    def say(self, text: str) -> None:
        """Write a line on stderr, whatever was asked for."""
        shown, self._status = self._status, ""
        _write(sys.stderr, f"{self._erased(shown)}{text}\n")

    def account(self, text: str) -> None:
        """Tell what happens, to people and to those who asked for it."""
        if (self.terminal or self.verbose) and not self.quiet:
            self.say(self.err.dim(text))

    def detail(self, text: str) -> None:
        """Tell what only those want to know who asked for it."""
        if self.verbose:
            self.say(self.err.dim(text))

    def note(self, text: str) -> None:
        """Tell what seems wrong."""
        if not self.quiet:
            self.say(self.err.yellow(text))

    @property
    def columns(self) -> int:
        """How wide the terminal is."""
        try:
            return os.get_terminal_size(sys.stderr.fileno()).columns or 80
        except (OSError, ValueError):
            return 80

    @property
    def moving(self) -> bool:
        """Whether a line on stderr can be rewritten in place."""
        return self._moving and not self.quiet

    def status(self, text: str) -> None:
        """Rewrite the last line in place; an empty text takes it away."""
        if self.moving and text != self._status:
            shown, self._status = self._status, text
            _write(sys.stderr, f"{self._erased(shown)}{text}")

    def read(self, prompt: str) -> str:
        """Ask for a line. The prompt goes to stderr, since stdout may be a pipe. Raises: EOFError."""
        self.status("")
        _write(sys.stderr, prompt)
        line = sys.stdin.readline()
        if not line:
            _write(sys.stderr, "\n")
            raise EOFError
        return line.rstrip("\r\n")

    def _erased(self, shown: str) -> str:
        return "\r\x1b[K" if shown else ""


def _make_usable(name: str) -> None:
    """A stream that is closed leads to nowhere; one that cannot show a character shows its number."""
    stream: Any = getattr(sys, name)
    if stream is None:
        setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115 - it stays open
        return
    with suppress(AttributeError, ValueError):
        stream.reconfigure(errors="backslashreplace")


def _write(stream: TextIO, text: str) -> None:
    try:
        stream.write(text)
        stream.flush()
    except BrokenPipeError:
        _silence(stream)


def _silence(stream: TextIO) -> None:
    """Lead a stream that nobody reads any more to nowhere, so that nothing complains at the end."""
    with suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)
