"""Serve one connection on an event loop: descriptors from the first async call on, and byte strings for embedding.

This module loads asyncio; `stream` and `memory` serve without it."""

from __future__ import annotations

import asyncio
import os
import selectors
import stat
import sys
import threading
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from types import TracebackType
from typing import Protocol

from linkspan.runtime.calls import Connectable
from linkspan.runtime.descriptors import DescriptorWaiter, WakePipe, can_poll
from linkspan.runtime.server_end import ServerEnd
from linkspan.runtime.workers import MAX_WORKERS
from linkspan.serve.stream import StreamServer


def serve_on_loop(server: StreamServer) -> None:
    """Go on serving on a new event loop, to the end."""
    loop = _new_loop(server.source.fileno())
    asyncio.set_event_loop(loop)
    face = _LoopFace(server, loop, loop.stop)
    face.start()
    try:
        loop.run_forever()
        loop.run_until_complete(server.aleave())
    finally:
        face.stop()
        asyncio.set_event_loop(None)
        _close(loop)


async def serve_on_this_loop(server: StreamServer) -> None:
    """Serve on the running event loop until the input ends; cancelled, cancel what runs and end in good order."""
    ended = asyncio.Event()
    face = _LoopFace(server, asyncio.get_running_loop(), ended.set)
    face.start()
    try:
        await ended.wait()
    except asyncio.CancelledError:
        server.stop()
        await ended.wait()
        raise
    finally:
        face.stop()
        await server.aleave()
        server.driver.end_threads()


def _new_loop(input_fd: int) -> asyncio.AbstractEventLoop:
    if sys.platform != "win32" and can_poll and needs_pump(input_fd):
        return asyncio.SelectorEventLoop(selectors.PollSelector())
    return asyncio.new_event_loop()


def needs_pump(fd: int) -> bool:
    """Return whether `fd` is of a kind that epoll refuses to watch: a file, or /dev/null."""
    mode = os.fstat(fd).st_mode
    return stat.S_ISREG(mode) or (stat.S_ISCHR(mode) and not os.isatty(fd))


def _close(loop: asyncio.AbstractEventLoop) -> None:
    """Close the loop without waiting for what does not end: the lifeline sees to threads of executors."""
    loop.run_until_complete(_bounded(loop.shutdown_asyncgens()))
    loop.close()


async def _bounded(ending: Coroutine[object, object, None]) -> None:
    await asyncio.wait([asyncio.ensure_future(ending)], timeout=0.1)


class _Readers(Protocol):
    """The part of an event loop that waits for descriptors."""

    def add_reader(self, fd: int, callback: Callable[[], object], /) -> object:
        """Call `callback` on the loop whenever `fd` can be read."""
        ...

    def remove_reader(self, fd: int, /) -> object:
        """Call it no more."""
        ...


