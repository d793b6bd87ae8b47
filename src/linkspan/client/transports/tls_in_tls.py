"""A secure connection within another, as behind a proxy that is spoken to over TLS. For threads: loops can do it themselves."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable
from functools import partial
from typing import Final, TypeVar

T = TypeVar("T")
_LARGEST_READ: Final = 65536


class TlsInTls:
    """What a connection uses of a socket. Python cannot wrap its own secure sockets once more."""

    def __init__(self, outer: socket.socket, context: ssl.SSLContext, host: str) -> None:
        """Shake hands with `host` through `outer`, which is secure already. Raises: OSError."""
        self.outer = outer
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname=host)
        self._perform(self._tls.do_handshake)
        self.settimeout, self.fileno, self.getpeername = outer.settimeout, outer.fileno, outer.getpeername

    def sendall(self, data: bytes) -> None:
        """Send all of it. Raises: OSError."""
        rest = memoryview(data)
        while rest:
            rest = rest[self._perform(partial(self._tls.write, rest)) :]

    def recv(self, size: int) -> bytes:
        """Receive up to so many bytes; none at the end. Raises: OSError."""
        try:
            return self._perform(partial(self._tls.read, size))
        except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
            return b""

    def close(self) -> None:
        """Close both."""
        self.outer.close()

    def _perform(self, operation: Callable[[], T]) -> T:
        """Do something with the inner connection, and carry its bytes through the outer one."""
        while True:
            try:
                outcome = operation()
            except ssl.SSLWantReadError:
                self._carry()
                if data := self.outer.recv(_LARGEST_READ):
                    self._incoming.write(data)
                else:
                    self._incoming.write_eof()
            else:
                self._carry()
                return outcome

    def _carry(self) -> None:
        if data := self._outgoing.read():
            self.outer.sendall(data)
