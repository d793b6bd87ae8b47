"""`linkspan run --reload`: the source changes, the client stays."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from pipes import Piped

import pytest

from linkspan.cli.watching import Watch

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


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "server.py"
    path.write_text(source("'one'"))
    return path


def ended(status: int) -> str:
    return f"the server ended with exit status {status}; its stderr says why. A change to its source starts it again"


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
        file.write_text(source("'two'"))
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
        file.write_text(source("'two'"))
        error = {"code": -32603, "message": "the server was restarted because its source changed; call again"}
        assert client.read() == {"jsonrpc": "2.0", "id": 1, "error": error}
        assert client.read() == {"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}
        client.send(id=1, method="tools/call", params={"name": "which", "arguments": {}})
        assert client.read()["result"]["content"][0]["text"] == "two"


def test_code_that_does_not_start_is_said_and_the_next_change_is_tried(file: Path) -> None:
    with Piped("run", "--reload", str(file)) as client:
        listen(client)
        file.write_text("this is no Python")
        client.wait_for_error("SyntaxError")
        client.ask(1, "tools/list")
        assert client.read()["error"] == {"code": -32603, "message": ended(1)}
        file.write_text(source("'three'"))
        assert client.read() == CHANGED
        assert client.call(2, "which") == "three"


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
        (package / "inner.py").write_text("NAME = 'two'\n")
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
    for name in ("beside.py", "later/__init__.py", "later/part.py", "sub/thing.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("x = 1\n")
        assert watch.changed() == name.replace("/", os.sep)
    (tmp_path / "beside.py").unlink()
    assert watch.changed() == "beside.py"
    (tmp_path / "data.txt").write_text("x")
    (tmp_path / ".#server.py").write_text("x")
    assert watch.changed() is None
    file.write_text("def broken(")
    assert watch.changed() == "server.py"
    (tmp_path / "later" / "part.py").unlink()
    assert watch.changed() == os.path.join("later", "part.py"), "what it imported before is still watched"
