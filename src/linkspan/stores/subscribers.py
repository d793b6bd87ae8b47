"""Who is subscribed to the channels of one store in this process."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Final

from linkspan.stores.port import Receiver

MISSED: Final = "subscribers of a store may have missed something"
"""What the log has of an exception that a thread of a store does not expect."""

_LONGEST_PAUSE: Final = 2.0


class Subscribers:
    """Calls whom a message concerns. One thread of the store delivers, so that order is kept."""

    def __init__(self) -> None:
        """Begin without any."""
        self._lock = threading.Lock()
        self._by_channel: dict[str, list[Receiver]] = {}

    def __bool__(self) -> bool:
        return bool(self._by_channel)

    def channels(self) -> list[str]:
        """Return the channels that have a subscriber."""
        with self._lock:
            return list(self._by_channel)

    def add(self, channel: str, receive: Receiver) -> None:
        """Add one."""
        with self._lock:
            self._by_channel.setdefault(channel, []).append(receive)

    def remove(self, channel: str, receive: Receiver) -> bool:
        """Remove one; return whether it was the last of its channel."""
        with self._lock:
            others = self._by_channel.get(channel, [])
            if receive not in others:
                return False
            others.remove(receive)
            if others:
                return False
            del self._by_channel[channel]
            return True

    def clear(self) -> None:
        """Remove all."""
        with self._lock:
            self._by_channel.clear()

    def deliver(self, channel: str, data: bytes | None) -> None:
        """Call the subscribers of a channel."""
        with self._lock:
            concerned = list(self._by_channel.get(channel, ()))
        for receive in concerned:
            _call(receive, data)

    def missed(self) -> None:
        """Notify all that they may have missed something."""
        for channel in self.channels():
            self.deliver(channel, None)


def pause_after(failures: int) -> float:
    """Return how many seconds to wait before the next attempt to connect."""
    return min(0.05 * 2.0 ** min(failures, 10), _LONGEST_PAUSE)


def _call(receive: Callable[[bytes | None], object], data: bytes | None) -> None:
    try:
        receive(data)
    except Exception:  # it must not cost the others their messages
        logging.getLogger("linkspan.stores").exception("a subscriber of a store raised")
