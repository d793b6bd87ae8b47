"""A system that has no thread once: what was asked for fails or waits, and the next attempt works."""

from __future__ import annotations

import io
import json
import threading
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager
from queue import SimpleQueue
from typing import Any

import pytest

from linkspan import ConnectError, Server, SyncClient
from linkspan.client.callbacks import CallbackQueue
from linkspan.client.transports.http_threads import ThreadPool, ThreadRun
from linkspan.core.auth_flow import Http, HttpResult, HttpUnavailable
from linkspan.runtime.background import BackgroundLoop
from linkspan.runtime.reactor import Reactor, reactor
from linkspan.runtime.workers import Shares, Workers
from linkspan.serve.fetching import Fetcher
from linkspan.serve.process_channel import ProcessChannel
from linkspan.stores import MemoryStore
from linkspan.stores.opening import open_store

PATIENCE = 30
NoThreads = Callable[[], AbstractContextManager[None]]


@pytest.fixture
def no_threads(monkeypatch: pytest.MonkeyPatch) -> NoThreads:
    """Give what lets no thread start for the time of a block."""

    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    @contextmanager
    def block() -> Generator[None]:
        with monkeypatch.context() as patched:
            patched.setattr(threading.Thread, "start", refuse)
            yield

    return block


def called(app: Any, tool: str) -> dict[str, Any]:
    """Call a tool of a WSGI application, without a session."""
    params = {"name": tool, "arguments": {}}
    request = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).encode()
    environ: dict[str, Any] = {
        "REQUEST_METHOD": "POST",
        "CONTENT_LENGTH": str(len(request)),
        "CONTENT_TYPE": "application/json",
        "HTTP_HOST": "127.0.0.1:8000",
        "HTTP_ACCEPT": "application/json, text/event-stream",
        "SERVER_NAME": "127.0.0.1",
        "REMOTE_ADDR": "127.0.0.1",
        "PATH_INFO": "/mcp",
        "wsgi.input": io.BytesIO(request),
    }
    found: dict[str, Any] = json.loads(b"".join(app(environ, lambda *_: None)))
    return found


def test_an_item_without_a_thread_is_refused_and_not_run_later(no_threads: NoThreads) -> None:
    run = SimpleQueue[str]()
    pool = Workers(run.put)
    with no_threads(), pytest.raises(RuntimeError, match="can't start"):
        pool.submit("refused")
    pool.submit("next")
    assert run.get(timeout=PATIENCE) == "next"
    assert run.empty()


def test_what_must_not_be_lost_runs_where_it_is(no_threads: NoThreads) -> None:
    threads: list[threading.Thread] = []
    with no_threads():
        Workers[int](lambda _: threads.append(threading.current_thread())).submit_or_run(0)
    assert threads == [threading.current_thread()]


@pytest.mark.parametrize("limit", [1, 64])
def test_an_item_that_relied_on_a_thread_which_did_not_come_gets_its_own(
    monkeypatch: pytest.MonkeyPatch, limit: int
) -> None:
    run, start = SimpleQueue[str](), threading.Thread.start
    pool = Workers(run.put, limit)

    def fail_late(_: threading.Thread) -> None:
        monkeypatch.setattr(threading.Thread, "start", start)
        pool.submit("second")  # as another thread does meanwhile
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", fail_late)
    try:
        pool.submit("first")
        expected = {"first", "second"}  # the thread of the second has taken it, too
    except RuntimeError:
        expected = {"second"}
    assert {run.get(timeout=PATIENCE) for _ in expected} == expected


def test_a_share_is_free_again_where_nothing_could_be_passed_on() -> None:
    passed: list[str] = []

    def refuse_first(item: str) -> None:
        if item == "first":
            raise RuntimeError("can't start new thread")
        passed.append(item)

    shares = Shares(refuse_first, 1)
    with pytest.raises(RuntimeError):
        shares.submit("first", "client")
    shares.submit("second", "client")
    assert passed == ["second"]


