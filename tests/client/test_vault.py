"""Where logins are kept: closed to others, whole at any time, in the keyring where there is a real one."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from linkspan.client.vault import Vault, home

KEY = ("grant", "", "https://login.example.com", "id", "https://api.example.com/mcp")
SECRET = b'{"access_token":"a-very-secret-token"}'


class Ring:
    """A keyring in memory; one with `room` takes short secrets only."""

    def __init__(self, room: int = 10_000) -> None:
        self.kept: dict[tuple[str, str], str] = {}
        self.room = room

    def get_password(self, service: str, username: str) -> str | None:
        return self.kept.get((service, username))

    def set_password(self, service: str, username: str, password: str) -> None:
        if len(password) > self.room:
            raise OSError("too long")
        self.kept[service, username] = password

    def delete_password(self, service: str, username: str) -> None:
        del self.kept[service, username]


@pytest.fixture
def vault(tmp_path: Path) -> Vault:
    return Vault(tmp_path / "logins", lambda: None)


def contents(vault: Vault, tmp_path: Path) -> bytes:
    return b"".join(each.read_bytes() for each in sorted((tmp_path / "logins").iterdir()))


def test_what_is_kept_is_there_for_the_next_process_until_it_is_deleted(vault: Vault, tmp_path: Path) -> None:
    vault.save(KEY, SECRET)
    later = Vault(tmp_path / "logins", lambda: None)
    assert later.has(KEY)
    assert later.load(KEY) == SECRET
    assert later.all_keys() == [KEY]
    later.save(KEY, None)
    assert (vault.load(KEY), vault.all_keys(), vault.has(KEY)) == (None, [], False)


def test_a_lock_is_taken_where_the_system_has_no_flag_to_close_on_exec(
    vault: Vault, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os, "O_CLOEXEC")  # as on Windows
    vault.lock(KEY)()


def test_without_a_home_directory_logins_are_kept_for_as_long_as_the_process_lives(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def no_home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    monkeypatch.setattr(Path, "home", no_home)
    assert not home().is_dir()
    vault = Vault(keyring=lambda: None)
    vault.lock(KEY)()
    vault.save(KEY, SECRET)
    assert (vault.load(KEY), vault.all_keys(), vault.has(KEY)) == (SECRET, [], True)


def test_keys_that_differ_in_one_part_are_kept_apart(vault: Vault) -> None:
    vault.save(("a", "bc"), b"1")
    vault.save(("ab", "c"), b"2")
    assert (vault.load(("a", "bc")), vault.load(("ab", "c"))) == (b"1", b"2")


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no modes")
def test_only_the_user_can_read_the_directory_and_its_files_even_if_it_was_open_before(
    vault: Vault, tmp_path: Path
) -> None:
    (tmp_path / "logins").mkdir(mode=0o755)
    vault.save(KEY, SECRET)
    vault.lock(KEY)()
    modes = {stat.S_IMODE(each.stat().st_mode) for each in (tmp_path / "logins").iterdir()}
    assert (stat.S_IMODE((tmp_path / "logins").stat().st_mode), modes) == (0o700, {0o600})


def test_a_reader_never_sees_half_a_value_and_a_failed_write_leaves_the_old_one(
    vault: Vault, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    vault.save(KEY, b"old")

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", fail)
    vault.save(KEY, SECRET)
    assert "No space left on device" in caplog.text
    assert "secret" not in caplog.text
    assert Vault(tmp_path / "logins", lambda: None).load(KEY) == b"old"
    assert vault.load(KEY) == SECRET, "this process goes on with what it has"
    assert [each.suffix for each in (tmp_path / "logins").iterdir()] == [".json"]


def test_a_file_that_is_damaged_is_no_login(vault: Vault, tmp_path: Path) -> None:
    vault.save(KEY, SECRET)
    (file,) = (tmp_path / "logins").iterdir()
    file.write_bytes(b"{")
    assert (vault.load(KEY), vault.all_keys()) == (None, [])


def test_a_keyring_keeps_the_value_and_the_file_only_the_key(tmp_path: Path) -> None:
    ring = Ring()
    vault = Vault(tmp_path / "logins", lambda: ring)
    vault.save(KEY, SECRET)
    assert b"secret" not in contents(vault, tmp_path)
    assert (vault.load(KEY), vault.all_keys(), len(ring.kept)) == (SECRET, [KEY], 1)
    vault.save(KEY, None)
    assert (vault.load(KEY), ring.kept) == (None, {})


def test_a_keyring_without_room_leaves_the_value_to_the_file(tmp_path: Path) -> None:
    vault = Vault(tmp_path / "logins", lambda: Ring(room=10))
    vault.save(KEY, SECRET)
    assert vault.load(KEY) == SECRET


def test_no_repr_shows_a_secret(vault: Vault) -> None:
    vault.save(KEY, SECRET)
    assert "a-very-secret-token" not in repr(vault)


def test_where_logins_are_follows_the_rules_of_the_desktop(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert home() == tmp_path / "linkspan" / "logins"
    monkeypatch.delenv("XDG_DATA_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert home() == tmp_path / ".local" / "share" / "linkspan" / "logins"


def test_a_lock_holds_across_threads(vault: Vault) -> None:
    unlock = vault.lock(KEY)
    got = threading.Event()
    thread = threading.Thread(target=lambda: (vault.lock(KEY)(), got.set()), daemon=True)
    thread.start()
    vault.lock(("another",))()
    assert not got.is_set()
    unlock()
    assert got.wait(10)
    thread.join()


def test_a_lock_holds_across_processes_and_ends_with_its_holder(vault: Vault, tmp_path: Path) -> None:
    code = f"""
from pathlib import Path
from linkspan.client.vault import Vault
Vault(Path({str(tmp_path / "logins")!r})).lock({KEY!r})
print("locked", flush=True)
input()
"""
    holder = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
    )
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "locked\n"
        got = threading.Event()
        thread = threading.Thread(target=lambda: (vault.lock(KEY)(), got.set()), daemon=True)
        thread.start()
        assert not got.wait(0.05)
        holder.kill()
        assert got.wait(10)
        thread.join()
    finally:
        holder.kill()
        holder.communicate()


@pytest.mark.skipif(sys.platform == "win32", reason="there are no forks")
@pytest.mark.parametrize("end", ["unlocks", "is killed"])
def test_a_child_that_was_forked_meanwhile_does_not_keep_a_lock(vault: Vault, tmp_path: Path, end: str) -> None:
    """The one that holds the lock ends, and its child lives on."""
    code = f"""
import os
from pathlib import Path
from linkspan.client.vault import Vault
unlock = Vault(Path({str(tmp_path / "logins")!r})).lock({KEY!r})
if os.fork() == 0:
    print("forked", flush=True)
    os.read(0, 1)
    os._exit(0)
os.read({{fd}}, 1)
unlock()
print("unlocked", flush=True)
os.read({{fd}}, 1)
"""
    reader, writer = os.pipe()
    holder = subprocess.Popen(
        [sys.executable, "-c", code.replace("{fd}", str(reader))],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        pass_fds=[reader],
    )
    os.close(reader)
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "forked\n"
        if end == "unlocks":
            os.write(writer, b"x")
            assert holder.stdout.readline() == "unlocked\n"
        else:
            holder.kill()
            holder.wait()
        got = threading.Event()
        thread = threading.Thread(target=lambda: (vault.lock(KEY)(), got.set()), daemon=True)
        thread.start()
        assert got.wait(10)
        thread.join()
    finally:
        os.close(writer)
        holder.kill()
        holder.communicate()
