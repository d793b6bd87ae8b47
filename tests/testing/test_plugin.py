"""The plugin of pytest: fixtures for the server of a project, its contract, and results that are kept."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

SERVER = '''
from linkspan import Server

server = Server("ferries")


@server.tool
def book(seats: int = 1) -> dict[str, str]:
    """Book seats on a ferry."""
    return {"seats": str(seats), "id": "0b0e7b0e-0000-4000-8000-00000000000a", "at": "2026-11-24T10:00:00Z"}
'''
TESTS = """
import asyncio

def test_sync(mcp):
    assert mcp.call_tool("book").structured["seats"] == "1"

def test_async(amcp):
    async def main():
        return (await amcp.call_tool("book", {"seats": 2})).structured["seats"]
    assert asyncio.run(main()) == "2"

def test_contract(mcp_lock):
    mcp_lock()

def test_result(mcp, mcp_snapshot):
    mcp_snapshot(mcp.call_tool("book", {"seats": 3}))
    mcp_snapshot([1, "127.0.0.1:8000"])
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "ferries.py").write_text(SERVER)
    (tmp_path / "test_ferries.py").write_text(TESTS)
    (tmp_path / "pytest.ini").write_text("[pytest]\nlinkspan_target = ferries.py\n")
    return tmp_path


def run(project: Path, *options: str, alone: bool = True, **environment: str) -> tuple[int, str]:
    """Run the tests of a project in a process of their own; return the exit status and what was printed.

    `alone` leaves out the plugins that are installed, among which pytest would find ours, too.
    """
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--no-header"]
    command += ["-p", "linkspan.testing.plugin"] if alone else []
    env = {
        key: value for key, value in os.environ.items() if key != "CI" and not key.startswith("PYTEST")
    } | environment
    env |= {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"} if alone else {}
    done = subprocess.run(
        [*command, *options], cwd=project, capture_output=True, text=True, timeout=100, env=env, check=False
    )
    return done.returncode, done.stdout + done.stderr


def test_the_first_run_writes_and_later_ones_compare(project: Path) -> None:
    status, text = run(project, "-k", "contract or result", CI="1")
    assert (status, "tools.lock is not written in CI" in text, "2 failed" in text) == (1, True, True)
    assert run(project)[0] == 0
    kept = (project / "__snapshots__" / "test_ferries-test_result-1.json").read_text()
    assert ('"id": "<uuid>"' in kept, '"at": "<time>"' in kept) == (True, True)
    assert (project / "__snapshots__" / "test_ferries-test_result-2.json").read_text() == '[\n  1,\n  "<loopback>"\n]\n'
    server = project / "ferries.py"
    server.write_text(
        SERVER.replace("seats: int = 1", "date: str = '', seats: int = 1", 1).replace("str(seats)", "str(-seats)")
    )
    assert "1 skipped" in run(project, "--linkspan-lock=off", "-k", "contract")[1]
    server.write_text(server.read_text().replace("date: str = ''", "date: str"))
    status, text = run(project, "-n", "2", "-k", "contract or async", alone=False)
    assert status == 1
    assert "BREAKING  tool book: argument date: is new and required  [C03]" in text
    assert "if that is intended: pytest --linkspan-lock=update" in text
    server.write_text(SERVER.replace("str(seats)", "str(-seats)"))
    status, text = run(project, "-k", "result")
    assert (status, '+    "seats": "-3",' in text) == (1, True), text
    assert run(project, "--linkspan-snapshot=update", "--linkspan-lock=update", "-k", "result or contract")[0] == 0
    assert '"-3"' in (project / "__snapshots__" / "test_ferries-test_result-1.json").read_text()


CRASHES = """
from linkspan import Server, SyncClient

def test_elsewhere(mcp):
    assert not mcp.call_tool("sink").is_error

def test_here():
    server = Server("here")

    @server.tool
    def sail() -> str:
        return {}["wind"]

    with SyncClient(server) as client:
        assert not client.call_tool("sail").is_error
"""


def test_a_test_that_fails_shows_the_lines_of_the_author_that_crashed(project: Path) -> None:
    (project / "ferries.py").write_text(SERVER + "\n\n@server.tool\ndef sink() -> str:\n    return str(1 / 0)\n")
    (project / "test_ferries.py").write_text(CRASHES)
    status, text = run(project, "--show-capture=no")
    assert (status, "2 failed" in text) == (1, True)
    assert "incident" not in text.replace("(incident", ""), "what is captured is shown together, or not at all"
    status, text = run(project)
    elsewhere, here = text.split("___ test_here ___")
    for shown, line, what in (
        (elsewhere, "return str(1 / 0)", "ZeroDivisionError: division by zero"),
        (here, 'return {}["wind"]', "KeyError: 'wind'"),
    ):
        (section,) = re.findall(r"^-+ incident ([0-9A-F]{6}) -+$\n((?:(?!-{9}).*\n)*)", shown, re.MULTILINE)
        incident, lines = section
        assert f"(incident {incident})" in lines
        assert lines.index(line) < lines.index(what)
        assert "linkspan/" not in lines, "the frames of Linkspan are left out"


def test_a_project_without_a_target_is_told_what_to_write(project: Path) -> None:
    (project / "pytest.ini").write_text("[pytest]\n")
    status, text = run(project, "-k", "sync")
    assert (status, "name the server to test in the configuration of pytest: linkspan_target = server.py" in text) == (
        1,
        True,
    )


def test_the_plugin_loads_nothing_until_it_is_used() -> None:
    loaded = "import sys, linkspan.testing.plugin; print(sorted(each for each in sys.modules if each.startswith('linkspan')))"
    done = subprocess.run([sys.executable, "-c", loaded], capture_output=True, text=True, check=True)
    assert (
        done.stdout
        == "['linkspan', 'linkspan._version', 'linkspan.loading', 'linkspan.testing', 'linkspan.testing.plugin']\n"
    )


def test_what_the_protocol_requires_is_a_test_each(project: Path) -> None:
    status, shown = run(project, "--linkspan-check", "-rx", "-k", "TOOL-2 or TOOL-6 or MSG-11 or TOOL-5")
    assert status == 0
    assert "6 passed, 2 skipped" in shown
    (project / "ferries.py").write_text(SERVER.replace('    """Book seats on a ferry."""\n', ""))
    status, shown = run(project, "--linkspan-check", "-rx", "-k", "TOOL-11")
    assert status == 0
    assert "2 xfailed" in shown
    assert "the tool 'book' has none" in shown
    (project / "ferries.py").write_text("import no_such_module")
    status, shown = run(project, "--linkspan-check", "-k", "MSG-11")
    assert status == 1
    assert "no_such_module" in shown