def test_an_authorization_server_is_asked_again(no_threads: NoThreads, monkeypatch: pytest.MonkeyPatch) -> None:
    fetcher, effect = Fetcher(["https://issuer.example"]), Http("GET", "https://issuer.example/keys", {})
    monkeypatch.setattr(fetcher, "fetch", lambda _: HttpResult(200, {}, b"keys"))
    with no_threads():
        refused = fetcher.submit(effect)
    with pytest.raises(HttpUnavailable, match="can't start"):
        refused.result(PATIENCE)
    assert fetcher.submit(effect).result(PATIENCE).body == b"keys"


def test_a_call_fails_and_leaves_nothing_behind(no_threads: NoThreads) -> None:
    server = Server("test")

    @server.tool
    def one() -> int:
        return 1

    app = server.wsgi(require_session=False)
    with no_threads():
        assert "Internal error" in str(called(app, "one"))
    assert called(app, "one")["result"]["content"][0]["text"] == "1"
    assert app.calls.in_threads == 0
    assert len(app.endpoint.streams) == 0


def test_a_store_in_memory_delivers_from_the_next_subscription_on(no_threads: NoThreads) -> None:
    store, heard = MemoryStore(), SimpleQueue[bytes | None]()
    with no_threads(), pytest.raises(RuntimeError):
        store.subscribe("changes", heard.put)
    store.subscribe("changes", heard.put)
    store.publish("changes", b"one")
    assert heard.get(timeout=PATIENCE) == b"one"
    store.close()


def test_what_a_process_publishes_waits_for_a_thread(no_threads: NoThreads) -> None:
    store, heard = open_store("memory:"), SimpleQueue[bytes | None]()
    here, there = (ProcessChannel(lambda: store, lambda: "name") for _ in range(2))
    with no_threads():
        there.listen(heard.put)
        here.publish(b"first")
    there.listen(heard.put)
    there.wait_until_listening()
    here.publish(b"second")
    assert [heard.get(timeout=PATIENCE) for _ in range(2)] == [b"first", b"second"]
    store.close()


def test_the_reactor_begins_with_the_next_call(no_threads: NoThreads) -> None:
    made, ran = Reactor(), SimpleQueue[str]()
    with no_threads(), pytest.raises(RuntimeError):
        made.call(lambda: ran.put("first"))
    made.call(lambda: ran.put("second"))
    assert ran.get(timeout=PATIENCE) == "second"


def test_a_callback_waits_for_the_next_one(no_threads: NoThreads) -> None:
    queue, called = CallbackQueue(), SimpleQueue[int]()
    with no_threads():
        queue.post(called.put, 1)
    queue.post(called.put, 2)
    assert [called.get(timeout=PATIENCE) for _ in range(2)] == [1, 2]


def test_a_request_of_a_client_begins_when_there_is_a_thread(no_threads: NoThreads) -> None:
    ended = threading.Event()

    def flow() -> Generator[Any, Any, None]:
        ended.set()
        yield from ()

    run = ThreadRun(flow(), ThreadPool.__new__(ThreadPool))
    reactor().call(bool)  # every transport has started it
    with no_threads():
        run.start()
        assert not ended.is_set()
    assert ended.wait(PATIENCE)


def test_a_client_connects_with_the_next_call(no_threads: NoThreads) -> None:
    server = Server("test")
    server.define_tool(name="one", handler=lambda: "one")
    reactor().call(bool)  # it is not what is missing here
    client = SyncClient(server, retry="never")
    with no_threads(), pytest.raises(ConnectError, match="can't start"):
        client.connect()
    assert client.connect().call_tool("one").text == "one"
    client.close()


def test_tasks_are_looked_after_from_the_next_one_on(no_threads: NoThreads) -> None:
    server = Server("test")
    server.define_tool(name="one", handler=lambda: "one", task=True)
    runner, before = server.tasks.runner, set(threading.enumerate())

    def began() -> bool:
        return "linkspan-tasks" in {each.name for each in set(threading.enumerate()) - before}

    with no_threads():
        runner.wake()
    assert not began()
    runner.wake()
    assert began()


def test_a_loop_that_has_no_thread_is_closed(no_threads: NoThreads) -> None:
    with no_threads(), pytest.raises(RuntimeError):
        BackgroundLoop()
