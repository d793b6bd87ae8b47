"""A forked child starts afresh: it is answered within its deadline, and touches nothing of its parent's."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from over_http import serving
from ports import reserve_port

import forked  # isort: skip

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="there are no forks here")

SCRIPT = Path(forked.__file__)
HERE = Path(__file__).parent
OF_CLIENTS = ("sync", "idle", "unused", "async_face", "group", "process_pool", "prefork", "listening")
OF_APPS = ("wsgi", "asgi", "pipe", "handle_json")


def run(scenario: str, target: str = "memory") -> Any:
    """Run a scenario in a process of its own; return what came of it. Nothing but its result may be printed."""
    done = subprocess.run(
        [sys.executable, "-W", "default", "-W", "ignore::DeprecationWarning", SCRIPT, scenario, target],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return json.loads(done.stdout.splitlines()[-1])


def assert_well(found: Any, *, own_server: bool) -> None:
    """All were answered in time; with `own_server` each child by another process than its parent's."""
    for child in found["children"]:
        assert "error" not in child, child["error"]
        assert child["seconds"] < forked.DEADLINE
    if found["before"] is None:
        return
    assert found["after"]["served"] == found["before"]["served"]
    if own_server:
        for child in found["children"]:
            assert not set(child["served"]) & set(found["before"]["served"])


@pytest.mark.parametrize("target", ["stdio", "memory"])
@pytest.mark.parametrize("scenario", OF_CLIENTS)
def test_clients_that_were_used_before_the_fork(scenario: str, target: str) -> None:
    assert_well(run(scenario, target), own_server=True)


@pytest.mark.parametrize("scenario", OF_APPS)
def test_apps_that_served_before_the_fork(scenario: str) -> None:
    assert_well(run(scenario), own_server=True)


class Counted:
    """An ASGI app that counts what it is asked for, by HTTP method, and `initialize`."""

    def __init__(self, app: Any) -> None:
        self.app = app
        self.seen: list[str] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            self.seen.append(scope["method"])
        await self.app(scope, receive, send)


@pytest.fixture(params=["modern", "legacy"])
def http(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, Counted]]:
    app = Counted(forked.server.asgi(sessions=request.param == "legacy"))
    if request.param == "legacy":
        inner = app.app

        async def old(scope: Any, receive: Any, send: Any) -> None:
            headers = dict(scope.get("headers", ()))
            if headers.get(b"mcp-protocol-version", b"").startswith(b"2026"):
                await send({"type": "http.response.start", "status": 400, "headers": []})
                await send({"type": "http.response.body", "body": b"?"})
                return
            await inner(scope, receive, send)

        app.app = old
    with serving(app) as url:
        yield url, app


@pytest.mark.parametrize("scenario", OF_CLIENTS)
def test_clients_of_a_url_that_were_used_before_the_fork(scenario: str, http: tuple[str, Counted]) -> None:
    assert_well(run(scenario, http[0]), own_server=False)


def test_children_that_do_not_use_a_client_end_no_session(http: tuple[str, Counted]) -> None:
    url, app = http
    assert_well(run("unused", url), own_server=False)
    assert app.seen.count("DELETE") <= 1  # the parent's own, at the end
    assert "DELETE" not in app.seen[:-2]


def test_who_listens_in_the_parent_is_not_told_by_the_child() -> None:
    found = run("notifying")
    assert [each["served"] for each in found["children"]] == [[0]] * forked.CHILDREN


def test_a_server_sees_the_parent_hang_up_while_a_child_lives() -> None:
    found = run("hanging_up", "stdio")
    assert_well(found, own_server=True)
    assert found["after"]["seconds"] < 20


def test_a_call_is_cancelled_while_a_child_lives(http: tuple[str, Counted]) -> None:
    assert_well(run("cancelling", http[0]), own_server=False)


PRELOADED = '''
import os
import sys

sys.path.insert(0, {here!r})
import forked
from linkspan import SyncClient

client = SyncClient(forked.target("stdio"), timeouts=forked.DEADLINES)
client.call_tool("pid")
app = forked.server.wsgi()


@forked.server.tool
def through() -> list[int]:
    """Ask the server behind us."""
    return [os.getpid(), client.call_tool("pid").decode(int)]


forked.asked(forked.poster(app))
'''


def test_gunicorn_with_preload(tmp_path: Path) -> None:
    pytest.importorskip("gunicorn")
    (tmp_path / "preloaded.py").write_text(PRELOADED.format(here=str(HERE)))
    port = reserve_port()
    command = [sys.executable, "-m", "gunicorn", "--preload", "--workers", "2", "--threads", "2"]
    command += ["--bind", f"127.0.0.1:{port}", "--chdir", str(tmp_path), "preloaded:app"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as server:
        try:
            served = {tuple(through(f"http://127.0.0.1:{port}/")) for _ in range(20)}
        finally:
            server.send_signal(signal.SIGTERM)
            output = server.communicate(timeout=60)[0].decode()
    assert "Traceback" not in output, output
    workers = {worker for worker, _ in served}
    assert server.pid not in workers
    assert len({behind for _, behind in served}) == len(workers)  # each has a server of its own


def through(url: str) -> list[int]:
    """Call the tool, as soon as there is a server."""
    request = urllib.request.Request(url, forked.call("through"), forked.HEADERS | {"mcp-name": "through"})
    give_up = time.monotonic() + 60
    while True:
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                found: list[int] = json.load(answer)["result"]["structuredContent"]["result"]
                return found
        except ConnectionRefusedError:
            raise
        except OSError:
            if time.monotonic() > give_up:
                raise
            time.sleep(0.05)
