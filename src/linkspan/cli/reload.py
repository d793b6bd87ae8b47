"""`linkspan run --reload FILE`: a server in a process of its own, restarted when its source changes; clients stay connected.

Over stdio this process stands between the client and the server, and repeats what they agreed on. Over HTTP it holds the socket,
which it never closes, so that connections made during a restart wait for the next server. While none can start, it answers.
`Watch` finds the source: the file, the Python files beside it, what these import, and the folders that they load. Imports are
read, not executed, so that a file with a syntax error is watched as well. Installed packages are left out. How it waits:
docs/decisions/0011.
Law: one lock around the handover; no read, write or wait happens while it is held.
"""

from __future__ import annotations

import argparse
import ast
import os
import queue
import signal
import subprocess
import sys
import sysconfig
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import lru_cache, partial
from importlib.util import cache_from_source
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, TypeAlias

import linkspan
from linkspan.cli.relay import GRACE, Handover, Note, exit_status, note_exit, signals
from linkspan.errors import LinkspanError
from linkspan.runtime.descriptors import Outbox, read_some, write_all
from linkspan.runtime.process import Child, ChildGroup, Ending, Popen, ask_to_end, start_with_socket
from linkspan.wire.redaction import redact

if TYPE_CHECKING:
    import socket

    from linkspan.cli.unavailable import Unavailable

__all__ = ["Watch", "serve_reloading", "serve_reloading_http"]

_POLL: Final = 0.3
_LAST_WORDS: Final = 1.0
_STDIN: Final = 0
_STDOUT: Final = 1
_STDERR: Final = 2
_MORE_THAN_DRAIN: Final = 3.0
_WAKE: Final = 0.5
"""Seconds between two returns to Python, where Windows delivers signals."""
_NOTICE_TIMEOUT: Final = 1000
"""Milliseconds after which files are looked at, notified or not."""
_KEPT: Final = 16 * 1024
"""Bytes of stderr that are kept for those who ask a server that did not start."""
_SETTLED: Final = 0.05
_AT_MOST: Final = 2000

Stamp: TypeAlias = tuple[int, int]
"""When a file was written, and its size."""


def serve_reloading(file: str, arguments: Sequence[str]) -> int:
    """Serve what `linkspan run` was given in `arguments`, whose source is `file`, until the client has left.

    Returns the exit status of the server.
    """
    notes: queue.SimpleQueue[Note] = queue.SimpleQueue()
    return _serve(file, _StdioServers(arguments, notes), notes)


class _Servers(Protocol):
    """One server process after the other, of which one runs at a time."""

    def start(self, number: int) -> None:
        """Start a server; its exit is noted with this number."""
        ...

    def stop(self, why: str) -> None:
        """Stop the server, if one runs; report `why` once requests wait for the next one."""
        ...

    def give_up(self) -> None:
        """The server exited by itself: wait for a change to its source."""
        ...

    def end(self, note: Note) -> int:
        """Let the server finish, within reason; return the exit status."""
        ...


def _serve(file: str, servers: _Servers, notes: queue.SimpleQueue[Note]) -> int:
    """Serve until the client has left or a signal asks this process to stop: a change to the source replaces the server."""
    watch, ending, path, started = Watch(file), threading.Event(), "", 1

    def note_changes() -> None:
        nonlocal path
        while not ending.is_set():
            watch.wait(ending)
            if (changed := watch.changed()) is not None:
                path = changed
                notes.put(("changed", 0))

    with signals(notes):
        servers.start(started)
        watching = _run(note_changes)
        try:
            while True:
                match _next(notes, _WAKE):
                    case ("changed", _):
                        servers.stop(f"{path} changed: starting again")
                        started += 1
                        servers.start(started)
                    case ("exited", number) if number == started:
                        servers.give_up()
                    case ("hung up" | "signal", _) as note:
                        ending.set()
                        return servers.end(note)
                    case _:
                        pass
        finally:
            ending.set()
            watching.join(_LAST_WORDS)


def _next(notes: queue.SimpleQueue[Note], timeout: float | None) -> Note | None:
    with suppress(queue.Empty):
        return notes.get(timeout=timeout)
    return None


