"""A store in a real PostgreSQL: the contract, and what happens when connections are cut."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from queue import Queue
from typing import Any, Final

import pytest

from client.faces import wait_until
from linkspan import LinkspanError, Server
from linkspan.stores import Store, StoreError, open_store
from linkspan.stores.opening import schema_of
from linkspan.stores.postgres import PostgresStore
from linkspan.stores.subscribers import Subscribers
from linkspan.testing.store_contract import CHECKS
from stores.store_servers import (
    eventually,
    fork_with_a_store,
    goes_by_the_clock_of_its_server,
    goes_on_after_an_unexpected_error,
    keep_the_contract,
    postgres_server,
    standing_still,
)

TASKS: Final = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {"extensions": {"io.modelcontextprotocol/tasks": {}}},
}


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with postgres_server() as url:
        yield url


def cut_connections(url: str) -> None:
    """End all connections but our own, as a restart of the server does."""
    import psycopg

    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()")


@pytest.mark.parametrize("check", CHECKS, ids=lambda each: each.__name__.lstrip("_"))
def test_the_store_keeps_the_contract(check: Callable[[Callable[[], Store]], None], server: str) -> None:
    keep_the_contract(check, server)


def test_after_connections_were_cut_the_store_works_and_subscribers_may_have_missed_something(server: str) -> None:
    store = open_store(f"{server}&namespace=cut")
    heard: Queue[bytes | None] = Queue()
    store.subscribe("channel", heard.put)
    store.publish("channel", b"first")
    assert heard.get(timeout=30) == b"first"
    store.put("key", b"value")
    cut_connections(server)
    eventually(lambda: store.get("key"))
    assert heard.get(timeout=30) is None
    store.publish("channel", b"again")
    assert heard.get(timeout=30) == b"again"
    store.close()


@pytest.mark.skipif(not hasattr(signal, "SIGSTOP"), reason="this system cannot stop a process for a while")
@pytest.mark.parametrize(
    "write",
    [
        pytest.param(lambda store: store.put("key", b"value"), id="statement"),
        pytest.param(lambda store: store.publish("channel", b"data"), id="transaction"),
    ],
)
def test_a_server_that_stands_still_is_an_error_within_the_time_for_all_who_wait(
    server: str, write: Callable[[Store], object]
) -> None:
    from linkspan.stores.postgres import PostgresStore

    store = eventually(lambda: PostgresStore(server, namespace="still", timeout=0.5))
    results: Queue[str] = Queue()

    def attempt() -> None:
        try:
            write(store)
            results.put("written")
        except StoreError as problem:
            results.put(str(problem))

    stuck = store._connection
    with standing_still(stuck.info.backend_pid):
        threads = [threading.Thread(target=attempt) for _ in range(20)]
        for each in threads:
            each.start()
        assert results.get(timeout=15).startswith("the store in PostgreSQL failed: no answer within 1.5 s")
        for each in threads:
            each.join(15)  # one after the other would take half a minute
        assert not any(each.is_alive() for each in threads)
        assert stuck.closed
        eventually(lambda: write(store))  # on a new connection
    store.close()


def test_a_message_that_is_too_large_for_a_notification_arrives(server: str) -> None:
    store = open_store(server)
    heard: Queue[bytes | None] = Queue()
    store.subscribe("a channel", heard.put)
    large = bytes(range(256)) * 400
    store.publish("a channel", large)
    assert heard.get(timeout=30) == large
    store.close()


def test_a_store_that_is_closed_takes_its_thread_along(server: str) -> None:
    store = open_store(f"{server}&namespace=closed")
    before = set(threading.enumerate())
    store.subscribe("channel", print)
    (listening,) = set(threading.enumerate()) - before
    store.close()
    listening.join(30)
    assert not listening.is_alive()


def test_namespaces_are_separate_and_must_be_able_to_name_tables(server: str) -> None:
    one, other = open_store(f"{server}&namespace=one"), open_store(f"{server}&namespace=other")
    one.put("key", b"1")
    assert other.get("key") is None
    one.close()
    other.close()
    with pytest.raises(LinkspanError, match="namespace 'a;b' cannot name tables"):
        open_store(f"{server}&namespace=a%3Bb")


def test_messages_are_delivered_on_after_an_unexpected_error(server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # in a namespace of its own: stores of other tests may still listen for a moment
    goes_on_after_an_unexpected_error(open_store(f"{server}&namespace=mistaken"), monkeypatch)


@pytest.mark.parametrize("fails", ["the first statement", "the thread"])
def test_a_listener_that_cannot_begin_leaves_no_connection(fails: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("psycopg", reason="psycopg is not installed")
    from linkspan.stores.postgres import _PostgresListener

    class Connection:
        """A store with one connection, and that connection."""

        is_open = True

        def connect(self) -> Connection:
            return self

        def execute(self, _: str) -> None:
            if fails == "the first statement":
                raise RuntimeError(fails)

        def close(self) -> None:
            self.is_open = False

    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("the thread")

    connection: Any = Connection()
    monkeypatch.setattr(threading.Thread, "start", refuse)
    with pytest.raises(RuntimeError, match=fails):
        _PostgresListener(connection, OSError, "linkspan", Subscribers())
    assert not connection.is_open


def test_no_server_is_an_error_with_a_sentence() -> None:
    pytest.importorskip("psycopg", reason="psycopg is not installed")
    with pytest.raises(StoreError, match="the store in PostgreSQL failed: "):
        open_store("postgresql://127.0.0.1:1/nothing")


def test_a_forked_process_has_connections_of_its_own(server: str) -> None:
    fork_with_a_store(server)


def test_a_user_who_may_not_create_tables_uses_those_that_are_there(server: str) -> None:
    import psycopg

    url = f"{server.replace('postgres:', 'app:', 1)}&namespace=made"
    assert "app:" in url
    with psycopg.connect(server, autocommit=True) as owner:
        owner.execute("CREATE ROLE app LOGIN")
        owner.execute("REVOKE CREATE ON SCHEMA public FROM PUBLIC")
        with pytest.raises(StoreError, match=r"^made_records, .*`linkspan store schema URL` prints .*permission"):
            open_store(url)
        owner.execute(schema_of(url))
        owner.execute(
            "GRANT SELECT, INSERT, UPDATE, DELETE ON made_records, made_schedule, made_logs, made_entries, made_messages TO app"
        )
        owner.execute("GRANT USAGE ON SEQUENCE made_messages_id_seq TO app")
    keep_the_contract(CHECKS[0], url)
    store = open_store(url)
    store.append("log", b"entry")
    store.schedule("queue", "key", 1.0)
    store.publish("channel", b"x" * 9000)
    store.close()


def test_all_machines_go_by_the_clock_of_the_server(server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    goes_by_the_clock_of_its_server(f"{server}{'&' if '?' in server else '?'}namespace=clocks", monkeypatch)


def test_keys_are_scheduled_and_taken_out_together(server: str) -> None:
    store = PostgresStore(server, namespace="together")
    for changes in (
        [("a", "one", 1.0), ("a", "two", 2.0), ("b", "one", 3.0)],
        [("a", "one", None), ("a", "two", 4.0), ("b", "two", 5.0)],
        [("b", "one", None), ("b", "nothing", None)],
    ):
        store.schedule_together(changes)
    store.schedule_together([])
    assert store.due("a", 10.0, 10) == ["two"]
    assert store.due("a", 3.0, 10) == []
    assert store.due("b", 10.0, 10) == ["two"]
    store.close()


def test_a_task_takes_few_statements(server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    store = PostgresStore(server, namespace="statements")
    mcp = Server("counting", store=store)
    told = threading.Event()

    @mcp.tool(task=True)
    def work() -> str:
        assert told.wait(60)
        return "done"

    statements: list[str] = []
    run = PostgresStore._run

    def counted(store: PostgresStore, statement: str, *values: object) -> list[tuple[Any, ...]]:
        if not statement.startswith(
            ("SELECT key", "SELECT value", "SELECT extract")
        ):  # looks, some of them now and then
            statements.append(statement)
        return run(store, statement, *values)

    def call(method: str, **params: object) -> Any:
        request = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": TASKS}}
        return mcp.handle(request)["result"]

    mcp.handle({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "nothing"}})
    monkeypatch.setattr(PostgresStore, "_run", counted)
    monkeypatch.setattr(PostgresStore, "_purge_if_due", lambda _: None)
    made = call("tools/call", name="work", arguments={})["taskId"]
    told.set()
    wait_until(lambda: call("tasks/get", taskId=made)["status"] == "completed")
    wait_until(lambda: len(statements) >= 5)
    assert len(statements) == 5, statements
    store.close()
