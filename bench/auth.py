"""What it costs to verify a caller: CPU time per call of `run("http")`, as ratios to a server without auth=.

    python bench/auth.py [ROUNDS] [CALLS]

Each row is a server in a process of its own, with 16 connections, in interleaved rounds. The token is the same in each call: a
JWT, one of 1,000 API keys, and an opaque token of an authorization server that answers `no-cache`, as Keycloak does, with
`Introspection(remember=30)`.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import socket
import sys
import threading
import time
from collections.abc import Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from joserfc import jwt
from joserfc.jwk import ECKey
from runs import META, Process, Row

from linkspan import Grant, Protected, Server
from linkspan.auth import ApiKeys, Introspection, Jwt

ISSUER = "https://login.example.com"
CONNECTIONS = 16
PARAMS = {"name": "add", "arguments": {"a": 1, "b": 2}, "_meta": META}
BODY = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": PARAMS}).encode()
HEAD = """POST /mcp HTTP/1.1\r
host: 127.0.0.1:{port}\r
content-type: application/json\r
accept: application/json, text/event-stream\r
mcp-protocol-version: 2026-07-28\r
mcp-method: tools/call\r
mcp-name: add\r
content-length: {length}\r
authorization: Bearer {token}\r
\r
"""


class AuthorizationServer(BaseHTTPRequestHandler):
    """Knows one token, and wants to be asked each time."""

    resources: Sequence[str] = ()

    def log_message(self, format: str, *args: Any) -> None:
        """Be silent."""

    def answer(self) -> None:
        """Answer with the metadata, or about the token."""
        base = f"http://127.0.0.1:{self.server.server_address[1]}"
        metadata = {"issuer": base, "introspection_endpoint": f"{base}/introspect"}
        about = {"active": True, "sub": "ann", "aud": [*self.resources], "exp": int(time.time()) + 3600}
        self.rfile.read(int(self.headers.get("content-length", 0)))
        body = json.dumps(about if self.command == "POST" else metadata).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("cache-control", "no-cache")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_POST = answer


def serve(kind: str, port: int, jwk: str, issuer: str) -> None:
    """Serve one row."""
    keys = {hashlib.sha256(str(each).encode()).hexdigest(): Grant(ISSUER, subject=str(each)) for each in range(1000)}
    ways = {
        "JWT": lambda: Jwt(ISSUER, keys=json.loads(jwk)),
        "API key": lambda: ApiKeys(keys),
        "introspection": lambda: Introspection(issuer, "bench", "secret", remember=30),
    }
    auth = Protected(resource(port), verify=ways[kind]()) if kind in ways else None
    server = Server("bench", auth=auth)

    @server.tool(inline=True)
    def add(a: int, b: int) -> int:
        return a + b

    server.run("http", port=port)


def resource(port: int) -> str:
    """Return the URL of a row."""
    return f"http://127.0.0.1:{port}/mcp"


async def call(port: int, token: str, calls: int) -> None:
    """Make as many calls, over the connections."""
    sent = HEAD.format(port=port, length=len(BODY), token=token).encode() + BODY

    async def over_one() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for _ in range(calls // CONNECTIONS):
            writer.write(sent)
            head = await reader.readuntil(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 200"), head
            await reader.readexactly(int(head.lower().partition(b"content-length:")[2].split()[0]))
        writer.close()

    await asyncio.gather(*(over_one() for _ in range(CONNECTIONS)))


def main(rounds: int, calls: int) -> None:
    """Measure all rows in turn, and print the medians."""
    asked = ThreadingHTTPServer(("127.0.0.1", 0), AuthorizationServer)
    threading.Thread(target=asked.serve_forever, daemon=True).start()
    key, issuer = ECKey.generate_key("P-256"), f"http://127.0.0.1:{asked.server_address[1]}"
    ports = [_free_port() for _ in range(4)]
    AuthorizationServer.resources = [resource(each) for each in ports]
    claims = {"iss": ISSUER, "aud": [*AuthorizationServer.resources], "sub": "ann", "exp": int(time.time()) + 3600}
    token = jwt.encode({"alg": "ES256", "typ": "at+jwt"}, claims, key)
    tokens = {"without auth": "none", "JWT": token, "API key": "500", "introspection": "opaque"}
    jwk, rows = json.dumps(key.as_dict(private=False)), {}
    for (kind, sent), port in zip(tokens.items(), ports, strict=True):
        command = [sys.executable, __file__, "--serve", kind, str(port), jwk, issuer]
        rows[kind] = Row(kind, command), Process(Row(kind, command), command), port, sent
        _wait(port)
    for number in range(rounds + 1):
        for row, process, port, sent in rows.values() if number % 2 else reversed(rows.values()):
            before = process.cpu()
            asyncio.run(call(port, sent, calls))
            if number:
                row.note("cpu", (process.cpu() - before) / calls * 1e6)
    plain = rows["without auth"][0]
    for row, process, _, _ in rows.values():
        middle, low, high = row.ratio(plain, "cpu") or (0.0, 0.0, 0.0)
        print(f"{row.name:16}{row.median('cpu'):8.1f} us {middle:8.2f} ({low:.2f}-{high:.2f})")
        process.close()
    asked.shutdown()


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        found: int = listener.getsockname()[1]
    return found


def _wait(port: int) -> None:
    for _ in range(300):
        try:
            socket.create_connection(("127.0.0.1", port)).close()
        except OSError:
            time.sleep(0.1)
        else:
            return
    sys.exit("a server does not start")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--serve"]:
        serve(sys.argv[2], int(sys.argv[3]), *sys.argv[4:])
    else:
        main(*(int(each) for each in (*sys.argv[1:], *("15", "1600")[len(sys.argv) - 1 :])))
