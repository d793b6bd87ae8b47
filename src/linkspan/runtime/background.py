"""One event loop in one daemon thread, for async functions that are called by code without a loop.

Law: at most one such loop per process, started when first needed, again after a fork, gone before the interpreter.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import selectors
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Generic, TypeVar

from linkspan.runtime.forks import keep, point_to_devnull, start_afresh_with

if TYPE_CHECKING:
    from concurrent.futures import Future

ResultT = TypeVar("ResultT")


class BackgroundLoop:
    """An event loop that runs in a thread of its own."""

    def __init__(self) -> None:
        """Start the thread."""
        # Our own choice of loop where there are forks: one whose descriptors can be identified.
        self._selector = selectors.DefaultSelector() if hasattr(os, "fork") else None
        self.loop: asyncio.AbstractEventLoop = (
            asyncio.SelectorEventLoop(self._selector) if self._selector is not None else asyncio.new_event_loop()
        )
        self._thread = threading.Thread(target=self._serve, name="linkspan-loop", daemon=True)
        try:
            self._thread.start()
        except RuntimeError:
            self.loop.close()
            raise

    def run(self, start: Callable[[], Awaitable[ResultT]]) -> ResultT:
        """Await what `start` returns on the loop, in the caller's context; return its result or raise its exception.

        Works in any thread, also while a loop runs in it (which then waits).
        """
        if self.is_here():
            return _run_beside(start)
        future = self.submit(start)
        try:
            return future.result().get()
        except BaseException:
            future.cancel()
            raise

    def is_here(self) -> bool:
        """Return whether this thread is the loop's own, in which waiting for the loop would never end."""
        return threading.get_ident() == self._thread.ident

    def submit(self, start: Callable[[], Awaitable[ResultT]]) -> Future[Returned[ResultT]]:
        """Begin to await what `start` returns; the future can be cancelled."""
        return asyncio.run_coroutine_threadsafe(_outcome(start), self.loop)

    def close(self) -> None:
        """Cancel what runs and end the thread."""
        if not self.loop.is_closed():
            with suppress(RuntimeError):
                self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(1.0)

    def leave_to_parent(self) -> None:
        """In a forked child: let go of the loop and of all that is open on it, and complain about nothing."""
        keep(self)
        self.loop.set_exception_handler(_say_nothing)
        if self._selector is None:
            return
        opened = {key.fd for key in (self._selector.get_map() or {}).values()}
        # Those that do not read at the moment, too; not the old number of one that is closed, which may be another's by now.
        sockets = (each.get_extra_info("socket") for each in getattr(self.loop, "_transports", {}).values())
        opened |= {each.fileno() for each in sockets if each is not None}
        fileno = getattr(self._selector, "fileno", None)  # of epoll: what is done to it, is done to the parent's
        point_to_devnull([*opened, *([fileno()] if fileno is not None else [])])

    def _serve(self) -> None:
        loop = self.loop
        asyncio.set_event_loop(loop)
        try:
            loop.run_forever()
            if tasks := asyncio.all_tasks(loop):
                for task in tasks:
                    task.cancel()
                loop.run_until_complete(asyncio.wait(tasks, timeout=0.25))
        finally:
            loop.close()


def _say_nothing(loop: asyncio.AbstractEventLoop, context: object) -> None:
    """What is wrong with the parent's loop in a child is nothing that can be mended there."""


class Returned(Generic[ResultT]):
    """A result, or an exception that must not pass through the loop, because it would end it."""

    __slots__ = ("_error", "_value")

    def __init__(self, value: ResultT | None, error: BaseException | None = None) -> None:
        self._value = value
        self._error = error

    def get(self) -> ResultT:
        """Return the result or raise the exception."""
        if self._error is not None:
            raise self._error
        return self._value  # type: ignore[return-value]  # pyright: ignore[reportReturnType]


async def _outcome(start: Callable[[], Awaitable[ResultT]]) -> Returned[ResultT]:
    try:
        return Returned(await start())
    except (SystemExit, KeyboardInterrupt) as error:
        return Returned(None, error)


def _run_beside(start: Callable[[], Awaitable[ResultT]]) -> ResultT:
    """Run on a second loop, because the first one waits for us."""
    beside = BackgroundLoop()
    try:
        return beside.run(start)
    finally:
        beside.close()


def background_loop() -> BackgroundLoop:
    """Return the loop of this process."""
    global _loop
    with _starting:
        if _loop is None:
            _loop = BackgroundLoop()
        return _loop


def run_awaitable(awaitable: Awaitable[ResultT]) -> ResultT:
    """Await something on the loop of this process; return its result or raise its exception."""
    return background_loop().run(lambda: awaitable)


_loop: BackgroundLoop | None = None
_starting = threading.Lock()


def _start_afresh() -> None:
    global _loop, _starting
    if _loop is not None:
        _loop.leave_to_parent()
    _loop, _starting = None, threading.Lock()


def _end() -> None:
    if _loop is not None:
        _loop.close()


atexit.register(_end)
start_afresh_with(_start_afresh)
