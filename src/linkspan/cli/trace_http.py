"""`linkspan trace URL`: an address on this machine that passes every request on to a server at a URL, and shows the messages.

Bodies pass unchanged, and streams as they come. Headers pass except those of the connection, `Host`, `Origin` and
`Accept-Encoding`. Law: it listens on 127.0.0.1, serves one path, and refuses pages of other sites.
"""

from __future__ import annotations

import http.client
import os
import socket
import ssl
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final, Protocol
from urllib.parse import urlsplit

import msgspec

from linkspan.cli.show import hop_words
from linkspan.flows.http_messages import HttpHop, shown_headers
from linkspan.testing.recorder import Side
from linkspan.types.base import JSON
from linkspan.wire.framing import EventReader, TooLarge
from linkspan.wire.headers import media_type, parse_authority, parse_origin

_AT_ONCE: Final = 64
"""Requests that may run at once; a stream that is listened to is one."""
_MAX_BODY: Final = 64 * 1024 * 1024
_PATIENCE: Final = 30.0
"""Seconds for a client to send a request, and for the server to accept a connection."""
_CHUNK: Final = 64 * 1024
_HIDDEN_FROM_SERVER: Final = frozenset(
    {
        *("host", "origin", "accept-encoding", "content-length", "connection", "keep-alive", "te", "trailer"),
        *("transfer-encoding", "upgrade", "proxy-authorization", "proxy-connection", "expect"),
    }
)
_HIDDEN_FROM_CLIENT: Final = frozenset({"connection", "keep-alive", "transfer-encoding", "content-length", "trailer"})


class HttpTrace(Protocol):
    """Where the traffic is shown."""

    def receive(self, side: Side, data: bytes) -> None:
        """Record and show what one side has sent: whole lines."""

    def note(self, text: str, **members: JSON) -> None:
        """Show an event."""


