"""Serve one client over standard input and output.

A server starts without asyncio: `initialize`, lists and plain functions do not wait for its import.
Law: whatever runs, the process ends within two seconds of end of file, SIGTERM, SIGINT or its parent's death.
Spec: https://modelcontextprotocol.io/specification/2026-07-28/basic/transports/stdio.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Collection
from contextlib import suppress
from typing import Final, Literal, Self

from linkspan.errors import LinkspanError
from linkspan.keywords import Keywords
from linkspan.runtime.calls import Connect, Connectable
from linkspan.runtime.descriptors import Readable, can_poll
from linkspan.runtime.shutdown_watchdog import INTERRUPTED
from linkspan.runtime.stdout import NoStandardStream, claim_stdout
from linkspan.runtime.system import keep_freed_memory
from linkspan.runtime.workers import MAX_WORKERS
from linkspan.serve.stream import StreamServer
from linkspan.text import unknown_keyword

GRACE: Final = 1.0
"""Seconds in which what was asked before the end of the input is still answered."""

MAX_UNSENT: Final = 16 * 1024 * 1024
"""Bytes of output that wait for a slow client. Beyond, its requests wait too."""


class StdioHereKeywords(Keywords, total=False):
    """What `serve("stdio")` takes."""

    input_fd: int | None
    output_fd: int | None
    grace: float
    max_workers: int
    max_unsent: int


class StdioKeywords(StdioHereKeywords, total=False):
    """What `run("stdio")` takes: the keywords of `StdioTransport`."""

    watch_parent: bool


def check_stdio_keywords(given: Collection[str], method: Literal["run", "serve"] = "run") -> None:
    """Raise TypeError for an option that stdio does not have; for one that HTTP has, with the line that was meant."""
    known = (StdioKeywords if method == "run" else StdioHereKeywords).__annotations__
    unknown = next((name for name in given if name not in known), None)
    if unknown is None:
        return
    from linkspan.serve.http import HttpRunKeywords

    if unknown in HttpRunKeywords.__annotations__:
        raise TypeError(
            f'{method}() serves stdio, which has no {unknown!r}: write {method}("http", {unknown}=...) to serve HTTP'
        )
    raise unknown_keyword(method, unknown, known)


def serve_stdio(
    connect: Connect,
    *,
    input_fd: int | None = None,
    output_fd: int | None = None,
    watch_parent: bool = True,
    grace: float = GRACE,
    max_workers: int = MAX_WORKERS,
    max_unsent: int = MAX_UNSENT,
    began: Callable[[StreamServer], object] | None = None,
) -> int:
    """Serve one client until it hangs up or the process is asked to stop; return the exit code for the reason.

    0 after end of file, SIGTERM or the parent's death; 130 after SIGINT; 1 if the lifespan could not be entered, or the output
    not be written, as on a full disk, which a line on stderr explains. Without `input_fd` and `output_fd` standard
    input and output are claimed for the protocol. Signals are handled only when this runs on the main thread; the
    handlers of before are back in place on return. `grace` is in seconds, `max_unsent` in bytes; at most `max_workers`
    plain functions run at once, with 0 they run in the serving thread. `began` gets what serves, which any thread may stop.
    Raises: RuntimeError in a thread where an event loop runs, which this would block; OSError without standard streams.
    """
    _refuse_running_loop()
    if input_fd is None or output_fd is None:
        streams = claim_stdout()
        if os.isatty(streams.input_fd):  # a person, who would otherwise look at nothing
            sys.stderr.write("Serving MCP on standard input and output: one JSON message a line. Ctrl-C ends it.\n")
        input_fd = streams.input_fd if input_fd is None else input_fd
        output_fd = streams.output_fd if output_fd is None else output_fd
    keep_freed_memory()
    with StreamServer(
        connect,
        Readable(input_fd),
        output_fd,
        watch_parent=watch_parent,
        grace=grace,
        max_workers=max_workers,
        max_unsent=max_unsent,
    ) as server:
        if began is not None:
            began(server)
        if server.serve_plainly():
            server.leave()
        else:
            from linkspan.serve.event_loop import serve_on_loop

            serve_on_loop(server)
    if server.refusal is not None:
        _complain(server.refusal)
        return 1
    problem = server.writer.problem
    if problem is None or isinstance(problem, ConnectionError):  # the client hung up
        return server.lifeline.exit_code
    _complain(f"cannot write to standard output: {problem.strerror or problem}")
    return 1


async def serve_stdio_here(
    connect: Connect,
    *,
    input_fd: int | None = None,
    output_fd: int | None = None,
    grace: float = GRACE,
    max_workers: int = MAX_WORKERS,
    max_unsent: int = MAX_UNSENT,
) -> None:
    """Serve one client on the running event loop until it hangs up or the task is cancelled; leave signals alone.

    Raises: OSError without standard streams, and if the output cannot be written; LinkspanError if the lifespan cannot be
    entered; RuntimeError if the event loop cannot watch descriptors.
    """
    from linkspan.serve.event_loop import needs_pump, serve_on_this_loop

    if input_fd is None or output_fd is None:
        streams = claim_stdout()
        input_fd = streams.input_fd if input_fd is None else input_fd
        output_fd = streams.output_fd if output_fd is None else output_fd
    with StreamServer(
        connect,
        Readable(input_fd, pumped=not can_poll or needs_pump(input_fd)),
        output_fd,
        watch_parent=False,
        grace=grace,
        max_workers=max_workers,
        max_unsent=max_unsent,
        owns_process=False,
    ) as server:
        await serve_on_this_loop(server)
    if server.refusal is not None:
        raise LinkspanError(server.refusal)
    problem = server.writer.problem
    if problem is not None and not isinstance(problem, ConnectionError):
        raise problem


def _complain(problem: str) -> None:
    with suppress(OSError, ValueError, AttributeError):  # there may be no stderr, either
        sys.stderr.write(f"linkspan: {problem}\n")


def _refuse_running_loop() -> None:
    asyncio = sys.modules.get("asyncio")
    if asyncio is not None and asyncio._get_running_loop() is not None:
        raise RuntimeError("run() would block this event loop: write `await server.serve()` [LS-604]")


class StdioTransport:
    """A server on standard input and output: `StdioTransport(server).open()`.

    As a context manager it is closed at the end of the block.
    """

    def __init__(
        self,
        server: Connectable,
        *,
        input_fd: int | None = None,
        output_fd: int | None = None,
        watch_parent: bool = True,
        grace: float = GRACE,
        max_workers: int = MAX_WORKERS,
        max_unsent: int = MAX_UNSENT,
    ) -> None:
        """Prepare; the options are those of `serve_stdio`."""
        self._server = server
        self._serving: StreamServer | None = None
        self._closed = False
        self._serve: Callable[[], int] = lambda: serve_stdio(
            server.connect,
            input_fd=input_fd,
            output_fd=output_fd,
            watch_parent=watch_parent,
            grace=grace,
            max_workers=max_workers,
            max_unsent=max_unsent,
            began=self._began,
        )

    def _began(self, serving: StreamServer) -> None:
        self._serving = serving
        if self._closed:
            serving.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<StdioTransport of {self._server!r}>"

    def open(self) -> int:
        """Serve until the client goes away, or `close`; return the exit code (I1): 0, or 1 without standard input or output.

        Raises: SystemExit(130) after Ctrl-C, so that a script which ends with this call ends with that status (I2).
        """
        try:
            exit_code = self._serve()
        except NoStandardStream as problem:
            _complain(str(problem))
            return 1
        finally:
            self._serving = None
        if exit_code == INTERRUPTED:
            raise SystemExit(INTERRUPTED)
        return exit_code

    def close(self) -> None:
        """Cancel what runs and let `open` return, now or when it is called. From any thread, any number of times."""
        self._closed = True
        if (serving := self._serving) is not None:
            serving.stop()
