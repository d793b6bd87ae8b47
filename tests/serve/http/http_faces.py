"""The same request through every face of an HTTP server: the bare machine, ASGI, WSGI, bytes of HTTP/1.1. No sockets."""

from __future__ import annotations

import asyncio
import io
import json
import queue
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import suppress
from typing import Any, TypeAlias
from wsgiref.util import is_hop_by_hop
from wsgiref.validate import validator

import httptools
import pytest
import uvicorn

from linkspan import Server
from linkspan.core.call import CallReady
from linkspan.core.http_checks import Arrival, HttpPolicy
from linkspan.core.http_endpoint import Endpoint
from linkspan.core.http_exchange import HttpData, HttpEnd, HttpResponse, HttpStart
from linkspan.core.shared_endpoint import SharedEndpoint
from linkspan.core.shared_state import Publish
from linkspan.revisions.neutral import TransportInfo
from linkspan.runtime.background import BackgroundLoop
from linkspan.runtime.system import SYSTEM
from linkspan.serve.asgi import AsgiApp
from linkspan.serve.http import make_endpoint, make_guard
from linkspan.serve.http_protocol import DirectApp, EndpointProtocol
from linkspan.serve.http_uvicorn import QuietUvicorn
from linkspan.serve.store_flows import perform
from linkspan.serve.wsgi import WsgiApp
from linkspan.stores import MemoryStore
from linkspan.wire.framing import EventReader, ServerSentEvent
from linkspan.wire.headers import split_target

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

    @property
    def endpoints(self) -> Sequence[Endpoint]:
        """Those of all processes."""
        return [self.endpoint]

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
        authority, path = split_target(path)
        arrival = Arrival(self.own, self.peer, path, self.version, authority)
        admitted = self.endpoint.gate.admit(method, headers, arrival)
        if isinstance(admitted, HttpResponse):
            put_whole(live, admitted)
            return
        headers = dict(admitted)
        url = f"http://{headers.get('host', '')}{path}"
        endpoint = self.endpoint
        taken = endpoint.open(method, url, headers, body, TransportInfo(headers, principal), query=self.query)

        def take() -> None:
            for event in taken.exchange.events():
                if isinstance(event, HttpResponse):
                    put_whole(live, event)
                    endpoint.finished(taken.exchange)
                elif isinstance(event, HttpStart):
                    live.put((event.status, dict(event.headers)))
                elif isinstance(event, HttpData):
                    live.put(event.data)
                elif isinstance(event, HttpEnd):
                    live.put(None)
                    endpoint.finished(taken.exchange)

        live.close = lambda: run(taken.connection, endpoint.disconnect(taken))
        taken.exchange.attach(take)
        take()
        for connection, events in ((taken.connection, taken.events), *taken.also):
            run(connection, events)

    def tick(self, seconds: float) -> None:
        """Let time pass."""
        self.now += seconds
        for connection, events in self.endpoint.tick(self.now):
            run(connection, events)


class _Store:
    """Runs the flows of one of several endpoints here and now; what it publishes waits until it is brought to all."""

    def __init__(self, store: MemoryStore, published: list[tuple[str, bytes]]) -> None:
        self.store = store
        self.published = published
        self.load = store.get

    def run(self, flow: Any) -> Any:
        result: Any = None
        while True:
            try:
                operation = flow.send(result)
            except StopIteration as end:
                return end.value
            if isinstance(operation, Publish):
                result = self.published.append((operation.channel, operation.data))
            else:
                result = perform(self.store, operation)

    def spawn(self, flow: Any) -> None:
        self.run(flow)


class Scattered(Bare):
    """Three machines that share a store, as processes do: each request goes to the next one. Time stands still."""

    def __init__(self, server: Server, **policy: Any) -> None:
        super().__init__(server, **policy)
        self._server = server
        self.published: list[tuple[str, bytes]] = []
        store = MemoryStore(lambda: self.now)
        self._endpoints = [
            SharedEndpoint(
                server,
                HttpPolicy(**policy),
                limits=server.connect(one_shot=True).limits,
                clock=lambda: self.now,
                random=SYSTEM.random,
                lock=threading.RLock,
                name="three",
                wall_clock=lambda: self.now,
                runner=_Store(store, self.published),
                is_secret=lambda name: name == "x-secret",
            )
            for _ in range(3)
        ]

    @property
    def endpoints(self) -> Sequence[Endpoint]:
        return self._endpoints

    def start(self, live: Live, *request: Any) -> None:
        self._endpoints.append(self._endpoints.pop(0))
        self.endpoint = self._endpoints[0]
        super().start(live, *request)
        close, endpoint = live.close, self.endpoint

        def leave() -> None:
            self.endpoint = endpoint
            close()
            self.bring()

        live.close = leave
        self.bring()

    def bring(self) -> None:
        """Bring to each machine what the others have published for it."""
        while self.published:
            channel, data = self.published.pop(0)
            for endpoint in self._endpoints:
                if channel in endpoint.channels:
                    for connection, events in endpoint.receive(data):
                        run(connection, events)

    def tick(self, seconds: float) -> None:
        """Let time pass."""
        self.now += seconds
        for endpoint in self._endpoints:
            for connection, events in endpoint.tick(self.now):
                run(connection, events)
        self.bring()


