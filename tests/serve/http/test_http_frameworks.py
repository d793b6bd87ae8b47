"""The endpoint inside other people's applications: mounted in one line, and they go on as before."""

from __future__ import annotations

import gc
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from http_faces import Asgi, Face, Wsgi
from http_talk import Session, body, call, mirror, text_of
from http_world import World

from linkspan import Server

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # files that Django forgets


def fastapi(server: Server) -> Any:
    module = pytest.importorskip("fastapi", reason="FastAPI is not installed")
    app = module.FastAPI()
    app.add_route("/api/mcp", server.asgi())
    app.get("/other")(lambda: {"hello": "FastAPI"})
    return app


def starlette(server: Server) -> Any:
    pytest.importorskip("starlette", reason="Starlette is not installed")
    from starlette.applications import Starlette
    from starlette.responses import JSONResponse
    from starlette.routing import Route

    async def other(_: Any) -> Any:
        return JSONResponse({"hello": "Starlette"})

    return Starlette(routes=[Route("/api/mcp", server.asgi()), Route("/other", other)])


def mounted(server: Server) -> Any:
    """Mounted as a sub-application; Starlette leads there only with the slash at the end."""
    pytest.importorskip("starlette", reason="Starlette is not installed")
    from starlette.applications import Starlette
    from starlette.responses import JSONResponse
    from starlette.routing import Mount, Route

    async def other(_: Any) -> Any:
        return JSONResponse({"hello": "Starlette"})

    return Starlette(routes=[Route("/other", other), Mount("/api/", server.asgi(path="/mcp"))])


def litestar(server: Server) -> Any:
    pytest.importorskip("litestar", reason="Litestar is not installed")
    from litestar import Litestar, get
    from litestar.handlers import asgi

    @get("/other")
    async def other() -> dict[str, str]:
        return {"hello": "Litestar"}

    return Litestar([asgi("/api/mcp", is_mount=True, copy_scope=True)(server.asgi()), other], openapi_config=None)


def quart(server: Server) -> Any:
    module = pytest.importorskip("quart", reason="Quart is not installed")
    app = module.Quart("quart")

    async def other() -> dict[str, str]:
        return {"hello": "Quart"}

    app.route("/other")(other)
    app.asgi_app = server.asgi(path="/api/mcp", otherwise=app.asgi_app)
    return app


def _django() -> None:
    pytest.importorskip("django", reason="Django is not installed")
    import django
    from django.conf import settings  # type: ignore[import-untyped]
    from django.http import JsonResponse  # type: ignore[import-untyped]
    from django.urls import path  # type: ignore[import-untyped]

    if not settings.configured:
        settings.configure(ALLOWED_HOSTS=["*"], SECRET_KEY="for tests", USE_TZ=True)
        django.setup()
    # A process configures Django once, and another test may have done so, with other addresses.
    settings.ROOT_URLCONF = type(
        "urls", (), {"urlpatterns": [path("other", lambda _: JsonResponse({"hello": "Django"}))]}
    )


def django_asgi(server: Server) -> Any:
    _django()
    from django.core.asgi import get_asgi_application  # type: ignore[import-untyped]

    return server.asgi(path="/api/mcp", otherwise=get_asgi_application())


def django_wsgi(server: Server) -> Any:
    _django()
    from django.core.wsgi import get_wsgi_application  # type: ignore[import-untyped]

    return server.wsgi(path="/api/mcp", otherwise=get_wsgi_application())


def flask(server: Server) -> Any:
    module = pytest.importorskip("flask", reason="Flask is not installed")
    app = module.Flask("flask")
    app.route("/other")(lambda: {"hello": "Flask"})
    app.wsgi_app = server.wsgi(path="/api/mcp", otherwise=app.wsgi_app)
    return app


APPS: dict[str, tuple[type[Asgi] | type[Wsgi], Callable[[Server], Any], str]] = {
    "FastAPI": (Asgi, fastapi, "FastAPI"),
    "Starlette": (Asgi, starlette, "Starlette"),
    "Starlette, mounted": (Asgi, mounted, "Starlette"),
    "Litestar": (Asgi, litestar, "Litestar"),
    "Quart": (Asgi, quart, "Quart"),
    "Django under ASGI": (Asgi, django_asgi, "Django"),
    "Django under WSGI": (Wsgi, django_wsgi, "Django"),
    "Flask": (Wsgi, flask, "Flask"),
}


class At:
    """A face whose endpoint is at a prefix."""

    def __init__(self, face: Face, path: str) -> None:
        self._face = face
        self._path = path

    def open(self, *arguments: Any, **options: Any) -> Any:
        return self._face.open(*arguments, path=self._path, **options)

    def ask(self, *arguments: Any, **options: Any) -> Any:
        return self.open(*arguments, **options).whole()


@pytest.fixture(params=APPS)
def mount(request: pytest.FixtureRequest, _opened: list[Face]) -> Callable[[Server], Face]:
    kind, make, _ = APPS[request.param]

    def start(server: Server) -> Face:
        _opened.append(kind(None, make(server)))
        return _opened[-1]

    return start


