"""The large results of a bridge, in its store: whichever worker a request reaches, they can be read on.

Law: a caller finds their own results only, by handles that count from one.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from linkspan.host.results import MAX_KEPT, PagedResults
from linkspan.stores.port import ABSENT, Store, StoreError
from linkspan.wire.values import key_of

_MAX_OF_ALL: Final = 256 * 1024 * 1024
"""Characters of the results that one process keeps for all callers."""
_HOUR: Final = 3600.0
"""Seconds for which a result is kept."""
_TRIES: Final = 50
"""Attempts to change what others change at the same time."""


class _Kept(msgspec.Struct, frozen=True):
    """One of the results of a caller."""

    handle: str
    size: int


class _Index(msgspec.Struct, frozen=True):
    """The results of a caller."""

    count: int = 0
    """How many there ever were."""
    kept: list[_Kept] = []


class _KeptText(msgspec.Struct, frozen=True):
    """A result, and whose it is."""

    text: str
    server: str
    tool: str


_index: Final = msgspec.json.Decoder(_Index)
_result: Final = msgspec.json.Decoder(_KeptText)


class SharedResults:
    """The large results of all callers of a bridge. What this process has kept of them is bounded, too."""

    def __init__(self, budget: int, store: Callable[[], Store]) -> None:
        """Show about `budget` tokens at once; keep results in what `store` opens."""
        self._budget = budget
        self._store = store
        self._lock = threading.Lock()
        self._kept: deque[tuple[CallerResults, str, int]] = deque()
        self._size = 0

    def of(self, caller: str) -> CallerResults:
        """Return those of one caller."""
        return CallerResults(self._budget, self._store, caller, self)

    def kept(self, results: CallerResults, handle: str, size: int) -> None:
        """Count what was kept; let the oldest of all go where that is too much. Raises: StoreError."""
        with self._lock:
            self._kept.append((results, handle, size))
            self._size += size
            oldest: list[tuple[CallerResults, str]] = []
            while self._size > _MAX_OF_ALL and len(self._kept) > 1:
                whose, dropped, freed = self._kept.popleft()
                self._size -= freed
                oldest.append((whose, dropped))
        for whose, dropped in oldest:
            whose.drop(dropped)


class CallerResults(PagedResults):
    """The large results of one caller of a bridge. All of it may block."""

    def __init__(self, budget: int, store: Callable[[], Store], caller: str, shared: SharedResults) -> None:
        """Show about `budget` tokens at once; keep the results of `caller` in what `store` opens, and count them in `shared`."""
        super().__init__(budget)
        self._store = store
        self._shared = shared
        self._place = f"bridge-results/{key_of(caller)}"

    def keep(self, text: str, server: str, tool: str) -> str | None:
        """Keep a result; return its handle, or None where the store fails."""
        try:
            handle, dropped = self._add(len(text))
            self._store().put(f"{self._place}/{handle}", msgspec.json.encode(_KeptText(text, server, tool)), ttl=_HOUR)
            for each in dropped:
                self._store().delete(f"{self._place}/{each}")
            self._shared.kept(self, handle, len(text))
        except StoreError as problem:
            logging.getLogger("linkspan.bridge").warning("a large result cannot be kept: %s", problem)
            return None
        return handle

    def find(self, handle: str) -> tuple[str, str, str] | None:
        """Return a result, with its server and its tool; None if it is not kept."""
        if handle not in self.handles():
            return None
        try:
            found = self._store().get(f"{self._place}/{handle}")
        except StoreError:
            return None
        return msgspec.structs.astuple(_result.decode(found.value)) if found is not None else None

    def handles(self) -> Sequence[str]:
        """Return the handles of those that are kept, the oldest first."""
        try:
            return [each.handle for each in self._read()[0].kept]
        except StoreError:
            return []

    def drop(self, handle: str) -> None:
        """Let one go. Raises: StoreError."""
        self._store().delete(f"{self._place}/{handle}")
        for _ in range(_TRIES):
            index, version = self._read()
            kept = [each for each in index.kept if each.handle != handle]
            written = msgspec.json.encode(_Index(index.count, kept))
            if len(kept) == len(index.kept) or self._store().put(self._place, written, expect=version, ttl=_HOUR):
                return

    def _read(self) -> tuple[_Index, int]:
        found = self._store().get(self._place)
        return (_index.decode(found.value), found.version) if found is not None else (_Index(), ABSENT)

    def _add(self, size: int) -> tuple[str, list[str]]:
        """Count a result of a size; return its handle, and those that make room for it. Raises: StoreError."""
        for _ in range(_TRIES):
            index, version = self._read()
            added = _Kept(f"r{index.count + 1}", size)
            kept, dropped = [*index.kept, added], list[str]()
            while len(kept) > 1 and sum(each.size for each in kept) > MAX_KEPT:
                dropped.append(kept.pop(0).handle)
            written = msgspec.json.encode(_Index(index.count + 1, kept))
            if self._store().put(self._place, written, expect=version, ttl=_HOUR) is not None:
                return added.handle, dropped
        raise StoreError("too many results of one caller at once")
