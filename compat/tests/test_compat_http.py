"""HTTP applications of the SDKs' servers: protected as they were written, or not started."""

import asyncio
import json

import pytest
from compat_kit import served

from linkspan_compat.errors import NotServed


def ask(app, path="/mcp", *, host="127.0.0.1:8000", method="POST", token=None, body=None):
    """Send one request to an ASGI application; return the status and the body."""
    sent = []
    headers = [
        (b"host", host.encode()),
        (b"content-type", b"application/json"),
        (b"accept", b"application/json, text/event-stream"),
    ]
    if token is not None:
        headers.append((b"authorization", f"Bearer {token}".encode()))
    body = body or {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
    messages = [
        {"type": "http.request", "body": json.dumps(body).encode() if method == "POST" else b"", "more_body": False}
    ]

    async def receive():
        return messages.pop(0) if messages else await asyncio.Event().wait()

    async def send(message):
        sent.append(message)

    scope = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": method, "path": path, "root_path": "",
        "scheme": "http", "query_string": b"", "headers": headers, "client": ("127.0.0.1", 5), "server": ("127.0.0.1", 8000),
    }  # fmt: skip

    async def run():
        async with app.lifespan(app):
            await app(scope, receive, send)

    asyncio.run(run())
    return sent[0]["status"], b"".join(each.get("body", b"") for each in sent[1:])


def test_host_checks_and_routes_of_mcp_1(mcp1):
    from mcp.server.fastmcp import FastMCP
    from mcp.server.transport_security import TransportSecuritySettings
    from starlette.responses import PlainTextResponse

    server = FastMCP("x", stateless_http=True, host="0.0.0.0")

    @server.tool()
    def add(a: int) -> int:
        return a

    @server.custom_route("/health", ["GET"])
    async def health(request):
        return PlainTextResponse("fine")

    app = server.streamable_http_app()
    status, body = ask(app)
    assert status == 200
    assert b'"add"' in body
    assert ask(server.streamable_http_app(), "/health", method="GET") == (200, b"fine")
    server.settings.transport_security = TransportSecuritySettings(allowed_hosts=["good.example:*"])
    assert ask(server.streamable_http_app(), host="good.example:8000")[0] == 200
    assert ask(server.streamable_http_app(), host="evil.example")[0] == 421


def test_a_verifier_of_mcp_protects(mcp1):
    from mcp.server.auth.middleware.auth_context import get_access_token
    from mcp.server.auth.provider import AccessToken
    from mcp.server.auth.settings import AuthSettings
    from mcp.server.fastmcp import FastMCP

    class Verifier:
        async def verify_token(self, token):
            return AccessToken(token=token, client_id="ann", scopes=["a"]) if token == "good" else None

    settings = AuthSettings(
        issuer_url="https://login.example.com", resource_server_url="https://api.example.com/mcp", required_scopes=["a"]
    )
    server = FastMCP("x", token_verifier=Verifier(), auth=settings, stateless_http=True, host="0.0.0.0")

    @server.tool()
    def who() -> str:
        return get_access_token().client_id

    assert ask(server.streamable_http_app())[0] == 401
    assert ask(server.streamable_http_app(), token="bad")[0] == 401
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "who", "arguments": {}}}
    status, body = ask(server.streamable_http_app(), token="good", body=call)
    assert (status, b'"ann"' in body) == (200, True)


@pytest.mark.parametrize(("token", "status"), [(None, 401), ("bad", 401), ("narrow", 403), ("good", 421)])
def test_the_token_is_looked_at_before_the_host(mcp1, token, status):
    from mcp.server.auth.provider import AccessToken
    from mcp.server.auth.settings import AuthSettings
    from mcp.server.fastmcp import FastMCP

    class Verifier:
        async def verify_token(self, token):
            scopes = {"good": ["a"], "narrow": ["b"]}.get(token)
            return None if scopes is None else AccessToken(token=token, client_id="ann", scopes=scopes)

    settings = AuthSettings(
        issuer_url="https://login.example.com", resource_server_url="https://api.example.com/mcp", required_scopes=["a"]
    )
    server = FastMCP("x", token_verifier=Verifier(), auth=settings, stateless_http=True)
    app = server.streamable_http_app()
    found, body = ask(app, host="evil.example", token=token)
    assert (found, bool(body)) == (status, True)
    expected = {"good": 200, "narrow": 403}.get(token, 401)
    assert ask(server.streamable_http_app(), token=token)[0] == expected


def test_what_issues_tokens_does_not_start_over_http(mcp1):
    from mcp.server.auth.settings import AuthSettings
    from mcp.server.fastmcp import FastMCP

    server = FastMCP("x", auth_server_provider=object(), auth=AuthSettings(issuer_url="https://a.example"))
    for build in (server.streamable_http_app, server.sse_app):
        with pytest.raises(NotServed, match=r"issues tokens.*write: Protected\(url, issuer="):
            build()
    with pytest.raises(ValueError, match="without auth settings"):
        FastMCP("x", token_verifier=object())


@pytest.mark.parametrize("flavour", ["fastmcp3", "fastmcp4"])
def test_logins_of_fastmcp(flavour):
    with served(flavour):
        from fastmcp import FastMCP
        from fastmcp.server.auth import OAuthProxy
        from fastmcp.server.auth.providers.github import GitHubProvider
        from fastmcp.server.auth.providers.jwt import StaticTokenVerifier

        tokens = {"good": {"client_id": "ann", "scopes": ["a"]}}
        server = FastMCP("x", auth=StaticTokenVerifier(tokens, required_scopes=["a"]))
        server.auth.base_url = "https://api.example.com"
        assert ask(server.http_app(stateless_http=True))[0] == 401
        assert ask(server.http_app(stateless_http=True), token="bad")[0] == 401
        assert ask(server.http_app(stateless_http=True), token="good")[0] == 200
        for refused in (OAuthProxy, GitHubProvider):
            with pytest.raises(NotServed, match=rf"{refused.__name__} is not served .*write: Protected"):
                FastMCP("x", auth=refused(client_id="a")).http_app()
        with pytest.raises(TypeError, match="auth= takes a verifier"):
            FastMCP("x", auth=object())


def test_routes_may_be_appended_to_an_application(mcp1):
    from mcp.server.fastmcp import FastMCP
    from starlette.responses import PlainTextResponse
    from starlette.routing import Route

    server = FastMCP("x", stateless_http=True, host="0.0.0.0")

    @server.custom_route("/health", ["GET"])
    async def health(request):
        return PlainTextResponse("fine")

    app = server.streamable_http_app()
    assert [each.path for each in app.routes] == ["/mcp", "/health"]
    app.router.routes.append(Route("/more", health))
    app.add_route("/most", health)
    assert [ask(app, path, method="GET")[1] for path in ("/health", "/more", "/most")] == [b"fine"] * 3
    assert ask(app)[0] == 200
