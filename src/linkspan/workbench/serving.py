"""The workbench over HTTP, for a browser on this machine: a page, a stream of events, and what a person may ask for.

Law: no request names a command, a file or a URL. Each request for data has the token of this run in a header, which a page of
another origin cannot send; `Host` (127.0.0.1), `Origin` and `Sec-Fetch-Site` must be ours; nothing is allowed to other origins.
A host name of a view (`RANDOM.localhost`) serves that view and nothing else.
"""

from __future__ import annotations

import os
import pkgutil
import re
import secrets
import socket
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from hmac import compare_digest
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final, Literal
from urllib.parse import parse_qs

import msgspec

from linkspan.apps.policy import ViewError
from linkspan.flows.answers import Refused
from linkspan.flows.client_errors import ClientError
from linkspan.types.base import JSON, JSONObject
from linkspan.wire.jsonrpc import encode
from linkspan.workbench.address import BenchAddress, proof_of
from linkspan.workbench.bench import Bench, DeclaredToServer, NotConfirmed, SecretsGone, TooMany, UnknownCall
from linkspan.workbench.exchanges import Wanted
from linkspan.workbench.export import transcript_of
from linkspan.workbench.questions import PersonsAnswer

PORT: Final = 6280
_TRIED: Final = 20
"""Ports that are tried, from the first."""
_TOKEN: Final = "Linkspan-Bench"
_NONCE: Final = re.compile(r"nonce=([0-9a-f]{32,64})")
_MAX_BODY: Final = 4 * 1024 * 1024
_CONNECTIONS: Final = 32
_STREAMS: Final = 8
_FAREWELL: Final = 1.0
"""Seconds in which a stream of events may end in good order."""
_PULSE: Final = 15.0
"""Seconds after which a stream without events gets an empty line."""
_PATIENCE: Final = 30.0
"""Seconds for the head and the body of a request."""
_ASSETS: Final = {
    "/": ("linkspan.workbench", "assets/index.html", "text/html"),
    "/bench.css": ("linkspan.workbench", "assets/bench.css", "text/css"),
    **{
        f"/{name}": ("linkspan.workbench", f"assets/{name}", "text/javascript")
        for name in ("bench.js", "state.js", "list.js", "work.js", "compare.js", "views.js", "happened.js")
    },
    **{
        f"/{name}": ("linkspan.server", f"assets/{name}", "text/javascript")
        for name in ("json.js", "elements.js", "forms.js", "results.js")
    },
    "/view.js": ("linkspan.apps", "view.js", "text/javascript"),
}
_POLICY: Final = "; ".join(
    [
        *("default-src 'none'", "script-src 'self'", "style-src 'self'", "connect-src 'self'"),
        *("img-src data: blob:", "media-src data: blob:", "base-uri 'none'", "form-action 'none'"),
        *("frame-ancestors 'none'", "require-trusted-types-for 'script'", "trusted-types 'none'"),
    ]
)
_HEADERS: Final = {
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}


