"""One table of requests through other people's servers and our own: with the defaults, all of them refuse the same.

uvicorn, hypercorn and granian serve `asgi()`, gunicorn, waitress and granian `wsgi()`, and `run("http")` serves itself; all of
them on 127.0.0.1, as on a developer's machine, and with no setting at all. SEC-1, H5-2, H5-11.
"""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from importlib.util import find_spec
from pathlib import Path

import pytest
from http_talk import body, mirror

from ports import reserve_port

APP = """
from linkspan import Server

server = Server("doors")

@server.tool
def touch() -> str:
    open("touched", "a").write("x")
    return "touched"

app = server.asgi()
wsgi = server.wsgi()
"""
COMMANDS = {
    "run": ["-c", "import doors; doors.server.run('http', port={port}, path='/')"],
    "uvicorn": ["-m", "uvicorn", "doors:app", "--log-level", "error", "--port", "{port}"],
    "uvicorn-h11": ["-m", "uvicorn", "doors:app", "--http", "h11", "--log-level", "error", "--port", "{port}"],
    "hypercorn": ["-m", "hypercorn", "doors:app", "--log-level", "error", "-b", "127.0.0.1:{port}"],
    "granian": ["-m", "granian", "--interface", "asgi", "doors:app", "--log-level", "error", "--port", "{port}"],
    "gunicorn": ["-m", "gunicorn", "doors:wsgi", "--log-level", "error", "-b", "127.0.0.1:{port}"],
    "waitress": ["-m", "waitress", "--host", "127.0.0.1", "--port", "{port}", "doors:wsgi"],
    "granian-wsgi": ["-m", "granian", "--interface", "wsgi", "doors:wsgi", "--log-level", "error", "--port", "{port}"],
}
CALL = body("tools/call", {"name": "touch", "arguments": {}})
OURS = "http://127.0.0.1:{port}"
WITHOUT_TARGET = ("uvicorn", "granian", "granian-wsgi")
"""They pass on the path of a target in absolute form, and drop its authority."""

# What is changed of a good request, and the status.
TABLE: dict[str, tuple[dict[str, str | None], int]] = {
    "a good request": ({}, 200),
    "localhost": ({"host": "localhost:{port}"}, 200),
    "IPv6 loopback": ({"host": "[::1]:{port}"}, 200),
    "our own page": ({"origin": OURS}, 200),
    "a page of another port here": ({"origin": "http://localhost:5173"}, 200),
    "a foreign name": ({"host": "evil.example"}, 421),
    "a foreign name and its page": ({"host": "evil.example", "origin": "http://evil.example"}, 421),
    "a name behind ours": ({"host": "localhost.evil.example"}, 421),
    "a port that is a name": ({"host": "localhost:evil.example"}, 400),
    "a name behind an at sign": ({"host": "127.0.0.1:80@evil.example"}, 400),
    "an odd port in brackets": ({"host": "[::1]:x"}, 400),
    "half an address": ({"host": "["}, 400),
    "no host": ({"host": None}, 400),
    "an empty host": ({"host": ""}, 400),
    "a foreign page": ({"origin": "https://evil.example"}, 403),
    "a page without an origin": ({"origin": "null"}, 403),
    "an extension": ({"origin": "chrome-extension://abcdefgh"}, 403),
    "another site without an origin": ({"sec-fetch-site": "cross-site"}, 403),
    "no content type": ({"content-type": None}, 415),
    "a form": ({"content-type": "text/plain"}, 415),
    "nothing that we send": ({"accept": "text/html"}, 406),
}


class Doors:
    """A server process."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name = name
        self.folder = folder
        (folder / "doors.py").write_text(APP)
        self.port = reserve_port()
        command = [each.format(port=self.port) for each in COMMANDS[name]]
        self.process = subprocess.Popen([sys.executable, *command], cwd=folder, stderr=subprocess.DEVNULL)

    def wait(self) -> None:
        """Wait until it serves."""
        give_up = time.monotonic() + 60
        while True:
            assert self.process.poll() is None, "the server has ended"
            assert time.monotonic() < give_up
            try:
                if self.status({}) == 200:
                    return
            except OSError:
                time.sleep(0.02)

    def status(self, changes: dict[str, str | None], target: str = "/") -> int:
        """Send a call with changed headers; return the status of the response."""
        content = json.dumps(CALL).encode()
        headers: dict[str, str | None] = {"host": "127.0.0.1:{port}", "content-type": "application/json"}
        headers |= mirror(CALL) | {"content-length": str(len(content)), "connection": "close"} | changes
        head = "".join(
            f"{name}: {value.replace('{port}', str(self.port))}\r\n"
            for name, value in headers.items()
            if value is not None
        )
        with closing(socket.create_connection(("127.0.0.1", self.port), timeout=60)) as connection:
            connection.sendall(f"POST {target} HTTP/1.1\r\n{head}\r\n".encode() + content)
            line = connection.makefile("rb").readline()
        if not line:
            raise ConnectionResetError("no response")
        return int(line.split()[1])

    def close(self) -> None:
        """End it."""
        self.process.terminate()
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


@pytest.fixture(scope="module", params=COMMANDS)
def doors(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Doors]:
    """Each server in turn."""
    name: str = request.param
    module = name.partition("-")[0]
    if name != "run" and find_spec(module) is None:
        pytest.skip(f"{module} is not installed: pip install '.[peers]'")
    server = Doors(name, tmp_path_factory.mktemp("doors"))
    try:
        server.wait()
        yield server
    finally:
        server.close()


@pytest.mark.parametrize("what", TABLE)
def test_by_default_every_server_refuses_the_same(what: str, doors: Doors) -> None:
    changes, expected = TABLE[what]
    touched = doors.folder / "touched"
    before = len(touched.read_text()) if touched.exists() else 0
    status = doors.status(changes)
    assert status == expected
    assert (len(touched.read_text()) > before) == (status == 200)


def test_the_authority_of_a_target_counts_instead_of_its_host(doors: Doors) -> None:
    """RFC 9112, section 3.2.2: the host that a proxy sees is the one that counts here too."""
    drops = doors.name in WITHOUT_TARGET
    assert doors.status({}, "http://evil.example/") == (200 if drops else 421)
    assert doors.status({"host": "evil.example"}, "http://127.0.0.1/") == (421 if drops else 200)
