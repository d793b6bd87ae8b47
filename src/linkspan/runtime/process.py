"""A server process: started in a group of its own, ended with everything that it started.

The group is a process group, which a guard process ends if a client was killed; on Windows it is a job, which ends with the
process that has made it.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

from linkspan.runtime.command_lines import windows_command
from linkspan.runtime.descriptors import Readable
from linkspan.runtime.forks import point_to_devnull, renew, start_afresh_with

if TYPE_CHECKING:
    import socket

Popen: TypeAlias = subprocess.Popen[bytes]

_TICK: Final = 0.01
_AFTER_SIGNAL: Final = 1.5


class ChildGroup(Protocol):
    """A process and everything that it has started."""

    def signal(self, number: int) -> None:
        """Send all of them a signal. On Windows each is Ctrl-Break, or ends them where there is no console to send it."""
        ...

    def end(self) -> None:
        """End all of them at once."""
        ...

    def release(self) -> None:
        """Forget them: the first process is about to be collected, and its number may be given again."""
        ...


if sys.platform == "win32":
    import ctypes

    from linkspan.runtime.jobs import CREATE_SUSPENDED, JobObject

    class _JobGroup:
        def __init__(self, process: Popen, memory: int | None) -> None:
            self._process = process
            self._job = JobObject(process.pid, memory)

        def signal(self, number: int) -> None:
            try:
                ask_to_end(self._process)
            except OSError:
                self.end()

        def end(self) -> None:
            self._job.end()

        release = end

    def _start(command: Sequence[str], memory: int | None, popen: Mapping[str, Any]) -> tuple[Popen, ChildGroup]:
        flags = subprocess.CREATE_NEW_PROCESS_GROUP | CREATE_SUSPENDED
        if not ctypes.WinDLL(
            "kernel32"
        ).GetConsoleCP():  # a program with windows only: the server shall not open a console
            flags |= subprocess.CREATE_NO_WINDOW
        env = os.environ if popen.get("env") is None else popen["env"]
        process = Popen(windows_command(command, env, popen.get("cwd")), creationflags=flags, **popen)
        try:
            return process, _JobGroup(process, memory)
        except OSError:
            with process:
                process.kill()
            raise

else:

    class _ProcessGroup:
        def __init__(self, number: int) -> None:
            self._number = number
            guard_group(number)

        def signal(self, number: int) -> None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._number, number)

        def end(self) -> None:
            self.signal(signal.SIGKILL)

        def release(self) -> None:
            release_group(self._number)

    def _start(command: Sequence[str], memory: int | None, popen: Mapping[str, Any]) -> tuple[Popen, ChildGroup]:
        process = Popen(list(command), start_new_session=True, **popen)
        try:
            return process, _ProcessGroup(process.pid)
        except OSError:  # no process or descriptor left for the guard: then not for a server either
            with process:
                os.killpg(process.pid, signal.SIGKILL)
            raise


def start_group(command: Sequence[str], *, memory: int | None = None, **popen: Any) -> tuple[Popen, ChildGroup]:
    """Start a process in a group of its own. Raises: OSError, ValueError.

    On Windows each process of the group has `memory` bytes at most; elsewhere the process itself sees to that.
    """
    return _start(command, memory, popen)


def ask_to_end(process: Popen) -> None:
    """Ask a process to end; on Windows, where Ctrl-Break does that, those that it has started too.

    Raises: OSError on Windows where there is no console to send it.
    """
    if sys.platform == "win32":
        process.send_signal(signal.CTRL_BREAK_EVENT)
    else:
        process.terminate()


def start_with_socket(
    command: Callable[[int], Sequence[str]], listener: socket.socket, **popen: Any
) -> tuple[Popen, ChildGroup]:
    """Start a command in a group of its own, and pass it a socket; `command` names its number to it. Raises: OSError.

    On Windows, where no socket is passed on by its number, standard input describes it: see `passed_socket`.
    """
    if sys.platform != "win32":
        fd = listener.fileno()
        return start_group(command(fd), stdin=subprocess.DEVNULL, pass_fds=[fd], **popen)
    process, group = start_group(command(0), stdin=subprocess.PIPE, **popen)
    assert process.stdin is not None
    with process.stdin as stdin, suppress(OSError):  # it has ended already, which is noted
        stdin.write(listener.share(process.pid))
    return process, group


def passed_socket(fd: int) -> int:
    """Return the descriptor of the socket that `start_with_socket` has passed under this number."""
    if sys.platform != "win32" or fd != 0:
        return fd
    import socket

    return socket.fromshare(sys.stdin.buffer.read()).detach()


class Child:
    """A running server. `stdin`, `stdout` and `stderr` are our ends of its pipes, as descriptors."""

    def __init__(self, command: Sequence[str], env: Mapping[str, str], cwd: str | None) -> None:
        """Start it. Raises: OSError or ValueError if that is not possible."""
        pipe = subprocess.PIPE
        self._process, self._group = process, _ = start_group(
            command, env=dict(env), cwd=cwd, stdin=pipe, stdout=pipe, stderr=pipe, bufsize=0
        )
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        self.stdin = process.stdin.fileno()
        self.stdout = process.stdout.fileno()
        self.stderr = process.stderr.fileno()
        self.pid = process.pid
        self._exit_code: int | None = None
        self._hanging_up: threading.Thread | None = None
        renew(self)

    def start_afresh(self) -> None:
        """In a forked child: the server is the parent's, and our copies of its pipes would keep it from seeing the end."""
        process = self._process
        point_to_devnull(
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
            self._exit_code = self._poll()
        return self._exit_code

    def _poll(self) -> int | None:
        if sys.platform == "win32" or sys.platform == "darwin" or self._process.returncode is not None:
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
        to it; on Windows that waits until it has written, which a server that reads nothing does not let it.
        Once the process is collected the descriptor may belong to other code.
        """
        if self._process.returncode is not None:
            return
        if sys.platform != "win32":
            point_to_devnull([self.stdin])
        elif self._hanging_up is None:
            self._hanging_up = threading.Thread(target=point_to_devnull, args=([self.stdin],), daemon=True)
            self._hanging_up.start()

    def stop(self, grace: float) -> None:
        """Hang up and wait; after `grace` seconds ask the group to end, then end it. Blocks until it is gone."""
        ending = Ending(self, grace)
        ending.receive(("hung up", 0))
        while self.exit_code() is None:
            time.sleep(_TICK)
            ending.receive(None)
        self.reap()

    def watch(self) -> Readable | None:
        """Return what becomes readable when the process ends, or None where there is no such thing."""
        if sys.platform == "linux" and hasattr(os, "pidfd_open"):
            with suppress(OSError):
                return Readable(os.pidfd_open(self.pid), owned=True)
        return None

    def reap(self) -> None:
        """End whatever is left of the group and collect the process. A second time does nothing."""
        self.end()
        self._group.release()
        if self._process.returncode is None:
            code = self._exit_code
            self._process.wait()
            self._exit_code = self._process.returncode if code is None else code

    def close_pipes(self) -> None:
        """Give our ends back. No thread may still be reading or writing them."""
        if self._hanging_up is not None:
            self._hanging_up.join()
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            if pipe is not None:
                with suppress(OSError):
                    pipe.close()

    def signal(self, number: int) -> None:
        """Send a signal to it and whatever it has started. On Windows each signal is Ctrl-Break, or ends them."""
        if self._process.returncode is None:  # else it was collected: its number may belong to another process by now
            self._group.signal(number)

    def end(self) -> None:
        """End it and whatever it has started."""
        if self._process.returncode is None:
            self._group.end()


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
        self._deadline = time.monotonic() + _AFTER_SIGNAL
        if self._asked in (signal.SIGTERM, number):
            self._child.end()
        else:
            self._asked = number
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
        _notify(f"+ {_groups[group]}\n")


def release_group(group: int) -> None:
    """Guard `group` no longer: before its first process is collected, and its number may be given again."""
    global _shell
    with _lock:
        if group not in _groups:
            return
        _notify(f"- {_groups.pop(group)}\n")
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


def _notify(line: str) -> None:
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
