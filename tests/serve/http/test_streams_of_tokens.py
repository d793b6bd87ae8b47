"""Streams that only listen end with their token; running calls keep their responses, and our clients come back with another."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from http_faces import Asgi, Bare, Face, Http, Live, Scattered, Wsgi
from http_talk import BOTH, Session, body, mirror

from linkspan import Client, Context, Grant, Server, SyncClient
from linkspan.auth import ClientCredentials, Protected
from linkspan.serve import guarding
from over_http import serving
from tokens import RESOURCE

PATIENCE = 30.0


class Tokens:
    """Tokens of one's own, and what is known of each."""

    def __init__(self) -> None:
        self.grants: dict[str, Grant | Exception] = {}
        self.asked: list[str] = []

    def give(self, token: str, seconds: float | None = None, **grant: Any) -> str:
        """Let a token be good, for some seconds."""
        expires = None if seconds is None else time.time() + seconds
        self.grants[token] = Grant("https://own.example.com", **{"subject": "ann", "expires": expires, **grant})
        return token

    def check(self, token: str) -> Grant | None:
        """Verify a token, as a function of an author does."""
        self.asked.append(token)
        found = self.grants.get(token)
        if isinstance(found, Exception):
            raise found
        return found

    async def check_async(self, token: str) -> Grant | None:
        """Verify a token on the event loop."""
        return self.check(token)


class World:
    """A protected server whose call ends when the test says so."""

    def __init__(self, *, is_async: bool = False, resource: str | None = RESOURCE, **options: Any) -> None:
        self.tokens = Tokens()
        self.begun, self.release = threading.Event(), threading.Event()
        check = self.tokens.check_async if is_async else self.tokens.check
        self.server = Server("files", auth=Protected(resource, verify=check, **options))
        self.server.define_tool(name="slow", handler=self.slow)

    def slow(self, ctx: Context) -> str:
        """End when the test says so."""
        self.begun.set()
        assert self.release.wait(PATIENCE)
        return "done"


@pytest.fixture(params=[Asgi, Wsgi, Http])
def serve(request: pytest.FixtureRequest) -> Iterator[Callable[..., Face]]:
    """Serve a world through each face in turn."""
    faces: list[Face] = []

    def start(world: World, **policy: Any) -> Face:
        faces.append(request.param(world.server, **policy))
        return faces[-1]

    yield start
    for face in faces:
        face.stop()


