"""Servers that cannot be started, or do not speak: the error names the reason, and says what to do."""

from __future__ import annotations

import asyncio
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import pytest
from faces import FACES, outcome
from wild import gone, wild

from linkspan import Client, ConnectError, SyncClient, Timeouts
from linkspan.client.targets import UnusableTarget

IMPATIENT = Timeouts(connect=0.6, probe=0.2, close=0.3)
HEARD = Timeouts(connect=3.0, probe=0.2, close=0.3)
"""For what a server writes before it falls silent."""
MUTE: dict[str, Any] = {"server/discover": [], "initialize": []}


def failure(face: str, target: Any, **options: Any) -> ConnectError:
    """Connect, and return what comes of it."""
    with pytest.raises(ConnectError) as caught:
        outcome(face, target, lambda client: client.ping(), **options)
    error = caught.value
    assert isinstance(error, ConnectionError)
    assert error.__cause__ is None  # one error, flat
    assert error.delivery == "not_sent"
    return error


@pytest.mark.parametrize("face", FACES)
@pytest.mark.parametrize(
    ("command", "problem", "hint"),
    [
        (["no-such-command"], "the command 'no-such-command' was not found", "not on the PATH of the server"),
        (["/no/such/server", "--fast"], "the command '/no/such/server' was not found", "there is no file"),
        (["npx-", "-y"], "the command 'npx-' was not found", "not on the PATH"),
        (
            ["python server.py"],
            "the command 'python server.py' was not found",
            "write a command with arguments as a list",
        ),
    ],
)
def test_a_command_that_is_not_there(face: str, command: list[str], problem: str, hint: str) -> None:
    error = failure(face, command)
    assert (error.phase, error.problem) == ("spawn", problem)
    assert hint in (error.hint or "")
    assert str(error).startswith(f"{error.server}: {problem}\n  command: ")


@pytest.mark.parametrize(
    ("command", "where"), [("npx", "nodejs.org"), ("uvx", "docs.astral.sh/uv"), ("docker", "install and start Docker")]
)
def test_a_launcher_that_is_not_there_is_told_where_to_get(command: str, where: str) -> None:
    assert where in (failure("sync", [command, "x"], env={"PATH": "/nowhere"}).hint or "")


def test_a_directory_that_is_not_there() -> None:
    error = failure("sync", [sys.executable], cwd="/no/such/place")
    assert error.problem == "there is no directory '/no/such/place' to start it in"
    assert (error.phase, error.hint) == ("spawn", "give another cwd [LS-104]")


def test_a_file_that_may_not_be_executed(tmp_path: Path) -> None:
    (tmp_path / "server").write_text("#!/bin/sh\n")
    error = failure("sync", [str(tmp_path / "server")])
    assert "is not executable" in error.problem
    assert "chmod +x" in (error.hint or "")


def test_a_python_file_that_is_not_there_is_no_target() -> None:
    with pytest.raises(UnusableTarget, match=r"'nowhere\.py' cannot be read: No such file or directory"):
        SyncClient("nowhere.py")


def test_a_path_that_is_wrong_for_the_interpreter(tmp_path: Path) -> None:
    error = failure("sync", [sys.executable, "nowhere.py"], cwd=tmp_path)
    assert error.problem == "the server ended with exit status 2 before it sent a message"
    assert error.exit_code == 2
    assert "there is no file `" in (error.hint or "")
    assert "nowhere.py`: the path is relative to the directory in which the server starts [LS-110]" in (
        error.hint or ""
    )


BROKEN = {
    "a missing module": ("import sunshine\n", "ModuleNotFoundError: No module named 'sunshine'", "`sunshine` is not installed"),
    "another SDK": (
        "import sys\nsys.exit(\"ModuleNotFoundError: No module named 'mcp.server.fastmcp'\")\n",
        "ModuleNotFoundError: No module named 'mcp.server.fastmcp'",
        "put `linkspan exec` in front of its command",
    ),
    "a missing name": ("from json import jsn\n", "ImportError: cannot import name 'jsn'", "`json` has no `jsn`"),
    "a syntax error": ("def f(:\n    pass\n", "SyntaxError: invalid syntax", "the server's code has a syntax error"),
    "a missing variable": ("import os\nos.environ['MY_API_KEY']\n", "KeyError: 'MY_API_KEY'", 'pass env={"MY_API_KEY": ...}'),
}  # fmt: skip


@pytest.mark.parametrize(("ours", "face"), [(False, "sync"), (True, "async")], ids=["plain", "linkspan"])
@pytest.mark.parametrize("name", BROKEN)
def test_a_file_that_crashes_at_its_start(name: str, ours: bool, face: str, tmp_path: Path) -> None:
    code, last_line, hint = BROKEN[name]
    file = tmp_path / "server.py"
    file.write_text(code + ("from linkspan import Server\n" if ours else ""))
    error = failure(face, file)
    assert error.problem == "the server ended with exit status 1 before it sent a message"
    assert (error.phase, error.exit_code, error.signal) == ("negotiate", 1, None)
    assert error.stderr.rstrip().splitlines()[-1].startswith(last_line)
    assert hint in (error.hint or "")
    assert f"  stderr: {last_line}" in str(error)
    assert f"  hint: {error.hint}" in str(error)
    assert str(file) in (error.command or "")


def test_only_the_end_of_a_long_story_is_shown(tmp_path: Path) -> None:
    file = tmp_path / "server.py"
    file.write_text("import sys\nfor n in range(20000): print('line', n, file=sys.stderr)\nsys.exit(1)\n")
    error = failure("sync", file)
    assert len(error.stderr) <= 64 * 1024
    assert len(str(error).splitlines()) < 16
    assert "  stderr: line 19999" in str(error)


