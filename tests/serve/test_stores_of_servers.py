"""`Server(store=...)`: when it is opened, what is refused in words, and what workers share."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Annotated, Any

import pytest

from linkspan import Ask, LinkspanError, Server, Task
from linkspan.core.shared_endpoint import SharedEndpoint
from linkspan.revisions import LATEST
from linkspan.stores import MemoryStore, SealedStore, SqliteStore, StoreError
from linkspan.stores.key_ring import longest_use, read_keys, rotate_keys
from linkspan.wire.values import key_of


def test_without_a_store_there_is_one_in_memory() -> None:
    server = Server("shop")
    assert isinstance(server.store, MemoryStore)
    assert server.store is server.store
    assert not server.is_shared


def test_a_store_is_opened_when_it_is_first_used(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    server = Server("shop", store=f"sqlite://{path}")
    assert server.is_shared
    assert not path.exists()
    assert server.store.put("key", b"value")
    assert path.exists()
    server.store.close()


def test_a_store_is_opened_when_the_server_begins_to_serve_over_http(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    server = Server("shop", store=f"sqlite://{path}")
    server.asgi()
    assert path.exists()
    server.store.close()
    with pytest.raises(StoreError, match=r"failed: No such file or directory$"):
        Server("shop", store=f"sqlite://{tmp_path}/missing/store.db").wsgi()


def test_a_store_of_ones_own_is_used_as_it_is_and_sealed_with_a_key(tmp_path: Path) -> None:
    memory = MemoryStore()
    assert Server("shop", store=memory).store is memory
    assert not Server("shop", store=memory).is_shared
    pytest.importorskip("cryptography", reason="cryptography is not installed")
    file = SqliteStore(tmp_path / "store.db")
    server = Server("shop", store=file, store_key="a key of 16 bytes or more")
    assert server.is_shared
    assert isinstance(server.store, SealedStore)
    file.close()


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"store": "mysql://host"}, r"a store is given as memory:, .*; not as 'mysql'"),
        ({"store_key": "a key of 16 bytes or more"}, "store_key= seals what is in a store: pass store= too"),
    ],
)
def test_what_cannot_be_a_store_is_refused_when_the_server_is_made(settings: dict[str, str], problem: str) -> None:
    with pytest.raises(LinkspanError, match=problem):
        Server("shop", **settings)


def test_what_cannot_be_a_store_is_refused_when_it_is_named_later(tmp_path: Path) -> None:
    server = Server("shop")
    with pytest.raises(LinkspanError, match="a store is given as memory:"):
        server.sharing.use("mysql://host")
    server.sharing.use(f"sqlite://{tmp_path}/store.db")
    assert server.is_shared
    assert isinstance(server.store, SqliteStore)
    server.store.close()


def test_a_missing_package_is_named_when_the_server_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    for package, name in (("redis", "redis"), ("psycopg", "postgresql"), ("nats", "nats")):
        monkeypatch.setitem(sys.modules, package, None)
        with pytest.raises(LinkspanError, match=r"a store in \w+ needs .*: run pip install"):
            Server("shop", store=f"{name}://localhost")


def test_all_that_a_server_keeps_is_below_one_key_of_its_name(tmp_path: Path) -> None:
    server = Server("a shop, and / any * name " * 20, store=f"sqlite://{tmp_path}/store.db")
    endpoint = server.asgi().endpoint
    assert isinstance(endpoint, SharedEndpoint)
    names = [endpoint.channels[0], server.tasks.runner.tasks._name, server.sharing._channel._channel]
    key = key_of(server.name)
    assert names == [f"sessions/{key}", f"tasks/{key}", f"changes/{key}"]
    assert len(key) == 32
    server.store.close()


forking = pytest.mark.skipif(not hasattr(os, "fork"), reason="workers need a system that can fork")


@forking
def test_workers_share_a_private_file_which_is_removed_with_them() -> None:
    server = Server("shop")
    with server.sharing.by_workers():
        assert server.is_shared
        store = server.store
        directory = store._path.parent  # type: ignore[attr-defined]
        if os.fork() == 0:
            os._exit(0 if server.store.put("child", b"1") else 1)
        assert os.wait()[1] == 0
        assert server.store.get("child")
        assert directory.stat().st_mode & 0o777 == 0o700
    assert not directory.exists()
    assert not server.is_shared
    with pytest.raises(StoreError, match="the store was closed"):
        store.get("child")
    assert isinstance(server.store, MemoryStore)


def test_reading_keys_now_and_then_does_not_hold_the_process(tmp_path: Path) -> None:
    url = f"sqlite://{tmp_path}/store.db"
    code = f"""
import threading
from linkspan import Server
server = Server("shop", store={url!r})
server.sharing.keys()
assert "linkspan-keys" in [each.name for each in threading.enumerate()]
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@forking
def test_workers_cannot_share_a_store_in_memory() -> None:
    code = """
from linkspan import Server
Server("shop", store="memory:").run("http", port=0, workers=2)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert done.stderr == "shop: workers cannot share a store in memory: leave out store=, or pass another one\n"


def test_a_store_that_cannot_be_reached_ends_the_start_with_a_sentence() -> None:
    pytest.importorskip("redis", reason="redis is not installed")
    code = """
