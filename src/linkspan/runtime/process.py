"""A server process: started in a process group of its own, ended with everything that it started.

A guard process ends the servers of a client that was killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Final

from linkspan.runtime.forks import lead_nowhere, renew, start_afresh_with

__all__ = ["Child", "Ending", "guard_group", "release_group", "signal_name"]

_HAS_GROUPS: Final = hasattr(os, "killpg")
_KILL: Final = getattr(signal, "SIGKILL", signal.SIGTERM)
_HAS_WAITID: Final = hasattr(os, "waitid")
_TICK: Final = 0.01
_AFTER_SIGNAL: Final = 1.5


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
        if not _HAS_GROUPS:
            return
        try:
            guard_group(self.pid)
        except OSError:  # no process or descriptor left for the guard: then not for a server either
            self.reap()
            self.close_pipes()
            raise

    def start_afresh(self) -> None:
        """In a forked child: the server is the parent's, and our copies of its pipes would keep it from seeing the end."""
        process = self._process
        lead_nowhere(
            pipe.fileno()
            for pipe in (process.stdin, process.stdout, process.stderr)
            if pipe is not None and not pipe.closed
        )
        process.returncode = process.returncode or 0  # nothing to wait for, and no process to signal

    def exit_code(self) -> int | None:
        """Return how the process ended, negative for a signal, or None while it runs.

        It is not collected yet, so that no other process can get the number of its group before `reap`.
        """
        if self._exit_code is None:
            self._exit_code = self._look()
        return self._exit_code

    def _look(self) -> int | None:
        if not _HAS_WAITID or self._process.returncode is not None:
            return self._process.poll()
        try:
            found = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:  # other code has collected it: a SIGCHLD handler, or SIGCHLD is ignored
            return self._process.poll() or 0
        if found is None:
            return None
        return found.si_status if found.si_code == os.CLD_EXITED else -found.si_status

    def close_stdin(self) -> None:
        """End its input, which asks a well-behaved server to end.

        Our descriptor points to /dev/null from now on instead of being closed, since another thread may be writing
        to it. Once the process is collected the descriptor may belong to other code.
        """
        if self._process.returncode is not None:
            return
        lead_nowhere([self.stdin])

    def stop(self, grace: float) -> None:
        """Hang up and wait; after `grace` seconds ask the group to end, then end it. Blocks until it is gone."""
        ending = Ending(self, grace)
        ending.receive(("hung up", 0))
        while self.exit_code() is None:
            time.sleep(_TICK)
            ending.receive(None)
        self.reap()

    def watch(self) -> int | None:
        """Return a descriptor that becomes readable when the process ends, or None where there is no such thing."""
        if hasattr(os, "pidfd_open"):
            with suppress(OSError):
                return os.pidfd_open(self.pid)
        return None

    def reap(self) -> None:
        """End whatever is left of the group and collect the process. A second time does nothing."""
        self.signal(_KILL)
        if _HAS_GROUPS:
            release_group(self.pid)
        if self._process.returncode is None:
            code = self._exit_code
            self._process.wait()
            self._exit_code = self._process.returncode if code is None else code

    def close_pipes(self) -> None:
        """Give our ends back. No thread may still be reading or writing them."""
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            if pipe is not None:
                with suppress(OSError):
                    pipe.close()

    def signal(self, number: int) -> None:
        """Send a signal to it and whatever it has started. On Windows every signal ends them."""
        if self._process.returncode is not None:
            return  # collected: its number may belong to another process by now
        if _HAS_GROUPS:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, number)
        elif sys.platform == "win32":
            subprocess.run(
                ["taskkill", "/F", "/T", "/PID", str(self.pid)],
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                check=False,
            )


