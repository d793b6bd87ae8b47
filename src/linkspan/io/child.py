"""A server process: started in a group of its own, ended with everything it has started.

Spec: https://modelcontextprotocol.io/specification/2026-07-28/basic/transports (STDIO-4).
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Final

from linkspan.io.forks import lead_nowhere, renew
from linkspan.io.guard import guard_group, release_group

__all__ = ["Child", "signal_name"]

_HAS_GROUPS: Final = hasattr(os, "killpg")
_HAS_WAITID: Final = hasattr(os, "waitid")
_TICK: Final = 0.01
_AFTER_TERM: Final = 1.0


class Child:
    """A running server. `stdin`, `stdout` and `stderr` are our ends of its pipes, as descriptors."""

    def __init__(self, command: Sequence[str], env: Mapping[str, str], cwd: str | None) -> None:
        """Start it. Raises: OSError if that is not possible."""
        self._process = process = subprocess.Popen(
            list(command),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=dict(env),
            cwd=cwd,
            bufsize=0,
            start_new_session=_HAS_GROUPS,
            creationflags=0 if _HAS_GROUPS else getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0),
        )
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        self.stdin = process.stdin.fileno()
        self.stdout = process.stdout.fileno()
        self.stderr = process.stderr.fileno()
        self.pid = process.pid
        self._exit_code: int | None = None
        renew(self)
        if _HAS_GROUPS:
            self._guard()

    def start_afresh(self) -> None:
        """In a forked child: the server is the parent's, and our copies of its pipes would keep it from seeing the end."""
        process = self._process
        lead_nowhere(
            pipe.fileno()
            for pipe in (process.stdin, process.stdout, process.stderr)
            if pipe is not None and not pipe.closed
        )
        process.returncode = process.returncode or 0  # nothing to wait for, and nobody to signal

    def _guard(self) -> None:
        try:
            guard_group(self.pid)
        except OSError:  # no process or descriptor left for the guard: then not for a server either
            self.bury()
            self.close_pipes()
            raise

    def exit_code(self) -> int | None:
        """Return how the process ended, negative for a signal, or None while it runs.

        It is not collected yet, so that nobody else can get the number of its group before `bury`.
        """
        if self._exit_code is None:
            self._exit_code = self._look()
        return self._exit_code

    def _look(self) -> int | None:
        if not _HAS_WAITID or self._process.returncode is not None:
            return self._process.poll()
        try:
            found = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:  # somebody else has collected it: a SIGCHLD handler, or SIGCHLD is ignored
            return self._process.poll() or 0
        if found is None:
            return None
        return found.si_status if found.si_code == os.CLD_EXITED else -found.si_status

    def hang_up(self) -> None:
        """End its input, which tells a good server to end.

        Our descriptor leads nowhere from now on rather than being closed, since another thread may be writing to it. Once the
        process is collected the descriptor may belong to somebody else.
        """
        if self._process.returncode is not None:
            return
        with suppress(OSError):
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self.stdin, inheritable=False)
            os.close(nowhere)

    def stop(self, grace: float) -> None:
        """Hang up and wait; after `grace` seconds ask the group to end, then end it. Blocks until it is gone."""
        self.hang_up()
        if not self._wait(grace):
            self._signal("SIGTERM")
            self._wait(_AFTER_TERM)
        self.bury()

    def watch(self) -> int | None:
        """Return a descriptor that becomes readable when the process ends, or None where there is no such thing."""
        if hasattr(os, "pidfd_open"):
            with suppress(OSError):
                return os.pidfd_open(self.pid)
        return None

    def bury(self) -> None:
        """End whatever is left of the group and collect the process. A second time does nothing."""
        self._signal("SIGKILL")
        if _HAS_GROUPS:
            release_group(self.pid)
        if self._process.returncode is None:
            code = self._exit_code
            self._process.wait()
            self._exit_code = self._process.returncode if code is None else code

    def close_pipes(self) -> None:
        """Give our ends back. Nobody may be reading or writing them any more."""
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            if pipe is not None:
                with suppress(OSError):
                    pipe.close()

    def _wait(self, seconds: float) -> bool:
        give_up = time.monotonic() + seconds
        while self.exit_code() is None:
            if time.monotonic() >= give_up:
                return False
            time.sleep(_TICK)
        return True

    def _signal(self, name: str) -> None:
        if self._process.returncode is not None:
            return  # collected: its number may belong to somebody else by now
        if _HAS_GROUPS:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, getattr(signal, name))
        elif sys.platform == "win32":
            subprocess.run(
                ["taskkill", "/F", "/T", "/PID", str(self.pid)],
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                check=False,
            )


def signal_name(code: int | None) -> str | None:
    """Return the name of the signal that a negative exit status stands for."""
    if code is None or code >= 0:
        return None
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"
