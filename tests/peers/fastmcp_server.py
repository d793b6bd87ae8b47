"""Servers of FastMCP whose logins come from an authorization server elsewhere: `python fastmcp_server.py PORT '{"issuer": ...}'`.

FastMCP 3 and 4 both run this file.
"""

from __future__ import annotations

import json
import sys

import uvicorn
from fastmcp import FastMCP
from fastmcp.server.auth import AuthProvider, OAuthProxy, RemoteAuthProvider
from fastmcp.server.auth.providers.jwt import JWTVerifier
from key_value.aio.stores.memory import MemoryStore
from pydantic import AnyHttpUrl
from scoped_tool import SCOPES, ScopedTool

FIRST = SCOPES[:1]


def verifying(base: str, issuer: str) -> AuthProvider:
    """It checks the tokens of `issuer` by themselves, and names the issuer to clients."""
    verifier = _verifier(base, issuer)
    return RemoteAuthProvider(verifier, authorization_servers=[AnyHttpUrl(issuer)], base_url=base)


def proxying(base: str, issuer: str, client_id: str, client_secret: str) -> AuthProvider:
    """It lets clients register with itself, and logs in at `issuer` as a client that is registered there by hand."""
    return OAuthProxy(
        upstream_authorization_endpoint=f"{issuer}/auth",
        upstream_token_endpoint=f"{issuer}/token",
        upstream_revocation_endpoint=f"{issuer}/token/revocation",
        upstream_client_id=client_id,
        upstream_client_secret=client_secret,
        token_verifier=_verifier(base, issuer),
        base_url=base,
        valid_scopes=[*SCOPES, "offline_access"],
        extra_authorize_params={"prompt": "consent"},
        client_storage=MemoryStore(),
    )


def _verifier(base: str, issuer: str) -> JWTVerifier:
    return JWTVerifier(jwks_uri=f"{issuer}/jwks", issuer=issuer, audience=f"{base}/mcp", required_scopes=FIRST)


def main(port: int, issuer: str, proxy: dict[str, str] | None = None) -> None:
    """Serve one; `proxy` are the credentials of a proxy at the issuer."""
    base = f"http://127.0.0.1:{port}"
    provider = verifying(base, issuer) if proxy is None else proxying(base, issuer, **proxy)
    server = FastMCP("site", auth=provider)

    @server.tool
    def shout(text: str) -> str:
        return text.upper()

    @server.tool
    def write(text: str) -> str:
        return text

    async def scopes_of(token: str) -> list[str] | None:
        found = await provider.verify_token(token)
        return found.scopes if found is not None else None

    metadata_url = f"{base}/.well-known/oauth-protected-resource/mcp"
    uvicorn.run(ScopedTool(server.http_app(), metadata_url, scopes_of), port=port, log_level="critical")


if __name__ == "__main__":
    main(int(sys.argv[1]), **json.loads(sys.argv[2]))
