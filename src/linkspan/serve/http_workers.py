"""Several processes behind one port: started by forking, started again when they die, stopped together.

The parent only waits. It holds one end of a pipe that every worker watches, so no worker outlives it, however it dies.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Final

from linkspan.errors import LinkspanError

assert sys.platform != "win32"  # which cannot fork

_WAITED_FOR: Final = frozenset({signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGALRM})
_MAX_EARLY_DEATHS: Final = 5


def serve_in_workers(
    count: int,
    serve: Callable[[Callable[[], object]], int],
    *,
    patience: float,
    ready: Callable[[], object],
    forget: Callable[[int], object] = int,
) -> int:
    """Run `serve` in `count` processes until this one is asked to stop; return the exit code: 0, 130, or 1 for a fault.

    `serve` gets a function that it calls once it can be reached; `forget` gets the pid of each worker that has ended.
    `ready` is called once there are workers. Those that do not end within `patience` seconds of a signal are killed.
    Raises: LinkspanError if `count` is below 1.
    """
    if count < 1:
        raise LinkspanError(f"workers must be at least 1, got {count}")
    return _WorkerParent(serve, patience, forget).run(count, ready)


class _WorkerParent:
    """The parent. Signals wait until it asks for them, so there are no handlers and no races."""

    def __init__(
        self, serve: Callable[[Callable[[], object]], int], patience: float, forget: Callable[[int], object]
    ) -> None:
        self._serve = serve
        self._on_end = forget
        self._patience = patience
        self._alive: dict[int, int] = {}
        """The pid of each worker, and the descriptor on which it reports that it serves."""
        self._early_deaths = 0
        self._lifeline = os.pipe()

    def run(self, count: int, ready: Callable[[], object]) -> int:
        signal.pthread_sigmask(signal.SIG_BLOCK, _WAITED_FOR)
        signal.signal(signal.SIGCHLD, _ignore)  # without a handler, a pending signal may get lost
        for _ in range(count):
            self._start()
        ready()
        while True:
            number = signal.sigwait(_WAITED_FOR)
            if number in (signal.SIGTERM, signal.SIGINT):
                self._stop()
                return 130 if number == signal.SIGINT else 0
            for pid, status in self._reap():
                if not self._replace(pid, status):
                    self._stop()
                    return 1

    def _start(self) -> None:
        reader, writer = os.pipe()
        os.set_blocking(reader, False)  # processes that a worker has forked may keep the other end open
        pid = os.fork()
        if pid == 0:
            self._work(writer)
        os.close(writer)
        self._alive[pid] = reader

    def _work(self, writer: int) -> None:
        """Be a worker, and nothing else: never return into what the parent was doing."""
        status = 1
        try:
            os.close(self._lifeline[1])
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _WAITED_FOR)
            threading.Thread(target=self._end_with_parent, daemon=True).start()
            status = self._serve(lambda: os.write(writer, b"1"))
        except BaseException:
            import traceback

            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(status)

    def _end_with_parent(self) -> None:
        os.read(self._lifeline[0], 1)
        os.kill(os.getpid(), signal.SIGTERM)

    def _reap(self) -> list[tuple[int, int]]:
        """Return the workers that have ended, with their statuses."""
        ended: list[tuple[int, int]] = []
        for pid in list(self._alive):
            found, status = os.waitpid(pid, os.WNOHANG)
            if found:
                ended.append((pid, os.waitstatus_to_exitcode(status)))
        return ended

    def _replace(self, pid: int, status: int) -> bool:
        """Start another worker for one that has died; False if they die as fast as they start."""
        self._early_deaths = 0 if self._forget(pid) else self._early_deaths + 1
        if self._early_deaths >= _MAX_EARLY_DEATHS:
            sys.stderr.write("linkspan: the workers end as soon as they start; giving up\n")
            return False
        sys.stderr.write(f"linkspan: worker {pid} has ended ({_reason(status)}); starting another\n")
        self._start()
        return True

    def _forget(self, pid: int) -> bool:
        """Forget a worker that has ended; return whether it ever served."""
        reader = self._alive.pop(pid)
        self._on_end(pid)
        try:
            return bool(os.read(reader, 1))
        except BlockingIOError:
            return False
        finally:
            os.close(reader)

    def _stop(self) -> None:
        """Ask all to stop, and kill those that do not."""
        self._signal_all(signal.SIGTERM)
        signal.setitimer(signal.ITIMER_REAL, self._patience)
        while self._alive:
            if signal.sigwait(_WAITED_FOR) == signal.SIGALRM:
                self._signal_all(signal.SIGKILL)
            for pid, _ in self._reap():
                self._forget(pid)

    def _signal_all(self, number: int) -> None:
        for pid in self._alive:
            os.kill(pid, number)


def _ignore(_number: int, _frame: FrameType | None) -> None:
    """Do nothing, so that the signal counts as handled."""


def _reason(status: int) -> str:
    return f"exit status {status}" if status >= 0 else signal.strsignal(-status) or f"signal {-status}"
