"""The lifespan under the servers and frameworks that people use: entered once in each process, left once at its end."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest

from linkspan import Context, Server

SERVER = """
import asyncio, os, sys
from collections.abc import AsyncIterator, Iterator
from linkspan import Context, Server

server = Server("shop")
KIND, FAILS = os.environ.get("KIND", "def"), os.environ.get("FAILS")


class Pool:
    pid = 0


def note(what):
    with open("notes", "a") as notes:  # one short write: workers share the file
        notes.write(f"{what} {os.getpid()}\\n")


if KIND == "def":
    @server.lifespan
    def live() -> Iterator[Pool]:
        note("enter")
        if FAILS:
            raise ConnectionError("secret")
        yield Pool()
        note("leave")
else:
    @server.lifespan
    async def live() -> AsyncIterator[Pool]:
        note("enter")
        if FAILS:
            raise ConnectionError("secret")
        yield Pool()
        await asyncio.sleep(0)
        note("leave")


@server.tool
def use(pool: Pool) -> int:
    return os.getpid()


@server.tool
async def use_async(ctx: Context[Pool]) -> int:
    return os.getpid() + ctx.lifespan.pid


asgi, wsgi = server.asgi(sessions=False), server.wsgi(sessions=False)


def flask():
    from flask import Flask

    app = Flask("shop")
    app.wsgi_app = server.wsgi(path="/mcp", otherwise=app.wsgi_app, sessions=False)
    return app


def django():
    import django
    from django.conf import settings
    from django.core.wsgi import get_wsgi_application

    settings.configure(ROOT_URLCONF=type("urls", (), {"urlpatterns": []}), ALLOWED_HOSTS=["*"], SECRET_KEY="for tests")
    django.setup()
    return server.wsgi(path="/mcp", otherwise=get_wsgi_application(), sessions=False)


if __name__ == "__main__":
    server.run("http", port=0, workers=int(os.environ.get("WORKERS", "1")), sessions=False)
