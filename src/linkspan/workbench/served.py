"""A file that is served over HTTP: one server process after the other, on a port that stays the same.

The socket belongs to this process, so that a connection made during a restart waits for the next server, and other clients can
keep the address. What the server writes to stderr is read here, its reports too.
"""

from __future__ import annotations

import codecs
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Final, Protocol

import msgspec

from linkspan.flows.client_errors import ProcessEnd
from linkspan.runtime.descriptors import read_some
from linkspan.runtime.process import ChildGroup, Popen, ask_to_end, signal_name, start_with_socket
from linkspan.wire.redaction import redact
from linkspan.wire.reports import VARIABLE, Report, ReportReader

_PATIENCE: Final = 2.0
"""Seconds for a server to end by itself."""
_KEPT: Final = 32 * 1024
"""Characters of stderr that are kept of each server."""


class StandIn(Protocol):
    """Answers at the socket while no server runs."""

    def close(self) -> None:
        """Answer no more."""
        ...


class Hearer(msgspec.Struct, frozen=True):
    """What is called with what one server process says, and with how it ended unless it was stopped; none may wait."""

    printed: Callable[[str], object]
    reported: Callable[[Report], object]
    ended: Callable[[ProcessEnd], object]


class ServedFile:
    """A file and the socket at which it is served. One thread starts and stops its servers."""

    def __init__(
        self,
        file: str,
        listener: socket.socket,
        env: Mapping[str, str],
        cwd: str | None,
        stand_in: Callable[[socket.socket, str, str], StandIn],
    ) -> None:
        """Serve nothing yet. `stand_in` gets the socket, what is wrong, and what the server printed last."""
        self._file = file
        self._listener = listener
        self._env = {**os.environ, **env, VARIABLE: "1"}
        self._cwd = cwd
        self._secrets = tuple(env.values())
        self._stand_in = stand_in
        self._running: _ServedProcess | None = None
        self._standing: StandIn | None = None
        self._lock = threading.Lock()

    @property
    def url(self) -> str:
        """Where it is served."""
        return f"http://127.0.0.1:{self._listener.getsockname()[1]}/mcp"

    def start(self, hearer: Hearer) -> None:
        """Start a server in the place of the one that runs. Raises: OSError."""
        self.stop()
        child, group = start_with_socket(
            lambda fd: [sys.executable, "-m", "linkspan", "run", "--http", f"--fd={fd}", self._file],
            self._listener,
            env=self._env,
            cwd=self._cwd,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        running = self._running = _ServedProcess(child, group)
        threading.Thread(target=self._read, args=(running, hearer), name="linkspan-served", daemon=True).start()

    def stop(self) -> None:
        """End the server, if one runs; requests from now on wait for the next one."""
        with self._lock:
            running, self._running = self._running, None
            standing, self._standing = self._standing, None
        if standing is not None:
            standing.close()
        if running is not None:
            running.end()

    def close(self) -> None:
        """End the server and give the port back."""
        self.stop()
        self._listener.close()

    def _read(self, running: _ServedProcess, hearer: Hearer) -> None:
        """Pass on what a server writes to stderr, and how it ended."""
        kept = ""
        reader, decode = ReportReader(), codecs.getincrementaldecoder("utf-8")("replace").decode
        assert running.child.stderr is not None
        with running.child.stderr as stderr:
            while True:
                data = read_some(stderr.fileno())
                found = reader.receive(decode(data, not data))
                for each in found if data else [*found, *reader.end()]:
                    text = each.printed if isinstance(each, Report) else each
                    kept = (kept + text)[-_KEPT:]
                    if isinstance(each, Report):
                        hearer.reported(each.without(self._secrets))
                    if text:
                        hearer.printed(text)
                if not data:
                    break
        code, kept = running.child.wait(), redact(kept, self._secrets)
        with self._lock:
            if self._running is not running:
                return
            self._running = None
            ending = ProcessEnd(code if code >= 0 else None, signal_name(code), kept)
            hearer.ended(ending)  # before the stand-in answers
            problem = f"the server ended with exit status {code}: see the workbench"
            self._standing = self._stand_in(self._listener, problem, kept)
        running.group.release()


class _ServedProcess:
    """A server process and its group."""

    def __init__(self, child: Popen, group: ChildGroup) -> None:
        self.child = child
        self.group = group

    def end(self) -> None:
        with suppress(OSError, subprocess.TimeoutExpired):
            ask_to_end(self.child)
            self.child.wait(_PATIENCE)
        if self.child.poll() is None:
            self.group.end()
            self.child.wait()
        self.group.release()
