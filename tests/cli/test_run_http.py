"""`linkspan run --http`: the options, and a server that is started anew while clients stay."""

from __future__ import annotations

import contextlib
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from linkspan import HttpError, SyncClient, Timeouts
from linkspan.cli.unavailable import Unavailable

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


@pytest.mark.parametrize("workers", ["1", "2"])
def test_stdout_has_the_url_alone(workers: str, tmp_path: Path) -> None:
    file = tmp_path / "chatty.py"
    file.write_text("print('loading')\n" + SOURCE.format(number=1))
    command = [*LINKSPAN, "--http", "--port", "0", "--workers", workers, str(file)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        url = process.stdout.readline().rstrip("\n")
        with SyncClient(url) as client:
            assert client.call_tool("number").structured == {"result": 1}
        process.send_signal(signal.SIGTERM)
        rest, errors = process.communicate(timeout=60)
    assert rest == ""
    assert "loading" in errors
    assert f"Serving MCP at {url}" in errors


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


@pytest.mark.parametrize(
    ("options", "direct", "forwarded"), [([], 200, 405), (["--page"], 200, 200), (["--no-page"], 405, 405)]
)
def test_the_page_is_not_shown_through_a_proxy_by_itself(options: list[str], direct: int, forwarded: int) -> None:
    running = Running(str(DICE), *options)

    def status(**headers: str) -> int:
        try:
            with urlopen(Request(running.url, headers={"accept": "text/html", **headers}), timeout=60) as response:
                return int(response.status)
        except HTTPError as refused:
            return refused.code

    assert (status(), status(**{"x-forwarded-for": "203.0.113.7"})) == (direct, forwarded)
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


@pytest.mark.parametrize("more", [(), ("--reload",)])
@pytest.mark.parametrize("port", ["80801", "65536", "-1"])
def test_a_port_that_does_not_exist_is_refused(port: str, more: tuple[str, ...]) -> None:
    assert run(str(DICE), "--http", f"--port={port}", *more) == (
        2,
        f"linkspan run: port {port} does not exist: choose one from 1 to 65535, or 0 for any free one",
    )


@pytest.mark.parametrize("more", [(), ("--reload",)])
@pytest.mark.parametrize(
    ("host", "problem"),
    [
        ("192.0.2.7", "192.0.2.7 is not an address of this machine"),
        ("no.invalid", "the host 'no.invalid' is not known"),
    ],
)
def test_a_host_that_cannot_be_served_is_named(host: str, problem: str, more: tuple[str, ...]) -> None:
    assert run(str(DICE), "--http", "--port=0", "--host", host, *more) == (
        2,
        f"linkspan run: cannot serve HTTP: {problem}; choose 127.0.0.1 for this machine only, 0.0.0.0 for all of its "
        "addresses, or one of them [LS-607]",
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


@pytest.mark.parametrize("name", ["email", "types", "asyncio", "logging", "http", "uvicorn"])
def test_a_file_that_hides_a_module_is_named(tmp_path: Path, name: str) -> None:
    file = tmp_path / f"{name}.py"
    file.write_text(SOURCE.format(number=1))
    assert run(str(file), "--http", "--port=0") == (
        2,
        f"linkspan run: {file} hides the module {name!r}, which other modules need: rename the file [LS-608]",
    )


def test_a_file_beside_the_server_that_hides_a_module_is_named(tmp_path: Path) -> None:
    (tmp_path / "email.py").write_text("")
    (tmp_path / "server.py").write_text(SOURCE.format(number=1))
    assert run(str(tmp_path / "server.py"), "--http", "--port=0")[1] == (
        f"linkspan run: {tmp_path / 'email.py'} hides the module 'email', which other modules need: rename the file [LS-608]"
    )


@pytest.mark.parametrize("name", ["types", "enum"])
def test_a_file_that_hides_a_module_over_stdio_is_named(tmp_path: Path, name: str) -> None:
    file = tmp_path / f"{name}.py"
    file.write_text(SOURCE.format(number=1))
    assert f"{file} hides the module {name!r}" in run(str(file))[1]


def test_a_mistake_in_a_module_of_the_authors_is_no_hidden_module(tmp_path: Path) -> None:
    (tmp_path / "helpers.py").write_text("")
    (tmp_path / "server.py").write_text("import helpers\nhelpers.make()\n")
    assert run(str(tmp_path / "server.py")) == (1, "AttributeError: module 'helpers' has no attribute 'make'")


def test_a_connection_that_waits_at_the_end_of_the_stand_in_is_closed() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        standing_in = Unavailable(listener, "the server ended", "KeyError: 'x'")
        try:
            url = f"http://127.0.0.1:{listener.getsockname()[1]}/mcp"
            assert asked(url) == (503, "KeyError: 'x'\n\nthe server ended\n\nKeyError: 'x'\n")
            waiting = socket.create_connection(listener.getsockname(), timeout=60)
            waiting.sendall(b"GET / HTTP/1.1\r\n")
            assert asked(url)[0] == 503  # by now, the other connection is accepted
        finally:
            standing_in.close()
        with waiting, contextlib.suppress(ConnectionResetError):
            assert waiting.recv(100) == b""
        with socket.create_connection(listener.getsockname(), timeout=60), listener.accept()[0]:
            pass  # whoever listens next gets the next connection


def asked(url: str, **headers: str) -> tuple[int, str]:
    """GET a URL; return the status and the body."""
    try:
        with urlopen(Request(url, headers=headers), timeout=60) as response:
            return response.status, response.read().decode()
    except HTTPError as refused:
        return refused.code, refused.read().decode()


def test_while_a_file_does_not_import_requests_get_a_response_at_once(tmp_path: Path) -> None:
    source = tmp_path / "changing.py"
    source.write_text(SOURCE.format(number=1))
    running = Running(str(source), "--reload")
    try:
        source.write_text("import <nothing>\n")
        running.wait_for("the server ended with exit status 1")
        for accept in ("text/html", "application/json"):
            status, body = asked(running.url, accept=accept)
            assert status == 503
            assert f'File "{source}", line 1' in body.replace("&quot;", '"')
            assert "SyntaxError: invalid syntax" in body
        for more in ({"X-Forwarded-For": "203.0.113.7"}, {"Host": "rebound.example"}):
            status, body = asked(running.url, accept="text/html", **more)
            assert status == 503
            assert "the server ended with exit status 1; a change to its source starts it again" in body
            assert "SyntaxError" not in body
        with pytest.raises(HttpError, match="status 503: SyntaxError: invalid syntax"):
            SyncClient(running.url, timeouts=Timeouts(connect=5.0)).connect()
        source.write_text(SOURCE.format(number=2))
        running.wait_for("changing.py changed: starting again")
        with SyncClient(running.url) as client:
            assert client.call_tool("number").structured == {"result": 2}
    finally:
        assert running.stop() == 0