class _Running:
    """One of the servers, and the threads at its pipes."""

    def __init__(self, child: Child, number: int, on_output: Callable[[int, bytes], object]) -> None:
        self.child = child
        self.number = number
        self.outbox = Outbox(child.stdin)
        self._readers = [
            _run(_carry, child.stdout, partial(on_output, number)),
            _run(_carry, child.stderr, _write_to_stderr),
        ]

    def join_readers(self) -> None:
        """Wait until the output of an ended server is read, with a bound: other processes may hold its pipes open."""
        for reader in self._readers:
            reader.join(_LAST_WORDS)

    def release(self) -> None:
        """Release the process and the pipes of an ended server."""
        self.child.reap()
        self.outbox.end()
        self.outbox.thread.join(_LAST_WORDS)
        self.join_readers()
        if not any(thread.is_alive() for thread in (*self._readers, self.outbox.thread)):
            self.child.close_pipes()


class _StdioServers:
    def __init__(self, arguments: Sequence[str], notes: queue.SimpleQueue[Note]) -> None:
        self._command = [sys.executable, "-m", "linkspan", "run", *arguments]
        self._notes = notes
        self._lock = threading.Lock()
        self._handover = Handover()
        self._server: _Running | None = None
        self._to_client = Outbox(_STDOUT, on_broken=lambda: self._notes.put(("hung up", 0)))

    # Servers come and go.

    def start(self, number: int) -> None:
        child = Child(self._command, os.environ, None)
        with self._lock:
            self._server = _Running(child, number, self._receive_from_server)
            self._handover.begin()
            self._flush()
        _run(note_exit, child, self._notes, number)
        if number == 1:
            _run(self._read_client)

    def stop(self, why: str) -> None:
        with self._lock:
            server, self._server = self._server, None  # its output is discarded from here on
            self._handover.replace()
            self._flush()
        _say(why)  # only now: what is asked after this waits for the next server
        if server is not None:
            server.child.stop(0)
            server.release()

    def give_up(self) -> None:
        server = self._server
        if server is None:
            return
        server.join_readers()
        status = exit_status(server.child.exit_code())
        problem = f"the server ended with exit status {status}; see its stderr. A change to its source starts it again"
        _say(problem)
        with self._lock:
            self._server = None
            self._handover.give_up(problem)
            self._flush()
        server.release()

    def end(self, note: Note) -> int:
        server = self._server
        status = 128 + signal.SIGINT if note == ("signal", signal.SIGINT) else 0
        if server is not None:
            ending = Ending(server.child, GRACE)
            if note[0] == "hung up":
                server.outbox.end()
                server.outbox.thread.join(_LAST_WORDS)  # what was asked before the end still gets there
            ending.receive(note)
            while (later := _next(self._notes, ending.left())) != ("exited", server.number):
                ending.receive(later)
            server.join_readers()
            server.child.reap()
            status = exit_status(server.child.exit_code())
        self._to_client.end()
        self._to_client.thread.join(_LAST_WORDS)
        return status

    # Bytes from both sides.

    def _read_client(self) -> None:
        while data := read_some(_STDIN):
            with self._lock:
                self._handover.receive_from_client(data)
                self._flush()
                server = self._server
            if server is not None:
                server.outbox.wait_for_room()
        with self._lock:
            self._handover.receive_client_eof()
            self._flush()
        self._notes.put(("hung up", 0))

    def _receive_from_server(self, number: int, data: bytes) -> None:
        with self._lock:
            if self._server is None or number != self._server.number:
                return  # its requests have been answered already
            self._handover.receive_from_server(data)
            self._flush()
        self._to_client.wait_for_room()

    def _flush(self) -> None:
        """Send what the handover has to send. With the lock held."""
        for line in self._handover.to_client:
            self._to_client.put(line + b"\n")
        for line in self._handover.to_server:
            if self._server is not None:
                self._server.outbox.put(line + b"\n")
        self._handover.to_client.clear()
        self._handover.to_server.clear()


def _run(target: Callable[..., object], *arguments: object) -> threading.Thread:
    thread = threading.Thread(target=target, args=arguments, name="linkspan-reload", daemon=True)
    thread.start()
    return thread


def _carry(source: int, sink: Callable[[bytes], object]) -> None:
    while data := read_some(source):
        sink(data)


def _write_to_stderr(data: bytes) -> None:
    with suppress(OSError):
        write_all(_STDERR, data)


def _say(text: str) -> None:
    _write_to_stderr(f"linkspan run: {text}\n".encode("utf-8", "backslashreplace"))


# Over HTTP.


