"""Make endpoints of servers, and serve one over HTTP with uvicorn: `server.run("http")`."""

from __future__ import annotations

import os
import socket
import sys
import threading
from collections.abc import Callable, Set
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypedDict, Unpack

import msgspec

from linkspan.core.http_checks import HttpKeywords, HttpPolicy
from linkspan.core.http_endpoint import Endpoint
from linkspan.errors import LinkspanError, install_hint
from linkspan.runtime.forks import renew
from linkspan.runtime.system import SYSTEM
from linkspan.text import unknown_keyword
from linkspan.wire.headers import is_loopback

if TYPE_CHECKING:
    from linkspan.server.registration import BaseServer

__all__ = ["DRAIN", "PORT", "HttpRunKeywords", "UvicornKeywords", "listen", "make_endpoint", "serve_http"]

PORT: Final = 8000
DRAIN: Final = 1.0
"""Seconds that calls have to end in, by default, once the process is asked to stop."""

_EVERY_HOST: Final = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}
_BACKLOG: Final = 2048


class UvicornKeywords(TypedDict, total=False):
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


class _OwnKeywords(TypedDict, total=False):
    host: str
    port: int
    path: str
    workers: int
    drain: float
    policy: HttpPolicy | None
    health: str
    head_timeout: float
    fd: int | None


class HttpRunKeywords(_OwnKeywords, _MoreKeywords, total=False):
    """What `run("http")` takes: all that `serve_http` takes."""


def make_endpoint(server: BaseServer, policy: HttpPolicy) -> Endpoint:
    """Return the machine behind `server.asgi()` and `server.wsgi()`."""
    endpoint = Endpoint(
        server,
        policy,
        limits=server.connect(one_shot=True).limits,
        clock=SYSTEM.clock,
        random=SYSTEM.random,
        lock=threading.RLock,
        page=server.page if policy.page else None,
    )
    renew(endpoint)
    return endpoint


def serve_http(
    server: BaseServer,
    *,
    host: str = "127.0.0.1",
    port: int = PORT,
    path: str = "/mcp",
    workers: int = 1,
    drain: float = DRAIN,
    policy: HttpPolicy | None = None,
    health: str = "/health",
    head_timeout: float = 30.0,
    fd: int | None = None,
    **more: Unpack[_MoreKeywords],
) -> int:
    """Serve over HTTP until the process is asked to stop; return the exit code: 0, or 130 after Ctrl-C.

    - `port`: 0 takes any that is free; the first line on stderr has it.
    - `path`: where the endpoint is; `health` answers 200 as long as the process can answer.
    - `workers`: processes that share the port. They share one key for `requestState`, so a newer client may reach another
      one with each request. Handshake clients are served without sessions then: the next request may reach another process.
    - `drain`: seconds that calls have to end in, once the process is asked to stop. Streams end at once.
    - `policy`: who may talk to the endpoint, and how much; its fields may be given by name too, and come before it.
    - `head_timeout`: seconds in which the headers of a request must arrive.
    - `fd`: a socket that listens already, as a service manager passes one; instead of `host` and `port`.
    - others go to uvicorn, for example `ssl_certfile=`, `timeout_keep_alive=`, `limit_concurrency=`.

    Raises: LinkspanError with a sentence where uvicorn is missing, the port is taken, or there can be no workers; TypeError
    for a keyword that neither we nor uvicorn have.
    """
    try:
        from linkspan.serve.http_uvicorn import SETTINGS, serve_with_uvicorn
    except ImportError:
        raise LinkspanError(f"serving HTTP needs uvicorn: {install_hint('http')}") from None
    from linkspan.serve.asgi import AsgiApp

    policy, options = _split_keywords(policy or HttpPolicy(), dict(more), SETTINGS)
    listener = listen(host, port) if fd is None else socket.socket(fileno=fd)
    host, port = (host if fd is None else listener.getsockname()[0]), listener.getsockname()[1]
    policy = _adapted(policy, host, workers)
    scheme = "https" if "ssl_certfile" in options else "http"
    shown = _EVERY_HOST.get(host, host)
    first_line = f"Serving MCP at {scheme}://{f'[{shown}]' if ':' in shown else shown}:{port}{path}"
    if host in _EVERY_HOST:
        first_line += ", and on every other address of this machine"
    first_line += f", with {workers} workers\n" if workers > 1 else "\n"

    def serve(ready: Callable[[], object]) -> int:
        app = AsgiApp(make_endpoint(server, policy), path=path, health=health)
        return serve_with_uvicorn(app, listener, drain=drain, head_timeout=head_timeout, options=options, ready=ready)

    if workers == 1:
        return serve(partial(sys.stderr.write, first_line))
    from linkspan.serve.http_workers import serve_in_workers

    server.share_request_state_key()
    return serve_in_workers(workers, serve, patience=drain + 3.0, first_line=first_line)


def _split_keywords(policy: HttpPolicy, more: dict[str, Any], settings: Set[str]) -> tuple[HttpPolicy, dict[str, Any]]:
    """Return the policy with its fields that are in `more`, and the rest, which are `settings` of uvicorn.

    Raises: TypeError for a keyword of neither.
    """
    fields = {name: more.pop(name) for name in HttpPolicy.__struct_fields__ if name in more}
    unknown = next((name for name in more if name not in settings), None)
    if unknown is not None:
        raise unknown_keyword("run", unknown, HttpRunKeywords.__annotations__)
    return (msgspec.structs.replace(policy, **fields) if fields else policy), more


def _adapted(policy: HttpPolicy, host: str, workers: int) -> HttpPolicy:
    """Return the policy with its defaults for this address and number of workers.

    A server on loopback has a page for people; several workers have no sessions.
    """
    if policy.page is None and (host == "localhost" or is_loopback(host)):
        policy = msgspec.structs.replace(policy, page=True)
    return policy if workers == 1 else msgspec.structs.replace(policy, sessions=False)


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens. Raises: LinkspanError with what to change."""
    try:
        family, _, _, _, address = socket.getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        return socket.create_server(address[:2], family=family, backlog=_BACKLOG)
    except (OSError, OverflowError) as problem:
        reason = os.strerror(problem.errno) if isinstance(problem, OSError) and problem.errno else str(problem)
        raise LinkspanError(
            f"cannot serve HTTP on {host}:{port}: {reason.lower()}; choose another port, or port 0 for any that is free"
        ) from None
