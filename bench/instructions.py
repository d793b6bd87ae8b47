"""Compare what a call costs with another state of this repository, in instructions, which no load of the machine changes.

    python bench/instructions.py REVISION [ROW...]

Each row runs under valgrind with few calls and with many, in the sources of REVISION and in those of this checkout, by turns;
the difference is what the calls cost. It needs valgrind, and the extra `http` in the interpreter that runs it.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Annotated, Any

HERE = Path(__file__).resolve()
ROOT = HERE.parent.parent
FEW, MANY = 100, 600
PREFIX = "io.modelcontextprotocol"
META = {
    f"{PREFIX}/protocolVersion": "2026-07-28",
    f"{PREFIX}/clientInfo": {"name": "bench", "version": "1"},
    f"{PREFIX}/clientCapabilities": {},
}
HEADERS = {
    "host": "localhost",
    "content-type": "application/json",
    "accept": "application/json, text/event-stream",
}
MODERN = {"mcp-protocol-version": "2026-07-28", "mcp-method": "tools/call", "mcp-name": "add"}


def message(method: str, number: int | None = 1, **params: Any) -> bytes:
    """Return a message as a line without its end."""
    whole = {"jsonrpc": "2.0", "method": method, "params": params}
    return json.dumps(whole if number is None else {**whole, "id": number}).encode()


CALL_PARAMS: dict[str, Any] = {"name": "add", "arguments": {"a": 1, "b": 2}, "_meta": META}
CALL = message("tools/call", **CALL_PARAMS)
SESSION_CALL = message("tools/call", name="add", arguments={"a": 1, "b": 2})
GREETING = message(
    "initialize", protocolVersion="2025-06-18", capabilities={}, clientInfo={"name": "bench", "version": "1"}
)


def calls_in_lines(count: int) -> bytes:
    """Return so many calls, each with an id of its own: one that repeats another's is refused while that runs."""
    return b"".join(message("tools/call", 1000 + each, **CALL_PARAMS) + b"\n" for each in range(count))


def make_server() -> Any:
    """Return the server whose tool is called."""
    from linkspan import Server

    server = Server("bench")

    @server.tool(inline=True)
    def add(a: int, b: int) -> int:
        return a + b

    return server


# The rows: what runs under valgrind, so many times.


def handle_json(count: int, _: str) -> None:
    server = make_server()
    for _each in range(count):
        assert '"result"' in server.handle_json(CALL)


def stdio(count: int, _: str) -> None:
    make_server().run("stdio")


def middleware(count: int, _: str, *, layers: int = 1) -> None:
    """The same inside a middleware that passes each call on."""
    server = make_server()
    for _each in range(layers):

        @server.middleware(only=["tools/call"])
        def look(call: Any) -> Generator[None, Any, Any]:
            return (yield)

    server.run("stdio")


def two_middlewares(count: int, place: str) -> None:
    middleware(count, place, layers=2)


def dependency(count: int, _: str) -> None:
    """The same with a dependency that is a plain function."""
    from linkspan import Depends, Server

    server = Server("bench")

    def one() -> int:
        return 1

    @server.tool(inline=True)
    def add(a: int, b: int, c: Annotated[int, Depends(one)]) -> int:
        return a + b

    server.run("stdio")


def start(count: int, _: str) -> None:
    """The same: what is counted is a process with one call."""
    make_server().run("stdio")


def asgi(count: int, _: str) -> None:
    app, headers = make_server().asgi(), [(k.encode(), v.encode()) for k, v in (HEADERS | MODERN).items()]
    scope = {"type": "http", "method": "POST", "path": "/", "headers": headers}
    scope |= {"server": ("127.0.0.1", 80), "client": ("127.0.0.1", 5)}
    sent: list[Any] = []

    async def receive() -> Any:
        return {"type": "http.request", "body": CALL, "more_body": False}

    async def send(part: Any) -> None:
        sent.append(part)

    async def main() -> None:
        for _each in range(count):
            await app(scope, receive, send)
            assert b'"result"' in sent[-1]["body"]
            sent.clear()

    asyncio.run(main())


class Wire(asyncio.Transport):
    """What is below a connection of `run("http")`: keeps what was written."""

    written = b""

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return {"peername": ("127.0.0.1", 5), "sockname": ("127.0.0.1", 80)}.get(name, default)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written += data

    def close(self) -> None:
        pass


def http(count: int, _: str, *, session: bool = False) -> None:
    import uvicorn
    from uvicorn.server import ServerState

    from linkspan.core.http_checks import HttpPolicy
    from linkspan.serve.http import make_endpoint
    from linkspan.serve.http_protocol import DirectApp, EndpointProtocol

    async def main() -> None:
        app = DirectApp(make_endpoint(make_server(), HttpPolicy()))
        config = uvicorn.Config(lambda: None, ws="none", log_config=None, access_log=False)
        config.load()
        protocol, wire = EndpointProtocol(app, config, ServerState(), {}, asyncio.get_running_loop()), Wire()
        protocol.connection_made(wire)

        def post(request: bytes) -> bytes:
            wire.written = b""
            protocol.data_received(request)
            return wire.written

        if session:
            opened = post(as_post(GREETING, {})).decode().split("\r\n")
            name = next(line.partition(": ")[2] for line in opened if line.lower().startswith("mcp-session-id"))
            own = {"mcp-session-id": name, "mcp-protocol-version": "2025-06-18"}
            post(as_post(message("notifications/initialized", None), own))
            request = as_post(SESSION_CALL, own)
        else:
            request = as_post(CALL, MODERN)
        for _each in range(count):
            assert b'"result"' in post(request)
        protocol.connection_lost(None)

    asyncio.run(main())


