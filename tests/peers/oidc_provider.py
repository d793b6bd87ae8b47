"""oidc-provider, an OpenID-certified authorization server from npm, in a process of its own."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from http.cookiejar import CookieJar
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urljoin
from urllib.request import HTTPCookieProcessor, Request, build_opener, urlopen

from npm_servers import modern_node, node_modules

__all__ = ["DOCUMENT", "SERVERS", "AuthorizationServer", "authorization_server", "sign_in"]

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
    given = {
        "resource": resource,
        "clients": [{**SERVERS, "redirect_uris": [], "response_types": [], "grant_types": []}],
        "documents": {
            DOCUMENT: {
                "client_id": DOCUMENT,
                "client_name": "Desk",
                "redirect_uris": ["http://127.0.0.1/callback"],
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


def sign_in(url: str, name: str = "ada") -> None:
    """Fill in the forms of the authorization server as a person does, to the end."""
    opener = build_opener(HTTPCookieProcessor(CookieJar()))
    with opener.open(url, timeout=20) as page:
        place, text = page.url, page.read().decode()
    for fields in ({"prompt": "login", "login": name, "password": "x"}, {"prompt": "consent"}):
        action = re.search(r'<form[^>]*action="([^"]+)"', text)
        assert action is not None, text
        with opener.open(urljoin(place, action[1]), urlencode(fields).encode(), timeout=20) as page:
            place, text = page.url, page.read().decode()
    assert "Response received" in text
