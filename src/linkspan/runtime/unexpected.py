"""What threads that must not end do with an exception that they do not expect: log it, once for each kind, and go on."""

from __future__ import annotations

from typing import Final

PAUSE: Final = 1.0
"""Seconds that such a thread rests after an exception, so that one that comes again at once does not take a CPU."""


class Unexpected:
    """The unexpected exceptions of one thread. A mistake of ours, or of a library, must not stop what others rely on."""

    def __init__(self, logger: str, message: str) -> None:
        """Log to `logger`, with a `message` that names what did not happen."""
        self._logger = logger
        self._message = message
        self._kinds: set[tuple[type[Exception], str, int]] = set()

    def log(self, error: Exception) -> float:
        """Log an exception with its traceback, unless one of its class came from the same line; return how long to rest."""
        origin, traceback = ("", 0), error.__traceback__
        while traceback is not None:
            origin, traceback = (traceback.tb_frame.f_code.co_filename, traceback.tb_lineno), traceback.tb_next
        kind = (type(error), *origin)
        if kind not in self._kinds:
            self._kinds.add(kind)
            from logging import getLogger

            getLogger(self._logger).error("%s; it is logged once", self._message, exc_info=error)
        return PAUSE