def as_post(body: bytes, own: dict[str, str]) -> bytes:
    """Return a POST as clients send it."""
    lines = [f"{name}: {value}\r\n" for name, value in (HEADERS | own | {"content-length": str(len(body))}).items()]
    return f"POST /mcp HTTP/1.1\r\n{''.join(lines)}\r\n".encode() + body


def http_session(count: int, place: str) -> None:
    http(count, place, session=True)


def client(count: int, place: str) -> None:
    """A client of `place`: a URL, or a file that is a server over stdio; what serves is not counted."""
    from linkspan import SyncClient

    with SyncClient(place if place.startswith("http") else [sys.executable, place]) as found:
        for _each in range(count):
            found.call_tool("add" if place.startswith("http") else "add_inline", {"a": 1, "b": 2})


def client_http(count: int, place: str) -> None:
    client(count, place)


ROWS: dict[str, Callable[..., None]] = {
    each.__name__: each
    for each in (
        handle_json,
        stdio,
        dependency,
        middleware,
        two_middlewares,
        asgi,
        http,
        http_session,
        client,
        client_http,
        start,
    )
}

OVER_STDIO = ("stdio", "dependency", "middleware", "two_middlewares", "start")
"""The rows whose calls come by stdin."""


# Counting.


def instructions(sources: Path, row: str, calls: int, place: str) -> int:
    """Return the instructions of a process that makes so many calls."""
    command = [sys.executable, str(HERE), "--run", row, str(calls), place]
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report")
        tool = ["valgrind", "--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null"]
        with subprocess.Popen(
            [*tool, f"--log-file={report}", *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": str(sources), "PYTHONHASHSEED": "0"},
        ) as process:
            if row in OVER_STDIO:
                answer_all(process, calls)
            _, said = process.communicate()
        if process.returncode != 0:
            raise SystemExit(f"{row} failed in {sources}: {said.decode()[-2000:]}")
        line = next(each for each in report.read_text().splitlines() if "refs:" in each)
    return int(line.rpartition(":")[2].strip().replace(",", ""))


def answer_all(process: subprocess.Popen[bytes], calls: int) -> None:
    """Send so many calls, and read as many results: a server whose input ends waits only a second for what it runs."""
    stdin, stdout = process.stdin, process.stdout
    assert stdin is not None
    assert stdout is not None

    def send() -> None:
        stdin.write(calls_in_lines(calls))
        stdin.flush()

    threading.Thread(target=send, daemon=True).start()
    for _each in range(calls):
        if b'"result"' not in stdout.readline():
            raise SystemExit("a call failed")


def cost(sources: Path, row: str, place: str) -> int:
    """Return the instructions of one call; of a start, those of a process with one call."""
    if row == "start":
        return instructions(sources, row, 1, place)
    few, many = (instructions(sources, row, calls, place) for calls in (FEW, MANY))
    return (many - few) // (MANY - FEW)


def answer_requests(listener: socket.socket) -> None:
    """Answer calls over HTTP, in threads of this process, which nobody counts."""
    server = make_server()

    def serve(connection: socket.socket) -> None:
        with connection, connection.makefile("rb") as stream:
            while head := list(iter(stream.readline, b"\r\n")):
                if not head[-1]:
                    return
                size = next(int(each.split(b":")[1]) for each in head if each.lower().startswith(b"content-length"))
                body = (server.handle_json(stream.read(size)) or "").encode()
                begin = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
                connection.sendall(begin % len(body) + body)

    while True:
        try:
            connection = listener.accept()[0]
        except OSError:
            return
        threading.Thread(target=serve, args=(connection,), daemon=True).start()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("revision")
    parser.add_argument("rows", nargs="*", metavar="ROW", help=f"of {', '.join(ROWS)}; all of them if none is named")
    options = parser.parse_args()
    if unknown := set(options.rows) - set(ROWS):
        parser.error(f"there is no row {', '.join(sorted(unknown))}")
    with tempfile.TemporaryDirectory() as folder, socket.create_server(("127.0.0.1", 0)) as listener:
        before, now = Path(folder, "before"), Path(folder, "now")
        git = ["git", "archive", "--prefix=before/", options.revision, "src"]
        archive = subprocess.run(git, cwd=ROOT, check=True, capture_output=True).stdout
        subprocess.run(["tar", "-x", "-C", folder], input=archive, check=True)
        shutil.copytree(ROOT / "src", now / "src")  # one may go on working meanwhile
        subprocess.run([sys.executable, "-m", "compileall", "-q", folder], check=True)
        threading.Thread(target=answer_requests, args=(listener,), daemon=True).start()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/mcp"
        for row in options.rows or ROWS:
            place = url if row == "client_http" else str(ROOT / "bench" / "servers" / "ours.py")
            old, new = (cost(sources / "src", row, place) for sources in (before, now))
            print(f"{row:14} {old:>13,} {new:>13,} {new / old:7.3f}", flush=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--run"]:
        ROWS[sys.argv[2]](int(sys.argv[3]), sys.argv[4])
    else:
        main()
