"""A connection to a server process, over its standard input and output.

Its stderr is read all the time, so that the server never blocks on it, and its end is kept for error messages. When the
process dies, the transport waits briefly for its exit status before it reports the loss. Spec: checklist 5.1.
"""

from __future__ import annotations

import codecs
import os
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from linkspan.client.transports.base import ClientTransport, TransportOwner, Waiter
from linkspan.core.flow import RequestSpec
from linkspan.flows.client_errors import ConnectError, ConnectionLost, Ending, hint_for_missing_command
from linkspan.flows.state import ClientState
from linkspan.runtime.descriptors import CHUNK, Writer, can_poll, pump
from linkspan.runtime.process import Child, signal_name
from linkspan.wire.redaction import redact

__all__ = ["Command", "StdioClientTransport"]

_STDERR_KEPT: Final = 32 * 1024
_MAX_UNSENT: Final = 64 * 1024 * 1024
_DYING: Final = 1.0
"""Seconds in which a server whose output has ended must end too."""
_TICK: Final = 0.01
_LOOK: Final = 1.0
"""Seconds between looks at the process, where its end cannot be waited for."""


class Command(msgspec.Struct, frozen=True):
    """How to start a server. `secrets` are texts that must not show up anywhere."""

    argv: Sequence[str]
    env: Mapping[str, str]
    cwd: str | None = None
    secrets: tuple[str, ...] = ()


class StdioClientTransport(ClientTransport):
    """A server process and our end of its pipes."""

    def __init__(self, owner: TransportOwner, state: ClientState, command: Command) -> None:
        """Start the server. Raises: ConnectError if that is not possible."""
        super().__init__(owner, state)
        self._command = command
        self._child = self._spawn()
        child = self._child
        self._writer = Writer(self, self.lock, child.stdin, bound=_MAX_UNSENT, on_change=self._look_at_writer)
        self._stderr = bytearray()
        self._decode_stderr = codecs.getincrementaldecoder("utf-8")("replace").decode
        self._stdout_fd = child.stdout if can_poll else pump(child.stdout)
        self._stderr_fd = child.stderr if can_poll else pump(child.stderr)
        self._process_fd = child.watch()
        self._open = {fd for fd in (self._stdout_fd, self._stderr_fd, self._process_fd) if fd is not None}
        self._dying_until: float | None = None
        self._next_look = 0.0
        self._buried = threading.Lock()
        self.watch(*self._open)

    def _spawn(self) -> Child:
        command = self._command
        try:
            return Child(command.argv, command.env, command.cwd)
        except OSError as error:
            raise self._cannot_start(error) from None

    def _cannot_start(self, error: OSError) -> ConnectError:
        name = self._command.argv[0]
        missing = isinstance(error, FileNotFoundError)
        if self._command.cwd is not None and not os.path.isdir(self._command.cwd):
            problem, hint = f"there is no directory {self._command.cwd!r} to start it in", "give another cwd"
        elif missing:
            problem = f"the command {name!r} was not found"
            hint = hint_for_missing_command(name, self._which)
        elif isinstance(error, PermissionError):
            problem = f"the command {name!r} may not be executed"
            hint = "make it executable (chmod +x), or start it through its interpreter"
        else:
            problem, hint = f"the command {name!r} cannot be started: {error.strerror or error}", None
        return ConnectError(problem, self.state.origin, phase="spawn", hint=hint)

    def _which(self, name: str) -> str | None:
        import shutil

        return shutil.which(name, path=self._command.env.get("PATH"))

    # Callers.

    def flush(self) -> None:
        """Send what goes out without blocking; the rest follows when the server reads."""
        self._writer.flush_now()

    def submit(self, spec: RequestSpec, waiter: Waiter) -> None:
        """Send a request. Raises: ConnectionLost, also if the server has stopped reading."""
        if self.alive and self._writer.full:
            problem = "the server does not read its input, and too much is waiting for it"
            raise ConnectionLost(problem, self.state.origin, phase=spec.phase)
        super().submit(spec, waiter)

    def close(self) -> None:
        """Hang up, wait for the process to end, and end it if it does not. Blocks."""
        with self.lock:
            self._closed = True
        self.end(by_us=True)
        with self._buried:
            self._child.stop(self.state.options.timeouts.close)
        self._reactor.call(self._leave)

    def ending(self) -> Ending:
        """Return what is known of the process."""
        text = bytes(self._stderr).decode("utf-8", "replace")
        code = self._child.exit_code()
        return Ending(
            code if code is not None and code >= 0 else None,
            signal_name(code),
            redact(text, self._command.secrets),
            tuple(self._stray),
        )

    # The reactor.

    def next_timeout(self) -> float | None:
        """Return when something is due."""
        with self.lock:
            due = self.machine.next_timeout()
        if self._dying_until is not None or (due is not None and self._process_fd is None):
            return self._next_look if due is None else min(due, self._next_look)
        return due

    def handle_timeout(self, now: float) -> None:
        """Give up late requests, and look after a process that has ended or hung up."""
        self.expire(now)
        if self._dying_until is None:
            self._next_look = now + _LOOK
            if self._process_fd is None and self._child.exit_code() is not None:
                self._begin_to_end()
            return
        self._next_look = now + _TICK
        told_all = self._stderr_fd not in self._open and self._stdout_fd not in self._open
        if (self._child.exit_code() is not None and told_all) or now >= self._dying_until:
            self._dying_until = None
            self.end()
            if self._buried.acquire(blocking=False):
                self._child.reap()
                self._buried.release()
                self._leave()

    def handle_readable(self, fd: int) -> None:
        """Read what the server wrote, or see that its process has ended."""
        if fd not in self._open:
            return
        if fd == self._process_fd:
            self._close_fd(fd)
            self._begin_to_end()
            return
        try:
            data = os.read(fd, CHUNK)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._close_fd(fd)
        if fd == self._stderr_fd:
            self._keep_stderr(data)
        elif data:
            self.receive_data(data)
        else:
            with self.lock:
                events = self.machine.receive_eof()
            self.receive(events)
            self._begin_to_end()

    def _begin_to_end(self) -> None:
        """Ask nothing more of the server. What it has said is still read, and how it ended is waited for, briefly."""
        self.alive = False
        if self._dying_until is None:
            self._next_look = now = time.monotonic()
            self._dying_until = now + _DYING

    def _look_at_writer(self) -> None:
        """A server that has closed its input will answer nothing more that it is asked."""
        if self._writer.broken:
            self._reactor.call(self._begin_to_end)

    def _keep_stderr(self, data: bytes) -> None:
        self._stderr += data
        if len(self._stderr) > 2 * _STDERR_KEPT:
            del self._stderr[:-_STDERR_KEPT]
        if text := self._decode_stderr(data, not data):
            self._owner.stderr_received(self, text)

    def _close_fd(self, fd: int) -> None:
        """Watch a descriptor no more. Pipes are closed at the very end, by the child; others are ours."""
        self._reactor.drop_fd(fd)
        self._open.discard(fd)
        if fd == self._process_fd or not can_poll:
            os.close(fd)

    def _leave(self) -> None:
        """In the reactor's thread, when the process is gone: give everything back."""
        self._reactor.forget(self)
        for fd in list(self._open):
            self._close_fd(fd)
        self._writer.leave(self._child.close_pipes)
