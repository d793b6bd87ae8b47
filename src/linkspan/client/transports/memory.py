"""A connection to a server in this process: the same bytes as on a pipe, without a pipe.

Law: bytes arrive in the order in which they were sent, whatever thread sends them, and neither side's lock is held while
the other side reads.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from linkspan.client.transports.base import ClientTransport, TransportOwner
from linkspan.flows.state import ClientState
from linkspan.runtime.calls import Connectable, Driver

if TYPE_CHECKING:
    import asyncio


__all__ = ["MemoryClientTransport"]


class _Wire:
    """One direction: the thread that brings bytes delivers for all threads, in order. `lock` guards `take`."""

    def __init__(self, lock: threading.RLock, take: Callable[[], bytes], receive: Callable[[bytes], object]) -> None:
        self._lock = lock
        self._take = take
        self._receive = receive
        self._waiting: deque[bytes] = deque()
        self._busy = False

    def carry(self) -> None:
        """Take what there is to send, and let the other side receive it."""
        with self._lock:
            if data := self._take():
                self._waiting.append(data)
            if self._busy or not self._waiting:
                return
            self._busy = True
        while True:
            with self._lock:
                if not self._waiting:
                    self._busy = False
                    return
                data = self._waiting.popleft()
            try:
                self._receive(data)
            except BaseException:  # the thread that carries was interrupted: others must be able to go on
                with self._lock:
                    self._busy = False
                raise


class MemoryClientTransport(ClientTransport):
    """A connection without I/O."""

    def __init__(
        self,
        owner: TransportOwner,
        state: ClientState,
        server: Connectable,
        home: Callable[[], asyncio.AbstractEventLoop | None],
    ) -> None:
        """Connect to `server`. Its async functions run on the loop that `home` names at that time, else in the background."""
        super().__init__(owner, state)
        self._home = home
        self._driver = Driver(server.connect, self._loop, self.flush)
        self._to_server = _Wire(self.lock, self.data_to_send, self._driver.receive_data)
        self._to_client = _Wire(self._driver.lock, self._driver.connection.data_to_send, self.receive_data)
        self.watch()

    # Callers, and the server's driver, which calls `flush` too: either side may have something to send.

    def flush(self, here: asyncio.AbstractEventLoop | None = None) -> None:
        """Let each side receive what the other has sent."""
        self._to_server.carry()
        self._to_client.carry()

    def close(self) -> None:
        """Hang up: what runs in the server is cancelled."""
        with self.lock:
            if self._closed:
                return
            self._closed = True
        self.end(by_us=True)
        self._driver.receive_eof()
        self._driver.close()
        self._driver.leave(self._driver.connection.lifespan)
        self.unwatch()

    def next_timeout(self) -> float | None:
        """Return when either side has something to do."""
        return min((at for at in (super().next_timeout(), self._driver.next_timeout()) if at is not None), default=None)

    def handle_timeout(self, now: float) -> None:
        """Do what is due on either side."""
        self.expire(now)
        self._driver.handle_timeout(now)
        self.flush()

    def _loop(self) -> asyncio.AbstractEventLoop:
        home = self._home()
        if home is not None and home.is_running():
            return home
        from linkspan.runtime.background import background_loop

        return background_loop().loop
