"""The clocks and the randomness of this machine, which everything below io/ is given."""

from __future__ import annotations

import os
import time
from collections.abc import Awaitable, Callable

import msgspec

__all__ = ["SYSTEM", "RealSystem"]


class RealSystem(msgspec.Struct, frozen=True):
    """Time and chance, from the operating system."""

    clock: Callable[[], float] = time.monotonic
    wall_clock: Callable[[], float] = time.time
    random: Callable[[int], bytes] = os.urandom

    def later(self, awaitable: Awaitable[object]) -> None:
        """Await something on the background loop, while everybody goes on."""
        from linkspan.io.background import background_loop

        background_loop().submit(lambda: awaitable)


SYSTEM = RealSystem()