"""
PYTHON = sys.executable
every_kind = pytest.mark.parametrize("kind", ["def", "async"])


class Process:
    """A server of the file above, in a process of its own that is asked to stop at the end of the block."""

    def __init__(self, folder: Path, *command: str, ready: str, stop: int = signal.SIGTERM, **environment: str) -> None:
        (folder / "shop.py").write_text(SERVER)
        self._notes = folder / "notes"
        self._stop = stop
        self._child = subprocess.Popen(
            [PYTHON, *command],
            cwd=folder,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | environment,
        )
        self.output: list[str] = []
        assert self._child.stderr is not None
        for line in self._child.stderr:
            self.output.append(line)
            if ready in line:
                self.port = int(line.partition("127.0.0.1:")[2].split("/")[0].split(" ")[0].strip(")\n"))
                break
        self._reading = threading.Thread(target=lambda: self.output.extend(self._child.stderr or ()))
        self._reading.start()

    def call(self, name: str = "use", path: str = "/mcp") -> Any:
        return ask(f"http://127.0.0.1:{self.port}{path}", name)

    def __enter__(self) -> Process:
        return self

    def __exit__(self, *_: object) -> None:
        self._child.send_signal(self._stop)
        self.status = self._child.wait(60)
        self._reading.join(60)
        assert self._child.stderr is not None
        self._child.stderr.close()

    @property
    def notes(self) -> Counter[str]:
        """How often each event was noted, and that no process left what it did not enter."""
        lines = self._notes.read_text().splitlines() if self._notes.exists() else []
        counted = Counter(lines)
        assert not [line for line in counted if counted[line] > 1], lines
        return Counter(line.split()[0] for line in lines)


def body(name: str) -> bytes:
    return json.dumps(
        {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": name, "arguments": {}}}
    ).encode()


HEADERS = {"content-type": "application/json", "accept": "application/json, text/event-stream"}


def ask(url: str, name: str) -> Any:
    with urlopen(Request(url, body(name), HEADERS), timeout=60) as answer:
        return json.loads(answer.read())


# run("http").


@pytest.mark.parametrize("stop", [signal.SIGTERM, signal.SIGINT])
@every_kind
def test_run_enters_it_before_it_can_be_reached_and_leaves_it_on_a_signal(tmp_path: Path, kind: str, stop: int) -> None:
    with Process(tmp_path, "shop.py", ready="Serving MCP", stop=stop, KIND=kind) as process:
        assert process.notes == {"enter": 1}
        assert "result" in process.call()
        assert "result" in process.call("use_async")
    assert process.notes == {"enter": 1, "leave": 1}
    assert process.status == (0 if stop == signal.SIGTERM else 130)


@every_kind
def test_run_ends_with_one_line_and_a_status_if_it_cannot_be_entered(tmp_path: Path, kind: str) -> None:
    (tmp_path / "shop.py").write_text(SERVER)
    ended = subprocess.run(
        [PYTHON, "shop.py"],
        cwd=tmp_path,
        env=os.environ | {"KIND": kind, "FAILS": "1"},
        capture_output=True,
        timeout=100,
    )
    assert ended.returncode == 1
    last = ended.stderr.decode().splitlines()[-1]
    assert last.startswith("linkspan: The server could not start (incident ")
    assert b"Serving" not in ended.stderr


def test_each_worker_of_run_has_its_own(tmp_path: Path) -> None:
    with Process(tmp_path, "shop.py", ready="Serving MCP", WORKERS="2", KIND="async") as process:
        assert "result" in process.call()
    notes = process.notes
    assert notes["enter"] == notes["leave"] >= 1


def test_workers_that_cannot_enter_it_give_up(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(SERVER)
    environment = os.environ | {"WORKERS": "2", "FAILS": "1"}
    ended = subprocess.run([PYTHON, "shop.py"], cwd=tmp_path, env=environment, capture_output=True, timeout=60)
    assert ended.returncode == 1
    assert b"giving up" in ended.stderr


# Other servers.


@every_kind
def test_uvicorn_begins_and_ends_it(tmp_path: Path, kind: str) -> None:
    command = ("-m", "uvicorn", "shop:asgi", "--port", "0")
    with Process(tmp_path, *command, ready="Uvicorn running", KIND=kind) as process:
        assert process.notes == {"enter": 1}
        assert "result" in process.call(path="/")
    assert process.notes == {"enter": 1, "leave": 1}


def test_without_lifespan_events_the_first_request_begins_it_and_a_warning_names_the_line(tmp_path: Path) -> None:
    command = ("-m", "uvicorn", "shop:asgi", "--port", "0", "--lifespan", "off")
    with Process(tmp_path, *command, ready="Uvicorn running", KIND="async") as process:
        assert process.notes == {}
        assert "result" in process.call(path="/")
        assert "result" in process.call(path="/")
    assert process.notes == {"enter": 1}
    warnings = [line for line in process.output if "FastAPI(lifespan=server.lifespan_of(app))" in line]
    assert len(warnings) == 1


@pytest.mark.parametrize("options", [(), ("--preload",)])
@every_kind
def test_each_worker_of_gunicorn_has_its_own(tmp_path: Path, kind: str, options: tuple[str, ...]) -> None:
    pytest.importorskip("gunicorn", reason="gunicorn is not installed")
    command = ("-m", "gunicorn", "shop:wsgi", "-b", "127.0.0.1:0", "--workers", "2", "--threads", "2", *options)
    with Process(tmp_path, *command, ready="Listening at", KIND=kind) as process:
        for name in ("use", "use_async", "use"):
            assert "result" in process.call(name, "/")
    notes = process.notes
    assert 1 <= notes["enter"] == notes["leave"] <= 2


@pytest.mark.parametrize("framework", ["flask", "django"])
@every_kind
def test_each_worker_of_gunicorn_has_its_own_inside_a_framework(tmp_path: Path, kind: str, framework: str) -> None:
    pytest.importorskip("gunicorn", reason="gunicorn is not installed")
    pytest.importorskip(framework, reason=f"{framework} is not installed")
    command = ("-m", "gunicorn", f"shop:{framework}()", "-b", "127.0.0.1:0", "--workers", "2", "--threads", "2")
    with Process(tmp_path, *command, ready="Listening at", KIND=kind) as process:
        for name in ("use", "use_async", "use"):
            assert "result" in process.call(name)
    notes = process.notes
    assert 1 <= notes["enter"] == notes["leave"] <= 2


@every_kind
def test_hypercorn_begins_and_ends_it(tmp_path: Path, kind: str) -> None:
    pytest.importorskip("hypercorn", reason="hypercorn is not installed")
    command = ("-m", "hypercorn", "shop:asgi", "-b", "127.0.0.1:0")
    with Process(tmp_path, *command, ready="Running on", KIND=kind) as process:
        assert process.notes == {"enter": 1}
        assert "result" in process.call(path="/")
    assert process.notes == {"enter": 1, "leave": 1}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
@every_kind
def test_a_forked_process_enters_its_own_and_leaves_the_parents_alone(tmp_path: Path, kind: str) -> None:
    (tmp_path / "shop.py").write_text(SERVER)
    code = """
