"""What the WSGI callable does besides carrying requests: it has no event loop, so requests and threads look after the rest."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Annotated, Any
from wsgiref.util import setup_testing_defaults

import pytest
from http_faces import Wsgi
from http_talk import Session, body, mirror
from http_world import World

from linkspan import Depends, Server
from linkspan.core.call import Call
from linkspan.core.http_checks import Arrival
from linkspan.serve import http_app, wsgi
from linkspan.serve.http_app import stopping_within
from linkspan.serve.wsgi import WsgiApp, _arrival


@pytest.fixture
def world() -> Iterator[World]:
    world = World()
    yield world
    world.let_go.set()


@pytest.fixture
def _ticking(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let what waits look every hundredth of a second."""
    monkeypatch.setattr(wsgi, "TICK", 0.01)


def responses(app: WsgiApp, name: str, token: str | None = None, **arguments: Any) -> Iterator[bytes]:
    """Call a tool, and return the parts of the response, which is a generator's: it is read as a test asks for it."""
    meta = {"token": token} if token is not None else {}
    message = body("tools/call", {"name": name, "arguments": arguments}, **meta)
    data = json.dumps(message).encode()
    headers = {f"HTTP_{key.upper().replace('-', '_')}": value for key, value in mirror(message).items()}
    environ: dict[str, Any] = {
        "REQUEST_METHOD": "POST",
        "SERVER_PROTOCOL": "HTTP/1.1",
        "REMOTE_ADDR": "127.0.0.1",
        "CONTENT_TYPE": "application/json",
        "CONTENT_LENGTH": str(len(data)),
        "wsgi.input": io.BytesIO(data),
        **headers,
    }
    setup_testing_defaults(environ)
    return iter(app(environ, lambda *_: None))


def test_messages_of_other_processes_are_performed_in_their_order() -> None:
    app = World().server.wsgi()
    done: list[str] = []
    go, ended = threading.Event(), threading.Event()

    def first() -> None:
        go.wait(60)
        done.append("first")

    def second() -> None:
        done.append("second")
        ended.set()

    app.call_soon(first)
    app.call_soon(second)
    assert not ended.wait(0.05)  # another thread would perform it meanwhile
    go.set()
    assert ended.wait(60)
    assert done == ["first", "second"]


def test_a_client_that_does_not_read_gets_no_more_than_max_unsent_bytes(world: World) -> None:
    """The server asks for the next part only when it could send the last one; the call goes on meanwhile."""
    parts: Any = responses(world.server.wsgi(max_unsent_bytes=10_000), "flood", "t", parts=10**9, size=1000)
    found = [len(next(parts))]
    reader = threading.Thread(target=lambda: found.extend(map(len, parts)), daemon=True)
    give_up = time.monotonic() + 60
    while not parts._exchange.overrun:
        assert time.monotonic() < give_up
    reader.start()
    reader.join(60)
    assert not reader.is_alive()
    assert sum(found) < 100_000
    parts.close()
    world.wait_for("cancelled")


@pytest.mark.usefixtures("_ticking")
def test_a_silent_stream_gets_comments(world: World) -> None:
    face = Wsgi(world.server, silence=0.01)
    stream = Session(face).get().begin()
    while stream.body.count(b"\r\n:") < 3:  # the first may be its beginning
        stream._take()
    stream.close()
    face.stop()


@pytest.mark.usefixtures("_ticking")
def test_an_idle_session_goes_while_only_a_stream_is_open(world: World) -> None:
    face = Wsgi(world.server, session_idle=0.2, silence=0.01)
    Session(face)
    stream = Session(face).get().begin()
    assert len(face.endpoint.sessions) == 2
    face.until(lambda: len(face.endpoint.sessions) == 1)
    stream.close()
    face.stop()


@pytest.mark.usefixtures("_ticking")
def test_an_idle_session_goes_with_the_requests_of_others(world: World) -> None:
    face = Wsgi(world.server, session_idle=0.2)
    Session(face)
    assert len(face.endpoint.sessions) == 1
    request = body("tools/list")

    def is_gone() -> bool:
        assert face.ask("POST", mirror(request), request).status == 200
        return not len(face.endpoint.sessions)

    face.until(is_gone)
    face.stop()


class _Gunicorn:
    """A worker of gunicorn, as far as it shows that it was asked to stop."""

    def __init__(self, graceful: float) -> None:
        self.alive = True
        self.cfg = SimpleNamespace(graceful_timeout=graceful)

    def handle(self, *_: object) -> None:
        """Nothing is done here."""


_Gunicorn.__module__ = "gunicorn.workers.gthread"