def test_secrets_are_not_told() -> None:
    plan = {"start": [{"stderr": "bad token s3cr3t-t0k3n"}, {"exit": 1}]}
    error = failure("sync", [*wild(plan)[:-1], wild(plan)[-1]], env={"TOKEN": "s3cr3t-t0k3n"})
    assert "s3cr3t-t0k3n" not in str(error)
    assert "bad token [redacted]" in str(error)


@pytest.mark.parametrize("face", FACES)
def test_a_server_that_never_answers(face: str) -> None:
    began = time.monotonic()
    error = failure(face, wild(MUTE), timeouts=IMPATIENT)
    assert 0.5 < time.monotonic() - began < 20
    assert error.problem == "the server answered neither a probe nor a handshake within 0.6 s (timeouts.connect)"
    assert error.phase == "negotiate"
    assert error.hint == (
        "it runs but sends nothing: check that it is a stdio server, or raise timeouts.connect [LS-120]"
    )


def test_a_server_that_neither_answers_nor_ends_is_ended() -> None:
    plan = MUTE | {"start": [{"deaf": 1}, {"stderr": "process $PID"}], "end": [{"sleep": 60}]}
    error = failure("sync", wild(plan), timeouts=HEARD)
    pid = int(error.stderr.removeprefix("process "))
    assert gone({pid})


def test_the_bound_that_was_passed_is_the_one_that_was_given() -> None:
    assert failure("sync", wild(MUTE), timeouts=IMPATIENT).seconds == IMPATIENT.connect


def test_a_server_that_speaks_http_is_recognised() -> None:
    said = "INFO:     Uvicorn running on http://127.0.0.1:8000 (Press CTRL+C to quit)"
    error = failure("sync", wild(MUTE | {"start": [{"stderr": said}]}), timeouts=HEARD)
    assert error.hint == (
        "the server speaks HTTP at http://127.0.0.1:8000: connect to that URL, or start it with stdio [LS-113]"
    )


@pytest.mark.parametrize("face", FACES)
@pytest.mark.parametrize(
    "junk", [["Starting up..."], ["{", "[1,2", '"x"', "null", "{}"], [{"bytes": "fffe000a0a0d0a"}, "  "]]
)
def test_junk_before_the_first_message_does_no_harm(face: str, junk: list[Any]) -> None:
    result = outcome(face, wild({"start": junk}), lambda client: client.call_tool("hi"))
    assert result.text == "hi"


@pytest.mark.parametrize("ending", [MUTE, {"server/discover": [{"exit": 0}], "initialize": [{"exit": 0}]}])
def test_junk_instead_of_messages_is_named(ending: dict[str, Any]) -> None:
    error = failure("sync", wild(ending | {"start": ["Starting up..."]}), timeouts=HEARD)
    assert error.hint == (
        "the server printed `Starting up...` on stdout, which is for messages only: print to stderr instead "
        "(a Linkspan server does this by itself) [LS-116]"
    )


def test_a_linkspan_server_that_prints_is_no_problem(tmp_path: Path) -> None:
    file = tmp_path / "chatty.py"
    file.write_text(
        textwrap.dedent("""
        print("Starting up...")
        from linkspan import Server
        server = Server("chatty")

        @server.tool
        def hi() -> str:
            print("somebody calls")
            return "hi"
        """)
    )
    assert outcome("sync", file, lambda client: client.call_tool("hi")).text == "hi"


def test_a_failed_start_is_forgotten_when_the_reason_is_gone(tmp_path: Path) -> None:
    file = tmp_path / "server.py"
    file.write_text("import sunshine\n")
    client = SyncClient([sys.executable, str(file)])
    with pytest.raises(ConnectError):
        client.list_tools()
    file.write_text("from linkspan import Server\nServer('late').run()\n")
    assert client.list_tools() == []
    client.close()


@pytest.mark.parametrize(
    ("target", "sentence"),
    [
        ("htp://x", r"'htp://x' has the scheme 'htp': the URL of a server begins with http:// or https://"),
        ("ws://localhost:80/mcp", r"'ws://localhost:80/mcp' has the scheme 'ws'"),
        ("localhost:8000/mcp", r"is a URL without a scheme: write 'http://localhost:8000/mcp' or 'https://localhost"),
        ("example.com:443", r"'example\.com:443' is a URL without a scheme"),
        ("[::1]:8000/mcp", r"is a URL without a scheme"),
    ],
)
def test_what_was_meant_as_a_url_is_not_taken_for_a_command(target: str, sentence: str) -> None:
    with pytest.raises(UnusableTarget, match=sentence):
        SyncClient(target)


def test_deadlines_are_timeouts() -> None:
    with pytest.raises(ValueError, match=r"timeouts must be Timeouts, such as Timeouts\(call=5\.0\), got 5"):
        SyncClient(["server"], timeouts=5)  # type: ignore[arg-type]


def test_the_wrong_kind_of_with_names_the_other_client() -> None:
    with (
        pytest.raises(TypeError, match=r"opened with `async with`; where there is no event loop, use `with SyncClient"),
        Client(["server"]),
    ):
        pass

    async def wrong() -> None:
        async with SyncClient(["server"]):
            pass

    with pytest.raises(TypeError, match=r"opened with `with`; in a coroutine, use `async with Client"):
        asyncio.run(wrong())
