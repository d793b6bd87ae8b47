"""What answers at the port of `run --http --reload` while no server runs there: 503 at once, and on this machine the reason.

It is a page that loads itself again for a browser, and text for clients. What the server printed stays on loopback, and away from
proxies, as the page for people does.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from contextlib import suppress
from html import escape
from typing import Final

from linkspan.core.http_checks import is_over_loopback
from linkspan.wire.headers import is_forwarded, parse_authority, wants_page

_PATIENCE: Final = 5.0
"""Seconds for the head of a request, and for what follows the response."""
_LONGEST_HEAD: Final = 65536
_LAST_ANSWERS: Final = 0.05
_PAGE: Final = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta http-equiv="refresh" content="1">
<title>The server does not run</title>
<h1>The server does not run</h1>
<p>{problem}</p>
<pre>{output}</pre>
</html>
"""
_HEADERS: Final = (
    "Retry-After: 1",
    "Cache-Control: no-store",
    "Content-Security-Policy: default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options: nosniff",
    "Connection: close",
)


class Unavailable:
    """Answers all requests at a socket that listens, in a thread of its own, until it is closed."""

    def __init__(self, listener: socket.socket, problem: str, output: str) -> None:
        """`problem` is for all clients, `output`, the last that the server printed, for those of this machine."""
        self._listener = listener.dup()
        self._problem = problem
        self._output = output.strip()
        self._loop = asyncio.SelectorEventLoop()  # a Proactor loop would bind the socket: see serve.shared_listener
        self._stopped = asyncio.Event()
        self._open: set[asyncio.StreamWriter] = set()
        self._thread = threading.Thread(target=self._run, name="linkspan-unavailable", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Answer no more. Connections that have not been accepted wait for who listens next."""
        with suppress(RuntimeError):  # it has ended by itself
            self._loop.call_soon_threadsafe(self._stopped.set)
        self._thread.join()

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._serve())

    async def _serve(self) -> None:
        server = await asyncio.start_server(self._answer, sock=self._listener, limit=_LONGEST_HEAD)
        await self._stopped.wait()
        server.close()
        await asyncio.sleep(_LAST_ANSWERS)  # for connections that have just been accepted
        for writer in list(self._open):
            writer.transport.abort()
        await asyncio.sleep(0)  # in which they are closed: a client would wait for one that stays open

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open.add(writer)
        with suppress(OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            try:
                async with asyncio.timeout(_PATIENCE):
                    head = await reader.readuntil(b"\r\n\r\n")
                    writer.write(self._response(head.decode("latin-1"), writer))
                    await writer.drain()
                    writer.write_eof()
                    while await reader.read(_LONGEST_HEAD):
                        pass  # for a body that stays unread, the system drops our response
            finally:
                writer.close()
                self._open.discard(writer)

    def _response(self, head: str, writer: asyncio.StreamWriter) -> bytes:
        method = head.partition(" ")[0]
        fields = (line.partition(":") for line in head.split("\r\n")[1:])
        headers = {name.strip().lower(): value.strip() for name, _, value in fields}
        output = self._output if _is_of_this_machine(headers, writer) else ""
        if wants_page(headers.get("accept", "")):
            kind, text = "text/html", _PAGE.format(problem=escape(self._problem), output=escape(output))
        else:
            reason = output.rpartition("\n")[2]
            kind, text = "text/plain", "\n\n".join(filter(None, (reason, self._problem, output))) + "\n"
        body = text.encode("utf-8", "backslashreplace")
        lines = ("HTTP/1.1 503 Service Unavailable", f"Content-Type: {kind}; charset=utf-8", *_HEADERS)
        start = "\r\n".join([*lines, f"Content-Length: {len(body)}", "", ""]).encode()
        return start if method == "HEAD" else start + body


def _is_of_this_machine(headers: dict[str, str], writer: asyncio.StreamWriter) -> bool:
    """Return whether a request came over loopback, not through a proxy, and by a name that no other site can take."""
    own, peer = writer.get_extra_info("sockname"), writer.get_extra_info("peername")
    host = parse_authority(headers.get("host", ""))
    over_loopback = bool(own) and bool(peer) and is_over_loopback(own[0], peer[0])
    return over_loopback and not is_forwarded(headers) and host is not None and host.loopback
