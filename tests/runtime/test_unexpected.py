"""Threads that must not end meet an exception that they do not expect: it is logged once, and they go on."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from pathlib import Path
from queue import Queue
from typing import Any

import pytest

from linkspan import Server, SyncClient, Task
from linkspan.runtime import unexpected
from linkspan.runtime.reactor import Reactor
from linkspan.runtime.unexpected import Unexpected
from linkspan.serve.files import FileResources
from linkspan.stores import SqliteStore
from stores.store_servers import goes_on_after_an_unexpected_error


class Broken:
    """Fails a few times in the same way, and works then."""

    def __init__(self, works: Callable[..., Any], failures: int = 3) -> None:
        self.works, self.failures = works, failures
        self.worked = threading.Event()

    def __call__(self, *arguments: Any) -> Any:
        if self.failures:
            self.failures -= 1
            raise RuntimeError("a mistake")
        value = self.works(*arguments)
        self.worked.set()
        return value


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unexpected, "PAUSE", 0.01)


def logged(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return what was logged with a traceback."""
    return [each.message for each in caplog.records if each.levelno == logging.ERROR and each.exc_info]


def fail(kind: type[Exception]) -> Exception:
    try:
        raise kind
    except Exception as error:
        return error


def test_each_kind_of_an_exception_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    log = Unexpected("linkspan", "it did not happen").log
    for kind in (ValueError, KeyError, ValueError, KeyError):
        log(fail(kind))
    assert [(each.message, each.exc_info and each.exc_info[0]) for each in caplog.records] == [
        ("it did not happen; it is logged once", ValueError),
        ("it did not happen; it is logged once", KeyError),
    ]
    log(ValueError("never raised"))
    assert len(caplog.records) == 3, "another place"


def test_keys_are_read_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr("linkspan.stores.key_ring.REFRESH", 0.01)
    keys = Server("shop", store=f"sqlite://{tmp_path}/store.db").sharing._keys
    keys.load()
    broken = Broken(keys.refresh)
    monkeypatch.setattr(keys, "refresh", broken)
    assert broken.worked.wait(30)
    assert logged(caplog) == ["the keys of requestState could not be read again; it is logged once"]


def test_tasks_are_looked_after(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    server = Server("indexer")
    server.define_tool("index", handler=lambda: "done", task=Task())
    runner = server.tasks.runner
    broken = Broken(runner.turn)
    monkeypatch.setattr(runner, "turn", broken)
    user = threading.Event()  # as any object
    runner.attach(user, lambda: None)
    assert broken.worked.wait(30)
    runner.leave(user, 0.0)
    assert logged(caplog) == ["the tasks could not be looked after; it is logged once"]


def test_clients_are_served_by_the_thread_of_all(caplog: pytest.LogCaptureFixture) -> None:
    reactor, called = Reactor(), threading.Event()
    broken = reactor._tick = Broken(reactor._tick)  # type: ignore[method-assign]
    reactor.call(called.set)
    assert broken.worked.wait(30)
    assert called.wait(30)
    assert logged(caplog) == ["connections of clients had to wait; it is logged once"]


def test_files_are_watched_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("linkspan.serve.polling._SOON", 0.01)
    broken = Broken(FileResources.refresh)
    monkeypatch.setattr(FileResources, "refresh", lambda files: broken(files))
    server = Server("docs")
    server.files("docs://", tmp_path, poll=0.01)
    with SyncClient(server) as client, client.listen(resources=True):
        assert broken.worked.wait(30)
    assert logged(caplog) == ["changes of files were not looked for; it is logged once"]


def test_a_tick_that_fails_does_not_fail_a_request(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    app = Server("shop").wsgi()
    broken = Broken(app.endpoint.tick)
    monkeypatch.setattr(app.endpoint, "tick", broken)
    for now in range(4):
        app.tick(now)
    assert broken.worked.is_set()
    assert logged(caplog) == ["streams and sessions were not looked after; it is logged once"]


def test_messages_of_a_file_are_delivered_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    goes_on_after_an_unexpected_error(SqliteStore(tmp_path / "store.db"), monkeypatch)
    assert logged(caplog) == ["subscribers of a store may have missed something; it is logged once"]


def test_a_change_that_cannot_be_announced_is_logged_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    here, there = (Server("shop", store=f"sqlite://{tmp_path}/store.db").sharing for _ in range(2))
    heard: Queue[bytes | None] = Queue()
    here.listen(Broken(heard.put))
    here.wait_until_listening()
    for each in (b"1", b"2", b"3", b"4"):
        there.publish(each)
    assert heard.get(timeout=30) == b"4"
    assert logged(caplog) == ["a change of another process was not announced; it is logged once"]
