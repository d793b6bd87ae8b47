"""`linkspan run --reload`: the source changes, the client stays."""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from pipes import HELLO, Piped
from typing import Any

import pytest
import watchfiles

from linkspan import Change, ServerError, SyncClient
from linkspan.runtime.watching import Watch

TAG = "io.modelcontextprotocol/subscriptionId"
LISTEN = {"toolsListChanged": True}


def source(answer: str, extra: str = "") -> str:
    return f"""
import time
from linkspan import Server
{extra}
server = Server("s")

@server.tool
def which() -> str:
    return {answer}

@server.tool
def wait() -> str:
    print("waiting", flush=True)
    time.sleep(60)

@server.tool
def die() -> str:
    import os
    os._exit(5)
"""


def save(path: Path, text: str) -> None:
    """Change a file at once: one that is written slowly changes twice."""
    whole = path.with_suffix(".new")
    whole.write_text(text)
    whole.replace(path)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "server.py"
    path.write_text(source("'one'"))
    return path


def ended(status: int) -> str:
    return f"the server ended with exit status {status}; see its stderr. A change to its source starts it again"


def listen(client: Piped) -> None:
    client.ask("sub", "subscriptions/listen", notifications=LISTEN)
    assert client.read()["method"] == "notifications/subscriptions/acknowledged"


CHANGED = {
    "jsonrpc": "2.0",
    "method": "notifications/tools/list_changed",
    "params": {"_meta": {TAG: "sub"}},
}


def test_a_modern_client_gets_the_new_code_and_hears_of_it(file: Path) -> None:
    with Piped("run", "--reload", str(file)) as client:
        assert client.call(1, "which") == "one"
        listen(client)
        save(file, source("'two'"))
        assert client.read() == CHANGED
        assert client.call(2, "which") == "two"
        client.hang_up()
        assert client.end() == 0
    assert "linkspan run: server.py changed: starting again\n" in client.errors


def test_a_handshake_client_keeps_its_session_and_what_ran_is_answered(file: Path) -> None:
    with Piped("run", "--reload", f"{file}:server") as client:
        client.shake_hands()
        client.send(id=1, method="tools/call", params={"name": "wait", "arguments": {}})
        client.wait_for_error("waiting")
        save(file, source("'two'"))
        error = {"code": -32603, "message": "the server was restarted because its source changed; call again"}
        assert client.read() == {"jsonrpc": "2.0", "id": 1, "error": error}
        assert client.read() == {"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}
        client.send(id=1, method="tools/call", params={"name": "which", "arguments": {}})
        assert client.read()["result"]["content"][0]["text"] == "two"


def test_code_that_does_not_start_is_said_and_the_next_change_is_tried(file: Path) -> None:
    with Piped("run", "--reload", str(file)) as client:
        listen(client)
        save(file, "this is no Python")
        client.wait_for_error("SyntaxError")
        client.ask(1, "tools/list")
        assert client.read()["error"] == {"code": -32603, "message": ended(1)}
        save(file, source("'three'"))
        assert client.read() == CHANGED
        assert client.call(2, "which") == "three"


def test_code_that_never_started_may_be_mended_while_the_client_waits(file: Path) -> None:
    file.write_text("this is no Python")
    with Piped("run", "--reload", str(file)) as client:
        client.wait_for_error("exit status 1")
        client.send(id="hello", method="initialize", params=HELLO)
        assert client.read() == {"jsonrpc": "2.0", "id": "hello", "error": {"code": -32603, "message": ended(1)}}
        save(file, source("'mended'"))
        client.wait_for_error("server.py changed")
        client.shake_hands()
        assert client.call(1, "which") == "mended"


@pytest.mark.parametrize("era", ["modern", "legacy"])
def test_our_client_keeps_its_connection_and_its_listeners(file: Path, era: Any) -> None:
    heard: queue.SimpleQueue[Change] = queue.SimpleQueue()
    command = [sys.executable, "-m", "linkspan", "run", "--reload", file]
    with SyncClient(command, era=era, on_change=heard.put) as client, client.listen(tools=True) as changes:
        assert [tool.name for tool in client.list_tools()] == ["which", "wait", "die"]
        with pytest.raises(ServerError, match=r"exit status 5; see its stderr") as caught:
            client.call_tool("die")
        assert caught.value.delivery == "answered"
        save(file, source("'two'", "").replace("def die", "def perish"))
        assert next(changes) == Change("tools")
        assert heard.get(timeout=30) == Change("tools")
        assert client.call_tool("which").text == "two"
        assert [tool.name for tool in client.list_tools()] == ["which", "wait", "perish"]


def test_a_server_that_dies_comes_back_with_the_next_change(file: Path) -> None:
    with Piped("run", "--reload", str(file)) as client:
        listen(client)
        client.ask(1, "tools/call", name="die", arguments={})
        assert client.read()["error"] == {"code": -32603, "message": ended(5)}
        os.utime(file)
        assert client.read() == CHANGED
        assert client.call(2, "which") == "one"


def test_what_the_file_imports_is_watched_too(file: Path) -> None:
    """Even if the new text has the size of the old one, and is written in the same second."""
    package = file.parent / "parts"
    package.mkdir()
    (package / "__init__.py").write_text("from .inner import NAME\n")
    (package / "inner.py").write_text("NAME = 'one'\n")
    file.write_text(source("NAME", "from parts import NAME"))
    with Piped("run", "--reload", str(file)) as client:
        assert client.call(1, "which") == "one"
        listen(client)
        save(package / "inner.py", "NAME = 'two'\n")
        assert client.read() == CHANGED
        assert client.call(2, "which") == "two"
    assert f"parts{os.sep}inner.py changed" in client.errors


def test_what_was_asked_before_the_end_is_answered(file: Path) -> None:
    with Piped("run", "--reload", str(file)) as client:
        client.ask(1, "tools/call", name="which", arguments={})
        client.hang_up()
        assert client.read()["id"] == 1
        assert client.end() == 0


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 0)])
def test_a_signal_ends_both(file: Path, number: int, status: int) -> None:
    with Piped("run", "--reload", str(file)) as client:
        assert client.call(1, "which") == "one"
        client.popen.send_signal(number)
        assert client.end() == status


