"""A world without a network for flows of authorization: what each effect is answered with, and a trace of them all.

URLs in the trace are short: `mcp` is the MCP server, `as` the authorization server.
"""

from __future__ import annotations

import json
from base64 import urlsafe_b64encode
from collections.abc import Callable, Generator
from hashlib import sha256
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

from linkspan.auth.authorizer import Attempt, Authorizer
from linkspan.auth.identities import Identity, OAuth
from linkspan.core.auth_flow import (
    AwaitRedirect,
    Http,
    HttpResult,
    HttpUnavailable,
    LoadLogin,
    Lock,
    LoginNote,
    OpenUrl,
    SaveLogin,
    ShowCode,
    Supply,
    Unlock,
)
from linkspan.core.flow import Sleep
from linkspan.flows.client_errors import ServerOrigin

__all__ = ["AS", "MCP", "PRM", "START", "AuthorizationServer", "World", "answer", "challenge"]

MCP, AS = "https://mcp.example", "https://as.example"
PRM = f"{MCP}/.well-known/oauth-protected-resource/mcp"
START = 1_000_000.0

Responder = Callable[[Http], HttpResult]


def answer(document: object, status: int = 200, **headers: str) -> HttpResult:
    """Return a JSON response."""
    return HttpResult(
        status, {name.replace("_", "-"): value for name, value in headers.items()}, json.dumps(document).encode()
    )


def challenge(status: int, value: str = f'Bearer resource_metadata="{PRM}"', **more: str) -> HttpResult:
    """Return a refusal with a WWW-Authenticate header."""
    headers = {name.replace("_", "-"): each for name, each in more.items()}
    return HttpResult(status, {"www-authenticate": value, **headers}, b"")


class World:
    """Everything outside a flow."""

    def __init__(self) -> None:
        self.now = START
        self.trace: list[str] = []
        self.notes: list[str] = []
        self.store: dict[tuple[str, ...], bytes] = {}
        self.held: set[tuple[str, ...]] = set()
        self.routes: dict[str, Responder] = {}
        self.browser: Callable[[OpenUrl], str | None] = lambda effect: None
        self.bytes = 0
        self.taken_ports: set[int] = set()
        self.short = {MCP: "mcp", AS: "as"}

    def token_bytes(self, count: int) -> bytes:
        """Return bytes that are new each time, and the same in each run."""
        self.bytes += 1
        return sha256(str(self.bytes).encode()).digest()[:count]

    def authorizer(self, auth: Identity | None = None, url: str = f"{MCP}/mcp", **options: Any) -> Authorizer:
        """Return an authorizer that lives here."""
        clock = {"now": lambda: self.now, "token_bytes": self.token_bytes}
        return Authorizer(
            ServerOrigin("server", url=url), url, auth if auth is not None else OAuth(), **clock, **options
        )

    def document(self, url: str, content: object) -> None:
        """Serve a document."""
        self.routes[f"GET {url}"] = lambda effect: answer(content)

    def protect(self, url: str = f"{MCP}/mcp", place: str = PRM, issuer: str = AS, **more: object) -> None:
        """Serve the metadata of an MCP server."""
        self.document(place, {"resource": url, "authorization_servers": [issuer], **more})

    def run(self, flow: Generator[Any, Any, Any]) -> Any:
        """Run a flow to its end."""
        try:
            effect = next(flow)
            while True:
                try:
                    outcome = self.perform(effect)
                except Exception as problem:
                    effect = flow.throw(problem)
                else:
                    effect = flow.send(outcome)
        except StopIteration as end:
            assert not self.held
            return end.value
        finally:
            self.held.clear()

    def perform(self, effect: object) -> object:
        """Answer one effect."""
        match effect:
            case Http():
                return self._http(effect)
            case AwaitRedirect(port):
                if port in self.taken_ports:
                    raise HttpUnavailable("the port is taken")
                free = next(each for each in range(3000, 3010) if each not in self.taken_ports)
                return f"http://127.0.0.1:{port or free}/callback"
            case OpenUrl():
                self.trace.append(f"OPEN {self._shown(effect.url)} {self._asked(urlsplit(effect.url).query)}".rstrip())
                return self.browser(effect)
            case ShowCode():
                self.trace.append(f"SHOW {effect.code} at {self._shown(effect.url)}")
            case LoginNote(text):
                self.notes.append(text)
            case LoadLogin(key):
                return self.store.get(key)
            case SaveLogin(key, value):
                self.store.pop(key, None)
                if value is not None:
                    self.store[key] = value
            case Lock(key):
                assert key not in self.held, "not re-entrant"
                self.held.add(key)
            case Unlock(key):
                self.held.remove(key)
            case Sleep(seconds):
                self.now += seconds
            case Supply(source, arguments):
                assert callable(source)
                return source(*arguments)
            case _:
                raise AssertionError(effect)
        return None

    def _http(self, effect: Http) -> HttpResult:
        place = effect.url.partition("?")[0]
        asked = self._asked(effect.body.decode()) if "form" in effect.headers.get("content-type", "") else ""
        self.trace.append(f"{effect.method} {self._shown(effect.url)} {asked}".rstrip())
        held = {each for each in self.held if each[0] != "login"}
        assert not held or effect.method == "POST", "only a refresh happens under the lock of a token"
        responder = self.routes.get(f"{effect.method} {place}")
        return responder(effect) if responder is not None else HttpResult(404, {}, b"")

    def _shown(self, url: str) -> str:
        place = url.partition("?")[0]
        for long, short in self.short.items():
            if place.startswith(long):
                return short + place.removeprefix(long)
        return place

    def _asked(self, query: str) -> str:
        """Return what tells requests of a kind apart."""
        fields = form(query)
        if "grant_type" in fields:
            fields["grant_type"] = fields["grant_type"].rpartition(":")[2]
        shown = {name: fields[name] for name in ("grant_type", "client_id", "scope", "resource") if name in fields}
        return " ".join(f"{name}={value.replace(MCP, 'mcp')}" for name, value in shown.items())

    def call(
        self,
        authorizer: Authorizer,
        server: Callable[[Attempt], HttpResult],
        operation: str = "tools/list",
        method: str = "POST",
    ) -> int:
        """Send a request to the MCP server as the driver does; return its final status."""
        attempt: Attempt | None = None
        for _ in range(8):
            found = authorizer.headers(method, f"{MCP}/mcp", attempt)
            if found is None:
                self.run(authorizer.prepare())
                found = authorizer.headers(method, f"{MCP}/mcp", attempt)
                assert found is not None
            attempt = found
            result = server(attempt)
            self.trace.append(f"{result.status} {operation}")
            authorizer.answered(attempt.url, result.headers)
            if result.status not in (401, 403):
                authorizer.accepted(lambda: operation)
                return result.status
            if not self.run(authorizer.refused(attempt, result.status, result.headers, operation)):
                return result.status
        raise AssertionError("it asks without end")


