"""Ends the process in time: on a signal, when the parent dies, when the input has hung up, even if a function blocks.

A daemon thread watches what the main thread may be too busy to see, asks it to stop, and ends the process itself when
that request has had no effect some time later. Law: the first SIGINT or SIGTERM asks, a second SIGINT does not ask.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from math import ceil
from types import FrameType
from typing import Final

from linkspan.runtime.descriptors import POLLIN, POLLOUT, Poll, Readable, WakePipe, open_poll

INTERRUPTED: Final = 130
"""The exit code after SIGINT, as shells have it."""

_SIGNALS: Final = [getattr(signal, name) for name in ("SIGTERM", "SIGINT", "SIGBREAK") if hasattr(signal, name)]
_TICK: Final = 0.1
_PARENT_TICK: Final = 0.5


class NoLifeline:
    """Stands in where the process belongs to other code, which decides about signals and the exit."""

    stopped = False
    exit_code = 0

    def start(self) -> None:
        """Do nothing."""

    arm = close = start

    def allow(self, seconds: float) -> None:
        """Do nothing."""


class Lifeline:
    """Watches over one serving loop. Start it, serve, close it."""

    def __init__(
        self,
        source: Readable,
        *,
        on_stop: Callable[[], object],
        progress: Callable[[], int],
        watch_parent: bool,
        patience: float,
        hurry: float,
    ) -> None:
        """Prepare to watch.

        `on_stop` is called in another thread; `progress` tells by a changing number that input is being read. The
        process gets `patience` seconds to end after its input has hung up, and `hurry` seconds after a signal.
        """
        self.stopped = False
        self.exit_code = 0
        self._source = source
        self._on_stop = on_stop
        self._progress = progress
        self._patience = patience
        self._hurry = hurry
        self._notes = WakePipe()
        self._closing = False
        self._deadline: float | None = None
        self._parent = os.getppid() if watch_parent and sys.platform != "win32" else 0
        self._parent_fd = -1
        self._seen = 0
        self._since = 0.0
        self._previous: dict[int, object] = {}
        self._previous_wakeup = -1
        self._main = threading.get_ident()
        self._thread = threading.Thread(target=self._watch, name="linkspan-lifeline", daemon=True)

    def start(self) -> None:
        """Begin to watch. Signals are taken over on the main thread only, and never one that is ignored."""
        if self._parent > 1:
            self._open_parent()
        if threading.current_thread() is threading.main_thread():
            self._take_signals()
        self._source.on_end = self._notes.wake
        self._thread.start()

    def arm(self) -> None:
        """From now on the process has `patience` seconds to end."""
        if self._deadline is None:
            self._deadline = time.monotonic() + self._patience
            self._notes.wake()

    def allow(self, seconds: float) -> None:
        """From now on the process has `seconds` to end, however many it had before."""
        self._deadline = time.monotonic() + seconds
        self._notes.wake()

    def close(self) -> None:
        """Give the signals back and watch no more; only threads that would block the exit are still seen to."""
        self.give_signals_back()
        self._closing = True
        self._notes.wake()
        self._thread.join(1.0)
        if self._parent_fd >= 0:
            os.close(self._parent_fd)
        self._notes.close()
        if self._deadline is not None and _stragglers():
            threading.Thread(target=self._watch_exit, name="linkspan-lifeline", daemon=True).start()

    # Signals. The interpreter writes their numbers to a pipe at once, whatever the main thread is doing.

    def _take_signals(self) -> None:
        for number in _SIGNALS:
            if signal.getsignal(number) is not signal.SIG_IGN:
                self._previous[number] = signal.signal(number, self._handle_signal)
        self._previous_wakeup = signal.set_wakeup_fd(self._notes.writer, warn_on_full_buffer=False)
        _serving.append(self)

    def give_signals_back(self) -> None:
        """Put the handlers of before back in their places."""
        if not self._previous:
            return
        signal.set_wakeup_fd(self._previous_wakeup)
        for number, handler in self._previous.items():
            if signal.getsignal(number) == self._handle_signal:
                signal.signal(number, handler)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        self._previous = {}
        _serving.remove(self)

    def _handle_signal(self, number: int, frame: FrameType | None) -> None:
        """Pass the signal on if other code (an event loop, for example) has taken the interpreter's pipe from us."""
        current = signal.set_wakeup_fd(self._notes.writer, warn_on_full_buffer=False)
        if current != self._notes.writer:
            signal.set_wakeup_fd(current)
            self._notes.wake(number)

    # The parent.

    def _open_parent(self) -> None:
        if sys.platform == "linux" and hasattr(os, "pidfd_open"):
            with suppress(OSError):  # an old kernel, or a sandbox that forbids it: then we ask now and then
                self._parent_fd = os.pidfd_open(self._parent)

    def _parent_died(self, ready: list[int]) -> bool:
        return self._parent > 1 and (self._parent_fd in ready or os.getppid() != self._parent)

    # The thread.

    def _watch(self) -> None:
        poll = self._open_poll()
        source = self._source.fileno()
        hung_up = False
        while not self._closing:
            ready = self._wait(poll, hung_up)
            if self._notes.reader in ready:
                self._take_notes()
            if self._parent_died(ready):
                self._parent = 0
                self._stop(0)
                if poll is not None and self._parent_fd >= 0:
                    poll.unregister(self._parent_fd)
            if not hung_up and (self._source.ended or source in ready):
                if poll is not None:
                    poll.unregister(source)
                hung_up = True
                self._seen, self._since = self._progress(), time.monotonic()
            if self._overdue(hung_up):
                self._end()

    def _open_poll(self) -> Poll | None:
        poll = open_poll(self._notes.reader)
        if poll is not None:
            poll.register(self._source.fileno(), getattr(select, "POLLRDHUP", 0))
            if self._parent_fd >= 0:
                poll.register(self._parent_fd, POLLIN)
        return poll

    def _wait(self, poll: Poll | None, hung_up: bool) -> list[int]:
        timeout = None
        if self._deadline is not None:
            timeout = max(0.0, self._deadline - time.monotonic())
        elif hung_up:
            timeout = _TICK
        elif self._parent > 1 and self._parent_fd < 0:
            timeout = _PARENT_TICK
        if poll is None:
            return select.select([self._notes.reader], (), (), timeout)[0]
        return [fd for fd, _ in poll.poll(None if timeout is None else ceil(timeout * 1000))]

    def _take_notes(self) -> None:
        for number in self._notes.drain():
            if number == signal.SIGINT:
                if self.stopped:
                    os._exit(INTERRUPTED)
                self._stop(INTERRUPTED)
            elif number in _SIGNALS:
                self._stop(0)

    def _stop(self, exit_code: int) -> None:
        if self.stopped:
            return
        self.stopped = True
        self.exit_code = exit_code
        hurry = time.monotonic() + self._hurry
        self._deadline = hurry if self._deadline is None else min(self._deadline, hurry)
        self._on_stop()

    def _overdue(self, hung_up: bool) -> bool:
        now = time.monotonic()
        if self._deadline is not None:
            return now >= self._deadline
        if not hung_up:
            return False
        seen = self._progress()
        if seen != self._seen:
            self._seen, self._since = seen, now
        return now >= self._since + self._patience

    def _end(self) -> None:
        if not self._closing:
            _say(f"linkspan: stopped while code was still running{_place(self._main)}\n")
            os._exit(self.exit_code)

    def _watch_exit(self) -> None:
        """Threads that are no daemons keep a process alive for ever: not this one."""
        while _stragglers():
            time.sleep(_TICK)
            overdue = self._deadline is not None and time.monotonic() >= self._deadline
            if overdue and getattr(threading, "_SHUTTING_DOWN", False):
                os._exit(self.exit_code)


# A forked child shares the pipe, so a signal to the child must not reach it before the child has let go of it.

_serving: list[Lifeline] = []
_forking = threading.local()


if sys.platform != "win32":

    def _before_fork() -> None:
        _forking.mask = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS) if _serving else None

    def _after_fork_in_parent() -> None:
        if _forking.mask is not None:
            signal.pthread_sigmask(signal.SIG_SETMASK, _forking.mask)

    def _after_fork_in_child() -> None:
        for lifeline in tuple(_serving):
            with suppress(ValueError):
                lifeline.give_signals_back()
        _after_fork_in_parent()

    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child)


def _stragglers() -> bool:
    main, current = threading.main_thread(), threading.current_thread()
    return any(not thread.daemon and thread not in (main, current) for thread in threading.enumerate())


def _place(thread: int) -> str:
    frame = sys._current_frames().get(thread)  # pyright: ignore[reportPrivateUsage]
    return f" at {frame.f_code.co_filename}:{frame.f_lineno}" if frame is not None else ""


def _say(text: str) -> None:
    """Write to stderr, unless its reader is gone."""
    with suppress(OSError):
        poll = open_poll(2, events=POLLOUT)
        if poll is not None and poll.poll(0):
            os.write(2, text.encode(errors="replace"))
