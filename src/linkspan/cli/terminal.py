"""What reaches the terminal. Law: nothing that comes from a server may command it; control characters are shown, not obeyed.

Stdout has the result and nothing else; everything else is said on stderr.
"""

from __future__ import annotations

import json
import os
import re
import sys
from contextlib import suppress
from typing import Any, Final, TextIO

from linkspan.types.base import JSON, is_array, is_object

__all__ = ["Console", "Style", "dump", "neutral", "neutral_json", "one_line"]

_COMMANDS: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
"""C0 except tab and newline, DEL and C1, what turns the direction of text (Trojan Source), and halves of characters."""


def neutral(text: str) -> str:
    r"""Return a text of a server's with everything a terminal would obey written as `\x1b` or `\u202e`."""
    return _COMMANDS.sub(_escape, text.replace("\r\n", "\n"))


def neutral_json(value: JSON) -> JSON:
    """Return a JSON value with all its texts, names included, neutralised."""
    if isinstance(value, str):
        return neutral(value)
    if is_array(value):
        return [neutral_json(each) for each in value]
    if is_object(value):
        return {neutral(key): neutral_json(each) for key, each in value.items()}
    return value


def one_line(text: str, limit: int = 0) -> str:
    """Return a text, neutralised, on one line; of at most `limit` characters if that is not 0."""
    text = neutral(" ".join(text.split()))
    return text if not limit or len(text) <= limit else f"{text[: limit - 3]}..."


def dump(value: JSON, indent: int | None = 2) -> str:
    """Return JSON to read: the very value, and nothing for a terminal to obey."""
    text = json.dumps(value, indent=indent, ensure_ascii=False)
    return _COMMANDS.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def _escape(found: re.Match[str]) -> str:
    number = ord(found[0])
    return f"\\x{number:02x}" if number < 0x100 else f"\\u{number:04x}"


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
