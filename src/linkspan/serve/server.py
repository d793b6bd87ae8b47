"""`Server`: everything from registration to `run`. Each transport is loaded when it is first used.

server = Server("dice")

@server.tool
def roll(sides: int = 6) -> int: ...

server.run()
"""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from functools import cached_property, partial
from math import inf
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any, Literal, Never, Unpack, cast, overload

from linkspan.core.waiting import ServerChange
from linkspan.errors import LinkspanError, RegistrationError
from linkspan.keywords import Keywords, described_by
from linkspan.revisions.neutral import NOTHING
from linkspan.server.catalogue import Listed
from linkspan.server.registration import BaseServer
from linkspan.server.resources import Resource, ResourceDescription, bind_resource
from linkspan.text import check_keywords

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager
    from pathlib import Path
    from ssl import SSLContext

    from linkspan.auth.identities import Identity
    from linkspan.client.targets import ServerTarget
    from linkspan.client.transports.base import Recorder
    from linkspan.core.http_checks import HttpKeywords
    from linkspan.extensions.server_tasks import ServerTasks
    from linkspan.flows.state import Auth, Retry, Timeouts
    from linkspan.runtime.channels import AsyncChannel, Channel
    from linkspan.serve.asgi import AsgiApp
    from linkspan.serve.http import HttpRunKeywords
    from linkspan.serve.sharing import SharedStore
    from linkspan.serve.stdio import StdioHereKeywords, StdioKeywords
    from linkspan.serve.wsgi import WsgiApp
    from linkspan.server.context import Context
    from linkspan.server.editing import Edit
    from linkspan.server.mounting import Mounted
    from linkspan.server.ports import System
    from linkspan.server.resources import ResourceTemplate
    from linkspan.server.visibility import When
    from linkspan.stores.port import Store
    from linkspan.wire.values import Limits

_ASGI = ("path", "health", "metrics", "otherwise")
_WSGI = ("path", "otherwise")


class ChannelKeywords(Keywords, total=False):
    """The keywords of `attach`."""

    principal: str | None
    address: str | None
    headers: Mapping[str, str]
    grace: float
    max_workers: int
    max_unsent: int


class UpstreamKeywords(Keywords, total=False):
    """The keywords of `mount` for a server elsewhere; those from `auth` on are the ones of `Client`."""

    shared: bool
    required: bool
    list_timeout: float
    max_callers: int
    auth: Auth | Identity | Callable[[Context], str | Awaitable[str]] | None
    headers: Mapping[str, str] | None
    env: Mapping[str, str] | None
    cwd: str | Path | None
    inherit_env: bool
    ssl: SSLContext | None
    era: Literal["modern", "legacy"] | None
    protocol_version: str | None
    timeouts: Timeouts
    limits: Limits
    retry: Retry
    recorder: Recorder | None


