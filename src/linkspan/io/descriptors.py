"""File descriptors: wait for input, wake a waiter, write without blocking. Knows nothing of messages.

Law: nothing here changes a descriptor that we share with others (no O_NONBLOCK), and every call copes with one that
somebody else made non-blocking. Where input cannot be polled (Windows pipes) a pump copies it to a socket, which can.
"""

from __future__ import annotations

import errno
import os
import select
import sys
import threading
from math import ceil
from typing import Final

__all__ = ["CHUNK", "Outlet", "Waiter", "WakePipe", "can_poll", "pump", "write_all"]

CHUNK: Final = 65536
"""Bytes per read. More makes the allocator map memory for each read, which costs ten times the read."""

_LONGEST_WAIT: Final = 86_400.0
"""Seconds; the system counts milliseconds in an int, and who waits looks again anyway."""

_ATOMIC: Final = 4096
"""Bytes that a pipe takes without blocking once it polls as writable (PIPE_BUF)."""

_RWF_NOWAIT: Final = 8
"""Linux: fail rather than block, for this one write. Spares a poll before each."""

_NO_NOWAIT: Final = (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS, errno.ESPIPE)

can_poll: Final = hasattr(select, "poll")
"""Whether pipes can be polled here. Not on Windows, where only sockets can be waited for."""


class Waiter:
    """Waits until one of a few descriptors can be read."""

    __slots__ = ("_fds", "_poll")

    def __init__(self, *fds: int) -> None:
        """Watch `fds`. An end of file counts as readable."""
        self._fds = fds
        self._poll = None
        if can_poll:
            self._poll = select.poll()
            for fd in fds:
                self._poll.register(fd, select.POLLIN)

    def wait(self, timeout: float | None) -> list[int]:
        """Return the readable ones; none when `timeout` seconds have passed, or a day."""
        timeout = None if timeout is None else min(timeout, _LONGEST_WAIT)
        if self._poll is not None:
            return list(dict(self._poll.poll(None if timeout is None else ceil(max(0.0, timeout) * 1000))))
        if timeout is None:
            timeout = 0.5  # lets Python run signal handlers, which do not interrupt a select on Windows
        return select.select(self._fds, (), (), max(0.0, timeout))[0]


class WakePipe:
    """Wakes whoever waits on it, from any thread and from a signal handler. Never blocks; wakes add up to one."""

    __slots__ = ("_socket", "reader", "writer")

    def __init__(self) -> None:
        self._socket = None
        if can_poll:
            self.reader, self.writer = os.pipe()
            os.set_blocking(self.reader, False)
            os.set_blocking(self.writer, False)
        else:
            import socket

            self._socket = reader, writer = socket.socketpair()
            reader.setblocking(False)
            writer.setblocking(False)
            self.reader, self.writer = reader.fileno(), writer.fileno()

    def wake(self, note: int = 0) -> None:
        """Make `reader` readable."""
        try:
            if self._socket is None:
                os.write(self.writer, bytes((note,)))
            else:
                self._socket[1].send(bytes((note,)))
        except OSError:
            return  # full: a wake is under way already; closed: nobody is left to wake

    def drain(self) -> bytes:
        """Take the notes out, so that the next wait sleeps."""
        try:
            return os.read(self.reader, 512) if self._socket is None else self._socket[0].recv(512)
        except OSError:
            return b""

    def close(self) -> None:
        """Give the descriptors back."""
        if self._socket is None:
            os.close(self.reader)
            os.close(self.writer)
        else:
            for end in self._socket:
                end.close()


def write_all(fd: int, data: bytes) -> None:
    """Write all of `data`, waiting as long as it takes. Raises: OSError if there is nobody to read it."""
    view = memoryview(data)
    while view:
        try:
            view = view[os.write(fd, view) :]
        except BlockingIOError:
            if can_poll:
                probe = select.poll()
                probe.register(fd, select.POLLOUT)
                probe.poll()


class Outlet:
    """Writes to a descriptor what goes out without blocking, whatever mode the descriptor is in."""

    __slots__ = ("_fd", "_nowait", "_probe")

    def __init__(self, fd: int) -> None:
        """Look at what `fd` can do."""
        self._fd = fd
        self._nowait = sys.platform == "linux"
        self._probe = None
        if can_poll:
            self._probe = select.poll()
            self._probe.register(fd, select.POLLOUT)

    def write_some(self, data: bytes) -> bytes:
        """Write what fits and return the rest. Raises: OSError if there is nobody to read it."""
        if self._nowait:
            try:
                written = os.pwritev(self._fd, (data,), -1, _RWF_NOWAIT)
            except BlockingIOError:
                return data
            except OSError as error:
                if error.errno not in _NO_NOWAIT:
                    raise
                self._nowait = False  # a file, a terminal, an old kernel
            else:
                return b"" if written == len(data) else data[written:]
        return self._write_pages(data)

    def _write_pages(self, data: bytes) -> bytes:
        if self._probe is None:
            return data
        rest = memoryview(data)
        try:
            while rest and self._probe.poll(0):
                rest = rest[os.write(self._fd, rest[:_ATOMIC]) :]
        except BlockingIOError:
            pass
        return bytes(rest)


def pump(fd: int) -> int:
    """Copy `fd` to a socket from a thread of its own and return the socket's descriptor, which can be waited for."""
    import socket

    reader, writer = socket.socketpair()

    def copy() -> None:
        try:
            while data := os.read(fd, CHUNK):
                writer.sendall(data)
        except OSError:
            pass  # a broken pipe is how Windows spells end of file
        writer.close()

    threading.Thread(target=copy, name="linkspan-input", daemon=True).start()
    return reader.detach()
