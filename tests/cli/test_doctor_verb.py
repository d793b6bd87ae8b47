"""`linkspan doctor`: what is printed, and the exit status."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from shell import DICE, Shell


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_server_that_is_well_is_told_so(linkspan: Shell) -> None:
    done = linkspan("doctor", DICE, "--as", "claude-code")
    assert (done.status, done.err) == (0, "")
    assert done.out == "dice\n0 faults, 0 warnings, 16 ok, 1 skipped\n"
    assert "ok    D28" in linkspan("doctor", DICE, "--as", "claude-code", "-v").out


def test_a_tool_that_is_named_is_called(linkspan: Shell) -> None:
    done = linkspan("doctor", DICE, "--as", "claude-code", "--call", 'roll={"sides": 6}', "-v")
    assert (done.status, "ok    D49" in done.out) == (0, True), done


def test_faults_are_an_exit_status_and_reports_for_programs_and_issues(linkspan: Shell, home: Path) -> None:
    (home / "loud.py").write_text("print('hello')\nimport nothing_of_this_name\n")
    done = linkspan("doctor", "python loud.py", "--cwd", str(home), "--as", "claude-code")
    assert done.status == 3
    assert (
        "FAULT D34 the command ends before it answers, for lack of a module or another fault: it ended with "
        '"ModuleNotFoundError: No module' in done.out
    )
    assert "          do: install nothing_of_this_name into the Python of the command" in done.out
    verdicts = json.loads(
        linkspan("doctor", "python loud.py", "--cwd", str(home), "--as", "claude-code", "--json").out
    )["verdicts"]
    assert [each["id"] for each in verdicts if each["level"] == "fault"] == ["D34"]
    assert "| fault | D34: " in linkspan("doctor", "python loud.py", "--cwd", str(home), "--markdown").out


def test_hosts_are_read_and_nothing_is_started(linkspan: Shell, home: Path) -> None:
    assert linkspan("doctor") == (0, "no faults in the configuration of the hosts on this machine\n", "")
    file = home / ".cursor" / "mcp.json"
    file.parent.mkdir()
    file.write_text(json.dumps({"servers": {"a": {"command": "touch", "args": [str(home / "started")]}}}))
    done = linkspan("doctor", "cursor")
    assert done.status == 1
    assert 'mcp.json has "servers", and Cursor reads "mcpServers"' in done.out
    assert 'do: call the section "mcpServers"' in linkspan("doctor").out
    assert not (home / "started").exists()
    assert "--start asks before it runs a command" in linkspan("doctor", "cursor", "--start").err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["server.py", "--as", "claud-ai"], "there is no host 'claud-ai' (did you mean 'claude-ai'?)"),
        (["server.py", "--profile", "none.toml"], "none.toml: "),
        (["ftp://example.com"], "ftp"),
        (["server.py", "--header", "Authorization"], "--header must be followed by NAME:VALUE"),
        (["server.py", "--call", "roll={"], "--call must be followed by NAME or NAME=JSON"),
    ],
)
def test_a_wrong_command_line(linkspan: Shell, arguments: list[str], words: str) -> None:
    done = linkspan("doctor", *arguments)
    assert (done.status, words in done.err) == (2, True), done
