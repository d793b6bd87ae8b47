"""One request at a time, as a check writes it: no redirect is followed, and what comes is bounded."""

from __future__ import annotations

import http.client
import json
import math
import socket
import ssl
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from time import monotonic
from types import MappingProxyType
from typing import Final
from urllib.parse import urljoin, urlsplit

import msgspec

from linkspan.types.base import JSON

_WAIT: Final = 5.0
"""Seconds for a connection, and for each part of an answer."""
_LONGEST: Final = 20.0
"""Seconds for a whole answer, whose parts may come one by one."""
_NO_HEADERS: Final[Mapping[str, str]] = MappingProxyType({})
_LARGEST: Final = 20_000_000
"""Bytes of an answer that are read."""
RESPONSE: Final = (b'"result"', b'"error"')
"""What an event with a response has in it."""


class WebAnswer(msgspec.Struct, frozen=True):
    """What came for one request."""

    status: int = 0
    """0 if no answer came."""
    headers: Mapping[str, str] = {}
    """By name in lower case; values of one name are joined by commas."""
    body: bytes = b""
    seconds: float = 0.0
    """To its first byte after the headers, or to its end."""
    problem: str = ""
    """Why no answer came."""
    tls: bool = False
    """Whether it was TLS that failed."""

    @property
    def kind(self) -> str:
        """The media type, without parameters."""
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()

    @property
    def json(self) -> JSON:
        """The JSON in it, as it is or as the last event of a stream; None for another body."""
        texts = self.texts
        return read_json(texts[-1]) if texts else None

    @property
    def texts(self) -> list[str]:
        """The body, or the data of each event of a stream that has some."""
        text = self.body.decode("utf-8", "replace")
        if self.kind != "text/event-stream":
            return [text] if text else []
        events = (
            "\n".join(line[5:].removeprefix(" ") for line in event.split("\n") if line.startswith("data:"))
            for event in text.replace("\r\n", "\n").split("\n\n")
        )
        return [each for each in events if each]

    @property
    def words(self) -> str:
        """The answer in a few words."""
        return self.problem or f"{self.status} {self.kind}".strip()


class OutOfTime(Exception):
    """The time for all requests together has passed."""


class Web:
    """Requests to one URL and what belongs to it."""

    def __init__(self, url: str, headers: Mapping[str, str] = _NO_HEADERS, *, seconds: float = math.inf) -> None:
        """`headers` go with each request to the host of `url` but OPTIONS, and to no other host.

        All requests take some `seconds` at most. OPTIONS is what a browser sends before a page's request, without its token.
        """
        self.url = url
        self._end = monotonic() + seconds
        self._headers = headers
        self._origin = urlsplit(url)[:2]

    def post(self, message: JSON, headers: Mapping[str, str] = _NO_HEADERS, *, head_only: bool = False) -> WebAnswer:
        """Send a message as clients do; `headers` replace those of its kind, and an empty value leaves one out."""
        usual = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
        return self.ask("POST", self.url, {**usual, **headers}, json.dumps(message).encode(), head_only=head_only)

    def get(self, url: str, headers: Mapping[str, str] = _NO_HEADERS, *, head_only: bool = False) -> WebAnswer:
        """Ask for a document."""
        return self.ask("GET", url, headers, head_only=head_only)

    def ask(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str],
        body: bytes | None = None,
        *,
        head_only: bool = False,
        until: Sequence[bytes] = RESPONSE,
    ) -> WebAnswer:
        """Send one request on a connection of its own.

        Of a stream it reads up to the first event with one of the texts `until`; with `head_only`, only the headers.
        Raises: OutOfTime.
        """
        parts = urlsplit(url)
        own = self._headers if parts[:2] == self._origin and method != "OPTIONS" else _NO_HEADERS
        sent = {"User-Agent": "linkspan-doctor", **own, **headers}
        began = monotonic()
        if began >= self._end:
            raise OutOfTime
        connection: http.client.HTTPConnection | None = None
        cut = _Cut(min(_LONGEST, self._end - began))
        try:
            connection = _connection(parts.scheme, parts.hostname or "", parts.port)
            connection.connect()
            cut.begin(connection.sock)
            target = parts.path or "/"
            connection.request(
                method, f"{target}?{parts.query}" if parts.query else target, body, {k: v for k, v in sent.items() if v}
            )
            response = connection.getresponse()
            found: dict[str, str] = {}
            for name, value in response.getheaders():
                found[name.lower()] = f"{found[name.lower()]}, {value}" if name.lower() in found else value
            streams = found.get("content-type", "").startswith("text/event-stream")
            data = b"" if head_only and streams else _read(response, until if streams else ())
            if cut.passed:
                raise TimeoutError
            return WebAnswer(response.status, found, data, monotonic() - began)
        except ssl.SSLError as problem:
            return WebAnswer(problem=str(problem.reason or problem), tls=True)
        except (OSError, http.client.HTTPException, ValueError) as problem:
            words = f"no whole answer within {cut.interval:.0f} s" if cut.passed else _words(problem)
            return WebAnswer(problem=words, seconds=monotonic() - began)
        finally:
            cut.cancel()
            if connection is not None:
                connection.close()


class _Cut(threading.Timer):
    """Ends a connection after some seconds, whatever is waited for."""

    def __init__(self, seconds: float) -> None:
        super().__init__(seconds, self._cut)
        self.daemon = True
        self.passed = False
        self._socket: socket.socket | None = None

    def begin(self, connection: socket.socket) -> None:
        """Begin to count."""
        self._socket = connection
        self.start()

    def _cut(self) -> None:
        self.passed = True
        if self._socket is not None:
            with suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)


def _connection(scheme: str, host: str, port: int | None) -> http.client.HTTPConnection:
    if scheme == "https":
        return http.client.HTTPSConnection(host, port, timeout=_WAIT, context=ssl.create_default_context())
    if scheme != "http":
        raise ValueError(f"{scheme}: is not http or https")
    return http.client.HTTPConnection(host, port, timeout=_WAIT)


def _read(response: http.client.HTTPResponse, until: Sequence[bytes]) -> bytes:
    """Return the body, up to the first event with one of the texts `until`."""
    data = b""
    while len(data) < _LARGEST:
        part = response.read1(65536)
        data += part
        if not part or (any(each in data for each in until) and data.rstrip(b" ").endswith((b"\n\n", b"\r\n\r\n"))):
            break
    return data


def _words(problem: Exception) -> str:
    if isinstance(problem, TimeoutError):
        return f"no answer within {_WAIT:.0f} s"
    if isinstance(problem, socket.gaierror):
        return "its name has no address"
    return str(getattr(problem, "strerror", None) or problem) or type(problem).__name__


def read_json(text: str) -> JSON:
    """Return the JSON of a text; None for another one."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def joined(url: str, location: str) -> str:
    """Return where a redirect leads."""
    return urljoin(url, location)
