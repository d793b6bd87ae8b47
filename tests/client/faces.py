"""One way to use both faces: steps are written once, for whatever a client's methods return."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

from linkspan import Client, SyncClient

FACES: dict[str, type[Client] | type[SyncClient]] = {"async": Client, "sync": SyncClient}
ERAS = ("modern", "legacy")


def wait_until(true: Callable[[], object], seconds: float = 30.0) -> None:
    """Wait for what no event announces; an AssertionError after `seconds`."""
    give_up = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < give_up
        time.sleep(0.002)


def outcome(face: str, target: Any, step: Callable[[Any], Any], **options: Any) -> Any:
    """Connect, take one step, and return what came of it, whichever face it is."""
    if face == "sync":
        with SyncClient(target, **options) as client:
            found = step(client)
            return [*found] if hasattr(found, "__next__") else found

    async def run() -> Any:
        async with Client(target, **options) as client:
            found = step(client)
            if hasattr(found, "__aiter__"):
                return [each async for each in found]
            return await found

    return asyncio.run(run())
