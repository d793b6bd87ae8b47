"""Sees to it that no server outlives its client, even if the client's process is killed.

A shell waits at a pipe whose other end only this process has. It is told every process group that starts and ends; when the
pipe closes it ends those that are left. Laws: it runs while there is a group to guard, and not longer; it signals no group that
has ended, whose number may be another's by now. POSIX only.
"""

from __future__ import annotations

import os
import subprocess
import threading
from typing import Final

from linkspan.io.forks import start_afresh_with

__all__ = ["guard_group", "release_group"]

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
        return  # somebody ended it; servers still end when their input does


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
