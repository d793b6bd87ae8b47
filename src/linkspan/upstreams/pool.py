"""The callers of an upstream: each with a client of its own, until nothing is left of them."""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable, Hashable
from functools import partial
from typing import Final, NamedTuple

from linkspan.revisions.neutral import Peer
from linkspan.upstreams.callers import UpstreamCaller

_IDLE: Final = 300.0
"""Seconds after which the client of a caller that does nothing is closed."""


class CallerKey(NamedTuple):
    """Who a caller is."""

    principal: str | None
    session: str | None
    is_remote: bool
    """It came over HTTP."""


class CallerPool:
    """The callers of an upstream by their keys, `most` of them; one that has been idle for long makes room."""

    def __init__(self, most: int, make: Callable[[Hashable, Peer], UpstreamCaller]) -> None:
        """`make(key, peer)` makes a caller; `peer` is who asked first."""
        self._most = most
        self._make = make
        self._lock = threading.Lock()
        self._callers: dict[Hashable, UpstreamCaller] = {}
        self._is_sweeping = False

    def get(self, key: Hashable) -> UpstreamCaller | None:
        """Return a caller that is there."""
        return self._callers.get(key)

    def all(self) -> list[UpstreamCaller]:
        """Return those that are there."""
        return list(self._callers.values())

    def admitted(self, key: Hashable, peer: Peer) -> UpstreamCaller | None:
        """Return a caller, which may be new; None where too many are busy."""
        found = self._callers.get(key)
        if found is not None:
            return found
        with self._lock:
            found = self._callers.get(key)
            if found is None:
                if len(self._callers) >= self._most and not self._make_room():
                    return None
                found = self._callers[key] = self._make(key, peer)
                self._sweep_later()
            return found

    def close(self) -> None:
        """Close the clients of all callers, and wait until they are closed."""
        with self._lock:
            callers, self._callers = list(self._callers.values()), {}
        closing = [threading.Thread(target=each.close, name="linkspan-close", daemon=True) for each in callers]
        for each in closing:
            each.start()
        for each in closing:
            each.join()

    def session_ended(self, session: str) -> None:
        """Close what belongs to a session that is over."""
        with self._lock:
            for each in list(self._callers.values()):
                if isinstance(each.key, CallerKey) and each.key.session == session:
                    self._end(each)

    def sweep(self) -> None:
        """End the callers that have been idle for long."""
        now = time.monotonic()
        with self._lock:
            self._is_sweeping = False
            for each in list(self._callers.values()):
                if each.is_idle and now - each.used > _IDLE:
                    self._end(each)
            self._sweep_later()

    def _make_room(self) -> bool:
        """With the lock: end the caller that has been idle for longest; False if all are busy."""
        idle = [each for each in self._callers.values() if each.is_idle]
        if not idle:
            return False
        self._end(min(idle, key=lambda each: each.used))
        return True

    def _end(self, caller: UpstreamCaller) -> None:
        del self._callers[caller.key]
        threading.Thread(target=caller.close, name="linkspan-close", daemon=True).start()

    def _sweep_later(self) -> None:
        """With the lock: look in a while for callers that have gone, if there are several."""
        from linkspan.runtime.reactor import reactor

        if not self._is_sweeping and len(self._callers) > 1:
            self._is_sweeping = True
            reactor().call_later(_IDLE / 4, partial(_sweep, weakref.ref(self)))


def _sweep(found: weakref.ref[CallerPool]) -> None:
    if (pool := found()) is not None:
        pool.sweep()
