"""The command line, as a process with pipes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from pipes import Piped

import pytest

from linkspan import SyncClient
from linkspan.flows.client_errors import ClientError

HARBOUR = Path(__file__).parent / "harbour.py"
ROOT = Path(__file__).parents[2]
SERVER = """from linkspan import Server

server = Server("versions", version="1")


@server.tool
def version() -> str:
    return "{0}"
"""


def linkspan(*arguments: str | Path, **more: str) -> tuple[int, str, str]:
    """Run a command; return its exit status and what it wrote, which must be UTF-8."""
    done = subprocess.run(
        [sys.executable, "-m", "linkspan", *map(str, arguments)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=100,
        env={**os.environ, **more},
    )
    return done.returncode, done.stdout.decode(), done.stderr.decode()


def version_of(client: SyncClient) -> str:
    """Ask which version serves; none while one is ended in the middle of the call, as without a console on Windows."""
    try:
        return client.call_tool("version", timeout=5).text
    except ClientError:
        return ""


def attempts() -> Iterator[int]:
    """Try again for a while: the old server still answers until it has drained."""
    for number in range(100):
        yield number
        time.sleep(0.2)


def test_list_and_call() -> None:
    status, out, _ = linkspan("list", HARBOUR)
    assert (status, "on_loop" in out) == (0, True)
    assert linkspan("call", HARBOUR, "plain", "text=Łódź ⚓")[:2] == (0, "Łódź ⚓\n")
    status, out, _ = linkspan("call", HARBOUR, "plain", "text=Łódź", "--json")
    assert json.loads(out)["content"][0]["text"] == "Łódź"


def test_a_command_follows_two_dashes() -> None:
    command = [sys.executable, "-m", "linkspan", "run", HARBOUR]
    assert linkspan("call", "plain", "text=Oban", "--", *command)[:2] == (0, "Oban\n")


def test_a_server_of_a_file_and_its_name() -> None:
    assert linkspan("call", f"{HARBOUR}:server", "plain", "text=Oban")[:2] == (0, "Oban\n")


def test_a_server_that_dies_is_reported() -> None:
    status, _, err = linkspan("call", HARBOUR, "die")
    assert status == 4
    assert "exit status 3" in err
    assert "the harbour burns" in err


def test_trace_relays_records_and_ends_with_its_client(tmp_path: Path) -> None:
    transcript = tmp_path / "harbour.transcript"
    command = [sys.executable, "-m", "linkspan", "run", str(HARBOUR)]
    with Piped("trace", "--out", str(transcript), "--", *command) as trace:
        trace.shake_hands()
        text = "a ship " * 30_000
        assert trace.call(1, "plain", text=text) == text
        assert trace.call(2, "on_loop", text="Łódź") == "Łódź"
        trace.hang_up()
        assert trace.end() == 0
        assert "the server ended with exit status 0" in trace.errors
        assert "tools/call" in trace.errors
    with SyncClient(str(transcript)) as client:
        assert client.call_tool("on_loop", {"text": "Łódź"}).text == "Łódź"


def test_a_signal_ends_a_trace_and_its_server() -> None:
    command = [sys.executable, "-m", "linkspan", "run", str(HARBOUR)]
    with Piped("trace", "--", *command) as trace:
        assert trace.call(1, "plain", text="Oban") == "Oban"
        if not trace.interrupt():
            pytest.skip("without a console no process can be interrupted from outside")
        trace.end()
        assert "the server ended" in trace.errors


def test_reload_over_stdio(tmp_path: Path) -> None:
    file = tmp_path / "versions.py"
    file.write_text(SERVER.format("old"))
    with Piped("run", "--reload", str(file)) as server:
        assert server.call(1, "version") == "old"
        file.write_text(SERVER.format("newer"))
        server.wait_for_error("changed: starting again")
        assert server.call(2, "version") == "newer"
        server.hang_up()
        assert server.end() == 0


def test_reload_over_http(tmp_path: Path) -> None:
    file = tmp_path / "versions.py"
    file.write_text(SERVER.format("old"))
    with Piped("run", "--reload", "--http", "--port", "0", str(file)) as server:
        server.wait_for_error("/mcp")
        url = next(word for word in server.errors.split() if word.startswith("http://"))
        with SyncClient(url) as client:
            assert client.call_tool("version").text == "old"
            file.write_text(SERVER.format("newer"))
        with SyncClient(url) as client:
            assert any(version_of(client) == "newer" for _ in attempts())
        server.interrupt() or server.popen.kill()
        server.end()
        with pytest.raises(OSError):
            urllib.request.urlopen(url, timeout=30)


def test_a_server_that_does_not_start_is_replaced_over_http(tmp_path: Path) -> None:
    file = tmp_path / "versions.py"
    file.write_text(SERVER.format("old"))
    with Piped("run", "--reload", "--http", "--port", "0", str(file)) as server:
        server.wait_for_error("/mcp")
        url = next(word for word in server.errors.split() if word.startswith("http://"))
        for version in ("second", "third"):
            file.write_text("not Python")
            assert any(status_of(url) == 503 for _ in attempts())
            file.write_text(SERVER.format(version))
            assert any(status_of(url) == 405 for _ in attempts())
            with SyncClient(url) as client:
                assert client.call_tool("version").text == version
        server.popen.kill()
        server.end()


def status_of(url: str) -> int:
    """Ask for the URL as no client does; 0 where the connection ends, as it may between two servers."""
    try:
        with urllib.request.urlopen(url, timeout=5) as response:
            return int(response.status)
    except urllib.error.HTTPError as refusal:
        refusal.close()
        return refusal.code
    except OSError:
        return 0


def test_chat_with_a_script(tmp_path: Path) -> None:
    script = tmp_path / "script.jsonl"
    lines = [{"say": "I look.", "call": {"name": "plain", "arguments": {"text": "Łódź"}}}, {"say": "It is {last}."}]
    script.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    home = {"LINKSPAN_HOME": str(tmp_path / "home")}
    status, out, err = linkspan("chat", HARBOUR, "--model", f"scripted:{script}", "--yes", "-p", "Where?", **home)
    assert (status, "Łódź" in out) == (0, True), err


@pytest.mark.parametrize("host", ["claude-desktop", "vscode", "cursor", "codex", "zed"])
def test_what_is_installed_starts(host: str, tmp_path: Path) -> None:
    from linkspan.client.config import read_config

    home = {"HOME": str(tmp_path), "USERPROFILE": str(tmp_path), "APPDATA": str(tmp_path / "AppData" / "Roaming")}
    status, out, err = linkspan("install", host, f"{HARBOUR}:server", "--yes", "--json", **home)
    assert status == 0, err
    path = Path(json.loads(out)["path"])
    assert path.is_relative_to(tmp_path.resolve())
    with SyncClient(read_config(path)["harbour"]) as client:
        assert client.call_tool("plain", {"text": "Oban"}).text == "Oban"
    status, _, err = linkspan("install", host, f"{HARBOUR}:server", "--name", "other", "--yes", **home)
    assert status == 0, err


def test_a_command_is_installed_with_its_whole_path(tmp_path: Path) -> None:
    home = {"HOME": str(tmp_path), "USERPROFILE": str(tmp_path)}
    folder = tmp_path / "bin"
    folder.mkdir()
    launcher = folder / ("launch.cmd" if os.name == "nt" else "launch")
    launcher.write_text("@echo off\r\n" if os.name == "nt" else "#!/bin/sh\n")
    launcher.chmod(0o755)
    path = os.pathsep.join([str(folder), os.environ["PATH"]])
    status, out, err = linkspan("install", "cursor", "--dry-run", "--json", "--", "launch", "x", **home, PATH=path)
    assert status == 0, err
    assert os.path.normcase(launcher) in os.path.normcase(json.loads(out)["difference"]).replace("\\\\", "\\")


def test_a_new_project_answers(tmp_path: Path) -> None:
    status, _, err = linkspan("init", tmp_path / "quay")
    assert status == 0, err
    servers = [each for each in (tmp_path / "quay").rglob("*.py") if "= Server(" in each.read_text("utf-8")]
    assert [linkspan("list", each)[0] for each in servers] == [0]
