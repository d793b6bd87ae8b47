"""A connection to a server process, over its standard input and output.

Its stderr is read all the time, so that the server never blocks on it, and its end is kept for error messages. When the
process dies, the transport waits briefly for its exit status before it reports the loss.
Spec: https://modelcontextprotocol.io/specification/2026-07-28/basic/transports/stdio (STDIO-1 to STDIO-11).
"""

from __future__ import annotations

import codecs
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import msgspec

from linkspan.client.transports.base import ClientTransport, ThreadWaiter, TransportOwner, Waiter
from linkspan.core.flow import RequestSpec
from linkspan.flows.client_errors import ConnectError, ConnectionLost, ProcessEnd, hint_for_missing_command
from linkspan.flows.state import ClientState
from linkspan.loading import logger
from linkspan.runtime.descriptors import CHUNK, DescriptorWaiter, Readable, WakePipe, Writer, can_poll, open_poll
from linkspan.runtime.forks import point_to_devnull, renew
from linkspan.runtime.process import Child, signal_name
from linkspan.wire.redaction import redact
from linkspan.wire.reports import Report, ReportReader

if TYPE_CHECKING:
    import asyncio

_STDERR_KEPT: Final = 32 * 1024
_LAST_READS: Final = 16
"""Reads that empty the largest pipe."""
_MAX_UNSENT: Final = 64 * 1024 * 1024
_DYING: Final = 1.0
"""Seconds in which a server whose output has ended must end too."""
_TICK: Final = 0.01
_LOOK: Final = 1.0
"""Seconds between looks at the process, where its end cannot be waited for."""
_LENT: Final = 0.05
"""Seconds between looks at what callers read instead of the reactor. One that has not read for so long is not relied on."""


class Command(msgspec.Struct, frozen=True):
    """How to start a server. `secrets` are texts that must not show up anywhere."""

    argv: Sequence[str]
    env: Mapping[str, str]
    cwd: str | None = None
    secrets: tuple[str, ...] = ()
    reports: bool = False
    """Whether it was asked to write its log as reports."""
    is_ours: bool = False
    """Whether it is a server of Linkspan for sure, which speaks the newest revision and dies of no question."""


class LoopReader:
    """Reads on an event loop, through a copy of its own."""

    def __init__(self, loop: asyncio.AbstractEventLoop, source: Readable, read: Callable[[LoopReader], object]) -> None:
        """Call `read` on the loop, which runs in this thread, whenever there is input.

        Raises: NotImplementedError or OSError if that loop cannot wait for pipes.
        """
        self.loop = loop
        self.source = source.copy()
        self._open = True
        renew(self)
        loop.add_reader(self.source.fileno(), read, self)

    def start_afresh(self) -> None:
        """In a forked child: let go of the parent's pipe."""
        if self._open:
            point_to_devnull([self.source.fileno()])

    def end(self) -> None:
        """Read no more, as soon as the loop runs; any thread."""
        with suppress(RuntimeError):
            self.loop.call_soon_threadsafe(self.remove)

    def remove(self) -> None:
        """Read no more; on the loop."""
        if self._open:
            self.loop.remove_reader(self.source.fileno())
            self.__del__()

    def __del__(self) -> None:
        """Close the copy, also where the loop was closed before `remove` could run on it."""
        self._open = False
        self.source.close()


_LEAD: Final = object()
"""What a follower gets that shall lead from now on."""


