"""Accept connections at a socket of several processes, on an event loop that cannot: the Proactor loop of Windows.

Windows binds a socket to the completion port of the first loop that accepts there, in whichever process and for good, so that
no other such loop can (error 87). https://learn.microsoft.com/windows/win32/fileio/createiocompletionport
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress

from linkspan.serve.event_loop import ReadersInThread


class SharedListener:
    """Takes the place of an `asyncio.Server`: a thread waits for connections. Made and closed on the running event loop."""

    def __init__(
        self, listener: socket.socket, make_protocol: Callable[[], asyncio.Protocol], tls: ssl.SSLContext | None
    ) -> None:
        """Accept at `listener`, which stays open, until `close`."""
        self._listener = listener
        self._make_protocol = make_protocol
        self._tls = tls
        self._loop = asyncio.get_running_loop()
        self._connecting: set[asyncio.Task[None]] = set()
        listener.setblocking(False)
        self._readers = ReadersInThread(self._loop)
        self._readers.add_reader(listener.fileno(), self._accept)

    def close(self) -> None:
        """Accept no more. What is left waits for who accepts next."""
        self._readers.remove_reader(self._listener.fileno())

    async def wait_closed(self) -> None:
        """Return: nothing of it is left to wait for."""

    def _accept(self) -> None:
        with suppress(OSError):  # the client has left, or another process was faster
            task = self._loop.create_task(self._connect(self._listener.accept()[0]))
            self._connecting.add(task)
            task.add_done_callback(self._connecting.discard)

    async def _connect(self, connection: socket.socket) -> None:
        with suppress(OSError):  # no TLS, or the client has left
            await self._loop.connect_accepted_socket(self._make_protocol, connection, ssl=self._tls)