def form(text: str) -> dict[str, str]:
    """Return the fields of a form or a query, each of which comes once."""
    found = parse_qs(text, strict_parsing=bool(text), keep_blank_values=True)
    assert all(len(values) == 1 for values in found.values())
    return {name: values[0] for name, values in found.items()}


class AuthorizationServer:
    """An authorization server that approves of everything, and checks what every one must check."""

    def __init__(self, world: World, issuer: str = AS, place: str | None = None, **metadata: object) -> None:
        self.world = world
        self.issuer = issuer
        self.metadata: dict[str, object] = {
            "issuer": issuer,
            "authorization_endpoint": f"{issuer}/authorize",
            "token_endpoint": f"{issuer}/token",
            "registration_endpoint": f"{issuer}/register",
            "code_challenge_methods_supported": ["S256"],
            "token_endpoint_auth_methods_supported": ["none"],
            "authorization_response_iss_parameter_supported": True,
            **metadata,
        }
        self.metadata = {name: value for name, value in self.metadata.items() if value is not None}
        self.iss: str | None = issuer
        self.registered: list[dict[str, Any]] = []
        self.forms: list[dict[str, str]] = []
        self.headers: list[dict[str, str]] = []
        self.token_response: dict[str, object] = {}
        self.codes: dict[str, dict[str, str]] = {}
        self.count = 0
        self.registration: dict[str, object] = {}
        world.document(place or f"{issuer}/.well-known/oauth-authorization-server", self.metadata)
        world.routes[f"POST {issuer}/register"] = self.register
        world.routes[f"POST {issuer}/token"] = self.token
        world.browser = self.authorize

    def register(self, effect: Http) -> HttpResult:
        """Register a client."""
        body = json.loads(effect.body)
        self.registered.append(body)
        return answer(
            {"client_id": f"client-{len(self.registered)}", "client_secret": "s3cret-of-client", **self.registration},
            201,
        )

    def authorize(self, effect: OpenUrl) -> str:
        """Log the person in; return the query of the redirect."""
        query = form(urlsplit(effect.url).query)
        assert query["code_challenge_method"] == "S256"
        assert query["response_type"] == "code"
        assert query["redirect_uri"] == effect.redirect_uri
        assert query["state"] == effect.state
        code = f"code-{len(self.codes) + 1}"
        self.codes[code] = query
        return urlencode({"code": code, "state": query["state"], **({"iss": self.iss} if self.iss is not None else {})})

    def token(self, effect: Http) -> HttpResult:
        """Give a token."""
        fields = form(effect.body.decode())
        self.forms.append(fields)
        self.headers.append(dict(effect.headers))
        if fields["grant_type"] == "authorization_code":
            asked = self.codes.pop(fields["code"])
            expected = urlsafe_b64encode(sha256(fields["code_verifier"].encode()).digest()).rstrip(b"=").decode()
            assert asked["code_challenge"] == expected
            assert asked.get("resource") == fields.get("resource")
            assert asked["redirect_uri"] == fields["redirect_uri"]
        self.count += 1
        kind = "DPoP" if "dpop" in effect.headers else "Bearer"
        return answer(
            {"access_token": f"token-{self.count}", "token_type": kind, "expires_in": 3600, **self.token_response}
        )

    def takes(self, attempt: Attempt) -> HttpResult:
        """Answer a request of a client as an MCP server that takes the newest token."""
        if attempt.headers.get("authorization") == f"Bearer token-{self.count}":
            return answer({})
        return challenge(401)
