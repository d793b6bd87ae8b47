"""Logins from end to end: our client, our protected server, and oidc-provider, an OpenID-certified authorization server.

The login in Chromium needs a browser; the others fill in the same forms over HTTP, and run with LINKSPAN_LOGINS=all only.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from http.cookiejar import CookieJar
from pathlib import Path
from queue import SimpleQueue
from typing import Any
from urllib.parse import urlencode, urljoin
from urllib.request import HTTPCookieProcessor, build_opener

import pytest
from npm_servers import INSTALLING, modern_node, node_modules
from oidc_provider import DOCUMENT, SERVERS, AuthorizationServer, authorization_server, sign_in

from http_browser import chromium
from linkspan import Client, Context, LoginRequired, Server, SyncClient
from linkspan.auth import Introspection, OAuth, Protected
from linkspan.client import authorizing
from linkspan.client.vault import Vault
from over_http import serving

slow = pytest.mark.skipif(
    os.environ.get("LINKSPAN_LOGINS") != "all", reason="takes a minute in all: set LINKSPAN_LOGINS=all"
)
pytestmark = INSTALLING


class World:
    """An MCP server at `url` whose tokens come from `login`; both can be replaced."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self._app: Any = Server("not yet").asgi(path="/mcp")
        self.url = stack.enter_context(serving(self))
        self.people: list[str] = []
        """Who has logged in, in their order."""
        self.login = self.replace()

    def replace(self, **options: Any) -> AuthorizationServer:
        """Let another authorization server be the one of the MCP server."""
        self.login = self._stack.enter_context(authorization_server(self.url, **options))
        issuer = self.login.issuer
        verify = Introspection(issuer, SERVERS["client_id"], SERVERS["client_secret"])
        server = Server("desk", auth=Protected(self.url, verify=verify, scopes=["mcp:read"]))

        @server.tool
        def who(ctx: Context) -> str:
            return ctx.grant.subject or "" if ctx.grant is not None else "nobody"

        @server.tool(scopes=["mcp:write"])
        def write(text: str) -> str:
            return text

        self._app = server.asgi(path="/mcp")
        return self.login

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        await self._app(scope, receive, send)

    def sign_in(self, url: str) -> None:
        """Fill in the forms of the authorization server as a person does, to the end."""
        name = f"ada-{len(self.people)}"
        self.people.append(name)
        sign_in(url, name)

    def client(self, **options: Any) -> SyncClient:
        return SyncClient(self.url, auth=OAuth(open_url=self.sign_in, **options))


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    modern_node(), node_modules()  # before the cache moves
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    authorizing._accesses.clear()
    with ExitStack() as stack:
        yield World(stack)


def expire(world: World) -> None:
    """Let the stored token be one that has expired."""
    vault = Vault()
    (key,) = [each for each in vault.all_keys() if each[0] == "grant"]
    stored = json.loads(vault.load(key) or b"")
    vault.save(key, json.dumps({**stored, "expires": 1.0, "due": 1.0}).encode())
    authorizing._accesses.clear()
    world.login.requests()


def test_a_login_in_a_browser_lasts_beyond_the_process(world: World) -> None:
    with chromium() as browser:  # from here on, since it can be used in the thread only that has started it
        pages: SimpleQueue[str] = SimpleQueue()
        answers: SimpleQueue[str] = SimpleQueue()

        def call() -> None:
            with SyncClient(world.url, auth=OAuth(open_url=pages.put)) as client:
                answers.put(client.call_tool("who").text)

        calling = threading.Thread(target=call, daemon=True)
        calling.start()
        page = browser.new_page()
        page.goto(pages.get(timeout=30))
        page.fill("input[name=login]", "ada")
        page.fill("input[name=password]", "x")
        page.click("button[type=submit]")
        page.get_by_role("button", name="Continue").click()
        page.get_by_text("Response received").wait_for()
        assert answers.get(timeout=30) == "ada"
        calling.join(30)
    code = f"from linkspan import SyncClient\nwith SyncClient({world.url!r}) as c: print(c.call_tool('who').text)"
    again = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert again.stdout == "ada\n"
    assert world.login.requests()["/reg"] == 1


@slow
def test_a_login_by_forms_lasts_beyond_the_process(world: World) -> None:
    with world.client() as client:
        assert client.call_tool("who").text == "ada-0"
    authorizing._accesses.clear()
    with SyncClient(world.url) as client:
        assert client.call_tool("who").text == "ada-0"
    assert len(world.people) == 1
    assert world.login.requests()["/reg"] == 1


