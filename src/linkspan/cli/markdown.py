"""A model's answer as Markdown, block by block, if rich is installed (the extra `cli`).

A block is shown when it is complete, so that nothing on the terminal is ever written a second time. Law: the text of a model is
made harmless before it is rendered, and once more after it, and a link shows its address.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from io import StringIO
from typing import TYPE_CHECKING, Final

from linkspan.cli.show import Lines
from linkspan.wire.redaction import neutral

if TYPE_CHECKING:
    from rich.console import Console

_FENCE: Final = re.compile(r" {0,3}(`{3,}|~{3,})(.*)")
_INDENTED: Final = re.compile(r"\s")
_TRAILING: Final = re.compile(r"[ \t]+((?:\x1b\[[\d;]*m)*)$", re.MULTILINE)
_STYLES: Final = re.compile(r"(\x1b\[[\d;]*m)")
"""What rich adds to the text."""
_CODE_THEME: Final = "ansi_dark"
"""The colours of the terminal, without a background."""


def markdown_writer(write: Callable[[str], object], columns: Callable[[], int]) -> MarkdownWriter | None:
    """Return what renders for a terminal of so many columns, or None without rich. Imports rich."""
    try:
        from rich.console import Console
    except ImportError:
        return None
    console = Console(file=StringIO(), force_terminal=True, legacy_windows=False)
    return MarkdownWriter(console, write, columns)


class MarkdownWriter:
    """Takes a text in pieces, and writes each block when the next one begins."""

    def __init__(self, console: Console, write: Callable[[str], object], columns: Callable[[], int]) -> None:
        self._console = console
        self._write = write
        self._columns = columns
        self._lines = Lines(self._add_line)
        self._block: list[str] = []
        """The lines of the block that is not complete."""
        self._fence = ""
        self._wrote = False

    def add(self, text: str) -> None:
        """Take a piece."""
        self._lines.add(text)

    def end(self) -> None:
        """Write the rest; the next piece begins another text."""
        self._lines.end()
        self._flush()
        self._fence, self._wrote = "", False

    def _add_line(self, line: str) -> None:
        if self._block and not self._fence and not self._block[-1].strip() and not _INDENTED.match(line):
            self._flush()
        self._block.append(line)
        found = _FENCE.match(line)
        if self._fence:
            closes = found is not None and found[1].startswith(self._fence) and not found[2].strip()
            self._fence = "" if closes else self._fence
        elif found is not None:
            self._fence = found[1]

    def _flush(self) -> None:
        """Write the block, with one empty line before it, but not before the first one."""
        text, self._block = "\n".join(self._block), []
        if not text.strip():
            return
        from rich.markdown import Markdown

        markdown = Markdown(neutral(text), hyperlinks=False, code_theme=_CODE_THEME)
        with self._console.capture() as captured:
            self._console.print(markdown, width=max(20, self._columns() - 1))
        shown = _without_blank_end(_TRAILING.sub(r"\1", captured.get())).lstrip("\n")
        # A reference such as &#8238; is harmless until it is rendered.
        pieces = [each if _STYLES.fullmatch(each) else neutral(each) for each in _STYLES.split(shown)]
        self._write(("\n" if self._wrote else "") + "".join(pieces))
        self._wrote = True


def _without_blank_end(text: str) -> str:
    lines = text.split("\n")
    while len(lines) > 1 and not _STYLES.sub("", lines[-1]):
        lines.pop()
    return "\n".join(lines)