class LeaderFollowers:
    """Of the threads that wait for answers, one reads for all, until it has its own; then another one does."""

    def __init__(self, fd: int, read: Callable[[], bool]) -> None:
        """`read` reads from `fd` without blocking and returns whether there may be more."""
        self._fd = fd
        self._read = read
        self._lock = threading.Lock()
        self._leader: ThreadWaiter | None = None
        self._followers: dict[ThreadWaiter, None] = {}
        self._wakes: WakePipe | None = None
        self._closed = False
        renew(self)

    def start_afresh(self) -> None:
        """In a forked child: let go of the pipe that wakes the parent's leader."""
        if self._wakes is not None:
            point_to_devnull(self._wakes.fds)

    def wait(self, waiter: ThreadWaiter) -> Any:
        """Return the next item of `waiter`; until there is one, this thread reads if no other one does."""
        with self._lock:
            if self._leader is None:
                self._leader = waiter
            else:
                self._followers[waiter] = None
        try:
            while True:
                if self._leader is waiter:
                    self._lead(waiter)
                item = waiter.get()
                if item is not _LEAD:
                    return item
        finally:
            with self._lock:
                if self._leader is not waiter:
                    self._followers.pop(waiter, None)
                elif self._followers:
                    self._leader = next(iter(self._followers))
                    del self._followers[self._leader]
                    self._leader.put(_LEAD)
                else:
                    self._leader = None

    def _lead(self, waiter: ThreadWaiter) -> None:
        """Read until `waiter` has an item, or nothing can be read any more."""
        with self._lock:
            if self._closed:
                return
            if self._wakes is None:
                self._wakes = WakePipe()
                self._poll = open_poll(self._fd, self._wakes.reader)
            wakes, poll = self._wakes, self._poll
            assert poll is not None  # elsewhere the reactor reads
        try:
            while True:
                waiter.wake = wakes.wake  # before looking, so that an item that comes from here on wakes us
                if not waiter.empty():
                    return
                readable = poll.poll()
                waiter.wake = None
                for fd, _ in readable:
                    if fd != self._fd:
                        wakes.drain()
                    elif not self._read():
                        return
        finally:
            waiter.wake = None

    def close(self) -> None:
        """Give back what it holds; who still leads has an item already."""
        with self._lock:
            self._closed = True
            if self._wakes is not None:
                self._wakes.close()


