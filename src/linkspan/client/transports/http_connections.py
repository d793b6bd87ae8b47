"""HTTP/1.1 as a client uses it, without I/O: a request to bytes, bytes to a response, and the way through a proxy.

llhttp reads (httptools); what is here is the client around it. Why this is our own: docs/decisions/0006. No redirect is followed
here: whether one may be is for the caller to decide. What moves the bytes: http_threads, http_loops.
"""

from __future__ import annotations

import re
import socket
import zlib
from binascii import b2a_base64
from collections.abc import Mapping
from contextlib import suppress
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, unquote, urlsplit

import msgspec
from httptools import HttpParserCallbackError, HttpParserError, HttpParserUpgrade, HttpResponseParser

from linkspan._version import __version__
from linkspan.client.transports.http_requests import HttpFailure
from linkspan.client.transports.proxies import find_proxy
from linkspan.flows.http_messages import shown_url
from linkspan.runtime.descriptors import Poll, open_poll
from linkspan.wire.headers import join_lines

if TYPE_CHECKING:
    from ssl import SSLContext

_CUT: Final = "the connection was closed in the middle of the response"
_CLOSED: Final = "the server closed the connection before it responded"
_REFUSED: Final = "check that the server is running, and the host and port of the URL [LS-203]"
_TLS: Final = (
    "check that the port serves https; to trust a certificate of your own, pass ssl=..., an SSLContext [LS-204]"
)
_OTHER_PORT: Final = "check that the port serves HTTP, and whether it needs https [LS-205]"
_PROXIES: Final = "check HTTP_PROXY, HTTPS_PROXY, ALL_PROXY and NO_PROXY [LS-208]"
_BAD_HEADERS: Final = "the names and values of headers= must be text without line breaks [LS-206]"
LARGEST_HEAD: Final = 128 * 1024
"""Bytes of the headers and trailers of one response, those of its interim responses included."""
MOST_LINES: Final = 256
"""Lines of them."""
_MOST_ROUTES: Final = 64
_MOST_HEADS: Final = 32
"""Heads that a route remembers: some headers are different in each request."""
LARGEST_READ: Final = 65536
_AT_ONCE: Final = 16384
"""Packed bytes that are unpacked at once."""
IDLE_SECONDS: Final = 15.0
"""How long a connection is kept for the next request."""
_BRIEFLY: Final = 0.3
_PORTS: Final = {"http": 80, "https": 443}
_AS_THEY_ARE: Final = "/%:@!$&'()*+,;=~-._[]?"
_NAMES: Final = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_NO_VALUE: Final = re.compile(r"[\r\n\0]")
END_OF_HEAD: Final = b"\r\n\r\n"
_FIRST_LINE: Final = re.compile(rb"HTTP/1\.[01] (\d{3})[ \r]")


# Where a URL leads.


class Destination(msgspec.Struct, frozen=True):
    """Where connections go: to the server, or to a proxy."""

    host: str
    port: int
    secure: bool


class Route(msgspec.Struct, frozen=True):
    """How requests for one URL are sent."""

    place: Destination
    server: Destination
    """The same, unless there is a proxy."""
    target: str
    """What follows the method in a request."""
    headers: Mapping[str, str]
    """What each request carries unless its caller says otherwise."""
    tunnel: bytes = b""
    """What a proxy is sent first, if it only opens a tunnel."""
    heads: dict[tuple[object, ...], bytes] = msgspec.field(default_factory=dict)
    """The last heads of requests, by method and headers: most requests repeat one of them."""

    @property
    def key(self) -> tuple[Destination, Destination]:
        """What the connections have in common that can carry a request."""
        return self.place, self.server if self.tunnel else self.place

    def encode(self, method: str, headers: Mapping[str, str], body: bytes) -> bytes:
        """Return a request; names of headers in lower case. Raises: HttpFailure."""
        sent = {**self.headers, **headers}
        try:
            key = method, *sent.items()
            head = self.heads.get(key)
            if head is None:
                if len(self.heads) >= _MOST_HEADS:
                    self.heads.clear()
                head = self.heads[key] = self._head(method, sent)
        except (ValueError, TypeError):
            raise HttpFailure("the request cannot be sent", sent=False, ours=True, hint=_BAD_HEADERS) from None
        length = b"content-length: %d\r\n" % len(body) if body or method == "POST" else b""
        return b"%b%b\r\n%b" % (head, length, body)

    def _head(self, method: str, headers: Mapping[str, str]) -> bytes:
        """Return the first line of a request, and its headers. Raises: ValueError, TypeError for what these may not contain."""
        if not _NAMES.fullmatch("".join(headers)) or "" in headers or _NO_VALUE.search("".join(headers.values())):
            raise ValueError
        lines = "".join([f"{name}: {value}\r\n" for name, value in headers.items()])
        return f"{method} {self.target} HTTP/1.1\r\n{lines}".encode()