import os, sys
from shop import server

def call():
    params = {"name": "use", "arguments": {}}
    return server.handle({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})["result"]

call()
for child_calls in (False, True):
    if (pid := os.fork()) == 0:
        if child_calls:
            call()
        sys.exit(0)
    assert os.waitpid(pid, 0)[1] == 0
"""
    subprocess.run([PYTHON, "-c", code], cwd=tmp_path, env=os.environ | {"KIND": kind}, check=True, timeout=100)
    lines = [line.split() for line in (tmp_path / "notes").read_text().splitlines()]
    assert [what for what, _ in lines] == ["enter", "enter", "leave", "leave"]
    (_, parent), (_, child), (_, first), (_, last) = lines
    assert (first, last) == (child, parent)
    assert parent != child


# Frameworks, in this process.


def make_server(kind: str) -> tuple[Server, list[str]]:
    server, events = Server("mounted"), list[str]()

    def plain() -> Iterator[str]:
        events.append("enter")
        yield "pool"
        events.append("leave")

    async def coroutine() -> AsyncIterator[str]:
        events.append("enter")
        yield "pool"
        events.append("leave")

    server.lifespan(plain if kind == "def" else coroutine)

    @server.tool
    def use(ctx: Context[str]) -> str:
        return ctx.lifespan

    @server.tool
    async def use_async(ctx: Context[str]) -> str:
        return ctx.lifespan

    return server, events


async def request(app: Any, name: str, path: str) -> Any:
    """Send a call through an ASGI application, and return the answer."""
    sent = [{"type": "http.request", "body": body(name)}]
    parts: list[bytes] = []

    async def receive() -> Any:
        return sent.pop() if sent else await asyncio.Event().wait()

    async def send(message: Any) -> None:
        parts.append(message.get("body", b""))

    headers = [(name.encode(), value.encode()) for name, value in {**HEADERS, "host": "localhost"}.items()]
    scope = {
        "type": "http", "method": "POST", "path": path, "raw_path": path.encode(), "root_path": "", "headers": headers,
        "query_string": b"", "http_version": "1.1", "scheme": "http", "server": ("127.0.0.1", 80),
        "client": ("127.0.0.1", 1), "state": {}, "asgi": {"version": "3.0"},
    }  # fmt: skip
    await app(scope, receive, send)
    return json.loads(b"".join(parts))


@asynccontextmanager
async def living(app: Any) -> AsyncIterator[list[str]]:
    """Send an application the events of a lifespan, and note what it sends."""
    to_app: asyncio.Queue[Any] = asyncio.Queue()
    from_app: asyncio.Queue[Any] = asyncio.Queue()
    sent: list[str] = []
    scope = {"type": "lifespan", "state": {}, "asgi": {"version": "3.0"}}
    task = asyncio.ensure_future(app(scope, to_app.get, from_app.put))
    await to_app.put({"type": "lifespan.startup"})
    sent.append((await from_app.get())["type"])
    yield sent
    if sent == ["lifespan.startup.complete"]:
        await to_app.put({"type": "lifespan.shutdown"})
        sent.append((await from_app.get())["type"])
    await task


WHOLE = ["lifespan.startup.complete", "lifespan.shutdown.complete"]


def serve_in(app: Any, path: str) -> tuple[list[str], list[Any]]:
    async def main() -> tuple[list[str], list[Any]]:
        async with living(app) as sent:
            answers = [await request(app, name, path) for name in ("use", "use_async")]
        return sent, [answer["result"]["content"][0]["text"] for answer in answers]

    return asyncio.run(main())


def bare(server: Server, _: list[str]) -> Any:
    return server.asgi(sessions=False)


def fastapi(server: Server, events: list[str]) -> Any:
    module = pytest.importorskip("fastapi", reason="FastAPI is not installed")
    app = server.asgi(sessions=False)
    api = module.FastAPI(lifespan=server.lifespan_of(app))
    api.mount("/", app)
    return api


def starlette(server: Server, events: list[str]) -> Any:
    """The application has a lifespan of its own."""
    pytest.importorskip("starlette", reason="Starlette is not installed")
    from starlette.applications import Starlette
    from starlette.routing import Mount

    app = server.asgi(sessions=False)

    @asynccontextmanager
    async def lifespan(starlette: Starlette) -> AsyncIterator[None]:
        async with server.lifespan_of(app)(starlette):
            events.append("own enter")
            yield
            events.append("own leave")

    return Starlette(routes=[Mount("/", app)], lifespan=lifespan)


def django(server: Server, _: list[str]) -> Any:
    """Django refuses lifespan events, so they stay with us."""
    pytest.importorskip("django", reason="Django is not installed")
    import django as module
    from django.conf import settings  # type: ignore[import-untyped]
    from django.core.asgi import get_asgi_application  # type: ignore[import-untyped]

    if not settings.configured:
        from django.http import JsonResponse  # type: ignore[import-untyped]
        from django.urls import path  # type: ignore[import-untyped]

        # As in http/test_http_frameworks.py: a process configures Django once.
        urls = type("urls", (), {"urlpatterns": [path("other", lambda _: JsonResponse({"hello": "Django"}))]})
        settings.configure(ROOT_URLCONF=urls, ALLOWED_HOSTS=["*"], SECRET_KEY="for tests", USE_TZ=True)
        module.setup()
    return server.asgi(path="/mcp", sessions=False, otherwise=get_asgi_application())


def outer(server: Server, events: list[str]) -> Any:
    """An application with a lifespan stands inside ours."""

    async def other(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        events.append("other enter")
        await send({"type": "lifespan.startup.complete"})
        await receive()
        events.append("other leave")
        await send({"type": "lifespan.shutdown.complete"})

    return server.asgi(path="/mcp", sessions=False, otherwise=other)


FRAMEWORKS: dict[str, tuple[Callable[[Server, list[str]], Any], str, list[str]]] = {
    "none": (bare, "/", ["enter", "leave"]),
    "FastAPI": (fastapi, "/", ["enter", "leave"]),
    "Starlette": (starlette, "/", ["enter", "own enter", "own leave", "leave"]),
    "Django": (django, "/mcp", ["enter", "leave"]),
    "around another application": (outer, "/mcp", ["enter", "other enter", "other leave", "leave"]),
}


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # files that Django forgets
@pytest.mark.parametrize("framework", FRAMEWORKS)
@every_kind
def test_a_framework_begins_and_ends_it(kind: str, framework: str) -> None:
    make, path, expected = FRAMEWORKS[framework]
    server, events = make_server(kind)
    app = make(server, events)
    for runs in (1, 2):  # a second loop in the same process enters it again
        assert serve_in(app, path) == (WHOLE, ["pool", "pool"])
        assert events == expected * runs


def test_a_framework_is_told_that_it_cannot_be_entered() -> None:
    server = Server("broken")

    @server.lifespan
    def live() -> Iterator[None]:
        raise ConnectionError("secret")
        yield

    async def main() -> list[str]:
        async with living(server.asgi()) as sent:
            return sent

    assert asyncio.run(main()) == ["lifespan.startup.failed"]


def test_an_event_loop_that_ends_without_a_word_leaves_it() -> None:
    server, events = make_server("async")
    app = server.asgi(sessions=False)
    answer = asyncio.run(request(app, "use_async", "/"))
    assert answer["result"]["content"][0]["text"] == "pool"
    assert events == ["enter", "leave"]


def test_a_loop_that_is_closed_over_it_is_named_and_the_next_one_enters_it_anew(
    caplog: pytest.LogCaptureFixture,
) -> None:
    server, events = make_server("async")
    app = server.asgi(sessions=False)
    loop = asyncio.new_event_loop()
    loop.run_until_complete(request(app, "use_async", "/"))
    loop.close()
    asyncio.run(request(app, "use_async", "/"))
    assert events == ["enter", "enter", "leave"]
    assert "did not run the code after its yield, because its event loop ended before" in caplog.text


def test_lifespan_of_takes_what_asgi_returned() -> None:
    server = Server("mounted")
    with pytest.raises(TypeError, match=r"lifespan_of takes what server.asgi\(\) returned, not WsgiApp"):
        server.lifespan_of(server.wsgi())  # type: ignore[arg-type]
