"""What clients make an endpoint keep before, and after, a response counts: bodies that do not end, notifications."""

from __future__ import annotations

import asyncio
import io
import json
import threading
from collections.abc import Callable
from typing import Any

from http_faces import Face, OnALoop
from http_talk import BOTH, Session, body, call, mirror
from http_world import World

from linkspan import Limits, Server
from linkspan.serve.asgi import AsgiApp

PING = json.dumps(body("tools/call", {"name": "add", "arguments": {"a": 1, "b": 2}})).encode()


class Upload:
    """A POST whose body comes as a test sends it."""

    def __init__(self, app: AsgiApp) -> None:
        self.status = 0
        self.answer = b""
        self._messages: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        headers = mirror(json.loads(PING)) | {"host": "127.0.0.1:8000", "content-type": "application/json"}
        scope = {
            "type": "http",
            "http_version": "1.1",
            "method": "POST",
            "scheme": "http",
            "path": "/mcp",
            "query_string": b"",
            "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
            "client": ("127.0.0.1", 5),
            "server": ("127.0.0.1", 8000),
        }
        self.task = asyncio.get_running_loop().create_task(app(scope, self._messages.get, self._send))

    async def _send(self, message: Any) -> None:
        self.status = message.get("status", self.status)
        self.answer += message.get("body", b"")

    async def send(self, part: bytes, *, more: bool = True) -> None:
        """Send a part of the body, and let the application look at it."""
        self._messages.put_nowait({"type": "http.request", "body": part, "more_body": more})
        for _ in range(5):
            await asyncio.sleep(0)

    @property
    def problem(self) -> str:
        found: str = json.loads(self.answer)["error"]["message"]
        return found


def adder(**policy: Any) -> AsgiApp:
    server = Server("adder")
    server.define_tool("add", handler=lambda a, b: a + b, input_schema={"type": "object"}, inline=True)
    return server.asgi(**policy)


def test_the_largest_body_makes_room_when_all_are_too_much() -> None:
    async def upload() -> None:
        app = adder(max_body_bytes=600, max_incoming_bytes=1000)
        large, small, late = Upload(app), Upload(app), Upload(app)
        await large.send(b" " * 600)
        await small.send(b" " * 400)
        assert (large.status, small.status) == (0, 0)  # exactly what is allowed
        await late.send(b" ")
        assert (large.status, large.problem) == (
            503,
            "Too many bodies are arriving (max_incoming_bytes); try again later [LS-505]",
        )
        assert (small.status, late.status) == (0, 0)
        await small.send(b" " * 199)
        await late.send(b" " * 400)
        assert small.status == 0
        await small.send(b" ")  # the largest is the one that sends
        assert (small.status, late.status) == (503, 0)
        await late.send(PING[:150])
        await late.send(PING[150:], more=False)
        await late.task
        assert late.status == 413  # it was not forgotten how much of it there was

    asyncio.run(upload())


def test_what_bodies_kept_is_free_when_they_end() -> None:
    async def upload() -> None:
        app = adder(max_body_bytes=1000, max_incoming_bytes=1000)
        for _ in range(5):
            whole = Upload(app)
            await whole.send(b" " * 600)
            await whole.send(PING[:-1])
            await whole.send(PING[-1:], more=False)
            await whole.task
            gone = Upload(app)
            await gone.send(b" " * 1000)
            gone._messages.put_nowait({"type": "http.disconnect"})  # pyright: ignore[reportPrivateUsage]
            await gone.task
            assert (whole.status, gone.status) == (200, 0)

    asyncio.run(upload())


def test_one_body_may_always_be_as_large_as_a_body_may_be() -> None:
    async def upload() -> None:
        app = adder(max_body_bytes=2000, max_incoming_bytes=10)
        only = Upload(app)
        await only.send(b" " * 1000)
        await only.send(PING, more=False)
        await only.task
        assert only.status == 200

    asyncio.run(upload())


def test_no_more_bodies_arrive_than_responses_may_be_open() -> None:
    async def upload() -> None:
        app = adder(max_streams=2)
        first, second = Upload(app), Upload(app)
        await first.send(b" ")
        third = Upload(app)
        await third.task
        assert (third.status, third.problem) == (
            503,
            "Too many bodies are arriving (max_streams); try again later [LS-505]",
        )
        assert (first.status, second.status) == (0, 0)
        await first.send(PING, more=False)
        await first.task
        fourth = Upload(app)
        await fourth.send(PING, more=False)
        await fourth.task
        assert (first.status, fourth.status) == (200, 200)
        second.task.cancel()

    asyncio.run(upload())


def test_sixty_unfinished_bodies_keep_no_more_than_the_bound() -> None:
    async def upload() -> None:
        app = adder()
        uploads = [Upload(app) for _ in range(60)]
        for _ in range(4):
            for each in uploads:
                if not each.status:
                    await each.send(bytes(1024 * 1024 - 1))
        assert sum(not each.status for each in uploads) <= 16
        for each in uploads:
            each.task.cancel()

    asyncio.run(upload())


