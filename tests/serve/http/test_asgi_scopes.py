"""What the ASGI callable understands of a scope, and for how long it lets the server below it send."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from http_talk import BOTH, body, mirror

from linkspan import Context, Server

Send = Callable[[Any], Awaitable[None]]


def served() -> Server:
    server = Server("scopes")

    @server.tool(inline=True)
    def told(ctx: Context) -> str:
        ctx.progress(1)
        return "done"

    return server


async def ask(app: Any, request: Any, send: Send, *, path: str = "/", host: str = "localhost") -> None:
    """Send one request, and wait for the end of its response."""
    headers = {**mirror(request), "host": host, "accept": BOTH, "content-type": "application/json"}
    encoded = [(name.encode(), value.encode()) for name, value in headers.items()]
    parts = [json.dumps(request).encode()]

    async def receive() -> Any:
        if parts:
            return {"type": "http.request", "body": parts.pop(), "more_body": False}
        return await asyncio.Future()

    scope = {"type": "http", "method": "POST", "path": path, "headers": encoded, "server": ("127.0.0.1", 80)}
    await asyncio.wait_for(app(scope, receive, send), 60)


@pytest.mark.parametrize(
    ("path", "host", "status"),
    [
        ("/", "localhost", 200),
        ("/", "evil.example", 421),
        ("http://localhost/", "evil.example", 200),
        ("http://evil.example/", "localhost", 421),
        ("http://localhost/other", "localhost", 404),
        ("http://localhost", "localhost", 404),
    ],
)
def test_a_target_may_be_a_whole_url_whose_authority_counts(path: str, host: str, status: int) -> None:
    """RFC 9112, section 3.2.2; some servers of ASGI take all of it for the path."""
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    app = served().asgi(path="/mcp" if status == 404 else None)
    asyncio.run(ask(app, body("tools/list"), send, path=path, host=host))
    assert sent[0]["status"] == status


def test_a_whole_answer_has_the_time_that_the_server_below_gives_it() -> None:
    sent: list[Any] = []

    async def send(message: Any) -> None:
        await asyncio.sleep(0.5)
        sent.append(message)

    request = body("tools/call", {"name": "told", "arguments": {}}, token="t")
    asyncio.run(ask(served().asgi(send_timeout=0.05), request, send))
    assert sent[0]["headers"][0] == (b"content-type", b"text/event-stream")
    assert b"done" in b"".join(each.get("body", b"") for each in sent)
    assert sent[-1]["more_body"] is False
