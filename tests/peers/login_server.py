"""Servers of other SDKs with an authorization server of their own: `python login_server.py KIND PORT`."""

from __future__ import annotations

import sys

from fastmcp import FastMCP
from fastmcp.server.auth.providers.in_memory import InMemoryOAuthProvider
from mcp.server.auth.settings import AuthSettings, ClientRegistrationOptions, RevocationOptions
from mcp.server.mcpserver import MCPServer

SCOPES = ["user"]


def official(base: str, default_scopes: list[str] | None) -> MCPServer:
    """A server of the official SDK, whose authorization server lets a client ask for what its registration named."""
    registration = ClientRegistrationOptions(enabled=True, valid_scopes=SCOPES, default_scopes=default_scopes)
    settings = AuthSettings(
        issuer_url=base,  # type: ignore[arg-type]
        resource_server_url=f"{base}/mcp",  # type: ignore[arg-type]
        client_registration_options=registration,
        revocation_options=RevocationOptions(enabled=True),
        required_scopes=SCOPES,
    )
    return MCPServer("site", auth=settings, auth_server_provider=InMemoryOAuthProvider(base_url=base))


def fastmcp(base: str) -> FastMCP:
    """A server of FastMCP with its authorization server in memory."""
    registration = ClientRegistrationOptions(enabled=True, valid_scopes=SCOPES)
    revocation = RevocationOptions(enabled=True)
    auth = InMemoryOAuthProvider(
        base_url=base,
        client_registration_options=registration,
        revocation_options=revocation,
        required_scopes=SCOPES,
    )
    return FastMCP("site", auth=auth)


def main(kind: str, port: int) -> None:
    """Serve one of them."""
    base = f"http://127.0.0.1:{port}"
    server: MCPServer | FastMCP
    match kind:
        case "official":
            server = official(base, None)
        case "official with default scopes":
            server = official(base, SCOPES)
        case _:
            server = fastmcp(base)

    def shout(text: str) -> str:
        return text.upper()

    if isinstance(server, MCPServer):
        server.add_tool(shout)
        server.run("streamable-http", host="127.0.0.1", port=port)
    else:
        server.tool(shout)
        server.run("http", host="127.0.0.1", port=port, show_banner=False)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
