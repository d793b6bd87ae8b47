"""File descriptors: wait for input, wake a waiter, and write messages in order without blocking the caller."""

from __future__ import annotations

import errno
import os
import select
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from math import ceil
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

if TYPE_CHECKING:
    import socket

CHUNK: Final = 65536
"""Bytes per read. More makes the allocator map memory for each read, which costs ten times the read."""

_GROWN: Final = 1 << 20
"""Bytes of room of a pipe that has been grown: what an unprivileged process may ask for."""

_LONGEST_WAIT: Final = 86_400.0
"""Seconds; the system counts milliseconds in an int, and who waits looks again anyway."""

_ATOMIC: Final = 4096
"""Bytes that a pipe takes without blocking once it polls as writable (PIPE_BUF)."""

_RWF_NOWAIT: Final = 8
"""Linux: fail rather than block, for this one write. Spares a poll before each."""

_NO_NOWAIT: Final = (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS, errno.ESPIPE)

Bytes: TypeAlias = bytes | memoryview
"""What is left of a large message is a view of it: a copy of a megabyte costs as much as a hundred small calls."""

POLLIN: Final[int] = getattr(select, "POLLIN", 1)
POLLOUT: Final[int] = getattr(select, "POLLOUT", 4)


class Poll(Protocol):
    """What `select.poll` returns."""

    def register(self, fd: int, events: int, /) -> None:
        """Wait for these events of `fd` from now on."""
        ...

    def unregister(self, fd: int, /) -> None:
        """Wait for `fd` no more."""
        ...

    def poll(self, milliseconds: float | None = None, /) -> list[tuple[int, int]]:
        """Return the descriptors that are ready, and for which events."""
        ...


_new_poll: Final[Callable[[], Poll] | None] = getattr(select, "poll", None)

can_poll: Final = _new_poll is not None
"""Whether pipes can be polled here. Not on Windows, where only sockets can be waited for."""


def open_poll(*fds: int, events: int = POLLIN) -> Poll | None:
    """Return what waits for `fds`; None where pipes cannot be polled."""
    if _new_poll is None:
        return None
    poll = _new_poll()
    for fd in fds:
        poll.register(fd, events)
    return poll


class DescriptorWaiter:
    """Waits until one of a few descriptors can be read."""

    __slots__ = ("_fds", "_poll")

    def __init__(self, *fds: int) -> None:
        """Watch `fds`. An end of file counts as readable."""
        self._fds = fds
        self._poll = open_poll(*fds)

    def wait(self, timeout: float | None) -> list[int]:
        """Return the readable ones; none when `timeout` seconds have passed, or a day."""
        timeout = None if timeout is None else min(timeout, _LONGEST_WAIT)
        if self._poll is not None:
            return list(dict(self._poll.poll(None if timeout is None else ceil(max(0.0, timeout) * 1000))))
        if timeout is None:
            timeout = 0.5  # lets Python run signal handlers, which do not interrupt a select on Windows
        return select.select(self._fds, (), (), max(0.0, timeout))[0]


class WakePipe:
    """Wakes its waiting thread, from any thread and from a signal handler. Never blocks; wakes add up to one.

    After `close` its numbers may belong to other code, so a wake that comes too late does nothing.
    """

    __slots__ = ("_closed", "_lock", "_socket", "reader", "writer")

    def __init__(self) -> None:
        self._closed = False
        self._lock = threading.RLock()  # a signal handler may interrupt the thread that has it
        self._socket = None
        if can_poll and sys.platform != "win32":
            self.reader, self.writer = os.pipe()
            os.set_blocking(self.reader, False)
            os.set_blocking(self.writer, False)
        else:
            import socket

            self._socket = reader, writer = socket.socketpair()
            reader.setblocking(False)
            writer.setblocking(False)
            self.reader, self.writer = reader.fileno(), writer.fileno()

    @property
    def fds(self) -> tuple[int, ...]:
        """Its descriptors; none once it is closed."""
        return () if self._closed else (self.reader, self.writer)

    def wake(self, note: int = 0) -> None:
        """Make `reader` readable, unless it is closed: then no thread is left to wake."""
        with self._lock:
            if self._closed:
                return
            try:
                if self._socket is None:
                    os.write(self.writer, bytes((note,)))
                else:
                    self._socket[1].send(bytes((note,)))
            except OSError:
                return  # full: a wake is under way already

    def drain(self) -> bytes:
        """Take the notes out, so that the next wait sleeps."""
        with self._lock:
            if self._closed:
                return b""
            try:
                return os.read(self.reader, 512) if self._socket is None else self._socket[0].recv(512)
            except OSError:
                return b""

    def close(self) -> None:
        """Give the descriptors back. A second time does nothing."""
        with self._lock:
            closed, self._closed = self._closed, True
            if closed:
                return
            if self._socket is None:
                os.close(self.reader)
                os.close(self.writer)
            else:
                for end in self._socket:
                    end.close()


