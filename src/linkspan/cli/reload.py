"""`linkspan run --reload FILE`: a server in a process of its own, restarted when its source changes; clients stay connected.

Over stdio this process stands between the client and the server, and repeats what they agreed on. Over HTTP it holds the socket,
which it never closes, so that connections made during a restart wait for the next server. While none can start, it answers.
What it watches: `runtime/watching.py`.
Law: one lock around the handover; no read, write or wait happens while it is held.
"""

from __future__ import annotations

import argparse
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol

from linkspan.cli.handover import Handover
from linkspan.cli.relay import (
    GRACE,
    Note,
    carry,
    end_child,
    exit_status,
    next_note,
    report_exit,
    signals,
    start_thread,
)
from linkspan.errors import LinkspanError
from linkspan.runtime.descriptors import Outbox, read_some, write_all
from linkspan.runtime.process import Child, ChildGroup, Ending, Popen, ask_to_end, start_with_socket
from linkspan.runtime.watching import Watch
from linkspan.wire.redaction import redact

if TYPE_CHECKING:
    import socket

    from linkspan.cli.unavailable import Unavailable

_LAST_WORDS: Final = 1.0
_STDIN: Final = 0
_STDOUT: Final = 1
_STDERR: Final = 2
_MORE_THAN_DRAIN: Final = 3.0
_KEPT: Final = 16 * 1024
"""Bytes of stderr that are kept for those who ask a server that did not start."""


def serve_reloading(file: str, arguments: Sequence[str]) -> int:
    """Serve what `linkspan run` was given in `arguments`, whose source is `file`, until the client has left.

    Returns the exit status of the server.
    """
    notes: queue.SimpleQueue[Note] = queue.SimpleQueue()
    return _serve(file, _StdioServers(arguments, notes), notes)


class _Servers(Protocol):
    """One server process after the other, of which one runs at a time."""

    def start(self, number: int) -> None:
        """Start a server; its exit is noted with this number."""
        ...

    def stop(self, why: str) -> None:
        """Stop the server, if one runs; report `why` once requests wait for the next one."""
        ...

    def give_up(self) -> None:
        """The server exited by itself: wait for a change to its source."""
        ...

    def end(self, note: Note) -> int:
        """Let the server finish, within reason; return the exit status."""
        ...


def _serve(file: str, servers: _Servers, notes: queue.SimpleQueue[Note]) -> int:
    """Serve until the client has left or a signal asks this process to stop: a change to the source replaces the server."""
    watch, ending, path, started = Watch(file), threading.Event(), "", 1

    def report_changes() -> None:
        nonlocal path
        while not ending.is_set():
            watch.wait(ending)
            if (changed := watch.changed()) is not None:
                path = changed
                notes.put(("changed", 0))

    with signals(notes):
        servers.start(started)
        watching = start_thread(report_changes)
        try:
            while True:
                match next_note(notes):
                    case ("changed", _):
                        servers.stop(f"{path} changed: starting again")
                        started += 1
                        servers.start(started)
                    case ("exited", number) if number == started:
                        servers.give_up()
                    case ("hung up" | "signal", _) as note:
                        ending.set()
                        return servers.end(note)
                    case _:
                        pass
        finally:
            ending.set()
            watching.join(_LAST_WORDS)


class _Running:
    """One of the servers, and the threads at its pipes."""

    def __init__(self, child: Child, number: int, on_output: Callable[[int, bytes], object]) -> None:
        self.child = child
        self.number = number
        self.outbox = Outbox(child.stdin)
        self._readers = [
            start_thread(carry, child.stdout, partial(on_output, number)),
            start_thread(carry, child.stderr, _write_to_stderr),
        ]

    def join_readers(self) -> None:
        """Wait until the output of an ended server is read, with a bound: other processes may hold its pipes open."""
        for reader in self._readers:
            reader.join(_LAST_WORDS)

    def release(self) -> None:
        """Release the process and the pipes of an ended server."""
        self.child.reap()
        self.outbox.end()
        self.outbox.thread.join(_LAST_WORDS)
        self.join_readers()
        if not any(thread.is_alive() for thread in (*self._readers, self.outbox.thread)):
            self.child.close_pipes()


