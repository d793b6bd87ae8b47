"""Progress as a line of text: a bar if the end is known, a count if not."""

from __future__ import annotations

import unicodedata
from typing import Final

from linkspan.types.messages import ProgressParams
from linkspan.wire.plain import one_line

__all__ = ["cut", "progress_line", "progress_words"]

_BAR: Final = 20


def progress_line(found: ProgressParams, columns: int) -> str:
    """Return the line for a terminal so wide; it never wraps."""
    share = _share(found)
    if share is None:
        return cut(f"... {progress_words(found)}", columns - 1)
    filled = round(share * _BAR)
    return cut(f"[{'#' * filled}{'-' * (_BAR - filled)}] {share:4.0%}  {progress_words(found)}", columns - 1)


def progress_words(found: ProgressParams) -> str:
    """Return how far it is: `2/5  packing`."""
    count = _number(found.progress) + (f"/{_number(found.total)}" if found.total is not None else "")
    message = one_line(found.message or "")
    return f"{count}  {message}" if message else count


def cut(text: str, cells: int) -> str:
    """Return as much of a text as fits into so many cells of a terminal."""
    used = 0
    for at, each in enumerate(text):
        used += 0 if unicodedata.combining(each) else 2 if unicodedata.east_asian_width(each) in "WF" else 1
        if used > cells:
            return text[:at]
    return text


def _share(found: ProgressParams) -> float | None:
    if not found.total or found.total < 0:
        return None
    return min(max(found.progress / found.total, 0.0), 1.0)


def _number(value: float) -> str:
    return f"{value:.0f}" if value == int(value) and abs(value) < 1e15 else f"{value:g}"