class StdioClientTransport(ClientTransport):
    """A server process and our end of its pipes."""

    def __init__(self, owner: TransportOwner, state: ClientState, command: Command) -> None:
        """Start the server. Raises: ConnectError if that is not possible."""
        super().__init__(owner, state)
        self._command = command
        try:
            self._child = child = Child(command.argv, command.env, command.cwd)
        except (OSError, ValueError) as error:
            raise self._cannot_start(error) from None
        self._writer = Writer(self, self.lock, child.stdin, bound=_MAX_UNSENT, on_change=self._check_writer)
        self._last_words = bytearray()
        self._decode_stderr = codecs.getincrementaldecoder("utf-8")("replace").decode
        self._reports = ReportReader() if command.reports else None
        self._stdout = Readable(child.stdout)
        self._stderr = Readable(child.stderr)
        self._process = child.watch()
        watched = [each for each in (self._stdout, self._stderr, self._process) if each is not None]
        self._open = {each.fileno(): each for each in watched}
        self._dying_until: float | None = None
        self._next_check = 0.0
        self._reaped = threading.Lock()
        self._left = threading.Event()
        self._receiving = threading.Lock()
        """Held by the thread that reads stdout until all is delivered, so that messages keep their order."""
        self._eof = False
        self._shared = not can_poll
        """Whether the reactor reads in any case."""
        self._lent = self._used = False
        """Whether callers read instead of the reactor; whether one has, since the reactor looked."""
        self._on_loop: LoopReader | None = None
        self._threads = LeaderFollowers(self._stdout.fileno(), self._read_in_thread)
        self._stdout.never_block()
        self.watch(*self._open)

    def _cannot_start(self, error: OSError | ValueError) -> ConnectError:
        name = self._command.argv[0]
        missing = isinstance(error, FileNotFoundError)
        if self._command.cwd is not None and not os.path.isdir(self._command.cwd):
            problem = f"there is no directory {self._command.cwd!r} to start it in"
            hint = "give another cwd [LS-104]"
        elif missing:
            problem = f"the command {name!r} was not found"
            hint = hint_for_missing_command(name, self._which)
        elif isinstance(error, PermissionError):
            problem = f"the command {name!r} is not executable"
            hint = "make it executable (chmod +x), or start it with its interpreter [LS-105]"
        else:
            reason = error.strerror if isinstance(error, OSError) and error.strerror else error
            problem, hint = f"the command {name!r} cannot be started: {reason}", None
        return ConnectError(problem, self.state.origin, phase="spawn", hint=hint)

    def _which(self, name: str) -> str | None:
        import shutil

        return shutil.which(name, path=self._command.env.get("PATH"))

    # Callers.

    def flush(self, here: asyncio.AbstractEventLoop | None = None) -> None:
        """Send what goes out without blocking; the rest follows when the server reads. From now on `here` reads."""
        if here is not None and (self._on_loop is None or self._on_loop.loop is not here):
            self._read_on(here)
        try:
            self._writer.flush_now()
        except BaseException:  # the caller was interrupted: how much was written is not known
            self._reactor.call(self._begin_to_end)
            raise

    def submit(self, spec: RequestSpec, waiter: Waiter) -> None:
        """Send a request. Raises: ConnectionLost, also if the server has stopped reading."""
        if self._writer.unsent > _MAX_UNSENT and self.alive:
            problem = "the server does not read its input, and too much data is waiting"
            raise ConnectionLost(problem, self.state.origin, phase=spec.phase)
        super().submit(spec, waiter)

    def close(self) -> None:
        """Hang up, wait for the process to end, and end it if it does not, and for its last words on stderr. Blocks."""
        with self.lock:
            self._closed = True
        self.end(by_us=True)
        with self._reaped:
            self._child.stop(self.state.options.timeouts.close)
        self._reactor.call(self._leave)
        self._left.wait(_DYING)

    def ending(self) -> ProcessEnd:
        """Return what is known of the process."""
        text = bytes(self._last_words).decode("utf-8", "replace")
        code = self._child.exit_code()
        return ProcessEnd(
            code if code is not None and code >= 0 else None,
            signal_name(code),
            redact(text, self._command.secrets),
            tuple(self._stray),
        )

    # Reading. Any thread may read at any time; who waits for input is a question of speed only.

    def _read_on(self, loop: asyncio.AbstractEventLoop) -> None:
        """Let `loop` read what comes. The reactor reads where two running loops use one client."""
        if self._shared or not self.alive:
            return
        with self.lock:
            if self._on_loop is not None:
                self._shared = self._on_loop.loop.is_running()
                self._take_back()
            if self._shared:
                return
            try:
                self._on_loop = LoopReader(loop, self._stdout, self._read_on_loop)
            except (NotImplementedError, OSError):
                self._shared = True
            else:
                self._lent = self._used = True

    def _read_on_loop(self, reader: LoopReader) -> None:
        self._used = True
        if not self._read(reader.source, reader.loop):
            reader.remove()

    def wait(self, waiter: ThreadWaiter) -> Any:
        """Return the next item of `waiter`; until there is one, one of the threads that wait reads for all."""
        return waiter.get() if self._shared else self._threads.wait(waiter)

    def _read_in_thread(self) -> bool:
        self._lent = self._used = True
        return self._read(self._stdout)

    def _read(self, source: Readable, here: asyncio.AbstractEventLoop | None = None) -> bool:
        """Read what the server wrote and hand it out, unless another thread is doing that; return whether more may come."""
        if not self._receiving.acquire(blocking=False):
            return True
        try:
            if self._eof:
                return False
            try:
                data = source.read_chunk()
            except BlockingIOError:
                return True
            except OSError:
                data = b""
            if data:
                self.receive_data(data, here)
                return True
            self._eof = True
            with self.lock:
                events = self.machine.receive_eof()
            self.receive(events, here)
            self._reactor.call(self._stdout_ended)
        except Exception:  # a mistake of ours or of a recorder must not end the thread that reads
            logger("linkspan").exception("an error in a client's connection")
        except BaseException:  # the caller in whose thread we are was interrupted: part of a message may be lost
            self._reactor.call(self._begin_to_end)
            raise
        finally:
            self._receiving.release()
        return not self._eof

    def _stdout_ended(self) -> None:
        self._drop(self._stdout)
        self._begin_to_end()

    # The reactor.

    def next_timeout(self) -> float | None:
        """Return when something is due."""
        with self.lock:
            due = self.machine.next_timeout()
        if self._lent or self._dying_until is not None or (due is not None and self._process is None):
            return self._next_check if due is None else min(due, self._next_check)
        return due

    def handle_timeout(self, now: float) -> None:
        """Give up late requests, and look after a process that has ended or hung up."""
        if self._lent:
            used, self._used = self._used, False
            self._read(self._stdout)  # what a busy loop has left
            if not used:
                self._take_back()
        self.expire(now)
        if self._dying_until is None:
            self._next_check = now + (_LENT if self._lent else _LOOK)
            if self._process is None and self._child.exit_code() is not None:
                self._begin_to_end()
            return
        self._next_check = now + _TICK
        has_all = self._stdout not in self._open.values() and self._stderr not in self._open.values()
        if (self._child.exit_code() is not None and has_all) or now >= self._dying_until:
            self._dying_until = None
            self.end()
            if self._reaped.acquire(blocking=False):
                self._child.reap()
                self._reaped.release()
                self._leave()

    def handle_readable(self, fd: int) -> None:
        """Read what the server wrote, or see that its process has ended."""
        source = self._open.get(fd)
        if source is None:
            return
        if source is self._process:
            self._drop(source)
            self._begin_to_end()
        elif source is self._stderr:
            self._read_stderr()
        elif self._lent:
            self._next_check = time.monotonic() + _LENT
            self._reactor.drop_fd(fd)
        else:
            self._read(source)

    def _read_stderr(self) -> None:
        try:
            data = self._stderr.read(CHUNK)
        except OSError:
            data = b""
        if not data:
            self._drop(self._stderr)
        self._keep_stderr(data)

    def _take_back(self) -> None:
        """Let the reactor read again."""
        with self.lock:
            self._lent = False
            if self._on_loop is not None:
                self._on_loop.end()
                self._on_loop = None
        self._reactor.call(self._watch_stdout)

    def _watch_stdout(self) -> None:
        if self._stdout in self._open.values():
            self._reactor.add_fd(self, self._stdout.fileno())

    def _begin_to_end(self) -> None:
        """Ask nothing more of the server. What it has said is still read, and how it ended is waited for, briefly."""
        self.alive = False
        if self._lent:
            self._take_back()
        if self._dying_until is None:
            self._next_check = now = time.monotonic()
            self._dying_until = now + _DYING

    def _check_writer(self) -> None:
        """A server that has closed its input will answer nothing more that it is asked."""
        if self._writer.broken:
            self._reactor.call(self._begin_to_end)

    def _keep_stderr(self, data: bytes) -> None:
        text = self._decode_stderr(data, not data)
        if self._reports is None:
            self._keep_printed(text)
            return
        for each in [*self._reports.receive(text), *(self._reports.end() if not data else ())]:
            if isinstance(each, Report):
                self._owner.report_received(self, each.without(self._command.secrets))
            self._keep_printed(each.printed if isinstance(each, Report) else each)

    def _keep_printed(self, text: str) -> None:
        self._last_words += text.encode("utf-8", "replace")
        if len(self._last_words) > 2 * _STDERR_KEPT:
            del self._last_words[:-_STDERR_KEPT]
        if text:
            self._owner.stderr_received(self, text)

    def _drop(self, source: Readable) -> None:
        """Watch something no more. The pipes themselves are closed at the very end, by the child."""
        fd = source.fileno()
        if self._open.get(fd) is source:
            del self._open[fd]
            self._reactor.drop_fd(fd)
            source.close()

    def _leave(self) -> None:
        """In the reactor's thread, when the process is gone: give everything back."""
        if not self._receiving.acquire(blocking=False):  # the last reader is just leaving
            self._reactor.call_later(_TICK, self._leave)
            return
        self._eof = True
        self._receiving.release()
        self._threads.close()
        if self._on_loop is not None:
            self._on_loop.end()
        self._read_last_words()
        self._reactor.forget(self)
        for source in list(self._open.values()):
            self._drop(source)
        self._writer.leave(self._child.close_pipes)
        self._left.set()

    def _read_last_words(self) -> None:
        """Read what is left in the pipe of stderr; another process that has it may write without end."""
        for _ in range(_LAST_READS):
            if self._stderr not in self._open.values() or not DescriptorWaiter(self._stderr.fileno()).wait(0.0):
                return
            self._read_stderr()