class ReadersInThread:
    """Waits for descriptors in a thread, for loops that cannot: the Proactor loop of Windows. Used on the loop.

    It ends with the last descriptor that is removed.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._callbacks: dict[int, Callable[[], object]] = {}
        self._wakes = WakePipe()
        self._lock = threading.Lock()
        self._waited_for: set[int] = set()
        """Without those that were reported, until the loop has seen to them."""
        threading.Thread(target=self._work, name="linkspan-readers", daemon=True).start()

    def add_reader(self, fd: int, callback: Callable[[], object], /) -> None:
        """Call `callback` on the loop whenever `fd` can be read."""
        self._callbacks[fd] = callback
        self._wait_for(fd)

    def remove_reader(self, fd: int, /) -> None:
        """Call it no more."""
        del self._callbacks[fd]
        with self._lock:
            self._waited_for.discard(fd)
        self._wakes.wake()

    def _wait_for(self, fd: int) -> None:
        with self._lock:
            self._waited_for.add(fd)
        self._wakes.wake()

    def _ready(self, fd: int) -> None:
        if (callback := self._callbacks.get(fd)) is not None:
            callback()
        if fd in self._callbacks:
            self._wait_for(fd)

    def _work(self) -> None:
        notes = self._wakes.reader
        with suppress(RuntimeError):  # the loop is closed
            while True:
                with self._lock:
                    fds = tuple(self._waited_for)
                with suppress(OSError):  # one was removed and closed just now
                    for fd in DescriptorWaiter(notes, *fds).wait(None):
                        if fd == notes:
                            self._wakes.drain()
                            continue
                        with self._lock:
                            self._waited_for.discard(fd)
                        self._loop.call_soon_threadsafe(self._ready, fd)
                if not self._callbacks:
                    break
        self._wakes.close()


class _LoopFace:
    """Runs a server on an event loop: its input, its timer and its async calls."""

    def __init__(self, server: StreamServer, loop: asyncio.AbstractEventLoop, on_end: Callable[[], object]) -> None:
        self._on_end = on_end
        self._server = server
        self._loop = loop
        self._readers: _Readers = loop
        self._reading = False
        self._flushing = False
        self._over = False
        self._timer: asyncio.TimerHandle | None = None
        server.attach(loop, self._task_ended)

    def start(self) -> None:
        """Serve; `on_end` is called at the end."""
        try:
            self._readers.add_reader(self._server.wakes.reader, self._woken)
        except NotImplementedError:
            self._readers = ReadersInThread(self._loop)
            self._readers.add_reader(self._server.wakes.reader, self._woken)
        self._loop.call_soon(self._server.driver.open)
        self._loop.call_soon(self._turn)

    def stop(self) -> None:
        """Leave nothing on the loop."""
        self._over = True
        self._watch(False)
        self._readers.remove_reader(self._server.wakes.reader)
        if self._timer is not None:
            self._timer.cancel()

    def _woken(self) -> None:
        self._server.wakes.drain()
        self._turn()

    def _readable(self) -> None:
        self._flushing = True  # calls may end while they are started
        self._server.read()
        self._send()

    def _send(self) -> None:
        """Send what there is, and look further only if there is reason to."""
        self._flushing = False
        server = self._server
        if self._reading and self._timer is None and server.calm() and not server.driver.waiting:
            server.writer.flush_now()
        else:
            self._turn()

    def _turn(self) -> None:
        """Do what is due, then see what to wait for."""
        if self._over:
            return
        server = self._server
        self._over = server.tick()
        if server.driver.waiting:
            self._flushing = True
            server.driver.start_waiting()
            self._flushing = False
            server.writer.flush_now()
        if self._over:
            self._on_end()
            return
        self._watch(server.wants_input)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        delay = server.sleep()
        if delay is not None:
            self._timer = self._loop.call_later(delay, self._turn)

    def _watch(self, wanted: bool) -> None:
        if wanted == self._reading:
            return
        self._reading = wanted
        if wanted:
            self._readers.add_reader(self._server.source.fileno(), self._readable)
        else:
            self._readers.remove_reader(self._server.source.fileno())

    # Answers of one turn of the loop go out together. Notifications went at once: clients take those for lost that come with
    # an answer in one piece.

    def _task_ended(self) -> None:
        """Send now what the last call at work has brought, later what others may add to."""
        if self._flushing:
            return
        if not self._server.driver.in_tasks:
            self._send()
        else:
            self._flushing = True
            self._loop.call_soon(self._send)


class AsyncMemoryTransport:
    """The client's end of a connection to a server in the same process. Made, used and closed on one event loop."""

    def __init__(self, server: Connectable, *, max_workers: int = MAX_WORKERS) -> None:
        """Connect to `server`; async functions will run as tasks of the running loop."""
        self._loop = asyncio.get_running_loop()
        self._end = ServerEnd(server, self._arrive, lambda: self._loop, max_workers=max_workers, flush=self._carry_soon)
        self._arrived = asyncio.Event()
        self._output: list[bytes] = []
        self._closed = False

    def __repr__(self) -> str:
        return f"<AsyncMemoryTransport: {'closed' if self._closed else 'open'}>"

    async def send(self, data: bytes) -> None:
        """Let the server receive bytes: lines, in any chunks. Raises: ValueError after `close`."""
        if self._closed:
            raise ValueError("send() on a closed connection")
        self._end.receive(data)

    async def receive(self) -> bytes:
        """Return what the server has sent, whole lines; wait for it. Empty once the connection is closed and read."""
        while not self._output and not self._closed:
            self._arrived.clear()
            deadline = self._end.driver.next_timeout()
            delay = None if deadline is None else max(0.0, deadline - time.monotonic())
            try:
                await asyncio.wait_for(self._arrived.wait(), delay)
            except TimeoutError:
                self._end.handle_timeout()
        data, self._output = b"".join(self._output), []
        return data

    async def close(self) -> None:
        """Hang up: what runs is cancelled."""
        if not self._closed:
            self._closed = True
            self._end.close()
            self._end.carry()
            self._arrived.set()
            await self._end.driver.aleave(self._end.driver.connection.lifespan)

    async def __aenter__(self) -> AsyncMemoryTransport:
        """Return the transport."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Hang up."""
        await self.close()

    def _arrive(self, data: bytes) -> None:
        self._output.append(data)
        self._arrived.set()

    def _carry_soon(self) -> None:
        """Take what the connection has to send, on the loop. Any thread."""
        with suppress(RuntimeError):  # the loop is closed: nothing waits for this any more
            self._loop.call_soon_threadsafe(self._end.carry)
