"""The two threads of a chat: the main one has the terminal, the other one the event loop.

Law: only the main thread writes, reads and hears of Ctrl-C. The loop sends it things to do, so that questions and lines come
one after the other, and a read never stops the loop.
"""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Awaitable, Callable, Generator
from concurrent.futures import CancelledError
from contextlib import contextmanager, suppress
from functools import partial
from queue import Empty, SimpleQueue
from types import FrameType
from typing import Any, Final, TypeVar

from linkspan.cli.chat_terminal import ChatTerminal
from linkspan.io.background import BackgroundLoop

__all__ = ["Stopped", "Threads"]

T = TypeVar("T")

_IMPATIENT: Final = 3
"""So many times Ctrl-C end the program, if what it should stop does not stop."""


class Stopped(Exception):
    """Ctrl-C ended what the loop did."""


class Threads:
    """Lets the loop work while the main thread serves it."""

    def __init__(self, terminal: ChatTerminal) -> None:
        self._terminal = terminal
        self._loop = BackgroundLoop()
        self._todo: SimpleQueue[Callable[[], object]] = SimpleQueue()
        self._task: asyncio.Task[Any] | None = None
        self._interrupts = 0

    # For any thread.

    def later(self, function: Callable[..., object], *arguments: object) -> None:
        """Have the main thread do something, after what it was given before."""
        self._todo.put(partial(function, *arguments))

    # For the loop.

    async def ask(self, question: Callable[[Callable[[], bool]], T], interrupted: T) -> T:
        """Have the main thread ask something. It is given a function that tells whether nobody waits any more.

        Ctrl-C at the question stops all that the loop does for the person, and answers `interrupted`.
        """
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[T] = loop.create_future()

        def put() -> None:
            if answer.done():
                return
            self._terminal.forget_typed()
            try:
                found = question(answer.done)
            except KeyboardInterrupt:
                self.stop()
                found = interrupted
            except Exception as error:
                loop.call_soon_threadsafe(_settle, answer, None, error)
                return
            loop.call_soon_threadsafe(_settle, answer, found, None)

        self.later(put)
        return await answer

    # For the main thread.

    def run(self, start: Callable[[], Awaitable[T]]) -> T:
        """Let the loop work, and do meanwhile what it wants from this thread. Raises: Stopped for Ctrl-C."""

        async def work() -> T:
            self._task = asyncio.current_task()
            try:
                return await start()
            finally:
                self._task = None

        self._interrupts = 0
        future = self._loop.submit(work)
        future.add_done_callback(lambda _: self.later(lambda: None))
        while not future.done():
            self._todo.get()()
        self.catch_up()
        try:
            return future.result().get()
        except CancelledError:
            raise Stopped from None

    def catch_up(self) -> None:
        """Do what is left to do."""
        with suppress(Empty):
            while True:
                self._todo.get_nowait()()

    def stop(self) -> None:
        """Stop what the loop does now."""
        task = self._task
        if task is not None:
            self._loop.loop.call_soon_threadsafe(task.cancel)

    def close(self) -> None:
        """End the loop."""
        self._loop.close()

    @contextmanager
    def signals(self) -> Generator[None, None, None]:
        """Hear Ctrl-C as a chat does, and leave in good order when told to; afterwards everything is as it was."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {signal.SIGINT: signal.signal(signal.SIGINT, self._interrupt)}
        for name in ("SIGTERM", "SIGHUP"):
            if (number := getattr(signal, name, None)) is not None:
                before[number] = signal.signal(number, _leave)
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        if self._terminal.reading:
            raise KeyboardInterrupt
        self._interrupts += 1
        if self._interrupts >= _IMPATIENT:
            raise KeyboardInterrupt
        self.stop()


def _leave(number: int, frame: FrameType | None) -> None:
    signal.signal(number, signal.SIG_DFL)  # who says it twice means it
    raise SystemExit(128 + number)


def _settle(answer: asyncio.Future[T], found: Any, error: Exception | None) -> None:
    if answer.done():
        return
    if error is not None:
        answer.set_exception(error)
    else:
        answer.set_result(found)