def test_requests_of_both_eras_are_answered_at_the_prefix(mount: Callable[[Server], Face]) -> None:
    face: Any = At(mount(World().server), "/api/mcp")
    assert text_of(call(face, "add", {"a": 1, "b": 2}).json()) == "3"
    assert text_of(call(face, "add_async", {"a": 1, "b": 2}).json()) == "3"
    assert [each.get("method") for each in call(face, "count", {"to": 1}, token="t").messages()] == [
        "notifications/progress",
        None,
    ]
    session = Session(face, capabilities={"elicitation": {}})
    live = session.call("book", {"date": "today"})
    question = live.message()
    session.answer(question["id"], {"action": "accept", "content": {"seats": 4}})
    assert text_of(live.message()) == "4 seats on today"
    assert text_of(session.call("add", {"a": 1, "b": 2}, 2).json()) == "3"
    assert session.delete().whole().status == 204


def test_the_application_goes_on_as_before(mount: Callable[[Server], Face], request: pytest.FixtureRequest) -> None:
    face = mount(World().server)
    answer = face.ask("GET", {"accept": "application/json"}, path="/other")
    assert answer.status == 200
    assert json.loads(answer.body)["hello"] in str(request.node.name)
    assert face.ask("GET", {"accept": "application/json"}, path="/nothing").status == 404
    gc.collect()


def test_a_listener_is_told_and_leaves(mount: Callable[[Server], Face]) -> None:
    world = World()
    face: Any = At(mount(world.server), "/api/mcp")
    request = body("subscriptions/listen", {"notifications": {"toolsListChanged": True}})
    live = face.open("POST", mirror(request), request)
    assert live.message()["method"] == "notifications/subscriptions/acknowledged"
    world.server.notify_tools_list_changed()
    assert live.message()["method"] == "notifications/tools/list_changed"
    live.close()


def test_a_user_of_starlette_is_the_principal(asgi: Callable[..., Asgi]) -> None:
    pytest.importorskip("starlette", reason="Starlette is not installed")
    from starlette.applications import Starlette
    from starlette.authentication import AuthCredentials, AuthenticationBackend, SimpleUser
    from starlette.middleware import Middleware
    from starlette.middleware.authentication import AuthenticationMiddleware
    from starlette.routing import Route

    class Known(AuthenticationBackend):
        async def authenticate(self, conn: Any) -> Any:
            name = conn.headers.get("x-user")
            return (AuthCredentials(), SimpleUser(name)) if name else None

    server = World().server
    routes = [Route("/mcp", server.asgi())]
    face = asgi(None, Starlette(routes=routes, middleware=[Middleware(AuthenticationMiddleware, backend=Known())]))
    request = body("tools/call", {"name": "facts", "arguments": {}})
    for sent, found in (({"x-user": "mia"}, "mia"), ({}, None)):
        answer = face.ask("POST", mirror(request) | sent, request)
        assert answer.json()["result"]["structuredContent"]["principal"] == found


def test_another_application_keeps_its_lifespan(asgi: Callable[..., Asgi]) -> None:
    import asyncio

    seen: list[str] = []

    async def other(scope: Any, receive: Any, send: Any) -> None:
        seen.append(scope["type"])

        if scope["type"] == "lifespan":
            seen.append((await receive())["type"])
            await send({"type": "lifespan.startup.complete"})
            seen.append((await receive())["type"])
            await send({"type": "lifespan.shutdown.complete"})

    events = ["lifespan.shutdown", "lifespan.startup"]
    sent: list[str] = []

    async def receive() -> Any:
        return {"type": events.pop()}

    async def send(message: Any) -> None:
        sent.append(message["type"])

    app = World().server.asgi(path="/mcp", otherwise=other)
    asyncio.run(app({"type": "lifespan"}, receive, send))
    asyncio.run(app({"type": "websocket"}, receive, send))
    assert seen == ["lifespan", "lifespan.startup", "lifespan.shutdown", "websocket"]
    assert sent == ["lifespan.startup.complete", "lifespan.shutdown.complete"]


@pytest.fixture
def face_of(_opened: list[Face]) -> Callable[..., Face]:
    def start(kind: Any, app: Any) -> Face:
        _opened.append(kind(None, app))
        return _opened[-1]

    return start


PAGE = (Path(__file__).parents[3] / "docs" / "frameworks.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
MOUNTED = {
    "FastAPI": (Asgi, 1, "app"),
    "Starlette": (Asgi, 2, "app"),
    "FastAPI with a lifespan": (Asgi, 3, "app"),
    "Django under ASGI": (Asgi, 4, "application"),
    "Django under WSGI": (Wsgi, 5, "application"),
    "Flask": (Wsgi, 6, "app"),
    "Litestar": (Asgi, 7, "app"),
    "Quart": (Asgi, 8, "app"),
    "no framework": (Asgi, 9, "app"),
}
"""Which block of the page makes what. The first one makes the server."""
BASES = {3: 1, 5: 4}
"""The blocks that import what another one uses."""


@pytest.mark.parametrize("framework", MOUNTED)
def test_what_the_page_shows_answers_a_call(framework: str, face_of: Callable[..., Face]) -> None:
    kind, number, made = MOUNTED[framework]
    if framework != "no framework":
        pytest.importorskip(
            framework.split()[0].lower(), reason=f"{framework} is not installed: pip install '.[peers]'"
        )
    if made == "application":
        _django()
    names: dict[str, Any] = {"__name__": "page"}
    for block in sorted({0, BASES.get(number, 0), number}):
        exec(compile(BLOCKS[block], "frameworks.md", "exec", dont_inherit=True), names)
    face: Any = At(face_of(kind, names[made]), "/mcp")
    assert text_of(call(face, "double", {"number": 21}).json()) == "42"
    assert len(BLOCKS) == len(MOUNTED) + 1
