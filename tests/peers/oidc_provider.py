"""oidc-provider, an OpenID-certified authorization server from npm, in a process of its own."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from html import unescape
from http.cookiejar import CookieJar
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urljoin
from urllib.request import HTTPCookieProcessor, Request, build_opener, urlopen

from npm_servers import modern_node, node_modules

__all__ = [
    "DOCUMENT",
    "SERVERS",
    "AuthorizationServer",
    "Browser",
    "authorization_server",
    "sign_in",
    "sign_in_through_proxy",
]

HERE = Path(__file__).parent
SERVERS = {"client_id": "the-mcp-server", "client_secret": "a-secret-of-the-server"}
"""The credentials with which an MCP server asks about tokens."""
DOCUMENT = "https://desk.example/client.json"
"""Describes a client that registers nowhere."""


class AuthorizationServer:
    """One process of it."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        assert process.stdout is not None
        self.issuer: str = json.loads(process.stdout.readline())["issuer"]

    def requests(self, **wish: Any) -> dict[str, int]:
        """Return how many requests came for each path since this was asked last; do what is wished."""
        body = json.dumps(wish).encode()
        with urlopen(Request(f"{self.issuer}/_test", body, {"content-type": "application/json"})) as answer:
            return json.loads(answer.read())


@contextmanager
def authorization_server(resource: str, **options: Any) -> Iterator[AuthorizationServer]:
    """Start one whose tokens are for `resource`; `options` are described in authorization_server.mjs."""
    given = {
        "resource": resource,
        "clients": [{**SERVERS, "redirect_uris": [], "response_types": [], "grant_types": []}],
        "documents": {
            DOCUMENT: {
                "client_id": DOCUMENT,
                "client_name": "Desk",
                "redirect_uris": ["http://127.0.0.1/callback", "http://127.0.0.1/oauth/callback"],
                "grant_types": ["authorization_code", "refresh_token"],
                "response_types": ["code"],
                "token_endpoint_auth_method": "none",
                "application_type": "native",
            }
        },
        **options,
    }
    command = [modern_node(), str(HERE / "authorization_server.mjs"), str(node_modules()), json.dumps(given)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        try:
            yield AuthorizationServer(process)
        finally:
            process.kill()


class Browser:
    """A page, whose only form can be submitted; cookies are kept."""

    def __init__(self, url: str) -> None:
        self._opener = build_opener(HTTPCookieProcessor(CookieJar()))
        self._open(url)

    def submit(self, **fields: str) -> None:
        """Submit the form with what it hides, and with these fields."""
        form = re.search(r"<form[^>]*>", self.text)
        assert form is not None, self.text
        action = re.search(r'action="([^"]*)"', form[0])
        hidden = dict(re.findall(r'<input type="hidden" name="([^"]+)" value="([^"]*)"', self.text))
        sent = {name: unescape(value) for name, value in hidden.items()} | fields
        place = urljoin(self._url, unescape(action[1])) if action is not None else self._url
        self._open(place, urlencode(sent).encode())

    def _open(self, url: str, body: bytes | None = None) -> None:
        with self._opener.open(url, body, timeout=20) as page:
            self._url, self.text = page.url, page.read().decode()


def sign_in(url: str, name: str = "ada") -> None:
    """Fill in the forms of the authorization server as a person does, to the end."""
    _sign_in(Browser(url), name)


def sign_in_through_proxy(url: str) -> None:
    """Allow a client of a proxy to log in, then fill in the forms of the authorization server behind it."""
    browser = Browser(url)
    browser.submit(action="approve")
    _sign_in(browser, "ada")


def _sign_in(browser: Browser, name: str) -> None:
    browser.submit(login=name, password="x")
    browser.submit()
    assert "Response received" in browser.text
