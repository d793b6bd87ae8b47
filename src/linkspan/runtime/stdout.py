"""Take standard input and output for the protocol. Whatever else is written to stdout goes to stderr, with its origin.

Law: once claimed, no byte reaches the peer but through `ProtocolStreams.output_fd`: not from `print`, a C library, a
child process, nor from a buffer that is flushed at exit. The claim is never given back: that is when junk gets out.
Spec: STDIO-2.
"""

from __future__ import annotations

import atexit
import io
import os
import sys
import threading
from contextlib import suppress
from typing import Final

import msgspec

from linkspan.runtime.descriptors import Bytes, Outlet, write_all

_STDIN: Final = 0
_STDOUT: Final = 1
_STDERR: Final = 2
_PIPE_BYTES: Final = 1 << 17
"""Room for what a library prints while it holds the interpreter lock; more for each of a hundred servers would leave little of
the 64 MiB that all pipes of an unprivileged user may have together (pipe(7))."""
_UNREAD: Final = 1 << 20
"""Bytes of printed text that wait for a reader of stderr."""

_SKIPPED: Final = ("linkspan", "logging")
"""Packages that write on behalf of other code."""


class NoStandardStream(OSError):
    """The process was started without standard input or output."""


class ProtocolStreams(msgspec.Struct, frozen=True):
    """The descriptors that standard input and output had, under numbers that child processes do not inherit."""

    input_fd: int
    output_fd: int


def claim_stdout() -> ProtocolStreams:
    """Take standard input and output away from all other code, and return where they are now.

    The second call returns what the first one did. Afterwards stdin is empty, and stdout is stderr: what `print` writes
    appears there as `linkspan: stdout: FILE:LINE: text`, what anything below Python writes as
    `linkspan: stdout (fd 1): text`.
    Raises: NoStandardStream if the process was started without standard input or output.
    """
    global _claimed
    with _claiming:
        if _claimed is None:
            _claimed = _claim()
        return _claimed


_claimed: ProtocolStreams | None = None
_kept: io.TextIOWrapper | None = None
"""If collected, it would close the buffer, which code that wraps `sys.stdout.buffer` again still uses."""

_claiming = threading.Lock()


def _claim() -> ProtocolStreams:
    global _kept
    _ensure_stderr()
    for fd, name, opened in ((_STDIN, "input", sys.__stdin__), (_STDOUT, "output", sys.__stdout__)):
        if opened is None or not _is_open(fd):  # without it, the descriptor may by now be that of some file
            problem = f"no standard {name} to speak the protocol on: connect stdin and stdout of the server to a client"
            raise NoStandardStream(problem)
    streams = ProtocolStreams(_private_copy(_STDIN), _private_copy(_STDOUT))
    _replace(_STDIN, os.open(os.devnull, os.O_RDONLY))
    pump = _divert_stdout()
    old = sys.stdout
    if isinstance(old, io.TextIOWrapper):  # what is still in its buffer goes the new way
        with suppress(ValueError, OSError):
            old.reconfigure(line_buffering=True)
            old.flush()
    sys.stdout = _kept = _NotedStdout()
    atexit.register(_finish, pump)
    if sys.platform != "win32":
        os.register_at_fork(after_in_child=lambda: _disown(streams))
    return streams


def _is_open(fd: int) -> bool:
    try:
        os.fstat(fd)
    except OSError:
        return False
    return True


def _private_copy(fd: int) -> int:
    """Duplicate `fd` for our own use. Duplicates are not inherited by child processes."""
    copy = os.dup(fd)
    if sys.platform == "win32":
        import msvcrt

        msvcrt.setmode(copy, os.O_BINARY)
    return copy


def _ensure_stderr() -> None:
    try:
        os.fstat(_STDERR)
    except OSError:
        _replace(_STDERR, os.open(os.devnull, os.O_WRONLY))


def _replace(fd: int, by: int) -> None:
    """Let `fd` mean what `by` means. Child processes inherit it."""
    if fd != by:
        os.dup2(by, fd, inheritable=True)
        os.close(by)
    else:
        os.set_inheritable(fd, True)


def _disown(streams: ProtocolStreams) -> None:
    """In a forked child: keep the numbers taken, but point them to /dev/null."""
    global _relay
    _relay = _StderrRelay()
    with suppress(OSError):
        sink = os.open(os.devnull, os.O_RDWR)
        os.dup2(sink, streams.input_fd, inheritable=False)
        os.dup2(sink, streams.output_fd, inheritable=False)
        os.close(sink)


# Below Python: a pipe, and a thread that adds where the text comes from. (ipykernel captures C output in this way.)