class _Reading(io.BytesIO):
    """A body that is read when a test says so."""

    def __init__(self, data: bytes) -> None:
        super().__init__(data)
        self.begun = threading.Event()
        self.go_on = threading.Event()

    def read(self, size: int | None = -1) -> bytes:
        self.begun.set()
        assert self.go_on.wait(60)
        return super().read(size)


def test_a_body_is_refused_under_wsgi_where_the_others_take_all_room() -> None:
    app = adder_wsgi(max_body_bytes=1000, max_incoming_bytes=1500)
    slow = _Reading(PING + b" " * (900 - len(PING)))
    statuses: list[str] = []
    first = threading.Thread(target=lambda: statuses.append(post(app, slow, 900)))
    first.start()
    assert slow.begun.wait(60)
    assert post(app, io.BytesIO(PING + b" " * (601 - len(PING))), 601).startswith("503")
    assert post(app, io.BytesIO(PING + b" " * (600 - len(PING))), 600).startswith("200")
    slow.go_on.set()
    first.join()
    assert statuses == ["200 OK"]
    assert post(app, io.BytesIO(PING + b" " * (1000 - len(PING))), 1000).startswith("200")


def adder_wsgi(**policy: Any) -> Any:
    server = Server("adder")
    server.define_tool("add", handler=lambda a, b: a + b, input_schema={"type": "object"}, inline=True)
    return server.wsgi(**policy)


def post(app: Any, stream: io.BytesIO, length: int) -> str:
    headers = mirror(json.loads(PING)) | {"host": "127.0.0.1:8000"}
    environ = {
        "REQUEST_METHOD": "POST",
        "PATH_INFO": "/mcp",
        "CONTENT_TYPE": "application/json",
        "CONTENT_LENGTH": str(length),
        "wsgi.input": stream,
        **{f"HTTP_{name.upper().replace('-', '_')}": value for name, value in headers.items()},
    }
    statuses: list[str] = []
    response = app(environ, lambda status, _: statuses.append(status))
    b"".join(response)
    getattr(response, "close", bool)()
    return statuses[0]


# Answers.


def test_an_answer_that_was_sent_at_once_takes_no_room_any_more(serve_one: Callable[..., Face]) -> None:
    server = Server("adder")
    server.define_tool("add", handler=lambda a, b: a + b, input_schema={"type": "object"}, inline=True)
    face = serve_one(server, max_streams=1)
    assert [call(face, "add", {"a": 1, "b": 2}).whole().status for _ in range(3)] == [200] * 3
    face.until(lambda: len(face.endpoint.streams) == 0)


# Notifications.


def noting(world: World) -> Server:
    """Let the world serve a notification that takes its time."""

    def note() -> None:
        world.note("noted")
        world.let_go.wait(60)

    world.server.define_custom_method("notifications/note", handler=note)
    return world.server


def test_notifications_that_are_served_take_room_until_they_end(on_a_loop: OnALoop) -> None:
    world = World()
    face = on_a_loop(noting(world), max_streams=2)
    note = body("notifications/note")
    del note["id"]
    statuses = [face.ask("POST", mirror(note), note).status for _ in range(3)]
    assert statuses == [202, 202, 503]
    other = body("notifications/other")
    del other["id"]
    assert face.ask("POST", mirror(other), other).status == 202  # nobody serves it, so it takes no room
    world.let_go.set()
    face.until(lambda: face.ask("POST", mirror(note), note).status == 202)


def test_notifications_of_a_client_without_a_session_take_room_too(on_a_loop: OnALoop) -> None:
    world = World()
    face = on_a_loop(noting(world), max_streams=2, sessions=False)
    note = {"jsonrpc": "2.0", "method": "notifications/note"}
    assert [face.ask("POST", {"accept": BOTH}, note).status for _ in range(3)] == [202, 202, 503]
    world.let_go.set()


def test_notifications_in_a_session_count_as_calls(on_a_loop: OnALoop) -> None:
    world = World(limits=Limits(max_running=2))
    session = Session(on_a_loop(noting(world)))
    statuses = [session.send("notifications/note").whole().status for _ in range(3)]
    assert statuses == [202, 202, 429]
    assert session.send("notifications/cancelled", {"requestId": 9}).whole().status == 202
    assert session.answer(3, {}).whole().status == 202  # an answer is what may make room
    world.let_go.set()


def test_answers_come_through_while_as_many_calls_run_as_may(on_a_loop: OnALoop) -> None:
    world = World(limits=Limits(max_running=1))
    face = on_a_loop(noting(world), http_sse="/sse")
    stream = face.open("GET", {"accept": "text/event-stream"}, path="/sse")
    _, _, query = stream.event().data.partition("?")
    note = {"jsonrpc": "2.0", "method": "notifications/note"}
    headers = {"mcp-protocol-version": None, "accept": BOTH}

    def post(message: Any) -> int:
        return face.ask("POST", headers, message, path="/sse", query=query).status

    assert [post(note), post(note)] == [202, 429]
    assert post({"jsonrpc": "2.0", "id": 1, "result": {}}) == 202
    world.let_go.set()
