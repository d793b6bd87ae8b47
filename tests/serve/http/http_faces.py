"""The same request through every face of an HTTP server: the bare machine, ASGI, WSGI. No sockets."""

from __future__ import annotations

import asyncio
import io
import json
import queue
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from typing import Any

from linkspan import Server
from linkspan.core.call import CallReady, HookReady
from linkspan.core.http_checks import Arrival, HttpPolicy
from linkspan.core.http_endpoint import Endpoint
from linkspan.core.http_exchange import HttpData, HttpEnd, HttpResponse, HttpStart
from linkspan.revisions.neutral import TransportInfo
from linkspan.runtime.background import BackgroundLoop
from linkspan.runtime.system import SYSTEM
from linkspan.serve.asgi import AsgiApp
from linkspan.serve.wsgi import WsgiApp
from linkspan.wire.framing import EventReader, ServerSentEvent

PATIENCE = 30.0
"""Seconds after which a test gives up waiting. Nothing waits that long unless it is broken."""


class Live:
    """A response while it comes: status and headers first, then the body in parts, then the end."""

    def __init__(self) -> None:
        self._parts: queue.Queue[tuple[int, dict[str, str]] | bytes | BaseException | None] = queue.Queue()
        self._reader = EventReader(10_000_000)
        self._events: list[ServerSentEvent] = []
        self._began = False
        self.status = 0
        self.headers: dict[str, str] = {}
        self.body = b""
        self.ended = False
        self.close: Callable[[], object] = lambda: None
        self.task: asyncio.Task[None] | None = None

    def put(self, part: tuple[int, dict[str, str]] | bytes | BaseException | None) -> None:
        """Take the status and headers, then parts of the body, then None."""
        self._parts.put(part)

    def begin(self) -> Live:
        """Wait for status and headers."""
        while not self._began:
            self._take()
        return self

    def whole(self) -> Live:
        """Wait for the end."""
        while not self.ended:
            self._take()
        return self

    def event(self) -> ServerSentEvent:
        """Wait for one event."""
        while not self._events:
            assert not self.ended, f"the stream ended: {self.body!r}"
            self._take()
        return self._events.pop(0)

    def message(self) -> Any:
        """Wait for one message: an event with data."""
        while True:
            event = self.event()
            if event.data:
                return json.loads(event.data)

    def messages(self) -> list[Any]:
        """Wait for the end, and return all messages that are left."""
        self.whole()
        found = [json.loads(each.data) for each in self._events if each.data]
        self._events.clear()
        return found

    def json(self) -> Any:
        """Wait for the end, and return the body."""
        return json.loads(self.whole().body)

    @property
    def code(self) -> int | None:
        """The code of the JSON-RPC error in the body, if it is one."""
        body = self.json() if self.whole().body else {}
        code: int | None = body.get("error", {}).get("code")
        return code

    @property
    def kind(self) -> str:
        """The media type."""
        return self.begin().headers.get("content-type", "")

    @property
    def waiting(self) -> bool:
        """Whether nothing has come that was not taken."""
        return self._parts.empty()

    def _take(self) -> None:
        part = self._parts.get(timeout=PATIENCE)
        if isinstance(part, BaseException):
            raise part
        if part is None:
            self.ended = True
        elif isinstance(part, tuple):
            self._began, (self.status, self.headers) = True, part
        else:
            self.body += part
            if self.kind.startswith("text/event-stream"):
                self._events += self._reader.receive_data(part)


class Face:
    """One way to reach a server."""

    endpoint: Endpoint
    app: Any = None
    query = ""
    own: str | None = "127.0.0.1"
    """The address that requests come to."""
    peer: str | None = "127.0.0.1"
    """The address that they come from."""
    version = "1.1"
    """That of HTTP."""

    def __init__(self, server: Server, **policy: Any) -> None:
        raise NotImplementedError

    def open(
        self,
        method: str = "POST",
        headers: Mapping[str, str | None] = {},
        body: bytes | str | dict[str, Any] | list[Any] = b"",
        *,
        path: str = "/mcp",
        query: str = "",
        principal: str | None = None,
    ) -> Live:
        """Send a request, and return its response while it comes."""
        given: dict[str, str | None] = {"host": "127.0.0.1:8000"}
        given |= {name.lower(): value for name, value in headers.items()}
        if isinstance(body, dict | list):
            body = json.dumps(body)
        data = body.encode() if isinstance(body, str) else body
        if method == "POST":
            given.setdefault("content-type", "application/json")
        if data:
            given.setdefault("content-length", str(len(data)))
        live = Live()
        self.query = query
        self.start(live, method, path, {k: v for k, v in given.items() if v is not None}, data, principal)
        return live

    def ask(self, *arguments: Any, **options: Any) -> Live:
        """Send a request, and wait for the whole response."""
        return self.open(*arguments, **options).whole()

    def start(
        self, live: Live, method: str, path: str, headers: dict[str, str], body: bytes, principal: str | None
    ) -> None:
        raise NotImplementedError

    def until(self, true: Callable[[], bool]) -> None:
        """Wait for something to become true."""
        give_up = time.monotonic() + PATIENCE
        while not true():
            assert time.monotonic() < give_up
            time.sleep(0.001)

    def stop(self) -> None:
        """Nothing is left."""


