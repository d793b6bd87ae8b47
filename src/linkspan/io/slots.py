"""Where a caller waits for what comes: a thread at a queue, or a task at its event loop.

Law: whoever brings something is never held up, and brings it once for each loop, however many wait there.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

if TYPE_CHECKING:
    import asyncio

__all__ = ["Delivery", "LoopSlot", "Slot", "ThreadSlot", "deliver"]


class Slot(Protocol):
    """One caller's place. `ticket` is for whoever serves it."""

    ticket: Any

    @property
    def loop(self) -> asyncio.AbstractEventLoop | None:
        """The loop on which `put` must be called; None for any thread."""
        ...

    @property
    def put(self) -> Callable[[object], object]:
        """Bring something."""
        ...


Delivery: TypeAlias = tuple[Slot, object]


class ThreadSlot:
    """For a thread."""

    __slots__ = ("_queue", "get", "put", "ticket")

    loop = None

    def __init__(self) -> None:
        self.ticket: Any = None
        self._queue: SimpleQueue[Any] = SimpleQueue()
        self.put = self._queue.put
        self.get = self._queue.get


class LoopSlot:
    """For a task of `loop`."""

    __slots__ = ("_items", "_waiter", "loop", "ticket")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.ticket: Any = None
        self.loop = loop
        self._items: deque[Any] = deque()
        self._waiter: asyncio.Future[None] | None = None

    def put(self, item: object) -> None:
        """Bring something; on the loop only."""
        self._items.append(item)
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    async def get(self) -> Any:
        """Wait for the next thing."""
        while not self._items:
            self._waiter = self.loop.create_future()
            await self._waiter
        return self._items.popleft()


def deliver(deliveries: Iterable[Delivery]) -> None:
    """Bring everybody what is theirs, from any thread. Who waits on a loop that is closed gets nothing."""
    by_loop: dict[asyncio.AbstractEventLoop, list[Delivery]] = {}
    for slot, item in deliveries:
        loop = slot.loop
        if loop is None:
            slot.put(item)
        else:
            by_loop.setdefault(loop, []).append((slot, item))
    for loop, mine in by_loop.items():
        try:
            loop.call_soon_threadsafe(_put_all, mine)
        except RuntimeError:
            continue


def _put_all(deliveries: list[Delivery]) -> None:
    for slot, item in deliveries:
        slot.put(item)