def read_some(fd: int) -> bytes:
    """Read what there is, waiting for it; nothing at the end. Copes with a descriptor that is not blocking."""
    while True:
        try:
            return os.read(fd, CHUNK)
        except BlockingIOError:
            if can_poll:
                DescriptorWaiter(fd).wait(None)
        except OSError:
            return b""  # hung up: a terminal that went away, or how Windows spells end of file


def write_all(fd: int, data: Bytes) -> None:
    """Write all of `data`, waiting as long as it takes. Raises: OSError if the reader is gone."""
    view = memoryview(data)
    while view:
        try:
            view = view[os.write(fd, view) :]
        except BlockingIOError:
            if (probe := open_poll(fd, events=POLLOUT)) is not None:
                probe.poll()


class Outlet:
    """Writes to a descriptor what goes out without blocking, whatever mode the descriptor is in."""

    __slots__ = ("_fd", "_nowait", "_probe")

    def __init__(self, fd: int) -> None:
        """Look at what `fd` can do."""
        self._fd = fd
        self._nowait = sys.platform == "linux"
        self._probe = open_poll(fd, events=POLLOUT)

    def write_some(self, data: bytes) -> Bytes:
        """Write what fits and return the rest. Raises: OSError if the reader is gone."""
        if sys.platform == "linux" and self._nowait:
            try:
                written = os.pwritev(self._fd, (data,), -1, _RWF_NOWAIT)
            except BlockingIOError:
                return data
            except OSError as error:
                if error.errno not in _NO_NOWAIT:
                    raise
                self._nowait = False  # a file, a terminal, an old kernel
            else:
                return b"" if written == len(data) else memoryview(data)[written:]
        return self._write_pages(data)

    def _write_pages(self, data: bytes) -> Bytes:
        if self._probe is None:
            return data
        rest = memoryview(data)
        try:
            while rest and self._probe.poll(0):
                rest = rest[os.write(self._fd, rest[:_ATOMIC]) :]
        except BlockingIOError:
            pass
        return rest


class PipeRoom:
    """The room of a pipe, which is grown while messages pass that do not fit it. Only Linux can; a refusal changes nothing.

    It is not kept grown: all pipes of a user together may have 64 MiB, and when these are used up, new ones get 8 KiB (pipe(7)).
    """

    __slots__ = ("_fd", "is_grown")

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self.is_grown = False

    def resize(self, *, grown: bool) -> None:
        """Grow it, or let it be as new pipes are; the one at the other end may have done the opposite meanwhile."""
        if sys.platform == "linux":
            import fcntl

            with suppress(OSError):  # no pipe, more in it than would fit, or nothing left for this user
                fcntl.fcntl(self._fd, fcntl.F_SETPIPE_SZ, _GROWN if grown else CHUNK)
                self.is_grown = grown

    def follow(self, data: bytes) -> None:
        """Follow a read that was full, or one of a pipe that is grown: grow it up to the end of a line."""
        self.resize(grown=not data.endswith(b"\n"))


