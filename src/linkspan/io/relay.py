"""Stand between a client and a server process: bytes go both ways at once, unchanged and without delay.

Law: whatever ends first, the other side hears of it in the way it would without us, and no process is left over.
Spec: https://modelcontextprotocol.io/specification/2026-07-28/basic/transports (STDIO-4).
"""

from __future__ import annotations

import os
import queue
import signal
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from types import FrameType, TracebackType
from typing import Final, Literal, TypeAlias

from linkspan.io.child import Child
from linkspan.io.descriptors import CHUNK, Waiter, can_poll, write_all

__all__ = ["GRACE", "Ending", "Note", "Signals", "Tap", "exit_status", "next_note", "note_exit", "read_some", "relay"]

Tap: TypeAlias = Callable[[bytes], object]
"""Hears of bytes before they go on. It must be quick: they wait for it."""

GRACE: Final = 2.0
"""Seconds that a server has to end after its client has hung up."""

_AFTER_SIGNAL: Final = 1.5
_QUIET: Final = 0.3
_TICK: Final = 0.02
_SIGNALS: Final = [
    getattr(signal, name) for name in ("SIGTERM", "SIGINT", "SIGHUP", "SIGBREAK") if hasattr(signal, name)
]

Note: TypeAlias = tuple[Literal["hung up", "exited", "signal"], int]
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
    with Signals(notes):
        child = Child(command, env, None)
        threads = _Threads(child, notes, input_fd, output_fd, on_client, on_server, on_stderr)
        ending = Ending(child, grace)
        try:
            while (note := next_note(notes, ending)) != ("exited", 0):
                ending.receive(note)
            threads.settle()
        finally:
            child.bury()
        threads.settle()  # what held the pipes open is gone
    return exit_status(child.exit_code())


def exit_status(code: int | None) -> int:
    """Return what a shell calls the end of a process."""
    return 0 if code is None else code if code >= 0 else 128 - code


def next_note(notes: queue.SimpleQueue[Note], ending: Ending) -> Note | None:
    """Return the next note, or None when something is due. Wakes up now and then, since Windows wakes nobody for signals."""
    left = ending.left()
    with suppress(queue.Empty):
        return notes.get(timeout=0.5 if left is None else left)
    return None


class Ending:
    """How a server is brought to its end: its input ends, it gets a grace, then SIGTERM, then SIGKILL."""

    def __init__(self, child: Child, grace: float) -> None:
        self._child = child
        self._grace = grace
        self._deadline: float | None = None
        self._asked = 0

    def left(self) -> float | None:
        """Return for how many seconds nothing is due; None if nothing will ever be."""
        return None if self._deadline is None else max(0.0, self._deadline - time.monotonic())

    def receive(self, note: Note | None) -> None:
        """Take note of what happened, or, with None, see what is due."""
        match note:
            case ("hung up", _) if self._deadline is None:
                self._child.hang_up()
                self._deadline = time.monotonic() + self._grace
            case ("signal", number):
                self._ask(number)
            case None if self.left() == 0.0:
                self._ask(signal.SIGTERM)
            case _:
                pass

    def _ask(self, number: int) -> None:
        """The first signal goes to the server and whatever it has started; SIGTERM after SIGINT too; the last is SIGKILL."""
        if self._asked in (signal.SIGTERM, number):
            number = getattr(signal, "SIGKILL", signal.SIGTERM)
        self._asked = number
        self._deadline = time.monotonic() + _AFTER_SIGNAL
        send_signal(self._child, number)


def send_signal(child: Child, number: int) -> None:
    """Send a signal to a server and whatever it has started."""
    with suppress(ProcessLookupError, PermissionError):
        if hasattr(os, "killpg"):
            os.killpg(child.pid, number)
        else:
            child.bury()


class Signals:
    """While it is entered on the main thread, signals become notes. One that is ignored stays ignored."""

    def __init__(self, notes: queue.SimpleQueue[Note]) -> None:
        self._notes = notes
        self._previous: dict[int, object] = {}

    def __enter__(self) -> Signals:
        if threading.current_thread() is threading.main_thread():
            for number in _SIGNALS:
                if signal.getsignal(number) is not signal.SIG_IGN:
                    self._previous[number] = signal.signal(number, self._handle)
        return self

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self._notes.put(("signal", number))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


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
        _start(self._carry_input, input_fd, on_client)
        self._outward = [
            _start(self._carry_output, output_fd, on_server),
            _start(self._listen, on_stderr),
        ]
        _start(note_exit, child, notes)

    def _carry_input(self, source: int, tap: Tap) -> None:
        while data := read_some(source):
            tap(data)
            with suppress(OSError):  # the server does not listen any more; that will show elsewhere
                write_all(self._child.stdin, data)
        self._notes.put(("hung up", 0))

    def _carry_output(self, sink: int, tap: Tap) -> None:
        try:
            while data := read_some(self._child.stdout):
                self._moved += 1
                tap(data)
                write_all(sink, data)
            _end(sink)
        except OSError:  # nobody reads on
            self._notes.put(("hung up", 0))

    def _listen(self, tap: Tap) -> None:
        while data := read_some(self._child.stderr):
            self._moved += 1
            tap(data)

    def settle(self) -> None:
        """Wait until what an ended server has said has gone out; not for ever, since others may hold its pipes open."""
        moved = -1
        while moved != self._moved and any(thread.is_alive() for thread in self._outward):
            moved, quiet = self._moved, time.monotonic() + _QUIET
            for thread in self._outward:
                thread.join(max(0.0, quiet - time.monotonic()))


def _start(target: Callable[..., None], *arguments: object) -> threading.Thread:
    thread = threading.Thread(target=target, args=arguments, name="linkspan-relay", daemon=True)
    thread.start()
    return thread


def read_some(fd: int) -> bytes:
    """Read what there is, waiting for it; nothing at the end. Copes with a descriptor that is not blocking."""
    while True:
        try:
            return os.read(fd, CHUNK)
        except BlockingIOError:
            if can_poll:
                Waiter(fd).wait(None)
        except OSError:
            return b""  # hung up: a terminal that went away, or how Windows spells end of file


def _end(sink: int) -> None:
    """Let the client see the end of the server's output, and keep the number taken."""
    with suppress(OSError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sink, inheritable=False)
        os.close(nowhere)


def note_exit(child: Child, notes: queue.SimpleQueue[Note], number: int = 0) -> None:
    """Wait for the end of a server and note it, with `number`."""
    watched = child.watch()
    if watched is not None:
        Waiter(watched).wait(None)
        os.close(watched)
    while child.exit_code() is None:
        time.sleep(_TICK)
    notes.put(("exited", number))