@pytest.fixture
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let tokens of streams be verified again with each look."""
    monkeypatch.setattr(guarding, "_LOOK_AGAIN", 0.01)
    monkeypatch.setattr(guarding, "_UNAVAILABLE", 0.0)


def listen(face: Face, token: str) -> Live:
    """Open a stream of the newest revision, and wait until it is there."""
    request = body("subscriptions/listen", {"notifications": {"toolsListChanged": True}})
    live = face.open("POST", {**mirror(request), "accept": BOTH, "authorization": f"Bearer {token}"}, request)
    assert live.message()["method"] == "notifications/subscriptions/acknowledged"
    return live


def handshake(face: Face, token: str) -> Session:
    """Open a session with a token."""
    plain = face.open

    def open_with(method: str, headers: Any, *arguments: Any, **options: Any) -> Any:
        return plain(method, {"authorization": f"Bearer {token}", **headers}, *arguments, **options)

    face.open = open_with  # type: ignore[method-assign]
    return Session(face)


def call(face: Face, token: str) -> Live:
    request = body("tools/call", {"name": "slow", "arguments": {}})
    return face.open("POST", {**mirror(request), "authorization": f"Bearer {token}"}, request)


def test_a_stream_that_listens_ends_when_its_token_expires(serve: Callable[..., Face]) -> None:
    world = World()
    face = serve(world)
    short, long = world.tokens.give("short", 3.0), world.tokens.give("long", 600.0)
    ends, stays = listen(face, short), listen(face, long)
    session = handshake(face, short)
    general = session.get().begin()
    running = call(face, short)
    assert world.begun.wait(PATIENCE)
    ends.whole()
    general.whole()
    assert not stays.ended
    assert stays.waiting
    assert not running.ended
    world.release.set()
    assert running.json()["result"]["content"][0]["text"] == "done"


def test_what_came_after_the_end_of_the_stream_is_kept_for_the_session(serve: Callable[..., Face]) -> None:
    world = World()
    face = serve(world)
    session = handshake(face, world.tokens.give("short", 2.0))
    session.get().whole()
    world.server.notify_tools_list_changed()
    world.tokens.give("next")
    again = session.get(authorization="Bearer next")
    assert again.message()["method"] == "notifications/tools/list_changed"
    again.close()


@pytest.mark.parametrize("is_async", [False, True])
def test_a_stream_ends_when_its_token_is_revoked(serve: Callable[..., Face], often: None, *, is_async: bool) -> None:
    world = World(is_async=is_async)
    face = serve(world)
    token = world.tokens.give("revoked")
    modern, session = listen(face, token), handshake(face, token)
    general = session.get()
    general.event()
    running = call(face, token)
    assert world.begun.wait(PATIENCE)
    face.until(lambda: world.tokens.asked.count(token) > 2)  # it was looked at again, and was good
    assert modern.waiting
    assert general.waiting
    del world.tokens.grants[token]
    modern.whole()
    general.whole()
    world.release.set()
    assert running.json()["result"]["content"][0]["text"] == "done"
    assert listen_status(face, token) == 401


def listen_status(face: Face, token: str) -> int:
    request = body("subscriptions/listen", {"notifications": {"toolsListChanged": True}})
    return (
        face.open("POST", {**mirror(request), "accept": BOTH, "authorization": f"Bearer {token}"}, request)
        .begin()
        .status
    )


def test_a_token_that_was_refused_and_is_good_again_keeps_its_next_stream(
    serve: Callable[..., Face], often: None
) -> None:
    world = World()
    face = serve(world)
    first = listen(face, world.tokens.give("given"))
    del world.tokens.grants["given"]
    first.whole()
    again = listen(face, world.tokens.give("given"))
    asked = len(world.tokens.asked)
    face.until(lambda: len(world.tokens.asked) > asked + 1)
    assert again.waiting


@pytest.mark.parametrize("change", [{"subject": "bob"}, {"scopes": frozenset[str]()}])
def test_a_stream_ends_when_its_token_stands_for_another_or_for_too_little(
    serve: Callable[..., Face], often: None, change: dict[str, Any]
) -> None:
    world = World(scopes=["files:read"])
    face = serve(world)
    stream = listen(face, world.tokens.give("given", scopes=frozenset({"files:read"})))
    world.tokens.give("given", **{"scopes": frozenset({"files:read"}), **change})
    stream.whole()


def test_a_stream_stays_while_it_cannot_be_found_out_whether_its_token_is_good(
    serve: Callable[..., Face], often: None
) -> None:
    world = World()
    face = serve(world)
    token = world.tokens.give("given")
    stream = listen(face, token)
    world.tokens.grants[token] = RuntimeError("the database is away")
    asked = len(world.tokens.asked)
    face.until(lambda: len(world.tokens.asked) > asked + 1)
    assert stream.waiting
    del world.tokens.grants[token]
    stream.whole()


def test_the_streams_of_one_token_cause_one_look(serve: Callable[..., Face], monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    face = serve(world)
    streams = [listen(face, world.tokens.give("given")) for _ in range(5)]
    assert world.tokens.asked == ["given"]
    monkeypatch.setattr(guarding, "_LOOK_AGAIN", 0.01)
    face.until(lambda: len(world.tokens.asked) > 1)
    monkeypatch.setattr(guarding, "_LOOK_AGAIN", 600.0)
    assert len(world.tokens.asked) <= 3
    assert all(each.waiting for each in streams)


def test_a_stream_of_the_first_transport_ends_once_nothing_is_to_come_on_it(serve: Callable[..., Face]) -> None:
    world = World()
    face = serve(world, http_sse="/sse")
    token = world.tokens.give("short", 3.0)
    stream = face.open("GET", {"accept": "text/event-stream", "authorization": f"Bearer {token}"}, path="/sse")
    query = stream.event().data.partition("?")[2]
    later = world.tokens.give("later", 600.0)

    def post(message: dict[str, Any]) -> None:
        given = {"accept": BOTH, "authorization": f"Bearer {later}"}
        assert face.ask("POST", given, {"jsonrpc": "2.0", **message}, path="/sse", query=query).status == 202

    hello = {"protocolVersion": "2024-11-05", "capabilities": {}, "clientInfo": {"name": "old", "version": "1"}}
    post({"id": 1, "method": "initialize", "params": hello})
    assert stream.message()["id"] == 1
    post({"method": "notifications/initialized"})
    post({"id": 2, "method": "tools/call", "params": {"name": "slow", "arguments": {}}})
    assert world.begun.wait(PATIENCE)
    face.until(lambda: time.time() > world.tokens.grants["short"].expires + 1.5)  # type: ignore[union-attr, operator]
    assert not stream.ended
    world.release.set()
    assert stream.message()["id"] == 2
    stream.whole()


class Revoked:
    """What the transport knows of a token that is not good any more."""

    def holds(self) -> bool:
        return False


@pytest.mark.parametrize("kind", [Bare, Scattered])
def test_what_comes_after_the_end_of_a_stream_is_there_for_the_next_one_in_any_process(kind: type[Bare]) -> None:
    server = Server("files", capabilities={"tools": {"listChanged": True}})
    face = kind(server)
    session = Session(face)
    stream = session.get()
    stream.event()
    for endpoint in face.endpoints:
        for exchange in endpoint.streams.owners:
            exchange.access = Revoked()  # type: ignore[assignment]
    face.tick(1.0)
    stream.whole()
    server.notify_tools_list_changed()
    assert session.get().message()["method"] == "notifications/tools/list_changed"


# With our clients, over a socket.


class Rotating:
    """A client's function that gives another token as soon as the last one is near its end."""

    def __init__(self, tokens: Tokens, seconds: float) -> None:
        self._tokens = tokens
        self._seconds = seconds
        self._until = 0.0
        self.given: list[str] = []

    def __call__(self) -> str:
        """Return a token that is good."""
        if time.time() > self._until - 0.5:
            self._until = time.time() + self._seconds
            self.given.append(self._tokens.give(f"token-{len(self.given)}", self._seconds))
        return self.given[-1]


