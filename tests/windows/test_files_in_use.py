"""Files that processes share, and paths."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pytest

from linkspan import SyncClient
from linkspan.client.vault import Vault
from linkspan.host.memory import Memory

KEY = ("https://ferries.example", "client")


def vault_in(folder: Path) -> Vault:
    return Vault(folder, lambda: None)


def python(code: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def test_a_lock_of_a_login_holds_across_processes_and_ends_with_its_holder(tmp_path: Path) -> None:
    holder = python(
        "from pathlib import Path; from linkspan.client.vault import Vault; import sys, time\n"
        f"Vault(Path({str(tmp_path)!r}), lambda: None).lock({KEY!r})\n"
        "print('locked', flush=True); time.sleep(600)"
    )
    assert holder.stdout is not None
    assert holder.stdout.readline().strip() == b"locked"
    vault, taken = vault_in(tmp_path), threading.Event()

    def lock() -> None:
        vault.lock(KEY)()
        taken.set()

    threading.Thread(target=lock, daemon=True).start()
    assert not taken.wait(0.5)
    holder.kill()
    assert taken.wait(60)
    holder.communicate()


def test_a_login_is_replaced_while_it_is_read(tmp_path: Path) -> None:
    vault, done, problems = vault_in(tmp_path), threading.Event(), []
    vault.save(KEY, b"0")

    def read() -> None:
        while not done.is_set():
            try:
                assert vault.load(KEY) is not None
                done.wait(0.01)  # on Windows a file that someone reads at every moment cannot be replaced
            except BaseException as problem:
                problems.append(problem)
                return

    readers = [threading.Thread(target=read) for _ in range(3)]
    for reader in readers:
        reader.start()
    try:
        for number in range(50):
            vault.save(KEY, b"%d" % number)
    finally:
        done.set()
        for reader in readers:
            reader.join(60)
    assert not problems
    assert vault.load(KEY) == b"49"


def test_what_a_host_remembers_is_written_by_several_processes(tmp_path: Path) -> None:
    code = (
        "from linkspan.host.memory import Memory; from pathlib import Path; import sys\n"
        f"memory = Memory(Path({str(tmp_path / 'memory.json')!r}))\n"
        "for number in range(20): memory.pin(f'{sys.argv[1]}-{number}', {'number': number})\n"
        "assert not memory.problem, memory.problem\n"
    )
    writers = [subprocess.Popen([sys.executable, "-c", code, str(each)]) for each in range(3)]
    assert [each.wait(100) for each in writers] == [0, 0, 0]
    memory = Memory(tmp_path / "memory.json")
    assert all(memory.pinned(f"{each}-{number}") == {"number": number} for each in range(3) for number in range(20))


def test_a_store_is_shared_by_processes(tmp_path: Path) -> None:
    file, store = tmp_path / "server.py", (tmp_path / "store.db").as_uri().replace("file:", "sqlite:")
    file.write_text(
        "from linkspan import Server\n"
        f"server = Server('keeper', store={store!r})\n"
        "@server.tool\n"
        "def answer() -> int:\n    return 42\n"
    )
    with SyncClient(str(file)) as one, SyncClient(str(file)) as other:
        assert (one.call_tool("answer").text, other.call_tool("answer").text) == ("42", "42")


@pytest.mark.parametrize(
    "path", ["../secret.txt", "..\\secret.txt", "C:secret.txt", "a.txt::$DATA", "NUL", "\\\\server\\share"]
)
def test_no_path_leads_out_of_a_directory(path: str, tmp_path: Path) -> None:
    from linkspan.runtime.files import Directory

    folder = tmp_path / "folder"
    folder.mkdir()
    (tmp_path / "secret.txt").write_text("secret")
    (folder / "a.txt").write_text("a")
    assert Directory(folder).read("a.txt", 10) == b"a"
    assert Directory(folder).read(path, 10) is None