@pytest.mark.usefixtures("_ticking")
@pytest.mark.parametrize("graceful", [5, 3600])
def test_calls_are_cancelled_in_time_before_gunicorn_kills_them(
    graceful: int, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = _Gunicorn(graceful)
    monkeypatch.setattr(http_app.signal, "getsignal", lambda _: worker.handle)
    face = Wsgi(world.server, silence=0.01)
    call = Session(face).call("hold")
    world.wait_for("holding")
    assert stopping_within() is None
    worker.alive = False
    assert stopping_within() == graceful
    if graceful == 5:
        world.wait_for("cancelled")
    else:
        face.until(lambda: face.app._cancels_at < float("inf"))
        assert face.app._cancels_at <= time.monotonic() + graceful - 6.0  # 2 to clean up, 4 to notice and to leave
        world.let_go.set()
        assert call.messages()[-1]["result"]["content"][0]["text"] == "held"
    face.stop()


def test_the_exit_cancels_what_runs_and_waits_for_it(world: World) -> None:
    app = world.server.wsgi(cleanup=60.0)
    parts = responses(app, "tell_then_hold", "t")
    next(parts)
    world.wait_for("holding")
    app.end_at_exit()
    assert "cancelled" in world.seen
    assert list[Call](app.calls._jobs) == []


def test_the_log_names_only_what_is_still_open(caplog: pytest.LogCaptureFixture) -> None:
    server, closing, go = Server("shop"), threading.Event(), threading.Event()

    def database() -> Iterator[str]:
        yield "database"
        closing.set()
        go.wait(60)

    def lock(database: Annotated[str, Depends(database)]) -> Iterator[str]:
        yield database

    @server.tool
    def use(lock: Annotated[str, Depends(lock)]) -> None: ...

    app = server.wsgi(cleanup=0.05, silence=0.01)
    reader = threading.Thread(target=lambda: list(responses(app, "use")), daemon=True)
    reader.start()
    assert closing.wait(60)
    app.end_at_exit()
    go.set()
    reader.join(60)
    expected = "tools/call of 'use' runs on 0.05 s after it was cancelled; not closed: database"
    assert caplog.messages == [expected]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_forked_worker_has_all_the_room_for_bodies() -> None:
    """The threads that read bodies as it forks are its parent's."""
    code = """
import os, warnings
from linkspan.core.http_bodies import ArrivingBody
from linkspan.core.http_checks import Gate, HttpPolicy
from linkspan.serve.wsgi import BodiesInThreads

warnings.simplefilter("ignore")
policy = HttpPolicy(max_incoming_bytes=10, max_body_bytes=10)
bodies = BodiesInThreads(Gate(policy), policy)
has_room = lambda size: isinstance(bodies.begin({}, size), ArrivingBody)
assert has_room(10) and not has_room(1)
if (pid := os.fork()) == 0:
    os._exit(0 if has_room(10) else 1)
assert os.waitpid(pid, 0)[1] == 0 and not has_room(1)
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


class _Listening:
    """A socket of gunicorn."""

    def __init__(self, name: object) -> None:
        self._name = name

    def getsockname(self) -> object:
        return self._name


@pytest.mark.parametrize(
    ("environ", "own"),
    [
        ({"gunicorn.socket": _Listening(("10.0.0.5", 8000)), "SERVER_NAME": "example.com"}, "10.0.0.5"),
        ({"gunicorn.socket": _Listening(("::1", 8000, 0, 0)), "SERVER_NAME": "example.com"}, "::1"),
        ({"gunicorn.socket": _Listening("/run/app.sock"), "SERVER_NAME": "example.com"}, "/"),
        ({"gunicorn.socket": _Listening(b"\0app"), "SERVER_NAME": "example.com"}, "/"),
        ({"SERVER_ADDR": "10.0.0.6", "SERVER_NAME": "example.com"}, "10.0.0.6"),
        ({"SERVER_NAME": "10.0.0.7"}, "10.0.0.7"),
        ({"SERVER_NAME": ""}, None),
    ],
)
def test_the_address_at_which_a_request_came_in_is_that_of_the_socket_where_it_is_known(
    environ: dict[str, Any], own: str | None
) -> None:
    found = _arrival({"SCRIPT_NAME": "/app", "PATH_INFO": "/mcp", "REMOTE_ADDR": "10.0.0.9", **environ})
    assert found == Arrival(own, "10.0.0.9", "/app/mcp", "1.1", None)


@pytest.mark.parametrize(
    ("environ", "version", "authority", "path"),
    [
        ({"SERVER_PROTOCOL": "HTTP/1.0"}, "1.0", None, "/mcp"),
        ({"SERVER_PROTOCOL": ""}, "1.1", None, "/mcp"),
        ({"RAW_URI": "http://there/mcp"}, "1.1", "there", "/mcp"),
        ({"REQUEST_URI": "http://there/mcp"}, "1.1", "there", "/mcp"),
        ({"PATH_INFO": "http://there:81/mcp"}, "1.1", "there:81", "/mcp"),
    ],
)
def test_the_version_and_the_authority_of_a_request_are_found(
    environ: dict[str, Any], version: str, authority: str | None, path: str
) -> None:
    found = _arrival({"PATH_INFO": "/mcp", **environ})
    assert found == Arrival(None, None, path, version, authority)