def put_whole(live: Live, response: HttpResponse) -> None:
    """Send a whole response as the drivers do."""
    live.put((response.status, dict(response.headers) | {"content-length": str(len(response.body))}))
    live.put(response.body)
    live.put(None)


class Bare(Face):
    """The machine, with nothing around it. Time stands still unless a test moves it."""

    def __init__(self, server: Server, **policy: Any) -> None:
        self.now = 1000.0
        self.endpoint = Endpoint(
            server,
            HttpPolicy(**policy),
            limits=server.connect(one_shot=True).limits,
            clock=lambda: self.now,
            random=SYSTEM.random,
            lock=threading.RLock,
        )

    def start(
        self, live: Live, method: str, path: str, headers: dict[str, str], body: bytes, principal: str | None
    ) -> None:
        headers = {name: value.strip() for name, value in headers.items()}
        refusal = self.endpoint.gate.admit(method, headers, Arrival(self.own, self.peer, path, self.version))
        if refusal is not None:
            put_whole(live, refusal)
            return
        url = f"http://{headers.get('host', '')}{path}"
        taken = self.endpoint.open(method, url, headers, body, TransportInfo(headers, principal), query=self.query)

        def take() -> None:
            for event in taken.exchange.events():
                if isinstance(event, HttpResponse):
                    put_whole(live, event)
                    self.endpoint.finished(taken.exchange)
                elif isinstance(event, HttpStart):
                    live.put((event.status, dict(event.headers)))
                elif isinstance(event, HttpData):
                    live.put(event.data)
                elif isinstance(event, HttpEnd):
                    live.put(None)
                    self.endpoint.finished(taken.exchange)

        live.close = lambda: run(taken.connection, self.endpoint.disconnect(taken))
        taken.exchange.attach(take)
        take()
        for connection, events in ((taken.connection, taken.events), *taken.also):
            run(connection, events)

    def tick(self, seconds: float) -> None:
        """Let time pass."""
        self.now += seconds
        for connection, events in self.endpoint.tick(self.now):
            run(connection, events)


async def _awaited(value: Any) -> Any:
    return await value


def run(connection: Any, events: Any) -> None:
    """Run calls where they are."""
    for event in events:
        if isinstance(event, HookReady):
            run(connection, connection.run_hook(event.hook))
        elif isinstance(event, CallReady):
            try:
                value = event.call.run()
                if hasattr(type(value), "__await__"):
                    value = asyncio.run(_awaited(value))
            except BaseException as error:
                run(connection, connection.fail(event.call, error))
            else:
                run(connection, connection.finish(event.call, value))


