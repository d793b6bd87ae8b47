"""Make endpoints of servers, and serve one over HTTP with uvicorn, in one process or several: `server.run("http")`."""

from __future__ import annotations

import errno
import os
import socket
import sys
import threading
from collections.abc import Callable, Iterable, Set
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Unpack, cast

import msgspec

from linkspan.core.http_checks import Gate, HttpKeywords, HttpPolicy
from linkspan.core.http_endpoint import Endpoint
from linkspan.core.http_exchange import TEXT, HttpResponse
from linkspan.errors import LinkspanError, import_problem
from linkspan.keywords import Keywords
from linkspan.runtime.forks import renew
from linkspan.runtime.system import SYSTEM
from linkspan.text import unknown_keyword
from linkspan.wire.headers import is_loopback

if TYPE_CHECKING:
    from linkspan.serve.guarding import Guard
    from linkspan.serve.http_uvicorn import QuietUvicorn
    from linkspan.serve.metrics import MetricsPage
    from linkspan.serve.sharing import SharedStore
    from linkspan.server.registration import BaseServer

PORT: Final = 8000
DRAIN: Final = 1.0
"""Seconds that calls have to end in, by default, once the process is asked to stop."""

_MARGIN: Final = 3.0
"""Seconds more until a worker that does not end is killed."""

_EVERY_HOST: Final = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}
_BACKLOG: Final = 2048
_LARGEST_PORT: Final = 65535
"""One after the other, before it served: such a worker has a fault that another one would have too. Whatever ends a worker that
serves, such as the system when memory is short, may not end the next."""


class UvicornKeywords(Keywords, total=False):
    """Options that go to uvicorn as they are; see https://uvicorn.dev/settings/. It takes more, which no type names here."""

    access_log: bool
    date_header: bool
    forwarded_allow_ips: list[str] | str | None
    h11_max_incomplete_event_size: int | None
    headers: list[tuple[str, str]] | None
    http: object
    limit_concurrency: int | None
    limit_max_requests: int | None
    log_config: object
    log_level: str | int | None
    loop: str
    proxy_headers: bool
    root_path: str
    server_header: bool
    ssl_ca_certs: str | None
    ssl_cert_reqs: int
    ssl_certfile: str | None
    ssl_ciphers: str
    ssl_keyfile: str | None
    ssl_keyfile_password: str | None
    ssl_version: int
    timeout_keep_alive: int
    timeout_notify: int
    use_colors: bool | None


class _MoreKeywords(HttpKeywords, UvicornKeywords, total=False):
    """What `serve_http` takes beside its own keywords."""


class _OwnKeywords(Keywords, total=False):
    host: str
    port: int
    path: str
    workers: int
    drain: float
    policy: HttpPolicy | None
    health: str
    metrics: str | None
    head_timeout: float
    fd: int | None


class HttpRunKeywords(_OwnKeywords, _MoreKeywords, total=False):
    """What `run("http")` takes: all that `serve_http` takes."""


def make_endpoint(server: BaseServer, policy: HttpPolicy) -> Endpoint:
    """Return the machine behind `server.asgi()` and `server.wsgi()`; one that shares its sessions, if there is a store for it."""
    server.sharing.open()
    connection = server.connect(one_shot=True)
    make: Callable[..., Endpoint] = Endpoint
    if policy.sessions and server.sharing.is_shared:
        from linkspan.core.shared_endpoint import SharedEndpoint
        from linkspan.serve.store_flows import StoreFlows

        sharing = cast("SharedStore", server.sharing)
        runner = StoreFlows(lambda: sharing.store)
        make = partial(
            SharedEndpoint,
            name=server.site.dispatcher.profile.shared_name,
            wall_clock=sharing.now,
            runner=runner,
            is_secret=sharing.is_secret,
        )
    endpoint = make(
        server,
        policy,
        limits=connection.limits,
        served=connection.served,
        clock=SYSTEM.clock,
        random=SYSTEM.random,
        lock=threading.RLock,
        page=server.page if policy.page else None,
    )
    renew(endpoint)
    return endpoint


def measure(server: BaseServer, endpoint: Endpoint, path: str) -> MetricsPage:
    """Count the requests of a server, and return what shows the numbers at `path`. Raises: LinkspanError."""
    from linkspan.serve.metrics import MetricsPage

    return MetricsPage(path, server, endpoint)


def make_guard(server: BaseServer, gate: Gate, url: str | None = None) -> Guard | None:
    """Return what verifies the tokens of requests, for a server with `auth=`; nothing of it is loaded for others.

    `url` is where the server is, if that is on loopback. Raises: LinkspanError where its URL is not known.
    """
    if server.auth is None:
        return None
    from linkspan.serve.guarding import guard_of

    return guard_of(server, gate, url)


