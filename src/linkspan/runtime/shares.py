"""Shares of the worker threads: no client holds all of them, however many calls it makes or abandons."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from linkspan.runtime.forks import renew

__all__ = ["Shares"]

ItemT = TypeVar("ItemT", bound=Hashable)


class Shares(Generic[ItemT]):
    """Passes items on, and keeps back those of clients that have their share; first come, first served within a client."""

    def __init__(self, submit: Callable[[ItemT], object], bound: int) -> None:
        """Pass at most `bound` items of one client to `submit` before one of them is `done`."""
        self._submit = submit
        self._bound = bound
        self.start_afresh()
        renew(self)

    def start_afresh(self) -> None:
        """Begin with nothing passed on and nothing kept back; what is, is the parent's."""
        self._lock = threading.Lock()
        self._held: dict[Hashable, int] = {}
        self._waiting: dict[Hashable, OrderedDict[ItemT, None]] = {}

    def submit(self, item: ItemT, client: Hashable) -> None:
        """Pass `item` on now, or when the client has room."""
        with self._lock:
            held = self._held.get(client, 0)
            if held >= self._bound:
                self._waiting.setdefault(client, OrderedDict())[item] = None
                return
            self._held[client] = held + 1
        self._submit(item)

    def withdraw(self, item: ItemT, client: Hashable) -> bool:
        """Forget an item that was kept back; False if it was passed on already."""
        with self._lock:
            waiting = self._waiting.get(client)
            if waiting is None or item not in waiting:
                return False
            del waiting[item]
            if not waiting:
                del self._waiting[client]
            return True

    def done(self, client: Hashable) -> None:
        """Pass the client's next item on, if there is one: one of those passed on has ended."""
        with self._lock:
            waiting = self._waiting.get(client)
            if waiting is None:
                held = self._held.pop(client) - 1
                if held:
                    self._held[client] = held
                return
            item, _ = waiting.popitem(last=False)
            if not waiting:
                del self._waiting[client]
        self._submit(item)
