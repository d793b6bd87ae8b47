"""How many bytes of ended tasks a store keeps: of each principal, and of all. At its own bound a principal's oldest go.

Each ended task is a key in a queue, which has its principal, its size and when it ended; it is due when its record has gone. To
read the queue at each end would take longer the more there is, so a process reads it when it has used an eighth of what was free.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from linkspan.extensions.task_record import TaskRecord, owner_key
from linkspan.stores.port import Due, Store, schedule_together

_PART: Final = 8
"""What is free is used up to this part before it is counted again: other processes use it, too."""
_LEAST: Final = 256
"""At least this part of all may be used between two counts, also where nearly nothing is free."""
_STALE: Final = 30.0
"""Seconds after which it is counted again in any case."""
_FULL: Final = 1.0
"""Seconds after which it is counted again where there was no room."""
_SWEPT: Final = 256
"""Keys whose records have gone that are taken out at a time."""
_FOR_EVER: Final = 253402300799.0
"""When the key of a task without a time to live is due: at the end of the year 9999."""


class _Ended(NamedTuple):
    """An ended task."""

    at: float
    owner: str
    size: int
    task_id: str


class TaskRoom:
    """The room for the ended tasks of one server. Any thread may use it; every operation raises StoreError if the store fails."""

    def __init__(
        self,
        store: Callable[[], Store],
        queue: str,
        delete: Callable[[str], object],
        *,
        most: int,
        most_of_one: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Keep up to `most` bytes, and `most_of_one` of each principal; `delete` forgets a task."""
        self._store = store
        self._queue = queue
        self._delete = delete
        self._most = most
        self.most_of_one = most_of_one
        """Bytes of one principal."""
        self._clock = clock
        self._lock = threading.Lock()
        self._left: dict[str, int] = {}
        """Bytes that each principal may use before they are counted again."""
        self._left_of_all = 0
        self._is_full = False
        self._counted = float("-inf")

    def is_full(self, now: float) -> bool:
        """Return whether all principals together keep as much as they may, so that no other task may begin."""
        if self._clock() - self._counted > (_FULL if self._is_full else _STALE):
            self._count(now)
        return self._is_full

    def keep(self, record: TaskRecord, now: float, beside: Sequence[Due] = ()) -> None:
        """Count a task that has ended; the oldest of its principal go if they are too large together. Twice does no harm.

        `beside` changes with it in other queues.
        """
        owner, size, kept = owner_key(record.owner), record.size, record.kept_for(now)
        key = f"{owner}/{record.updated}/{size}/{record.id}"
        until = _FOR_EVER if kept is None else now + kept
        schedule_together(self._store(), [(self._queue, key, until), *beside])
        with self._lock:
            self._left[owner] = left = self._left.get(owner, self.most_of_one // _PART) - size
            self._left_of_all -= size
        if min(left, self._left_of_all) < 0 or self._clock() - self._counted > _STALE:
            self._count(now)

    def _count(self, now: float) -> None:
        by_owner: dict[str, list[_Ended]] = {}
        for each in self._read(now):
            by_owner.setdefault(each.owner, []).append(each)
        used = {owner: self._shorten(sorted(ended)) for owner, ended in by_owner.items()}
        free = self._most - sum(used.values())
        with self._lock:
            self._left = {owner: (self.most_of_one - size) // _PART for owner, size in used.items()}
            self._left_of_all = max(free // _PART, self._most // _LEAST)
            self._is_full, self._counted = free <= 0, self._clock()

    def sweep(self, now: float) -> None:
        """Take out keys whose records have gone, some of them if there are many."""
        store = self._store()
        for key in store.due(self._queue, now, _SWEPT):
            store.schedule(self._queue, key, None)

    def _read(self, now: float) -> list[_Ended]:
        self.sweep(now)
        store = self._store()
        found = [key.split("/") for key in store.due(self._queue, _FOR_EVER, self._most // TaskRecord.OVERHEAD + 1)]
        return [_Ended(float(at), owner, int(size), task_id) for owner, at, size, task_id in found]

    def _shorten(self, ended: list[_Ended]) -> int:
        """Drop the oldest tasks of a principal that has too many until a part is free, but not the last; return what is left."""
        used = sum(each.size for each in ended)
        if used <= self.most_of_one:
            return used
        for each in ended[:-1]:
            self._delete(each.task_id)
            self._store().schedule(self._queue, f"{each.owner}/{each.at}/{each.size}/{each.task_id}", None)
            used -= each.size
            if used <= self.most_of_one - self.most_of_one // _PART:
                break
        return used