class Server(BaseServer):
    """An MCP server: register on it, then serve it over as many transports as you like, in every revision at once."""

    __module__ = "linkspan"  # the name that people import it by, in a repr and in a pickle
    _serves_tasks = False

    def __repr__(self) -> str:
        found = self._catalogue
        counts = {
            "tool": len(found.tools),
            "resource": len(found.resources),
            "template": len(found.templates),
            "prompt": len(found.prompts),
        }
        offers = [f"{count} {noun}{'s' * (count != 1)}" for noun, count in counts.items() if count]
        return f"<Server {self.name} {self.version}: {', '.join(offers) or 'nothing registered'}>"

    def system(self) -> System:
        """Return the clocks and the randomness of this machine."""
        from linkspan.runtime.system import SYSTEM

        return SYSTEM

    @property
    def store(self) -> Store:
        """What is shared with other processes: the store of `store=`, opened when it is first used in a process.

        Without `store=` it is in memory, and with `workers=N` in a private file.
        Raises: LinkspanError, StoreError if it cannot be opened.
        """
        return self.sharing.store

    @property
    def is_shared(self) -> bool:
        """Whether other processes can see what is in `store`."""
        return self.sharing.is_shared

    @cached_property
    def sharing(self) -> SharedStore:
        """What opens the store."""
        from linkspan.serve.sharing import SharedStore

        return SharedStore(self._profile, self._answerable)

    def _answerable(self) -> float:
        """Return for how many seconds a question may be answered: that of a task for as long as the task lives."""
        ttls = [each.task.ttl for each in self._catalogue.tools.all() if each.task is not None]
        return max(self._profile.request_state_ttl, *(inf if each is None else each for each in ttls), 0.0)

    @cached_property
    def tasks(self) -> ServerTasks:
        """The tasks of the tools that have `task=`; the extension is on from the first of these."""
        from linkspan.extensions.server_tasks import ServerTasks

        return ServerTasks(
            self._dispatcher,
            self.sharing.opened,
            connections=lambda: self._announcer.connections(),
            shared=lambda: self.is_shared,
        )

    def _prepare(self, items: Sequence[Listed]) -> None:
        """Serve the tasks extension from the first tool on that may run as a task."""
        if not self._serves_tasks and any(getattr(each, "task", None) is not None for each in items):
            self._serves_tasks = True
            self._dispatcher.extend(self.tasks.extension, self.tasks.runner)
            from linkspan.extensions.engine import WorkerEngine

            if isinstance(self._profile.tasks, WorkerEngine):
                self._profile.tasks.bind(self.name, self.tasks.runner.run_now)

    @described_by(UpstreamKeywords)
    def mount(
        self,
        server: BaseServer | ServerTarget,
        prefix: str | None = None,
        *,
        only: Sequence[str] = (),
        hide: Sequence[str] = (),
        rename: Mapping[str, str] = NOTHING,
        when: When | None = None,
        scopes: Sequence[str] = (),
        tags: Sequence[str] | set[str] | frozenset[str] = (),
        edits: Mapping[str, Edit] = NOTHING,
        name: str | None = None,
        **upstream: Unpack[UpstreamKeywords],
    ) -> Mounted:
        """Offer what another server offers, too: one of this process, or one elsewhere.

            weather = shop.mount(forecasts, "weather", hide=["delete_*"])
            shop.mount("https://example.com/mcp", "crm", auth=OAuth())
            weather.remove()

        `server` is a `Server`, or what a client can be opened with: a URL, a command, a `.py` file, an entry of an mcp.json. A
        `Server` serves them itself, with its own middleware, lifespan, context, configuration and completions; the middleware of
        this one is around that. It may be mounted several times, in several servers, and have servers mounted in itself, 8
        levels deep.

        - `prefix`: tools and prompts are called `prefix_name` here. URIs stay as they are.
        - `only`, `hide`: patterns of names, or of URIs, such as "get_*"; "tag:beta"; "readOnly" and "destructive" for tools
          with these annotations. With `only`, nothing else exists here; what `hide` means does not exist.
        - `rename`: other names for tools and prompts; these get no prefix.
        - `when`, `scopes`, `tags`: as for a tool, for all of them; what an item has itself holds besides.
        - `edits`: an `Edit` for each tool that callers see otherwise, by its name in the other server.
        - `name`: what logs and instructions call the server; its own name if left out.

        A server elsewhere gets a connection, or a process, for each principal and session, with what each is shown; `shared`
        makes one for all. Nothing that a caller sends to this server as a header goes there: rights come from `auth`, which may
        be a function of the `Context` that returns a token for each caller, such as that of `ctx.token_for(...)`. Lists
        wait `list_timeout` seconds for it, and then go without it, or, with `required`, fail. At most `max_callers` have one at
        the same time: 1,024, or 16 processes.

        Custom methods are not offered here, nor is what `resources_read_handler` reads that no resource or template names.
        Raises: RegistrationError for a name that both servers have, and for servers inside each other.
        """
        if isinstance(server, BaseServer):
            if upstream:
                raise RegistrationError(f"mount({', '.join(upstream)}=...): that is for a server elsewhere")
            return super().mount(
                server,
                prefix,
                only=only,
                hide=hide,
                rename=rename,
                when=when,
                scopes=scopes,
                tags=tags,
                edits=edits,
                name=name,
            )
        from linkspan.server.mounting import Mounted, MountOptions
        from linkspan.upstreams.mounting import mount_target

        check_keywords("mount", upstream, UpstreamKeywords.__annotations__)
        options = MountOptions(prefix, name, only, hide, rename, when, scopes, tags, edits)
        return Mounted(mount_target(self.site, self.sharing.opened, server, options, upstream))

    def handle_json(self, data: str | bytes | bytearray | memoryview, *, raise_exceptions: bool = False) -> str | None:
        """Answer one JSON-RPC message, or batch, without any transport; None for what needs no answer (A5).

        Plain functions run right here, without an event loop; coroutine functions run on one background loop.
        `raise_exceptions` raises what a handler raised, or its value when it was encoded, after it was reported, instead of
        answering (for tests). Raises: TypeError for other data; KeyboardInterrupt and SystemExit of a handler in any case.
        """
        from linkspan.serve.inline import answer

        reply = answer(self.connect(back_channel=False, one_shot=True), data, raise_exceptions=raise_exceptions)
        return reply.decode() if reply is not None else None

    def handle(self, request: object, *, raise_exceptions: bool = False) -> Any:
        """Answer one message, or batch, that is parsed already: a mapping in, a dict (or a list, or None) out (A4).

        Otherwise like `handle_json`.
        """
        from linkspan.serve.inline import answer_value

        connection = self.connect(back_channel=False, one_shot=True)
        return answer_value(connection, request, raise_exceptions=raise_exceptions)

    @described_by(ResourceDescription)
    def files(
        self,
        uri: str,
        directory: str | PathLike[str],
        *,
        name: str | None = None,
        max_files: int = 1000,
        max_bytes: int = 16 * 1024 * 1024,
        poll: float | None = 3.0,
        **described: Unpack[ResourceDescription],
    ) -> ResourceTemplate:
        """Offer the files below a directory as resources, and their template, below a URI such as "docs://".

        Nothing outside the directory can be read, nor what is hidden, whatever links lead to it. `max_files` are listed, and a
        file of more than `max_bytes` is not sent. Clients that listen are notified of changes, for which the directory is
        looked at every `poll` seconds, while a client listens; None never looks. What describes the template stands here, and
        `mime_type`, `annotations`, `icons` and `meta` are for each file, too. Raises: RegistrationError.
        """
        from linkspan.runtime.files import Directory
        from linkspan.serve.files import FileResources
        from linkspan.serve.polling import Poller

        try:
            found = Directory(directory)
        except OSError as error:
            raise RegistrationError(
                f"files({uri!r}): {fspath(directory)!r} is not a directory that can be read: {error.strerror}"
            ) from None
        pattern = Resource(uri, read=lambda: None, **described)
        pattern.title = pattern.description = None
        files = FileResources(
            found,
            uri,
            bind_resource(pattern, self.system),
            self._catalogue.resources,
            self._profile.pinned,
            notify=partial(
                self._announcer.list_changed, "resources", everywhere=False
            ),  # each process looks for itself
            notify_updated=lambda uri: self._announcer.send(
                ServerChange.of_resource(uri), self._catalogue.audience_of(uri), everywhere=False
            ),
            max_files=max_files,
            max_bytes=max_bytes,
        )
        name = name or uri.rstrip("/").rpartition("/")[2].rstrip(":")
        template = self.define_resource_template(f"{uri}{{+path}}", name, read=files.read, **described)
        sources = self._catalogue.sources
        sources["resources/list"] = (*sources.get("resources/list", ()), files.refresh)
        poller = Poller(files.refresh, self._announcer.is_listened_to, poll, "files")
        self._opening.add_watch(poller.watch)
        return template

    def load(self, folder: str | PathLike[str], *, broken: Literal["refuse", "skip"] = "refuse") -> None:
        """Run the Python files below a folder, in the order of their names, and register what is decorated in them.

            @linkspan.tool  # in tools/rooms.py
            def find_rooms(city: str) -> list[str]: ...

            server.load("tools/")  # in server.py

        `linkspan.tool`, `linkspan.prompt` and `linkspan.resource` take the keywords of the methods of a server. Files and
        folders whose names begin with "_" or "." are left out; `from ._shared import name` imports them. A relative path is
        one from the current directory.

        A file that raises, or whose items cannot be registered, is refused with its name and the line; with `broken="skip"`
        a warning is logged, and nothing of that file is registered. So is a link that leads out of the folder.
        Raises: RegistrationError.
        """
        from linkspan.serve.loaded import load_folder

        if broken not in ("refuse", "skip"):  # pyright: ignore[reportUnnecessaryContains]
            raise RegistrationError(f"load(broken={broken!r}): write broken='refuse' or broken='skip'")
        load_folder(self, self._catalogue, fspath(folder), skip=broken == "skip")

    @overload
    def attach(self, channel: Channel, **options: Unpack[ChannelKeywords]) -> None: ...
    @overload
    def attach(self, channel: AsyncChannel, **options: Unpack[ChannelKeywords]) -> Coroutine[Any, Any, None]: ...
    @described_by(ChannelKeywords)
    def attach(
        self, channel: Channel | AsyncChannel, **options: Unpack[ChannelKeywords]
    ) -> Coroutine[Any, Any, None] | None:
        """Serve one connection over a channel of your own, until its other side hangs up: `await` it for an async channel.

        A channel has `send(message)`, gives messages when it is iterated over, and has `close()`. `principal`, `address` and
        `headers` are what your transport knows of the client. For `grace` seconds (1) after the end what was asked is still
        answered. `max_workers` and `max_unsent` are those of `run`.
        """
        import msgspec

        from linkspan.revisions.neutral import TransportInfo
        from linkspan.runtime.channels import is_async
        from linkspan.serve.channel import ChannelLimits, attach, attach_async

        facts = TransportInfo(options.get("headers", {}), options.get("principal"), options.get("address"))
        limits = msgspec.convert(options, ChannelLimits)  # of these keywords those that are limits
        if is_async(channel):
            return attach_async(self, channel, facts, limits)
        attach(self, cast("Channel", channel), facts, limits)
        return None

    def asgi(
        self,
        *,
        path: str | None = None,
        health: str | None = None,
        metrics: str | None = None,
        otherwise: Callable[[Any, Any, Any], Awaitable[None]] | None = None,
        **policy: Unpack[HttpKeywords],
    ) -> AsgiApp:
        """Return a plain ASGI callable, to be mounted at any prefix or run by any ASGI server.

        It answers at every path, or at `path` only; `health` is the path of a health check, `metrics` that of numbers for
        Prometheus (extra `metrics`); `otherwise` is another ASGI application, which serves all other paths. `policy` are
        the fields of `HttpPolicy`: allowed_hosts, allowed_origins, cors, sessions, http_sse, page, the limits.
        Raises: TypeError for others, LinkspanError where prometheus-client is missing.
        """
        from linkspan.core.http_checks import HttpPolicy
        from linkspan.serve.asgi import AsgiApp
        from linkspan.serve.http import make_endpoint, make_guard, measure

        self._opening.check_completions()
        check_keywords("asgi", policy, (*_ASGI, *HttpPolicy.__struct_fields__))
        endpoint = make_endpoint(self, HttpPolicy(**policy))
        page = measure(self, endpoint, metrics) if metrics is not None else None
        guard = make_guard(self, endpoint.gate)
        return AsgiApp(endpoint, path=path, health=health, metrics=page, otherwise=otherwise, guard=guard)

    def lifespan_of(self, app: AsgiApp) -> Callable[..., AbstractAsyncContextManager[None]]:
        """Return the lifespan of `app`, which `asgi()` returned, for a framework that mounts it.

            app = server.asgi()
            api = FastAPI(lifespan=server.lifespan_of(app))
            api.mount("/mcp", app)

        In a lifespan of your own: `async with server.lifespan_of(app)(api): yield`. Raises: TypeError for another application.
        """
        from linkspan.serve.asgi import AsgiApp

        if not isinstance(app, AsgiApp):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"lifespan_of takes what server.asgi() returned, not {type(app).__name__}")
        return app.live

    def wsgi(
        self,
        *,
        path: str | None = None,
        otherwise: Callable[[Any, Any], Iterable[bytes]] | None = None,
        **policy: Unpack[HttpKeywords],
    ) -> WsgiApp:
        """Return a plain WSGI callable, for Flask, Django, gunicorn and waitress; like `asgi` otherwise.

        Several processes share the sessions of handshake clients through `store=` of the server. Without one, pass
        `sessions=False`, or `require_session=False` for both.
        """
        from linkspan.core.http_checks import HttpPolicy
        from linkspan.serve.http import make_endpoint, make_guard
        from linkspan.serve.wsgi import WsgiApp

        self._opening.check_completions()
        check_keywords("wsgi", policy, (*_WSGI, *HttpPolicy.__struct_fields__))
        endpoint = make_endpoint(self, HttpPolicy(**policy))
        return WsgiApp(endpoint, path=path, otherwise=otherwise, guard=make_guard(self, endpoint.gate))

    @overload
    def well_known(self, interface: Literal["asgi"] = "asgi") -> Callable[[Any, Any, Any], Awaitable[None]]: ...
    @overload
    def well_known(self, interface: Literal["wsgi"]) -> Callable[[Any, Any], Iterable[bytes]]: ...
    def well_known(self, interface: str = "asgi") -> Callable[..., Any]:
        """Return an ASGI or WSGI application for the metadata of a protected server, at the root of the app it is mounted in.

            app.mount("/.well-known/oauth-protected-resource", server.well_known())

        It is a help for clients that look nowhere else. Raises: LinkspanError without `auth=Protected("https://...")`.
        """
        from linkspan.serve.http import well_known

        return well_known(self, interface)

    @overload
    def run(self, transport: Literal["stdio"] = "stdio", **options: Unpack[StdioKeywords]) -> None: ...
    @overload
    def run(self, transport: Literal["http"], **options: Unpack[HttpRunKeywords]) -> None: ...
    @overload
    def run(self, transport: str) -> None: ...
    def run(self, transport: str = "stdio", **options: Any) -> None:
        """Serve until the client goes away or the process is asked to stop, then leave the process.

        `transport` is "stdio" (exit status 0, or 130 after Ctrl-C), or "http" with `host`, `port`, `path` and the options of
        `serve_http`, among them the fields of `HttpPolicy`. Raises: LinkspanError for a transport that does not exist;
        TypeError for an option that the transport does not have.
        """
        if transport == "http":
            _refuse_running_loop()
            from linkspan.serve.http import serve_http

            try:
                status = serve_http(self, **options)
            except LinkspanError as problem:  # a taken port is no fault of a line of code
                raise SystemExit(f"{self.name}: {problem}") from None
            raise SystemExit(status)
        if transport != "stdio":
            raise LinkspanError(f"There is no transport {transport!r}: use 'stdio' or 'http'")
        from linkspan.serve.stdio import StdioTransport, check_stdio_keywords

        check_stdio_keywords(options)
        raise SystemExit(StdioTransport(self, **options).open())

    @overload
    async def serve(self, transport: Literal["stdio"] = "stdio", **options: Unpack[StdioHereKeywords]) -> None: ...
    @overload
    async def serve(
        self,
        transport: Literal["http"],
        *,
        ready: Callable[[str], object] | None = None,
        **options: Unpack[HttpRunKeywords],
    ) -> None: ...
    async def serve(self, transport: str = "stdio", **options: Any) -> None:
        """Serve on the running event loop until the client goes away (stdio) or the task is cancelled; then return.

        `options` are those of `run`, in this process only; over HTTP, `ready` gets the URL once it can be reached. Signals,
        logging and the exit of the process stay the caller's. Cancelled, it cancels what runs, ends in good order and leaves
        nothing open. Raises: LinkspanError for what cannot be served, and if the lifespan cannot be entered; TypeError for an
        option that the transport does not have.
        """
        if transport == "http":
            from linkspan.serve.http import serve_http_here

            await serve_http_here(self, **options)
            return
        if transport != "stdio":
            raise LinkspanError(f"There is no transport {transport!r}: use 'stdio' or 'http'")
        from linkspan.serve.stdio import check_stdio_keywords, serve_stdio_here

        check_stdio_keywords(options, "serve")
        await serve_stdio_here(self.connect, **options)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Never:
            if name == "transport":  # what its property raises ends up here
                raise AttributeError(_no_transport("StdioTransport"), name=name)
            super().__getattr__(name)

    @property
    def transport(self) -> Never:
        """Nothing: a server does not know its transports, of which it may have several. Raises: AttributeError."""
        raise AttributeError

    @transport.setter
    def transport(self, value: Never) -> None:
        raise AttributeError(_no_transport(type(value).__name__), name="transport")


def _refuse_running_loop() -> None:
    asyncio = sys.modules.get("asyncio")
    if asyncio is not None and asyncio._get_running_loop() is not None:
        raise RuntimeError('run() would block this event loop: write `await server.serve("http", ...)` [LS-604]')


def _no_transport(kind: str) -> str:
    serve = f"{kind}(server).open()" if kind.endswith("Transport") else "StdioTransport(server).open()"
    return (
        "a Server has no `transport`; each transport takes the server that it serves: "
        f'write `{serve}`, `server.run()` or `server.run("http")`'
    )
