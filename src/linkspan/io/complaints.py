"""Say in the log why requests are refused that whoever runs the server may want to allow: each reason once, within a bound."""

from __future__ import annotations

from typing import Final

__all__ = ["Complaints"]

_MOST: Final = 100
"""Different reasons that are told: strangers choose the names in them, and must not fill a disk."""


class Complaints:
    """What one endpoint has complained of already."""

    def __init__(self) -> None:
        """Begin with nothing to complain of."""
        self._told: set[str] = set()

    def tell(self, problem: str) -> None:
        """Log a problem, unless it was told before."""
        if problem in self._told or len(self._told) >= _MOST:
            return
        from logging import getLogger

        self._told.add(problem)
        getLogger("linkspan.http").warning("a request was refused: %s", problem)
