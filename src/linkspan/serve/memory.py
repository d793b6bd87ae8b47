"""Serve one connection in this process: the same bytes as on a pipe, without a pipe. For tests and embedding.

Law: `send` never waits for a function, unless it was asked to run them right there.
"""

from __future__ import annotations

import threading
import time
from types import TracebackType
from typing import TYPE_CHECKING

from linkspan.runtime.calls import Connectable, Driver
from linkspan.runtime.forks import renew
from linkspan.runtime.workers import MAX_WORKERS

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

__all__ = ["MemoryTransport"]


class MemoryTransport:
    """The client's end of a connection to a server in the same process; any thread may use it.

    Plain functions run in worker threads, or with `max_workers=0` inside `send`; async ones on the background loop.

        with MemoryTransport(server) as pipe:
            pipe.send(b'{"jsonrpc":"2.0","id":1,"method":"ping"}\\n')
            assert pipe.receive() == b'{"jsonrpc":"2.0","id":1,"result":{}}\\n'
    """

    def __init__(self, server: Connectable, *, max_workers: int = MAX_WORKERS) -> None:
        """Connect to `server`."""
        self._server = server
        self._max_workers = max_workers
        self._closed = False
        self.start_afresh()
        renew(self)

    def start_afresh(self) -> None:
        """Connect; in a forked child, anew."""
        self._driver = Driver(self._server.connect, _loop, self.flush, max_workers=self._max_workers)
        self._connection = self._driver.connection
        self._arrived = threading.Condition(self._driver.lock)
        self._output: list[bytes] = []

    def send(self, data: bytes) -> None:
        """Let the server receive bytes: lines, in any chunks. Raises: ValueError after `close`."""
        if self._closed:
            raise ValueError("send() on a closed connection")
        self._driver.receive_data(data)
        self.flush()

    def receive(self, timeout: float | None = None) -> bytes:
        """Return what the server has sent, whole lines; wait for it. Empty once the connection is closed and read.

        Raises: TimeoutError after `timeout` seconds.
        """
        give_up = None if timeout is None else time.monotonic() + timeout
        with self._arrived:
            while not self._output and not self._closed:
                now = time.monotonic()
                if give_up is not None and now >= give_up:
                    raise TimeoutError(f"the server sent nothing for {timeout} s")
                deadlines = [at for at in (give_up, self._connection.next_timeout()) if at is not None]
                self._arrived.wait(max(0.0, min(deadlines) - now) if deadlines else None)
                self._driver.handle_timeout(time.monotonic())
                self.flush()
            data, self._output = b"".join(self._output), []
            return data

    def close(self) -> None:
        """Hang up: what runs is cancelled."""
        if self._closed:
            return
        self._driver.receive_eof()
        self._driver.close()
        self.flush()
        self._driver.leave(self._connection.lifespan)
        with self._arrived:
            self._closed = True
            self._arrived.notify_all()

    def __enter__(self) -> MemoryTransport:
        """Return the transport."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Hang up."""
        self.close()

    def flush(self) -> None:
        """Take what the connection has to send. Any thread."""
        with self._arrived:
            data = self._connection.data_to_send()
            if data:
                self._output.append(data)
            self._arrived.notify_all()


def _loop() -> AbstractEventLoop:
    from linkspan.runtime.background import background_loop

    return background_loop().loop
