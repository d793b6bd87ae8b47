"""Serve one connection in this process: the same bytes as on a pipe, without a pipe. For tests and embedding.

Law: `send` never waits for a function, unless it was asked to run them right there.
"""

from __future__ import annotations

import time
from contextlib import suppress
from queue import Empty, SimpleQueue
from types import TracebackType
from typing import TYPE_CHECKING

from linkspan.runtime.calls import Connectable
from linkspan.runtime.forks import renew
from linkspan.runtime.server_end import ServerEnd
from linkspan.runtime.workers import MAX_WORKERS

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop


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

    def __repr__(self) -> str:
        return f"<MemoryTransport of {self._server!r}: {'closed' if self._closed else 'open'}>"

    def start_afresh(self) -> None:
        """Connect; in a forked child, anew."""
        self._output: SimpleQueue[bytes] = SimpleQueue()
        """What the server has sent; at the end nothing, which stays there."""
        self._end = ServerEnd(self._server, self._output.put, _loop, max_workers=self._max_workers)

    def send(self, data: bytes) -> None:
        """Let the server receive bytes: lines, in any chunks. Raises: ValueError after `close`."""
        if self._closed:
            raise ValueError("send() on a closed connection")
        self._end.receive(data)

    def receive(self, timeout: float | None = None) -> bytes:
        """Return what the server has sent, whole lines; wait for it. Empty once the connection is closed and read.

        Raises: TimeoutError after `timeout` seconds.
        """
        give_up = None if timeout is None else time.monotonic() + timeout
        while True:
            deadlines = [at for at in (give_up, self._end.driver.next_timeout()) if at is not None]
            try:
                parts = [self._output.get(timeout=max(0.0, min(deadlines) - time.monotonic()) if deadlines else None)]
                break
            except Empty:
                if give_up is not None and time.monotonic() >= give_up:
                    raise TimeoutError(f"the server sent nothing for {timeout} s") from None
                self._end.handle_timeout()
        with suppress(Empty):
            while parts[-1]:
                parts.append(self._output.get_nowait())
        if not parts[-1]:
            self._output.put(b"")
        return b"".join(parts)

    def close(self) -> None:
        """Hang up: what runs is cancelled."""
        if self._closed:
            return
        self._end.close()
        self._end.carry()
        self._end.leave()
        self._closed = True
        self._output.put(b"")

    def __enter__(self) -> MemoryTransport:
        """Return the transport."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Hang up."""
        self.close()


def _loop() -> AbstractEventLoop:
    from linkspan.runtime.background import background_loop

    return background_loop().loop
