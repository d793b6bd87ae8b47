"""The clocks and the randomness of this machine, which everything below io/ is given."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["SYSTEM", "RealSystem"]


@dataclass(frozen=True, slots=True)
class RealSystem:
    """Time and chance, from the operating system."""

    clock: Callable[[], float] = time.monotonic
    wall_clock: Callable[[], float] = time.time
    random: Callable[[int], bytes] = os.urandom


SYSTEM = RealSystem()
