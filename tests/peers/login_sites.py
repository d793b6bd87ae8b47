"""MCP servers at which a client logs in: the authorization servers are other people's, and each is one that people have.

All have the tools `shout` and `write`, and want the scope `mcp:read`; `write` wants `mcp:write`, too.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from functools import partial
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, NamedTuple, Protocol
from urllib.parse import urlsplit

import pytest
from oidc_provider import SERVERS, Browser, authorization_server, sign_in, sign_in_through_proxy
from pip_servers import python_with

from linkspan import Server
from linkspan.auth import Introspection, Protected
from login_site import visit
from over_http import serving
from ports import reserve_port

__all__ = ["FORGETFUL", "SITES", "LoginSite", "own_server"]

HERE = Path(__file__).parent


class LoginSite(Protocol):
    """What a test needs of an MCP server and its authorization server."""

    @property
    def url(self) -> str:
        """The URL of the MCP server."""
        ...

    @property
    def scopes(self) -> Sequence[str]:
        """What a login has to name, so that it does not get all scopes at once."""
        ...

    @property
    def sign_in(self) -> Callable[[str], str | None]:
        """Logs in at a page as a person does; returns where it leads, or None after a visit there."""
        ...


class Running:
    """A server process. Those that keep their clients in memory forget them when it starts again."""

    def __init__(
        self,
        script: str,
        sign_in: Callable[[str], str | None] = visit,
        *,
        port: int | None = None,
        python: str = sys.executable,
        scopes: Sequence[str] = (),
        **options: Any,
    ) -> None:
        self.port = port or reserve_port()
        self.url = f"http://127.0.0.1:{self.port}/mcp"
        self.sign_in = sign_in
        self.scopes = scopes
        self._command = [python, str(HERE / script), str(self.port), json.dumps(options)]
        self.start()

    def start(self) -> None:
        self._process = subprocess.Popen(self._command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        give_up = time.monotonic() + 90
        while not self._answers():
            assert self._process.poll() is None, "the server ended"
            assert time.monotonic() < give_up, "the server does not answer"
            time.sleep(0.1)

    def _answers(self) -> bool:
        with closing(HTTPConnection("127.0.0.1", self.port, timeout=30)) as connection:
            try:
                connection.request("GET", urlsplit(self.url).path)
                connection.getresponse().read()
            except OSError:
                return False
            return True

    def stop(self) -> None:
        self._process.kill()
        self._process.wait(60)


@contextmanager
def running(*script: Any, **options: Any) -> Iterator[Running]:
    """A server process, which is ended; the arguments are those of `Running`."""
    server = Running(*script, **options)
    try:
        yield server
    finally:
        server.stop()


def own_server(kind: str) -> AbstractContextManager[Running]:
    """A server of another SDK, which is its own authorization server, in memory."""
    _need_fastmcp()
    return running("login_server.py", kind=kind)


class Serving(NamedTuple):
    """A server of this process."""

    url: str
    sign_in: Callable[[str], str | None]
    scopes: Sequence[str] = ()


@contextmanager
def ours(port: int, issuer: str, sign_in: Callable[[str], str | None]) -> Iterator[Serving]:
    """Our server, which asks an authorization server about opaque tokens."""
    url = f"http://127.0.0.1:{port}/mcp"
    verify = Introspection(issuer, SERVERS["client_id"], SERVERS["client_secret"])
    server = Server("site", auth=Protected(url, verify=verify, scopes=["mcp:read"]))

    @server.tool
    def shout(text: str) -> str:
        return text.upper()

    @server.tool(scopes=["mcp:write"])
    def write(text: str) -> str:
        return text

    with serving(server.asgi(path="/mcp"), port):
        yield Serving(url, sign_in)


@contextmanager
def ours_at_oidc_provider() -> Iterator[Serving]:
    """Our server, whose tokens are those of oidc-provider."""
    port = reserve_port()
    with authorization_server(f"http://127.0.0.1:{port}/mcp") as login, ours(port, login.issuer, sign_in) as server:
        yield server


@contextmanager
def ours_at_django() -> Iterator[Serving]:
    """Our server, whose tokens are those of django-oauth-toolkit."""
    pytest.importorskip("oauth2_provider", reason="django-oauth-toolkit is not installed: pip install '.[peers]'")
    with (
        running("django_oauth_server.py", **SERVERS) as login,
        ours(reserve_port(), f"http://127.0.0.1:{login.port}/o", authorize_at_django) as server,
    ):
        yield server


def authorize_at_django(url: str) -> None:
    """Allow what a client asks for."""
    browser = Browser(url)
    browser.submit(allow="Authorize")
    assert "Response received" in browser.text


@contextmanager
def jwt_verifier() -> Iterator[Running]:
    """A server of FastMCP, which verifies the tokens of oidc-provider by itself."""
    _need_fastmcp()
    port = reserve_port()
    with (
        authorization_server(f"http://127.0.0.1:{port}/mcp", format="jwt") as login,
        running("fastmcp_server.py", sign_in, port=port, issuer=login.issuer) as server,
    ):
        yield server


@contextmanager
def oauth_proxy(**options: Any) -> Iterator[Running]:
    """A server of FastMCP, which lets clients register with itself, and forwards their logins to oidc-provider.

    `options` are those of `Running`.
    """
    port = reserve_port()
    client = {**SERVERS, "redirect_uris": [f"http://127.0.0.1:{port}/auth/callback"]}
    client |= {"grant_types": ["authorization_code", "refresh_token"], "response_types": ["code"]}
    with (
        authorization_server(f"http://127.0.0.1:{port}/mcp", format="jwt", clients=[client]) as login,
        running(
            "fastmcp_server.py", sign_in_through_proxy, port=port, issuer=login.issuer, proxy=SERVERS, **options
        ) as server,
    ):
        yield server


def newest_oauth_proxy() -> AbstractContextManager[Running]:
    """That of FastMCP 4."""
    _need_fastmcp()
    return oauth_proxy()


def older_oauth_proxy() -> AbstractContextManager[Running]:
    """That of FastMCP 3, which cannot be in one environment with FastMCP 4.

    Its challenge names no scopes, so that a login asks for all that are listed, unless it is told otherwise.
    """
    return oauth_proxy(python=python_with("fastmcp-3.txt"), scopes=["mcp:read"])


def _need_fastmcp() -> None:
    pytest.importorskip("fastmcp", reason="FastMCP is not installed: pip install '.[peers]'")


FORGETFUL = ["official", "official with default scopes", "FastMCP"]
SITES: dict[str, Callable[[], AbstractContextManager[LoginSite]]] = {
    **{kind: partial(own_server, kind) for kind in FORGETFUL},
    "oidc-provider": ours_at_oidc_provider,
    "django-oauth-toolkit": ours_at_django,
    "JWTVerifier": jwt_verifier,
    "OAuthProxy": newest_oauth_proxy,
    "OAuthProxy of FastMCP 3": older_oauth_proxy,
}
