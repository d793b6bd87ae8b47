"""An ASGI application of this process, such as one of FastAPI: its operations as tools, called without a network.

Law: the application sees the caller's address or none, never loopback, and none of the caller's headers but those that are named.
What runs in it runs as over HTTP: validation, dependencies, its lifespan once, background tasks after the response.
Spec: https://asgi.readthedocs.io/en/latest/specs/www.html.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, MutableMapping, Sequence
from typing import Any, Final, TypeAlias, cast
from urllib.parse import unquote, urlsplit

from linkspan.errors import LinkspanError, RegistrationError, ToolError
from linkspan.openapi.answers import ApiReply
from linkspan.openapi.calling import MAX_RESPONSE, TIMEOUT
from linkspan.openapi.curation import Curation, CurationSource
from linkspan.openapi.importing import offer
from linkspan.openapi.reading import ApiDocument, Source, read_document
from linkspan.openapi.requests import ApiRequest
from linkspan.openapi.schemas import ApiDocumentError
from linkspan.serve.server import Server
from linkspan.server.context import Context
from linkspan.server.editing import Edit
from linkspan.server.mounting import Mounted
from linkspan.server.visibility import When
from linkspan.types.base import JSON
from linkspan.wire.headers import is_loopback

__all__ = ["AppClient", "from_app", "mount_app"]

MAX_RUNNING: Final = 1_000
"""Calls of the application that have not ended, those that answered and go on in the background included."""
_SHUTDOWN: Final = 3.0
"""Seconds that calls in the background get at the end: less than `lifespan_timeout` of the server."""
_Message: TypeAlias = MutableMapping[str, Any]
AsgiCallable: TypeAlias = Callable[[Any, Any, Any], Awaitable[None]]


def from_app(
    app: AsgiCallable,
    *,
    document: Source | ApiDocument | None = None,
    curation: CurationSource | Curation | None = None,
    only: Sequence[str] = (),
    edits: Mapping[str, Edit] | None = None,
    name: str | None = None,
    base_url: str = "http://app",
    forward: Sequence[str] = (),
    headers: Mapping[str, str] | None = None,
    lifespan: bool = True,
    timeout: float = TIMEOUT,
    max_response: int = MAX_RESPONSE,
) -> Server:
    """Return a server whose tools are operations of an ASGI application, which it calls in this process.

        server = from_app(fastapi_app, only=["tag:mcp"], forward=["authorization"])

    - `document`: its OpenAPI document; that of `app.openapi()` if left out.
    - `curation`, `only`, `edits`: which operations, as for `from_openapi`. Without them its GETs are, 40 at most.
    - `base_url`: scheme, host and path that the application sees.
    - `forward`: headers of the caller that it gets, such as "authorization"; no others.
    - `lifespan`: False if the application is served by itself, too, or lives in another way.

    `request.scope["linkspan.context"]` is the `Context` of the call. Raises: RegistrationError.
    """
    found = _document_of(app, document)
    client = AppClient(
        app, base_url, headers=headers or {}, forward=forward, timeout=timeout, max_response=max_response
    )
    server = Server(name or found.title, found.version, instructions=found.description or None)
    if lifespan:
        server.lifespan(client.live)
    offer(server, found, client, curation=curation, only=only, edits=edits, open_world=False)
    return server


def mount_app(
    server: Server,
    app: AsgiCallable,
    prefix: str | None = None,
    *,
    when: When | None = None,
    scopes: Sequence[str] = (),
    tags: Sequence[str] = (),
    document: Source | ApiDocument | None = None,
    curation: CurationSource | Curation | None = None,
    only: Sequence[str] = (),
    edits: Mapping[str, Edit] | None = None,
    name: str | None = None,
    base_url: str = "http://app",
    forward: Sequence[str] = (),
    headers: Mapping[str, str] | None = None,
    lifespan: bool = True,
    timeout: float = TIMEOUT,
    max_response: int = MAX_RESPONSE,
) -> Mounted:
    """Offer operations of an ASGI application in a server: `from_app`, mounted. Raises: RegistrationError.

    mount_app(server, fastapi_app, "shop", only=["tag:mcp"], forward=["authorization"])
    """
    inner = from_app(
        app,
        document=document,
        curation=curation,
        only=only,
        edits=edits,
        name=name,
        base_url=base_url,
        forward=forward,
        headers=headers,
        lifespan=lifespan,
        timeout=timeout,
        max_response=max_response,
    )
    return server.mount(inner, prefix, when=when, scopes=scopes, tags=tags)


def _document_of(app: AsgiCallable, document: Source | ApiDocument | None) -> ApiDocument:
    if isinstance(document, ApiDocument):
        return document
    if document is None:
        make: Any = getattr(app, "openapi", None)
        if not callable(make):
            raise RegistrationError(f"{type(app).__name__} has no openapi(): pass document=, its OpenAPI document")
        document = cast("Mapping[str, JSON]", make())
    try:
        return read_document(document)
    except ApiDocumentError as problem:
        raise RegistrationError(f"the application: {problem}") from None


class AppClient:
    """Calls an application in this process, on the loop of each call."""

    def __init__(
        self,
        app: AsgiCallable,
        base_url: str,
        *,
        headers: Mapping[str, str],
        forward: Sequence[str],
        timeout: float,
        max_response: int,
    ) -> None:
        """Prepare what is the same in each call."""
        parts = urlsplit(base_url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise RegistrationError(
                f"base_url={base_url!r}: write what the application sees, such as 'https://app.example'"
            )
        self._app = app
        self.uri = self._base = base_url.rstrip("/")
        self._path = parts.path.rstrip("/")
        self._scheme = parts.scheme
        self._server = (parts.hostname, parts.port or (443 if parts.scheme == "https" else 80))
        own = {"host": parts.netloc, **{name.lower(): value for name, value in headers.items()}}
        self._headers = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in own.items()]
        self._forward = tuple((each.lower(), each.lower().encode("latin-1")) for each in forward)
        self._timeout = timeout
        self._max_response = max_response
        self._running: set[asyncio.Task[None]] = set()
        self._state: dict[str, Any] = {}

    def __repr__(self) -> str:
        return f"<AppClient of {type(self._app).__name__}>"

    async def send(self, request: ApiRequest, context: Context) -> tuple[ApiReply, Sequence[str]]:
        """Return the response; what goes on in the background does. Raises: ToolError."""
        if len(self._running) >= MAX_RUNNING:
            raise ToolError("too many calls of this application have not ended", retry_after=self._timeout)
        exchange = _AppExchange(request.body, self._max_response)
        task = asyncio.create_task(self._run(self._scope(request, context), exchange))
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        try:
            async with asyncio.timeout(self._timeout):
                await exchange.done
        except TimeoutError:
            raise ToolError(f"{request.method} {request.path}: no response within {self._timeout:g} s") from None
        finally:
            exchange.disconnect()
        if exchange.is_too_large:
            raise ToolError(f"the response has more than {self._max_response} bytes: ask for less")
        return ApiReply(exchange.status, exchange.headers, bytes(exchange.body)), ()

    def _scope(self, request: ApiRequest, context: Context) -> dict[str, Any]:
        headers = [*self._headers]
        headers += [(name.encode("latin-1"), value.encode("utf-8")) for name, value in request.headers.items()]
        if request.body:
            headers.append((b"content-length", b"%d" % len(request.body)))
        if self._forward:
            named = {name for name, _ in self._forward}
            headers = [each for each in headers if each[0].decode("latin-1") not in named]
            for name, encoded in self._forward:
                if (value := context.passed_on(name)) is not None:
                    headers.append((encoded, value.encode("utf-8", "surrogateescape")))
        address = context.address
        path = self._path + request.path
        return {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.4"},
            "http_version": "1.1",
            "method": request.method,
            "scheme": self._scheme,
            "path": unquote(path),
            "raw_path": path.encode("ascii"),
            "query_string": request.query.encode("ascii"),
            "root_path": "",
            "headers": headers,
            "client": None if address is None or is_loopback(address) is not False else (address, 0),
            "server": self._server,
            "state": self._state.copy(),
            "linkspan.context": context,
        }

    async def _run(self, scope: dict[str, Any], exchange: _AppExchange) -> None:
        try:
            await self._app(scope, exchange.receive, exchange.send)
        except Exception:
            logging.getLogger("linkspan.openapi").exception(
                "the application failed in %s %s", scope["method"], scope["path"]
            )
        finally:
            exchange.ended()

    async def live(self) -> AsyncIterator[None]:
        """Let the application live: enter its lifespan, and leave it. Raises: LinkspanError if it refuses to start."""
        received: asyncio.Queue[_Message] = asyncio.Queue()
        loop = asyncio.get_running_loop()
        started: asyncio.Future[str | None] = loop.create_future()
        stopped: asyncio.Future[None] = loop.create_future()

        async def send(message: _Message) -> None:
            kind = message["type"]
            if kind.startswith("lifespan.startup") and not started.done():
                started.set_result(message.get("message", "") if kind.endswith("failed") else None)
            elif kind.startswith("lifespan.shutdown") and not stopped.done():
                stopped.set_result(None)

        async def run() -> None:
            try:
                await self._app(
                    {"type": "lifespan", "asgi": {"version": "3.0"}, "state": self._state}, received.get, send
                )
            except Exception:
                if started.done():  # else it has no lifespan, as the specification has it
                    logging.getLogger("linkspan.openapi").exception("the lifespan of the application failed")
            finally:
                for each in (started, stopped):
                    if not each.done():
                        each.set_result(None)

        task = asyncio.create_task(run())
        received.put_nowait({"type": "lifespan.startup"})
        if (problem := await started) is not None:
            raise LinkspanError(f"the application did not start: {problem}")
        try:
            yield
        finally:
            if self._running:
                await asyncio.wait(self._running, timeout=_SHUTDOWN)
            received.put_nowait({"type": "lifespan.shutdown"})
            await stopped
            await task


class _AppExchange:
    """One request to the application, and its response."""

    __slots__ = ("_bound", "_gone", "_sent", "body", "done", "headers", "is_too_large", "request", "status")

    def __init__(self, request: bytes, bound: int) -> None:
        self.request = request
        self.status = 500
        self.headers: dict[str, str] = {}
        self.body = bytearray()
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.is_too_large = False
        self._bound = bound
        self._sent = False
        self._gone: asyncio.Future[None] | None = None

    async def receive(self) -> _Message:
        """Return the body, and after it wait until the response is there, or not wanted any more."""
        if not self._sent:
            self._sent = True
            return {"type": "http.request", "body": self.request, "more_body": False}
        if not self.done.done():
            if self._gone is None:
                self._gone = asyncio.get_running_loop().create_future()
            await asyncio.shield(self._gone)
        return {"type": "http.disconnect"}

    async def send(self, message: _Message) -> None:
        """Take a piece of the response."""
        kind = message["type"]
        if kind == "http.response.start":
            self.status = message["status"]
            for name, value in message.get("headers", ()):
                own, text = name.decode("latin-1").lower(), value.decode("latin-1")
                self.headers[own] = f"{self.headers[own]}, {text}" if own in self.headers else text
        elif kind == "http.response.body" and not self.done.done():
            self.body += message.get("body", b"")
            self.is_too_large = len(self.body) > self._bound
            if self.is_too_large or not message.get("more_body", False):
                self.done.set_result(None)

    def ended(self) -> None:
        """Take the end of the application: without a whole response, that is an error of it."""
        if not self.done.done():
            self.status, self.headers, self.body = 500, {}, bytearray()
            self.done.set_result(None)

    def disconnect(self) -> None:
        """Let the application see that its client has gone."""
        if not self.done.done():
            self.done.cancel()
        if self._gone is not None and not self._gone.done():
            self._gone.set_result(None)
