"""A connection to a server in this process: the same bytes as on a pipe, without a pipe. See `runtime/server_end.py`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from linkspan.client.transports.base import ClientTransport, TransportOwner
from linkspan.flows.state import ClientState
from linkspan.runtime.calls import Connectable
from linkspan.runtime.server_end import ServerEnd, WireEnd

if TYPE_CHECKING:
    import asyncio


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
        self._end = ServerEnd(server, self.receive_data, self._loop, flush=self.flush)
        self._to_server = WireEnd(self.lock, self.data_to_send, self._end.driver.receive_data)
        self.watch()

    # Callers, and the server's driver, which calls `flush` too: either side may have something to send.

    def flush(self, here: asyncio.AbstractEventLoop | None = None) -> None:
        """Let each side receive what the other has sent."""
        self._to_server.carry()
        self._end.carry()

    def close(self) -> None:
        """Hang up: what runs in the server is cancelled."""
        with self.lock:
            if self._closed:
                return
            self._closed = True
        self.end(by_us=True)
        self._end.close()
        self._end.leave()
        self.unwatch()

    def next_timeout(self) -> float | None:
        """Return when either side has something to do."""
        both = (super().next_timeout(), self._end.driver.next_timeout())
        return min((at for at in both if at is not None), default=None)

    def handle_timeout(self, now: float) -> None:
        """Do what is due on either side."""
        self.expire(now)
        self._end.driver.handle_timeout(now)
        self.flush()

    def _loop(self) -> asyncio.AbstractEventLoop:
        home = self._home()
        if home is not None and home.is_running():
            return home
        from linkspan.runtime.background import background_loop

        return background_loop().loop