class TracedUrl:
    """Passes requests on to a URL, and shows them, from the time it is made until `close`."""

    def __init__(
        self,
        url: str,
        trace: HttpTrace,
        *,
        port: int = 0,
        headers: Mapping[str, str] | None = None,
        secrets: tuple[str, ...] = (),
        redacted: bool = True,
        show_headers: bool = False,
    ) -> None:
        """Listen on `port`; 0 for any that is free. `headers` replace those of the client. Raises: OSError, ValueError."""
        self._relay = _RelayServer(
            url, trace, port, dict(headers or {}), secrets, redacted=redacted, show_headers=show_headers
        )
        self.url = f"http://127.0.0.1:{self._relay.server_port}{self._relay.path}"
        self._thread = threading.Thread(
            target=self._relay.serve_forever, args=(0.1,), name="linkspan-trace-http", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """Listen no more."""
        self._relay.shutdown()
        self._relay.server_close()
        self._thread.join()


def _connector(secure: bool, host: str, port: int | None) -> Callable[[], http.client.HTTPConnection]:
    if not secure:
        return lambda: http.client.HTTPConnection(host, port, timeout=_PATIENCE)
    context = ssl.create_default_context()
    return lambda: http.client.HTTPSConnection(host, port, timeout=_PATIENCE, context=context)


class _RelayServer(ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = os.name != "nt"  # there it would let another program take the port over

    def __init__(
        self,
        url: str,
        trace: HttpTrace,
        port: int,
        headers: Mapping[str, str],
        secrets: tuple[str, ...],
        *,
        redacted: bool,
        show_headers: bool,
    ) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.username is not None:
            raise ValueError("the URL of a server is http(s)://HOST/PATH, without a user and a password: use --header")
        self.connect = _connector(parts.scheme == "https", parts.hostname, parts.port)
        self.target = url
        self.path = parts.path or "/"
        self.query = parts.query
        self.trace = trace
        self.headers = headers
        self.secrets = (*secrets, *headers.values())
        self.redacted = redacted
        self.show_headers = show_headers
        self.running = threading.BoundedSemaphore(_AT_ONCE)
        super().__init__(("127.0.0.1", port), _RelayHandler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing: a client may break off at any time."""

    def note_hop(self, hop: HttpHop) -> None:
        """Show a request and the head of its response: with headers where they are wanted, else what went wrong."""
        if self.show_headers:
            lines = hop_words(hop).split("\n")
        elif hop.status < 400 and hop.status:
            return
        else:
            lines = [f"{hop.method} {self.target} {hop.status or hop.problem}"]
            lines += [f"  < {name}: {value}" for name, value in hop.received.items() if name == "www-authenticate"]
        facts: JSON = msgspec.to_builtins(hop)
        self.trace.note(lines[0], http=facts)
        for each in lines[1:]:
            self.trace.note(each)


class _RelayHandler(BaseHTTPRequestHandler):
    timeout = _PATIENCE
    protocol_version = "HTTP/1.1"
    server: _RelayServer  # pyright: ignore[reportIncompatibleVariableOverride] - it is made by that server alone

    def do_GET(self) -> None:
        """Pass a request on."""
        self._pass_on()

    do_POST = do_DELETE = do_GET

    def _pass_on(self) -> None:
        length = self.headers.get("content-length", "0")
        if self._is_foreign():
            return self._refuse(403, "This address is for programs of this machine.")
        if urlsplit(self.path).path != self.server.path:
            return self._refuse(404, f"Only {self.server.path} is passed on.")
        if self.headers.get("transfer-encoding") or not length.isdecimal() or int(length) > _MAX_BODY:
            return self._refuse(411, "A body needs a Content-Length, of 64 MiB at most.")
        if not self.server.running.acquire(blocking=False):
            return self._refuse(503, "Too many requests run at once.")
        try:
            if body := self.rfile.read(int(length)):
                self.server.trace.receive("client", _line(body))
            self._exchange(body)
        finally:
            self.server.running.release()
        return None

    def _is_foreign(self) -> bool:
        """Return whether a page of another site may have sent a request, by its own name or by one that it gave this machine."""
        host = parse_authority(self.headers.get("host", ""))
        origin = self.headers.get("origin")
        page = parse_origin(origin) if origin is not None else None
        return host is None or not host.loopback or (origin is not None and (page is None or not page.loopback))

    def _exchange(self, body: bytes) -> None:
        sent = {name: value for name, value in self.headers.items() if name.lower() not in _HIDDEN_FROM_SERVER}
        replaced = {name.lower() for name in self.server.headers}
        sent = {name: value for name, value in sent.items() if name.lower() not in replaced} | dict(self.server.headers)
        query = "?".join(filter(None, ["", urlsplit(self.path).query or self.server.query]))
        began = time.monotonic()
        connection = self.server.connect()
        try:
            connection.request(self.command, self.server.path + query, body or None, sent)
            upstream = connection.sock
            upstream.settimeout(None)  # an answer may take as long as the client waits
            response = connection.getresponse()
        except (OSError, http.client.HTTPException) as problem:
            self._note(sent, 0, {}, began, str(problem) or type(problem).__name__)
            self._refuse(502, "The server cannot be reached.")
            connection.close()
            return
        with response, suppress(OSError, http.client.HTTPException):
            received = dict(response.getheaders())
            self._note(sent, response.status, received, began)
            if media_type(response.headers.get("content-type", "")) == "text/event-stream":
                self._stream(response, upstream)
            else:
                data = response.read()
                self._head(response)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)
                if data:
                    self.server.trace.receive("server", _line(data))
        connection.close()

    def _stream(self, response: http.client.HTTPResponse, upstream: socket.socket) -> None:
        """Pass events on as they come, until one side ends the stream."""
        self.close_connection = True
        self._head(response)
        self.send_header("Connection", "close")
        self.end_headers()
        threading.Thread(target=self._end_with_client, args=(upstream,), daemon=True).start()
        reader: EventReader | None = EventReader(_MAX_BODY)
        while data := response.read1(_CHUNK):
            self.wfile.write(data)
            try:
                events = reader.receive_data(data) if reader is not None else []
            except TooLarge:
                self.server.trace.note("an event is too large to be shown; nothing more of this stream is")
                reader, events = None, []
            for event in events:
                if event.data:
                    self.server.trace.receive("server", _line(event.data))

    def _end_with_client(self, upstream: socket.socket) -> None:
        """End the connection to the server once the client has ended its own: nothing else tells while no event comes."""
        with suppress(OSError):
            self.connection.settimeout(None)
            while self.connection.recv(_CHUNK):
                pass
        with suppress(OSError):
            upstream.shutdown(socket.SHUT_RDWR)

    def _head(self, response: http.client.HTTPResponse) -> None:
        self.send_response_only(response.status, response.reason)
        for name, value in response.getheaders():  # a name may be there several times
            if name.lower() not in _HIDDEN_FROM_CLIENT:
                self.send_header(name, value)

    def _note(
        self, sent: Mapping[str, str], status: int, received: Mapping[str, str], began: float, problem: str = ""
    ) -> None:
        server = self.server
        shown = [
            shown_headers(each, (), server.secrets)
            if server.redacted
            else {name.lower(): value for name, value in each.items()}
            for each in (sent, received)
        ]
        server.note_hop(
            HttpHop(self.command, server.target, shown[0], status, shown[1], time.monotonic() - began, problem)
        )

    def _refuse(self, status: int, words: str) -> None:
        self.close_connection = True
        data = words.encode()
        self.send_response_only(status)
        self.send_header("Content-Type", "text/plain; charset=utf-8")
        self.send_header("Content-Length", str(len(data)))
        self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing."""


def _line(message: bytes | str) -> bytes:
    """Return a message as one line: in JSON, line breaks stand between tokens only."""
    data = message.encode() if isinstance(message, str) else message
    return data.replace(b"\r", b" ").replace(b"\n", b" ") + b"\n"
