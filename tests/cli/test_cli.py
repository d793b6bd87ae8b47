"""The command line, as a person types it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from linkspan import SyncClient


def linkspan(*arguments: str, given: str = "") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "linkspan", *arguments]
    return subprocess.run(command, input=given, capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize(
    ("source", "wanted", "says"),
    [
        ("x = 1", "", "has no Server: write `server = linkspan.Server(...)`"),
        ("from linkspan import Server; a = Server('a'); b = Server('b')", "", "has several Servers (a, b): name one"),
        ("from linkspan import Server; a = Server('a')", ":b", "has no Server named 'b'"),
    ],
)
def test_run_says_what_is_missing_in_the_file(tmp_path: Path, source: str, wanted: str, says: str) -> None:
    file = tmp_path / "file.py"
    file.write_text(source)
    done = linkspan("run", f"{file}{wanted}")
    assert done.returncode == 2
    assert says in done.stderr
    assert done.stdout == ""


def test_run_says_that_a_file_is_not_there() -> None:
    done = linkspan("run", "nothing.py")
    assert (done.returncode, done.stderr) == (2, "linkspan run: there is no file 'nothing.py'\n")


def test_a_file_that_fails_shows_its_own_traceback_only(tmp_path: Path) -> None:
    file = tmp_path / "broken.py"
    file.write_text("print('hello')\nimport no_such_module\n")
    done = linkspan("run", str(file))
    assert done.returncode == 1
    assert done.stdout == ""
    assert "No module named 'no_such_module'" in done.stderr
    assert "importlib" not in done.stderr


def test_run_keeps_what_the_file_prints_off_the_wire(tmp_path: Path) -> None:
    file = tmp_path / "chatty.py"
    file.write_text(
        "import os\nprint('loading')\nos.system('echo from a child')\nfrom linkspan import Server\nserver = Server('s')\n"
    )
    done = linkspan("run", str(file), given='{"jsonrpc":"2.0","id":1,"method":"ping"}\n')
    assert [json.loads(line) for line in done.stdout.splitlines()] == [{"jsonrpc": "2.0", "id": 1, "result": {}}]
    assert "loading" in done.stderr
    assert "chatty.py:2" in done.stderr
    assert "from a child" in done.stderr


ARGUMENTS = """
import argparse, sys
from linkspan import Server
parser = argparse.ArgumentParser()
parser.add_argument("--unit", default="km")
given = parser.parse_args()
server = Server("distances")
@server.tool
def unit() -> str:
    return f"{sys.argv[0]} {given.unit}"
"""


@pytest.mark.parametrize("options", [(), ("--reload",)], ids=["plain", "reload"])
@pytest.mark.parametrize(("more", "unit"), [((), "km"), (("--", "--unit", "mile"), "mile")])
def test_a_file_finds_its_own_arguments_in_sys_argv(
    tmp_path: Path, options: tuple[str, ...], more: tuple[str, ...], unit: str
) -> None:
    file = tmp_path / "distances.py"
    file.write_text(ARGUMENTS)
    with SyncClient([sys.executable, "-m", "linkspan", "run", *options, str(file), *more]) as client:
        assert client.call_tool("unit").text == f"{file} {unit}"


def test_two_servers_of_one_name_in_a_file_are_one(tmp_path: Path) -> None:
    file = tmp_path / "same.py"
    file.write_text("from linkspan import Server\nserver = Server('s')\napp = server\n")
    done = linkspan("run", str(file), given='{"jsonrpc":"2.0","id":1,"method":"ping"}\n')
    assert done.returncode == 0
    assert done.stdout


@pytest.mark.parametrize("name", ["server", "mcp", "app"])
def test_of_several_servers_the_one_with_the_usual_name_is_served(tmp_path: Path, name: str) -> None:
    (tmp_path / "parts.py").write_text("from linkspan import Server\nbilling = Server('billing')\n")
    file = tmp_path / "big.py"
    file.write_text(f"from linkspan import Server\nfrom parts import billing\n{name} = Server('big')\n")
    with SyncClient([sys.executable, "-m", "linkspan", "run", str(file)]) as client:
        client.list_tools()
        assert client.server_info is not None
        assert client.server_info.name == "big"


def test_help_and_version() -> None:
    assert "run" in linkspan("--help").stdout
    assert linkspan("--version").stdout.startswith("linkspan ")
    alone = linkspan()
    assert (alone.returncode, alone.stdout) == (0, linkspan("--help").stdout)
    assert linkspan("--no-such-option").returncode == 2
    assert linkspan("nonsense").returncode == 2
    assert "FILE[:OBJECT]" in linkspan("run", "--help").stdout