@pytest.mark.parametrize("era", ["modern", "legacy"])
def test_a_client_goes_on_listening_with_its_next_token(era: Any) -> None:
    world = World(resource="http://127.0.0.1/mcp")
    renew = Rotating(world.tokens, 2.0)
    with (
        serving(world.server.asgi()) as url,
        SyncClient(url, auth=renew, era=era) as client,
        client.listen(tools=True) as changes,
    ):
        for _ in range(3):
            before = len(renew.given)
            while len(renew.given) == before:  # until the stream was asked for with another token
                time.sleep(0.05)
            world.server.notify_tools_list_changed()
            assert next(iter(changes)).kind == "tools"


@pytest.mark.parametrize("era", ["modern", "legacy"])
def test_an_async_client_goes_on_listening_with_its_next_token(era: Any) -> None:
    world = World(resource="http://127.0.0.1/mcp", is_async=True)
    renew = Rotating(world.tokens, 2.0)

    async def main(url: str) -> None:
        async with Client(url, auth=renew, era=era) as client, client.listen(tools=True) as changes:
            for _ in range(2):
                before = len(renew.given)
                while len(renew.given) == before:
                    await asyncio.sleep(0.05)
                world.server.notify_tools_list_changed()
                assert (await anext(aiter(changes))).kind == "tools"

    with serving(world.server.asgi()) as url:
        asyncio.run(main(url))


class Site:
    """A protected server and its authorization server on one port, whose tokens live for some seconds."""

    def __init__(self, seconds: float) -> None:
        self.tokens = Tokens()
        self.server = Server("files")
        self.issued: list[str] = []
        self._seconds = seconds
        self._app: Any = None

    def open(self, url: str) -> None:
        """Protect the server, whose URL is known now."""
        base = url.removesuffix("/mcp")
        self.server = Server("files", auth=Protected(url, verify=self.tokens.check, authorization_servers=[base]))
        self._app, self._base = self.server.asgi(path="/mcp"), base

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Serve a request."""
        if scope["type"] == "lifespan":
            for step in ("startup", "shutdown"):
                await receive()
                await send({"type": f"lifespan.{step}.complete"})
            return
        answer: dict[str, Any] | None = None
        if scope["path"] == "/.well-known/oauth-authorization-server":
            answer = {"issuer": self._base, "token_endpoint": f"{self._base}/token"}
        elif scope["path"] == "/token":
            self.issued.append(self.tokens.give(f"issued-{len(self.issued)}", self._seconds))
            answer = {"access_token": self.issued[-1], "token_type": "Bearer", "expires_in": self._seconds}
        if answer is None:
            await self._app(scope, receive, send)
            return
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"application/json")]})
        await send({"type": "http.response.body", "body": json.dumps(answer).encode()})


@pytest.mark.parametrize("era", ["modern", "legacy"])
def test_a_client_with_a_login_goes_on_listening_with_a_renewed_token(era: Any) -> None:
    site = Site(4.0)
    with serving(site) as url:
        site.open(url)
        login = ClientCredentials("robot", secret="of the robot", issuer=url.removesuffix("/mcp"))
        with SyncClient(url, auth=login, era=era) as client, client.listen(tools=True) as changes:
            for _ in range(2):
                before = len(site.issued)
                while len(site.issued) == before:
                    time.sleep(0.05)
                site.server.notify_tools_list_changed()
                assert next(iter(changes)).kind == "tools"