class _StdioServers:
    def __init__(self, arguments: Sequence[str], notes: queue.SimpleQueue[Note]) -> None:
        self._command = [sys.executable, "-m", "linkspan", "run", *arguments]
        self._notes = notes
        self._lock = threading.Lock()
        self._handover = Handover()
        self._server: _Running | None = None
        self._to_client = Outbox(_STDOUT, on_broken=lambda: self._notes.put(("hung up", 0)))

    # Servers come and go.

    def start(self, number: int) -> None:
        child = Child(self._command, os.environ, None)
        with self._lock:
            self._server = _Running(child, number, self._receive_from_server)
            self._handover.begin()
            self._flush()
        start_thread(report_exit, child, self._notes, number)
        if number == 1:
            start_thread(self._read_client)

    def stop(self, why: str) -> None:
        with self._lock:
            server, self._server = self._server, None  # its output is discarded from here on
            self._handover.replace()
            self._flush()
        _say(why)  # only now: what is asked after this waits for the next server
        if server is not None:
            server.child.stop(0)
            server.release()

    def give_up(self) -> None:
        server = self._server
        if server is None:
            return
        server.join_readers()
        status = exit_status(server.child.exit_code())
        problem = f"the server ended with exit status {status}; see its stderr. A change to its source starts it again"
        _say(problem)
        with self._lock:
            self._server = None
            self._handover.give_up(problem)
            self._flush()
        server.release()

    def end(self, note: Note) -> int:
        server = self._server
        status = 128 + signal.SIGINT if note == ("signal", signal.SIGINT) else 0
        if server is not None:
            ending = Ending(server.child, GRACE)
            if note[0] == "hung up":
                server.outbox.end()
                server.outbox.thread.join(_LAST_WORDS)  # what was asked before the end still gets there
            ending.receive(note)
            end_child(ending, self._notes, server.number)
            server.join_readers()
            server.child.reap()
            status = exit_status(server.child.exit_code())
        self._to_client.end()
        self._to_client.thread.join(_LAST_WORDS)
        return status

    # Bytes from both sides.

    def _read_client(self) -> None:
        while data := read_some(_STDIN):
            with self._lock:
                self._handover.receive_from_client(data)
                self._flush()
                server = self._server
            if server is not None:
                server.outbox.wait_for_room()
        with self._lock:
            self._handover.receive_client_eof()
            self._flush()
        self._notes.put(("hung up", 0))

    def _receive_from_server(self, number: int, data: bytes) -> None:
        with self._lock:
            if self._server is None or number != self._server.number:
                return  # its requests have been answered already
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


def _write_to_stderr(data: bytes) -> None:
    with suppress(OSError):
        write_all(_STDERR, data)


def _say(text: str) -> None:
    _write_to_stderr(f"linkspan run: {text}\n".encode("utf-8", "backslashreplace"))


# Over HTTP.


def serve_reloading_http(
    file: str,
    arguments: Sequence[str],
    of_the_file: Sequence[str],
    *,
    host: str = "127.0.0.1",
    port: int | None = None,
    drain: float | None = None,
    **_: Any,
) -> int:
    """Serve what `linkspan run` was given in `arguments`, whose source is `file`; return the exit status.

    `of_the_file` follows these arguments: `--` and what the file finds in its sys.argv.
    """
    from linkspan.serve.http import DRAIN, PORT, listen

    try:
        listener = listen(host, PORT if port is None else port)
    except LinkspanError as problem:
        print(f"linkspan run: {problem}", file=sys.stderr)
        return 2
    ours = argparse.ArgumentParser(add_help=False)  # what is about this process, or the socket that it holds
    ours.add_argument("--reload", action="store_true")
    for name in ("--host", "--port", "--fd"):
        ours.add_argument(name)
    kept = ours.parse_known_args(arguments)[1]
    start = [sys.executable, "-m", "linkspan", "run", *kept]
    patience = (DRAIN if drain is None else drain) + _MORE_THAN_DRAIN
    notes: queue.SimpleQueue[Note] = queue.SimpleQueue()
    with listener:
        servers = _HttpServers(lambda fd: [*start, f"--fd={fd}", *of_the_file], listener, patience, notes)
        return _serve(file, servers, notes)


class _HttpServers:
    def __init__(
        self,
        command: Callable[[int], Sequence[str]],
        listener: socket.socket,
        patience: float,
        notes: queue.SimpleQueue[Note],
    ) -> None:
        self._command = command
        self._listener = listener
        self._patience = patience
        self._notes = notes
        self._server: tuple[Popen, ChildGroup] | None = None
        self._printed = bytearray()
        self._reader: threading.Thread | None = None
        self._unavailable: Unavailable | None = None

    def start(self, number: int) -> None:
        child, _ = self._server = start_with_socket(self._command, self._listener, stderr=subprocess.PIPE)
        self._printed = printed = bytearray()

        def pass_on(data: bytes) -> None:
            _write_to_stderr(data)
            printed.extend(data)
            del printed[:-_KEPT]

        def read_stderr() -> None:
            assert child.stderr is not None
            with child.stderr:
                carry(child.stderr.fileno(), pass_on)

        self._reader = start_thread(read_stderr)

        def report_exit() -> None:
            child.wait()
            self._notes.put(("exited", number))

        start_thread(report_exit)

    def stop(self, why: str) -> None:
        self._end_unavailable()
        _say(why)  # only now: what is asked after this waits for the next server
        self._terminate()

    def _terminate(self) -> None:
        server, self._server = self._server, None
        if server is None:
            return
        child, group = server
        with suppress(OSError, subprocess.TimeoutExpired):
            ask_to_end(child)
            child.wait(self._patience)
        if child.poll() is None:
            group.end()
            child.wait()
        group.release()

    def give_up(self) -> None:
        server, self._server = self._server, None
        if server is None:
            return
        child, group = server
        group.release()
        assert self._reader is not None
        self._reader.join(_LAST_WORDS)
        problem = f"the server ended with exit status {child.returncode}; a change to its source starts it again"
        _say(problem)
        from linkspan.cli.unavailable import Unavailable

        self._unavailable = Unavailable(self._listener, problem, redact(self._printed.decode("utf-8", "replace")))

    def _end_unavailable(self) -> None:
        unavailable, self._unavailable = self._unavailable, None
        if unavailable is not None:
            unavailable.close()

    def end(self, note: Note) -> int:
        self._end_unavailable()
        self._terminate()
        return 130 if note == ("signal", signal.SIGINT) else 0