from linkspan import Server
Server("shop", store="redis://127.0.0.1:1").run("http", port=0)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert done.stderr.startswith("shop: the store in Redis failed: ")


@forking
def test_a_forked_child_has_a_memory_of_its_own() -> None:
    code = """
import os
from queue import Queue
from linkspan import Server
store = Server("shop").store
heard = Queue()
store.subscribe("channel", heard.put)
store.put("key", b"parent")
if os.fork() == 0:
    inherited = store.get("key").value
    store.put("key", b"child")
    store.subscribe("channel", heard.put)
    store.publish("channel", b"again")
    os._exit(0 if (inherited, heard.get(timeout=60)) == (b"parent", b"again") else 1)
assert os.wait()[1] == 0
assert store.get("key").value == b"parent"
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def ask(server: Server, **more: Any) -> Any:
    """Call `book`, which asks the user; as a modern client does."""
    meta = {
        "io.modelcontextprotocol/protocolVersion": LATEST.date,
        "io.modelcontextprotocol/clientCapabilities": {"elicitation": {"form": {}}},
    }
    params = {"name": "book", "arguments": {}, "_meta": meta, **more}
    answer = server.handle({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})
    return answer.get("result") or answer["error"]


def booking(**options: Any) -> Server:
    server = Server("booking", **options)

    @server.tool
    def book(seats: Annotated[int, Ask("How many seats?")]) -> str:
        return f"{seats} seats"

    return server


ANSWER = {"seats": {"action": "accept", "content": {"seats": 4}}}


def test_what_one_process_has_asked_is_answered_in_another(tmp_path: Path) -> None:
    url = f"sqlite://{tmp_path}/store.db"
    state = ask(booking(store=url))["requestState"]
    other = booking(store=url)
    assert ask(other, requestState=state, inputResponses=ANSWER)["content"][0]["text"] == "4 seats"
    stranger = booking(store=url, request_state_keys=["the author's key goes first"])
    assert "requestState is not valid" in ask(stranger, requestState=state, inputResponses=ANSWER)["message"]


def test_a_running_process_seals_with_a_new_key_once_it_has_read_it(tmp_path: Path) -> None:
    from linkspan.cli.main import main

    server = booking(store=f"sqlite://{tmp_path}/store.db")
    before = ask(server)["requestState"]
    assert main(["store", "rotate", f"sqlite://{tmp_path}/store.db"]) == 0
    sharing = server.sharing
    sharing._keys.refresh()
    assert sharing.keys()._secrets == read_keys(server.store, time.time())
    assert len(sharing.keys()._secrets) == 2
    assert "content" in ask(server, requestState=before, inputResponses=ANSWER)


def test_keys_are_read_from_a_store_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server = booking(store=f"sqlite://{tmp_path}/store.db")
    before = read_keys(server.store, time.time())
    rotate_keys(server.store, time.time(), keep=60.0)

    def fail(*_: object, **__: object) -> None:
        raise StoreError("the disk is full")

    with monkeypatch.context() as patched:
        patched.setattr(SqliteStore, "put", fail)
        assert server.sharing.keys()._secrets == read_keys(server.store, time.time())
        assert server.sharing.keys()._secrets[0] == before[0]
        assert longest_use(server.store, time.time()) is None
    server.sharing._keys.refresh()
    assert longest_use(server.store, time.time()) == 3600.0
    server.define_tool("ask", handler=lambda: "done", task=Task(ttl=7200.0))
    rotate_keys(server.store, time.time(), keep=60.0)
    with monkeypatch.context() as patched:
        patched.setattr(SqliteStore, "put", fail)
        server.sharing._keys.refresh()
    assert server.sharing.keys()._secrets == read_keys(server.store, time.time())
    assert len(server.sharing.keys()._secrets) == 3


def test_a_running_server_notes_again_for_how_long_it_needs_keys_where_the_store_has_lost_it(tmp_path: Path) -> None:
    server = booking(store=f"sqlite://{tmp_path}/store.db")
    server.sharing.keys()
    assert server.store.delete("keys/request-state-seconds")
    server.sharing._keys.refresh()
    assert longest_use(server.store, time.time()) == 3600.0


def test_without_a_store_that_works_a_question_is_refused_with_a_sentence_and_other_calls_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = booking(store=f"sqlite://{tmp_path}/store.db")
    server.define_tool("now", handler=lambda: "now")

    def fail(*_: object) -> None:
        raise StoreError("out of order")

    with monkeypatch.context() as patched:
        patched.setattr(SqliteStore, "get", fail)
        assert ask(server) == {
            "code": -32603,
            "message": "Internal error: the store with the keys of requestState cannot be reached; try again later",
        }
        assert ask(server, name="now")["content"][0]["text"] == "now"
    state = ask(server)["requestState"]
    with monkeypatch.context() as patched:  # keys that are known stay in use
        patched.setattr(SqliteStore, "get", fail)
        server.sharing._keys.refresh()
        assert "content" in ask(server, requestState=state, inputResponses=ANSWER)