class Asgi(Face):
    """The ASGI callable, called on a loop in a thread."""

    def __init__(self, server: Server | None, app: Any = None, **policy: Any) -> None:
        self.app = app if server is None else server.asgi(**policy)
        if isinstance(self.app, AsgiApp):
            self.endpoint = self.app.endpoint
        self.loop = BackgroundLoop()
        self.root_path = ""
        self.doubled = ""
        """A header that is sent twice."""
        self.reads = True
        """Whether the client takes what it is sent."""
        self.chunk: int | None = None
        """Bytes of the body in one message."""
        self.stall_after: int | None = None
        """Messages of the body after which nothing more comes."""
        self.go_after: int | None = None
        """Messages of the body after which the client goes."""

    def vanish(self, method: str, headers: Mapping[str, str], body: dict[str, Any]) -> BaseException | None:
        """Send what `go_after` allows, and go; return what the application raised. It must not say anything."""
        live = self.open(method, headers, body)
        self.until(lambda: live.task is not None and live.task.done())
        assert live.waiting
        assert live.task is not None
        return live.task.exception()

    def start(
        self, live: Live, method: str, path: str, headers: dict[str, str], body: bytes, principal: str | None
    ) -> None:
        scope = {
            "type": "http",
            "http_version": self.version,
            "asgi": {"version": "3.0"},
            "method": method,
            "scheme": "http",
            "path": path,
            "raw_path": path.encode(),
            "root_path": self.root_path,
            "query_string": self.query.encode(),
            "headers": [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()],
            "client": (self.peer, 5) if self.peer is not None else None,
            "server": (self.own, 8000) if self.own is not None else None,
        }
        if self.doubled in headers:
            scope["headers"].append((self.doubled.encode(), b"again"))  # type: ignore[attr-defined]
        if principal is not None:
            scope["user"] = principal
        self.loop.loop.call_soon_threadsafe(self._begin, live, scope, body)

    def _begin(self, live: Live, scope: dict[str, Any], body: bytes) -> None:
        gone = asyncio.Event()
        told: dict[str, Any] = {}
        size = self.chunk or len(body) or 1
        parts = [body[at : at + size] for at in range(0, len(body), size)] or [b""]
        messages = [{"type": "http.request", "body": part, "more_body": True} for part in parts]
        messages[-1]["more_body"] = False
        if self.stall_after is not None:
            del messages[self.stall_after :]
        if self.go_after is not None:
            del messages[self.go_after :]
            gone.set()

        async def receive() -> dict[str, Any]:
            if messages:
                return messages.pop(0)
            await gone.wait()
            return {"type": "http.disconnect"}

        async def send(message: MutableMapping[str, Any]) -> None:
            if not self.reads:
                await asyncio.Event().wait()
            if message["type"] == "http.response.start":
                told["headers"] = {name.decode(): value.decode() for name, value in message["headers"]}
                live.put((message["status"], told["headers"]))
            elif message["type"] == "http.response.body":
                if message.get("body"):
                    live.put(message["body"])
                if not message.get("more_body", False):
                    live.put(None)

        async def serve() -> None:
            try:
                await self.app(scope, receive, send)
            except BaseException as error:
                live.put(error)
                raise

        live.close = lambda: self.loop.loop.call_soon_threadsafe(gone.set)
        task = asyncio.get_running_loop().create_task(serve())
        live.task = task
        task.add_done_callback(lambda done: done.cancelled() or done.exception())

    def stop(self) -> None:
        self.loop.close()


class Wsgi(Face):
    """The WSGI callable, called in threads as servers with threads do."""

    def __init__(self, server: Server | None, app: Any = None, **policy: Any) -> None:
        self.app = app if server is None else server.wsgi(**policy)
        if isinstance(self.app, WsgiApp):
            self.endpoint = self.app.endpoint
        self._threads: list[threading.Thread] = []

    def start(
        self, live: Live, method: str, path: str, headers: dict[str, str], body: bytes, principal: str | None
    ) -> None:
        environ: dict[str, Any] = {
            "REQUEST_METHOD": method,
            "SCRIPT_NAME": "",
            "PATH_INFO": path,
            "QUERY_STRING": self.query,
            "SERVER_NAME": self.own or "",
            "SERVER_PORT": "8000",
            "SERVER_PROTOCOL": f"HTTP/{self.version}",
            "REMOTE_ADDR": self.peer or "",
            "wsgi.version": (1, 0),
            "wsgi.url_scheme": "http",
            "wsgi.input": io.BytesIO(body),
            "wsgi.errors": sys.stderr,
            "wsgi.multithread": True,
            "wsgi.multiprocess": False,
            "wsgi.run_once": False,
        }
        for name, value in headers.items():
            key = name.upper().replace("-", "_")
            environ[key if key in ("CONTENT_TYPE", "CONTENT_LENGTH") else f"HTTP_{key}"] = value
        if principal is not None:
            environ["REMOTE_USER"] = principal
        stopping = threading.Event()
        live.close = stopping.set
        thread = threading.Thread(target=self._serve, args=(live, environ, stopping), daemon=True)
        self._threads.append(thread)
        thread.start()

    def _serve(self, live: Live, environ: dict[str, Any], stopping: threading.Event) -> None:
        def start_response(status: str, headers: list[tuple[str, str]], _: Any = None) -> None:
            live.put((int(status.split()[0]), dict(headers)))

        try:
            parts = self.app(environ, start_response)
            try:
                for part in parts:
                    if stopping.is_set():
                        break
                    live.put(part)
                else:
                    live.put(None)
            finally:
                if hasattr(parts, "close"):
                    parts.close()
        except BaseException as error:
            live.put(error)

    def stop(self) -> None:
        for thread in self._threads:
            thread.join(0.01)


FACES: dict[str, type[Face]] = {"bare": Bare, "asgi": Asgi, "wsgi": Wsgi}


def each_face(faces: Mapping[str, type[Face]] = FACES) -> Iterator[str]:
    """Return the names, for parametrization."""
    return iter(faces)
