"""The server's end of a connection in this process, without a pipe: for clients, for tests and for embedding.

Law: bytes arrive in the order in which they were sent, whatever thread sends them, and neither side's lock is held while the
other side reads.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from linkspan.runtime.calls import Connectable, Driver
from linkspan.runtime.workers import MAX_WORKERS

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop


class WireEnd:
    """One direction: the thread that brings bytes delivers for all threads, in order. `lock` guards `take`."""

    def __init__(self, lock: threading.RLock, take: Callable[[], bytes], deliver: Callable[[bytes], object]) -> None:
        self._lock = lock
        self._take = take
        self._deliver = deliver
        self._waiting: deque[bytes] = deque()
        self._busy = False

    def carry(self) -> None:
        """Take what there is to send, and deliver it. Any thread."""
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
                self._deliver(data)
            except BaseException:  # the thread that carries was interrupted: others must be able to go on
                with self._lock:
                    self._busy = False
                raise


class ServerEnd(WireEnd):
    """The server's end of a connection, and the wire from it."""

    def __init__(
        self,
        server: Connectable,
        deliver: Callable[[bytes], object],
        loop: Callable[[], AbstractEventLoop | None],
        *,
        max_workers: int = MAX_WORKERS,
        flush: Callable[[], object] | None = None,
    ) -> None:
        """Connect to `server`, whose output goes to `deliver`. Async functions run on `loop()`.

        `flush` is called in any thread when there is output outside of `receive`, and shall call `carry`; by default it is that.
        """
        self.driver = Driver(server.connect, loop, flush or self.carry, max_workers=max_workers, on_task_end=self.carry)
        super().__init__(self.driver.lock, self.driver.connection.data_to_send, deliver)

    def receive(self, data: bytes) -> None:
        """Let the server receive bytes, and deliver what it sends at once."""
        self.driver.receive_data(data)
        self.carry()

    def handle_timeout(self) -> None:
        """Do what is due in the server."""
        self.driver.handle_timeout(time.monotonic())
        self.carry()

    def close(self) -> None:
        """Hang up: what runs is cancelled. What the server says to that waits for `carry`."""
        self.driver.receive_eof()
        self.driver.close()
        self.driver.end_threads()  # each holds the connection, and a test makes hundreds of them

    def leave(self) -> None:
        """Let the server close what it holds for its connections, if this was the last one. After `close`."""
        self.driver.leave(self.driver.connection.lifespan)
