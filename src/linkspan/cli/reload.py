"""`linkspan run --reload FILE`: a server in a process of its own, started anew when its source changes; the client stays.

Law: one lock around the handover; nobody reads, writes or waits while holding it.
"""

from __future__ import annotations

import os
import queue
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from signal import SIGINT
from typing import Final

from linkspan.cli.watching import Watch
from linkspan.io.child import Child
from linkspan.io.descriptors import write_all
from linkspan.io.handover import Handover
from linkspan.io.outbox import Outbox
from linkspan.io.relay import GRACE, Ending, Note, Signals, exit_status, note_exit, read_some

__all__ = ["serve_reloading"]

_POLL: Final = 0.3
_LAST_WORDS: Final = 1.0
_STDIN: Final = 0
_STDOUT: Final = 1
_STDERR: Final = 2


def serve_reloading(target: str, file: str) -> int:
    """Serve `target`, whose source is `file`, until the client has left; return the exit status of the server."""
    notes: queue.SimpleQueue[Note] = queue.SimpleQueue()
    with Signals(notes):
        return _Reloading(target, file, notes).serve()


class _Running:
    """One of the servers, and the threads at its pipes."""

    def __init__(self, child: Child, number: int, on_output: Callable[[int, bytes], object]) -> None:
        self.child = child
        self.number = number
        self.outbox = Outbox(child.stdin)
        self._readers = [
            _run(_carry, child.stdout, partial(on_output, number)),
            _run(_carry, child.stderr, _write_to_stderr),
        ]

    def hear_out(self) -> None:
        """Wait until what an ended server has said is read, within reason: others may hold its pipes open."""
        for reader in self._readers:
            reader.join(_LAST_WORDS)

    def dismiss(self) -> None:
        """Give back what an ended server had."""
        self.child.bury()
        self.outbox.end()
        self.outbox.thread.join(_LAST_WORDS)
        self.hear_out()
        if not any(thread.is_alive() for thread in (*self._readers, self.outbox.thread)):
            self.child.close_pipes()


class _Reloading:
    def __init__(self, target: str, file: str, notes: queue.SimpleQueue[Note]) -> None:
        self._command = [sys.executable, "-m", "linkspan", "run", target]
        self._notes = notes
        self._watch = Watch(file)
        self._lock = threading.Lock()
        self._handover = Handover()
        self._started = 0
        self._server: _Running | None = None
        self._to_client = Outbox(_STDOUT, on_broken=lambda: notes.put(("hung up", 0)))

    def serve(self) -> int:
        """Go on until the client has left, or somebody asks us to stop."""
        self._start()
        _run(self._read_client)
        while True:
            match self._next(_POLL):
                case None if (changed := self._watch.changed()) is not None:
                    _say(f"{changed} changed: starting again")
                    self._stop()
                    self._start()
                case ("exited", number) if self._server is not None and number == self._server.number:
                    self._give_up(self._server)
                case ("hung up" | "signal", _) as note:
                    return self._end(note)
                case _:
                    pass

    def _next(self, timeout: float | None) -> Note | None:
        with suppress(queue.Empty):
            return self._notes.get(timeout=timeout)
        return None

    # Servers come and go.

    def _start(self) -> None:
        child = Child(self._command, os.environ, None)
        with self._lock:
            self._started += 1
            self._server = _Running(child, self._started, self._receive_from_server)
            self._handover.begin()
            self._flush()
        _run(note_exit, child, self._notes, self._started)

    def _stop(self) -> None:
        with self._lock:
            server, self._server = self._server, None  # from here on nobody listens to it
            self._handover.replace()
            self._flush()
        if server is not None:
            server.child.stop(0)
            server.dismiss()

    def _give_up(self, server: _Running) -> None:
        """The server has ended by itself: wait for a better one."""
        server.hear_out()
        status = exit_status(server.child.exit_code())
        problem = (
            f"the server ended with exit status {status}; its stderr says why. A change to its source starts it again"
        )
        _say(problem)
        with self._lock:
            self._server = None
            self._handover.give_up(problem)
            self._flush()
        server.dismiss()

    def _end(self, note: Note) -> int:
        """Let the server finish, within reason, and follow it."""
        server = self._server
        status = 128 + SIGINT if note == ("signal", SIGINT) else 0
        if server is not None:
            ending = Ending(server.child, GRACE)
            if note[0] == "hung up":
                server.outbox.end()
                server.outbox.thread.join(_LAST_WORDS)  # what was asked before the end still gets there
            ending.receive(note)
            while (heard := self._next(ending.left())) != ("exited", server.number):
                ending.receive(heard)
            server.hear_out()
            server.child.bury()
            status = exit_status(server.child.exit_code())
        self._to_client.end()
        self._to_client.thread.join(_LAST_WORDS)
        return status

    # What the two sides say.

    def _read_client(self) -> None:
        _carry(_STDIN, self._receive_from_client)
        with self._lock:
            self._handover.receive_client_eof()
            self._flush()
        self._notes.put(("hung up", 0))

    def _receive_from_client(self, data: bytes) -> None:
        with self._lock:
            self._handover.receive_from_client(data)
            self._flush()
            server = self._server
        if server is not None:
            server.outbox.wait_for_room()

    def _receive_from_server(self, number: int, data: bytes) -> None:
        with self._lock:
            if self._server is None or number != self._server.number:
                return  # the client has been told already that this one is no more
            self._handover.receive_from_server(data)
            self._flush()
        self._to_client.wait_for_room()

    def _flush(self) -> None:
        """Send what the handover has to send. With the lock held."""
        for line in self._handover.to_client:
            self._to_client.put(line + b"\n")
        for line in self._handover.to_server:
            if self._server is not None:
                self._server.outbox.put(line + b"\n")
        self._handover.to_client.clear()
        self._handover.to_server.clear()


def _run(target: Callable[..., object], *arguments: object) -> threading.Thread:
    thread = threading.Thread(target=target, args=arguments, name="linkspan-reload", daemon=True)
    thread.start()
    return thread


def _carry(source: int, sink: Callable[[bytes], object]) -> None:
    while data := read_some(source):
        sink(data)


def _write_to_stderr(data: bytes) -> None:
    with suppress(OSError):
        write_all(_STDERR, data)


def _say(text: str) -> None:
    _write_to_stderr(f"linkspan run: {text}\n".encode("utf-8", "backslashreplace"))
