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

from linkspan.io.descriptors import write_all

__all__ = ["ProtocolStreams", "claim_stdout"]

_STDIN: Final = 0
_STDOUT: Final = 1
_STDERR: Final = 2
_PIPE_BYTES: Final = 1 << 20
_SKIPPED: Final = ("linkspan", "logging")
"""Packages that write for somebody else."""


class ProtocolStreams(msgspec.Struct, frozen=True):
    """The descriptors that standard input and output had, under numbers that child processes do not inherit."""

    input_fd: int
    output_fd: int


def claim_stdout() -> ProtocolStreams:
    """Take standard input and output away from everybody else, and return where they are now.

    The second call returns what the first one did. Afterwards stdin is empty, and stdout is stderr: what `print` writes
    appears there as `linkspan: stdout: FILE:LINE: text`, what anything below Python writes as
    `linkspan: stdout (fd 1): text`.
    Raises: OSError if the process has no standard input or output.
    """
    global _claimed
    with _claiming:
        if _claimed is None:
            _claimed = _claim()
        return _claimed


_claimed: ProtocolStreams | None = None
_kept: io.TextIOWrapper | None = None
"""Collected, it would close the buffer that somebody who wraps `sys.stdout.buffer` anew goes on using."""

_claiming = threading.Lock()


def _claim() -> ProtocolStreams:
    global _kept
    _ensure_stderr()
    for fd, name in ((_STDIN, "input"), (_STDOUT, "output")):
        try:
            os.fstat(fd)
        except OSError as error:
            raise OSError(error.errno, f"no standard {name} to speak the protocol on") from None
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
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=lambda: _disown(streams))
    return streams


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
    """In a forked child: keep the numbers taken, but lead nowhere."""
    with suppress(OSError):
        nowhere = os.open(os.devnull, os.O_RDWR)
        os.dup2(nowhere, streams.input_fd, inheritable=False)
        os.dup2(nowhere, streams.output_fd, inheritable=False)
        os.close(nowhere)


# Below Python: a pipe, and a thread that says where the text comes from. (ipykernel captures C output in this way.)


def _divert_stdout() -> threading.Thread:
    reader, writer = os.pipe()
    if sys.platform == "linux":
        import fcntl

        with suppress(OSError):  # room for a library that prints a lot while it holds the interpreter lock
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


def _to_stderr(data: bytes) -> None:
    with suppress(OSError):  # nobody reads our log: nothing else is to be done about it
        write_all(_STDERR, data)


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
            self._note("".join(f"{note}{line}\n" for line in whole))
            if rest:
                lines.origin = _origin()
        return len(text)

    def flush(self) -> None:
        """Write the start of a line, as a line."""
        pending: str = getattr(self._lines, "pending", "")
        if pending:
            self._lines.pending = ""
            self._note(f"linkspan: stdout: {self._lines.origin}: {pending}\n")

    def _note(self, text: str) -> None:
        _to_stderr(text.encode("utf-8", "backslashreplace"))


def _origin() -> str:
    """Return FILE:LINE of the nearest frame that is not part of the way here."""
    frame = sys._getframe(2)  # pyright: ignore[reportPrivateUsage]
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] in _SKIPPED:
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"
