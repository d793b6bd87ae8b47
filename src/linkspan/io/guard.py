"""Sees to it that no server outlives its client, even if the client's process is killed.

A shell waits at a pipe whose other end only this process has. It is told every process group that starts and ends; when the
pipe closes it ends those that are left. Law: it runs while there is a group to guard, and not longer. POSIX only.
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
[ -z "${groups## }" ] && exit
sleep 1
for group in $groups; do kill -s TERM -- "-$group"; done
sleep 1
for group in $groups; do kill -s KILL -- "-$group"; done
"""

_lock = threading.Lock()
_groups: set[int] = set()
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
        _groups.add(group)
        _tell(f"+ {group}\n")


def release_group(group: int) -> None:
    """Take note that `group` has ended."""
    global _shell
    with _lock:
        if group not in _groups:
            return
        _groups.remove(group)
        _tell(f"- {group}\n")
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