class Routes:
    """The routes to the URLs of one client, with the proxies of the system. Any thread."""

    def __init__(self, ssl: SSLContext | None, connect_timeout: float) -> None:
        """Use `ssl` or the system's certificates; `connect_timeout` is in seconds, proxies and encryption included."""
        self._ssl = ssl
        self._known: dict[str, Route] = {}
        self.connect_timeout = connect_timeout

    def known(self, url: str) -> Route | None:
        """Return a route that was found before: to find one may take a while, since some systems are slow to name a proxy."""
        return self._known.get(url)

    def find(self, url: str) -> Route:
        """Return the route to a URL. Raises: HttpFailure for one that is not valid."""
        found = self._known.get(url)
        if found is None:
            try:
                found = _route(url)
            except (ValueError, TypeError):
                problem = "a URL looks like https://example.com/mcp [LS-207]"
                raise HttpFailure("invalid URL", sent=False, ours=True, hint=problem) from None
            if len(self._known) >= _MOST_ROUTES:
                self._known.clear()
            self._known[url] = found
        return found

    def admit(self, host: str, address: str) -> None:
        """Check an address of a host before it is connected to; here any is good. Raises: HttpFailure."""

    def ssl(self, place: Destination) -> SSLContext | None:
        """Return what secures connections to a place, if anything does."""
        return (self._ssl or _default_context()) if place.secure else None


class CheckedRoutes(Routes):
    """Routes that end at addresses which are checked: those that are connected to, so another address of a name is no way around.

    Through a proxy only what the URL itself says can be checked.
    """

    def __init__(self, ssl: SSLContext | None, connect_timeout: float) -> None:
        """Take the same as `Routes`."""
        super().__init__(ssl, connect_timeout)
        self._proxies: set[str] = set()

    def check(self, host: str, address: str) -> None:
        """Check an address of a host. Raises: HttpFailure for one that must not be used."""
        raise NotImplementedError

    def find(self, url: str) -> Route:
        """Return the route to a URL. Raises: HttpFailure for one that must not be used."""
        route = super().find(url)
        if route.place != route.server:
            self._proxies.add(route.place.host)
            with suppress(OSError):  # a name, whose address only the proxy knows
                for *_, address in socket.getaddrinfo(route.server.host, None, flags=socket.AI_NUMERICHOST):
                    self.check(route.server.host, str(address[0]))
        return route

    def admit(self, host: str, address: str) -> None:
        """Check an address before it is connected to. Raises: HttpFailure."""
        if host not in self._proxies:
            self.check(host, address)


@lru_cache(1)
def _default_context() -> SSLContext:
    """Return what trusts the certificates of the system. Reading them takes long, so all clients of a process share it."""
    import ssl

    context = ssl.create_default_context()
    context.set_alpn_protocols(["http/1.1"])
    return context


