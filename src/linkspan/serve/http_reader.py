"""Requests from the bytes of one HTTP/1.1 connection. llhttp decides what is HTTP; no I/O, no clock.

Law: nothing of ours that may fail runs inside the parser, which would take an exception for an error in the request.
Spec: https://www.rfc-editor.org/rfc/rfc9112.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Generic, TypeVar

import httptools
import msgspec

from linkspan.wire.headers import unknown_coding


class ReadRequest(msgspec.Struct):
    """A request as it was read: complete once it is in the queue."""

    method: str
    url: bytes
    headers: list[tuple[bytes, bytes]]
    version: str
    keep_alive: bool = False  # known once it is complete
    body: bytes | bytearray = b""


RequestT = TypeVar("RequestT", bound=ReadRequest)


class RequestReader(Generic[RequestT]):
    """Reads the requests of one connection, one after the other."""

    def __init__(self, make: Callable[[str, bytes, list[tuple[bytes, bytes]], str], RequestT]) -> None:
        """`make` returns a request of a method, a URL, header lines and a version."""
        self._make = make
        self.ready: deque[RequestT] = deque()
        """Those that have arrived, for the driver to take."""
        self.head: RequestT | None = None
        """The one whose head has arrived, and whose body has not."""
        self.has_begun = False
        """Whether a part of a request is here, of which the rest is not."""
        self.is_broken = False
        """Whether what follows cannot be read."""
        self.received = 0
        """Bytes of the request that is arriving, as far as whole reads tell."""
        self.received_with_body = 0
        """The same, as it was when the last bytes of its body came."""
        self._fields: list[tuple[bytes, bytes]] = []
        self._url: list[bytes] = []
        self._upgrade = False
        self.on_url = self._url.append  # what the parser calls, in parts
        self._parser: httptools.HttpRequestParser | None = httptools.HttpRequestParser(self)
        with suppress(AttributeError):  # older versions are never as strict
            self._parser.set_dangerous_leniencies(lenient_data_after_close=True)

    def receive_data(self, data: bytes) -> None:
        """Take bytes of any number of requests."""
        if self._parser is None:
            return
        if self.has_begun:
            self.received += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self._decline_upgrades(memoryview(data)[upgrade.args[0] :])
        except httptools.HttpParserError:
            self.is_broken = True

    def unknown_coding(self) -> str | None:
        """Return the transfer coding for which a request cannot be read: llhttp takes no body whose last one is not `chunked`."""
        head = self.head
        given = [value for name, value in head.headers if name.lower() == b"transfer-encoding"] if head else []
        return unknown_coding(b",".join(given).decode("latin-1"))

    def close(self) -> None:
        """Read nothing more: the parser and this refer to each other."""
        self._parser = None

    # What the parser calls.

    def on_message_begin(self) -> None:
        """Begin a request."""
        self._url.clear()
        self._fields = []
        self.has_begun = True
        self.received = self.received_with_body = 0

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header line. Those that follow a chunked body are not kept: they were not checked."""
        if self.head is None:
            self._fields.append((name, value))

    def on_headers_complete(self) -> None:
        """Keep the head as llhttp has understood it."""
        parser = self._parser
        assert parser is not None
        method, version = parser.get_method().decode("ascii"), parser.get_http_version()
        self._upgrade = parser.should_upgrade()
        self.head = self._make(method, b"".join(self._url), self._fields, version)
        self._url.clear()
        self._fields = []

    def on_body(self, body: bytes) -> None:
        """Take a part of the body."""
        head = self.head
        assert head is not None
        self.received_with_body = self.received
        if not head.body:
            head.body = body
            return
        if isinstance(head.body, bytes):
            head.body = bytearray(head.body)
        head.body += body

    def on_message_complete(self) -> None:
        """Keep the request until it is its turn."""
        if self._upgrade:
            return  # it is not complete: llhttp leaves out the body
        head, parser = self.head, self._parser
        assert head is not None
        assert parser is not None
        # Only here, since llhttp obeys a Connection among the trailers too, and reads no other request then.
        head.keep_alive = head.version == "1.1" and parser.should_keep_alive()
        self.ready.append(head)
        self.has_begun, self.head = False, None

    def _decline_upgrades(self, rest: memoryview) -> None:
        """Parse a head again without its wish for another protocol, which a server may ignore (RFC 9110, 7.8), and what follows.

        llhttp takes whatever follows such a head for the other protocol. Its body must not be read as the next request.
        """
        while (head := self.head) is not None and head.method != "CONNECT":
            self.head, self._parser = None, httptools.HttpRequestParser(self)
            try:
                self._parser.feed_data(_without_upgrade(head))
                self._parser.feed_data(rest)
                return
            except httptools.HttpParserUpgrade as upgrade:
                rest = rest[upgrade.args[0] :]
            except httptools.HttpParserError:
                break
        self.is_broken = True


def _without_upgrade(head: ReadRequest) -> bytes:
    """Return a head again, without its wish for another protocol."""
    lines = [b"%b %b HTTP/%b" % (head.method.encode(), head.url, head.version.encode())]
    for name, value in head.headers:
        if name.lower() == b"connection":
            tokens = [each.strip() for each in value.split(b",")]
            lines.append(b"%b: %b" % (name, b", ".join([each for each in tokens if each.lower() != b"upgrade"])))
        elif name.lower() != b"upgrade":
            lines.append(b"%b: %b" % (name, value))
    return b"\r\n".join([*lines, b"", b""])