class _Numbered(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    id: int


class _NoBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    pass


class _CompletionAsked(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    kind: str
    name: str
    argument: str
    value: str
    given: dict[str, str] = {}


class _SubscriptionAsked(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    uri: str
    on: bool


class _ViewAsked(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    id: int
    theme: Literal["light", "dark"]


class _ViewSays(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    text: str


class _ThemeAsked(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    theme: Literal["light", "dark"]


class _ViewNamed(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str


class CannotDo(Exception):
    """What a person asked for cannot be done; the text is the reason."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


class _RepetitionAsked(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    id: int
    same_answers: bool = False
    confirmed: bool = False


def _call(bench: Bench, wanted: Wanted) -> JSONObject:
    return _begun(lambda: bench.call(wanted))


def _again(bench: Bench, wanted: _RepetitionAsked) -> JSONObject:
    return _begun(lambda: bench.again(wanted.id, same_answers=wanted.same_answers, confirmed=wanted.confirmed))


def _begun(begin: Callable[[], int]) -> JSONObject:
    try:
        return {"id": begin()}
    except UnknownCall:
        raise CannotDo(404, "This call is forgotten.") from None
    except SecretsGone:
        raise CannotDo(410, "This call had secrets, which were not kept.") from None
    except NotConfirmed:
        raise CannotDo(409, "This tool may change something, and would be called again.") from None
    except TooMany:
        raise CannotDo(429, "Too many calls run at once: stop one, or wait.") from None


def _stop(bench: Bench, wanted: _Numbered) -> JSONObject:
    return {"stopped": bench.stop(wanted.id)}


def _answer(bench: Bench, answer: PersonsAnswer) -> JSONObject:
    if not bench.questions.answer(answer):
        raise CannotDo(404, "The server no longer waits for this answer.")
    return {}


def _complete(bench: Bench, wanted: _CompletionAsked) -> JSONObject:
    return bench.complete(wanted.kind, wanted.name, wanted.argument, wanted.value, wanted.given)


def _subscribe(bench: Bench, wanted: _SubscriptionAsked) -> JSONObject:
    bench.subscribe(wanted.uri, on=wanted.on)
    return {}


def _restart(bench: Bench, _: _NoBody) -> JSONObject:
    bench.restart("you asked for it")
    return {}


def _declare(bench: Bench, declared: DeclaredToServer) -> JSONObject:
    bench.declare(declared)
    return {}


def _open_view(bench: Bench, wanted: _ViewAsked) -> JSONObject:
    try:
        return bench.views.open(wanted.id, wanted.theme)
    except ViewError as problem:
        raise CannotDo(422, str(problem)) from None


def _view_says(bench: Bench, said: _ViewSays) -> JSONObject:
    return bench.views.receive(said.name, said.text)


def _change_theme(bench: Bench, wanted: _ThemeAsked) -> JSONObject:
    return {"messages": bench.views.change(wanted.name, wanted.theme)}


def _end_view(bench: Bench, wanted: _ViewNamed) -> JSONObject:
    return {"messages": bench.views.end(wanted.name)}


def _close_view(bench: Bench, wanted: _ViewNamed) -> JSONObject:
    bench.views.close(wanted.name)
    return {}


def _draft(bench: Bench, wanted: _Numbered) -> JSONObject:
    return {"text": bench.draft(wanted.id)}


def _forget(bench: Bench, _: _NoBody) -> JSONObject:
    bench.forget()
    return {}


_POSTS: Final[Mapping[str, tuple[type[Any], Callable[[Bench, Any], JSONObject]]]] = {
    "/api/call": (Wanted, _call),
    "/api/again": (_RepetitionAsked, _again),
    "/api/stop": (_Numbered, _stop),
    "/api/answer": (PersonsAnswer, _answer),
    "/api/complete": (_CompletionAsked, _complete),
    "/api/subscribe": (_SubscriptionAsked, _subscribe),
    "/api/restart": (_NoBody, _restart),
    "/api/declare": (DeclaredToServer, _declare),
    "/api/view": (_ViewAsked, _open_view),
    "/api/view-says": (_ViewSays, _view_says),
    "/api/view-theme": (_ThemeAsked, _change_theme),
    "/api/view-end": (_ViewNamed, _end_view),
    "/api/view-close": (_ViewNamed, _close_view),
    "/api/draft": (_Numbered, _draft),
    "/api/forget": (_NoBody, _forget),
}
"""What a person may ask for: the shape of each body, in which nothing else may stand."""


class BenchServer:
    """Serves a workbench on 127.0.0.1 from the time it is made until `close`."""

    def __init__(self, bench: Bench, port: int = PORT, kept: BenchAddress | None = None) -> None:
        """Listen on `port` or one of the next, with the key of the last run where that had the same. Raises: OSError."""
        self._server = _listening(port)
        self.port: int = self._server.server_address[1]
        is_same = kept is not None and kept.port == self.port
        self.token: str = kept.token if kept is not None and is_same else secrets.token_urlsafe(32)
        self._server.bench, self._server.token, self._server.run = bench, self.token, secrets.token_hex(8)
        self._server.host = f"127.0.0.1:{self.port}"
        bench.views.origin = f"http://{self._server.host}"
        threading.Thread(target=self._server.serve_forever, args=(0.1,), name="linkspan-workbench", daemon=True).start()

    @property
    def url(self) -> str:
        """Where the page is, with its token: for the person alone."""
        return f"http://127.0.0.1:{self.port}/#t={self.token}"

    def close(self) -> None:
        """Stop serving: the streams of events end, then all connections, which a browser would keep."""
        self._server.shutdown()
        self._server.server_close()
        self._server.bench.events.close()
        until = time.monotonic() + _FAREWELL
        for _ in range(_STREAMS):
            self._server.streams.acquire(timeout=max(0.0, until - time.monotonic()))
        for connection in [*self._server.open]:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)


class _BenchHttpServer(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 2 * _CONNECTIONS  # a browser opens several at once, and waits a second for one that is refused
    allow_reuse_address = os.name != "nt"  # there it would let another program take the port over
    bench: Bench
    token: str
    host: str = ""
    run: str
    """Tells this workbench from another one at the same address."""

    def __init__(self, address: tuple[str, int]) -> None:
        super().__init__(address, _BenchHandler)
        self.connections = threading.BoundedSemaphore(_CONNECTIONS)
        self.streams = threading.BoundedSemaphore(_STREAMS)
        self.open: set[socket.socket] = set()

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self.connections.acquire(blocking=False):
            self.shutdown_request(request)
            return
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        self.open.add(request)
        try:
            super().process_request_thread(request, client_address)
        finally:
            self.open.discard(request)
            self.connections.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing: a connection that breaks off is the browser's business."""


def _listening(port: int) -> _BenchHttpServer:
    for each in range(port, port + _TRIED - 1) if port else ():
        with suppress(OSError):
            return _BenchHttpServer(("127.0.0.1", each))
    return _BenchHttpServer(("127.0.0.1", port + _TRIED - 1 if port else 0))


class _BenchHandler(BaseHTTPRequestHandler):
    timeout = _PATIENCE
    protocol_version = "HTTP/1.1"
    server: _BenchHttpServer  # pyright: ignore[reportIncompatibleVariableOverride] - it is made by that server alone

    def do_GET(self) -> None:
        """PersonsAnswer with the page, the state, events, or a call as code."""
        path, _, query = self.path.partition("?")
        if self._is_for_a_view():
            return None
        if not self._is_ours():
            return self._refuse()
        if path in _ASSETS:
            package, name, kind = _ASSETS[path]
            return self._send(200, pkgutil.get_data(package, name) or b"", f"{kind}; charset=utf-8")
        if path == "/api/alive" and (nonce := _NONCE.fullmatch(query)) is not None:
            proof = proof_of(self.server.token, nonce[1], self.server.host)
            return self._send_json(200, {"proof": proof, "run": self.server.run})
        if not self._has_token():
            return self._refuse()
        found = {name: values[0] for name, values in parse_qs(query).items()}
        number = int(found["id"]) if found.get("id", "").isdecimal() and len(found["id"]) < 10 else 0
        match path:
            case "/api/state":
                return self._send_json(200, self.server.bench.state())
            case "/api/events":
                after = found.get("after", "0")
                return self._stream(int(after) if after.isdecimal() and len(after) < 16 else 0)
            case "/api/transcript":
                text = transcript_of(self.server.bench.events.lines())
                return self._send(200, text.encode("utf-8", "replace"), "text/plain; charset=utf-8")
            case "/api/calls":
                bench = self.server.bench
                shown = [encode(bench.events.without_secrets(each)) + b"\n" for each in bench.exchanges.shown()]
                return self._send(200, b"".join(shown), "text/plain; charset=utf-8")
            case "/api/code" if (code := self.server.bench.code(number)) is not None:
                return self._send_json(200, dict(code))
            case "/api/result" if (exchange := self.server.bench.exchanges.get(number)) is not None:
                return self._send(200, exchange.result or b"null", "application/json")
            case _:
                return self._send_json(404, {"error": "There is nothing here."})

    def do_POST(self) -> None:
        """Do what a person asks for."""
        if self._is_for_a_view():
            return None
        if not self._is_ours() or not self._has_token():
            return self._refuse()
        if self.headers.get_all("content-type") != ["application/json"]:
            return self._refuse(415)
        length = self.headers.get("content-length", "")
        if not length.isdecimal() or int(length) > _MAX_BODY:
            return self._refuse(413)
        body = self.rfile.read(int(length))
        if self.path not in _POSTS:
            return self._send_json(404, {"error": "There is nothing here."})
        shape, act = _POSTS[self.path]
        try:
            wanted: Any = msgspec.json.decode(body, type=shape)
            return self._send_json(200, act(self.server.bench, wanted))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            return self._send_json(400, {"error": f"This is not a valid request: {error}"})
        except CannotDo as problem:
            return self._send_json(problem.status, {"error": str(problem)})
        except (ClientError, Refused) as error:
            return self._send_json(502, {"error": str(getattr(error, "problem", error))})

    def _is_ours(self) -> bool:
        """Return whether a request is for this address, and not of a page of another one."""
        host = self.headers.get_all("host") or []
        origin = self.headers.get_all("origin") or []
        site = self.headers.get_all("sec-fetch-site") or ["none"]
        return (
            host == [self.server.host]
            and origin in ([], [f"http://{self.server.host}"])
            and len(site) == 1
            and (site[0] in ("same-origin", "none") or self._follows_a_link(site[0]))
        )

    def _is_for_a_view(self) -> bool:
        """Answer a request to the host name of a view; return whether it was one."""
        found = self.server.bench.views.respond(self.headers.get("host"), self.command, self.path)
        if found is None:
            return False
        self.close_connection = self.command != "GET"  # its body was not read
        self.send_response_only(found.status)
        for name, value in found.headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(found.body)
        return True

    def _follows_a_link(self, site: str) -> bool:
        """Return whether a person came by a link to the page itself, which holds nothing."""
        return (
            site in ("same-site", "cross-site")
            and self.path == "/"
            and self.headers.get("sec-fetch-mode") == "navigate"
        )

    def _has_token(self) -> bool:
        given = self.headers.get_all(_TOKEN) or []
        return len(given) == 1 and compare_digest(given[0].encode("utf-8", "replace"), self.server.token.encode())

    def _stream(self, after: int) -> None:
        if not self.server.streams.acquire(blocking=False):
            return self._send_json(429, {"error": "Too many pages are open."})
        try:
            self._head(200, "application/x-ndjson", None)
            while (lines := self.server.bench.events.after(after, _PULSE)) is not None:
                data = b"".join(line + b"\n" for line in lines) or b"\n"
                self.wfile.write(b"%x\r\n%b\r\n" % (len(data), data))
                if lines:
                    after = msgspec.json.decode(lines[-1])["n"]
            self.wfile.write(b"0\r\n\r\n")
        except OSError:
            self.close_connection = True
        finally:
            self.server.streams.release()

    def _refuse(self, status: int = 403) -> None:
        """Refuse without an error message, and read no more: the body is not wanted."""
        self.close_connection = True
        self._send(status, b"", "text/plain")

    def _send_json(self, status: int, value: JSON) -> None:
        self._send(status, encode(value), "application/json")

    def _send(self, status: int, body: bytes, kind: str) -> None:
        self._head(status, kind, len(body))
        self.wfile.write(body)

    def _head(self, status: int, kind: str, length: int | None) -> None:
        self.send_response_only(status)
        for name, value in _HEADERS.items():
            self.send_header(name, value)
        self.send_header(
            "Content-Security-Policy", f"{_POLICY}; frame-src http://*.localhost:{self.server.server_port}"
        )
        self.send_header("Content-Type", kind)
        self.send_header(*(("Transfer-Encoding", "chunked") if length is None else ("Content-Length", str(length))))
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing."""