def _route(url: str) -> Route:
    parts = urlsplit(url)
    server = _place(url)
    path = quote(parts.path or "/", _AS_THEY_ARE) + (f"?{quote(parts.query, _AS_THEY_ARE)}" if parts.query else "")
    shown = f"[{server.host}]" if ":" in server.host else server.host
    host = shown if server.port == _PORTS[parts.scheme] else f"{shown}:{server.port}"
    headers = {"host": host, "user-agent": f"linkspan/{__version__}", "accept-encoding": "gzip, deflate"}
    headers |= _basic("authorization", url)
    found = find_proxy(parts.scheme, server.host, server.port)
    if not found:
        return Route(server, server, path, headers)
    proxy, credentials = _way_through(found)
    if not server.secure:
        return Route(proxy, server, f"http://{host}{path}", {**headers, **credentials})
    there = f"{shown}:{server.port}"
    head = "".join(f"{name}: {value}\r\n" for name, value in {"host": there, **credentials}.items())
    return Route(proxy, server, path, headers, f"CONNECT {there} HTTP/1.1\r\n{head}\r\n".encode())


def _way_through(proxy: str) -> tuple[Destination, Mapping[str, str]]:
    """Return where a proxy is, and the header that carries its password, if it has one. Raises: HttpFailure."""
    try:
        return _place(proxy), _basic("proxy-authorization", proxy)
    except ValueError:
        kind = "only proxies that speak HTTP are, by http:// or https://"
        problem = f"the proxy {shown_url(proxy)} is not supported: {kind}"
        raise HttpFailure(problem, sent=False, ours=True, hint=_PROXIES) from None


def _place(url: str) -> Destination:
    """Return where a URL leads. Raises: ValueError."""
    parts = urlsplit(url)
    host = parts.hostname
    if not host or parts.scheme not in _PORTS or re.search(r"[\s\0-\x20%]", host):
        raise ValueError("invalid URL")
    host = host if host.isascii() else host.encode("idna").decode()
    return Destination(host, parts.port or _PORTS[parts.scheme], parts.scheme == "https")


def _basic(name: str, url: str) -> dict[str, str]:
    """Return the header that carries the user name and the password of a URL, if it has them."""
    parts = urlsplit(url)
    if parts.username is None:
        return {}
    who = f"{unquote(parts.username)}:{unquote(parts.password or '')}".encode()
    return {name: f"Basic {b2a_base64(who, newline=False).decode()}"}


# What comes back.


