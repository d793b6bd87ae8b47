"""`linkspan run --http`: the options, and a server that is started anew while clients stay."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from linkspan import SyncClient

DICE = Path(__file__).parents[2] / "examples" / "dice.py"
LINKSPAN = [sys.executable, "-m", "linkspan", "run"]
SOURCE = """
from linkspan import Server
server = Server("changing")
@server.tool(annotations={{"readOnlyHint": True}})
def number() -> int:
    return {number}
"""


class Running:
    """A `linkspan run --http` process, and the URL of its first line."""

    def __init__(self, *arguments: str) -> None:
        command = [*LINKSPAN, "--http", "--port", "0", *arguments]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        self.url = self.wait_for(r"Serving MCP at (http://127\.0\.0\.1:\d+/\w+)")

    def wait_for(self, pattern: str) -> str:
        """Read stderr up to a line; return what is in its group."""
        assert self.process.stderr is not None
        for line in self.process.stderr:
            if found := re.search(pattern, line):
                return found[1] if found.groups() else found[0]
        raise AssertionError(f"no line like {pattern!r} before the process ended")

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Ask it to stop, and return the exit status."""
        self.process.send_signal(number)
        self.process.communicate(timeout=60)
        return self.process.returncode


def run(*arguments: str) -> tuple[int, str]:
    done = subprocess.run([*LINKSPAN, *arguments], capture_output=True, text=True, timeout=60)
    return done.returncode, done.stderr.splitlines()[-1]


def test_a_file_is_served_at_the_url_of_the_first_line() -> None:
    running = Running(str(DICE), "--path", "/dice", "--no-page")
    with SyncClient(running.url) as client:
        assert client.call_tool("roll", {"sides": 1, "count": 2}).structured == {"result": [1, 1]}
    assert running.url.endswith("/dice")
    assert running.stop() == 0


@pytest.mark.skipif(not hasattr(socket, "AF_UNIX"), reason="sockets are passed on by number only where there is fork")
@pytest.mark.parametrize("options", [(), ("--reload",)], ids=["plain", "reload"])
def test_a_file_finds_its_own_arguments_in_sys_argv(tmp_path: Path, options: tuple[str, ...]) -> None:
    source = tmp_path / "changing.py"
    source.write_text("import sys\n" + SOURCE.format(number="int(sys.argv[2])"))
    running = Running(*options, str(source), "--", "--port", "7")
    with SyncClient(running.url) as client:
        assert client.call_tool("number").structured == {"result": 7}
    assert running.stop() == 0


def test_options_of_http_need_http() -> None:
    assert run(str(DICE), "--port", "8001") == (2, "linkspan run: error: --port goes with --http")
    assert run(str(DICE), "--allow-host", "example.com") == (2, "linkspan run: error: --allow-host goes with --http")


@pytest.mark.parametrize("more", [(), ("--reload",)])
def test_a_port_that_is_taken_is_one_line(more: tuple[str, ...]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert run(str(DICE), "--http", "--port", str(port), *more) == (
            2,
            f"linkspan run: cannot serve HTTP on 127.0.0.1:{port}: address already in use; choose another port, or port 0 for "
            "any free one [LS-602]",
        )


@pytest.mark.skipif(not hasattr(socket, "AF_UNIX"), reason="sockets are passed on by number only where there is fork")
@pytest.mark.parametrize("options", [("--reload",), ("--rel", "--hos=127.0.0.1")], ids=["in full", "abbreviated"])
def test_a_change_starts_the_server_anew_and_clients_stay(tmp_path: Path, options: tuple[str, ...]) -> None:
    source = tmp_path / "changing.py"
    source.write_text(SOURCE.format(number=1))
    running = Running(str(source), *options)
    try:
        with SyncClient(running.url) as client:
            assert client.call_tool("number").structured == {"result": 1}
            source.write_text("this is no Python")
            running.wait_for("changing.py changed: starting again")
            running.wait_for("the server ended with exit status 1; a change to its source starts it again")
            source.write_text(SOURCE.format(number=22))
            running.wait_for("changing.py changed: starting again")
            give_up = time.monotonic() + 20
            assert client.call_tool("number", timeout=20).structured == {"result": 22}
            assert time.monotonic() < give_up
    finally:
        assert running.stop(signal.SIGINT) == 130
