"""Tracebacks for the author of a server: the frames of their own files. Frames of libraries are counted, ours are left out."""

from __future__ import annotations

import os
import sysconfig
from collections.abc import Iterable
from functools import cache
from itertools import groupby
from pathlib import Path
from traceback import FrameSummary, StackSummary, TracebackException, walk_stack
from types import FrameType
from typing import Any, Final

import linkspan
from linkspan import keywords, text
from linkspan.errors import LinkspanError

_MOST: Final = 30
"""Frames that are shown of one exception."""
_OURS: Final = "linkspan"
_INSTALLED: Final = {"site-packages", "dist-packages"}


def author_frames(error: BaseException) -> str:
    """Return the traceback of an exception in the form of Python, with its causes, groups and notes.

    Of each exception it has the author's frames, at most 30. A run of frames of libraries is one line that counts them; the
    frames before the first of the author's, those of Linkspan and those of imports are left out. The last one stays where no
    frame is the author's, and where the fault may be ours.
    """
    report = TracebackException.from_exception(error, compact=True)
    _shorten(report)
    return "".join(report.format())


def author_stack(frame: FrameType) -> str:
    """Return where a thread stands, the innermost frame last, with the same frames in the same form."""
    stack = StackSummary.extract(walk_stack(frame))
    stack.reverse()
    frames = _Frames()
    frames.extend(_shown(stack, is_refusal=False))
    return "".join(frames.format())


class _LeftOut(FrameSummary):
    """Stands for frames that are not shown."""

    def __init__(self, count: int, libraries: Iterable[str]) -> None:
        names = ", ".join(dict.fromkeys(libraries))
        super().__init__(
            "",
            count,
            f"  ... {count} frame{'s' * (count != 1)}{' of ' * bool(names)}{names} left out\n",
            lookup_line=False,
        )


class _Frames(StackSummary):
    def format_frame_summary(self, frame_summary: FrameSummary, **options: Any) -> str:
        """Return the lines of one frame."""
        if isinstance(frame_summary, _LeftOut):
            return frame_summary.name
        return super().format_frame_summary(frame_summary, **options)


def _shorten(report: TracebackException) -> None:
    """Leave frames out of an exception and all that it hangs together with."""
    todo = [report]
    while todo:
        each = todo.pop()
        frames = _Frames()
        frames.extend(_kept(each))
        each.stack = frames
        todo += [other for other in (each.__cause__, each.__context__, *(each.exceptions or ())) if other is not None]


def _kept(report: TracebackException) -> list[FrameSummary]:
    """Return what is shown of the stack of one exception."""
    return _shown(report.stack, is_refusal=_is_refusal(report))


def _shown(frames: Iterable[FrameSummary], *, is_refusal: bool) -> list[FrameSummary]:
    stack = [each for each in frames if _owner(each.filename) != "importlib"]
    first = next((number for number, each in enumerate(stack) if _owner(each.filename) is None), None)
    if first is None:
        return [] if is_refusal else stack[-1:]
    ending = stack[-1:] if _owner(stack[-1].filename) == _OURS and not is_refusal else []
    shown = [each for each in stack[first:] if each in ending or _owner(each.filename) != _OURS]
    found: list[FrameSummary] = []
    for foreign, run in groupby(shown, key=lambda each: _owner(each.filename) not in (None, _OURS)):
        some = list(run)
        found += [_LeftOut(len(some), [_owner(each.filename) or "" for each in some])] if foreign else some
    if len(found) > _MOST:
        half = _MOST // 2
        found[half:-half] = [_LeftOut(len(found) - _MOST, ())]
    return found


def _is_refusal(report: TracebackException) -> bool:
    """Return whether the message of an exception is all that its author needs, so that no frame of ours helps."""
    kind = report.exc_type or Exception
    return issubclass(kind, LinkspanError | SyntaxError) or any(
        each.filename in (keywords.__file__, text.__file__) for each in report.stack[-1:]
    )


@cache
def _owner(filename: str) -> str | None:
    """Return the library that a file belongs to, None for a file of the author."""
    if filename.startswith("<frozen "):
        return "importlib"
    path = Path(os.path.abspath(filename))
    if path.is_relative_to(Path(linkspan.__file__).parent):
        return _OURS
    for number, part in enumerate(path.parts):
        if part in _INSTALLED:
            return path.parts[number + 1].removesuffix(".py")
    for root in {sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib")}:
        if path.is_relative_to(root):
            return path.relative_to(root).parts[0].removesuffix(".py")
    return None