class HttpConnection:
    """A connection, and the response to the one request that it carries at a time. Its faces add how bytes come and go."""

    def __init__(self) -> None:
        self._parser = HttpResponseParser(self)
        self._unpacker: _Unpacker | None = None
        self._chunks: list[bytes] = []
        self._until_eof = False
        self._persists = False
        self._lines: list[tuple[str, str]] = []
        self._counted = self._counted_bytes = self._since_body = 0
        self.status = 0
        self.headers: dict[str, str] = {}
        """Names in lower case. The different values of a header that came more than once are joined by commas."""
        self.idle = True
        """Whether no response is expected."""
        self.answered = False
        """Whether the head of the response has come."""
        self.complete = False
        self.failure: HttpFailure | None = None
        """Why no more will come, or why what came is not HTTP."""
        self.used_at = 0.0
        self._poll: Poll | None = None

    def watch(self, sock: Any) -> None:
        """Take the socket, for `is_quiet`."""
        self._poll = open_poll(sock.fileno())

    def is_quiet(self) -> bool:
        """Return whether nothing has come since the last response: not even its end, which the loop may not have seen yet."""
        return self._poll is None or not self._poll.poll(0)

    def expect(self) -> None:
        """Prepare for the response to a request that is about to be sent."""
        self.idle = self.answered = self.complete = self._persists = False
        self._unpacker = None
        self._chunks = []
        self._counted = self._counted_bytes = self._since_body = 0

    @property
    def reusable(self) -> bool:
        """Whether the connection can carry another request."""
        return self.complete and self.failure is None and not self._chunks and self._persists

    def receive(self, data: bytes) -> None:
        """Take bytes of the server; `answered`, `complete`, `failure` and `take` give what they are."""
        if self.idle or self.complete:
            self._fail("it sent data that was not requested", garbled=True)
            return
        self._since_body += len(data)
        try:
            self._parser.feed_data(data)
        except HttpParserUpgrade:
            self._fail("it switched to another protocol", garbled=True)
        except HttpParserCallbackError as error:
            self._fail(str(error.__context__), garbled=True)
        except HttpParserError as error:
            if self.answered:
                self._fail(_CUT, garbled=False)
            else:
                self._fail(" ".join(str(error).split(":")[0].split())[:80], garbled=True)
        else:
            # More than can be counted by lines: mostly one that has no end, which llhttp keeps.
            if self._since_body > 2 * LARGEST_HEAD and not self.complete:
                self._fail(self._too_large, garbled=True)

    def receive_eof(self, reason: str = "") -> None:
        """Record that nothing more will come; `reason` is an error of the connection."""
        if self.complete or self.failure is not None:
            return
        if self.answered and self._until_eof and not reason:
            self.complete = True
        elif self.answered:
            self._fail(f"{_CUT} ({reason})" if reason else _CUT)
        else:
            self._fail(f"the connection was lost before the response arrived ({reason})" if reason else _CLOSED)

    def take(self) -> bytes | None:
        """Return the part of the body that has come: empty at its end, None if there is nothing yet. Raises: HttpFailure."""
        while True:
            if self._unpacker is not None and (data := self._unpacker.take()):
                return data
            if not self._chunks:
                break
            data = self._chunks[0] if len(self._chunks) == 1 else b"".join(self._chunks)
            self._chunks = []
            if self._unpacker is None:
                return data
            self._unpacker.feed(data)
        if self.complete:
            if self._unpacker is not None:
                self._unpacker.end()
            return b""
        if self.failure is not None:
            raise self.failure
        return None

    def _fail(self, problem: str, *, garbled: bool = False) -> None:
        if self.failure is None:
            hint = _OTHER_PORT if garbled else None
            text = f"the response is not valid HTTP: {problem}" if garbled else problem
            self.failure = HttpFailure(text, sent=True, garbled=garbled, hint=hint)

    @property
    def _too_large(self) -> str:
        return f"its {'trailers' if self.answered else 'headers'} are too large"

    # What llhttp calls.

    def on_message_begin(self) -> None:
        """Begin a response. Raises: ValueError if there was one."""
        if self.complete:
            raise ValueError("a second response")
        self._lines = []

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a line of the headers; those of trailers are only counted (RFC 9110, section 6.5.1). Raises: ValueError."""
        self._counted += 1
        self._counted_bytes += len(name) + len(value)
        if self._counted > MOST_LINES or self._counted_bytes > LARGEST_HEAD:
            raise ValueError(self._too_large)
        if not self.answered:
            self._lines.append((name.decode("latin-1").lower(), value.decode("utf-8", "surrogateescape").strip()))

    def on_headers_complete(self) -> None:
        """Take the end of the head, of which there may be several before the response proper."""
        self.status = self._parser.get_status_code()
        if self.status < 200:
            return
        headers = dict(self._lines)
        if len(headers) < len(self._lines):
            headers = join_lines(dict.fromkeys(self._lines))
        self.headers = headers
        self.answered = True
        self._until_eof = "content-length" not in headers and "chunked" not in headers.get("transfer-encoding", "")
        if coding := headers.get("content-encoding", ""):
            self._unpacker = _Unpacker(coding.lower())

    def on_body(self, data: bytes) -> None:
        """Take a piece of the body."""
        self._since_body = 0
        self._chunks.append(data)

    def on_message_complete(self) -> None:
        """Take the end of a response, or of what came before it."""
        if self.answered:
            self.complete = True
            self._persists = self._parser.should_keep_alive()


class _Unpacker:
    """Unpacks a body, a bounded piece at a time: a small body may hold a very large one."""

    def __init__(self, coding: str) -> None:
        self._coding = coding
        self._packed = b""
        self._taken = 0
        self._inflate: Any = None
        self._has_more = False
        """Whether zlib holds more than it has returned."""

    def feed(self, data: bytes) -> None:
        """Take packed bytes, once what was fed before is unpacked."""
        self._packed, self._taken = data, 0

    def take(self) -> bytes:
        """Return a piece of what they hold; nothing if more must come first. Raises: HttpFailure."""
        if self._coding == "identity":
            whole, self._packed = self._packed, b""
            return whole
        while self._has_more or self._taken < len(self._packed):
            # zlib copies what it leaves of its input, each time. So it gets little.
            packed = self._packed[self._taken : self._taken + _AT_ONCE]
            if self._inflate is None or self._inflate.eof:
                self._inflate = self._begin(packed[0])
            try:
                data: bytes = self._inflate.decompress(packed, LARGEST_READ)
            except zlib.error:
                raise _undecodable() from None
            ended = self._inflate.eof
            left = self._inflate.unused_data if ended else self._inflate.unconsumed_tail
            self._taken += len(packed) - len(left)
            self._has_more = len(data) == LARGEST_READ and not ended
            if data:
                return data
        return b""

    def _begin(self, first: int) -> Any:
        """Begin to unpack what starts with this byte: the body, or another member of it (RFC 1952, section 2.2)."""
        if self._coding in ("gzip", "x-gzip"):
            return zlib.decompressobj(31)
        if self._coding != "deflate" or self._inflate is not None:
            raise _undecodable()
        return zlib.decompressobj(15 if first & 15 == 8 else -15)  # some servers leave out the frame of zlib

    def end(self) -> None:
        """Check that nothing is missing. Raises: HttpFailure."""
        if self._inflate is not None and not self._inflate.eof:
            raise HttpFailure("its compressed body ends too early", sent=True, garbled=True)


def _undecodable() -> HttpFailure:
    return HttpFailure("its compressed body cannot be decoded", sent=True, garbled=True)


# What can go wrong before there is a connection.


def connect_failure(error: Exception) -> HttpFailure:
    """Return why there is no connection."""
    if isinstance(error, HttpFailure):
        return error
    if isinstance(error, socket.gaierror | UnicodeError):
        return HttpFailure(
            "it cannot be reached: the host name does not resolve",
            sent=False,
            hint="check the host name in the URL [LS-202]",
        )
    if isinstance(error, TimeoutError):
        return HttpFailure("it cannot be reached: the connection timed out", sent=False, hint=_REFUSED)
    if type(error).__module__ == "ssl":
        return HttpFailure(f"the TLS handshake failed: {plain(error)}", sent=False, hint=_TLS)
    reason = f"it cannot be reached: the connection was refused or failed ({plain(error)})"
    return HttpFailure(reason, sent=False, hint=_REFUSED)


def plain(error: Exception) -> str:
    """Return the reason of an error of a connection in one line."""
    text = getattr(error, "verify_message", None) or getattr(error, "strerror", None) or str(error)
    return " ".join(str(text or type(error).__name__).split())[:160]


class TunnelAnswer:
    """What a proxy sends before a tunnel is open, or is refused."""

    def __init__(self) -> None:
        self._head = bytearray()

    def receive(self, data: bytes) -> bool:
        """Return whether what has come so far opens the tunnel; False if more must come. Raises: HttpFailure."""
        searched = max(0, len(self._head) - len(END_OF_HEAD) + 1)
        self._head += data
        if self._head.find(END_OF_HEAD, searched) < 0 and len(self._head) < LARGEST_HEAD:
            return False
        found = _FIRST_LINE.match(self._head)
        if found is not None and found[1].startswith(b"2"):
            return True
        problem = f"answered with status {int(found[1])}" if found is not None else "does not speak HTTP"
        raise HttpFailure(f"the proxy on the way to it {problem}", sent=False, hint=_PROXIES)


def patiences(addresses: int) -> tuple[float | None, ...]:
    """Return how many seconds each address of a host is given, round by round, so that a dead one holds up the others briefly."""
    return (None,) if addresses == 1 else (_BRIEFLY, None)
