"""The terminal of a chat: what is written as it comes, and what is read. For the main thread only.

Law: a question begins on a line of its own, with nothing typed ahead that could answer it, and what is answered to it is kept
nowhere.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from typing import Any, Final, Literal

from linkspan.cli.terminal import Console
from linkspan.wire.plain import neutral

__all__ = ["ChatTerminal", "Cut"]

_UNDECIDED: Final = re.compile("[\r\u200c\u200d\ufe0e\ufe0f]\\Z")
"""What comes next says how the last character is shown."""
_CONTEXT: Final = 2
"""Half of an end of line, perhaps: the other half may come with the next piece."""


class Cut(Exception):
    """Ctrl-C while something was typed; `empty` if nothing was, so far as is known."""

    def __init__(self, *, empty: bool) -> None:
        super().__init__()
        self.empty = empty


class ChatTerminal:
    """Writes words and lines without mixing them up, and asks."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.interactive = console.interactive
        self.err = console.err
        self.reading = False
        """Whether Ctrl-C is for what is being typed."""
        self._open: Literal["", "words", "thoughts"] = ""
        self._held = ""
        self._before = ""
        """The end of what is written, as it came."""
        self._readline: Any = _load_readline() if self._editable() else None

    # Writing.

    def words(self, text: str) -> None:
        """Write some more of the answer, on stdout."""
        self._add("words", text, self.console.stream)

    def thoughts(self, text: str) -> None:
        """Write some more of what the model thinks, dim, for people only."""
        if self.console.terminal and not self.console.quiet:
            self._add("thoughts", text, lambda piece: self.console.mutter(self.err.dim(piece)))

    def end_line(self) -> None:
        """End what is being written, if anything is."""
        if not self._open:
            return
        rest, self._held, self._before = neutral(self._held, self._before), "", ""
        write = self.console.stream if self._open == "words" else self.console.mutter
        self._open = ""
        write(f"{rest}\n")

    def say(self, text: str) -> None:
        """Write a line on stderr."""
        self.end_line()
        self.console.say(text)

    def account(self, text: str) -> None:
        """Tell what happens, unless that was not wanted."""
        if not self.console.quiet:
            self.say(self.err.dim(text))

    def note(self, text: str) -> None:
        """Tell what seems wrong."""
        if not self.console.quiet:
            self.say(self.err.yellow(text))

    def status(self, text: str) -> None:
        """Rewrite the last line in place; an empty text takes it away."""
        if text:
            self.end_line()
        self.console.status(text)

    def _add(self, kind: Literal["words", "thoughts"], text: str, write: Callable[[str], None]) -> None:
        if self._open != kind:
            self.end_line()
        text = self._held + text
        self._held = text[-1] if _UNDECIDED.search(text) else ""
        whole = text.removesuffix(self._held) if self._held else text
        text = neutral(whole, self._before)
        self._before = (self._before + whole)[-_CONTEXT:]
        if not text and not self._held:
            return
        write(text)
        self._open = kind if self._held or not text.endswith("\n") else ""

    # Reading.

    def query(self, prompt: str) -> str:
        """Ask for a line of the conversation. Raises: EOFError; Cut for Ctrl-C."""
        self.end_line()
        with self._listening():
            return self._line(prompt if self.interactive else "")

    def read(self, prompt: str) -> str:
        """Ask a question. Raises: EOFError; KeyboardInterrupt for Ctrl-C."""
        self.end_line()
        try:
            with self._listening():
                return self._line(prompt)
        except Cut:
            self.say("")
            raise KeyboardInterrupt from None

    def read_secret(self, prompt: str) -> str:
        """Ask for what nobody may see, also not while it is typed. Raises: EOFError; KeyboardInterrupt for Ctrl-C."""
        from getpass import getpass

        self.end_line()
        self.console.status("")
        return getpass(prompt, stream=sys.stderr)

    @contextmanager
    def _listening(self) -> Generator[None, None, None]:
        self.reading = True
        try:
            yield
        except KeyboardInterrupt:
            typed = self._readline.get_line_buffer() if self._readline is not None else ""
            raise Cut(empty=not typed) from None
        finally:
            self.reading = False

    def _line(self, prompt: str) -> str:
        if self._readline is None:
            return self.console.read(prompt)
        self.console.status("")
        return input(_for_readline(prompt))

    def _editable(self) -> bool:
        """Whether a line can be edited; Python does that on stdout only."""
        return self.interactive and sys.stdout.isatty() and self.console.moving

    def forget_typed(self) -> None:
        """Forget what was typed until now: it cannot be meant for a question that nobody has seen yet."""
        if not self.interactive:
            return
        with suppress(ImportError, OSError, ValueError):
            import termios

            termios.tcflush(sys.stdin.fileno(), termios.TCIFLUSH)

    # History and completion.

    def remember(self, line: str) -> None:
        """Let a line be called up again with the arrow keys."""
        if self._readline is not None:
            self._readline.add_history(line)

    def complete(self, words: list[str]) -> None:
        """Complete these words, at the beginning of a line, with Tab."""
        if self._readline is None:
            return

        def suggest(text: str, number: int) -> str | None:
            found = [each for each in words if text.startswith("/") and each.startswith(text)]
            return found[number] if number < len(found) else None

        self._readline.set_completer(suggest)
        self._readline.set_completer_delims(" \t\n")
        self._readline.parse_and_bind("tab: complete")


def _load_readline() -> Any:
    """Return Python's readline, if it was built with one."""
    try:
        import readline
    except ImportError:
        return None
    readline.set_auto_history(False)  # answers to questions are nobody's history
    return readline


def _for_readline(prompt: str) -> str:
    """Tell readline which parts of a prompt take no room, so that it knows where the cursor is."""
    return re.sub(r"(\x1b\[\d+m)", "\x01\\1\x02", prompt)
