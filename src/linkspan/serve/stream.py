"""One connection on two descriptors, served by the thread that calls: the chapter without asyncio.

The thread polls the input and runs the machine; plain functions run in worker threads, which write their answers
themselves. It stops when all is over, or when there is an async call: then `event_loop` goes on with the same server.
Law: the serving thread never blocks but in its poll, and never holds the lock while an author's function runs.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from math import inf
from threading import get_ident
from types import TracebackType
from typing import TYPE_CHECKING, Final

from linkspan.core.call import Lifespan
from linkspan.runtime.calls import CLEANUP, Connect, Driver
from linkspan.runtime.descriptors import CHUNK, DescriptorWaiter, Readable, WakePipe, Writer
from linkspan.runtime.shutdown_watchdog import INTERRUPTED, Lifeline, NoLifeline

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

_CLEANUP: Final = 0.25
"""Seconds that cancelled tasks have for their `finally` blocks, and the last output to go out."""

_SLACK: Final = 0.4
"""Seconds after which a thread that should have ended by itself is taken to be blocked."""


class StreamServer:
    """Serves one connection. Use it as a context manager: it looks after signals, the parent and the exit."""

    def __init__(
        self,
        connect: Connect,
        source: Readable,
        output_fd: int,
        *,
        watch_parent: bool,
        grace: float,
        max_workers: int,
        max_unsent: int,
        owns_process: bool = True,
    ) -> None:
        """Open a connection and take it into service; `source` is closed at the end.

        One that does not own the process leaves signals, the parent and the exit alone.
        """
        self.source = source
        self.wakes = WakePipe()
        self._loop: AbstractEventLoop | None = None
        self._task_ended: Callable[[], object] = self.flush
        self.driver = Driver(
            connect,
            lambda: self._loop,
            self.flush,
            max_workers=max_workers,
            congested=lambda: self.writer.unsent > self.writer.bound,
            sending=lambda: self.writer.is_sending(),
            on_task_end=lambda: self._task_ended(),
        )
        self.connection = self.driver.connection
        self._output_fd = os.dup(output_fd)  # a thread may still be writing when the caller closes its own
        self.writer = Writer(
            self.connection, self.driver.lock, self._output_fd, bound=max_unsent, on_change=self.wakes.wake
        )
        self.lifeline: Lifeline | NoLifeline = NoLifeline()
        if owns_process:
            self.lifeline = Lifeline(
                source,
                on_stop=self.wakes.wake,
                progress=lambda: self._reads,
                watch_parent=watch_parent,
                patience=grace + _CLEANUP + _SLACK,
                hurry=grace / 2 + _CLEANUP + _SLACK,
            )
        self._grace = grace
        self._reads = 0
        self._eof = False
        self._closed = False
        self._deadline: float | None = None
        self._sleeps_until: float | None = None
        self._paused = False
        self._thread = get_ident()
        self.refusal: str | None = None
        """Why the lifespan could not be entered."""

    def __enter__(self) -> StreamServer:
        """Take over the signals and begin to watch."""
        self.lifeline.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Let the last output go out and give the signals back."""
        self.writer.wait_empty(0.0 if self.writer.broken else _CLEANUP)
        self.writer.leave(lambda: os.close(self._output_fd))
        self.lifeline.close()
        self.source.close()
        self.wakes.close()

    def serve_plainly(self) -> bool:
        """Serve, and return whether all is over; if not, an async call needs a loop: see `attach`."""
        source_fd = self.source.fileno()
        everything = DescriptorWaiter(source_fd, self.wakes.reader)
        wakes_only = DescriptorWaiter(self.wakes.reader)
        opened = self.connection.lifespan is None
        while True:
            waiter, timeout = everything, None
            if not self.calm():
                if self.tick():
                    return True
                waiter, timeout = everything if self.wants_input else wakes_only, self.sleep()
            if self.driver.waiting:
                return False
            ready = waiter.wait(timeout)
            if self.wakes.reader in ready:
                self.wakes.drain()
            if source_fd in ready:
                self.read()
                self.writer.flush_now()
                if not opened:  # the first message has its answer
                    opened = True
                    if not self.driver.open():
                        return False

    def stop(self) -> None:
        """End now: cancel what runs, and let `tick` report the end."""
        self._deadline = min(self._deadline or inf, time.monotonic())
        self.wakes.wake()

    def leave(self) -> None:
        """Leave the lifespan, which the process has more time for."""
        with self._leaving() as lifespan:
            self.driver.leave(lifespan)

    async def aleave(self) -> None:
        """Do the same on the event loop."""
        with self._leaving() as lifespan:
            await self.driver.aleave(lifespan)

    @contextmanager
    def _leaving(self) -> Generator[Lifespan | None]:
        if (background := self.connection.background) is not None:
            background.leave(self.driver, 0.0, CLEANUP)
        lifespan = self.connection.lifespan
        if lifespan is not None:
            self.refusal = lifespan.refusal
        if lifespan is None or not lifespan.closes_within:
            yield lifespan
            return
        self.lifeline.allow(lifespan.closes_within + _CLEANUP + _SLACK)
        yield lifespan
        self.lifeline.allow(_CLEANUP + _SLACK)

    def calm(self) -> bool:
        """Tell, cheaply, whether all there is to do is to wait for input."""
        self._paused = False
        self._sleeps_until = None  # first, so that a worker that changes things from here on wakes us
        with self.driver.lock:
            due = self.connection.next_timeout()
        return (
            due is None
            and self._deadline is None
            and not self._eof
            and not self.lifeline.stopped
            and not self.writer.broken
            and self.writer.unsent <= self.writer.bound
            and self.connection.accepting
        )

    def attach(self, loop: AbstractEventLoop, on_task_end: Callable[[], object]) -> None:
        """Run async calls on `loop` from now on; `on_task_end` sends what they bring."""
        self._loop = loop
        self._task_ended = on_task_end

    # Reading.

    @property
    def wants_input(self) -> bool:
        """Whether to read on: not at the end, and not while too much runs or waits to be sent."""
        if self._eof or self._deadline is not None:
            return False
        self._paused = True  # first, so that a worker that makes room from here on wakes us
        self._paused = not self.connection.accepting or self.writer.full
        return not self._paused

    def read(self) -> None:
        """Read once and start what was asked for."""
        try:
            data = self.source.read(CHUNK)  # what `read_chunk` does, one call cheaper
            if len(data) == CHUNK or self.source.room.is_grown:
                self.source.room.follow(data)
        except BlockingIOError:
            return
        except OSError:
            data = b""  # hung up: a terminal that went away, a socket that was reset
        if data:
            self._reads += 1
            self.driver.receive_data(data)
        else:
            self._eof = True
            self.driver.receive_eof()

    # Time and ending. The clock is the connection's: monotonic seconds.

    def sleep(self) -> float | None:
        """Return for how many seconds nothing needs to be done, None for ever."""
        self._sleeps_until = None  # first, so that a worker that brings a deadline from here on wakes us
        deadline = self.driver.next_timeout() if self._deadline is None else self._deadline
        self._sleeps_until = deadline
        return None if deadline is None else max(0.0, deadline - time.monotonic())

    def tick(self) -> bool:
        """Send what there is, do what is due, and return whether the stream has ended."""
        now = time.monotonic()
        self.driver.handle_timeout(now)
        self.writer.flush_now()
        if self._deadline is None and (self._eof or self.lifeline.stopped or self.writer.broken):
            self._begin_to_end(now)
        if self._deadline is not None and not self._closed:
            idle = not self.connection.running and not self.driver.waiting and not self.writer.unsent
            if idle or self.writer.broken or now >= self._deadline:
                self._close(now)
        return self._ended()

    def _ended(self) -> bool:
        """Return whether nothing is left to be done, or no time to do it."""
        if not self._closed or self._deadline is None:
            return False
        if time.monotonic() >= self._deadline:
            return True
        return not self.driver.in_tasks and not self.writer.unsent

    def _begin_to_end(self, now: float) -> None:
        self.lifeline.arm()
        grace = self._grace if self._eof else self._grace / 2
        if self.lifeline.exit_code == INTERRUPTED:
            grace = self._grace / 4  # a user waits at the keyboard
            with suppress(OSError):
                os.write(2, b"\nExiting...\n")
        self._deadline = now + grace

    def _close(self, now: float) -> None:
        self._closed = True
        self._deadline = now + _CLEANUP
        self.driver.close()
        self.writer.flush_now()

    def flush(self) -> None:
        """Send what the connection has to send. Any thread."""
        if get_ident() == self._thread:
            self.writer.flush_now()
            return
        self.writer.flush()
        if self._paused or self._deadline is not None or self.driver.waiting:
            self.wakes.wake()
        else:
            due = self.driver.next_timeout()
            if due is not None and (self._sleeps_until is None or due < self._sleeps_until):
                self.wakes.wake()