async def _awaited(value: Any) -> Any:
    return await value


def run(connection: Any, events: Any) -> None:
    """Run calls where they are."""
    for event in events:
        if isinstance(event, CallReady):
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
    """The WSGI callable, called in threads as servers with threads do, under the checker of the standard library."""

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
        stopping = threading.Event()
        live.close = stopping.set
        thread = threading.Thread(target=self._serve, args=(live, environ, principal, stopping), daemon=True)
        self._threads.append(thread)
        thread.start()

    def _serve(self, live: Live, environ: dict[str, Any], principal: object, stopping: threading.Event) -> None:
        def start_response(status: str, headers: list[tuple[str, str]], _: Any = None) -> None:
            assert not [name for name, _ in headers if is_hop_by_hop(name)], headers
            live.put((int(status.split()[0]), dict(headers)))

        def identified(environ: dict[str, Any], start_response: Any) -> Any:
            """Name the user as a middleware does, whose objects the checker of servers would not let pass."""
            return self.app(environ if principal is None else environ | {"REMOTE_USER": principal}, start_response)

        try:
            parts = validator(identified)(environ, start_response)
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


class Waitress(Face):
    """waitress with the WSGI callable, over sockets. What a test pretends of a socket, or of a middleware, cannot be there."""

    def __init__(self, server: Server, **policy: Any) -> None:
        create_server = pytest.importorskip("waitress.server", reason="waitress is not installed").create_server
        app = server.wsgi(**policy)
        self.app, self.endpoint = app, app.endpoint
        self._connections: list[tuple[socket.socket, threading.Thread]] = []
        self._open: dict[int, Any] = {}
        """What its loop looks after."""
        settings = {"host": "127.0.0.1", "port": 0, "threads": 16, "clear_untrusted_proxy_headers": True}
        self._serving = create_server(lambda *request: self.app(*request), map=self._open, **settings)
        self._thread = threading.Thread(target=self._serving.run, daemon=True)
        self._thread.start()

    def start(
        self, live: Live, method: str, path: str, headers: dict[str, str], body: bytes, principal: str | None
    ) -> None:
        if principal is not None or (self.own, self.peer) != (Face.own, Face.peer):
            pytest.skip("a socket and its server are what they are")
        url = f"{path}?{self.query}" if self.query else path
        lines = [f"{name}: {value}\r\n" for name, value in headers.items()]
        head = f"{method} {url} HTTP/{self.version}\r\n{''.join(lines)}\r\n".encode("latin-1")
        connection = socket.create_connection(("127.0.0.1", self._serving.effective_port))
        live.close = lambda: connection.shutdown(socket.SHUT_RDWR)
        reader = threading.Thread(target=self._receive, args=(connection, live, method), daemon=True)
        self._connections.append((connection, reader))
        reader.start()
        connection.sendall(head + body)

    def _receive(self, connection: socket.socket, live: Live, method: str) -> None:
        answers = _Answers(live, method)
        try:
            while data := connection.recv(65536):
                answers.feed(data)
        except Exception as error:
            live.put(error)

    def stop(self) -> None:
        for connection, reader in self._connections:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
            reader.join(PATIENCE)
            connection.close()
        self._serving.trigger.pull_trigger(lambda: self._serving.asyncore.close_all(self._open))
        self._thread.join(PATIENCE)
        self._serving.task_dispatcher.shutdown(timeout=0.1)


class Wire(asyncio.Transport):
    """What is below one connection of `Http`: what the protocol writes goes to a client that may not read."""

    def __init__(self, face: Http, write: Callable[[bytes], None]) -> None:
        super().__init__({"socket": self})
        self._face = face
        self._write = write
        self._unread = 0
        self._closing = False
        self.protocol: asyncio.Protocol | None = None
        self.paused = False

    def getpeername(self) -> tuple[str, int] | None:
        return (self._face.peer, 5) if self._face.peer is not None else None

    def getsockname(self) -> tuple[str, int] | None:
        return (self._face.own, 8000) if self._face.own is not None else None

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._face.reads:
            self._write(bytes(data))
            return
        if not self._unread:
            asyncio.get_running_loop().call_soon(self._pause)
        self._unread += len(data)

    def _pause(self) -> None:
        if self.protocol is not None:
            self.protocol.pause_writing()

    def get_write_buffer_size(self) -> int:
        return self._unread

    def pause_reading(self) -> None:
        self.paused = True

    def resume_reading(self) -> None:
        self.paused = False

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        """A client that sees the end goes."""
        self.abort()

    def is_closing(self) -> bool:
        return self._closing

    def close(self) -> None:
        self._closing = True
        if not self._unread:
            self.abort()

    def abort(self) -> None:
        self._closing = True
        protocol, self.protocol = self.protocol, None
        if protocol is not None:
            asyncio.get_running_loop().call_soon(protocol.connection_lost, None)


