"""An MCP server that wants a login, and its authorization server, on one port of this process: everything is approved at once."""

from __future__ import annotations

import json
import threading
from base64 import urlsafe_b64encode
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from hashlib import sha256
from http.client import HTTPConnection
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

from linkspan import Context, Server
from over_http import serving

__all__ = ["Site", "login_site", "visit"]

server = Server("site", secret_headers=[])


@server.tool
def who(ctx: Context) -> str:
    """Return the token that came with the call."""
    return ctx.headers.get("authorization", "")


@server.tool
async def write(text: str) -> str:
    """Do what needs a scope of its own."""
    return text


def visit(url: str) -> str | None:
    """Open a login page as a browser does whose user is logged in: return where it leads."""
    parts = urlsplit(url)
    with closing(HTTPConnection(parts.netloc, timeout=10)) as connection:
        connection.request("GET", f"{parts.path}?{parts.query}")
        with connection.getresponse() as response:
            return response.headers["location"]


class Site:
    """What it has given out and seen. `url` is that of the MCP server."""

    def __init__(self) -> None:
        self.url = self.base = ""
        self._app = server.asgi(path="/mcp")
        self._lock = threading.Lock()
        self.begin_anew()

    def begin_anew(self) -> None:
        """Forget everything, for the next test."""
        self.seen: Counter[str] = Counter()
        """Requests by path, those that were refused, and what was asked of the authorization server."""
        self.tokens: dict[str, set[str]] = {}
        """Valid tokens, with their scopes."""
        self.codes: dict[str, dict[str, str]] = {}
        self.refresh_tokens: dict[str, str] = {}
        self.expires_in = 3600
        self.metadata: dict[str, Any] = {}
        """Replaces members of the authorization server's metadata."""
        self.needs: dict[str, str] = {}
        """Tools that need a scope."""
        self.clients: dict[str, str | None] = {}
        """Clients that were registered by hand, with their secrets; while there are any, no other one gets a token."""
        self.asked: list[dict[str, str]] = []
        """What was asked of the login page."""
        self.answer = self._answer
        """Answers as the authorization server; a test may put another function in its place."""
        self._number = 0

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        body = b""
        while (event := await receive()).get("more_body"):
            body += event["body"]
        body += event.get("body", b"")
        self.seen[scope["path"]] += 1
        if scope["path"] == "/mcp":
            await self._mcp(scope, body, receive, send)
            return
        query = {name: each[0] for name, each in parse_qs(scope["query_string"].decode()).items()}
        status, headers, answer = self.answer(scope["path"], query, body)
        pairs = [
            (name.encode(), value.encode()) for name, value in {"content-type": "application/json", **headers}.items()
        ]
        await send({"type": "http.response.start", "status": status, "headers": pairs})
        await send({"type": "http.response.body", "body": json.dumps(answer).encode()})

    async def _mcp(self, scope: Any, body: bytes, receive: Any, send: Any) -> None:
        headers = dict(scope["headers"])
        scopes = self.tokens.get(headers.get(b"authorization", b"").decode().removeprefix("Bearer "))
        params = (json.loads(body).get("params") or {}) if body else {}
        needed = self.needs.get(params.get("name", ""))
        problem = "" if scopes is not None else "login"
        if scopes is not None and needed is not None and needed not in scopes:
            problem = f'error="insufficient_scope", scope="{needed}"'
        if problem:
            self.seen["refused"] += 1
            where = f'Bearer resource_metadata="{self.base}/.well-known/oauth-protected-resource/mcp"'
            challenge = where if problem == "login" else f"{where}, {problem}"
            status = 401 if problem == "login" else 403
            head = {"type": "http.response.start", "status": status}
            await send({**head, "headers": [(b"www-authenticate", challenge.encode())]})
            await send({"type": "http.response.body", "body": b"who?"})
            return

        async def replay() -> Any:
            nonlocal body
            if body is not None:
                event, body = {"type": "http.request", "body": body}, None  # type: ignore[assignment]
                return event
            return await receive()

        await self._app(scope, replay, send)

    def _answer(self, path: str, query: dict[str, str], body: bytes) -> tuple[int, dict[str, str], Any]:
        match path:
            case "/.well-known/oauth-protected-resource/mcp":
                return 200, {}, {"resource": self.url, "authorization_servers": [self.base]}
            case "/.well-known/oauth-authorization-server":
                return 200, {}, self._own_metadata() | self.metadata
            case "/register":
                return 201, {}, {**json.loads(body), "client_id": "registered"}
            case "/authorize":
                self.asked.append(query)
                code = f"code-{len(self.codes)}"
                self.codes[code] = query
                redirect = urlencode({"code": code, "state": query["state"], "iss": self.base})
                return 302, {"location": f"{query['redirect_uri']}?{redirect}"}, None
            case "/revoke":
                return 200, {}, None
            case "/token":
                return self._tokens({name: each[0] for name, each in parse_qs(body.decode()).items()})
            case _:
                return 404, {}, None

    def _own_metadata(self) -> dict[str, Any]:
        return {
            "issuer": self.base,
            **{f"{each}_endpoint": f"{self.base}/{path}" for each, path in _ENDPOINTS.items()},
            "response_types_supported": ["code"],
            "code_challenge_methods_supported": ["S256"],
            "token_endpoint_auth_methods_supported": ["none", "client_secret_basic"],
            "authorization_response_iss_parameter_supported": True,
        }

    def _tokens(self, form: dict[str, str]) -> tuple[int, dict[str, str], Any]:
        self.seen[form["grant_type"]] += 1
        if self.clients and self.clients.get(form["client_id"], "no secret fits") != form.get("client_secret"):
            return 401, {}, {"error": "invalid_client"}
        if form["grant_type"] == "authorization_code":
            asked = self.codes.pop(form["code"])
            digest = sha256(form["code_verifier"].encode()).digest()
            assert urlsafe_b64encode(digest).rstrip(b"=").decode() == asked["code_challenge"]
            scope = asked.get("scope", "")
        elif form["grant_type"] == "refresh_token":
            if form["refresh_token"] not in self.refresh_tokens:
                return 400, {}, {"error": "invalid_grant"}
            scope = self.refresh_tokens.pop(form["refresh_token"])
        else:
            scope = form.get("scope", "")
        with self._lock:
            self._number += 1
            token = f"the-secret-token-{self._number}"
        self.tokens[token] = set(scope.split())
        self.refresh_tokens[f"refresh-{token}"] = scope
        answer = {"access_token": token, "token_type": "Bearer", "expires_in": self.expires_in, "scope": scope}
        return 200, {}, answer | {"refresh_token": f"refresh-{token}"}


_ENDPOINTS = {"authorization": "authorize", "token": "token", "registration": "register", "revocation": "revoke"}


@contextmanager
def login_site() -> Iterator[Site]:
    """Serve one on a free port."""
    site = Site()
    with serving(site) as url:
        site.url, site.base = url, url.removesuffix("/mcp")
        yield site
