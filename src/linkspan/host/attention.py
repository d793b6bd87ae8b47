"""The person's attention: one question at a time, and how long they took to answer."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from types import TracebackType

__all__ = ["Attention"]


class Attention:
    """Held, with `async with`, while the person is asked something. For one event loop."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = asyncio.Lock()
        self._before = 0.0
        self._since: float | None = None

    @property
    def seconds(self) -> float:
        """For how long the person was asked things until now; that is nobody else's time."""
        return self._before + (self._clock() - self._since if self._since is not None else 0.0)

    async def __aenter__(self) -> None:
        """Wait until nothing else is asked."""
        await self._lock.acquire()
        self._since = self._clock()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Let the next question come."""
        self._before, self._since = self.seconds, None
        self._lock.release()