def well_known(server: BaseServer, interface: str) -> Callable[..., Any]:
    """Return an application that answers with the metadata of a protected server. Raises: LinkspanError, ValueError."""
    from linkspan.auth.metadata import METADATA_PATH
    from linkspan.auth.protection import Protected, metadata_answer, metadata_places
    from linkspan.serve.asgi import send_all
    from linkspan.serve.wsgi import send_whole

    if interface not in ("asgi", "wsgi"):
        raise ValueError(f'interface must be "asgi" or "wsgi", got {interface!r}')
    protected = server.auth
    url = protected.resource if isinstance(protected, Protected) else None
    document = protected.metadata(url) if isinstance(protected, Protected) and url is not None else None
    if document is None or url is None:
        raise LinkspanError(
            "the metadata needs auth=Protected('https://...', issuer=...): the URL of the server, and an issuer"
        )
    places, nothing = metadata_places(url), HttpResponse(404, TEXT, b"Nothing is here")

    def answer(path: str, method: str) -> HttpResponse:
        return metadata_answer(document, method) if path.rstrip("/") in places else nothing

    async def asgi(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            path, method = str(scope["path"]), str(scope["method"])
            whole = path if path.startswith(METADATA_PATH) else scope.get("root_path", "") + path
            await send_all(send, [answer(whole, method)], bodiless=method == "HEAD")

    def wsgi(environ: Any, start_response: Any) -> Iterable[bytes]:
        path, method = f"{environ.get('SCRIPT_NAME') or ''}{environ.get('PATH_INFO') or ''}", environ["REQUEST_METHOD"]
        return send_whole(answer(path, method), start_response, bodiless=method == "HEAD")

    return asgi if interface == "asgi" else wsgi


class HttpService(msgspec.Struct, frozen=True, eq=False):
    """A server with its socket, ready to be served by one process or several."""

    listener: socket.socket
    url: str
    first_line: str
    make: Callable[[Callable[[], object]], QuietUvicorn]
    """Makes the server of one process; the function is called once that can be reached."""
    workers: int
    drain: float
    cleanup: float
    forget: Callable[[int], object]
    """Called in the parent for each worker that has ended."""


def serve_http(
    server: BaseServer, *, announce: Callable[[str], object] | None = None, **options: Unpack[HttpRunKeywords]
) -> int:
    """Serve over HTTP until the process is asked to stop; return the exit code: 0, 130 after Ctrl-C, 1 without its lifespan.

    `announce` gets the URL once it can be reached. `options` are those of `prepare_http`, which documents what is raised.
    """
    service = prepare_http(server, **options)
    from linkspan.serve.http_uvicorn import serve_with_uvicorn

    def serve(ready: Callable[[], object]) -> int:
        return serve_with_uvicorn(service.make(ready), service.listener)

    def ready() -> None:
        sys.stderr.write(service.first_line)
        sys.stderr.flush()
        if announce is not None:
            announce(service.url)

    if service.workers == 1:
        return serve(ready)
    if sys.platform != "win32":
        from linkspan.serve.http_workers import serve_in_workers

        lives = server.connect(one_shot=True).lifespan is not None
        patience = service.drain + service.cleanup + _MARGIN + (server.lifespan_timeout if lives else 0.0)
        with server.sharing.by_workers():
            return serve_in_workers(service.workers, serve, patience=patience, ready=ready, forget=service.forget)
    raise LinkspanError("workers need a system that can fork; start several processes behind a proxy instead [LS-606]")


async def serve_http_here(
    server: BaseServer, *, ready: Callable[[str], object] | None = None, **options: Unpack[HttpRunKeywords]
) -> None:
    """Serve over HTTP on the running event loop until the task is cancelled; leave signals, logging and the process alone.

    `ready` gets the URL once it can be reached. Raises: LinkspanError too if the lifespan cannot be entered.
    """
    if options.get("workers", 1) != 1:
        raise TypeError("serve() serves in this process only: leave out workers=, or use run('http', workers=...)")
    options.setdefault("log_config", None)
    service = prepare_http(server, **options)
    from linkspan.serve.http_uvicorn import serve_on_this_loop

    try:
        await serve_on_this_loop(service.make(partial(ready or str, service.url)), service.listener)
    finally:
        service.listener.close()


def prepare_http(
    server: BaseServer,
    *,
    host: str = "127.0.0.1",
    port: int = PORT,
    path: str = "/mcp",
    workers: int = 1,
    drain: float = DRAIN,
    policy: HttpPolicy | None = None,
    health: str = "/health",
    metrics: str | None = None,
    head_timeout: float = 30.0,
    fd: int | None = None,
    **more: Unpack[_MoreKeywords],
) -> HttpService:
    """Listen, and return what serves over HTTP.

    - `port`: 0 takes any that is free; the first line on stderr has it.
    - `path`: where the endpoint is; `health` answers 200 as long as the process can answer.
    - `metrics`: the path of numbers for Prometheus, of all workers together (extra `metrics`).
    - `workers`: processes that share the port, and what clients need in each of them: the sessions of handshake clients, and the
      key for `requestState`. They do so through `store=` of the server, or a private file where there is none.
    - `drain`: seconds that calls have to end in, once the process is asked to stop. Streams end at once.
    - `policy`: who may talk to the endpoint, and how much; its fields may be given by name too, and come before it.
    - `head_timeout`: seconds in which the headers of a request must arrive.
    - `fd`: a socket that listens already, as a service manager passes one; instead of `host` and `port`.
    - others go to uvicorn, for example `ssl_certfile=`, `timeout_keep_alive=`, `limit_concurrency=`.

    Raises: LinkspanError with a sentence where uvicorn is missing, the port is taken, or there can be no workers; TypeError
    for a keyword that neither we nor uvicorn have.
    """
    try:
        from linkspan.serve.http_uvicorn import SETTINGS, make_uvicorn
    except ImportError as error:
        raise LinkspanError(import_problem("serving HTTP needs uvicorn", "http", error)) from None

    policy, options = _split_keywords(policy or HttpPolicy(), dict(more), SETTINGS)
    forget: Callable[[int], object] = int
    if metrics is not None and workers > 1:
        from linkspan.serve.metrics import count_together
        from linkspan.serve.metrics import forget_worker as forget

        count_together()
    listener = listen(host, port) if fd is None else socket.socket(fileno=fd)
    host, port = (host if fd is None else listener.getsockname()[0]), listener.getsockname()[1]
    policy = _adapted(policy, host)
    scheme = "https" if "ssl_certfile" in options else "http"
    shown = _EVERY_HOST.get(host, host)
    url = f"{scheme}://{f'[{shown}]' if ':' in shown else shown}:{port}{path}"
    everywhere = ", and on every other address of this machine" if host in _EVERY_HOST else ""
    several = f", with {workers} workers" if workers > 1 else ""

    is_local = host == "localhost" or is_loopback(host) is True
    guard = make_guard(server, Gate(policy), url if is_local else None)  # before workers are forked

    def make(ready: Callable[[], object]) -> QuietUvicorn:
        endpoint = make_endpoint(server, policy)
        return make_uvicorn(
            endpoint,
            guard=guard,
            path=path,
            health=health,
            metrics=measure(server, endpoint, metrics) if metrics is not None else None,
            drain=drain,
            head_timeout=head_timeout,
            options=options,
            ready=ready,
            shared=sys.platform == "win32" and fd is not None,
        )

    first_line = f"Serving MCP at {url}{everywhere}{several}\n"
    return HttpService(listener, url, first_line, make, workers, drain, policy.cleanup, forget)


def _split_keywords(policy: HttpPolicy, more: dict[str, Any], settings: Set[str]) -> tuple[HttpPolicy, dict[str, Any]]:
    """Return the policy with its fields that are in `more`, and the rest, which are `settings` of uvicorn.

    Raises: TypeError for a keyword of neither.
    """
    fields = {name: more.pop(name) for name in HttpPolicy.__struct_fields__ if name in more}
    unknown = next((name for name in more if name not in settings), None)
    if unknown is not None:
        raise unknown_keyword("run", unknown, HttpRunKeywords.__annotations__)
    return (msgspec.structs.replace(policy, **fields) if fields else policy), more


def _adapted(policy: HttpPolicy, host: str) -> HttpPolicy:
    """Return the policy with its default for this address: a server on loopback has a page for people on this machine."""
    if policy.page is None and (host == "localhost" or is_loopback(host)):
        return msgspec.structs.replace(policy, page="direct")
    return policy


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens. Raises: LinkspanError with what to change."""
    if type(port) is not int or not 0 <= port <= _LARGEST_PORT:  # the system would take it modulo 65536
        raise LinkspanError(
            f"port {port!r} does not exist: choose one from 1 to {_LARGEST_PORT}, or 0 for any free one"
        )
    try:
        found = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError):
        raise _unusable_host(f"the host {host!r} is not known") from None
    family, _, _, _, address = found[0]
    try:
        return socket.create_server(address[:2], family=family, backlog=_BACKLOG)
    except OSError as problem:
        if problem.errno == errno.EADDRNOTAVAIL:
            raise _unusable_host(f"{host} is not an address of this machine") from None
        reason = os.strerror(problem.errno) if problem.errno else str(problem)
        raise LinkspanError(
            f"cannot serve HTTP on {host}:{port}: {reason.lower()}; choose another port, or port 0 for any free one [LS-602]"
        ) from None


def _unusable_host(problem: str) -> LinkspanError:
    return LinkspanError(
        f"cannot serve HTTP: {problem}; choose 127.0.0.1 for this machine only, 0.0.0.0 for all of its addresses, or one of "
        "them [LS-607]"
    )
