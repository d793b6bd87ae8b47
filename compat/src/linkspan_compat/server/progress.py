"""Progress of a request in parts: `with progress(ctx, total) as p: await p.progress(1)`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["Progress", "ProgressContext", "progress"]


class ProgressContext:
    """Counts what is done."""

    def __init__(self, request: Any, total: float | None) -> None:
        self._request = request
        self.total = total
        self.current = 0.0

    async def progress(self, amount: float, message: str | None = None) -> None:
        """Report that more is done."""
        self.current += amount
        await self._request.report_progress(self.current, self.total, message)


Progress = ProgressContext


@contextmanager
def progress(ctx: Any, total: float | None = None) -> Iterator[ProgressContext]:
    """Count the progress of a request."""
    yield ProgressContext(ctx, total)
