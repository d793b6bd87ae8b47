"""The log of a server as reports on its stderr, for the program that started it: see `wire/reports.py`.

What makes a report is imported for the first one, since a server that starts has no time for it.
"""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final, TextIO

if TYPE_CHECKING:
    from linkspan.wire.reports import Report

_FIRST_LOOK: Final = 1.0
"""Seconds that the import of a file takes before it is reported where it stands; after each report, twice as many."""


def report_log(stream: TextIO) -> None:
    """Write each record of our loggers to `stream` as a report, and those of the author that Python would print by itself."""
    logging.getLogger("linkspan").addHandler(_Reporter(stream))
    if logging.lastResort is not None:  # not a handler of the root, beside which `logging.basicConfig` does nothing
        level, logging.lastResort = logging.lastResort.level, _Reporter(stream)
        logging.lastResort.setLevel(level)


@contextmanager
def report_loading(stream: TextIO) -> Generator[None]:
    """Report where the import of the author's file stands, in this thread, for as long as it takes."""
    loaded, loading = threading.Event(), threading.get_ident()

    def look() -> None:
        from linkspan.runtime.tracebacks import author_stack
        from linkspan.wire.reports import Report, encode_report

        shown, pause, seconds = "", _FIRST_LOOK, 0.0
        while not loaded.wait(pause):
            seconds, pause = seconds + pause, 2 * pause
            frames = sys._current_frames()  # pyright: ignore[reportPrivateUsage] - documented, whatever its name
            frame = frames.get(loading)
            stack = author_stack(frame) if frame is not None else ""
            if stack == shown:
                continue
            shown, text = stack, f"the file is still being imported after {seconds:g} s"
            with suppress(OSError, ValueError):  # nothing reads it, or the author has closed it
                stream.write(encode_report(Report("INFO", "linkspan.run", text, traceback=stack, stage="loading")))
                stream.flush()

    threading.Thread(target=look, name="linkspan-loading", daemon=True).start()
    try:
        yield
    finally:
        loaded.set()


class _Reporter(logging.Handler):
    def __init__(self, stream: TextIO) -> None:
        super().__init__()
        self._stream = stream

    def emit(self, record: logging.LogRecord) -> None:
        """Write one record."""
        from linkspan.wire.reports import encode_report

        try:
            self._stream.write(encode_report(self._report(record)))
            self._stream.flush()
        except Exception:
            self.handleError(record)

    def _report(self, record: logging.LogRecord) -> Report:
        from linkspan.runtime.tracebacks import author_frames
        from linkspan.wire.reports import Report

        error = record.exc_info[1] if record.exc_info else None
        return Report(
            level=record.levelname,
            logger=record.name,
            text=record.getMessage(),
            traceback=author_frames(error) if error is not None else "",
            printed="" if self._is_handled(record) else f"{_plain.format(record)}\n",
            **{name: getattr(record, name, None) for name in _FACTS},
        )

    def _is_handled(self, record: logging.LogRecord) -> bool:
        """Return whether Python would not print the record by itself: a handler of the author has it, or its level is low."""
        last = logging.lastResort
        if last is None or record.levelno < last.level:
            return True
        logger: logging.Logger | None = logging.getLogger(record.name)
        while logger is not None:
            if any(each is not self for each in logger.handlers):
                return True
            logger = logger.parent if logger.propagate else None
        return False


_plain = logging.Formatter()
_FACTS: Final = ("method", "tool", "server", "request_id", "incident", "stage")