def serve_reloading_http(
    file: str,
    arguments: Sequence[str],
    of_the_file: Sequence[str],
    *,
    host: str = "127.0.0.1",
    port: int | None = None,
    drain: float | None = None,
    **_: Any,
) -> int:
    """Serve what `linkspan run` was given in `arguments`, whose source is `file`; return the exit status.

    `of_the_file` follows these arguments: `--` and what the file finds in its sys.argv.
    """
    from linkspan.serve.http import DRAIN, PORT, listen

    try:
        listener = listen(host, PORT if port is None else port)
    except LinkspanError as problem:
        print(f"linkspan run: {problem}", file=sys.stderr)
        return 2
    ours = argparse.ArgumentParser(add_help=False)  # what is about this process, or the socket that it holds
    ours.add_argument("--reload", action="store_true")
    for name in ("--host", "--port", "--fd"):
        ours.add_argument(name)
    kept = ours.parse_known_args(arguments)[1]
    start = [sys.executable, "-m", "linkspan", "run", *kept]
    patience = (DRAIN if drain is None else drain) + _MORE_THAN_DRAIN
    notes: queue.SimpleQueue[Note] = queue.SimpleQueue()
    with listener:
        servers = _HttpServers(lambda fd: [*start, f"--fd={fd}", *of_the_file], listener, patience, notes)
        return _serve(file, servers, notes)


class _HttpServers:
    def __init__(
        self,
        command: Callable[[int], Sequence[str]],
        listener: socket.socket,
        patience: float,
        notes: queue.SimpleQueue[Note],
    ) -> None:
        self._command = command
        self._listener = listener
        self._patience = patience
        self._notes = notes
        self._server: tuple[Popen, ChildGroup] | None = None
        self._printed = bytearray()
        self._reader: threading.Thread | None = None
        self._unavailable: Unavailable | None = None

    def start(self, number: int) -> None:
        child, _ = self._server = start_with_socket(self._command, self._listener, stderr=subprocess.PIPE)
        self._printed = printed = bytearray()

        def pass_on(data: bytes) -> None:
            _write_to_stderr(data)
            printed.extend(data)
            del printed[:-_KEPT]

        def read_stderr() -> None:
            assert child.stderr is not None
            with child.stderr:
                _carry(child.stderr.fileno(), pass_on)

        self._reader = _run(read_stderr)

        def note_exit() -> None:
            child.wait()
            self._notes.put(("exited", number))

        _run(note_exit)

    def stop(self, why: str) -> None:
        self._end_unavailable()
        _say(why)  # only now: what is asked after this waits for the next server
        self._terminate()

    def _terminate(self) -> None:
        server, self._server = self._server, None
        if server is None:
            return
        child, group = server
        with suppress(OSError, subprocess.TimeoutExpired):
            ask_to_end(child)
            child.wait(self._patience)
        if child.poll() is None:
            group.end()
            child.wait()
        group.release()

    def give_up(self) -> None:
        server, self._server = self._server, None
        if server is None:
            return
        child, group = server
        group.release()
        assert self._reader is not None
        self._reader.join(_LAST_WORDS)
        problem = f"the server ended with exit status {child.returncode}; a change to its source starts it again"
        _say(problem)
        from linkspan.cli.unavailable import Unavailable

        self._unavailable = Unavailable(self._listener, problem, redact(self._printed.decode("utf-8", "replace")))

    def _end_unavailable(self) -> None:
        unavailable, self._unavailable = self._unavailable, None
        if unavailable is not None:
            unavailable.close()

    def end(self, note: Note) -> int:
        self._end_unavailable()
        self._terminate()
        return 130 if note == ("signal", signal.SIGINT) else 0


# The source.