def test_a_signal_ends_it_while_no_server_runs(file: Path) -> None:
    file.write_text("this is no Python")
    with Piped("run", "--reload", str(file)) as client:
        client.wait_for_error("exit status 1")
        client.popen.send_signal(signal.SIGINT)
        assert client.end() == 130


def test_a_file_that_is_not_there_is_said() -> None:
    command = [sys.executable, "-m", "linkspan", "run", "--reload", "nothing.py"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (2, "linkspan run: there is no file 'nothing.py'\n")


def test_a_watch_sees_files_change_come_and_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    file = tmp_path / "server.py"
    file.write_text("import os, later.part\nfrom sub import thing\n")
    watch = Watch(str(file))
    assert watch.changed() is None
    for name in ("later/__init__.py", "later/part.py", "sub/thing.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("x = 1\n")
        assert watch.changed() == name.replace("/", os.sep)
    (tmp_path / "sub" / "thing.py").unlink()
    assert watch.changed() == os.path.join("sub", "thing.py")
    (tmp_path / "data.txt").write_text("x")
    (tmp_path / ".#server.py").write_text("x")
    assert watch.changed() is None
    file.write_text("def broken(")
    assert watch.changed() == "server.py"
    (tmp_path / "later" / "part.py").unlink()
    assert watch.changed() == os.path.join("later", "part.py"), "what it imported before is still watched"


def test_a_file_that_the_server_does_not_import_is_not_watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    file, other, missing = tmp_path / "server.py", tmp_path / "test_other.py", tmp_path / "missing.py"
    file.write_text("def later():\n    import missing\n")
    watch = Watch(str(file))
    other.write_text("x = 1\n")
    assert watch.changed() is None
    missing.write_text("import test_other\n")
    assert watch.changed() == "missing.py"
    other.write_text("x = 22\n")
    assert watch.changed() == "test_other.py"
    missing.write_text("x = 22\n")
    assert watch.changed() == "missing.py"
    other.unlink()
    assert watch.changed() is None, "what is not imported any more is not watched"


@pytest.mark.parametrize(
    ("call", "is_watched"),
    [
        ("importlib.import_module('fares')", True),
        ("importlib.import_module('ships')", False),
        ("importlib.import_module(f'{name}')", True),
        ("importlib.import_module('.fares', __package__)", True),
        ("[each for each in pkgutil.iter_modules(['.'])]", True),
        ("exec(open('fares.py').read())", True),
        ("print('fares')", False),
    ],
)
def test_an_import_whose_name_is_made_up_watches_the_files_beside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, is_watched: bool
) -> None:
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    (tmp_path / "server.py").write_text(f"def load(name):\n    return {call}\n")
    watch = Watch(str(tmp_path / "server.py"))
    (tmp_path / "fares.py").write_text("x = 1\n")
    assert watch.changed() == ("fares.py" if is_watched else None)


def test_a_watch_follows_imports_into_a_project_but_not_into_what_is_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    project, installed = tmp_path / "src", tmp_path / "site-packages"
    for name in ("src/mine/deep/part.py", "site-packages/theirs.py", "scripts/server.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x = 1\n")
    (project / "mine" / "deep" / "far.py").write_text("from ..deep import part\n")
    monkeypatch.setattr(sys, "path", [str(project), str(installed), *sys.path])
    (tmp_path / "scripts" / "server.py").write_text("import mine.deep.far, theirs\n")
    watch = Watch(str(tmp_path / "scripts" / "server.py"))
    (installed / "theirs.py").write_text("x = 22\n")
    assert watch.changed() is None
    (project / "mine" / "deep" / "part.py").write_text("x = 22\n")
    assert watch.changed() == str(project / "mine" / "deep" / "part.py")


def test_a_large_import_does_not_keep_a_watch_from_what_is_near(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    monkeypatch.setattr(sys, "path", [str(tmp_path)])  # that of a whole run of tests has many folders to look into
    for name in ("large", "near"):
        (tmp_path / name).mkdir()
    for part in range(10):
        names = ", ".join(f"name_{part}_{number}" for number in range(300))
        (tmp_path / "large" / f"part_{part}.py").write_text(f"import {names}\n")
    (tmp_path / "large" / "__init__.py").write_text("".join(f"from . import part_{part}\n" for part in range(10)))
    (tmp_path / "near" / "__init__.py").write_text("from . import inner\n")
    (tmp_path / "server.py").write_text("import large, near\n")
    watch = Watch(str(tmp_path / "server.py"))
    (tmp_path / "near" / "inner.py").write_text("x = 1\n")
    assert watch.changed() == os.path.join("near", "inner.py")


@pytest.mark.parametrize("installed", [True, False])
def test_a_watch_waits_for_a_change_with_watchfiles_and_without(
    installed: bool, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched: list[tuple[set[Path], bool]] = []
    real = watchfiles.watch

    def watch_folders(*folders: Path, recursive: bool, **options: Any) -> Any:
        watched.append(({*folders}, recursive))
        return real(*folders, recursive=recursive, **options)

    monkeypatch.setattr(watchfiles, "watch", watch_folders)
    if not installed:
        monkeypatch.setitem(sys.modules, "watchfiles", None)
    (file.parent / "parts").mkdir()
    (file.parent / "parts" / "inner.py").write_text("NAME = 1\n")
    file.write_text("import parts.inner\n")
    watch, stop = Watch(str(file)), threading.Event()
    for path in (file, file.parent / "parts" / "inner.py"):
        writer = threading.Timer(0.2, path.write_text, ["import parts.inner  # again\n"])
        writer.start()
        while (changed := watch.changed()) is None:
            watch.wait(stop)
        assert changed == os.fspath(path.relative_to(file.parent))
        writer.join()
    used = [(folders & {file.parent, file.parent / "parts"}, recursive) for folders, recursive in watched]
    assert used == ([({file.parent, file.parent / "parts"}, False)] if installed else [])
    stop.set()
    watch.wait(stop)


def test_a_watch_goes_on_when_a_folder_is_removed(file: Path) -> None:
    (file.parent / "parts").mkdir()
    (file.parent / "parts" / "inner.py").write_text("NAME = 1\n")
    file.write_text("import parts.inner\n")
    watch, stop = Watch(str(file)), threading.Event()
    watch.wait(stop)
    (file.parent / "parts" / "inner.py").unlink()
    (file.parent / "parts").rmdir()
    while (changed := watch.changed()) is None:
        watch.wait(stop)
    assert changed == os.path.join("parts", "inner.py")
    file.write_text("import parts.inner  # again\n")
    while (changed := watch.changed()) is None:
        watch.wait(stop)
    assert changed == "server.py"
