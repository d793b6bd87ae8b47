"""`linkspan dev` at a terminal: its lines, its keys and its exit status. What the page does: tests/workbench."""

from __future__ import annotations

from pathlib import Path

import pytest
from shell import DICE, Shell, at_terminal

QUIET = ("--no-open", "--no-history", "--port", "0")


def test_a_person_sees_the_address_restarts_and_quits() -> None:
    with at_terminal("dev", DICE, *QUIET) as terminal:
        terminal.expect("http://127.0.0.1:")
        terminal.expect("dice.py")
        terminal.expect("dice 1.0.0, 2026-07-28, 1 tool, 1 template, 1 prompt, ~")
        terminal.type("r")
        terminal.expect("you asked for it: restarted in ")
        terminal.type("what?")
        terminal.expect("o open   q quit")
        terminal.type("e")
        terminal.expect("with a handshake: restarted in ")
        terminal.type("q")
        assert terminal.end() == 0


def test_a_file_over_http_is_a_target_too() -> None:
    with at_terminal("dev", "--http", DICE, *QUIET) as terminal:
        terminal.expect("dice 1.0.0, 2026-07-28")
        terminal.press("\x03")
        assert terminal.end() == 130


def test_what_cannot_be_reached_ends_it(linkspan: Shell) -> None:
    done = linkspan("dev", *QUIET, "--timeout", "2", "http://127.0.0.1:9/mcp")
    assert done.status == 3
    assert "127.0.0.1:9" in done.err


def test_without_a_target_the_only_server_here_is_meant(
    linkspan: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert "it has no file with a Server" in linkspan("dev").err
    for name in ("one.py", "two.py"):
        (tmp_path / name).write_text("from linkspan import Server\nserver = Server('x')\n")
    done = linkspan("dev", *QUIET)  # the value of an option is no target
    assert (done.status, "it has one.py, two.py" in done.err) == (2, True)
    assert linkspan("dev", "--http", "https://example.com/mcp").status == 2