class Watch:
    """The files of one server. `wait`, then ask for what has `changed`, in one thread."""

    def __init__(self, file: str) -> None:
        """Begin with what is there now."""
        self._file = Path(os.path.abspath(file))
        ours = Path(linkspan.__file__).parent.parent
        paths = [Path(os.path.abspath(path)) for path in sys.path if os.path.isdir(path)]
        standard = (sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib"))
        installed = {
            path
            for path in paths
            if {"site-packages", "dist-packages"} & {*path.parts} or any(map(path.is_relative_to, standard))
        }
        self._roots = [self._file.parent, *(path for path in paths if path != ours and path not in installed)]
        self._imported: set[Path] = set()
        self._loaded: set[Path] = set()
        self._seen: dict[Path, Stamp | None] = {}
        self._folders: set[Path] = set()
        self._notices: Iterator[object] = iter(())
        self._begin()

    def wait(self, stop: threading.Event) -> None:
        """Wait until a file may have changed, or `stop` is set: notified by watchfiles where it is installed, else for a moment.

        Returns every second at the latest, since some file systems notify of nothing.
        """
        try:
            import watchfiles
        except ImportError:
            stop.wait(_POLL)
            return
        folders = {path.parent for path in self._seen if path.parent.is_dir()}
        if folders != self._folders:
            self._folders = folders
            self._notices = watchfiles.watch(
                *folders,
                watch_filter=None,
                stop_event=stop,
                rust_timeout=_NOTICE_TIMEOUT,
                yield_on_timeout=True,
                recursive=False,
            )
        try:
            next(self._notices, None)
        except OSError:  # a folder was removed, or the system watches no more of them
            self._folders = set()
            stop.wait(_POLL)

    def changed(self) -> str | None:
        """Return the path of a file that has changed, once those who write are done; None if none has."""
        now = self._look()
        if now == self._seen:
            return None
        before = self._seen
        while now != before:
            time.sleep(_SETTLED)
            before, now = now, self._look()
        changed = sorted(path for path in now.keys() | self._seen.keys() if now.get(path) != self._seen.get(path))
        for path in changed:
            with suppress(OSError, NotImplementedError):  # Python takes a cache of the same second and size for fresh
                os.unlink(cache_from_source(os.fspath(path)))
        self._begin()
        if not changed:
            return None
        first, folder = changed[0], self._file.parent
        return os.fspath(first.relative_to(folder) if first.is_relative_to(folder) else first)

    def _begin(self) -> None:
        """Take what is there now for what the server will run: its files, and what they import from below the roots."""
        todo = deque([self._file, *self._beside()])
        found: set[Path] = set()
        while todo and len(found) < _AT_MOST:
            path = todo.popleft()  # what is imported first is watched, even if the rest is too much
            if (stamp := _stamp(path)) is None:
                continue
            places: set[Path] = set()
            source = _source_of(path, stamp)
            for folder in {base / each for base in (Path.cwd(), path.parent) for each in source.folders}:
                if folder.is_dir():
                    self._loaded.add(folder)
                    places.update(_python_below(folder))
            for level, names in source.imports:
                for folder in self._roots if not level else path.parents[level - 1 : level]:
                    for name in names:  # the last one may be that of a thing inside
                        places |= {folder / f"{name}.py", folder / name / "__init__.py"}
                        folder = folder / name
            todo += sorted(places - found)
            found |= places
        self._imported |= found
        self._seen = self._look()

    def _look(self) -> dict[Path, Stamp | None]:
        return {path: _stamp(path) for path in {self._file, *self._beside(), *self._imported}}

    def _beside(self) -> list[Path]:
        beside = [path for path in self._file.parent.glob("*.py") if not path.name.startswith((".", "#"))]
        return [*beside, *(path for folder in self._loaded for path in _python_below(folder))]


def _stamp(path: Path) -> Stamp | None:
    try:
        found = path.stat()
    except OSError:
        return None  # not there, or not yet
    return found.st_mtime_ns, found.st_size


Module: TypeAlias = tuple[int, tuple[str, ...]]
"""How many packages up to begin, 0 for the top, and the names from there."""


class Source(NamedTuple):
    """What a file names that is watched, too."""

    imports: Sequence[Module] = ()
    folders: Sequence[str] = ()
    """Texts in calls of methods `load`: those of `server.load` name a folder."""


@lru_cache(_AT_MOST)
def _source_of(path: Path, stamp: Stamp) -> Source:
    """Return what a file imports and loads. What its code makes up while it runs is not known."""
    try:
        tree = ast.parse(path.read_bytes())
    except (OSError, SyntaxError, ValueError, RecursionError):
        return Source()
    modules: list[Module] = []
    texts: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            modules += [(0, tuple(alias.name.split("."))) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            package = tuple(node.module.split(".")) if node.module else ()
            modules += [(node.level, (*package, alias.name)) for alias in node.names]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "load":
            texts += _texts_in(node)
    return Source(modules, texts)


def _texts_in(call: ast.Call) -> Iterator[str]:
    """Yield what may name a folder in a call such as `load("tools")` or `load(Path(__file__).with_name("tools"))`."""
    for argument in call.args[:1]:
        nodes = list(ast.walk(argument))
        if len(nodes) == 1 or any(isinstance(each, ast.Name) and each.id == "__file__" for each in nodes):
            texts = [each.value for each in nodes if isinstance(each, ast.Constant) and isinstance(each.value, str)]
            yield from (each for each in texts if Path(each).name not in ("", ".."))


def _python_below(folder: Path) -> Sequence[Path]:
    """Return the Python files below a folder, except hidden ones."""
    found: list[Path] = []
    with suppress(OSError):  # it is removed at this moment
        for path in folder.rglob("*.py"):
            if not any(part.startswith((".", "#")) for part in path.relative_to(folder).parts):
                found.append(path)
    return found