def _divert_stdout() -> threading.Thread:
    reader, writer = os.pipe()
    if sys.platform == "linux":
        import fcntl

        with suppress(OSError):
            fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
    _replace(_STDOUT, writer)
    pump = threading.Thread(target=_pump, args=(reader,), name="linkspan-stdout", daemon=True)
    pump.start()
    return pump


def _pump(reader: int) -> None:
    started = True
    while data := os.read(reader, 65536):
        lines = data.split(b"\n")
        ended = not lines[-1]
        if ended:
            lines.pop()
        notes = [b"linkspan: stdout (fd 1): " + line for line in lines]
        if not started:
            notes[0] = lines[0]
        started = ended
        _to_stderr(b"\n".join(notes) + (b"\n" if ended else b""))
    os.close(reader)


def _finish(pump: threading.Thread) -> None:
    """At exit: let stdout mean stderr, and wait for what is still in the pipe."""
    with suppress(OSError, ValueError):
        sys.stdout.flush()
    with suppress(OSError):
        os.dup2(_STDERR, _STDOUT)
    pump.join(0.2)  # a child process may hold the pipe open for longer
    _relay.wait(0.2)


class _StderrRelay:
    """Writes to stderr without making its caller wait: what is not read goes out from a thread, or is dropped beyond a bound."""

    def __init__(self) -> None:
        self._lock = threading.RLock()  # a finalizer may print while we have it
        self._outlet = Outlet(_STDERR)
        self._pending: list[Bytes] = []
        self._size = 0
        self._dropped = 0
        self._thread: threading.Thread | None = None

    def put(self, data: bytes) -> None:
        """Write `data` after what was put before, now or later."""
        with self._lock:
            if self._thread is None and not self._pending:
                with suppress(OSError):  # stderr is closed: nothing else is to be done about it
                    if rest := self._outlet.write_some(data):
                        self._pending, self._size = [rest], len(rest)
            elif self._size + len(data) > _UNREAD:
                self._dropped += len(data)
            else:
                self._pending.append(data)
                self._size += len(data)
            if self._pending and self._thread is None:
                self._start()

    def _start(self) -> None:
        """Start the thread; where the system has none, what follows tries again."""
        thread = threading.Thread(target=self._work, name="linkspan-stderr", daemon=True)
        with suppress(RuntimeError):
            thread.start()
            self._thread = thread

    def wait(self, timeout: float) -> None:
        """Wait until all is written, or for `timeout` seconds."""
        thread = self._thread
        if thread is not None:
            thread.join(timeout)

    def _work(self) -> None:
        with suppress(OSError):
            while data := self._next():
                write_all(_STDERR, data)

    def _next(self) -> bytes:
        with self._lock:
            data = b"".join(self._pending)
            if self._dropped:
                data += b"linkspan: stdout: %d bytes were dropped, because nothing read stderr\n" % self._dropped
            self._pending, self._size, self._dropped = [], 0, 0
            if not data:
                self._thread = None
            return data


_relay = _StderrRelay()


def _to_stderr(data: bytes) -> None:
    _relay.put(data)


# In Python: a text stream that knows who writes.


class _NotedStdout(io.TextIOWrapper):
    """`sys.stdout` while the protocol has stdout: lines go to stderr under the name of the code that wrote them."""

    def __init__(self) -> None:
        raw = open(_STDOUT, "wb", buffering=0, closefd=False)  # noqa: SIM115
        super().__init__(raw, encoding="utf-8", errors="backslashreplace", write_through=True)
        self._lines = threading.local()

    def write(self, text: str, /) -> int:
        """Write to stderr, line by line; the start of a line waits for its end or for `flush`."""
        lines = self._lines
        pending: str = getattr(lines, "pending", "")
        if not pending and text:
            lines.origin = _origin()
        *whole, rest = (pending + text).split("\n")
        lines.pending = rest
        if whole:
            note = f"linkspan: stdout: {lines.origin}: "
            self._record("".join(f"{note}{line}\n" for line in whole))
            if rest:
                lines.origin = _origin()
        return len(text)

    def flush(self) -> None:
        """Write the start of a line, as a line."""
        pending: str = getattr(self._lines, "pending", "")
        if pending:
            self._lines.pending = ""
            self._record(f"linkspan: stdout: {self._lines.origin}: {pending}\n")

    def _record(self, text: str) -> None:
        _to_stderr(text.encode("utf-8", "backslashreplace"))


def _origin() -> str:
    """Return FILE:LINE of the nearest frame that is not part of the way here."""
    frame = sys._getframe(2)  # pyright: ignore[reportPrivateUsage]
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] in _SKIPPED:
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"
