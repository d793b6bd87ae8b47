"""Our clients log in at the authorization servers that other SDKs have of their own, and live with the login to its end."""

from __future__ import annotations

import asyncio
import json
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlencode
from urllib.request import urlopen

import pytest
from login_sites import FORGETFUL, SITES, LoginSite, own_server
from npm_servers import INSTALLING

from linkspan import Client, SyncClient
from linkspan.auth import OAuth
from linkspan.cli.main import main
from linkspan.client import authorizing
from linkspan.client.vault import Vault
from login_site import visit

LOGIN_REQUIRED = 5
pytestmark = INSTALLING


class Person:
    """Logs in wherever a client asks for it, and counts how often that was."""

    def __init__(self, site: LoginSite) -> None:
        self._sign_in = site.sign_in
        self.scopes = site.scopes
        self.logins = 0

    def __call__(self, url: str) -> str | None:
        self.logins += 1
        return self._sign_in(url)


# One call, by each of our clients; each begins with what is stored, as another process does.


def by_sync_client(url: str, tool: str, person: Person) -> str:
    authorizing._accesses.clear()
    with SyncClient(url, auth=OAuth(open_url=person, scopes=person.scopes)) as client:
        return client.call_tool(tool, {"text": "hello"}).text


def by_async_client(url: str, tool: str, person: Person) -> str:
    async def call() -> str:
        async with Client(url, auth=OAuth(open_url=person, scopes=person.scopes)) as client:
            return (await client.call_tool(tool, {"text": "hello"})).text

    authorizing._accesses.clear()
    return asyncio.run(call())


def by_command_line(url: str, tool: str, person: Person) -> str:
    """Call without a terminal; where the answer is that a login is needed, run the command that it names, and call again."""
    call = ["call", url, tool, "text=hello"]
    status, out, problem = linkspan(*call)
    if status == LOGIN_REQUIRED:
        named = re.search(r"run `linkspan ([^`]+)`", problem)
        assert named is not None, problem
        more = [f"--scope={each}" for each in person.scopes]
        log_in([*shlex.split(named[1]), *more], person)
        status, out, problem = linkspan(*call)
    assert status == 0, problem
    return out.strip()


def linkspan(*arguments: str) -> tuple[int, str, str]:
    """Run a command in this process, as a new one would; return its status and what it has written."""
    authorizing._accesses.clear()
    with redirect_stdout(StringIO()) as out, redirect_stderr(StringIO()) as problem:
        status = main(arguments)
    return status, out.getvalue(), problem.getvalue()


def log_in(arguments: list[str], person: Person) -> None:
    """Run a command that logs in, and open the page that it names; the last redirect leads back to it."""
    pipes: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-m", "linkspan", *arguments], **pipes, text=True) as process:
        try:
            assert process.stderr is not None
            said = process.stderr.readline()
            assert "Open this URL" in said, said
            back = person(process.stderr.readline().strip())
            if back is not None:
                visit(back)
            _, problem = process.communicate(timeout=60)
            assert process.returncode == 0, problem
        finally:
            process.kill()


# What is stored.


class Stored:
    """The one login that is stored."""

    def __init__(self) -> None:
        self._vault = Vault()
        (self._place,) = [each for each in self._vault.all_keys() if each[0] == "grant"]
        (server,) = [each for each in self._vault.all_keys() if each[0] == "server"]
        self.tokens: dict[str, Any] = json.loads(self._vault.load(self._place) or b"")
        self._known: dict[str, Any] = json.loads(self._vault.load(server) or b"")

    def change(self, **members: Any) -> None:
        """Store other tokens than it has."""
        self.tokens |= members
        self._vault.save(self._place, json.dumps(self.tokens).encode())

    def renew(self) -> int:
        """Return the status with which the authorization server answers a refresh; what it gives is not kept."""
        client = self._known["client"]
        form = {
            "grant_type": "refresh_token",
            "refresh_token": self.tokens["refresh_token"],
            "client_id": client["client_id"],
            "client_secret": client.get("client_secret") or "",
        }
        if self.tokens.get("resource"):
            form["resource"] = self.tokens["resource"]
        body = urlencode({name: value for name, value in form.items() if value}).encode()
        try:
            with urlopen(self._known["server"]["token_endpoint"], body, timeout=30) as answer:
                self.tokens |= json.loads(answer.read())
                return answer.status
        except HTTPError as refused:
            with refused:
                return refused.code


@pytest.fixture(scope="module", params=SITES)
def site(request: pytest.FixtureRequest) -> Iterator[LoginSite]:
    with SITES[request.param]() as found:
        yield found


@pytest.fixture(autouse=True)
def no_logins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"):
        monkeypatch.delenv(name, raising=False)
    authorizing._accesses.clear()


@pytest.mark.parametrize("call", [by_sync_client, by_async_client, by_command_line])
def test_a_login_from_registration_to_logout(site: LoginSite, call: Callable[[str, str, Person], str]) -> None:
    person = Person(site)
    assert call(site.url, "shout", person) == "HELLO"
    first = Stored()

    first.change(expires=1.0, due=1.0)
    assert call(site.url, "shout", person) == "HELLO"
    second = Stored()
    assert second.tokens["access_token"] != first.tokens["access_token"]

    second.change(access_token="a-token-that-the-server-refuses")
    assert call(site.url, "shout", person) == "HELLO"
    assert person.logins == 1, "it was refreshed both times"

    assert call(site.url, "write", person) == "hello"
    assert person.logins == 2, "a login with more scopes"
    last = Stored()
    assert set(last.tokens["scopes"]) >= {"mcp:read", "mcp:write"}
    assert last.renew() == 200
    last.change()

    status, out, _ = linkspan("logout", site.url)
    assert (status, out.splitlines()[0]) == (0, f"logged out of {site.url}")
    assert last.renew() in (400, 401), "the server has revoked it"


@pytest.mark.parametrize("kind", FORGETFUL)
def test_our_client_logs_in_again_after_the_server_has_lost_its_clients(kind: str) -> None:
    def call() -> str:
        with SyncClient(site.url, auth=OAuth(open_url=visit)) as client:
            return client.call_tool("shout", {"text": "hello"}).text

    with own_server(kind) as site:
        assert call() == "HELLO"
        site.stop()
        site.start()
        assert call() == "HELLO"