class Readable:
    """What can be waited for and read, on every system: the end of a pipe, standard input, a process that ends.

    Where the system cannot wait for a descriptor, a thread reads a copy of it and passes everything on through a socket.
    The one who made it closes it; the descriptor that it was given stays its owner's.
    """

    __slots__ = ("__weakref__", "_fd", "_owned", "_socket", "ended", "on_end", "read", "room")

    read: Callable[[int], bytes]
    """Returns up to so many bytes, and nothing at the end. Raises: BlockingIOError; OSError after a hang-up."""

    def __init__(self, fd: int, *, pumped: bool = not can_poll, owned: bool = False) -> None:
        """Read `fd`; it is closed with this object if it is `owned`. It must be `pumped` where it cannot be waited for."""
        self._fd = fd
        self._owned = owned
        self.room = PipeRoom(fd)
        """What each reader lets `follow` what it has read."""
        self._socket: socket.socket | None = None
        self.ended = False
        """Whether the thread has seen the end, perhaps long before it is read."""
        self.on_end: Callable[[], object] | None = None
        """Called by the thread when it has seen the end."""
        if pumped:
            self._pump()
        else:
            self.read = partial(os.read, fd)

    def fileno(self) -> int:
        """Return what to wait for. It must not be read or closed in any other way."""
        return self._fd if self._socket is None else self._socket.fileno()

    def never_block(self) -> None:
        """From now on `read` raises BlockingIOError where there is nothing to read yet."""
        if sys.platform != "win32" and self._socket is None:
            os.set_blocking(self._fd, False)

    def read_chunk(self) -> bytes:
        """Read up to `CHUNK` bytes of lines; the pipe is grown from the first read that is full to the end of a line."""
        data = self.read(CHUNK)
        if len(data) == CHUNK or self.room.is_grown:
            self.room.follow(data)
        return data

    def copy(self) -> Readable:
        """Return another one for the same input, which needs no other to be closed in time."""
        if self._socket is not None:
            raise NotImplementedError("the thread that reads this descriptor passes everything on once")
        return Readable(os.dup(self._fd), owned=True)

    def close(self) -> None:
        """Give back what is held. A second time does nothing."""
        if self._socket is not None:
            self._socket.close()  # the thread ends when it next reads something, or the end
        elif self._owned:
            self._owned = False
            os.close(self._fd)

    def _pump(self) -> None:
        import socket

        self._socket, sink = socket.socketpair()
        self._socket.setblocking(False)
        self.read = self._socket.recv
        copy = os.dup(self._fd)  # to close a descriptor would wait for the thread that reads it, on Windows
        threading.Thread(target=self._carry, args=(copy, sink), name="linkspan-input", daemon=True).start()

    def _carry(self, source: int, sink: socket.socket) -> None:
        try:
            while data := os.read(source, CHUNK):
                sink.sendall(data)
        except OSError:
            pass  # a broken pipe is how Windows spells end of file
        os.close(source)
        self.ended = True
        sink.close()
        if self.on_end is not None:
            self.on_end()


class Source(Protocol):
    """Where output comes from."""

    def data_to_send(self) -> bytes:
        """Return what must be sent now, and forget it."""
        ...


