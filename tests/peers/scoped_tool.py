"""What people put in front of a server whose SDK has no scopes for a single tool: one of its tools needs one more."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any

__all__ = ["NEEDED", "SCOPES", "ScopedTool"]

SCOPES = ["mcp:read", "mcp:write"]
"""What the authorization servers of these tests know; servers need the first for everything."""
NEEDED = {"write": "mcp:write"}
"""The tools that need more, with what they need."""

ReadScopes = Callable[[str], Awaitable[list[str] | None]]
"""Returns the scopes of a token; None if it is not valid."""


class ScopedTool:
    """An ASGI app, which answers 403 with a challenge to a call of a tool for which the token has too few scopes."""

    def __init__(self, app: Any, metadata_url: str, read_scopes: ReadScopes) -> None:
        self._app = app
        self._metadata_url = metadata_url
        self._read_scopes = read_scopes

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http" or (scope["method"], scope["path"]) != ("POST", "/mcp"):
            await self._app(scope, receive, send)
            return
        body, more = b"", True
        while more:
            event = await receive()
            body += event.get("body", b"")
            more = event.get("more_body", False)
        needed = NEEDED.get((json.loads(body).get("params") or {}).get("name"))
        held = await self._read_scopes(_bearer(scope))
        if needed is not None and held is not None and needed not in held:
            await self._refuse(needed, send)
            return
        events = [{"type": "http.request", "body": body}]

        async def replay() -> Any:
            return events.pop() if events else await receive()

        await self._app(scope, replay, send)

    async def _refuse(self, needed: str, send: Any) -> None:
        challenge = f'Bearer error="insufficient_scope", scope="{needed}", resource_metadata="{self._metadata_url}"'
        headers = [(b"www-authenticate", challenge.encode())]
        await send({"type": "http.response.start", "status": 403, "headers": headers})
        await send({"type": "http.response.body", "body": b""})


def _bearer(scope: Any) -> str:
    value: bytes = dict(scope["headers"]).get(b"authorization", b"")
    return value.decode().removeprefix("Bearer ")
