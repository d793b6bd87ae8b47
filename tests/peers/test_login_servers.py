"""Our clients log in at the authorization servers that other SDKs have of their own."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from linkspan import SyncClient
from linkspan.auth import OAuth
from login_site import visit
from ports import reserve_port

SERVER = Path(__file__).parent / "login_server.py"
KINDS = ["official", "official with default scopes", "FastMCP"]


class Running:
    """A server process, which forgets all its clients when it starts again."""

    def __init__(self, kind: str) -> None:
        self.port = reserve_port()
        self.url = f"http://127.0.0.1:{self.port}/mcp"
        self._command = [sys.executable, str(SERVER), kind, str(self.port)]
        self.start()

    def start(self) -> None:
        self._process = subprocess.Popen(self._command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        give_up = time.monotonic() + 90
        while not self._answers():
            assert self._process.poll() is None, "the server ended"
            assert time.monotonic() < give_up, "the server does not answer"
            time.sleep(0.1)

    def _answers(self) -> bool:
        with closing(HTTPConnection("127.0.0.1", self.port, timeout=30)) as connection:
            try:
                connection.request("GET", urlsplit(self.url).path)
                connection.getresponse().read()
            except OSError:
                return False
            return True

    def stop(self) -> None:
        self._process.kill()
        self._process.wait(60)


@pytest.fixture(params=KINDS)
def server(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Running]:
    pytest.importorskip("fastmcp", reason="FastMCP is not installed: pip install '.[peers]'")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    running = Running(request.param)
    yield running
    running.stop()


def test_our_client_logs_in_and_again_after_the_server_has_lost_its_clients(server: Running) -> None:
    for _ in range(2):
        with SyncClient(server.url, auth=OAuth(open_url=visit)) as client:
            assert client.call_tool("shout", {"text": "hello"}).text == "HELLO"
        server.stop()
        server.start()