class _Answers:
    """What a client understands of the bytes of a response."""

    def __init__(self, live: Live, method: str) -> None:
        self._live = live
        self._bodiless = method == "HEAD"
        self._parser = httptools.HttpResponseParser(self)
        self._headers: dict[str, str] = {}

    def feed(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        self._live.put((self._parser.get_status_code(), self._headers))
        if self._bodiless:
            self._live.put(None)

    def on_body(self, body: bytes) -> None:
        self._live.put(body)

    def on_message_complete(self) -> None:
        self._live.put(None)


class Http(Face):
    """The protocol of `run("http")`, fed with bytes on a loop in a thread. Each request has a connection of its own."""

    def __init__(self, server: Server, **policy: Any) -> None:
        self.endpoint = make_endpoint(server, HttpPolicy(**policy))
        self.app = DirectApp(self.endpoint, guard=make_guard(server, self.endpoint.gate))
        self.loop = BackgroundLoop()
        self.root_path = ""
        self.doubled = ""
        self.reads = True
        self.chunk: int | None = None
        self.stall_after: int | None = None
        self.go_after: int | None = None
        self.gone = False
        """Whether a client has gone as `go_after` says."""
        config = uvicorn.Config(self._nothing, lifespan="off", ws="none", log_config=None, access_log=False)
        self.serving = QuietUvicorn(config, self.app, head_timeout=30.0)
        self.loop.loop.call_soon_threadsafe(self._look)

    async def _nothing(self, scope: object, receive: object, send: object) -> None:
        raise AssertionError("no request is for an application")

    def _look(self) -> None:
        self.serving.handle_timeouts(time.monotonic())
        asyncio.get_running_loop().call_later(0.01, self._look)

    def connect(self, write: Callable[[bytes], None]) -> tuple[EndpointProtocol, Wire]:
        """Open a connection; to be called on the loop."""
        config = self.serving.config
        config.root_path = self.root_path
        protocol = EndpointProtocol(self.app, config, self.serving.server_state, {}, asyncio.get_running_loop())
        wire = Wire(self, write)
        wire.protocol = protocol
        protocol.connection_made(wire)
        return protocol, wire

    def start(
        self, live: Live, method: str, path: str, headers: dict[str, str], body: bytes, principal: str | None
    ) -> None:
        if principal is not None:
            pytest.skip("no middleware stands in front of it, so its clients have no names")
        lines = [f"{name}: {value}\r\n" for name, value in headers.items()]
        if self.doubled in headers:
            lines.append(f"{self.doubled}: again\r\n")
        size = self.chunk or len(body) or 1
        parts = [body[at : at + size] for at in range(0, len(body), size)]
        if body and "content-length" not in headers:
            lines.append("transfer-encoding: chunked\r\n")
            parts = [b"%x\r\n%b\r\n" % (len(part), part) for part in parts] + [b"0\r\n\r\n"]
        url = f"{path}?{self.query}" if self.query else path
        head = f"{method} {url} HTTP/{self.version}\r\n{''.join(lines)}\r\n".encode("latin-1")
        stalls = self.stall_after if self.go_after is None else self.go_after
        goes = self.go_after is not None
        answers = _Answers(live, method)
        self.loop.loop.call_soon_threadsafe(self._begin, live, answers, [head, *parts[:stalls]], goes)

    def _begin(self, live: Live, answers: _Answers, parts: list[bytes], goes: bool) -> None:
        protocol, wire = self.connect(answers.feed)
        live.close = lambda: self.loop.loop.call_soon_threadsafe(wire.abort)
        for part in parts if self.chunk else [b"".join(parts)]:
            protocol.data_received(part)
        self.gone = goes
        if goes:
            wire.abort()

    def vanish(self, method: str, headers: Mapping[str, str], body: dict[str, Any]) -> BaseException | None:
        """Send what `go_after` allows, and go; return what the loop reports. Nothing must be sent."""
        reported: list[BaseException | None] = []
        self.loop.loop.set_exception_handler(lambda _, context: reported.append(context.get("exception")))
        live = self.open(method, headers, body)
        self.until(lambda: self.gone)
        assert live.waiting
        return reported[0] if reported else None

    def stop(self) -> None:
        self.loop.close()


OnALoop: TypeAlias = Callable[..., Asgi | Http]
FACES: dict[str, type[Face]] = {"bare": Bare, "asgi": Asgi, "wsgi": Wsgi, "waitress": Waitress, "http": Http}


def each_face(faces: Mapping[str, type[Face]] = FACES) -> Iterator[str]:
    """Return the names, for parametrization."""
    return iter(faces)