class Writer:
    """Sends a source's output to a descriptor."""

    def __init__(
        self, source: Source, lock: threading.RLock, fd: int, *, bound: int, on_change: Callable[[], object]
    ) -> None:
        """`lock` guards `source`. `on_change` is called, in any thread, when there is room again or no reader."""
        self._source = source
        self._lock = lock
        self._room = threading.Condition(lock)
        self._fd = fd
        self._outlet = Outlet(fd)
        self._pipe = PipeRoom(fd)
        self.bound = bound
        self._on_change = on_change
        self._pending: list[bytes] = []
        self._writing = self._asked_again = False
        self._waiters = 0
        self._give_back: Callable[[], object] | None = None
        self.unsent = 0
        self.broken = False
        self.problem: OSError | None = None
        """Why nothing could be written any more."""

    @property
    def full(self) -> bool:
        """Whether producers have to wait."""
        return self.unsent > self.bound

    def is_sending(self) -> bool:
        """Return whether output is being sent; if so, the source is asked for more when all is sent. With the lock held."""
        self._asked_again = self.unsent > 0
        return self._asked_again

    def flush(self) -> None:
        """Send what there is; wait while too much is unsent. For threads that may block."""
        with self._lock:
            data = self._take(self._source.data_to_send())
            if not data and self.unsent > self.bound:
                self._wait(lambda: not self.full, None)
        if data:
            self._write(data)

    def flush_now(self) -> None:
        """Send what goes out without blocking, and leave the rest to a thread. For the thread that reads."""
        with self._lock:
            data = self._source.data_to_send()
            if self._writing or self._pending or self.broken:
                data = self._take(data)
            elif data:
                self._writing = True
                self.unsent += len(data)
        while data:
            if len(data) > CHUNK or self._pipe.is_grown:
                self._pipe.resize(grown=len(data) > CHUNK)
            try:
                rest = self._outlet.write_some(data)
            except OSError as error:
                self._break(error)
                return
            if rest:
                with self._lock:
                    self.unsent -= len(data) - len(rest)
                try:
                    threading.Thread(target=self._write, args=(rest,), name="linkspan-output", daemon=True).start()
                except RuntimeError:  # the system has no more threads: what was begun must be sent all the same
                    self._write(rest)
                return
            data = self._next(len(data))

    def wait_empty(self, timeout: float) -> None:
        """Wait until all is sent, or until `timeout` seconds have passed."""
        with self._lock:
            self._wait(lambda: not self.unsent, timeout)

    def leave(self, give_back: Callable[[], object]) -> None:
        """Accept no more; call `give_back` as soon as no thread is writing, so that the descriptor may be closed."""
        with self._lock:
            self.broken = True
            self.unsent -= sum(map(len, self._pending))
            self._pending = []
            self._give_back = give_back
            self._room.notify_all()
            writing = self._writing
        if not writing:
            self._part()

    # With the lock held.

    def _take(self, data: bytes) -> bytes:
        """Queue output; return what the caller has to write, which is nothing while another thread writes."""
        if self.broken:
            return b""
        if data:
            self._pending.append(data)
            self.unsent += len(data)
        if self._writing or not self._pending:
            return b""
        self._writing = True
        return self._pop()

    def _pop(self) -> bytes:
        """Return what is queued, small messages together: to put large ones together would only copy them."""
        pending, count = self._pending, 1
        size = len(pending[0])
        while count < len(pending) and (size := size + len(pending[count])) <= CHUNK:
            count += 1
        self._pending = pending[count:]
        return pending[0] if count == 1 else b"".join(pending[:count])

    def _wait(self, done: Callable[[], bool], timeout: float | None) -> None:
        self._waiters += 1
        self._room.wait_for(done, timeout)
        self._waiters -= 1

    # Without it.

    def _write(self, data: Bytes) -> None:
        while data:
            if len(data) > CHUNK or self._pipe.is_grown:
                self._pipe.resize(grown=len(data) > CHUNK)
            try:
                write_all(self._fd, data)
            except OSError as error:
                self._break(error)
                return
            data = self._next(len(data))

    def _next(self, sent: int) -> bytes:
        """Note that the writer has sent so much, and return what it has to write next."""
        with self._lock:
            was_full = self.unsent > self.bound
            self.unsent -= sent
            if self._waiters:
                self._room.notify_all()
            if self._asked_again and not self.unsent:
                self._asked_again = False
                self._take(self._source.data_to_send())
            data = self._pop() if self._pending else b""
            self._writing = bool(data)
        if not data and self._give_back is not None:
            self._part()
        if was_full:
            self._on_change()
        return data

    def _break(self, problem: OSError) -> None:
        with self._lock:
            self.broken = True
            self.problem = problem
            self._writing = False
            self._pending = []
            self.unsent = 0
            self._room.notify_all()
        self._part()
        self._on_change()

    def _part(self) -> None:
        """No thread is writing any more: give the descriptor back if a caller waits for that."""
        if self._give_back is None:
            return
        with self._lock:
            give_back, self._give_back = self._give_back, None
        if give_back is not None:
            give_back()


_ROOM: Final = 8 * 1024 * 1024


class Outbox:
    """Takes any amount at once; a producer asks for room before it produces more."""

    def __init__(self, fd: int, *, room: int = _ROOM, on_broken: Callable[[], object] | None = None) -> None:
        """`on_broken` is called when the reader is gone."""
        self._fd = fd
        self._room = room
        self._on_broken = on_broken
        self._changed = threading.Condition()
        self._pending: list[bytes] = []
        self._unsent = 0
        self._ended = False
        self.thread = threading.Thread(target=self._work, name="linkspan-outbox", daemon=True)
        self.thread.start()

    def put(self, data: bytes) -> None:
        """Send `data` after what was put before, without waiting. After the end it goes nowhere."""
        with self._changed:
            if not self._ended:
                self._pending.append(data)
                self._unsent += len(data)
                self._changed.notify_all()

    @property
    def full(self) -> bool:
        """Whether too much is unsent."""
        return self._unsent >= self._room

    def wait_for_room(self) -> None:
        """Wait while too much is unsent, so that a fast side is read no faster than the slow one reads."""
        with self._changed:
            self._changed.wait_for(lambda: not self.full or self._ended)

    def end(self) -> None:
        """Take no more; the thread ends when all is sent."""
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def _work(self) -> None:
        try:
            while data := self._next():
                write_all(self._fd, data)
                with self._changed:
                    self._unsent -= len(data)
                    self._changed.notify_all()
        except OSError:
            self.end()
            if self._on_broken is not None:
                self._on_broken()

    def _next(self) -> bytes:
        with self._changed:
            self._changed.wait_for(lambda: self._pending or self._ended)
            data = b"".join(self._pending)
            self._pending.clear()
            return data
