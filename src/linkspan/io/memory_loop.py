"""Serve one connection in this process on the caller's event loop: the async face of `memory`."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import TYPE_CHECKING

from linkspan.io.driver import Connectable, Driver
from linkspan.io.tasks import Tasks
from linkspan.io.workers import MAX_WORKERS

if TYPE_CHECKING:
    from linkspan.core.call import Call

__all__ = ["AsyncMemoryTransport"]


class AsyncMemoryTransport:
    """The client's end of a connection to a server in the same process. Made, used and closed on one event loop."""

    def __init__(self, server: Connectable, *, max_workers: int = MAX_WORKERS) -> None:
        """Connect to `server`; async functions will run as tasks of the running loop."""
        self._loop = asyncio.get_running_loop()
        self._driver = Driver(server.connect, self, max_workers=max_workers)
        self._connection = self._driver.connection
        self._tasks = Tasks(self._driver, self._loop, self._take)
        self._arrived = asyncio.Event()
        self._output: list[bytes] = []
        self._closed = False

    async def send(self, data: bytes) -> None:
        """Let the server receive bytes: lines, in any chunks. Raises: ValueError after `close`."""
        if self._closed:
            raise ValueError("send() on a closed connection")
        self._driver.receive_data(data)
        self._take()

    async def receive(self) -> bytes:
        """Return what the server has sent, whole lines; wait for it. Empty once the connection is closed and read."""
        while not self._output and not self._closed:
            self._arrived.clear()
            deadline = self._driver.next_timeout()
            delay = None if deadline is None else max(0.0, deadline - time.monotonic())
            try:
                await asyncio.wait_for(self._arrived.wait(), delay)
            except TimeoutError:
                self._driver.handle_timeout(time.monotonic())
                self._take()
        data, self._output = b"".join(self._output), []
        return data

    async def close(self) -> None:
        """Hang up: what runs is cancelled."""
        if not self._closed:
            self._driver.receive_eof()
            self._driver.close()
            self._take()
            self._closed = True

    async def __aenter__(self) -> AsyncMemoryTransport:
        """Return the transport."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Hang up."""
        await self.close()

    def _take(self) -> None:
        with self._driver.lock:
            data = self._connection.data_to_send()
        if data:
            self._output.append(data)
        self._arrived.set()

    # The driver's face.

    def flush(self) -> None:
        """Take what the connection has to send, on the loop."""
        self._on_loop(self._take)

    def start(self, call: Call, awaitable: Awaitable[object] | None) -> None:
        """Run an async call as a task."""
        self._on_loop(lambda: self._tasks.start(call, awaitable))

    def cancel(self, call: Call) -> None:
        """Cancel an async call; a plain function can only be told."""
        self._on_loop(lambda: self._tasks.cancel(call))

    def _on_loop(self, step: Callable[[], object]) -> None:
        try:
            self._loop.call_soon_threadsafe(step)
        except RuntimeError:
            return  # the loop is closed: nobody waits for this any more
