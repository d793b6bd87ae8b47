"""Servers of other SDKs with an authorization server of their own: `python login_server.py PORT '{"kind": ...}'`."""

from __future__ import annotations

import json
import sys
from typing import Any

import uvicorn
from fastmcp import FastMCP
from fastmcp.server.auth.providers.in_memory import InMemoryOAuthProvider
from mcp.server.auth.settings import AuthSettings, ClientRegistrationOptions, RevocationOptions
from mcp.server.mcpserver import MCPServer
from scoped_tool import SCOPES, ScopedTool

FIRST = SCOPES[:1]


def shout(text: str) -> str:
    return text.upper()


def write(text: str) -> str:
    return text


def official(base: str, default_scopes: list[str] | None) -> tuple[Any, InMemoryOAuthProvider]:
    """A server of the official SDK, whose authorization server lets a client ask for what its registration named."""
    registration = ClientRegistrationOptions(enabled=True, valid_scopes=SCOPES, default_scopes=default_scopes)
    settings = AuthSettings(
        issuer_url=base,  # type: ignore[arg-type]
        resource_server_url=f"{base}/mcp",  # type: ignore[arg-type]
        client_registration_options=registration,
        revocation_options=RevocationOptions(enabled=True),
        required_scopes=FIRST,
    )
    provider = InMemoryOAuthProvider(base_url=base)
    server = MCPServer("site", auth=settings, auth_server_provider=provider)
    server.add_tool(shout)
    server.add_tool(write)
    return server.streamable_http_app(), provider


def fastmcp(base: str) -> tuple[Any, InMemoryOAuthProvider]:
    """A server of FastMCP with its authorization server in memory."""
    provider = InMemoryOAuthProvider(
        base_url=base,
        client_registration_options=ClientRegistrationOptions(enabled=True, valid_scopes=SCOPES),
        revocation_options=RevocationOptions(enabled=True),
        required_scopes=FIRST,
    )
    server = FastMCP("site", auth=provider)
    server.tool(shout)
    server.tool(write)
    return server.http_app(), provider


def main(port: int, kind: str) -> None:
    """Serve one of them."""
    base = f"http://127.0.0.1:{port}"
    match kind:
        case "official":
            app, provider = official(base, None)
        case "official with default scopes":
            app, provider = official(base, FIRST)
        case _:
            app, provider = fastmcp(base)

    async def scopes_of(token: str) -> list[str] | None:
        found = await provider.verify_token(token)
        return found.scopes if found is not None else None

    scoped = ScopedTool(app, f"{base}/.well-known/oauth-protected-resource/mcp", scopes_of)
    uvicorn.run(scoped, port=port, log_level="critical")


if __name__ == "__main__":
    main(int(sys.argv[1]), **json.loads(sys.argv[2]))
