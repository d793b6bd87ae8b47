"""Stand between a client and a server process: forward bytes unchanged. What `reload` does likewise is here, too."""

from __future__ import annotations

import queue
import signal
import threading
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final, Literal, TypeAlias

from linkspan.runtime.descriptors import DescriptorWaiter, read_some, write_all
from linkspan.runtime.forks import point_to_devnull
from linkspan.runtime.process import Child, Ending

Tap: TypeAlias = Callable[[bytes], object]
"""Receives bytes before they are passed on. It must return quickly, since the bytes wait for it."""

GRACE: Final = 2.0
"""Seconds that a server has to end after its client has hung up."""

_QUIET: Final = 0.3
_TICK: Final = 0.02
_WAKE: Final = 0.5
"""Seconds between two returns to Python, where Windows delivers signals."""
_SIGNALS: Final = [
    getattr(signal, name) for name in ("SIGTERM", "SIGINT", "SIGHUP", "SIGBREAK") if hasattr(signal, name)
]

Note: TypeAlias = tuple[Literal["hung up", "exited", "signal", "changed"], int]
"""What a relaying thread tells the main one."""


def relay(
    command: Sequence[str],
    env: Mapping[str, str],
    *,
    on_client: Tap,
    on_server: Tap,
    on_stderr: Tap,
    grace: float = GRACE,
    input_fd: int = 0,
    output_fd: int = 1,
) -> int:
    """Start `command` and relay until it has ended; return its exit status, 128 + N if signal N ended it.

    The three taps hear, each from a thread of its own, what goes past. Signals are passed on if this is the main thread.
    Raises: OSError if `command` cannot be started.
    """
    notes: queue.SimpleQueue[Note] = queue.SimpleQueue()
    with signals(notes):
        child = Child(command, env, None)
        threads = _Threads(child, notes, input_fd, output_fd, on_client, on_server, on_stderr)
        ending = Ending(child, grace)
        try:
            end_child(ending, notes)
            threads.settle()
        finally:
            child.reap()
        threads.settle()  # what held the pipes open is gone
    return exit_status(child.exit_code())


def exit_status(code: int | None) -> int:
    """Return what a shell calls the end of a process."""
    return 0 if code is None else code if code >= 0 else 128 - code


def next_note(notes: queue.SimpleQueue[Note], timeout: float | None = None) -> Note | None:
    """Return the next note; None after `timeout` seconds.

    Without a timeout, None twice a second: on Windows signals are delivered only then.
    """
    with suppress(queue.Empty):
        return notes.get(timeout=_WAKE if timeout is None else timeout)
    return None


def end_child(ending: Ending, notes: queue.SimpleQueue[Note], number: int = 0) -> None:
    """Let the notes, and the time that passes, bring a server to its end, until its exit is noted with `number`."""
    while (note := next_note(notes, ending.left())) != ("exited", number):
        ending.receive(note)


@contextmanager
def signals(notes: queue.SimpleQueue[Note]) -> Generator[None, None, None]:
    """While it is entered on the main thread, signals become notes.

    One that is ignored stays ignored, and a handler of C code stays: Python could not put it back.
    """
    previous: dict[int, Any] = {}
    if threading.current_thread() is threading.main_thread():
        for number in _SIGNALS:
            if signal.getsignal(number) not in (signal.SIG_IGN, None):
                previous[number] = signal.signal(number, lambda number, _: notes.put(("signal", number)))
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


class _Threads:
    """The three that carry bytes, and the one that waits for the end."""

    def __init__(
        self,
        child: Child,
        notes: queue.SimpleQueue[Note],
        input_fd: int,
        output_fd: int,
        on_client: Tap,
        on_server: Tap,
        on_stderr: Tap,
    ) -> None:
        self._child = child
        self._notes = notes
        self._moved = 0
        start_thread(self._carry_input, input_fd, on_client)
        self._outward = [
            start_thread(self._carry_output, output_fd, on_server),
            start_thread(self._listen, on_stderr),
        ]
        start_thread(report_exit, child, notes)

    def _carry_input(self, source: int, tap: Tap) -> None:
        def write(data: bytes) -> None:
            tap(data)
            with suppress(OSError):  # the server does not listen any more; that will show elsewhere
                write_all(self._child.stdin, data)

        carry(source, write)
        self._notes.put(("hung up", 0))

    def _carry_output(self, sink: int, tap: Tap) -> None:
        def write(data: bytes) -> None:
            self._moved += 1
            tap(data)
            write_all(sink, data)

        try:
            carry(self._child.stdout, write)
            point_to_devnull([sink])  # the client sees the end, and the number stays taken
        except OSError:  # the reader is gone
            self._notes.put(("hung up", 0))

    def _listen(self, tap: Tap) -> None:
        def receive(data: bytes) -> None:
            self._moved += 1
            tap(data)

        carry(self._child.stderr, receive)

    def settle(self) -> None:
        """Wait until what an ended server has said has gone out; not for ever, since others may hold its pipes open."""
        moved = -1
        while moved != self._moved and any(thread.is_alive() for thread in self._outward):
            moved, quiet = self._moved, time.monotonic() + _QUIET
            for thread in self._outward:
                thread.join(max(0.0, quiet - time.monotonic()))


def start_thread(target: Callable[..., object], *arguments: object) -> threading.Thread:
    """Start a thread that keeps no process alive."""
    thread = threading.Thread(target=target, args=arguments, name="linkspan-relay", daemon=True)
    thread.start()
    return thread


def carry(source: int, sink: Callable[[bytes], object]) -> None:
    """Pass on what is read from a descriptor, until its end."""
    while data := read_some(source):
        sink(data)


def report_exit(child: Child, notes: queue.SimpleQueue[Note], number: int = 0) -> None:
    """Wait for the end of a server and note it, with `number`."""
    watched = child.watch()
    if watched is not None:
        DescriptorWaiter(watched.fileno()).wait(None)
        watched.close()
    while child.exit_code() is None:
        time.sleep(_TICK)
    notes.put(("exited", number))