@slow
def test_eight_processes_whose_token_has_expired_refresh_once(world: World) -> None:
    with world.client() as client:
        client.call_tool("who")
    expire(world)
    code = f"from linkspan import SyncClient\nwith SyncClient({world.url!r}) as c: print(c.call_tool('who').text)"
    running = [subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) for _ in range(8)]
    assert {each.communicate(timeout=60)[0] for each in running} == {"ada-0\n"}
    assert world.login.requests()["/token"] == 1


@slow
def test_a_step_up_in_the_middle_of_a_session(world: World) -> None:
    with world.client() as client:
        assert client.call_tool("who").text == "ada-0"
        assert client.call_tool("write", {"text": "x"}).text == "x"
        assert client.call_tool("who").text == "ada-1"
    assert len(world.people) == 2


@slow
def test_a_revoked_token_is_refreshed_and_a_revoked_login_is_repeated(world: World) -> None:
    with world.client() as client:
        client.call_tool("who")
        world.login.requests(forget=["AccessToken"])
        assert client.call_tool("who").text == "ada-0"
        world.login.requests(forget=["AccessToken", "RefreshToken"])
        assert client.call_tool("who").text == "ada-1"


@slow
def test_another_authorization_server_gets_a_registration_of_its_own(world: World) -> None:
    with world.client() as client:
        assert client.call_tool("who").text == "ada-0"
        first, second = world.login, world.replace()
        first.requests()
        assert client.call_tool("who").text == "ada-1"
        assert second.requests()["/reg"] == 1
        assert "/token" not in first.requests()


@slow
def test_twenty_parallel_calls_cause_one_login(world: World) -> None:
    async def run() -> set[str]:
        async with asyncio.timeout(60):
            client = Client(world.url, auth=OAuth(open_url=world.sign_in))
            answers = await asyncio.gather(*(client.call_tool("who") for _ in range(20)))
            await client.close()
            return {each.text for each in answers}

    assert asyncio.run(run()) == {"ada-0"}
    assert world.login.requests()["/token"] == 1


@slow
@pytest.mark.parametrize("nonces", [False, True])
def test_tokens_that_are_bound_to_a_key(world: World, nonces: bool) -> None:
    pytest.importorskip("joserfc", reason="joserfc is not installed: pip install '.[auth]'")
    if nonces:
        world.replace(nonces=True)
    with world.client(dpop=True) as client:
        assert client.call_tool("who").text == "ada-0"
        assert client.call_tool("who").text == "ada-0"


@slow
def test_a_client_that_a_document_describes_registers_nowhere(world: World) -> None:
    with world.client(client_metadata_url=DOCUMENT) as client:
        assert client.call_tool("who").text == "ada-0"
    assert "/reg" not in world.login.requests()


@slow
def test_a_logout_revokes_the_login(world: World) -> None:
    with world.client() as client:
        client.call_tool("who")
    done = subprocess.run([sys.executable, "-m", "linkspan", "logout"], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, f"logged out of {world.url}\n")
    assert world.login.requests()["/token/revocation"] == 1
    authorizing._accesses.clear()
    with pytest.raises(LoginRequired):
        SyncClient(world.url).connect()


@slow
def test_a_login_on_another_device(world: World) -> None:
    command = [sys.executable, "-m", "linkspan", "login", world.url, "--device"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    found = re.search(r"Open (\S+) on any device and enter the code (\S+)", process.stderr.readline())
    assert found is not None
    opener = build_opener(HTTPCookieProcessor(CookieJar()))
    with opener.open(found[1]) as page:
        text, place = page.read().decode(), page.url
    xsrf = re.search(r'name="xsrf" value="([^"]+)"', text)
    assert xsrf is not None
    steps: list[dict[str, str]] = [
        {"xsrf": xsrf[1], "user_code": found[2]},
        {"xsrf": xsrf[1], "user_code": found[2], "confirm": "yes"},
        {"prompt": "login", "login": "ada", "password": "x"},
        {"prompt": "consent"},
    ]
    for fields in steps:
        action = re.search(r'<form[^>]*action="([^"]+)"', text)
        assert action is not None, text
        with opener.open(urljoin(place, action[1]), urlencode(fields).encode()) as page:
            text, place = page.read().decode(), page.url
    out, _ = process.communicate(timeout=60)
    assert out.startswith(f"logged in to {world.url}")