class Ending:
    """How a child is brought to its end: its input ends, it gets a grace, then SIGTERM, then SIGKILL. It does not wait."""

    def __init__(self, child: Child, grace: float) -> None:
        """`grace` is in seconds."""
        self._child = child
        self._grace = grace
        self._deadline: float | None = None
        self._asked = 0

    def left(self) -> float | None:
        """Return for how many seconds nothing is due; None if nothing will ever be."""
        return None if self._deadline is None else max(0.0, self._deadline - time.monotonic())

    def receive(self, note: tuple[str, int] | None) -> None:
        """Process what happened: "hung up", or a "signal" of this number. With None, do what is due."""
        match note:
            case ("hung up", _) if self._deadline is None:
                self._child.close_stdin()
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
            number = _KILL
        self._asked = number
        self._deadline = time.monotonic() + _AFTER_SIGNAL
        self._child.signal(number)


def signal_name(code: int | None) -> str | None:
    """Return the name of the signal that a negative exit status stands for."""
    if code is None or code >= 0:
        return None
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"


_SHELL: Final = "/bin/sh"
_SCRIPT: Final = """
trap '' HUP INT TERM QUIT
groups=' '
while read -r change group; do
  case $change in
    +) groups="$groups$group " ;;
    -) case $groups in *" $group "*) groups="${groups%%" $group "*} ${groups#*" $group "}" ;; esac ;;
  esac
done
left() {
  kept=
  for each in $groups; do
    kill -s 0 -- "-${each%:*}" || continue
    now=
    while IFS= read -r line; do now=$line; done <"/proc/${each%:*}/stat"
    set -- ${now##*) }
    born=${each#*:}
    [ "${20:-$born}" = "${born:-${20}}" ] && kept="$kept $each"
  done
  groups=$kept
  [ -n "$groups" ]
}
grace() {
  for _ in $ticks; do left || exit 0; sleep "$tick"; done
  left || exit 0
}
signal() { for each in $groups; do kill -s "$1" -- "-${each%:*}"; done; }
left || exit 0
tick=0.1 ticks='1 2 3 4 5 6 7 8 9 10'
sleep "$tick" || tick=1 ticks=1
grace
signal TERM
grace
signal KILL
"""
"""Where /proc is, a group whose first process has another start time is another one that was given the same number. A group
without its first process is still ours: its number is not given again while it has members, and it is looked at all the time."""

_lock = threading.Lock()
_groups: dict[int, str] = {}
"""What the shell calls each group: its number, and when its first process was started."""
_shell: subprocess.Popen[bytes] | None = None


def guard_group(group: int) -> None:
    """End `group`, and whatever belongs to it, if this process dies before `release_group`."""
    global _shell
    with _lock:
        if _shell is None and os.path.exists(_SHELL):
            _shell = subprocess.Popen(
                [_SHELL, "-c", _SCRIPT],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd="/",
                env={"PATH": os.defpath},
                start_new_session=True,
                bufsize=0,
            )
        _groups[group] = f"{group}:{_start_time(group)}"
        _tell(f"+ {_groups[group]}\n")


def release_group(group: int) -> None:
    """Guard `group` no longer: before its first process is collected, and its number may be given again."""
    global _shell
    with _lock:
        if group not in _groups:
            return
        _tell(f"- {_groups.pop(group)}\n")
        if _groups or _shell is None:
            return
        shell, _shell = _shell, None
    assert shell.stdin is not None
    shell.stdin.close()
    try:
        shell.wait(1.0)
    except subprocess.TimeoutExpired:
        shell.kill()
        shell.wait()


def _start_time(process: int) -> str:
    """Return when a process was started, in ticks since boot, or nothing where the system has no /proc."""
    try:
        with open(f"/proc/{process}/stat", "rb") as stat:
            return stat.read().rpartition(b")")[2].split()[19].decode()
    except (OSError, IndexError):
        return ""


def _tell(line: str) -> None:
    if _shell is None or _shell.stdin is None:
        return
    try:
        _shell.stdin.write(line.encode())
    except OSError:
        return  # it was ended from outside; servers still end when their input does


def _start_afresh() -> None:
    """In a forked child: the groups are the parent's to guard. Our copy of the pipe must not keep the shell waiting."""
    global _shell, _lock
    _lock = threading.Lock()
    _groups.clear()
    if _shell is not None and _shell.stdin is not None:
        _shell.stdin.close()
        _shell.returncode = 0  # not our child: nothing to wait for
    _shell = None


start_afresh_with(_start_afresh)
