"""Makes this process as unkind as Windows, for tests of those branches elsewhere: import it before anything else.

Pipes cannot be polled. Sockets are not descriptors: what `os` does to one fails. Event loops watch no descriptor. The end
of a process is not one.
"""

from __future__ import annotations

import asyncio
import errno
import os
import select
import stat
from typing import Any

del select.poll, select.epoll, os.pidfd_open


def _refuse_sockets(name: str) -> None:
    real = getattr(os, name)

    def function(fd: int, *arguments: Any, **more: Any) -> Any:
        if stat.S_ISSOCK(_fstat(fd).st_mode):
            raise OSError(errno.EBADF, f"os.{name} got a socket")
        return real(fd, *arguments, **more)

    setattr(os, name, function)


_fstat = os.fstat
for _name in ("read", "write", "close", "dup", "dup2", "fstat", "set_blocking", "pwritev"):
    _refuse_sockets(_name)

_select = select.select


def _sockets_only(read: Any, write: Any, fail: Any, timeout: float | None = None) -> Any:
    for each in (*read, *write, *fail):
        if not stat.S_ISSOCK(_fstat(each).st_mode):
            raise OSError(errno.ENOTSOCK, "select got something that is not a socket")
    return _select(read, write, fail, timeout)


select.select = _sockets_only


def _no_readers(*_: Any) -> Any:
    raise NotImplementedError


asyncio.SelectorEventLoop.add_reader = _no_readers  # type: ignore[method-assign]
asyncio.SelectorEventLoop.remove_reader = _no_readers  # type: ignore[method-assign]
