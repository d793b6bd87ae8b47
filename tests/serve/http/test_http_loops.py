"""One ASGI callable on two event loops at the same time: neither disturbs what waits on the other. H5-7."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Awaitable, Callable
from typing import Any

from http_talk import body, mirror

from linkspan import Server
from linkspan.serve.asgi import AsgiApp

Message = dict[str, Any]


def ask(app: AsgiApp, tool: str, receive: Callable[[], Awaitable[Message]], sent: list[Message]) -> Awaitable[None]:
    """Send a modern call, whose client is heard with `receive`."""
    request = body("tools/call", {"name": tool, "arguments": {}})
    headers = {**mirror(request), "content-type": "application/json", "host": "localhost"}
    scope = {
        "type": "http",
        "method": "POST",
        "path": "/",
        "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
    }

    async def send(message: Any) -> None:
        sent.append(message)

    return app(scope, receive, send)


def ask_on_another_loop(app: AsgiApp) -> int:
    """Ask on a loop of its own; return the status."""
    request = json.dumps(body("tools/call", {"name": "quick", "arguments": {}})).encode()
    sent: list[Message] = []

    async def receive() -> Message:
        return {"type": "http.request", "body": request}

    async def run() -> None:
        await ask(app, "quick", receive, sent)

    thread = threading.Thread(target=lambda: asyncio.run(run()))
    thread.start()
    thread.join()
    status: int = sent[0]["status"]
    return status


def an_app() -> tuple[AsgiApp, list[str]]:
    server, seen = Server("desk"), list[str]()

    @server.tool
    async def hold() -> str:
        try:
            await asyncio.sleep(5)
        except asyncio.CancelledError:
            seen.append("cancelled")
            raise
        return "held"

    @server.tool
    async def quick() -> str:
        return "done"

    return server.asgi(), seen


def test_who_goes_away_is_seen_though_another_loop_serves_too() -> None:
    app, seen = an_app()
    request = json.dumps(body("tools/call", {"name": "hold", "arguments": {}})).encode()

    async def run() -> None:
        first = [request]

        async def receive() -> Message:
            if first:
                return {"type": "http.request", "body": first.pop()}
            return {"type": "http.disconnect"}

        asking = asyncio.ensure_future(ask(app, "hold", receive, []))
        await asyncio.sleep(0)  # it is being served, and looked at in a moment
        assert ask_on_another_loop(app) == 200
        await asking

    asyncio.run(run())
    assert seen == ["cancelled"]


def test_a_server_that_cancels_a_request_is_obeyed_though_another_loop_serves_too() -> None:
    app, _ = an_app()
    sent: list[Message] = []

    async def run() -> bool:
        async def receive() -> Message:
            await asyncio.sleep(60)
            return {"type": "http.disconnect"}

        asking = asyncio.ensure_future(ask(app, "hold", receive, sent))
        await asyncio.sleep(0)
        assert ask_on_another_loop(app) == 200
        asking.cancel()
        await asyncio.wait([asking])
        return asking.cancelled()

    assert asyncio.run(run())
    assert sent == []
