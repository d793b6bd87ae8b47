"""Real stdio for a server in this process, and the little that a test needs to speak over HTTP."""

from __future__ import annotations

import http.client
import json
import os
import select
import threading
from typing import Any
from urllib.parse import urlsplit

from linkspan import Server, StdioTransport

PATIENCE = 10.0


class StdioServer:
    """A server that reads and writes pipes, as it would its standard input and output."""

    def __init__(self, server: Server) -> None:
        self._input, self._write_to = os.pipe()
        self._read_from, self._output = os.pipe()
        transport = StdioTransport(server, input_fd=self._input, output_fd=self._output, watch_parent=False)
        self.codes: list[int] = []
        self._thread = threading.Thread(target=lambda: self.codes.append(transport.open()))
        self._unread = b""

    def __enter__(self) -> StdioServer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._write_to)
        self._thread.join(PATIENCE)
        for each in (self._input, self._output, self._read_from):
            os.close(each)
        assert self.codes == [0]

    def write(self, data: bytes) -> None:
        os.write(self._write_to, data)

    def read(self) -> Any:
        """Return the next message."""
        while b"\n" not in self._unread:
            assert select.select([self._read_from], [], [], PATIENCE)[0], "the server says nothing"
            self._unread += os.read(self._read_from, 65536)
        line, _, self._unread = self._unread.partition(b"\n")
        return json.loads(line)


def http_request(url: str, verb: str, body: Any = None, session: str | None = None) -> http.client.HTTPResponse:
    """Send a request; return the response, with its body still to be read."""
    parts = urlsplit(url)
    headers = {
        "Accept": "application/json, text/event-stream",
        "Content-Type": "application/json",
        "Connection": "close",
    }
    headers |= {"Mcp-Session-Id": session} if session else {}
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=PATIENCE)
    connection.request(verb, parts.path, body if isinstance(body, bytes | None) else json.dumps(body), headers)
    return connection.getresponse()


def post(
    url: str, method: str, number: int | None = None, params: Any = None, session: str | None = None
) -> tuple[int, dict[str, str], bytes]:
    """POST a message; return the status, the headers and the body."""
    message: dict[str, Any] = {"jsonrpc": "2.0", "method": method}
    message |= {"id": number} if number is not None else {}
    message |= {"params": params} if params is not None else {}
    with http_request(url, "POST", message, session) as response:
        headers = {name.lower(): value for name, value in response.getheaders()}
        return response.status, headers, response.read()


class SseStream:
    """The GET stream of a session."""

    def __init__(self, url: str, session: str) -> None:
        self.response = http_request(url, "GET", session=session)
        assert self.response.status == 200
        assert (self.response.getheader("Content-Type") or "").startswith("text/event-stream")

    def line(self) -> bytes:
        """Return the next line."""
        return self.response.readline().rstrip(b"\r\n")

    def message(self) -> Any:
        """Return the next message."""
        while True:
            line = self.line()
            if line.startswith(b"data: ") and line != b"data: ":
                return json.loads(line[6:])

    def close(self) -> None:
        self.response.close()
