"""`linkspan store rotate`."""

from __future__ import annotations

from pathlib import Path

import pytest
from shell import Shell

from linkspan.stores import open_store


def test_a_key_is_put_in_front_of_those_before_it(linkspan: Shell, tmp_path: Path) -> None:
    url = f"sqlite://{tmp_path}/store.db"
    assert linkspan("store", "rotate", url) == (0, "a new key seals requestState\n", "")
    assert linkspan("store", "rotate", url, "--keep", "60") == (
        0,
        "a new key seals requestState; older keys that still open what they have sealed: 1\n",
        "",
    )


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
