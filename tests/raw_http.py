"""An HTTP server that answers with whatever bytes it is told, in threads: each message by its method, `GET`, `DELETE`.

    with RawServer({"tools/call": [http(502, "Bad Gateway")]}) as server: SyncClient(server.url)

A plan maps `tools/call NAME`, a method of the protocol or of HTTP to steps; what it does not mention is answered as a good
server of `era` does. Steps are `http` answers and bytes, in which $ID stands for the id of the request; CUT, which closes the
connection; a number of seconds to wait; or a function of the connection, which ends when that raises OSError. A function in
place of the steps gets the `Request` and returns them. What follows the head of a stream, as `sse` begins one, is sent in chunks,
as servers do: a CUT there is not its end, which is END.
"""

from __future__ import annotations

import gzip
import json
import socket
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

__all__ = ["CUT", "END", "HI", "RawServer", "Request", "bomb", "endless", "event", "http", "message", "sse"]

CUT = object()
END = object()
"""Ends a stream in good order."""
HI = {"resultType": "complete", "content": [{"type": "text", "text": "hi"}]}
_MODERN = {"resultType": "complete", "supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}, "_meta": {}}
_LEGACY = {
    "protocolVersion": "2025-11-25",
    "capabilities": {"tools": {}},
    "serverInfo": {"name": "raw", "version": "1"},
}
_TOOLS = {
    "resultType": "complete",
    "tools": [
        {"name": each, "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": each == "again"}}
        for each in ("hi", "again")
    ],
}


@dataclass(frozen=True)
class http:
    """A whole answer; `length` is for lies about it."""

    status: int = 200
    body: str | bytes = b""
    kind: str | None = "application/json"
    headers: Sequence[str] = ()
    length: Any = None

    def encode(self, request_id: bytes) -> bytes:
        data = (self.body.encode() if isinstance(self.body, str) else self.body).replace(b"$ID", request_id)
        head = [f"HTTP/1.1 {self.status} X", f"Content-Length: {len(data) if self.length is None else self.length}"]
        if self.kind is not None:
            head.append(f"Content-Type: {self.kind}")
        return "\r\n".join([*head, *self.headers, "", ""]).encode() + data


def message(result: Any = None, *, id: Any = "$ID", **members: Any) -> str:
    """Return a response; with `error=` or `method=` something else."""
    if not members:
        members = {"result": HI if result is None else result}
    text = json.dumps({"jsonrpc": "2.0", "id": id, **members})
    return text.replace('"$ID"', "$ID")


def event(data: str | bytes, head: str = "") -> bytes:
    """Return one event of a stream."""
    return f"{head}data: ".encode() + (data.encode() if isinstance(data, str) else data) + b"\n\n"


def sse(*parts: str | bytes, headers: Sequence[str] = ()) -> list[Any]:
    """Return the head of a stream, and these parts of it as they are. An END or a CUT should follow, or it stays open."""
    return [_Head(headers), *(each.encode() if isinstance(each, str) else each for each in parts)]


@dataclass(frozen=True)
class _Head:
    """The head of a stream of events."""

    headers: Sequence[str]

    def encode(self) -> bytes:
        framing = ["HTTP/1.1 200 OK", "Content-Type: text/event-stream", "Transfer-Encoding: chunked"]
        return "\r\n".join([*framing, *self.headers, "", ""]).encode()


class _Chunks:
    """A connection on which a stream is sent."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection

    def sendall(self, data: bytes) -> None:
        self._connection.sendall(b"%x\r\n%b\r\n" % (len(data), data))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)


def endless(part: bytes) -> Callable[[socket.socket], None]:
    """Return a step that sends for ever."""

    def send(connection: socket.socket) -> None:
        while True:
            connection.sendall(part)

    return send


class Request:
    """What came."""

    def __init__(self, verb: str, path: str, headers: Mapping[str, str], body: bytes) -> None:
        self.verb, self.path, self.headers, self.body = verb, path, headers, body
        found = json.loads(body) if body else {}
        self.json: dict[str, Any] = found if isinstance(found, dict) else {}

    @property
    def keys(self) -> Iterator[str]:
        if self.verb != "POST":
            yield self.verb
            return
        method = self.json.get("method", "answer")
        if method == "tools/call":
            yield f"{method} {self.json['params']['name']}"
        yield method


class RawServer:
    """The server. `requests` are all that came, in order."""

    def __init__(
        self, plan: Mapping[str, Any] | None = None, *, era: str = "modern", session: str | None = None
    ) -> None:
        self.requests: list[Request] = []
        self._plan = dict(plan or {})
        extra = [f"Mcp-Session-Id: {session}"] if session else []
        self._usual: dict[str, Any] = {
            "server/discover": [http(200, message(_MODERN))],
            "initialize": [http(200, message(_LEGACY), headers=extra)],
            "tools/list": [http(200, message(_TOOLS))],
            "tools/call": [http(200, message())],
            "ping": [http(200, message({}))],
            "GET": [http(405)],
            "DELETE": [http(200)],
        }
        if era == "legacy":
            self._usual["server/discover"] = [http(400, "no session", "text/plain")]
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._connections: list[socket.socket] = []
        self.port = self._listener.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}/mcp"

    def __enter__(self) -> RawServer:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        for each in (self._listener, *self._connections):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def plan(self, **changes: Any) -> None:
        """Answer differently from now on; `_` stands for `/`."""
        self._plan.update({key.replace("_", "/"): value for key, value in changes.items()})

    def methods(self) -> list[str]:
        """Return what came, by method."""
        return [list(each.keys)[-1] for each in self.requests]

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                self._connections.append(connection)
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with suppress(OSError, ValueError), connection, connection.makefile("rb") as stream:
            while (request := _read(stream)) is not None:
                self.requests.append(request)
                request_id = json.dumps(request.json.get("id")).encode()
                to: Any = connection
                for step in self._steps(request):
                    if step is CUT:
                        return
                    if isinstance(step, http):
                        connection.sendall(step.encode(request_id))
                    elif isinstance(step, _Head):
                        connection.sendall(step.encode())
                        to = _Chunks(connection)
                    elif step is END:
                        to.sendall(b"")
                    elif isinstance(step, bytes):
                        to.sendall(step.replace(b"$ID", request_id))
                    elif isinstance(step, int | float):
                        threading.Event().wait(step)
                    else:
                        step(to)

    def _steps(self, request: Request) -> Sequence[Any]:
        for plan in (self._plan, self._usual):
            for key in request.keys:
                if key in plan:
                    steps = plan[key]
                    return steps(request) if callable(steps) else steps
        return [http(202, kind=None)]


def _read(stream: Any) -> Request | None:
    first = stream.readline().decode()
    if not first.strip():
        return None
    verb, path, _ = first.split()
    headers = {}
    while line := stream.readline().decode().strip():
        name, _, value = line.partition(":")
        headers[name.lower()] = value.strip()
    return Request(verb, path, headers, stream.read(int(headers.get("content-length", 0))))


def bomb(megabytes: int) -> bytes:
    """Return a small body that unpacks to a large one."""
    return gzip.compress(b" " * (megabytes << 20), 9)
