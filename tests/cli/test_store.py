"""`linkspan store rotate`."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from shell import Shell

from linkspan import Server, Task
from linkspan.stores import open_store
from linkspan.stores.key_ring import read_keys


def test_a_key_is_put_in_front_of_those_before_it(linkspan: Shell, tmp_path: Path) -> None:
    url = f"sqlite://{tmp_path}/store.db"
    assert linkspan("store", "rotate", url) == (0, "a new key seals requestState\n", "")
    assert linkspan("store", "rotate", url, "--keep", "60") == (
        0,
        "a new key seals requestState; older keys that still open what they have sealed: 1\n",
        "",
    )


@pytest.mark.parametrize(("ttl", "needs"), [(86400.0, "for 86400 s"), (None, "for ever"), (60.0, "for 3600 s")])
def test_an_old_key_is_kept_as_long_as_tasks_may_be_answered(
    linkspan: Shell, tmp_path: Path, ttl: float | None, needs: str
) -> None:
    url = f"sqlite://{tmp_path}/store.db"
    server = Server("indexer", store=url)
    server.define_tool("ask", handler=lambda: "done", task=Task(ttl=ttl))
    server.sharing.keys()
    assert linkspan("store", "rotate", url, "--keep", "600") == (
        2,
        "",
        f"linkspan store: --keep 600 is too short: questions of the servers may be answered {needs} (request_state_ttl, and the "
        "ttl of tasks), and fail without the key. Leave out --keep, or add --force to give them up\n",
    )
    (old,) = read_keys(server.store, time.time())
    assert linkspan("store", "rotate", url).status == 0
    needed = {"for ever": 10.0**9}.get(needs, ttl or 0.0)
    assert old in read_keys(server.store, time.time() + needed)
    assert linkspan("store", "rotate", url, "--keep", "0", "--force").status == 0
    assert old not in read_keys(server.store, time.time() + 61)


def test_the_server_that_needs_keys_for_longest_decides(linkspan: Shell, tmp_path: Path) -> None:
    url = f"sqlite://{tmp_path}/store.db"
    for name, seconds in (("one", 9000.0), ("other", 60.0), ("one", 5000.0)):
        Server(name, store=url, request_state_ttl=seconds).sharing.keys()
    assert "may be answered for 9000 s" in linkspan("store", "rotate", url, "--keep", "60").err


def test_the_keys_of_a_sealed_store_need_its_key(linkspan: Shell, tmp_path: Path) -> None:
    pytest.importorskip("cryptography", reason="cryptography is not installed")
    url, key = f"sqlite://{tmp_path}/store.db", tmp_path / "key"
    key.write_bytes(b"0123456789abcdef")
    assert linkspan("store", "rotate", url, "--store-key-file", str(key)).status == 0
    done = linkspan("store", "rotate", url, "--store-key-file", str(tmp_path / "missing"))
    assert (done.status, done.err) == (2, f"linkspan store: {tmp_path}/missing: No such file or directory\n")
    key.write_bytes(b"another 16 bytes")
    done = linkspan("store", "rotate", url, "--store-key-file", str(key))
    assert done.status == 3
    assert "was not sealed with this store_key" in done.err
    store = open_store(url, store_key=b"0123456789abcdef")
    assert store.get("keys/request-state")
    store.close()


def test_what_is_not_a_store_is_a_wrong_command_line(linkspan: Shell) -> None:
    done = linkspan("store", "rotate", "mysql://host")
    assert done.status == 2
    assert done.err.startswith("linkspan store: a store is given as ")
    assert linkspan("store", "rotate", "redis://127.0.0.1:1").status == 3


@pytest.mark.parametrize("url", ["redis://[", "redis://ann:hunter/2@127.0.0.1/0"])
def test_a_url_that_cannot_be_read_is_explained_without_its_password(linkspan: Shell, url: str) -> None:
    pytest.importorskip("redis", reason="redis is not installed")
    done = linkspan("store", "rotate", url)
    assert (done.status, "the URL of the store is invalid: check" in done.err) == (2, True)
    assert "hunter" not in done.err


def test_the_tables_of_a_store_in_postgresql_are_printed_without_a_connection(linkspan: Shell) -> None:
    status, out, _ = linkspan("store", "schema", "postgresql://nobody@127.0.0.1:1/none?namespace=Shop")
    assert status == 0
    lines = out.splitlines()
    assert len(lines) == 6
    assert all(each.startswith("CREATE ") and each.endswith(";") for each in lines)
    assert "CREATE INDEX IF NOT EXISTS shop_schedule_at ON shop_schedule (queue, at);" in lines


@pytest.mark.parametrize("url", ["redis://127.0.0.1:1/0", "sqlite:///nowhere/store.db"])
def test_other_stores_have_no_tables_to_print(linkspan: Shell, url: str) -> None:
    assert linkspan("store", "schema", url) == (
        2,
        "",
        "linkspan store: only a store in PostgreSQL has tables to make; all others are made when they are first used\n",
    )


def test_a_namespace_that_cannot_name_tables_has_no_schema(linkspan: Shell) -> None:
    done = linkspan("store", "schema", "postgresql://host/database?namespace=a-b")
    assert (done.status, done.out) == (2, "")
    assert "cannot name tables" in done.err
