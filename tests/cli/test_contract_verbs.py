"""`linkspan lock` and `linkspan diff`: what is written and printed, and the exit status."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from shell import Shell

SERVER = '''
from linkspan import Server

server = Server("ferries")


@server.tool
def book(seats: int = 1) -> str:
    """Book seats on a ferry."""
    return "booked"
'''

SECOND = '''

@server.tool("BOOK")
def again() -> str:
    """Reserve a whole ferry for a day."""
    return ""
'''


@pytest.fixture(autouse=True)
def folder(tmp_path: Path) -> Iterator[Path]:
    """Work in a folder with a server and its lock."""
    before = Path.cwd()
    os.chdir(tmp_path)
    Path("ferries.py").write_text(SERVER)
    yield tmp_path
    os.chdir(before)


def change(old: str, new: str) -> None:
    Path("ferries.py").write_text(Path("ferries.py").read_text().replace(old, new))


def test_a_lock_is_written_and_nothing_has_changed(linkspan: Shell) -> None:
    assert linkspan("lock", "ferries.py") == (0, "tools.lock: 1 tool, ~38 tokens\n", "")
    assert linkspan("diff", "tools.lock", "ferries.py") == (0, "ferries: nothing changed; list ~38 tokens\n", "")
    assert linkspan("lock", "ferries.py", "-o", "-").out == Path("tools.lock").read_text()


def test_a_change_that_breaks_clients_is_an_exit_status(linkspan: Shell) -> None:
    linkspan("lock", "ferries.py")
    change("seats: int = 1", "date: str, seats: int = 1")
    change("Book seats on a ferry", "Book a ferry")
    done = linkspan("diff", "tools.lock", "ferries.py")
    assert (done.status, done.err) == (1, "")
    assert done.out == (
        "BREAKING  tool book: argument date: is new and required  [C03]\n"
        "RISKY     tool book: its description changed  [C31]\n"
        "             - Book seats on a ferry.\n"
        "             + Book a ferry.\n"
        "RISKY     the server: its tools take ~47 tokens instead of ~38 tokens  [C35]\n"
        "ferries: 1 breaking, 2 risky, 0 additive; list ~38 -> ~47 tokens (+24%)\n"
    )
    as_json = linkspan("diff", "tools.lock", "ferries.py", "--json").json
    assert [(each["level"], each["code"]) for each in as_json["changes"]] == [
        ("breaking", "C03"),
        ("risky", "C31"),
        ("risky", "C35"),
    ]
    assert linkspan("diff", "tools.lock", "ferries.py", "--markdown").out.startswith("### Contract of `ferries`\n")


def test_what_fails_can_be_more_or_be_a_number_of_tokens(linkspan: Shell) -> None:
    linkspan("lock", "ferries.py")
    change("Book seats on a ferry", "Book a ferry")
    assert linkspan("diff", "tools.lock", "ferries.py").status == 0
    assert linkspan("diff", "tools.lock", "ferries.py", "--fail-on", "risky").status == 1
    done = linkspan("diff", "tools.lock", "ferries.py", "--max-tokens", "20")
    assert (done.status, done.out.splitlines()[-1]) == (1, "its tools take ~36 tokens, more than 20")


def test_each_side_may_be_a_server_a_command_a_lock_or_a_lock_in_git(linkspan: Shell) -> None:
    linkspan("lock", "ferries.py")
    for command in ("init -q", "add tools.lock", "-c user.name=a -c user.email=a@b commit -qm lock"):
        subprocess.run(["git", *shlex.split(command)], check=True)
    Path("old.py").write_text(SERVER)
    change("def book", "def reserve")
    gone = "BREAKING  tool book: is called reserve now  [C01]\n"
    for old in ("old.py", "git:HEAD:tools.lock", "tools.lock"):
        done = linkspan("diff", old, "ferries.py")
        assert (done.status, done.out.splitlines(keepends=True)[0]) == (1, gone)
    assert linkspan("diff", "tools.lock", "--", sys.executable, "-m", "linkspan", "run", "ferries.py").out.startswith(
        gone
    )
    assert linkspan("diff", "ferries.py", "tools.lock").out.startswith("BREAKING  tool reserve: is called book now")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["tools.lock"], "give two: what was, and what is"),
        (["nix.lock", "ferries.py"], "there is no file nix.lock: write it with `linkspan lock`"),
        (["bad.lock", "ferries.py"], "bad.lock, line 1 is not JSON"),
        (["git:tools.lock", "ferries.py"], "write git:REVISION:FILE"),
        (["git:--help:tools.lock", "ferries.py"], "write git:REVISION:FILE"),
        (["git:HEAD:tools.lock", "ferries.py"], "git:HEAD:tools.lock: fatal"),
    ],
)
def test_what_cannot_be_compared_is_a_wrong_command_line(linkspan: Shell, arguments: list[str], words: str) -> None:
    Path("bad.lock").write_text("tools")
    done = linkspan("diff", *arguments)
    assert (done.status, words in done.err) == (2, True), done.err


def test_a_server_that_does_not_start_is_not_a_change(linkspan: Shell) -> None:
    linkspan("lock", "ferries.py")
    change("Server(", "Sever(")
    assert linkspan("diff", "tools.lock", "ferries.py").status == 3
    assert linkspan("lock", "ferries.py", "-o", "no/folder.lock").status in (2, 3)


def test_lint_names_the_line_and_fails_for_errors(linkspan: Shell) -> None:
    change("seats: int = 1", "seats: int = 1, ports: list[str] = []")
    done = linkspan("lint", "ferries.py")
    assert (done.status, done.err) == (0, "")
    assert "ferries.py:8 book: advice L21: argument seats: no description\n" in done.out
    assert done.out.endswith("ferries: 2 advice\n")
    change("@server.tool", "@server.tool  # linkspan: ignore[L21]")
    Path("ferries.py").write_text(Path("ferries.py").read_text() + SECOND)
    done = linkspan("lint", "ferries.py", "--for", "claude")
    assert (done.status, "argument seats" in done.out) == (1, False)
    assert "ferries.py:14 BOOK: error L08: hosts may take it for 'book'" in done.out
    assert linkspan("lint", "ferries.py", "--ignore", "L08").status == 0
    Path("pyproject.toml").write_text('[tool.linkspan.lint]\nfor = ["directory"]\nignore = ["L08", "L31"]\n')
    assert [each["code"] for each in linkspan("lint", "ferries.py", "--json").json["findings"]] == ["L30"] * 2
    assert linkspan("lint", "ferries.py", "--strict").status == 1
    Path("pyproject.toml").write_text('[tool.linkspan.lint]\nignore = ["L99"]\n')
    assert "--ignore: there is no 'L99'" in linkspan("lint", "ferries.py").err


def test_stubs_are_written_for_both_clients(linkspan: Shell) -> None:
    assert linkspan("stubs", "ferries.py", "-o", "api.py") == (0, "api.py: 1 tool, ~38 tokens\n", "")
    assert "class Ferries:" in Path("api.py").read_text()
    assert "    async def book(self" in linkspan("stubs", "ferries.py", "--async", "--class", "Boats").out
    assert linkspan("stubs", "ferries.py", "--class", "a b").status == 2
