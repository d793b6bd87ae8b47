"""The clock of the server of a store, as each of its clients knows it: those of machines differ, and all go by this one.

What is learned is by how much it differs from a clock of this machine that is never set. It is learned again now and then, since
clocks drift, and a machine may have been suspended. It is wrong by half the time of one answer at most.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, NamedTuple

_VALID: Final = 60.0
"""Seconds after which the difference is learned again."""
_STEP: Final = 1.0
"""Seconds by which the two clocks of this machine may drift apart in that time: more, and it was suspended, or set."""


class _Learned(NamedTuple):
    ahead: float
    """Seconds by which the server's clock is ahead of `time.monotonic`."""
    at: float
    """When that was learned, by `time.monotonic`."""
    wall: float
    """The same moment by `time.time`."""


class StoreClock:
    """The clock. Any thread may use it."""

    def __init__(
        self,
        ask: Callable[[], float],
        *,
        monotonic: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        """`ask` returns the seconds since 1970 by the clock of the server. Raises: StoreError."""
        self._ask = ask
        self._monotonic = monotonic
        self._wall = wall
        self._learned: _Learned | None = None

    def now(self) -> float:
        """Return the seconds since 1970, without waiting once it has been learned. Raises: StoreError before."""
        learned = self._learned or self.learn()
        return self._monotonic() + learned.ahead

    def refresh(self) -> None:
        """Learn it again if it is time. Call this where an operation of the store may wait. Raises: StoreError."""
        if self._learned is None or self._is_due(self._learned):
            self.learn()

    def _is_due(self, learned: _Learned) -> bool:
        passed, by_wall = self._monotonic() - learned.at, self._wall() - learned.wall
        return passed > _VALID or abs(by_wall - passed) > _STEP

    def learn(self) -> _Learned:
        """Learn it: at first, and from another server. Raises: StoreError."""
        before = self._monotonic()
        server = self._ask()
        after = self._monotonic()
        self._learned = learned = _Learned(server - (before + after) / 2, after, self._wall())
        return learned
